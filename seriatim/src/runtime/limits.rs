//! The engine's limits and times that nobody configures.

use std::time::Duration;

/// Most lanes of one queue that wait claimed for a free slot.
pub(super) const PREFETCH_LANES_MAX: usize = 1_000;
/// Most lanes that a node holds: waiting, running, and not yet settled. Claiming stops there, so
/// that an outage of the store cannot pile up unsettled turns.
pub(super) const HELD_LANES_MAX: usize = 4_000;
/// What the store refuses for a reason that will not pass is tried again after so long.
pub(super) const PUT_ASIDE_FOR: Duration = Duration::from_secs(30);
/// Most turns that are put aside and do not count as held. More of them stop the claims as others do: then
/// the store refuses everything.
pub(super) const PUT_ASIDE_MAX: usize = 1_000;
/// A prefetch that was used up faster than this grows…
pub(super) const PREFETCH_GROWS_BELOW: Duration = Duration::from_millis(50);
/// …by this factor…
pub(super) const PREFETCH_GROWTH: usize = 4;
/// …and one that lasted longer than this is halved.
pub(super) const PREFETCH_SHRINKS_ABOVE: Duration = Duration::from_millis(200);
/// Lanes that have waited so long for a slot go back, so that other nodes can take them.
pub(super) const PREFETCH_AGE_MAX: Duration = Duration::from_secs(2);
/// While all slots are always taken, one is kept free so often for a lane with a crash behind it.
pub(super) const CRASHED_CHANCE_EVERY: Duration = Duration::from_secs(1);
/// Calls that a slot runs before it lets other tasks of its thread run.
pub(super) const CALLS_BEFORE_YIELD: u32 = 64;
/// How long a handler that was told to end may take before it is dropped.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The first wait after a store error; it doubles.
pub(super) const OUTAGE_WAIT_MIN: Duration = Duration::from_millis(50);
/// The longest wait after a store error.
pub(super) const OUTAGE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a worker that cannot start its handler takes no work.
pub(super) const UNSTARTABLE_PAUSE: Duration = Duration::from_secs(30);
/// How often progress goes out, when there is some and no heartbeat is near.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// A node tells at most so often that it has got more or less to do, when no heartbeat is near.
pub(super) const LOAD_EVERY: Duration = Duration::from_secs(1);
/// How often outlived rows are swept.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Most rows of a kind in one sweep: short, so that it delays nobody's claim.
pub(super) const SWEEP_ROWS_MAX: usize = 1_000;
/// How often the queues' definitions are read again.
pub(super) const DEFINITIONS_EVERY: Duration = Duration::from_secs(15);
/// How often a queue is declared again that could not be: a push made it, and its jobs stand in the way.
pub(super) const DECLARE_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two such attempts, also where claims find queues missing again and again.
pub(super) const DECLARE_REST: Duration = Duration::from_millis(100);
/// How often that is logged.
pub(super) const DECLARE_TOLD_EVERY: Duration = Duration::from_secs(300);
/// Most lanes in one rescue.
pub(super) const RESCUE_LANES_MAX: usize = 500;
/// The engine never sleeps for less than this between two looks at an idle store.
pub(super) const REST_MIN: Duration = Duration::from_millis(1);
/// How long a stopping engine tries to say that it has gone.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine waits for the thread of the heartbeats.
pub(super) const BEATS_END_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine tries to get its last settlements through.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How far back a cron entry looks for ticks that nobody was there for, at most.
#[cfg(feature = "cron")]
pub(super) const CRON_LOOK_BACK_MAX: Duration = Duration::from_secs(86_400);
/// By how much sooner a late tick is given up than the store may forget that it was pushed: a push
/// may be under way for so long, and clocks may differ by it.
#[cfg(feature = "cron")]
pub(super) const CRON_LATE_MARGIN: Duration = Duration::from_secs(120);
/// The shortest `idempotency_ttl` of a queue that cron entries push to.
#[cfg(feature = "cron")]
pub(super) const CRON_REMEMBERED_MIN: Duration = Duration::from_secs(300);
/// Most log lines of one kind of failure within [`LOG_WINDOW`]; the rest is counted, so that a
/// storm of failures neither floods the log nor hides what was given up.
pub(super) const LOG_LINES_MAX: u32 = 20;
/// The time in which so many lines may be written.
pub(super) const LOG_WINDOW: Duration = Duration::from_secs(10);
/// Bytes of an error in a log line, before it is made one line; the store keeps more.
pub(super) const LOG_ERROR_BYTES_MAX: usize = 400;
