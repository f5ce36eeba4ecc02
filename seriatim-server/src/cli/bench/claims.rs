//! Whether a claim costs more because much else is in the store.

use std::time::{Duration, Instant};

use seriatim::limits::PRIORITY_MAX;
use seriatim::store::Settlement;
use seriatim::store::Turn;
use seriatim::store::{Claim, Claimed, Heartbeat, Lease, NodeInfo, Push, Settle};
use seriatim::{Job, Mode, Queue, SharedStore, store::NodeId};

use super::settings::declare_empty;
use super::starts::Percentiles;
use crate::cli::output::{Failure, Result};

const QUEUE: &str = "bench-claims";
/// Lanes in a claim that is timed.
const LANES: usize = 100;
/// Claims that are timed, each of its own jobs.
const CLAIMS: usize = 100;
/// Different priorities among what is claimed.
const PRIORITIES: usize = 1_000;
/// Jobs and lanes in one request while the backlog is made.
const BATCH: u64 = 1_000;
/// The claims are held for longer than the measuring lasts.
const LEASE: Duration = Duration::from_secs(3_600);
const TOMORROW: Duration = Duration::from_secs(86_400);

struct Bench<'s> {
    store: &'s SharedStore,
    node: NodeId,
    keys: usize,
}

/// Times claims in the store as it is, then again beside `backlog` jobs: a tenth of them finished, a tenth scheduled,
/// a hundredth behind one busy key, and the rest waiting with the least priority. Also times the figures of all queues.
pub(super) async fn measure(store: &SharedStore, backlog: u64) -> Result<serde_json::Value> {
    let queue = Queue::new(QUEUE, Mode::Fifo).retain_completed(TOMORROW);
    declare_empty(store, &queue).await?;
    let node = NodeId::unique("bench");
    let info = NodeInfo::new(node.clone(), LEASE);
    store.heartbeat(Heartbeat { now: None, node: info, beats: Vec::new() }).await?;
    let mut bench = Bench { store, node, keys: 0 };
    let alone = bench.claims().await?;
    bench.fill(backlog).await?;
    let beside = bench.claims().await?;
    let started = Instant::now();
    store.stats(None).await?;
    let stats_ms = started.elapsed().as_secs_f64() * 1e3;
    Ok(serde_json::json!({
        "store": store.capabilities().name, "lanes": LANES, "backlog": backlog,
        "claim_ms_alone_p50": alone.median, "claim_ms_alone_p99": alone.p99,
        "claim_ms_beside_p50": beside.median, "claim_ms_beside_p99": beside.p99,
        "ratio_p50": beside.median / alone.median, "stats_ms": stats_ms,
    }))
}

impl Bench<'_> {
    /// Milliseconds of a claim.
    async fn claims(&mut self) -> Result<Percentiles> {
        let job = |this: &mut Self, i: usize| this.job().priority((i % PRIORITIES) as u16);
        let jobs = (0..CLAIMS * LANES).map(|i| job(self, i)).collect::<Vec<_>>();
        for batch in jobs.chunks(BATCH as usize) {
            self.push(batch.to_vec()).await?;
        }
        let mut took = Vec::with_capacity(CLAIMS);
        for _ in 0..CLAIMS {
            let started = Instant::now();
            let turns = self.claim(LANES).await?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
            if turns.len() != LANES {
                let message = format!("a claim took {} lanes instead of {LANES}", turns.len());
                return Err(Failure::failed(message));
            }
            self.settle(&turns).await?;
        }
        Ok(Percentiles::of(took))
    }

    async fn fill(&mut self, backlog: u64) -> Result<()> {
        self.push(vec![Job::new(QUEUE, "busy")?.key("busy")]).await?;
        self.claim(1).await?;
        let (tenth, behind) = (backlog / 10, backlog / 100);
        let kinds = [
            (tenth, Kind::Finished),
            (tenth, Kind::Later),
            (behind, Kind::Behind),
            (backlog - 2 * tenth - behind, Kind::Waiting),
        ];
        for (count, kind) in kinds {
            for from in (0..count).step_by(BATCH as usize) {
                let jobs = (from..count.min(from + BATCH)).map(|_| self.kind(kind)).collect();
                self.push(jobs).await?;
                if matches!(kind, Kind::Finished) {
                    let turns = self.claim(BATCH as usize).await?;
                    self.settle(&turns).await?;
                }
            }
        }
        Ok(())
    }

    fn kind(&mut self, kind: Kind) -> Job {
        match kind {
            Kind::Finished => self.job(),
            Kind::Later => self.job().run_in(TOMORROW),
            Kind::Behind => self.job().key("busy"),
            Kind::Waiting => self.job().priority(PRIORITY_MAX),
        }
    }

    /// A job with a key of its own.
    fn job(&mut self) -> Job {
        self.keys += 1;
        let payload = seriatim::Payload::from_bytes("{}".to_owned());
        Job::with_payload(QUEUE, payload).key(format!("key-{}", self.keys))
    }

    async fn push(&self, jobs: Vec<Job>) -> Result<()> {
        self.store.push(Push { now: None, jobs }).await?;
        Ok(())
    }

    async fn claim(&self, lanes_max: usize) -> Result<Vec<Turn>> {
        let claim = Claim {
            crashed_max: 0,
            ..Claim::new(QUEUE, self.node.clone(), lanes_max, Lease::Node { ttl: LEASE })
        };
        let Claimed { turns, .. } = self.store.claim(claim).await?;
        Ok(turns)
    }

    async fn settle(&self, turns: &[Turn]) -> Result<()> {
        let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        self.store.settle(Settle::now(turns)).await?;
        Ok(())
    }
}

/// What is in the way of claims.
#[derive(Clone, Copy)]
enum Kind {
    Finished,
    Later,
    Behind,
    Waiting,
}
