//! A private PgBouncer.

use std::fs;
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

/// A private PgBouncer in transaction mode in front of a PostgreSQL on 127.0.0.1, stopped and removed on drop. It
/// accepts all clients as the user `postgres`.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server<PgBouncerKind>,
}

impl PgBouncer {
    /// Starts one in front of the PostgreSQL on `postgres_port`.
    ///
    /// Fails if PgBouncer is not installed (the message names the package), or if it does not serve within a minute
    /// (the message has the end of its log).
    pub fn start(postgres_port: u16) -> Result<Self, String> {
        let program = find_program("pgbouncer", "pgbouncer")?;
        let account = account::unprivileged()?;
        let directory = Directory::with_data(account)?;
        let kind = PgBouncerKind { program, account, postgres_port };
        Ok(Self { server: Server::start(kind, directory)? })
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.server.port()
    }
}

#[derive(Debug)]
struct PgBouncerKind {
    program: PathBuf,
    account: Option<Account>,
    postgres_port: u16,
}

impl Kind for PgBouncerKind {
    const NAME: &'static str = "PgBouncer";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let file = data.join("pgbouncer.ini");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n",
            self.postgres_port
        );
        // If the write fails, PgBouncer reports it at its start, and its log is shown.
        let _ = fs::write(&file, settings);
        let mut command = process::command(&self.program, self.account);
        command.arg(file).current_dir("/");
        command
    }

    fn is_ready(&self, _: &Path, port: u16, _: u32) -> bool {
        TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PROBE_TIMEOUT).is_ok()
    }
}
