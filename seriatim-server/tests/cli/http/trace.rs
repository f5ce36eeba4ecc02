//! Trace context, from the push to the worker.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use crate::receiver::{Receiver, answer};
use crate::site::{Site, eventually};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_traceparent_goes_with_the_job_to_every_kind_of_worker() {
    let receiver = Receiver::start(|_, _| answer("200 OK", "", ""));
    let site = Site::new(&format!(
        "[queues.script]\nmode = \"fifo\"\nmax_retries = 0\n[queues.hook]\nmode = \"fifo\"\n[queues.remote]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"script\"\ncommand = [\"sh\", \"-c\", \"cat > call; echo $TRACEPARENT > trace; mv trace done; exit 1\"]\n\
         [[workers]]\nqueue = \"hook\"\nbuiltin = \"http\"\nurl = \"{}\"\n",
        receiver.url
    ));
    let api = Api::with(site, |_| {});
    for queue in ["script", "hook", "remote"] {
        let path = format!("/api/v1/queues/{queue}/jobs");
        let body = json!([{ "key": "k", "payload": 1 }]);
        Request::new("POST", &path)
            .json(&body)
            .header("traceparent", TRACE)
            .send(&api.address)
            .done();
    }
    let claim = json!({ "worker": "w", "queues": ["remote"], "wait_ms": 60_000 });
    let lane = api.post("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
    assert_eq!(lane["jobs"][0]["traceparent"], TRACE);
    eventually("the hook is called", async || !receiver.received().is_empty()).await;
    assert_eq!(receiver.received()[0].header("traceparent"), TRACE);
    eventually("the script has run", async || api.site.path("done").exists()).await;
    assert_eq!(std::fs::read_to_string(api.site.path("done")).unwrap().trim(), TRACE);
    let call: Value =
        serde_json::from_slice(&std::fs::read(api.site.path("call")).unwrap()).unwrap();
    assert_eq!(call["lanes"][0]["jobs"][0]["traceparent"], TRACE);
    // The failed turn is logged with its trace.
    api.logs("4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn a_job_keeps_its_own_trace_and_what_is_none_is_ignored() {
    let api = Api::start("");
    let other = TRACE.replace("4bf9", "aaaa");
    let push = |header: &str, body: &Value| {
        let request = Request::new("POST", "/api/v1/queues/q/jobs").json(body);
        let pushed = request.header("traceparent", header).send(&api.address).done();
        let id = pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned();
        api.get(&format!("/api/v1/jobs/{id}")).done()["traceparent"].clone()
    };
    assert_eq!(push(TRACE, &json!({ "traceparent": other })), other);
    assert_eq!(push(TRACE, &json!({})), TRACE);
    assert_eq!(push("nonsense", &json!({})), Value::Null);
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_binary_without_spans_says_so_when_they_are_asked_for() {
    let asked = |url: &str| {
        let api = Api::with(Site::new(""), |command| {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url);
        });
        api.log().contains("OTEL_EXPORTER_OTLP_ENDPOINT is set, but this binary sends no traces")
    };
    assert!(asked("http://127.0.0.1:4318"));
    assert!(!asked(""));
}
