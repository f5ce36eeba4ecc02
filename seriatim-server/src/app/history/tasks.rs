//! The history of tasks: how many turns of each ended, and how long they took. Each process writes what it saw itself;
//! here it is added up.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::Timestamp;
use seriatim::store::{Note, NoteQuery, Store};

use super::Span;
use super::point::{Interval, Row};
use super::series::Series;
use super::task_recorder::TaskPoint;
use crate::protocol::value::Time;

/// Pages of notes that are read for one answer.
const PAGES_MAX: usize = 20;

/// The rows of all tasks of a queue in an hour or a day.
pub(super) fn prefix(series: Series, queue: &str, number: &str) -> String {
    format!("{}{queue}/{number}/", all_of(series))
}

fn all_of(series: Series) -> &'static str {
    match series {
        Series::Minutes => "tasks/m/",
        Series::Hours => "tasks/h/",
    }
}

/// The name of the task, behind its length, and the row.
pub(super) fn note(name: String, task: &str, row: &Row<TaskPoint>) -> Note {
    let length = task.len() as u16;
    Note::new(name, [&length.to_le_bytes()[..], task.as_bytes(), &row.packed()].concat())
}

fn read_note(value: &[u8]) -> Option<(&str, Row<TaskPoint>)> {
    let (length, rest) = value.split_first_chunk()?;
    let (task, row) = rest.split_at_checked(u16::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(task).ok()?, Row::read(row)))
}

/// The tasks of a queue in the past.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tasks {
    /// Those that took most time first
    pub(crate) tasks: Vec<TaskFigures>,
}

/// The turns of a task, all together and by the minute or hour.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskFigures {
    pub(crate) task: String,
    #[serde(flatten)]
    pub(crate) all: Times,
    pub(crate) points: Vec<DatedTimes>,
}

/// How many turns ended, and how long they took.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Times {
    pub(crate) turns: u64,
    /// Those that failed, crashed or were buried
    pub(crate) failed: u64,
    /// How long a turn took, in seconds
    pub(crate) mean: f64,
    /// The longest turn, in seconds
    pub(crate) longest: f64,
}

/// The turns of a minute or an hour.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DatedTimes {
    /// When it begins
    pub(crate) at: Time,
    #[serde(flatten)]
    pub(crate) times: Times,
}

impl From<TaskPoint> for Times {
    fn from(TaskPoint { turns, failed, took_ms, longest_ms }: TaskPoint) -> Self {
        let seconds = |ms: u64| ms as f64 / 1e3;
        Self {
            turns,
            failed,
            mean: seconds(took_ms) / turns.max(1) as f64,
            longest: seconds(longest_ms),
        }
    }
}

/// The tasks of a queue in the time before now, of all processes.
pub(crate) async fn of_queue(
    store: &dyn Store,
    queue: &str,
    span: Span,
    now: Timestamp,
) -> seriatim::Result<Tasks> {
    let mut tasks: BTreeMap<String, BTreeMap<i64, TaskPoint>> = BTreeMap::new();
    let (series, now) = (span.series(), now.as_micros() / 1_000_000);
    let from = now - span.seconds();
    let number = |at| prefix(series, queue, &series.number(at));
    let mut query = NoteQuery::new(number(from)..format!("{}\x7f", number(now)));
    for _ in 0..PAGES_MAX {
        let notes = store.read_notes(query.clone()).await?;
        let Some(last) = notes.last() else { break };
        query = query.behind(&last.name);
        for note in &notes {
            let number = note.name.split('/').nth(3).and_then(|number| number.parse::<i64>().ok());
            let (Some(number), Some((task, row))) = (number, read_note(&note.value)) else {
                continue;
            };
            let points = tasks.entry(task.to_owned()).or_default();
            for (slot, point) in row.points() {
                let at = number * series.row() + slot as i64 * series.step();
                if (from..=now).contains(&at) {
                    let of = points.entry(at).or_default();
                    *of = of.then(point);
                }
            }
        }
    }
    Ok(Tasks::new(tasks))
}

impl Tasks {
    fn new(tasks: BTreeMap<String, BTreeMap<i64, TaskPoint>>) -> Self {
        let mut all: Vec<(u64, TaskFigures)> = Vec::new();
        for (task, points) in tasks {
            let Some(together) = points.values().copied().reduce(TaskPoint::then) else { continue };
            let dated = |(at, point): (i64, TaskPoint)| DatedTimes {
                at: Time(Timestamp::from_micros(at * 1_000_000)),
                times: point.into(),
            };
            let points = points.into_iter().map(dated).collect();
            all.push((together.took_ms, TaskFigures { task, all: together.into(), points }));
        }
        all.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        Self { tasks: all.into_iter().map(|(_, figures)| figures).collect() }
    }
}

/// Deletes rows that are too old, of all queues.
pub(super) async fn clean(store: &dyn Store, now: i64) -> seriatim::Result<()> {
    for series in [Series::Minutes, Series::Hours] {
        let all = all_of(series);
        let oldest = series.number(now - series.kept());
        let mut query = NoteQuery { rows_max: 1, names_only: true, ..NoteQuery::of(all) };
        while let Some(note) = store.read_notes(query.clone()).await?.pop() {
            let queue = note.name[all.len()..].split('/').next().unwrap_or_default();
            let rows = format!("{all}{queue}/")..format!("{all}{queue}/{oldest}");
            store.delete_notes(NoteQuery::new(rows)).await?;
            query.from = format!("{all}{queue}/\x7f");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use seriatim::store::{Memory, Notebook};

    use super::super::series::DAY;
    use super::super::task_recorder::{TASKS_MAX, Task, TaskRecorder};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_700_000_040 + seconds) * 1_000_000)
    }

    fn seen(task: &str, turns: u64, took_ms: u64) -> Vec<(Task, TaskPoint)> {
        let point = TaskPoint { turns, failed: 1, took_ms, longest_ms: took_ms };
        vec![(("a".into(), task.into()), point)]
    }

    #[tokio::test]
    async fn the_durations_of_a_task_are_those_that_all_processes_saw() {
        let store = Memory::new();
        let mut processes = [TaskRecorder::default(), TaskRecorder::default()];
        for recorder in &mut processes {
            for (seconds, took_ms) in [(0, 1_000), (10, 3_000), (70, 500), (130, 0)] {
                recorder.add(&store, seen("sync/1", 2, took_ms), at(seconds)).await.unwrap();
            }
            recorder.add(&store, seen("fast", 1, 1), at(130)).await.unwrap();
            recorder.add(&store, Vec::new(), at(190)).await.unwrap();
        }
        for span in [Span::Hour, Span::Month] {
            let tasks = of_queue(&store, "a", span, at(200)).await.unwrap().tasks;
            let names: Vec<&str> = tasks.iter().map(|of| &*of.task).collect();
            assert_eq!(names, ["sync/1", "fast"]);
            let (all, points) = (tasks[0].all, &tasks[0].points);
            assert_eq!((all.turns, all.failed, all.longest), (16, 8, 3.0));
            assert!((all.mean - 9.0 / 16.0).abs() < 1e-9, "{}", all.mean);
            let minutes: Vec<u64> = points.iter().map(|point| point.times.turns).collect();
            if span == Span::Hour {
                assert_eq!(minutes, [8, 4, 4]);
            }
        }
        assert!(of_queue(&store, "b", Span::Hour, at(200)).await.unwrap().tasks.is_empty());
    }

    #[tokio::test]
    async fn the_history_of_tasks_is_bounded_in_tasks_and_in_time() {
        let (store, mut recorder) = (Memory::new(), TaskRecorder::default());
        for i in 0..200 {
            recorder.add(&store, seen(&format!("task-{i}"), 1, i), at(0)).await.unwrap();
        }
        recorder.add(&store, Vec::new(), at(60)).await.unwrap();
        let tasks = of_queue(&store, "a", Span::Hour, at(70)).await.unwrap().tasks;
        assert_eq!(tasks.len(), TASKS_MAX + 1);
        assert_eq!(tasks.iter().map(|of| of.all.turns).sum::<u64>(), 200);
        let now = at(0).as_micros() / 1_000_000;
        let count = async || store.read_notes(NoteQuery::of("tasks/")).await.unwrap().len();
        clean(&store, now + DAY).await.unwrap();
        assert_eq!(count().await, 2 * (TASKS_MAX + 1));
        clean(&store, now + 2 * DAY).await.unwrap();
        assert_eq!(count().await, TASKS_MAX + 1);
        clean(&store, now + 40 * DAY).await.unwrap();
        assert_eq!(count().await, 0);
    }
}
