//! Sends dead jobs back: all that are meant of a key at once, so that none of them overtakes an older one.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{JobQuery, JobState, JobView, Store};
use seriatim::{JobId, Timestamp};

use super::dead::on_dead;
use super::intent::Intent;
use super::wish::Wish;
use crate::app::error::Result;

/// As many as a store takes in one call. Those of a key beyond follow with the next look, in the order of their scores.
const SENT_AT_ONCE_MAX: usize = 10_000;
/// Jobs of a key that are read to put them in order. Beyond them those that died later than these may go back later.
const KEY_JOBS_MAX: usize = 100_000;
/// Keys whose jobs are read side by side.
const KEYS_AT_ONCE: usize = 16;

/// What a step sent.
pub(super) struct Sent {
    pub(super) count: u64,
    /// What was found beyond what it might send.
    pub(super) left: Vec<JobView>,
}

/// The jobs of a key that are meant, or one job without a key.
struct Group {
    jobs: Vec<JobId>,
    /// Whether the key has more.
    is_cut: bool,
}

/// Sends what was found, with the other jobs of its keys that are meant, until `most` are sent. The last key goes whole.
pub(super) async fn send(
    store: &dyn Store,
    wish: &Wish,
    before: Timestamp,
    found: Vec<JobView>,
    most: u64,
    intent: &mut Intent,
) -> Result<Sent> {
    let mut keys = BTreeSet::new();
    let mut is_first = |job: &JobView| job.key.as_ref().is_none_or(|key| keys.insert(key.clone()));
    // The others of a key are sent with its first.
    let mut firsts = found.into_iter().filter(|job| is_first(job));
    let (mut sent, mut left) = (0, Vec::new());
    while sent < most {
        let some: Vec<JobView> = firsts.by_ref().take(KEYS_AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        let groups = try_join_all(some.iter().map(|job| group(store, wish, before, job))).await?;
        let mut ids = Vec::new();
        for (job, group) in some.into_iter().zip(groups) {
            if ids.len() + group.jobs.len() > SENT_AT_ONCE_MAX {
                sent += on_dead(store, wish, std::mem::take(&mut ids), intent).await?;
            }
            let is_over = sent + ids.len() as u64 >= most;
            if !is_over {
                ids.extend(group.jobs);
            }
            if is_over || group.is_cut {
                left.push(job);
            }
        }
        sent += on_dead(store, wish, ids, intent).await?;
    }
    left.extend(firsts);
    Ok(Sent { count: sent, left })
}

async fn group(store: &dyn Store, wish: &Wish, before: Timestamp, job: &JobView) -> Result<Group> {
    let Some(key) = &job.key else { return Ok(Group { jobs: vec![job.id], is_cut: false }) };
    of_key(store, wish, before, key).await
}

/// The dead jobs of this key that are meant, in the order of their scores.
async fn of_key(
    store: &dyn Store,
    wish: &Wish,
    before: Timestamp,
    key: &Arc<str>,
) -> Result<Group> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let query = JobQuery {
            key: Some(key.to_string()),
            after,
            rows_max: PAGE_ROWS_MAX,
            payload_bytes_max: Some(0),
            ..JobQuery::new(wish.queue.as_str(), JobState::Dead)
        };
        let page = store.jobs(query).await?;
        let meant = page.rows.iter().filter(|job| wish.has_job(job, before));
        jobs.extend(meant.map(|job| (job.score, job.id)));
        after = page.next;
        if after.is_none() || jobs.len() >= KEY_JOBS_MAX {
            break;
        }
    }
    // Stable: equal scores keep the order of arrival.
    jobs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let is_cut = after.is_some() || jobs.len() > SENT_AT_ONCE_MAX;
    let jobs = jobs.into_iter().map(|(_, id)| id).take(SENT_AT_ONCE_MAX).collect();
    Ok(Group { jobs, is_cut })
}
