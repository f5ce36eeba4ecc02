//! `cargo xtask servers`: private servers for development and measurements.

use seriatim_testkit::{Mysql, Postgres, Redis, RedisCluster};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Starts durable servers, as in production, prints their addresses, and stops them on Ctrl-C (or SIGTERM, or when
/// the terminal closes).
pub(crate) fn run() -> Result<(), String> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| e.to_string())?;
    let postgres = Postgres::start()?;
    let mysql = Mysql::start()?;
    let redis = Redis::start()?;
    let cluster = RedisCluster::start()?;
    println!("postgres  {}", postgres.url());
    println!("mysql     {}", mysql.url());
    println!("redis     {}", redis.url());
    println!("cluster   {}", cluster.url());
    eprintln!("Ctrl-C stops them and removes their data.");
    signals.forever().next();
    Ok(())
}
