//! Pages whose store goes away and comes back.

use serde_json::json;
use seriatim_testkit::Redis;

use super::window::Window;
use crate::http::Api;
use crate::http::operations::{age, with_dead};
use crate::site::{Site, eventually};

/// Pushes a job, as soon as the store takes one.
async fn push(api: &Api, key: &str) {
    let job = json!({ "key": key, "delay": "1h" });
    let is_taken = async || api.post("/api/v1/queues/mails/jobs", &job).status == 200;
    eventually("a push", is_taken).await;
}

/// A node with a turn that does not end.
fn busy() -> Api {
    let site = Site::new(
        "[queues.gated]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"gated\"\ncommand = [\"sh\", \"-c\", \"echo up > up; read x < gate\"]\n",
    );
    for pipe in ["gate", "up"] {
        let made = std::process::Command::new("mkfifo").arg(site.path(pipe)).status().unwrap();
        assert!(made.success());
    }
    let api = Api::with(site, |_| {});
    api.post("/api/v1/queues/gated/jobs", &json!({ "key": "k" })).done();
    // Returns when the command runs: one that is claimed and has not begun would go back at the stop.
    std::fs::read_to_string(api.site.path("up")).unwrap();
    api
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_node_that_drains_says_that_it_is_old_and_a_new_one_says_why() {
    let mut api = busy();
    let window = Window::open(&api.address, 1280, 900).await;
    window.asks_soon().await;
    window.go("/queues/gated/lanes").await;
    window.shows("running").await;
    api.serving.signal(rustix::process::Signal::TERM);
    window.shows("not current").await;
    window.go("/queues").await;
    for told in ["Not available now", "draining", "tries again every 5 s"] {
        window.shows(told).await;
    }
    window.go("/about").await;
    window.shows("clock of this machine").await;
    std::fs::write(api.site.path("gate"), "go\n").unwrap();
    assert!(api.serving.0.wait().unwrap().success(), "{}", api.log());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_an_operation_goes_on_at_another_node_when_its_own_is_killed() {
    let api = with_dead(300).await;
    let mut window = Window::open(&api.address, 1280, 900).await;
    window.go("/morgue?view=causes&queue=orders").await;
    window.press("Requeue…").await;
    window.run("document.querySelector('[name=rate]').focus()").await;
    // The second one would be due in an hour: all the others are left, however late the kill comes.
    window.keys("1/h").await;
    window.press("Requeue").await;
    window.shows("1 of 300 dead jobs requeued").await;
    let operation = window.place().await;
    let site = api.killed();
    assert_eq!(age(&site, operation.rsplit('/').next().unwrap()).await, 1);
    let api = Api::with(site, |_| {});
    window.visits(&api.address);
    window.go(&operation).await;
    window.shows("300 of 300 dead jobs requeued").await;
    let total = api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total["dead"], &total["jobs"]), (&json!(0), &json!(300)), "{total}");
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_is_away_pages_say_so_and_go_on_by_themselves_when_it_is_back() {
    let mut server = Redis::start_with(&["--appendfsync", "always"]).unwrap();
    let config = format!("[store]\nurl = \"{}\"\n[queues.mails]\nmode = \"fifo\"\n", server.url());
    let api = Api::with(Site::new(&config), |_| {});
    // A node whose store goes away while it starts ends; one that has begun waits for it.
    let has_begun = async || !api.get("/api/v1/nodes").done()["nodes"][0].is_null();
    eventually("the node has begun", has_begun).await;
    push(&api, "m-first").await;
    let window = Window::open(&api.address, 1280, 900).await;
    window.asks_soon().await;
    window.go("/queues/mails/lanes").await;
    let is_stale = "document.body.innerText.includes('not current')";
    assert_eq!(window.run(&format!("return {is_stale}")).await, false);
    server.kill().unwrap();
    window.until("it says that it is old", is_stale).await;
    assert!(window.text().await.contains("m-first"), "what was known stays");
    server.restart().unwrap();
    push(&api, "m-second").await;
    let is_back = format!("!{is_stale} && document.body.innerText.includes('m-second')");
    window.until("it is current again", &is_back).await;

    server.kill().unwrap();
    window.go("/queues").await;
    let text = window.text().await;
    for told in ["Not available now", "503", "tries again every 5 s"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert_eq!(api.get("/queues").status, 503);
    server.restart().unwrap();
    window.until("the page", "document.querySelector('tbody a')?.innerText === 'mails'").await;
    assert_eq!(window.place().await, "/queues");
    window.close().await;
}
