//! Throttled keys over HTTP and on the command line.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;

const CONFIG: &str = "[queues.orders]\nmode = \"fifo\"\nretain_completed = \"1h\"\nthrottle = \"1h\"\nthrottled = \"refuse\"\n\
    [queues.mails]\nmode = \"exclusive\"\nthrottle = \"1h\"\n\
    [journal]\nenabled = true\n";
const PATH: &str = "/api/v1/queues/orders/jobs";

/// `seriatim push orders`: the exit code, stdout and stderr.
fn push(api: &Api, args: &[&str]) -> (Option<i32>, String, String) {
    let output = api.site.run(&[&["push", "orders"], args].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_refused_push_is_answered_with_the_time_when_it_may_come_again() {
    let api = Api::start(CONFIG);
    let first = api.post(PATH, &json!({ "key": "a" })).done()["jobs"][0].clone();
    assert_eq!((&first["status"], first.get("again_at")), (&json!("queued"), None));
    let body = json!([{ "key": "a" }, { "key": "b", "idempotency_key": "i" }, { "key": "b" }]);
    let jobs = api.post(PATH, &body).done()["jobs"].clone();
    let status = |place: usize| jobs[place]["status"].as_str().unwrap();
    assert_eq!([status(0), status(1), status(2)], ["throttled", "queued", "throttled"]);
    assert_eq!(
        [&jobs[0]["job_id"], &jobs[2]["job_id"]],
        [&first["job_id"], &jobs[1]["job_id"]],
        "the job that came before"
    );
    let at = jobs[0]["again_at"].as_str().unwrap().to_owned();
    assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
    assert!(at.as_str() <= jobs[2]["again_at"].as_str().unwrap());
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 2);
    // Who has no place for such an answer gets an error.
    let said = format!("refused: key \"a\" may be pushed again at {}", &at[..20]);
    let wait = api.post(&format!("{PATH}?wait=1s"), &json!({ "key": "a" }));
    let trigger = json!({ "queue": "orders", "task": "t", "lock_key": "a" });
    for answer in [wait, api.post("/api/v1/jobs/trigger", &trigger)] {
        let (_, detail) = answer.refused(409);
        assert!(detail.contains(&said), "{detail}");
    }
    let lines = "{\"key\":\"a\"}\n{\"key\":\"c\"}\n{\"key\":\"c\"}\n";
    let stream = Request::new("POST", PATH).body("application/x-ndjson", lines);
    let streamed = stream.send(&api.address).done();
    let counts = ["pushed", "merged", "duplicate", "throttled"].map(|name| streamed[name].as_u64());
    assert_eq!(counts, [1, 0, 0, 2].map(Some), "{streamed}");
    assert!(streamed["again_at"].as_str().unwrap() > &*at, "the latest: {streamed}");
}

#[test]
fn a_merged_push_of_a_throttled_key_tells_the_time_too() {
    let api = Api::start(CONFIG);
    let path = "/api/v1/queues/mails/jobs";
    let first = api.post(path, &json!({ "key": "a" })).done()["jobs"][0].clone();
    let again = api.post(path, &json!({ "key": "a" })).done()["jobs"][0].clone();
    assert_eq!((&again["status"], &again["job_id"]), (&json!("merged"), &first["job_id"]));
    assert!(again["again_at"].is_string(), "{again}");
}

#[test]
fn what_becomes_of_throttled_pushes_is_shown_and_misuse_is_refused() {
    let api = Api::start(CONFIG);
    let settings = |queue: &str| {
        let shown = api.get(&format!("/api/v1/queues/{queue}")).done();
        ["throttle", "throttled"].map(|name| shown["settings"][name].clone())
    };
    assert_eq!(settings("orders"), [json!("1h"), json!("refuse")]);
    assert_eq!(settings("mails"), [json!("1h"), json!("merge")]);
    let page = Request::new("GET", "/queues/orders").send(&api.address);
    assert!(
        page.text().contains("throttled = &quot;refuse&quot;")
            || page.text().contains("throttled = &#34;refuse&#34;")
    );
    let shown = api.site.run(&["queues", "show", "mails"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("throttled = \"merge\""));
    let declare = |body: Value| api.put("/api/v1/queues/other", &body).refused(400);
    let (field, detail) = declare(json!({ "mode": "fifo", "throttled": "refuse" }));
    assert!(field == "throttled" && detail.contains("needs a `throttle`"), "{field}: {detail}");
    let (field, detail) = declare(json!({ "mode": "fifo", "throttle": "1h", "throttled": "drop" }));
    assert!(
        field == "throttled" && detail.contains("write \"merge\", \"refuse\""),
        "{field}: {detail}"
    );
    let (field, _) =
        declare(json!({ "mode": "parallel", "throttle": "1h", "throttled": "refuse" }));
    assert_eq!(field, "throttle");
}

#[test]
fn the_command_line_says_when_a_refused_push_may_come_again_and_fails() {
    let api = Api::start(CONFIG);
    let (code, told, _) = push(&api, &["1", "--key", "a"]);
    assert!(code == Some(0) && told.ends_with(" queued\n"), "{told}");
    let said = "refused: key \"a\" may be pushed again at 20";
    for args in [&["2", "--key", "a"][..], &["2", "--key", "a", "--wait=1s"]] {
        let (code, told, error) = push(&api, args);
        assert_eq!((code, &*told), (Some(1), ""), "{error}");
        assert!(error.contains(said), "{error}");
    }
    let (code, told, error) = push(&api, &["2", "3", "--key", "a"]);
    assert_eq!((code, &*told, error.matches(said).count()), (Some(1), "", 2), "{error}");
    let (code, told, error) = push(&api, &["2", "3", "--key", "a", "--json"]);
    let [told, error]: [Value; 2] = [told, error].map(|text| serde_json::from_str(&text).unwrap());
    assert_eq!((code, &told["jobs"][1]["status"]), (Some(1), &json!("throttled")));
    assert!(error["error"]["message"].as_str().unwrap().starts_with(said), "{error}");
    let lines = "{\"key\":\"b\"}\n{\"key\":\"a\"}\n{\"key\":\"c\"}\n{\"key\":\"b\"}\n";
    std::fs::write(api.site.path("jobs.ndjson"), lines).unwrap();
    let (code, told, error) = push(&api, &["--file", "jobs.ndjson"]);
    assert_eq!((code, &*told), (Some(1), "pushed 2 jobs\n"), "{error}");
    assert!(
        error.contains("refused: 2 jobs of throttled keys, the first one in line 2"),
        "{error}"
    );
}

#[test]
fn a_dead_job_of_a_queue_that_throttles_its_keys_is_not_edited() {
    let api = Api::start(CONFIG);
    for queue in ["orders", "mails"] {
        let job = json!({ "key": "a", "payload": "first" });
        let pushed = api.post(&format!("/api/v1/queues/{queue}/jobs"), &job).done();
        let id = pushed["jobs"][0]["job_id"].clone();
        let claim = json!({ "worker": "w", "queues": [queue] });
        let mut result = api.post("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
        let names = ["lane", "token", "secret"];
        result.as_object_mut().unwrap().retain(|name, _| names.contains(&name.as_str()));
        (result["outcome"], result["error"]) = ("bury".into(), "broken".into());
        api.post("/api/v1/work/settle", &json!({ "worker": "w", "results": [result] })).done();
        let edit = json!({ "job_id": id, "payload": "second" });
        let edited = api.post(&format!("/api/v1/queues/{queue}/morgue/edit"), &edit);
        let (_, detail) = edited.refused(409);
        assert!(detail.contains("throttles its keys") && detail.contains("requeue it"), "{detail}");
        let dead = api.get(&format!("/api/v1/queues/{queue}/morgue")).done();
        assert_eq!(dead["jobs"][0]["payload"], "first", "it is still there");
    }
}

#[test]
fn the_journal_has_refused_pushes_of_a_key_with_the_job_before_them() {
    let api = Api::start(CONFIG);
    let id = api.post(PATH, &json!({ "key": "a" })).done()["jobs"][0]["job_id"].clone();
    api.post(PATH, &json!({ "key": "a" })).done();
    let path = format!("/api/v1/jobs/{}/events", id.as_str().unwrap());
    let begun = std::time::Instant::now();
    loop {
        let events = api.get(&path).done();
        if events.to_string().contains("\"throttled\"") {
            break;
        }
        assert!(begun.elapsed() < crate::site::PATIENCE, "{events}");
        std::thread::yield_now();
    }
}
