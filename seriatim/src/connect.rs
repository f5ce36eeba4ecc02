//! Opens a store by its URL.

use std::sync::Arc;

use crate::contract::SharedStore;
use crate::model::error::{Error, Result};

/// The URL schemes of stores.
const SCHEMES: &str = "sqlite:PATH, memory:, postgres://…, mysql://…, redis://…, rediss://…, \
                       redis-cluster://…, redis-sentinel://…";

/// Opens the store at `url`, and creates or upgrades its tables or keys.
///
/// `sqlite:PATH` is a file; `memory:` forgets everything when the process ends. Errors never show the URL's password.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> seriatim::Result<()> {
/// let store = seriatim::connect("memory:").await?; // or sqlite:PATH, postgres://…, mysql://…, redis://…
/// assert!(store.queues().await?.is_empty());
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<SharedStore> {
    let store = reach(url).await?;
    store.migrate().await?;
    Ok(store)
}

/// Opens the store at `url` only if it exists, for tools that read and repair: it creates and upgrades nothing.
///
/// `NotFound` if no store was set up there; `Conflict` if another version wrote it.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let missing = seriatim::connect_existing("sqlite:no-such-file.db").await;
/// assert_eq!(missing.err().unwrap().kind(), seriatim::ErrorKind::NotFound);
/// # }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub async fn connect_existing(url: &str) -> Result<SharedStore> {
    #[cfg(feature = "sqlite")]
    if let Some(path) = url.strip_prefix("sqlite:") {
        // Opening a missing file would create it.
        crate::stores::Sqlite::look_at(sqlite_path(path)?.as_ref())?;
    }
    let store = reach(url).await?;
    match store.check().await {
        Ok(()) => Ok(store),
        Err(error) => {
            store.close().await?;
            Err(error)
        }
    }
}

async fn reach(url: &str) -> Result<SharedStore> {
    match kind(url)? {
        Kind::Memory => Ok(Arc::new(crate::stores::Memory::new())),
        Kind::Sqlite(rest) => sqlite(rest),
        Kind::Postgres => postgres(url).await,
        Kind::Mysql => mysql(url).await,
        Kind::Redis => redis(url).await,
    }
}

/// The kind of store, by the URL's scheme.
enum Kind<'a> {
    Memory,
    /// With the part after the scheme.
    Sqlite(&'a str),
    Postgres,
    Mysql,
    Redis,
}

fn kind(url: &str) -> Result<Kind<'_>> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(unknown(&format!("{url:?} is not a store URL")));
    };
    match scheme {
        "memory" => Ok(Kind::Memory),
        "sqlite" => Ok(Kind::Sqlite(rest)),
        "postgres" | "postgresql" => Ok(Kind::Postgres),
        "mysql" | "mariadb" => Ok(Kind::Mysql),
        "redis" | "rediss" | "redis-cluster" | "redis-sentinel" => Ok(Kind::Redis),
        _ => Err(unknown(&format!("there is no kind of store called {scheme:?}"))),
    }
}

/// Refuses a URL as [`connect`] does, but opens nothing.
///
/// ```
/// assert!(seriatim::store::check_url("jobs.db").is_err());
/// assert!(seriatim::store::check_url("memory:").is_ok());
/// ```
pub fn check_url(url: &str) -> Result<()> {
    match kind(url)? {
        Kind::Memory => Ok(()),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite(rest) => sqlite_path(rest).map(drop),
        #[cfg(not(feature = "sqlite"))]
        Kind::Sqlite(_) => Err(left_out("sqlite")),
        #[cfg(feature = "postgres")]
        Kind::Postgres => crate::stores::Postgres::read_url(url),
        #[cfg(not(feature = "postgres"))]
        Kind::Postgres => Err(left_out("postgres")),
        #[cfg(feature = "mysql")]
        Kind::Mysql => crate::stores::Mysql::read_url(url),
        #[cfg(not(feature = "mysql"))]
        Kind::Mysql => Err(left_out("mysql")),
        #[cfg(feature = "redis")]
        Kind::Redis => crate::stores::Redis::read_url(url),
        #[cfg(not(feature = "redis"))]
        Kind::Redis => Err(left_out("redis")),
    }
}

fn unknown(what: &str) -> Error {
    Error::invalid("store", format!("{what}: write one of {SCHEMES}"))
}

#[cfg(feature = "sqlite")]
fn sqlite(path: &str) -> Result<SharedStore> {
    Ok(Arc::new(crate::stores::Sqlite::open(sqlite_path(path)?)?))
}

#[cfg(feature = "sqlite")]
fn sqlite_path(path: &str) -> Result<&str> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path == ":memory:" {
        return Err(Error::invalid(
            "store",
            "sqlite: needs the path of a file, as in sqlite:jobs.db",
        ));
    }
    Ok(path)
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str) -> Result<SharedStore> {
    Err(left_out("sqlite"))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<SharedStore> {
    Ok(Arc::new(crate::stores::Postgres::connect(url).await?))
}

// Same signature as the one above.
#[cfg(not(feature = "postgres"))]
#[allow(clippy::unused_async)]
async fn postgres(_: &str) -> Result<SharedStore> {
    Err(left_out("postgres"))
}

#[cfg(feature = "mysql")]
async fn mysql(url: &str) -> Result<SharedStore> {
    Ok(Arc::new(crate::stores::Mysql::connect(url).await?))
}

// Same signature as the one above.
#[cfg(not(feature = "mysql"))]
#[allow(clippy::unused_async)]
async fn mysql(_: &str) -> Result<SharedStore> {
    Err(left_out("mysql"))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<SharedStore> {
    Ok(Arc::new(crate::stores::Redis::connect(url).await?))
}

// Same signature as the one above.
#[cfg(not(feature = "redis"))]
#[allow(clippy::unused_async)]
async fn redis(_: &str) -> Result<SharedStore> {
    Err(left_out("redis"))
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis")))]
fn left_out(feature: &str) -> Error {
    let message = format!("this program was built without the feature {feature:?}");
    Error::new(crate::model::error::ErrorKind::Unsupported, message).in_field("store")
}
