//! The task that hears of other processes' wake-ups while this one has listeners.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use mysql_async::Row;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::definitions::{Known, STAMP};
use super::error::Try;
use super::migrate::not_set_up;
use super::rings::Rings;
use super::sleepers::BELIEVED;
use super::sql::{Columns, INBOX_WAITS};
use super::work::Lock;
use super::{Inner, sleepers};
use crate::contract::{INBOX_BELL, Wake};
use crate::lock::lock;
use crate::model::Result;
use crate::stores::state::QueueRow;

/// Time to the next poll after a change was found.
const POLL_MIN: Duration = Duration::from_millis(20);
/// The same where two others were woken: the next one may be for this process.
const POLL_AMONG_OTHERS: Duration = Duration::from_millis(100);
/// Longest time between polls while nothing changes.
const POLL_MAX: Duration = Duration::from_millis(200);
/// Time between deletions of old rows.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Limit for what is said as the store closes.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);
/// After a longer time without a poll, other processes may have deleted rows that this one has not read.
const AWAY_MAX: Duration = Duration::from_secs(20);

/// The polling task. It ends with the store.
#[derive(Default)]
pub(super) struct Poll(Mutex<Option<JoinHandle<()>>>);

impl Poll {
    /// Starts polling, unless it is running.
    pub(super) fn start(&self, store: &Arc<Inner>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut task = lock(&self.0);
        let was_polling = store.is_polling.swap(true, Ordering::SeqCst);
        if !was_polling || task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(runtime.spawn(listen(Arc::downgrade(store))));
        }
    }

    /// Lets it end by itself if nobody listens any more, so that it says so. Otherwise, or if that takes long, ends it.
    pub(super) async fn finish(&self, store: &Inner) {
        let Some(task) = lock(&self.0).take() else { return };
        let ends = task.abort_handle();
        if !store.bell.has_listeners() {
            store.news.notify_one();
            let _ = timeout(LAST_WORD_MAX, task).await;
        }
        ends.abort();
        let known = store.definitions.known();
        let end = store.sleepers.end(&store.pool, &known);
        let _ = timeout(LAST_WORD_MAX, end).await;
    }

    pub(super) fn stop(&self) {
        if let Some(task) = lock(&self.0).take() {
            task.abort();
        }
    }
}

/// Rings for what other processes changed. Polls less often while nothing changes.
async fn listen(store: Weak<Inner>) {
    let (mut ear, mut pause) = (Ear::default(), Duration::ZERO);
    loop {
        let Some(news) = store.upgrade().map(|store| store.news.clone()) else { return };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = news.notified() => {}
        }
        let Some(store) = store.upgrade() else { return };
        if !store.bell.has_listeners() {
            store.sleepers.end(&store.pool, &store.definitions.known()).await;
            // What this process was told until then is for others.
            let _ = ear.hear_and_tell(&store, Instant::now()).await;
            store.quiet.deafen();
            (ear, pause) = (Ear::default(), Duration::ZERO);
            store.is_polling.store(false, Ordering::SeqCst);
            // Somebody may listen again by now, and may have begun to poll.
            if !store.bell.has_listeners() || store.is_polling.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        match ear.hear_and_tell(&store, Instant::now()).await {
            Ok(Found::More) => pause = Duration::ZERO,
            Ok(Found::All) => pause = POLL_MIN,
            Ok(Found::Others) => pause = (pause * 2).clamp(POLL_MIN, POLL_AMONG_OTHERS),
            Ok(Found::Nothing) => pause = (pause * 2).clamp(POLL_MIN, POLL_MAX),
            // A server that does not answer is asked again, and may be another one then.
            Err(error) => {
                tracing::debug!(%error, "MySQL did not tell what other processes changed");
                (ear, pause) = (Ear::default(), POLL_MAX);
                store.quiet.deafen();
            }
        }
    }
}

/// What this process knows of other ones' changes.
#[derive(Default)]
pub(super) struct Ear {
    /// When rows of processes that are gone were last looked for.
    swept: Option<Instant>,
    /// `None`: the next poll finds where to start.
    rings: Option<Rings>,
    known: Arc<Known>,
    polled: Option<Instant>,
    trimmed: Option<Instant>,
}

/// What a poll found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Nothing but what is for others.
    Others,
    /// All that there was.
    All,
    /// As many rows as one poll reads.
    More,
}

/// What a poll has read.
struct Polled {
    wake: Wake,
    /// The queues for which two others were woken.
    of_others: Wake,
    /// Whether there may be more to read.
    more: bool,
}

impl Ear {
    /// Wakes the listeners, and tells the other processes where this one waits.
    async fn hear_and_tell(&mut self, store: &Inner, now: Instant) -> Result<Found> {
        let found = self.ring(store, now).await?;
        store.sleepers.tell(&store.pool, &store.bell, &self.known, now).await;
        Ok(found)
    }

    /// Wakes the listeners to what changed since the last call.
    pub(super) async fn ring(&mut self, store: &Inner, now: Instant) -> Result<Found> {
        let Polled { wake, of_others, more } = self.poll(store, now).await?;
        // It is no longer known that nothing is due there.
        store.quiet.rung(&of_others);
        store.ring(&wake);
        store.quiet.heard(now);
        Ok(match (more, wake.is_empty(), of_others.is_empty()) {
            (true, ..) => Found::More,
            (false, false, _) => Found::All,
            (false, true, false) => Found::Others,
            (false, true, true) => Found::Nothing,
        })
    }

    /// Reads what changed since the last poll, in one round trip.
    async fn poll(&mut self, store: &Inner, now: Instant) -> Result<Polled> {
        if self.polled.replace(now).is_some_and(|polled| now - polled > AWAY_MAX) {
            self.rings = None;
        }
        let rows = match &self.rings {
            Some(rings) => rings.statement(store.pool.process),
            None => Rings::NEWEST.to_owned(),
        };
        let sql = format!("{STAMP}; {rows}; {INBOX_WAITS}");
        let (stamp, rows, waits) = answers_to(store, &sql).await?;
        let wake = if waits { Wake::of([INBOX_BELL]) } else { Wake::of([]) };
        let mut polled = Polled { wake, of_others: Wake::of([]), more: false };
        if stamp != self.known.stamp {
            polled.wake.merge(&Box::pin(self.redefine(store)).await?);
        }
        self.hear(store, rows, now, &mut polled)?;
        if self.trimmed.is_none_or(|trimmed| now - trimmed >= TRIM_EVERY) {
            Box::pin(self.trim(store, now)).await?;
        }
        Ok(polled)
    }

    /// Adds the queues of these rows.
    fn hear(
        &mut self,
        store: &Inner,
        rows: Vec<Row>,
        now: Instant,
        polled: &mut Polled,
    ) -> Try<()> {
        let rows = rows.into_iter().map(Columns::of);
        let Some(rings) = &mut self.rings else {
            let newest = rows.into_iter().next().map(|mut row| row.int()).transpose()?;
            self.rings = Some(Rings::after(newest.unwrap_or_default() as u64, now));
            polled.wake = Wake::All;
            return Ok(());
        };
        let rows: Try<Vec<_>> = rows.map(|mut row| Rings::read(&mut row)).collect();
        let Some(heard) = rings.heard(&rows?, now) else {
            self.rings = None;
            (polled.wake, polled.more) = (Wake::All, true);
            return Ok(());
        };
        for number in &heard.queues {
            match self.known.queues.get(number) {
                Some(row) => polled.wake.add(&row.name),
                // It was made after the definitions were read, or is gone.
                None => polled.wake = Wake::All,
            }
        }
        let name = |number| self.known.queues.get(number).map(|row| &*row.name);
        let mut asleep = store.sleepers.asleep();
        for queue in heard.named.iter().filter_map(name) {
            asleep.is_named(queue, store.bell.is_awaited(queue));
        }
        polled.of_others = Wake::of(heard.of_others.iter().filter_map(name));
        polled.more = heard.more;
        Ok(())
    }

    /// Reads the definitions. Returns the queues that are new, other ones, or gone.
    async fn redefine(&mut self, store: &Inner) -> Result<Wake> {
        let read = transact!(store, Lock::Look, None, work => async { Ok(work.known.clone()) })?;
        let before = std::mem::replace(&mut self.known, read);
        let shape = |row: &QueueRow| (row.name.clone(), row.paused, row.closing, row.declared);
        let mut wake = Wake::of([]);
        let numbers: BTreeSet<_> = before.queues.keys().chain(self.known.queues.keys()).collect();
        for number in numbers {
            let (old, new) = (before.queues.get(number), self.known.queues.get(number));
            let is_same = |(old, new): (&QueueRow, &QueueRow)| {
                shape(old) == shape(new) && old.queue == new.queue
            };
            if !old.zip(new).is_some_and(is_same) {
                old.into_iter().chain(new).for_each(|row| wake.add(&row.name));
            }
        }
        Ok(wake)
    }

    /// Deletes rows that every process has read.
    async fn trim(&mut self, store: &Inner, now: Instant) -> Result<()> {
        let Some(rings) = &mut self.rings else { return Ok(()) };
        let (old, rings) = (rings.old(now), &*rings);
        let more = old > 0 && transact!(store, Lock::FREE, None, work => rings.delete(work, old))?;
        if !more {
            self.trimmed = Some(now);
        }
        if self.swept.is_none_or(|swept| now - swept >= BELIEVED) {
            self.swept = Some(now);
            sleepers::trim(&store.pool).await?;
        }
        Ok(())
    }
}

/// The version of the definitions, the rows of the second statement, and whether the third has some.
async fn answers_to(store: &Inner, sql: &str) -> Result<(i64, Vec<Row>, bool)> {
    let mut answers = store.pool.ask(sql).await?.into_iter().map(|answer| answer.rows);
    let stamp = answers.next().and_then(|rows| rows.into_iter().next());
    let stamp = Columns::of(stamp.ok_or_else(not_set_up)?).int()?;
    let rows = answers.next().unwrap_or_default();
    Ok((stamp, rows, answers.next().is_some_and(|rows| !rows.is_empty())))
}
