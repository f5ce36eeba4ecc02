//! Pushing over HTTP.

use serde_json::json;

use super::Api;
use super::client::Request;

const PATH: &str = "/api/v1/queues/orders/jobs";

fn declared() -> Api {
    Api::start("[queues.orders]\nmode = \"accumulate\"\n")
}

#[test]
fn l12_one_job_and_an_array_are_pushed_and_equal_ones_merge() {
    let api = declared();
    let job =
        json!({ "id": 42, "payload": { "v": 1 }, "score": 7.5, "perform_in": 4_000_000_000_u64 });
    let pushed = api.post(PATH, &job).done();
    assert_eq!(pushed["jobs"][0]["status"], "queued");
    let more =
        json!([{ "key": "42", "payload": { "v": 1 } }, { "key": "42", "payload": { "v": 2 } }]);
    let more = api.post(PATH, &more).done();
    assert_eq!(
        more["jobs"][0],
        json!({ "job_id": pushed["jobs"][0]["job_id"], "status": "merged" })
    );
    assert_eq!(more["jobs"][1]["status"], "queued");
    let lane = api.get("/api/v1/queues/orders/lane?key=42").done();
    assert_eq!((&lane["jobs"], &lane["due"]), (&json!(2), &json!("2096-10-02T07:06:40Z")));
    assert_eq!(lane["waiting"][0]["score"], 7.5);
    assert!(lane["why"].as_str().unwrap().starts_with("due in "), "{lane}");
    let again = json!({ "key": "1", "idempotency_key": "once" });
    api.post(PATH, &again).done();
    assert_eq!(api.post(PATH, &again).done()["jobs"][0]["status"], "duplicate");
    assert_eq!(api.post(PATH, &json!([])).done(), json!({ "jobs": [] }));
}

#[test]
fn a_key_in_a_window_says_until_when_it_collects() {
    let window = r#"{ quiet = "1h", max_wait = "2h", max_jobs = 3 }"#;
    let api = Api::start(&format!("[queues.orders]\nmode = \"accumulate\"\nwindow = {window}\n"));
    api.post(PATH, &json!([{ "key": "1", "payload": 1 }, { "key": "1", "payload": 2 }])).done();
    let lane = api.get("/api/v1/queues/orders/lane?key=1").done();
    let why = lane["why"].as_str().unwrap();
    assert!(why.starts_with("collects jobs: due in ") && why.contains("(quiet for 1h"), "{lane}");
    assert!(lane["collects_until"].as_str() > lane["due"].as_str(), "{lane}");
    let shown = api.get("/api/v1/queues/orders").done();
    let settings = json!({ "quiet": "1h", "max_wait": "2h", "max_jobs": 3 });
    assert_eq!(shown["settings"]["window"], settings);
    let shown = api.site.run(&["lanes", "show", "orders", "1"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("collects until"), "{text}");
    api.post(PATH, &json!([{ "key": "1", "payload": 3 }, { "key": "2", "delay": "30m" }])).done();
    let full = api.get("/api/v1/queues/orders/lane?key=1").done();
    assert_eq!((&full["jobs"], &full["collects_until"]), (&json!(3), &json!(null)), "{full}");
    let own = api.get("/api/v1/queues/orders/lane?key=2").done();
    assert!(own["why"].as_str().unwrap().contains("due in 29m"), "{own}");
}

#[test]
fn d2_a_push_may_ask_for_an_idempotency_key_of_the_whole_store() {
    let api = declared();
    let job = json!({ "key": "1", "idempotency_key": "once", "idempotency_scope": "store" });
    let first = api.post(PATH, &job).done()["jobs"][0].clone();
    let again = api.post("/api/v1/queues/others/jobs", &job).done()["jobs"][0].clone();
    assert_eq!(again, json!({ "job_id": first["job_id"], "status": "duplicate" }));
    let shown = api.get(&format!("/api/v1/jobs/{}", first["job_id"].as_str().unwrap())).done();
    assert_eq!((&shown["queue"], &shown["idempotency_scope"]), (&json!("orders"), &json!("store")));
    let lacking = json!([{ "key": "1" }, { "key": "1", "idempotency_scope": "store" }]);
    assert_eq!(api.post(PATH, &lacking).refused(400).0, "jobs[1].idempotency_scope");
    let pushed = api.site.run(&[
        "push",
        "orders",
        "1",
        "--key",
        "9",
        "--idempotency-key",
        "once",
        "--idempotency-scope",
        "store",
    ]);
    assert!(String::from_utf8_lossy(&pushed.stdout).contains("duplicate"), "{pushed:?}");
    let wrong = api.site.run(&["push", "orders", "1", "--idempotency-scope", "all"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("key or store"), "{wrong:?}");
}

#[test]
fn an_array_is_pushed_as_a_whole_or_not_at_all() {
    let api = declared();
    let (field, detail) = api.post(PATH, &json!([{ "key": "a" }, { "payload": 1 }])).refused(400);
    assert_eq!(field, "jobs[1].key", "{detail}");
    let (field, _) =
        api.post(PATH, &json!([{ "key": "a" }, { "key": "b", "scroe": 1 }])).refused(400);
    assert_eq!(field, "jobs[1].scroe");
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 0);
}

#[test]
fn a_list_in_the_place_of_an_object_is_refused() {
    let api = declared();
    let (field, detail) = api.post(PATH, &json!([["a"]])).refused(400);
    assert_eq!(field, "jobs[0]", "{detail}");
    assert!(detail.contains("write an object"), "{detail}");
    api.put("/api/v1/queues/orders", &json!([])).refused(400);
    api.post("/api/v1/work/claim", &json!(["w", ["orders"]])).refused(400);
    let results = json!({ "worker": "w", "results": [["1-0-1", 1, "done"]] });
    assert_eq!(api.post("/api/v1/work/settle", &results).refused(400).0, "results[0]");
}

#[test]
fn l2_a_length_in_the_place_of_a_time_is_refused_and_delay_is_named() {
    let api = declared();
    for name in ["run_at", "perform_in", "available_at"] {
        let (field, detail) = api.post(PATH, &json!({ "key": "a", name: 60 })).refused(400);
        assert_eq!(field, name);
        assert!(detail.contains("`delay`"), "{detail}");
    }
    api.post(PATH, &json!({ "key": "a", "delay": "1h" })).done();
    let lane = api.get("/api/v1/queues/orders/lane?key=a").done();
    assert_eq!(lane["state"], "waiting");
    assert_eq!(api.get("/api/v1/stats").done()["total"]["lag"], 0.0);
}

#[test]
fn l12_a_stream_of_lines_is_pushed_in_batches_and_a_bad_line_is_named() {
    let api = declared();
    let stream = |lines: String| {
        Request::new("POST", PATH).body("application/x-ndjson", lines).send(&api.address)
    };
    let lines: Vec<String> =
        (0..2_500).map(|i| format!("{{\"key\":\"{i}\",\"payload\":{i}}}\n")).collect();
    let lines = lines.concat();
    let loaded = stream(lines.clone() + "\n" + "{\"key\":\"0\",\"payload\":0}").done();
    assert_eq!(loaded, json!({ "pushed": 2_501, "merged": 1, "duplicate": 0, "throttled": 0 }));
    let refused = stream("{\"key\":\"x\"}\n{\"key\":1.5}\n".to_owned());
    assert_eq!(refused.refused(400).0, "key");
    assert_eq!((&refused.json()["line"], &refused.json()["pushed"]), (&json!(2), &json!(1)));
    // A key is wanted: only the store knows. Its batch is refused as a whole.
    let refused = stream(lines + "{\"payload\":1}\n");
    assert_eq!(refused.refused(400).0, "jobs[500].key");
    assert_eq!(
        (&refused.json()["line"], &refused.json()["pushed"]),
        (&json!(2_501), &json!(2_000))
    );
    assert_eq!(refused.json()["go_on_from_line"], 2_001);
    let of_windows = stream("\u{feff}{\"key\":\"w\"}\r\n\r\n{\"key\":\"w\"}\r\n".to_owned());
    assert_eq!(of_windows.done()["pushed"], 2);
}

#[test]
fn l17_stats_have_the_shape_of_lowkiq() {
    let api = declared();
    api.post(PATH, &json!([{ "key": "a" }, { "key": "b" }])).done();
    let stats = api.get("/api/v1/stats").done();
    for numbers in [&stats["total"], &stats["by_worker"]["orders"]] {
        assert_eq!((&numbers["length"], &numbers["morgue_length"]), (&json!(2), &json!(0)));
        assert!(numbers["lag"].is_number(), "{stats}");
    }
}

#[test]
fn l17_length_counts_the_ids_that_wait_and_not_their_payloads() {
    let api = declared();
    let jobs = ["a", "a", "a", "b", "b", "c"].iter().enumerate();
    let jobs: Vec<_> = jobs.map(|(i, key)| json!({ "key": key, "payload": i })).collect();
    api.post(PATH, &json!(jobs)).done();
    let total = || api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total()["length"], &total()["jobs"]), (&json!(3), &json!(6)));
    let claim = json!({ "worker": "w", "queues": ["orders"], "limit": 1 });
    let claimed = api.post("/api/v1/work/claim", &claim).done();
    let taken = claimed["lanes"][0]["jobs"].as_array().map_or(0, Vec::len);
    assert!((1..=3).contains(&taken), "{claimed}");
    // The payloads of the running id are still in the queue's `jobs`, but it is not in its `length`.
    assert_eq!((&total()["length"], &total()["jobs"]), (&json!(2), &json!(6)));
}

#[test]
fn pushes_of_many_connections_all_arrive() {
    let api = declared();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let api = &api;
            scope.spawn(move || {
                for i in 0..25 {
                    api.post(PATH, &json!({ "key": format!("{worker}-{i}") })).done();
                }
            });
        }
    });
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 200);
}

#[test]
fn a_push_that_makes_a_queue_says_so() {
    let api = declared();
    let job = json!({ "payload": 1 });
    let path = "/api/v1/queues/ordres/jobs";
    assert_eq!(api.post(path, &json!([])).done().get("created"), None, "nothing was pushed");
    assert_eq!(api.post(path, &job).done()["created"], true);
    assert_eq!(api.post(path, &job).done().get("created"), None);
    let stream = Request::new("POST", "/api/v1/queues/lines/jobs");
    let streamed = stream.body("application/x-ndjson", "{\"payload\":1}\n").send(&api.address);
    assert_eq!(
        streamed.done(),
        json!({ "pushed": 1, "merged": 0, "duplicate": 0, "throttled": 0, "created": true })
    );
    assert_eq!(api.post(PATH, &json!({ "key": "k" })).done().get("created"), None);
    let (field, _) = api.post(PATH, &job).refused(400);
    assert_eq!(field, "key");
}

#[test]
fn a_server_may_refuse_to_make_queues() {
    let api = Api::start("[http]\nimplied_queues = false\n[queues.orders]\nmode = \"fifo\"\n");
    let job = json!({ "payload": 1, "key": "k" });
    let (field, detail) = api.post("/api/v1/queues/ordres/jobs", &job).refused(404);
    assert!(field == "queue" && detail.contains("did you mean \"orders\"?"), "{field}: {detail}");
    let trigger = json!({ "queue": "ordres", "task": "t", "lock_key": "k" });
    let (field, _) = api.post("/api/v1/jobs/trigger", &trigger).refused(404);
    assert_eq!(field, "queue");
    assert_eq!(api.post(PATH, &job).done()["jobs"][0]["status"], "queued");
    assert_eq!(api.get("/api/v1/queues").done()["queues"].as_array().unwrap().len(), 1);
    api.put("/api/v1/queues/mails", &json!({ "mode": "parallel" })).done();
    api.post("/api/v1/queues/mails/jobs", &json!({ "payload": 1 })).done();
}
