//! Programs that outlived the process which had started them: found by a mark in their environment,
//! and ended before their keys may run elsewhere.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use seriatim::engine::ProcessStat;
use seriatim::store::Origin;
use tokio::time::sleep;

/// The variable that marks the programs which a process has started.
const MARK: &str = "SERIATIM_ENGINE";
/// How long what is left behind gets after SIGTERM before SIGKILL.
const TERM_GRACE: Duration = Duration::from_millis(500);
/// How long it may take to end in all.
const END_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// This many looks in a row must find nothing, because a program may just be starting another.
const CLEAN_LOOKS: u32 = 2;

/// The mark for programs that this process starts; none where processes cannot be told apart.
pub(super) fn mark() -> Option<(&'static str, &'static str)> {
    static OWN: OnceLock<Option<String>> = OnceLock::new();
    let mark = OWN.get_or_init(|| Origin::of_this_process().map(|origin| origin.mark()));
    mark.as_deref().map(|mark| (MARK, mark))
}

/// Ends what a process has left behind. An error says why something of it may still be there.
pub(crate) async fn end(origin: Origin) -> Result<(), String> {
    let (began, mut clean) = (Instant::now(), 0);
    let mut told = BTreeSet::new();
    loop {
        let (found, unknown) = look(&origin)?;
        clean = if found.is_empty() && unknown.is_none() { clean + 1 } else { 0 };
        if clean == CLEAN_LOOKS {
            return Ok(());
        }
        // A program that is just being started cannot be looked at until it runs.
        if let Some(pid) = unknown.filter(|_| began.elapsed() > TERM_GRACE) {
            return Err(format!(
                "process {pid} of its session may belong to it, but cannot be inspected"
            ));
        }
        if began.elapsed() > END_MAX {
            let pids: Vec<String> = found.iter().map(|one| one.pid.to_string()).collect();
            return Err(format!("programs that it started do not end: {}", pids.join(", ")));
        }
        for one in found {
            if began.elapsed() > TERM_GRACE {
                one.signal(Signal::KILL);
            } else if told.insert(one.pid) {
                tracing::warn!(
                    pid = one.pid,
                    of = origin.pid,
                    "ending a program that outlived the process that started it"
                );
                one.signal(Signal::TERM);
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// A program that was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leftover {
    pid: i32,
    group: i32,
}

impl Leftover {
    /// Signals it and what it has started: its group, which is never this process' own.
    fn signal(self, signal: Signal) {
        let is_own = Pid::from_raw(self.group) == Some(rustix::process::getpgrp());
        // It may end by itself at any moment.
        let _ = match (Pid::from_raw(self.group), Pid::from_raw(self.pid)) {
            (Some(group), _) if !is_own && self.group > 1 => kill_process_group(group, signal),
            (_, Some(pid)) => kill_process(pid, signal),
            _ => Ok(()),
        };
    }
}

/// All living processes with the mark of this one, and one that may be, as it cannot be looked at.
fn look(origin: &Origin) -> Result<(Vec<Leftover>, Option<i32>), String> {
    let mark = format!("{MARK}={}", origin.mark());
    let cannot = |what: &str, error: &dyn std::fmt::Display| format!("cannot read {what}: {error}");
    let (mut found, mut unknown) = (Vec::new(), None);
    for entry in std::fs::read_dir("/proc").map_err(|error| cannot("/proc", &error))? {
        let name = entry.map_err(|error| cannot("/proc", &error))?.file_name();
        let Some((name, pid)) = name.to_str().and_then(|name| Some((name, name.parse().ok()?)))
        else {
            continue;
        };
        let Some(stat) = ProcessStat::of(name).filter(|stat| !stat.has_ended) else { continue };
        if std::process::id().cast_signed() == pid {
            continue;
        }
        match std::fs::read(format!("/proc/{name}/environ")) {
            Ok(environ) => {
                if environ.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()) {
                    found.push(Leftover { pid, group: stat.group });
                }
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                // Of another user, as a program is that changed its user; or hidden. Its session is
                // readable for all. Who leads it was there before, if only in the same tick of the clock.
                let may_be = stat.session == origin.session
                    && pid != origin.session
                    && stat.started >= origin.started;
                if may_be && !is_a_node(name) {
                    unknown = Some(pid);
                }
            }
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            Err(error) => return Err(cannot(&format!("/proc/{name}/environ"), &error)),
        }
    }
    Ok((found, unknown))
}

/// Whether it is a process as this one is: they hide themselves from the programs of their workers. Its
/// user and its name are readable for all.
fn is_a_node(pid: &str) -> bool {
    let user = |pid: &str| std::fs::metadata(format!("/proc/{pid}")).ok().map(|about| about.uid());
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    user(pid).is_some_and(|of| user("self") == Some(of))
        && name(pid).is_some_and(|of| name("self") == Some(of))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// The process of a node that is gone.
    fn gone() -> Origin {
        Origin { pid: 1, started: fastrand::u64(..), ..Origin::of_this_process().unwrap() }
    }

    /// A program in a group of its own that does not heed SIGTERM, and what it has started, without
    /// the mark. Both are there when this returns.
    fn started_by(origin: &Origin) -> (Child, i32) {
        let script = "trap '' TERM; env -i sh -c 'echo $$; sleep 600' & wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARK, origin.mark()).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.trim().parse().unwrap())
    }

    fn lives(pid: i32) -> bool {
        ProcessStat::of(&pid.to_string()).is_some_and(|stat| !stat.has_ended)
    }

    #[tokio::test]
    async fn what_a_process_left_behind_has_ended_with_all_that_it_started_and_nothing_else_has() {
        let (origin, other) = (gone(), gone());
        let (mut left, grandchild) = started_by(&origin);
        let (mut stays, _) = started_by(&other);
        let pids = [left.id(), stays.id()].map(u32::cast_signed);
        assert!(pids.into_iter().chain([grandchild]).all(lives));
        end(origin.clone()).await.unwrap();
        assert!(!lives(pids[0]) && !lives(grandchild));
        assert!(lives(pids[1]), "the program of another process");
        end(other).await.unwrap();
        left.wait().unwrap();
        stays.wait().unwrap();
        end(origin).await.unwrap();
    }
}
