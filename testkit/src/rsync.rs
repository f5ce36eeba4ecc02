//! A private rsync server.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::account::{self, Account};
use crate::directory::Directory;
use crate::process;
use crate::program::find_program;
use crate::server::{Kind, Server};

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// What the server says first.
const GREETING: &[u8] = b"@RSYNCD:";

/// A private rsync daemon with one writable folder, stopped and removed on drop.
#[derive(Debug)]
pub struct Rsync {
    server: Server<RsyncKind>,
}

impl Rsync {
    /// Fails if rsync is not installed (the message names the package), or if it does not serve within a minute.
    pub fn start() -> Result<Self, String> {
        let program = find_program("rsync", "rsync")?;
        let account = account::unprivileged()?;
        let directory = Directory::with_data(account)?;
        Ok(Self { server: Server::start(RsyncKind { program, account }, directory)? })
    }

    /// The address of its folder.
    pub fn url(&self) -> String {
        format!("rsync://127.0.0.1:{}/media", self.server.port())
    }

    /// Its folder on this machine.
    pub fn folder(&self) -> PathBuf {
        self.server.data()
    }

    /// Its log, with a line for each file that it received: its name at the sender, and the bytes that were sent for it.
    pub fn received(&self) -> String {
        fs::read_to_string(self.server.data().join("received.log")).unwrap_or_default()
    }

    /// Stops it at once.
    pub fn kill(&mut self) -> Result<(), String> {
        self.server.kill()
    }
}

#[derive(Debug)]
struct RsyncKind {
    program: PathBuf,
    account: Option<Account>,
}

impl Kind for RsyncKind {
    const NAME: &'static str = "rsync";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let file = data.join("rsyncd.conf");
        let path = data.display();
        let settings = format!(
            "use chroot = no\nlog file = {path}/received.log\n[media]\npath = {path}\nread only = no\n\
             transfer logging = yes\nlog format = received %f: %b\n"
        );
        // If the write fails, rsync reports it at its start, and its log is shown.
        let _ = fs::write(&file, settings);
        let mut command = process::command(&self.program, self.account);
        command.args(["--daemon", "--no-detach", "--address=127.0.0.1"]);
        command.arg(format!("--port={port}")).arg(format!("--config={}", file.display()));
        command.current_dir("/");
        command
    }

    fn is_ready(&self, _: &Path, port: u16, _: u32) -> bool {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let Ok(mut stream) = TcpStream::connect_timeout(&address, PROBE_TIMEOUT) else {
            return false;
        };
        let mut said = [0; GREETING.len()];
        let heard = stream
            .set_read_timeout(Some(PROBE_TIMEOUT))
            .and_then(|()| stream.read_exact(&mut said));
        heard.is_ok() && said == *GREETING
    }
}
