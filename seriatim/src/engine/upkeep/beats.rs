//! Heartbeats, and the guard of the lease, on their own thread: a handler that blocks, or computes without yielding,
//! stops everything else on its runtime, but must not lose its lane for it.
//!
//! This requires a store with a separate connection ([`crate::store::Store::heartbeat_line`]). For a store without
//! one, such as a store in memory, the engine sends its heartbeats from the runtime that it was started on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::engine::core::Core;
use crate::engine::limits::BEATS_END_MAX;
use crate::engine::shield::panic_text;
use crate::engine::upkeep::guard;
use crate::engine::upkeep::heartbeat::Pulser;
use crate::model::{Error, ErrorKind, Result};

/// The name of the thread.
const NAME: &str = "seriatim-beat";

/// The heartbeat thread. It ends when this is dropped.
pub(in crate::engine) struct Beats {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Beats {
    pub(in crate::engine) fn start(core: &Arc<Core>, pulser: Pulser) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let core = core.clone();
        let body = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| beat(&core, pulser, stopped)));
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(e)) => core.broken("heartbeat", &format!("cannot start a runtime: {e}")),
                Err(panic) => {
                    core.broken("heartbeat", &format!("panicked: {}", panic_text(&*panic)));
                }
            }
            drop(core);
            let _ = end.send(());
        };
        thread::Builder::new().name(NAME.to_owned()).spawn(body).map_err(|e| {
            Error::new(ErrorKind::Fatal, "cannot start the heartbeat thread").because(e)
        })?;
        Ok(Self { stop, ended })
    }

    /// Ends the thread, and waits for it.
    pub(in crate::engine) async fn end(self) {
        drop(self.stop);
        if timeout(BEATS_END_MAX, self.ended).await.is_err() {
            tracing::warn!("the heartbeat thread has not ended yet");
        }
    }
}

fn beat(core: &Arc<Core>, pulser: Pulser, stopped: oneshot::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = stopped => {}
            () = pulser.run() => core.broken("heartbeat", "has ended"),
            () = guard::run(core.clone()) => core.broken("guard", "has ended"),
        }
    });
    // A connection that hangs must not keep the thread alive.
    runtime.shutdown_background();
    Ok(())
}
