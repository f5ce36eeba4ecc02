//! Whether something can be taken back without taking back what others did, or what happened, since.

use seriatim::store::{JobOptions, JobView, LaneState, LaneView, Store, retries_max};
use seriatim::{Exhaustion, Queue};

use super::deeds::{self, Deed, Wanted};
use super::error::Result;
use super::lanes::{self, OneLane};
use super::{find, lane_jobs, operations};
use crate::base::time::read;

/// Deeds that are looked at: many may be of other kinds, or were refused.
const DEEDS_READ: usize = 50;

/// What was changed, as the audit log names it.
pub(crate) struct Object<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) queue: Option<&'a str>,
    /// Of a bridge.
    pub(crate) source: Option<&'a str>,
}

/// The last of these actions on it in the audit log.
pub(crate) async fn last(
    store: &dyn Store,
    object: &Object<'_>,
    actions: &[&str],
) -> seriatim::Result<Option<Deed>> {
    let noun = actions.first().and_then(|action| action.split_once(' ')).map(|(noun, _)| noun);
    let wanted = Wanted { of: object.name, queue: object.queue, action: noun, ..Wanted::default() };
    let mut done = deeds::latest(store, wanted, DEEDS_READ).await?.entries;
    done.retain(|deed| {
        let is_of =
            object.source.is_none_or(|source| deed.on.get("source").is_none_or(|of| of == source));
        is_of && !deed.is_refused() && actions.contains(&&*deed.action)
    });
    Ok(done.into_iter().next())
}

/// Whether an operation has paused the key after this deed.
pub(crate) async fn is_paused_since(
    store: &dyn Store,
    queue: &str,
    key: &str,
    deed: &Deed,
) -> seriatim::Result<bool> {
    let paused = operations::list(store).await?;
    // Both by the store's clock: machines may differ.
    let is_later = |at: &str| read(at).is_ok_and(|at| at > deed.noted_at);
    Ok(paused.iter().any(|one| is_later(&one.created_at) && one.has_paused(queue, key)))
}

/// Whether the lane is held, also under a pause: stores show the pause then, and a resume would end both.
pub(crate) async fn is_held(store: &dyn Store, queue: &str, lane: &OneLane) -> Result<bool> {
    let Some(view) = lanes::known(store, queue, lane).await? else { return Ok(false) };
    match view.state {
        LaneState::Held => return Ok(true),
        LaneState::Waiting | LaneState::Claimed => return Ok(false),
        LaneState::Paused => {}
    }
    let queue = find::queue(store, queue).await?.queue;
    let Some(key) = view.key.as_deref() else {
        let options = view.only.as_ref().and_then(|job| job.options.as_deref());
        return Ok(has_used_up(&view, (0, options), &queue));
    };
    let jobs = lane_jobs::of(store, &queue.name, key, false, None, 1, Some(0)).await?;
    Ok(has_used_up(&view, attempt_and_options(jobs.waiting.first()), &queue))
}

/// Of the job that the next turn begins with, if it is known.
pub(crate) fn attempt_and_options(head: Option<&JobView>) -> (u32, Option<&JobOptions>) {
    head.map_or((0, None), |job| (job.attempt, job.options.as_deref()))
}

/// Whether the retries of a lane that begins with a job of this attempt are used up, so that its queue holds it.
pub(crate) fn has_used_up(
    lane: &LaneView,
    (attempt, options): (u32, Option<&JobOptions>),
    queue: &Queue,
) -> bool {
    let most = i32::try_from(retries_max(options, queue)).unwrap_or(i32::MAX);
    let is_last = options.and_then(|of| of.max_attempts).is_some_and(|most| attempt >= most);
    let has_failed = lane.retry_count >= 0;
    queue.exhausted == Exhaustion::Hold && (lane.retry_count >= most || is_last && has_failed)
}
