//! Every page on every store, in one browser.

use serde_json::json;

use super::window::Window;
use super::{pages, with_trouble_on};
use crate::faults::Server;
use crate::http::Api;

async fn looks_whole(api: &Api, window: &Window, store: &str) {
    for path in pages(api, store == "postgresql") {
        window.go(&path).await;
        let seen = "return [document.querySelectorAll('h1').length, document.querySelectorAll('b, script:not([src])').length]";
        assert_eq!(window.run(seen).await, json!([1, 0]), "{store}: {path}");
        let messages = window.console().await;
        let refused = path == "/queues/nowhere";
        assert!(messages.len() == usize::from(refused), "{store}: {path}: {messages:?}");
    }
    // A change is seen, and a key is repaired.
    window.go("/queues/mails/lanes").await;
    api.post("/api/v1/queues/mails/jobs", &json!({ "key": "fresh", "delay": "1h" })).done();
    window.shows("fresh").await;
    std::fs::write(api.site.path("repaired"), "").unwrap();
    window.go("/key?k=order-42").await;
    window.press("Retry now").await;
    window.shows("Nothing waits or runs").await;
    // Its server ends now: the page would say so.
    window.go_elsewhere("about:blank").await;
    window.console().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_each_server_every_page_is_whole_and_a_key_is_repaired() {
    let mut window: Option<Window> = None;
    for (name, server) in
        [("postgresql", Server::postgres()), ("mysql", Server::mysql()), ("redis", Server::redis())]
    {
        let api = with_trouble_on(&format!("[store]\nurl = \"{}\"\n", server.url())).await;
        let window = match &mut window {
            Some(window) => {
                window.visits(&api.address);
                window
            }
            none => none.insert(Window::open(&api.address, 1280, 900).await),
        };
        looks_whole(&api, window, name).await;
    }
    window.unwrap().close().await;
}
