//! A claim belongs to the token that took it: what others try with it, and what else a token is limited to.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use seriatim::store::{Heartbeat, NodeInfo, Rescue};
use seriatim::{SharedStore, Timestamp, store::NodeId};

use super::Api;
use super::client::{Answer, Request};
use crate::faults::Server;
use crate::site::{Site, eventually, secret, text};

/// As many guesses as the one took that once hit.
const GUESSES: i64 = 1_323;

const TOKENS: &str = "[http]\ntokens = [\
    { name = \"robot\", token_env = \"T_robot\", role = \"worker\" }, \
    { name = \"robot2\", token_env = \"T_robot2\", role = \"worker\" }, \
    { name = \"mailer\", token_env = \"T_mailer\", role = \"worker\", queues = [\"mails\"], groups = [\"eu\"] }, \
    { name = \"shop\", token_env = \"T_shop\", role = \"producer\", queues = [\"mails\"], groups = [\"eu\"] }, \
    { name = \"looker\", token_env = \"T_looker\", role = \"reader\", queues = [\"mails\"] }, \
    { name = \"ops\", token_env = \"T_ops\", role = \"admin\" }]\n\
    [queues.orders]\nmode = \"fifo\"\n[queues.mails]\nmode = \"fifo\"\n";
const NAMES: [&str; 6] = ["robot", "robot2", "mailer", "shop", "looker", "ops"];

fn with_tokens(command: &mut Command) {
    for name in NAMES {
        command.env(format!("T_{name}"), secret(name));
    }
}

/// A site whose store is at this address.
fn site(url: Option<&str>, more: &str) -> Site {
    let store = url.map(|url| format!("[store]\nurl = \"{url}\"\n")).unwrap_or_default();
    Site::new(&format!("{store}{TOKENS}{more}"))
}

fn serve(url: Option<&str>, more: &str) -> Api {
    Api::with(site(url, more), with_tokens)
}

fn send(api: &Api, name: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let request = Request::new(method, &format!("/api/v1{path}")).token(&secret(name));
    body.iter().fold(request, |request, body| request.json(body)).send(&api.address)
}

fn post(api: &Api, name: &str, path: &str, body: Value) -> Answer {
    send(api, name, "POST", path, Some(body))
}

fn get(api: &Api, name: &str, path: &str) -> Answer {
    send(api, name, "GET", path, None)
}

fn push(api: &Api, queue: &str, key: &str) {
    post(api, "ops", &format!("/queues/{queue}/jobs"), json!({ "key": key })).done();
}

/// The one lane that is there, named as its holder names it.
#[track_caller]
fn claim(api: &Api, name: &str, queue: &str, lease_s: u32) -> Value {
    let wish = json!({ "worker": "w", "queues": [queue], "lease_ttl_sec": lease_s });
    let lane = post(api, name, "/work/claim", wish).done()["lanes"][0].clone();
    let text = lane["secret"].as_str().unwrap_or_else(|| panic!("no secret: {lane}"));
    assert!(text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()), "{text}");
    json!({ "lane": lane["lane"], "token": lane["token"], "secret": text })
}

fn settle(api: &Api, name: &str, claim: &Value) -> Answer {
    let mut result = claim.clone();
    result["outcome"] = "done".into();
    post(api, name, "/work/settle", json!({ "worker": "w", "results": [result] }))
}

fn beat(api: &Api, name: &str, claim: &Value) -> Answer {
    let mut claim = claim.clone();
    claim["progress"] = json!({ "by": name });
    let body = json!({ "worker": "w", "lease_ttl_sec": 3_600, "claims": [claim] });
    post(api, name, "/work/heartbeat", body)
}

#[track_caller]
fn settled(api: &Api, name: &str, claim: &Value) {
    assert_eq!(settle(api, name, claim).done()["results"][0]["status"], "ok");
}

// What a secret opens is decided before a store is asked: one is enough for these two.

/// A command of the engine runs while a worker tries to end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_guessed_tokens_end_no_command_of_the_engine() {
    let worker = "[[workers]]\nqueue = \"orders\"\ncommand = [\"sh\", \"-c\", \"cat gate; echo $SERIATIM_JOB_TOKEN > ended\"]\n";
    let site = site(None, worker);
    let gate = site.path("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let api = Api::with(site, with_tokens);
    push(&api, "orders", "k");
    let running = async || {
        let lanes = get(&api, "ops", "/queues/orders/running").done();
        lanes["lanes"][0]["token"].is_i64()
    };
    eventually("the command runs", running).await;
    let lane = get(&api, "ops", "/queues/orders/running").done()["lanes"][0].clone();
    let (id, token) = (lane["lane"].clone(), lane["token"].as_i64().unwrap());
    push(&api, "mails", "own");
    let own = claim(&api, "robot", "mails", 60);
    for guess in token - GUESSES / 2..=token + GUESSES / 2 {
        let claim = json!({ "lane": id, "token": guess, "secret": own["secret"] });
        let (field, _) = settle(&api, "robot", &claim).refused(403);
        assert_eq!(field, "results[0].secret");
    }
    let claim = json!({ "lane": id, "token": token, "secret": own["secret"] });
    assert_eq!(beat(&api, "robot", &claim).refused(403).0, "claims[0].secret");
    // One wrong claim, and nothing of the request is done.
    let (mut right, mut wrong) = (own.clone(), claim.clone());
    (right["outcome"], wrong["outcome"]) = ("done".into(), "done".into());
    let both = json!({ "worker": "w", "results": [right, wrong] });
    assert_eq!(post(&api, "robot", "/work/settle", both).refused(403).0, "results[1].secret");
    let shown = get(&api, "ops", "/queues/orders/lane?key=k").done();
    assert_eq!((&shown["token"], shown["progress"].is_null()), (&json!(token), true), "{shown}");
    assert!(!api.site.path("ended").exists());
    settled(&api, "robot", &own);
    std::fs::OpenOptions::new().write(true).open(&gate).unwrap().write_all(b"\n").unwrap();
    let done = async || get(&api, "ops", "/stats").done()["by_worker"]["orders"]["processed"] == 1;
    eventually("the command ends by itself", done).await;
    let ended = std::fs::read_to_string(api.site.path("ended")).unwrap();
    assert_eq!(ended.trim(), token.to_string());
}

/// How many lanes somebody may take over who looks that much later.
async fn expired_after(store: &SharedStore, later: Duration) -> usize {
    let now = Some(Timestamp::of_this_machine() + later);
    let node = NodeInfo::new(NodeId::from("rescuer"), Duration::from_secs(60));
    let beat = Heartbeat { now, node: node.clone(), beats: Vec::new() };
    assert!(store.heartbeat(beat).await.unwrap().alive);
    let lease = Duration::from_secs(60);
    let rescue = Rescue { now, node: node.id, lease, lanes_max: 10, ticket: 0 };
    store.rescue(rescue).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_foreign_heartbeat_forges_no_progress_and_stretches_no_lease() {
    let api = serve(None, "");
    push(&api, "orders", "k");
    let lane = claim(&api, "robot", "orders", 60);
    let progress = || get(&api, "ops", "/queues/orders/lane?key=k").done()["progress"].clone();
    let mut guessed = lane.clone();
    guessed["secret"] = "f".repeat(64).into();
    // Another's secret is of no use, and who has it is told the same as who guesses: also of a claim that
    // never was.
    let mut unknown = lane.clone();
    unknown["token"] = 5.into();
    let said: Vec<(String, String)> = [&lane, &guessed, &unknown]
        .iter()
        .map(|claim| beat(&api, "robot2", claim).refused(403))
        .collect();
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    beat(&api, "robot", &guessed).refused(403);
    beat(&api, "ops", &lane).refused(403);
    settle(&api, "robot2", &lane).refused(403);
    assert!(progress().is_null());
    // Without a secret a request is not even one.
    let mut bare = lane.clone();
    bare.as_object_mut().unwrap().remove("secret");
    assert_eq!(settle(&api, "robot", &bare).refused(400).0, "results[0].secret");
    assert_eq!(beat(&api, "robot", &bare).refused(400).0, "claims[0].secret");
    let store = api.site.store().await;
    assert_eq!(expired_after(&store, Duration::from_secs(3_600)).await, 1, "it was stretched");
    assert_eq!(settle(&api, "robot", &lane).done()["results"][0]["status"], "stale");
    // Its holder may.
    push(&api, "orders", "k2");
    let lane = claim(&api, "robot", "orders", 60);
    beat(&api, "robot", &lane).done();
    let shown = get(&api, "ops", "/queues/orders/lane?key=k2").done();
    assert_eq!(shown["progress"]["by"], "robot", "{shown}");
    assert_eq!(expired_after(&store, Duration::from_secs(1_800)).await, 0);
    settled(&api, "robot", &lane);
    store.close().await.unwrap();
}

/// Two servers behind one address, of which the first is killed and starts again.
fn all_servers_know_all_claims(url: &str) {
    let [mut one, other] = std::thread::scope(|scope| {
        // At once, as a deployment starts them: both find no secret in the store.
        [(), ()].map(|()| scope.spawn(|| serve(Some(url), ""))).map(|api| api.join().unwrap())
    });
    for key in ["a", "b", "c"] {
        push(&one, "orders", key);
    }
    let lanes = std::thread::scope(|scope| {
        let claims = [&one, &other].map(|api| scope.spawn(|| claim(api, "robot", "orders", 3_600)));
        claims.map(|lane| lane.join().unwrap())
    });
    beat(&other, "robot", &lanes[0]).done();
    settled(&other, "robot", &lanes[0]);
    settled(&one, "robot", &lanes[1]);
    let lane = claim(&one, "robot", "orders", 3_600);
    one.serving.0.kill().unwrap();
    one.serving.0.wait().unwrap();
    let one = Api::with(one.site, with_tokens);
    beat(&one, "robot", &lane).done();
    settle(&one, "robot2", &lane).refused(403);
    settled(&one, "robot", &lane);
}

#[test]
fn an_idempotency_key_of_the_store_tells_a_limited_token_nothing_of_other_queues() {
    let api = serve(None, "");
    let trigger = |name: &str, queue: &str, key: &str| {
        let body = json!({
            "queue": queue, "task": "t", "lock_key": "k", "idempotency_key": key,
        });
        post(&api, name, "/jobs/trigger", body)
    };
    trigger("ops", "orders", "once").done();
    let (field, detail) = trigger("shop", "mails", "once").refused(409);
    assert_eq!(field, "idempotency_key", "{detail}");
    assert!(!detail.contains("orders"), "{detail}");
    let own = trigger("shop", "mails", "mine").done();
    assert_eq!(trigger("shop", "mails", "mine").done(), own);
    let job = json!({ "key": "k", "idempotency_key": "once", "idempotency_scope": "store" });
    assert_eq!(post(&api, "shop", "/queues/mails/jobs", job).refused(403).0, "idempotency_scope");
}

#[test]
fn a_claim_is_known_by_every_server_and_after_a_restart_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    all_servers_know_all_claims(&format!("sqlite:{}/shared.db", folder.path().display()));
}

#[test]
fn a_claim_is_known_by_every_server_and_after_a_restart_on_postgresql() {
    all_servers_know_all_claims(&Server::postgres().url());
}

#[test]
fn a_claim_is_known_by_every_server_and_after_a_restart_on_mysql() {
    all_servers_know_all_claims(&Server::mysql().url());
}

#[test]
fn a_claim_is_known_by_every_server_and_after_a_restart_on_redis() {
    all_servers_know_all_claims(&Server::redis().url());
}

#[test]
fn servers_know_each_others_claims_also_after_their_store_was_emptied() {
    let server = Server::redis();
    let old = serve(Some(&server.url()), "");
    push(&old, "orders", "a");
    let lost = claim(&old, "robot", "orders", 60);
    server.asked(&["FLUSHALL"]);
    // It hears of the emptied store first, and never knew the secret of the one before.
    let new = serve(Some(&server.url()), "");
    push(&new, "orders", "b");
    settled(&old, "robot", &claim(&new, "robot", "orders", 60));
    push(&new, "orders", "c");
    settled(&new, "robot", &claim(&old, "robot", "orders", 60));
    settle(&new, "robot", &lost).refused(403);
}

#[test]
fn a_remote_worker_is_neither_an_engine_nor_the_worker_of_another_token() {
    let api = serve(None, "[node]\nid = \"a\"\n");
    let bound = |node: &str| json!({ "key": node, "node": node });
    for node in ["a", "remote:robot/w"] {
        post(&api, "ops", "/queues/orders/jobs", bound(node)).done();
    }
    let lanes = |name: &str, worker: &str| {
        let wish = json!({ "worker": worker, "queues": ["orders"], "limit": 10 });
        post(&api, name, "/work/claim", wish).done()["lanes"].as_array().unwrap().len()
    };
    for worker in ["a", "w", "robot/w", "remote:robot/w", "../robot/w"] {
        assert_eq!(lanes("robot2", worker), 0, "{worker}");
    }
    assert_eq!((lanes("robot", "a"), lanes("robot", "w")), (0, 1));
    let nodes = get(&api, "ops", "/nodes").done();
    let names: Vec<&str> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.iter().filter(|name| **name == "a").count(), 1, "{names:?}");
    assert!(names.contains(&"remote:robot2/remote:robot/w"), "{names:?}");
    let refused = Site::new("[node]\nid = \"remote:x\"\n").run(&["serve", "--no-http"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("names of remote workers begin with"), "{}", text(&refused));
}

#[test]
fn a_worker_with_queues_and_groups_claims_within_them() {
    let api = serve(None, "");
    let wish = |queues: Value, groups: Value| {
        let wish = json!({ "worker": "w", "queues": queues, "consumer_groups": groups });
        post(&api, "mailer", "/work/claim", wish)
    };
    let (field, detail) = wish(json!(["mails", "orders"]), json!([])).refused(403);
    assert_eq!(field, "queues[1]");
    assert_eq!(
        detail,
        "this token may not use the queue \"orders\": it is limited to the queues mails"
    );
    let (field, detail) = wish(json!(["mails"]), json!(["eu", "us"])).refused(403);
    assert_eq!(field, "consumer_groups[1]");
    assert!(detail.contains("\"us\"") && detail.ends_with("the consumer groups eu"), "{detail}");
    // What it may not use it does not learn of either.
    assert_eq!(wish(json!(["no-such-queue"]), json!([])).refused(403).0, "queues[0]");
    push(&api, "mails", "k");
    let lane = claim(&api, "mailer", "mails", 60);
    beat(&api, "mailer", &lane).done();
    settled(&api, "mailer", &lane);
}

#[test]
fn a_job_that_asks_for_a_build_waits_for_a_worker_that_runs_it() {
    let api = serve(None, "");
    let both = json!({ "key": "a", "build": "v2", "consumer_group": "eu" });
    let (field, detail) = post(&api, "ops", "/queues/orders/jobs", both).refused(400);
    assert_eq!((field.as_str(), detail.contains("one of them")), ("build", true), "{detail}");
    let job = json!({ "key": "a", "build": "v2" });
    let id = post(&api, "ops", "/queues/orders/jobs", job).done()["jobs"][0]["job_id"].clone();
    let shown = get(&api, "ops", &format!("/jobs/{}", id.as_str().unwrap())).done();
    assert_eq!((&shown["build"], &shown["consumer_group"]), (&json!("v2"), &Value::Null));
    let claim = |build: Value| {
        let wish = json!({ "worker": "w", "queues": ["orders"], "build": build, "limit": 2 });
        post(&api, "ops", "/work/claim", wish).done()["lanes"].clone()
    };
    assert_eq!((claim(Value::Null), claim(json!("v1"))), (json!([]), json!([])));
    let findings = get(&api, "ops", "/doctor").done()["findings"].to_string();
    assert!(findings.contains("for the build \\\"v2\\\", which no node"), "{findings}");
    let pushed = api.site.run(&["push", "orders", "1", "--key", "b", "--build", "v2"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let lanes = claim(json!("v2"));
    for lane in 0..2 {
        assert_eq!(lanes[lane]["jobs"][0]["build"], "v2", "{lanes}");
    }
    let (field, _) =
        post(&api, "shop", "/queues/mails/jobs", json!({ "key": "k", "build": "v2" })).refused(403);
    assert_eq!(field, "build", "a token that is limited to groups");
}

#[test]
fn a_producer_with_queues_and_groups_pushes_and_cancels_within_them() {
    let api = serve(None, "");
    let job = json!({ "key": "k", "consumer_group": "eu" });
    let id = post(&api, "shop", "/queues/mails/jobs", job).done()["jobs"][0]["job_id"].clone();
    let id = id.as_str().unwrap();
    post(&api, "shop", "/queues/orders/jobs", json!({ "key": "k" })).refused(403);
    let trigger = |queue: &str, group: &str| {
        let job = json!({ "queue": queue, "task": "t", "lock_key": "k", "route_group": group });
        post(&api, "shop", "/jobs/trigger", job)
    };
    assert_eq!(trigger("orders", "eu").refused(403).0, "queue");
    assert_eq!(trigger("mails", "us").refused(403).0, "route_group");
    trigger("mails", "eu").done();
    let jobs = json!([{ "key": "a" }, { "key": "b", "consumer_group": "us" }]);
    let (field, _) = post(&api, "shop", "/queues/mails/jobs", jobs).refused(403);
    assert_eq!(field, "jobs[1].consumer_group");
    let line = "{\"key\":\"s\"}\n{\"key\":\"t\",\"consumer_group\":\"us\"}\n";
    let stream = Request::new("POST", "/api/v1/queues/mails/jobs").token(&secret("shop"));
    let stopped = stream.body("application/x-ndjson", line).send(&api.address);
    stopped.refused(403);
    assert_eq!((&stopped.json()["line"], &stopped.json()["pushed"]), (&json!(2), &json!(1)));
    let hidden = post(&api, "ops", "/queues/orders/jobs", json!({ "key": "k" })).done();
    let hidden = hidden["jobs"][0]["job_id"].as_str().unwrap();
    let nobody = "01a1fd84-a548-7000-8001-00000000ffff";
    let asked = |id: &str| get(&api, "shop", &format!("/jobs/{id}/status"));
    let without_id = |id: &str| asked(id).refused(404).1.replace(id, "");
    assert_eq!(without_id(hidden), without_id(nobody));
    send(&api, "shop", "POST", &format!("/jobs/{hidden}/cancel"), None).refused(404);
    assert_eq!(get(&api, "ops", &format!("/jobs/{hidden}/status")).done()["status"], "queued");
    assert_eq!(asked(id).done()["status"], "queued");
    send(&api, "shop", "POST", &format!("/jobs/{id}/cancel"), None).done();
}

#[test]
fn a_reader_with_queues_sees_these_and_nothing_of_others() {
    let api = serve(None, "");
    push(&api, "mails", "m");
    push(&api, "orders", "o");
    let queues = get(&api, "looker", "/queues").done();
    assert_eq!(queues["queues"].as_array().unwrap().len(), 1, "{queues}");
    assert_eq!(queues["queues"][0]["queue"], "mails");
    let stats = get(&api, "looker", "/stats").done();
    assert_eq!((&stats["total"]["jobs"], stats["by_worker"].get("orders")), (&json!(1), None));
    let jobs = get(&api, "looker", "/jobs?queue=mails").done();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(get(&api, "looker", "/jobs").refused(403).0, "queue");
    assert_eq!(get(&api, "looker", "/jobs?queue=orders").refused(403).0, "queue");
    get(&api, "looker", "/queues/orders/lanes").refused(403);
    get(&api, "looker", "/queues/mails/lanes").done();
    // What the path hides by its encoding is the same queue.
    get(&api, "looker", "/queues/%6Frders/lanes").refused(403);
    for about_all in ["/nodes", "/cron", "/bridges", "/events?queue=mails"] {
        let (_, detail) = get(&api, "looker", about_all).refused(403);
        assert!(detail.contains("concerns all queues"), "{about_all}: {detail}");
    }
    let metrics = Request::new("GET", "/metrics").token(&secret("looker"));
    metrics.send(&api.address).refused(403);
}

#[test]
fn limits_that_cannot_be_meant_are_refused_and_unknown_queues_are_warned_of() {
    let check = |token: &str| {
        let role = if token.contains("role") { "" } else { ", role = \"worker\"" };
        let name = if token.contains("name") { "" } else { "name = \"robot\", " };
        let config = format!(
            "[http]\ntokens = [{{ {name}token_env = \"T_robot\"{role}, {token} }}]\n[queues.orders]\nmode = \"fifo\"\n"
        );
        let site = Site::new(&config);
        let mut command = site.command(&["config", "check"]);
        with_tokens(&mut command);
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    for (token, said) in [
        ("queues = []", "queues: the list is empty"),
        ("groups = []", "groups: the list is empty"),
        ("queues = [\"not ok\"]", "queues: \"not ok\""),
        ("groups = [\"\"]", "groups: the name of a consumer group is empty"),
        ("groups = [\"eu\"], role = \"reader\"", "a reader neither pushes nor claims"),
        ("name = \"a/b\"", "without slashes"),
        ("queue = [\"orders\"]", "did you mean `queues`?"),
    ] {
        let (code, output) = check(token);
        assert_eq!(code, Some(2), "{token}: {output}");
        assert!(output.contains(said), "{token}: {output}");
    }
    let (code, output) = check("queues = [\"ordres\"]");
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("\"ordres\" has no [queues] entry (did you mean \"orders\"?)"),
        "{output}"
    );
    let (code, output) = check("queues = [\"orders\"], groups = [\"eu\"]");
    assert!(code == Some(0) && !output.contains("warning"), "{output}");
}
