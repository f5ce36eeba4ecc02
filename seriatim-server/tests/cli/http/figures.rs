//! Figures add up: a known load with known failures, and what every surface says of it.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use seriatim::store::{Declare, QueueStats};
use seriatim::{
    Backoff, Batch, Client, Context, Engine, Failure, Job, Mode, Outcome, Outcomes, Queue,
    SharedStore, Timestamp, engine::Summary,
};

use super::Api;
use super::client::{Request, held};
use crate::hand::Hand;
use crate::site::{PATIENCE, Site, eventually, text};

/// Who does the work of a queue. Its name is `KIND-MODE`.
const KINDS: [&str; 4] = ["closure", "command", "process", "remote"];
const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);
/// The figures of a queue, in the order of their columns.
const NAMES: [&str; 10] = [
    "jobs",
    "lanes",
    "waiting",
    "claimed",
    "running",
    "prefetched",
    "retrying",
    "dead",
    "processed",
    "failed",
];

type Figures = BTreeMap<String, u64>;

/// What a worker does with jobs that say it: the first that does not say `done` decides.
const WORKER: &str = r#"
import json, os, sys

def result(lane):
    says = [job["payload"]["do"] for job in lane["jobs"]]
    if says == ["crash"] and lane["attempt"] == 1:
        os._exit(1)
    done = next((at for at, what in enumerate(says) if what not in ("done", "crash")), None)
    if done is None:
        return {"lane": lane["lane"], "outcome": "done"}
    said = {"lane": lane["lane"], "outcome": says[done], "error": "told to"}
    if says[done] == "snooze":
        said["retry_in"] = 3600
    if lane["queue"].endswith("fifo"):
        said["done"] = done
    return said

def results(call):
    said = [result(lane) for lane in call["lanes"]]
    print(json.dumps({"type": "result", "batch": call["batch"], "results": said}), flush=True)

if sys.argv[1] == "command":
    results(json.load(sys.stdin))
else:
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "perform":
            results(message)
        elif message["type"] == "shutdown":
            break
"#;

/// The same for handlers in Rust: how many jobs are done, and the outcome of the next.
fn outcome(queue: &str, says: &[&str]) -> (usize, &'static str) {
    let outcomes = ["retry", "bury", "cancel", "snooze"];
    let Some(at) = says.iter().position(|what| *what != "done") else { return (0, "done") };
    let what = outcomes.into_iter().find(|what| *what == says[at]).unwrap();
    (if queue.ends_with("fifo") { at } else { 0 }, what)
}

async fn closure(batch: Batch<Value>, _: Context) -> Result<Outcomes, Failure> {
    let mut outcomes = Outcomes::new();
    for lane in batch.lanes() {
        let says: Vec<&str> =
            lane.payloads().iter().map(|job| job["do"].as_str().unwrap()).collect();
        let (done, what) = outcome(&lane.turn().queue, &says);
        let error = || "told to".into();
        let outcome = match what {
            "done" => continue,
            "retry" => Outcome::Retry { error: error(), retry_in: None },
            "bury" => Outcome::Bury { error: error() },
            "cancel" => Outcome::Cancel { reason: error() },
            _ => Outcome::Snooze { length: HOUR },
        };
        outcomes.set_after(lane.id(), done, outcome);
    }
    Ok(outcomes)
}

/// Claims and settles until there is nothing more.
fn work_remotely(api: &Api) {
    let queues: Vec<String> = Mode::ALL.iter().map(|mode| format!("remote-{mode}")).collect();
    let claim = json!({ "worker": "w", "queues": queues, "limit": 10 });
    loop {
        let lanes = api.post("/api/v1/work/claim", &claim).done()["lanes"].clone();
        let lanes = lanes.as_array().unwrap();
        if lanes.is_empty() {
            return;
        }
        let result = |lane: &Value| {
            let jobs = lane["jobs"].as_array().unwrap();
            let says: Vec<&str> =
                jobs.iter().map(|job| job["payload"]["do"].as_str().unwrap()).collect();
            let (done, what) = outcome(lane["queue"].as_str().unwrap(), &says);
            let error = (what != "done").then_some("told to");
            let mut said = held(lane, json!({ "outcome": what, "error": error, "done": done }));
            if what == "snooze" {
                said["retry_in"] = 3600.into();
            }
            said
        };
        let results: Vec<Value> = lanes.iter().map(result).collect();
        let said = json!({ "worker": "w", "results": results });
        let settled = api.post("/api/v1/work/settle", &said).done();
        assert!(settled["results"].as_array().unwrap().iter().all(|one| one["status"] == "ok"));
    }
}

/// The load of a queue: its jobs, and what they say.
fn load(queue: &str, mode: Mode) -> Vec<Job> {
    let gathers = mode == Mode::Accumulate;
    let job = |key: &str, n: usize, what: &str| {
        let job = Job::new(queue, &json!({ "do": what, "n": n })).unwrap().score(n as f64);
        if mode.is_keyed() { job.key(key) } else { job }
    };
    let mut jobs: Vec<Job> = (1..=3).map(|n| job("ok", n, "done")).collect();
    // An equal payload becomes one with the first.
    jobs.extend(gathers.then(|| job("ok", 1, "done")));
    for what in ["retry", "bury", "cancel", "snooze"] {
        jobs.push(job(what, 1, what));
    }
    let mixed: &[&str] = if gathers { &["done", "retry"] } else { &["done", "bury", "done"] };
    jobs.extend(mixed.iter().enumerate().map(|(n, what)| job("mixed", n, what)));
    jobs.push(job("expired", 1, "done").expires_at(Timestamp::from_micros(1_000_000)));
    jobs.push(job("scheduled", 1, "done").run_in(HOUR));
    jobs
}

/// The table: what is left of that load.
fn expected(kind: &str, mode: Mode) -> Figures {
    let crashed = u64::from(kind == "process");
    let (jobs, lanes, retrying, dead, processed) = match mode {
        // Of `mixed` both payloads wait for one retry.
        Mode::Accumulate => (5, 4, 2, 1, 3),
        // Of `mixed` one is dead and two are done.
        Mode::Parallel | Mode::Fifo | Mode::Exclusive => (3, 3, 1, 2, 5),
    };
    let figures = [jobs, lanes, lanes, 0, 0, 0, retrying, dead, processed + crashed, 3 + crashed];
    named(figures)
}

fn named(figures: [u64; 10]) -> Figures {
    NAMES.into_iter().map(str::to_owned).zip(figures).collect()
}

/// What an engine has done with the queues of one kind.
fn summary(kind: &str) -> Summary {
    let crashes = if kind == "process" { Mode::ALL.len() as u64 } else { 0 };
    // Nobody is called with what has expired, and remote workers are not even handed it.
    let (calls, expired) = if kind == "remote" { (0, 0) } else { (33, Mode::ALL.len() as u64) };
    counts([calls + 2 * crashes, 18 + crashes, 13 + crashes, 12 + crashes, 4, 4 + expired])
}

fn added(a: Summary, b: Summary) -> Summary {
    counts([
        a.calls + b.calls,
        a.processed + b.processed,
        a.done + b.done,
        a.failed + b.failed,
        a.put_off + b.put_off,
        a.cancelled + b.cancelled,
    ])
}

/// A summary of these counts; all others are 0.
fn counts([calls, processed, done, failed, put_off, cancelled]: [u64; 6]) -> Summary {
    let mut summary = Summary::default();
    (summary.calls, summary.processed, summary.done) = (calls, processed, done);
    (summary.failed, summary.put_off, summary.cancelled) = (failed, put_off, cancelled);
    summary
}

fn queues() -> Vec<(&'static str, Queue)> {
    let of = |kind| {
        Mode::ALL.into_iter().map(move |mode| {
            let queue = Queue::new(format!("{kind}-{mode}"), mode)
                .backoff(Backoff::Constant { base: HOUR });
            (kind, if mode == Mode::Fifo { queue.take(3) } else { queue })
        })
    };
    KINDS.into_iter().flat_map(of).collect()
}

fn config() -> String {
    let worker = |(kind, queue): &(&str, Queue)| {
        let name = &queue.name;
        let take = if queue.mode == Mode::Fifo { "take = 3\n" } else { "" };
        let settings = format!(
            "[queues.{name}]\nmode = \"{}\"\n{take}backoff = {{ kind = \"constant\", base = \"1h\" }}\n",
            queue.mode
        );
        let program = format!("[\"python3\", \"worker.py\", \"{kind}\"]");
        match *kind {
            "command" | "process" => {
                format!(
                    "{settings}[[workers]]\nqueue = \"{name}\"\n{kind} = {program}\nconcurrency = 1\n"
                )
            }
            _ => settings,
        }
    };
    let of_queues: String = queues().iter().map(worker).collect();
    format!("[node]\nid = \"server\"\n{of_queues}")
}

/// Waits until the store has these figures.
async fn reaches(store: &SharedStore, wanted: &[(String, Figures)]) {
    let (started, mut wakeups) = (Instant::now(), store.wakeups());
    loop {
        let stats = store.stats(None).await.unwrap();
        let of = |queue: &str| stats.iter().find(|of| &*of.queue == queue).map(of_store);
        if wanted.iter().all(|(queue, figures)| of(queue).is_some_and(|of| has(figures, &of))) {
            return;
        }
        if started.elapsed() > PATIENCE {
            for (queue, figures) in wanted {
                assert_eq!(of(queue), Some(figures.clone()), "{queue}, in the store");
            }
        }
        wakeups.wait(std::time::Duration::from_millis(100)).await;
    }
}

/// Whether the figures that a store knows are these.
fn has(figures: &Figures, of: &Figures) -> bool {
    of.iter().all(|(name, number)| figures[name] == *number)
}

fn of_store(of: &QueueStats) -> Figures {
    let numbers = [
        ("jobs", of.jobs),
        ("lanes", of.lanes),
        ("waiting", of.waiting()),
        ("claimed", of.claimed),
        ("retrying", of.retrying),
        ("dead", of.dead),
        ("processed", of.processed),
        ("failed", of.failed),
    ];
    numbers.map(|(name, number)| (name.to_owned(), number)).into()
}

/// The figures in a document.
fn in_json(document: &Value) -> Figures {
    let number =
        |name: &str| document[name].as_u64().unwrap_or_else(|| panic!("{name}: {document}"));
    NAMES.into_iter().map(|name| (name.to_owned(), number(name))).collect()
}

/// The figures in a table: those of its head.
fn in_table(table: &str, queue: &str) -> Figures {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let head = words(table.lines().next().unwrap());
    let row = table.lines().map(words).find(|row| row.first().is_some_and(|name| name == queue));
    let row = row.unwrap_or_else(|| panic!("no {queue}: {table}"));
    let figures = head.into_iter().zip(row);
    figures
        .filter(|(name, _)| NAMES.contains(&name.as_str()))
        .map(|(name, number)| (name, number.parse().unwrap()))
        .collect()
}

/// The next message with the numbers of all queues.
fn next_stats(api: &Api) -> Value {
    use std::io::{BufRead, BufReader};
    let stream = BufReader::new(Request::new("GET", "/api/v1/events").start(&api.address));
    let mut lines = stream.lines().map(Result::unwrap);
    lines.find(|line| line == "event: stats").unwrap();
    serde_json::from_str(lines.next().unwrap().strip_prefix("data: ").unwrap()).unwrap()
}

/// Compares all figures of all surfaces.
fn compare(api: &Api, wanted: &[(String, Figures)]) {
    let json = |arguments: &[&str]| -> Value {
        let output = api.site.run(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    let get = |path: &str| api.get(path).done();
    let find = |list: &Value, queue: &str| -> Value {
        let found = list["queues"].as_array().unwrap().iter().find(|one| one["queue"] == queue);
        found.unwrap_or_else(|| panic!("no {queue}: {list}")).clone()
    };
    let stats = [json(&["stats"]), get("/api/v1/stats"), next_stats(api)];
    let lists = [json(&["queues"]), json(&["top", "--once"]), get("/api/v1/queues")];
    let tables = [&["stats"][..], &["queues"]].map(|arguments| text(&api.site.run(arguments)));
    let metrics = api.get("/metrics").text();
    for (queue, figures) in wanted {
        for (place, stats) in stats.iter().enumerate() {
            let of = &stats["by_worker"][queue];
            assert_eq!(in_json(of), *figures, "{queue}, stats {place}");
            let lowkiq = (&of["length"], &of["morgue_length"]);
            assert_eq!(lowkiq, (&json!(figures["waiting"]), &json!(figures["dead"])));
        }
        for (place, list) in lists.iter().enumerate() {
            assert_eq!(in_json(&find(list, queue)), *figures, "{queue}, list {place}");
        }
        assert_eq!(in_json(&get(&format!("/api/v1/queues/{queue}"))), *figures, "{queue}, alone");
        assert_eq!(in_json(&json(&["queues", "show", queue])), *figures, "{queue}, shown");
        for table in &tables {
            let shown = in_table(table, queue);
            assert!(shown.len() >= 6 && has(figures, &shown), "{queue}: {figures:?}\n{table}");
        }
        for (name, number) in figures {
            let end = if ["processed", "failed"].contains(&name.as_str()) { "_total" } else { "" };
            let line = format!("seriatim_queue_{name}{end}{{queue=\"{queue}\"}} {number}");
            assert!(metrics.lines().any(|written| written == line), "{line}\n{metrics}");
        }
    }
    let mut total = Figures::new();
    for (name, number) in wanted.iter().flat_map(|(_, figures)| figures) {
        *total.entry(name.clone()).or_default() += number;
    }
    for stats in &stats {
        assert_eq!(in_json(&stats["total"]), total);
        assert_eq!(stats["total"]["length"], total["waiting"]);
        assert_eq!(stats["total"]["morgue_length"], total["dead"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_load_makes_the_same_figures_in_every_mode_by_every_worker_on_every_surface() {
    let site = Site::new(&config());
    std::fs::write(site.path("worker.py"), WORKER).unwrap();
    let store = site.store().await;
    let declared = queues().into_iter().map(|(_, queue)| queue).collect();
    store.declare(Declare { now: None, queues: declared }).await.unwrap();
    let client = Client::new(store.clone());
    for (_, queue) in queues() {
        client.push_all(load(&queue.name, queue.mode)).await.unwrap();
    }
    let engine = Engine::builder(store.clone()).node_name("library");
    let engine = Mode::ALL
        .into_iter()
        .fold(engine, |engine, mode| engine.worker(format!("closure-{mode}"), closure));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let engine = tokio::spawn(engine.run_until(stopped));
    let api = Api::with(site, |_| {});
    work_remotely(&api);
    // What may wait for a program that starts again comes when nothing else waits for it.
    let of = |(kind, queue): (&str, Queue)| (queue.name, expected(kind, queue.mode));
    let wanted: Vec<(String, Figures)> = queues().into_iter().map(of).collect();
    reaches(&store, &before_crashes(wanted.clone())).await;
    for mode in Mode::ALL {
        let job = Job::new(format!("process-{mode}"), &json!({ "do": "crash" })).unwrap();
        client.push(if mode.is_keyed() { job.key("crash") } else { job }).await.unwrap();
    }
    reaches(&store, &wanted).await;
    compare(&api, &wanted);
    let busy = async || {
        let nodes = api.get("/api/v1/nodes").done()["nodes"].clone();
        let of = |node: &Value| {
            ["busy", "claimed", "running", "prefetched"].map(|name| node[name].clone())
        };
        nodes.as_array().unwrap().iter().map(of).all(|of| of == [0, 0, 0, 0].map(|n| json!(n)))
    };
    eventually("no node has anything to do", busy).await;
    stop.send(()).unwrap();
    assert_eq!(settled(engine.await.unwrap().unwrap(), 4), summary("closure"));
    let log = api.log.clone();
    api.stopped();
    let (own, remote) = closing_line(&log.says("stopped: "));
    assert_eq!(settled(own, 8), added(summary("command"), summary("process")));
    assert_eq!(remote, summary("remote"));
}

/// With only the snoozed turns as put off: on a slow machine, turns that were claimed ahead have gone back too.
fn settled(mut summary: Summary, snoozed: u64) -> Summary {
    assert!(summary.put_off >= snoozed, "{summary:?}");
    summary.put_off = snoozed;
    summary
}

/// The figures when nothing has crashed yet.
fn before_crashes(mut wanted: Vec<(String, Figures)>) -> Vec<(String, Figures)> {
    for (_, figures) in wanted.iter_mut().filter(|(queue, _)| queue.starts_with("process")) {
        *figures.get_mut("processed").unwrap() -= 1;
        *figures.get_mut("failed").unwrap() -= 1;
    }
    wanted
}

/// What `serve` said at its end of its own workers and of remote ones.
fn closing_line(log: &str) -> (Summary, Summary) {
    let line = log.lines().find_map(|line| Some(line.split_once("stopped: ")?.1));
    let line = line.unwrap_or_else(|| panic!("no closing line: {log}"));
    let (own, remote) = line.split_once("; remote workers: ").unwrap();
    (in_words(own), in_words(remote))
}

fn in_words(words: &str) -> Summary {
    let number = |what: &str| {
        let before = words.split(what).next().filter(|before| before.len() < words.len())?;
        before.trim_end().rsplit([' ', ':']).next()?.parse::<u64>().ok()
    };
    let of = |what: &str| number(what).unwrap_or(0);
    counts([" calls", " jobs processed", " done", " failed", " put off", " cancelled"].map(of))
}

#[tokio::test]
async fn what_a_node_has_claimed_ahead_is_prefetched_and_not_running_on_every_surface() {
    let site = Site::new("");
    let mut hand = Hand::new(site.store().await, vec![Queue::fifo("orders")]).await;
    for key in ["a", "b", "c", "d", "e"] {
        hand.push(Job::new("orders", &1).unwrap().key(key)).await;
    }
    let api = Api::with(site, |_| {});
    let claim = json!({ "worker": "w", "queues": ["orders"], "limit": 1 });
    assert_eq!(api.post("/api/v1/work/claim", &claim).done()["lanes"][0]["key"], "a");
    hand.push(Job::new("orders", &2).unwrap().key("a")).await;
    assert_eq!(hand.claim("orders").await.len(), 4);
    hand.push(Job::new("orders", &2).unwrap().key("f").run_in(HOUR)).await;
    (hand.node.busy, hand.node.prefetched) = (1, [("orders".to_owned(), 3)].into());
    hand.beat().await;
    // The hand runs one and has claimed three ahead; the remote worker has what it asked for.
    compare(&api, &[("orders".to_owned(), named([7, 6, 1, 5, 2, 3, 0, 0, 0, 0]))]);
    let node = api.get("/api/v1/nodes/hand-1").done();
    let figures = ["busy", "claimed", "running", "prefetched"].map(|name| node[name].clone());
    assert_eq!(figures, [1, 4, 1, 3].map(|n| json!(n)));
    let remote = api.get("/api/v1/nodes/remote:w").done();
    assert_eq!((&remote["claimed"], &remote["running"]), (&json!(1), &json!(1)));
    // What was told before counts for no more than what is claimed now.
    hand.node.prefetched = [("orders".to_owned(), 100)].into();
    hand.beat().await;
    compare(&api, &[("orders".to_owned(), named([7, 6, 1, 5, 0, 5, 0, 0, 0, 0]))]);
}
