//! The bare limit of a store: the least work that gives the same guarantees, measured beside our own run.

use crate::cli::output::Failure;

/// Jobs in a batch: as many as in the engine's largest claim.
const BATCH: usize = 1_000;

/// What the names of its keys in Redis begin with.
const PREFIX: &str = "bench";
/// Concurrent claimers, for a server whose sessions wait for each other's flushes.
const CLIENTS: usize = 5;

/// Jobs per second that are claimed and removed with the least work.
pub(super) async fn per_second(url: &str, jobs: usize) -> Result<f64, Failure> {
    match url.split_once(':') {
        Some(("sqlite", path)) => sqlite(path, jobs).await,
        Some(("postgres" | "postgresql", _)) => {
            Ok(seriatim::store::postgres_bare_limit(url, jobs, BATCH, CLIENTS).await?)
        }
        Some(("mysql" | "mariadb", _)) => {
            Ok(seriatim::store::mysql_bare_limit(url, jobs, BATCH).await?)
        }
        Some((scheme, _)) if scheme.starts_with("redis") => {
            Ok(seriatim::store::redis_bare_limit(url, PREFIX, jobs, BATCH).await?)
        }
        _ => Err(Failure::usage(
            "memory: has no bare limit: --limit needs a store that keeps something",
        )),
    }
}

/// On a file of its own beside the store's.
async fn sqlite(path: &str, jobs: usize) -> Result<f64, Failure> {
    let path = std::path::PathBuf::from(format!("{path}.limit"));
    let measured = {
        let path = path.clone();
        let measure = move || seriatim::store::sqlite_bare_limit(&path, jobs, BATCH);
        tokio::task::spawn_blocking(measure).await
    };
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(measured.map_err(Failure::failed)??)
}
