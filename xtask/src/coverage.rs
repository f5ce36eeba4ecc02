//! `cargo xtask coverage`: measures the lines of the library that its tests and the conformance suite run.

use std::path::Path;

use seriatim_testkit::{
    POSTGRES_VARIABLE, Postgres, PostgresOptions, REDIS_CLUSTER_VARIABLE, REDIS_VARIABLE, Redis,
    RedisCluster,
};

use crate::cargo;
use crate::packages;
use crate::step;

/// The lowest accepted share of lines, in percent.
const LEAST: &str = "85";

/// Measures with cargo-tarpaulin, which needs no other compiler tools. Fails below `LEAST`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    if !cargo::has(root, "tarpaulin") {
        return Err(
            "coverage needs cargo-tarpaulin: cargo install cargo-tarpaulin --locked".to_owned()
        );
    }
    packages::ensure()?;
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let (postgres, redis) = (Postgres::start_with(options)?, Redis::start()?);
    let cluster = RedisCluster::start()?;
    let args = [
        "tarpaulin",
        "--package",
        "seriatim",
        "--package",
        "seriatim-verify",
        "--include-files",
        "seriatim/src/*",
        "--all-features",
        "--engine",
        "llvm",
        "--lib",
        "--test",
        "conformance",
        "--target-dir",
        "target/coverage",
        "--skip-clean",
        "--timeout",
        "600",
        "--fail-under",
        LEAST,
    ];
    let mut command = cargo::command(root, &args);
    command.env(POSTGRES_VARIABLE, postgres.url()).env(REDIS_VARIABLE, redis.url());
    command.env(REDIS_CLUSTER_VARIABLE, cluster.url());
    step::run("cargo tarpaulin", &mut command)
}
