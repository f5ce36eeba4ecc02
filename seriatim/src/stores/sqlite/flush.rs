//! Which commits wait for the disk, and how a reboot of the machine is detected.
//!
//! A claim does not wait. The next commit that does takes it along, and if the machine loses power before, it takes the
//! holder's process with it: the jobs wait again. Only the tokens must not be repeated: they are reserved ahead.

use rusqlite::Connection;

use super::fault::translate;
use crate::model::Result;

/// Tokens are reserved for this long, because a token is at least the clock's microseconds. Then one claim waits for
/// the disk.
pub(super) const TOKENS_RESERVED: i64 = 600_000_000;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: every commit is flushed to disk, except those of claims by processes of this machine, which it
    /// ends as well. Their jobs wait again.
    #[default]
    Full,
    /// End of the process. A loss of power may lose the last commits.
    Normal,
}

/// Whether an operation's commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flush {
    /// It need not: it may be lost with the machine. If the process is killed, nothing is lost.
    Later,
    /// It must.
    Now,
}

/// The setting of a connection, changed between transactions.
pub(super) struct Flushing {
    durability: Durability,
    set: Option<Flush>,
    #[cfg(test)]
    pub(super) flushes: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Flushing {
    pub(super) fn new(durability: Durability) -> Self {
        Self {
            durability,
            set: None,
            #[cfg(test)]
            flushes: std::sync::Arc::default(),
        }
    }

    /// What a group of operations gets if it needs `flush`.
    pub(super) fn of(&self, flush: Flush) -> Flush {
        if self.durability == Durability::Full { flush } else { Flush::Later }
    }

    /// Sets it for the next transaction; within one SQLite refuses to.
    pub(super) fn set(&mut self, connection: &Connection, flush: Flush) -> Result<()> {
        if self.set != Some(flush) {
            // SQLite applies it when it compiles the statement, so a cached one would do nothing.
            connection.execute_batch(pragma(flush)).map_err(translate)?;
            self.set = Some(flush);
        }
        #[cfg(test)]
        if flush == Flush::Now {
            self.flushes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    }
}

/// In the write-ahead log, `FULL` flushes each commit with all before it. `NORMAL` flushes before checkpoints only.
fn pragma(flush: Flush) -> &'static str {
    match flush {
        Flush::Later => "PRAGMA synchronous = NORMAL",
        Flush::Now => "PRAGMA synchronous = FULL",
    }
}

/// The id of a boot of this machine. What was not flushed is lost between two of them.
pub(super) struct Boot(pub(super) String);

impl Boot {
    pub(super) fn of_this_machine() -> Self {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        // Where it is not known, every process counts as one after a boot: that skips some tokens, and is harmless.
        Self(id.map_or_else(|_| format!("{:032x}", fastrand::u128(..)), |id| id.trim().to_owned()))
    }
}
