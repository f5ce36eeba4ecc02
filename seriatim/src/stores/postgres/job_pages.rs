//! Pages of jobs.

use std::sync::LazyLock;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::{column, micros, sought};
use super::views::{job_view, or_zero, place_and_number};
use crate::contract::{JobFilter, JobOrder, JobQuery, JobState, JobView, Store};
use crate::model::limits::PAGE_BYTES_MAX;
use crate::model::{Cursor, JobId, Mode, Result};
use crate::stores::handover::Handover;
use crate::stores::job_look::{JobRows, Step, place_of};

/// A listing in each of its orders.
macro_rules! jobs_by {
    ($name:ident, $found:expr, $place:literal, $kind:literal) => {
        static $name: LazyLock<String> = LazyLock::new(|| {
            let sql = include_str!("sql/jobs.sql").replace("FOUND", $found);
            sql.replace("PLACE", $place).replace("TYPE", $kind)
        });
    };
}

const RUNNING_JOBS: &str = "seriatim.running($1, false, $3, $4, $5, $6)";
jobs_by!(JOBS_BY_ARRIVAL, "seriatim.list_jobs($1, 0, $2, $3, $4, $5, $6)", "1", "int");
jobs_by!(
    JOBS_BY_KEY,
    "seriatim.list_jobs($1, 1, $2, $3, $4, $5, $6)",
    "coalesce(v.key, '')",
    "text"
);
jobs_by!(
    JOBS_BY_UPDATE,
    "seriatim.list_jobs($1, 2, $2, $3, $4, $5, $6)",
    "coalesce(-v.finished_at, 0)",
    "bigint"
);
jobs_by!(BY_TURN, "seriatim.list_jobs($1, 0, $2, $3, NULL, NULL, $6)", "v.score", "float8");
jobs_by!(
    BY_URGENCY,
    "seriatim.list_jobs($1, 0, $2, $3, NULL, NULL, $6)",
    "ARRAY[(v.run_at > $9)::int, CASE WHEN v.run_at > $9 THEN 0 ELSE v.priority END, v.run_at]::bigint[]",
    "bigint[]"
);
jobs_by!(RUNNING_BY_ARRIVAL, RUNNING_JOBS, "1", "int");
jobs_by!(RUNNING_BY_UPDATE, RUNNING_JOBS, "coalesce(-v.finished_at, 0)", "bigint");
jobs_by!(
    RUNNING_BY_KEY,
    "seriatim.running($1, true, $3, $4, $5, $6)",
    "coalesce(v.key, '')",
    "text"
);

const RUNNING: JobFilter = JobFilter::In(JobState::Running);

/// How the page is ordered by.
fn statement(query: &JobQuery, mode: Mode) -> &'static str {
    match query.order {
        JobOrder::Turn if mode == Mode::Exclusive => &BY_URGENCY,
        JobOrder::Turn => &BY_TURN,
        JobOrder::Arrival if query.filter == RUNNING => &RUNNING_BY_ARRIVAL,
        JobOrder::Key if query.filter == RUNNING => &RUNNING_BY_KEY,
        JobOrder::UpdatedAt if query.filter == RUNNING => &RUNNING_BY_UPDATE,
        JobOrder::Arrival => &JOBS_BY_ARRIVAL,
        JobOrder::Key => &JOBS_BY_KEY,
        JobOrder::UpdatedAt => &JOBS_BY_UPDATE,
    }
}

#[async_trait]
impl JobRows for Postgres {
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step> {
        let (queue, mode) = self.queue_and_mode(&query.queue).await?;
        let states: &[i16] = match query.filter {
            JobFilter::Live => &[0, 1],
            JobFilter::In(JobState::Queued) => &[0],
            JobFilter::In(JobState::Running) => &[1],
            JobFilter::In(JobState::Succeeded) => &[2],
            JobFilter::In(JobState::Dead) => &[3],
            JobFilter::In(JobState::Canceled) => &[4],
        };
        let after = query.begin()?;
        let now = match (query.order, query.now) {
            (JobOrder::Turn, None) => Some(self.now().await?),
            (_, now) => now,
        };
        let turn = match (&after, now) {
            (Some(after), Some(now)) if query.order == JobOrder::Turn => {
                let last = Handover::read(after)?;
                let (later, priority, run_at) = last.place(mode, now);
                Some(match mode {
                    Mode::Exclusive => format!("{{{},{priority},{run_at}}}", u8::from(later)),
                    _ => format!("{:?}", last.score),
                })
            }
            _ => None,
        };
        let (place, last) = place_and_number(after);
        let place = place.map(|place| match query.order {
            // By arrival all have the same place.
            JobOrder::Arrival => "1".into(),
            JobOrder::UpdatedAt => or_zero(place),
            JobOrder::Key | JobOrder::Turn => place,
        });
        let place = turn.or(place);
        let key = query.key.as_deref().map(sought);
        let (limit, bytes_max) = (looks_max as i64 + 1, PAGE_BYTES_MAX as i64);
        let shown_max = query.payload_bytes_max.map(|most| most as i64);
        let now = now.map(micros);
        let params: super::pool::Params<'_> =
            &[&queue, &states, &key, &place, &last, &limit, &bytes_max, &shown_max, &now];
        let rows = self.pool.query(statement(query, mode), params).await?;
        let found = rows.first().map_or(Ok(0), |row| column::<_, i64>(row, "found"))?;
        let shown = &rows[..rows.len().min(looks_max)];
        let views: Vec<JobView> = shown.iter().map(view_of).collect::<Result<_>>()?;
        let next = match (shown.last(), views.last()) {
            (Some(row), Some(view)) if found as usize > shown.len() => {
                let place = match query.order {
                    JobOrder::Turn => place_of(JobOrder::Turn, view),
                    _ => column::<_, &str>(row, "place")?.to_owned(),
                };
                Some(Cursor::behind(column::<_, i64>(row, "seq")?, place))
            }
            _ => None,
        };
        Ok(Step::of(views, next))
    }

    fn arrival(&self, _job: JobId) -> String {
        // All have the same place in `JOBS_BY_ARRIVAL`.
        "1".to_owned()
    }
}

/// A job whose payload may have been left out.
fn view_of(row: &Row) -> Result<JobView> {
    let payload_bytes = column::<_, i32>(row, "payload_bytes")? as usize;
    Ok(JobView { payload_bytes, ..job_view(row)? })
}
