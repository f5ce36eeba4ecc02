//! Sends dead jobs back, or deletes them.

use seriatim::JobId;
use seriatim::store::{Selected, Selection, Store};

use super::action::Action;
use super::intent::Intent;
use super::wish::Wish;
use crate::app::error::Result;

/// As the wish says. To how many.
pub(super) async fn on_dead(
    store: &dyn Store,
    wish: &Wish,
    jobs: Vec<JobId>,
    intent: &mut Intent,
) -> Result<u64> {
    if jobs.is_empty() {
        return Ok(0);
    }
    intent.write(store, &jobs).await?;
    let which = Selection::Jobs(jobs);
    let selected = Selected { now: None, queue: wish.queue.as_str().into(), which };
    let acted = match wish.action {
        Action::Requeue => store.requeue(selected).await?,
        _ => store.delete_dead(selected).await?,
    };
    Ok(acted.count)
}
