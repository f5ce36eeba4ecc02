//! Pages of a store whose names and texts are as long and as odd as producers can make them, and of an empty one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use seriatim::store::{OpenBatch, Trouble, TroubleKind};
use seriatim::{Job, Queue};

use super::pictures::FOLDER;
use super::window::Window;
use crate::hand::Hand;
use crate::http::Api;
use crate::site::{Site, eventually};

/// Words of our own that stand on two lines: names of figures, and buttons.
const BROKEN: &str = "const words = [...document.querySelectorAll('.figures dt, button, .button')];
    const isBroken = (word) => {
        const range = document.createRange();
        range.selectNodeContents(word);
        const { height } = range.getBoundingClientRect();
        return height > 24;
    };
    return words.filter(isBroken).map((word) => word.innerText)";
/// Where texts lie on one another, as far as they are seen.
const OVERLAPS: &str = "
    const seen = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        const holder = text.parentElement;
        if (!text.data.trim() || !holder.checkVisibility() || holder.closest('.unseen, .skip, .cards thead, option')) continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const { left, top, right, bottom } of range.getClientRects()) {
            const rect = { left, top, right, bottom, text };
            for (let box = holder; box; box = box.parentElement) {
                if (getComputedStyle(box).overflow === 'visible') continue;
                const edge = box.getBoundingClientRect();
                rect.top = Math.max(rect.top, edge.top);
                rect.bottom = Math.min(rect.bottom, edge.bottom);
                rect.left = Math.max(rect.left, edge.left);
                rect.right = Math.min(rect.right, edge.right);
            }
            if (rect.right > rect.left && rect.bottom > rect.top) seen.push(rect);
        }
    }
    seen.sort((a, b) => a.top - b.top);
    const found = [];
    seen.forEach((a, i) => {
        for (let j = i + 1; j < seen.length && seen[j].top < a.bottom - 4; j += 1) {
            const b = seen[j];
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            if (a.text !== b.text && wide > 1) found.push([a.text.data.slice(0, 60), b.text.data.slice(0, 60)]);
        }
    });
    return found.slice(0, 5);";
const TURNS: &str = "return /[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)";
/// Other queues, and the bytes of a payload.
const QUEUES: usize = 200;
const PAYLOAD_BYTES: usize = (4 << 20) - 2;

/// The narrowest phone, and screens.
const WIDTHS: [u32; 3] = [360, 1280, 1920];

/// Marks that turn text around, HTML, letters from right to left, and a word without end.
fn word() -> String {
    "\u{202e}<b>&\"'\u{feff}".repeat(4) + "שלום عليكم 🦀👩‍👩‍👧 日本語 " + &"w".repeat(180)
}

/// Its first letters.
fn begin(chars: usize) -> String {
    word().chars().take(chars).collect()
}

fn queue() -> String {
    format!("orders-{}", "q".repeat(121))
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// What fails, died, runs, and waits; all with the longest names.
async fn filled(site: &Site) {
    let (name, word) = (queue(), word());
    let mut queues = vec![Queue::fifo(&*name).max_retries(9)];
    queues.extend((0..QUEUES).map(|i| Queue::parallel(format!("{i:03}-{}", "other.".repeat(20)))));
    let mut hand = Hand::new(site.store().await, queues).await;
    hand.node.name = "n".repeat(200).into();
    hand.node.host = "h".repeat(200);
    hand.node.troubles = vec![Trouble {
        kind: TroubleKind::WorkerCannotStart,
        queue: Some(name.clone()),
        about: Trouble::about_worker(&name, Some(&"t".repeat(200))),
        text: word.clone(),
        times: 1_234_567,
        since: hand.now,
        last_at: hand.now,
    }];
    hand.beat().await;
    let task = "t".repeat(200);
    let job = |end: &str| {
        Job::new(&*name, &json!({ "text": word }))
            .unwrap()
            .key(format!("{word}-{end}"))
            .task(&*task)
    };
    hand.push(job("dead").max_retries(0)).await;
    hand.push(job("failed")).await;
    hand.fail_all(&name, &word.repeat(10)).await;
    hand.push(job("runs")).await;
    hand.claim(&name).await;
    hand.push(job("waits")).await;
    hand.push(job("later").run_in(Duration::from_secs(3_600))).await;
    let large = Job::new(&*name, &"x".repeat(PAYLOAD_BYTES)).unwrap();
    hand.push(large.key("large")).await;
    hand.push(Job::new(&*name, &1).unwrap().key("short").run_in(Duration::from_secs(3_600))).await;
    let id: Arc<str> = "b".repeat(256).into();
    let open = OpenBatch { now: Some(hand.now), id, callback: job("callback") };
    hand.store.open_batch(open).await.unwrap();
    hand.store.close().await.unwrap();
}

/// A worker whose errors turn the text around, and a journal of what happened.
const FAILS: &str = "[journal]\nenabled = true\n[queues.fails]\nmode = \"fifo\"\nmax_retries = 1\n\
    backoff = { kind = \"constant\", base = \"10ms\" }\n[[workers]]\nqueue = \"fails\"\n\
    command = ['sh', '-c', 'printf \"\\342\\200\\256<b>%0900d\" 0 >&2; exit 1']\n";

/// The dead job of that worker.
fn died(api: &Api) -> serde_json::Value {
    let dead = api.get("/api/v1/queues/fails/morgue").done()["jobs"][0]["job_id"].clone();
    dead.as_str().map(|id| api.get(&format!("/api/v1/jobs/{id}")).done()).unwrap_or_default()
}

/// A server of such a store.
async fn hostile() -> Api {
    let minutes = (0..60).map(|minute| minute.to_string()).collect::<Vec<_>>().join(",");
    let name = "c".repeat(120);
    let cron = format!("[[cron]]\nname = \"{name}\"\nschedule = \"{minutes} * * * *\"\n");
    let config = format!(
        "[http]\nenvironment = \"{}\"\n[queues.\"{1}\"]\nmode = \"fifo\"\nmax_retries = 9\n{cron}queue = \"{1}\"\nkey = \"c\"\n{FAILS}",
        "e".repeat(100),
        queue()
    );
    let site = Site::new(&config);
    filled(&site).await;
    let api = Api::with(site, |_| {});
    api.knows_cron(&name, None);
    let reason = encoded(&begin(80));
    let key = encoded(&format!("{}-waits", word()));
    let path = format!("/api/v1/queues/{}/lane/pause?reason={reason}&key={key}", queue());
    api.act(&path).done();
    let none = json!({ "action": "pause", "queue": queue(), "prefix": "p".repeat(500) });
    api.post("/api/v1/operations", &none).done();
    let job = json!({ "key": format!("{}-fails", word()) });
    api.post("/api/v1/queues/fails/jobs", &job).done();
    let is_noted = async || died(&api)["failures"].as_array().is_some_and(|noted| noted.len() == 2);
    eventually("both failures", is_noted).await;
    api
}

/// Each page, with something of it.
fn pages(api: &Api) -> Vec<String> {
    let queue = queue();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let first = |state: &str, key: &str| {
        let path = format!("/api/v1/jobs?queue={queue}&state={state}&key={}", encoded(key));
        text(&api.get(&path).done()["jobs"][0]["job_id"])
    };
    let of = |end: &str| format!("{}-{end}", word());
    let dead = first("dead", &of("dead"));
    let (large, later) = (first("live", "large"), first("live", &of("later")));
    let operation = text(&api.get("/api/v1/operations").done()["operations"][0]["id"]);
    let lanes = format!("/queues/{queue}/lanes");
    let [failed, runs, waits] = ["failed", "runs", "waits"].map(|end| encoded(&of(end)));
    let deed = |deed: &str, key: &str| format!("/confirm?deed={deed}&queue={queue}&key={key}");
    let begin = encoded(&begin(40));
    let fails = text(&died(api)["job_id"]);
    let mut all: Vec<String> = [
        "/",
        "/?span=30d",
        "/queues",
        "/queues?by=lag",
        "/jobs",
        "/morgue",
        "/morgue?view=causes",
        "/scheduled",
        "/cron",
        "/batches",
        "/nodes",
        "/nodes/hand-1",
        "/operations",
        "/audit",
        "/about",
        "/login",
    ]
    .map(str::to_owned)
    .into();
    all.extend([
        format!("/queues/{queue}"),
        lanes.clone(),
        format!("{lanes}?by=retry_count"),
        format!("{lanes}?state=running&node=hand-1"),
        format!("{lanes}?due_from=soon&node={}", "n".repeat(100)),
        format!("/key?k={}", encoded(&of("dead"))),
        format!("/key?k={failed}"),
        format!("/key?k={runs}"),
        format!("/key?k={waits}"),
        format!("/key?k={begin}"),
        format!("/key/events?k={waits}"),
        format!("/key/events?k={}", encoded(&of("fails"))),
        format!("/jobs/{fails}"),
        format!("/jobs/{fails}/events"),
        format!("/jobs?queue={queue}"),
        format!("/jobs?queue={queue}&from=soon&key={failed}"),
        format!("/jobs/{dead}"),
        format!("/jobs/{dead}/events"),
        format!("/jobs/{large}"),
        format!("/jobs/{later}"),
        format!("/morgue?queue={queue}"),
        format!("/scheduled?queue={queue}"),
        format!("/reschedule?job={later}"),
        format!("/operations/{operation}"),
        format!("/operations/new?action=requeue&queue={queue}&prefix={begin}"),
        format!("/operations/new?action=bury&queue={queue}&prefix={begin}"),
        deed("lane.bury", &failed),
        deed("lane.release", &runs),
        format!("/confirm?deed=batch.seal&batch={}", "b".repeat(256)),
        format!("/audit?of={waits}"),
        format!("/search?q={begin}"),
        format!("/search?q={}", encoded("error:www")),
        format!("/queues/{}", "n".repeat(128)),
    ]);
    all
}

/// What is wrong with the page that is shown.
async fn faults(window: &Window, page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (what, script, right) in [
        (
            "wider than the screen",
            "return document.documentElement.scrollWidth - innerWidth",
            json!(0),
        ),
        ("words on two lines", BROKEN, json!([])),
        ("marks turn its text around", TURNS, json!(false)),
        ("texts lie on one another", OVERLAPS, json!([])),
    ] {
        let found = window.run(script).await;
        if found != right {
            faults.push(format!("{page}: {what}: {found}"));
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_the_dashboard_of_a_hostile_and_of_an_empty_store_are_not_cut() {
    let (full, empty) = (hostile().await, Api::start(""));
    let of_empty = ["/", "/queues", "/key?k=k", "/jobs", "/morgue", "/scheduled", "/cron"];
    let more = ["/batches", "/nodes", "/operations", "/audit", "/search?q=k"];
    let of_empty = of_empty.into_iter().chain(more).map(str::to_owned).collect();
    let mut found = Vec::new();
    for (store, api, pages) in [("hostile", &full, pages(&full)), ("empty", &empty, of_empty)] {
        let window = Window::open(&api.address, 1280, 800).await;
        for (i, path) in pages.iter().enumerate() {
            window.go(path).await;
            for width in WIDTHS {
                window.resize(width, 800).await;
                found.extend(faults(&window, &format!("{store} {width} {path}")).await);
                if std::env::var_os(FOLDER).is_some() {
                    // To look at, not to publish.
                    let name = format!("{store}-{i:02}-{width}.png");
                    let picture = window.picture().await;
                    std::fs::write(std::env::temp_dir().join(name), picture).unwrap();
                }
            }
            let unfold = "document.querySelectorAll('main details, nav details').forEach((one) => { one.open = true; })";
            window.run(unfold).await;
            for width in WIDTHS {
                window.resize(width, 800).await;
                found.extend(faults(&window, &format!("{store} {width} {path}, unfolded")).await);
            }
        }
        window.close().await;
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
