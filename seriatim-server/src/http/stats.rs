//! The figures of all queues, in Lowkiq's shape.

use super::limits::JOB_BYTES;
use super::{Access, Answer, Caller, Result, Route, Shared};
use crate::app::figures::{Figures, statistics};
use crate::protocol::document::Stats;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/stats", Access::Read, stats)
            .says("The metrics of all queues: the totals, and each queue's")
            .keeps_scope(),
    ]
}

async fn stats(app: Shared, caller: Caller) -> Result<Answer<Stats>> {
    let mut figures = Figures::all(&*app.store).await?;
    figures.retain(|of| caller.scope.has_queue(&of.stats.queue));
    Answer::written(figures.len() * JOB_BYTES, move || statistics(&figures, None)).await
}
