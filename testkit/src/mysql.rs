//! A private MariaDB.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::account::{self, Account};
use crate::directory::{Directory, write_for};
use crate::process;
use crate::program::find_program;
use crate::server::{Kind, Server, life_cycle};
use crate::templates;

const PACKAGE: &str = "mariadb-server";
/// The user and the database of the tests. The user has all privileges and no password.
const USER: &str = "seriatim";
/// Executed at each start, from a file that the server reads before it serves.
const INIT: &str = "CREATE DATABASE IF NOT EXISTS seriatim CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'seriatim'@'%' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'seriatim'@'%' WITH GRANT OPTION;
";
/// The files of its certificate and key, if it has them.
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of a [`Mysql`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlOptions {
    /// `true` (the default) flushes the log to the disk at each commit, as in production and for measurements.
    /// `false` leaves the flush to the operating system: tests run faster, and [`Mysql::kill`] still keeps all
    /// commits; only a crash of the machine would lose them.
    pub durable: bool,
    /// The server's `max_connections`. Default: 300.
    pub connections_max: u16,
    /// A certificate and its private key, in PEM; if set, the server speaks TLS. Default: none.
    pub certificate: Option<(String, String)>,
    /// Further arguments of the server. Default: none.
    pub arguments: Vec<String>,
}

impl Default for MysqlOptions {
    fn default() -> Self {
        Self { durable: true, connections_max: 300, certificate: None, arguments: Vec::new() }
    }
}

/// A private MariaDB server, stopped and removed on drop.
///
/// It listens on 127.0.0.1 only and accepts every local user, so store nothing important in it. If started by root,
/// it runs under an unprivileged account.
#[derive(Debug)]
pub struct Mysql {
    server: Server<MysqlKind>,
}

impl Mysql {
    /// Starts a durable server with the default [`MysqlOptions`].
    ///
    /// Fails if MariaDB is not installed (the message names the package), or if the server does not serve within a
    /// minute (the message has the end of its log).
    pub fn start() -> Result<Self, String> {
        Self::start_with(MysqlOptions::default())
    }

    /// Starts a server with `options`; fails as [`Mysql::start`] does.
    pub fn start_with(options: MysqlOptions) -> Result<Self, String> {
        let install = find_program("mariadb-install-db", PACKAGE)?;
        let program = find_program("mariadbd", PACKAGE)?;
        let account = account::unprivileged()?;
        let directory = Directory::with_data(account)?;
        templates::fill("mysql", account, &directory.data(), |data| {
            create_data(&install, account, data)
        })?;
        if let Some((certificate, key)) = &options.certificate {
            write_for(account, &directory.data().join(CERTIFICATE), certificate)?;
            write_for(account, &directory.data().join(KEY), key)?;
        }
        let kind = MysqlKind { program, account, options };
        Ok(Self { server: Server::start(kind, directory)? })
    }

    /// The URL of its database `seriatim`, on which the user has all privileges:
    /// `mysql://seriatim@127.0.0.1:PORT/seriatim`.
    pub fn url(&self) -> String {
        format!("mysql://{USER}@127.0.0.1:{}/{USER}", self.server.port())
    }
}

life_cycle!(Mysql);

fn create_data(install: &Path, account: Option<Account>, data: &Path) -> Result<(), String> {
    let mut command = process::command(install, account);
    command
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--tmpdir={}", data.display()))
        // Only an empty server could be lost.
        .arg("--innodb-flush-method=nosync")
        .current_dir("/");
    process::run(&mut command)?;
    let init = data.join("init.sql");
    std::fs::write(&init, INIT).map_err(|e| format!("{}: {e}", init.display()))
}

#[derive(Debug)]
struct MysqlKind {
    program: PathBuf,
    account: Option<Account>,
    options: MysqlOptions,
}

impl Kind for MysqlKind {
    const NAME: &'static str = "MariaDB";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let mut command = process::command(&self.program, self.account);
        let path = |name: &str| data.join(name).display().to_string();
        let durable = i32::from(self.options.durable);
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        for (name, value) in [
            ("datadir", data.display().to_string()),
            // A starting server deletes the temporary tables of all others in the same folder.
            ("tmpdir", data.display().to_string()),
            ("socket", path("socket")),
            ("pid-file", path("pid")),
            ("init-file", path("init.sql")),
            ("port", port.to_string()),
            ("max-connections", self.options.connections_max.to_string()),
            ("innodb-flush-log-at-trx-commit", if durable == 1 { "1" } else { "2" }.to_owned()),
            ("innodb-buffer-pool-size", "128M".to_owned()),
        ] {
            command.arg(format!("--{name}={value}"));
        }
        if !self.options.durable {
            command.args(["--innodb-flush-method=nosync", "--innodb-doublewrite=0"]);
            command.args(["--sync-frm=0", "--innodb-file-per-table=0"]);
        }
        if self.options.certificate.is_some() {
            command.arg(format!("--ssl-cert={}", path(CERTIFICATE)));
            command.arg(format!("--ssl-key={}", path(KEY)));
        }
        command.args(&self.options.arguments);
        command.current_dir("/");
        command
    }

    fn is_ready(&self, data: &Path, port: u16, pid: u32) -> bool {
        let file = std::fs::read_to_string(data.join("pid")).unwrap_or_default();
        file.trim() == pid.to_string() && greets(port).unwrap_or(false)
    }
}

/// Whether the server sends its greeting, which it does once it serves: a packet whose first byte after the header is
/// the protocol version, 10.
fn greets(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)?;
    Ok(greeting[4] == 10)
}
