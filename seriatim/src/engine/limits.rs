//! Fixed limits and times of the engine, and the defaults of `prefetch_max` and `cancel_grace`.

use std::time::Duration;

/// Most lanes of one queue that are claimed and wait for a free slot.
pub(in crate::engine) const PREFETCH_LANES_MAX: usize = 1_000;
/// Most lanes that a node holds, unless its slots can run more at once: waiting, running and not yet settled. At this
/// number it stops claiming, so that unsettled turns cannot pile up during an outage of the store.
pub(in crate::engine) const HELD_LANES_MAX: usize = 4_000;
/// Most settles on their way to a store that answers concurrent calls sooner
/// ([`Capabilities::claim_split`](crate::store::Capabilities::claim_split)).
pub(in crate::engine) const SETTLERS: usize = 2;
/// Most claims on their way to such a store.
pub(in crate::engine) const CLAIMS_IN_FLIGHT: usize = 2;
/// How long a lane may go on from turn to turn, from its claim on, if other lanes of its queue are ready. Then it gets
/// in line behind the lanes of its priority.
pub(in crate::engine) const GO_ON_FOR: Duration = Duration::from_millis(100);
/// The same if no other lane is ready. Then other nodes can claim it.
pub(in crate::engine) const GO_ON_ALONE_FOR: Duration = Duration::from_secs(1);
/// Jobs of a key that are likely to take this long together are claimed at once and handed over one after the other.
pub(in crate::engine) const SERIES_FOR: Duration = Duration::from_millis(5);
/// Most jobs that such a claim asks for.
pub(in crate::engine) const SERIES_CLAIM_JOBS: u64 = 2_000;
/// After this time, no further job of such a turn starts: the rest goes back.
pub(in crate::engine) const SERIES_FOR_MAX: Duration = Duration::from_millis(20);
/// How long calls are assumed to last before any has ended.
pub(in crate::engine) const PACE_AT_FIRST: Duration = Duration::from_secs(1);
/// The time after which a request is repeated that the store refused for a lasting reason.
pub(in crate::engine) const PUT_ASIDE_FOR: Duration = Duration::from_secs(30);
/// Lanes whose earlier reports one heartbeat reads; the rest waits for the next.
pub(in crate::engine) const RECALLED_AT_ONCE: usize = 64;
/// Queues whose held lanes are compared with the store's at once.
pub(in crate::engine) const COMPARED_AT_ONCE: usize = 8;
/// The time after which a turn is settled again whose lane another transaction had locked.
pub(in crate::engine) const BUSY_AGAIN: Duration = Duration::from_millis(500);
/// Most turns that are put aside without counting as held. More of them count and stop the claims, because then the
/// store refuses everything.
pub(in crate::engine) const PUT_ASIDE_MAX: usize = 1_000;
/// A prefetch that was used up faster than this grows…
pub(in crate::engine) const PREFETCH_GROWS_BELOW: Duration = Duration::from_millis(50);
/// …by this factor…
pub(in crate::engine) const PREFETCH_GROWTH: usize = 4;
/// …and one that lasted longer than this is halved.
pub(in crate::engine) const PREFETCH_SHRINKS_ABOVE: Duration = Duration::from_millis(200);
/// Lanes that have waited this long for a slot are returned, so that other nodes can claim them.
pub(in crate::engine) const PREFETCH_AGE_MAX: Duration = Duration::from_secs(2);
/// While all slots are busy, how often one is kept free for a lane with earlier crashes.
pub(in crate::engine) const CRASHED_CHANCE_EVERY: Duration = Duration::from_secs(1);
/// A lane with this many crashes is a suspect: it may have ended its process, so a node holds one at a time. Where
/// `max_crashes` is smaller, a lane is a suspect when its next crash would bury it.
pub(in crate::engine) const SUSPECT_CRASHES: u32 = 2;
/// After this time with one suspect, lanes with fewer crashes are claimed beside it; and how often they are from then
/// on.
pub(in crate::engine) const BESIDE_SUSPECT_EVERY: Duration = Duration::from_secs(10);
/// How long the fetcher waits at most for lanes that are due but that it may not claim yet: lanes with earlier crashes.
pub(in crate::engine) const NOT_YET: Duration = Duration::from_millis(100);
/// How long a busy node leaves lanes of a queue to the nodes that prefer it, before it claims from the queue itself.
pub(in crate::engine) const LEFT_MAX: Duration = Duration::from_secs(10);
/// Calls that a slot runs before it yields its thread to other tasks.
pub(in crate::engine) const CALLS_BEFORE_YIELD: u32 = 64;
/// How long a handler may take after it was asked to stop; then it is dropped.
pub(in crate::engine) const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The first wait after a store error; each further one is twice as long.
pub(in crate::engine) const OUTAGE_WAIT_MIN: Duration = Duration::from_millis(50);
/// The longest wait after a store error.
pub(in crate::engine) const OUTAGE_WAIT_MAX: Duration = Duration::from_secs(5);
/// An outage that begins sooner after the last one is not logged.
pub(in crate::engine) const OUTAGE_LOG_EVERY: Duration = Duration::from_secs(5);
/// How long a node takes no jobs of a queue whose worker cannot start.
pub(in crate::engine) const UNSTARTABLE_PAUSE: Duration = Duration::from_secs(30);
/// No lease of a queue makes a node send heartbeats more often than this.
pub(in crate::engine) const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
/// No lease makes a node give up a heartbeat sooner than this: it may have to open a connection.
pub(in crate::engine) const BEAT_TIME_MIN: Duration = Duration::from_secs(1);
/// Each heartbeat in a row that was given up doubles that time, up to so many.
pub(in crate::engine) const BEATS_MISSED_MAX: u32 = 8;
/// How often progress is sent, if there is some and no heartbeat is due.
pub(in crate::engine) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two heartbeats that are sent only because the node's load changed.
pub(in crate::engine) const LOAD_EVERY: Duration = Duration::from_secs(1);
/// For how long a node leads the draining of the inbox. If it dies, another one follows after this time.
pub(in crate::engine) const INBOX_LEAD: Duration = Duration::from_secs(6);
/// How long a node does not look at the inbox while another one drains it.
pub(in crate::engine) const INBOX_AWAY: Duration = Duration::from_secs(2);
/// Time to the next look after rows were found. It doubles up to `poll_interval`, or to [`CERTAIN_WAIT`].
pub(in crate::engine) const INBOX_LOOK_MIN: Duration = Duration::from_millis(20);
/// Most rows of the step after one in which the store refused a row; it doubles again.
pub(in crate::engine) const INBOX_ROWS_AFTER_REFUSAL: usize = 16;
/// How often expired rows are swept.
pub(in crate::engine) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The pause between two steps of a sweep.
pub(in crate::engine) const SWEEP_REST: Duration = Duration::from_millis(20);
/// Most rows of a kind in one sweep; small, so that a sweep does not delay claims.
pub(in crate::engine) const SWEEP_ROWS_MAX: usize = 1_000;
/// How often the queues' definitions are read again.
pub(in crate::engine) const DEFINITIONS_EVERY: Duration = Duration::from_secs(15);
/// How often to declare again a queue that could not be declared because jobs of a queue created by a push are in the
/// way.
pub(in crate::engine) const DECLARE_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two such attempts, even if claims repeatedly find queues missing.
pub(in crate::engine) const DECLARE_REST: Duration = Duration::from_millis(100);
/// How often that is logged.
pub(in crate::engine) const DECLARE_LOG_EVERY: Duration = Duration::from_secs(300);
/// How long after the end of a silent node's lease its lanes are rescued, at least: the store's clock is known only
/// roughly.
pub(in crate::engine) const RESCUE_AFTER: Duration = Duration::from_millis(200);
/// Most lanes in one rescue.
pub(in crate::engine) const RESCUE_LANES_MAX: usize = 500;
/// How long an idle engine waits for a wake-up of a store that [loses none](crate::store::Wakeups::certain), unless
/// `poll_interval` is longer.
pub(in crate::engine) const CERTAIN_WAIT: Duration = Duration::from_secs(60);
/// If the store's clock differs by more from what was expected, it was set, or this machine was suspended.
pub(in crate::engine) const CLOCK_LEAP_MIN: Duration = Duration::from_millis(100);
/// If it is ahead by as much, it has jumped: live nodes may seem to be dead.
pub(in crate::engine) const CLOCK_JUMP_MIN: Duration = Duration::from_secs(5);
/// The shortest sleep of an engine between two checks of an idle store.
pub(in crate::engine) const REST_MIN: Duration = Duration::from_millis(1);
/// How long a stopping engine tries to deregister.
pub(in crate::engine) const DEREGISTER_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine waits for the heartbeat thread.
pub(in crate::engine) const BEATS_END_MAX: Duration = Duration::from_secs(1);
/// How long a stopping engine tries to send its last settlements, and to return lanes claimed by calls without an
/// answer.
pub(in crate::engine) const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How far back a cron entry looks for missed ticks, at most.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_LOOK_BACK_MAX: Duration = Duration::from_secs(86_400);
/// The margin between giving up a late tick and the time at which the store may forget that it was pushed: a push may
/// take this long, and clocks may differ by it.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_LATE_MARGIN: Duration = Duration::from_secs(120);
/// The shortest `idempotency_ttl` of a queue that cron entries push to.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_REMEMBERED_MIN: Duration = Duration::from_secs(300);
/// How often a node notes again which cron entries it has, and forgets those of nodes that are gone.
#[cfg(feature = "cron")]
pub(in crate::engine) const CRON_NOTE_EVERY: Duration = Duration::from_secs(3_600);
/// Most log lines of one kind of failure within [`LOG_WINDOW`]. The rest is counted, so that many failures neither
/// flood the log nor hide the jobs that were given up.
pub(in crate::engine) const LOG_LINES_MAX: u32 = 20;
/// The window for [`LOG_LINES_MAX`].
pub(in crate::engine) const LOG_WINDOW: Duration = Duration::from_secs(10);
/// Bytes of an error in a log line, before escaping; the store keeps more.
pub(in crate::engine) const LOG_ERROR_BYTES_MAX: usize = 400;
