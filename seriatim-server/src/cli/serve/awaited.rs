//! A store that does not answer when a node starts: often both start together, and the database takes longer.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seriatim::store::declare_each;
use seriatim::{ErrorKind, Queue, SharedStore};

use crate::app::payloads::Forms;
use crate::cli::args::connect;
use crate::cli::output::Result;

/// The pause after the first attempt; each of the next is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Opens the store and declares the queues as soon as it answers, with unlimited retries; `None` if a signal
/// comes first. Permanent failures, such as a wrong password, are errors immediately.
pub(super) async fn open(
    url: &str,
    forms: &Arc<Forms>,
    queues: &[Queue],
    stop: impl Future<Output = ()>,
) -> Result<Option<SharedStore>> {
    tokio::select! {
        biased;
        store = when_it_answers(url, forms, queues) => store.map(Some),
        () = stop => Ok(None),
    }
}

/// The engine declares queues too, but later: a push to one that is not there yet would make it, and of
/// another mode.
async fn opened(url: &str, forms: &Arc<Forms>, queues: &[Queue]) -> seriatim::Result<SharedStore> {
    let store = connect(url, forms).await?;
    // The engine reports queues that cannot be declared yet, and retries.
    declare_each(&*store, queues, false).await?;
    Ok(store)
}

async fn when_it_answers(url: &str, forms: &Arc<Forms>, queues: &[Queue]) -> Result<SharedStore> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let error = match opened(url, forms, queues).await {
            Ok(store) => {
                if pause > PAUSE_MIN {
                    let after_ms = started.elapsed().as_millis() as u64;
                    tracing::info!(after_ms, "the store answers");
                }
                return Ok(store);
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => error,
            Err(error) => return Err(error.into()),
        };
        if pause == PAUSE_MIN {
            tracing::warn!(%error, "the store does not answer: retrying");
        } else {
            tracing::debug!(%error, "the store still does not answer");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
