//! Cancellations of jobs that this node holds, for calls that have not started yet.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::Call;
use super::lock::lock;
use crate::contract::CancelNotice;

/// The notices of the last heartbeat, which names all that stand.
#[derive(Debug, Default)]
pub(super) struct Flags {
    any: AtomicBool,
    notices: Mutex<Vec<CancelNotice>>,
}

impl Flags {
    pub(super) fn replace(&self, notices: Vec<CancelNotice>) {
        self.any.store(!notices.is_empty(), Ordering::Release);
        *lock(&self.notices) = notices;
    }

    /// Notes on a call that starts what is known of its jobs. True if all of them are flagged.
    pub(super) fn apply(&self, call: &Call) -> bool {
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
