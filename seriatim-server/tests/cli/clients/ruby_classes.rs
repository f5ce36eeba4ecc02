//! Classes of Ruby applications as workers: Sidekiq's and ActiveJob's with the real gems, Lowkiq's with its interface.

use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use seriatim_testkit::find_program;
use sha2::Sha256;

use crate::faults::Server;
use crate::http::Api;
use crate::site::{Site, happens, text};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/ruby/seriatim_worker.rb");
const APPLICATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/clients/ruby_app");
/// More than any class asks for: the classes decide.
const QUEUE: &str = "max_retries = 1000\nretain_completed = \"1h\"\n";
const MAC_KEY: &str = "0123456789abcdef0123456789abcdef";
const JID: &str = "b4a577edbccf1d805744efa9";

fn ruby() -> String {
    let found = find_program("ruby", "ruby");
    found.unwrap_or_else(|missing| panic!("{missing}")).display().to_string()
}

/// What the application noted.
fn notes(api: &Api) -> Vec<String> {
    let notes = std::fs::read_to_string(api.site.path("seen")).unwrap_or_default();
    notes.lines().map(str::to_owned).collect()
}

fn count(api: &Api, note: &str) -> usize {
    notes(api).iter().filter(|line| *line == note).count()
}

async fn notes_so(api: &Api, note: &str) {
    let is_so = async || count(api, note) > 0;
    assert!(happens(is_so).await, "{note:?} was not noted, but {:#?}\n{}", notes(api), api.log());
}

fn job(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/jobs/{id}")).done()
}

async fn becomes(api: &Api, id: &str, status: &str) -> Value {
    let is_so = async || job(api, id)["status"] == status;
    assert!(happens(is_so).await, "it is not {status}: {}\n{}", job(api, id), api.log());
    job(api, id)
}

fn push(api: &Api, jobs: &Value) -> Vec<String> {
    let pushed = api.post("/api/v1/queues/orders/jobs", jobs).done();
    let id = |job: &Value| job["job_id"].as_str().unwrap().to_owned();
    pushed["jobs"].as_array().unwrap().iter().map(id).collect()
}

/// Pushes a job as Sidekiq's client writes it, with further fields.
fn push_one(api: &Api, class: &str, what: &str, more: &Value) -> String {
    let mut hash =
        json!({ "class": class, "args": [what], "jid": JID, "queue": "orders", "retry": true });
    for (name, value) in more.as_object().unwrap() {
        hash[name] = value.clone();
    }
    push(api, &json!([{ "payload": hash }])).remove(0)
}

fn config(queue: &str, arguments: &[&str]) -> String {
    let (ruby, program) = (ruby(), PROGRAM);
    let words = [&*ruby, program].into_iter().chain(arguments.iter().copied());
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    format!(
        "[node]\nlease = \"5s\"\nheartbeat = \"300ms\"\nshutdown_timeout = \"500ms\"\n\
         [queues.orders]\n{queue}{QUEUE}\
         [[workers]]\nqueue = \"orders\"\nconcurrency = 4\nprocess = [{}]\n",
        words.join(", ")
    )
}

fn sidekiq_config(queue: &str) -> String {
    let application = format!("{APPLICATIONS}/sidekiq.rb");
    config(queue, &["--require", &application, "--threads", "4"])
}

fn sidekiq() -> Api {
    Api::start(&sidekiq_config("mode = \"parallel\"\n"))
}

fn lowkiq() -> Api {
    lowkiq_with("", "")
}

/// With an option for the variable that has the key of signatures, and one variable more.
fn lowkiq_with(option: &str, variable: &str) -> Api {
    let application = format!("{APPLICATIONS}/lowkiq.rb");
    let queue = "mode = \"accumulate\"\nbatch_size = 10\n";
    let mut arguments =
        vec!["--require", &*application, "--lowkiq", "Shop::Sync", "--threads", "4"];
    if !option.is_empty() {
        arguments.extend([option, "LOWKIQ_MAC_KEY"]);
    }
    // As the module says: Seriatim buries the first payload of several.
    let config = config(queue, &arguments).replace("max_retries = 1000\n", "max_retries = 2\n");
    let lib = std::env::var("LOWKIQ_LIB");
    let lib = lib.map(|lib| format!(", LOWKIQ_LIB = {lib:?}")).unwrap_or_default();
    Api::start(&format!("{config}env = {{ LOWKIQ_MAC_KEY = \"{MAC_KEY}\"{variable}{lib} }}\n"))
}

#[tokio::test]
async fn b12_a_job_of_sidekiq_runs_with_middleware_and_hooks_of_its_server() {
    let api = sidekiq();
    let id = push_one(&api, "Usual", "well", &json!({}));
    becomes(&api, &id, "succeeded").await;
    let wanted = [
        "startup of 4 threads".to_owned(),
        format!("middleware Usual [\"well\"] orders {JID} nil"),
        "Usual well".to_owned(),
    ];
    assert_eq!(notes(&api), wanted);
    // What it prints is logged.
    api.logs("said by well");
    assert_eq!(
        becomes(&api, &push_one(&api, "Usual", "skip", &json!({})), "succeeded").await["attempt"],
        1
    );
    let site = api.stopped();
    assert!(std::fs::read_to_string(site.path("seen")).unwrap().ends_with("shutdown\n"));
}

#[tokio::test]
async fn b12_an_error_is_retried_as_the_class_says_and_buried_at_its_limit() {
    let api = sidekiq();
    let id = push_one(&api, "Hooked", "fail", &json!({ "retry": 1 }));
    let dead = becomes(&api, &id, "dead").await;
    assert_eq!(
        (&dead["attempt"], &dead["error"]),
        (&json!(2), &json!("RuntimeError: told to fail"))
    );
    let wanted = [
        format!("middleware Hooked [\"fail\"] orders {JID} nil"),
        "Hooked fail".to_owned(),
        format!("middleware Hooked [\"fail\"] orders {JID} 0"),
        "Hooked fail".to_owned(),
        "exhausted 1 told to fail".to_owned(),
        "death Hooked 1 told to fail".to_owned(),
    ];
    assert_eq!(notes(&api)[1..], wanted);

    // What it failed before it came here counts.
    let id = push_one(&api, "Hooked", "fail", &json!({ "retry": 4, "retry_count": 3 }));
    assert_eq!(becomes(&api, &id, "dead").await["attempt"], 1);
    notes_so(&api, "exhausted 4 told to fail").await;
}

#[tokio::test]
async fn b12_without_a_rule_of_the_class_the_wait_is_that_of_sidekiq() {
    let api = sidekiq();
    let id = push_one(&api, "Usual", "fail", &json!({}));
    let failed = async || job(&api, &id)["retry_count"] == 0;
    assert!(happens(failed).await, "{}", job(&api, &id));
    let job = job(&api, &id);
    let time = |name: &str| job[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = time("run_at").duration_since(time("created_at")).as_secs();
    assert!((14..30).contains(&wait), "n⁴ + 15 + up to 9 s: {wait} s, {job}");
}

#[tokio::test]
async fn b12_what_a_class_gives_up_ends_as_it_says_with_its_hooks_and_handlers() {
    let api = sidekiq();
    let ends = async |class: &str, what: &str, more: Value, status: &str| {
        let id = push_one(&api, class, what, &more);
        becomes(&api, &id, status).await
    };
    ends("Hooked", "kill", json!({}), "dead").await;
    notes_so(&api, "exhausted 0 told to kill").await;
    notes_so(&api, "death Hooked 0 told to kill").await;
    let discarded = ends("Hooked", "discard", json!({}), "canceled").await;
    assert_eq!(discarded["error"], "RuntimeError: told to discard");
    notes_so(&api, "death Hooked 0 told to discard").await;
    ends("Usual", "fail", json!({ "retry": false }), "canceled").await;
    notes_so(&api, "death Usual 0 told to fail").await;
    ends("Hooked", "fail", json!({ "retry": 0, "dead": false }), "canceled").await;
    notes_so(&api, "exhausted 0 told to fail").await;
    assert_eq!(count(&api, "exhausted 0 told to discard"), 0, "a discarded job is not exhausted");
}

#[tokio::test]
async fn b12_retry_for_counts_from_the_first_failure() {
    let api = sidekiq();
    let id = push_one(&api, "Late", "fail", &json!({ "retry_for": 1 }));
    assert_eq!(becomes(&api, &id, "dead").await["attempt"], 2);
    // It failed long ago, before it came here; in milliseconds, as Sidekiq 8 writes it.
    let before =
        json!({ "retry_for": 3_600, "retry_count": 5, "failed_at": 1_600_000_000_000_u64 });
    let id = push_one(&api, "Late", "fail", &before);
    assert_eq!(becomes(&api, &id, "dead").await["attempt"], 1);
}

#[tokio::test]
async fn b12_active_jobs_run_with_and_without_the_wrapper_of_sidekiq() {
    let api = sidekiq();
    let wrapped = |what: &str| {
        let arguments = json!([{ "job_class": "Active", "job_id": "7c0e", "queue_name": "orders", "arguments": [what] }]);
        let class = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper";
        json!({ "args": arguments, "class": class, "wrapped": "Active" })
    };
    let id = push_one(&api, "", "", &wrapped("well"));
    becomes(&api, &id, "succeeded").await;
    notes_so(&api, &format!("Active well {JID}")).await;
    becomes(&api, &push_one(&api, "", "", &wrapped("discard")), "succeeded").await;
    notes_so(&api, "discarded discard").await;
    let id = push_one(&api, "", "", &wrapped("fail"));
    let failed = async || job(&api, &id)["retry_count"] == 0;
    assert!(happens(failed).await, "{}", job(&api, &id));
    // As a [[cron]] entry pushes it.
    let id =
        push(&api, &json!([{ "payload": { "class": "Active", "args": ["plain"] } }])).remove(0);
    becomes(&api, &id, "succeeded").await;
    notes_so(&api, &format!("Active plain {id}")).await;
}

#[tokio::test]
async fn b14_what_is_no_job_of_the_application_is_refused_and_nothing_of_it_runs() {
    let api = sidekiq();
    let wrapper = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper";
    for (payload, why) in [
        (json!("text"), "the payload is not a Sidekiq job"),
        (json!({ "class": "system('ls')", "args": [] }), "write the name of a class"),
        (json!({ "class": "Usual", "args": "x" }), "`args` is not a list"),
        (json!({ "class": "Usual", "args": [], "retry_count": "x" }), "`retry_count` is \"x\""),
        (json!({ "class": "NoJob", "args": [] }), "NoJob is not a class of Sidekiq's"),
        (
            json!({ "class": wrapper, "args": [{ "job_class": "NoJob" }] }),
            "NoJob is not a class of ActiveJob",
        ),
        (json!({ "class": wrapper, "args": [] }), "`args[0].job_class` is nil"),
    ] {
        let id = push(&api, &json!([{ "payload": payload }])).remove(0);
        let error = becomes(&api, &id, "dead").await["error"].to_string();
        assert!(
            error.contains("refused: ") && error.contains(&why.replace('"', "\\\"")),
            "{payload}: {error}"
        );
    }
    assert_eq!(count(&api, "NoJob was made"), 0);
    // A newer version of the application may have it.
    let id = push_one(&api, "Newer", "well", &json!({}));
    let failed = async || job(&api, &id)["retry_count"] == 0;
    assert!(happens(failed).await, "{}", job(&api, &id));
}

#[tokio::test]
async fn b12_the_jobs_of_a_lane_run_one_after_the_other_and_a_failure_keeps_what_is_done() {
    let api = Api::start(&sidekiq_config("mode = \"accumulate\"\n"));
    let told = |number: u32, class: &str, what: &str| {
        let payload =
            json!({ "class": class, "args": [what], "jid": format!("{JID}{number}"), "retry": 1 });
        json!({ "key": "a", "score": number, "payload": payload, "delay": "300ms" })
    };
    let jobs = json!([
        told(1, "Usual", "one"),
        told(2, "Hooked", "discard"),
        told(3, "Hooked", "fail"),
        told(4, "Usual", "four")
    ]);
    let ids = push(&api, &jobs);
    for id in &ids[..2] {
        assert_eq!(becomes(&api, id, "succeeded").await["attempt"], 1);
    }
    becomes(&api, &ids[2], "dead").await;
    assert_eq!((count(&api, "Usual one"), count(&api, "Hooked fail")), (1, 2));
    notes_so(&api, "death Hooked 0 told to discard").await;
}

#[tokio::test]
async fn b12_at_a_stop_the_job_is_interrupted_and_returns_uncounted() {
    let api = sidekiq();
    let id = push_one(&api, "Usual", "wait", &json!({}));
    notes_so(&api, "Usual wait").await;
    let site = api.stopped();
    let noted = std::fs::read_to_string(site.path("seen")).unwrap();
    assert!(noted.contains("Usual ends waiting\n") && noted.ends_with("shutdown\n"), "{noted}");
    std::fs::write(site.path("go"), "").unwrap();
    let api = Api::with(site, |_| {});
    let done = becomes(&api, &id, "succeeded").await;
    assert_eq!(
        (&done["attempt"], &done["retry_count"], &done["crashes"]),
        (&json!(1), &json!(-1), &json!(0)),
        "{done}"
    );
}

#[tokio::test]
async fn b12_a_job_that_iterates_goes_on_here_when_it_was_interrupted() {
    let api = sidekiq();
    let id = push_one(&api, "Usual", "go on", &json!({}));
    let done = becomes(&api, &id, "succeeded").await;
    assert_eq!((&done["attempt"], &done["retry_count"]), (&json!(1), &json!(-1)), "{done}");
    assert_eq!((count(&api, "Usual go on"), count(&api, "Usual was pushed to Sidekiq")), (2, 0));
}

#[tokio::test]
async fn b12_a_cancellation_and_a_time_limit_interrupt_one_job_and_no_other() {
    let api = sidekiq();
    let other = push_one(&api, "Hooked", "wait", &json!({}));
    let id = push_one(&api, "Usual", "wait", &json!({}));
    notes_so(&api, "Usual wait").await;
    notes_so(&api, "Hooked wait").await;
    api.act(&format!("/api/v1/jobs/{id}/cancel")).done();
    becomes(&api, &id, "canceled").await;
    notes_so(&api, "Usual ends waiting").await;
    let payload = json!({ "class": "Late", "args": ["wait"], "jid": JID, "retry": 0 });
    let limited = push(&api, &json!([{ "payload": payload, "timeout": "300ms" }])).remove(0);
    let late = async || job(&api, &limited)["retry_count"] == 0;
    assert!(happens(late).await, "{}\n{}", job(&api, &limited), api.log());
    let error = job(&api, &limited)["error"].to_string();
    assert!(error.contains("timed out"), "{error}");
    std::fs::write(api.site.path("go"), "").unwrap();
    assert_eq!(becomes(&api, &other, "succeeded").await["attempt"], 1, "{}", api.log());
    assert_eq!(count(&api, "startup of 4 threads"), 1, "one process ran them all");
}

async fn survives_kill_9(api: Api) {
    let id = push_one(&api, "Usual", "die", &json!({}));
    let done = becomes(&api, &id, "succeeded").await;
    assert_eq!((&done["attempt"], &done["retry_count"]), (&json!(2), &json!(-1)), "{done}");
    assert_eq!((count(&api, "Usual die"), count(&api, "startup of 4 threads")), (2, 2));
}

#[tokio::test]
async fn b12_a_job_whose_worker_was_killed_runs_again() {
    survives_kill_9(sidekiq()).await;
}

#[tokio::test]
async fn b12_the_same_on_redis() {
    let server = Server::redis();
    let config = sidekiq_config("mode = \"parallel\"\n");
    survives_kill_9(Api::start(&format!("[store]\nurl = \"{}\"\n{config}", server.url()))).await;
    drop(server);
}

#[tokio::test]
async fn b12_lowkiq_gets_a_batch_of_payloads_by_id_oldest_first() {
    let api = lowkiq();
    let told = |key: &str, score: u32, payload: &str| json!({ "key": key, "score": score, "payload": payload, "delay": "500ms" });
    let jobs = json!([told("a", 2, "a2"), told("a", 1, "a1"), told("b", 1, "b1")]);
    let ids = push(&api, &jobs);
    for id in &ids {
        assert_eq!(becomes(&api, id, "succeeded").await["attempt"], 1);
    }
    assert_eq!(notes(&api)[0], "init with 4 threads");
    notes_so(&api, "perform a [\"a1\", \"a2\"]").await;
    notes_so(&api, "perform b [\"b1\"]").await;
    assert!(notes(&api)[1].starts_with("middleware Shop::Sync ["), "{:?}", notes(&api));
}

#[tokio::test]
async fn b12_a_batch_of_lowkiq_that_fails_is_retried_and_its_first_payload_is_buried() {
    let api = lowkiq();
    let told = |score: u32, payload: &str| json!({ "key": "a", "score": score, "payload": payload, "delay": "300ms" });
    let ids = push(&api, &json!([told(1, "fail"), told(2, "well")]));
    let dead = becomes(&api, &ids[0], "dead").await;
    assert_eq!((&dead["error"], &dead["attempt"]), (&json!("told to fail"), &json!(3)), "{dead}");
    becomes(&api, &ids[1], "succeeded").await;
    notes_so(&api, "exhausted a [[\"fail\", 1.0]] told to fail").await;
    assert_eq!(count(&api, "perform a [\"well\"]"), 1, "what follows begins anew");
}

/// A worker of Lowkiq's gets this payload; its first failure.
async fn first_failure(api: &Api, payload: &str) -> String {
    let id = push(api, &json!([{ "key": "a", "score": 1, "payload": payload }])).remove(0);
    let has_failed = async || job(api, &id)["error"].is_string();
    assert!(happens(has_failed).await, "it has not failed: {}\n{}", job(api, &id), api.log());
    job(api, &id)["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn b12_before_version_1_2_lowkiq_has_no_format_of_errors_and_the_message_is_told() {
    let api = lowkiq_with("", ", LOWKIQ_OLD = \"1\"");
    assert_eq!(first_failure(&api, "fail").await, "told to fail");
}

#[tokio::test]
async fn b12_a_module_of_lowkiq_whose_own_hooks_fail_leaves_no_call_without_an_answer() {
    let api = lowkiq();
    std::fs::write(api.site.path("no-wait"), "").unwrap();
    assert_eq!(first_failure(&api, "fail").await, "RuntimeError: no wait is known");
}

#[tokio::test]
async fn b12_an_error_of_any_bytes_is_told_as_text() {
    assert_eq!(first_failure(&lowkiq(), "bytes").await, "caf\u{fffd}");
}

#[tokio::test]
async fn b14_lowkiq_refuses_what_marshal_wrote() {
    let api = lowkiq();
    let payload = json!({ "$marshal": "BAh7AA==", "mac": "00" });
    let id = push(&api, &json!([{ "key": "a", "payload": payload }])).remove(0);
    let error = becomes(&api, &id, "dead").await["error"].to_string();
    assert!(error.contains("Marshal"), "{error}");
}

/// What a bridge makes of a payload.
fn signed(id: &str, bytes: &[u8]) -> Value {
    let mut mac: Hmac<Sha256> = Hmac::new_from_slice(MAC_KEY.as_bytes()).unwrap();
    mac.update(format!("seriatim lowkiq 1\0Shop::Sync\0{id}\0").as_bytes());
    mac.update(bytes);
    let mac = STANDARD.encode(mac.finalize().into_bytes());
    json!({ "$marshal": STANDARD.encode(bytes), "mac": mac })
}

#[tokio::test]
async fn b14_lowkiq_reads_what_a_bridge_signed_for_this_id_and_nothing_else() {
    let api = lowkiq_with("--mac-key-env", "");
    let job = |key: &str, payload: Value| json!([{ "key": key, "score": 1, "payload": payload }]);
    let well = push(&api, &job("a", signed("a", b"\x04\x08[\x06i\x0c"))).remove(0);
    becomes(&api, &well, "succeeded").await;
    notes_so(&api, "perform a [[7]]").await;
    // That of another id, of no bridge, not even of the right form.
    let mut cut = signed("b", b"\x04\x08i\x0c");
    cut["mac"] = json!("%");
    let mut bare = signed("b", b"\x04\x08i\x0c");
    bare.as_object_mut().unwrap().remove("mac");
    for (payload, why) in [
        (signed("a", b"\x04\x08[\x06i\x0c"), "does not match queue, id and key"),
        (bare, "does not match"),
        (cut, "is not valid base64"),
        (json!({ "$marshal": [1], "mac": 7 }), "Marshal"),
    ] {
        let id = push(&api, &job("b", payload)).remove(0);
        let error = becomes(&api, &id, "dead").await["error"].to_string();
        assert!(error.contains(why), "{error}");
    }
    // A newer version of the application may have the class.
    let missing = signed("c", b"\x04\x08o:\x0cMissing\x00");
    let id = push(&api, &job("c", missing)).remove(0);
    let dead = becomes(&api, &id, "dead").await;
    assert_eq!(
        (&dead["attempt"], &dead["error"]),
        (&json!(3), &json!("undefined class/module Missing"))
    );
    assert!(notes(&api).iter().all(|note| !note.starts_with("perform b")), "{:?}", notes(&api));
}

/// Runs the program alone.
fn alone(site: &Site, arguments: &[&str]) -> Output {
    let mut command: Command = site.program(&ruby(), &[PROGRAM]);
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_the_program_cannot_use_it_refuses_with_the_reason() {
    let site = Site::new("");
    let (with_sidekiq, with_lowkiq) =
        (format!("{APPLICATIONS}/sidekiq.rb"), format!("{APPLICATIONS}/lowkiq.rb"));
    std::fs::write(site.path("scheduler.rb"), "module SidekiqScheduler; end").unwrap();
    for (arguments, why) in [
        (vec![], "--require is missing"),
        (vec!["--require", "."], "has no config/environment.rb"),
        (vec!["--require", &with_sidekiq, "--threads", "0"], "--threads is 0"),
        (vec!["--require", &with_sidekiq, "--thread", "x"], "invalid argument"),
        (vec!["--require", &with_sidekiq, "orders"], "\"orders\" is not an option"),
        (vec!["--require", &with_sidekiq, "--config", "none.yml"], "none.yml: no such file"),
        (vec!["--require", "none.rb", "--lowkiq", "X"], "cannot load none.rb: no such file"),
        (vec!["--require", "scheduler.rb", "--lowkiq", "X"], "loads no Lowkiq"),
        (vec!["--require", &with_lowkiq, "--lowkiq", "Shop"], "extends Lowkiq::Worker"),
        (vec!["--require", "scheduler.rb"], "sidekiq-scheduler is loaded"),
        (
            vec!["--require", &with_lowkiq, "--lowkiq", "Shop::Sync", "--mac-key-env", "HOME"],
            "variable HOME has",
        ),
    ] {
        let output = alone(&site, &arguments);
        assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
        assert!(!text(&output).contains("Error)"), "a backtrace: {}", text(&output));
    }
}

/// What `--describe` prints with these arguments, imported, is a configuration that is valid.
fn imported(site: &Site, system: &str, arguments: &[&str]) -> String {
    let described = alone(site, &[&["--describe"], arguments].concat());
    assert!(described.status.success(), "{}", text(&described));
    std::fs::write(site.path("describe.json"), described.stdout).unwrap();
    let made = site.run(&["import", system, "describe.json"]);
    assert!(made.status.success(), "{}", text(&made));
    std::fs::write(site.path("seriatim.toml"), &made.stdout).unwrap();
    std::fs::write(site.path("seriatim_worker.rb"), "").unwrap();
    let checked = site.run(&["config", "check"]);
    assert!(checked.status.success(), "{}\n{}", text(&checked), text(&made));
    String::from_utf8(made.stdout).unwrap()
}

#[test]
fn b12_the_settings_and_cron_entries_of_an_application_are_imported() {
    let (site, server) = (Site::new(""), Server::redis());
    let url = server.url();
    let application = format!(
        "ENV[\"REDIS_URL\"] = {url:?}\nrequire {:?}\nrequire \"sidekiq-cron\"\n",
        format!("{APPLICATIONS}/sidekiq.rb")
    );
    let entries = "Sidekiq::Cron::Job.create(name: \"nightly\", cron: \"0 3 * * *\", class: \"Usual\", args: [1], queue: \"low\")\n\
                   Sidekiq::Cron::Job.create(name: \"often\", cron: \"every 5 minutes\", class: \"Active\", active_job: true)\n";
    std::fs::write(site.path("app.rb"), application + entries).unwrap();
    let settings = ":concurrency: <%= 3 + 4 %>\n:queues:\n  - [critical, 3]\n  - [low, 1]\n";
    std::fs::write(site.path("sidekiq.yml"), settings).unwrap();
    let made = imported(&site, "sidekiq", &["--require", "app.rb", "--config", "sidekiq.yml"]);
    for said in [
        "from Sidekiq 6.4.1",
        "Noting",
        "concurrency = 7",
        "# Hooked: retry true, sidekiq_retry_in, sidekiq_retries_exhausted",
        "[queues.\"default\"]",
        "name = \"nightly\"",
        "payload = { args = [1], class = \"Usual\" }",
        "# Not imported: cron \"often\"",
    ] {
        assert!(made.contains(said), "{said}:\n{made}");
    }

    // A file alone needs no gems.
    let made = imported(&site, "sidekiq", &["--config", "sidekiq.yml"]);
    assert!(made.contains("weight = 3"), "{made}");
}

#[test]
fn b12_the_modules_of_lowkiq_are_imported() {
    let application = format!("{APPLICATIONS}/lowkiq.rb");
    let made =
        imported(&Site::new(""), "lowkiq", &["--require", &application, "--lowkiq", "Shop::Sync"]);
    assert!(made.contains("mode = \"accumulate\"") && made.contains("batch_size = 10"), "{made}");
}
