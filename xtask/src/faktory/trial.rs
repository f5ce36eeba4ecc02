//! One client: it pushes, two of its workers work, and one is killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use seriatim_testkit::free_port;

use super::clients::Client;
use super::record::{Event, Record, VICTIM, What, is_slow};
use crate::serving::{Serving, ask_with, wait_for, write};

/// Jobs that a worker does at the same time.
pub(super) const SLOTS: usize = 5;
const KEYS: u64 = 100;
/// The worker is killed after `1/KILL_AFTER` of the jobs: in the middle of those with a key, which come first.
const KILL_AFTER: u64 = 10;
/// The password, which is an admin's token.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(300);
const PAGE: u64 = 1_000;

pub(super) struct Trial {
    /// From the first push to the end of the last job that did not wait for the killed worker.
    pub(super) seconds: f64,
    pub(super) again: usize,
    pub(super) rescue: f64,
}

/// A server, and where it answers.
struct Server {
    _serving: Serving,
    http: u16,
    faktory: u16,
}

/// A worker with all processes that it starts. Killed on drop.
struct Worker(Child);

pub(super) fn run(root: &Path, client: &Client, jobs: u64) -> Result<Trial, String> {
    let server = Server::start(root, client)?;
    let began = now();
    let push = server.known_to(client.pushes(root, jobs, KEYS)).status();
    if !push.as_ref().is_ok_and(|status| status.success()) {
        return Err(format!("it did not push: {push:?}"));
    }
    let (sender, events) = mpsc::channel();
    let mut workers = Vec::new();
    for number in [VICTIM, VICTIM + 1] {
        let mut command = server.known_to(client.works(root, SLOTS));
        // They tell of the jobs that fail, at length.
        let log = client.folder(root).join(format!("worker-{number}.log"));
        command.stderr(File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?);
        workers.push(Worker::start(command, number, sender.clone())?);
    }
    drop(sender);
    let mut record = Record {
        jobs,
        keys: KEYS,
        slots: SLOTS,
        killed_at: 0.0,
        events: Vec::new(),
        done: Vec::new(),
    };
    follow(&server, &mut workers, &events, &mut record)?;
    drop(workers);
    record.events.extend(events);
    record.done = server.done(jobs)?;
    let shown = record.judge()?;
    Ok(Trial { seconds: shown.last_at - began, again: shown.again, rescue: shown.rescue })
}

/// Kills one worker in the middle, and returns when nothing is left.
fn follow(
    server: &Server,
    workers: &mut [Worker],
    events: &Receiver<Event>,
    record: &mut Record,
) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    let (mut ended, mut looked) = (0, Instant::now());
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => {
                record.events.push(event);
                ended += u64::from(event.what == What::End);
                let holds =
                    (event.worker, event.what) == (VICTIM, What::Start) && is_slow(event.job);
                if record.killed_at == 0.0 && ended >= record.jobs / KILL_AFTER && holds {
                    workers[VICTIM].kill();
                    record.killed_at = now();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("both workers ended".to_owned()),
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let left = server.get("/api/v1/stats")?["total"]["jobs"].as_u64();
            if left == Some(0) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{left:?} jobs are left after {PATIENCE:?}"));
            }
        }
    }
}

impl Server {
    fn start(root: &Path, client: &Client) -> Result<Self, String> {
        let folder = client.folder(root).join("serve");
        let _ = fs::remove_dir_all(&folder);
        let (http, faktory) = (free_port()?, free_port()?);
        let queue = |name: &str, mode: &str| {
            format!(
                "[queues.{name}]\nmode = \"{mode}\"\nretain_completed = \"1h\"\nbackoff = {{ kind = \"linear\", base = \"1s\" }}\n"
            )
        };
        let config = format!(
            "[store]\nurl = \"sqlite:{}\"\n[http]\nlisten = \"127.0.0.1:{http}\"\n[faktory]\nlisten = \"127.0.0.1:{faktory}\"\n{}{}",
            folder.join("jobs.db").display(),
            queue("default", "parallel"),
            queue("ordered", "fifo")
        );
        let config = write(&folder, "seriatim.toml", &config)?;
        let mut serve = Command::new(root.join("target/debug/seriatim"));
        serve.arg("serve").arg("--config").arg(config).env("SERIATIM_TOKEN", TOKEN);
        serve.env("SERIATIM_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null());
        let serving = Serving(vec![serve.spawn().map_err(|e| format!("seriatim serve: {e}"))?]);
        wait_for(http)?;
        Ok(Self { _serving: serving, http, faktory })
    }

    /// A client's program, which knows the server by a variable.
    fn known_to(&self, mut command: Command) -> Command {
        command.env("FAKTORY_URL", format!("tcp://:{TOKEN}@127.0.0.1:{}", self.faktory));
        command
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let answer = ask_with(self.http, &token, path, None)?;
        serde_json::from_str(&answer).map_err(|e| format!("{path}: {e}"))
    }

    /// The numbers of all jobs that are done, with the claims that were lost.
    fn done(&self, jobs: u64) -> Result<Vec<(u64, u64)>, String> {
        let (mut done, mut after) = (Vec::new(), String::new());
        while done.len() as u64 <= jobs {
            let page = self.get(&format!("/api/v1/jobs?state=succeeded&limit={PAGE}{after}"))?;
            for job in page["jobs"].as_array().into_iter().flatten() {
                let (number, crashes) = (&job["payload"]["args"][0], &job["crashes"]);
                let read = number.as_u64().zip(crashes.as_u64());
                done.push(read.ok_or_else(|| format!("a job without a number: {job}"))?);
            }
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        Ok(done)
    }
}

impl Worker {
    fn start(mut command: Command, number: usize, events: Sender<Event>) -> Result<Self, String> {
        // What it starts is killed with it.
        let started = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|e| format!("the worker: {e}"))?;
        let output = child.stdout.take().ok_or("the worker has no output")?;
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let read = lines.filter_map(|line| Event::read(number, &line));
            // Ends with the worker, or with the trial.
            read.map(|event| events.send(event)).take_while(Result::is_ok).count()
        });
        Ok(Self(child))
    }

    fn kill(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The time, as the programs write it.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
