//! Claiming, with waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::NAME_BYTES_MAX;
use seriatim::store::{Claim, Claimed, Command, Lease, Settle, group_of_build};
use seriatim::{
    ErrorKind, Timestamp,
    store::{NodeId, Settlement, Turn},
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::caller::Party;
use super::super::limits::{
    ANSWER_WAIT_MAX, CLAIM_BYTES_MAX, CLAIM_GROUPS_MAX, CLAIM_LANES_MAX, CLAIM_QUEUES_MAX,
    CLAIM_STEP_BYTES, CLAIM_TURN_BYTES, LEASE_DEFAULT, LEASE_SECONDS, WAIT_MS_MAX,
};
use super::super::pool::Held;
use super::super::seen::{check_lease, lease_refused};
use super::super::{Caller, Connection, Json, Problem, Result, Shared};
use super::deaths::announce;
use super::stride::Stride;
use super::taken::{Taken, undelivered};
use super::workers::{Remote, WORKER_PATTERN, lease};
use crate::app::payloads::unreadable;
use crate::protocol::schema::queue_pattern;

/// Without a wake-up a claim that waits looks again after this.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest rest between two looks.
const REST_MIN: Duration = Duration::from_millis(5);
/// A claim answers with what it has when this part of its lease is over.
const LEASE_SHARE: u32 = 4;
/// A worker can surely start one lane immediately: it gets no more lanes that have crashed.
const CRASHED_MAX: usize = 1;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Claim")]
pub(super) struct Wish {
    /// The name of the worker
    #[schemars(regex(pattern = WORKER_PATTERN))]
    worker: String,
    #[schemars(length(min = 1, max = CLAIM_QUEUES_MAX), inner(regex(pattern = queue_pattern())))]
    queues: Vec<String>,
    /// Maximum number of lanes. Default: 1
    #[schemars(range(min = 1, max = CLAIM_LANES_MAX))]
    limit: Option<usize>,
    /// How long the claim lasts without a heartbeat. Default: 60
    #[schemars(range(min = *LEASE_SECONDS.start(), max = *LEASE_SECONDS.end()))]
    lease_ttl_sec: Option<f64>,
    /// How long to wait for lanes. Default: 0
    #[schemars(range(max = WAIT_MS_MAX))]
    wait_ms: Option<u64>,
    /// Groups of the worker, for jobs that are bound to one
    #[schemars(length(max = CLAIM_GROUPS_MAX), inner(length(min = 1, max = NAME_BYTES_MAX)))]
    consumer_groups: Option<Vec<String>>,
    /// Which build the worker runs, for jobs that ask for one
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    build: Option<String>,
}

/// A wish that can be granted.
struct Order {
    app: Shared,
    worker: Remote,
    party: Party,
    queues: Vec<String>,
    groups: Vec<Arc<str>>,
    lanes_max: usize,
    lease: Duration,
    wait: Duration,
}

pub(super) async fn claim(
    app: Shared,
    caller: Caller,
    client: Connection,
    Json(wish): Json<Wish>,
) -> Result<Response> {
    let (bearer, order) = (caller.bearer(), wish.check(app.clone(), &caller)?);
    let known = app.queues.seen.known(&*app.store).await?;
    check_lease(order.lease, order.queues.iter().filter_map(|name| known.named(name)))?;
    let full = || Problem::too_many("too many waiting claims: retry later, or without wait_ms");
    let _place = match order.wait.is_zero() {
        true => None,
        false => Some(app.budgets.claims.try_take(&caller.party, 1).ok_or_else(full)?),
    };
    let (mut answer, answered) = oneshot::channel();
    // In its own task: this function ends as soon as the client disconnects, and a claim cut off in the
    // middle would leave lanes claimed without a holder.
    tokio::spawn(async move {
        let taken = order.fill(&mut answer).await;
        // Without a receiver, the lanes come back here and are released when dropped.
        let _ = answer.send(taken);
    });
    let gone = |_| Problem::unavailable("the claim was given up");
    tokio::select! {
        biased;
        answer = answered => answer.map_err(gone)??.answer(client.clone(), bearer).await,
        // It may only have closed its side; what is taken for it goes back.
        () = client.left() => Taken::new(app).answer(client.clone(), None).await,
    }
}

impl Wish {
    fn check(self, app: Shared, caller: &Caller) -> Result<Order> {
        let worker = Remote::new(caller, &self.worker)?;
        if self.queues.is_empty() || self.queues.len() > CLAIM_QUEUES_MAX {
            let detail = format!("name 1 to {CLAIM_QUEUES_MAX} queues");
            return Err(Problem::invalid("queues", detail));
        }
        for (i, queue) in self.queues.iter().enumerate() {
            let wrong = |error: seriatim::Error| {
                Problem::invalid(format!("queues[{i}]"), error.message().to_owned())
            };
            seriatim::store::validate_queue_name(queue).map_err(wrong)?;
            let its = caller.scope.check_queue(queue);
            its.map_err(|problem| problem.about(format!("queues[{i}]")))?;
        }
        let lanes_max = self.limit.unwrap_or(1);
        if !(1..=CLAIM_LANES_MAX).contains(&lanes_max) {
            return Err(Problem::invalid("limit", format!("must be 1 to {CLAIM_LANES_MAX}")));
        }
        let wait_ms = self.wait_ms.unwrap_or(0);
        if wait_ms > WAIT_MS_MAX {
            return Err(Problem::invalid("wait_ms", format!("must be at most {WAIT_MS_MAX}")));
        }
        let mut groups = self.consumer_groups.unwrap_or_default();
        if groups.len() > CLAIM_GROUPS_MAX {
            let detail = format!("name at most {CLAIM_GROUPS_MAX} consumer groups");
            return Err(Problem::invalid("consumer_groups", detail));
        }
        for (i, group) in groups.iter().enumerate() {
            let its = check_text(group).and_then(|()| caller.scope.check_group(group));
            its.map_err(|problem| problem.about(format!("consumer_groups[{i}]")))?;
        }
        if let Some(build) = self.build {
            check_text(&build).map_err(|problem| problem.about("build"))?;
            let group = group_of_build(&build);
            caller.scope.check_group(&group).map_err(|problem| problem.about("build"))?;
            groups.push(group);
        }
        Ok(Order {
            app,
            worker,
            party: caller.party.clone(),
            queues: self.queues,
            groups: groups.into_iter().map(Into::into).collect(),
            lanes_max,
            lease: lease(self.lease_ttl_sec)?.unwrap_or(LEASE_DEFAULT),
            wait: Duration::from_millis(wait_ms),
        })
    }
}

impl Order {
    /// Claims, and waits until there are lanes, the time is up, the client is gone, or its worker has to stop.
    async fn fill(&self, answer: &mut oneshot::Sender<Result<Taken>>) -> Result<Taken> {
        let end = Instant::now() + self.wait;
        let queues = self.queues.iter().map(|queue| queue.as_str().into());
        let mut wakeups = self.app.store.wakeups().only(queues);
        let mut stopped_at_first = None;
        loop {
            wakeups.forget();
            let (taken, next_due) = self.look().await?;
            let left = end.saturating_duration_since(Instant::now());
            // A worker that claims after it got the command waits like the others, or it would ask without a pause.
            let is_stopped = taken.command == Some(Command::Stop);
            let was_stopped = *stopped_at_first.get_or_insert(is_stopped);
            let has_to_stop = is_stopped && !was_stopped;
            if !taken.turns.is_empty() || left.is_zero() || has_to_stop {
                return Ok(taken);
            }
            let rest = match next_due {
                Some(due) => due.since(self.app.store.now().await?).max(REST_MIN),
                None => LOOK_INTERVAL,
            };
            tokio::select! {
                _ = wakeups.wait(rest.min(LOOK_INTERVAL).min(left)) => {}
                () = self.app.draining() => return Ok(taken),
                () = answer.closed() => return Ok(taken),
            }
        }
    }

    /// Claims what is there, from the queue that has waited longest first. Also returns when there may
    /// be more.
    async fn look(&self) -> Result<(Taken, Option<Timestamp>)> {
        let mut taken = Taken::new(self.app.clone());
        // Also a worker that finds nothing lives, and is to be seen.
        self.node().await?;
        taken.command = self.app.workers.command_of(&self.worker);
        if taken.command.is_some() {
            return Ok((taken, None));
        }
        loop {
            let next_due = self.take(&mut taken).await?;
            let ended = self.end_expired(&mut taken).await?;
            if !ended || !taken.turns.is_empty() {
                return Ok((taken, next_due));
            }
        }
    }

    async fn take(&self, taken: &mut Taken) -> Result<Option<Timestamp>> {
        taken.unknown.clear();
        let (queues, mut next_due) = self.by_lag(&mut taken.unknown).await?;
        // The leases of the first lanes run already.
        let end = Instant::now() + self.lease / LEASE_SHARE;
        for queue in queues {
            match self.take_of(&queue, taken, end).await {
                Ok(due) => next_due = [next_due, due].into_iter().flatten().min(),
                // The lanes that are already taken are worth more than the error, which will be repeated.
                Err(_) if !taken.turns.is_empty() => return Ok(next_due),
                Err(problem) => return Err(problem),
            }
        }
        Ok(next_due)
    }

    /// Claims lanes of one queue as far as they are wanted and there is room; returns when there may be more.
    async fn take_of(
        &self,
        queue: &Arc<str>,
        taken: &mut Taken,
        end: Instant,
    ) -> Result<Option<Timestamp>> {
        let (mut step_bytes, mut stride) = (CLAIM_STEP_BYTES, Stride::default());
        loop {
            let room = self.lanes_max - taken.turns.len();
            let is_late = !taken.turns.is_empty() && Instant::now() >= end;
            if room == 0 || taken.bytes() >= CLAIM_BYTES_MAX || is_late {
                return Ok(None);
            }
            let Some(mut share) = self.share(step_bytes, taken.turns.is_empty()).await? else {
                return Ok(None);
            };
            let lanes_max = if step_bytes > CLAIM_STEP_BYTES { 1 } else { stride.lanes(room) };
            let has_crash = taken.turns.iter().any(|turn| turn.crashes > 0);
            let crashed_max = if has_crash { 0 } else { CRASHED_MAX };
            let request = self.request(queue, lanes_max, crashed_max, step_bytes);
            let Some(claimed) = self.step(queue, request).await? else {
                taken.unknown.push(queue.to_string());
                return Ok(None);
            };
            let (came, bytes) = (claimed.turns.len(), claimed.turns.iter().map(Turn::bytes).sum());
            stride.learn(came, bytes);
            share.keep(twice(bytes) as usize);
            taken.add(claimed.turns, share);
            step_bytes = match claimed.cut {
                // The next turn has more than a step may take: it comes alone.
                true if came == 0 && step_bytes == CLAIM_STEP_BYTES => CLAIM_TURN_BYTES,
                true if came > 0 => CLAIM_STEP_BYTES,
                _ if came < lanes_max => return Ok(claimed.next_due),
                _ => CLAIM_STEP_BYTES,
            };
        }
    }

    /// Memory for what a step reads and for what is sent of it. Only the first lanes wait for it.
    async fn share(&self, bytes: usize, is_first: bool) -> Result<Option<Held>> {
        let (pool, bytes) = (&self.app.budgets.claimed, twice(bytes));
        if !is_first {
            return Ok(pool.try_take(&self.party, bytes));
        }
        let full = || Problem::too_many("other claims use all memory for answers");
        pool.take(&self.party, bytes, ANSWER_WAIT_MAX).await.map(Some).ok_or_else(full)
    }

    /// The queues that may have something, longest due first, and when the next of the others may.
    /// Those that do not exist are `unknown`.
    async fn by_lag(
        &self,
        unknown: &mut Vec<String>,
    ) -> Result<(Vec<Arc<str>>, Option<Timestamp>)> {
        let mut queues: Vec<Arc<str>> =
            self.queues.iter().map(|name| name.as_str().into()).collect();
        queues.sort();
        queues.dedup();
        if queues.len() == 1 {
            return Ok((queues, None));
        }
        let store = &self.app.store;
        let (due, now) = (store.due(queues.clone()).await?, store.now().await?);
        let is_there = |name: &&Arc<str>| due.iter().any(|one| one.queue == **name);
        for name in queues.iter().filter(|name| !is_there(name)) {
            if !self.app.queues.declares(name) || !self.app.queues.restore(&**store, name).await? {
                unknown.push(name.to_string());
            }
        }
        let (ready, later): (Vec<_>, Vec<_>) = due
            .into_iter()
            .filter_map(|one| Some((one.may_have_at(now)?, one.queue)))
            .partition(|(due, _)| *due <= now);
        let mut ready = ready;
        ready.sort();
        let queues = ready.into_iter().map(|(_, queue)| queue).collect();
        Ok((queues, later.into_iter().map(|(due, _)| due).min()))
    }

    /// The node as which the worker claims.
    async fn node(&self) -> Result<NodeId> {
        let (workers, store) = (&self.app.workers, &self.app.store);
        let of = (&*self.queues, &*self.groups);
        workers.claiming(store, &self.worker, of, self.lease).await
    }

    /// What a claim brings; nothing when there is no such queue.
    async fn step(&self, queue: &Arc<str>, mut request: Claim) -> Result<Option<Claimed>> {
        let (app, store) = (&self.app, &self.app.store);
        request.node = self.node().await?;
        // An emptied store has lost the node and the queue, and reports either first.
        let (mut is_renamed, mut is_restored) = (false, false);
        loop {
            match store.claim(request.clone()).await {
                Ok(claimed) => return Ok(Some(claimed)),
                Err(error) if error.kind() == ErrorKind::NodeGone && !is_renamed => {
                    is_renamed = true;
                    app.workers.rename(&self.worker, &request.node)?;
                    (request.node, _) = app.workers.beat(store, &self.worker, Vec::new()).await?;
                }
                // The store lost it, or a push made it: it is declared before anything is claimed.
                Err(error) if is_missing(&error) && app.queues.declares(queue) && !is_restored => {
                    is_restored = true;
                    if !app.queues.restore(&**store, queue).await? {
                        return Ok(Some(Claimed::default()));
                    }
                }
                // Its first push will create it.
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) if error.field() == Some("lease") => {
                    return Err(lease_refused(&error));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn request(
        &self,
        queue: &Arc<str>,
        lanes_max: usize,
        crashed_max: usize,
        bytes_max: usize,
    ) -> Claim {
        Claim {
            now: None,
            queue: queue.clone(),
            node: NodeId::from(""),
            node_name: Some(self.worker.name.clone()),
            groups: self.groups.clone(),
            lanes_max,
            // They are handed over together: no more than the queue says.
            series_max: 1,
            crashed_max,
            bytes_max: Some(bytes_max),
            lease: Lease::Own { ttl: self.lease },
            declared: self.app.queues.declares(queue),
            ticket: 0,
        }
    }

    /// Ends the turns whose jobs have all undelivered, instead of delivering them, and those with a job whose payload cannot
    /// be read; their other jobs come again. Whether there were any.
    async fn end_expired(&self, taken: &mut Taken) -> Result<bool> {
        let is_over = |turn: &Turn| {
            turn.jobs.iter().all(|job| job.has_expired(turn.claimed_at))
                || turn.jobs.iter().any(|job| unreadable(&job.payload).is_some())
        };
        if !taken.turns.iter().any(is_over) {
            return Ok(false);
        }
        let known = self.app.queues.seen.read(&*self.app.store).await?;
        // Those that are not ended below go back.
        let mut over = Taken::new(self.app.clone());
        let turns = std::mem::take(&mut taken.turns).into_iter();
        (over.turns, taken.turns) = turns.partition(is_over);
        let ends = over.turns.iter().filter_map(|turn| {
            let view = known.named(&turn.queue)?;
            Some((turn, undelivered(turn, &view.queue)))
        });
        let ends: Vec<(&Turn, Settlement)> = ends.collect();
        let told = ends.iter().map(|(turn, end)| (*turn, end));
        if !announce(&self.app, &known, told).await.is_empty() {
            return Err(Problem::unavailable(
                "the store does not accept the seriatim.exhausted jobs of undecodable ones",
            ));
        }
        let turns: Vec<Settlement> = ends.into_iter().map(|(_, end)| end).collect();
        let request = Settle { skip_locked: true, ..Settle::now(turns.clone()) };
        let settled = self.app.store.settle(request).await?;
        let is_open = |turn: &Turn| {
            let mut all = turns.iter().zip(&settled);
            all.any(|(end, settled)| end.lane == turn.lane && settled.is_open())
        };
        over.turns.retain(is_open);
        Ok(true)
    }
}

/// Refuses a group or build that no job can name: this process and the store would keep it for each worker.
fn check_text(text: &str) -> Result<()> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains('\0') {
        return Ok(());
    }
    let detail =
        format!("has {} bytes: write 1 to {NAME_BYTES_MAX}, without a NUL character", text.len());
    Err(Problem::invalid("", detail))
}

/// What lanes take of memory: as they were read, and as they are sent.
fn twice(bytes: usize) -> u32 {
    u32::try_from(bytes * 2).unwrap_or(u32::MAX)
}

fn is_missing(error: &seriatim::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}
