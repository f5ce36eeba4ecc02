//! Keeps what this process knows from the programs that it starts.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::base::setup_error::SetupError;

/// From now on no other process of this user can read the environment or the memory of this one, or
/// trace it. One with `CAP_SYS_PTRACE`, `CAP_PERFMON` or `CAP_SYS_ADMIN` still can: root has them, unless they
/// were taken away as in most containers.
pub(crate) fn hide() -> Result<(), SetupError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        SetupError::failed(format!(
            "cannot hide this process from worker programs (PR_SET_DUMPABLE): {error}"
        ))
    })
}
