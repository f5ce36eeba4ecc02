//! How many an operation would be about, with a few of them.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{JobOrder, JobView, LaneQuery, LaneView, Store};
use seriatim::{Mode, Timestamp};

use super::action::Action;
use super::look::{Found, look};
use super::wish::{CONFIRM_ABOVE, STEP_ROWS_MAX, Wish};
use crate::app::error::{Error, Result};
use crate::app::figures::Figures;
use crate::app::find;
use crate::base::text::{cut, grouped, one_line};
use crate::protocol::value::Time;

/// Counting ends at this number.
const COUNTED_MAX: u64 = 10_000;
/// Rows that are looked at to count.
pub(crate) const LOOKED_MAX: u64 = 50_000;
/// Tolerance of the confirmed number of a whole queue: 1/SLACK.
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
    /// Jobs of the lanes that were counted, running ones included; none if the lanes did not tell
    #[serde(skip)]
    pub(crate) jobs: Option<u64>,
    /// Send it with the operation, so that it acts only on what was counted
    pub(crate) before: Time,
    /// Send this as `confirm` to delete them. If counting ended early, it is the number of all in the queue
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
    pub(crate) queue: String,
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

impl Count {
    /// Whether nothing is to be done: none was found, and all were looked at.
    pub(crate) fn is_none(self) -> bool {
        self.count == 0 && !self.more
    }
}

impl Preview {
    /// Refuses to delete or cancel many if their number is not confirmed. The number of a whole queue may change a little meanwhile.
    pub(crate) fn check(&self, said: Option<u64>) -> Result<()> {
        let Some(count) = self.confirm else { return Ok(()) };
        let slack = if self.count.more { count / SLACK } else { 0 };
        match said {
            Some(said) if said.abs_diff(count) <= slack => Ok(()),
            said => Err(Error::Unconfirmed { count, said }),
        }
    }
}

/// Counts; reads a bounded number of rows.
pub(crate) async fn preview(store: &dyn Store, wish: &Wish) -> Result<Preview> {
    wish.check()?;
    // What comes after the count is not done, also if a filter reaches into the future.
    let now = store.now().await?;
    let before = wish.before.map_or(now, |Time(before)| before.min(now));
    let mut counted = Counted::default();
    for name in wish.names() {
        if counted.is_full() {
            counted.more = true;
            break;
        }
        let mode = find::queue(store, name).await?.queue.mode;
        counted.list(store, (&wish.of(name), mode), before).await?;
    }
    let Counted { count, more, samples, jobs, is_partial, .. } = counted;
    let jobs = (!is_partial && count > 0).then_some(jobs);
    let count = Count { count: count.min(COUNTED_MAX), more: more || count > COUNTED_MAX };
    let confirm = match wish.action.deletes() {
        true if count.more => Some(most(store, wish).await?),
        true => Some(count.count).filter(|count| *count > CONFIRM_ABOVE),
        false => None,
    };
    Ok(Preview { count, samples, jobs, before: Time(before), confirm })
}

/// The whole count. A preview shows at most [`COUNTED_MAX`].
#[derive(Default)]
struct Counted {
    count: u64,
    looked: u64,
    more: bool,
    samples: Vec<Sample>,
    jobs: u64,
    /// Whether something was found that tells no number of jobs.
    is_partial: bool,
}

impl Counted {
    fn is_full(&self) -> bool {
        self.count >= COUNTED_MAX || self.looked >= LOOKED_MAX
    }

    /// Counts those of one queue.
    async fn list(
        &mut self,
        store: &dyn Store,
        wish: (&Wish, Mode),
        before: Timestamp,
    ) -> Result<()> {
        let (mut after, mut lanes) = (None, BTreeSet::new());
        loop {
            // The latest that died are those that people ask about; in a large morgue only the first are looked at.
            let (by, place) = (JobOrder::UpdatedAt, (after, STEP_ROWS_MAX));
            let mut seen = look(store, wish, before, by, place).await?;
            let on_lanes = wish.0.action.on_lanes().is_some();
            if let (Found::Jobs(jobs), true) = (&mut seen.found, on_lanes) {
                // A lane counts once, however many of its jobs were found.
                jobs.retain(|job| job.lane.is_some_and(|lane| lanes.insert(lane)));
            }
            self.count += seen.found.len() as u64;
            match &seen.found {
                Found::Lanes(lanes) => self.jobs += lanes.iter().map(|lane| lane.jobs).sum::<u64>(),
                // A lane without a key is one job.
                Found::Jobs(jobs) if on_lanes && !wish.1.is_keyed() => {
                    self.jobs += jobs.len() as u64;
                }
                _ => self.is_partial = true,
            }
            self.looked += seen.rows;
            if self.samples.len() < SAMPLES {
                self.samples.extend(shown(store, wish.0, &seen.found).await?);
                self.samples.truncate(SAMPLES);
            }
            after = seen.next;
            if after.is_none() {
                return Ok(());
            }
            if self.is_full() {
                self.more = true;
                return Ok(());
            }
        }
    }
}

/// All that its queues have, of which a filter may leave a part. To type where counting ended would hide how many there are.
async fn most(store: &dyn Store, wish: &Wish) -> Result<u64> {
    let mut most = 0;
    for name in wish.names() {
        let stats = Figures::one(store, name).await?.stats;
        most += match wish.action {
            Action::CancelJobs => stats.jobs,
            action if action.on_lanes().is_some() => stats.lanes,
            _ => stats.dead,
        };
    }
    Ok(most)
}

async fn shown(store: &dyn Store, wish: &Wish, found: &Found) -> Result<Vec<Sample>> {
    let queue = wish.queue.as_str();
    let sample = |id: String, key: Option<&str>, error: Option<&str>| {
        let short = |text: &str| cut(&one_line(text), COLUMNS);
        Sample { queue: queue.to_owned(), id, key: key.map(short), error: error.map(short) }
    };
    let of_job = |job: &JobView| {
        let lane = job.lane.filter(|_| wish.action.on_lanes().is_some());
        let id = lane.map_or_else(|| job.id.to_string(), |lane| lane.to_string());
        sample(id, job.key.as_deref(), job.error.as_deref())
    };
    let of_lane =
        |lane: &LaneView| sample(lane.lane.to_string(), lane.key.as_deref(), lane.error.as_deref());
    let mut samples = Vec::with_capacity(SAMPLES);
    match found {
        Found::Jobs(jobs) => samples.extend(jobs.iter().take(SAMPLES).map(of_job)),
        Found::Lanes(lanes) => samples.extend(lanes.iter().take(SAMPLES).map(of_lane)),
        Found::TheseJobs(ids) => {
            for id in ids.iter().take(SAMPLES) {
                let known = store.job(*id).await?.filter(|job| *job.queue == *queue);
                samples.push(
                    known.as_ref().map_or_else(|| sample(id.to_string(), None, None), of_job),
                );
            }
        }
        Found::TheseLanes(ids) => {
            for id in ids.iter().take(SAMPLES) {
                let query = LaneQuery { lane: Some(*id), rows_max: 1, ..LaneQuery::new(queue) };
                let known = store.lanes(query).await?.rows.pop();
                samples.push(
                    known.as_ref().map_or_else(|| sample(id.to_string(), None, None), of_lane),
                );
            }
        }
    }
    Ok(samples)
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
        assert!(Count { count: 0, more: false }.is_none());
        assert!(!Count { count: 0, more: true }.is_none(), "there may be some");
    }
}
