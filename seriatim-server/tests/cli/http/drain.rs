//! The end of a node that others still talk to.

use std::io::Read;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use super::Api;
use super::client::Request;
use crate::site::Site;

/// A node with a call that ends when the pipe `gate` is written to, and a moment in which it runs.
fn gated() -> Api {
    let site = Site::new(
        "[queues.gated]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"gated\"\ncommand = [\"sh\", \"-c\", \"echo up > up; read x < gate\"]\n",
    );
    for pipe in ["gate", "up"] {
        assert!(Command::new("mkfifo").arg(site.path(pipe)).status().unwrap().success());
    }
    let api = Api::with(site, |_| {});
    api.post("/api/v1/queues/gated/jobs", &json!({ "key": "k" })).done();
    // Comes back when the command runs.
    std::fs::read_to_string(api.site.path("up")).unwrap();
    api
}

fn drains(api: &Api) {
    while api.get("/ready").status == 200 {
        std::thread::yield_now();
    }
}

#[test]
fn a_node_that_an_operator_stops_drains_too_and_still_hears_signals() {
    let mut api = gated();
    let nodes = api.get("/api/v1/nodes").done();
    api.act(&format!("/api/v1/nodes/{}/stop", nodes["nodes"][0]["node"].as_str().unwrap())).done();
    drains(&api);
    // As soon as a second one has come, more than a moment after the first.
    while api.serving.0.try_wait().unwrap().is_none() {
        api.serving.signal(Signal::TERM);
        std::thread::yield_now();
    }
    assert_eq!(api.serving.0.wait().unwrap().code(), Some(1), "{}", api.log());
}

#[test]
fn d16_while_a_node_drains_only_holders_of_claims_are_answered() {
    let mut api = gated();
    api.post("/api/v1/queues/remote/jobs", &json!({ "key": "k" })).done();
    let claim = json!({ "worker": "w", "queues": ["remote"] });
    let lane = api.post("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
    let mut listening = Request::new("GET", "/api/v1/events").start(&api.address);
    listening.read_exact(&mut [0; 12]).unwrap();
    api.serving.signal(Signal::TERM);
    drains(&api);
    let (_, detail) = api.get("/ready").refused(503);
    assert!(detail.contains("draining"), "{detail}");
    let refused = api.post("/api/v1/queues/remote/jobs", &json!({ "key": "k" }));
    refused.refused(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    api.post("/api/v1/work/claim", &claim).refused(503);
    api.get("/api/v1/stats").refused(503);
    let page = Request::new("GET", "/queues").header("Accept", "text/html").send(&api.address);
    let text = page.text();
    assert_eq!((page.status, page.header("retry-after")), (503, Some("1")), "{text}");
    assert!(
        text.contains("draining") && text.contains("http-equiv=\"refresh\" content=\"5\""),
        "{text}"
    );
    let deed = Request::new("POST", "/do").header("Sec-Fetch-Site", "same-origin");
    let deed =
        deed.body("application/x-www-form-urlencoded", "deed=queue.pause&queue=remote".to_owned());
    let deed = deed.send(&api.address);
    assert!(
        deed.status == 503 && !deed.text().contains("http-equiv=\"refresh"),
        "a deed is not repeated: {}",
        deed.text()
    );
    for path in ["/health", "/info", "/metrics", "/docs", "/openapi.json"] {
        assert_eq!(api.get(path).status, 200, "{path}");
    }
    // A stream of events ends, so that it does not hold the node up.
    assert_eq!(listening.read_to_end(&mut Vec::new()).map(|_| ()).map_err(|e| e.kind()), Ok(()));
    assert_eq!(api.beat(&lane, json!({})), json!({ "cancel": [], "lost": [] }));
    assert_eq!(api.settled(&lane, json!({ "outcome": "done" })), "ok");
    std::fs::write(api.site.path("gate"), "go\n").unwrap();
    assert!(api.serving.0.wait().unwrap().success(), "{}", api.log());
}
