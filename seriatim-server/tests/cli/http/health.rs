//! What probes and people ask first.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Api;
use super::client::Request;
use crate::faults::Server;
use crate::site::Site;

#[test]
fn d5_health_ready_and_info() {
    let api = Api::start("[http]\nenvironment = \"staging\"\n");
    assert_eq!(api.get("/health").done(), json!({ "status": "healthy" }));
    assert_eq!(api.get("/ready").done(), json!({ "status": "ready" }));
    let info = api.get("/info").done();
    assert_eq!((&info["service"], &info["environment"]), (&json!("seriatim"), &json!("staging")));
    assert!(info["version"].is_string());
}

#[test]
fn every_answer_has_a_request_id_and_the_clients_own_comes_back() {
    let api = Api::start("");
    let given = |answer: &super::Answer| answer.header("x-request-id").unwrap().to_owned();
    assert_eq!(given(&api.get("/health")).len(), 32);
    assert_ne!(given(&api.get("/nothing")), given(&api.get("/nothing")));
    let own = Request::new("GET", "/health").header("X-Request-Id", "mine").send(&api.address);
    assert_eq!(given(&own), "mine");
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let api = Api::start("");
    api.get("/api/v1/nothing").refused(404);
    let wrong = Request::new("PATCH", "/api/v1/queues").send(&api.address);
    wrong.refused(405);
    let allowed = wrong.header("allow").unwrap();
    assert!(allowed.contains("GET") && allowed.contains("PUT"), "{allowed}");
}

#[test]
fn an_address_that_is_taken_is_said_with_what_to_do() {
    let api = Api::start("");
    let site = Site::new("");
    let output = site.run(&["serve", "--listen", &api.address]);
    let said = crate::site::text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot listen on") && said.contains("--no-http"), "{said}");
}

#[test]
fn d15_metrics_count_queues_store_and_requests() {
    let api = Api::start("");
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": "a" })).done();
    let text = api.get("/metrics").text();
    for line in [
        "seriatim_queue_jobs{queue=\"orders\"} 1",
        "seriatim_queue_dead{queue=\"orders\"} 0",
        "seriatim_queue_processed_total{queue=\"orders\"} 0",
        "seriatim_store_operation_seconds_count{operation=\"push\"} 1",
        "seriatim_http_requests_total{method=\"POST\",route=\"/api/v1/queues/{queue}/jobs\",status=\"200\"} 1",
    ] {
        assert!(text.lines().any(|written| written == line), "{line}\n{text}");
    }
}

#[test]
fn d5_health_answers_at_once_while_the_store_is_away_and_ready_says_why_not() {
    let mut server = Server::postgres();
    let site = Site::new(&format!("[store]\nurl = \"{}\"\n", server.url()));
    let api = Api::with(site, |_| {});
    assert_eq!(api.get("/ready").status, 200);
    // A node whose store goes away while it starts ends; one that has begun waits for it.
    while api.get("/api/v1/nodes").done()["nodes"][0].is_null() {
        std::thread::yield_now();
    }
    server.stop();
    let (_, detail) = api.get("/ready").refused(503);
    assert!(detail.starts_with("the store "), "{detail}");
    // The quickest of many: what else runs on the machine is not what is judged.
    let took = |_| {
        let started = Instant::now();
        assert_eq!(api.get("/health").status, 200);
        started.elapsed()
    };
    let quickest = (0..20).map(took).min().unwrap();
    assert!(quickest < Duration::from_millis(20), "{quickest:?}");
    let metrics = api.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().lines().any(|line| line == "seriatim_store_up 0"), "{}", metrics.text());
    assert!(
        metrics.text().contains("seriatim_store_errors_total{operation="),
        "{}",
        metrics.text()
    );
}

#[test]
fn the_page_of_the_api_allows_no_scripts() {
    let api = Api::start("[http]\nbase_path = \"/jobs\"\n");
    let page = api.get("/jobs/docs");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'"), "{policy}");
    assert!(page.text().contains("/api/v1/queues/{queue}/jobs"));
    assert_eq!(api.get("/jobs/docs.css").header("content-type"), Some("text/css; charset=utf-8"));
}
