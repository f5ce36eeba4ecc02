//! The clients for other languages, each with a script that pushes and works.

mod node;
mod python;
mod ruby;
mod ruby_classes;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim_testkit::find_program;

use crate::http::Api;
use crate::site::{Serving, Site, eventually, happens, text};

const QUEUE: &str = "[queues.orders]\nmode = \"fifo\"\nmax_retries = 1\nretain_completed = \"1h\"\n\
    backoff = { kind = \"constant\", base = \"10ms\" }\n";

/// A language: its interpreter, the package that has it, and the script.
struct Language {
    program: &'static str,
    package: &'static str,
    script: &'static str,
    /// What its users read of the client, with blocks of this mark.
    page: &'static str,
    mark: &'static str,
    /// Makes the client one that a program in the site's folder finds, as the page says.
    install: fn(&Site),
}

impl Language {
    fn program(&self) -> String {
        let found = find_program(self.program, self.package);
        found.unwrap_or_else(|missing| panic!("{missing}")).display().to_string()
    }

    fn script(&self) -> String {
        format!("{}/tests/cli/clients/{}", env!("CARGO_MANIFEST_DIR"), self.script)
    }

    fn command(&self, site: &Site, arguments: &[&str]) -> Command {
        let mut command = site.program(&self.program(), &[&self.script()]);
        command.args(arguments).stdin(Stdio::null()).env("PYTHONPATH", PYTHON_CLIENT);
        command
    }

    /// A remote worker, whose heartbeats come every third of the lease, but at least every 5 s.
    fn works(&self, api: &Api, lease_sec: u32) -> Serving {
        let (url, lease) = (format!("http://{}", api.address), lease_sec.to_string());
        Serving(self.command(&api.site, &["remote", &url, &lease]).spawn().unwrap())
    }
}

/// Where Python finds the package `seriatim`.
pub(crate) const PYTHON_CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");

/// What the handlers have been called with for a key: name and attempt.
fn seen(site: &Site, key: &str) -> Vec<String> {
    let seen = std::fs::read_to_string(site.path("seen")).unwrap_or_default();
    let of_key = |line: &str| line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
    seen.lines().filter_map(of_key).collect()
}

async fn sees(site: &Site, key: &str, wanted: &[&str]) {
    let is_so = async || seen(site, key) == wanted;
    assert!(happens(is_so).await, "{key}: {wanted:?} was not seen, but {:?}", seen(site, key));
}

/// Pushes jobs, of which each has a key, a name and what its handler does; returns their ids.
fn push(api: &Api, jobs: &[(&str, &str, &str)]) -> Vec<String> {
    let job = |(key, name, told): &(&str, &str, &str)| json!({ "key": key, "payload": { "name": name, "do": told } });
    let jobs: Vec<Value> = jobs.iter().map(job).collect();
    let pushed = api.post("/api/v1/queues/orders/jobs", &json!(jobs)).done();
    let id = |job: &Value| job["job_id"].as_str().unwrap().to_owned();
    pushed["jobs"].as_array().unwrap().iter().map(id).collect()
}

fn job(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/jobs/{id}")).done()
}

async fn becomes(api: &Api, id: &str, status: &str) -> Value {
    let is_so = async || job(api, id)["status"] == status;
    assert!(happens(is_so).await, "it is not {status}: {}", job(api, id));
    job(api, id)
}

/// What a worker must make of each answer of a handler.
async fn makes_of_every_answer_what_it_means(api: &Api) {
    let ids = push(
        api,
        &[
            ("a", "1", "fail"),
            ("a", "2", ""),
            ("b", "1", "bury"),
            ("c", "1", "odd"),
            ("d", "1", "wait"),
            ("e", "1", "snooze"),
            ("r", "1", "return"),
            ("ключ", "1", "bytes"),
            ("l", "1", "long"),
            ("p", "1", "plain"),
        ],
    );
    becomes(api, &ids[1], "succeeded").await;
    sees(&api.site, "a", &["1 1", "1 2", "2 1"]).await;
    assert_eq!(becomes(api, &ids[2], "dead").await["error"], "told to bury");
    let odd = becomes(api, &ids[3], "dead").await["error"].to_string();
    assert!(odd.contains("explode") && odd.contains("snooze"), "{odd}");
    let bytes = becomes(api, &ids[7], "dead").await["error"].to_string();
    assert!(
        bytes.contains("caf?") || bytes.contains("caf\u{fffd}"),
        "half a character is replaced: {bytes}"
    );
    let long = becomes(api, &ids[8], "dead").await["error"].to_string();
    assert!(long.contains("results[0].result") && long.len() < 300, "without the value: {long}");
    assert!(becomes(api, &ids[9], "succeeded").await["result"].is_null());
    let told = async || job(api, &ids[4])["progress"] == json!({ "percent": 40 });
    eventually("progress", told).await;
    api.act(&format!("/api/v1/jobs/{}/cancel", ids[4])).done();
    becomes(api, &ids[4], "canceled").await;
    assert_eq!(becomes(api, &ids[6], "succeeded").await["result"], json!({ "sum": 6 }));
    std::fs::write(api.site.path("go"), "").unwrap();
    let snoozed = becomes(api, &ids[5], "succeeded").await;
    assert_eq!(snoozed["retry_count"], -1, "a snooze is no failure: {snoozed}");
}

/// A step that has ended is not run again, and its progress stays; a cancelled job ends at its next step.
async fn goes_on_at_the_next_step(api: &Api, told: &'static str) {
    let failed = push(api, &[("f", "1", told)]);
    let done = becomes(api, &failed[0], "succeeded").await;
    assert_eq!(done["attempt"], 2, "{done}");
    sees(&api.site, "f", &["1 1", "one 1", "1 2", "two after one 2"]).await;
    let ids = push(api, &[("g", "1", "stepping")]);
    sees(&api.site, "g", &["1 1", "step 1"]).await;
    let told = async || {
        let job = job(api, &ids[0]);
        job["progress"] == json!({ "percent": 40 })
            && job["steps"]["done"].as_array().is_some_and(|done| done.len() > 1)
    };
    eventually("progress beside steps", told).await;
    api.act(&format!("/api/v1/jobs/{}/cancel", ids[0])).done();
    becomes(api, &ids[0], "canceled").await;
}

async fn remote_worker_in_steps(language: &Language) {
    let api = Api::start(QUEUE);
    let worker = language.works(&api, 10);
    goes_on_at_the_next_step(&api, "steps").await;
    worker.stop();
}

async fn process_worker_in_steps(language: &Language) {
    let api = process_api(language);
    goes_on_at_the_next_step(&api, "crash").await;
}

fn process_api(language: &Language) -> Api {
    Api::start(&format!(
        "[node]\nlease = \"5s\"\nheartbeat = \"300ms\"\n{QUEUE}[[workers]]\nqueue = \"orders\"\nprocess = [{:?}, {:?}, \"process\"]\nconcurrency = 6\n\
         env = {{ PYTHONPATH = {PYTHON_CLIENT:?} }}\n",
        language.program(),
        language.script(),
    ))
}

async fn remote_worker(language: &Language) {
    let api = Api::start(QUEUE);
    // A third of it is no whole number of milliseconds.
    let worker = language.works(&api, 5);
    makes_of_every_answer_what_it_means(&api).await;
    worker.stop();
}

async fn process_worker(language: &Language) {
    let api = process_api(language);
    makes_of_every_answer_what_it_means(&api).await;
    // What it prints is logged.
    api.logs("done: a");
    if language.program != "ruby" {
        api.logs("returned 42, which is not an outcome: use done(42)");
    }
}

async fn stop(language: &Language) {
    let api = Api::start(QUEUE);
    let worker = language.works(&api, 60);
    let ids = push(&api, &[("a", "1", "wait"), ("a", "2", ""), ("b", "1", "release")]);
    sees(&api.site, "a", &["1 1"]).await;
    sees(&api.site, "b", &["1 1"]).await;
    worker.signal(Signal::TERM);
    let released = becomes(&api, &ids[2], "queued").await;
    assert_eq!((&released["attempt"], &released["crashes"]), (&json!(0), &json!(0)), "uncounted");
    std::fs::write(api.site.path("go"), "").unwrap();
    worker.ends();
    assert_eq!(becomes(&api, &ids[0], "succeeded").await["attempt"], 1);
    sees(&api.site, "a", &["1 1"]).await;
    let next = language.works(&api, 60);
    becomes(&api, &ids[1], "succeeded").await;
    becomes(&api, &ids[2], "succeeded").await;
    sees(&api.site, "a", &["1 1", "2 1"]).await;
    next.stop();
}

async fn stopped_by_an_operator(language: &Language) {
    let api = Api::start(QUEUE);
    let (worker, busy) = (language.works(&api, 3), push(&api, &[("a", "1", "wait")]));
    sees(&api.site, "a", &["1 1"]).await;
    let nodes = api.get("/api/v1/nodes").done();
    let mut names =
        nodes["nodes"].as_array().unwrap().iter().filter_map(|one| one["node"].as_str());
    let node = names.find(|name| name.starts_with("remote:")).unwrap();
    let stop = api.post(&format!("/api/v1/nodes/{node}/stop"), &Value::Null);
    assert_eq!(stop.done()["command"], "stop");
    std::fs::write(api.site.path("go"), "").unwrap();
    becomes(&api, &busy[0], "succeeded").await;
    worker.ends();
}

async fn lost_server(language: &Language) {
    let address = format!("127.0.0.1:{}", seriatim_testkit::free_port().unwrap());
    let api = Api::at(&address, Site::new(QUEUE), |_| {});
    let worker = language.works(&api, 600);
    let ids = push(&api, &[("a", "1", "wait"), ("a", "2", "")]);
    sees(&api.site, "a", &["1 1"]).await;
    let site = api.killed();
    // The job ends, and a push begins, while there is no server.
    std::fs::write(site.path("go"), "").unwrap();
    let mut push = language.command(&site, &["push", &format!("http://{address}")]);
    let push = push.stdout(Stdio::piped()).spawn().unwrap();
    let api = Api::at(&address, site, |_| {});
    for id in &ids {
        assert_eq!(becomes(&api, id, "succeeded").await["attempt"], 1, "nothing ran twice");
    }
    sees(&api.site, "a", &["1 1", "2 1"]).await;
    let pushed = push.wait_with_output().unwrap();
    assert!(pushed.status.success() && text(&pushed).starts_with("\"queued\"\n"), "{pushed:?}");
    worker.stop();
}

fn pushes(language: &Language) {
    let api = Api::start(QUEUE);
    let output =
        language.command(&api.site, &["push", &format!("http://{}", api.address)]).output();
    let output = output.unwrap();
    let told: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let wanted = [
        json!("queued"),
        json!("duplicate"),
        json!([3, 3]),
        json!("canceled"),
        json!("queued"),
        json!("canceled"),
        json!([400, "jobs[0].kee"]),
        json!([false]),
    ];
    assert_eq!(told, wanted, "{}", String::from_utf8_lossy(&output.stderr));
}

/// A proxy that sends to a login page gets no answer, and that page no token.
fn redirected(language: &Language) {
    let [api, elsewhere] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [from, to] = [&api, &elsewhere].map(|it| format!("http://{}", it.local_addr().unwrap()));
    let proxy = std::thread::spawn(move || {
        let (mut stream, _) = api.accept().unwrap();
        let _ = stream.read(&mut [0; 8_192]).unwrap();
        let head =
            format!("HTTP/1.1 302 Found\r\nLocation: {to}/login\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    });
    let output = language.command(&Site::new(""), &["redirected", &from]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "302\n", "{}", text(&output));
    proxy.join().unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    assert_eq!(elsewhere.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Runs the first blocks of a page as one program, until they have done so many jobs; it prints these lines.
async fn example(language: &Language, page: &str, blocks: usize, prints: &[&str]) {
    let api = Api::start(&QUEUE.replace("fifo", "accumulate"));
    let fence = format!("```{}\n", language.mark);
    let code = page.split(&fence).skip(1).take(blocks);
    let code: String = code.map(|block| block.split("```").next().unwrap()).collect();
    // Node goes by the end of its name.
    let (name, site) = ("example.mjs", &api.site);
    std::fs::write(site.path(name), code.replace("127.0.0.1:7117", &api.address)).unwrap();
    (language.install)(site);
    let mut program = site.program(&language.program(), &[name]);
    program.env("PYTHONPATH", PYTHON_CLIENT).stdin(Stdio::null());
    program.stdout(std::fs::File::create(site.path("printed")).unwrap());
    let (program, store) = (Serving(program.spawn().unwrap()), site.store().await);
    let done = async || store.stats(None).await.unwrap().first().map_or(0, |queue| queue.processed);
    eventually("all is done", async || done().await == prints.len() as u64).await;
    program.stop();
    let printed = std::fs::read_to_string(site.path("printed")).unwrap();
    let mut lines: Vec<&str> =
        printed.lines().map(|line| line.split(" (token ").next().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, prints);
}

async fn examples(language: &Language) {
    let prints = ["order-42 is paid", "order-42 is sent", "order-43 is paid", "order-44 is paid"];
    example(language, language.page, 2, &prints).await;
}

fn options(language: &Language) {
    let output = language.command(&Site::new(""), &["options"]).output().unwrap();
    let (told, refusal) =
        (text(&output), "concurrency must be a whole number from 1 to 1000, not ");
    assert_eq!(told.matches(refusal).count(), 4, "{told}");
}

/// Whoever waits for a job must not hear that it is cancelled because its worker did not hear from the server.
fn doubt(language: &Language) {
    let output = language.command(&Site::new(""), &["doubt"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).replace(' ', "");
    let wanted = "[true,\"release\",1]\n[true,\"release\",0]\n[true,\"cancel\",0]\n";
    assert_eq!(told, wanted, "{}", text(&output));
}

/// A transaction had the lane locked, for long: nothing was settled.
fn busy(language: &Language) {
    let output = language.command(&Site::new(""), &["busy"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).replace(' ', "");
    assert_eq!(told, "[true,\"cancel\",0]\n".repeat(1_201), "{}", text(&output));
}

/// Its outcome is not given up with those that did not end in time: it would run twice.
fn away(language: &Language) {
    let output = language.command(&Site::new(""), &["away"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "\"done\"\n", "{}", text(&output));
}

/// Of outcomes that are too large together, none is lost.
fn apart(language: &Language) {
    let output = language.command(&Site::new(""), &["apart"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "\"done\"\n\"done\"\n", "{}", text(&output));
}

/// A token that is refused may be known in a moment; what is too large never becomes smaller.
fn refused(language: &Language) {
    let output = language.command(&Site::new(""), &["refused"]).output().unwrap();
    let told = String::from_utf8(output.stdout.clone()).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = json!(["done", null]);
    let failed = json!(["retry", "the server refused the outcome `done`: refused"]);
    assert_eq!(told, [done.clone(), done.clone(), done, failed], "{}", text(&output));
}

/// Other lanes of the worker need the heartbeat too. What the server did not refuse for its progress is not sent again.
fn strict(language: &Language) {
    let output = language.command(&Site::new(""), &["strict"]).output().unwrap();
    let told = String::from_utf8(output.stdout.clone()).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let long = json!("progress has 65537 bytes as JSON; at most 65536 are kept");
    let (with, without) = (json!([true, false]), json!([false, false]));
    let is_refused = [long.clone(), with.clone(), without];
    let wanted = [&is_refused[..], &is_refused, &[long, with]].concat();
    assert_eq!(told, wanted, "{}", text(&output));
}

/// What the server takes and gives, the types of the clients must not refuse.
#[test]
fn the_types_have_the_fields_of_the_api() {
    let document = Site::new("").run(&["openapi"]).stdout;
    let document: Value = serde_json::from_slice(&document).unwrap();
    let python = include_str!("../../../../clients/python/seriatim/client.py");
    let node = include_str!("../../../../clients/node/index.d.ts");
    // Other spellings.
    let others = ["available_at", "id", "lease_ttl_sec", "perform_in"];
    for (schema, (text, begin, end)) in [
        ("Job", (python, "class Job(", "class Client")),
        ("LaneJob", (node, "interface LaneJob {", "}\n\n")),
    ] {
        let of_type = text.split_once(begin).unwrap().1.split_once(end).unwrap().0;
        let fields = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for name in fields.keys().filter(|name| !others.contains(&name.as_str())) {
            let is_there =
                ["", "?"].iter().any(|mark| of_type.contains(&format!(" {name}{mark}: ")));
            assert!(is_there, "{schema} lacks {name}");
        }
    }
}

/// The tests of a language.
macro_rules! tests {
    ($language:expr) => {
        #[tokio::test]
        async fn a_remote_worker_makes_of_every_answer_what_it_means() {
            super::remote_worker(&$language).await;
        }

        #[tokio::test]
        async fn a_process_worker_makes_of_every_answer_what_it_means() {
            super::process_worker(&$language).await;
        }

        #[tokio::test]
        async fn d12_a_remote_worker_goes_on_at_the_step_after_the_last_one_that_ended() {
            super::remote_worker_in_steps(&$language).await;
        }

        #[tokio::test]
        async fn d12_a_process_that_died_goes_on_at_the_step_after_the_last_one_that_ended() {
            super::process_worker_in_steps(&$language).await;
        }

        #[tokio::test]
        async fn a_remote_worker_that_stops_finishes_or_releases_its_lanes() {
            super::stop(&$language).await;
        }

        #[tokio::test]
        async fn a_remote_worker_that_an_operator_stops_finishes_and_ends() {
            super::stopped_by_an_operator(&$language).await;
        }

        #[tokio::test]
        async fn a_remote_worker_and_a_push_survive_the_death_of_the_server() {
            super::lost_server(&$language).await;
        }

        #[tokio::test]
        async fn the_examples_of_its_page_push_and_work() {
            super::examples(&$language).await;
        }

        #[test]
        fn options_with_which_a_worker_would_only_hang_are_refused() {
            super::options(&$language);
        }

        #[test]
        fn a_claim_that_only_may_be_lost_goes_back_and_is_not_cancelled() {
            super::doubt(&$language);
        }

        #[test]
        fn an_end_that_was_answered_busy_is_told_again_until_it_is_taken() {
            super::busy(&$language);
        }

        #[test]
        fn a_lane_that_ended_while_the_server_was_away_is_told_so_at_a_stop_and_not_released() {
            super::away(&$language);
        }

        #[test]
        fn outcomes_that_are_too_large_together_are_sent_apart() {
            super::apart(&$language);
        }

        #[test]
        fn progress_that_is_refused_ends_no_lease_and_too_much_is_refused_where_it_is_reported() {
            super::strict(&$language);
        }

        #[test]
        fn an_outcome_is_sent_again_after_a_refused_token_and_is_a_failure_if_it_is_refused_itself()
        {
            super::refused(&$language);
        }

        #[test]
        fn an_answer_that_sends_elsewhere_is_a_problem_and_the_token_stays_here() {
            super::redirected(&$language);
        }

        #[test]
        fn pushes_are_repeated_when_that_is_safe_and_say_what_is_wrong() {
            super::pushes(&$language);
        }
    };
}
use tests;
