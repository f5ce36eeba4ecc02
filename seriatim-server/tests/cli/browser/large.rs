//! The largest payload that is taken, on its page and as a file.

use serde_json::{Value, json};
use seriatim::limits::PAYLOAD_BYTES_MAX;

use super::window::Window;
use crate::http::Api;
use crate::http::client::Request;

/// Of the job's page; of others, which show a line of it.
const PAGE_BYTES_MAX: usize = 100_000;
const LIST_BYTES_MAX: usize = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_of_4_mib_leaves_its_page_small_and_is_fetched_whole() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    // Marks that take five times the room where they are shown.
    let piece = r#"<b>\"é\\"#;
    let room = PAYLOAD_BYTES_MAX - 2;
    let inner = piece.repeat(room / piece.len());
    let payload = format!("\"{inner}{}\"", "x".repeat(room - inner.len()));
    let body = format!("{{\"key\":\"large\",\"payload\":{payload}}}");
    let push = Request::new("POST", "/api/v1/queues/orders/jobs").body("application/json", body);
    let pushed = push.send(&api.address).done();
    let path = format!("/jobs/{}", pushed["jobs"][0]["job_id"].as_str().unwrap());
    let page = api.get(&path);
    assert!(page.status == 200 && page.body.len() <= PAGE_BYTES_MAX, "{}", page.body.len());
    for list in ["/jobs?queue=orders", "/key?k=large", "/search?q=payload%3Axxxx", "/"] {
        let list_page = api.get(list);
        assert!(list_page.body.len() <= LIST_BYTES_MAX, "{list}: {}", list_page.body.len());
    }
    let window = Window::open(&api.address, 1280, 900).await;
    window.go(&path).await;
    let text = window.text().await;
    assert!(text.contains("4,194,304 bytes; the page shows the beginning"), "{text}");
    let fetch = "const done = arguments[arguments.length - 1];
        const link = document.querySelector('a[download]');
        fetch(link.href).then(async (file) => done([link.getAttribute('href'), (await file.arrayBuffer()).byteLength]));";
    let found: Value = window.run_async(fetch).await;
    assert_eq!(found, json!([format!("{path}/payload"), PAYLOAD_BYTES_MAX]));
    let file = api.get(found[0].as_str().unwrap());
    assert!(file.body == payload.as_bytes(), "it is another one");
    assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}
