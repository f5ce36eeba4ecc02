//! States in words.

use seriatim::store::{JobState, PushStatus};

/// The state in words: only its node knows whether a claimed job has started.
pub(crate) fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "claimed",
        JobState::Succeeded => "succeeded",
        JobState::Dead => "dead",
        JobState::Canceled => "canceled",
    }
}

pub(crate) fn push_status(status: PushStatus) -> &'static str {
    match status {
        PushStatus::Queued => "queued",
        PushStatus::Merged => "merged",
        PushStatus::Duplicate => "duplicate",
        PushStatus::Throttled => "throttled",
    }
}
