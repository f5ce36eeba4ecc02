//! The judgement of throttled keys: a push changes nothing if another one to its key was taken within the period, and only
//! then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use seriatim::JobId;
use seriatim::store::{PushStatus, Throttled};

use super::facts::{Entity, Facts, Pushed};
use super::report::{Judgement, Report};

/// The clocks of the store and of a recorder may differ by this much in a period.
const CLOCKS_APART: Duration = Duration::from_secs(1);

pub(super) fn judge(facts: &Facts<'_>, report: &mut Report) {
    without_cause(facts, report);
    let_through(facts, report);
}

fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// Pushes that are said to be throttled, but not by a push that was taken: what they carried is lost.
fn without_cause(facts: &Facts<'_>, report: &mut Report) {
    let mut taken: HashMap<(&Entity, JobId), Vec<i64>> = HashMap::new();
    for push in facts.pushes.iter().filter(|push| push.is_taken()) {
        taken.entry((&push.entity, push.job_id)).or_default().push(push.at);
    }
    let unknown: HashSet<&Entity> = facts.unknown.keys().map(|(entity, _)| entity).collect();
    for push in facts.pushes.iter().filter(|push| push.is_throttled()) {
        let by = taken.get(&(&push.entity, push.job_id));
        let is_explained = longest(facts, push).is_some_and(|longest| {
            let within = |at: &i64| push.sent_at.saturating_sub(*at) < longest;
            unknown.contains(&push.entity) || by.is_some_and(|times| times.iter().any(within))
        });
        if !is_explained {
            report.violate(Judgement::Loss, || {
                let (job, tag) = (push.job_id, &push.tag);
                format!("{:?}: {tag} was kept out because of job {job}, which does not throttle its key", push.entity)
            });
        }
    }
}

/// The longest time for which a push may be refused like this one. A history does not show when a period was changed.
fn longest(facts: &Facts<'_>, push: &Pushed) -> Option<i64> {
    let kind = match push.status {
        PushStatus::Throttled => Throttled::Refuse,
        _ => Throttled::Merge,
    };
    let known = facts.throttles.get(push.entity.0.as_str())?.iter();
    let period =
        known.filter(|(_, throttled)| *throttled == kind).filter_map(|(period, _)| *period);
    period.max().map(|period| micros(period + CLOCKS_APART))
}

/// New jobs of a key that came within its period.
fn let_through(facts: &Facts<'_>, report: &mut Report) {
    let mut created: BTreeMap<&Entity, Vec<JobId>> = BTreeMap::new();
    for push in facts.pushes.iter().filter(|push| push.status == PushStatus::Queued) {
        created.entry(&push.entity).or_default().push(push.job_id);
    }
    for (entity, mut jobs) in created {
        let known = facts.throttles.get(entity.0.as_str());
        let periods: Option<Vec<Duration>> =
            known.and_then(|known| known.iter().map(|(period, _)| *period).collect());
        let Some(shortest) = periods.and_then(|periods| periods.into_iter().min()) else {
            continue;
        };
        jobs.sort_unstable_by_key(|job| job.created_at());
        for pair in jobs.windows(2) {
            let apart = pair[1].created_at().since(pair[0].created_at());
            // An id has the millisecond.
            if apart + Duration::from_millis(1) < shortest {
                report.violate(Judgement::Limit, || {
                    format!("{entity:?}: job {} was made within the period of {}", pair[1], pair[0])
                });
            }
        }
    }
}
