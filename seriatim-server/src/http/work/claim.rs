//! Claiming, with waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{Claim, DueQuery, Lease, Settle};
use seriatim::{ErrorKind, NodeId, Timestamp, Turn};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::input::Json;
use super::super::limits::{
    CLAIM_BYTES_MAX, CLAIM_LANES_MAX, CLAIM_QUEUES_MAX, CLAIM_STEP_LANES, LEASE_DEFAULT,
    WAIT_MS_MAX,
};
use super::super::problem::Problem;
use super::super::state::Shared;
use super::taken::{Taken, expired};
use super::workers::{check_name, lease};

/// Without a wake-up a claim that waits looks again after this.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest rest between two looks.
const REST_MIN: Duration = Duration::from_millis(5);
/// A worker may start one lane at once for sure: of those with a crash behind them it gets no more.
const CRASHED_MAX: usize = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    worker: String,
    queues: Vec<String>,
    limit: Option<usize>,
    lease_ttl_sec: Option<f64>,
    wait_ms: Option<u64>,
    #[serde(default)]
    consumer_groups: Vec<String>,
}

/// A wish that can be granted.
struct Order {
    app: Shared,
    worker: String,
    queues: Vec<String>,
    groups: Vec<Arc<str>>,
    lanes_max: usize,
    lease: Duration,
    wait: Duration,
}

pub(super) async fn claim(
    State(app): State<Shared>,
    Json(wish): Json<Wish>,
) -> Result<Response, Problem> {
    let order = wish.check(app.clone())?;
    let _place = match order.wait.is_zero() {
        true => None,
        false => Some(app.waiting_claims.try_acquire().map_err(|_| {
            Problem::too_many("too many claims wait for work: ask again, or without wait_ms")
        })?),
    };
    let (mut answer, answered) = oneshot::channel();
    // In a task of its own: a client that goes away ends this function at once, and a claim that is
    // cut off in the middle would hold lanes that nobody knows of.
    tokio::spawn(async move {
        let taken = order.fill(&mut answer).await;
        // If nobody listens any more, what was taken comes back here and goes back when dropped.
        let _ = answer.send(taken);
    });
    let gone = |_| Problem::unavailable("the claim was given up");
    answered.await.map_err(gone)??.answer()
}

impl Wish {
    fn check(self, app: Shared) -> Result<Order, Problem> {
        check_name(&self.worker)?;
        if self.queues.is_empty() || self.queues.len() > CLAIM_QUEUES_MAX {
            let detail = format!("name 1 to {CLAIM_QUEUES_MAX} queues");
            return Err(Problem::invalid("queues", detail));
        }
        for (i, queue) in self.queues.iter().enumerate() {
            let wrong = |error: seriatim::Error| {
                Problem::invalid(format!("queues[{i}]"), error.message().to_owned())
            };
            seriatim::validate_queue_name(queue).map_err(wrong)?;
        }
        let lanes_max = self.limit.unwrap_or(1);
        if !(1..=CLAIM_LANES_MAX).contains(&lanes_max) {
            return Err(Problem::invalid("limit", format!("must be 1 to {CLAIM_LANES_MAX}")));
        }
        let wait_ms = self.wait_ms.unwrap_or(0);
        if wait_ms > WAIT_MS_MAX {
            return Err(Problem::invalid("wait_ms", format!("must be at most {WAIT_MS_MAX}")));
        }
        if self.consumer_groups.len() > CLAIM_QUEUES_MAX {
            let detail = format!("name at most {CLAIM_QUEUES_MAX} groups");
            return Err(Problem::invalid("consumer_groups", detail));
        }
        Ok(Order {
            app,
            worker: self.worker,
            queues: self.queues,
            groups: self.consumer_groups.into_iter().map(Into::into).collect(),
            lanes_max,
            lease: lease(self.lease_ttl_sec)?.unwrap_or(LEASE_DEFAULT),
            wait: Duration::from_millis(wait_ms),
        })
    }
}

impl Order {
    /// Claims, and waits until there is something, the time is up, or nobody waits any more.
    async fn fill(
        &self,
        answer: &mut oneshot::Sender<Result<Taken, Problem>>,
    ) -> Result<Taken, Problem> {
        let end = Instant::now() + self.wait;
        let mut wakeups = self.app.store.wakeups();
        loop {
            wakeups.forget();
            let (taken, next_due) = self.look().await?;
            let left = end.saturating_duration_since(Instant::now());
            if !taken.turns.is_empty() || left.is_zero() || self.app.is_draining() {
                return Ok(taken);
            }
            let rest = match next_due {
                Some(due) => due.since(self.app.store.now().await?).max(REST_MIN),
                None => LOOK_INTERVAL,
            };
            tokio::select! {
                _ = wakeups.wait(rest.min(LOOK_INTERVAL).min(left)) => {}
                () = self.app.draining() => {}
                () = answer.closed() => return Ok(taken),
            }
        }
    }

    /// Claims what is there, of the queue that has waited longest first. Also says when there may
    /// be more.
    async fn look(&self) -> Result<(Taken, Option<Timestamp>), Problem> {
        let mut taken = Taken::new(self.app.clone());
        let next_due = self.take(&mut taken).await?;
        self.end_expired(&mut taken).await?;
        Ok((taken, next_due))
    }

    async fn take(&self, taken: &mut Taken) -> Result<Option<Timestamp>, Problem> {
        let (mut next_due, mut bytes) = (None::<Timestamp>, 0);
        for queue in self.by_lag().await? {
            loop {
                let room = self.lanes_max - taken.turns.len();
                if room == 0 || bytes >= CLAIM_BYTES_MAX {
                    return Ok(next_due);
                }
                let asked = room.min(CLAIM_STEP_LANES);
                let (turns, due) = match self.step(&queue, asked).await {
                    Ok(step) => step,
                    // What is taken already is worth more than the error, which will come again.
                    Err(_) if !taken.turns.is_empty() => return Ok(next_due),
                    Err(problem) => return Err(problem),
                };
                let came = turns.len();
                let jobs = turns.iter().flat_map(|turn| &turn.jobs);
                bytes += jobs.map(|job| job.payload.as_bytes().len()).sum::<usize>();
                taken.turns.extend(turns);
                if came < asked {
                    next_due = [next_due, due].into_iter().flatten().min();
                    break;
                }
            }
        }
        Ok(next_due)
    }

    async fn by_lag(&self) -> Result<Vec<Arc<str>>, Problem> {
        let mut queues: Vec<Arc<str>> =
            self.queues.iter().map(|name| name.as_str().into()).collect();
        queues.sort();
        queues.dedup();
        if queues.len() == 1 {
            return Ok(queues);
        }
        let due = self.app.store.due(DueQuery { now: None, queues: queues.clone() }).await?;
        let since = |queue: &Arc<str>| {
            let shards = due.iter().filter(|one| one.queue == *queue);
            shards.filter_map(|one| one.due).min().unwrap_or(Timestamp::MAX)
        };
        queues.sort_by_cached_key(since);
        Ok(queues)
    }

    async fn step(
        &self,
        queue: &Arc<str>,
        lanes_max: usize,
    ) -> Result<(Vec<Turn>, Option<Timestamp>), Problem> {
        let (app, store) = (&self.app, &*self.app.store);
        let ask =
            app.workers.claiming(store, &self.worker, &self.queues, self.lanes_max, self.lease);
        let node = ask.await?;
        let claimed = match store.claim(self.request(queue, &node, lanes_max)).await {
            Err(error) if error.kind() == ErrorKind::NodeGone => {
                app.workers.rename(&self.worker, &node);
                let (node, _) = app.workers.beat(store, &self.worker, Vec::new()).await?;
                store.claim(self.request(queue, &node, lanes_max)).await
            }
            claimed => claimed,
        };
        match claimed {
            Ok(claimed) => Ok((claimed.turns, claimed.next_due)),
            // Its first push will create it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((Vec::new(), None)),
            Err(error) => Err(error.into()),
        }
    }

    fn request(&self, queue: &Arc<str>, node: &NodeId, lanes_max: usize) -> Claim {
        Claim {
            now: None,
            queue: queue.clone(),
            shard: None,
            node: node.clone(),
            node_name: Some(self.worker.as_str().into()),
            groups: self.groups.clone(),
            lanes_max,
            crashed_max: CRASHED_MAX,
            lease: Lease::Own { ttl: self.lease },
        }
    }

    /// Ends the turns whose jobs should all have started before: nobody gets them.
    async fn end_expired(&self, taken: &mut Taken) -> Result<(), Problem> {
        let is_over = |turn: &Turn| turn.jobs.iter().all(|job| job.has_expired(turn.claimed_at));
        if !taken.turns.iter().any(is_over) {
            return Ok(());
        }
        let queues = self.app.store.queues().await?;
        let ended = taken.turns.iter().filter(|turn| is_over(turn)).filter_map(|turn| {
            let queue = queues.iter().find(|view| *view.queue.name == *turn.queue)?;
            Some(expired(turn, &queue.queue))
        });
        let turns = ended.collect();
        self.app.store.settle(Settle { now: None, turns }).await?;
        taken.turns.retain(|turn| !is_over(turn));
        Ok(())
    }
}
