//! Dataloader's clients go on as they are.

use std::time::Duration;

use serde_json::{Value, json};

use super::Api;
use super::client::{Request, send_raw};

fn trigger(api: &Api, lock_key: &str, idempotency_key: Option<&str>) -> Value {
    let body = json!({
        "queue": "load.cbr", "task": "load.cbr.rates", "lock_key": lock_key,
        "args": { "date": "2025-01-10", "currencies": ["USD", "EUR"] },
        "idempotency_key": idempotency_key, "partition_key": "2025-01-10", "priority": 100,
        "available_at": "2025-01-10T00:00:00Z", "max_attempts": 3, "lease_ttl_sec": 300,
        "producer": "api-client", "consumer_group": "cbr-loaders",
    });
    api.post("/api/v1/jobs/trigger", &body).done()
}

#[tokio::test]
async fn d1_a_job_is_triggered_as_before() {
    let api = Api::start("");
    let pushed = trigger(&api, "cbr_rates", None);
    assert_eq!(pushed["status"], "queued");
    let names: Vec<&String> = pushed.as_object().unwrap().keys().collect();
    assert_eq!(names, ["job_id", "status"]);
    let store = api.site.store().await;
    let id = pushed["job_id"].as_str().unwrap().parse().unwrap();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(
        (&*job.queue, job.key.as_deref(), job.task.as_deref()),
        ("load.cbr", Some("cbr_rates"), Some("load.cbr.rates"))
    );
    let options = job.options.unwrap();
    assert_eq!(
        (options.max_attempts, options.lease_ttl),
        (Some(3), Some(Duration::from_secs(300)))
    );
    assert_eq!(options.partition_key.as_deref(), Some("2025-01-10"));
    assert_eq!(options.producer.as_deref(), Some("api-client"));
    assert_eq!(options.consumer.as_deref(), Some("cbr-loaders"));
    assert_eq!(job.payload.to_value()["currencies"][1], "EUR");
    assert_eq!(job.run_at.as_micros(), 1_736_467_200_000_000);
}

#[test]
fn d1_what_is_missing_or_wrong_is_a_400_that_names_the_field() {
    let api = Api::start("");
    let whole = json!({ "queue": "q", "task": "t", "lock_key": "k" });
    for name in ["queue", "task", "lock_key"] {
        let mut body = whole.clone();
        body.as_object_mut().unwrap().remove(name);
        assert_eq!(api.post("/api/v1/jobs/trigger", &body).refused(400).0, name);
    }
    let wrong = [
        ("priority", json!(-1)),
        ("priority", json!(40_000)),
        ("available_at", json!("tomorrow")),
        ("available_at", json!(60)),
        ("max_attempts", json!(0)),
        ("lease_ttl_sec", json!(0)),
        ("lock_key", json!("")),
        ("args", json!([1])),
        ("queue", json!("no spaces")),
    ];
    for (name, value) in wrong {
        let mut body = whole.clone();
        body[name] = value.clone();
        let (field, detail) = api.post("/api/v1/jobs/trigger", &body).refused(400);
        assert_eq!(field, name, "{value}: {detail}");
    }
    assert_eq!(api.post("/api/v1/jobs/trigger", &whole).status, 200);
}

#[test]
fn d2_a_repeated_idempotency_key_answers_the_same_job() {
    let api = Api::start("");
    let first = trigger(&api, "k", Some("cbr_2025-01-10"));
    let second = trigger(&api, "k", Some("cbr_2025-01-10"));
    assert_eq!(first, second);
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 1);
    api.act(&format!("/api/v1/jobs/{}/cancel", first["job_id"].as_str().unwrap())).done();
    assert_eq!(trigger(&api, "k", Some("cbr_2025-01-10"))["status"], "canceled");
}

#[test]
fn d2_an_idempotency_key_is_one_job_whatever_the_queue_and_lock_key_are() {
    let api = Api::start("");
    let first = trigger(&api, "k", Some("daily"));
    let job = |queue: &str, scope: Option<&str>| {
        let body = json!({
            "queue": queue, "task": "t", "lock_key": "other", "idempotency_key": "daily",
            "idempotency_scope": scope,
        });
        api.post("/api/v1/jobs/trigger", &body).done()
    };
    assert_eq!(job("load.cbr", None), first);
    let elsewhere = json!({ "job_id": first["job_id"], "status": "queued", "queue": "load.cbr" });
    assert_eq!(job("load.ecb", None), elsewhere);
    assert_eq!(job("load.ecb", Some("store")), elsewhere);
    assert_eq!(api.get("/api/v1/stats").done()["total"]["jobs"], 1);
    let own = job("load.ecb", Some("key"));
    assert_ne!(own["job_id"], first["job_id"]);
    assert_eq!(job("load.ecb", Some("key")), own);
    let wrong = json!({
        "queue": "q", "task": "t", "lock_key": "k", "idempotency_key": "i", "idempotency_scope": "all",
    });
    let (field, detail) = api.post("/api/v1/jobs/trigger", &wrong).refused(400);
    assert_eq!(field, "idempotency_scope", "{detail}");
    assert_eq!(detail, "unknown value \"all\": write \"key\", \"store\"");
    let lacking =
        json!({ "queue": "q", "task": "t", "lock_key": "k", "idempotency_scope": "store" });
    api.post("/api/v1/jobs/trigger", &lacking).refused(400);
}

#[test]
fn d3_the_status_tells_attempt_times_heartbeat_error_and_progress() {
    let api = Api::start("");
    let id = trigger(&api, "k", None)["job_id"].as_str().unwrap().to_owned();
    let status = || api.get(&format!("/api/v1/jobs/{id}/status")).done();
    let waiting = status();
    assert_eq!(
        waiting,
        json!({
            "job_id": id, "status": "queued", "attempt": 0, "started_at": null, "finished_at": null,
            "heartbeat_at": null, "error": null, "progress": null,
        })
    );
    let lane = api.claim("load.cbr").remove(0);
    api.beat(&lane, json!({ "progress": { "processed": 500 } }));
    let running = status();
    assert_eq!((&running["status"], &running["attempt"]), (&json!("running"), &json!(1)));
    assert_eq!(running["progress"]["processed"], 500);
    assert!(running["started_at"].is_string() && running["heartbeat_at"].is_string(), "{running}");
    api.settle(&lane, json!({ "outcome": "bury", "error": "no rates" })).done();
    let failed = status();
    assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("no rates")));
    assert!(failed["finished_at"].is_string(), "{failed}");
    let unknown = "01a1fd84-a548-7000-8001-00000000ffff";
    api.get(&format!("/api/v1/jobs/{unknown}/status")).refused(404);
    api.get("/api/v1/jobs/nonsense/status").refused(400);
}

#[test]
fn d4_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_told() {
    let api = Api::start("");
    let waiting = trigger(&api, "a", None)["job_id"].as_str().unwrap().to_owned();
    assert_eq!(api.act(&format!("/api/v1/jobs/{waiting}/cancel")).done()["status"], "canceled");
    let running = trigger(&api, "b", None)["job_id"].as_str().unwrap().to_owned();
    let lane = api.claim("load.cbr").remove(0);
    assert_eq!(api.act(&format!("/api/v1/jobs/{running}/cancel")).done()["status"], "running");
    let beat = api.beat(&lane, json!({}));
    assert_eq!(beat["cancel"][0], json!({ "lane": lane["lane"], "job_ids": [running] }));
    api.settle(&lane, json!({ "outcome": "cancel" })).done();
    assert_eq!(api.get(&format!("/api/v1/jobs/{running}/status")).done()["status"], "canceled");
    api.act("/api/v1/jobs/01a1fd84-a548-7000-8001-00000000ffff/cancel").refused(404);
}

/// The lanes that a worker of these groups gets.
fn claimed(api: &Api, groups: &[&str]) -> Value {
    let body = json!({ "worker": "w", "queues": ["load.cbr"], "consumer_groups": groups });
    api.post("/api/v1/work/claim", &body).done()["lanes"].clone()
}

#[test]
fn d13_the_consumer_group_of_a_trigger_is_a_label_and_binds_the_job_to_nobody() {
    let api = Api::start("");
    let id = trigger(&api, "k", None)["job_id"].as_str().unwrap().to_owned();
    let job = api.get(&format!("/api/v1/jobs/{id}")).done();
    assert_eq!((&job["consumer"], &job["consumer_group"]), (&json!("cbr-loaders"), &Value::Null));
    let lanes = claimed(&api, &[]);
    let job = ["consumer", "partition_key", "producer"].map(|name| &lanes[0]["jobs"][0][name]);
    assert_eq!(job, ["cbr-loaders", "2025-01-10", "api-client"], "{lanes}");
}

#[test]
fn d13_a_trigger_with_a_route_group_goes_to_the_members_of_the_group_alone() {
    let api = Api::start("");
    let mut body = json!({ "queue": "load.cbr", "task": "t", "lock_key": "k" });
    body["route_group"] = json!("");
    assert_eq!(api.post("/api/v1/jobs/trigger", &body).refused(400).0, "route_group");
    body["route_group"] = json!("eu");
    api.post("/api/v1/jobs/trigger", &body).done();
    let lanes = |groups: &[&str]| claimed(&api, groups).as_array().unwrap().len();
    assert_eq!((lanes(&[]), lanes(&["others"]), lanes(&["others", "eu"])), (0, 0, 1));
}

#[tokio::test]
async fn d1_a_trigger_needs_no_media_type_and_its_times_no_zone() {
    let api = Api::start("[http]\ntime_zone = \"Europe/Moscow\"\n");
    let body = r#"{"queue":"q","task":"t","lock_key":"k","available_at":"2025-01-10T03:00:00"}"#;
    let head = format!(
        "POST /api/v1/jobs/trigger HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        api.address,
        body.len()
    );
    let pushed = send_raw(&api.address, format!("{head}{body}").as_bytes()).unwrap().done();
    let store = api.site.store().await;
    let id = pushed["job_id"].as_str().unwrap().parse().unwrap();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.run_at.as_micros(), 1_736_467_200_000_000);
    let form = Request::new("POST", "/api/v1/jobs/trigger");
    form.body("application/x-www-form-urlencoded", "queue=q").send(&api.address).refused(415);
    let elsewhere = json!({ "payload": 1, "run_at": "2025-01-10T03:00:00" });
    let refused = api.post("/api/v1/queues/q/jobs", &json!([elsewhere])).refused(400);
    assert_eq!(refused.0, "jobs[0].run_at");
}
