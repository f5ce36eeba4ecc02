//! Real faults on real servers: processes that are killed and paused, servers that restart, and
//! connections that break at the worst moment.

mod early;
mod failover;
mod fleet;
mod heard;
mod inbox;
mod lost;
mod promotion;

use seriatim::SharedStore;
use seriatim_testkit::{Mysql, MysqlOptions, Postgres, PostgresOptions, Redis};

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
    async fn store(&self) -> SharedStore {
        let store = seriatim::connect(&self.url()).await.unwrap();
        store.migrate().await.unwrap();
        store
    }
}
