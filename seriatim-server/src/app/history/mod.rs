//! The history of figures: for each queue a point for each minute of a day, and one for each hour of a month, in the
//! notebook of the store. Of each queue and task how long its turns took.

mod point;
mod recorder;
mod rows;
mod series;
mod spread;
mod task_recorder;
mod tasks;

use std::collections::HashMap;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::Timestamp;
use seriatim::store::{Note, NoteQuery, Store};

use point::Row;
pub(crate) use point::{Interval, Point, StorePoint, TaskPoint};
pub(crate) use recorder::Recorder;
pub(crate) use series::{ALL, SERVER};
use series::{DAY, HOUR, Series};
pub(crate) use task_recorder::{Task, TaskRecorder};
pub(crate) use tasks::{TaskFigures, Tasks, of_queue as tasks, turns};

use crate::protocol::value::Time;

/// How far a history reaches back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum Span {
    #[default]
    #[serde(rename = "1h")]
    #[value(name = "1h")]
    Hour,
    #[serde(rename = "24h")]
    #[value(name = "24h")]
    Day,
    #[serde(rename = "30d")]
    #[value(name = "30d")]
    Month,
}

impl Span {
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Month => 30 * DAY,
        }
    }

    fn series(self) -> Series {
        match self {
            Self::Hour | Self::Day => Series::Minutes,
            Self::Month => Series::Hours,
        }
    }
}

/// The figures of the past.
#[derive(Serialize, JsonSchema)]
pub(crate) struct History {
    pub(crate) points: Vec<Dated>,
}

/// The figures of a minute or an hour.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Dated {
    /// When it begins
    pub(crate) at: Time,
    #[serde(flatten)]
    pub(crate) point: Point,
}

/// The figures of a queue, or of all together.
pub(crate) async fn document(
    store: &dyn Store,
    queue: Option<&str>,
    span: Span,
) -> seriatim::Result<History> {
    let points = read(store, queue.unwrap_or(ALL), span, store.now().await?).await?;
    let dated = |(at, point): (i64, Point)| Dated {
        at: Time(Timestamp::from_micros(at * 1_000_000)),
        point,
    };
    Ok(History { points: points.into_iter().map(dated).collect() })
}

/// The points of each of these queues in the last hour, by one read. Queues without work are left out.
pub(crate) async fn last_hour(
    store: &dyn Store,
    queues: &[&str],
    now: Timestamp,
) -> seriatim::Result<HashMap<String, Vec<(i64, Point)>>> {
    let (series, now) = (Series::Minutes, now.as_micros() / 1_000_000);
    let begin = now - HOUR;
    let rows = |queue: &&str| [begin, now].map(|at| series.name(queue, at));
    let mut points: HashMap<String, Vec<(i64, Point)>> = HashMap::new();
    for note in store.named_notes(queues.iter().flat_map(rows).collect()).await? {
        let Some((begins, row)) = row(series, &note) else { continue };
        let queue = note.name.rsplit('/').nth(1).unwrap_or_default();
        let of_queue = points.entry(queue.to_owned()).or_default();
        of_queue.extend(dated(series, begins, &row).filter(|(at, _)| (begin..=now).contains(at)));
    }
    Ok(points)
}

/// When a row that was stored begins, and what it has.
fn row<P: Interval>(series: Series, note: &Note) -> Option<(i64, Row<P>)> {
    let number = note.name.rsplit('/').next()?.parse::<i64>().ok()?;
    Some((number * series.row(), Row::read(&note.value)))
}

fn dated<P: Interval>(
    series: Series,
    begins: i64,
    row: &Row<P>,
) -> impl Iterator<Item = (i64, P)> + '_ {
    row.points().map(move |(slot, point)| (begins + slot as i64 * series.step(), point))
}

/// The points of a queue, or of the store's server, in the time before now: when each begins, in seconds, and its
/// figures. Without work there are none.
pub(crate) async fn read<P: Interval>(
    store: &dyn Store,
    queue: &str,
    span: Span,
    now: Timestamp,
) -> seriatim::Result<Vec<(i64, P)>> {
    let (series, now) = (span.series(), now.as_micros() / 1_000_000);
    let begin = now - span.seconds();
    let query = NoteQuery::new(series.name(queue, begin)..series.name(queue, now + series.row()));
    let mut points = Vec::new();
    for note in store.read_notes(query).await? {
        if let Some((begins, row)) = row::<P>(series, &note) {
            points.extend(dated(series, begins, &row));
        }
    }
    points.retain(|(at, _)| (begin..=now).contains(at));
    Ok(points)
}
