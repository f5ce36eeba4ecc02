//! What is done to each of many jobs or lanes.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::store::{LaneAction, QueueStats};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Action {
    /// Requeues dead jobs, due now
    Requeue,
    /// Deletes dead jobs
    DeleteDead,
    /// Deletes waiting or dead jobs, named one by one
    DeleteJobs,
    /// Cancels waiting and running jobs
    CancelJobs,
    /// Makes lanes due now; ends a hold
    Retry,
    /// Stops claims of lanes
    Pause,
    /// Resumes paused and held lanes
    Resume,
    /// Sends failed jobs of lanes to the morgue
    Bury,
    /// Deletes failed jobs of lanes
    DeleteFailed,
    /// Deletes the waiting jobs of lanes
    DeleteWaiting,
}

impl Action {
    /// What is done to each lane; none for those on jobs.
    pub(crate) fn on_lanes(self) -> Option<LaneAction> {
        match self {
            Self::Requeue | Self::DeleteDead | Self::DeleteJobs | Self::CancelJobs => None,
            Self::Retry => Some(LaneAction::RunNow),
            Self::Pause => Some(LaneAction::Pause),
            Self::Resume => Some(LaneAction::Resume),
            Self::Bury => Some(LaneAction::Bury),
            Self::DeleteFailed => Some(LaneAction::DeleteFailed),
            Self::DeleteWaiting => Some(LaneAction::Delete),
        }
    }

    /// Whether nothing brings back what it takes.
    pub(crate) fn deletes(self) -> bool {
        matches!(
            self,
            Self::DeleteDead
                | Self::DeleteJobs
                | Self::CancelJobs
                | Self::DeleteFailed
                | Self::DeleteWaiting
        )
    }

    /// Whether a queue has something that it may be done to.
    pub(crate) fn finds_some(self, of: &QueueStats) -> bool {
        match self {
            Self::Requeue | Self::DeleteDead => of.dead > 0,
            _ => of.jobs > 0,
        }
    }

    /// Whether it leaves lanes alone that have not failed.
    pub(crate) fn is_for_failed(self) -> bool {
        matches!(self, Self::Bury | Self::DeleteFailed)
    }

    /// Whether it needs an admin: it takes jobs away from where they would run. Operators may cancel.
    pub(crate) fn needs_admin(self) -> bool {
        self == Self::Bury || (self.deletes() && self != Self::CancelJobs)
    }

    /// As documents name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::DeleteDead => "delete_dead",
            Self::DeleteJobs => "delete_jobs",
            Self::CancelJobs => "cancel_jobs",
            Self::Retry => "retry",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Bury => "bury",
            Self::DeleteFailed => "delete_failed",
            Self::DeleteWaiting => "delete_waiting",
        }
    }

    /// On a button.
    pub(crate) fn button(self) -> &'static str {
        match self {
            Self::Requeue => "Requeue",
            Self::DeleteDead | Self::DeleteJobs => "Delete",
            Self::CancelJobs => "Cancel",
            Self::Retry => "Run now",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Bury => "Bury failed",
            Self::DeleteFailed => "Delete failed",
            Self::DeleteWaiting => "Delete waiting",
        }
    }

    /// The same for rows that are selected: beside it stands the one for all that match.
    pub(crate) fn button_of_selected(self) -> &'static str {
        match self {
            Self::Requeue => "Requeue selected",
            Self::DeleteDead | Self::DeleteJobs => "Delete selected",
            Self::CancelJobs => "Cancel selected",
            Self::Retry => "Run selected now",
            Self::Pause => "Pause selected",
            Self::Resume => "Resume selected",
            Self::Bury => "Bury failed of selected",
            Self::DeleteFailed => "Delete failed of selected",
            Self::DeleteWaiting => "Delete waiting of selected",
        }
    }

    /// What it acts on, in the plural.
    pub(crate) fn objects(self) -> &'static str {
        match self {
            Self::Requeue | Self::DeleteDead => "dead jobs",
            Self::DeleteJobs => "jobs",
            Self::CancelJobs => "waiting and running jobs",
            _ => "lanes",
        }
    }

    /// The same of a number of them, which may be one.
    pub(crate) fn objects_of(self, count: u64) -> &'static str {
        let all = self.objects();
        if count == 1 { all.strip_suffix('s').unwrap_or(all) } else { all }
    }

    /// What was done to a number of them, as in `12 dead jobs requeued`.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::DeleteDead | Self::DeleteJobs | Self::DeleteFailed => "deleted",
            Self::CancelJobs => "cancelled",
            Self::Retry => "set to run now",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Bury => "buried",
            Self::DeleteWaiting => "emptied",
        }
    }

    /// What to think of before.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            Self::Requeue => {
                "They run again, due now. In fifo queues they run before newer jobs of their key that wait. There is no undo."
            }
            Self::DeleteDead | Self::DeleteJobs => "What is deleted cannot be brought back.",
            Self::CancelJobs => {
                "Waiting jobs end, and do not run again. Running handlers get the request with the next heartbeat of their node."
            }
            Self::DeleteFailed => {
                "Failed jobs (in accumulate queues, all waiting jobs of their keys) are deleted and cannot be brought back."
            }
            Self::Retry => {
                "They become due, also those that are scheduled or wait for a retry. Held ones run again. There is no undo."
            }
            Self::Pause => "They are not claimed until someone resumes them. Running turns finish.",
            Self::Resume => "Paused and held ones are claimed again.",
            Self::Bury => {
                "Failed jobs go to the morgue; in accumulate queues, all waiting jobs of their keys. Jobs behind them then run. You can requeue them from the morgue."
            }
            Self::DeleteWaiting => {
                "What is deleted cannot be brought back. Running lanes do not change."
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
