//! Claims lanes into the buffer: enough that no executor waits for the store, no more than are
//! worked off in a moment, so that a slow handler does not hoard what other nodes could do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{Call, Shared};
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::limits::CLAIM_LANES_MAX;
use crate::settle::Outcome;
use crate::store::{Claim, Claimed, DueQuery, Lease, Wakeups};
use crate::turn::Turn;

/// Lanes are claimed ahead for about so long.
const AHEAD_MAX: Duration = Duration::from_millis(100);
/// Shortest and longest wait for a store that is away.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What to do after a claim.
enum Next {
    /// Claim again.
    Claim,
    /// Nothing is due: sleep so long, or until something wakes.
    Sleep(Duration),
    /// What is due may be taken only into a free slot: wait for one.
    FreeSlot,
}

/// Where and when to look next.
struct Fetcher {
    shared: Arc<Shared>,
    wakeups: Wakeups,
    queues: Vec<Arc<str>>,
    /// Queues of which the last claim said that nothing can be had before then.
    not_before: HashMap<Arc<str>, Option<Timestamp>>,
    /// How many lanes to hold in the buffer.
    ahead: usize,
    filled_at: Instant,
    outage: Option<Duration>,
}

pub(super) async fn run(shared: Arc<Shared>) {
    let queues: Vec<Arc<str>> = shared.queues.keys().map(|name| name.as_str().into()).collect();
    let mut fetcher = Fetcher {
        wakeups: shared.store.wakeups(),
        queues,
        not_before: HashMap::new(),
        ahead: 0,
        filled_at: Instant::now(),
        outage: None,
        shared: shared.clone(),
    };
    let stop = shared.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = fetcher.fetch_forever() => {}
    }
}

impl Fetcher {
    async fn fetch_forever(&mut self) {
        loop {
            self.wait_for_room().await;
            self.wakeups.forget();
            match self.fetch().await {
                Ok(next) => {
                    self.outage = None;
                    self.rest(next).await;
                }
                Err(error) if error.kind() == ErrorKind::NodeGone => {
                    // The heartbeat finds it out too, and takes a new id.
                    self.shared.progressed.notify_one();
                    tokio::time::sleep(RETRY_WAIT.0).await;
                }
                Err(error) => self.wait_out(&error).await,
            }
        }
    }

    /// The fewest lanes that keep all executors busy.
    fn least(&self) -> usize {
        let largest = self.shared.queues.values().map(|queue| queue.batch_size).max().unwrap_or(1);
        (self.shared.settings.concurrency * largest as usize).min(CLAIM_LANES_MAX)
    }

    async fn wait_for_room(&mut self) {
        let (least, most) = (self.least(), self.shared.settings.prefetch_max);
        self.ahead = self.ahead.clamp(least, most.max(least));
        self.shared.low_water.store(self.ahead / 2, Ordering::Relaxed);
        while self.shared.buffered() > self.ahead / 2 {
            self.shared.drained.notified().await;
        }
        let took = self.filled_at.elapsed();
        if took < AHEAD_MAX {
            self.ahead *= 2;
        } else if took > AHEAD_MAX * 4 {
            self.ahead /= 2;
        }
        self.ahead = self.ahead.clamp(least, most.max(least));
        self.filled_at = Instant::now();
    }

    /// Claims once.
    async fn fetch(&mut self) -> Result<Next> {
        let Some(queue) = self.choose().await? else {
            return Ok(Next::Sleep(self.until_due()));
        };
        let room = self.ahead.saturating_sub(self.shared.buffered()).max(1);
        let claimed = self.claim(&queue, room).await?;
        let now = self.shared.now();
        let is_blocked = claimed.turns.is_empty() && claimed.next_due.is_some_and(|due| due <= now);
        if is_blocked || claimed.next_due.is_none_or(|due| due > now) {
            self.not_before.insert(queue, claimed.next_due.filter(|due| *due > now));
        }
        self.shared.fill(self.calls(claimed.turns));
        Ok(if is_blocked { Next::FreeSlot } else { Next::Claim })
    }

    async fn claim(&self, queue: &Arc<str>, lanes_max: usize) -> Result<Claimed> {
        let settings = &self.shared.settings;
        let idle = settings.concurrency.saturating_sub(self.shared.busy());
        let crashed_max = if self.shared.buffered() == 0 { idle } else { 0 };
        let own = self.shared.queues.get(&**queue).and_then(|queue| queue.lease);
        let request = Claim {
            now: None,
            queue: queue.clone(),
            shard: None,
            node: self.shared.node(),
            node_name: Some(settings.name.clone()),
            groups: settings.groups.clone(),
            lanes_max,
            crashed_max,
            lease: Lease::Node { ttl: own.unwrap_or_default().max(settings.lease) },
        };
        self.shared.store.claim(request).await
    }

    /// The queue whose oldest lane has been due longest; with one queue there is nothing to ask.
    async fn choose(&mut self) -> Result<Option<Arc<str>>> {
        let now = self.shared.now();
        self.not_before.retain(|_, due| due.is_none_or(|due| due > now));
        let open: Vec<Arc<str>> = self
            .queues
            .iter()
            .filter(|queue| !self.not_before.contains_key(*queue) && !self.shared.is_paused(queue))
            .cloned()
            .collect();
        if open.len() <= 1 {
            return Ok(open.into_iter().next());
        }
        let due = self.shared.store.due(DueQuery { now: None, queues: open.clone() }).await?;
        let mut oldest = None;
        for source in due {
            match source.due {
                Some(due) if due <= now => {
                    if oldest.as_ref().is_none_or(|(known, _)| due < *known) {
                        oldest = Some((due, source.queue));
                    }
                }
                later => drop(self.not_before.insert(source.queue, later)),
            }
        }
        Ok(oldest.map(|(_, queue)| queue))
    }

    /// How long until the next lane falls due, as far as is known.
    fn until_due(&self) -> Duration {
        let now = self.shared.now();
        let next = self.not_before.values().flatten().min();
        let poll = jittered(self.shared.settings.poll_interval);
        next.map_or(poll, |due| due.since(now).min(poll))
    }

    /// Sleeps, unless something wakes it: then every queue is looked at again.
    async fn rest(&mut self, next: Next) {
        let poll = self.shared.settings.poll_interval;
        let look_again = match next {
            Next::Claim => return,
            Next::Sleep(length) => self.wakeups.wait(length).await || length >= poll / 2,
            Next::FreeSlot => tokio::select! {
                _ = self.wakeups.wait(poll) => true,
                () = self.shared.freed.notified() => true,
            },
        };
        if look_again {
            self.not_before.clear();
        }
    }

    /// The store is away: says so once, waits longer each time, and goes on.
    async fn wait_out(&mut self, error: &crate::Error) {
        let wait = match self.outage {
            None => {
                tracing::warn!(%error, "the store does not answer: waiting for it");
                RETRY_WAIT.0
            }
            Some(wait) => (wait * 2).min(RETRY_WAIT.1),
        };
        self.outage = Some(wait);
        tokio::time::sleep(jittered(wait)).await;
    }

    /// Puts turns together into calls: up to the queue's batch size, of one task; alone what
    /// something went wrong with before, so that it drags no others along.
    fn calls(&self, turns: Vec<Turn>) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::with_capacity(turns.len());
        let mut may_grow = false;
        for turn in turns {
            let turn = Arc::new(turn);
            let Some(queue) = self.shared.queues.get(&*turn.queue) else { continue };
            let Some(worker) = self.shared.registry.find(&turn.queue, turn.task().map(|t| &**t))
            else {
                self.refuse(turn);
                continue;
            };
            let alone = turn.is_alone();
            match calls.last_mut() {
                Some(call)
                    if may_grow
                        && !alone
                        && call.turns.len() < queue.batch_size as usize
                        && call.turns[0].task() == turn.task() =>
                {
                    call.turns.push(turn);
                }
                _ => {
                    let own = turn.head().and_then(|job| job.options.as_ref()?.timeout);
                    let timeout = own.or(queue.timeout);
                    calls.push(Call { turns: vec![turn], worker: worker.clone(), timeout });
                    may_grow = !alone;
                }
            }
        }
        calls
    }

    fn refuse(&self, turn: Arc<Turn>) {
        let task = turn.task().map_or("(none)", |task| task).to_owned();
        let error = format!("no worker of queue {:?} knows task {task:?}", turn.queue).into();
        self.shared.ended(turn, Outcome::Retry { error, retry_in: None }.into());
    }
}

/// Up to a tenth more or less, so that nodes do not march in step.
pub(super) fn jittered(length: Duration) -> Duration {
    length.mul_f64(0.9 + fastrand::f64() * 0.2)
}
