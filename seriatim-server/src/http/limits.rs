//! Every limit of the HTTP API, with its name and unit, and the reading of bodies within them.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use super::problem::Problem;

/// Most connections at once; others wait to be accepted. All that may wait for claims and events
/// together are half of it, so that they never keep others out.
pub(super) const CONNECTIONS_MAX: usize = 2_048;
/// Most header fields of a request.
pub(super) const HEADERS_MAX: usize = 100;
/// Most bytes of a request's line and header, and of what is read ahead. It is looked at when a read
/// did not complete the header, so that the last read may go beyond.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long the header of a request may take, and how long a connection may be idle.
pub(super) const HEADER_READ_MAX: Duration = Duration::from_secs(15);
/// Most bytes of an ordinary body.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a body that pushes or settles many.
pub(super) const BULK_BODY_BYTES_MAX: usize = 32 << 20;
/// Most bytes of bodies that are in memory at once.
pub(super) const BODIES_BYTES_MAX: usize = 256 << 20;
/// How long a client may send nothing in the middle of a body.
pub(super) const BODY_STALL_MAX: Duration = Duration::from_secs(10);
/// How long a body may take in all; streams are bound by [`BODY_STALL_MAX`] alone.
pub(super) const BODY_READ_MAX: Duration = Duration::from_secs(60);
/// How long a client may leave an answer unread before its connection is cut.
pub(super) const ANSWER_STALL_MAX: Duration = Duration::from_secs(30);
/// Longest line of a stream of jobs, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 8 << 20;
/// Jobs of a stream that are pushed together.
pub(super) const STREAM_BATCH_JOBS_MAX: usize = 1_000;
/// Bytes of a stream that are pushed together.
pub(super) const STREAM_BATCH_BYTES_MAX: usize = 8 << 20;
/// Most streams of jobs at once.
pub(super) const STREAMS_MAX: usize = 16;
/// Rows of a page by default.
pub(super) const PAGE_ROWS_DEFAULT: usize = 50;
/// Longest that a claim waits for work, in milliseconds.
pub(super) const WAIT_MS_MAX: u64 = 60_000;
/// Most claims that wait at once.
pub(super) const WAITING_CLAIMS_MAX: usize = 512;
/// Most listeners to events at once.
pub(super) const LISTENERS_MAX: usize = 512;
/// Listeners that hear nothing get a comment so often: whoever stands between does not cut them off,
/// and a connection that is gone is noticed.
pub(super) const LISTENER_BEAT: Duration = Duration::from_secs(15);
/// How often listeners get the numbers of all queues.
pub(super) const STATS_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a body that the audit log has.
pub(super) const AUDIT_BODY_BYTES_MAX: usize = 1_000;
/// Most lanes of one claim.
pub(super) const CLAIM_LANES_MAX: usize = 1_000;
/// Lanes that are claimed in one step; a turn can hold 16 MiB.
pub(super) const CLAIM_STEP_LANES: usize = 16;
/// A claim takes no further step when it has so many bytes of payload.
pub(super) const CLAIM_BYTES_MAX: usize = 32 << 20;
/// Most queues that one claim names.
pub(super) const CLAIM_QUEUES_MAX: usize = 100;
/// Most claims of one heartbeat, and most results of one settle.
pub(super) const NAMED_LANES_MAX: usize = 10_000;
/// Shortest and longest lease of a remote claim, in seconds.
pub(super) const LEASE_SECONDS: std::ops::RangeInclusive<f64> = 1.0..=86_400.0;
/// The lease of a remote claim by default.
pub(super) const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// Most remote workers that this process remembers; the ones silent for longest are forgotten.
pub(super) const WORKERS_MAX: usize = 10_000;
/// How long open connections may go on when the server ends.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The bytes of bodies that may be in memory at once.
pub(super) struct Budget(Semaphore);

/// A body, and its share of the budget.
pub(super) struct Held<'a> {
    pub(super) bytes: Bytes,
    _share: Option<SemaphorePermit<'a>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self(Semaphore::new(BODIES_BYTES_MAX))
    }
}

impl Budget {
    /// Reads a body of at most so many bytes.
    pub(super) async fn read(&self, body: Body, bytes_max: usize) -> Result<Held<'_>, Problem> {
        let mut frames = body.into_data_stream();
        let (mut all, mut share) = (Vec::new(), None::<SemaphorePermit<'_>>);
        let end = Instant::now() + BODY_READ_MAX;
        while let Some(frame) =
            timeout_at(end, next_frame(&mut frames)).await.map_err(|_| slow())?
        {
            let frame = frame?;
            if all.len() + frame.len() > bytes_max {
                return Err(Problem::too_large(bytes_max));
            }
            let more = self.0.try_acquire_many(frame.len() as u32).map_err(|_| {
                Problem::too_many("the bodies of other requests fill the memory set aside for them")
            })?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            all.extend_from_slice(&frame);
        }
        Ok(Held { bytes: all.into(), _share: share })
    }
}

/// The next piece of a body, unless its sender stalls.
pub(super) async fn next_frame(
    frames: &mut axum::body::BodyDataStream,
) -> Option<Result<Bytes, Problem>> {
    match timeout(BODY_STALL_MAX, frames.next()).await {
        Ok(None) => None,
        Ok(Some(Ok(frame))) => Some(Ok(frame)),
        Ok(Some(Err(error))) => {
            Some(Err(Problem::invalid("", format!("the body cannot be read: {error}"))))
        }
        Err(_) => Some(Err(slow())),
    }
}

fn slow() -> Problem {
    Problem::new(axum::http::StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
}
