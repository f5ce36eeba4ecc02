//! What one client took or filled, and how it is taken back.

use serde_json::{Value, json};

use super::client::{Answer, Request, held};
use super::{Api, on_each_store};
use crate::site::Site;

/// Keys that one worker hoards.
const HOARDED: usize = 1_200;

fn claim(api: &Api, worker: &str, limit: usize, lease_sec: u32) -> Answer {
    let body = json!({
        "worker": worker, "queues": ["orders"], "limit": limit, "lease_ttl_sec": lease_sec
    });
    api.post("/api/v1/work/claim", &body)
}

fn lanes(answer: Answer) -> Vec<Value> {
    answer.done()["lanes"].as_array().unwrap().clone()
}

fn delete(api: &Api, path: &str) -> Answer {
    Request::new("DELETE", path).send(&api.address)
}

/// One worker claims all there is for as long as it may, and never settles.
fn hoarded(site: Site) {
    let api = Api::with(site, |_| {});
    let jobs: Vec<Value> = (0..HOARDED).map(|i| json!({ "key": format!("k{i}") })).collect();
    for jobs in jobs.chunks(100) {
        api.post("/api/v1/queues/orders/jobs", &json!(jobs)).done();
    }
    let mut hoard = Vec::new();
    while hoard.len() < HOARDED {
        let more = lanes(claim(&api, "hoarder", 100, 3_600));
        assert!(!more.is_empty());
        hoard.extend(more);
    }
    assert_eq!(lanes(claim(&api, "honest", 1, 60)).len(), 0, "nothing is left for others");
    api.act("/api/v1/queues/orders/lane/retry?key=k0").refused(409);
    // By key, and then all that is left.
    assert_eq!(api.act("/api/v1/queues/orders/lane/release?key=k0").done()["count"], 1);
    let rest = api.act("/api/v1/nodes/remote:hoarder/release").done();
    assert_eq!(rest["count"], HOARDED - 1);
    let lane = lanes(claim(&api, "honest", 1, 60)).remove(0);
    assert_eq!(lane["crashes"], 1);
    let mine = held(&lane, json!({ "outcome": "done" }));
    let settle = json!({ "worker": "honest", "results": [mine] });
    assert_eq!(api.post("/api/v1/work/settle", &settle).done()["results"][0]["status"], "ok");
    // The hoarder is fenced off, and hears it with its next heartbeat.
    let old = &hoard[7];
    let beat = json!({ "worker": "hoarder", "claims": [held(old, json!({}))] });
    assert_eq!(api.post("/api/v1/work/heartbeat", &beat).done()["lost"], json!([old["lane"]]));
    let theirs = held(old, json!({ "outcome": "done" }));
    let settle = json!({ "worker": "hoarder", "results": [theirs] });
    assert_eq!(api.post("/api/v1/work/settle", &settle).done()["results"][0]["status"], "stale");
    // It is in the audit log.
    api.logs("node release");
}

#[test]
fn hoarded_lanes_are_taken_back_and_work_goes_on() {
    on_each_store(|site| hoarded(site("")));
}

#[test]
fn a_lease_is_no_longer_than_the_queue_allows() {
    let api = Api::start("");
    let push = |lease| {
        let job = json!({ "key": "k", "lease_ttl": lease });
        api.post("/api/v1/queues/orders/jobs", &job)
    };
    let (field, detail) = push("3650d").refused(400);
    assert_eq!((&*field, detail.contains("at most 1h")), ("lease_ttl", true), "{detail}");
    push("1h").done();
    let (field, detail) = claim(&api, "w", 1, 86_400).refused(400);
    assert_eq!((&*field, detail.contains("at most 1h")), ("lease_ttl_sec", true), "{detail}");
    let lane = lanes(claim(&api, "w", 1, 3_600)).remove(0);
    let beat = |seconds: u64| {
        let claim = held(&lane, json!({}));
        let beat = json!({ "worker": "w", "lease_ttl_sec": seconds, "claims": [claim] });
        api.post("/api/v1/work/heartbeat", &beat)
    };
    let (field, detail) = beat(86_400).refused(400);
    assert_eq!((&*field, detail.contains("at most 1h")), ("lease_ttl_sec", true), "{detail}");
    // Another definition of the queue holds at once.
    api.put("/api/v1/queues/orders", &json!({ "lease_max": "2d" })).done();
    beat(86_400).done();
}

const TWENTY: &str = "[http]\nimplied_queues = 20\n[queues.declared]\nmode = \"parallel\"\n";

/// A producer that pushes to ever new names.
#[test]
fn pushes_make_so_many_queues_and_no_more() {
    let api = Api::start(TWENTY);
    let push = |queue: &str| api.post(&format!("/api/v1/queues/{queue}/jobs"), &json!({}));
    for i in 0..20 {
        assert_eq!(push(&format!("made-up-{i}")).done()["created"], true);
    }
    let (field, detail) = push("one-more").refused(409);
    assert_eq!(field, "queue");
    assert!(detail.contains("20") && detail.contains("http.implied_queues"), "{detail}");
    let trigger = json!({ "queue": "one-more", "task": "t", "lock_key": "k" });
    api.post("/api/v1/jobs/trigger", &trigger).refused(409);
    // Those that exist and those that are declared go on.
    push("made-up-3").done();
    push("declared").done();
    api.put("/api/v1/queues/also-declared", &json!({ "mode": "parallel" })).done();
    push("also-declared").done();
    let (_, detail) = delete(&api, "/api/v1/queues/declared").refused(409);
    assert!(detail.contains("configuration"), "{detail}");
    assert_eq!(delete(&api, "/api/v1/queues/declared?force=true").done()["count"], 1);
    assert_eq!(api.get("/api/v1/queues/declared").done()["declared"], true);
    // What is deleted, or declared, counts no more.
    assert_eq!(delete(&api, "/api/v1/queues/made-up-7").done()["count"], 1);
    push("one-more").done();
    push("another").refused(409);
    api.put("/api/v1/queues/made-up-8", &json!({ "mode": "parallel" })).done();
    push("another").done();
}

fn deleted(site: Site) {
    let api = Api::with(site, |_| {});
    for key in ["a", "b"] {
        api.post("/api/v1/queues/orders/jobs", &json!({ "key": key })).done();
    }
    let lane = lanes(claim(&api, "w", 1, 60)).remove(0);
    // Somebody works on it.
    let (_, detail) = delete(&api, "/api/v1/queues/orders").refused(409);
    assert!(detail.contains("node remote:w"), "{detail}");
    assert_eq!(api.get("/api/v1/queues/orders").done()["queue"], "orders");
    let gone = delete(&api, "/api/v1/queues/orders?force=true").done();
    assert_eq!(gone, json!({ "queue": "orders", "count": 2, "released": 1 }));
    assert_eq!(api.settled(&lane, json!({ "outcome": "done" })), "stale");
    api.get("/api/v1/queues/orders").refused(404);
    delete(&api, "/api/v1/queues/orders").refused(404);
    // The name is free, for a queue of another mode.
    let pushed = api.post("/api/v1/queues/orders/jobs", &json!({})).done();
    assert_eq!(pushed["created"], true);
    assert_eq!(api.act("/api/v1/queues/orders/drain").done()["count"], 1);
    assert_eq!(api.get("/api/v1/queues/orders").done()["jobs"], 0);
}

#[test]
fn a_deleted_queue_leaves_nothing_behind() {
    on_each_store(|site| deleted(site("")));
}

#[test]
fn the_command_line_releases_drains_and_deletes() {
    let api = Api::start("");
    for key in ["a", "b", "c"] {
        api.post("/api/v1/queues/orders/jobs", &json!({ "key": key })).done();
    }
    lanes(claim(&api, "w", 2, 60));
    let run = |words: &[&str]| {
        let output = api.site.command(words).output().unwrap();
        let said = [&*output.stdout, &*output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let (code, said) = run(&["lanes", "release", "orders", "c"]);
    assert!(code == 1 && said.contains("not claimed"), "{said}");
    assert_eq!(run(&["lanes", "release", "orders", "a"]), (0, "1 lane released\n".to_owned()));
    let (code, said) = run(&["nodes", "release", "remote:w"]);
    assert!(code == 0 && said.starts_with("1 lane of remote:w-"), "{said}");
    let (code, said) = run(&["queues", "drain", "orders"]);
    assert!(code == 2 && said.contains("--yes"), "{said}");
    let (code, said) = run(&["queues", "drain", "orders", "--yes"]);
    assert_eq!((code, &*said), (0, "3 lanes are emptied\n"));
    let (code, said) = run(&["queues", "delete", "orders", "--yes"]);
    assert!(code == 1 && said.contains("node remote:w"), "{said}");
    let (code, said) = run(&["queues", "delete", "orders", "--force", "--yes"]);
    assert_eq!((code, &*said), (0, "orders is deleted, with 0 jobs\n"));
    assert_eq!(run(&["queues", "show", "orders"]).0, 1);
}
