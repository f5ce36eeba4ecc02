//! Pictures of the dashboard for the documentation, of a store that is always the same.

use std::path::Path;

use serde_json::json;
use seriatim::store::Note;
use seriatim::{Job, Queue};

use super::window::Window;
use crate::hand::Hand;
use crate::http::Api;
use crate::site::Site;

/// Of all pictures together, and of one.
const BYTES_MAX: usize = 600 << 10;
const PAGES: [(&str, &str); 4] = [
    ("overview", "/"),
    ("key", "/key?k=order-42"),
    ("lanes", "/queues/orders/lanes"),
    ("morgue", "/morgue?view=causes&queue=reports"),
];
/// Set by `cargo xtask screenshots`: where the pictures go.
const FOLDER: &str = "SERIATIM_WRITE_IMAGES";
/// The widths at which the pages are looked at; pictures for the documentation have the middle one.
const WIDTHS: [u32; 3] = [390, 1280, 1920];

/// A shop in the middle of the day: orders that fail, reports that died, mails that wait.
async fn shop() -> Api {
    let config = "[queues.orders]\nmode = \"accumulate\"\nmax_retries = 25\n\
        [queues.mails]\nmode = \"fifo\"\n[queues.reports]\nmode = \"parallel\"\nmax_retries = 0\n";
    let site = Site::new(config);
    let queues = vec![
        Queue::accumulate("orders").max_retries(25),
        Queue::fifo("mails"),
        Queue::parallel("reports").max_retries(0),
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
        hand.push(order(key, "paid")).await;
        hand.push(order(key, "packed").score(2.0)).await;
    }
    hand.fail_all("orders", "no stock of item 7731").await;
    for key in 60..72 {
        hand.push(order(key, "paid")).await;
    }
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
        hand.end(turn, seriatim::Outcome::Retry { error: error.into(), retry_in: None }).await;
    }
    for to in ["ann", "bob", "cat"] {
        hand.push(Job::new("mails", &json!({ "to": to })).unwrap().key(to)).await;
    }
    hand.claim("mails").await;
    history(&hand).await;
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

/// The last hour as the server would have written it: of each minute seven numbers, 7 bits in a byte.
async fn history(hand: &Hand) {
    let now = hand.now.as_micros() / 60_000_000;
    let mut rows = std::collections::BTreeMap::<i64, Vec<u8>>::new();
    for back in (1..60).rev() {
        let minute = now - back;
        let wave = ((minute % 23) - 11).unsigned_abs();
        let failed = if minute % 17 < 2 { 9 } else { minute.unsigned_abs() % 3 };
        let row = rows.entry(minute.div_euclid(60)).or_default();
        row.push(minute.rem_euclid(60) as u8);
        for mut number in [400 + 90 * wave, failed, 2 * wave, 24 + wave, 3, 3, 9] {
            while number > 0x7f {
                row.push(number as u8 | 0x80);
                number >>= 7;
            }
            row.push(number as u8);
        }
    }
    let note = |(hour, row): (i64, Vec<u8>)| Note::new(format!("history/m/*/{hour:08}"), row);
    hand.store.write_notes(rows.into_iter().map(note).collect()).await.unwrap();
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
            for (name, path) in PAGES {
                window.go(path).await;
                // Links and marks of a hand would be in the picture.
                window.run("document.activeElement.blur(); getSelection().removeAllRanges()").await;
                let cut =
                    window.run("return document.documentElement.scrollWidth - innerWidth").await;
                assert_eq!(cut, 0, "{width} {path}");
                let picture = window.picture().await;
                let is_published = width == WIDTHS[1];
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
