//! Private database servers for tests and benchmarks, and [`fuzz`]ing.
//!
//! [`Postgres`], [`Mysql`] and [`Redis`] start a real server in its own directory, on a free port of 127.0.0.1. They
//! share and change nothing on the machine: a server that already runs is left alone, and several test runs can run
//! concurrently.
//!
//! ```no_run
//! # fn main() -> Result<(), String> {
//! let mut redis = seriatim_testkit::Redis::start()?;
//! println!("listening at {}", redis.url());
//! redis.kill()?; // SIGKILL, as a crash would
//! redis.restart()?; // same port, same data
//! # Ok(())
//! # }
//! ```
//!
//! A server stops when its value is dropped. If `setpriv` of util-linux is installed (as on every Debian), the server
//! also dies when the process that started it is killed. The next start removes directories that such a process left
//! behind.
//!
//! Error messages say what to do.

mod account;
mod authority;
mod chromium;
mod directory;
pub mod fuzz;
mod mysql;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod program;
mod proxy;
mod redis;
mod redis_cluster;
mod rsync;
mod server;
mod shared;
mod spawner;
mod templates;

pub use authority::Authority;
pub use chromium::Chromium;
pub use mysql::{Mysql, MysqlOptions};
pub use pgbouncer::PgBouncer;
pub use port::free_port;
pub use postgres::{Postgres, PostgresOptions};
pub use program::{MissingProgram, find_program};
pub use proxy::{Cut, Proxy};
pub use redis::{Away, Redis};
pub use redis_cluster::{RedisCluster, RedisSentinel, SlotMove};
pub use rsync::Rsync;
pub use shared::{
    MYSQL_VARIABLE, PGBOUNCER_VARIABLE, POSTGRES_VARIABLE, REDIS_CLUSTER_VARIABLE, REDIS_VARIABLE,
    mysql_url, pgbouncer_port, postgres_port, postgres_url, redis_cluster_url, redis_url,
};
pub use templates::Templates;
