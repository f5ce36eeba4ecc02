//! What the buttons *Copy* copy: a shell that runs it does what the page says and no more, whatever keys and payloads hold.

use serde_json::{Value, json};

use super::window::Window;
use crate::hand::Hand;
use crate::http::Api;
use crate::site::{Site, eventually, text};

const QUEUES: &str = "[queues.orders]\nmode = \"fifo\"\nmax_retries = 0\n";
/// What a shell, JSON, HTML or a terminal could take for something else. No key has a NUL.
const HOSTILE: [&str; 8] = [
    "it's $(touch hacked) `touch hacked` \"$HOME\" ; touch hacked",
    "line\none\r\ntwo\rthree\tfour ",
    "back\\slash \\n \\' %s %n \\u0041",
    "--all -x",
    "\u{202e}mirrored\u{200f}\u{2066}\u{9b}31m \u{feff}\u{85}",
    "日本 ünï 🦀 \u{e0001}",
    "</pre><script>touch</script>&amp;&#13;",
    "@/etc/passwd {a,b}* [x]? ~ !!",
];
/// Keeps what is copied, in place of the machine's clipboard.
const KEEP: &str = "if (navigator.clipboard) {
        navigator.clipboard.writeText = async (text) => { window.copied = text; };
    }";

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

async fn keeping(api: &Api) -> Window {
    let window = Window::open(&api.address, 1280, 900).await;
    window.before_each_page(KEEP).await;
    window
}

/// What the button of this number copies.
async fn copied(window: &Window, button: usize) -> String {
    let press =
        format!("document.querySelectorAll('[data-copy]')[{button}].click(); return window.copied");
    window.run(&press).await.as_str().unwrap().to_owned()
}

/// Runs a line as if a user had pasted it.
fn run_in_shell(api: &Api, line: &str) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_seriatim"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut shell = api.site.program("sh", &["-c", line]);
    shell.env("PATH", path).env("SERIATIM_URL", format!("http://{}", api.address));
    let output = shell.env("SERIATIM_TOKEN", "of-nobody").output().unwrap();
    let said = text(&output);
    assert!(output.status.success() && !said.contains("\"status\":4"), "{line}: {said}");
    said
}

/// The jobs of a key in a state: key, task and payload.
fn jobs(api: &Api, key: &str, state: &str) -> Vec<Value> {
    let path = format!("/api/v1/jobs?queue=orders&state={state}&key={}", encoded(key));
    let found = api.get(&path).done()["jobs"].as_array().unwrap().clone();
    let of = |job: &Value| json!([job["key"], job["task"], job["payload"]]);
    found.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_command_pushes_exactly_the_job_of_its_page_whatever_that_holds() {
    let api = Api::start(QUEUES);
    let window = keeping(&api).await;
    for text in HOSTILE {
        let payload =
            json!({ "text": text, "big": 9_223_372_036_854_775_808_u64, text: [1.5, null] });
        let body = json!({ "key": text, "task": text, "payload": payload });
        let pushed = api.post("/api/v1/queues/orders/jobs", &body).done();
        let id = pushed["jobs"][0]["job_id"].as_str().unwrap();
        window.go(&format!("/jobs/{id}")).await;
        assert_eq!(copied(&window, 0).await, id);
        let shown = window.run("return document.body.textContent").await;
        assert!(!shown.as_str().unwrap().contains('\u{202e}'), "it turns what stands behind it");
        let seen: Value = serde_json::from_str(&copied(&window, 1).await).unwrap();
        assert_eq!(seen, payload, "what hides is escaped in it");
        for button in [2, 3] {
            run_in_shell(&api, &copied(&window, button).await);
        }
        assert_eq!(jobs(&api, text, "live"), vec![json!([text, text, payload]); 3], "{text:?}");
        window.go(&format!("/key?k={}", encoded(text))).await;
        assert_eq!(copied(&window, 0).await, text);
    }
    let all = api.get("/api/v1/stats").done()["total"]["jobs"].clone();
    assert_eq!(all, 3 * HOSTILE.len(), "no others");
    assert!(!api.site.path("hacked").exists());
    assert_eq!(window.console().await, Vec::<String>::new());
    window.close().await;
}

/// Three dead jobs of each text, whose keys end with a number.
async fn with_dead() -> Api {
    let site = Site::new(QUEUES);
    let queues = vec![seriatim::Queue::fifo("orders").max_retries(0)];
    let hand = Hand::new(site.store().await, queues).await;
    for text in HOSTILE {
        for i in 0..3 {
            let job = seriatim::Job::new("orders", &text).unwrap().task(text);
            hand.push(job.key(format!("{text}{i}"))).await;
        }
    }
    hand.fail_all("orders", HOSTILE[0]).await;
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_command_and_the_form_beside_it_are_about_exactly_the_same_jobs() {
    let api = with_dead().await;
    let window = keeping(&api).await;
    for (i, text) in HOSTILE.into_iter().enumerate() {
        // Every way with the worst; the others by turns.
        for way in if i < 3 { 0..3 } else { i % 3..i % 3 + 1 } {
            let key = format!("{text}{way}");
            let filters = format!(
                "key={}&error={}&task={}",
                encoded(&key),
                encoded(HOSTILE[0]),
                encoded(text)
            );
            window.go(&format!("/operations/new?action=requeue&queue=orders&{filters}")).await;
            match way {
                0 | 1 => drop(run_in_shell(&api, &copied(&window, way).await)),
                // A browser would make others of the ends of lines in its fields.
                _ => window.press("Requeue").await,
            }
            let is_back = async || jobs(&api, &key, "live") == [json!([key, text, text])];
            eventually(&format!("{key:?} by way {way}"), is_back).await;
        }
    }
    let total = api.get("/api/v1/stats").done()["total"].clone();
    assert_eq!((&total["jobs"], &total["dead"]), (&json!(14), &json!(10)), "no others: {total}");
    assert!(!api.site.path("hacked").exists());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deed_that_asks_first_is_done_by_the_request_and_by_the_command_of_its_page() {
    let api = with_dead().await;
    let window = keeping(&api).await;
    let total = |name: &str| api.get("/api/v1/stats").done()["total"][name].as_u64().unwrap();
    let push = |key: &str| {
        let pushed = api.post("/api/v1/queues/orders/jobs", &json!({ "key": key, "delay": "1h" }));
        pushed.done()["jobs"][0]["job_id"].as_str().unwrap().to_owned()
    };
    let do_by = async |way: usize, deed: &str, on: String| {
        window.go(&format!("/confirm?deed={deed}&{on}")).await;
        run_in_shell(&api, &copied(&window, way).await);
    };
    for (i, text) in HOSTILE.into_iter().enumerate() {
        // Either way with the worst; the others by turns.
        for way in if i < 4 { 0..2 } else { i % 2..i % 2 + 1 } {
            push(text);
            do_by(way, "lane.delete", format!("queue=orders&key={}", encoded(text))).await;
            assert_eq!(total("jobs"), 0, "{text:?} by way {way}");
        }
    }
    let dead = api.get("/api/v1/queues/orders/morgue").done();
    for way in 0..2 {
        for deed in ["job.cancel", "job.delete"] {
            let job = push("k");
            do_by(way, deed, format!("job={job}")).await;
            assert_eq!(total("jobs"), 0, "{deed} by way {way}");
        }
        let job = dead["jobs"][way]["job_id"].as_str().unwrap();
        do_by(way, "dead.delete", format!("queue=orders&job={job}")).await;
        assert_eq!(total("dead"), 3 * HOSTILE.len() as u64 - 1 - way as u64);
        let batch = HOSTILE[2 + way];
        let open = ["batches", "open", "--key", "callback", "--", batch, "orders"];
        assert!(api.site.run(&open).status.success());
        do_by(way, "batch.seal", format!("batch={}", encoded(batch))).await;
        let path = format!("/api/v1/batches/{}", encoded(batch).replace('+', "%20"));
        assert!(api.get(&path).done()["ended_at"].is_string());
        // Its callback.
        api.post("/api/v1/queues/orders/drain", &json!({})).done();
    }
    assert!(!api.site.path("hacked").exists());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_several_lines_is_paused_resumed_and_deleted_by_its_page() {
    let (api, key) = (Api::start(QUEUES), HOSTILE[1]);
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": key })).done();
    let lane = format!("/api/v1/queues/orders/lane?key={}", encoded(key));
    let window = Window::open(&api.address, 1280, 900).await;
    let says = async |what: &str| {
        window
            .until(what, &format!("document.querySelector('.said')?.innerText.includes({what:?})"))
            .await;
    };
    window.go(&format!("/key?k={}", encoded(key))).await;
    window.run("document.querySelector('main details').open = true; document.querySelector('[name=reason]').focus()").await;
    window.keys("wrong price").await;
    window.enter().await;
    says("paused").await;
    assert_eq!(api.get(&lane).done()["state"], "paused");
    window.press("Undo").await;
    says("resumed").await;
    assert_eq!(api.get(&lane).done()["state"], "waiting");
    window.press("Delete waiting…").await;
    window.press("Delete waiting").await;
    says("deleted").await;
    window.press("Undo").await;
    says("nothing was deleted").await;
    assert_eq!(api.get(&lane).done()["state"], "waiting");
    window.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_read_by_the_request_and_by_the_command_of_its_page() {
    let api = Api::start(QUEUES);
    let window = keeping(&api).await;
    for (i, text) in HOSTILE.into_iter().enumerate() {
        let body = json!({ "key": text, "task": format!("task-{i}") });
        api.post("/api/v1/queues/orders/jobs", &body).done();
        let key = encoded(text);
        for (page, list) in [
            (format!("/jobs?queue=orders&key={key}"), "jobs"),
            (format!("/queues/orders/lanes?by=key&prefix={key}"), "lanes"),
        ] {
            window.go(&page).await;
            let answer = run_in_shell(&api, &copied(&window, 0).await);
            // Behind it is what curl says of its progress.
            let mut answers = serde_json::Deserializer::from_str(&answer).into_iter::<Value>();
            let answer = answers.next().unwrap().unwrap();
            let keys: Vec<&Value> =
                answer[list].as_array().unwrap().iter().map(|one| &one["key"]).collect();
            assert_eq!(keys, [text], "{page}");
            let command = copied(&window, 1).await;
            let said = run_in_shell(&api, &format!("{command} --json"));
            assert!(said.contains(&*serde_json::to_string(text).unwrap()), "{command}: {said}");
            assert_eq!(said.matches("\"key\"").count(), 1, "{command}: {said}");
        }
    }
    assert!(!api.site.path("hacked").exists());
    window.close().await;
}
