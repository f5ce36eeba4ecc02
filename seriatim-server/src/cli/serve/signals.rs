//! Signals to the process.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::base::setup_error::SetupError;
use crate::workers;

/// Signals that follow each other so closely are one: `timeout` and shells send theirs to a process and
/// to its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Resolves at the first SIGTERM or SIGINT; the second ends the process immediately.
pub(crate) fn stop_requested() -> Result<impl Future<Output = ()>, SetupError> {
    let (mut term, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        any(&mut term, &mut interrupt).await;
        let first = Instant::now();
        tracing::info!("stopping: no new work; a second signal stops immediately");
        tokio::spawn(async move {
            any(&mut term, &mut interrupt).await;
            while first.elapsed() < ONE_SIGNAL {
                tracing::info!("ignored a repeated signal");
                any(&mut term, &mut interrupt).await;
            }
            tracing::warn!(
                "stopped immediately: other nodes take over the running turns when their leases expire"
            );
            workers::kill_all();
            std::process::exit(1);
        });
    })
}

/// A stream of this signal.
pub(super) fn listen(kind: SignalKind) -> Result<Signal, SetupError> {
    signal(kind).map_err(|e| SetupError::failed(format!("cannot listen for signals: {e}")))
}

async fn any(term: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
