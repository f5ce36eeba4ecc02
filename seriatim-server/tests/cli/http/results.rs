//! Results of jobs, and requests that wait for them.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use crate::site::{PATIENCE, Site};

const CONFIG: &str = "[queues.sums]\nmode = \"fifo\"\nretain_completed = \"1h\"\nmax_retries = 0\n\
    [queues.orders]\nmode = \"accumulate\"\nretain_completed = \"1h\"\n\
    [queues.forgets]\nmode = \"fifo\"\n";

fn comes_true(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it did not happen in time");
        std::thread::yield_now();
    }
}

/// Pushes a job and waits for its end, while a remote worker claims it and settles it so.
fn waited(api: &Api, queue: &str, job: &Value, result: &Value) -> Value {
    std::thread::scope(|scope| {
        let path = format!("/api/v1/queues/{queue}/jobs?wait=60s");
        let waiting = scope.spawn(move || api.post(&path, job).done());
        let body = json!({ "worker": "w", "queues": [queue], "wait_ms": 60_000 });
        let lane = api.post("/api/v1/work/claim", &body).done()["lanes"][0].clone();
        api.settle(&lane, result.clone()).done();
        waiting.join().unwrap()
    })
}

#[test]
fn a_push_that_waits_is_answered_with_the_result() {
    let api = Api::start(CONFIG);
    let job = json!({ "key": "k", "payload": [1, 2, 3], "idempotency_key": "once" });
    let result = json!({ "outcome": "done", "result": { "sum": 6.50 } });
    let answer = waited(&api, "sums", &job, &result);
    assert_eq!(answer["jobs"][0]["status"], "queued");
    assert_eq!(answer["job"]["job_id"], answer["jobs"][0]["job_id"]);
    let end = (&answer["job"]["status"], &answer["job"]["result"], &answer["job"]["error"]);
    assert_eq!(end, (&json!("succeeded"), &json!({ "sum": 6.5 }), &Value::Null));
    // The same again, which runs nothing.
    let again = api.post("/api/v1/queues/sums/jobs?wait=60s", &job).done();
    assert_eq!(again["jobs"][0]["status"], "duplicate");
    assert_eq!(again["job"]["result"], json!({ "sum": 6.5 }));
    let id = answer["job"]["job_id"].as_str().unwrap();
    for query in ["", "?wait=60s"] {
        let job = api.get(&format!("/api/v1/jobs/{id}{query}")).done();
        assert_eq!(job["result"], json!({ "sum": 6.5 }), "{query}");
    }
    assert_eq!(api.get(&format!("/api/v1/jobs/{id}/status")).done()["result"]["sum"], 6.5);
}

#[test]
fn the_jobs_of_a_turn_share_its_result_and_a_dead_one_answers_its_error() {
    let api = Api::start(CONFIG);
    let path = "/api/v1/queues/orders/jobs";
    let jobs = json!([{ "key": "k", "payload": 1 }, { "key": "k", "payload": 2 }]);
    let pushed = api.post(path, &jobs).done();
    let result = json!({ "outcome": "done", "result": [3] });
    let answer = waited(&api, "orders", &json!({ "key": "k", "payload": 2 }), &result);
    assert_eq!(answer["jobs"][0]["status"], "merged");
    assert_eq!(answer["job"]["result"], json!([3]));
    for job in pushed["jobs"].as_array().unwrap() {
        let id = job["job_id"].as_str().unwrap();
        assert_eq!(api.get(&format!("/api/v1/jobs/{id}?wait=60s")).done()["result"], json!([3]));
    }
    let fails = json!({ "outcome": "retry", "error": "no memory" });
    let dead = waited(&api, "sums", &json!({ "key": "k" }), &fails)["job"].clone();
    assert_eq!((&dead["status"], &dead["error"]), (&json!("dead"), &json!("no memory")));
    assert_eq!(dead.get("result"), None);
}

#[test]
fn when_time_is_up_the_job_is_answered_as_it_is() {
    let api = Api::start(CONFIG);
    let answer = api.post("/api/v1/queues/sums/jobs?wait=50ms", &json!({ "key": "k" })).done();
    assert_eq!(answer["job"]["status"], "queued");
    let path = format!("/api/v1/jobs/{}?wait=0", answer["job"]["job_id"].as_str().unwrap());
    assert_eq!(api.get(&path).done()["status"], "queued");
}

#[test]
fn what_cannot_be_waited_for_is_refused_before_anything_is_pushed() {
    let api = Api::start(CONFIG);
    let push = |queue: &str, wait: &str, body: &Value| {
        let path = format!("/api/v1/queues/{queue}/jobs?wait={wait}");
        let (field, detail) = api.post(&path, body).refused(400);
        assert_eq!(field, "wait", "{detail}");
        detail
    };
    let job = json!({ "key": "k" });
    let detail = push("forgets", "1s", &job);
    assert!(detail.contains("\"forgets\" keeps no finished jobs"), "{detail}");
    assert!(detail.contains("retain_completed"), "{detail}");
    assert!(push("sums", "1s", &json!([job])).contains("one job"));
    assert!(push("sums", "61s", &job).contains("at most 1m"));
    push("sums", "soon", &job);
    let lines = Request::new("POST", "/api/v1/queues/sums/jobs?wait=1s")
        .body("application/x-ndjson", "{\"key\":\"k\"}\n")
        .send(&api.address);
    assert_eq!(lines.refused(400).0, "wait");
    let stats = api.get("/api/v1/stats").done();
    assert_eq!(stats["total"]["length"], 0, "nothing was pushed");
    let id = api.post("/api/v1/queues/forgets/jobs", &job).done()["jobs"][0]["job_id"].clone();
    let path = |query: &str| format!("/api/v1/jobs/{}?{query}", id.as_str().unwrap());
    assert_eq!(api.get(&path("wait=1s")).refused(400).0, "wait");
    assert_eq!(api.get(&path("wiat=1s")).status, 400);
    api.get("/api/v1/jobs/01900000-0000-7000-8001-000000000001?wait=1s").refused(404);
}

#[test]
fn a_result_that_cannot_be_kept_settles_nothing() {
    let api = Api::start(CONFIG);
    api.post("/api/v1/queues/sums/jobs", &json!({ "key": "k" })).done();
    let lane = api.claim("sums").remove(0);
    for (result, said) in [
        (json!({ "outcome": "done", "result": "x".repeat(64 << 10) }), "at most 65536"),
        (json!({ "outcome": "bury", "error": "e", "result": 1 }), "outcome done, not with bury"),
    ] {
        let (field, detail) = api.settle(&lane, result).refused(400);
        assert_eq!(field, "results[0].result");
        assert!(detail.contains(said), "{detail}");
    }
    assert_eq!(api.settled(&lane, json!({ "outcome": "done", "result": null })), "ok");
}

#[test]
fn a_wait_survives_the_death_of_the_node_that_ran_the_job_and_served_it() {
    let site = Site::new(&format!(
        "{CONFIG}[node]\nheartbeat = \"200ms\"\nlease = \"1s\"\n\
         [[workers]]\nqueue = \"sums\"\ncommand = [\"sh\", \"work.sh\"]\n"
    ));
    // The first run never ends.
    let script = "if [ -e began ]; then echo '{\"type\":\"done\",\"result\":[\"second\"]}'; else touch began; echo up > up; exec sleep 600; fi\n";
    std::fs::write(site.path("work.sh"), script).unwrap();
    assert!(Command::new("mkfifo").arg(site.path("up")).status().unwrap().success());
    let api = Api::with(site, |_| {});
    let wait = Request::new("POST", "/api/v1/queues/sums/jobs?wait=60s")
        .json(&json!({ "key": "k", "idempotency_key": "once" }))
        .start(&api.address);
    std::fs::read_to_string(api.site.path("up")).unwrap();
    let site = api.killed();
    drop(wait);
    let other = Api::with(site, |_| {});
    let again = json!({ "key": "k", "idempotency_key": "once" });
    let answer = other.post("/api/v1/queues/sums/jobs?wait=60s", &again).done();
    assert_eq!(answer["jobs"][0]["status"], "duplicate");
    assert_eq!(answer["job"]["result"], json!(["second"]));
}

#[test]
fn while_a_node_drains_who_waits_is_answered() {
    let mut api = Api::start(CONFIG);
    let answer = std::thread::scope(|scope| {
        let (address, job) = (api.address.clone(), json!({ "key": "k" }));
        let waiting = scope.spawn(move || {
            let path = "/api/v1/queues/sums/jobs?wait=60s";
            Request::new("POST", path).json(&job).send(&address).done()
        });
        comes_true(|| api.get("/api/v1/stats").done()["total"]["length"] == 1);
        api.serving.signal(Signal::TERM);
        waiting.join().unwrap()
    });
    assert_eq!(answer["job"]["status"], "queued");
    assert!(api.serving.0.wait().unwrap().success(), "{}", api.log());
}

#[test]
fn so_many_may_wait_and_who_is_gone_makes_room() {
    let api = Api::start(CONFIG);
    let pushed = api.post("/api/v1/queues/sums/jobs", &json!({ "key": "k" })).done();
    let id = pushed["jobs"][0]["job_id"].as_str().unwrap();
    let wait = |length: &str| Request::new("GET", &format!("/api/v1/jobs/{id}?wait={length}"));
    let mut waiting: Vec<_> = (0..256).map(|_| wait("60s").start(&api.address)).collect();
    let status = || wait("10ms").send(&api.address).status;
    // One that came while another had its place was refused: one more takes the place now.
    comes_true(|| {
        waiting.push(wait("60s").start(&api.address));
        status() == 429
    });
    assert_eq!(api.get(&format!("/api/v1/jobs/{id}")).status, 200, "who does not wait has room");
    let began = Instant::now();
    drop(waiting);
    comes_true(|| status() == 200);
    assert!(began.elapsed() < Duration::from_secs(30), "before the waits would have ended");
}
