//! Writes the history of turns, of queues and of their tasks: each process what it saw itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use seriatim::Timestamp;
use seriatim::store::Store;

use super::point::{Interval, Row, TaskPoint};
use super::series::{DAY, HOUR, MINUTE, Series, TASKS, TURNS};
use super::tasks::{note, prefix};
use crate::app::notes;

/// Tasks of a process with a history of their own in a minute; all others of a queue together are [`OTHER`].
pub(super) const TASKS_MAX: usize = 50;
const OTHER: &str = "other";
/// Queues of a process with a history of all their turns in a minute: the busiest.
const QUEUES_MAX: usize = 200;

/// A queue, and one of its tasks; none: all its turns.
pub(crate) type Task = (Arc<str>, Option<Arc<str>>);

/// What this process saw and has not written yet.
pub(crate) struct TaskRecorder {
    /// Of this process alone.
    process: String,
    /// The minute of `points`, as seconds.
    minute: i64,
    points: HashMap<Task, TaskPoint>,
    /// By name: those of the present hour and day.
    rows: HashMap<String, Row<TaskPoint>>,
}

impl Default for TaskRecorder {
    fn default() -> Self {
        let process = format!("{:08x}", fastrand::u32(..));
        Self { process, minute: 0, points: HashMap::new(), rows: HashMap::new() }
    }
}

impl TaskRecorder {
    /// Whether there is nothing to write later.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds what was seen since the last time; writes the last minute if it is over.
    pub(crate) async fn add(
        &mut self,
        store: &dyn Store,
        seen: Vec<(Task, TaskPoint)>,
        now: Timestamp,
    ) -> seriatim::Result<()> {
        let now = now.as_micros() / 1_000_000;
        let minute = now - now.rem_euclid(MINUTE);
        if minute != self.minute {
            let points = std::mem::take(&mut self.points);
            let written = std::mem::replace(&mut self.minute, minute);
            self.write(store, written, points).await?;
        }
        for (task, point) in seen {
            let of = self.points.entry(task).or_default();
            *of = of.then(point);
        }
        Ok(())
    }

    async fn write(
        &mut self,
        store: &dyn Store,
        minute: i64,
        points: HashMap<Task, TaskPoint>,
    ) -> seriatim::Result<()> {
        let mut notes = Vec::new();
        for ((queue, task), point) in busiest(points) {
            let name = |series: Series| self.name(series, (&queue, task.as_deref()), minute);
            let told = task.as_deref().unwrap_or_default();
            let (of_hour, of_day) = (name(Series::Minutes), name(Series::Hours));
            let row = self.rows.entry(of_hour.clone()).or_default();
            row.set((minute.rem_euclid(HOUR) / MINUTE) as usize, point);
            notes.push(note(of_hour, told, row));
            let Some(hour) = row.together() else { continue };
            let row = self.rows.entry(of_day.clone()).or_default();
            row.set((minute.rem_euclid(DAY) / HOUR) as usize, hour);
            notes.push(note(of_day, told, row));
        }
        let present =
            [Series::Minutes, Series::Hours].map(|series| format!("/{}/", series.number(minute)));
        self.rows.retain(|name, _| present.iter().any(|number| name.contains(&**number)));
        notes::write(store, notes).await
    }

    /// The row in which this process writes what it saw of them at that time.
    fn name(&self, series: Series, (queue, task): (&str, Option<&str>), at: i64) -> String {
        let number = series.number(at);
        match task {
            Some(task) => {
                let hash = blake3::hash(task.as_bytes()).to_hex();
                let prefix = prefix(TASKS, series, queue, &number);
                format!("{prefix}{}-{}", &hash[..16], self.process)
            }
            None => prefix(TURNS, series, queue, &number) + &self.process,
        }
    }
}

/// The queues and the tasks with most turns, and all other tasks of a queue as one.
fn busiest(points: HashMap<Task, TaskPoint>) -> BTreeMap<Task, TaskPoint> {
    let mut all: Vec<(Task, TaskPoint)> = points.into_iter().collect();
    all.sort_by(|(one, a), (other, b)| b.turns.cmp(&a.turns).then_with(|| one.cmp(other)));
    let (queues, mut tasks): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|((_, task), _)| task.is_none());
    let others = tasks.split_off(tasks.len().min(TASKS_MAX));
    let mut busiest: BTreeMap<Task, TaskPoint> =
        queues.into_iter().take(QUEUES_MAX).chain(tasks).collect();
    for ((queue, _), point) in others {
        let of = busiest.entry((queue, Some(OTHER.into()))).or_default();
        *of = of.then(point);
    }
    busiest
}
