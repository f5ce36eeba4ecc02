//! Who may do what, and with whose claim: every role, every endpoint, every holder.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use seriatim::store::{Claim, Heartbeat, Lease, NodeInfo};
use seriatim::{
    SharedStore,
    store::{LaneId, NodeId, Token},
};

use super::Api;
use super::client::{Request, held};
use crate::faults::Server;
use crate::site::{PATIENCE, Site, secret};

/// Name, role, and whether it is limited to the queue `mails`, which nothing here is about.
const TOKENS: [(&str, &str, bool); 11] = [
    ("reader", "reader", false),
    ("operator", "operator", false),
    ("producer", "producer", false),
    ("worker", "worker", false),
    ("worker2", "worker", false),
    ("admin", "admin", false),
    ("narrow_reader", "reader", true),
    ("narrow_operator", "operator", true),
    ("narrow_producer", "producer", true),
    ("narrow_worker", "worker", true),
    ("narrow_admin", "admin", true),
];
/// Who holds claims. The engine is no token.
const HOLDERS: [&str; 4] = ["worker", "worker2", "admin", "engine"];

/// Who is let in.
#[derive(Clone, Copy, PartialEq)]
enum May {
    Anybody,
    Read,
    Follow,
    Produce,
    Cancel,
    Operate,
    Work,
    Administer,
}

/// What is left of it for a token that is limited to another queue.
#[derive(Clone, Copy)]
enum Narrow {
    /// As for others: it answers with the token's queues alone.
    Done,
    /// The queue is not the token's, or it is about all queues.
    Forbidden,
    /// The same; and others learn that what is named is not there.
    Absent,
    /// It does not even learn whether there is such a job.
    Unknown,
}

/// What is sent.
enum Body {
    None,
    Json(Value),
    /// Names the claim of each holder in turn.
    Claim(fn(Value) -> Value),
}

type Row = (May, Narrow, Body);

/// One row for each endpoint.
fn row(method: &str, path: &str) -> Row {
    use May::*;
    use Narrow::*;
    let body = |value: Value| Body::Json(value);
    let all = || body(json!({ "all": true }));
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    match (method, path) {
        ("get", path) => read_row(path),
        ("post", "/queues/{queue}/jobs") => {
            (Produce, Forbidden, body(json!({ "key": "p", "delay": "1h" })))
        }
        ("put", "/batches/{batch}") => (Produce, Forbidden, body(a_batch())),
        ("post", "/batches/{batch}/seal") => (Cancel, Forbidden, Body::None),
        ("post", "/jobs/trigger") => (
            Produce,
            Forbidden,
            body(json!({ "queue": "orders", "task": "t", "lock_key": "t", "available_at": 4e9 })),
        ),
        ("post", "/jobs/{job_id}/cancel") => (Cancel, Unknown, Body::None),
        ("post", "/jobs/{job_id}/retry" | "/operations/{operation}/stop") => {
            (Operate, Unknown, Body::None)
        }
        ("post", "/jobs/{job_id}/delete") => (Administer, Unknown, Body::None),
        ("post", "/jobs/{job_id}/reschedule") => (Operate, Unknown, body(json!({ "delay": "1h" }))),
        ("post", "/jobs/{job_id}/reassign") => (Operate, Unknown, body(json!({ "node": null }))),
        ("put", "/queues") => {
            (Administer, Forbidden, body(json!({ "queues": { "mails": { "mode": "fifo" } } })))
        }
        ("put", "/queues/{queue}") => (Administer, Forbidden, body(json!({ "mode": "fifo" }))),
        ("put", "/queues/{queue}/limits") => (Administer, Forbidden, body(json!({}))),
        (
            "post",
            "/queues/{queue}/pause"
            | "/queues/{queue}/resume"
            | "/queues/{queue}/perform-all-now"
            | "/queues/{queue}/lane/pause"
            | "/queues/{queue}/lane/resume"
            | "/queues/{queue}/lane/retry"
            | "/nodes/{node}/quiet"
            | "/nodes/{node}/resume"
            | "/cron/{name}/run"
            | "/cron/{name}/pause"
            | "/cron/{name}/resume"
            | "/bridges/{bridge}/pause"
            | "/bridges/{bridge}/resume",
        ) => (Operate, Forbidden, Body::None),
        (
            "post",
            "/queues/{queue}/drain"
            | "/queues/{queue}/bury-failed"
            | "/queues/{queue}/delete-failed"
            | "/queues/{queue}/lane/bury"
            | "/queues/{queue}/lane/delete"
            | "/queues/{queue}/lane/release"
            | "/nodes/{node}/stop"
            | "/nodes/{node}/release",
        )
        | ("delete", "/queues/{queue}") => (Administer, Forbidden, Body::None),
        ("post", "/operations") => {
            (Operate, Forbidden, body(json!({ "action": "requeue", "queue": "orders" })))
        }
        ("post", "/queues/{queue}/morgue/requeue") => (Operate, Forbidden, all()),
        ("post", "/queues/{queue}/morgue/delete") => (Administer, Forbidden, all()),
        ("post", "/queues/{queue}/morgue/edit") => {
            let job_id = "0199aa12-77de-7000-8123-abcdefabcdef";
            (Administer, Absent, body(json!({ "job_id": job_id, "payload": {} })))
        }
        ("post", "/work/claim") => {
            (Work, Forbidden, body(json!({ "worker": "w", "queues": ["work"] })))
        }
        ("post", "/work/heartbeat") => (Work, Forbidden, Body::Claim(beat)),
        ("post", "/work/settle") => (Work, Forbidden, Body::Claim(settle)),
        _ => panic!(
            "{method} {path} has no row: say who may, and what is left of it for a token that is limited to other queues"
        ),
    }
}

/// The row of an endpoint that changes nothing.
fn read_row(path: &str) -> Row {
    use May::*;
    use Narrow::*;
    match path {
        "/health" | "/ready" | "/info" | "/openapi.json" | "/docs" | "/docs.css" => {
            (Anybody, Done, Body::None)
        }
        "/stats" | "/queues" | "/operations" | "/key" | "/key/events" | "/search"
        | "/scheduled" | "/causes" => (Read, Done, Body::None),
        "/operations/{operation}" => (Read, Unknown, Body::None),
        "/batches/{batch}" => (Follow, Forbidden, Body::None),
        "/jobs/{job_id}" | "/jobs/{job_id}/status" | "/jobs/{job_id}/events" => {
            (Follow, Unknown, Body::None)
        }
        "/batches"
        | "/metrics"
        | "/events"
        | "/nodes"
        | "/nodes/{node}"
        | "/cron"
        | "/bridges"
        | "/audit"
        | "/doctor"
        | "/jobs"
        | "/history"
        | "/operations/preview"
        | "/queues/{queue}"
        | "/queues/{queue}/lanes"
        | "/queues/{queue}/lane"
        | "/queues/{queue}/running"
        | "/queues/{queue}/events"
        | "/queues/{queue}/tasks"
        | "/queues/{queue}/morgue"
        | "/queues/{queue}/morgue/causes" => (Read, Forbidden, Body::None),
        _ => panic!("{path} has no row: say who may read it"),
    }
}

fn a_batch() -> Value {
    json!({ "queue": "orders", "callback": { "key": "k" } })
}

fn beat(mut claim: Value) -> Value {
    claim["progress"] = json!({ "by": "the matrix" });
    json!({ "worker": "w", "lease_ttl_sec": 3_600, "claims": [claim] })
}

fn settle(mut claim: Value) -> Value {
    claim["outcome"] = "done".into();
    json!({ "worker": "w", "results": [claim] })
}

impl May {
    fn admits(self, role: &str) -> bool {
        let roles: &[&str] = match self {
            Self::Anybody => return true,
            Self::Read => &["reader", "operator"],
            Self::Follow => &["reader", "operator", "producer"],
            Self::Produce => &["producer"],
            Self::Cancel => &["operator", "producer"],
            Self::Operate => &["operator"],
            Self::Work => &["worker"],
            Self::Administer => &[],
        };
        role == "admin" || roles.contains(&role)
    }
}

/// The status that an endpoint answers to a token; `holder` has the claim that is named, if one is.
fn expected((may, narrow, _): &Row, name: &str, holder: Option<&str>) -> u16 {
    let (_, role, is_narrow) = TOKENS.iter().find(|(known, ..)| *known == name).unwrap();
    match (may, narrow) {
        (May::Anybody, _) => 200,
        _ if !may.admits(role) => 403,
        (_, Narrow::Forbidden | Narrow::Absent) if *is_narrow => 403,
        (_, Narrow::Unknown) if *is_narrow => 404,
        (_, Narrow::Absent) => 404,
        _ if holder.is_some_and(|holder| holder != name) => 403,
        _ => 200,
    }
}

struct Matrix {
    api: Api,
    store: SharedStore,
    engine: NodeId,
    cells: u32,
}

impl Matrix {
    async fn on(store: Option<&str>) -> Self {
        let entry = |(name, role, is_narrow): &(&str, &str, bool)| {
            let queues = if *is_narrow { ", queues = [\"mails\"]" } else { "" };
            format!("{{ name = \"{name}\", token_env = \"T_{name}\", role = \"{role}\"{queues} }}")
        };
        let tokens: Vec<String> = TOKENS.iter().map(entry).collect();
        let store = store.map(|url| format!("[store]\nurl = \"{url}\"\n")).unwrap_or_default();
        let queues = ["orders", "mails", "work", "release"]
            .map(|q| format!("[queues.{q}]\nmode = \"fifo\"\n"));
        let cron = "[[cron]]\nname = \"nightly\"\nschedule = \"0 3 * * *\"\nqueue = \"orders\"\nkey = \"c\"\n";
        let bridge = "[[bridges]]\nname = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\nqueues = [\"orders\"]\n[[bridges.routes]]\nkey = \"/args/0\"\n";
        let config = format!(
            "{store}[http]\ntokens = [{}]\n{}{cron}{bridge}",
            tokens.join(", "),
            queues.concat()
        );
        let site = Site::new(&config);
        let url = store.split('"').nth(1).map_or_else(
            || format!("sqlite:{}", site.path("seriatim.db").display()),
            str::to_owned,
        );
        let api = Api::with(site, |command| {
            for (name, ..) in TOKENS {
                command.env(format!("T_{name}"), secret(name));
            }
            // Nobody listens there.
            command.env("SIDEKIQ_REDIS", "redis://127.0.0.1:1/");
        });
        api.knows_cron("nightly", Some(&secret("reader")));
        api.knows("bridges", "shop", Some(&secret("reader")));
        let store = seriatim::connect(&url).await.unwrap();
        let engine = NodeInfo::new(NodeId::from("engine-1"), PATIENCE * 10);
        let beat = Heartbeat { now: None, node: engine.clone(), beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        Self { api, store, engine: engine.id, cells: 0 }
    }

    fn send(&self, name: &str, method: &str, path: &str, body: Option<&Value>) -> u16 {
        let request = Request::new(&method.to_uppercase(), path).token(&secret(name));
        body.into_iter().fold(request, Request::json).status(&self.api.address)
    }

    fn done(&self, name: &str, path: &str, body: Value) -> Value {
        let request = Request::new("POST", path).json(&body).token(&secret(name));
        request.send(&self.api.address).done()
    }

    /// A lane that `holder` has claimed, as that one would name it.
    async fn claim_of(&self, holder: &str) -> Value {
        let key = format!("{holder}-{}", fastrand::u64(..));
        self.done("admin", "/api/v1/queues/work/jobs", json!({ "key": key }));
        if holder != "engine" {
            let body = json!({ "worker": "w", "queues": ["work"] });
            let lane = self.done(holder, "/api/v1/work/claim", body)["lanes"][0].clone();
            assert_eq!(lane["key"], key);
            return held(&lane, json!({}));
        }
        let claim = Claim {
            crashed_max: 0,
            declared: true,
            ..Claim::new("work", self.engine.clone(), 1, Lease::Node { ttl: PATIENCE * 10 })
        };
        let turn = self.store.claim(claim).await.unwrap().turns.remove(0);
        assert_eq!(turn.key.as_deref(), Some(&*key));
        // The true fencing token, and a secret of the right form.
        json!({ "lane": turn.lane, "token": turn.token, "secret": "0".repeat(64) })
    }

    /// Every token at one endpoint, once for each holder if it names a claim.
    async fn all_tokens(&mut self, method: &str, pattern: &str) {
        let row = row(method, pattern);
        for (name, ..) in TOKENS {
            match &row.2 {
                Body::Claim(body) => {
                    for holder in HOLDERS {
                        let claim = self.claim_of(holder).await;
                        let status = self.send(name, method, pattern, Some(&body(claim.clone())));
                        let what = format!("{name}: {pattern} of a claim of {holder}");
                        assert_eq!(status, expected(&row, name, Some(holder)), "{what}");
                        self.has_changed(&claim, status == 200 && pattern.ends_with("settle"))
                            .await;
                        self.cells += 1;
                    }
                }
                body => {
                    let mut path = self.path(pattern);
                    if method == "delete" {
                        // The configuration declares the queue, so the server makes it again.
                        path += "?force=true";
                    }
                    let body = if let Body::Json(body) = body { Some(body) } else { None };
                    let status = self.send(name, method, &path, body);
                    assert_eq!(status, expected(&row, name, None), "{name}: {method} {path}");
                    self.cells += 1;
                }
            }
        }
        self.no_token(method, pattern, row.0);
    }

    /// Without a token, and with one that nobody has.
    fn no_token(&mut self, method: &str, pattern: &str, may: May) {
        let path = self.path(pattern);
        let request = || Request::new(&method.to_uppercase(), &path);
        let (none, wrong) = (request(), request().token("not-a-token-of-anybody"));
        let (none, wrong) = (none.status(&self.api.address), wrong.status(&self.api.address));
        if may == May::Anybody {
            assert_eq!((none, wrong), (200, 200), "{method} {pattern}");
        } else {
            assert_eq!(none, 401, "{method} {pattern}");
            // One address sends too many wrong ones, so it gets 429.
            assert!(matches!(wrong, 401 | 429), "{method} {pattern}: {wrong}");
        }
        self.cells += 2;
    }

    /// The path, filled with what is there: a job that waits, its queue and lane, a remote worker's node.
    fn path(&self, pattern: &str) -> String {
        if pattern.ends_with("/lane/release") {
            let key = fastrand::u64(..).to_string();
            self.done("admin", "/api/v1/queues/release/jobs", json!({ "key": key }));
            let body = json!({ "worker": "w", "queues": ["release"] });
            let lanes = self.done("admin", "/api/v1/work/claim", body);
            let lane = lanes["lanes"][0]["lane"].as_str().unwrap();
            return pattern.replace("{queue}", "release") + "?lane=" + lane;
        }
        if pattern.contains("{operation}") {
            let body = json!({ "action": "requeue", "queue": "orders" });
            let operation = self.done("admin", "/api/v1/operations", body);
            return pattern.replace("{operation}", operation["id"].as_str().unwrap());
        }
        if pattern.contains("{batch}") {
            let request = Request::new("PUT", "/api/v1/batches/b").token(&secret("admin"));
            request.json(&a_batch()).send(&self.api.address).done();
            return pattern.replace("{batch}", "b");
        }
        if pattern.ends_with("/preview") {
            return format!("{pattern}?action=requeue&queue=orders");
        }
        if pattern.ends_with("/search") {
            return format!("{pattern}?q=k");
        }
        let body = json!({ "key": "k", "delay": "1h" });
        let pushed = self.done("admin", "/api/v1/queues/orders/jobs", body);
        let id = pushed["jobs"][0]["job_id"].as_str().unwrap();
        let path = pattern
            .replace("{job_id}", id)
            .replace("{queue}", "orders")
            .replace("{bridge}", "shop")
            .replace("{name}", "nightly");
        let has_key = path.contains("/lane") && !path.ends_with("/lanes")
            || path.ends_with("/key")
            || path.ends_with("/key/events");
        let key = if has_key { "?key=k" } else { "" };
        path.replace("{node}", "remote:worker%2Fidle") + key
    }

    /// Whether the turn has ended, and nothing but that.
    async fn has_changed(&self, claim: &Value, ended: bool) {
        let lane: LaneId = claim["lane"].as_str().unwrap().parse().unwrap();
        let token = Token(claim["token"].as_i64().unwrap());
        let turn = self.store.turn(lane, token).await.unwrap();
        assert_eq!(turn.is_none(), ended, "{claim}");
    }
}

async fn matrix(store: Option<&str>) {
    let mut matrix = Matrix::on(store).await;
    // An address that sends wrong tokens is still heard with those that it has used before.
    for (name, ..) in TOKENS {
        matrix.send(name, "get", "/api/v1/stats", None);
    }
    // Registers the remote worker that the paths below name and quiet.
    let idle = json!({ "worker": "idle", "queues": ["work"] });
    matrix.done("worker", "/api/v1/work/claim", idle);
    let document = matrix.api.get("/openapi.json").done();
    let mut routes = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            matrix.all_tokens(method, path).await;
            routes.insert((method.clone(), path.clone()));
        }
    }
    println!("{} cells, {} endpoints", matrix.cells, routes.len());
    let tokens = TOKENS.len();
    let naming = 2 * tokens * (HOLDERS.len() - 1);
    assert_eq!(matrix.cells as usize, routes.len() * (tokens + 2) + naming);
    assert!(routes.len() >= 49, "{}", routes.len());
    matrix.store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_role_may_what_its_row_says_at_every_endpoint_with_every_claim_on_sqlite() {
    matrix(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_role_may_what_its_row_says_at_every_endpoint_with_every_claim_on_postgresql() {
    let server = Server::postgres();
    matrix(Some(&server.url())).await;
}
