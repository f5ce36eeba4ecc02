//! Every page on every store. How pages look in a browser is seen on one store; whether they are whole is read here.

use serde_json::json;

use super::window::Window;
use super::{pages, with_trouble_on};
use crate::faults::Server;
use crate::http::Api;
use crate::http::client::Request;

async fn looks_whole(api: &Api, window: &Window, store: &str) {
    for path in pages(api, store == "postgresql") {
        let page = Request::new("GET", &path).header("Accept", "text/html").send(&api.address);
        let expected = if path == "/queues/nowhere" { 404 } else { 200 };
        assert_eq!(page.status, expected, "{store}: {path}");
        let text = page.text();
        let is_whole = text.matches("<h1").count() == 1 && text.trim_end().ends_with("</html>");
        assert!(is_whole && !text.contains("<b>"), "{store}: {path}: {text}");
    }
    // A change is seen, and a key is repaired.
    window.go("/queues/mails/lanes").await;
    api.post("/api/v1/queues/mails/jobs", &json!({ "key": "fresh", "delay": "1h" })).done();
    window.shows("fresh").await;
    std::fs::write(api.site.path("repaired"), "").unwrap();
    window.go("/key?k=order-42").await;
    window.press("Run now").await;
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
