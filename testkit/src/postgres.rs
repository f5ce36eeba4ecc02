//! A private PostgreSQL.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::account::{self, Account};
use crate::directory::{Directory, write_for};
use crate::process::{self, run};
use crate::program::find_program;
use crate::server::{Kind, Server, life_cycle};
use crate::templates;

const PACKAGE: &str = "postgresql";
const USER: &str = "postgres";
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A standby connects at its start, and again after five seconds.
const FOLLOW_LIMIT: Duration = Duration::from_secs(30);
const FOLLOWERS: &str = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";

/// The settings of a [`Postgres`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// `true` (the default) leaves `fsync` and `full_page_writes` on, as in production and for measurements. `false`
    /// turns them off: tests run faster, and [`Postgres::kill`] still keeps all commits, because the operating system
    /// has them; only a crash of the machine would lose them. The server also restarts immediately after a kill,
    /// while a durable server first syncs all its files, which takes seconds on a slow disk.
    ///
    /// `synchronous_commit` is on in both cases: without it, a kill would lose commits.
    pub durable: bool,
    /// The server's `max_connections`. Default: 200.
    pub connections_max: u16,
    /// A certificate and its private key, in PEM; if set, the server speaks TLS. Default: none.
    pub certificate: Option<(String, String)>,
    /// Whether each commit waits until a standby has it on disk, so nothing is committed before the first
    /// [`Postgres::start_standby`]. Default: no.
    pub synchronous: bool,
    /// The ICU locale by which the databases sort texts, such as `en-US`. Default: none, so they sort by bytes.
    pub icu_locale: Option<&'static str>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            durable: true,
            connections_max: 200,
            certificate: None,
            synchronous: false,
            icu_locale: None,
        }
    }
}

impl PostgresOptions {
    /// Those of the server that most tests share: not durable, and with a locale in which upper and lower case, accents
    /// and punctuation do not sort by bytes, so that a test fails where the order of texts depends on the database.
    pub fn shared() -> Self {
        Self { durable: false, icu_locale: Some("en-US"), ..Self::default() }
    }
}

/// A private PostgreSQL server, stopped and removed on drop.
///
/// It listens on 127.0.0.1 only and trusts every local user, so store nothing important in it. PostgreSQL refuses to
/// run as root, so root's servers run as `postgres` or `nobody`.
#[derive(Debug)]
pub struct Postgres {
    server: Server<PostgresKind>,
}

impl Postgres {
    /// Starts a durable server with the default [`PostgresOptions`].
    ///
    /// Fails if PostgreSQL is not installed (the message names the package), or if the server does not serve within a
    /// minute (the message has the end of its log).
    pub fn start() -> Result<Self, String> {
        Self::start_with(PostgresOptions::default())
    }

    /// Starts a server with `options`; fails as [`Postgres::start`] does.
    pub fn start_with(options: PostgresOptions) -> Result<Self, String> {
        let initdb = find_program("initdb", PACKAGE)?;
        let program = find_program("postgres", PACKAGE)?;
        let account = account::unprivileged()?;
        let directory = Directory::with_data(account)?;
        let template = format!("postgres{}", options.icu_locale.unwrap_or_default());
        templates::fill(&template, account, &directory.data(), |data| {
            create_cluster(&initdb, account, options.icu_locale, data)
        })?;
        if let Some((certificate, key)) = &options.certificate {
            // It refuses a key that others may read.
            write_for(account, &directory.data().join("server.crt"), certificate)?;
            write_for(account, &directory.data().join("server.key"), key)?;
        }
        let kind = PostgresKind { program, account, options };
        Ok(Self { server: Server::start(kind, directory)? })
    }

    /// Starts a standby that copies this server and then follows it, both by way of `port`: that of this server, or of
    /// a proxy for it. When this returns, the standby follows.
    pub fn start_standby(&self, port: u16) -> Result<Self, String> {
        let kind = self.server.kind();
        let options = PostgresOptions { synchronous: false, ..kind.options.clone() };
        let kind = PostgresKind { options, ..kind.clone() };
        let directory = Directory::with_data(kind.account)?;
        copy_cluster(port, kind.account, &directory.data())?;
        let standby = Self { server: Server::start(kind, directory)? };
        let deadline = Instant::now() + FOLLOW_LIMIT;
        while self.query(FOLLOWERS)? == "0" {
            if Instant::now() > deadline {
                return Err(format!("the standby does not follow within {FOLLOW_LIMIT:?}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(standby)
    }

    /// Makes a standby a primary, and returns when it takes writes.
    pub fn promote(&self) -> Result<(), String> {
        let pg_ctl = find_program("pg_ctl", PACKAGE)?;
        let mut command = process::command(&pg_ctl, self.server.kind().account);
        command.arg("promote").arg("-D").arg(self.server.data());
        run(command.current_dir("/")).map(drop)
    }

    /// Runs SQL with `psql` and returns what it prints: a line for each row, `|` between columns.
    pub fn query(&self, sql: &str) -> Result<String, String> {
        let psql = find_program("psql", PACKAGE)?;
        let mut command = process::command(&psql, None);
        command.args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", sql]);
        run(command.arg(self.url())).map(|answer| answer.trim().to_owned())
    }

    /// The URL of its database `postgres`, whose user is the superuser:
    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{USER}", self.server.port())
    }
}

life_cycle!(Postgres);

fn create_cluster(
    initdb: &Path,
    account: Option<Account>,
    icu_locale: Option<&str>,
    data: &Path,
) -> Result<(), String> {
    let mut command = process::command(initdb, account);
    if let Some(locale) = icu_locale {
        command.args(["--locale-provider", "icu", "--icu-locale", locale]);
    }
    command
        .args(["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale"])
        // Only an empty cluster could be lost.
        .arg("--no-sync")
        .arg("--pgdata")
        .arg(data);
    run(command.current_dir("/")).map(drop)
}

/// Copies the cluster of the server on `port` for a standby of it.
fn copy_cluster(port: u16, account: Option<Account>, data: &Path) -> Result<(), String> {
    let copy = find_program("pg_basebackup", PACKAGE)?;
    let mut command = process::command(&copy, account);
    command.args(["--host", "127.0.0.1", "--username", USER, "--port", &port.to_string()]);
    command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
    run(command.arg(data).current_dir("/")).map(drop)
}

#[derive(Clone, Debug)]
struct PostgresKind {
    program: PathBuf,
    account: Option<Account>,
    options: PostgresOptions,
}

impl Kind for PostgresKind {
    const NAME: &'static str = "PostgreSQL";
    /// A fast shutdown; SIGTERM would wait until the clients leave.
    const STOP_SIGNAL: Signal = Signal::INT;

    fn command(&self, data: &Path, port: u16) -> Command {
        let mut command = process::command(&self.program, self.account);
        command.arg("-D").arg(data).args(["-h", "127.0.0.1", "-k", "", "-p"]).arg(port.to_string());
        command.arg("-N").arg(self.options.connections_max.to_string());
        let durable = if self.options.durable { "on" } else { "off" };
        command.args(["-c", "synchronous_commit=on"]);
        for setting in ["fsync", "full_page_writes"] {
            command.arg("-c").arg(format!("{setting}={durable}"));
        }
        if self.options.synchronous {
            command.args(["-c", "synchronous_standby_names=*"]);
        }
        if self.options.certificate.is_some() {
            command.args(["-c", "ssl=on"]);
        }
        command.current_dir("/");
        command
    }

    fn is_ready(&self, data: &Path, port: u16, pid: u32) -> bool {
        says_ready(data, pid) && accepts_sessions(port).unwrap_or(false)
    }
}

/// Whether `postmaster.pid` has our process (line 1) and the state `ready` (line 8). This distinguishes our server
/// from another one on the same port.
fn says_ready(data: &Path, pid: u32) -> bool {
    let file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let line = |index| file.lines().nth(index).map(str::trim);
    line(0) == Some(pid.to_string().as_str()) && line(7) == Some("ready")
}

/// Whether the server answers the start of a session with an authentication message; during start and recovery it
/// answers with an error.
fn accepts_sessions(port: u16) -> io::Result<bool> {
    const PROTOCOL: u32 = 3 << 16;
    const TERMINATE: [u8; 5] = [b'X', 0, 0, 0, 4];
    let parameters = format!("user\0{USER}\0database\0{USER}\0\0");
    let mut start = (8 + parameters.len() as u32).to_be_bytes().to_vec();
    start.extend(PROTOCOL.to_be_bytes());
    start.extend(parameters.as_bytes());

    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(&start)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    stream.write_all(&TERMINATE)?;
    Ok(answer == *b"R")
}
