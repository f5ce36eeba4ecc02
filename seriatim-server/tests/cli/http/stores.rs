//! Every endpoint on every store, and the commands of those who come from Dataloader.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::Api;
use super::client::{Request, held};
use super::documented::Documented;
use crate::faults::Server;
use crate::site::Site;

/// Calls endpoints, and remembers which.
struct Walk {
    api: Api,
    called: RefCell<BTreeSet<(String, String)>>,
    documented: Documented,
}

impl Walk {
    /// Calls `pattern`, filled with `values`, and takes nothing but success.
    #[track_caller]
    fn call(&self, method: &str, pattern: &str, values: &[&str], body: Option<Value>) -> Value {
        let mut path = pattern.to_owned();
        for value in values {
            let (start, end) = (path.find('{').unwrap(), path.find('}').unwrap());
            path.replace_range(start..=end, value);
        }
        let request = Request::new(method, &path);
        let request = body.iter().fold(request, |request, body| request.json(body));
        let plain = pattern.split('?').next().unwrap().to_owned();
        self.called.borrow_mut().insert((method.to_lowercase(), plain));
        if pattern == "/api/v1/events" {
            assert_eq!(request.status(&self.api.address), 200);
            return Value::Null;
        }
        let answer = request.send(&self.api.address);
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        let answer = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        self.documented.check(method, pattern.split('?').next().unwrap(), &answer);
        answer
    }

    #[track_caller]
    fn get(&self, pattern: &str, values: &[&str]) -> Value {
        self.call("GET", pattern, values, None)
    }

    #[track_caller]
    fn act(&self, pattern: &str, values: &[&str]) -> Value {
        self.call("POST", pattern, values, None)
    }

    #[track_caller]
    fn post(&self, pattern: &str, values: &[&str], body: Value) -> Value {
        self.call("POST", pattern, values, Some(body))
    }

    fn push(&self, queue: &str, key: &str) -> String {
        let body = json!({ "key": key, "payload": { "k": key } });
        let pushed = self.post("/api/v1/queues/{queue}/jobs", &[queue], body);
        assert_eq!(pushed["jobs"][0]["status"], "queued");
        pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned()
    }

    fn claim(&self, queue: &str) -> Value {
        let body = json!({ "worker": "walker", "queues": [queue] });
        let lanes = self.post("/api/v1/work/claim", &[], body)["lanes"].clone();
        assert_eq!(lanes.as_array().unwrap().len(), 1, "{queue}");
        lanes[0].clone()
    }

    fn settle(&self, lane: &Value, outcome: &str) {
        let error = (outcome != "done").then_some("down");
        let result = held(lane, json!({ "outcome": outcome, "error": error }));
        let body = json!({ "worker": "walker", "results": [result] });
        assert_eq!(self.post("/api/v1/work/settle", &[], body)["results"][0]["status"], "ok");
    }

    fn outside(&self) {
        for path in
            ["/health", "/ready", "/info", "/metrics", "/openapi.json", "/docs", "/docs.css"]
        {
            self.get(path, &[]);
        }
        self.get("/api/v1/events", &[]);
    }

    fn queues(&self) {
        let fifo = json!({ "mode": "fifo", "max_retries": 5 });
        let one = self.call("PUT", "/api/v1/queues/{queue}", &["a"], Some(fifo.clone()));
        assert_eq!((&one["mode"], &one["settings"]["max_retries"]), (&json!("fifo"), &json!(5)));
        let window =
            json!({ "quiet": "1s", "max_wait": "1m", "max_jobs": 500, "max_bytes": 1_000_000 });
        let collects = json!({ "mode": "accumulate", "window": &window });
        let several = json!({ "queues": { "b": fifo, "c": collects } });
        let all = self.call("PUT", "/api/v1/queues", &[], Some(several));
        assert_eq!(all["queues"].as_array().unwrap().len(), 4);
        assert_eq!(self.get("/api/v1/queues", &[]), all);
        assert_eq!(self.get("/api/v1/queues/{queue}", &["a"])["queue"], "a");
        assert_eq!(self.get("/api/v1/queues/{queue}", &["c"])["settings"]["window"], window);
        assert_eq!(self.act("/api/v1/queues/{queue}/pause", &["a"])["paused"], true);
        assert_eq!(self.act("/api/v1/queues/{queue}/resume", &["a"])["paused"], false);
    }

    /// Limits and groups, if the store has them.
    fn limits(&self) {
        let each = json!({ "weight": 2, "running": 3, "rate": "5/s", "burst": 2 });
        let mut groups = each.clone();
        groups["named"] = json!({ "acme": each });
        let limit = json!({ "running": 9, "rate": "100/m", "burst": 20 });
        let both = json!({ "limit": limit, "groups": groups });
        let wanted = Request::new("PUT", "/api/v1/queues/c/limits").json(&both);
        let has_them = wanted.send(&self.api.address).status == 200;
        let limits = if has_them { both } else { json!({ "limit": {}, "groups": null }) };
        let path = "/api/v1/queues/{queue}/limits";
        let settings = self.call("PUT", path, &["c"], Some(limits.clone()))["settings"].clone();
        assert_eq!(
            (&settings["limit"], &settings["groups"]),
            (&limits["limit"], &limits["groups"])
        );
    }

    /// What waits, fails and is buried in queue `a`.
    fn lanes(&self) {
        for key in ["x", "y", "z"] {
            self.push("a", key);
        }
        let list = "/api/v1/queues/{queue}/lanes?order=key";
        assert_eq!(self.get(list, &["a"])["lanes"].as_array().unwrap().len(), 3);
        let lane = self.get("/api/v1/queues/{queue}/lane?key=x", &["a"]);
        assert_eq!(lane["waiting"][0]["payload"], json!({ "k": "x" }));
        for action in ["pause", "resume", "retry"] {
            let pattern = format!("/api/v1/queues/{{queue}}/lane/{action}?key=z");
            assert_eq!(self.act(&pattern, &["a"])["count"], 1, "{action}");
        }
        let everywhere = self.get("/api/v1/key?key=z", &[]);
        assert_eq!(everywhere["queues"][0]["lane"]["waiting"][0]["payload"], json!({ "k": "z" }));
        for (action, count) in [("bury", 0), ("delete", 1)] {
            let pattern = format!("/api/v1/queues/{{queue}}/lane/{action}?key=z");
            assert_eq!(self.act(&pattern, &["a"])["count"], count, "{action}");
        }
        let lane = self.claim("a");
        let running = self.get("/api/v1/queues/{queue}/running", &["a"]);
        assert_eq!(running["lanes"][0]["lane"], lane["lane"]);
        let claim = held(&lane, json!({ "progress": { "done": 1 } }));
        let beat = json!({ "worker": "walker", "claims": [claim] });
        let beat = self.post("/api/v1/work/heartbeat", &[], beat);
        assert_eq!(beat, json!({ "cancel": [], "lost": [] }));
        self.steps(&lane);
        self.fields_of_some();
        let nodes = self.get("/api/v1/nodes", &[]);
        assert!(nodes["nodes"].as_array().unwrap().len() >= 2, "{nodes}");
        assert_eq!(
            self.get("/api/v1/nodes/{node}", &["remote:walker"])["lanes"][0]["key"],
            lane["key"]
        );
        self.settle(&lane, "retry");
        assert_eq!(self.act("/api/v1/queues/{queue}/bury-failed", &["a"])["count"], 1);
        let lane = self.claim("a");
        self.settle(&lane, "retry");
        let later = self.get("/api/v1/scheduled?due_from=2026-01-01T00:00:00Z", &[]);
        let first = &later["lanes"][0];
        assert_eq!((&first["queue"], &first["key"]), (&json!("a"), &lane["key"]));
        let lagging = self.get("/api/v1/queues/{queue}/lanes?lag_min=1h", &["a"]);
        assert_eq!(lagging["lanes"], json!([]));
        assert_eq!(self.act("/api/v1/queues/{queue}/perform-all-now", &["a"])["count"], 1);
        assert_eq!(self.act("/api/v1/queues/{queue}/delete-failed", &["a"])["count"], 1);
        let dead = self.get("/api/v1/queues/{queue}/morgue", &["a"]);
        assert_eq!(dead["jobs"][0]["error"], "down");
        let causes = self.get("/api/v1/queues/{queue}/morgue/causes", &["a"]);
        assert_eq!(
            (&causes["causes"][0]["error"], &causes["looked_at"]),
            (&json!("down"), &json!(1))
        );
        assert_eq!(self.get("/api/v1/causes?queue=a", &[]), causes);
        let everywhere = self.get("/api/v1/causes?error=down&from=1h", &[]);
        assert_eq!(everywhere["causes"], causes["causes"]);
        assert_eq!(self.get("/api/v1/causes?error=up", &[])["causes"], json!([]));
        self.happened(dead["jobs"][0]["key"].as_str().unwrap());
        self.searched();
        let id = dead["jobs"][0]["job_id"].clone();
        let events = self.get("/api/v1/jobs/{job_id}/events", &[id.as_str().unwrap()]);
        assert!(events["events"].to_string().contains("down"), "{events}");
        let jobs = json!({ "jobs": [id] });
        let requeued = self.post("/api/v1/queues/{queue}/morgue/requeue", &["a"], jobs);
        assert_eq!(requeued["count"], 1);
        let lane = self.claim("a");
        self.settle(&lane, "bury");
        self.edited();
        let all = json!({ "all": true });
        assert_eq!(self.post("/api/v1/queues/{queue}/morgue/delete", &["a"], all)["count"], 1);
    }

    /// What happened to a key of queue `a`, and to one that a person paused.
    fn happened(&self, key: &str) {
        let happened = |query: &str| self.get(&format!("/api/v1/key/events?{query}"), &[]);
        let events = happened(&format!("key={key}"))["events"].to_string();
        assert!(events.contains("claimed") && events.contains("down"), "{events}");
        let paused = happened("key=z");
        let deeds = paused["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["action"] != Value::Null);
        let deeds: Vec<&str> = deeds.map(|deed| deed["action"].as_str().unwrap()).collect();
        let done = ["lane delete", "lane bury", "lane retry", "lane resume", "lane pause"];
        assert_eq!(deeds, done, "{paused}");
        // Page by page the same.
        let (mut after, mut walked) = (String::new(), Vec::new());
        loop {
            let page = happened(&format!("key=z&limit=2{after}"));
            walked.extend(page["events"].as_array().unwrap().clone());
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(json!(walked), paused["events"]);
        assert_eq!(happened("key=z&until=2020-01-01T00:00:00Z")["events"], json!([]));
    }

    /// What the dead job of queue `a` and others are found by.
    fn searched(&self) {
        let found = self.get("/api/v1/search?q=x", &[]);
        assert_eq!((&found["queues"], &found["dead"][0]["key"]), (&json!(["a"]), &json!("x")));
        let found = self.get("/api/v1/search?q=queue:a+error:down", &[]);
        assert_eq!((&found["jobs"][0]["error"], &found["next"]), (&json!("down"), &Value::Null));
    }

    /// The dead job of queue `a` is pushed with another payload, and dies again.
    fn edited(&self) {
        let listed = "/api/v1/queues/{queue}/morgue?payload_bytes_max=0&task=&error=down";
        let dead = self.get(listed, &["a"])["jobs"][0].clone();
        assert_eq!((&dead["payload_left_out"], &dead["payload"]), (&json!(true), &Value::Null));
        let id = dead["job_id"].as_str().unwrap();
        let failures = || self.get("/api/v1/jobs/{job_id}", &[id])["failures"].clone();
        // They are noted after the answer.
        while failures().as_array().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(failures()[0]["error"], "down");
        let edit = json!({ "job_id": id, "payload": { "k": "edited" } });
        let edited = self.post("/api/v1/queues/{queue}/morgue/edit", &["a"], edit);
        assert_eq!((&edited["edited"], &edited["status"]), (&dead["job_id"], &json!("queued")));
        let lane = self.claim("a");
        assert_eq!(lane["jobs"][0]["payload"], json!({ "k": "edited" }));
        let running = self.get("/api/v1/jobs?state=running&queue=a&key=x&order=turn", &[]);
        let running = &running["jobs"][0];
        assert_eq!((&running["lane"], &running["token"]), (&lane["lane"], &lane["token"]));
        assert!(running["runs_on"].as_str().unwrap().starts_with("remote:walker"));
        self.settle(&lane, "bury");
    }

    /// Fields that only some answers have.
    fn fields_of_some(&self) {
        let job = json!({
            "key": "full", "max_retries": 3, "max_attempts": 4, "timeout": "1m", "lease_ttl": "90s",
            "backoff": { "kind": "exponential", "base": "1s", "cap": "1m", "jitter": 10 },
            "expires_at": "2200-01-01T00:00:00Z", "idempotency_key": "i", "idempotency_scope": "store", "consumer_group": "g",
            "node": "n", "partition_key": "p", "producer": "me",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        });
        let pushed = self.post("/api/v1/queues/{queue}/jobs", &["some"], job);
        assert_eq!(pushed["created"], true);
        let id = pushed["jobs"][0]["job_id"].as_str().unwrap();
        self.get("/api/v1/jobs/{job_id}", &[id]);
        self.post("/api/v1/jobs/{job_id}/reassign", &[id], json!({ "node": null }));
        let claim =
            json!({ "worker": "walker", "queues": ["some", "none"], "consumer_groups": ["g"] });
        let claimed = self.post("/api/v1/work/claim", &[], claim);
        assert_eq!(claimed["unknown_queues"], json!(["none"]));
        let lane = &claimed["lanes"][0];
        self.act("/api/v1/jobs/{job_id}/cancel", &[id]);
        let beat = json!({ "worker": "walker", "claims": [held(lane, json!({}))] });
        let beat = self.post("/api/v1/work/heartbeat", &[], beat);
        assert_eq!(beat["cancel"][0]["job_ids"], json!([id]));
        self.settle(lane, "bury");
        self.get("/api/v1/jobs/{job_id}/events", &[id]);
        let body =
            json!({ "queue": "some", "task": "t", "lock_key": "other", "consumer_group": "c" });
        let id = self.post("/api/v1/jobs/trigger", &[], body)["job_id"].clone();
        assert_eq!(self.get("/api/v1/jobs/{job_id}", &[id.as_str().unwrap()])["consumer"], "c");
        let lane = self.claim("some");
        assert_eq!(lane["jobs"][0]["consumer"], "c");
        self.settle(&lane, "done");
    }

    /// A step that ends, and is announced again.
    fn steps(&self, lane: &Value) {
        let id = lane["jobs"][0]["job_id"].as_str().unwrap();
        for step in [json!({ "name": "one", "done": true, "result": 7 }), json!({ "name": "one" })]
        {
            let claim = held(lane, json!({ "step": step }));
            let beat = json!({ "worker": "walker", "claims": [claim] });
            let beat = self.post("/api/v1/work/heartbeat", &[], beat);
            assert_eq!(beat["steps"][0]["step"], "one");
        }
        let status = self.get("/api/v1/jobs/{job_id}/status", &[id]);
        assert_eq!(status["steps"], json!({ "step": null, "done": ["one"] }));
        assert_eq!(self.get("/api/v1/jobs/{job_id}", &[id])["steps"]["done"], json!(["one"]));
    }

    fn jobs(&self) {
        let id = self.push("b", "k");
        assert_eq!(self.get("/api/v1/jobs/{job_id}", &[&id])["status"], "queued");
        assert_eq!(self.get("/api/v1/jobs?queue=b", &[])["jobs"][0]["job_id"], id);
        let later = json!({ "delay": "1h" });
        self.post("/api/v1/jobs/{job_id}/reschedule", &[&id], later);
        self.act("/api/v1/jobs/{job_id}/retry", &[&id]);
        let node = self.post("/api/v1/jobs/{job_id}/reassign", &[&id], json!({ "node": "m" }));
        assert_eq!(node["node"], "m");
        let events = self.get("/api/v1/jobs/{job_id}/events", &[&id]);
        assert_eq!(events["events"][0]["event"], "queued");
        self.get("/api/v1/queues/{queue}/events", &["b"]);
        assert_eq!(self.act("/api/v1/jobs/{job_id}/delete", &[&id])["deleted"], true);
        let body = json!({ "queue": "etl", "task": "t", "lock_key": "k", "args": {} });
        let id = self.post("/api/v1/jobs/trigger", &[], body)["job_id"].clone();
        let id = id.as_str().unwrap();
        assert_eq!(self.get("/api/v1/jobs/{job_id}/status", &[id])["status"], "queued");
        assert_eq!(self.act("/api/v1/jobs/{job_id}/cancel", &[id])["status"], "canceled");
        assert!(self.get("/api/v1/stats", &[])["by_worker"]["etl"].is_object());
    }

    /// What a person takes back: claims, what waits, a queue.
    fn taking_back(&self) {
        self.push("b", "k2");
        self.claim("b");
        let release = "/api/v1/queues/{queue}/lane/release?key=k2";
        assert_eq!(self.act(release, &["b"])["count"], 1);
        assert_eq!(self.claim("b")["crashes"], 1);
        assert_eq!(self.act("/api/v1/nodes/{node}/release", &["remote:walker"])["count"], 1);
        assert_eq!(self.act("/api/v1/queues/{queue}/drain", &["b"])["count"], 1);
        self.push("c", "k");
        let deleted = self.call("DELETE", "/api/v1/queues/{queue}", &["c"], None);
        assert_eq!(deleted, json!({ "queue": "c", "count": 1, "released": 0 }));
    }

    /// A deed on many, from its preview to its end.
    fn operations(&self) {
        self.push("b", "many-1");
        self.push("b", "many-2");
        let (from, to) = ("2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
        let filters = "&prefix=many-&state=ready,retrying&retries_min=-1&lag_min=0";
        let preview = "/api/v1/operations/preview?action=delete_waiting&queue=b";
        let preview = self.get(&format!("{preview}{filters}&due_from={from}&due_to={to}"), &[]);
        assert_eq!(
            (&preview["count"], preview["samples"].as_array().unwrap().len()),
            (&json!(2), 2)
        );
        let wish = json!({ "action": "delete_waiting", "queue": "b", "prefix": "many-", "state": "ready,retrying", "retries_min": -1,
            "lag_min": "0", "due_from": from, "due_to": to, "before": preview["before"] });
        let begun = self.post("/api/v1/operations", &[], wish);
        let id = begun["id"].as_str().unwrap();
        let ended = || self.get("/api/v1/operations/{operation}", &[id])["state"] == "done";
        while !ended() {
            std::thread::yield_now();
        }
        let all = self.get("/api/v1/operations", &[]);
        assert_eq!(all["operations"][0]["count"], 2);
        let stopped = self.act("/api/v1/operations/{operation}/stop", &[id]);
        assert_eq!(stopped["state"], "done", "it had ended");
    }

    fn cron(&self) {
        self.api.knows_cron("n", None);
        let paused = self.act("/api/v1/cron/{name}/pause?reason=deploy", &["n"]);
        assert_eq!(paused["paused"]["reason"], "deploy");
        let run = self.act("/api/v1/cron/{name}/run", &["n"]);
        let entry = self.get("/api/v1/cron", &[])["cron"][0].clone();
        assert_eq!(
            (&entry["last"]["job_id"], &entry["last"]["by"]),
            (&run["job_id"], &json!("anonymous"))
        );
        assert_eq!(
            (&entry["last"]["outcome"], &entry["paused"]["by"]),
            (&json!("queued"), &json!("anonymous"))
        );
        let definition = &entry["definitions"][0];
        assert_eq!(definition["words"], "at 03:00");
        assert_eq!(definition["nodes"].as_array().unwrap().len(), 1);
        assert_eq!(entry["next"], json!([]), "a pause has no end of its own");
        let resumed = self.act("/api/v1/cron/{name}/resume", &["n"]);
        assert!(resumed["paused"].is_null());
        assert_eq!(resumed["next"].as_array().unwrap().len(), 3);
        let job = self.get("/api/v1/jobs/{job_id}", &[run["job_id"].as_str().unwrap()]);
        assert_eq!((&job["key"], &job["payload"]), (&json!("cron"), &json!({ "days": 1 })));
    }

    fn bridges(&self) {
        self.api.knows("bridges", "shop", None);
        let pause = "/api/v1/bridges/{bridge}/pause";
        self.act(&format!("{pause}?source=retry&reason=deploy"), &["shop"]);
        let paused = self.act(&format!("{pause}?reason=deploy"), &["shop"]);
        assert_eq!(paused["paused"]["reason"], "deploy");
        let bridge = self.get("/api/v1/bridges", &[])["bridges"][0].clone();
        assert_eq!(bridge["sources"][1]["paused"]["by"], "anonymous");
        let resumed = self.act("/api/v1/bridges/{bridge}/resume", &["shop"]);
        assert!(resumed["paused"].is_null());
        assert_eq!(resumed["sources"][1]["paused"]["by"], "anonymous", "paused by itself");
        let resume = "/api/v1/bridges/{bridge}/resume?source=retry";
        let resumed = self.act(resume, &["shop"]);
        assert!(resumed["sources"][1]["paused"].is_null());
    }

    /// What was done so far, and what is wrong.
    fn looking_back(&self) {
        self.push("a", "unattended");
        assert!(self.get("/api/v1/history", &[])["points"].is_array());
        assert!(self.get("/api/v1/queues/{queue}/tasks", &["a"])["tasks"].is_array());
        assert_eq!(self.get("/api/v1/audit?limit=1", &[])["entries"][0]["who"], "anonymous");
        let of = self.get("/api/v1/audit?queue=b&of=k2&since=2026-01-01T00:00:00Z", &[]);
        assert_eq!(of["entries"][0]["action"], "lane release");
        self.act("/api/v1/queues/{queue}/lane/pause?key=unattended", &["a"]);
        assert_eq!(self.get("/api/v1/doctor", &[])["healthy"], true);
    }

    /// A batch of one job, if the store has batches.
    fn batches(&self) {
        const BATCHES: &str = "/api/v1/batches";
        const BATCH: &str = "/api/v1/batches/{batch}";
        const SEAL: &str = "/api/v1/batches/{batch}/seal";
        let body = json!({ "queue": "after", "callback": { "payload": "all in" } });
        let open = Request::new("PUT", "/api/v1/batches/one").json(&body);
        if open.send(&self.api.address).status == 501 {
            let calls = [("get", BATCHES), ("get", BATCH), ("put", BATCH), ("post", SEAL)];
            let calls = calls.map(|(method, path)| (method.to_owned(), path.to_owned()));
            return self.called.borrow_mut().extend(calls);
        }
        assert_eq!(self.call("PUT", BATCH, &["one"], Some(body))["sealed"], false);
        let job = json!({ "payload": 1, "batch": "one" });
        self.post("/api/v1/queues/{queue}/jobs", &["rows"], job);
        assert_eq!(self.act(SEAL, &["one"])["pending"], 1);
        let lane = self.claim("rows");
        assert_eq!(lane["jobs"][0]["batch"], "one");
        let id = lane["jobs"][0]["job_id"].as_str().unwrap();
        assert_eq!(self.get("/api/v1/jobs/{job_id}", &[id])["batch"], "one");
        self.settle(&lane, "done");
        let batch = self.get(BATCH, &["one"]);
        assert_eq!(self.get(BATCHES, &[]), json!({ "batches": [batch], "next": null }));
        assert_eq!((&batch["pending"], &batch["done"]), (&json!(0), &json!(1)));
        let ended = json!({ "id": "one", "done": 1, "dead": 0, "cancelled": 0 });
        let callback = batch["callback"].as_str().unwrap();
        assert_eq!(self.get("/api/v1/jobs/{job_id}", &[callback])["ended_batch"], ended);
        let lane = self.claim("after");
        assert_eq!(lane["jobs"][0]["ended_batch"], ended);
        self.settle(&lane, "done");
    }

    /// Each page, of what is left.
    fn pages(&self) {
        let job = self.push("a", "seen");
        let operation = self.get("/api/v1/operations", &[])["operations"][0]["id"].clone();
        for path in [
            "/",
            "/?span=30d",
            "/queues?by=lag",
            "/queues/a",
            "/queues/a?span=24h",
            "/queues/a/lanes?by=key&state=ready,paused",
            "/key?k=seen",
            "/key/events?k=seen",
            "/key?k=nothing",
            &format!("/jobs/{job}"),
            &format!("/jobs/{job}/events"),
            &format!("/jobs/{job}/payload"),
            "/jobs",
            "/jobs?queue=a&state=queued&text=s",
            "/jobs?state=succeeded",
            "/jobs?prefix=s",
            "/morgue?prefix=s",
            "/export/jobs?queue=a",
            "/export/lanes/a?by=key",
            "/morgue",
            "/morgue?view=causes&queue=a&task=t",
            "/scheduled",
            "/scheduled?queue=a&prefix=s",
            "/scheduled?from=2020-01-01T00:00:00Z&after=/1/a/1-0-1",
            "/scheduled?prefix=s&after=a/",
            "/morgue?after=/-1/a/0199aa12-77de-7000-8123-abcdefabcdef",
            "/morgue?error=none&after=a/",
            "/queues/a/lanes?lag_min=1s",
            "/queues?after=a",
            "/queues?by=jobs&skip=1",
            "/export/audit?queue=b",
            "/export/batches?live=true",
            "/export/bridges",
            "/export/causes",
            "/export/cron",
            "/export/nodes",
            "/export/operations",
            "/export/queues?by=lag&name=a",
            "/export/scheduled?queue=a",
            &format!("/reschedule?job={job}"),
            "/key/events?k=seen&until=2100-01-01T00:00:00Z",
            "/cron",
            "/cron?after=a",
            "/batches",
            "/batches?live=true",
            "/nodes",
            "/nodes?after=1:5:x",
            "/nodes/remote:walker",
            "/operations",
            "/operations?after=1",
            "/operations/new?action=pause&queue=a",
            &format!("/operations/{}", operation.as_str().unwrap()),
            "/audit?queue=b",
            "/search?q=s",
            "/about",
            "/confirm?deed=lane.delete&queue=a&key=seen",
        ] {
            let page = self.api.get(path);
            assert_eq!(page.status, 200, "{path}: {}", page.text());
        }
    }

    /// Last, as the node that answers takes no more work then, and stops.
    fn nodes(&self) {
        for command in ["quiet", "resume", "stop"] {
            let pattern = format!("/api/v1/nodes/{{node}}/{command}");
            assert_eq!(self.act(&pattern, &["remote:walker"])["command"], command);
        }
        let beat = json!({ "worker": "walker", "claims": [] });
        let beat = self.post("/api/v1/work/heartbeat", &[], beat);
        assert_eq!(beat, json!({ "cancel": [], "lost": [], "command": "stop" }));
        let claim = json!({ "worker": "walker", "queues": ["a"], "wait_ms": 0 });
        let claim = self.post("/api/v1/work/claim", &[], claim);
        assert_eq!(claim, json!({ "lanes": [], "command": "stop" }));
    }
}

/// Answers documented fields that no answer had.
fn walk(site: Site) -> Vec<String> {
    let config = std::fs::read_to_string(site.path("seriatim.toml")).unwrap();
    std::fs::write(site.path("seriatim.toml"), config + BRIDGE).unwrap();
    let sidekiq = seriatim_testkit::Redis::start().unwrap();
    let api = Api::with(site, |command| {
        command.env("SIDEKIQ_REDIS", sidekiq.url());
    });
    let documented = Documented::of(&api);
    let walk = Walk { api, called: RefCell::default(), documented };
    walk.outside();
    walk.queues();
    walk.limits();
    walk.lanes();
    walk.jobs();
    walk.operations();
    walk.taking_back();
    walk.cron();
    walk.bridges();
    walk.looking_back();
    walk.batches();
    walk.pages();
    walk.nodes();
    let document = walk.api.get("/openapi.json").done();
    let paths = document["paths"].as_object().unwrap().iter();
    let all: BTreeSet<(String, String)> = paths
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone()))
        })
        .collect();
    let called = walk.called.into_inner();
    assert_eq!(called, all, "not called: {:?}", all.difference(&called).collect::<Vec<_>>());
    walk.documented.never_sent()
}

const BRIDGE: &str = "[queues.bridged]\nmode = \"parallel\"\n\
    [[bridges]]\nname = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\nqueues = [\"bridged\"]\n";
const CRON: &str = "[[cron]]\nname = \"n\"\nschedule = \"0 3 * * *\"\nqueue = \"a\"\nkey = \"cron\"\npayload = { days = 1 }\n";

fn on(server: &Server) -> Site {
    Site::new(&format!("[store]\nurl = \"{}\"\n{CRON}", server.url()))
}

#[test]
fn every_endpoint_works_and_every_documented_field_is_sent_on_sqlite() {
    let site = Site::new(&format!("{CRON}[journal]\nenabled = true\n"));
    assert_eq!(walk(site), NOT_IN_THE_WALK);
}

/// Fields of the history after its first minute, of jobs for one build or group, of more than a thousand nodes, of other filters of operations, of results, of
/// large deletions, of streams, of throttled keys, of a trigger for another queue, and of nodes with troubles or periodic programs.
const NOT_IN_THE_WALK: [&str; 75] = [
    "BulkDone.more",
    "BulkDone.operation",
    "Dated.at",
    "Dated.dead",
    "Dated.done",
    "Dated.failed",
    "Dated.jobs",
    "Dated.lag",
    "Dated.retrying",
    "Dated.running",
    "DatedTimes.at",
    "DatedTimes.failed",
    "DatedTimes.longest",
    "DatedTimes.mean",
    "DatedTimes.p50",
    "DatedTimes.p95",
    "DatedTimes.turns",
    "EditedJob.again_at",
    "JobView.build",
    "JobView.group",
    "JobView.result",
    "LaneJob.build",
    "LaneJob.group",
    "Node.periodic",
    "Nodes.left_out",
    "OperationWish.cause",
    "OperationWish.error",
    "OperationWish.jobs",
    "OperationWish.key",
    "OperationWish.lanes",
    "OperationWish.node",
    "OperationWish.queues",
    "OperationWish.rate",
    "OperationWish.since",
    "OperationWish.task",
    "OperationWish.untasked",
    "PeriodicProgram.error",
    "PeriodicProgram.failures",
    "PeriodicProgram.name",
    "PeriodicProgram.runs",
    "PeriodicProgram.state",
    "Preview.confirm",
    "Pushed.again_at",
    "PushedJobs.job",
    "Queue.turns",
    "Status.result",
    "Streamed.again_at",
    "Streamed.created",
    "Streamed.duplicate",
    "Streamed.merged",
    "Streamed.pushed",
    "Streamed.throttled",
    "TaskFigures.failed",
    "TaskFigures.longest",
    "TaskFigures.mean",
    "TaskFigures.p50",
    "TaskFigures.p95",
    "TaskFigures.points",
    "TaskFigures.task",
    "TaskFigures.turns",
    "Times.failed",
    "Times.longest",
    "Times.mean",
    "Times.p50",
    "Times.p95",
    "Times.turns",
    "Triggered.queue",
    "Trouble.about",
    "Trouble.kind",
    "Trouble.last_at",
    "Trouble.node",
    "Trouble.queue",
    "Trouble.since",
    "Trouble.text",
    "Trouble.times",
];

#[test]
fn every_endpoint_works_on_postgresql() {
    walk(on(&Server::postgres()));
}

#[test]
fn every_endpoint_works_on_mysql() {
    walk(on(&Server::mysql()));
}

#[test]
fn every_endpoint_works_on_redis() {
    walk(on(&Server::redis()));
}

/// The commands that Dataloader's own page gives, letter by letter.
const HEALTH: &str = "curl http://localhost:8081/health";
const TRIGGER: &str = r#"curl -X POST http://localhost:8081/api/v1/jobs/trigger \
  -H "Content-Type: application/json" \
  -d '{
    "queue": "etl.default",
    "task": "noop",
    "args": {"sleep1": 1, "sleep2": 1, "sleep3": 1},
    "lock_key": "customer:42",
    "priority": 100
  }'"#;
const TRIGGER_LOAD: &str = r#"curl -X POST http://localhost:8081/api/v1/jobs/trigger \
  -H "Content-Type: application/json" \
  -d '{
    "queue": "load.cbr",
    "task": "load.cbr.rates",
    "args": {"date": "2025-01-10", "currencies": ["USD", "EUR"]},
    "lock_key": "cbr_rates_2025-01-10",
    "partition_key": "2025-01-10",
    "priority": 100,
    "max_attempts": 3,
    "lease_ttl_sec": 300
  }'"#;
const STATUS: &str = "curl http://localhost:8081/api/v1/jobs/{job_id}/status";

/// Runs a command of that page, against another port.
fn shell(api: &Api, command: &str) -> Value {
    let port = api.address.rsplit(':').next().unwrap();
    let command = command.replace("localhost:8081", &format!("localhost:{port}"));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{command}: {output:?}"))
}

fn as_before(site: Site) {
    let api = Api::with(site, |_| {});
    assert_eq!(shell(&api, HEALTH), json!({ "status": "healthy" }));
    assert_eq!(shell(&api, TRIGGER)["status"], "queued");
    let pushed = shell(&api, TRIGGER_LOAD);
    assert_eq!(pushed["status"], "queued");
    let id = pushed["job_id"].as_str().unwrap();
    let status = shell(&api, &STATUS.replace("{job_id}", id));
    assert_eq!((&status["job_id"], &status["status"]), (&pushed["job_id"], &json!("queued")));
    let cancel = STATUS.replace("{job_id}", id).replace("/status", "/cancel");
    assert_eq!(shell(&api, &cancel.replace("curl ", "curl -X POST "))["status"], "canceled");
}

#[test]
fn d1_the_commands_of_dataloader_work_as_they_are_on_sqlite() {
    as_before(Site::new(""));
}

#[test]
fn d1_the_commands_of_dataloader_work_as_they_are_on_postgresql() {
    as_before(on(&Server::postgres()));
}
