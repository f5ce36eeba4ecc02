//! Cancellations of jobs that this node holds, for calls that have not started yet.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::contract::CancelNotice;
use crate::handler::call::Call;
use crate::lock::lock;

/// The notices of the last heartbeat, which names all that stand.
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

    /// Notes on a call that starts what is known of its jobs. True if all of them are flagged.
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
