//! Carries operations out: those that were begun here, and those whose process is gone.

use std::time::Duration;

use tokio::time::sleep;

use super::state::{App, Shared};
use crate::app::error::Error;
use crate::app::operations::{self, Begin, Leaving, Operation, Wish, preview};

/// How often it looks for operations that others left.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Begins an operation, and carries it out.
pub(super) async fn begin(
    app: &Shared,
    wish: Wish,
    who: &str,
    confirm: Option<u64>,
    waits: Duration,
) -> Result<Operation, Error> {
    let counted = preview(&*app.store, &wish).await?;
    counted.check(confirm)?;
    let begin = Begin { who, runner: &app.runner, waits };
    let operation = operations::begin(&*app.store, wish, &counted, begin).await?;
    carry_out(app, operation.id.clone());
    Ok(operation)
}

/// Takes over what others left, until the node drains.
pub(super) async fn run(app: Shared) {
    loop {
        match operations::take_over(&*app.store, &app.runner).await {
            Ok(ids) => ids.into_iter().for_each(|id| carry_out(&app, id)),
            Err(error) => tracing::debug!(%error, "cannot look for operations"),
        }
        tokio::select! {
            () = app.draining() => return,
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

fn carry_out(app: &Shared, id: String) {
    let app = app.clone();
    tokio::spawn(async move {
        let _unfinished = app.unfinished();
        if let Err(error) = operations::run(&app.store, &id, &app.runner, &*app, |_| {}).await {
            tracing::warn!(%error, id, "an operation cannot be carried on");
        }
    });
}

impl Leaving for App {
    fn is_leaving(&self) -> bool {
        self.is_draining()
    }
    async fn leaving(&self) {
        self.draining().await;
    }
}
