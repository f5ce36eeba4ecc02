//! What happened, told afterwards and while it happens.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::Api;
use super::client::Request;

const CONFIG: &str = "[journal]\nenabled = true\nqueues = [\"orders\"]\n\
    [queues.orders]\nmode = \"fifo\"\nbackoff = { kind = \"constant\", base = \"0s\" }\n\
    [queues.plain]\nmode = \"fifo\"\n\
    [[cron]]\nname = \"nightly\"\nschedule = \"0 3 * * *\"\nqueue = \"plain\"\nkey = \"n\"\n";

fn push(api: &Api, queue: &str) -> String {
    let pushed = api.post(&format!("/api/v1/queues/{queue}/jobs"), &json!({ "key": "k" })).done();
    pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned()
}

fn work(api: &Api, queue: &str, outcome: &str) {
    let claim = json!({ "worker": "w", "queues": [queue], "wait_ms": 60_000 });
    let lane = api.post("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
    let error = (outcome != "done").then_some("down");
    assert_eq!(api.settled(&lane, json!({ "outcome": outcome, "error": error })), "ok");
}

fn words(document: &Value) -> Vec<&str> {
    let events = document["events"].as_array().unwrap();
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn d14_the_journal_tells_what_happened_to_a_job_also_after_a_restart() {
    let api = Api::start(CONFIG);
    let (id, cancelled) = (push(&api, "orders"), push(&api, "orders"));
    work(&api, "orders", "retry");
    work(&api, "orders", "bury");
    let requeue = json!({ "jobs": [id] });
    api.post("/api/v1/queues/orders/morgue/requeue", &requeue).done();
    api.act(&format!("/api/v1/jobs/{cancelled}/cancel")).done();
    let at = json!({ "delay": "1h" });
    api.post(&format!("/api/v1/jobs/{id}/reschedule"), &at).done();
    api.act(&format!("/api/v1/jobs/{id}/retry")).done();
    assert!(api.get(&format!("/jobs/{id}")).text().contains(&format!("/jobs/{id}/events")));
    work(&api, "orders", "done");
    let path = format!("/api/v1/jobs/{id}/events");
    let events = api.get(&path).done();
    let expected = [
        "queued",
        "claimed",
        "retry",
        "claimed",
        "dead",
        "requeued",
        "rescheduled",
        "rescheduled",
        "claimed",
        "succeeded",
    ];
    assert_eq!(words(&events), expected);
    assert_eq!(events["journal"], true);
    assert_eq!(
        (&events["events"][2]["error"], &events["events"][3]["attempt"]),
        (&json!("down"), &json!(2))
    );
    let other = api.get(&format!("/api/v1/jobs/{cancelled}/events")).done();
    assert_eq!(words(&other), ["queued", "canceled"]);
    let page = api.get(&format!("/jobs/{id}/events")).text();
    assert!(page.contains("rescheduled") && page.contains("down"), "{page}");
    let site = api.stopped();
    let again = Api::with(site, |_| {});
    assert_eq!(again.get(&path).done(), events);
}

#[test]
fn d14_every_server_and_the_command_line_tell_the_same_story() {
    let api = Api::start(CONFIG);
    let (id, other) = (push(&api, "orders"), push(&api, "orders"));
    work(&api, "orders", "done");
    let path = format!("/api/v1/jobs/{id}/events");
    let events = api.get(&path).done();
    assert_eq!(words(&events), ["queued", "claimed", "succeeded"]);
    // It keeps no journal itself.
    let store = api.site.path("seriatim.db");
    let second = Api::start(&format!("[store]\nurl = \"sqlite:{}\"\n", store.display()));
    assert_eq!(second.get(&path).done(), events);
    let listed = |query: &str| second.get(&format!("/api/v1/queues/orders/events{query}")).done();
    let all = listed("?key=k");
    assert_eq!(words(&all), ["succeeded", "claimed", "queued", "queued"]);
    assert_eq!(
        (&all["next"], listed("?key=l")["events"].as_array().unwrap().len()),
        (&Value::Null, 0)
    );
    assert_eq!(words(&listed(&format!("?job={other}"))), ["queued"]);
    assert_eq!(words(&listed("?since=2126-01-31T12:00:00Z")), Vec::<&str>::new());
    let first = listed("?limit=3");
    let rest = listed(&format!("?limit=3&after={}", first["next"].as_str().unwrap()));
    assert_eq!(
        (words(&first).len(), words(&rest), &rest["next"]),
        (3, vec!["queued"], &Value::Null)
    );
    second.get("/api/v1/queues/orders/events?after=x").refused(400);
    second.get("/api/v1/queues/ordres/events").refused(404);
    let run = |args: &[&str]| {
        let output = api.site.run(&[&["jobs", "events"], args].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told: Value = serde_json::from_str(&run(&[&id, "--json"])).unwrap();
    assert_eq!(words(&told), ["succeeded", "claimed", "queued"]);
    let told = run(&["--queue", "orders", "--key", "k", "--since", "1h"]);
    assert!(told.contains(&other) && told.contains("succeeded"), "{told}");
    assert!(run(&["--queue", "plain"]).contains("no events"));
}

#[test]
fn a_queue_without_a_journal_tells_what_the_store_remembers() {
    let api = Api::start(CONFIG);
    let id = push(&api, "plain");
    work(&api, "plain", "bury");
    let events = api.get(&format!("/api/v1/jobs/{id}/events")).done();
    assert_eq!(
        (words(&events), &events["journal"]),
        (vec!["queued", "claimed", "dead"], &json!(false))
    );
    assert_eq!(events["events"][2]["error"], "down");
    api.get("/api/v1/jobs/01a1fd84-a548-7000-8001-00000000ffff/events").refused(404);
}

#[test]
fn cron_entries_are_listed_with_their_next_ticks() {
    let api = Api::start(CONFIG);
    api.knows_cron("nightly", None);
    let cron = api.get("/api/v1/cron").done()["cron"].clone();
    assert_eq!(
        (&cron[0]["name"], &cron[0]["definitions"][0]["queue"]),
        (&json!("nightly"), &json!("plain"))
    );
    assert_eq!(cron[0]["next"].as_array().unwrap().len(), 3);
    assert!(cron[0]["next"][0].as_str().unwrap().ends_with("T03:00:00Z"), "{cron}");
}

/// A stream of events.
struct Listening(BufReader<TcpStream>);

impl Listening {
    fn start(api: &Api, path: &str, last: Option<&str>) -> Self {
        let request = Request::new("GET", path);
        let request =
            last.into_iter().fold(request, |request, id| request.header("Last-Event-ID", id));
        let mut stream = Self(BufReader::new(request.start(&api.address)));
        // It is heard from the moment on at which its head is here.
        while stream.line() != "" {}
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// The next message of this kind: its id and document.
    fn next(&mut self, kind: &str) -> (String, Value) {
        let mut id = String::new();
        loop {
            let line = self.line();
            if let Some(said) = line.strip_prefix("id: ") {
                said.clone_into(&mut id);
            }
            if line == format!("event: {kind}") {
                let data = self.line();
                return (id, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap());
            }
        }
    }
}

#[test]
fn listeners_hear_of_turns_and_numbers_and_of_what_they_missed() {
    let api = Api::start(CONFIG);
    let mut all = Listening::start(&api, "/api/v1/events", None);
    let mut orders = Listening::start(&api, "/api/v1/events?queue=orders", None);
    let (_, stats) = all.next("stats");
    assert!(stats["total"]["length"].is_number() && stats["turns_left_out"] == 0, "{stats}");
    push(&api, "plain");
    work(&api, "plain", "retry");
    push(&api, "orders");
    work(&api, "orders", "done");
    let (id, turn) = all.next("turn");
    assert_eq!(
        (&turn["event"], &turn["queue"], &turn["key"]),
        (&json!("claimed"), &json!("plain"), &json!("k"))
    );
    let turn = all.next("turn").1;
    assert_eq!((&turn["event"], &turn["error"]), (&json!("failed"), &json!("down")));
    assert_eq!(orders.next("turn").1["event"], "claimed");
    let done = orders.next("turn").1;
    assert_eq!(
        (&done["event"], &done["queue"], &done["jobs"]),
        (&json!("done"), &json!("orders"), &json!(1))
    );
    let mut back = Listening::start(&api, "/api/v1/events", Some(&id));
    assert_eq!(back.next("turn").1["event"], "failed");
    api.get("/api/v1/events?kind=turn").refused(400);
}
