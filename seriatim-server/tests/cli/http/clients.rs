//! The examples for workers in other languages.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Api;
use crate::site::text;

/// What a run over three jobs and one that fails must come to.
fn works(program: &str, script: &str) {
    let api = Api::start("[queues.orders]\nmode = \"accumulate\"\nmax_retries = 0\n");
    let jobs = json!([
        { "key": "a", "payload": { "n": 1 } }, { "key": "a", "payload": { "n": 2 } },
        { "key": "b", "payload": { "n": 3 } }, { "key": "bad", "payload": { "fail": true } },
    ]);
    api.post("/api/v1/queues/orders/jobs", &jobs).done();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/clients").join(script);
    let output = Command::new(program)
        .arg(script)
        .args([&format!("http://{}", api.address), "orders", "--until-empty"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let stats = api.get("/api/v1/stats").done()["by_worker"]["orders"].clone();
    let numbers =
        ["length", "processed", "failed", "morgue_length"].map(|name| stats[name].clone());
    assert_eq!(numbers, [json!(0), json!(3), json!(1), json!(1)], "{}", text(&output));
    let dead: Value = api.get("/api/v1/queues/orders/morgue").done();
    assert!(dead["jobs"][0]["error"].as_str().unwrap().contains("told to fail"), "{dead}");
}

#[test]
fn the_python_worker_works() {
    works("python3", "worker.py");
}

#[test]
fn the_node_worker_works() {
    works("node", "worker.mjs");
}
