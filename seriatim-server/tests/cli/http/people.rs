//! What people see and do.

use serde_json::{Value, json};
use seriatim::{Outcome, Queue};

use super::Api;
use crate::hand::Hand;
use crate::site::{Site, text};

/// A store in which something of everything has happened, and an API over it.
async fn house() -> (Api, Hand) {
    let site = Site::new("");
    let queues =
        vec![Queue::accumulate("orders").max_retries(2), Queue::fifo("mails").max_retries(0)];
    let hand = Hand::new(site.store().await, queues).await;
    (Api::with(site, |_| {}), hand)
}

fn push(api: &Api, queue: &str, keys: &[&str]) -> Vec<String> {
    let jobs: Vec<Value> = keys.iter().map(|key| json!({ "key": key, "payload": key })).collect();
    let pushed = api.post(&format!("/api/v1/queues/{queue}/jobs"), &json!(jobs)).done();
    let jobs = pushed["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["job_id"].as_str().unwrap().to_owned()).collect()
}

fn all<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|row| row[field].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn l16_queues_are_listed_defined_paused_and_resumed() {
    let (api, _) = house().await;
    let listed = api.get("/api/v1/queues").done();
    assert_eq!(all(&listed["queues"], "queue"), ["mails", "orders"]);
    let defined =
        api.put("/api/v1/queues/orders", &json!({ "batch_size": 10, "lease": "2m" })).done();
    assert_eq!(
        (&defined["mode"], &defined["settings"]["batch_size"]),
        (&json!("accumulate"), &json!(10))
    );
    assert_eq!(defined["settings"]["max_retries"], 25, "what is left out has its default");
    let several = json!({ "queues": { "a": { "mode": "fifo" }, "b": { "mode": "parallel" } } });
    assert_eq!(api.put("/api/v1/queues", &several).done()["queues"].as_array().unwrap().len(), 4);
    let of_queue = api.get("/api/v1/audit?queue=b").done();
    assert_eq!(of_queue["entries"][0]["on"]["queues"], "a,b", "{of_queue}");
    assert_eq!(api.put("/api/v1/queues/new", &json!({})).refused(400).0, "mode");
    assert_eq!(api.put("/api/v1/queues/a", &json!({ "takee": 1 })).refused(400).0, "takee");
    assert_eq!(api.put("/api/v1/queues/a", &json!({ "lease": "soon" })).refused(400).0, "lease");
    let wrong = json!({ "queues": { "a": { "take": 0 } } });
    assert_eq!(api.put("/api/v1/queues", &wrong).refused(400).0, "queues.a.take");
    push(&api, "orders", &["k"]);
    let (_, detail) = api.put("/api/v1/queues/orders", &json!({ "mode": "fifo" })).refused(409);
    assert!(detail.contains("accumulate") && detail.contains("fifo"), "{detail}");
    assert_eq!(api.act("/api/v1/queues/orders/pause").done()["paused"], true);
    let claim = json!({ "worker": "w", "queues": ["orders"] });
    assert_eq!(api.post("/api/v1/work/claim", &claim).done(), json!({ "lanes": [] }));
    assert_eq!(api.act("/api/v1/queues/orders/resume").done()["paused"], false);
    assert_eq!(api.post("/api/v1/work/claim", &claim).done()["lanes"][0]["key"], "k");
    let running = api.get("/api/v1/queues/orders/running").done();
    assert_eq!(all(&running["lanes"], "key"), ["k"]);
    for (path, post) in [("/api/v1/queues/x", false), ("/api/v1/queues/x/pause", true)] {
        let answer = if post { api.act(path) } else { api.get(path) };
        answer.refused(404);
    }
}

#[tokio::test]
async fn l16_lanes_come_in_order_in_ranges_and_in_pages() {
    let (api, hand) = house().await;
    push(&api, "orders", &["b", "d", "a", "c"]);
    let page = api.get("/api/v1/queues/orders/lanes?order=key&limit=3").done();
    assert_eq!(all(&page["lanes"], "key"), ["a", "b", "c"]);
    let next = page["next"].as_str().unwrap();
    let page =
        api.get(&format!("/api/v1/queues/orders/lanes?order=key&limit=3&after={next}")).done();
    assert_eq!((all(&page["lanes"], "key"), &page["next"]), (vec!["d"], &Value::Null));
    let range = api.get("/api/v1/queues/orders/lanes?order=key&from=b&to=c").done();
    assert_eq!(all(&range["lanes"], "key"), ["b", "c"]);
    assert_eq!(
        api.get("/api/v1/queues/orders/lanes?order=run_at").done()["lanes"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    let turns = hand.claim("orders").await;
    hand.end(&turns[0], Outcome::Retry { error: "no".into(), retry_in: None }).await;
    let failed = api.get("/api/v1/queues/orders/lanes?order=retry_count").done();
    assert_eq!(failed["lanes"].as_array().unwrap().len(), 1);
    assert_eq!(api.get("/api/v1/queues/orders/lanes?order=size").refused(400).0, "order");
    assert_eq!(api.get("/api/v1/queues/orders/lanes?limit=0").refused(400).0, "limit");
    assert_eq!(api.get("/api/v1/queues/orders/lanes?ordr=key").refused(400).0, "ordr");
}

#[tokio::test]
async fn lanes_are_filtered_by_state_prefix_node_due_time_and_retries() {
    let (api, hand) = house().await;
    push(&api, "orders", &["eu/a", "eu/b", "us/a"]);
    api.act("/api/v1/queues/orders/lane/pause?key=eu%2Fb").done();
    let list = |query: &str| {
        let page = api.get(&format!("/api/v1/queues/orders/lanes?order=key&{query}")).done();
        let keys = page["lanes"].as_array().unwrap().iter();
        keys.map(|lane| lane["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("state=ready"), ["eu/a", "us/a"]);
    assert_eq!(list("state=paused,held"), ["eu/b"]);
    assert_eq!(list("prefix=eu/"), ["eu/a", "eu/b"]);
    assert_eq!(list("prefix=eu/&state=ready"), ["eu/a"]);
    assert_eq!(list("due_from=2999-01-01T00:00:00Z"), [""; 0]);
    assert_eq!(list("due_to=2999-01-01T00:00:00Z").len(), 3);
    let turns = hand.claim("orders").await;
    assert_eq!(list("state=running").len(), turns.len());
    hand.end(&turns[0], Outcome::Retry { error: "no".into(), retry_in: None }).await;
    assert_eq!(list("state=retrying"), list("retries_min=0"));
    assert_eq!(list("state=retrying").len(), 1);
    assert_eq!(list("retries_min=5"), [""; 0]);
    let cut = api.get("/api/v1/queues/orders/lanes?order=key&state=crashed&scan_max=2").done();
    assert_eq!((&cut["cut"], &cut["lanes"]), (&json!(true), &json!([])));
    let next = cut["next"].as_str().unwrap();
    let rest = format!("/api/v1/queues/orders/lanes?order=key&state=crashed&after={next}");
    let rest = api.get(&rest).done();
    assert_eq!((&rest["cut"], &rest["next"]), (&json!(false), &Value::Null));
    let wrong = |query: &str| api.get(&format!("/api/v1/queues/orders/lanes?{query}")).refused(400);
    let (field, why) = wrong("state=waiting");
    assert!(field == "state" && why.contains("ready, scheduled"), "{field}: {why}");
    let lanes = api.get("/api/v1/queues/orders/lanes?order=key").done();
    let lane = lanes["lanes"][1]["lane"].as_str().unwrap();
    assert_eq!(list(&format!("lane={lane}")), ["eu/b"]);
    assert_eq!(wrong("lane=one").0, "lane");
    assert_eq!(wrong("due_from=soon").0, "due_from");
    assert_eq!(wrong("retries_min=many").0, "retries_min");
    assert_eq!(wrong("scan_max=0").0, "scan_max");
    api.get("/api/v1/queues/orders/lanes?node=nobody").refused(404);
}

#[tokio::test]
async fn l16_a_lane_is_paused_resumed_retried_and_deleted_whatever_its_key_holds() {
    let (api, _) = house().await;
    push(&api, "orders", &["a/b?c=d&e ü\"", "other"]);
    let key = "a%2Fb%3Fc%3Dd%26e+%C3%BC%22";
    let path = |action: &str| format!("/api/v1/queues/orders/lane{action}?key={key}");
    assert_eq!(api.get(&path("")).done()["key"], "a/b?c=d&e ü\"");
    assert_eq!(api.act(&path("/pause")).done()["count"], 1);
    assert_eq!(api.get(&path("")).done()["state"], "paused");
    assert_eq!(api.act(&path("/resume")).done()["count"], 1);
    assert_eq!(api.act(&path("/retry")).done()["count"], 1);
    assert_eq!(api.act(&path("/delete")).done()["count"], 1);
    api.get(&path("")).refused(404);
    api.act(&path("/pause")).refused(404);
    assert_eq!(api.act("/api/v1/queues/orders/lane/pause").refused(400).0, "key");
    let claim = json!({ "worker": "w", "queues": ["orders"] });
    api.post("/api/v1/work/claim", &claim).done();
    api.act("/api/v1/queues/orders/lane/delete?key=other").refused(409);
}

#[tokio::test]
async fn a_key_is_shown_in_all_queues_and_what_failed_of_it_can_be_buried() {
    let (api, hand) = house().await;
    push(&api, "orders", &["a", "b"]);
    push(&api, "mails", &["a"]);
    hand.fail_all("orders", "no").await;
    let shown = || api.get("/api/v1/key?key=a").done();
    let before = shown();
    assert_eq!(all(&before["queues"], "queue"), ["mails", "orders"]);
    let lane = &before["queues"][1]["lane"];
    assert_eq!((&lane["error"], &lane["waiting"][0]["attempt"]), (&json!("no"), &json!(1)));
    let why = lane["why"].as_str().unwrap();
    assert!(why.starts_with("due in"), "{why}");
    let told = text(&api.site.run(&["key", "a"]));
    for part in ["of orders", "of mails", why.split(' ').next().unwrap(), "no"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(api.act("/api/v1/queues/orders/lane/bury?key=a").done()["count"], 1);
    let buried = shown()["queues"][1].clone();
    assert_eq!((&buried["lane"], &buried["ended"][0]["error"]), (&Value::Null, &json!("no")));
    let told = text(&api.site.run(&["key", "a"]));
    assert!(told.contains("nothing of orders waits or runs") && told.contains("dead"), "{told}");
    for (queue, key, told) in [("orders", "b", "1 lane is"), ("mails", "a", "0 lanes are")] {
        let said = text(&api.site.run(&["lanes", "bury", queue, key]));
        assert!(said.contains(&format!("{told} buried")), "only what failed: {said}");
    }
    assert!(text(&api.site.run(&["key", "zz"])).contains("no queue knows the key \"zz\""));
}

#[tokio::test]
async fn l16_whole_queues_are_performed_buried_and_deleted() {
    let (api, hand) = house().await;
    push(&api, "orders", &["a", "b", "c"]);
    hand.fail_all("orders", "no").await;
    let act =
        |action: &str| api.act(&format!("/api/v1/queues/orders/{action}")).done()["count"].clone();
    assert_eq!(act("perform-all-now"), 3);
    assert_eq!(act("bury-failed"), 3);
    assert_eq!(act("delete-failed"), 0);
    let dead = api.get("/api/v1/queues/orders/morgue?order=key").done();
    assert_eq!(all(&dead["jobs"], "key"), ["a", "b", "c"]);
    let id = dead["jobs"][0]["job_id"].clone();
    let morgue = |action: &str, which: Value| {
        api.post(&format!("/api/v1/queues/orders/morgue/{action}"), &which)
    };
    assert_eq!(morgue("requeue", json!({ "jobs": [id] })).done()["count"], 1);
    assert_eq!(morgue("delete", json!({ "keys": ["b"] })).done()["count"], 1);
    for wrong in [json!({}), json!({ "all": false }), json!({ "all": true, "keys": [] })] {
        assert_eq!(morgue("delete", wrong).refused(400).0, "jobs");
    }
    assert_eq!(morgue("requeue", json!({ "jobs": ["x"] })).refused(400).0, "jobs[0]");
    assert_eq!(morgue("requeue", json!({ "all": true })).done()["count"], 1);
    let total = api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total["length"], &total["morgue_length"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn s3_n12_jobs_are_listed_shown_and_changed() {
    let (api, hand) = house().await;
    let ids = push(&api, "mails", &["a", "b", "c"]);
    let listed = api.get("/api/v1/jobs?queue=mails&limit=2").done();
    assert_eq!(all(&listed["jobs"], "key"), ["a", "b"]);
    let next = listed["next"].as_str().unwrap().replace('/', "%2F");
    let rest = api.get(&format!("/api/v1/jobs?queue=mails&limit=2&after={next}")).done();
    assert_eq!(all(&rest["jobs"], "key"), ["c"]);
    let path = |action: &str| format!("/api/v1/jobs/{}{action}", ids[0]);
    assert_eq!(api.get(&path("")).done()["payload"], "a");
    let moved = api.post(&path("/reschedule"), &json!({ "run_at": "2096-10-02T07:06:40Z" })).done();
    assert_eq!(moved["run_at"], "2096-10-02T07:06:40Z");
    assert_eq!(api.post(&path("/reschedule"), &json!({ "run_at": 5 })).refused(400).0, "run_at");
    assert_eq!(
        api.post(&path("/reschedule"), &json!({ "run_at": "9999-01-01T00:00:00Z" })).refused(400).0,
        "run_at"
    );
    assert_eq!(api.post(&path("/reassign"), &json!({ "node": "n1" })).done()["node"], "n1");
    assert_eq!(api.post(&path("/reassign"), &json!({})).refused(400).0, "node");
    assert_eq!(api.post(&path("/reassign"), &json!({ "node": null })).done().get("node"), None);
    api.act(&path("/retry")).done();
    hand.fail_all("mails", "broken").await;
    assert_eq!(api.get(&path("")).done()["status"], "dead");
    api.post(&path("/reschedule"), &json!({ "delay": 1 })).refused(409);
    assert_eq!(all(&api.get("/api/v1/jobs?state=dead").done()["jobs"], "error"), ["broken"; 3]);
    assert_eq!(api.act(&path("/retry")).done()["status"], "queued");
    assert_eq!(api.act(&path("/delete")).done()["deleted"], true);
    api.get(&path("")).refused(404);
    api.get("/api/v1/jobs?queue=nothing").refused(404);
    assert_eq!(api.get("/api/v1/jobs?state=failed").refused(400).0, "state");
}

#[tokio::test]
async fn jobs_are_found_by_prefix_task_text_and_time() {
    let (api, hand) = house().await;
    for (key, task, what) in [("a1", "ship", "box"), ("a2", "bill", "paper"), ("b1", "ship", "bag")]
    {
        let body = json!({ "key": key, "task": task, "payload": { "what": what } });
        api.post("/api/v1/queues/mails/jobs", &body).done();
    }
    let keys = |path: &str| {
        let page = api.get(path).done();
        all(&page["jobs"], "key").iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("/api/v1/jobs?task=ship"), ["a1", "b1"]);
    assert_eq!(keys("/api/v1/jobs?queue=mails&prefix=a&text=paper"), ["a2"]);
    assert_eq!(keys("/api/v1/jobs?queue=mails&from=2200-01-01T00:00:00Z"), [""; 0]);
    let cut = api.get("/api/v1/jobs?queue=mails&task=bill&scan_max=1").done();
    assert_eq!((&cut["cut"], &cut["jobs"]), (&json!(true), &json!([])));
    let next = cut["next"].as_str().unwrap().replace('/', "%2F");
    assert_eq!(keys(&format!("/api/v1/jobs?queue=mails&task=bill&after={next}")), ["a2"]);
    let short = api.get("/api/v1/jobs?queue=mails&payload_bytes_max=1").done();
    let short = short["jobs"].as_array().unwrap();
    let lengths: Vec<_> = short.iter().map(|job| job["payload_bytes"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [14, 16, 14]);
    assert!(short.iter().all(|job| job["payload_left_out"] == true && job["payload"].is_null()));
    hand.fail_all("mails", "no stamps").await;
    assert_eq!(keys("/api/v1/queues/mails/morgue?task=ship&order=key"), ["a1", "b1"]);
    assert_eq!(keys("/api/v1/queues/mails/morgue?error=stamps&text=bag"), ["b1"]);
    assert_eq!(keys("/api/v1/queues/mails/morgue?to=2020-01-01T00:00:00Z"), [""; 0]);
    for (path, field) in [
        ("/api/v1/jobs?from=soon", "from"),
        ("/api/v1/jobs?order=turn", "queue"),
        ("/api/v1/jobs?order=turn&queue=mails&state=queued", "order"),
        ("/api/v1/jobs?scan_max=0", "scan_max"),
        ("/api/v1/queues/mails/morgue?to=x", "to"),
    ] {
        assert_eq!(api.get(path).refused(400).0, field, "{path}");
    }
    let long = "x".repeat(2_000);
    assert_eq!(api.get(&format!("/api/v1/jobs?queue=mails&text={long}")).refused(400).0, "text");
}

#[tokio::test]
async fn a_dead_job_is_pushed_again_with_another_payload() {
    let (api, hand) = house().await;
    let ids = push(&api, "mails", &["a", "b"]);
    let edit = |id: &str, payload: Value| {
        let body = json!({ "job_id": id, "payload": payload });
        api.post("/api/v1/queues/mails/morgue/edit", &body)
    };
    edit(&ids[0], json!(1)).refused(409);
    hand.fail_all("mails", "broken").await;
    let edited = edit(&ids[0], json!({ "n": 7340.50 })).done();
    assert_eq!((&edited["edited"], &edited["status"]), (&json!(ids[0]), &json!("queued")));
    let path = format!("/api/v1/jobs/{}", edited["job_id"].as_str().unwrap());
    let job = api.get(&path).done();
    assert_eq!((&job["key"], &job["payload"]), (&json!("a"), &json!({ "n": 7340.5 })));
    assert_eq!(all(&api.get("/api/v1/queues/mails/morgue").done()["jobs"], "key"), ["b"]);
    edit(&ids[0], json!(1)).refused(404);
    let body = json!({ "job_id": ids[1], "payload": 1 });
    api.post("/api/v1/queues/orders/morgue/edit", &body).refused(409);
    let deeds = api.get("/api/v1/audit?action=edit").done();
    assert_eq!(deeds["entries"].as_array().unwrap().len(), 4, "{deeds}");
    // No time of day has it.
    assert!(!deeds.to_string().contains("7340.5"), "a payload is no matter of the log: {deeds}");
}

#[tokio::test]
async fn s9_nodes_are_listed_and_told() {
    let (api, _) = house().await;
    let nodes = api.get("/api/v1/nodes").done();
    assert!(all(&nodes["nodes"], "node").contains(&"hand-1"), "{nodes}");
    assert_eq!(
        api.act("/api/v1/nodes/hand-1/quiet").done(),
        json!({ "node": "hand-1", "command": "quiet" })
    );
    assert_eq!(api.get("/api/v1/nodes/hand-1").done()["state"], "quiet");
    assert_eq!(
        api.act("/api/v1/nodes/hand-1/resume").done(),
        json!({ "node": "hand-1", "command": "resume" })
    );
    assert_eq!(api.get("/api/v1/nodes/hand-1").done()["state"], "alive");
    assert_eq!(api.act("/api/v1/nodes/hand-1/stop").done()["command"], "stop");
    api.act("/api/v1/nodes/nobody/stop").refused(404);
}

#[test]
fn queues_of_the_configuration_are_there_from_the_first_request_on() {
    let queues: Vec<String> =
        (0..50).map(|i| format!("[queues.q{i}]\nmode = \"fifo\"\n")).collect();
    let api = Api::start(&queues.concat());
    assert_eq!(api.get("/api/v1/queues/q49").done()["mode"], "fifo");
}

#[test]
fn what_a_list_cannot_do_names_the_parameter_and_no_flag_of_the_command_line() {
    let api = Api::start("[queues.q]\nmode = \"fifo\"\n");
    for (path, name) in [
        ("/api/v1/jobs?after=x", "after"),
        ("/api/v1/queues/q/lanes?from=a", "from"),
        ("/api/v1/queues/q/lanes?order=age&to=a", "to"),
        ("/api/v1/queues/q/morgue?after=x", "after"),
    ] {
        let (field, detail) = api.get(path).refused(400);
        assert_eq!(field, name, "{path}: {detail}");
        assert!(!detail.contains("--"), "{path}: {detail}");
    }
}
