//! A folder in which the binary runs, and what a test sees of it.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seriatim::{Client, Job, Queue, SharedStore, Timestamp};
use seriatim_verify::checker::Recorder;

/// How long a test waits for what must happen: less than the test runner waits for the test, so that the
/// test can say what it was.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const QUEUE: &str = "orders";

/// A folder with a database and a configuration.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("seriatim.toml"), config).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_seriatim"), arguments)
    }

    /// Another program, in the surroundings of ours.
    pub(crate) fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(arguments).current_dir(self.folder.path()).env_remove("SERIATIM_STORE");
        // What the product sets itself must not come from whoever runs the tests.
        command.env_remove("PYTHONUNBUFFERED");
        // Whoever traces the tests does not mean these processes.
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("TRACEPARENT");
        command
    }

    pub(crate) fn serve(&self, history: &str) -> Serving {
        self.serve_by(env!("CARGO_BIN_EXE_seriatim"), history)
    }

    /// A node of this program: of this build, or of another.
    pub(crate) fn serve_by(&self, program: &str, history: &str) -> Serving {
        let log = File::create(self.path(&format!("{history}.log"))).unwrap();
        let child = self
            .program(program, &["serve", "--no-http", "--history", history])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Serving(child)
    }

    pub(crate) async fn store(&self) -> SharedStore {
        let url = format!("sqlite:{}", self.path("seriatim.db").display());
        seriatim::connect(&url).await.unwrap()
    }

    /// Waits until a file is there.
    pub(crate) async fn appears(&self, name: &str, store: &SharedStore) {
        let (started, mut wakeups) = (Instant::now(), store.wakeups());
        while !self.path(name).exists() {
            assert!(started.elapsed() < PATIENCE, "there is no {name}");
            wakeups.wait(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the log of a serving process says something.
    pub(crate) async fn said(&self, history: &str, text: &str, store: &SharedStore) {
        self.said_times(history, text, 1, store).await;
    }

    /// Waits until it has said it so many times.
    pub(crate) async fn said_times(
        &self,
        history: &str,
        text: &str,
        times: usize,
        store: &SharedStore,
    ) {
        let (started, mut wakeups) = (Instant::now(), store.wakeups());
        loop {
            let log = std::fs::read_to_string(self.path(&format!("{history}.log"))).unwrap();
            if log.matches(text).count() >= times {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "it did not say {text:?}:\n{log}");
            wakeups.wait(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn recorder(&self, queue: &Queue) -> Arc<Recorder<BufWriter<File>>> {
        let file = File::create(self.path("pushes.ndjson")).unwrap();
        let recorder = Arc::new(Recorder::new("pusher", BufWriter::new(file)));
        recorder.queue(queue);
        recorder
    }
}

/// A running `seriatim serve`; killed when it is dropped.
pub(crate) struct Serving(pub(crate) Child);

impl Serving {
    pub(crate) fn actor(&self) -> String {
        format!("pid-{}", self.0.id())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn kill(mut self) -> String {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        self.actor()
    }

    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        self.ends();
    }

    /// Waits for the end of a process that has been told to stop.
    pub(crate) fn ends(mut self) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "process {} does not stop", self.0.id());
            std::thread::park_timeout(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Pushes the jobs of these numbers, four at a time, and records it.
pub(crate) async fn push_recorded(
    store: &SharedStore,
    recorder: &Arc<Recorder<BufWriter<File>>>,
    numbers: Range<u32>,
    job: fn(u32) -> Job,
) {
    let mut pushers = Vec::new();
    for pusher in 0..4 {
        let (client, recorder) = (Client::new(store.clone()), recorder.clone());
        let numbers = numbers.clone().skip(pusher).step_by(4);
        pushers.push(tokio::spawn(async move {
            for job in numbers.map(job) {
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

pub(crate) async fn wait_until(
    store: &SharedStore,
    what: impl Fn(&seriatim::store::QueueStats) -> bool,
) {
    let started = Instant::now();
    let mut wakeups = store.wakeups();
    loop {
        let stats = store.stats(None).await.unwrap();
        if stats.iter().any(|stats| &*stats.queue == QUEUE && what(stats)) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "it did not happen in time: {stats:?}");
        wakeups.wait(Duration::from_millis(100)).await;
    }
}

/// The secret of the token with this name.
pub(crate) fn secret(name: &str) -> String {
    format!("the-long-secret-of-{name}")
}

pub(crate) fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Waits for what no store tells.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    assert!(happens(is_so).await, "it did not happen in time: {what}");
}

/// Whether it comes to be so in time, for those who have more to say when it does not.
pub(crate) async fn happens(is_so: impl AsyncFn() -> bool) -> bool {
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        while !is_so().await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.is_ok()
}

/// Names how many jobs a run under faults or with limits has; few if unset, so that all tests stay quick.
const JOBS_VARIABLE: &str = "SERIATIM_FAULT_JOBS";

pub(crate) fn jobs_or(few: u64) -> u64 {
    std::env::var(JOBS_VARIABLE).map_or(few, |jobs| jobs.parse().unwrap())
}

/// Signals a process that may have ended by itself.
pub(crate) fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Whether it runs: a process that has ended and that nobody has waited for does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
