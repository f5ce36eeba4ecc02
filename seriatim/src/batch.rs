//! What a handler gets: the lanes of one call, their payloads, and a context.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::id::{JobId, LaneId, Token};
use crate::limits::PROGRESS_BYTES_MAX;
use crate::payload::Payload;
use crate::settle::{Outcome, Verdict};
use crate::turn::{Turn, TurnJob};

/// The lanes of one handler call.
#[derive(Debug)]
pub struct Batch<T> {
    queue: Arc<str>,
    lanes: Vec<Lane<T>>,
}

/// One lane of a call: the jobs of one key, in order.
#[derive(Debug)]
pub struct Lane<T> {
    turn: Arc<Turn>,
    payloads: Vec<T>,
    /// Which job of the turn each payload is.
    places: Vec<usize>,
}

impl<T> Batch<T> {
    /// The queue.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The lanes of this call; at least one.
    pub fn lanes(&self) -> &[Lane<T>] {
        &self.lanes
    }

    /// The lanes, to be taken apart.
    pub fn into_lanes(self) -> Vec<Lane<T>> {
        self.lanes
    }

    /// All payloads of all lanes, lane by lane in order.
    pub fn payloads(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flat_map(|lane| &lane.payloads)
    }
}

impl Batch<Payload> {
    /// The call as it comes from the store.
    pub(crate) fn raw(turns: &[Arc<Turn>]) -> Self {
        let lanes = turns.iter().map(|turn| Lane {
            turn: turn.clone(),
            payloads: turn.jobs.iter().map(|job| job.payload.clone()).collect(),
            places: (0..turn.jobs.len()).collect(),
        });
        let queue = turns.first().map_or_else(|| "".into(), |turn| turn.queue.clone());
        Self { queue, lanes: lanes.collect() }
    }

    /// Decodes the payloads. Answers the jobs that cannot be; a lane with none left is not handed over.
    pub(crate) fn decoded<T: DeserializeOwned>(self) -> (Batch<T>, Vec<(LaneId, JobId)>) {
        let mut undecodable = Vec::new();
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes {
            let (mut payloads, mut places) = (Vec::new(), Vec::new());
            for (i, payload) in lane.payloads.iter().enumerate() {
                match payload.decode() {
                    Ok(decoded) => {
                        payloads.push(decoded);
                        places.push(i);
                    }
                    Err(_) => undecodable.push((lane.turn.lane, lane.turn.jobs[i].id)),
                }
            }
            if !payloads.is_empty() {
                lanes.push(Lane { turn: lane.turn, payloads, places });
            }
        }
        (Batch { queue: self.queue, lanes }, undecodable)
    }
}

impl<T> Lane<T> {
    /// The lane's name, under which results and progress are given.
    pub fn id(&self) -> LaneId {
        self.turn.lane
    }

    /// The key; empty in a `parallel` queue.
    pub fn key(&self) -> &str {
        self.turn.key.as_deref().unwrap_or("")
    }

    /// The fencing token: a number that only grows for a key. A handler that writes elsewhere can
    /// store it there and refuse writes with a lower one.
    pub fn token(&self) -> Token {
        self.turn.token
    }

    /// The payloads, oldest score first.
    pub fn payloads(&self) -> &[T] {
        &self.payloads
    }

    /// The jobs with their payloads, oldest score first.
    pub fn jobs(&self) -> impl Iterator<Item = (&TurnJob, &T)> {
        self.places.iter().map(|place| &self.turn.jobs[*place]).zip(&self.payloads)
    }

    /// −1 before the first failure.
    pub fn retry_count(&self) -> i32 {
        self.turn.retry_count
    }

    /// How often the first job has been started, this time included.
    pub fn attempt(&self) -> u32 {
        self.turn.attempt()
    }

    /// Everything that the store said of this turn.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }
}

/// What a handler says of its lanes when they do not all end the same way.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Vec<(LaneId, Verdict)>);

impl Outcomes {
    /// All lanes done that nothing else is said of.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how a lane ends.
    pub fn set(&mut self, lane: LaneId, outcome: Outcome) -> &mut Self {
        self.set_verdict(lane, outcome.into())
    }

    /// Says that the first `done` jobs of a lane are done, and what becomes of the next.
    pub fn set_after(&mut self, lane: LaneId, done: usize, outcome: Outcome) -> &mut Self {
        self.set_verdict(lane, Verdict { done, ..outcome.into() })
    }

    /// Says that a lane failed.
    pub fn fail(&mut self, lane: LaneId, error: impl Display) -> &mut Self {
        self.set(lane, Outcome::Retry { error: error.to_string().into(), retry_in: None })
    }

    fn set_verdict(&mut self, lane: LaneId, verdict: Verdict) -> &mut Self {
        self.0.push((lane, verdict));
        self
    }

    pub(crate) fn of(&self, lane: LaneId) -> Verdict {
        let said = self.0.iter().rev().find(|(name, _)| *name == lane);
        said.map_or_else(|| Outcome::Done.into(), |(_, verdict)| verdict.clone())
    }
}

impl From<()> for Outcomes {
    fn from((): ()) -> Self {
        Self::new()
    }
}

/// Where progress waits for the next heartbeat.
pub(crate) type ProgressSink = dyn Fn(LaneId, Token, Arc<str>) + Send + Sync;

/// Where a worker that cannot work asks to be left alone.
pub(crate) type PauseSink = dyn Fn(&str, Duration) + Send + Sync;

/// What a handler can ask and tell while it runs. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) cancel: CancellationToken,
    pub(crate) deadline: Option<Instant>,
    pub(crate) progress: Arc<ProgressSink>,
    pub(crate) pause: Arc<PauseSink>,
}

impl Context {
    /// Waits until the call is to end early: all its jobs are cancelled, its time is up, its
    /// lease is lost, or the node stops and will not wait longer.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether the call is to end early.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// How long the handler may still take; none when there is no limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// This node claims nothing of `queue` for so long: its worker cannot work just now.
    pub fn pause_worker(&self, queue: &str, length: Duration) {
        (self.pause)(queue, length);
    }

    /// Tells how far a lane is: replaces what was told before, and shows within a second.
    /// At most 64 KiB of JSON.
    pub fn progress<T>(&self, lane: &Lane<T>, progress: &impl Serialize) -> Result<()> {
        self.progress_of(lane.id(), lane.token(), progress)
    }

    /// The same by the lane's name and token.
    pub fn progress_of(&self, lane: LaneId, token: Token, progress: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(progress)
            .map_err(|e| Error::invalid("progress", "cannot be written as JSON").because(e))?;
        if text.len() > PROGRESS_BYTES_MAX {
            let message =
                format!("has {} bytes; at most {PROGRESS_BYTES_MAX} are kept", text.len());
            return Err(Error::invalid("progress", message));
        }
        (self.progress)(lane, token, text.into());
        Ok(())
    }
}
