//! Who did what.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use seriatim::store::Past;
use seriatim::{Client, Job, Timestamp};

use super::Api;
use super::client::Request;
use crate::site::{Site, eventually, text};

const TOKENS: &str = "tokens = [{ name = \"ops\", token_env = \"T_OPS\", role = \"admin\" }, \
    { name = \"shop\", token_env = \"T_SHOP\", role = \"producer\" }]\n";

fn audited(more: &str) -> Api {
    let site = Site::new(&format!("[http]\naudit_file = \"audit.ndjson\"\n{more}{TOKENS}"));
    Api::with(site, |command| {
        command.env("T_OPS", "the-secret-of-ops").env("T_SHOP", "the-secret-of-shop");
    })
}

fn send(api: &Api, token: &str, path: &str, body: &Value) -> u16 {
    let request = Request::new("POST", path).json(body).token(token).header("X-Request-Id", "r-1");
    request.header("X-Forwarded-For", "203.0.113.9").send(&api.address).status
}

fn lines(api: &Api) -> Vec<Value> {
    let text = std::fs::read_to_string(api.site.path("audit.ndjson")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn d15_each_action_is_written_down_with_who_where_what_and_how_it_ended() {
    let api = audited("");
    let (ops, shop) = ("the-secret-of-ops", "the-secret-of-shop");
    assert_eq!(send(&api, shop, "/api/v1/queues/orders/jobs", &json!({ "key": "k" })), 200);
    assert_eq!(send(&api, shop, "/api/v1/queues/orders/pause", &json!({})), 403);
    let all = json!({ "all": true });
    assert_eq!(send(&api, ops, "/api/v1/queues/orders/morgue/requeue", &all), 200);
    assert_eq!(send(&api, "nobody-has-this-one", "/api/v1/queues/orders/pause", &json!({})), 401);
    let lines = lines(&api);
    assert_eq!(lines.len(), 3, "no pushes: {lines:?}");
    let told = |line: &Value| ["who", "role", "status", "target"].map(|name| line[name].clone());
    let [pause, requeue] =
        ["pause", "morgue/requeue"].map(|what| format!("/api/v1/queues/orders/{what}"));
    assert_eq!(told(&lines[0]), [json!("shop"), json!("producer"), json!(403), json!(pause)]);
    assert_eq!(told(&lines[1]), [json!("ops"), json!("admin"), json!(200), json!(requeue)]);
    assert_eq!(told(&lines[2]), [json!("unknown"), Value::Null, json!(401), json!(pause)]);
    let more = ["from", "forwarded_for", "request_id", "method", "action", "asked"]
        .map(|name| lines[1][name].clone());
    let expected = ["127.0.0.1", "203.0.113.9", "r-1", "POST", "morgue requeue", "all"];
    assert_eq!(more, expected.map(|text| json!(text)));
    assert_eq!((&lines[1]["on"], &lines[1]["count"]), (&json!({ "queue": "orders" }), &json!(0)));
    assert!(lines[1]["at"].is_string());
}

#[test]
fn all_that_changes_something_is_written_down_where_that_is_wanted() {
    let api = audited("audit = \"all\"\n");
    let push = json!({ "key": "k", "payload": "private" });
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/jobs", &push), 200);
    let lines = lines(&api);
    assert_eq!((&lines[0]["who"], &lines[0]["status"]), (&json!("shop"), &json!(200)));
    assert_eq!(lines[0]["asked"], Value::Null, "payloads are not for the audit log");
    assert_eq!(lines[0]["action"], "job push");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_file_actions_stand_in_the_log_whatever_its_level() {
    let site = Site::new("[queues.orders]\nmode = \"fifo\"\n");
    // It must still say where it listens.
    let level = "error,seriatim_server::http::server=info";
    let api = Api::with(site, |command| {
        command.env("SERIATIM_LOG", level);
    });
    api.act("/api/v1/queues/orders/pause").done();
    let is_logged = async || {
        let log = api.log();
        log.contains("seriatim::audit") && log.contains("/api/v1/queues/orders/pause")
    };
    eventually("the action is logged", is_logged).await;
}

/// Sends a request and cuts the connection before anything can come back.
fn send_and_reset(api: &Api, path: &str) {
    let request = Request::new("POST", path).token("the-secret-of-ops");
    let stream: TcpStream = request.start(&api.address);
    let linger = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
    drop(stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_done_is_written_down_even_if_the_client_hangs_up() {
    const LANES: usize = 200;
    let api = audited("");
    let jobs: Vec<Value> = (0..LANES).map(|i| json!({ "key": format!("k{i}") })).collect();
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/jobs", &json!(jobs)), 200);
    for i in 0..LANES {
        send_and_reset(&api, &format!("/api/v1/queues/orders/lane/delete?key=k{i}"));
    }
    let left = || {
        let stats = Request::new("GET", "/api/v1/stats").token("the-secret-of-ops");
        stats.send(&api.address).done()["total"]["length"].as_u64().unwrap() as usize
    };
    // Some were cut off before they were read. When as many are written as are gone, all have ended.
    let deleted = |lines: &[Value]| {
        lines.iter().filter(|line| line["action"] == "lane delete" && line["count"] == 1).count()
    };
    let all_told = async || LANES - left() == deleted(&lines(&api)) && left() < LANES;
    eventually("every deletion is written down", all_told).await;
    let site = api.stopped();
    let store = site.store().await;
    let gone = LANES - store.stats(None).await.unwrap()[0].jobs as usize;
    let written = std::fs::read_to_string(site.path("audit.ndjson")).unwrap();
    let written: Vec<Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(gone, deleted(&written));
    let verified = site.run(&["audit", "verify", "audit.ndjson"]);
    assert!(verified.status.success(), "{}", text(&verified));
}

#[test]
fn an_audit_log_that_was_edited_is_not_whole() {
    let api = audited("");
    for action in ["pause", "resume", "pause", "resume"] {
        send(&api, "the-secret-of-ops", &format!("/api/v1/queues/orders/{action}"), &json!({}));
    }
    let site = api.stopped();
    let path = site.path("audit.ndjson");
    let whole = std::fs::read_to_string(&path).unwrap();
    let verify = |lines: &str| {
        std::fs::write(&path, lines).unwrap();
        let output = site.run(&["audit", "verify", "audit.ndjson"]);
        (output.status.code(), text(&output))
    };
    let (code, said) = verify(&whole);
    assert!(code == Some(0) && said.contains("4 lines"), "{said}");
    let (code, said) = verify(&whole.replacen("queue pause", "queue resume", 1));
    assert!(code == Some(1) && said.contains("line 2"), "{said}");
    let missing: Vec<&str> = whole.lines().take(1).chain(whole.lines().skip(2)).collect();
    let (code, said) = verify(&missing.join("\n"));
    assert!(code == Some(1) && said.contains("line 2"), "{said}");
}

#[test]
fn wrong_tokens_are_counted_limited_and_written_down() {
    let api = audited("");
    let (pause, body) = ("/api/v1/queues/orders/pause", json!({}));
    assert_eq!(send(&api, "the-secret-of-ops", pause, &body), 404);
    let guess = |i: u32| {
        let request = Request::new("POST", pause).json(&body).token(&format!("not-a-token-{i:04}"));
        request.send(&api.address)
    };
    let answers: Vec<_> = (0..60).map(guess).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 50]);
    let wait: u32 = answers[59].header("retry-after").unwrap().parse().unwrap();
    assert!((2..=60).contains(&wait), "{wait}");
    // Who shares the address and is known already goes on; a right guess comes too late.
    assert_eq!(send(&api, "the-secret-of-ops", pause, &body), 404);
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/jobs", &body), 429);
    let metrics = Request::new("GET", "/metrics").token("the-secret-of-ops").send(&api.address);
    assert!(
        metrics.text().contains("\nseriatim_http_refused_logins_total 60\n"),
        "{}",
        metrics.text()
    );
    assert_eq!(send(&api, "the-secret-of-ops", pause, &body), 404);
    let lines = lines(&api);
    let refused = lines.iter().filter(|line| line["who"] == "unknown").count();
    let left_out: u64 = lines.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    assert_eq!(refused as u64 + left_out, 61, "each is told or counted: {lines:?}");
}

#[test]
fn refusals_leave_a_line_also_where_pushes_do_not() {
    let api = audited("");
    let jobs = "/api/v1/queues/orders/jobs";
    let large = Request::new("POST", "/api/v1/jobs/trigger")
        .body("application/json", " ".repeat(2 << 20))
        .token("the-secret-of-shop");
    large.send(&api.address).refused(413);
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/pause", &json!({})), 403);
    assert_eq!(send(&api, "the-secret-of-shop", jobs, &json!({ "key": "k" })), 200);
    let told: Vec<(Value, Value)> =
        lines(&api).iter().map(|line| (line["action"].clone(), line["status"].clone())).collect();
    let expected = [("job trigger", 413), ("queue pause", 403)];
    assert_eq!(told, expected.map(|(action, status)| (json!(action), json!(status))));
}

#[test]
fn what_holds_payloads_or_names_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new(&format!("[http]\naudit_file = \"audit.ndjson\"\n{TOKENS}"));
    let api = Api::with(site, |command| {
        command.env("T_OPS", "the-secret-of-ops").env("T_SHOP", "the-secret-of-shop");
    });
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/jobs", &json!({})), 200);
    let files = ["seriatim.db", "seriatim.db-wal", "seriatim.db-shm", "audit.ndjson"];
    for file in files.map(|name| api.site.path(name)) {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[test]
fn what_the_command_line_changes_is_audited_before_it_is_done() {
    let site =
        Site::new("[http]\naudit_file = \"audit.ndjson\"\n[queues.orders]\nmode = \"fifo\"\n");
    assert!(site.run(&["push", "orders", "1", "--key", "a"]).status.success());
    assert!(site.run(&["queues", "list"]).status.success());
    assert!(!site.path("audit.ndjson").exists(), "pushes are for `audit = \"all\"`");
    assert!(site.run(&["queues", "pause", "orders"]).status.success());
    assert!(site.run(&["lanes", "delete", "orders", "a", "--yes"]).status.success());
    let written = std::fs::read_to_string(site.path("audit.ndjson")).unwrap();
    let lines: Vec<Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<&Value> = lines.iter().map(|line| &line["action"]).collect();
    assert_eq!(actions, ["queue pause", "lane delete"], "the words of the HTTP API");
    assert_eq!(lines[1]["on"], json!({ "queue": "orders", "key": "a" }));
    assert_eq!(lines[1]["asked"], "lanes delete orders a --yes");
    assert_eq!(lines[1]["role"], "command line");
    assert!(site.run(&["audit", "verify", "audit.ndjson"]).status.success());
    // What cannot be audited is not done.
    std::fs::remove_file(site.path("audit.ndjson")).unwrap();
    std::fs::create_dir(site.path("audit.ndjson")).unwrap();
    let refused = site.run(&["queues", "resume", "orders"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused).contains("nothing was done: cannot write the audit log"),
        "{}",
        text(&refused)
    );
    assert!(text(&site.run(&["queues", "show", "orders"])).contains("paused"));
}

#[test]
fn what_the_command_line_changes_is_kept_in_the_store_and_listed_with_what_came_by_http() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let run = |arguments: &[&str]| api.site.run(arguments);
    assert!(run(&["push", "orders", "1", "--key", "a"]).status.success());
    assert!(run(&["queues", "pause", "orders"]).status.success());
    assert!(run(&["lanes", "pause", "orders", "a"]).status.success());
    assert!(!run(&["lanes", "pause", "orders", "gone"]).status.success());
    assert!(!run(&["queues", "pause", "none"]).status.success());
    api.act("/api/v1/queues/orders/resume").done();
    let listed = |arguments: &[&str]| -> Vec<Value> {
        let output = run(&[&["audit", "--json"], arguments].concat());
        let page: Value = serde_json::from_slice(&output.stdout).unwrap();
        page["entries"].as_array().unwrap().clone()
    };
    let told = |deeds: &[Value]| -> Vec<String> {
        let one = |deed: &Value| format!("{} {}", deed["action"].as_str().unwrap(), deed["status"]);
        deeds.iter().map(one).collect()
    };
    let all = listed(&[]);
    let expected = [
        "queue resume 200",
        "queue pause 404",
        "lane pause 404",
        "lane pause 200",
        "queue pause 200",
    ];
    assert_eq!(told(&all), expected, "pushes are not kept");
    assert_eq!(api.get("/api/v1/audit").done()["entries"], json!(all), "the same by HTTP");
    let who = all[1]["who"].as_str().unwrap();
    assert!(who.starts_with("cli:") && who.contains('@'), "{who}");
    assert_eq!(all[3]["on"], json!({ "queue": "orders", "key": "a" }));
    assert_eq!(told(&listed(&["--key", "a"])), ["lane pause 200"]);
    assert_eq!(listed(&["--queue", "orders"]).len(), 4);
    assert_eq!(listed(&["--key", "a", "--queue", "orders", "--since", "1h"]).len(), 1);
    assert_eq!(listed(&["--since", "2255-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(api.get("/api/v1/audit?queue=orders&of=a").done()["entries"][0], all[3]);
    let table = text(&run(&["audit", "list", "--limit", "2"]));
    assert!(table.contains("queue resume") && table.contains("more: --after "), "{table}");
    assert!(table.contains("refused (404)"), "{table}");
}

/// The ids of so many dead jobs of `orders`.
async fn dead_jobs(site: &Site, count: u32) -> Vec<String> {
    let store = site.store().await;
    let dead_at = Some(Timestamp::of_this_machine());
    let past = Past { failures: 1, dead_at, ..Past::default() };
    let job = |i: u32| Job::new("orders", &i).unwrap().key("dead").past(past.clone());
    let pushed = Client::new(store.clone()).push_all((0..count).map(job).collect()).await.unwrap();
    store.close().await.unwrap();
    pushed.iter().map(|one| one.job_id.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn of_several_keys_or_jobs_each_is_kept_with_how_it_ended() {
    let site = Site::new("[queues.orders]\nmode = \"fifo\"\n");
    assert!(site.run(&["push", "orders", "1", "--key", "a"]).status.success());
    let pushed = text(&site.run(&["push", "orders", "1", "--key", "b"]));
    let waits = pushed.split(' ').next().unwrap();
    let dead = dead_jobs(&site, 1).await.remove(0);
    let none = "01a1fd59-5e2c-7000-8001-000000000001";
    for command in [
        &["lanes", "delete", "orders", "a", "typo", "--yes"][..],
        &["jobs", "cancel", none, waits],
        &["morgue", "requeue", "orders", &dead, none],
        &["operations", "stop", "1795"],
    ] {
        let failed = site.run(command);
        assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    }
    let kept: Value = serde_json::from_slice(&site.run(&["audit", "--json"]).stdout).unwrap();
    let told = |deed: &Value| {
        let names = ["key", "job_id", "operation"];
        let on = names.iter().find_map(|name| deed["on"][name].as_str()).unwrap();
        format!("{} {on} {}", deed["action"].as_str().unwrap(), deed["status"])
    };
    let told: BTreeSet<String> = kept["entries"].as_array().unwrap().iter().map(told).collect();
    let expected = [
        "lane delete a 200".to_owned(),
        "lane delete typo 404".to_owned(),
        format!("job cancel {waits} 200"),
        format!("job cancel {none} 404"),
        format!("morgue requeue {dead} 200"),
        format!("morgue requeue {none} 404"),
        "operation stop 1795 404".to_owned(),
    ];
    assert_eq!(told, BTreeSet::from(expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_of_many_deleted_jobs_is_in_the_audit_file() {
    let site = Site::new("[http]\naudit_file = \"audit.ndjson\"\n");
    let ids = dead_jobs(&site, 150).await;
    let named: Vec<&str> = ids.iter().map(String::as_str).collect();
    let delete = [&["morgue", "delete", "orders"][..], &named, &["--yes"]].concat();
    let deleted = site.run(&delete);
    assert!(deleted.status.success(), "{}", text(&deleted));
    let written = std::fs::read_to_string(site.path("audit.ndjson")).unwrap();
    let lines: Vec<Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<&str> = lines.iter().map(|line| line["on"]["job_id"].as_str().unwrap()).collect();
    assert_eq!(told, named);
    let verified = site.run(&["audit", "verify", "audit.ndjson"]);
    assert!(verified.status.success(), "{}", text(&verified));
}

#[test]
fn the_figures_of_the_past_are_the_same_by_command_line_and_http() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let shown = api.site.run(&["history", "--queue", "orders", "--span", "24h", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown, api.get("/api/v1/history?queue=orders&span=24h").done());
    assert!(text(&api.site.run(&["history"])).contains("no metrics"));
    let unknown = api.site.run(&["history", "--queue", "ordres"]);
    assert!(text(&unknown).contains("did you mean \"orders\"?"), "{}", text(&unknown));
}

#[test]
fn an_action_whose_line_cannot_be_written_is_not_acknowledged() {
    let site = Site::new(&format!(
        "[http]\naudit_file = \"/dev/full\"\n{TOKENS}[queues.orders]\nmode = \"fifo\"\n"
    ));
    let api = Api::with(site, |command| {
        command.env("T_OPS", "the-secret-of-ops").env("T_SHOP", "the-secret-of-shop");
    });
    let pause = Request::new("POST", "/api/v1/queues/orders/pause").token("the-secret-of-ops");
    let (_, detail) = pause.send(&api.address).refused(500);
    assert!(
        detail.contains("the request was carried out, but the audit log cannot be written"),
        "{detail}"
    );
}

#[test]
fn no_line_holds_a_control_character_that_a_client_sent() {
    let api = audited("");
    let path = "/api/v1/queues/x/pause?key=\u{9b}2J\u{202e}\u{85}";
    assert_eq!(Request::new("POST", path).status(&api.address), 401);
    let written = std::fs::read_to_string(api.site.path("audit.ndjson")).unwrap();
    let is_raw = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(written.contains("pause") && !written.contains(is_raw), "{written}");
}

/// Lines about refusals that one caller may leave since then: ten in a second.
fn lines_since(began: Instant) -> usize {
    10 * (began.elapsed().as_secs() as usize + 2)
}

#[test]
fn strangers_at_the_login_leave_few_and_short_lines_and_who_logs_in_is_named() {
    let api = audited("");
    let form = |path: &str, body: &str| {
        let request = Request::new("POST", path).header("Sec-Fetch-Site", "same-origin");
        request.body("application/x-www-form-urlencoded", body)
    };
    let long = "A".repeat(11_000);
    for _ in 0..30 {
        let left =
            form(&format!("/logout?{long}"), "").header("X-Forwarded-For", &"1".repeat(3_000));
        assert_eq!(left.send(&api.address).status, 303);
    }
    assert_eq!(lines(&api).len(), 0, "nobody was logged in");
    let began = Instant::now();
    for _ in 0..100 {
        let typed = Request::new("POST", &format!("/login?{long}")).body("text/plain", "x");
        let typed = typed.header("Sec-Fetch-Site", "same-origin");
        assert!(typed.send(&api.address).status >= 400);
    }
    let written = lines(&api);
    assert!((1..=lines_since(began)).contains(&written.len()), "{} lines", written.len());
    assert!(written.iter().all(|line| line.to_string().len() < 1_500), "{}", written[0]);
    let entered = form("/login", "token=the-secret-of-ops").send(&api.address);
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let leave = |body: &str| form("/logout", body).header("Cookie", &cookie).send(&api.address);
    let page = Request::new("GET", "/about").header("Cookie", &cookie).send(&api.address).text();
    let mark = super::pages::field(&page, "mark").unwrap();
    assert_eq!(leave(&format!("mark={mark}")).status, 303);
    let told: Vec<Value> = lines(&api)[written.len()..]
        .iter()
        .map(|line| json!([line["who"], line["role"], line["action"], line["status"]]))
        .collect();
    let expected =
        [json!(["ops", "admin", "login", 303]), json!(["ops", "admin", "logout post", 303])];
    assert_eq!(told, expected);
}

#[test]
fn what_one_token_is_refused_hides_nothing_of_the_others() {
    let api = audited("");
    let (shop, began) = ("the-secret-of-shop", Instant::now());
    for i in 0..200 {
        let path = format!("/api/v1/jobs/1-0-{i}-1/cancel");
        assert!(matches!(send(&api, shop, &path, &json!({})), 400 | 404));
    }
    let pause = "/api/v1/queues/orders/pause";
    assert_eq!(send(&api, "the-secret-of-ops", pause, &json!({})), 404);
    let lines = lines(&api);
    let of = |who: &str| lines.iter().filter(|line| line["who"] == who).count();
    let of_shop = of("shop");
    assert!((1..=lines_since(began)).contains(&of_shop) && of("ops") == 1, "{of_shop} lines");
    let deeds = Request::new("GET", "/api/v1/audit?limit=1000").token("the-secret-of-ops");
    let deeds = deeds.send(&api.address).done()["entries"].as_array().unwrap().clone();
    assert!(deeds.len() <= 6, "{}", deeds.len());
}
