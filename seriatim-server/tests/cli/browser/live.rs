//! Many tabs, streams that do not come through, and rows that stay selected.

use serde_json::{Value, json};

use super::window::Window;
use crate::hand::Hand;
use crate::http::Api;
use crate::site::{Site, eventually};

const QUEUES: &str = "[queues.mails]\nmode = \"fifo\"\nmax_retries = 0\n";
/// Pages ask by themselves every few seconds (`EVERY` in `app.js`). With this, pages with a query do not: what they show came
/// through a stream.
const ASKS_BY_ITSELF: &str = "const later = window.setTimeout;
    window.setTimeout = (what, wait) => location.search && wait >= 1000 ? -1 : later(what, wait);";
/// Those who hold and who wait for the stream of a browser.
const LOCKS: &str = "const done = arguments[arguments.length - 1];
    navigator.locks.query().then((locks) => done([locks.held.length, locks.pending.length]));";

fn push(api: &Api, key: &str) {
    let job = json!({ "key": key, "delay": "1h" });
    api.post("/api/v1/queues/mails/jobs", &job).done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tabs_stay_current_and_one_of_them_listens() {
    let api = Api::start(QUEUES);
    push(&api, "m-first");
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/queues/mails/lanes").await;
    for _ in 1..10 {
        window.another_tab().await;
        window.go("/queues/mails/lanes").await;
        window.shows("m-first").await;
    }
    let locks = window.run_async(LOCKS).await;
    assert_eq!(locks[0], 1, "one tab listens: {locks}");
    push(&api, "m-second");
    for tab in 0..10 {
        window.to_tab(tab).await;
        window.shows("m-second").await;
    }
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_seen_before_the_page_would_have_asked_and_also_where_the_stream_is_blocked() {
    let api = Api::start(QUEUES);
    push(&api, "m-first");
    let window = Window::open(&api.address, 1280, 900).await;
    window.before_each_page(ASKS_BY_ITSELF).await;
    window.go("/queues/mails/lanes?by=key").await;
    window.shows("m-first").await;
    push(&api, "m-second");
    eventually("the stream sends it", async || {
        // The stream compares figures: a change before its first ones is sent with the next one.
        push(&api, "m-first");
        window.text().await.contains("m-second")
    })
    .await;
    window.block("/live").await;
    window.go("/queues/mails/lanes").await;
    push(&api, "m-third");
    window.shows("m-third").await;
    window.close().await;
}

/// A store with this many dead jobs.
async fn with_dead(count: usize) -> Api {
    let site = Site::new(QUEUES);
    let queues = vec![seriatim::Queue::fifo("mails").max_retries(0)];
    let hand = Hand::new(site.store().await, queues).await;
    for i in 0..count {
        hand.push(seriatim::Job::new("mails", &i).unwrap().key(format!("k{i}"))).await;
    }
    hand.fail_all("mails", "no such address").await;
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_stay_selected_from_page_to_page_and_are_acted_on_together() {
    let api = with_dead(60).await;
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/morgue?queue=mails").await;
    let colour = "return getComputedStyle(document.querySelector('#ticked button')).color";
    let off = window.run(colour).await;
    let tick = "document.querySelector('tbody input[type=checkbox]').click()";
    window.run(tick).await;
    window.shows("1 selected").await;
    assert_ne!(window.run(colour).await, off, "a button that does nothing looks so");
    window.press("Next page").await;
    window.until("the next page", "location.search.includes('after')").await;
    window.run(tick).await;
    window.shows("2 selected").await;
    window.keys("jjx").await;
    window.shows("3 selected").await;
    window.press("Requeue selected…").await;
    window.shows("3 chosen dead jobs of mails").await;
    window.press("Requeue").await;
    window.shows("3 of 3 dead jobs requeued").await;
    let stats = api.get("/api/v1/stats").done();
    assert_eq!(stats["total"]["dead"], 57);
    let kept: Value = window.run("return sessionStorage.length").await;
    assert_eq!(kept, 0, "what was begun is not selected any more");
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_come_to_an_empty_page_are_selected_and_acted_on() {
    let api = Api::start(QUEUES);
    let window = Window::open(&api.address, 1280, 900).await;
    window.asks_soon().await;
    for (path, button) in
        [("/queues/mails/lanes", "Pause selected…"), ("/jobs?queue=mails", "Cancel selected…")]
    {
        window.go(path).await;
        push(&api, "m-first");
        window.shows("m-first").await;
        window.run("document.querySelector('tbody input').click()").await;
        window.press(button).await;
        window.shows("1 chosen").await;
        api.act("/api/v1/queues/mails/drain").done();
    }
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cause_that_is_requeued_is_stopped_halfway_on_its_page() {
    let api = with_dead(60).await;
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/morgue?view=causes&queue=mails").await;
    window.press("Requeue…").await;
    window.shows("60 dead jobs").await;
    window.run("document.querySelector('[name=rate]').focus()").await;
    // All of it would take a minute: it is stopped before.
    window.keys("1/s").await;
    window.press("Requeue").await;
    window.until("it has begun", "document.querySelector('progress')?.value > 0").await;
    window.press("Stop").await;
    window.shows("stopped it").await;
    let operations = api.get("/api/v1/operations").done();
    let operation = &operations["operations"][0];
    let is_stopped =
        async || api.get("/api/v1/operations").done()["operations"][0]["state"] == "stopped";
    eventually("it ends before its next step", is_stopped).await;
    let count = api.get("/api/v1/operations").done()["operations"][0]["count"].as_u64().unwrap();
    assert!((1..60).contains(&count), "{operation}");
    window.go(&format!("/operations/{}", operation["id"].as_str().unwrap())).await;
    window.shows(&format!("{count} of 60 dead jobs requeued")).await;
    let total = api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total["dead"], &total["jobs"]), (&json!(60 - count), &json!(count)), "{total}");
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}
