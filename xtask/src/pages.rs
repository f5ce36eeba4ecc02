//! `cargo xtask pages`: how long the dashboard's pages take, and how large they are, with many jobs in the store.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use seriatim_testkit::free_port;

use crate::options::Options;
use crate::serving::{Serving, ask, wait_for, with_store, write};
use crate::{Failure, files, serving, step};

const PAGE: &str = "docs/performance.md";
const USAGE: &str = "usage: cargo xtask pages [--jobs N] [--store sqlite|postgres|mysql|redis]... [--write]; \
    --write: into docs/performance.md";

const JOBS: u64 = 10_000_000;
/// Redis holds jobs in memory.
const JOBS_IN_MEMORY: u64 = 1_000_000;
/// Of one push.
const BATCH: u64 = 1_000;
/// More than are done while the pages are requested.
const FLEETING: u64 = 30_000;
/// Connections that push.
const PUSHERS: u64 = 2;
/// Of each page at most; the first is a visitor's first, too.
const REQUESTS: usize = 40;
/// A page that takes seconds is asked for this long.
const PAGE_TIME: Duration = Duration::from_secs(10);

struct Fill {
    queue: &'static str,
    /// Of a hundred jobs.
    share: u64,
    /// A job for each key if none.
    keys: Option<u64>,
    delay: &'static str,
}

const FILLS: [Fill; 4] = [
    Fill { queue: "orders", share: 40, keys: Some(10_000), delay: "" },
    Fill { queue: "changes", share: 30, keys: Some(1_000_000), delay: "" },
    Fill { queue: "mails", share: 20, keys: None, delay: "" },
    Fill { queue: "later", share: 10, keys: None, delay: r#","delay":"30d""# },
];

/// `fleeting` has workers, so that claims run beside all pages: about a hundred a second. Jobs of `failing` die.
const CONFIG: &str = r#"
[queues.orders]
mode = "fifo"
[queues.changes]
mode = "accumulate"
[queues.mails]
mode = "parallel"
[queues.later]
mode = "parallel"
[queues.fleeting]
mode = "parallel"
retain_completed = "1h"
[queues.failing]
mode = "fifo"
max_retries = 0
[[workers]]
queue = "fleeting"
command = ["/bin/sleep", "0.1"]
concurrency = 10
[[workers]]
queue = "failing"
command = ["/bin/false"]
"#;

const PAGES: [&str; 26] = [
    "/",
    "/queues",
    "/queues/orders",
    "/queues/orders/lanes",
    "/queues/orders/lanes?by=key&prefix=order-77",
    "/queues/mails/lanes",
    "/queues/mails/lanes?by=age",
    "/queues/later/lanes?by=due",
    "/queues/mails/lanes?state=running",
    "/queues/failing/lanes?by=retries",
    "/key?k=order-77",
    "/key?k=unknown",
    "/jobs",
    "/jobs?queue=later&state=queued",
    "/morgue",
    "/morgue?queue=failing",
    "/scheduled",
    "/scheduled?queue=later",
    "/cron",
    "/nodes",
    "/audit",
    "/search?q=order-77",
    "/search?q=unknown",
    "/search?q=unknown&all=true",
    "/operations",
    "/about",
];

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = Options::parse(args, JOBS, USAGE)?;
    serving::build(root)?;
    for store in &options.stores {
        let jobs = match *store {
            "redis" => options.jobs.min(JOBS_IN_MEMORY),
            _ => options.jobs,
        };
        step::announce(&format!("{store}, {jobs} jobs"));
        let rows = with_store(root, store, |url| measure(root, url, jobs))?;
        let text = format!(
            "{jobs} jobs in the store, {REQUESTS} requests of each page (fewer if these take more than {} s), on new \
             connections, while a worker claims: `cargo xtask pages --store {store}`.\n\n\
             | page | ms: p50 | p95 | KB |\n|---|---|---|---|\n{rows}",
            PAGE_TIME.as_secs()
        );
        files::show(root, PAGE, &format!("pages-{store}"), &text, options.write)?;
    }
    Ok(())
}

/// Rows of a table.
fn measure(root: &Path, url: &str, jobs: u64) -> Result<String, String> {
    let port = free_port()?;
    let config =
        format!("[store]\nurl = \"{url}\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n{CONFIG}");
    let config = write(&root.join("target/pages"), "seriatim.toml", &config)?;
    let mut serving = Serving::default();
    serving.start(root, &config, &[])?;
    wait_for(port)?;
    let started = Instant::now();
    for fill in &FILLS {
        fill.push(port, jobs)?;
        eprintln!("{} filled after {:.0} s", fill.queue, started.elapsed().as_secs_f64());
    }
    push(port, "failing", 0..300, |job| {
        format!(r#"{{"key":"bad-{}","payload":{job}}}"#, job % 30)
    })?;
    push(port, "fleeting", 0..FLEETING, |job| format!(r#"{{"payload":{job}}}"#))?;
    let mut rows = String::new();
    for page in PAGES {
        let row = time(port, page)?;
        eprint!("{row}");
        rows.push_str(&row);
    }
    Ok(rows)
}

impl Fill {
    fn push(&self, port: u16, jobs: u64) -> Result<(), String> {
        let jobs = jobs * self.share / 100;
        let document = |job: u64| {
            let key = self.keys.map(|keys| format!(r#""key":"order-{}","#, job % keys));
            let (key, delay) = (key.unwrap_or_default(), self.delay);
            format!(
                r#"{{{key}"payload":{{"order":{job},"status":"paid","by":"somebody"}}{delay}}}"#
            )
        };
        thread::scope(|scope| {
            let part = |of: u64| jobs * of / PUSHERS..jobs * (of + 1) / PUSHERS;
            let pushers: Vec<_> = (0..PUSHERS)
                .map(|of| scope.spawn(move || push(port, self.queue, part(of), document)))
                .collect();
            pushers.into_iter().try_for_each(|pusher| {
                pusher.join().unwrap_or_else(|_| Err("a pusher panicked".into()))
            })
        })
    }
}

fn push(
    port: u16,
    queue: &str,
    jobs: std::ops::Range<u64>,
    document: impl Fn(u64) -> String,
) -> Result<(), String> {
    let what = format!("/api/v1/queues/{queue}/jobs");
    let mut from = jobs.start;
    while from < jobs.end {
        let until = (from + BATCH).min(jobs.end);
        let batch: Vec<String> = (from..until).map(&document).collect();
        ask(port, &what, Some(&format!("[{}]", batch.join(","))))?;
        from = until;
    }
    Ok(())
}

/// A row of the table.
fn time(port: u16, page: &str) -> Result<String, String> {
    let (mut times, mut bytes) = (Vec::with_capacity(REQUESTS), 0);
    let until = Instant::now() + PAGE_TIME;
    while times.len() < REQUESTS && Instant::now() < until {
        let started = Instant::now();
        bytes = ask(port, page, None)?.len();
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let ms = |part: usize| {
        times.get(times.len() * part / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    Ok(format!("| `{page}` | {:.1} | {:.1} | {} |\n", ms(50), ms(95), bytes.div_ceil(1_000)))
}

#[cfg(test)]
mod tests {
    use super::FILLS;

    #[test]
    fn the_queues_share_all_jobs() {
        assert_eq!(FILLS.iter().map(|fill| fill.share).sum::<u64>(), 100);
    }
}
