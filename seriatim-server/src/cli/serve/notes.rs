//! What a node notes in the store beside the jobs: their failures, and their events if it keeps a journal.

use std::sync::Arc;
use std::time::Duration;

use seriatim::SharedStore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::app::failures::Failures;
use crate::journal::Journal;

/// How long a node that stops tries to write its last notes, and the pause before it tries again.
const LAST_NOTES_MAX: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_millis(250);

pub(super) struct Notes {
    pub(super) failures: Arc<Failures>,
    journal: Arc<Journal>,
    tasks: [JoinHandle<()>; 2],
}

impl Notes {
    /// Writes what comes.
    pub(super) fn keep(store: &SharedStore, journal: &Arc<Journal>) -> Self {
        let failures = Arc::new(Failures::default());
        let (noted, first) = (failures.clone(), store.clone());
        let (events, second) = (journal.clone(), store.clone());
        let tasks = [
            tokio::spawn(async move { noted.run(&*first).await }),
            tokio::spawn(async move {
                if let Some(book) = events.book() {
                    book.run(&*second).await;
                }
            }),
        ];
        Self { failures, journal: journal.clone(), tasks }
    }

    /// Writes the last ones, also those that are on their way: for at most [`LAST_NOTES_MAX`].
    pub(super) async fn end(self, store: &SharedStore) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let (failures, book) = (&self.failures, self.journal.book());
        let noted =
            written("failures of jobs are not noted", async || failures.write(&**store).await);
        let kept = written("events of jobs are not in the journal", async || match book {
            Some(book) => book.flush(&**store).await,
            None => Ok(()),
        });
        tokio::join!(noted, kept);
    }
}

/// Writes until the store has taken it, refuses it, or the time is up.
async fn written(otherwise: &str, write: impl AsyncFn() -> seriatim::Result<()>) {
    let all = async {
        loop {
            match write().await {
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "cannot write the last notes yet");
                    sleep(AGAIN_AFTER).await;
                }
                ended => return ended,
            }
        }
    };
    match timeout(LAST_NOTES_MAX, all).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last {otherwise}: the store refuses them"),
        Err(_) => tracing::warn!(
            "the last {otherwise}: the store did not take them within {} s",
            LAST_NOTES_MAX.as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use seriatim::{Error, ErrorKind};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_notes_are_tried_again_but_hold_the_end_up_for_a_limited_time_only() {
        let tries = Cell::new(0);
        let third = async || {
            tries.set(tries.get() + 1);
            match tries.get() {
                3 => Ok(()),
                _ => Err(Error::new(ErrorKind::Unavailable, "a server is away")),
            }
        };
        written("notes", third).await;
        assert_eq!(tries.get(), 3);
        let began = Instant::now();
        written("notes", async || std::future::pending().await).await;
        assert!((LAST_NOTES_MAX..LAST_NOTES_MAX * 2).contains(&began.elapsed()));
    }
}
