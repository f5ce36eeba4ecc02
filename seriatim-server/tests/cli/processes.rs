//! Process workers: long-lived programs under supervision.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use seriatim::store::{Declare, JobQuery, JobState, JobView, Push};
use seriatim::{Client, Job, Queue};
use seriatim_verify::checker::check_files;

use crate::builtin::Ready;
use crate::clients::PYTHON_CLIENT;
use crate::site::{QUEUE, Site, eventually, is_alive, kill, push_recorded, wait_until};

/// A site with a Python worker: `body` is the function `handle(lane)`.
struct Team(Ready);

impl Deref for Team {
    type Target = Ready;

    fn deref(&self) -> &Ready {
        &self.0
    }
}

impl Team {
    async fn new(queue: &str, worker: &str, body: &str) -> Self {
        let node = "concurrency = 16\nlease = \"5s\"";
        let worker = format!(
            "process = [\"python3\", \"worker.py\"]\nenv = {{ PYTHONPATH = {PYTHON_CLIENT:?} }}\n{worker}"
        );
        let team = Self(Ready::on(node, "fifo", queue, &worker).await);
        fs::create_dir(team.site.path("seen")).unwrap();
        team.install(body);
        team
    }

    /// Replaces the program, as a deployment does.
    fn install(&self, body: &str) {
        let program = format!(
            "import os, pathlib, random, signal, subprocess, sys, threading\n\
             from seriatim import *\n\
             stdout = os.dup(1)\n\
             def raw(line): os.write(stdout, (line + '\\n').encode())\n\
             def name(lane): return f'{{lane.lane}}-{{lane.token}}-{{lane.jobs[0][\"job_id\"]}}'\n\
             def seen(what): pathlib.Path('seen', str(what)).touch()\n\
             seen(f'pid-{{os.getpid()}}')\n\
             {body}\n\
             ProcessWorker(handle).run()\n"
        );
        fs::write(self.site.path("worker.new"), program).unwrap();
        fs::rename(self.site.path("worker.new"), self.site.path("worker.py")).unwrap();
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
        let query = JobQuery::new(QUEUE, JobState::Dead);
        self.store.jobs(query).await.unwrap().rows
    }
}

const RANDOM_CRASHES: &str = "
def handle(lane):
    seen(VERSION)
    if lane.jobs[0]['payload'].get('poison') or random.random() < 1 / 400:
        os.kill(os.getpid(), signal.SIGKILL)
";

async fn push_numbered(team: &Team, recorder: &Recorder, numbers: std::ops::Range<u32>) {
    let job = |number| {
        let payload = json!({ "number": number, "poison": number == POISON });
        let job = Job::new(QUEUE, &payload).unwrap().key(format!("key-{}", number % KEYS));
        job.score(f64::from(number))
    };
    push_recorded(&team.store, recorder, numbers, job).await;
}

type Recorder = Arc<seriatim_verify::checker::Recorder<std::io::BufWriter<fs::File>>>;
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
    push_numbered(&team, &recorder, 0..1_000).await;
    for after in [100, 300, 600] {
        kill_some(&team, after).await;
    }
    team.install(&version(2));
    // Processes that have just died start with it; the others are replaced.
    team.logs("the program of a worker has changed").await;
    push_numbered(&team, &recorder, 1_000..1_750).await;
    kill_some(&team, 1_250).await;
    team.sees("version-2").await;
    let before = team.pids();
    serving.signal(Signal::HUP);
    push_numbered(&team, &recorder, 1_750..2_500).await;
    kill_some(&team, 2_000).await;
    wait_until(&team.store, |stats| stats.jobs == 0).await;
    assert!(team.pids().len() > before.len(), "SIGHUP replaces what runs");
    team.logs("SIGHUP: replacing all worker processes").await;
    serving.stop();
    assert_eq!(team.living(), Vec::<i32>::new(), "no process outlives its node");
    recorder.finish(&*team.store).await.unwrap();
    let report =
        check_files(&[team.site.path("pushes.ndjson"), team.site.path("history.ndjson")]).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.pushes, 2_500);
    let dead = team.morgue().await;
    assert_eq!(dead.len(), 1, "the poison takes nobody with it: {dead:?}");
    assert_eq!(dead[0].key.as_deref(), Some("key-177"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_the_lanes_of_a_dead_process_run_again_at_once_and_count_a_crash() {
    let body = "
def handle(lane):
    if lane.crashes == 0:
        print('about to hang', file=sys.stderr)
        seen('hanging')
        threading.Event().wait()
    seen(f'crashes {lane.crashes} attempt {lane.attempt}')
";
    let team = Team::new("", "concurrency = 2", body).await;
    let serving = team.site.serve("history.ndjson");
    let id = team.push("a", json!({})).await;
    team.sees("hanging").await;
    kill(team.living()[0], Signal::KILL);
    team.sees("crashes 1 attempt 2").await;
    assert_eq!(team.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    let log = team.log();
    assert!(log.contains("signal: 9") && log.contains("about to hang"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_process_that_does_not_answer_in_time_is_ended_and_its_other_calls_go_back_uncounted()
{
    let body = "
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def handle(lane):
    if not pathlib.Path('seen', 'replaced').exists():
        seen(f'hanging {lane.key}')
        if lane.key == 'late': subprocess.Popen(['sh', '-c', 'touch seen/pid-$$; exec cat'])
        threading.Event().wait()
    seen(f'{lane.key}: attempt {lane.attempt}, crashes {lane.crashes}')
";
    let team =
        Team::new(r#"backoff = { kind = "constant", base = "10ms" }"#, "concurrency = 4", body)
            .await;
    let serving = team.site.serve("history.ndjson");
    let other = team.push("other", json!({})).await;
    team.sees("hanging other").await;
    let mut late = Job::new(QUEUE, &json!({})).unwrap().key("late");
    late.options.timeout = Some(Duration::from_secs(1));
    let late = Client::new(team.store.clone()).push(late).await.unwrap().job_id;
    team.sees("hanging late").await;
    eventually("its own child", async || team.living().len() == 2).await;
    let first = team.living();
    fs::write(team.site.path("seen/replaced"), "").unwrap();
    team.sees("other: attempt 1, crashes 0").await;
    team.sees("late: attempt 2, crashes 0").await;
    assert_eq!(team.ends(other).await.state, JobState::Succeeded);
    assert_eq!(team.ends(late).await.state, JobState::Succeeded);
    assert!(first.iter().all(|pid| !is_alive(*pid)), "what it started has ended with it");
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_cancellations_reach_a_call_and_spare_its_process() {
    let body = "
def handle(lane):
    if lane.key == 'a':
        seen('started')
        while not lane.cancelled(): threading.Event().wait(0.01)
        return cancel('as asked')
    if lane.key == 'c':
        seen('two are handed over' if len(lane.jobs) == 2 else 'one')
        while not lane.cancelled(lane.jobs[1]): threading.Event().wait(0.01)
        seen('one of two' if not lane.cancelled() else 'both')
        return bury('the other one', done=1)
";
    let team = Team::new("take = 2", "concurrency = 2", body).await;
    let both = [team.push("c", json!(1)).await, team.push("c", json!(2)).await];
    let serving = team.site.serve("history.ndjson");
    let id = team.push("a", json!({})).await;
    team.sees("started").await;
    let cancel = seriatim::store::Cancel { now: None, jobs: vec![id] };
    team.store.cancel(cancel).await.unwrap();
    assert_eq!(team.ends(id).await.state, JobState::Canceled);
    team.sees("two are handed over").await;
    let cancel = seriatim::store::Cancel { now: None, jobs: vec![both[1]] };
    team.store.cancel(cancel).await.unwrap();
    assert_eq!(team.ends(both[0]).await.state, JobState::Succeeded);
    assert_eq!(team.ends(both[1]).await.state, JobState::Canceled);
    team.sees("one of two").await;
    let next = team.push("b", json!({})).await;
    assert_eq!(team.ends(next).await.state, JobState::Succeeded);
    assert_eq!(team.pids().len(), 1, "one process did it all");
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_process_that_gives_up_when_its_time_is_up_cancels_nothing() {
    let body = "
def handle(lane):
    while not lane.cancelled(): threading.Event().wait(0.01)
    return cancel('gave up')
";
    let team = Team::new("timeout = \"300ms\"\nmax_retries = 0", "", body).await;
    let serving = team.site.serve("history.ndjson");
    let job = team.ends(team.push("a", json!({})).await).await;
    assert_eq!(job.state, JobState::Dead, "{job:?}");
    assert!(job.error.as_ref().is_some_and(|error| error.contains("timed out")), "{job:?}");
    serving.stop();
}

/// Reads what comes after its call only when it is asked to end: after all that the node has to say.
const READS_LATE: &str = "
import json, pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
lanes = {lane['lane'] for lane in json.loads(sys.stdin.readline())['lanes']}
count = len(lanes)
signal.sigwait({signal.SIGTERM})
while lanes:
    message = json.loads(sys.stdin.readline())
    if message['type'] == 'cancel': lanes.discard(message['lane'])
pathlib.Path('heard').write_text(str(count))
";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_each_lane_of_a_call_of_3_000_hears_of_its_cancellation() {
    const LANES: u32 = 3_000;
    let queue = format!("batch_size = {LANES}\nmax_retries = 0");
    let worker = "process = [\"python3\", \"worker.py\"]\ntimeout = \"2s\"";
    let ready = Ready::new("fifo", &queue, worker).await;
    ready.write("worker.py", READS_LATE);
    let jobs: Vec<Job> =
        (0..LANES).map(|key| Job::new(QUEUE, &1).unwrap().key(key.to_string())).collect();
    ready.store.push(Push { now: None, jobs }).await.unwrap();
    let serving = ready.serve();
    let heard = async || ready.read("heard") == LANES.to_string();
    eventually("all lanes have heard", heard).await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n10_a_changed_program_takes_over_and_the_old_one_finishes_its_calls() {
    let old = "
def handle(lane):
    seen('old has begun')
    while not pathlib.Path('seen', 'go').exists(): threading.Event().wait(0.01)
    seen(f'old has ended, attempt {lane.attempt}')
";
    let team = Team::new("", "concurrency = 2", old).await;
    let serving = team.site.serve("history.ndjson");
    let slow = team.push("slow", json!({})).await;
    team.sees("old has begun").await;
    let before = team.living();
    team.install("raise SystemExit('a typing error')");
    team.logs("keeping the old process").await;
    assert_eq!(before, team.living(), "a version that does not run replaces nothing");
    team.install("def handle(lane): seen('new')");
    team.logs("worker process replaced").await;
    let quick = team.push("quick", json!({})).await;
    assert_eq!(team.ends(quick).await.state, JobState::Succeeded);
    team.sees("new").await;
    assert_eq!(team.job(slow).await.state, JobState::Running);
    assert!(is_alive(before[0]), "the old process still has a call");
    fs::write(team.site.path("seen/go"), "").unwrap();
    team.sees("old has ended, attempt 1").await;
    assert_eq!(team.ends(slow).await.state, JobState::Succeeded);
    eventually("the old process ends", async || !is_alive(before[0])).await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n10_a_program_that_came_after_the_start_of_its_node_is_replaced_when_it_changes() {
    let team = Team::new("", "", "").await;
    fs::remove_file(team.site.path("worker.py")).unwrap();
    let serving = team.site.serve("history.ndjson");
    team.logs("cannot start a worker process").await;
    team.install("seen('old')\ndef handle(lane): pass");
    team.sees("old").await;
    team.install("seen('new')\ndef handle(lane): pass");
    team.sees("new").await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n11_progress_of_a_call_is_seen_while_it_runs() {
    let body = "
def handle(lane):
    lane.progress({'percent': 40})
    while not pathlib.Path('seen', 'go').exists(): threading.Event().wait(0.01)
";
    let team = Team::new("", "", body).await;
    let serving = team.site.serve("history.ndjson");
    let id = team.push("a", json!({})).await;
    let told = async || team.job(id).await.progress.is_some_and(|text| text.contains("40"));
    eventually("progress", told).await;
    fs::write(team.site.path("seen/go"), "").unwrap();
    assert_eq!(team.ends(id).await.state, JobState::Succeeded);
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_what_is_no_message_goes_to_the_log_and_harms_nobody() {
    let body = r#"
import json
def handle(lane):
    raw('just talking')
    raw('{"type":"done","batch":"nobody"}')
    raw('{"type":"progress","batch":"nobody","lane":"1-0-1","progress":1}')
    raw('x' * 5_000_000)
    raw('\u0000\ufffd')
    if lane.key == 'unreadable':
        raw(json.dumps({'type': 'result', 'batch': name(lane), 'results': 'fine'}))
    if lane.key == 'unnamed':
        raw(json.dumps({'type': 'result', 'batch': name(lane), 'results': []}))
    if lane.key == 'strange':
        return {'outcome': 'explode'}
"#;
    let team = Team::new("max_retries = 0", "", body).await;
    let serving = team.site.serve("history.ndjson");
    let cases = [
        ("unreadable", Some("`results` is \"fine\"")),
        ("unnamed", Some("it does not name any lane")),
        ("strange", Some("`results[0].outcome` is \"explode\"")),
        ("good", None),
    ];
    for (key, error) in cases {
        let id = team.push(key, json!({})).await;
        let job = team.ends(id).await;
        let expected = if error.is_some() { JobState::Dead } else { JobState::Succeeded };
        assert_eq!(job.state, expected, "{key}: {job:?}");
        assert!(job.error.unwrap_or_default().contains(error.unwrap_or_default()), "{key}");
    }
    serving.stop();
    let log = team.log();
    assert!(log.contains("just talking") && log.contains("xxx…"), "{log}");
    assert!(log.contains("a message about call \"nobody\", which it does not have"), "{log}");
    assert!(log.len() < 200_000, "long lines are cut: {}", log.len());
    assert_eq!(team.pids().len(), 1, "one process did it all");
}

/// Answers each call a second time, when it has read the next one; dies at some jobs, once, before it does them.
const TWICE: &str = "
import json, os, sys
before = ''
for line in sys.stdin:
    call = json.loads(line)
    if call['type'] != 'perform': break
    sys.stdout.write(before)
    sys.stdout.flush()
    lane = call['lanes'][0]
    number = lane['jobs'][0]['payload']
    if number % 317 == 300 and lane['crashes'] == 0: os._exit(1)
    with open('done', 'a') as done: done.write(f'{number}\\n')
    before = json.dumps({'type': 'done', 'batch': call['batch']}) + '\\n'
    sys.stdout.write(before)
    sys.stdout.flush()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_second_answer_does_not_end_the_next_job_of_a_key() {
    const JOBS: u32 = 2_000;
    // Jobs of a queue that keeps no finished ones follow each other under one token.
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\nprocess = [\"python3\", \"worker.py\"]\n"
    ));
    fs::write(site.path("worker.py"), TWICE).unwrap();
    let store = site.store().await;
    store.declare(Declare { now: None, queues: vec![Queue::fifo(QUEUE)] }).await.unwrap();
    let jobs: Vec<Job> =
        (0..JOBS).map(|number| Job::new(QUEUE, &number).unwrap().key("a")).collect();
    for jobs in jobs.chunks(500) {
        store.push(Push { now: None, jobs: jobs.to_vec() }).await.unwrap();
    }
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    serving.stop();
    let done = fs::read_to_string(site.path("done")).unwrap();
    let done: BTreeSet<u32> = done.lines().map(|line| line.parse().unwrap()).collect();
    let missing: Vec<u32> = (0..JOBS).filter(|number| !done.contains(number)).collect();
    assert_eq!(missing, [0; 0], "done, by the store's word");
    let log = fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    assert!(log.contains("which it does not have"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_program_that_cannot_start_or_dies_at_once_leaves_its_jobs_uncounted() {
    for (program, reason) in [(None, "no such file"), (Some("exit 3"), "exit status: 3")] {
        let site = Site::new(&format!(
            "[queues.{QUEUE}]\nmode = \"fifo\"\n\
             [[workers]]\nqueue = \"{QUEUE}\"\nprocess = [\"./worker\"]\n"
        ));
        if let Some(program) = program {
            executable(&site, program);
        }
        let store = site.store().await;
        store.declare(Declare { now: None, queues: vec![Queue::fifo(QUEUE)] }).await.unwrap();
        let job = Job::new(QUEUE, &json!({})).unwrap().key("a");
        let id = Client::new(store.clone()).push(job).await.unwrap().job_id;
        let serving = site.serve("history.ndjson");
        let log = || fs::read_to_string(site.path("history.ndjson.log")).unwrap();
        eventually("a pause", async || log().contains("Its jobs went back uncounted")).await;
        eventually("a release", async || {
            store.job(id).await.unwrap().unwrap().state == JobState::Queued
        })
        .await;
        let job = store.job(id).await.unwrap().unwrap();
        assert_eq!((job.retry_count, job.crashes), (-1, 0), "{job:?}");
        assert!(log().contains(reason), "{}", log());
        serving.stop();
        assert_eq!(log().matches("Its jobs went back uncounted").count(), 1);
    }
}

fn executable(site: &Site, script: &str) {
    let path = site.path("worker");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_process_that_ignores_shutdown_is_ended_by_signals() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\nprocess = [\"./worker\"]\n"
    ));
    executable(
        &site,
        "trap '' TERM; echo $$ > pid.part; mv pid.part pid; while read line; do echo \"$line\" > said; done; tail -f /dev/null",
    );
    let serving = site.serve("history.ndjson");
    let path = site.path("pid");
    eventually("it runs", async || path.exists()).await;
    let pid: i32 = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
    serving.stop();
    assert!(!is_alive(pid));
    assert_eq!(fs::read_to_string(site.path("said")).unwrap(), "{\"type\":\"shutdown\"}\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_the_python_example_does_what_the_guide_says() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/workers/orders.py");
    let team = Team::new("", "concurrency = 4", "").await;
    fs::copy(example, team.site.path("worker.py")).unwrap();
    let serving = team.site.serve("history.ndjson");
    let good = team.push("42", json!({"status": "paid"})).await;
    let bad = team.push("43", json!({})).await;
    assert_eq!(team.ends(good).await.state, JobState::Succeeded);
    let bad = team.ends(bad).await;
    assert_eq!(bad.error.as_deref(), Some("an order update needs a status"));
    team.logs("order 42 is paid").await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_poison_takes_its_neighbours_with_it_once_at_most() {
    let body = "
def handle(lane):
    seen(f'{lane.key} {lane.crashes}')
    if lane.key == 'poison':
        while lane.crashes == 0 and not all(pathlib.Path('seen', f'{key} 0').exists() for key in 'abc'):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if lane.crashes == 0: threading.Event().wait()
    threading.Event().wait(0.3)
";
    let team = Team::new("max_crashes = 2", "concurrency = 4", body).await;
    let mut ids = Vec::new();
    for key in ["poison", "a", "b", "c"] {
        ids.push(team.push(key, json!({})).await);
    }
    let serving = team.site.serve("history.ndjson");
    assert_eq!(team.ends(ids[0]).await.state, JobState::Dead);
    for id in &ids[1..] {
        let job = team.ends(*id).await;
        assert_eq!((job.state, job.attempt), (JobState::Succeeded, 2), "{job:?}");
    }
    serving.stop();
}

/// As a reader of lines that takes 64 KiB at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_a_call_whose_processes_die_before_they_have_read_all_of_it_is_poison() {
    let body = "
handle = print
if not sys.stdin.buffer.readline(65_536).endswith(b'\\n'): os._exit(3)
";
    let team = Team::new("max_crashes = 2", "", body).await;
    let id = team.push("a", json!({ "text": "x".repeat(1 << 20) })).await;
    let serving = team.site.serve("history.ndjson");
    assert_eq!(team.ends(id).await.state, JobState::Dead);
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n4_what_a_process_answered_before_it_died_counts() {
    let body = "
import json
def handle(lane):
    # In one piece, so that it dies while its output is still being read.
    answer = json.dumps({'type': 'done', 'batch': name(lane)})
    raw('noise\\n' * 9_000 + answer)
    os.kill(os.getpid(), signal.SIGKILL)
";
    let team = Team::new("", "", body).await;
    let serving = team.site.serve("history.ndjson");
    for key in ["a", "b", "c"] {
        let id = team.push(key, json!({})).await;
        let job = team.ends(id).await;
        assert_eq!((job.state, job.attempt), (JobState::Succeeded, 1), "{job:?}");
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn d12_a_stopping_node_takes_a_process_back_between_two_steps_and_the_next_one_goes_on() {
    let body = "
def note(number):
    with open('steps', 'a') as steps: steps.write(f'{number}\\n')
    seen('a step')
    while not pathlib.Path('go').exists(): threading.Event().wait(0.01)
def handle(lane):
    for number in range(3): lane.step(f'step {number}', note, number)
";
    let team = Team::new("", "", body).await;
    let first = team.site.serve("history.ndjson");
    let id = team.push("a", json!({})).await;
    team.sees("a step").await;
    first.signal(Signal::TERM);
    team.logs("stopping: no new work").await;
    fs::write(team.site.path("go"), "").unwrap();
    first.ends();
    let job = team.job(id).await;
    let counts = (job.state, job.attempt, job.crashes, job.retry_count);
    assert_eq!(counts, (JobState::Queued, 0, 0, -1), "it went back uncounted");
    let second = team.site.serve("second.ndjson");
    assert_eq!(team.ends(id).await.state, JobState::Succeeded);
    second.stop();
    assert_eq!(fs::read_to_string(team.site.path("steps")).unwrap(), "0\n1\n2\n");
}
