//! Pictures of the dashboard for the documentation, of a store that is always the same.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use seriatim::store::{OpenBatch, SealBatch};
use seriatim::{Groups, Job, Outcome, Queue, Share};

use super::window::Window;
use crate::hand::Hand;
use crate::http::Api;
use crate::site::Site;

/// Of all pictures together, and of one.
const BYTES_MAX: usize = 900 << 10;
const PAGES: [(&str, &str); 6] = [
    ("overview", "/"),
    ("key", "/key?k=order-42"),
    ("lanes", "/queues/orders/lanes"),
    ("morgue", "/morgue?view=causes&queue=reports"),
    ("limits", "/queues/mails"),
    ("batches", "/batches"),
];
/// Others, which are only looked at, where pictures are taken.
const OTHERS: [(&str, &str); 10] = [
    ("queues", "/queues"),
    ("scheduled", "/scheduled"),
    ("jobs", "/jobs?queue=orders"),
    ("wrong", "/jobs?queue=orders&key=order-42&from=soon"),
    ("happened", "/key/events?k=order-42"),
    ("search", "/search?q=order-"),
    ("cron", "/cron"),
    ("audit", "/audit"),
    ("nodes", "/nodes"),
    ("about", "/about"),
];
/// Set by `cargo xtask screenshots`: where the pictures go.
pub(super) const FOLDER: &str = "SERIATIM_WRITE_IMAGES";
/// The parts of captions of charts that take more than one line.
const BROKEN: &str = "return [...document.querySelectorAll('figcaption')]
    .flatMap((one) => [one.firstChild, one.lastChild])
    .filter((part) => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return range.getClientRects().length > 1;
    })
    .map((part) => part.textContent)";
/// The widths at which the pages are looked at; pictures for the documentation have the middle one.
const WIDTHS: [u32; 3] = [390, 1280, 1920];

/// A shop in the middle of the day: orders that fail, reports that died, mails that wait.
async fn shop() -> Api {
    let config = "[queues.orders]\nmode = \"accumulate\"\nmax_retries = 25\n\
        [queues.mails]\nmode = \"fifo\"\nlimit = { running = 8 }\n\
        groups = { running = 2, named = { acme = { weight = 3 } } }\n\
        [queues.reports]\nmode = \"parallel\"\nmax_retries = 0\n[queues.rows]\nmode = \"parallel\"\n";
    let site = Site::new(config);
    let groups = Groups::each(Share::default().running(2));
    let mut mails = Queue::fifo("mails").groups(groups.named("acme", Share::default().weight(3)));
    mails.limit.running = Some(8);
    let queues = vec![
        Queue::accumulate("orders").max_retries(25),
        mails,
        Queue::parallel("reports").max_retries(0),
        Queue::parallel("rows"),
    ];
    let mut hand = Hand::new(site.store().await, queues).await;
    hand.node.name = "shop-a".into();
    "shop-a".clone_into(&mut hand.node.host);
    hand.node.concurrency = 16;
    hand.beat().await;
    let order = |key: u32, status: &str| {
        Job::new("orders", &json!({ "status": status })).unwrap().key(format!("order-{key}"))
    };
    for key in [17, 42, 58] {
        hand.push(order(key, "paid").score(1.0)).await;
        hand.push(order(key, "packed").score(2.0)).await;
    }
    hand.fail_all("orders", "no stock of item 7731").await;
    for key in 60..72 {
        hand.push(order(key, "paid")).await;
    }
    let remind = Job::new("rows", &json!({ "remind": "ann" })).unwrap().task("remind");
    hand.push(remind.run_in(Duration::from_secs(5_400))).await;
    for i in 0..9 {
        let report = json!({ "month": i + 1 });
        hand.push(Job::new("reports", &report).unwrap().task("render")).await;
    }
    for (i, turn) in hand.claim("reports").await.iter().enumerate() {
        let error = match i % 3 {
            0 => format!("timeout after {}s", 30 + i),
            1 => format!("no table report_{i}"),
            _ => "connection refused: 10.0.0.7".to_owned(),
        };
        hand.end(turn, Outcome::Retry { error: error.into(), retry_in: None }).await;
    }
    for (to, group) in [("ann", "acme"), ("bob", "acme"), ("cat", "globex"), ("dan", "acme")] {
        let mail = Job::new("mails", &json!({ "to": to })).unwrap();
        hand.push(mail.key(to).group(group)).await;
    }
    hand.claim("mails").await;
    imports(&mut hand).await;
    history(&hand).await;
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

/// Three batches, opened one after the other: one that has ended, one that is sealed, and one that is filled.
async fn imports(hand: &mut Hand) {
    let end = hand.now;
    for (place, (id, rows)) in
        [("import-41", 7), ("import-42", 12), ("import-43", 5)].into_iter().enumerate()
    {
        hand.now = end - Duration::from_secs(60 * (40 - 15 * place as u64));
        let report = Job::new("reports", &json!({ "of": id })).unwrap().task("summary");
        let now = Some(hand.now);
        let open = OpenBatch { now, id: id.into(), callback: report };
        hand.store.open_batch(open).await.unwrap();
        for row in 0..rows {
            hand.push(Job::new("rows", &json!({ "row": row })).unwrap().batch(id)).await;
        }
        let turns = if place < 2 { hand.claim("rows").await } else { Vec::new() };
        let done = if place == 0 { rows } else { 9 };
        for (i, turn) in turns.iter().take(done).enumerate() {
            let outcome = match i {
                3 => Outcome::Bury { error: "no such article".into() },
                _ => Outcome::Done,
            };
            hand.end(turn, outcome).await;
        }
        if place < 2 {
            hand.store.seal_batch(SealBatch { now, id: id.into() }).await.unwrap();
        }
    }
    hand.now = end;
}

/// The last hour: a wave, and some failures.
async fn history(hand: &Hand) {
    for (queue, part) in [("*", 1), ("orders", 2), ("rows", 3), ("mails", 9)] {
        let of = |minute: i64| {
            let wave = ((minute % 23) - 11).unsigned_abs();
            let failed = if minute % 17 < 2 { 9 } else { minute.unsigned_abs() % 3 };
            [(400 + 90 * wave) / part, failed / part, 2 * wave, 24 + wave, 3, 3, 9]
        };
        hand.history(queue, of).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_the_dashboard_are_small_and_nothing_in_them_is_cut() {
    let api = shop().await;
    let window = Window::open(&api.address, 1280, 800).await;
    let folder = std::env::var_os(FOLDER);
    let mut bytes = 0;
    for theme in ["light", "dark"] {
        window.go("/about").await;
        window.run(&format!("document.cookie = 'seriatim_theme={theme}; path=/'")).await;
        for width in WIDTHS {
            window.resize(width, if width == 390 { 844 } else { 800 }).await;
            let others = OTHERS.iter().filter(|_| folder.is_some());
            for (place, (name, path)) in PAGES.iter().chain(others).enumerate() {
                window.go(path).await;
                // Links and marks of a hand would be in the picture.
                window.run("document.activeElement.blur(); getSelection().removeAllRanges()").await;
                let cut =
                    window.run("return document.documentElement.scrollWidth - innerWidth").await;
                assert_eq!(cut, 0, "{width} {path}");
                assert_eq!(window.run(BROKEN).await, json!([]), "{width} {path}");
                let is_published = width == WIDTHS[1] && place < PAGES.len();
                let picture = match is_published || folder.is_some() {
                    true => window.picture().await,
                    false => Vec::new(),
                };
                let unfolded =
                    "document.querySelectorAll('details').forEach((one) => { one.open = true; });
                    return document.documentElement.scrollWidth - innerWidth";
                assert_eq!(window.run(unfolded).await, 0, "{width} {path}, unfolded");
                bytes += if is_published { picture.len() } else { 0 };
                let Some(folder) = folder.as_deref().map(Path::new) else { continue };
                let name = match is_published {
                    true => folder.join(format!("{name}-{theme}.png")),
                    // To look at, not to publish.
                    false => std::env::temp_dir().join(format!("{name}-{theme}-{width}.png")),
                };
                std::fs::write(name, picture).unwrap();
            }
        }
    }
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    window.close().await;
}
