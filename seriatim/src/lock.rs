//! A mutex that outlives a panic: no invariant of ours spans one, and an engine that hangs or dies
//! for a handler's panic would be worse.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
