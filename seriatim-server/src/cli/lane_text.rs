//! A lane in full, as text: for `seriatim lanes show` and the details of `seriatim top`.

use seriatim::Timestamp;
use seriatim::store::{JobView, LaneView};

use super::jobs;
use super::tones::lane_state;
use crate::app::entity::Entity;
use crate::app::reported::Reported;
use crate::app::why::Why;
use crate::base::text::retries_in_words;
use crate::base::time::{absolute, relative};
use crate::cli::output::{Fields, Table, Terminal};

/// The lane, and a table of its claimed and its waiting jobs.
pub(super) fn in_full(queue: &str, entity: &Entity, terminal: Terminal) -> String {
    let Entity { lane, jobs, why, now } = entity;
    let mut text = fields(queue, lane, why, *now).render();
    for (what, jobs) in [("claimed", &jobs.claimed), ("waiting", &jobs.waiting)] {
        if !jobs.is_empty() {
            text += &format!("\n\n{what}:\n{}", table(jobs, *now).render(terminal));
        }
    }
    text
}

fn fields(queue: &str, lane: &LaneView, why: &Why, now: Timestamp) -> Fields {
    let mut fields = Fields::default();
    let when = |time: Timestamp| format!("{} ({})", relative(now, time), absolute(time));
    let reported = Reported::of(lane.progress.as_deref());
    fields
        .add("lane", format!("{} of {queue}", lane.lane))
        .maybe("key", lane.key.as_deref())
        .add("state", lane_state(lane, now).text)
        .add("why", why.to_string())
        .maybe("due", lane.due.map(when))
        .maybe("collects until", lane.collects_until.map(when))
        .add("priority", lane.priority.to_string())
        .add("jobs", lane.jobs.to_string())
        .add("retry count", retries_in_words(lane.retry_count))
        .add("crashes", lane.crashes.to_string())
        .maybe("runs on", lane.node.as_ref().map(|node| &*node.0))
        .maybe("token", lane.token.map(|token| token.to_string()))
        .maybe("since", lane.claimed_at.map(when))
        .maybe("lease until", lane.lease_until.map(when))
        .maybe("progress", reported.progress)
        .maybe("steps", reported.steps)
        .maybe("error", lane.error.as_deref());
    fields
}

fn table(jobs: &[JobView], now: Timestamp) -> Table<'_, JobView> {
    Table::of(jobs)
        .name("job", |job| job.id.to_string())
        .number("score", |job| job.score)
        .name("run at", |job| relative(now, job.run_at))
        .number("attempt", |job| job.attempt)
        .text("task", |job| job.task.as_deref().unwrap_or_default())
        .text("payload", jobs::payload_cell)
}
