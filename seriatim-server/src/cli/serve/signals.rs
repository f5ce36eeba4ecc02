//! Signals to the process.

use std::time::Duration;

use seriatim::engine::Handle;
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

/// At SIGTTIN, logs the running calls, one per line, oldest first.
pub(crate) fn dump_when_asked(engine: Handle) -> Result<(), SetupError> {
    let mut asked = listen(SignalKind::from_raw(rustix::process::Signal::TTIN.as_raw()))?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            dump(&engine);
        }
    });
    Ok(())
}

fn dump(engine: &Handle) {
    let calls = engine.running();
    tracing::info!(calls = calls.len(), "dump of what runs");
    for call in calls {
        let age_s = call.age.as_secs_f64();
        let task = call.task.as_deref().unwrap_or("");
        let (queue, keys) = (&*call.queue, call.keys.join(","));
        tracing::info!(
            queue,
            task,
            keys,
            lanes = call.lanes,
            age_s,
            ending = call.asked_to_stop,
            "running"
        );
    }
    for worker in engine.periodic() {
        let state = format!("{:?}", worker.state);
        tracing::info!(name = worker.name, state, runs = worker.runs, "periodic worker");
    }
}

fn listen(kind: SignalKind) -> Result<Signal, SetupError> {
    signal(kind).map_err(|e| SetupError::failed(format!("cannot listen for signals: {e}")))
}

async fn any(term: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
