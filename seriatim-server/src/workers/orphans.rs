//! Children that are not ours: what a worker program has started and left behind goes to process 1 when
//! the program ends. Where that is this process, as in most containers, it must ask how they ended, or
//! they stay in the table of processes until that is full.

use std::time::Duration;

use rustix::process::{Pid, WaitOptions, child_subreaper, getpid, waitpid};
use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::group;

/// Many that end together are looked for once.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether orphans come to this process: as process 1, or as a child subreaper.
pub(crate) fn are_ours() -> bool {
    getpid().as_raw_nonzero().get() == 1 || matches!(child_subreaper(), Ok(Some(_)))
}

/// Reaps them, each time that children have ended.
pub(crate) async fn reap(ended: &mut Signal) {
    while ended.recv().await.is_some() {
        let reaped = loop {
            sleep(PAUSE).await;
            if let Some(reaped) = reap_all() {
                break reaped;
            }
        };
        if reaped > 0 {
            tracing::debug!(reaped, "reaped processes left behind by worker programs");
        }
    }
}

/// Their number; none if a child of ours may be among them. Those have a task that waits for them and must see their
/// status.
fn reap_all() -> Option<usize> {
    // First: what is seen here and was started by us is among the leaders then, or still being started.
    let zombies = zombies();
    group::with_leaders(|leaders| {
        let orphans = zombies.into_iter().filter(|pid| !leaders.contains(&pid.as_raw_pid()));
        orphans.filter(|pid| waitpid(Some(*pid), WaitOptions::NOHANG).is_ok()).count()
    })
}

/// Ended children of this process that have not been reaped.
fn zombies() -> Vec<Pid> {
    let own = getpid().as_raw_pid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| is_zombie_of(own, *number)).filter_map(Pid::from_raw).collect()
}

fn is_zombie_of(parent: i32, pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may hold anything.
    let mut rest = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    (rest.next(), rest.next()) == (Some("Z"), Some(&parent.to_string()))
}
