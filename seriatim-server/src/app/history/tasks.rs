//! The history of turns, of a queue and of each of its tasks: how many ended, and how long they took. Each process writes
//! what it saw itself; here it is added up.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::Timestamp;
use seriatim::store::{Note, NoteQuery, Store};

use super::Span;
use super::point::{Interval, Row, TaskPoint};
use super::series::{Series, TASKS, TURNS};
use crate::protocol::document::Times;
use crate::protocol::value::Time;

/// Pages of notes that are read for one answer.
const PAGES_MAX: usize = 20;

/// The rows of a queue in an hour or a day.
pub(super) fn prefix(about: &str, series: Series, queue: &str, number: &str) -> String {
    format!("{}{queue}/{number}/", series.prefix(about))
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

/// The turns of a queue in the past.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tasks {
    /// All turns, of jobs without a task too; null if none ended
    pub(crate) all: Option<Times>,
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

/// The turns of a minute or an hour.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DatedTimes {
    /// When it begins
    pub(crate) at: Time,
    #[serde(flatten)]
    pub(crate) times: Times,
}

impl From<TaskPoint> for Times {
    fn from(TaskPoint { turns, failed, took_ms, longest_ms, spread }: TaskPoint) -> Self {
        let seconds = |ms: u64| ms as f64 / 1e3;
        let within = |percent| spread.within(percent, longest_ms).map(|ms| ms / 1e3);
        Self {
            turns,
            failed,
            mean: seconds(took_ms) / turns.max(1) as f64,
            longest: seconds(longest_ms),
            p50: within(50),
            p95: within(95),
        }
    }
}

/// How long the turns of a queue took in the time before now; none if none ended.
pub(crate) async fn turns(
    store: &dyn Store,
    queue: &str,
    span: Span,
    now: Timestamp,
) -> seriatim::Result<Option<Times>> {
    let all = read(store, (TURNS, queue), span, now).await?.into_values().next();
    let together = all.and_then(|points| points.into_values().reduce(TaskPoint::then));
    Ok(together.map(Times::from))
}

/// The turns and tasks of a queue in the time before now, of all processes.
pub(crate) async fn of_queue(
    store: &dyn Store,
    queue: &str,
    span: Span,
    now: Timestamp,
) -> seriatim::Result<Tasks> {
    let all = turns(store, queue, span, now).await?;
    Ok(Tasks::new(all, read(store, (TASKS, queue), span, now).await?))
}

/// The points of each task, by time.
type Points = BTreeMap<String, BTreeMap<i64, TaskPoint>>;

async fn read(
    store: &dyn Store,
    (about, queue): (&str, &str),
    span: Span,
    now: Timestamp,
) -> seriatim::Result<Points> {
    let mut tasks = Points::new();
    let (series, now) = (span.series(), now.as_micros() / 1_000_000);
    let from = now - span.seconds();
    let number = |at| prefix(about, series, queue, &series.number(at));
    let mut query = NoteQuery::new(number(from)..format!("{}\x7f", number(now)));
    // If there are more, the oldest are left out.
    query.backwards = true;
    for _ in 0..PAGES_MAX {
        let notes = store.read_notes(query.clone()).await?;
        let Some(last) = notes.last() else { break };
        query.to.clone_from(&last.name);
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
    Ok(tasks)
}

impl Tasks {
    fn new(all: Option<Times>, tasks: Points) -> Self {
        let mut each: Vec<(u64, TaskFigures)> = Vec::new();
        for (task, points) in tasks {
            let Some(together) = points.values().copied().reduce(TaskPoint::then) else { continue };
            let dated = |(at, point): (i64, TaskPoint)| DatedTimes {
                at: Time(Timestamp::from_micros(at * 1_000_000)),
                times: point.into(),
            };
            let points = points.into_iter().map(dated).collect();
            each.push((together.took_ms, TaskFigures { task, all: together.into(), points }));
        }
        each.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        Self { all, tasks: each.into_iter().map(|(_, figures)| figures).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::limits::NOTES_MAX;
    use seriatim::store::{Memory, Notebook};

    use super::super::recorder::clean;
    use super::super::series::DAY;
    use super::super::spread::Spread;
    use super::super::task_recorder::{TASKS_MAX, Task, TaskRecorder};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_700_000_040 + seconds) * 1_000_000)
    }

    fn seen(task: &str, turns: u64, took_ms: u64) -> Vec<(Task, TaskPoint)> {
        let (failed, spread) = (1, Spread::default());
        let point = TaskPoint { turns, failed, took_ms, longest_ms: took_ms, spread };
        vec![(("a".into(), Some(task.into())), point)]
    }

    #[tokio::test]
    async fn the_percentiles_of_a_queue_are_of_all_its_turns_in_all_processes() {
        let store = Memory::new();
        let mut processes = [TaskRecorder::default(), TaskRecorder::default()];
        for (recorder, ms) in processes.iter_mut().zip([10, 400]) {
            let mut point = TaskPoint::default();
            (0..50).for_each(|_| point.add(Duration::from_millis(ms), false));
            let of = |task: Option<&str>| (("a".into(), task.map(Into::into)), point);
            recorder.add(&store, vec![of(None), of(Some("sync"))], at(0)).await.unwrap();
            recorder.add(&store, Vec::new(), at(60)).await.unwrap();
        }
        for span in [Span::Hour, Span::Month] {
            let found = of_queue(&store, "a", span, at(70)).await.unwrap();
            let (all, of_task) = (found.all.unwrap(), found.tasks[0].all);
            assert_eq!((all.turns, found.tasks.len(), of_task.turns), (100, 1, 100));
            for times in [all, of_task] {
                let (half, most) = (times.p50.unwrap(), times.p95.unwrap());
                assert!(
                    (0.005..=0.02).contains(&half) && (0.2..=0.4).contains(&most),
                    "{half} {most}"
                );
            }
        }
        assert!(turns(&store, "b", Span::Hour, at(70)).await.unwrap().is_none());
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
        let all = (("a".into(), None), seen("", 200, 7)[0].1);
        recorder.add(&store, vec![all], at(0)).await.unwrap();
        recorder.add(&store, Vec::new(), at(60)).await.unwrap();
        let tasks = of_queue(&store, "a", Span::Hour, at(70)).await.unwrap().tasks;
        assert_eq!(tasks.len(), TASKS_MAX + 1);
        assert_eq!(tasks.iter().map(|of| of.all.turns).sum::<u64>(), 200);
        let now = at(0).as_micros() / 1_000_000;
        let count = async || store.read_notes(NoteQuery::of("t")).await.unwrap().len();
        clean(&store, now + DAY).await.unwrap();
        assert_eq!(count().await, 2 * (TASKS_MAX + 2));
        clean(&store, now + 2 * DAY).await.unwrap();
        assert_eq!(count().await, TASKS_MAX + 2);
        clean(&store, now + 40 * DAY).await.unwrap();
        assert_eq!(count().await, 0);
        // More than one step deletes.
        let of_hour = prefix(TASKS, Series::Minutes, "a", &Series::Minutes.number(now));
        let many: Vec<Note> =
            (0..2_500).map(|i| Note::new(format!("{of_hour}{i:04}"), "")).collect();
        for notes in many.chunks(NOTES_MAX) {
            store.write_notes(notes.to_vec()).await.unwrap();
        }
        clean(&store, now + 2 * DAY).await.unwrap();
        assert_eq!(count().await, 0);
    }
}
