//! The servers that all tests of a process share.

use std::env;
use std::sync::LazyLock;

use crate::{Mysql, MysqlOptions, PgBouncer, Postgres, PostgresOptions, Redis, RedisCluster};

/// The URL of the PostgreSQL that tests use. `cargo xtask test` sets it.
pub const POSTGRES_VARIABLE: &str = "SERIATIM_TEST_POSTGRES";
/// The port of the PgBouncer in front of that PostgreSQL. `cargo xtask test` sets it.
pub const PGBOUNCER_VARIABLE: &str = "SERIATIM_TEST_PGBOUNCER";
/// The URL of the MySQL or MariaDB that tests use. `cargo xtask test` sets it.
pub const MYSQL_VARIABLE: &str = "SERIATIM_TEST_MYSQL";
/// The URL of the Redis that tests use. `cargo xtask test` sets it.
pub const REDIS_VARIABLE: &str = "SERIATIM_TEST_REDIS";
/// The URL of the Redis Cluster that tests use. `cargo xtask test` sets it.
pub const REDIS_CLUSTER_VARIABLE: &str = "SERIATIM_TEST_REDIS_CLUSTER";

// Statics are not dropped: these servers get the death signal, and the next start removes their directories.
static POSTGRES: LazyLock<Result<Postgres, String>> =
    LazyLock::new(|| Postgres::start_with(PostgresOptions::shared()));
static BOUNCER: LazyLock<Result<PgBouncer, String>> =
    LazyLock::new(|| PgBouncer::start(postgres_port()?));
static MYSQL: LazyLock<Result<Mysql, String>> =
    LazyLock::new(|| Mysql::start_with(MysqlOptions { durable: false, ..MysqlOptions::default() }));
static REDIS: LazyLock<Result<Redis, String>> = LazyLock::new(Redis::start);
static CLUSTER: LazyLock<Result<RedisCluster, String>> = LazyLock::new(RedisCluster::start);

/// The PostgreSQL for tests: [`POSTGRES_VARIABLE`] if set, otherwise a non-durable one that this process starts on
/// first use. Many tests use it concurrently, so each creates its own database or schema; a test that stops or kills
/// a server starts its own.
///
/// Fails as [`Postgres::start`] does. The test must then fail too, and not pass without its server.
pub fn postgres_url() -> Result<String, String> {
    env::var(POSTGRES_VARIABLE)
        .or_else(|_| POSTGRES.as_ref().map(Postgres::url).map_err(Clone::clone))
}

/// The port of a PgBouncer in front of the server of [`postgres_url`]: [`PGBOUNCER_VARIABLE`] if set, otherwise one that this
/// process starts on first use. Its connections to the server, and what those have planned, outlive a test.
///
/// Fails as [`PgBouncer::start`] does. The test must then fail too.
pub fn pgbouncer_port() -> Result<u16, String> {
    match env::var(PGBOUNCER_VARIABLE) {
        Ok(port) => port.parse().map_err(|_| format!("{PGBOUNCER_VARIABLE} is {port:?}, no port")),
        Err(_) => BOUNCER.as_ref().map(PgBouncer::port).map_err(Clone::clone),
    }
}

/// The port of the server of [`postgres_url`], which must name one.
pub fn postgres_port() -> Result<u16, String> {
    let url = postgres_url()?;
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
    port.ok_or_else(|| format!("{url} names no port"))
}

/// The MySQL or MariaDB for tests: [`MYSQL_VARIABLE`] if set, otherwise a non-durable one that this process starts on
/// first use. Many tests use it concurrently, so each creates its own database.
///
/// Fails as [`Mysql::start`] does. The test must then fail too, and not pass without its server.
pub fn mysql_url() -> Result<String, String> {
    env::var(MYSQL_VARIABLE).or_else(|_| MYSQL.as_ref().map(Mysql::url).map_err(Clone::clone))
}

/// The Redis for tests: [`REDIS_VARIABLE`] if set, otherwise one that this process starts on first use. Many tests
/// use it concurrently, so each uses its own key prefix and none flushes it.
///
/// Fails as [`Redis::start`] does. The test must then fail too, and not pass without its server.
pub fn redis_url() -> Result<String, String> {
    env::var(REDIS_VARIABLE).or_else(|_| REDIS.as_ref().map(Redis::url).map_err(Clone::clone))
}

/// The Redis Cluster for tests: [`REDIS_CLUSTER_VARIABLE`] if set, otherwise one that this process starts on first
/// use. The rules of [`redis_url`] apply.
///
/// Fails as [`RedisCluster::start`] does. The test must then fail too.
pub fn redis_cluster_url() -> Result<String, String> {
    env::var(REDIS_CLUSTER_VARIABLE)
        .or_else(|_| CLUSTER.as_ref().map(RedisCluster::url).map_err(Clone::clone))
}
