//! What the dashboard can do to a store.

use std::sync::Arc;

use seriatim::store::{Act, LaneAction, LaneSelection, Selected, Selection};
use seriatim::{LaneId, SharedStore};

use crate::commands::act::{self, Bulk};
use crate::output::Failure;
use crate::output::text::count;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    PauseQueue(Arc<str>, bool),
    PerformAllNow(Arc<str>),
    RequeueAll(Arc<str>),
    /// A lane, and what people call it.
    Lane(Arc<str>, LaneId, Arc<str>, LaneAction),
}

impl Action {
    /// The question that comes before it.
    pub(super) fn question(&self) -> String {
        match self {
            Self::PauseQueue(queue, _) | Self::Lane(queue, ..) => format!("change {queue}?"),
            Self::PerformAllNow(queue) => format!("make all that waits in {queue} due now?"),
            Self::RequeueAll(queue) => format!("send the whole morgue of {queue} back?"),
        }
    }

    /// Does it, and says what was done.
    pub(super) async fn carry_out(self, store: &SharedStore) -> Result<String, Failure> {
        match self {
            Self::PauseQueue(queue, paused) => {
                store.pause_queue(&queue, paused).await?;
                Ok(format!("{queue} {}", if paused { "is paused" } else { "goes on" }))
            }
            Self::PerformAllNow(queue) => {
                let lanes = act::on_all(store, &queue, LaneAction::RunNow).await?;
                Ok(format!("{} of {queue} made due", count(lanes, "lane")))
            }
            Self::RequeueAll(queue) => {
                let which = Selection::All;
                let selected = Selected { now: None, queue: queue.clone(), which };
                let jobs = act::repeat(&**store, Bulk::Requeue(selected)).await?;
                Ok(format!("{} of {queue} sent back", count(jobs, "job")))
            }
            Self::Lane(queue, lane, name, action) => {
                let lanes = LaneSelection::Lane(lane);
                let acted = store.act(Act { now: None, queue, lanes, action }).await?;
                let done = match action {
                    LaneAction::Pause => "paused",
                    LaneAction::Resume => "goes on",
                    _ => "due now",
                };
                Ok(match acted.count {
                    0 => format!("{name} runs or is gone: nothing was done"),
                    _ => format!("{name}: {done}"),
                })
            }
        }
    }
}
