//! The engine's limits and times that nobody configures.

use std::time::Duration;

/// Most lanes of one queue that wait claimed for a free slot.
pub(in crate::engine) const PREFETCH_LANES_MAX: usize = 1_000;
/// Most lanes that a node holds: waiting, running, and not yet settled. Claiming stops there, so
/// that an outage of the store cannot pile up unsettled turns.
pub(in crate::engine) const HELD_LANES_MAX: usize = 4_000;
/// What the store refuses for a reason that will not pass is tried again after so long.
pub(in crate::engine) const PUT_ASIDE_FOR: Duration = Duration::from_secs(30);
/// Most turns that are put aside and do not count as held. More of them stop the claims as others do: then
/// the store refuses everything.
pub(in crate::engine) const PUT_ASIDE_MAX: usize = 1_000;
/// A prefetch that was used up faster than this grows…
pub(in crate::engine) const PREFETCH_GROWS_BELOW: Duration = Duration::from_millis(50);
/// …by this factor…
pub(in crate::engine) const PREFETCH_GROWTH: usize = 4;
/// …and one that lasted longer than this is halved.
pub(in crate::engine) const PREFETCH_SHRINKS_ABOVE: Duration = Duration::from_millis(200);
/// Lanes that have waited so long for a slot go back, so that other nodes can take them.
pub(in crate::engine) const PREFETCH_AGE_MAX: Duration = Duration::from_secs(2);
/// While all slots are always taken, one is kept free so often for a lane with a crash behind it.
pub(in crate::engine) const CRASHED_CHANCE_EVERY: Duration = Duration::from_secs(1);
/// Calls that a slot runs before it lets other tasks of its thread run.
pub(in crate::engine) const CALLS_BEFORE_YIELD: u32 = 64;
/// How long a handler that was told to end may take before it is dropped.
pub(in crate::engine) const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The first wait after a store error; it doubles.
pub(in crate::engine) const OUTAGE_WAIT_MIN: Duration = Duration::from_millis(50);
/// The longest wait after a store error.
pub(in crate::engine) const OUTAGE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a worker that cannot start its handler takes no work.
pub(in crate::engine) const UNSTARTABLE_PAUSE: Duration = Duration::from_secs(30);
/// How often progress goes out, when there is some and no heartbeat is near.
pub(in crate::engine) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// A node tells at most so often that it has got more or less to do, when no heartbeat is near.
pub(in crate::engine) const LOAD_EVERY: Duration = Duration::from_secs(1);
/// How often outlived rows are swept.
pub(in crate::engine) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Most rows of a kind in one sweep: short, so that it delays nobody's claim.
pub(in crate::engine) const SWEEP_ROWS_MAX: usize = 1_000;
/// How often the queues' definitions are read again.
pub(in crate::engine) const DEFINITIONS_EVERY: Duration = Duration::from_secs(15);
/// How often a queue is declared again that could not be: a push made it, and its jobs stand in the way.
pub(in crate::engine) const DECLARE_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two such attempts, also where claims find queues missing again and again.
pub(in crate::engine) const DECLARE_REST: Duration = Duration::from_millis(100);
/// How often that is logged.
pub(in crate::engine) const DECLARE_TOLD_EVERY: Duration = Duration::from_secs(300);
/// Most lanes in one rescue.
pub(in crate::engine) const RESCUE_LANES_MAX: usize = 500;
/// The engine never sleeps for less than this between two looks at an idle store.
pub(in crate::engine) const REST_MIN: Duration = Duration::from_millis(1);
/// How long a stopping engine tries to say that it has gone.
pub(in crate::engine) const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine waits for the thread of the heartbeats.
pub(in crate::engine) const BEATS_END_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine tries to get its last settlements through.
pub(in crate::engine) const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How far back a cron entry looks for ticks that nobody was there for, at most.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_LOOK_BACK_MAX: Duration = Duration::from_secs(86_400);
/// By how much sooner a late tick is given up than the store may forget that it was pushed: a push
/// may be under way for so long, and clocks may differ by it.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_LATE_MARGIN: Duration = Duration::from_secs(120);
/// The shortest `idempotency_ttl` of a queue that cron entries push to.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_REMEMBERED_MIN: Duration = Duration::from_secs(300);
/// Most log lines of one kind of failure within [`LOG_WINDOW`]; the rest is counted, so that a
/// storm of failures neither floods the log nor hides what was given up.
pub(in crate::engine) const LOG_LINES_MAX: u32 = 20;
/// The time in which so many lines may be written.
pub(in crate::engine) const LOG_WINDOW: Duration = Duration::from_secs(10);
/// Bytes of an error in a log line, before it is made one line; the store keeps more.
pub(in crate::engine) const LOG_ERROR_BYTES_MAX: usize = 400;
