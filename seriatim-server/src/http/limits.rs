//! Every limit of the HTTP API, with its name and unit, and the reading of bodies within them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::response::Response;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use seriatim::ErrorKind;
use seriatim::limits::{CLAIM_JOB_BYTES, TURN_BYTES_MAX, TURN_JOBS_MAX};
use tokio::time::{Instant, timeout, timeout_at};

use super::caller::{Class, Party};
use super::pool::{Held, Pool};
use super::{Caller, Problem, Result};

/// Most concurrent connections. Above this, a new one takes the place of one whose client keeps this server waiting.
/// All [`REQUESTS`] and [`LISTENERS`] together are fewer, so there always is such a connection, or room for a probe.
pub(super) const CONNECTIONS_MAX: usize = 4_096;
/// Concurrent requests, of all parties and of one. Probes need no place.
pub(super) const REQUESTS: ByClass<Shares> = ByClass {
    producers: Shares { all: 1_024, party: 512 },
    workers: Shares { all: 1_792, party: 896 },
    readers: Shares { all: 512, party: 256 },
    admins: Shares { all: 128, party: 64 },
};
/// Concurrent answers to `/metrics`.
pub(super) const METRICS: Shares = Shares { all: 16, party: 8 };
/// Most header fields of a request.
pub(super) const HEADERS_MAX: usize = 100;
/// Most bytes of a request's line and header, and of what is read ahead. It is looked at when a read
/// did not complete the header, so that the last read may go beyond.
pub(super) const HEADER_BYTES_MAX: usize = 16 << 10;
/// How long the header of a request may take, and how long a connection may be idle.
pub(super) const HEADER_READ_MAX: Duration = Duration::from_secs(15);
/// Most bytes of an ordinary body.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a body that pushes or settles many.
pub(super) const BULK_BODY_BYTES_MAX: usize = 32 << 20;
/// Most bytes of a form that callers without a token may send: a token, the address of a page, and what was typed before the
/// login ended. A payload that a page lets people edit fits in, unless most of it is marks that a form escapes.
pub(super) const LOGIN_BODY_BYTES_MAX: usize = 256 << 10;
/// Bytes of such forms in memory. Their senders may be anybody, so they take nothing of what others need.
pub(super) const LOGIN_BODIES_BYTES: Shares = Shares { all: 16 << 20, party: 512 << 10 };
/// Bytes of bodies in memory, and of what is parsed from them. The largest array of jobs fits into a producer's share.
pub(super) const BODIES_BYTES: ByClass<Shares> = ByClass {
    producers: Shares { all: 168 << 20, party: 42 << 20 },
    workers: Shares { all: 136 << 20, party: 34 << 20 },
    readers: Shares { all: 4 << 20, party: 2 << 20 },
    admins: Shares { all: 16 << 20, party: 8 << 20 },
};
/// How often a body is counted: the jobs made of it may take more than the body, and a database's driver copies them.
/// The room is reserved from the beginning, so large bodies are pushed one at a time.
const BODY_COPIES: u32 = 2;
/// What a job in memory counts, besides its payload.
pub(super) const JOB_BYTES: usize = 1 << 10;
/// Larger documents are read and written on threads that may block.
pub(super) const INLINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of claimed lanes in memory, as read and as sent.
pub(super) const CLAIMED_BYTES: Shares = Shares { all: 256 << 20, party: 64 << 20 };
/// Bytes that answers to readers may take while they are made and sent.
pub(super) const ANSWERS_BYTES: Shares = Shares { all: 256 << 20, party: 64 << 20 };
/// What a page is counted for, and what a single job or a step of an export is.
pub(super) const PAGE_ANSWER_BYTES: u32 = 24 << 20;
pub(super) const JOB_ANSWER_BYTES: u32 = 8 << 20;
/// How long a request waits for others of its party that make their answers.
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a client may send nothing in the middle of a body.
pub(super) const BODY_STALL_MAX: Duration = Duration::from_secs(10);
/// How long a body may take in all; streams are bound by [`BODY_STALL_MAX`] alone.
pub(super) const BODY_READ_MAX: Duration = Duration::from_secs(60);
/// How long a client may leave an answer unread before its connection is cut.
pub(super) const ANSWER_STALL_MAX: Duration = Duration::from_secs(30);
/// Longest line of a stream of jobs, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 8 << 20;
/// Jobs of a stream that are pushed together.
pub(super) const STREAM_CHUNK_JOBS_MAX: usize = 1_000;
/// Bytes of a stream that are pushed together.
pub(super) const STREAM_CHUNK_BYTES_MAX: usize = 4 << 20;
/// Concurrent exports of lists.
pub(super) const EXPORTS: Shares = Shares { all: 8, party: 2 };
/// Concurrent searches of the journal, each of which reads up to 32 MiB.
pub(super) const SEARCHES: Shares = Shares { all: 2, party: 1 };
/// Concurrent streams of jobs.
pub(super) const STREAMS: Shares = Shares { all: 16, party: 4 };
pub(super) const PAGE_ROWS_DEFAULT: usize = 50;
/// Longest that a claim waits for work, in milliseconds.
pub(super) const WAIT_MS_MAX: u64 = 60_000;
/// Concurrently waiting claims.
pub(super) const WAITING_CLAIMS: Shares = Shares { all: 1_024, party: 512 };
/// Longest that a request waits for the end of a job.
pub(super) const RESULT_WAIT_MAX: Duration = Duration::from_secs(60);
/// Requests that wait for the end of a job at the same time. Each looks at its job once a second or, at first, more often.
pub(super) const RESULT_WAITS: Shares = Shares { all: 512, party: 256 };
/// Concurrent event streams.
pub(super) const LISTENERS: Shares = Shares { all: 512, party: 256 };
/// Idle event streams get a comment so often: proxies keep the connection open, and a lost connection
/// is noticed.
pub(super) const LISTENER_BEAT: Duration = Duration::from_secs(15);
/// How often listeners get the numbers of all queues.
pub(super) const STATS_INTERVAL: Duration = Duration::from_secs(1);
/// Longest description of what was asked for in the audit log, in bytes.
pub(super) const AUDIT_ASKED_BYTES_MAX: usize = 1_000;
/// Refused requests of one token, or of all callers without one, that the audit log has in a second; others are counted in
/// its next line.
pub(super) const AUDIT_REFUSED_PER_SECOND_MAX: u32 = 10;
/// The same that a server keeps in the store in an hour: of the 100,000 deeds there, one token fills less than half in a
/// year so.
pub(super) const AUDIT_REFUSED_KEPT_PER_HOUR_MAX: u32 = 5;
/// How often it is logged that lines about refused requests cannot be written.
pub(super) const AUDIT_FAILURE_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Wrong tokens that an address may send in [`LOGINS_WINDOW`], to the API, the login and clients of Faktory together. Beyond
/// that it is heard only with tokens that cannot be guessed or that it has used before.
pub(super) const LOGINS_FAILED_MAX: u32 = 10;
/// See [`LOGINS_FAILED_MAX`].
pub(super) const LOGINS_WINDOW: Duration = Duration::from_secs(60);
/// Most addresses whose log-ins are remembered; those silent for longest are forgotten.
pub(super) const LOGINS_ADDRESSES_MAX: usize = 10_000;
/// Most lanes of one claim.
pub(super) const CLAIM_LANES_MAX: usize = 1_000;
/// What one step of a claim may take, in bytes, unless a single turn has more.
pub(super) const CLAIM_STEP_BYTES: usize = 1 << 20;
/// What a single turn may have.
pub(super) const CLAIM_TURN_BYTES: usize = TURN_BYTES_MAX + TURN_JOBS_MAX * CLAIM_JOB_BYTES;
/// A claim stops at this many bytes.
pub(super) const CLAIM_BYTES_MAX: usize = 16 << 20;
/// Most nodes of one answer; those that live come first.
pub(super) const NODES_MAX: usize = 1_000;
/// Most queues that one claim names.
pub(super) const CLAIM_QUEUES_MAX: usize = 100;
/// Most consumer groups of one claim: they are kept for each worker.
pub(super) const CLAIM_GROUPS_MAX: usize = 100;
/// Most claims of one heartbeat, and most results of one settle.
pub(super) const NAMED_LANES_MAX: usize = 10_000;
/// How many undeclared queues pushes may create, if `http.implied_queues` is unset.
pub(super) const IMPLIED_QUEUES_MAX: usize = 100;
/// Shortest and longest lease of a remote claim, in seconds.
pub(super) const LEASE_SECONDS: std::ops::RangeInclusive<f64> = 1.0..=86_400.0;
/// The lease of a remote claim by default.
pub(super) const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// Most remote workers of one token, or of all where there are no tokens.
pub(super) const WORKERS_PER_TOKEN_MAX: usize = 1_000;
/// A remote worker that is silent for this long makes room for another.
pub(super) const WORKER_SILENT_MAX: Duration = Duration::from_secs(3_600);
/// How long open connections may go on when the server ends.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(5);

/// An amount for all, and the share of one party.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    pub(super) all: u32,
    pub(super) party: u32,
}

impl Shares {
    pub(super) fn pool(self) -> Pool {
        Pool::new(self.all, self.party)
    }
}

/// One of each class.
pub(super) struct ByClass<T> {
    producers: T,
    workers: T,
    readers: T,
    admins: T,
}

impl<T> ByClass<T> {
    pub(super) fn of(&self, class: Class) -> &T {
        match class {
            Class::Producers => &self.producers,
            Class::Workers => &self.workers,
            Class::Readers => &self.readers,
            Class::Admins => &self.admins,
        }
    }
}

impl ByClass<Shares> {
    fn pools(self) -> ByClass<Pool> {
        ByClass {
            producers: self.producers.pool(),
            workers: self.workers.pool(),
            readers: self.readers.pool(),
            admins: self.admins.pool(),
        }
    }
}

/// All that is shared.
pub(super) struct Budgets {
    pub(super) requests: ByClass<Pool>,
    pub(super) bodies: ByClass<Pool>,
    pub(super) logins: Pool,
    pub(super) answers: Pool,
    pub(super) claimed: Pool,
    pub(super) metrics: Pool,
    pub(super) streams: Pool,
    pub(super) exports: Pool,
    pub(super) searches: Pool,
    pub(super) claims: Pool,
    pub(super) waits: Pool,
    pub(super) listeners: Pool,
}

/// A body, and its share of the budget.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    share: Option<Held>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            requests: REQUESTS.pools(),
            bodies: BODIES_BYTES.pools(),
            logins: LOGIN_BODIES_BYTES.pool(),
            answers: ANSWERS_BYTES.pool(),
            claimed: CLAIMED_BYTES.pool(),
            metrics: METRICS.pool(),
            streams: STREAMS.pool(),
            exports: EXPORTS.pool(),
            searches: SEARCHES.pool(),
            claims: WAITING_CLAIMS.pool(),
            waits: RESULT_WAITS.pool(),
            listeners: LISTENERS.pool(),
        }
    }
}

impl Budgets {
    /// Takes this many bytes of the caller's share of memory for bodies.
    pub(super) fn hold(&self, caller: &Caller, bytes: usize) -> Result<Held> {
        hold(self.bodies.of(caller.class), &caller.party, bytes)
    }

    /// Reads a body of at most `bytes_max`.
    pub(super) async fn read(
        &self,
        caller: &Caller,
        body: axum::body::Body,
        bytes_max: usize,
    ) -> Result<Body> {
        read(self.bodies.of(caller.class), &caller.party, body, bytes_max).await
    }

    /// Reads a form whose sender may have no token.
    pub(super) async fn read_login(&self, party: &Party, body: axum::body::Body) -> Result<Body> {
        read(&self.logins, party, body, LOGIN_BODY_BYTES_MAX).await
    }
}

/// Reads a body. One that announces its length waits for others of its party, and then has room for all of it: if it took
/// room bit by bit, several large ones would refuse each other.
async fn read(
    pool: &Pool,
    party: &Party,
    body: axum::body::Body,
    bytes_max: usize,
) -> Result<Body> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(Problem::too_large(bytes_max));
    }
    let room = (announced as u32 * BODY_COPIES).min(pool.share());
    let share = pool.take(party, room, ANSWER_WAIT_MAX).await;
    let mut read = Body { bytes: Bytes::new(), share: Some(share.ok_or_else(full)?) };
    let mut frames = body.into_data_stream();
    let mut all = Vec::new();
    let end = Instant::now() + BODY_READ_MAX;
    while let Some(frame) = timeout_at(end, next_frame(&mut frames)).await.map_err(|_| slow())? {
        let frame = frame?;
        if all.len() + frame.len() > bytes_max {
            return Err(Problem::too_large(bytes_max));
        }
        let beyond = (all.len() + frame.len()).saturating_sub(announced as usize);
        if beyond > 0 {
            read.hold(hold(pool, party, beyond.min(frame.len()))?);
        }
        all.extend_from_slice(&frame);
    }
    read.bytes = all.into();
    Ok(read)
}

fn hold(pool: &Pool, party: &Party, bytes: usize) -> Result<Held> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    pool.try_take(party, bytes).ok_or_else(full)
}

fn full() -> Problem {
    Problem::too_many("other requests use all memory for bodies of this kind")
}

impl Body {
    /// How many bytes it may take.
    pub(super) fn room(&self) -> usize {
        self.share.as_ref().map_or(0, Held::amount)
    }

    /// Holds that too, until the body is dropped.
    pub(super) fn hold(&mut self, more: Held) {
        match &mut self.share {
            Some(share) => share.add(more),
            None => self.share = Some(more),
        }
    }

    /// Holds its share until this answer is sent, which may repeat what it has.
    pub(super) fn held_by(self, response: Response) -> Response {
        match self.share {
            Some(share) => held(response, share),
            None => response,
        }
    }
}

/// Holds a share of a budget until the answer is sent, if it is a large one.
pub(super) fn held(response: Response, share: Held) -> Response {
    if response.body().size_hint().exact().is_some_and(|bytes| bytes <= INLINE_BYTES_MAX as u64) {
        return response;
    }
    let share = Arc::new(share);
    let kept = Kept(share.clone());
    let mut response = response.map(|body| {
        let body = body.map_frame(move |frame| {
            let _held = &share;
            frame
        });
        axum::body::Body::new(body)
    });
    // A claim has a larger one.
    if response.extensions().get::<Kept>().is_none() {
        response.extensions_mut().insert(kept);
    }
    response
}

/// The share of an answer, for who keeps what was in its body.
#[derive(Clone)]
pub(super) struct Kept(#[allow(dead_code)] pub(super) Arc<Held>);

/// Runs slow work on large documents where it delays no other request.
pub(super) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Ok(work());
    }
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.map_err(|error| seriatim::Error::new(ErrorKind::Internal, error.to_string()).into())
}

/// The next piece of a body, unless its sender stalls.
pub(super) async fn next_frame(frames: &mut axum::body::BodyDataStream) -> Option<Result<Bytes>> {
    match timeout(BODY_STALL_MAX, frames.next()).await {
        Ok(None) => None,
        Ok(Some(Ok(frame))) => Some(Ok(frame)),
        Ok(Some(Err(error))) => {
            Some(Err(Problem::invalid("", format!("cannot read the body: {error}"))))
        }
        Err(_) => Some(Err(slow())),
    }
}

fn slow() -> Problem {
    Problem::new(axum::http::StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
}

#[cfg(test)]
mod tests {
    use seriatim::limits::PUSH_JOBS_MAX;

    use super::*;

    #[test]
    fn all_that_may_be_under_way_leaves_room_for_probes() {
        let ByClass { producers, workers, readers, admins } = REQUESTS;
        let requests = [producers, workers, readers, admins, LISTENERS, METRICS, EXPORTS];
        let busy: u32 = requests.iter().map(|shares| shares.all).sum();
        assert!((busy as usize) < CONNECTIONS_MAX - 100, "{busy}");
        assert!(WAITING_CLAIMS.all < workers.all && WAITING_CLAIMS.party < workers.party);
        assert!(RESULT_WAITS.all < producers.all && RESULT_WAITS.party < producers.party);
    }

    #[test]
    fn the_largest_body_fits_into_a_share_with_all_that_is_made_of_it() {
        let ByClass { producers, workers, readers, admins } = BODIES_BYTES;
        for (shares, most) in [
            (producers, BULK_BODY_BYTES_MAX + PUSH_JOBS_MAX * JOB_BYTES),
            (workers, BULK_BODY_BYTES_MAX),
            (readers, BODY_BYTES_MAX),
            (admins, BODY_BYTES_MAX),
            (LOGIN_BODIES_BYTES, LOGIN_BODY_BYTES_MAX),
        ] {
            assert!(most <= shares.party as usize && shares.party <= shares.all, "{most}");
        }
    }
}
