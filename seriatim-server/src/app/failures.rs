//! The latest failures of jobs, as the store remembers them: nodes that serve note them beside the jobs.

use std::sync::Mutex;
use std::time::Duration;

use seriatim::engine::FailedTurn;
use seriatim::limits::NOTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};
use seriatim::text::cut_middle;
use seriatim::{Error, JobId, Timestamp};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::notes;
use crate::base::lock::lock;
use crate::protocol::document::JobFailure as Failure;
use crate::protocol::value::Time;

/// Failures shown of a job.
const SHOWN: usize = 8;
/// Failures that a store remembers, and how long.
const FAILURES_MAX: usize = 100_000;
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Jobs of one turn whose failure is noted.
const JOBS_MAX: usize = 20;
/// Longest error in a note, in bytes: the job itself has its last one as a whole.
const ERROR_BYTES_MAX: usize = 1_000;
/// Failures that a node notes in each window; in a storm, the jobs still have their last error.
const NOTED_MAX: usize = 200;
const WINDOW: Duration = Duration::from_secs(10);
/// The pause after the store did not take them.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Failures of this node on their way to the store.
#[derive(Default)]
pub(crate) struct Failures {
    pending: Mutex<Pending>,
    some: Notify,
    /// Held while some are written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Pending {
    notes: Vec<Note>,
    window: Option<Instant>,
    noted: usize,
}

fn prefix(job: JobId) -> String {
    format!("failed/{job}/")
}

/// A failure of a job, as the store remembers it.
pub(crate) fn note(job: JobId, failure: &Failure) -> Note {
    // Texts and numbers only: writing them cannot fail.
    let value = serde_json::to_vec(failure).unwrap_or_default();
    Note::new(prefix(job) + &notes::moment(failure.at.0), value)
}

impl Failures {
    /// Takes a failure, to be written soon.
    pub(crate) fn add(&self, failed: &FailedTurn<'_>) {
        let now = Timestamp::of_this_machine();
        let mut pending = lock(&self.pending);
        if pending.window.is_none_or(|begun| begun.elapsed() >= WINDOW) {
            (pending.window, pending.noted) = (Some(Instant::now()), 0);
        }
        let left = NOTED_MAX - pending.noted;
        for job in failed.jobs.iter().take(JOBS_MAX.min(left)) {
            let failure = Failure {
                at: Time(now),
                attempt: job.attempt,
                node: failed.node.map(str::to_owned),
                error: cut_middle(failed.error, ERROR_BYTES_MAX).into_owned(),
            };
            pending.notes.push(note(job.id, &failure));
            pending.noted += 1;
        }
        // Those that the store has not taken meanwhile are lost.
        pending.notes.truncate(NOTES_MAX);
        drop(pending);
        self.some.notify_one();
    }

    /// Writes what is added, until the last user of the store drops this.
    pub(crate) async fn run(&self, store: &dyn Store) {
        loop {
            self.some.notified().await;
            while let Err(error) = self.write(store).await {
                tracing::debug!(%error, "cannot note failures of jobs");
                sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// Writes what has been added. If the store is away, or the caller gives up, nothing is lost yet: the next call writes
    /// it too.
    pub(crate) async fn write(&self, store: &dyn Store) -> seriatim::Result<()> {
        let _writing = self.writing.lock().await;
        let notes = lock(&self.pending).notes.clone();
        if notes.is_empty() {
            return Ok(());
        }
        let count = notes.len();
        let written = store.write_notes(notes).await;
        if !written.as_ref().is_err_and(Error::is_transient) {
            lock(&self.pending).notes.drain(..count);
        }
        written
    }
}

/// What is noted of a job's failures.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Noted {
    /// The latest ones, the last one first.
    pub(crate) latest: Vec<Failure>,
    /// When it first failed.
    pub(crate) first: Option<Time>,
}

impl Noted {
    /// When it last failed after a retry.
    pub(crate) fn retried(&self) -> Option<Time> {
        self.latest.first().filter(|_| self.latest.len() > 1).map(|failure| failure.at)
    }
}

/// The failures of a job.
pub(crate) async fn of(store: &dyn Store, job: JobId) -> seriatim::Result<Noted> {
    let all = NoteQuery::of(&prefix(job));
    let latest = NoteQuery { backwards: true, rows_max: SHOWN, ..all.clone() };
    let latest = read(store, latest).await?;
    let first = match latest.len() < SHOWN {
        true => latest.last().map(|failure| failure.at),
        false => {
            let first = read(store, NoteQuery { rows_max: 1, ..all }).await?;
            first.first().map(|failure| failure.at)
        }
    };
    Ok(Noted { latest, first })
}

async fn read(store: &dyn Store, query: NoteQuery) -> seriatim::Result<Vec<Failure>> {
    let notes = store.read_notes(query).await?;
    Ok(notes.iter().filter_map(|note| serde_json::from_slice(&note.value).ok()).collect())
}

/// Forgets those of old jobs, and of the oldest ones if they are too many. Job ids are in the order of time.
pub(crate) async fn trim(store: &dyn Store, now: Timestamp) -> seriatim::Result<()> {
    let oldest = prefix(JobId::new((now - KEPT_FOR).max(Timestamp::default()), 0, 0, 0));
    delete(store, &oldest, usize::MAX).await?;
    let count = notes::count(store, "failed/").await?;
    delete(store, "failed/~", count.saturating_sub(FAILURES_MAX)).await
}

/// Deletes at most `most` notes before a name.
async fn delete(store: &dyn Store, before: &str, most: usize) -> seriatim::Result<()> {
    let mut left = most;
    while left > 0 {
        let rows_max = left.min(NOTES_MAX);
        let query =
            NoteQuery { rows_max, ..NoteQuery::new("failed/".to_owned()..before.to_owned()) };
        let gone = store.delete_notes(query).await? as usize;
        if gone < rows_max {
            break;
        }
        left -= gone;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seriatim::SharedStore;
    use seriatim::store::{Memory, Notebook, Wrapper};
    use tokio::time::timeout;

    use super::*;

    /// A store that does not answer.
    struct Silent(SharedStore);

    impl Wrapper for Silent {
        fn inner(&self) -> &SharedStore {
            &self.0
        }

        async fn around<T: Send + 'static>(
            &self,
            _: &'static str,
            _: impl Future<Output = seriatim::Result<T>> + Send + 'static,
        ) -> seriatim::Result<T> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_on_its_way_when_the_writing_ended_is_written_by_the_next_one() {
        let (store, now) = (Arc::new(Memory::new()), Timestamp::from_micros(1_700_000_000_000_000));
        let (failures, job) = (Failures::default(), job(now, 1));
        let failure = Failure { at: Time(now), attempt: 1, node: None, error: "late".into() };
        lock(&failures.pending).notes.push(super::note(job, &failure));
        let silent = Silent(store.clone());
        assert!(timeout(WINDOW, failures.write(&silent)).await.is_err());
        failures.write(&*store).await.unwrap();
        assert_eq!(of(&*store, job).await.unwrap().latest, [failure]);
        assert!(lock(&failures.pending).notes.is_empty());
    }

    async fn note(store: &Memory, job: JobId, at: i64) {
        let failure = Failure {
            at: Time(Timestamp::from_micros(at)),
            attempt: 1,
            node: None,
            error: format!("at {at}"),
        };
        let value = serde_json::to_vec(&failure).unwrap();
        store
            .write_notes(vec![Note::new(format!("{}{at:016}", prefix(job)), value)])
            .await
            .unwrap();
    }

    fn job(at: Timestamp, seq: u64) -> JobId {
        JobId::new(at, 1, 0, seq)
    }

    #[tokio::test]
    async fn a_job_shows_its_latest_failures_and_no_others() {
        let (store, now) = (Memory::new(), Timestamp::from_micros(1_700_000_000_000_000));
        for i in 0..20 {
            note(&store, job(now, 1 + i % 2), i as i64).await;
        }
        let noted = of(&store, job(now, 2)).await.unwrap();
        let errors: Vec<&str> = noted.latest.iter().map(|failure| &*failure.error).collect();
        assert_eq!(errors, ["at 19", "at 17", "at 15", "at 13", "at 11", "at 9", "at 7", "at 5"]);
        let time = |micros| Some(Time(Timestamp::from_micros(micros)));
        assert_eq!((noted.first, noted.retried()), (time(1), time(19)), "as Sidekiq has them");
        assert_eq!(of(&store, job(now, 3)).await.unwrap(), Noted::default());
        note(&store, job(now, 4), 7).await;
        let once = of(&store, job(now, 4)).await.unwrap();
        assert_eq!((once.first, once.retried()), (time(7), None));
    }

    #[tokio::test]
    async fn failures_of_old_jobs_are_forgotten() {
        let (store, now) = (Memory::new(), Timestamp::from_micros(1_700_000_000_000_000));
        let (old, new) = (job(now - KEPT_FOR * 2, 1), job(now, 2));
        note(&store, old, 1).await;
        note(&store, new, 2).await;
        trim(&store, now).await.unwrap();
        assert_eq!(of(&store, old).await.unwrap(), Noted::default());
        assert_eq!(of(&store, new).await.unwrap().latest.len(), 1);
    }
}
