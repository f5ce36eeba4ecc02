//! Three nodes on one database server, killed, paused, stopped and started again under load, while the
//! server itself restarts: judged by the histories of all.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim::store::{Declare, LaneQuery, NodeView, Note, QueueStats};
use seriatim::{
    Client, Error, Groups, Job, Limit, Mode, Queue, Rate, Share, SharedStore, Timestamp,
};
use seriatim_testkit::{Cut, Proxy};
use seriatim_verify::checker::{Report, check_files};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{Server, on_each_server};
use crate::clients::PYTHON_CLIENT;
use crate::site::{PATIENCE, QUEUE, Serving, Site, eventually, happens, jobs_or};

const JOBS: u64 = 1_000;
/// Where a limit makes them wait.
const LIMITED_JOBS: u64 = 600;
/// All faults once, and again for each further set of this many jobs.
const JOBS_PER_ROUND: u64 = 10_000;
/// Names the seed of what happens when; at random if unset.
const SEED_VARIABLE: &str = "SERIATIM_FAULT_SEED";
/// Names a file to which each judged run adds a line of JSON with its figures.
const FIGURES_VARIABLE: &str = "SERIATIM_FAULT_FIGURES";
/// Keys of a run: at least `KEYS_MIN`, and one for every `JOBS_PER_KEY` jobs.
const KEYS_MIN: u64 = 500;
const JOBS_PER_KEY: u64 = 50;
const NODES: usize = 3;
/// Jobs in one push. They are of different keys.
pub(super) const PUSH_JOBS: u64 = 20;
/// One job of this many has a long payload, which Redis keeps apart from the job.
const LONG_EVERY: u64 = 3;
const LONG_BYTES: usize = 2 << 10;
/// Connections that are cut in a run. Each makes its node pause, the longer the oftener: without an end,
/// little would get done.
const CUTS_MAX: u64 = 60;
const CUTS_MIN: u64 = 12;
/// Groups of a queue that has groups.
const TENANTS: u64 = 3;
/// In a campaign connections fall silent after as many cuts: their calls wait for an answer until a limit ends them.
const CUTS_BEFORE_SILENCE: u64 = 6;
/// Pushing waits while more are open or the store is away.
const OPEN_MAX: u64 = 1_500;

const WORKER: &str = "
import random, threading
from seriatim import *
def handle(lane):
    threading.Event().wait(random.choices([0.001, 0.1], [19, 1])[0])
    if random.random() < 0.01:
        return retry('now and then')
ProcessWorker(handle).run()
";

type Recorder = Arc<seriatim_verify::checker::Recorder<std::io::BufWriter<fs::File>>>;

/// The nodes, and what has been recorded of them.
pub(super) struct Fleet {
    site: Site,
    pub(super) store: SharedStore,
    queue: Queue,
    pub(super) recorder: Recorder,
    nodes: Vec<Serving>,
    histories: Vec<String>,
    pub(super) jobs: u64,
    /// What was done to it, by name.
    faults: BTreeMap<&'static str, u64>,
}

impl Fleet {
    /// Nodes that reach the store at `url`, which is `store` too.
    pub(super) async fn new(store: SharedStore, url: &str, queue: Queue) -> Self {
        store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
        Self::undeclared(store, url, queue)
    }

    /// The first node will declare the queue.
    pub(super) fn undeclared(store: SharedStore, url: &str, queue: Queue) -> Self {
        let (mode, flow) = (queue.mode, flow(&queue));
        let site = Site::new(&format!(
            "[store]\nurl = \"{url}\"\n[node]\nconcurrency = 16\nlease = \"2s\"\nheartbeat = \"300ms\"\n\
             [queues.{QUEUE}]\nmode = \"{mode}\"\nbatch_size = 5\nbackoff = {{ kind = \"constant\", base = \"20ms\" }}\n{flow}\
             [[workers]]\nqueue = \"{QUEUE}\"\nprocess = [\"python3\", \"worker.py\"]\n\
             env = {{ PYTHONPATH = {PYTHON_CLIENT:?} }}\n"
        ));
        fs::write(site.path("worker.py"), WORKER).unwrap();
        let recorder = site.recorder(&queue);
        let jobs = jobs_or(JOBS);
        let (nodes, histories, faults) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { site, store, queue, recorder, nodes, histories, jobs, faults }
    }

    /// No node keeps up with the load alone: all of them get some of it.
    pub(super) fn works_slowly(&self) {
        let slow = WORKER.replace("[0.001, 0.1]", "[0.03, 0.1]");
        assert_ne!(slow, WORKER);
        fs::write(self.site.path("worker.py"), slow).unwrap();
    }

    pub(super) fn start_node(&mut self) {
        self.start_node_of(env!("CARGO_BIN_EXE_seriatim"));
    }

    /// A node of this program.
    pub(super) fn start_node_of(&mut self, program: &str) {
        let history = format!("node-{}.ndjson", self.histories.len());
        self.nodes.push(self.site.serve_by(program, &history));
        self.histories.push(history);
    }

    /// The node that started first stops in order.
    pub(super) fn stop_oldest(&mut self) {
        self.suffers(Blow::Stop.name());
        self.nodes.remove(0).stop();
    }

    pub(super) fn kill_oldest(&mut self) {
        self.suffers(Blow::Kill.name());
        let actor = self.nodes.remove(0).kill();
        self.recorder.died(&actor);
    }

    /// How many turns the node with this number, from 0, has settled.
    pub(super) fn settled_by(&self, number: usize) -> usize {
        let history = fs::read_to_string(self.site.path(&self.histories[number]));
        history.unwrap_or_default().matches("\"type\":\"settle\"").count()
    }

    pub(super) fn start_nodes(&mut self) {
        for _ in 0..NODES {
            self.start_node();
        }
    }

    /// Counts a fault.
    pub(super) fn suffers(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Jobs that the store has not done; none when it does not answer.
    pub(super) async fn open(&self) -> Option<u64> {
        let stats = self.store.stats(None).await.ok()?;
        stats.iter().find(|stats| &*stats.queue == QUEUE).map(|stats| stats.jobs)
    }

    /// Every node has told the store of itself.
    pub(super) async fn is_up(&self) {
        let are_up = async || {
            let nodes = self.store.nodes().await.unwrap_or_default();
            let is_up = |pid| nodes.iter().any(|node| node.info.pid == pid && !node.dead);
            self.nodes.iter().all(|node| is_up(node.0.id()))
        };
        self.eventually("all nodes are up", are_up).await;
    }

    /// Pushes the load, as far as it is allowed and until no more can be; the number of jobs that were pushed.
    pub(super) fn push(&self) -> (JoinHandle<u64>, Arc<Semaphore>) {
        let allowed = Arc::new(Semaphore::new(0));
        let (store, recorder) = (self.store.clone(), self.recorder.clone());
        let pushing = push(store, recorder, allowed.clone(), self.queue.clone(), self.jobs);
        (tokio::spawn(pushing), allowed)
    }

    /// Stops a node (`SIGSTOP`) that holds lanes.
    async fn stopped_at_work(&self) -> usize {
        let found = Cell::new(None);
        let is_found = async || {
            for (i, node) in self.nodes.iter().enumerate() {
                node.signal(Signal::STOP);
                if self.holds_lanes(node.0.id()).await && self.takes_writes().await {
                    found.set(Some(i));
                    return true;
                }
                node.signal(Signal::CONT);
            }
            false
        };
        self.eventually("a node is at work", is_found).await;
        found.get().unwrap()
    }

    /// Whether others can write: a process that is stopped while it writes to an SQLite file keeps it locked.
    async fn takes_writes(&self) -> bool {
        let write = self.store.write_notes(vec![Note::new("fleet", "paused")]);
        tokio::time::timeout(Duration::from_secs(2), write).await.is_ok_and(|result| result.is_ok())
    }

    /// Whether the process holds lanes; none that is known of when the store does not answer.
    async fn holds_lanes(&self, pid: u32) -> bool {
        let of_it = |node: &NodeView| node.info.pid == pid && !node.dead;
        let nodes = self.store.nodes().await.unwrap_or_default();
        let Some(node) = nodes.iter().find(|node| of_it(node)) else { return false };
        let query = LaneQuery { node: Some(node.info.id.clone()), ..LaneQuery::new(QUEUE) };
        !self.store.lanes(query).await.unwrap_or_default().rows.is_empty()
    }

    fn log(&self, history: &str) -> String {
        fs::read_to_string(self.site.path(&format!("{history}.log"))).unwrap()
    }

    fn warnings(&self) -> String {
        let logs: String = self.histories.iter().map(|name| self.log(name)).collect();
        logs.lines().filter(|line| !line.contains(" INFO ")).collect::<Vec<_>>().join("\n")
    }

    /// Leaves the folder there, for whoever looks for the reason.
    fn keep(&self) -> PathBuf {
        let kept = tempfile::tempdir().unwrap().keep();
        for name in self.histories.iter().map(String::as_str).chain(["pushes.ndjson"]) {
            // A node that could not start has written none.
            let _ = fs::copy(self.site.path(name), kept.join(name));
        }
        kept
    }

    /// What must happen happens, or all that is known of the fleet is told.
    pub(super) async fn eventually(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        if !happens(is_so).await {
            let seen = tokio::time::timeout(Duration::from_secs(5), async {
                (self.store.stats(None).await, self.store.nodes().await)
            });
            panic!(
                "it did not happen in time: {what}\n{}\n{:#?}\nthe histories are kept in {}",
                self.warnings(),
                seen.await,
                self.keep().display()
            );
        }
    }

    /// All jobs are done and all nodes have stopped in order: the judgement.
    pub(super) async fn judge(mut self) -> Report {
        self.finish().await;
        self.judged()
    }

    /// The histories show nothing that must not be.
    pub(super) fn judged(&self) -> Report {
        let report = self.check();
        assert!(
            report.is_clean(),
            "{report}\n{}\nthe histories are kept in {}",
            self.warnings(),
            self.keep().display()
        );
        report
    }

    /// All jobs are done, and all nodes stop in order.
    pub(super) async fn finish(&mut self) {
        self.eventually("all is done", async || self.open().await == Some(0)).await;
        for node in self.nodes.drain(..) {
            node.stop();
        }
        self.recorder.finish(&*self.store).await.unwrap();
    }

    /// The histories of the pushes and of all nodes.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.site.path("pushes.ndjson")];
        files.extend(self.histories.iter().map(|name| self.site.path(name)));
        files
    }

    /// Changes the histories, or leaves events out.
    pub(super) fn rewrite(&self, mut known: impl FnMut(Value) -> Option<Value>) {
        for file in self.files() {
            let events = events_of(&file).into_iter().filter_map(&mut known);
            let lines: Vec<String> = events.map(|event| format!("{event}\n")).collect();
            fs::write(file, lines.concat()).unwrap();
        }
    }

    /// What the histories say.
    pub(super) fn check(&self) -> Report {
        let report = check_files(&self.files()).unwrap();
        assert_eq!(report.pushes + report.unknown, self.jobs, "{report}");
        println!("{report}");
        self.add_figures(&report);
        report
    }

    fn add_figures(&self, report: &Report) {
        let Some(path) = std::env::var_os(FIGURES_VARIABLE) else { return };
        let line = json!({
            "store": self.store.capabilities().name, "faults": self.faults, "report": report,
        });
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// The events of a history.
pub(super) fn events_of(file: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Pushes the load, as far as it is allowed: one permit a job. What the store refuses while it is away is
/// recorded as unknown. Closing the permits ends it.
async fn push(
    store: SharedStore,
    recorder: Recorder,
    allowed: Arc<Semaphore>,
    queue: Queue,
    jobs: u64,
) -> u64 {
    let client = Client::new(store.clone());
    let keys = (jobs / JOBS_PER_KEY).max(KEYS_MIN);
    let mut pushed = 0;
    while pushed < jobs {
        let numbers = pushed..jobs.min(pushed + PUSH_JOBS);
        let job = |number: u64| {
            let text = "x".repeat(if number.is_multiple_of(LONG_EVERY) { LONG_BYTES } else { 0 });
            let job = Job::new(QUEUE, &json!({ "number": number, "text": text })).unwrap();
            let key = number % keys;
            let job = match queue.mode.is_keyed() {
                true => job.key(format!("key-{key}")).score(number as f64),
                false => job,
            };
            if queue.groups.is_some() {
                job.group(format!("tenant-{}", key % TENANTS))
            } else {
                job
            }
        };
        let batch: Vec<Job> = numbers.map(job).collect();
        let Ok(permits) = allowed.acquire_many(batch.len() as u32).await else { break };
        permits.forget();
        pushed += batch.len() as u64;
        let sent_at = Timestamp::of_this_machine();
        let answers: Vec<_> = match client.push_all(batch.clone()).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => batch
                .iter()
                .map(|_| Err(Error::new(error.kind(), error.message().to_owned())))
                .collect(),
        };
        for (job, answer) in batch.iter().zip(&answers) {
            recorder.pushed(sent_at, job, Some(answer));
        }
        let waiting = tokio::time::timeout(PATIENCE, until_few_are_open(&store));
        waiting.await.expect("the store is away, or its jobs are not done");
    }
    pushed
}

/// The limits of the queue, as a configuration has them.
fn flow(queue: &Queue) -> String {
    let line = |name: &str, limit: &Limit| {
        let running = limit.running.map(|most| format!("running = {most}"));
        let rate = limit.rate.map(|rate| format!("rate = \"{rate}\", burst = {}", limit.burst()));
        let all: Vec<_> = running.into_iter().chain(rate).collect();
        (!all.is_empty()).then(|| format!("{name} = {{ {} }}\n", all.join(", ")))
    };
    let groups = queue.groups.as_ref().and_then(|groups| line("groups", &groups.each.limit));
    line("limit", &queue.limit).into_iter().chain(groups).collect()
}

async fn until_few_are_open(store: &SharedStore) {
    let are_few = |stats: Vec<QueueStats>| stats.iter().all(|stats| stats.jobs <= OPEN_MAX);
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while !store.stats(None).await.is_ok_and(are_few) {
        looks.tick().await;
    }
}

/// What happens to a node, or to the server under all of them.
#[derive(Clone, Copy)]
enum Blow {
    Kill,
    Pause,
    Stop,
    Server,
    /// All connections end at once.
    Disconnect,
    /// The server forgets what it can be told again.
    Forget,
    /// The queue gets another number of shards.
    Reshard(u16),
    /// A transaction of another client locks lanes for two leases, like one that pushes and stays open.
    Transaction,
}

const FILE_BLOWS: [Blow; 3] = [Blow::Pause, Blow::Stop, Blow::Kill];

const BLOWS: [Blow; 4] = [Blow::Pause, Blow::Stop, Blow::Server, Blow::Kill];

const SQL_BLOWS: [Blow; 5] = [Blow::Pause, Blow::Stop, Blow::Transaction, Blow::Server, Blow::Kill];

/// A queue in Redis begins with as many shards.
const REDIS_SHARDS: u16 = 4;

const REDIS_BLOWS: [Blow; 8] = [
    Blow::Forget,
    Blow::Pause,
    Blow::Disconnect,
    Blow::Reshard(16),
    Blow::Stop,
    Blow::Server,
    Blow::Reshard(3),
    Blow::Kill,
];

impl Blow {
    fn of(server: &Server) -> &'static [Self] {
        match server {
            Server::Redis(_) => &REDIS_BLOWS,
            Server::Sqlite(_) => &FILE_BLOWS,
            Server::Postgres(_) | Server::Mysql(_) => &SQL_BLOWS,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "node killed",
            Self::Pause => "node paused beyond its lease",
            Self::Stop => "node stopped",
            Self::Server => "server killed",
            Self::Disconnect => "all connections closed",
            Self::Forget => "scripts forgotten",
            Self::Reshard(_) => "resharded",
            Self::Transaction => "transaction of others kept open",
        }
    }

    async fn fall(self, fleet: &mut Fleet, server: &mut Server) {
        fleet.suffers(self.name());
        let victim = fastrand::usize(..fleet.nodes.len());
        match self {
            Self::Kill => {
                let victim = fleet.stopped_at_work().await;
                let actor = fleet.nodes.swap_remove(victim).kill();
                fleet.recorder.died(&actor);
                fleet.start_node();
            }
            Self::Stop => {
                fleet.nodes.swap_remove(victim).stop();
                fleet.start_node();
            }
            Self::Server => tokio::task::block_in_place(|| server.break_down()),
            Self::Disconnect => server.send(&["CLIENT", "KILL", "TYPE", "normal"]),
            Self::Forget => server.send(&["SCRIPT", "FLUSH"]),
            Self::Reshard(shards) => reshard(&fleet.store, shards).await,
            Self::Transaction => {
                let locked = tokio::task::block_in_place(|| server.lock_lanes());
                *fleet.faults.entry("lane that it locked").or_default() += locked;
            }
            Self::Pause => {
                let node = &fleet.nodes[fleet.stopped_at_work().await];
                let pid = node.0.id();
                let is_dead = async || {
                    let nodes = fleet.store.nodes().await.unwrap_or_default();
                    nodes.iter().any(|node| node.info.pid == pid && node.dead)
                };
                fleet.eventually("the paused node is declared dead", is_dead).await;
                node.signal(Signal::CONT);
            }
        }
    }
}

/// Another number of shards, also while connections are lost.
async fn reshard(store: &SharedStore, shards: u16) {
    let is_done = async || match store.reshard(QUEUE.into(), shards).await {
        Ok(answer) => answer.shards == shards,
        Err(error) if error.is_transient() => false,
        Err(error) => panic!("{error}"),
    };
    eventually("the queue has as many shards", is_done).await;
}

fn seed() {
    if let Ok(seed) = std::env::var(SEED_VARIABLE) {
        fastrand::seed(seed.parse().unwrap());
    }
}

async fn n1_n3_d17_nothing_is_lost_and_nothing_overlaps(server: Server, mode: Mode) {
    let mut queue = Queue::new(QUEUE, mode);
    if matches!(server, Server::Redis(_)) {
        queue.shards = REDIS_SHARDS;
    }
    let blows = Blow::of(&server);
    a_fleet_survives(server, queue, blows, JOBS).await;
}

/// Fewer turns than the nodes have slots for, and than the groups might run together; none start faster than the nodes
/// could.
async fn no_more_run_than_the_limits_allow(server: Server) {
    let queue = Queue::fifo(QUEUE)
        .groups(Groups::each(Share::default().running(5)))
        .running(12)
        .rate(Rate::per_second(400))
        .burst(20);
    let blows = match server {
        // Its limits are of one shard.
        Server::Redis(_) => &BLOWS,
        _ => Blow::of(&server),
    };
    a_fleet_survives(server, queue, blows, LIMITED_JOBS).await;
}

async fn a_fleet_survives(mut server: Server, queue: Queue, blows: &[Blow], few: u64) {
    seed();
    let mut fleet = Fleet::new(server.store().await, &server.url(), queue).await;
    fleet.jobs = jobs_or(few);
    fleet.start_nodes();
    let (pushing, allowed) = fleet.push();
    let jobs = fleet.jobs as usize;
    let mut blows = blows.repeat((fleet.jobs / JOBS_PER_ROUND).max(1) as usize);
    let share = jobs / (blows.len() + 1);
    if std::env::var_os(SEED_VARIABLE).is_some() {
        fastrand::shuffle(&mut blows);
    }
    for blow in &blows {
        fleet.is_up().await;
        allowed.add_permits(share);
        blow.fall(&mut fleet, &mut server).await;
    }
    allowed.add_permits(jobs - blows.len() * share);
    pushing.await.unwrap();
    let report = fleet.judge().await;
    assert!(report.rescued > 0, "what dead nodes held was taken over: {report}");
    // Whether a paused node had an outcome to tell is chance; that it would be refused is judged above.
}

/// Breaks a connection every now and then, before or after the server has seen a request.
async fn nothing_is_lost_over_bad_connections(server: Server) {
    seed();
    let proxy = Proxy::start(server.port()).unwrap();
    let mut fleet =
        Fleet::new(server.store().await, &server.url_over(proxy.port()), Queue::fifo(QUEUE)).await;
    fleet.start_nodes();
    fleet.is_up().await;
    let (pushing, allowed) = fleet.push();
    // A fast store would have done all of them before enough connections broke.
    let mut held_back = fleet.jobs as usize / 10;
    allowed.add_permits(fleet.jobs as usize - held_back);
    let mut falls_silent = std::env::var_os(SEED_VARIABLE).is_some();
    let cutting = async {
        let mut looks = tokio::time::interval(Duration::from_millis(15));
        while !pushing.is_finished() && proxy.cuts() < CUTS_MAX {
            if proxy.cuts() >= CUTS_MIN {
                allowed.add_permits(std::mem::take(&mut held_back));
            }
            if falls_silent && proxy.cuts() >= CUTS_BEFORE_SILENCE {
                falls_silent = false;
                proxy.mute();
            }
            let cut = if fastrand::bool() { Cut::BeforeRequest } else { Cut::BeforeReply };
            proxy.cut(fastrand::u32(..8), cut);
            looks.tick().await;
        }
        proxy.spare();
        allowed.add_permits(held_back);
    };
    cutting.await;
    pushing.await.unwrap();
    assert!(proxy.cuts() >= CUTS_MIN, "{} cuts", proxy.cuts());
    fleet.faults.insert("connection cut", proxy.cuts());
    fleet.faults.insert("all connections silent", std::env::var_os(SEED_VARIABLE).is_some().into());
    // Which of the nodes had the connections that broke is chance.
    let told = fleet.warnings();
    fleet.judge().await;
    assert!(told.contains("trying until the store answers again"), "it says what happened: {told}");
}

on_each_server! {
    sqlite_parallel_survives_dead_nodes: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(sqlite, Parallel);
    sqlite_accumulate_survives_dead_nodes: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(sqlite, Accumulate);
    sqlite_fifo_survives_dead_nodes: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(sqlite, Fifo);
    sqlite_exclusive_survives_dead_nodes: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(sqlite, Exclusive);
    postgres_parallel_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(postgres, Parallel);
    postgres_accumulate_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(postgres, Accumulate);
    postgres_fifo_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(postgres, Fifo);
    postgres_exclusive_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(postgres, Exclusive);
    mysql_parallel_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(mysql, Parallel);
    mysql_accumulate_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(mysql, Accumulate);
    mysql_fifo_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(mysql, Fifo);
    mysql_exclusive_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(mysql, Exclusive);
    redis_parallel_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(redis, Parallel);
    redis_exclusive_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(redis, Exclusive);
    redis_accumulate_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(redis, Accumulate);
    redis_fifo_survives_dead_nodes_and_a_restart: n1_n3_d17_nothing_is_lost_and_nothing_overlaps(redis, Fifo);
    sqlite_limits_hold_when_nodes_die: no_more_run_than_the_limits_allow(sqlite);
    postgres_limits_hold_when_nodes_die: no_more_run_than_the_limits_allow(postgres);
    mysql_limits_hold_when_nodes_die: no_more_run_than_the_limits_allow(mysql);
    redis_limits_hold_when_nodes_die: no_more_run_than_the_limits_allow(redis);
    postgres_connections_that_break_lose_nothing: nothing_is_lost_over_bad_connections(postgres);
    mysql_connections_that_break_lose_nothing: nothing_is_lost_over_bad_connections(mysql);
    redis_connections_that_break_lose_nothing: nothing_is_lost_over_bad_connections(redis);
}
