//! Writes the history of tasks: each process what it saw itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use seriatim::Timestamp;
use seriatim::limits::NOTES_MAX;
use seriatim::store::Store;

use super::point::{Interval, NUMBERS, Row};
use super::series::{DAY, HOUR, MINUTE, Series};
use super::tasks::{note, prefix};

/// Tasks of a process with a history of their own in a minute; all others of a queue together are [`OTHER`].
pub(super) const TASKS_MAX: usize = 50;
const OTHER: &str = "other";

/// A task of a queue.
pub(crate) type Task = (Arc<str>, Arc<str>);

/// Turns of a task in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskPoint {
    pub(crate) turns: u64,
    pub(crate) failed: u64,
    /// Of all turns together.
    pub(crate) took_ms: u64,
    pub(crate) longest_ms: u64,
}

impl Interval for TaskPoint {
    fn numbers(self) -> [u64; NUMBERS] {
        [self.turns, self.failed, self.took_ms, self.longest_ms, 0, 0, 0]
    }

    fn of([turns, failed, took_ms, longest_ms, ..]: [u64; NUMBERS]) -> Self {
        Self { turns, failed, took_ms, longest_ms }
    }

    fn then(self, next: Self) -> Self {
        Self {
            turns: self.turns + next.turns,
            failed: self.failed + next.failed,
            took_ms: self.took_ms + next.took_ms,
            longest_ms: self.longest_ms.max(next.longest_ms),
        }
    }
}

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
            let name = |series: Series| self.name(series, (&queue, &task), minute);
            let (of_hour, of_day) = (name(Series::Minutes), name(Series::Hours));
            let row = self.rows.entry(of_hour.clone()).or_default();
            row.set((minute.rem_euclid(HOUR) / MINUTE) as usize, point);
            notes.push(note(of_hour, &task, row));
            let Some(hour) = row.together() else { continue };
            let row = self.rows.entry(of_day.clone()).or_default();
            row.set((minute.rem_euclid(DAY) / HOUR) as usize, hour);
            notes.push(note(of_day, &task, row));
        }
        let present =
            [Series::Minutes, Series::Hours].map(|series| format!("/{}/", series.number(minute)));
        self.rows.retain(|name, _| present.iter().any(|number| name.contains(&**number)));
        while !notes.is_empty() {
            let part = notes.split_off(notes.len().saturating_sub(NOTES_MAX));
            store.write_notes(part).await?;
        }
        Ok(())
    }

    /// The row of a task in which this process writes what it saw at that time.
    fn name(&self, series: Series, (queue, task): (&str, &str), at: i64) -> String {
        let hash = blake3::hash(task.as_bytes()).to_hex();
        format!("{}{}-{}", prefix(series, queue, &series.number(at)), &hash[..16], self.process)
    }
}

/// Those with most turns, and all others of a queue as one.
fn busiest(points: HashMap<Task, TaskPoint>) -> BTreeMap<Task, TaskPoint> {
    let mut all: Vec<(Task, TaskPoint)> = points.into_iter().collect();
    all.sort_by(|(one, a), (other, b)| b.turns.cmp(&a.turns).then_with(|| one.cmp(other)));
    let others = all.split_off(all.len().min(TASKS_MAX));
    let mut busiest: BTreeMap<Task, TaskPoint> = all.into_iter().collect();
    for ((queue, _), point) in others {
        let of = busiest.entry((queue, OTHER.into())).or_default();
        *of = of.then(point);
    }
    busiest
}
