//! Claimed lanes on their way to a worker. Those that do not get there go back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde_json::value::RawValue;
use seriatim::store::{Command, Settle};
use seriatim::{
    Error, ErrorKind, Outcome, Payload, Queue, Timestamp,
    store::{Settlement, Store, Turn, TurnJob, Verdict, plan, retries_max},
};

use super::super::input::JSON;
use super::super::limits::{Kept, off_thread};
use super::super::pool::Held;
use super::super::{App, Connection, Result, Shared};
use super::secret::secret_of;
use crate::app::first::attempts;
use crate::app::payloads::unreadable;
use crate::protocol::lane::{Claimed, Lane, LaneJob, Tries};
use crate::trace;

/// How often lanes are given back to a store that fails, and the pause between.
const RELEASE_TRIES_MAX: u32 = 5;
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// Lanes that were claimed for a worker which has not got them yet. Dropped, they go back.
pub(super) struct Taken {
    app: Shared,
    pub(super) turns: Vec<Turn>,
    /// Queues of the claim that do not exist.
    pub(super) unknown: Vec<String>,
    /// What an operator asks of the worker.
    pub(super) command: Option<Command>,
    /// What they take of the memory set aside for claimed lanes.
    share: Option<Held>,
    /// The same while the answer is sent.
    kept: Option<Kept>,
}

impl Taken {
    pub(super) fn new(app: Shared) -> Self {
        Self { app, turns: Vec::new(), unknown: Vec::new(), command: None, share: None, kept: None }
    }

    pub(super) fn add(&mut self, turns: Vec<Turn>, share: Held) {
        self.turns.extend(turns);
        match &mut self.share {
            Some(held) => held.add(share),
            None => self.share = Some(share),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.turns.iter().map(Turn::bytes).sum()
    }

    /// The answer, which releases the lanes unless it is sent to its end. To a client that has closed its
    /// side it is not: it may be gone, and undelivered lanes would wait for their leases.
    pub(super) async fn answer(
        mut self,
        client: Connection,
        bearer: Option<Arc<str>>,
    ) -> Result<Response> {
        let key = match self.turns.is_empty() {
            true => None,
            false => Some(self.app.workers.secrets.key(&*self.app.store).await?),
        };
        let bytes = self.bytes();
        let tries = tries(&self.app, &self.turns).await?;
        // Payloads are shared by the copies.
        let (turns, unknown, command) = (self.turns.clone(), self.unknown.clone(), self.command);
        let write = move || {
            let mut lanes = Vec::with_capacity(turns.len());
            for ((turn, tries), key) in turns.iter().zip(tries).zip(key.into_iter().cycle()) {
                let secret = secret_of(key, bearer.as_deref(), turn.lane, turn.token);
                let jobs = turn.jobs.iter().filter(|job| !job.has_expired(turn.claimed_at));
                lanes.push(Lane::new(turn, Some(secret), tries, jobs.map(lane_job)));
            }
            // Written directly: a `Value` would lose what only the text of a payload has.
            serde_json::to_string(&Claimed { lanes, unknown_queues: &unknown, command })
        };
        let text = off_thread(bytes, write).await?;
        let text = text.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        // They can go back without their payloads, which are in the text now.
        self.turns.iter_mut().for_each(drop_payloads);
        if let Some(mut share) = self.share.take() {
            share.keep(text.len().max(bytes));
            self.kept = Some(Kept(Arc::new(share)));
        }
        let kept = self.kept.clone();
        let body = Delivery {
            left: text.len() + END.len(),
            text: Some(text.into()),
            flushed: false,
            taken: self,
            client,
        };
        let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
        let mut response = (head, Body::new(body)).into_response();
        kept.and_then(|kept| response.extensions_mut().insert(kept));
        Ok(response)
    }
}

pub(super) fn lane_job(job: &TurnJob) -> LaneJob<'_> {
    // What a codec made is no JSON, and not for workers that have no codec.
    let payload = serde_json::from_slice(job.payload.as_bytes()).unwrap_or(RawValue::NULL);
    LaneJob::new(job, payload, trace::of_job(job))
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let (app, turns) = (self.app.clone(), std::mem::take(&mut self.turns));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let releasing = app.unfinished();
            runtime.spawn(async move {
                release(&*app.store, &turns).await;
                drop(releasing);
            });
        }
    }
}

/// Leaves of a turn what it takes to settle it.
pub(super) fn drop_payloads(turn: &mut Turn) {
    turn.jobs.iter_mut().for_each(|job| job.payload = Payload::from_bytes(Bytes::new()));
}

/// The last byte of the answer.
const END: &str = "\n";

/// The answer as a body in two pieces. Between them the connection is flushed, so that one that is
/// gone is noticed while the lanes can still go back; what is lost behind the socket comes back
/// when its lease expires.
struct Delivery {
    text: Option<Bytes>,
    flushed: bool,
    /// Bytes to come.
    left: usize,
    taken: Taken,
    client: Connection,
}

impl hyper::body::Body for Delivery {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(text) = self.text.take() {
            self.left -= text.len();
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        // Cut short: the connection ends with less than the header said.
        if self.left == 0 || (self.client.has_left() && !self.taken.turns.is_empty()) {
            return Poll::Ready(None);
        }
        if !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.left = 0;
        self.taken.turns.clear();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(END.as_bytes())))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// Sends turns back that never started: uncounted.
async fn release(store: &dyn Store, turns: &[Turn]) {
    tracing::info!(
        lanes = turns.len(),
        "the answer to a claim was not delivered: releasing its lanes"
    );
    for attempt in 0..RELEASE_TRIES_MAX {
        match try_release(store, turns).await {
            Ok(()) => return,
            Err(error) if attempt + 1 == RELEASE_TRIES_MAX => {
                tracing::warn!(%error, "cannot release the lanes of an undelivered answer: they return when their leases expire");
            }
            Err(_) => tokio::time::sleep(RELEASE_PAUSE).await,
        }
    }
}

/// What workers are told of the tries of turns.
pub(super) async fn tries(app: &App, turns: &[Turn]) -> Result<Vec<Tries>> {
    let queues =
        app.queues.seen.with(&*app.store, turns.iter().map(|turn| turn.lane.queue)).await?;
    let first = attempts(&*app.store, turns).await;
    let tries = |(turn, first_attempt_at): (&Turn, Option<Timestamp>)| {
        let queue = queues.named(&turn.queue).map(|view| &view.queue);
        let options = turn.head().and_then(|job| job.options.as_deref());
        let max_retries = queue.map_or(0, |queue| retries_max(options, queue));
        Tries { max_retries, first_attempt_at }
    };
    Ok(turns.iter().zip(first).map(tries).collect())
}

async fn try_release(store: &dyn Store, turns: &[Turn]) -> seriatim::Result<()> {
    let queues = store.queues().await?;
    let settlement = |turn: &Turn| {
        let queue = queues.iter().find(|view| *view.queue.name == *turn.queue)?;
        Some(seriatim::store::release(turn, &queue.queue))
    };
    let turns: Vec<Settlement> = turns.iter().filter_map(settlement).collect();
    // One whose key a transaction keeps locked must not keep the others.
    let request = Settle { skip_locked: true, ..Settle::now(turns) };
    let settled = store.settle(request).await?;
    match settled.iter().filter(|settled| settled.is_open()).count() {
        0 => Ok(()),
        open => {
            let why = format!("transactions keep the keys of {open} lanes locked");
            Err(Error::new(ErrorKind::Unavailable, why))
        }
    }
}

/// The end of a turn that is not delivered: expired jobs are over, those whose payloads cannot be read are buried, and
/// the others go back.
pub(super) fn undelivered(turn: &Turn, queue: &Queue) -> Settlement {
    let expired = turn.jobs.iter().filter(|job| job.has_expired(turn.claimed_at));
    let why = |job: &TurnJob| Some((job.id, unreadable(&job.payload)?.into()));
    let undecodable: Vec<_> = turn.jobs.iter().filter_map(why).collect();
    let outcome = if undecodable.is_empty() { Outcome::Done } else { Outcome::Release };
    let expired = expired.map(|job| job.id).collect();
    let verdict = Verdict { expired, undecodable, ..outcome.into() };
    plan(turn, queue, &verdict, &|_| Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use seriatim::store::{Claim, Heartbeat, Lease, NodeInfo};
    use seriatim::{
        Client, Job, SharedStore,
        store::{Memory, NodeId},
    };

    use super::super::super::state::App;
    use super::*;

    /// A lane that was claimed for a worker.
    async fn taken() -> (SharedStore, Taken) {
        let store: SharedStore = Arc::new(Memory::new());
        let job = Job::new("orders", "paid").unwrap().key("k");
        Client::new(store.clone()).push(job).await.unwrap();
        let node = NodeInfo::new(NodeId::from("n"), Duration::from_secs(60));
        let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        let claim = Claim {
            crashed_max: 0,
            ..Claim::new("orders", node.id, 1, Lease::Own { ttl: Duration::from_secs(60) })
        };
        let mut taken = Taken::new(App::open(store.clone()));
        taken.turns = store.claim(claim).await.unwrap().turns;
        (store, taken)
    }

    async fn running(store: &SharedStore) -> u64 {
        // What was dropped goes back in a task of its own; this runs behind it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        store.stats(None).await.unwrap()[0].claimed
    }

    #[tokio::test]
    async fn an_answer_that_is_sent_to_its_end_is_delivered() {
        let (store, taken) = taken().await;
        let body = taken
            .answer(Connection::default(), None)
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["lanes"][0]["jobs"][0]["payload"], "paid");
        assert_eq!(running(&store).await, 1);
    }

    #[tokio::test]
    async fn lanes_whose_answer_is_dropped_go_back() {
        let (store, taken) = taken().await;
        drop(taken.answer(Connection::default(), None).await.unwrap());
        assert_eq!(running(&store).await, 0);
        let (store, taken) = self::taken().await;
        let mut body = taken.answer(Connection::default(), None).await.unwrap().into_body();
        // All of the text is with the connection, which then breaks.
        assert!(body.frame().await.unwrap().unwrap().is_data());
        drop(body);
        assert_eq!(running(&store).await, 0);
        let jobs = &store.stats(None).await.unwrap()[0];
        assert_eq!((jobs.jobs, jobs.failed), (1, 0));
    }
}
