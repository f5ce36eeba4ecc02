//! Carries operations out: those that were begun here, and those whose process is gone.

use std::time::Duration;

use seriatim::store::Acted;
use tokio::time::sleep;

use super::Answer;
use super::state::{App, Shared};
use crate::app::error::Error;
use crate::app::operations::{self, Begin, Leaving, Operation, Preview, Wish, preview};
use crate::protocol::document::BulkDone;

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
    begin_counted(app, wish, who, &counted, waits).await
}

async fn begin_counted(
    app: &Shared,
    wish: Wish,
    who: &str,
    counted: &Preview,
    waits: Duration,
) -> Result<Operation, Error> {
    let begin = Begin { who, runner: &app.runner, waits };
    let operation = operations::begin(&*app.store, wish, counted, begin).await?;
    carry_out(app, operation.id.clone());
    Ok(operation)
}

/// Answers a request of which one call of the store has done a part: an operation does the rest. Who asked for all has
/// confirmed any number.
pub(super) async fn rest(
    app: &Shared,
    wish: Wish,
    who: &str,
    acted: Acted,
) -> Result<Answer<BulkDone>, Error> {
    if !acted.more {
        return Ok(Answer::bulk(acted.count));
    }
    let counted = preview(&*app.store, &wish).await?;
    let operation = match begin_counted(app, wish, who, &counted, Duration::ZERO).await {
        Ok(operation) => Some(operation.id),
        // The answer still has the count of what was done.
        Err(Error::TooManyOperations { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Answer::in_part(app, acted.count, operation))
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
