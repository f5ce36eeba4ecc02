//! Spans as a collector gets them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};

use super::Api;
use super::client::{Answer, Request};
use crate::receiver::{Receiver, answer};
use crate::site::{Serving, Site, eventually, text};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const CONSUMER: i32 = 5;
const PRODUCER: i32 = 4;
const ERROR: i32 = 2;

/// A queue of commands that write down their trace context.
fn queue(name: &str, rest: &str, script: &str) -> String {
    format!(
        "[queues.{name}]\nmode = \"fifo\"\nmax_retries = 0\n{rest}[[workers]]\nqueue = \"{name}\"\n\
         command = [\"sh\", \"-c\", \"echo $TRACEPARENT > {name}.part; mv {name}.part {name}.trace; {script}\"]\n"
    )
}

fn context(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn push(api: &Api, queue: &str, context: &str, body: &Value) -> Answer {
    let request = Request::new("POST", &format!("/api/v1/queues/{queue}/jobs")).json(body);
    request.header("traceparent", context).send(&api.address)
}

/// What a command of [`queue`] was given.
async fn given(site: &Site, queue: &str) -> String {
    let file = site.path(&format!("{queue}.trace"));
    eventually("the command runs", async || file.exists()).await;
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    all.iter().map(|one| (one.key.clone(), text(&one.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A span, and what its resource says.
#[derive(Clone, Debug)]
struct Seen {
    span: Span,
    said: BTreeMap<String, String>,
    resource: BTreeMap<String, String>,
}

impl Seen {
    fn trace(&self) -> String {
        hex(&self.span.trace_id)
    }

    fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    fn status(&self) -> (i32, &str) {
        self.span.status.as_ref().map_or((0, ""), |status| (status.code, &status.message))
    }

    fn says(&self, name: &str) -> Option<&str> {
        self.said.get(name).map(String::as_str)
    }
}

struct Collector(Receiver);

impl Collector {
    fn start() -> Self {
        Self(Receiver::start(|_, _| answer("200 OK", "", "")))
    }

    fn serving(&self, config: &str) -> Api {
        Api::with(Site::new(config), |command| {
            command.env(ENDPOINT, &self.0.url);
        })
    }

    fn seen(&self) -> Vec<Seen> {
        let bodies = self.0.received().into_iter().map(|request| {
            assert_eq!(request.line, "POST /hook/v1/traces HTTP/1.1");
            assert_eq!(request.header("content-type"), "application/x-protobuf");
            ExportTraceServiceRequest::decode(&*request.bytes).unwrap()
        });
        let mut seen = Vec::new();
        for of_resource in bodies.flat_map(|body| body.resource_spans) {
            let resource = attributes(&of_resource.resource.unwrap().attributes);
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let (said, resource) = (attributes(&span.attributes), resource.clone());
                seen.push(Seen { span, said, resource });
            }
        }
        seen
    }

    async fn span(&self, name: &str) -> Seen {
        let found = || self.seen().into_iter().find(|seen| seen.span.name == name);
        eventually(&format!("span {name:?} arrives"), async || found().is_some()).await;
        found().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_push_and_the_call_of_another_process_are_in_the_trace_of_the_caller() {
    let collector = Collector::start();
    let config = queue("late", "", "echo no such order >&2; exit 1");
    let site = Site::new(&format!("[queues.other]\nmode = \"fifo\"\n{config}"));
    let api = Api::with(site, |command| {
        command.args(["--queues", "other"]).env(ENDPOINT, &collector.0.url);
        command.env("OTEL_RESOURCE_ATTRIBUTES", "service.name=unused,region=eu");
        command.env("OTEL_SERVICE_NAME", "front");
    });
    let body = json!({ "key": "a private key", "payload": "a private payload" });
    let id = push(&api, "late", &context("01"), &body).done()["jobs"][0]["job_id"].clone();
    let mut worker = api.site.command(&["serve", "--no-http", "--queues", "late"]);
    worker.env(ENDPOINT, &collector.0.url).stdin(Stdio::null()).stderr(Stdio::null());
    let worker = Serving(worker.spawn().unwrap());

    let pushed = collector.span("push late").await;
    assert_eq!((pushed.trace().as_str(), pushed.parent().as_str()), (TRACE, PARENT));
    assert_eq!((pushed.span.kind, pushed.status()), (PRODUCER, (0, "")));
    let processed = collector.span("process late").await;
    assert_eq!((processed.trace(), processed.parent()), (TRACE.to_owned(), pushed.id()));
    assert_eq!((processed.span.kind, processed.status()), (CONSUMER, (ERROR, "no such order")));
    assert!(processed.span.end_time_unix_nano > processed.span.start_time_unix_nano);
    assert!(processed.span.links.is_empty());
    let below = format!("00-{TRACE}-{}-01", processed.id());
    assert_eq!(given(&api.site, "late").await, below);

    for (seen, operation) in [(&pushed, "send"), (&processed, "process")] {
        assert_eq!(seen.says("messaging.system"), Some("seriatim"));
        assert_eq!(seen.says("messaging.destination.name"), Some("late"));
        assert_eq!(seen.says("messaging.operation.type"), Some(operation));
        assert_eq!(seen.says("messaging.message.id"), id.as_str());
    }
    assert_eq!(processed.says("seriatim.attempt"), Some("1"));
    assert_eq!(processed.says("seriatim.outcome"), Some("retry"));
    assert_eq!(processed.says("error.type"), Some("retry"));
    assert_eq!(pushed.resource["service.name"], "front");
    assert_eq!(pushed.resource["region"], "eu");
    assert_eq!(processed.resource["service.name"], "seriatim");
    worker.stop();
    drop(api.stopped());
    assert!(!format!("{:?}", collector.seen()).contains("private"), "{:?}", collector.seen());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_of_several_pushes_is_a_trace_of_its_own_with_links_to_them() {
    let collector = Collector::start();
    let api = collector.serving(
        "[queues.many]\nmode = \"accumulate\"\n[[workers]]\nqueue = \"many\"\n\
         command = [\"sh\", \"-c\", \"cat > call.part; mv call.part call\"]\n",
    );
    api.act("/api/v1/queues/many/pause").done();
    let other = context("01").replace("4bf9", "aaaa");
    push(&api, "many", &context("01"), &json!({ "key": "k", "payload": 1 })).done();
    push(&api, "many", &other, &json!({ "key": "k", "payload": 2 })).done();
    api.act("/api/v1/queues/many/resume").done();
    let processed = collector.span("process many").await;
    assert_eq!(processed.parent(), "");
    let linked: Vec<String> = processed.span.links.iter().map(|link| hex(&link.trace_id)).collect();
    assert_eq!(linked, [TRACE.to_owned(), other[3..35].to_owned()]);
    assert!(!linked.contains(&processed.trace()));
    assert_eq!(processed.says("messaging.batch.message_count"), Some("2"));
    assert_eq!(processed.says("seriatim.outcome"), Some("done"));
    let call: Value =
        serde_json::from_slice(&std::fs::read(api.site.path("call")).unwrap()).unwrap();
    let below = format!("00-{}-{}-01", processed.trace(), processed.id());
    for job in call["lanes"][0]["jobs"].as_array().unwrap() {
        assert_eq!(job["traceparent"], below);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hooks_and_processes_get_the_context_of_their_call_and_remote_workers_that_of_the_push() {
    let (collector, hook) = (Collector::start(), Receiver::start(|_, _| answer("200 OK", "", "")));
    let site = Site::new(&format!(
        "[queues.hook]\nmode = \"fifo\"\n[queues.lines]\nmode = \"fifo\"\n[queues.remote]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"hook\"\nbuiltin = \"http\"\nurl = \"{}\"\n\
         [[workers]]\nqueue = \"lines\"\nprocess = [\"sh\", \"lines.sh\"]\n",
        hook.url
    ));
    let lines = r#"while read -r line; do echo "$line" > call
batch=$(sed 's/.*"batch":"\([^"]*\)".*/\1/' call); echo "{\"type\":\"done\",\"batch\":\"$batch\"}"; done"#;
    std::fs::write(site.path("lines.sh"), lines).unwrap();
    let api = Api::with(site, |command| {
        command.env(ENDPOINT, &collector.0.url);
    });
    for queue in ["hook", "lines", "remote"] {
        push(&api, queue, &context("01"), &json!({ "key": "k" })).done();
    }
    let below = |seen: &Seen| format!("00-{TRACE}-{}-01", seen.id());
    let called = collector.span("process hook").await;
    assert_eq!(hook.received()[0].header("traceparent"), below(&called));
    let called = collector.span("process lines").await;
    assert_eq!((called.status().0, called.says("seriatim.outcome")), (0, Some("done")));
    let call: Value =
        serde_json::from_slice(&std::fs::read(api.site.path("call")).unwrap()).unwrap();
    assert_eq!(call["lanes"][0]["jobs"][0]["traceparent"], below(&called));
    let claim = json!({ "worker": "w", "queues": ["remote"], "wait_ms": 60_000 });
    let lane = api.post("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
    let pushed = collector.span("push remote").await;
    assert_eq!(lane["jobs"][0]["traceparent"], below(&pushed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_kind_of_push_is_a_span_that_its_jobs_carry() {
    let collector = Collector::start();
    let api = collector.serving("");
    let stored = |id: &Value| {
        let job = api.get(&format!("/api/v1/jobs/{}", id.as_str().unwrap())).done();
        job["traceparent"].as_str().unwrap().to_owned()
    };
    let list =
        json!([{ "key": "a" }, { "key": "b" }, { "key": "c", "traceparent": context("01") }]);
    let pushed = api.post("/api/v1/queues/list/jobs", &list).done()["jobs"].clone();
    let lines = Request::new("POST", "/api/v1/queues/stream/jobs");
    lines.body("application/x-ndjson", "{}\n{}\n").send(&api.address).done();
    let trigger = json!({ "queue": "load", "task": "rates", "lock_key": "cbr" });
    let triggered = api.post("/api/v1/jobs/trigger", &trigger).done()["job_id"].clone();
    let refused = api.post("/api/v1/queues/wrong/jobs", &json!({ "payload": 1, "score": "high" }));
    assert_eq!(refused.status, 400);

    let list = collector.span("push list").await;
    assert_eq!(list.parent(), "");
    assert_eq!(list.says("messaging.batch.message_count"), Some("3"));
    let below = |seen: &Seen| format!("00-{}-{}-01", seen.trace(), seen.id());
    assert_eq!(
        [stored(&pushed[0]["job_id"]), stored(&pushed[1]["job_id"])],
        [below(&list), below(&list)]
    );
    assert_eq!(stored(&pushed[2]["job_id"]), context("01"));
    let stream = collector.span("push stream").await;
    assert_eq!(stream.says("messaging.batch.message_count"), Some("2"));
    assert_eq!(stored(&triggered), below(&collector.span("push load").await));
    let wrong = collector.span("push wrong").await;
    assert_eq!(
        (wrong.status(), wrong.says("error.type")),
        ((ERROR, "400 Bad Request"), Some("400"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_caller_does_not_sample_is_not_sent_and_the_worker_is_told() {
    let collector = Collector::start();
    let api = collector.serving(&(queue("unseen", "", "true") + &queue("seen", "", "true")));
    push(&api, "unseen", &context("00"), &json!({ "key": "k" })).done();
    let told = given(&api.site, "unseen").await;
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
    assert_ne!(told, context("00"));
    push(&api, "seen", &context("01"), &json!({ "key": "k" })).done();
    given(&api.site, "seen").await;
    // What is left is sent at the end.
    drop(api.stopped());
    let mut names: Vec<String> = collector.seen().into_iter().map(|seen| seen.span.name).collect();
    names.sort();
    assert_eq!(names, ["process seen", "push seen"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_handler_that_was_given_up_is_a_span_with_the_reason() {
    let collector = Collector::start();
    let api = collector.serving(&queue("slow", "timeout = \"200ms\"\n", "exec tail -f /dev/null"));
    push(&api, "slow", &context("01"), &json!({ "key": "k" })).done();
    let processed = collector.span("process slow").await;
    let (code, reason) = processed.status();
    assert!(code == ERROR && reason.starts_with("timed out (limit 200ms)"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_the_collector_refuses_work_goes_on_and_the_log_says_so_once() {
    let refuses = Arc::new(AtomicBool::new(true));
    let is_away = refuses.clone();
    let collector = Collector(Receiver::start(move |_, _| match is_away.load(Ordering::SeqCst) {
        true => answer("503 Service Unavailable", "", ""),
        false => answer("200 OK", "", ""),
    }));
    let api = collector.serving(&queue("busy", "", "true"));
    let lost = || {
        let text = api.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix("seriatim_spans_lost_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    for times in 1..=2 {
        let before = lost();
        push(&api, "busy", &context("01"), &json!({ "key": "k", "payload": times })).done();
        eventually("spans are lost", async || lost() > before).await;
    }
    given(&api.site, "busy").await;
    refuses.store(false, Ordering::SeqCst);
    push(&api, "busy", &context("01"), &json!({ "key": "k", "payload": 3 })).done();
    let log = api.logs("accepts traces again");
    assert_eq!(log.matches("does not accept traces: ").count(), 1, "{log}");
    assert!(log.contains("status code: 503"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_collector_jobs_are_done_and_the_log_says_why() {
    // Nothing listens there, and no other test gets the port.
    let port = seriatim_testkit::free_port().unwrap();
    let api = Api::with(Site::new(&queue("alone", "", "true")), |command| {
        command.env(ENDPOINT, format!("http://127.0.0.1:{port}"));
    });
    push(&api, "alone", &context("01"), &json!({ "key": "k" })).done();
    assert!(given(&api.site, "alone").await.starts_with(&format!("00-{TRACE}-")));
    let log = api.logs("does not accept traces: ");
    assert!(log.contains("Connection refused"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    // The system takes the connection, and nobody the request.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let api = Api::with(Site::new(&queue("alone", "", "true")), |command| {
        command.env(ENDPOINT, url).env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
    });
    push(&api, "alone", &context("01"), &json!({ "key": "k" })).done();
    given(&api.site, "alone").await;
    let log = api.log.clone();
    drop(api.stopped());
    log.says("did not accept the last traces within 5s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_switched_off_sends_nothing_and_leaves_the_context_alone() {
    let collector = Collector::start();
    let off: [fn(&mut Command) -> &mut Command; 2] = [
        |command| command.env("OTEL_SDK_DISABLED", "true"),
        |command| command.env_remove(ENDPOINT),
    ];
    for prepare in off {
        let api = Api::with(Site::new(&queue("quiet", "", "true")), |command| {
            prepare(command.env(ENDPOINT, &collector.0.url));
        });
        push(&api, "quiet", &context("01"), &json!({ "key": "k" })).done();
        assert_eq!(given(&api.site, "quiet").await, context("01"));
        assert!(!api.get("/metrics").text().contains("spans_lost"));
        drop(api.stopped());
    }
    assert!(collector.0.received().is_empty());
}

#[test]
fn a_variable_that_cannot_be_meant_ends_the_start_and_is_named() {
    let site = Site::new("");
    let mut command = site.command(&["serve", "--no-http"]);
    command.env(ENDPOINT, "http://127.0.0.1:4317").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\""), "{}", text(&output));
}
