//! Bridges, with the Sidekiq of Debian and recorded commands of Lowkiq on a real Redis.

mod back;
mod faults;
mod lowkiq;
mod moving;
mod people;

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};

use seriatim::{Batch, Engine, EngineBuilder, Failure, SharedStore};
use seriatim_testkit::{Redis, find_program};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::site::{Serving, Site, eventually, jobs_or};

/// Jobs between two faults.
const ROUND: u64 = 1_000;

fn rounds() -> u64 {
    jobs_or(2 * ROUND).div_ceil(ROUND)
}

/// Of the signatures of Lowkiq's payloads.
const MAC_KEY: &str = "0123456789abcdef0123456789abcdef";

const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/bridges/app.rb");

/// Orders have keys, mails have none.
const CONFIG: &str = r#"
[queues.orders]
mode = "fifo"
[queues.mails]
mode = "parallel"
[[bridges]]
name = "shop"
kind = "sidekiq"
url_env = "SIDEKIQ_REDIS"
queues = ["critical", "default"]
[[bridges.routes]]
class = "OrderSync"
from = "critical"
queue = "orders"
key = "/args/0"
payload = "/args"
[[bridges.routes]]
queue = "mails"
payload = "/args/0"
"#;

/// Sidekiq's Redis, and a folder with our configuration.
struct Shop {
    redis: Redis,
    site: Site,
}

impl Shop {
    fn new(config: &str) -> Self {
        Self { redis: Redis::start().unwrap(), site: Site::new(config) }
    }

    /// With our store beside Sidekiq's keys: a process that sleeps holds no lock of it, as it may of a file.
    fn with_the_store_in_redis(config: &str) -> Self {
        let redis = Redis::start().unwrap();
        let site = Site::new(&format!("[store]\nurl = \"{}\"\n{config}", redis.url()));
        Self { redis, site }
    }

    /// Another command of ours.
    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.site.command(arguments);
        command.env("SIDEKIQ_REDIS", self.redis.url()).env("LOWKIQ_MAC_KEY", MAC_KEY);
        command
    }

    /// What it prints, and whether it succeeds.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.success(), crate::site::text(&output))
    }

    fn serve(&self, name: &str) -> Serving {
        let log = std::fs::File::create(self.site.path(&format!("{name}.log"))).unwrap();
        let mut command = self.command(&["serve", "--no-http"]);
        Serving(command.stdin(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn producer(&self) -> Producer {
        self.application(APP)
    }

    fn application(&self, path: &str) -> Producer {
        let mut command = self.ruby(&[path]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (asks, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Producer { _process: Serving(child), asks, answers: BufReader::new(answers) }
    }

    /// Sidekiq itself, at work on a queue.
    fn sidekiq(&self, queue: &str) -> Serving {
        let program = find_program("sidekiq", "ruby-sidekiq").unwrap_or_else(|e| panic!("{e}"));
        let program = program.display().to_string();
        let mut command = self.ruby(&[&program, "-r", APP, "-q", queue, "-c", "2", "-t", "1"]);
        Serving(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn ruby(&self, arguments: &[&str]) -> std::process::Command {
        let ruby = find_program("ruby", "ruby").unwrap_or_else(|missing| panic!("{missing}"));
        let mut command = self.site.program(&ruby.display().to_string(), arguments);
        // It warns of what its own dependencies do.
        command.env("SIDEKIQ_REDIS", self.redis.url()).env("RAN", self.site.path("ran"));
        command.stderr(Stdio::null());
        command
    }

    /// A number that Redis answers.
    fn number(&self, words: &[&str]) -> u64 {
        let answer = self.redis.send(words).unwrap();
        answer.trim_start_matches(':').lines().next().unwrap().trim().parse().unwrap()
    }

    /// A list that Redis answers, however long.
    fn texts(&self, words: &[&str]) -> Vec<String> {
        let mut link = redis::Client::open(self.redis.url()).unwrap().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut link).unwrap()
    }

    /// What Sidekiq's own workers ran.
    fn ran(&self) -> Vec<u64> {
        let ran = std::fs::read_to_string(self.site.path("ran")).unwrap_or_default();
        ran.lines().map(|line| line.parse().unwrap()).collect()
    }
}

/// An application that pushes jobs on request.
struct Producer {
    _process: Serving,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Producer {
    fn begins(&mut self, what: &str) {
        writeln!(self.asks, "{what}").unwrap();
    }

    fn has_done(&mut self) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "is ruby-sidekiq installed?");
    }

    fn does(&mut self, what: &str) {
        self.begins(what);
        self.has_done();
    }
}

/// An engine of this process, and what its handlers got, in order.
struct Works<T> {
    got: Arc<Mutex<Vec<T>>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A handler that keeps what these make of its calls.
fn keeps<P, T, I>(
    got: Arc<Mutex<Vec<T>>>,
    of: impl Fn(&Batch<P>) -> I,
) -> impl Fn(Batch<P>) -> Ready<Result<(), Failure>>
where
    I: IntoIterator<Item = T>,
{
    move |batch| {
        got.lock().unwrap().extend(of(&batch));
        ready(Ok(()))
    }
}

impl<T> Works<T> {
    fn start(got: Arc<Mutex<Vec<T>>>, engine: EngineBuilder) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            engine.run_until(stopped).await.unwrap();
        });
        Self { got, stop, task }
    }

    fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    async fn have_got(&self, count: usize) {
        eventually(&format!("{count} jobs run"), async || self.count() >= count).await;
    }

    /// All that ran.
    async fn end(self) -> Vec<T> {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

impl Works<(String, u64)> {
    /// On orders and mails.
    fn on(store: &SharedStore) -> Self {
        let got = Arc::<Mutex<_>>::default();
        let orders = keeps(got.clone(), |batch: &Batch<(String, u64)>| {
            batch.payloads().cloned().collect::<Vec<_>>()
        });
        let mails = keeps(got.clone(), |batch: &Batch<u64>| {
            batch.payloads().map(|number| (String::new(), *number)).collect::<Vec<_>>()
        });
        let engine = Engine::builder(store.clone()).concurrency(8);
        let engine = engine.worker("orders", orders).worker("mails", mails);
        Self::start(got, engine)
    }
}

/// Each number from 0 on ran once, and those of a key in their order.
fn check_all_ran_once_in_order(ran: &[(String, u64)], count: u64) {
    let mut numbers: Vec<u64> = ran.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    let lost = (0..count).filter(|number| numbers.binary_search(number).is_err()).count();
    assert_eq!((lost, numbers.len() as u64 + lost as u64 - count), (0, 0), "lost, run twice");
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, number) in ran {
        let before = last.insert(key, *number);
        assert!(before.is_none_or(|before| before < *number), "{key}: {number} after {before:?}");
    }
}
