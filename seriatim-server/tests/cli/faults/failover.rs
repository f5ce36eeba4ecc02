//! A Redis master dies under load, and a replica takes over that may not have heard of the last writes. What is lost is
//! counted and printed; everything else must hold. What a replica has confirmed is never lost, however often masters die,
//! or hang and come back as the masters that they were.

use serde_json::Value;
use seriatim::{Mode, Queue, SharedStore, Timestamp};
use seriatim_testkit::{Away, RedisCluster, RedisSentinel};
use seriatim_verify::checker::{Judgement, check_files};

use super::fleet::Fleet;
use crate::site::QUEUE;

/// So that each master has some.
const SHARDS: u16 = 6;

async fn open(url: &str) -> SharedStore {
    let store = seriatim::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// What the replica had not heard is lost, claims too: a key may then run twice, as the docs say. Nothing else overlaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_on_with_the_replica_of_a_dead_master() {
    let mut cluster = RedisCluster::start_with_replicas().unwrap();
    let url = cluster.url();
    let queue = Queue::new(QUEUE, Mode::Fifo).shards(SHARDS);
    let mut fleet = Fleet::new(open(&url).await, &url, queue).await;
    fleet.start_nodes();
    fleet.is_up().await;
    let (pushing, allowed) = fleet.push();
    let half = fleet.jobs as usize / 2;
    allowed.add_permits(half);
    let is_half = async || allowed.available_permits() == 0;
    fleet.eventually("half of the load is pushed", is_half).await;
    allowed.add_permits(fleet.jobs as usize - half);
    tokio::task::block_in_place(|| cluster.nodes()[0].kill().unwrap());
    let answers = async || fleet.store.stats(None).await.is_ok();
    fleet.eventually("the store answers again", answers).await;
    let back = Timestamp::of_this_machine().as_micros();
    pushing.await.unwrap();
    fleet.finish().await;
    let overlaps = check_files(&fleet.files()).unwrap().violations(Judgement::Overlap);
    println!("{overlaps} keys ran twice at once");
    // The replica need not know of leases that the old master confirmed.
    let is_void = |event: &Value| event["type"] == "lease" && event["at"].as_i64() < Some(back);
    fleet.rewrite(|event| (!is_void(&event)).then_some(event));
    let report = fleet.check();
    let lost = report.violations(Judgement::Loss);
    let again: u64 = report.duplicates.values().sum();
    println!("{lost} of {} acknowledged pushes were lost, {again} jobs ran again", report.pushes);
    assert_eq!(report.violations(Judgement::Overlap), 0, "{report}");
}

/// One failover for every this many jobs, or for fewer in all.
const JOBS_PER_FAILOVER: u64 = 1_500;
/// With a sentinel it is the same two servers that change places: in one mode there and back.
const THERE_AND_BACK: u64 = 2;

/// Servers of which the masters die, one after the other.
enum Servers {
    Cluster(RedisCluster),
    Sentinel(Box<RedisSentinel>),
}

impl Servers {
    fn cluster() -> Self {
        Self::Cluster(RedisCluster::start_with_replicas().unwrap())
    }

    fn sentinel() -> Self {
        Self::Sentinel(Box::new(RedisSentinel::start().unwrap()))
    }

    fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(servers) => servers.url(),
        }
    }

    /// The next master goes away, and comes back to be a replica. A cluster also moves a shard of the first queue.
    fn fail_over(&mut self, round: u64, away: Away, hurries: bool) {
        match self {
            Self::Cluster(cluster) => {
                let masters = cluster.masters();
                cluster.fail_over(masters[round as usize % masters.len()], away).unwrap();
                let shard = round % u64::from(SHARDS);
                cluster.move_slot(&format!("seriatim:{{q1:{shard}}}:meta")).unwrap();
            }
            Self::Sentinel(servers) => servers.fail_over(away, hurries).unwrap(),
        }
    }
}

/// How the master of this round goes away. In a short run of a cluster there is one round, so the modes begin differently.
fn away(mode: Mode, round: u64) -> Away {
    let hangs_first = matches!(mode, Mode::Exclusive | Mode::Fifo);
    if round.is_multiple_of(2) == hangs_first { Away::Hung } else { Away::Killed }
}

/// What was confirmed is neither lost nor overlapped nor out of order.
async fn nothing_confirmed_is_lost(mut servers: Servers, mode: Mode) {
    let url = format!("{}?wait_replicas=1", servers.url());
    let queue = Queue::new(QUEUE, mode).shards(SHARDS);
    let mut fleet = Fleet::new(open(&url).await, &url, queue).await;
    fleet.start_nodes();
    fleet.is_up().await;
    let (pushing, allowed) = fleet.push();
    let rounds = fleet.jobs.div_ceil(JOBS_PER_FAILOVER);
    let rounds = match (&servers, mode) {
        (Servers::Sentinel(_), Mode::Fifo) => rounds.max(THERE_AND_BACK),
        _ => rounds,
    };
    let share = fleet.jobs / (rounds + 1);
    let is_short = fleet.jobs <= JOBS_PER_FAILOVER;
    for round in 0..rounds {
        allowed.add_permits(share as usize);
        let away = away(mode, round);
        fleet.suffers(match away {
            Away::Killed => "master killed",
            Away::Hung => "master hung",
        });
        // An old master of a sentinel is one again for some ten seconds, with clients that do not know better: what it says
        // then is confirmed by nobody. A short run waits for it once.
        let hurries = is_short && round + 1 < THERE_AND_BACK;
        tokio::task::block_in_place(|| servers.fail_over(round, away, hurries));
        let answers = async || fleet.store.stats(None).await.is_ok();
        fleet.eventually("the store answers again", answers).await;
    }
    allowed.add_permits((fleet.jobs - rounds * share) as usize);
    pushing.await.unwrap();
    fleet.finish().await;
    fleet.judged();
}

macro_rules! masters_go {
    ($($name:ident: $servers:ident($mode:ident);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            nothing_confirmed_is_lost(Servers::$servers(), Mode::$mode).await;
        }
    )*};
}

masters_go! {
    cluster_parallel_survives_masters_that_die_and_hang: cluster(Parallel);
    cluster_exclusive_survives_masters_that_die_and_hang: cluster(Exclusive);
    cluster_accumulate_survives_masters_that_die_and_hang: cluster(Accumulate);
    cluster_fifo_survives_masters_that_die_and_hang: cluster(Fifo);
    sentinel_parallel_survives_masters_that_die_and_hang: sentinel(Parallel);
    sentinel_exclusive_survives_masters_that_die_and_hang: sentinel(Exclusive);
    sentinel_accumulate_survives_masters_that_die_and_hang: sentinel(Accumulate);
    sentinel_fifo_survives_masters_that_die_and_hang: sentinel(Fifo);
}
