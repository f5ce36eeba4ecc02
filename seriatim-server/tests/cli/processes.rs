//! Process workers: long-lived programs under supervision.

use std::fs;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim::checker::check_files;
use seriatim::store::{Declare, JobOrder, JobQuery, JobState, JobView};
use seriatim::{Client, Job, JobId, Queue, SharedStore, Timestamp};

use crate::site::{QUEUE, Site, eventually, kill, wait_until};

/// A site with a Python worker: `body` is the function `handle(lane)`.
struct Team {
    site: Site,
    store: SharedStore,
}

impl Team {
    async fn new(queue: &str, worker: &str, body: &str) -> Self {
        let site = Site::new(&format!(
            "[node]\nconcurrency = 16\nlease = \"5s\"\nheartbeat = \"300ms\"\n\
             [queues.{QUEUE}]\nmode = \"fifo\"\nretain_completed = \"1h\"\n{queue}\n\
             [[workers]]\nqueue = \"{QUEUE}\"\nprocess = [\"python3\", \"worker.py\"]\n{worker}\n"
        ));
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/workers");
        fs::copy(format!("{examples}/seriatim_worker.py"), site.path("seriatim_worker.py"))
            .unwrap();
        fs::create_dir(site.path("seen")).unwrap();
        let store = site.store().await;
        let team = Self { site, store };
        team.install(body);
        team
    }

    /// Replaces the program, as a deployment does.
    fn install(&self, body: &str) {
        let program = format!(
            "import os, pathlib, random, signal, subprocess, sys, threading\n\
             from seriatim_worker import *\n\
             def seen(what): pathlib.Path('seen', str(what)).touch()\n\
             seen(f'pid-{{os.getpid()}}')\n\
             {body}\n\
             serve(handle, concurrency=4)\n"
        );
        fs::write(self.site.path("worker.new"), program).unwrap();
        fs::rename(self.site.path("worker.new"), self.site.path("worker.py")).unwrap();
    }

    async fn push(&self, key: &str, payload: Value) -> JobId {
        let job = Job::new(QUEUE, &payload).unwrap().key(key);
        Client::new(self.store.clone()).push(job).await.unwrap().job_id
    }

    async fn job(&self, id: JobId) -> JobView {
        self.store.job(id).await.unwrap().unwrap()
    }

    async fn ends(&self, id: JobId) -> JobView {
        let has_ended =
            async || !matches!(self.job(id).await.state, JobState::Queued | JobState::Running);
        eventually("a job ends", has_ended).await;
        self.job(id).await
    }

    async fn sees(&self, what: &str) {
        let path = self.site.path("seen").join(what);
        eventually(what, async || path.exists()).await;
    }

    /// The worker processes that have been started, as far as they told.
    fn pids(&self) -> Vec<i32> {
        let names = fs::read_dir(self.site.path("seen")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("pid-")?.parse().ok()).collect()
    }

    fn living(&self) -> Vec<i32> {
        self.pids().into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    async fn morgue(&self) -> Vec<JobView> {
        let query = JobQuery {
            queue: QUEUE.into(),
            state: JobState::Failed,
            key: None,
            order: JobOrder::Arrival,
            after: None,
            rows_max: 1_000,
        };
        self.store.jobs(query).await.unwrap().rows
    }

    fn log(&self) -> String {
        fs::read_to_string(self.site.path("history.ndjson.log")).unwrap()
    }

    async fn logs(&self, text: &str) {
        eventually(text, async || self.log().contains(text)).await;
    }
}

/// Whether it runs: a process that has ended and that nobody has waited for does not.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

const RANDOM_CRASHES: &str = "
def handle(lane):
    seen(VERSION)
    if lane.jobs[0]['payload'].get('poison') or random.random() < 1 / 400:
        os.kill(os.getpid(), signal.SIGKILL)
";

async fn push_numbered(team: &Team, recorder: &Recorder, numbers: std::ops::Range<u32>) {
    let mut pushers = Vec::new();
    for pusher in 0..4 {
        let (client, recorder) = (Client::new(team.store.clone()), recorder.clone());
        let numbers = numbers.clone().skip(pusher).step_by(4);
        pushers.push(tokio::spawn(async move {
            for number in numbers {
                let payload = json!({ "number": number, "poison": number == POISON });
                let job = Job::new(QUEUE, &payload).unwrap().key(format!("key-{}", number % KEYS));
                let job = job.score(f64::from(number));
                let sent_at = Timestamp::of_this_machine();
                let answer = client.push(job.clone()).await;
                recorder.pushed(sent_at, &job, Some(&answer));
                answer.unwrap();
            }
        }));
    }
    for pusher in pushers {
        pusher.await.unwrap();
    }
}

type Recorder = Arc<seriatim::checker::Recorder<std::io::BufWriter<fs::File>>>;
const KEYS: u32 = 200;
const POISON: u32 = 777;

async fn kill_some(team: &Team, after: u64) {
    wait_until(&team.store, |stats| stats.processed > after).await;
    let living = team.living();
    if let Some(pid) = living.get(fastrand::usize(..living.len().max(1))) {
        kill(*pid, Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n4_a_worker_that_dies_is_restarted_and_the_poison_is_buried_alone() {
    let version = |number: u32| RANDOM_CRASHES.replace("VERSION", &format!("'version-{number}'"));
    let team = Team::new("", "processes = 2\nconcurrency = 4", &version(1)).await;
    let queue = Queue::fifo(QUEUE);
    team.store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
    let recorder = team.site.recorder(&queue);
    let serving = team.site.serve("history.ndjson");
    push_numbered(&team, &recorder, 0..2_000).await;
    for after in [100, 600, 1_200] {
        kill_some(&team, after).await;
    }
    team.install(&version(2));
    push_numbered(&team, &recorder, 2_000..3_500).await;
    kill_some(&team, 2_500).await;
    team.sees("version-2").await;
    let before = team.pids();
    serving.signal(Signal::HUP);
    push_numbered(&team, &recorder, 3_500..5_000).await;
    kill_some(&team, 4_000).await;
    wait_until(&team.store, |stats| stats.jobs == 0).await;
    assert!(team.pids().len() > before.len(), "SIGHUP replaces what runs");
    serving.stop();
    assert_eq!(team.living(), Vec::<i32>::new(), "no process outlives its node");
    recorder.finish(&*team.store).await.unwrap();
    let report =
        check_files(&[team.site.path("pushes.ndjson"), team.site.path("history.ndjson")]).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.pushes, 5_000);
    let dead = team.morgue().await;
    assert_eq!(dead.len(), 1, "the poison takes nobody with it: {dead:?}");
    assert_eq!(dead[0].key.as_deref(), Some("key-177"));
}
