//! The contract between the engine and whatever keeps its state.
//!
//! Every method works on a batch, is atomic (all of it happens or none of it), and takes an
//! explicit `now`; `None` means the store's own clock. What each method does is written on it as
//! a list, and each line of these lists is a case of the conformance suite.

pub(crate) mod actions;
pub(crate) mod capabilities;
pub(crate) mod consumer;
pub(crate) mod definition;
pub(crate) mod deletion;
pub(crate) mod errors;
pub(crate) mod fleet;
pub(crate) mod origin;
pub(crate) mod producer;
pub(crate) mod queues;
pub(crate) mod release;
pub(crate) mod transaction;
pub(crate) mod trouble;
pub(crate) mod views;
pub(crate) mod wake;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

pub use actions::*;
pub use capabilities::*;
pub use consumer::*;
pub use definition::{Declaration, Undeclared, declare_each};
pub use deletion::{Deleted, delete_queue};
pub use fleet::*;
pub use origin::Origin;
pub use producer::*;
pub use queues::*;
pub use release::release_claims;
pub use transaction::Transaction;
pub use trouble::{Trouble, TroubleKind};
pub use views::*;
pub use wake::{Bell, Wakeups};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::turn::Turn;

/// A store that is being opened.
pub type Opening = std::pin::Pin<Box<dyn Future<Output = Result<SharedStore>> + Send>>;

/// A store, shared by all that use it.
pub type SharedStore = Arc<dyn Store>;

/// Where all state lives. One implementation for each database; the runtime knows this trait only.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What this store can and cannot do.
    fn capabilities(&self) -> Capabilities;

    /// The store's clock, which decides what is due and which lease has run out.
    async fn now(&self) -> Result<Timestamp>;

    /// Creates or upgrades what the store keeps.
    ///
    /// - Doing it again changes nothing, also when several nodes do it at once.
    /// - A store written by a newer version is refused, naming both versions.
    async fn migrate(&self) -> Result<()>;

    /// Whether [`Self::migrate`] would change nothing. Writes nothing.
    ///
    /// - Where no store was ever set up it is `NotFound`; one of another version is `Conflict`.
    async fn check(&self) -> Result<()>;

    /// The secret of this store, the same for all who use it: a server knows by it the claims that any
    /// server of the store handed out. `offered` is random.
    ///
    /// - The first call keeps what it offers; every later one answers that, whatever it offers.
    /// - Of several first calls at once one wins, and all answer the same.
    /// - No listing shows it. A store that was emptied keeps the next offer.
    async fn secret(&self, offered: Secret) -> Result<Secret>;

    /// Declares queues, so that all nodes and producers agree on them.
    ///
    /// - A new queue is created; an existing one with the same mode and merge gets the new settings.
    /// - Another mode or merge is taken only when the queue has no lanes; or when the queue was
    ///   created by an undeclared push and none of its lanes is claimed, in which case its jobs are
    ///   pushed again under the new mode, in order of arrival (a `parallel` one with jobs, or one
    ///   that would become `parallel`, cannot be). Else `Conflict`, naming both: see [`Declaration`].
    async fn declare(&self, request: Declare) -> Result<()>;

    /// Adds jobs. The answer has one entry for each, in order.
    ///
    /// - When one job is invalid nothing is pushed, and the error names it: `jobs[3].key: …`.
    /// - An undeclared queue is created: `exclusive` for a job with a key, `parallel` for one without.
    /// - A key on a `parallel` queue, or none on a keyed one, is `Invalid` (field `key`).
    /// - A `lease_ttl` longer than the queue's `lease_max` is `Invalid` (field `lease_ttl`).
    /// - A repeated (queue, key, idempotency key) answers `Duplicate` with the first job's id.
    /// - In `accumulate`, a payload equal to one that waits merges into it: `Merged` with its id.
    ///   The score becomes the merge's, the priority the sooner; the rest stays the waiting job's.
    /// - A payload equal to one in flight is a new job: it waits for the next turn.
    /// - A lane that did not exist is opened. In `accumulate` and `fifo` its node and group are those
    ///   of its first job, and a push that contradicts them is `Conflict`.
    async fn push(&self, request: Push) -> Result<Vec<Pushed>>;

    /// Takes lanes of one queue for execution, and closes some of their waiting jobs under a new token.
    ///
    /// - A lane that is claimed, held, paused, not due, or empty is never taken; nor is any lane of
    ///   a paused queue.
    /// - Lanes are taken by (priority, due, age), at most `lanes_max`, of which at most
    ///   `crashed_max` have a crash behind them.
    /// - A lane routed to another node or group is not taken.
    /// - What a turn takes is the mode's (see [`crate::Mode::takes`]): jobs come in the order of
    ///   handing over, at most 10,000 or 16 MiB, and stop at the first job of another task.
    /// - Each token is higher than any earlier one of its lane and its key.
    /// - With `declared`, a queue that only a push made is `NotFound`, as one that does not exist.
    /// - A lease longer than the queue's `lease_max` is `Invalid` (field `lease`). A job's own `lease_ttl` makes
    ///   a lease longer, up to `lease_max`.
    /// - A claim by a node that never beat, or was declared dead, is `NodeGone`; one that was
    ///   [given up](Self::give_up) is `Conflict`.
    /// - `next_due` says when a claim of this queue may next find something: nothing but a
    ///   wake-up can make it sooner.
    async fn claim(&self, request: Claim) -> Result<Claimed>;

    /// Ends turns. The answer has one entry for each, in order.
    ///
    /// - A settlement whose token is not the lane's current one changes nothing and answers `Stale`.
    ///   So does a repeat of one that was carried out.
    /// - Exactly the jobs that the claim closed are touched.
    /// - A job flagged for cancellation ends cancelled unless its fate is `Done`.
    /// - Kept jobs go back with `keep`'s state: the lane's in `accumulate` (`due` wins over what
    ///   arrived meanwhile), else that of the job it names. With `counted`, the attempt stands.
    /// - In `accumulate`, a kept job that equals one which arrived meanwhile is handed over once, under
    ///   the older id; both ids stay known and share the outcome.
    /// - When nothing is kept, the lane's retry count and crashes start afresh, and it is due as
    ///   what arrived meanwhile is; an empty lane is gone.
    /// - Buried jobs are in the morgue; finished ones are kept as long as the queue says.
    async fn settle(&self, request: Settle) -> Result<Vec<Settled>>;

    /// Says that a node lives, extends what it holds, and brings back what it must know.
    ///
    /// - The first beat registers the node. A node once declared dead stays dead: `alive` is false.
    /// - A beat with a lease of nothing is a goodbye: the node has stopped. It is as if declared
    ///   dead, but shown as stopped; what it still holds stands until its leases run out.
    /// - All claims with a node lease are extended; those with their own lease only when named, and by no more
    ///   than the queue's `lease_max`.
    /// - Progress is kept with the turn. A named lane whose token is stale comes back as `lost`.
    /// - Jobs flagged for cancellation come back for every claim of this node, and for every named one.
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse>;

    /// Takes over claims whose lease has run out, under new tokens with the caller's lease.
    ///
    /// - First declares dead the nodes whose last beat is older than their lease; then takes the
    ///   expired claims. The old holder's writes are refused from then on.
    /// - The turns hold the same jobs (without payload); crash counts are unchanged: the caller
    ///   settles them with [`crate::Outcome::Crash`], which counts.
    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>>;

    /// Takes claims away from their holders: to release a claim is to let it expire now. Answers the turns, as
    /// [`Self::rescue`] does; [`release_claims`] also settles them.
    ///
    /// - From then on the old holder's writes are refused, and a heartbeat that names the lane tells it `lost`.
    /// - Each lane gets a new token that no node holds and whose lease has run out. The caller settles it with
    ///   [`crate::Outcome::Crash`]; if it does not, the next rescue takes it over. Crash counts are unchanged
    ///   until then.
    /// - Lanes that are not claimed are left alone, and so are claims that were made after `made_by`.
    /// - A queue that does not exist is `NotFound`.
    async fn release(&self, request: Release) -> Result<Vec<Turn>>;

    /// Gives up the claims and rescues of a node up to a ticket, because their answers were lost.
    ///
    /// - What of them took effect before this answers can be read from then on; none takes effect
    ///   later. So whoever then asks what the node holds is told all of it.
    /// - One that arrives later takes nothing and is `Conflict`. Higher tickets, and those of other
    ///   nodes, are left alone.
    /// - Doing it again, or up to a lower ticket, changes nothing.
    async fn give_up(&self, request: GiveUp) -> Result<()>;

    /// Removes what has outlived its time, at most `rows_max` of each kind; `more` says to call again.
    ///
    /// - Waiting jobs past `expires_at` end cancelled with error `expired`.
    /// - Finished and dead jobs past their retention, and dead ones over the cap, are deleted.
    /// - Forgotten: idempotency keys past their time whose job is gone; nodes that died or
    ///   stopped a day ago.
    async fn sweep(&self, request: Sweep) -> Result<Swept>;

    /// Cancels jobs. The answer has one entry for each, in order.
    ///
    /// - A waiting job ends cancelled at once. A running one is flagged; its holder learns it at the
    ///   next heartbeat. Anything else is left as it is.
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>>;

    /// Returns dead jobs to their queue.
    ///
    /// - Id, score and arrival stay; retry count −1, crashes 0, due now.
    /// - In `accumulate`, one equal to a waiting job merges with it: handed over once, under the
    ///   older id; both stay known.
    /// - Onto a claimed lane it counts as an arrival.
    async fn requeue(&self, request: Selected) -> Result<Acted>;

    /// Deletes dead jobs.
    async fn delete_dead(&self, request: Selected) -> Result<Acted>;

    /// Does something to lanes: pause, resume, run now, bury or delete what has failed.
    ///
    /// - A claimed lane keeps its turn: pausing and resuming show after it, the others leave it alone.
    async fn act(&self, request: Act) -> Result<Acted>;

    /// Changes one waiting job: another time, another node, or deletes it.
    async fn amend(&self, request: Amend) -> Result<()>;

    /// Pauses or resumes a queue: while paused none of its lanes is claimed. One that is being deleted is `Conflict`.
    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()>;

    /// Deletes a queue: its jobs, whether they wait, are dead or have finished, what is known of its idempotency
    /// keys, its figures, and at last its definition. Removes about `rows_max` rows of each kind in one call; `more`
    /// says to call again. The count is of jobs. [`delete_queue`] calls until it is done.
    ///
    /// - While a lane of it is claimed it is `Conflict`.
    /// - The first call closes the queue. Until the last call, pushes to it, declarations of it and resuming it are
    ///   `Conflict`, and nothing of it is claimed. So a job whose push was answered is deleted if it came before,
    ///   and otherwise stays.
    /// - A deletion that was broken off leaves the queue closed; the next call goes on with it.
    /// - Afterwards the name is free. No id, lane or token of the old queue fits a queue that gets its name or its
    ///   number.
    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted>;

    /// Splits a queue into another number of shards, while everybody works on.
    ///
    /// - Without it a key's jobs could overlap or lose their order: both hold all the time.
    /// - What waits is not moved. A key goes to its new shard when nothing of it is left in an older
    ///   one; the answer says how many keys still are, so call again with the same number until none is.
    /// - A call that was broken off leaves a queue that works, and can be repeated.
    /// - Every job is found by the id that its push answered, also after it was requeued.
    /// - A store whose queues have one shard refuses it as `Unsupported`.
    async fn reshard(&self, queue: &str, shards: u16) -> Result<Resharded> {
        let _ = (queue, shards);
        let name = self.capabilities().name;
        let message = format!("in the store {name} a queue has one shard, and needs no more");
        Err(Error::new(ErrorKind::Unsupported, message).in_field("shards"))
    }

    /// Tells a node to take no more work, to take some again, or to stop; it learns it at its next
    /// heartbeat.
    ///
    /// - Every later beat brings the command, until `Resume` takes it back: then none does.
    /// - A node that is dead or has stopped is `NotFound`.
    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()>;

    /// Declares a node dead whose process is known to be gone, before its lease has run out. True if
    /// it did.
    ///
    /// - Its claims with a node lease have expired from then on, however long their lease is: the
    ///   next rescue takes them. Those with a lease of their own stand until it runs out.
    /// - A node that has beaten after `heartbeat_at` is left alone: whoever beats is not gone. So is
    ///   one that is dead, has stopped, or is unknown.
    async fn declare_dead(&self, request: DeclareDead) -> Result<bool>;

    /// Makes `node` the leader of `role` for `ttl`, unless another live one is. True if it is now.
    async fn lead(&self, request: Lead) -> Result<bool>;

    /// When each queue next has something to claim, and since when it has been due: one query for all.
    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>>;

    /// All queues, by name.
    async fn queues(&self) -> Result<Vec<QueueView>>;

    /// Numbers of every queue.
    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>>;

    /// Lanes of a queue, a page at a time.
    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>>;

    /// Jobs of a queue in a state, a page at a time. A page ends early when its payloads reach
    /// [`PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX).
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>>;

    /// One job, in whatever state. The id of a job that merged into another shows that one's state.
    async fn job(&self, id: JobId) -> Result<Option<JobView>>;

    /// The turn that a token holds, as its holder got it; `None` when the token is stale.
    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>>;

    /// All nodes that live, or died or stopped within a day.
    async fn nodes(&self) -> Result<Vec<NodeView>>;

    /// Hints that something may have fallen due. Correctness never depends on one.
    fn wakeups(&self) -> Wakeups;

    /// A connection for heartbeats alone, to be opened on the runtime that uses it: then neither a
    /// handler that blocks the engine's runtime nor other calls of the store keep a node from beating.
    /// None: the engine beats on this store, from the runtime that it runs on.
    fn heartbeat_line(&self) -> Option<Opening> {
        None
    }

    /// The store as its own type, where its driver's transactions can be used with it: see
    /// [`Transaction`].
    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        None
    }

    /// Releases what the store holds open; later calls fail as `Unavailable`.
    async fn close(&self) -> Result<()>;
}
