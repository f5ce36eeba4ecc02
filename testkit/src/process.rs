//! One running server process.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::account::Account;
use crate::program::find_program;
use crate::spawner;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// `setpriv`, if installed and able to set death signals (that of `BusyBox` is not).
static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let setpriv = find_program("setpriv", "util-linux").ok()?;
    let works = Command::new(&setpriv)
        .args(["--pdeathsig", "KILL", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    works.then_some(setpriv)
});

/// A command that runs `program` as `account`, or as the current user.
pub(crate) fn command(program: &Path, account: Option<Account>) -> Command {
    let mut command = match &*SETPRIV {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    if let Some(Account { uid, gid }) = account {
        // The standard library clears the supplementary groups along with this.
        command.uid(uid).gid(gid);
    }
    // Messages are compared, so they must not be translated.
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command to its end and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("cannot start {program}: {e}"))?;
    let [printed, message] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("{command:?} ended with {}:\n{printed}{message}", output.status)),
    }
}

/// A child process, killed on drop with all that it started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output in the file `log`, which is emptied first.
    pub(crate) fn spawn(mut command: Command, log: PathBuf) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let describe = |e| format!("cannot start {program}: {e}");
        let output = File::create(&log).map_err(describe)?;
        command
            .stdout(output.try_clone().map_err(describe)?)
            .stderr(output)
            // Ctrl-C goes to the terminal's whole process group; the server must be stopped by its owner instead.
            .process_group(0);
        let child = spawner::spawn(command).map_err(describe)?;
        Ok(Self { child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of the process's output.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 20;
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        send(&self.child, signal)
    }

    /// Asks the process to end with `signal`. After `limit` it is killed, and the result is an error.
    pub(crate) fn stop(mut self, signal: Signal, limit: Duration) -> Result<(), String> {
        send(&self.child, signal)?;
        let deadline = Instant::now() + limit;
        while self.exit_status().is_none() {
            if Instant::now() > deadline {
                return Err(format!("did not stop within {limit:?}:\n{}", self.log_tail()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Kills the process as a crash would, and waits until it is gone.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        self.kill_and_reap().map_err(|e| format!("cannot kill process {}: {e}", self.child.id()))
    }

    fn kill_and_reap(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the processes are already gone, which is fine. What it started is of its group: a driver that
        // ends leaves the browsers of a failed test running.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.kill_and_reap();
    }
}

fn send(child: &Child, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(child), signal)
        .map_err(|e| format!("cannot signal process {}: {e}", child.id()))
}
