//! The life cycle of a server: start, stop, crash, restart.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::directory::Directory;
use crate::port::free_port;
use crate::process::Process;

/// Long, because it includes recovery after a crash, on a test machine that may be busy.
const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Messages of a server that cannot start *yet*: another process took the port, or child processes of its killed
/// predecessor are still running.
const TRANSIENT: [&str; 4] = [
    "Address already in use",
    "pre-existing shared memory block",
    // The line behind it, if the server wrote nothing else.
    "Terminate any old server processes",
    "is another postmaster",
];

/// The differences between kinds of servers.
pub(crate) trait Kind {
    /// For error messages.
    const NAME: &'static str;
    /// The signal for an immediate but clean shutdown.
    const STOP_SIGNAL: Signal;

    /// The command that runs the server in the foreground, with its data below `data`, on `port` of 127.0.0.1.
    fn command(&self, data: &Path, port: u16) -> Command;

    /// Whether the process `pid` itself (not another one on the same port) serves clients.
    fn is_ready(&self, data: &Path, port: u16, pid: u32) -> bool;
}

/// What all databases can do.
macro_rules! life_cycle {
    ($database:ident) => {
        impl $database {
            /// The port, which stays the same after restarts.
            pub fn port(&self) -> u16 {
                self.server.port()
            }

            /// Shuts the server down cleanly; open connections break. Stopping a stopped server succeeds.
            pub fn stop(&mut self) -> Result<(), String> {
                self.server.stop()
            }

            /// Kills the server with SIGKILL, as a crash would. Killing a stopped server succeeds.
            pub fn kill(&mut self) -> Result<(), String> {
                self.server.kill()
            }

            /// Starts the server on the same port with the same data, stopping it first if it runs.
            pub fn restart(&mut self) -> Result<(), String> {
                self.server.restart()
            }
        }
    };
}

pub(crate) use life_cycle;

/// A server that runs, was stopped, or was killed.
#[derive(Debug)]
pub(crate) struct Server<K> {
    kind: K,
    port: u16,
    // Before the directory: fields are dropped in order, and the server uses its directory.
    process: Option<Process>,
    directory: Directory,
}

impl<K: Kind> Server<K> {
    /// Starts a server in the prepared `directory`, on a free port.
    pub(crate) fn start(kind: K, directory: Directory) -> Result<Self, String> {
        let mut server = Self { kind, port: 0, process: None, directory };
        server.launch(|_| free_port())?;
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    /// The directory of its own files.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.data()
    }

    /// Does nothing if the server is not running.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        let Some(process) = self.process.take() else {
            return Ok(());
        };
        process.stop(K::STOP_SIGNAL, STOP_LIMIT).map_err(|e| format!("{}: {e}", K::NAME))
    }

    /// Does nothing if the server is not running.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Does nothing if the server is not running.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.process.take().map_or(Ok(()), Process::kill)
    }

    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.stop()?;
        self.launch(Ok)
    }

    /// `next_port` chooses a port for each attempt, given the previous one.
    fn launch(&mut self, next_port: impl Fn(u16) -> Result<u16, String>) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            self.port = next_port(self.port)?;
            match self.attempt(deadline) {
                Ok(process) => {
                    self.process = Some(process);
                    return Ok(());
                }
                Err(error) if is_transient(&error) && Instant::now() < deadline => {
                    thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn attempt(&self, deadline: Instant) -> Result<Process, String> {
        let data = self.directory.data();
        let command = self.kind.command(&data, self.port);
        let mut process = Process::spawn(command, self.directory.log())?;
        while !self.kind.is_ready(&data, self.port, process.id()) {
            if let Some(status) = process.exit_status() {
                let log = process.log_tail();
                return Err(format!("{} ended with {status} at its start:\n{log}", K::NAME));
            }
            if Instant::now() > deadline {
                let log = process.log_tail();
                return Err(format!("{} not ready after {START_LIMIT:?}:\n{log}", K::NAME));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(process)
    }
}

fn is_transient(error: &str) -> bool {
    TRANSIENT.iter().any(|message| error.contains(message))
}
