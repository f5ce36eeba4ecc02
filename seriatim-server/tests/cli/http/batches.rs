//! Batches over HTTP and from the command line.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use crate::site::{Site, text};

/// Opens a batch with a callback in the queue `reports`.
fn open(api: &Api, id: &str, callback: &Value) -> super::client::Answer {
    let body = json!({ "queue": "reports", "callback": callback });
    Request::new("PUT", &format!("/api/v1/batches/{id}")).json(&body).send(&api.address)
}

fn claim(api: &Api, queue: &str) -> Value {
    let body = json!({ "worker": "w", "queues": [queue], "wait_ms": 60_000 });
    api.post("/api/v1/work/claim", &body).done()["lanes"][0].clone()
}

#[test]
fn a_callback_reaches_a_remote_worker_with_its_payload_and_the_counts() {
    let api = Api::start("");
    assert_eq!(open(&api, "b", &json!({ "payload": { "import": 7 } })).done()["pending"], 0);
    let jobs: Vec<Value> = (0..3).map(|n| json!({ "payload": n, "batch": "b" })).collect();
    let pushed = api.post("/api/v1/queues/rows/jobs", &json!(jobs)).done();
    api.post("/api/v1/batches/b/seal", &json!({})).done();
    let cancelled = pushed["jobs"][2]["job_id"].as_str().unwrap();
    api.post(&format!("/api/v1/jobs/{cancelled}/cancel"), &json!({})).done();
    for outcome in ["done", "bury"] {
        let lane = claim(&api, "rows");
        assert_eq!(lane["jobs"][0]["batch"], "b");
        let error = (outcome != "done").then_some("no");
        api.settle(&lane, json!({ "outcome": outcome, "error": error })).done();
    }
    let job = claim(&api, "reports")["jobs"][0].clone();
    assert_eq!(job["payload"], json!({ "import": 7 }));
    let ended = json!({ "id": "b", "done": 1, "dead": 1, "cancelled": 1 });
    assert_eq!(job["ended_batch"], ended);
    let batch = api.get("/api/v1/batches/b").done();
    assert_eq!((&batch["callback"], &batch["pending"]), (&job["job_id"], &json!(0)));
}

#[test]
fn what_is_wrong_with_a_batch_is_told_with_its_field() {
    let api = Api::start("[queues.reports]\nmode = \"fifo\"\n");
    let push = json!({ "payload": 1, "batch": "b" });
    assert_eq!(api.post("/api/v1/queues/rows/jobs", &push).refused(404).0, "batch");
    for (callback, status, field) in [
        (json!({}), 400, "callback.key"),
        (json!(["k"]), 400, "callback"),
        (json!({ "key": "k", "delay": "1s" }), 400, "callback.run_at"),
        (json!({ "key": "k", "batch": "b" }), 400, "callback.batch"),
        (json!({ "key": "k", "payload": 1 }), 200, ""),
        (json!({ "key": "k", "payload": 1 }), 200, ""),
        (json!({ "key": "k", "payload": 2 }), 409, "id"),
    ] {
        let answer = open(&api, "b", &callback);
        match status {
            200 => drop(answer.done()),
            _ => assert_eq!(answer.refused(status).0, field, "{callback}"),
        }
    }
    api.post("/api/v1/batches/b/seal", &json!({})).done();
    assert_eq!(api.post("/api/v1/queues/rows/jobs", &push).refused(409).0, "batch");
    assert_eq!(api.post("/api/v1/batches/c/seal", &json!({})).status, 404);
    assert_eq!(api.get("/api/v1/batches/c").status, 404);
}

#[test]
fn a_batch_is_opened_filled_sealed_and_shown_from_the_command_line() {
    let site = Site::new("");
    let run = |arguments: &[&str]| text(&site.run(arguments));
    assert!(run(&["push", "rows", "1", "--batch", "b"]).contains("there is no batch"));
    let opened = run(&["batches", "open", "b", "reports", "{\"import\":7}"]);
    assert!(opened.contains("open: 0 pending"), "{opened}");
    assert!(run(&["push", "rows", "1", "2", "--batch", "b"]).contains("queued"));
    let sealed = run(&["batches", "seal", "b"]);
    assert!(sealed.contains("sealed: 2 pending, 0 done, 0 dead, 0 cancelled"), "{sealed}");
    let shown = site.run(&["batches", "show", "b", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["batch"], &shown["pending"]), (&json!("b"), &json!(2)));
    let misplaced = site.run(&["batches", "--limit", "3", "seal", "b"]);
    assert_eq!(misplaced.status.code(), Some(2), "{}", text(&misplaced));
    let missing = site.run(&["batches", "show", "c"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing));
}

#[test]
fn the_queue_of_a_callback_is_made_as_the_configuration_declares_it() {
    let site = Site::new("[queues.reports]\nmode = \"fifo\"\n");
    let keyless = site.run(&["batches", "open", "b", "reports"]);
    assert_eq!(keyless.status.code(), Some(2), "{}", text(&keyless));
    assert!(text(&keyless).contains("callback.key"), "{}", text(&keyless));
    let opened = text(&site.run(&["batches", "open", "b", "reports", "--key", "k"]));
    assert!(opened.contains("open: 0 pending"), "{opened}");
}

#[test]
fn batches_are_listed_over_http_from_the_command_line_and_on_a_page() {
    let api = Api::start("");
    for id in ["old", "new"] {
        open(&api, id, &json!({ "payload": 1 })).done();
        api.post("/api/v1/queues/rows/jobs", &json!({ "payload": id, "batch": id })).done();
    }
    let page = Request::new("GET", "/batches").send(&api.address).text();
    assert!(page.contains("id=\"batch-old\"") && page.contains("deed=batch.seal"), "{page}");
    let asks = |id: &str| {
        Request::new("GET", &format!("/confirm?deed=batch.seal&batch={id}")).send(&api.address)
    };
    let page = asks("old").text();
    assert!(page.contains("Now it is open, with 1 pending, 0 done"), "{page}");
    assert_eq!(asks("nope").status, 404);
    api.post("/api/v1/batches/new/seal", &json!({})).done();
    let lane = claim(&api, "rows");
    api.settle(&lane, json!({ "outcome": "done" })).done();
    let lane = claim(&api, "rows");
    api.settle(&lane, json!({ "outcome": "done" })).done();
    let ids = |listed: &Value| -> Vec<String> {
        let rows = listed["batches"].as_array().unwrap();
        rows.iter().map(|row| row["batch"].as_str().unwrap().to_owned()).collect()
    };
    let first = api.get("/api/v1/batches?limit=1").done();
    assert_eq!(ids(&first), ["new"]);
    let next = first["next"].as_str().unwrap();
    let rest = api.get(&format!("/api/v1/batches?after={next}")).done();
    assert_eq!((ids(&rest), &rest["next"]), (vec!["old".to_owned()], &Value::Null));
    assert_eq!(ids(&api.get("/api/v1/batches?live=true").done()), ["old"]);
    assert_eq!(api.get("/api/v1/batches?after=x").refused(400).0, "after");
    let page = Request::new("GET", "/batches?live=true").send(&api.address).text();
    assert!(page.contains("batch-old") && !page.contains("batch-new"), "{page}");
    let listed = text(&api.site.run(&["batches"]));
    let rows: Vec<&str> = listed.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(rows, ["batch", "new", "old"], "{listed}");
    let open = text(&api.site.run(&["batches", "list", "--live"]));
    assert!(open.contains("old    open"), "{open}");
}
