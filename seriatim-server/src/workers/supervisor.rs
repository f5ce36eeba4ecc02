//! Keeps the processes of one worker running, and replaces them without dropping work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::process::{Order, Process};
use super::seats::Seats;
use super::told::Told;
use crate::config::Launch;

/// The wait before a process that died is started again; it doubles for each one that dies
/// without having answered a call, and a random half of it is left out.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest such wait.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// After this long without a process, waiting calls fail.
const RESTART_WAIT_HELD: Duration = Duration::from_secs(2);
/// How long a process must live before it gets calls when none before it has answered one: a
/// program that cannot even start must not take jobs with it. It doubles like the wait.
const TRIAL_MIN: Duration = Duration::from_millis(250);
/// The longest trial.
const TRIAL_MAX: Duration = Duration::from_secs(8);
/// How long the replacement of a process that works is tried: nothing is in a hurry.
const REPLACEMENT_TRIAL: Duration = Duration::from_secs(1);

/// The program counts as one that cannot be started when this many processes in a row end in their trial: a single one
/// may have been killed from outside.
const TRIAL_DEATHS_MAX: u32 = 2;

/// The program to run, and the signals to stop or replace it.
#[derive(Clone)]
pub(crate) struct Team {
    pub(crate) queue: Arc<str>,
    pub(crate) task: Option<Arc<str>>,
    pub(crate) launch: Launch,
    pub(crate) seats: Arc<Seats>,
    /// Reports when it cannot be started.
    pub(crate) told: Told,
    /// Changes when the program has.
    pub(crate) version: watch::Receiver<u64>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Keeps one process running until a stop is requested, and then until it has ended.
pub(crate) async fn keep(team: Team) {
    let mut keeper = Keeper { team, unanswered: 0, told: false, retiring: JoinSet::new() };
    while !*keeper.team.stop.borrow() {
        keeper.team.version.mark_unchanged();
        let trial = match keeper.unanswered {
            0 => TRIAL_MIN,
            times => doubled(TRIAL_MIN, times, TRIAL_MAX),
        };
        match keeper.start(trial).await {
            Ok(Some(process)) => keeper.watch_over(process).await,
            Ok(None) => break,
            Err(failure) => keeper.unstartable(failure).await,
        }
    }
    while keeper.retiring.join_next().await.is_some() {}
}

/// Why a process is not there.
struct NotStarted {
    why: String,
    /// It ran, and ended in its trial.
    has_lived: bool,
}

struct Keeper {
    team: Team,
    /// Processes in a row that died without having answered a call.
    unanswered: u32,
    /// It was reported that it cannot be started.
    told: bool,
    retiring: JoinSet<()>,
}

impl Keeper {
    /// Starts a process and sees it live for a while. None when all is to stop.
    async fn start(&mut self, trial: Duration) -> Result<Option<Arc<Process>>, NotStarted> {
        let (name, calls) = (self.team.launch.name(), self.team.seats.per_process);
        let process = tokio::select! {
            started = Process::start(&self.team.queue, &self.team.launch, calls) => started,
            // Its file may be on a drive that hangs.
            () = told(&mut self.team.stop) => return Ok(None),
        };
        let process = process
            .map_err(|error| NotStarted { why: format!("{name}: {error}"), has_lived: false })?;
        tokio::select! {
            end = process.ended() => {
                let why = format!("{name} exits immediately after its start: {}", end.in_one_line());
                return Err(NotStarted { why, has_lived: true });
            }
            () = sleep(trial) => {}
            () = told(&mut self.team.stop) => {
                shut_down(&process).await;
                return Ok(None);
            }
        }
        tracing::info!(queue = &*self.team.queue, pid = process.pid, "worker process started");
        if std::mem::take(&mut self.told) {
            self.team.told.started(&self.team.queue, self.team.task.as_deref());
        }
        Ok(Some(process))
    }

    /// Until it dies or all is to stop. Meanwhile it is replaced when the program changes.
    async fn watch_over(&mut self, mut process: Arc<Process>) {
        self.team.seats.add(process.clone());
        loop {
            tokio::select! {
                end = process.ended() => {
                    self.team.seats.remove(&process);
                    return self.died(&process, &end.in_one_line()).await;
                }
                () = told(&mut self.team.stop) => {
                    self.team.seats.close(&process);
                    shut_down(&process).await;
                    return self.team.seats.remove(&process);
                }
                changed = self.team.version.changed() => {
                    if changed.is_err() {
                        // The sender is gone: it will not change.
                        std::future::pending::<()>().await;
                    }
                }
            }
            process = self.replace(process).await;
        }
    }

    /// The replacement first; the old process finishes its calls. A replacement that does not
    /// start changes nothing.
    async fn replace(&mut self, old: Arc<Process>) -> Arc<Process> {
        let (queue, pid) = (self.team.queue.clone(), old.pid);
        match self.start(REPLACEMENT_TRIAL).await {
            Ok(None) => old,
            Err(NotStarted { why, .. }) => {
                tracing::error!(
                    queue = &*queue,
                    pid,
                    "the changed program does not run; keeping the old process: {why}"
                );
                old
            }
            Ok(Some(new)) => {
                tracing::info!(queue = &*queue, pid, by = new.pid, "worker process replaced");
                let seats = self.team.seats.clone();
                seats.add(new.clone());
                seats.close(&old);
                self.retiring.spawn(async move {
                    seats.emptied(&old).await;
                    shut_down(&old).await;
                    seats.remove(&old);
                });
                new
            }
        }
    }

    async fn died(&mut self, process: &Process, end: &str) {
        self.unanswered = if process.has_answered() { 0 } else { self.unanswered + 1 };
        let wait = jittered(doubled(RESTART_WAIT_MIN, self.unanswered, RESTART_WAIT_MAX));
        let wait_ms = wait.as_millis();
        tracing::warn!(
            queue = &*self.team.queue,
            pid = process.pid,
            wait_ms,
            "a worker process died, restarting it: {end}"
        );
        if wait > RESTART_WAIT_HELD {
            self.failed(&format!("its processes die: {end}"));
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = told(&mut self.team.stop) => {}
            _ = self.team.version.changed() => {}
        }
    }

    /// Fails calls that wait for a process, and reports the failure.
    fn failed(&mut self, why: &str) {
        self.told = true;
        self.team.told.cannot_start(&self.team.queue, self.team.task.as_deref(), why);
        self.team.seats.failed(why);
    }

    async fn unstartable(&mut self, NotStarted { why, has_lived }: NotStarted) {
        self.unanswered += 1;
        let wait = jittered(doubled(RESTART_WAIT_MIN, self.unanswered, RESTART_WAIT_MAX));
        let wait_ms = wait.as_millis();
        tracing::warn!(queue = &*self.team.queue, wait_ms, "cannot start a worker process: {why}");
        let seats = self.team.seats.clone();
        let wanted = seats.wanted.notified();
        tokio::pin!(wanted);
        wanted.as_mut().enable();
        if !has_lived || self.unanswered >= TRIAL_DEATHS_MAX {
            self.failed(&why);
        }
        tokio::select! {
            () = sleep(wait) => {}
            // The engine pauses a worker that cannot be started, so this is not asked often.
            () = wanted => {}
            () = told(&mut self.team.stop) => {}
            _ = self.team.version.changed() => {}
        }
    }
}

async fn shut_down(process: &Process) {
    process.order(Order::Shutdown);
    process.ended().await;
}

async fn told(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // The sender was dropped, and everything ends with it.
        std::future::pending::<()>().await;
    }
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first.saturating_mul(2u32.saturating_pow(times)).min(most)
}

/// Many processes that died together must not come back together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}
