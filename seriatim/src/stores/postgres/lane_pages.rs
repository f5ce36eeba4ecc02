//! Pages of lanes.

use std::sync::LazyLock;
use std::time::Duration;

use tokio_postgres::Row;

use super::Postgres;
use super::convert::{
    column, job_id, kept, lane_id, lane_number, micros, options, sought, text, time,
};
use super::views::{or_zero, place_and_number};
use crate::contract::{LaneJob, LaneOrder, LaneQuery, LaneSource, LaneState, LaneView, Page};
use crate::model::{NodeId, Result, Timestamp, Token};
use crate::stores::gone;
use crate::stores::look::Look;
use crate::stores::options::ReadOptions;

/// A listing in each of its orders.
macro_rules! lanes_by {
    ($name:ident, $pick:literal, $place:literal, $kind:literal, $only:literal) => {
        static $name: LazyLock<String> = LazyLock::new(|| {
            let sql = include_str!("sql/lanes.sql").replace("PLACE", $place);
            sql.replace("TYPE", $kind).replace("ONLY", $only).replace("PICK", $pick)
        });
    };
}

lanes_by!(LANES_BY_AGE, "0", "1", "int", "true");
lanes_by!(LANES_BY_KEY, "1", "coalesce(l.key, '')", "text", "true");
lanes_by!(LANES_BY_DUE, "2", "l.due", "bigint", "true");
lanes_by!(LANES_BY_RETRIES, "3", "(-l.retry_count)", "int", "l.retry_count >= 0");

impl Postgres {
    pub(super) async fn lane_page(&self, query: &LaneQuery) -> Result<Page<LaneView>> {
        let queue = self.queue_number(&query.queue).await?;
        let sql: &'static str = match query.order {
            LaneOrder::Age => &LANES_BY_AGE,
            LaneOrder::Key => &LANES_BY_KEY,
            LaneOrder::Due => &LANES_BY_DUE,
            LaneOrder::RetryCount => &LANES_BY_RETRIES,
        };
        let source = match query.source() {
            LaneSource::Lane(_) => 5,
            LaneSource::Key(_) => 0,
            LaneSource::Claimed(_) => 1,
            LaneSource::Parked => 2,
            // The indexes by due time have waiting lanes alone.
            LaneSource::Walk if query.order == LaneOrder::Due && query.waits() => 6,
            LaneSource::Walk if query.is_of_waiting() => 4,
            LaneSource::Walk => 3_i32,
        };
        let (place, last) = place_and_number(query.begin()?);
        let place = place.map(|place| match query.order {
            LaneOrder::Key => place,
            // In this order all have the same place.
            LaneOrder::Age => "1".into(),
            LaneOrder::Due | LaneOrder::RetryCount => or_zero(place),
        });
        let (end, _) = place_and_number(query.end()?);
        let (key, node) =
            (query.key.as_deref().map(sought), query.node.as_ref().map(|n| kept(&n.0)));
        let key = query.lane.map(|lane| lane_number(lane).to_string().into()).or(key);
        let rows_max = query.most() as i64 + 1;
        let looks_max = query.looks_max() as i64 + 1;
        let candidates_max = if query.is_range() { rows_max } else { looks_max };
        let prefix = query.prefix.as_deref().filter(|prefix| !prefix.is_empty()).map(sought);
        let stages: Vec<i16> = query.stages.iter().map(|stage| *stage as i16).collect();
        let (now, retries_min) = (query.now.map(micros), query.retries_min.map(i64::from));
        let (due_from, due_to) = (query.due_from.map(micros), query.due_to.map(micros));
        let params: super::pool::Params<'_> = &[
            &queue,
            &key,
            &source,
            &place,
            &last,
            &rows_max,
            &candidates_max,
            &end,
            &node,
            &looks_max,
            &prefix,
            &stages,
            &now,
            &due_from,
            &due_to,
            &retries_min,
            &query.bare,
        ];
        let rows = self.pool.query(sql, params).await?;
        let mut look = Look::of_lanes(query);
        for row in &rows {
            look.skip_to(column::<_, i64>(row, "nth")? as usize - 1);
            let (number, place) =
                (column::<_, i64>(row, "number")?, column::<_, &str>(row, "place")?);
            let fits: bool = column(row, "fits")?;
            if !look.at(number as u64, place, fits.then_some(row)) {
                break;
            }
        }
        let (rows, next, cut) = look.page();
        let mut rows: Vec<LaneView> = rows.into_iter().map(lane_view).collect::<Result<_>>()?;
        if query.lane.is_some() {
            // With the key as given, which the statement did not ask for.
            let asked = |lane: &LaneView| query.lane == Some(lane.lane);
            let named = |lane: &LaneView| {
                query.key.is_none() || lane.key.as_deref() == query.key.as_deref()
            };
            rows.retain(|lane| asked(lane) && named(lane));
        }
        Ok(Page { rows, next, cut })
    }
}

/// When the claim of a lane ends; `None` if it has none, or its node is forgotten.
fn lease_until(row: &Row) -> Result<Option<Timestamp>> {
    let ttl: Option<i64> = column(row, "ttl")?;
    Ok(match column(row, "own_lease")? {
        Some(true) => time(row, "own_until")?,
        Some(false) => time(row, "node_beat")?
            .zip(ttl)
            .map(|(beat, ttl)| gone::lease_end(beat, Duration::from_micros(ttl.max(0) as u64))),
        None => None,
    })
}

fn lane_view(row: &Row) -> Result<LaneView> {
    let claimed: bool = column(row, "claimed")?;
    let token: i64 = column(row, "token")?;
    let state = match (claimed, column(row, "paused")?, column(row, "held")?) {
        (true, _, _) => LaneState::Claimed,
        (_, true, _) => LaneState::Paused,
        (_, _, true) => LaneState::Held,
        _ => LaneState::Waiting,
    };
    Ok(LaneView {
        lane: lane_id(column(row, "queue")?, column(row, "number")?),
        key: text(row, "key")?,
        state,
        due: time(row, "due")?,
        collects_until: time(row, "collects_until")?,
        priority: column::<_, i16>(row, "urgency")? as u16,
        jobs: column::<_, i64>(row, "jobs")? as u64,
        retry_count: column(row, "retry_count")?,
        crashes: column::<_, i32>(row, "crashes")? as u32,
        error: text(row, "error")?,
        token: claimed.then_some(Token(token)),
        node: text(row, "holder")?.map(NodeId),
        claimed_at: time(row, "claimed_at")?,
        lease_until: lease_until(row)?,
        progress: text(row, "progress")?.filter(|_| claimed),
        only: only_job(row)?,
    })
}

fn only_job(row: &Row) -> Result<Option<LaneJob>> {
    let created: Option<i64> = column(row, "only_created_at")?;
    let Some(created) = created.filter(|_| column(row, "jobs").is_ok_and(|jobs: i64| jobs == 1))
    else {
        return Ok(None);
    };
    Ok(Some(LaneJob {
        id: job_id(created, column(row, "queue")?, column(row, "only_seq")?),
        task: text(row, "only_task")?,
        options: options(column(row, "only_options")?, &mut ReadOptions::default())?,
    }))
}
