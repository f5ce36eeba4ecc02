//! Programs that run, pause, and run again.

use std::process::Stdio;
use std::time::Duration;

use seriatim::engine::Tick;
use seriatim::{Failure, Periodic};

use super::group::Group;
use super::lines::Tail;
use super::on_file::each_line;
use super::printed::Printed;
use crate::config::{Launch, PeriodicConfig};

/// The entry as the engine runs it.
pub(super) fn periodic(config: &PeriodicConfig, printed: Printed) -> Periodic {
    let (launch, timeout) = (config.launch(), config.timeout());
    let pause = config.pause.unwrap_or_default();
    let periodic = Periodic::new(config.name.as_str(), pause, move |tick| {
        run(launch.clone(), timeout, printed.clone(), tick)
    });
    if config.once_in_fleet { periodic.once_in_fleet() } else { periodic }
}

async fn run(
    launch: Launch,
    limit: Option<Duration>,
    printed: Printed,
    tick: Tick,
) -> Result<(), Failure> {
    let start = async { Group::spawn(launch.command()?, Stdio::null()).await };
    let (group, mut child) = start.await.map_err(|error| format!("{}: {error}", launch.name()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut tail = Tail::default();
    let reading = async {
        let told = each_line(stdout, |line| printed.line("stdout", line));
        let complained = each_line(stderr, |line| {
            printed.line("stderr", line);
            tail.add(line);
        });
        tokio::join!(told, complained);
    };
    let late = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let asked = async {
        tokio::select! {
            () = late => {}
            () = tick.stopping() => {}
        }
    };
    let ended = group.ended_and_read(&mut child, asked, reading).await?;
    // Asked to end by a stop: that is not its failure. By its time limit: it has not done all, also if it ends with 0.
    if tick.is_stopping() || (ended.status.success() && !ended.is_asked) {
        return Ok(());
    }
    let why = tail.text().unwrap_or_else(|| ended.status.to_string());
    let late = limit.filter(|_| ended.is_asked).map(seriatim::duration::format);
    let late = late.map(|limit| format!("timed out (limit {limit}): ")).unwrap_or_default();
    Err(format!("{late}{why}").into())
}
