//! Lists that grow while a visitor pages through them.

use serde_json::{Value, json};

use super::QUEUES;
use super::window::Window;
use crate::http::Api;

/// Jobs at the beginning, and those that are pushed at each page.
const FIRST: usize = 200;
const MORE: usize = 1_250;

fn push(api: &Api, from: usize, until: usize) {
    let jobs: Vec<Value> =
        (from..until).map(|i| json!({ "key": format!("k{i}"), "delay": "1h" })).collect();
    api.post("/api/v1/queues/mails/jobs", &json!(jobs)).done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_ten_thousand_jobs_arrive_each_row_is_seen_once_from_page_to_page() {
    let api = Api::start(QUEUES);
    push(&api, 0, FIRST);
    let window = Window::open(&api.address, 1280, 900).await;
    window.go("/jobs?queue=mails").await;
    let rows = "return [...document.querySelectorAll('tbody tr')].map((row) => row.querySelector('a[href*=\"/key?\"]').innerText)";
    let (mut shown, mut pushed) = (Vec::new(), FIRST);
    while shown.len() < FIRST {
        let page = window.run(rows).await;
        shown.extend(page.as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()));
        push(&api, pushed, pushed + MORE);
        pushed += MORE;
        let here = window.place().await;
        window.press("Next page").await;
        window
            .until("the next page", &format!("location.pathname + location.search !== {here:?}"))
            .await;
    }
    assert!(pushed >= 10_000, "{pushed}");
    let wanted: Vec<String> = (0..shown.len()).map(|i| format!("k{i}")).collect();
    assert_eq!(shown, wanted);
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}
