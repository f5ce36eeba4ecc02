//! Pages in a browser that runs no scripts.

use serde_json::json;

use super::window::Window;
use super::{pages, with_trouble};
use crate::site::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_every_page_is_whole_and_all_is_done_by_its_forms() {
    let api = with_trouble().await;
    // What scripts fold in on a phone stands above the rows.
    let window = Window::open(&api.address, 390, 1_200).await;
    window.without_scripts().await;
    for path in pages(&api, true) {
        window.go(&path).await;
        let seen = window
            .run("return [document.documentElement.scrollWidth - innerWidth, document.querySelectorAll('h1').length, document.querySelectorAll('.cards').length]")
            .await;
        assert_eq!(seen, json!([0, 1, 0]), "{path}");
        let messages = window.console().await;
        let refused = path == "/queues/nowhere";
        assert!(messages.len() == usize::from(refused), "{path}: {messages:?}");
    }
    let told = async |what: &str| {
        window.until(what, &format!("document.body.innerText.includes({what:?})")).await;
    };
    window.go("/key?k=order-42").await;
    window.press("Run now").await;
    told("set to run now").await;
    window.go("/queues/orders").await;
    window.press("Pause").await;
    told("queue orders: paused").await;
    window.press("Undo").await;
    told("queue orders: resumed").await;
    window.go("/morgue?queue=reports").await;
    window.point_at("tbody tr:nth-child(2) input").await;
    window.click().await;
    window.press("Delete selected…").await;
    told("1 chosen dead job").await;
    window.press("Back").await;
    window.press("Causes").await;
    window.press("Requeue…").await;
    told("Requeue").await;
    window.press("Requeue").await;
    window.until("the operation", "location.pathname.startsWith('/operations/')").await;
    let operation = window.place().await;
    let is_done = async || {
        window.go(&operation).await;
        window.text().await.contains("3 of 3 dead jobs requeued")
    };
    eventually("they are requeued", is_done).await;
    let later = json!({ "key": "later", "delay": "1h" });
    api.post("/api/v1/queues/mails/jobs", &later).done();
    window.go("/scheduled?queue=mails").await;
    window.press("Delete waiting…").await;
    told("cannot be brought back").await;
    window.press("Delete waiting").await;
    told("deleted").await;
    window.close().await;
}
