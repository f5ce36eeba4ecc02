//! A slot: one of `concurrency` places in which calls run.

use std::sync::Arc;

use crate::engine::call::perform::perform;
use crate::engine::claim::dispatch::Finished;
use crate::engine::core::Core;
use crate::engine::limits::CALLS_BEFORE_YIELD;

/// Runs calls until the pool is closed and empty.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let mut finished = None;
    let mut calls = 0u32;
    while let Some(picked) = core.dispatch.next(finished.take()).await {
        finished = Some(Finished { source: picked.source, turns: picked.turns.len() });
        calls += perform(&core, picked).await;
        if calls >= CALLS_BEFORE_YIELD {
            calls = 0;
            // Handlers that never wait would otherwise block the fetcher and the settler on this thread.
            tokio::task::yield_now().await;
        }
    }
}
