//! Reference figures of a store: the bare limit of its database, which is the throughput of the least work with the
//! same guarantees; and the store's size.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;

use seriatim::Result;

/// Jobs per second claimed and removed with the least work, in the database of the store at `url`. `None` for a store
/// without a database.
pub async fn jobs_per_second(url: &str, jobs: usize) -> Result<Option<f64>> {
    let measured = match parts(url) {
        #[cfg(feature = "sqlite")]
        ("sqlite", path) => sqlite::jobs_per_second(path, jobs).await,
        #[cfg(feature = "postgres")]
        ("postgres", _) => postgres::jobs_per_second(url, jobs).await,
        #[cfg(feature = "mysql")]
        ("mysql", _) => mysql::jobs_per_second(url, jobs).await,
        #[cfg(feature = "redis")]
        ("redis", _) => redis::jobs_per_second(url, jobs).await,
        _ => return Ok(None),
    };
    measured.map(Some)
}

/// Bytes that the store occupies, including free space in its files. `None` if unknown.
pub async fn bytes(url: &str) -> Result<Option<u64>> {
    match parts(url) {
        #[cfg(feature = "sqlite")]
        ("sqlite", path) => Ok(Some(sqlite::bytes(path))),
        #[cfg(feature = "postgres")]
        ("postgres", _) => postgres::bytes(url).await.map(Some),
        #[cfg(feature = "mysql")]
        ("mysql", _) => mysql::bytes(url).await.map(Some),
        #[cfg(feature = "redis")]
        ("redis", _) => redis::bytes(url).await.map(Some),
        _ => Ok(None),
    }
}

/// The kind of a store, and the part of its URL between that and the options.
fn parts(url: &str) -> (&str, &str) {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let kind = match scheme {
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        scheme if scheme.starts_with("redis") => "redis",
        scheme => scheme,
    };
    (kind, rest.split('?').next().unwrap_or(rest))
}
