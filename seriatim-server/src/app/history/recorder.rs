//! Writes the history: each minute the figures of the busiest queues.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use seriatim::Timestamp;
use seriatim::limits::NOTES_MAX;
use seriatim::store::{NoteQuery, Store};

use super::point::{Interval, Point, StorePoint};
use super::rows::Rows;
use super::series::{ALL, FIGURES, HOUR, MINUTE, OTHER, SERVER, Series, TASKS, TURNS};
use crate::app::figures::Figures;
use crate::app::notes;

/// Queues with a history of their own.
const QUEUES_MAX: usize = 200;
/// Old rows are deleted so often, in seconds.
const CLEAN_EVERY: i64 = 6 * HOUR;

/// What this process knows of the time that is not written yet.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Counters of the sample before: jobs done and turns failed.
    counters: HashMap<Arc<str>, (u64, u64)>,
    /// The minute of `points`, as seconds.
    minute: i64,
    points: HashMap<Arc<str>, Point>,
    /// The lag of its queues in that minute while they were not paused.
    lags: HashMap<Arc<str>, u64>,
    rows: Rows<Point>,
    server: Rows<StorePoint>,
    /// What the server had counted a minute before.
    operations: Option<u64>,
    cleaned: i64,
}

impl Recorder {
    /// Adds a sample; writes the last minute if it is over.
    pub(crate) async fn add(
        &mut self,
        store: &dyn Store,
        figures: &[Figures],
        now: Timestamp,
    ) -> seriatim::Result<()> {
        let now = now.as_micros() / 1_000_000;
        let minute = now - now.rem_euclid(MINUTE);
        if minute != self.minute {
            let both = (std::mem::take(&mut self.points), std::mem::take(&mut self.lags));
            let written = std::mem::replace(&mut self.minute, minute);
            self.write(store, written, both).await?;
        }
        let before = std::mem::take(&mut self.counters);
        for of in figures {
            self.take(of, before.get(&of.stats.queue).copied());
        }
        if now - self.cleaned >= CLEAN_EVERY {
            self.cleaned = now;
            clean(store, now).await?;
        }
        Ok(())
    }

    fn take(&mut self, of: &Figures, before: Option<(u64, u64)>) {
        let stats = &of.stats;
        let counters = (stats.processed, stats.failed);
        // A queue that is new here is counted from its next sample on.
        let before = before.unwrap_or(counters);
        self.counters.insert(stats.queue.clone(), counters);
        let lag = self.lags.entry(stats.queue.clone()).or_default();
        *lag = of.lag_in_total().as_secs().max(*lag);
        let point = self.points.entry(stats.queue.clone()).or_default();
        *point = point.then(Point {
            done: counters.0.saturating_sub(before.0),
            failed: counters.1.saturating_sub(before.1),
            lag: stats.lag.as_secs(),
            jobs: stats.jobs,
            running: of.running(),
            retrying: stats.retrying,
            dead: stats.dead,
        });
    }

    /// The figures of the store's server, if it has any.
    async fn of_server(&mut self, store: &dyn Store) -> seriatim::Result<Option<StorePoint>> {
        let vitals = store.vitals().await?;
        let before = std::mem::replace(&mut self.operations, vitals.operations);
        // After a restart of the server its counter is below the one before.
        let counted = before.zip(vitals.operations).and_then(|(old, new)| new.checked_sub(old));
        let point = StorePoint {
            bytes: vitals.bytes.unwrap_or_default(),
            connections: vitals.connections.unwrap_or_default(),
            operations: counted.unwrap_or_default(),
        };
        Ok((point != StorePoint::default()).then_some(point))
    }

    async fn write(
        &mut self,
        store: &dyn Store,
        minute: i64,
        (points, lags): (HashMap<Arc<str>, Point>, HashMap<Arc<str>, u64>),
    ) -> seriatim::Result<()> {
        let part = |(queue, point): (&Arc<str>, &Point)| Point {
            lag: lags.get(queue).copied().unwrap_or_default(),
            ..*point
        };
        let Some(all) = points.iter().map(part).reduce(Point::and) else { return Ok(()) };
        let mut busy: Vec<(Arc<str>, Point)> =
            points.into_iter().filter(|(_, point)| !point.is_idle()).collect();
        busy.sort_by_key(|(queue, point)| {
            (Reverse(point.done + point.failed + point.jobs), queue.clone())
        });
        let rest = busy.split_off(busy.len().min(QUEUES_MAX));
        let others = rest.iter().map(|(queue, point)| part((queue, point))).reduce(Point::and);
        busy.extend(others.map(|point| (OTHER.into(), point)));
        busy.push((ALL.into(), all));
        let mut notes = Vec::new();
        for (queue, point) in busy {
            self.rows.note(store, &queue, minute, point, &mut notes).await?;
        }
        match self.of_server(store).await {
            Ok(Some(point)) => {
                self.server.note(store, SERVER, minute, point, &mut notes).await?;
            }
            Ok(None) => {}
            // A server may keep its figures to itself: those of the queues are not lost with them.
            Err(error) => tracing::debug!(%error, "cannot read the size of the store"),
        }
        self.rows.keep(minute);
        self.server.keep(minute);
        notes::write(store, notes).await
    }
}

/// Deletes rows that are too old, of all queues, also of those that are gone.
pub(super) async fn clean(store: &dyn Store, now: i64) -> seriatim::Result<()> {
    let both = |about| [(about, Series::Minutes), (about, Series::Hours)];
    for (about, series) in [FIGURES, TURNS, TASKS].into_iter().flat_map(both) {
        let all = series.prefix(about);
        let oldest = series.number(now - series.kept());
        let mut query = NoteQuery { rows_max: 1, names_only: true, ..NoteQuery::of(&all) };
        while let Some(note) = store.read_notes(query.clone()).await?.pop() {
            let queue = note.name[all.len()..].split('/').next().unwrap_or_default();
            let rows = format!("{all}{queue}/")..format!("{all}{queue}/{oldest}");
            // A step deletes some; a queue of many tasks has more.
            while store.delete_notes(NoteQuery::new(rows.clone())).await? == NOTES_MAX as u64 {}
            query.from = format!("{all}{queue}/\x7f");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::store::{Memory, Note, Notebook, QueueStats};

    use super::super::{Span, read};
    use super::*;

    fn figures(queue: &str, processed: u64, lag: u64) -> Figures {
        let lag = Duration::from_secs(lag);
        let stats =
            QueueStats { queue: queue.into(), processed, jobs: 1, lag, ..QueueStats::default() };
        Figures { stats, prefetched: 0 }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_700_000_040 + seconds) * 1_000_000)
    }

    #[tokio::test]
    async fn a_minute_is_what_its_samples_were_together() {
        let (store, mut recorder) = (Memory::new(), Recorder::default());
        for (seconds, processed, lag) in
            [(0, 100, 1), (10, 130, 9), (50, 150, 2), (70, 180, 3), (125, 200, 0)]
        {
            recorder.add(&store, &[figures("a", processed, lag)], at(seconds)).await.unwrap();
        }
        let minutes = read::<Point>(&store, "a", Span::Hour, at(130)).await.unwrap();
        let told: Vec<_> =
            minutes.iter().map(|(at, point)| (at % 3_600, point.done, point.lag)).collect();
        let first = at(0).as_micros() / 1_000_000 % 3_600;
        assert_eq!(told, [(first, 50, 9), (first + 60, 30, 3)]);
        assert_eq!(read(&store, ALL, Span::Hour, at(130)).await.unwrap(), minutes);
    }

    #[tokio::test]
    async fn the_lag_of_a_paused_queue_is_in_its_own_history_alone() {
        let (store, mut recorder) = (Memory::new(), Recorder::default());
        for seconds in [0, 60] {
            let mut paused = figures("paused", 0, 600);
            paused.stats.paused = true;
            recorder.add(&store, &[figures("late", 0, 7), paused], at(seconds)).await.unwrap();
        }
        for (queue, lag) in [("paused", 600), ("late", 7), (ALL, 7)] {
            let minutes = read::<Point>(&store, queue, Span::Hour, at(70)).await.unwrap();
            let told: Vec<u64> = minutes.iter().map(|(_, point)| point.lag).collect();
            assert_eq!(told, [lag], "{queue}");
        }
    }

    #[tokio::test]
    async fn a_month_has_the_work_of_queues_that_were_busy_for_some_minutes_only() {
        let (store, mut recorder) = (Memory::new(), Recorder::default());
        let busy = |minute: i64, from, to| (from..to).contains(&minute);
        for minute in 0..30 {
            let of = |name, (from, to): (i64, i64)| {
                let mut of = figures(name, 100 * minute.clamp(from, to).unsigned_abs(), 0);
                of.stats.jobs = u64::from(busy(minute, from, to));
                of
            };
            let figures = [of("early", (0, 4)), of("late", (10, 13))];
            recorder.add(&store, &figures, at(60 * minute)).await.unwrap();
        }
        let done = async |queue: &str| {
            let hours = read::<Point>(&store, queue, Span::Month, at(30 * 60)).await.unwrap();
            hours.iter().map(|(_, point)| point.done).sum::<u64>()
        };
        assert_eq!((done("early").await, done("late").await), (400, 300));
        assert_eq!(done(ALL).await, 700);
    }

    #[tokio::test]
    async fn e1_the_size_of_the_store_is_recorded_beside_the_figures() {
        let folder = std::env::temp_dir().join(format!("seriatim-vitals-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("jobs.db").display());
        let store = seriatim::connect(&url).await.unwrap();
        let mut recorder = Recorder::default();
        for seconds in [0, 60, 120] {
            recorder.add(&*store, &[figures("a", 1, 0)], at(seconds)).await.unwrap();
        }
        let points = read::<StorePoint>(&*store, SERVER, Span::Hour, at(130)).await.unwrap();
        store.close().await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(points.len(), 2);
        assert!(points.iter().all(|(_, point)| point.bytes >= 4_096), "{points:?}");
        // Memory has no figures: no row is written.
        let store = Memory::new();
        recorder.add(&store, &[figures("a", 1, 0)], at(180)).await.unwrap();
        let points = read::<StorePoint>(&store, SERVER, Span::Hour, at(190)).await.unwrap();
        assert_eq!(points, []);
    }

    #[tokio::test]
    async fn another_leader_goes_on_in_the_row_that_the_last_one_began() {
        let store = Memory::new();
        for leader in 0..2 {
            let mut recorder = Recorder::default();
            for seconds in [0, 60] {
                let figures = figures("a", (leader * 100 + seconds) as u64, 0);
                recorder.add(&store, &[figures], at(leader * 120 + seconds)).await.unwrap();
            }
        }
        assert_eq!(read::<Point>(&store, "a", Span::Day, at(200)).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_history_is_bounded_in_queues_and_in_time() {
        let (store, mut recorder) = (Memory::new(), Recorder::default());
        let old = Series::Minutes.name("gone", at(0).as_micros() / 1_000_000 - 30 * HOUR);
        store.write_notes(vec![Note::new(old, "")]).await.unwrap();
        for seconds in [0, 60, 120] {
            let many: Vec<_> =
                (0..500).map(|i| figures(&format!("q{i}"), i + seconds, 0)).collect();
            recorder.add(&store, &many, at(seconds as i64)).await.unwrap();
        }
        let notes = store.read_notes(NoteQuery::of("history/")).await.unwrap();
        assert_eq!(notes.iter().filter(|note| note.name.contains("/m/")).count(), QUEUES_MAX + 2);
        assert!(!notes.iter().any(|note| note.name.contains("gone")));
        let all = read::<Point>(&store, ALL, Span::Hour, at(180)).await.unwrap();
        assert_eq!(all[1].1.done, 500 * 60);
    }
}
