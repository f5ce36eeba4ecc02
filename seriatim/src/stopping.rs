//! Detects that the process is asked to stop.

/// Resolves when the process is asked to stop: by SIGTERM (service managers, orchestrators) or Ctrl-C. For
/// [`EngineBuilder::run_until`](crate::EngineBuilder::run_until).
///
/// From its first poll on, neither signal ends the process by itself; the engine's `shutdown_timeout` limits how long
/// stopping takes. If the signals cannot be received, this never resolves and they end the process as usual.
///
/// ```no_run
/// # use seriatim::{Engine, shutdown_signal};
/// # async fn serve(store: seriatim::SharedStore) -> seriatim::Result<()> {
/// Engine::builder(store).run_until(shutdown_signal()).await?;
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// If called outside a tokio runtime, or in one without I/O.
pub async fn shutdown_signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = terminated() => {}
        () = interrupted => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut asked) => drop(asked.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn both_signals_that_ask_to_stop_are_heard() {
        for name in ["-TERM", "-INT"] {
            let signal = shutdown_signal();
            tokio::pin!(signal);
            // Polled once before the signal is sent; otherwise the signal would end this process.
            tokio::select! {
                biased;
                () = signal.as_mut() => panic!("no signal was sent"),
                () = std::future::ready(()) => {}
            }
            let id = std::process::id().to_string();
            assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
            signal.await;
        }
    }
}
