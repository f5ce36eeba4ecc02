//! A primary of PostgreSQL dies under load, and its standby takes over. A synchronous one loses nothing. An
//! asynchronous one may lack the last commits; everything else must hold, as if they had never happened.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use seriatim::{Mode, Queue, SharedStore, Timestamp};
use seriatim_testkit::{Postgres, PostgresOptions, Proxy};
use seriatim_verify::checker::Report;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::fleet::{Fleet, events_of};
use crate::site::QUEUE;

/// Jobs pushed while the standby is cut off.
const UNSEEN: usize = 300;
/// The server writes the time of a commit a little before the commit, and histories have that of the answer.
const SLACK_MICROS: i64 = 100_000;

/// A primary and its standby, with cables that can be unplugged.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    /// From the standby and from the clients to the primary.
    following: Proxy,
    serving: Proxy,
}

impl Pair {
    fn new(synchronous: bool) -> Self {
        let options = PostgresOptions { durable: false, synchronous, ..PostgresOptions::default() };
        let primary = Postgres::start_with(options).unwrap();
        let [following, serving] = [(); 2].map(|()| Proxy::start(primary.port()).unwrap());
        let standby = primary.start_standby(following.port()).unwrap();
        Self { primary, standby, following, serving }
    }

    /// Both servers.
    fn url(&self) -> String {
        let (first, second) = (self.serving.port(), self.standby.port());
        format!(
            "postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres?target_session_attrs=read-write"
        )
    }

    /// The primary and its machine die, and the standby takes over.
    fn fail_over(&mut self) -> Gap {
        self.serving.unplug();
        self.following.unplug();
        self.primary.kill().unwrap();
        let died = Timestamp::of_this_machine().as_micros();
        self.standby.promote().unwrap();
        let to = Timestamp::of_this_machine().as_micros();
        Gap { from: last_commit(&self.standby), died, to }
    }
}

/// A fleet at work.
struct Load {
    fleet: Fleet,
    pushing: JoinHandle<u64>,
    /// Pushes that may be made.
    allowed: Arc<Semaphore>,
    /// Pushes that are not allowed yet.
    rest: usize,
}

impl Load {
    /// Half of the jobs are pushed.
    async fn begin(pair: &Pair, mode: Mode) -> Self {
        let url = pair.url();
        let mut fleet = Fleet::new(open(&url).await, &url, Queue::new(QUEUE, mode)).await;
        fleet.start_nodes();
        fleet.is_up().await;
        let (pushing, allowed) = fleet.push();
        let rest = fleet.jobs as usize;
        let mut load = Self { fleet, pushing, allowed, rest };
        load.push(rest / 2).await;
        load
    }

    async fn push(&mut self, jobs: usize) {
        self.rest -= jobs;
        self.allowed.add_permits(jobs);
        let is_pushed = async || self.allowed.available_permits() == 0;
        self.fleet.eventually("the jobs are pushed", is_pushed).await;
    }

    async fn finish(mut self) -> Fleet {
        self.pushing.await.unwrap();
        self.fleet.finish().await;
        self.fleet
    }
}

async fn open(url: &str) -> SharedStore {
    let store = seriatim::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

async fn nothing_is_lost_with_a_synchronous_standby(mode: Mode) {
    let mut pair = tokio::task::block_in_place(|| Pair::new(true));
    let mut load = Load::begin(&pair, mode).await;
    load.allowed.add_permits(load.rest);
    load.fleet.suffers("synchronous standby promoted");
    tokio::task::block_in_place(|| pair.fail_over());
    load.finish().await.judged();
}

async fn only_the_last_commits_are_lost_with_an_asynchronous_standby(mode: Mode) {
    let mut pair = tokio::task::block_in_place(|| Pair::new(false));
    let mut load = Load::begin(&pair, mode).await;
    pair.following.unplug();
    load.push(UNSEEN).await;
    load.allowed.add_permits(load.rest);
    load.fleet.suffers("asynchronous standby promoted");
    let gap = tokio::task::block_in_place(|| pair.fail_over());
    let fleet = load.finish().await;

    let files = fleet.files();
    tokens_are_drawn_once(&files);
    let lost = gap.forget(&fleet);
    let report: Report = fleet.judged();
    println!("{mode}: {lost} acknowledged pushes were lost, of {}", report.pushes + lost);
    assert!(lost > 0, "the standby lacked some");
}

/// When the last commit was made that the standby got, in microseconds.
fn last_commit(standby: &Postgres) -> i64 {
    let last = "SELECT (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::bigint";
    standby.query(last).unwrap().parse().unwrap()
}

/// From the last commit that the standby got, over the end of the primary, until the standby has taken over.
struct Gap {
    from: i64,
    died: i64,
    to: i64,
}

impl Gap {
    /// Whether a commit answered then may be lost.
    fn covers(&self, event: &Value) -> bool {
        (Some(self.from - SLACK_MICROS)..=Some(self.to)).contains(&event["at"].as_i64())
    }

    /// Whether the primary made this claim: the promoted server begins with tokens of its own clock.
    fn is_of_primary(&self, event: &Value) -> bool {
        event["token"].as_i64() < Some(self.died)
    }

    /// Rewrites histories to what the promoted server may know. Returns how many acknowledged pushes it lacks.
    fn forget(&self, fleet: &Fleet) -> u64 {
        let mut lost = 0;
        fleet.rewrite(|event| {
            let is_push = event["type"] == "push" && event["result"] == "acknowledged";
            let is_late = event["sent_at"].as_i64() > Some(self.from);
            lost += u64::from(is_push && is_late && event["at"].as_i64() <= Some(self.died));
            self.known(event)
        });
        lost
    }

    /// The event, as far as the promoted server must know of it.
    fn known(&self, mut event: Value) -> Option<Value> {
        let is_unknown = event["claimed_at"].as_i64() > Some(self.from + SLACK_MICROS);
        let is_answer = event["type"] == "settle" && event["at"].as_i64() > Some(self.to);
        if is_answer && is_unknown && self.is_of_primary(&event) {
            assert_eq!(event["accepted"], false, "it does not know this claim: {event}");
        }
        // What the primary promised may hold for a claim that the standby does not know.
        if event["type"] == "lease" && event["at"].as_i64() <= Some(self.to) {
            return None;
        }
        if !self.covers(&event) {
            return Some(event);
        }
        match event["type"].as_str() {
            Some("push") if event["result"] == "acknowledged" => {
                event["result"] = json!("unknown");
                event["job_id"] = Value::Null;
                event["status"] = Value::Null;
            }
            Some("start" | "rescue") if self.is_of_primary(&event) => return None,
            // The jobs are over, or they are back: both may be so.
            Some("settle") => {
                let fates = event["fates"].as_array_mut().unwrap();
                let back = |job: &Value| json!({ "job_id": job["job_id"], "fate": "keep" });
                let kept: Vec<Value> = fates.iter().map(back).collect();
                fates.extend(kept);
                event["cause"] = json!("failover");
            }
            _ => {}
        }
        Some(event)
    }
}

/// No token was issued by both servers: each is of one claim, which has one time.
fn tokens_are_drawn_once(files: &[PathBuf]) {
    let mut times: HashMap<i64, HashSet<i64>> = HashMap::new();
    for event in files.iter().flat_map(events_of).filter(|event| event["type"] == "start") {
        let (token, at) = (event["token"].as_i64(), event["claimed_at"].as_i64());
        times.entry(token.unwrap()).or_default().insert(at.unwrap());
    }
    let repeated: Vec<_> = times.iter().filter(|(_, times)| times.len() > 1).collect();
    assert!(!times.is_empty() && repeated.is_empty(), "{repeated:?}");
}

macro_rules! in_modes {
    ($($name:ident: $case:ident($mode:ident);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $case(Mode::$mode).await;
        }
    )*};
}

in_modes! {
    a_synchronous_postgres_standby_is_promoted_under_load_in_fifo: nothing_is_lost_with_a_synchronous_standby(Fifo);
    a_synchronous_postgres_standby_is_promoted_under_load_in_parallel: nothing_is_lost_with_a_synchronous_standby(Parallel);
    an_asynchronous_postgres_standby_is_promoted_under_load_in_accumulate: only_the_last_commits_are_lost_with_an_asynchronous_standby(Accumulate);
    an_asynchronous_postgres_standby_is_promoted_under_load_in_exclusive: only_the_last_commits_are_lost_with_an_asynchronous_standby(Exclusive);
    an_asynchronous_postgres_standby_is_promoted_under_load_in_parallel: only_the_last_commits_are_lost_with_an_asynchronous_standby(Parallel);
}
