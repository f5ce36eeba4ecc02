//! Deeds on many jobs or lanes, from pages and by the API.

use serde_json::{Value, json};

use super::Api;
use super::client::{Answer, Request};
use crate::hand::Hand;
use crate::site::{Site, eventually, text};

const QUEUES: &str = "[queues.orders]\nmode = \"fifo\"\nmax_retries = 0\n";

/// A server whose store has this many dead jobs.
pub(crate) async fn with_dead(count: usize) -> Api {
    after_failures(count, QUEUES, seriatim::Queue::fifo("orders").max_retries(0)).await
}

/// A server whose store has this many keys that wait for a retry, and one that has not failed.
async fn with_failed(count: usize) -> Api {
    let queue = seriatim::Queue::fifo("orders");
    let api = after_failures(count, "[queues.orders]\nmode = \"fifo\"\n", queue).await;
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": "waits" })).done();
    api
}

async fn after_failures(count: usize, config: &str, queue: seriatim::Queue) -> Api {
    let site = Site::new(config);
    let hand = Hand::new(site.store().await, vec![queue]).await;
    for numbers in (0..count).collect::<Vec<_>>().chunks(100) {
        let job = |i: &usize| seriatim::Job::new("orders", i).unwrap().key(format!("k{i}"));
        let jobs = numbers.iter().map(job).collect();
        let push = seriatim::store::Push { now: Some(hand.now), jobs };
        hand.store.push(push).await.unwrap();
        hand.fail_all("orders", "timeout after 3s").await;
    }
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

pub(super) fn submit(api: &Api, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mark = super::pages::field(&api.get("/about").text(), "mark").unwrap();
    let mut body = form_urlencoded(fields);
    body.insert_str(0, &format!("mark={mark}&"));
    let request = Request::new("POST", path).body("application/x-www-form-urlencoded", body);
    request.header("Sec-Fetch-Site", "same-origin").send(&api.address)
}

fn form_urlencoded(fields: &[(&str, &str)]) -> String {
    let encoded =
        |text: &str| -> String { form_urlencoded::byte_serialize(text.as_bytes()).collect() };
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The operation of the page that an answer leads to.
fn led_to(answer: &Answer) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let place = answer.header("location").unwrap();
    place.strip_prefix("/operations/").unwrap_or_else(|| panic!("{place}")).to_owned()
}

fn shown(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/operations/{id}")).done()
}

async fn ended(api: &Api, id: &str) -> Value {
    eventually("it has ended", async || shown(api, id)["ended_at"].is_string()).await;
    shown(api, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cause_of_many_is_requeued_from_its_page() {
    let api = with_dead(1_200).await;
    let causes = api.get("/morgue?view=causes").text();
    let link = asks(&causes).into_iter().find(|link| link.contains("action=requeue&queue="));
    let page = api.get(&link.unwrap()).text();
    for part in [
        "1,200",
        "dead jobs of orders",
        "cause timeout after Ns",
        "In the cause, N stands for any number",
        "There is no undo.",
        "curl -X POST",
        "seriatim operations start requeue orders",
        "name=\"rate\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let before = page.split("name=\"before\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let fields = [
        ("action", "requeue"),
        ("queue", "orders"),
        ("cause", "timeout after Ns"),
        ("before", before),
    ];
    let id = led_to(&submit(&api, "/operations/start", &fields));
    let done = ended(&api, &id).await;
    assert_eq!(
        (&done["count"], &done["expected"], &done["state"]),
        (&json!(1_200), &json!(1_200), &json!("done"))
    );
    let page = api.get(&format!("/operations/{id}")).text();
    assert!(page.contains("1,200 of 1,200 dead jobs requeued"), "{page}");
    assert!(page.contains("In its cause, N stands for any number"), "{page}");
    let all = api.get("/operations").text();
    assert!(all.contains("Requeue dead jobs of orders") && all.contains("In a cause, N"), "{all}");
    let deeds = api.get("/api/v1/audit?limit=2").done();
    let [end, start] = [&deeds["entries"][0], &deeds["entries"][1]];
    assert_eq!(
        (&end["action"], &end["count"]),
        (&json!("operation done"), &json!(1_200)),
        "{deeds}"
    );
    assert_eq!(start["action"], "operation requeue", "{deeds}");
    assert_eq!(start["on"]["cause"], "timeout after Ns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_delete_more_than_a_thousand_their_number_is_typed_and_it_waits_for_an_undo() {
    let api = with_dead(1_001).await;
    let wish = [("action", "delete_dead"), ("queue", "orders")];
    let page = api.get("/operations/new?action=delete_dead&queue=orders").text();
    assert!(page.contains("type their number: 1001") && page.contains("can be undone"), "{page}");
    for typed in ["", "1000", "many"] {
        let refused =
            submit(&api, "/operations/start", &[&wish[..], &[("confirm", typed)]].concat());
        assert!(matches!(refused.status, 400 | 409), "{typed}: {}", refused.text());
        let page = refused.text();
        assert!(
            refused.status == 400 || page.contains("type 1,001") && page.contains("delete_dead")
        );
    }
    let by_api = json!({ "action": "delete_dead", "queue": "orders" });
    let (field, _) = api.post("/api/v1/operations", &by_api).refused(409);
    assert_eq!(field, "confirm");
    let begun = submit(&api, "/operations/start", &[&wish[..], &[("confirm", "1,001")]].concat());
    let said = begun.header("set-cookie").unwrap().to_owned();
    assert!(said.contains("operation.stop"), "{said}");
    let id = led_to(&begun);
    assert_eq!(shown(&api, &id)["state"], "waiting");
    let undone = submit(&api, "/do", &[("deed", "operation.stop"), ("operation", &id)]);
    assert_eq!(undone.status, 303);
    assert_eq!(shown(&api, &id)["state"], "stopped");
    assert_eq!(ended(&api, &id).await["count"], 0);
    assert_eq!(api.get("/api/v1/stats").done()["total"]["dead"], 1_001);
    let done = api.post("/api/v1/operations?confirm=1001", &by_api).done();
    let id = done["id"].as_str().unwrap();
    assert_eq!(ended(&api, id).await["count"], 1_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_in_a_queue_is_counted_before_it_is_deleted_and_that_can_be_undone() {
    let api = with_failed(3).await;
    let page = api.get("/queues/orders").text();
    for action in ["bury", "delete_failed"] {
        assert!(page.contains(&format!("action={action}&#38;queue=orders")), "{page}");
    }
    let ask = api.get("/operations/new?action=delete_failed&queue=orders").text();
    assert!(ask.contains("<strong>3</strong> lanes") && ask.contains("can be undone"), "{ask}");
    let wish = [("action", "delete_failed"), ("queue", "orders")];
    let id = led_to(&submit(&api, "/operations/start", &wish));
    assert_eq!(submit(&api, "/do", &[("deed", "operation.stop"), ("operation", &id)]).status, 303);
    assert_eq!(ended(&api, &id).await["count"], 0);
    let failed = || api.get("/api/v1/stats").done()["total"]["retrying"].clone();
    assert_eq!(failed(), 3, "it was undone");
    let by_api = json!({ "action": "delete_failed", "queue": "orders" });
    let id = api.post("/api/v1/operations", &by_api).done()["id"].as_str().unwrap().to_owned();
    assert_eq!(ended(&api, &id).await["count"], 3);
    assert_eq!(failed(), 0);
    assert_eq!(api.get("/api/v1/stats").done()["total"]["lanes"], 1, "what had not failed waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_behind_a_head_that_has_not_is_counted_and_buried_too() {
    let site = Site::new("[queues.orders]\nmode = \"exclusive\"\n");
    let hand = Hand::new(site.store().await, vec![seriatim::Queue::exclusive("orders")]).await;
    let push = async |tag: &str| {
        let job = seriatim::Job::new("orders", &tag).unwrap().key("k");
        let push = seriatim::store::Push { now: Some(hand.now), jobs: vec![job] };
        hand.store.push(push).await.unwrap();
    };
    push("bad").await;
    hand.fail_all("orders", "no stock").await;
    push("good").await;
    hand.store.close().await.unwrap();
    let api = Api::with(site, |_| {});
    assert!(api.get("/key?k=k").text().contains("Bury failed"));
    let wish = [("action", "bury"), ("queue", "orders")];
    let ask = api.get("/operations/new?action=bury&queue=orders").text();
    assert!(ask.contains("<strong>1</strong> lane"), "{ask}");
    let id = led_to(&submit(&api, "/operations/start", &wish));
    assert_eq!(ended(&api, &id).await["count"], 1);
    let dead = api.get("/api/v1/queues/orders/morgue").done();
    assert_eq!(dead["jobs"][0]["payload"], "bad", "{dead}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_page_deletes_can_be_undone_for_ten_seconds() {
    let api = with_dead(2).await;
    let jobs = api.get("/api/v1/queues/orders/morgue").done();
    let job = jobs["jobs"][0]["job_id"].as_str().unwrap();
    let answer = submit(&api, "/do", &[("deed", "job.delete"), ("job", job), ("back", "/morgue")]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/morgue")));
    let said = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Request::new("GET", "/morgue").header("Cookie", &said).send(&api.address).text();
    assert!(page.contains("will be deleted in 10 s") && page.contains("Undo"), "{page}");
    let id = page.split("name=\"operation\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(shown(&api, id)["state"], "waiting");
    let undo = submit(&api, "/do", &[("deed", "operation.stop"), ("operation", id)]);
    let said = undo.header("set-cookie").unwrap();
    assert!(undo.status == 303 && said.contains("undone%3A%20nothing%20was%20deleted"), "{said}");
    let page = api.get(&format!("/operations/{id}")).text();
    assert!(!page.contains("begins <time") && page.contains("state stopped"), "{page}");
    assert_eq!(ended(&api, id).await["count"], 0);
    assert_eq!(api.get("/api/v1/queues/orders/morgue").done(), jobs);
    let delete = json!({ "action": "delete_dead", "queue": "orders" });
    let id = api.post("/api/v1/operations", &delete).done()["id"].as_str().unwrap().to_owned();
    assert_eq!(ended(&api, &id).await["count"], 2);
    let late = submit(&api, "/do", &[("deed", "operation.stop"), ("operation", &id)]);
    assert!(late.header("set-cookie").unwrap().contains("too%20late"), "what is done stays done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_ticked_are_acted_on_and_no_others() {
    let api = with_dead(5).await;
    let jobs = api.get("/api/v1/queues/orders/morgue").done();
    let id = |i: usize| jobs["jobs"][i]["job_id"].as_str().unwrap();
    let ticked = [("action", "requeue"), ("queue", "orders"), ("jobs", id(0)), ("jobs", id(3))];
    let page = submit(&api, "/operations/new", &ticked);
    assert!(page.text().contains("2 chosen dead jobs of orders"), "{}", page.text());
    assert!(page.text().contains("href=\"/key?k="), "they are shown with their keys");
    let list = format!("{},{}", id(0), id(3));
    let fields = [("action", "requeue"), ("queue", "orders"), ("jobs", &*list)];
    let operation = led_to(&submit(&api, "/operations/start", &fields));
    assert_eq!(ended(&api, &operation).await["count"], 2);
    let left = api.get("/api/v1/queues/orders/morgue").done();
    assert_eq!(left["jobs"].as_array().unwrap().len(), 3);
    let none = submit(&api, "/operations/new", &[("action", "delete_dead"), ("queue", "orders")]);
    assert_eq!(none.status, 400);
    assert!(none.text().contains("no row is selected"), "{}", none.text());
    let mixed = [&fields[..], &[("key", "k1")]].concat();
    assert_eq!(submit(&api, "/operations/start", &mixed).status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_jobs_are_sent_back_at_a_rate_by_a_command_that_others_can_watch_and_stop() {
    let api = with_dead(40).await;
    let run = |args: &[&str]| api.site.run(&[&["morgue", "requeue", "orders"], args].concat());
    for (args, says) in [
        (&["--all", "--rate", "0/s"][..], "`500/s`"),
        (&["--rate", "5/s", "--key", "k1"], "--all"),
        (&["--rate", "5/s"], "required"),
    ] {
        let refused = text(&run(args));
        assert!(refused.contains(says), "{args:?}: {refused}");
    }
    let other = text(&run(&["--all", "--error", "no such error"]));
    assert!(other.contains("0 of 0 dead jobs requeued"), "{other}");
    let wish = json!({ "action": "requeue", "queue": "orders", "rate": "1/h" });
    let id = api.post("/api/v1/operations", &wish).done()["id"].as_str().unwrap().to_owned();
    eventually("the first key is sent", async || shown(&api, &id)["count"] == 1).await;
    let page = api.get(&format!("/operations/{id}")).text();
    assert!(page.contains("at most 1/h"), "{page}");
    api.post(&format!("/api/v1/operations/{id}/stop"), &json!({})).done();
    assert_eq!(ended(&api, &id).await["state"], "stopped");
    let since = "2026-01-31T12:00:00Z";
    let rest = text(&run(&["--all", "--error", "timeout", "--rate", "1000/s", "--since", since]));
    assert!(rest.contains("39 of 39 dead jobs requeued"), "{rest}");
}

/// Lets the runner of an operation have been silent for more than half a minute, and the rest come without its rate. To how
/// many it was done.
pub(crate) async fn age(site: &Site, id: &str) -> u64 {
    let store = site.store().await;
    let only = seriatim::store::NoteQuery::of(&format!("operation/{id}"));
    let note = store.read_notes(only).await.unwrap().remove(0);
    let mut record: Value = serde_json::from_slice(&note.value).unwrap();
    record["beat"] = json!(record["beat"].as_i64().unwrap() - 40_000_000);
    record["next_at"] = json!(0);
    record["what"].as_object_mut().unwrap().remove("rate").unwrap();
    let note = seriatim::store::Note::new(note.name, record.to_string());
    store.write_notes(vec![note]).await.unwrap();
    store.close().await.unwrap();
    record["count"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_node_is_killed_goes_on_and_each_job_is_sent_and_counted_once() {
    let api = with_dead(300).await;
    let wish = json!({ "action": "requeue", "queue": "orders", "rate": "100/s" });
    let id = api.post("/api/v1/operations", &wish).done()["id"].as_str().unwrap().to_owned();
    eventually("it has begun", async || shown(&api, &id)["count"] != 0).await;
    let site = api.killed();
    assert!(age(&site, &id).await < 300, "it was killed too late");
    let api = Api::with(site, |_| {});
    let page = api.get(&format!("/operations/{id}")).text();
    assert!(page.contains("If its node stops, another one continues"), "{page}");
    let done = ended(&api, &id).await;
    assert_eq!((&done["state"], &done["count"]), (&json!("done"), &done["expected"]), "{done}");
    let total = api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total["dead"], &total["jobs"]), (&json!(0), &json!(300)), "{total}");
    let deeds = api.get("/api/v1/audit?action=operation+done").done();
    let entries = deeds["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["count"]), (1, &json!(300)), "{deeds}");
}

/// The links of a page that ask before something is done to many.
fn asks(page: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let plain = links.map(|link| link.replace("&#38;", "&"));
    plain.filter(|link| link.starts_with("/operations/new?")).collect()
}

/// A server whose store has dead jobs of these queues, keys and tasks, all of one cause.
async fn with_cause(jobs: impl IntoIterator<Item = (&'static str, String, Option<&str>)>) -> Api {
    let names = ["orders", "shop"];
    let config: String = names.map(|name| format!("[queues.{name}]\nmode = \"fifo\"\n")).concat();
    let site = Site::new(&config);
    let queues = names.map(|name| seriatim::Queue::fifo(name).max_retries(0)).to_vec();
    let hand = Hand::new(site.store().await, queues).await;
    for (i, (queue, key, task)) in jobs.into_iter().enumerate() {
        let job = seriatim::Job::new(queue, &i).unwrap().key(key);
        hand.push(task.into_iter().fold(job, |job, task| job.task(task))).await;
        if i % 100 == 99 {
            hand.fail_all("orders", "timeout after 3s").await;
        }
    }
    for queue in names {
        hand.fail_all(queue, "timeout after 3s").await;
    }
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_operation_is_about_several_queues_or_all_and_is_counted_and_stopped_as_one() {
    let of = |queue: &'static str| (0..4).map(move |i| (queue, format!("{queue}-{i}"), None));
    let api = with_cause(of("orders").chain(of("shop"))).await;
    api.put("/api/v1/queues/empty", &json!({ "mode": "fifo" })).done();
    let link = asks(&api.get("/morgue?prefix=shop-").text()).remove(0);
    assert!(link.contains("queues=*") && link.contains("action=requeue"), "{link}");
    let page = api.get(&link).text();
    for part in ["<strong>4</strong>", "dead jobs of all queues", "--all-queues", "<td>shop</td>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let preview = |query: &str| {
        let path = format!("/api/v1/operations/preview?action=requeue&{query}");
        api.get(&path).done()["count"].clone()
    };
    assert_eq!(
        ["queues=orders,shop", "queues=*", "queues=shop&prefix=shop-1"].map(preview),
        [8, 8, 1]
    );
    // A rate holds for all together: the first queue takes its hour.
    let wish = json!({ "action": "requeue", "queues": ["shop", "orders"], "rate": "1/h" });
    let begun = api.post("/api/v1/operations", &wish).done();
    assert_eq!(
        (&begun["what"]["queues"], &begun["expected"]),
        (&json!(["orders", "shop"]), &json!(8))
    );
    let id = begun["id"].as_str().unwrap();
    eventually("the first is sent", async || shown(&api, id)["count"] == 1).await;
    api.post(&format!("/api/v1/operations/{id}/stop"), &json!({})).done();
    assert_eq!(ended(&api, id).await["state"], "stopped");
    let dead = || api.get("/api/v1/stats").done()["total"]["dead"].clone();
    assert_eq!(dead(), 7);
    let fields = [("action", "requeue"), ("queues", "*"), ("prefix", "shop-")];
    let id = led_to(&submit(&api, "/operations/start", &fields));
    let done = ended(&api, &id).await;
    assert_eq!((&done["count"], &done["state"]), (&json!(4), &json!("done")), "{done}");
    assert!(api.get(&format!("/operations/{id}")).text().contains("<a href=\"/queues/shop\">"));
    let by_queue = api.get("/api/v1/audit?queue=shop&action=operation+done").done();
    assert_eq!(by_queue["entries"][0]["count"], 4, "{by_queue}");
    let begun = api.get("/api/v1/audit?queue=shop").done();
    let begun = begun["entries"].as_array().unwrap();
    for action in ["operation start", "operation requeue"] {
        assert!(begun.iter().any(|deed| deed["action"] == action), "{action}: {begun:?}");
    }
    let told = text(&api.site.run(&["operations", "preview", "requeue", "orders", "shop"]));
    assert!(told.contains("\n  orders  "), "{told}");
    let run = ["operations", "start", "delete_dead", "--all-queues", "--yes"];
    let told = text(&api.site.run(&run));
    assert!(told.contains("3 of 3 dead jobs deleted"), "{told}");
    let of_queue = api.get("/api/v1/audit?queue=orders&action=operation+start").done();
    let last = &of_queue["entries"][0];
    assert!(last["who"].as_str().unwrap().starts_with("cli:"), "it names its queues: {of_queue}");
    let none = text(&api.site.run(&["operations", "start", "requeue", "--all-queues"]));
    assert!(none.contains("dead jobs of no queue") && none.contains("done"), "{none}");
    assert_eq!(dead(), 0);
    for (wish, field) in [
        (json!({ "action": "requeue" }), "queue"),
        (json!({ "action": "requeue", "queue": "shop", "queues": ["orders"] }), "queues"),
        (json!({ "action": "requeue", "queues": [] }), "queues"),
        (json!({ "action": "requeue", "queues": ["*", "shop"] }), "queues"),
        (json!({ "action": "pause", "queues": ["shop"], "lanes": ["1-0-1"] }), "queues"),
        (
            json!({ "action": "requeue", "queues": (0..51).map(|i| format!("q{i}")).collect::<Vec<_>>() }),
            "queues",
        ),
    ] {
        assert_eq!(api.post("/api/v1/operations", &wish).refused(400).0, field, "{wish}");
    }
    let unknown = json!({ "action": "requeue", "queues": ["shop", "nowhere"] });
    api.post("/api/v1/operations", &unknown).refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_of_several_queues_goes_on_if_one_of_them_is_deleted() {
    let of = |queue: &'static str| (0..2).map(move |i| (queue, format!("{queue}-{i}"), None));
    let api = with_cause(of("orders").chain(of("shop"))).await;
    let wish = json!({ "action": "requeue", "queues": ["*"], "rate": "1/s" });
    let id = api.post("/api/v1/operations", &wish).done()["id"].as_str().unwrap().to_owned();
    Request::new("DELETE", "/api/v1/queues/orders?force=true").send(&api.address).done();
    let done = ended(&api, &id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(api.get("/api/v1/queues/shop").done()["dead"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_changes_ten_thousand_lanes_and_an_operation_the_others() {
    const LANES: usize = 10_003;
    let api = Api::start("[queues.orders]\nmode = \"parallel\"\n");
    for numbers in (0..LANES).collect::<Vec<_>>().chunks(10_000) {
        let jobs: Vec<Value> =
            numbers.iter().map(|_| json!({ "payload": 1, "delay": "1h" })).collect();
        api.post("/api/v1/queues/orders/jobs", &json!(jobs)).done();
    }
    let act = async |action: &str| {
        let answer = api.act(&format!("/api/v1/queues/orders/{action}"));
        assert_eq!(answer.status, 202, "{}", answer.text());
        let done = answer.json();
        let id = done["operation"].as_str().unwrap();
        let place = format!("/api/v1/operations/{id}");
        assert_eq!(answer.header("location"), Some(&*place));
        assert_eq!((&done["count"], &done["more"]), (&json!(10_000), &json!(true)));
        ended(&api, id).await
    };
    assert_eq!(act("perform-all-now").await["count"], LANES);
    let due = api.get("/api/v1/queues/orders/lanes?state=scheduled&limit=1").done();
    assert_eq!(due["lanes"], json!([]));
    assert_eq!(act("drain").await["count"], 3);
    assert_eq!(api.get("/api/v1/queues/orders").done()["jobs"], 0);
    assert_eq!(api.act("/api/v1/queues/orders/drain").done(), json!({ "count": 0 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_buttons_of_a_cause_are_about_the_jobs_of_its_row() {
    let of = |key: &str, task| ("orders", key.to_owned(), task);
    let api = with_cause([
        of("eu/1", None),
        of("eu/2", Some("ship")),
        of("eu/3", Some("ship")),
        of("us/1", None),
        of("us/2", Some("ship")),
    ])
    .await;
    let page = api.get("/morgue?view=causes&queue=orders&prefix=eu%2F").text();
    let links = asks(&page);
    assert_eq!(links.iter().filter(|link| link.contains("prefix=eu%2F")).count(), links.len());
    let of_rows = |task: &str| -> Vec<String> {
        let meant = links.iter().filter(|link| link.contains("cause=") && link.contains(task));
        meant.map(|link| api.get(link).text()).collect()
    };
    for (task, count) in
        [("untasked=true", "1</strong> dead job."), ("task=ship", "2</strong> dead jobs.")]
    {
        let pages = of_rows(task);
        assert_eq!(pages.len(), 2, "{task}: {links:?}");
        for page in pages {
            assert!(page.contains(&format!("<strong>{count}")), "{task}: {page}");
        }
    }
    let list = "/morgue?queue=orders&#38;task=ship&#38;error=timeout%20after&#38;prefix=eu%2F\"";
    assert!(page.contains(list), "a row leads to its own jobs: {page}");
    let command = of_rows("untasked=true").concat();
    assert!(command.contains(" --untasked") && command.contains("untasked&#34;:true"), "{command}");
    let run = ["operations", "preview", "requeue", "orders", "--untasked"];
    assert!(text(&api.site.run(&run)).contains("without a task: 2"));
    let ids: Vec<&str> =
        page.split("<tr id=\"").skip(1).filter_map(|row| row.split('"').next()).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "an update tells the rows apart: {ids:?}");
    let searched = api.get("/morgue?view=causes&queue=orders&text=timeout").text();
    assert!(searched.contains("timeout after Ns") && asks(&searched).is_empty(), "{searched}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn causes_of_all_queues_have_the_latest_of_each() {
    let many = (0..1_050).map(|i| ("orders", format!("k{i}"), None));
    let api = with_cause(many.chain([("shop", "one".to_owned(), None)])).await;
    let page = api.get("/morgue?view=causes").text();
    for part in [
        "<a href=\"/morgue?queue=shop\">shop</a></td><td></td><td class=\"n\">1</td>",
        "<td class=\"n\">500+</td>",
        "latest 501 of 1,051 dead jobs, those of each queue.",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let one = api.get("/morgue?view=causes&queue=orders").text();
    assert!(one.contains("latest 1,000 of 1,050 dead jobs."), "{one}");
    let (all, one) = (api.get("/morgue").text(), api.get("/morgue?queue=orders").text());
    let (says, sorted) = ("Queue by queue", "<th scope=\"col\" aria-sort=\"descending\">When</th>");
    assert_eq!((all.contains(says), all.contains(sorted)), (false, true), "{all}");
    assert_eq!((one.contains(says), one.contains(sorted)), (false, true), "{one}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_match_are_those_that_the_page_lists() {
    let api = with_failed(3).await;
    let of = |query: &str| asks(&api.get(&format!("/queues/orders/lanes?{query}")).text());
    let action = |link: &String| link.split(['=', '&']).nth(1).unwrap().to_owned();
    let actions = |links: &[String]| links.iter().map(action).collect::<Vec<_>>();
    for (query, count) in [
        ("by=retry_count", "3</strong> lanes"),
        ("by=retry_count&retries_min=-1", "3</strong> lanes"),
        ("by=key&retries_min=0", "3</strong> lanes"),
        ("state=retrying,held", "3</strong> lanes"),
        ("prefix=k&due_from=2020-01-01T00:00:00Z", "3</strong> lanes"),
        ("due_to=2200-01-01T00:00:00Z", "4</strong> lanes"),
        ("state=ready&lag_min=0", "1</strong> lane"),
    ] {
        let links = of(query);
        assert_eq!(actions(&links), ["retry", "pause", "bury", "delete_waiting"], "{query}");
        for link in links.iter().filter(|link| !link.contains("bury")) {
            let page = api.get(link).text();
            assert!(page.contains(&format!("<strong>{count}")), "{link}: {page}");
            assert_eq!(page.contains(" --lag-min=0"), query.contains("lag_min"), "{page}");
        }
    }
    let bury = of("by=retry_count").remove(2);
    assert!(api.get(&bury).text().contains("<strong>3</strong> lanes"));
    assert_eq!(actions(&of("by=retry_count&state=running")), ["pause"]);
    assert_eq!(actions(&of("state=held,paused")), ["resume", "delete_waiting"]);
    let behind = api.get("/queues/orders/lanes?by=key&from=k1").text();
    assert_eq!(asks(&behind), Vec::<String>::new(), "operations have no such filter");
    let whole = asks(&api.get("/queues/orders/lanes?by=key").text());
    assert!(whole.iter().any(|link| link.contains("action=delete_waiting")), "{whole:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_are_acted_on_by_the_filters_of_their_listing() {
    let api = with_failed(3).await;
    let wish = json!({ "action": "pause", "queue": "orders", "state": "retrying,held",
        "retries_min": 0, "due_from": "2020-01-01T00:00:00Z", "due_to": "2200-01-01T00:00:00Z" });
    let begun = api.post("/api/v1/operations", &wish).done();
    assert_eq!((&begun["expected"], &begun["what"]["state"]), (&json!(3), &wish["state"]));
    assert_eq!(ended(&api, begun["id"].as_str().unwrap()).await["count"], 3);
    let run = |args: &[&str]| {
        text(&api.site.run(&[&["operations", "preview", "resume", "orders"], args].concat()))
    };
    let told = run(&["--state", "paused", "--retries-min", "0"]);
    assert!(told.contains("lanes of orders, state paused, retry count at least 0: 3"), "{told}");
    let told = run(&["--lag-min", "0"]);
    assert!(told.contains("lanes of orders, due for at least 0: 1"), "{told}");
    assert!(run(&["--due-from", "soon"]).contains("--due-from: write a time"));
    for (action, filter, value) in [
        ("requeue", "lag_min", json!("1h")),
        ("pause", "lag_min", json!("soon")),
        ("pause", "due_to", json!("soon")),
        ("pause", "retries_min", json!("many")),
        ("pause", "state", json!("retrying,odd")),
    ] {
        let mut wish = json!({ "action": action, "queue": "orders" });
        wish[filter] = value;
        assert_eq!(api.post("/api/v1/operations", &wish).refused(400).0, filter, "{wish}");
    }
    let nobody = json!({ "action": "pause", "queue": "orders", "node": "nobody" });
    api.post("/api/v1/operations", &nobody).refused(404);
    let claim = json!({ "worker": "w", "queues": ["orders"], "limit": 1 });
    api.post("/api/v1/work/claim", &claim).done();
    let links = asks(&api.get("/queues/orders/lanes?node=remote:w").text());
    assert!(links.len() == 1 && links[0].contains("action=pause"), "{links:?}");
    let page = api.get(&links[0]).text();
    assert!(page.contains("<strong>1</strong> lane") && page.contains("waits"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_found_among_the_first_may_be_begun_all_the_same() {
    let site = Site::new("[queues.orders]\nmode = \"parallel\"\n");
    let hand = Hand::new(site.store().await, vec![seriatim::Queue::parallel("orders")]).await;
    let later = std::time::Duration::from_secs(86_400);
    for _ in 0..10 {
        let job = |i: usize| seriatim::Job::new("orders", &i).unwrap().run_in(later);
        let jobs = (0..5_000).map(job).collect();
        let push = seriatim::store::Push { now: Some(hand.now), jobs };
        hand.store.push(push).await.unwrap();
    }
    hand.push(seriatim::Job::new("orders", &1).unwrap()).await;
    hand.fail_all("orders", "timeout").await;
    hand.store.close().await.unwrap();
    let api = Api::with(site, |_| {});
    let wish = [("action", "bury"), ("queue", "orders")];
    let page = api.get("/operations/new?action=bury&queue=orders").text();
    assert!(page.contains("None of the first 50,000 match."), "{page}");
    assert!(page.contains("action=\"/operations/start\""), "{page}");
    let id = led_to(&submit(&api, "/operations/start", &wish));
    assert_eq!(ended(&api, &id).await["count"], 1);
    let page = api.get("/operations/new?action=requeue&queue=orders&error=other").text();
    assert!(page.contains("There are none"), "{page}");
}

/// A queue that holds a key whose job has failed.
async fn holding() -> (Api, Hand) {
    let site =
        Site::new("[queues.orders]\nmode = \"fifo\"\nmax_retries = 0\nexhausted = \"hold\"\n");
    let queue = seriatim::Queue::fifo("orders").max_retries(0);
    let queue = queue.exhausted(seriatim::Exhaustion::Hold);
    let hand = Hand::new(site.store().await, vec![queue]).await;
    (Api::with(site, |_| {}), hand)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_not_ended_by_taking_back_a_pause() {
    let (api, hand) = holding().await;
    for key in ["held", "ended"] {
        hand.push(seriatim::Job::new("orders", &1).unwrap().key(key)).await;
    }
    hand.fail_all("orders", "no stock").await;
    hand.push(seriatim::Job::new("orders", &1).unwrap().key("free")).await;
    for (key, is_held) in [("held", true), ("free", false)] {
        let page = api.get(&format!("/key?k={key}")).text();
        assert_eq!(page.contains("Pause with a reason"), !is_held, "{page}");
        let does = |deed: &str| {
            let done = submit(&api, "/do", &[("deed", deed), ("queue", "orders"), ("key", key)]);
            assert_eq!(done.status, 303, "{}", done.text());
            done.header("set-cookie").unwrap().to_owned()
        };
        // The page was opened before.
        let said = does("lane.pause");
        assert_eq!(said.contains("deed=lane.resume"), !is_held, "{said}");
    }
    // Nor is the end of a hold taken back by a pause.
    let lane = [("deed", "lane.resume"), ("queue", "orders"), ("key", "ended")];
    let said = submit(&api, "/do", &lane).header("set-cookie").unwrap().to_owned();
    assert!(said.contains("resumed") && !said.contains("lane.pause"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_more_queues_than_an_operation_can_have_the_page_asks_to_choose_one() {
    let site = Site::new("");
    let name = |i: usize| format!("q-{i:02}");
    let queues = (0..51).map(|i| seriatim::Queue::parallel(name(i)).max_retries(0)).collect();
    let hand = Hand::new(site.store().await, queues).await;
    let dies = async |i: usize| {
        hand.push(seriatim::Job::new(name(i), &i).unwrap()).await;
        hand.fail_all(&name(i), "no stock").await;
    };
    for i in 0..50 {
        dies(i).await;
    }
    let api = Api::with(site, |_| {});
    let all = "/operations/new?action=requeue&#38;queues=*";
    let page = api.get("/morgue").text();
    assert!(page.contains(all) && !page.contains("narrow it"), "{page}");
    dies(50).await;
    let page = api.get("/morgue").text();
    assert!(page.contains("narrow it to a queue: 51 queues have dead jobs"), "{page}");
    assert!(!page.contains("/operations/new"), "{page}");
    let page = api.get("/morgue?queue=q-50").text();
    assert!(page.contains("/operations/new?action=requeue") && !page.contains("narrow"), "{page}");
}

/// The form by which the next page takes a deed back.
pub(super) fn undo_of(api: &Api, done: &Answer) -> Option<Vec<(String, String)>> {
    assert_eq!(done.status, 303, "{}", done.text());
    let said = done.header("set-cookie").unwrap().split(';').next().unwrap();
    let page = Request::new("GET", "/about").header("Cookie", said).send(&api.address).text();
    let form = page.split_once("role=\"status\"").unwrap().1.split("</div>").next().unwrap();
    form.contains("Undo").then(|| {
        let fields = form.split("name=\"").skip(1).map(|field| {
            let (name, value) = field.split_once("\" value=\"").unwrap();
            (name.to_owned(), value.split('"').next().unwrap().replace("&#34;", "\""))
        });
        fields.filter(|(name, _)| name != "mark").collect()
    })
}

pub(super) fn undoes(api: &Api, form: &[(String, String)]) -> Answer {
    let fields: Vec<(&str, &str)> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    submit(api, "/do", &fields)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_takes_back_its_own_pause_alone() {
    let api = Api::start(QUEUES);
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": "k" })).done();
    let lane = "/api/v1/queues/orders/lane";
    let key = [("queue", "orders"), ("key", "k")];
    for (noun, on, path, query) in
        [("lane", &key[..], lane, "?key=k"), ("queue", &key[..1], "/api/v1/queues/orders", "")]
    {
        let does = |verb: &str| {
            let deed = format!("{noun}.{verb}");
            submit(&api, "/do", &[&[("deed", &*deed)], on].concat())
        };
        let paused = does("pause");
        let own = undo_of(&api, &paused).unwrap();
        assert!(undo_of(&api, &does("pause")).is_none(), "it changed nothing");
        // Somebody else resumes it, and pauses it again.
        for verb in ["resume", "pause"] {
            api.act(&format!("{path}/{verb}{query}")).done();
        }
        let late = undoes(&api, &own);
        assert!(late.status == 409 && late.text().contains("was changed since"), "{}", late.text());
        let state = || api.get(&format!("{path}{query}")).done();
        assert!(state()["paused"] == true || state()["state"] == "paused", "{}", state());
        // What is the last can be taken back.
        assert_eq!(does("resume").status, 303);
        let own = undo_of(&api, &does("pause")).unwrap();
        assert_eq!(undoes(&api, &own).status, 303);
        assert!(state()["paused"] == false || state()["state"] == "waiting", "{}", state());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_began_under_a_pause_stays_when_the_pause_is_taken_back() {
    let (api, hand) = holding().await;
    hand.push(seriatim::Job::new("orders", &1).unwrap().key("k")).await;
    let turns = hand.claim("orders").await;
    let pause = [("deed", "lane.pause"), ("queue", "orders"), ("key", "k")];
    let own = undo_of(&api, &submit(&api, "/do", &pause)).unwrap();
    assert!(undo_of(&api, &submit(&api, "/do", &pause)).is_none(), "it was paused already");
    assert_eq!(undoes(&api, &own).status, 409, "another pause is the last");
    hand.end(&turns[0], seriatim::Outcome::Retry { error: "no stock".into(), retry_in: None })
        .await;
    api.act("/api/v1/queues/orders/lane/resume?key=k").done();
    let state = || api.get("/api/v1/queues/orders/lane?key=k").done()["state"].clone();
    assert_eq!(state(), "waiting", "who resumes it means both");
    let turns = hand.claim("orders").await;
    let own = undo_of(&api, &submit(&api, "/do", &pause)).unwrap();
    hand.end(&turns[0], seriatim::Outcome::Retry { error: "no stock".into(), retry_in: None })
        .await;
    assert_eq!(state(), "paused");
    let page = api.get("/key?k=k").text();
    assert!(page.contains("also held") && page.contains("resuming it ends both"), "{page}");
    let refused = undoes(&api, &own);
    assert!(
        refused.status == 409 && refused.text().contains("would end its hold too"),
        "{}",
        refused.text()
    );
    assert_eq!(state(), "paused");
}

#[test]
fn a_long_key_leaves_room_for_the_undo() {
    let api = Api::start(QUEUES);
    let key = "ж".repeat(256);
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": key })).done();
    for (deed, undo, text) in [
        ("lane.pause", "lane.resume", "paused; a running turn finishes"),
        ("lane.resume", "lane.pause", "resumed"),
        ("lane.delete", "operation.stop", "will be deleted in 10 s"),
    ] {
        let done = submit(&api, "/do", &[("deed", deed), ("queue", "orders"), ("key", &key)]);
        let cookie = done.header("set-cookie").unwrap_or_else(|| panic!("{deed}: {}", done.status));
        assert!(cookie.len() <= 4_096, "{deed}: {} bytes", cookie.len());
        let said = cookie.split(';').next().unwrap();
        let page = Request::new("GET", "/queues").header("Cookie", said).send(&api.address).text();
        assert!(page.contains(text) && page.contains(&format!("value=\"{undo}\"")), "{page}");
        let field = format!("name=\"key\" value=\"{key}\"");
        assert_eq!(page.contains(&field), undo.starts_with("lane."), "{deed}");
    }
}
