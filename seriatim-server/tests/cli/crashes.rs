//! Processes that are killed, and processes that share a name: judged by the recorded history.

use std::fs::File;
use std::io::BufWriter;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use seriatim::{Client, Job, Queue};
use seriatim_verify::checker::{Recorder, Report, check_files};

use crate::site::{QUEUE, Site, eventually, push_recorded, wait_until};

const KEYS: u32 = 50;
/// Each is a process of its own.
const JOBS: u32 = 800;

fn config(mode: &str) -> String {
    // A command of its own for each call, of which some fail.
    format!(
        r#"
        [node]
        id = "the-same"
        concurrency = 8
        lease = "2s"
        heartbeat = "300ms"
        [queues.{QUEUE}]
        mode = "{mode}"
        backoff = {{ kind = "constant", base = "20ms" }}
        [[workers]]
        queue = "{QUEUE}"
        command = ["sh", "-c", "cat > /dev/null; test $(($$ % 23)) -ne 0"]
        "#
    )
}

fn queue(mode: &str) -> Queue {
    Queue::new(QUEUE, seriatim::Mode::from_name(mode).unwrap())
}

async fn push(site: &Site, recorder: &Arc<Recorder<BufWriter<File>>>, jobs: u32) {
    let job = |number| {
        let payload = serde_json::json!({ "number": number });
        let job = Job::new(QUEUE, &payload).unwrap().key(format!("key-{}", number % KEYS));
        job.score(f64::from(number))
    };
    push_recorded(&site.store().await, recorder, 0..jobs, job).await;
}

async fn judge(site: &Site, recorder: &Recorder<BufWriter<File>>, histories: &[&str]) -> Report {
    recorder.finish(&*site.store().await).await.unwrap();
    let mut files = vec![site.path("pushes.ndjson")];
    files.extend(histories.iter().map(|name| site.path(name)));
    let report = check_files(&files).unwrap();
    assert!(report.is_clean(), "{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_and_keeps_the_order() {
    for mode in ["accumulate", "fifo"] {
        let site = Site::new(&config(mode));
        let recorder = site.recorder(&queue(mode));
        let store = site.store().await;
        let declare = seriatim::store::Declare { now: None, queues: vec![queue(mode)] };
        store.declare(declare).await.unwrap();
        let first = site.serve("first.ndjson");
        let pushing = push(&site, &recorder, JOBS);
        let killing = async {
            wait_until(&store, |stats| stats.processed > 100).await;
            // A lane that it holds while it stands still, it holds when it dies.
            eventually("it holds a lane", async || {
                first.signal(Signal::STOP);
                let holds = store.stats(None).await.unwrap()[0].claimed > 0;
                if !holds {
                    first.signal(Signal::CONT);
                }
                holds
            })
            .await;
            recorder.died(&first.kill());
        };
        tokio::join!(pushing, killing);
        let second = site.serve("second.ndjson");
        wait_until(&store, |stats| stats.jobs == 0).await;
        second.stop();
        let report = judge(&site, &recorder, &["first.ndjson", "second.ndjson"]).await;
        assert_eq!(report.pushes, u64::from(JOBS), "{mode}");
        assert!(report.rescued > 0, "{mode}: what the dead process held was taken over\n{report}");
    }
}

/// Its program kills the process that runs it, for one key.
const POISON: &str = r#"
    [node]
    concurrency = 16
    heartbeat = "300ms"
    lease = "5s"
    [queues.orders]
    mode = "fifo"
    max_crashes = 5
    [[workers]]
    queue = "orders"
    command = ["sh", "-c", 'case "$SERIATIM_JOB_KEY" in poison) kill -9 $PPID;; esac; exec sleep 0.5']
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_job_that_kills_its_node_again_and_again_takes_no_other_job_to_the_morgue() {
    let site = Site::new(POISON);
    let store = site.store().await;
    let declare = seriatim::store::Declare { now: None, queues: vec![queue("fifo")] };
    store.declare(declare).await.unwrap();
    let keys = (0..9).map(|n| if n == 4 { "poison".to_owned() } else { format!("key-{n}") });
    let jobs = keys.map(|key| Job::new(QUEUE, &key).unwrap().key(key)).collect();
    Client::new(store.clone()).push_all(jobs).await.unwrap();
    let mut wakeups = store.wakeups();
    let mut deaths = 0;
    loop {
        let mut serving = site.serve(&format!("{deaths}.ndjson"));
        let died = loop {
            if serving.0.try_wait().unwrap().is_some() {
                break true;
            }
            if store.stats(None).await.unwrap()[0].jobs == 0 {
                break false;
            }
            wakeups.wait(Duration::from_millis(50)).await;
        };
        if !died {
            serving.stop();
            break;
        }
        deaths += 1;
        assert!(deaths <= 5, "the poison is buried after five");
    }
    let stats = &store.stats(None).await.unwrap()[0];
    assert_eq!((stats.processed, stats.dead), (8, 1), "{stats:?}");
    let query = seriatim::store::JobQuery::new(QUEUE, seriatim::store::JobState::Dead);
    let dead = store.jobs(query).await.unwrap().rows;
    assert_eq!(dead[0].key.as_deref(), Some("poison"));
    assert_eq!(deaths, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d17_two_processes_with_one_node_id_do_not_overlap() {
    let site = Site::new(&config("fifo"));
    let recorder = site.recorder(&queue("fifo"));
    let store = site.store().await;
    let declare = seriatim::store::Declare { now: None, queues: vec![queue("fifo")] };
    store.declare(declare).await.unwrap();
    let (one, two) = (site.serve("one.ndjson"), site.serve("two.ndjson"));
    for history in ["one.ndjson", "two.ndjson"] {
        site.said(history, "serving", &store).await;
    }
    push(&site, &recorder, 1_000).await;
    wait_until(&store, |stats| stats.jobs == 0).await;
    one.stop();
    two.stop();
    judge(&site, &recorder, &["one.ndjson", "two.ndjson"]).await;
    let sizes =
        ["one.ndjson", "two.ndjson"].map(|name| std::fs::metadata(site.path(name)).unwrap().len());
    assert!(sizes.iter().all(|bytes| *bytes > 1_000), "both have worked: {sizes:?}");
}

/// Holds the write lock of the database until it is dropped, from another process.
struct Locker(std::process::Child);

impl Locker {
    fn lock(site: &Site) -> Self {
        let script = "import sqlite3, sys
c = sqlite3.connect('seriatim.db', isolation_level=None, timeout=60)
c.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .current_dir(site.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_waited_for_said_once_and_gone_on_with() {
    let site = Site::new(&config("fifo").replace("lease = \"2s\"", "lease = \"60s\""));
    let recorder = site.recorder(&queue("fifo"));
    let store = site.store().await;
    let declare = seriatim::store::Declare { now: None, queues: vec![queue("fifo")] };
    store.declare(declare).await.unwrap();
    push(&site, &recorder, 1_000).await;
    let serving = site.serve("one.ndjson");
    wait_until(&store, |stats| stats.processed > 20).await;
    let locker = Locker::lock(&site);
    site.said("one.ndjson", "trying until the store answers again", &store).await;
    drop(locker);
    site.said("one.ndjson", "the store answers again", &store).await;
    wait_until(&store, |stats| stats.jobs == 0).await;
    serving.stop();
    let log = std::fs::read_to_string(site.path("one.ndjson.log")).unwrap();
    assert_eq!(log.matches("trying until the store answers again").count(), 1, "{log}");
    let report = judge(&site, &recorder, &["one.ndjson"]).await;
    assert_eq!(report.rescued, 0, "its lease had not run out\n{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d16_a_stop_under_load_finishes_what_runs_and_gives_the_rest_back_uncounted() {
    let slow = config("fifo").replace("cat > /dev/null;", "cat > /dev/null; sleep 0.2;");
    let site = Site::new(&slow.replace("test $(($$ % 23)) -ne 0", "true"));
    let recorder = site.recorder(&queue("fifo"));
    let store = site.store().await;
    let declare = seriatim::store::Declare { now: None, queues: vec![queue("fifo")] };
    store.declare(declare).await.unwrap();
    push(&site, &recorder, 400).await;
    let serving = site.serve("one.ndjson");
    wait_until(&store, |stats| stats.processed > 8 && stats.claimed > 0).await;
    serving.stop();
    let stats = &store.stats(None).await.unwrap()[0];
    assert_eq!((stats.claimed, stats.failed), (0, 0), "{stats:?}");
    assert_eq!(stats.processed + stats.jobs, 400, "{stats:?}");
    assert!(stats.jobs > 200, "it began what waited: {stats:?}");
    let query = seriatim::store::JobQuery::new(QUEUE, seriatim::store::JobFilter::Live);
    let waiting = store.jobs(query).await.unwrap().rows;
    assert!(waiting.iter().all(|job| job.attempt == 0), "what went back was not counted");
}
