//! Every limit, with its name and unit. Nothing in the crate exceeds them.

use std::borrow::Cow;
use std::time::Duration;

use crate::model::text::cut_middle;

/// Longest queue name, in bytes.
pub const QUEUE_NAME_BYTES_MAX: usize = 128;
/// Most queues in one store (a job id has 14 bits for the queue's number).
pub const QUEUES_MAX: u32 = 10_000;
/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest task, node, group, batch, producer, partition or idempotency name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Most pairs of node and consumer group that jobs of a store (on Redis, of a shard of a queue) were ever bound to.
pub const ROUTES_MAX: usize = 1_000_000;
/// Largest payload of one job, in bytes as stored (after any codec).
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting of arrays and objects in a payload of JSON. Some JSON parsers stop at a depth of 100 (Ruby) or 128
/// (Rust), and an answer puts up to five levels around a payload.
pub const PAYLOAD_DEPTH_MAX: usize = 90;
/// Most jobs in one push.
pub const PUSH_JOBS_MAX: usize = 10_000;
/// Most batches of a store that have not ended.
pub const BATCHES_OPEN_MAX: u64 = 10_000;
/// How long the counts of a batch are kept after its end: until then its id cannot be used again.
pub const BATCH_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Most payload bytes in one push.
pub const PUSH_BYTES_MAX: usize = 64 << 20;
/// Most lanes in one claim.
pub const CLAIM_LANES_MAX: usize = 10_000;
/// Most lanes in one call of a handler.
pub const BATCH_SIZE_MAX: u32 = 10_000;
/// Most jobs in one turn.
pub const TURN_JOBS_MAX: usize = 10_000;
/// Most payload bytes in one turn; a single job may be larger.
pub const TURN_BYTES_MAX: usize = 16 << 20;
/// Most jobs that one turn hands over one after the other.
pub const SERIES_JOBS_MAX: u32 = 32;
/// Most payload bytes of such a turn; a single job may be larger.
pub const SERIES_BYTES_MAX: usize = 256 << 10;
/// Bytes that each job adds to a claim's size, besides its payload.
pub const CLAIM_JOB_BYTES: usize = 512;
/// Most turns in one settle.
pub const SETTLE_TURNS_MAX: usize = 10_000;
/// Longest name of a note, in bytes.
pub const NOTE_NAME_BYTES_MAX: usize = 200;
/// Longest value of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 16 << 10;
/// Most bytes of note values that one call writes: databases limit their statements.
pub const NOTES_BYTES_MAX: usize = 4 << 20;
/// Most notes that one call writes, reads or deletes.
pub const NOTES_MAX: usize = 1_000;
/// Most periodic workers of a node: each heartbeat reports all of them.
pub const PERIODIC_MAX: usize = 100;
/// Most rows of the inbox that one step pushes.
pub const INBOX_ROWS_MAX: usize = 1_000;
/// Payload bytes at which such a step ends early; the row that reaches the limit is left for the next one.
pub const INBOX_BYTES_MAX: usize = 16 << 20;
/// Most refused rows that an inbox keeps; the oldest are deleted.
pub const INBOX_REFUSED_MAX: usize = 10_000;
/// Most rows in one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Payload bytes at which a page of jobs ends early; the job that reaches the limit is included.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Payload bytes after which a listing with filters stops reading, if it has a `scan_max`.
pub const SCAN_BYTES_MAX: usize = 64 << 20;
/// Longest text that a listing of jobs searches for, in bytes.
pub const SOUGHT_BYTES_MAX: usize = 1 << 10;
/// Most rows that one call of a bulk action (requeue, delete, sweep) changes; its answer says whether more are left.
pub const ACTION_ROWS_MAX: usize = 10_000;
/// Longest error text kept with a lane or a job, in bytes; longer texts lose their middle.
pub const ERROR_BYTES_MAX: usize = 4 << 10;
/// Longest result of a turn, in bytes of JSON. All jobs of a turn together keep at most [`TURN_BYTES_MAX`] of it.
pub const RESULT_BYTES_MAX: usize = 64 << 10;
/// Shortest pause between two looks at a job that a client waits for.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two looks at a job that a client waits for.
pub const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A queue that keeps finished jobs for less refuses waits: the end of a job could be missed between two looks.
pub const WAITED_RETENTION_MIN: Duration = Duration::from_secs(5);
/// Largest progress document of a turn, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 64 << 10;
/// Most bytes of JSON in the results of all steps of a turn together.
pub const STEPS_BYTES_MAX: usize = 64 << 10;
/// Longest progress and step results together, in bytes: a store keeps them in one text.
pub const REPORT_BYTES_MAX: usize = PROGRESS_BYTES_MAX + STEPS_BYTES_MAX + 64;
/// The least urgent priority; priorities run from 0 (soonest) to this.
pub const PRIORITY_MAX: u16 = 32_767;
/// The default priority.
pub const PRIORITY_DEFAULT: u16 = 100;
/// Longest delay of a job and longest retention: ten years.
pub const DELAY_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The longest lease of a claim or a job, unless its queue sets `lease_max`.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// The longest time that a leader has left when another node asks to lead, unless that one asks for longer: what is
/// further ahead is from before the store's clock was set back.
pub const LEAD_MAX: Duration = Duration::from_secs(120);

/// Most attempts of a job, and most retries of a queue.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Most crashes after which a queue buries a job.
pub const CRASHES_MAX: u32 = 1_000;
/// The largest weight of a queue.
pub const WEIGHT_MAX: u32 = 1_000;
/// Most groups of a queue that have settings of their own.
pub const GROUPS_NAMED_MAX: usize = 1_000;
/// The largest limit of turns at once, and the largest burst.
pub const RUNNING_LIMIT_MAX: u32 = 1_000_000;
/// Most shards of a queue.
pub const SHARDS_MAX: u16 = 4_096;
/// Most lanes that one claim promotes from scheduled to ready. If more become due between two claims, the next claims
/// promote the rest, earliest due first.
pub const PROMOTE_LANES_MAX: usize = 10_000;
/// Most jobs of `exclusive` keys that one call moves from scheduled to due. If more are due, the next claims move the rest,
/// earliest due first: until then a more urgent one of them waits with the others.
pub const PROMOTE_JOBS_MAX: usize = 1_000;
/// The highest token; tokens run from 1 to this, which JSON numbers represent exactly.
pub const TOKEN_MAX: i64 = (1 << 53) - 1;

/// Most troubles that a node reports in one heartbeat.
pub const TROUBLES_MAX: usize = 32;
/// Longest text of one trouble, in bytes; longer texts are cut.
pub const TROUBLE_TEXT_BYTES_MAX: usize = 512;

/// Shortens an error text for storage: a text longer than [`ERROR_BYTES_MAX`] keeps its beginning and end, with a
/// marker between them that gives the number of omitted bytes.
pub fn cut_error(text: &str) -> Cow<'_, str> {
    cut_middle(text, ERROR_BYTES_MAX)
}
