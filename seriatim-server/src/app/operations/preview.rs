//! How many an operation would be about, with a few of them.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{JobQuery, JobState, JobView, LaneView, Owner, Store};

use super::look::{Found, look};
use super::wish::{CONFIRM_ABOVE, STEP_ROWS_MAX, Wish};
use crate::app::error::Error;
use crate::app::figures::Figures;
use crate::app::find;
use crate::base::text::{cut, one_line};
use crate::protocol::value::Time;

/// Counted up to so many.
const COUNTED_MAX: u64 = 10_000;
/// Rows that are looked at to count.
const LOOKED_MAX: u64 = 50_000;
/// The number of a whole queue may be off by one part in so many.
const SLACK: u64 = 10;
/// Shown of them.
const SAMPLES: usize = 5;
/// Columns of the key and of the error of one.
const COLUMNS: usize = 120;

/// What an operation would be about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Preview {
    #[serde(flatten)]
    pub(crate) count: Count,
    pub(crate) samples: Vec<Sample>,
    /// Send it with the operation, so that what was counted is what is done
    pub(crate) before: Time,
    /// Send this as `confirm` to delete so many. If there are more than were counted: all that the queue has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confirm: Option<u64>,
}

/// How many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Count {
    pub(crate) count: u64,
    /// Whether there are more: counting ends at 10,000, or when 50,000 rows were looked at
    pub(crate) more: bool,
}

/// One of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OperationSample")]
pub(crate) struct Sample {
    /// The id of a job or a lane
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) error: Option<String>,
}

impl fmt::Display for Count {
    /// `1,240`, or `over 10,000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = grouped(self.count);
        match (self.more, self.count >= COUNTED_MAX) {
            (false, _) => f.write_str(&number),
            (true, true) => write!(f, "over {number}"),
            (true, false) => write!(f, "at least {number}"),
        }
    }
}

impl Preview {
    /// Refuses to delete many if their number is not confirmed. The number of a whole queue may change a little meanwhile.
    pub(crate) fn check(&self, said: Option<u64>) -> Result<(), Error> {
        let Some(count) = self.confirm else { return Ok(()) };
        let slack = if self.count.more { count / SLACK } else { 0 };
        match said {
            Some(said) if said.abs_diff(count) <= slack => Ok(()),
            said => Err(Error::Unconfirmed { count, said }),
        }
    }
}

/// With commas between the thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Counts; reads a bounded number of rows.
pub(crate) async fn preview(store: &dyn Store, wish: &Wish) -> Result<Preview, Error> {
    wish.check()?;
    let owner = find::queue(store, &wish.queue).await?.queue.mode.failure_belongs_to();
    let before = match wish.before {
        Some(Time(before)) => before,
        None => store.now().await?,
    };
    let (mut count, mut looked, mut after) = (0, 0, None);
    let mut samples = Vec::new();
    let more = loop {
        let seen = look(store, wish, before, after, STEP_ROWS_MAX).await?;
        count += seen.found.len() as u64;
        looked += seen.rows;
        if samples.len() < SAMPLES {
            samples.extend(shown(&seen.found));
            samples.truncate(SAMPLES);
        }
        after = seen.next;
        if after.is_none() {
            break false;
        }
        if count >= COUNTED_MAX || looked >= LOOKED_MAX {
            break true;
        }
    };
    let (count, more) = match wish.is_all_failed() && owner == Owner::Job {
        true => failed(store, &wish.queue).await?,
        false => (count, more),
    };
    let count = Count { count: count.min(COUNTED_MAX), more: more || count > COUNTED_MAX };
    let confirm = match wish.action.deletes() {
        true if count.more => Some(most(store, wish).await?),
        true => Some(count.count).filter(|count| *count > CONFIRM_ABOVE),
        false => None,
    };
    Ok(Preview { count, samples, before: Time(before), confirm })
}

/// The lanes with a job that failed, and whether there may be more. Listings of lanes know their heads alone.
async fn failed(store: &dyn Store, queue: &str) -> Result<(u64, bool), Error> {
    let mut query = JobQuery {
        rows_max: STEP_ROWS_MAX,
        payload_bytes_max: Some(0),
        ..JobQuery::new(queue, JobState::Queued)
    };
    let (mut lanes, mut looked) = (BTreeSet::new(), 0);
    loop {
        let page = store.jobs(query.clone()).await?;
        looked += page.rows.len() as u64;
        let failed = page.rows.iter().filter(|job| job.retry_count >= 0);
        lanes.extend(failed.filter_map(|job| job.lane));
        query.after = page.next;
        if query.after.is_none() || looked >= LOOKED_MAX {
            return Ok((lanes.len() as u64, query.after.is_some()));
        }
    }
}

/// All that the queue has, of which a filter may leave a part. To type where counting ended would hide how many there are.
async fn most(store: &dyn Store, wish: &Wish) -> Result<u64, Error> {
    let stats = Figures::one(store, &wish.queue).await?.stats;
    Ok(if wish.action.on_lanes().is_some() { stats.lanes } else { stats.dead })
}

fn shown(found: &Found) -> Vec<Sample> {
    let short = |text: &str| cut(&one_line(text), COLUMNS);
    let job = |job: &JobView| Sample {
        id: job.id.to_string(),
        key: job.key.as_deref().map(short),
        error: job.error.as_deref().map(short),
    };
    let lane = |lane: &LaneView| Sample {
        id: lane.lane.to_string(),
        key: lane.key.as_deref().map(short),
        error: lane.error.as_deref().map(short),
    };
    let named = |id: String| Sample { id, key: None, error: None };
    match found {
        Found::Jobs(jobs) => jobs.iter().take(SAMPLES).map(job).collect(),
        Found::Lanes(lanes) => lanes.iter().take(SAMPLES).map(lane).collect(),
        Found::TheseJobs(ids) => ids.iter().take(SAMPLES).map(|id| named(id.to_string())).collect(),
        Found::TheseLanes(ids) => {
            ids.iter().take(SAMPLES).map(|id| named(id.to_string())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_says_whether_it_is_whole() {
        let told = |count, more| Count { count, more }.to_string();
        assert_eq!(told(7, false), "7");
        assert_eq!(told(1_240, false), "1,240");
        assert_eq!(told(10_000, true), "over 10,000");
        assert_eq!(told(12, true), "at least 12");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
