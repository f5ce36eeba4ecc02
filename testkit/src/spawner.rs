//! The thread that starts all servers.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

struct Request {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

/// For a death signal, Linux counts the *thread* that forked as the "parent". A server started from a test's own
/// thread would be killed when that test ends, while other tests still use it. So one thread that never ends starts
/// all servers.
static SPAWNER: LazyLock<Sender<Request>> = LazyLock::new(|| {
    let (sender, requests) = channel::<Request>();
    thread::spawn(move || {
        for Request { mut command, reply } in requests {
            // Fails only if the asking thread panicked.
            let _ = reply.send(command.spawn());
        }
    });
    sender
});

/// Spawns `command` from a thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let ended = || io::Error::other("the thread that starts servers has ended");
    let (reply, answer) = channel();
    SPAWNER.send(Request { command, reply }).map_err(|_| ended())?;
    answer.recv().map_err(|_| ended())?
}
