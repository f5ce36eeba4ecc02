//! A program and everything that it has started: signalled and ended together.

use std::collections::BTreeSet;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{leftovers, program};

use crate::base::lock::lock;

/// How long a program that is to end gets after SIGTERM before SIGKILL. Shorter than the engine's
/// patience with its handlers, so that it is gone before its lanes can run elsewhere.
const TERM_GRACE: Duration = Duration::from_secs(3);

/// How long the output of a program that has ended is read: something that left its group may hold
/// the pipe open for ever.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Most programs that are being started at once. A start takes a millisecond, unless a drive hangs.
const STARTS_MAX: usize = 64;
static STARTS: Semaphore = Semaphore::const_new(STARTS_MAX);

/// All living groups: a process that exits immediately must not leave them behind.
static LIVING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// A process group of our own making. What is left of it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    /// Kept here because a child that has been waited for no longer tells its number, while what
    /// it started may live on under it.
    leader: Option<Pid>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// We asked it to: its status may say no more than that.
    pub(crate) is_asked: bool,
}

impl Group {
    /// Starts `command` as the leader of a group, its output being pipes. The system waits for the program's file, which
    /// may be on a network drive that hangs: on another thread, and not for ever more of them.
    pub(crate) async fn spawn(mut command: Command, stdin: Stdio) -> io::Result<(Self, Child)> {
        let place = STARTS.acquire().await.map_err(io::Error::other)?;
        let start = move || {
            let started = Self::start(&mut command, stdin);
            drop(place);
            started
        };
        tokio::task::spawn_blocking(start).await.map_err(io::Error::other)?
    }

    fn start(command: &mut Command, stdin: Stdio) -> io::Result<(Self, Child)> {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(leftovers::mark());
        let child = command.process_group(0).kill_on_drop(true).spawn().map_err(|error| {
            let command = command.as_std();
            let path = command.get_envs().find(|(name, _)| *name == "PATH");
            let path = path.and_then(|(_, value)| value);
            match program::why_not(&command.get_program().to_string_lossy(), path) {
                // Says more: the system's words for a missing interpreter are those for a missing file.
                Some(why) => io::Error::new(error.kind(), why),
                None => error,
            }
        })?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        lock(&LIVING).extend(leader.map(Pid::as_raw_pid));
        Ok((Self { leader }, child))
    }

    /// Signals all of it. One that has ended by itself is not signalled: numbers are given in
    /// turn, so that the number of a group that just ended is not reused yet.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Waits for the end of the leader; brings it about once it is asked to end.
    async fn ended(
        &self,
        leader: &mut Child,
        asked: impl Future<Output = ()>,
    ) -> io::Result<Ended> {
        tokio::select! {
            biased;
            status = leader.wait() => return Ok(Ended { status: status?, is_asked: false }),
            () = asked => {}
        }
        self.signal(Signal::TERM);
        let status = match timeout(TERM_GRACE, leader.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.signal(Signal::KILL);
                leader.wait().await?
            }
        };
        Ok(Ended { status, is_asked: true })
    }

    /// The same, while its output is read; what is left of the group is killed then. The rest of the
    /// output is waited for, but not for long.
    pub(crate) async fn ended_and_read(
        self,
        leader: &mut Child,
        asked: impl Future<Output = ()>,
        reading: impl Future<Output = ()>,
    ) -> io::Result<Ended> {
        tokio::pin!(reading);
        let mut is_read = false;
        let ended = {
            let ended = self.ended(leader, asked);
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    biased;
                    ended = &mut ended => break ended,
                    () = &mut reading, if !is_read => is_read = true,
                }
            }
        };
        // What it left behind would work on beside the next holder of the key. It also holds the pipes.
        drop(self);
        if !is_read {
            let _ = timeout(DRAIN_MAX, reading).await;
        }
        ended
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(leader) = self.leader {
            lock(&LIVING).remove(&leader.as_raw_pid());
        }
    }
}

/// Kills every group, for a process that ends without dropping anything.
pub(crate) fn kill_all() {
    for leader in lock(&LIVING).iter().filter_map(|number| Pid::from_raw(*number)) {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// The process ids of all leaders.
pub(crate) fn leaders() -> Vec<i32> {
    lock(&LIVING).iter().copied().collect()
}

/// Does something with the numbers of all leaders; none while one is started, which is not among them yet.
pub(crate) fn with_leaders<T>(look: impl FnOnce(&BTreeSet<i32>) -> T) -> Option<T> {
    let living = lock(&LIVING);
    (STARTS.available_permits() == STARTS_MAX).then(|| look(&living))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// Whoever opens the file waits for the end of this, as if the file were on a drive that hangs.
    const HOLD: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.readline()
";

    #[tokio::test]
    async fn a_program_on_a_drive_that_hangs_holds_up_nothing_but_its_own_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy("/bin/true", &path).unwrap();
        let mut holder = std::process::Command::new("python3");
        holder.args(["-c", HOLD]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        let hanging = tokio::spawn(Group::spawn(Command::new(&path), Stdio::null()));
        while with_leaders(|_| ()).is_some() {
            tokio::task::yield_now().await;
        }
        let (group, mut child) = Group::spawn(Command::new("true"), Stdio::null()).await.unwrap();
        assert!(leaders().contains(&child.id().unwrap().cast_signed()));
        assert!(child.wait().await.unwrap().success());
        drop(group);
        assert!(!hanging.is_finished() && with_leaders(|_| ()).is_none());
        // Not by the end of its input: the program that is being started has that pipe open too.
        holder.kill().unwrap();
        holder.wait().unwrap();
        let (_group, mut child) = hanging.await.unwrap().unwrap();
        assert!(child.wait().await.unwrap().success());
    }
}
