//! When the process is asked to stop.

/// Resolves when the process is asked to stop: by SIGTERM, as service managers and orchestrators do, or by
/// Ctrl-C. Made for [`EngineBuilder::run_until`](crate::EngineBuilder::run_until).
///
/// From then on neither ends the process by itself: how long it may still take is the engine's
/// `shutdown_timeout`. Where signals cannot be heard it never resolves, and they end the process as they
/// always do.
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
/// Outside of a tokio runtime, or in one without I/O.
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
            let told = shutdown_signal();
            tokio::pin!(told);
            // Listens before it is told: else the signal would end this process.
            tokio::select! {
                biased;
                () = told.as_mut() => panic!("nobody has asked"),
                () = std::future::ready(()) => {}
            }
            let id = std::process::id().to_string();
            assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
            told.await;
        }
    }
}
