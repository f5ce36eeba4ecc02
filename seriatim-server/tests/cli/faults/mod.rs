//! Real faults on real servers: processes that are killed and paused, servers that restart, and
//! connections that break at the worst moment.

mod early;
mod failover;
mod fleet;
mod heard;
mod inbox;
mod lost;
mod promotion;
mod rolling;

use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};

use seriatim::SharedStore;
use seriatim_testkit::{Mysql, MysqlOptions, Postgres, PostgresOptions, Redis, find_program};

/// Tests of the same case on several servers, which a mode may go with.
macro_rules! on_each_server {
    ($($name:ident: $case:ident($server:ident $(, $mode:ident)?);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $case($crate::faults::Server::$server() $(, seriatim::Mode::$mode)?).await;
        }
    )*};
}
pub(crate) use on_each_server;

/// A database server of this test alone, which may be stopped.
pub(crate) enum Server {
    Postgres(Postgres),
    Mysql(Mysql),
    Redis(Redis),
    /// A file that all nodes open. It has no server that could fail.
    Sqlite(tempfile::TempDir),
}

impl Server {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) fn postgres() -> Self {
        let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
        Self::Postgres(Postgres::start_with(options).unwrap())
    }

    pub(crate) fn mysql() -> Self {
        let options = MysqlOptions { durable: false, ..MysqlOptions::default() };
        Self::Mysql(Mysql::start_with(options).unwrap())
    }

    pub(crate) fn redis() -> Self {
        // As otherwise a crash may lose the last second, which is not what is tested.
        Self::Redis(Redis::start_with(&["--appendfsync", "always"]).unwrap())
    }

    /// A server of each kind, which runs until the next one starts.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        let starts: [fn() -> Self; 3] = [Self::postgres, Self::mysql, Self::redis];
        // So that a failure tells on which it was.
        starts.into_iter().map(|start| start()).inspect(|server| println!("{}", server.url()))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Mysql(server) => server.url(),
            Self::Redis(server) => server.url(),
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("jobs.db").display()),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::Mysql(server) => server.port(),
            Self::Redis(server) => server.port(),
            Self::Sqlite(_) => panic!("a file has no port"),
        }
    }

    /// The end of the server.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Postgres(server) => server.stop(),
            Self::Mysql(server) => server.stop(),
            Self::Redis(server) => server.stop(),
            Self::Sqlite(_) => panic!("a file has no server"),
        }
        .unwrap();
    }

    /// The same database, by way of another port.
    fn url_over(&self, port: u16) -> String {
        self.url().replacen(&format!(":{}", self.port()), &format!(":{port}"), 1)
    }

    /// A command of Redis alone.
    fn send(&self, words: &[&str]) {
        self.asked(words);
    }

    /// What Redis answers to a command.
    pub(crate) fn asked(&self, words: &[&str]) -> String {
        let Self::Redis(server) = self else { panic!("no Redis") };
        server.send(words).unwrap()
    }

    /// The client of the database. It runs the SQL that it reads, up to the first error.
    pub(crate) fn client(&self) -> Command {
        let find = |program, package| Command::new(find_program(program, package).unwrap());
        let url = self.url();
        match self {
            Self::Postgres(_) => {
                let mut client = find("psql", "postgresql-client");
                client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
                client.args(["--set=ON_ERROR_STOP=1", &url]);
                client
            }
            Self::Mysql(_) => {
                let mut client = find("mariadb", "mariadb-client");
                client.args(mysql_words(&url)).arg("--skip-column-names");
                client
            }
            Self::Sqlite(_) => {
                let mut client = find("sqlite3", "sqlite3");
                let file = url.trim_start_matches("sqlite:");
                // It waits for other writers.
                client.args(["-batch", "-bail", "-cmd", ".timeout 60000", file]);
                client
            }
            Self::Redis(_) => panic!("it has no SQL"),
        }
    }

    /// What the database answers to SQL.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(sql.as_bytes()).unwrap();
        file.rewind().unwrap();
        let output = self.client().stdin(file).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{}: {sql}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Locks lanes, as a transaction does that pushes to their keys, and ends after more than two leases of a fleet. Returns
    /// how many it has locked.
    fn lock_lanes(&self) -> u64 {
        let (lanes, sleep) = match self {
            Self::Postgres(_) => ("seriatim.lane", "pg_sleep"),
            Self::Mysql(_) => ("seriatim_lane", "SLEEP"),
            Self::Redis(_) | Self::Sqlite(_) => panic!("no transaction of others locks lanes"),
        };
        let answer = self.sql(&format!(
            "BEGIN; SELECT 'locked' FROM {lanes} LIMIT 50 FOR UPDATE SKIP LOCKED; SELECT {sleep}(5); COMMIT;"
        ));
        answer.matches("locked").count() as u64
    }

    /// The crash of the server and its return.
    fn break_down(&mut self) {
        match self {
            Self::Postgres(server) => server.kill().and_then(|()| server.restart()),
            Self::Mysql(server) => server.kill().and_then(|()| server.restart()),
            Self::Redis(server) => server.kill().and_then(|()| server.restart()),
            Self::Sqlite(_) => panic!("a file has no server"),
        }
        .unwrap();
    }

    /// A store in it, ready to use.
    pub(crate) async fn store(&self) -> SharedStore {
        let store = seriatim::connect(&self.url()).await.unwrap();
        store.migrate().await.unwrap();
        store
    }
}

/// Host, port, user and database, as the programs of MariaDB want them.
pub(crate) fn mysql_words(url: &str) -> Vec<String> {
    let (_, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    let (host, port) = host.split_once(':').unwrap();
    let words = ["--no-defaults", "--host", host, "--port", port, "--user", user, database];
    words.map(str::to_owned).into()
}
