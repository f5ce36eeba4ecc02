//! Remote workers.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim::store::Rescue;
use seriatim::{
    Timestamp,
    store::{Heartbeat, NodeId, NodeInfo},
};

use super::Api;
use super::client::{Request, held};
use crate::faults::Server;
use crate::site::{Site, text};

const CONFIG: &str = "[queues.orders]\nmode = \"accumulate\"\nmax_retries = 1\nbackoff = { kind = \"linear\", base = \"30s\" }\n\
    [queues.mails]\nmode = \"fifo\"\ntake = 3\n";

fn push(api: &Api, queue: &str, jobs: Value) {
    api.post(&format!("/api/v1/queues/{queue}/jobs"), &jobs).done();
}

#[test]
fn a_lane_is_handed_over_in_order_and_settled_once() {
    let api = Api::start(CONFIG);
    push(
        &api,
        "orders",
        json!([
            { "key": "42", "payload": { "v": 2 }, "score": 2 },
            { "key": "42", "payload": { "v": 1, "big": 12_345_678_901_234_567_890_u64 }, "score": 1 },
        ]),
    );
    let lanes = api.claim("orders");
    let lane = &lanes[0];
    assert_eq!(
        (&lane["queue"], &lane["key"], &lane["attempt"]),
        (&json!("orders"), &json!("42"), &json!(1))
    );
    assert_eq!(
        (&lane["retry_count"], &lane["crashes"], &lane["task"]),
        (&json!(-1), &json!(0), &Value::Null)
    );
    let scores: Vec<&Value> =
        lane["jobs"].as_array().unwrap().iter().map(|job| &job["score"]).collect();
    assert_eq!(scores, [&json!(1.0), &json!(2.0)]);
    assert_eq!(lane["jobs"][0]["payload"]["big"], 12_345_678_901_234_567_890_u64);
    assert!(api.claim("orders").is_empty(), "a claimed lane is nobody else's");
    assert_eq!(api.settled(lane, json!({ "outcome": "done" })), "ok");
    assert_eq!(api.settled(lane, json!({ "outcome": "done" })), "stale");
    let stats = api.get("/api/v1/stats").done();
    assert_eq!(
        (&stats["total"]["length"], &stats["by_worker"]["orders"]["processed"]),
        (&json!(0), &json!(2))
    );
}

#[test]
fn a_remote_worker_that_an_operator_quiets_keeps_its_lanes_and_gets_no_more() {
    let api = Api::start(CONFIG);
    push(&api, "orders", json!({ "key": "a" }));
    let lane = api.claim("orders").remove(0);
    let beat = || api.beat(&lane, json!({}));
    for command in ["quiet", "stop"] {
        api.act(&format!("/api/v1/nodes/remote:w/{command}")).done();
        assert_eq!(beat(), json!({ "cancel": [], "lost": [], "command": command }));
    }
    push(&api, "orders", json!({ "key": "b" }));
    assert!(api.claim("orders").is_empty());
    assert_eq!(api.settled(&lane, json!({ "outcome": "done" })), "ok");
    api.act("/api/v1/nodes/remote:w/resume").done();
    assert_eq!(beat()["command"], Value::Null);
    assert_eq!(api.claim("orders").len(), 1);
}

#[test]
fn l6_outcomes_are_planned_as_the_engine_plans_them() {
    let api = Api::start(CONFIG);
    push(&api, "orders", json!([{ "key": "a", "payload": 1 }, { "key": "a", "payload": 2 }]));
    let lane = api.claim("orders").remove(0);
    let first = lane["first_attempt_at"].clone();
    assert!(first.is_string() && lane["max_retries"] == 1, "{lane}");
    assert_eq!(api.settled(&lane, json!({ "outcome": "retry", "error": "down" })), "ok");
    let waiting = api.get("/api/v1/queues/orders/lane?key=a").done();
    assert_eq!((&waiting["retry_count"], &waiting["error"]), (&json!(0), &json!("down")));
    assert!(api.claim("orders").is_empty(), "the backoff of the queue is 30 s");
    api.act("/api/v1/queues/orders/lane/retry?key=a").done();
    let lane = api.claim("orders").remove(0);
    assert_eq!((&lane["retry_count"], &lane["attempt"]), (&json!(0), &json!(2)));
    assert_eq!(lane["first_attempt_at"], first);
    assert_eq!(api.settled(&lane, json!({ "outcome": "snooze", "retry_in": 0 })), "ok");
    let lane = api.claim("orders").remove(0);
    assert_eq!((&lane["retry_count"], &lane["attempt"]), (&json!(0), &json!(2)), "not counted");
    // max_retries is 1: the job with the lowest score dies, the rest starts afresh.
    assert_eq!(api.settled(&lane, json!({ "outcome": "retry", "error": "still down" })), "ok");
    let dead = api.get("/api/v1/queues/orders/morgue").done();
    assert_eq!(
        (&dead["jobs"][0]["payload"], &dead["jobs"][0]["error"]),
        (&json!(1), &json!("still down"))
    );
    let lane = api.claim("orders").remove(0);
    assert_eq!((&lane["retry_count"], &lane["jobs"][0]["payload"]), (&json!(-1), &json!(2)));
    assert_eq!(api.settled(&lane, json!({ "outcome": "release" })), "ok");
    assert_eq!(api.claim("orders")[0]["attempt"], lane["attempt"]);
}

#[test]
fn part_of_a_fifo_turn_can_be_done() {
    let api = Api::start(CONFIG);
    push(
        &api,
        "mails",
        json!([{ "key": "a", "payload": 1 }, { "key": "a", "payload": 2 }, { "key": "a", "payload": 3 }]),
    );
    let lane = api.claim("mails").remove(0);
    assert_eq!(lane["jobs"].as_array().unwrap().len(), 3);
    for (outcome, done, why) in [
        ("bury", 3, "the lane has 3, which leaves no job for the outcome"),
        ("retry", 4, "the lane has 3"),
        ("done", 2, "for all 3 jobs of the lane"),
    ] {
        let refused = api.settle(&lane, json!({ "outcome": outcome, "done": done }));
        let (field, detail) = refused.refused(400);
        assert!(field == "results[0].done" && detail.contains(why), "{field}: {detail}");
    }
    let result = json!({ "outcome": "retry", "done": 1, "retry_in": "0s", "error": "two" });
    assert_eq!(api.settled(&lane, result), "ok");
    let lane = api.claim("mails").remove(0);
    let payloads: Vec<&Value> =
        lane["jobs"].as_array().unwrap().iter().map(|job| &job["payload"]).collect();
    assert_eq!(payloads, [&json!(2)], "after a failure one at a time");
}

#[test]
fn wrong_wishes_and_results_name_the_field() {
    let api = Api::start(CONFIG);
    let claims = [
        (json!({ "queues": ["orders"] }), "worker"),
        (json!({ "worker": "", "queues": ["orders"] }), "worker"),
        (json!({ "worker": "w", "queues": [] }), "queues"),
        (json!({ "worker": "w", "queues": ["ok", "not ok"] }), "queues[1]"),
        (json!({ "worker": "w", "queues": ["orders"], "limit": 0 }), "limit"),
        (json!({ "worker": "w", "queues": ["orders"], "wait_ms": 86_400_000 }), "wait_ms"),
        (json!({ "worker": "w", "queues": ["orders"], "lease_ttl_sec": 0.001 }), "lease_ttl_sec"),
    ];
    for (body, field) in claims {
        assert_eq!(api.post("/api/v1/work/claim", &body).refused(400).0, field, "{body}");
    }
    let result = |lane: &str, outcome: &str| json!({ "lane": lane, "token": 1, "secret": "", "outcome": outcome });
    let with = |outcome: &str, field: &str, value: Value| {
        let mut one = result("1-0-1", outcome);
        one[field] = value;
        one
    };
    let results = [
        (json!([result("x", "done")]), "results[0].lane"),
        (json!([result("1-0-1", "done"), result("1-0-2", "finished")]), "results[1].outcome"),
        (json!([result("1-0-1", "done"), result("1-0-1", "done")]), "results[1].lane"),
        (json!([with("done", "retry_in", json!("5s"))]), "results[0].retry_in"),
        (json!([with("release", "error", json!("e"))]), "results[0].error"),
    ];
    for (results, field) in results {
        let body = json!({ "worker": "w", "results": results });
        assert_eq!(api.post("/api/v1/work/settle", &body).refused(400).0, field, "{body}");
    }
    assert_eq!(api.claim("never-pushed-to"), [Value::Null; 0]);
}

#[test]
fn d10_a_claim_waits_until_there_is_work() {
    let api = Api::start(CONFIG);
    let body = json!({ "worker": "w", "queues": ["orders", "mails"], "wait_ms": 60_000 });
    let waiting = Request::new("POST", "/api/v1/work/claim").json(&body);
    let lanes = std::thread::scope(|scope| {
        let answer = scope.spawn(|| waiting.send(&api.address).done());
        push(&api, "orders", json!({ "key": "a" }));
        answer.join().unwrap()
    });
    assert_eq!(lanes["lanes"][0]["key"], "a");
    // One that finds nothing comes back empty when its time is up.
    let body = json!({ "worker": "w", "queues": ["mails"], "wait_ms": 50 });
    assert_eq!(api.post("/api/v1/work/claim", &body).done(), json!({ "lanes": [] }));
}

#[test]
fn a_claim_that_waits_returns_when_an_operator_stops_its_worker() {
    let api = Api::start(CONFIG);
    let claim = |wait_ms: u64| {
        let body =
            json!({ "worker": "w", "queues": ["orders"], "wait_ms": wait_ms, "lease_ttl_sec": 3 });
        let began = Instant::now();
        let answer = api.post("/api/v1/work/claim", &body).done();
        assert_eq!(answer, json!({ "lanes": [], "command": "stop" }));
        began.elapsed()
    };
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| claim(50_000));
        api.knows("nodes", "remote:w", None);
        api.act("/api/v1/nodes/remote:w/stop").done();
        waiting.join().unwrap()
    });
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    // If the worker goes on, its claims wait as long as they ask to: otherwise it would repeat them without a pause.
    assert!(claim(300) >= Duration::from_millis(300));
}

#[test]
fn lanes_of_a_client_that_went_away_go_back_uncounted() {
    let api = Api::start(CONFIG);
    let body = json!({ "worker": "gone", "queues": ["orders"], "wait_ms": 60_000, "lease_ttl_sec": 3_600 });
    for _ in 0..20 {
        drop(Request::new("POST", "/api/v1/work/claim").json(&body).start(&api.address));
    }
    push(&api, "orders", json!({ "key": "a" }));
    let patient = json!({ "worker": "here", "queues": ["orders"], "wait_ms": 60_000 });
    let lane = api.post("/api/v1/work/claim", &patient).done()["lanes"][0].clone();
    assert_eq!((&lane["attempt"], &lane["crashes"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_remote_claim_outlives_the_node_that_served_it() {
    let mut api = Api::start(CONFIG);
    push(&api, "orders", json!({ "key": "a" }));
    let body = json!({ "worker": "w", "queues": ["orders"], "lease_ttl_sec": 3_600 });
    let lane = api.post("/api/v1/work/claim", &body).done()["lanes"][0].clone();
    api.serving.0.kill().unwrap();
    api.serving.0.wait().unwrap();
    // A node that rescues ten minutes later finds the node dead and its claim standing.
    let store = api.site.store().await;
    let later = Timestamp::of_this_machine() + Duration::from_secs(600);
    let node = NodeInfo::new(NodeId::from("rescuer"), Duration::from_secs(60));
    let beat = Heartbeat { now: Some(later), node: node.clone(), beats: Vec::new() };
    assert!(store.heartbeat(beat).await.unwrap().alive);
    let rescue = Rescue {
        now: Some(later),
        node: node.id,
        lease: Duration::from_secs(60),
        lanes_max: 10,
        ticket: 0,
    };
    assert_eq!(store.rescue(rescue).await.unwrap(), []);
    store.close().await.unwrap();
    let api = Api::with(api.site, |_| {});
    assert_eq!(api.beat(&lane, json!({})), json!({ "cancel": [], "lost": [] }));
    assert_eq!(api.settled(&lane, json!({ "outcome": "done" })), "ok");
    assert_eq!(api.beat(&lane, json!({}))["lost"], json!([lane["lane"]]));
}

#[test]
fn a_job_that_should_have_started_before_is_not_handed_over() {
    let api = Api::start(CONFIG);
    push(
        &api,
        "mails",
        json!([{ "key": "a", "payload": 1, "expires_at": 1_000_000_000 }, { "key": "a", "payload": 2 }]),
    );
    let body = json!({ "worker": "w", "queues": ["mails"], "wait_ms": 60_000 });
    let lane = api.post("/api/v1/work/claim", &body).done()["lanes"][0].clone();
    let payloads: Vec<&Value> =
        lane["jobs"].as_array().unwrap().iter().map(|job| &job["payload"]).collect();
    assert_eq!(payloads, [&json!(2)]);
    assert_eq!(api.settled(&lane, json!({ "outcome": "done" })), "ok");
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 0);
}

#[test]
fn what_a_remote_worker_fails_is_logged_as_that_of_a_local_one() {
    let api = Api::start(CONFIG);
    push(&api, "orders", json!([{ "key": "a", "payload": 1 }]));
    let lane = api.claim("orders").remove(0);
    assert_eq!(api.settled(&lane, json!({ "outcome": "retry", "error": "down" })), "ok");
    api.act("/api/v1/queues/orders/lane/retry?key=a").done();
    let lane = api.claim("orders").remove(0);
    assert_eq!(api.settled(&lane, json!({ "outcome": "retry", "error": "down" })), "ok");
    api.logs("attempt 1 failed: down; tried again in 30s");
    api.logs("attempt 2 failed: down; dead: `seriatim morgue orders` shows it");
}

#[test]
fn a_claim_names_the_queues_that_do_not_exist() {
    let api = Api::start(CONFIG);
    let ask = |queues: Value| {
        api.post("/api/v1/work/claim", &json!({ "worker": "w", "queues": queues })).done()
    };
    let lanes = json!([]);
    assert_eq!(ask(json!(["ordres"])), json!({ "lanes": lanes, "unknown_queues": ["ordres"] }));
    assert_eq!(
        ask(json!(["orders", "mials"])),
        json!({ "lanes": lanes, "unknown_queues": ["mials"] })
    );
    assert_eq!(ask(json!(["orders", "mails"])), json!({ "lanes": lanes }));
}

#[test]
fn a_remote_worker_gets_nothing_until_the_server_has_declared_its_queue_again() {
    let server = Server::redis();
    let api = Api::start(&format!("[store]\nurl = \"{}\"\n{CONFIG}", server.url()));
    push(&api, "orders", json!([{ "key": "a" }]));
    assert_eq!(api.claim("orders").len(), 1);
    // It hears of the wiped store only after another process, which knows no definition, has pushed.
    api.serving.signal(Signal::STOP);
    server.asked(&["FLUSHALL"]);
    let site = Site::new("");
    let pushed = site.run(&["push", "orders", "1", "--key", "b", "--store", &server.url()]);
    assert!(
        text(&pushed).contains("created queue orders with mode exclusive"),
        "{}",
        text(&pushed)
    );
    api.serving.signal(Signal::CONT);
    let lanes = api.claim("orders");
    assert_eq!((lanes.len(), &lanes[0]["key"]), (1, &json!("b")));
    let view = api.get("/api/v1/queues/orders").done();
    assert_eq!(view["mode"], "accumulate");
}

#[test]
fn d12_steps_by_http_are_kept_beside_progress_until_their_jobs_end() {
    let api = Api::start(CONFIG);
    push(&api, "mails", json!([{ "key": "a", "payload": 1 }]));
    let lane = api.claim("mails").remove(0);
    let step =
        |lane: &Value, step: Value| api.beat(lane, json!({ "step": step }))["steps"][0].clone();
    let name = &lane["lane"];
    let run = json!({ "lane": name, "step": "extract", "state": "run" });
    assert_eq!(step(&lane, json!({ "name": "extract" })), run);
    api.beat(&lane, json!({ "progress": { "percent": 40 } }));
    let kept = json!({ "lane": name, "step": "extract", "state": "kept" });
    assert_eq!(step(&lane, json!({ "name": "extract", "done": true, "result": [1, 2] })), kept);
    step(&lane, json!({ "name": "load" }));
    let id = lane["jobs"][0]["job_id"].as_str().unwrap();
    let job = api.get(&format!("/api/v1/jobs/{id}")).done();
    assert_eq!(job["progress"], json!({ "percent": 40 }));
    assert_eq!(job["steps"], json!({ "step": "load", "done": ["extract"] }));
    assert_eq!(api.settled(&lane, json!({ "outcome": "snooze", "retry_in": 0 })), "ok");
    let again = api.claim("mails").remove(0);
    let stale = api.beat(&lane, json!({ "step": { "name": "load", "done": true } }));
    assert_eq!((&stale["lost"], &stale["steps"]), (&json!([name]), &Value::Null));
    let done = json!({ "lane": name, "step": "extract", "state": "done", "result": [1, 2] });
    api.beat(&again, json!({ "progress": "again" }));
    assert_eq!(step(&again, json!({ "name": "extract" })), done);
    assert_eq!(step(&again, json!({ "name": "load" }))["state"], "run");
    let long = "x".repeat(70_000);
    let claim = held(&again, json!({ "step": { "name": "load", "done": true, "result": long } }));
    let refused = api.post("/api/v1/work/heartbeat", &json!({ "worker": "w", "claims": [claim] }));
    assert_eq!((refused.status, refused.json()["field"].as_str()), (400, Some("claims[0].step")));
    assert_eq!(api.settled(&again, json!({ "outcome": "done" })), "ok");
}

#[test]
fn a_claim_names_no_group_or_build_that_no_job_could_name() {
    let api = Api::start(CONFIG);
    let claim = |name: &str, value: Value| {
        let body = json!({ "worker": "w", "queues": ["orders"], name: value });
        api.post("/api/v1/work/claim", &body)
    };
    let (long, longest) = ("g".repeat(257), "g".repeat(256));
    for wrong in [&long, "", "a\0"] {
        assert_eq!(
            claim("consumer_groups", json!(["a", wrong])).refused(400).0,
            "consumer_groups[1]"
        );
        assert_eq!(claim("build", json!(wrong)).refused(400).0, "build");
    }
    assert_eq!(claim("consumer_groups", json!(vec!["g"; 101])).refused(400).0, "consumer_groups");
    assert_eq!(claim("consumer_groups", json!([longest])).status, 200);
    assert_eq!(claim("build", json!(longest)).status, 200);
}
