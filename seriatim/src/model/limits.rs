//! Every limit, with its name and unit. Nothing in the crate grows past one of these.

use std::borrow::Cow;
use std::time::Duration;

use crate::model::text::cut_middle;

/// Longest queue name, in bytes.
pub const QUEUE_NAME_BYTES_MAX: usize = 128;
/// Most queues in one store (a queue's number is 14 bits of a job id).
pub const QUEUES_MAX: u32 = 10_000;
/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest task, node, group, producer, partition or idempotency name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Largest payload of one job, in bytes, as it is stored (after any codec).
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting of a JSON payload.
pub const PAYLOAD_DEPTH_MAX: usize = 120;
/// Most jobs in one push.
pub const PUSH_JOBS_MAX: usize = 10_000;
/// Most payload bytes in one push.
pub const PUSH_BYTES_MAX: usize = 64 << 20;
/// Most lanes in one claim.
pub const CLAIM_LANES_MAX: usize = 10_000;
/// Most jobs in one turn.
pub const TURN_JOBS_MAX: usize = 10_000;
/// Most payload bytes in one turn (a single job may always be taken).
pub const TURN_BYTES_MAX: usize = 16 << 20;
/// What a job counts of the bytes of a claim, besides its payload.
pub const CLAIM_JOB_BYTES: usize = 512;
/// Most turns in one settle.
pub const SETTLE_TURNS_MAX: usize = 10_000;
/// Most rows in one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// A page of jobs ends early, with the job by which its payloads have so many bytes.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Most rows that one call of a bulk action (requeue, delete, sweep) touches; it says when more are left.
pub const ACTION_ROWS_MAX: usize = 10_000;
/// Longest error text kept with a lane or a job, in bytes; longer ones lose their middle.
pub const ERROR_BYTES_MAX: usize = 4 << 10;
/// Largest progress document of a turn, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 64 << 10;
/// Priorities run from 0 (soonest) to this.
pub const PRIORITY_MAX: u16 = 32_767;
/// The priority of a job that names none.
pub const PRIORITY_DEFAULT: u16 = 100;
/// Furthest that a job can be delayed, and longest that anything is retained: ten years.
pub const DELAY_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The longest lease that a claim or a job may ask for, unless its queue says otherwise (`lease_max`).
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// Most attempts of a job, and most retries that a queue gives.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Most lanes that one claim promotes from scheduled to ready. When more than this fall due
/// between two claims, the rest is promoted by the next claims, earliest due first.
pub const PROMOTE_LANES_MAX: usize = 10_000;
/// Tokens run from 1 to this, so that they survive JSON.
pub const TOKEN_MAX: i64 = (1 << 53) - 1;

/// Most troubles that a node tells of itself at once.
pub const TROUBLES_MAX: usize = 32;
/// Longest text of one trouble, in bytes; longer ones are cut.
pub const TROUBLE_TEXT_BYTES_MAX: usize = 512;

/// An error text as it is kept: of one that is longer than [`ERROR_BYTES_MAX`] the beginning and
/// the last words, with a marker between them that says how many bytes were left out.
pub fn cut_error(text: &str) -> Cow<'_, str> {
    cut_middle(text, ERROR_BYTES_MAX)
}
