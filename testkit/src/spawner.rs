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

/// Linux takes the "parent" of a death signal to be the *thread* that forked. A server started
/// from a test's own thread would be killed as soon as that test ends, while others still use it;
/// so one thread that never ends starts them all.
static SPAWNER: LazyLock<Sender<Request>> = LazyLock::new(|| {
    let (sender, requests) = channel::<Request>();
    thread::spawn(move || {
        for Request { mut command, reply } in requests {
            // Nobody waits for the answer only when the asking thread panicked.
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
