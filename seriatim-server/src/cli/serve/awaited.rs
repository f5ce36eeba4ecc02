//! A store that is away when a node starts: the two often start together, and the database takes longer.

use std::future::Future;
use std::time::{Duration, Instant};

use seriatim::store::declare_each;
use seriatim::{ErrorKind, Queue, SharedStore};

use crate::cli::args::connect;
use crate::cli::output::Failure;

/// The pause after the first attempt; each of the next is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Opens the store, and declares the queues there, as soon as it answers, which is waited for without an
/// end; `None` when the process is told to stop before. What no waiting would change, as a wrong
/// password, is an error at once.
pub(super) async fn open(
    url: &str,
    queues: &[Queue],
    stop: impl Future<Output = ()>,
) -> Result<Option<SharedStore>, Failure> {
    tokio::select! {
        biased;
        store = when_it_answers(url, queues) => store.map(Some),
        () = stop => Ok(None),
    }
}

/// The engine declares queues too, but later: a push to one that is not there yet would make it, and of
/// another mode.
async fn opened(url: &str, queues: &[Queue]) -> seriatim::Result<SharedStore> {
    let store = connect(url).await?;
    // What cannot be declared yet the engine tells, and tries again.
    declare_each(&*store, queues, false).await?;
    Ok(store)
}

async fn when_it_answers(url: &str, queues: &[Queue]) -> Result<SharedStore, Failure> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let error = match opened(url, queues).await {
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
            tracing::warn!(%error, "the store does not answer: trying until it does");
        } else {
            tracing::debug!(%error, "the store still does not answer");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
