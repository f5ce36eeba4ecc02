//! Cancellations of jobs that this node has claimed, for calls that have not started yet.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::contract::CancelNotice;
use crate::handler::call::Call;
use crate::lock::lock;

/// The notices of the last heartbeat, which returns all current ones.
#[derive(Debug, Default)]
pub(in crate::engine) struct Flags {
    any: AtomicBool,
    notices: Mutex<Vec<CancelNotice>>,
}

impl Flags {
    pub(in crate::engine) fn replace(&self, notices: Vec<CancelNotice>) {
        self.any.store(!notices.is_empty(), Ordering::Release);
        *lock(&self.notices) = notices;
    }

    /// Passes the known cancellations to a call that starts. True if all its jobs are flagged.
    pub(in crate::engine) fn apply(&self, call: &Call) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        for notice in lock(&self.notices).iter() {
            if call.turn_of(notice.lane).is_some_and(|turn| turn.token == notice.token) {
                call.control.flag(notice.lane, &notice.jobs);
            }
        }
        call.is_all_flagged()
    }
}
