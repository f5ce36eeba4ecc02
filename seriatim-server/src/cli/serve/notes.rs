//! What a node notes in the store beside the jobs: their failures, and their events if it keeps a journal.

use std::sync::Arc;

use seriatim::SharedStore;
use tokio::task::JoinHandle;

use crate::app::failures::Failures;
use crate::journal::Journal;

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

    /// Writes the last ones.
    pub(super) async fn end(self, store: &SharedStore) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.failures.write(&**store).await;
        if let Some(book) = self.journal.book()
            && let Err(error) = book.flush(&**store).await
        {
            tracing::warn!(%error, "the last events of jobs are not in the journal");
        }
    }
}
