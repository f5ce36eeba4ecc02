//! Opens a store by its URL.

use std::sync::Arc;

use crate::contract::SharedStore;
use crate::model::{Error, Result};

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
    if url.starts_with("sqlite:") {
        // Opening a missing file would create it.
        crate::stores::Sqlite::look_at(sqlite_path(url)?.as_ref())?;
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

// With SQLite alone it waits for nothing.
#[allow(clippy::unused_async)]
async fn reach(url: &str) -> Result<SharedStore> {
    Ok(match kind(url)? {
        Kind::Memory => Arc::new(crate::stores::Memory::new()),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => Arc::new(crate::stores::Sqlite::open(sqlite_path(url)?)?),
        #[cfg(feature = "postgres")]
        Kind::Postgres => Arc::new(crate::stores::Postgres::connect(url).await?),
        #[cfg(feature = "mysql")]
        Kind::Mysql => Arc::new(crate::stores::Mysql::connect(url).await?),
        #[cfg(feature = "redis")]
        Kind::Redis => Arc::new(crate::stores::Redis::connect(url).await?),
    })
}

/// A kind of store that this build has.
enum Kind {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "redis")]
    Redis,
}

/// By the URL's scheme.
fn kind(url: &str) -> Result<Kind> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(unknown(&format!("{url:?} is not a store URL")));
    };
    match scheme {
        "memory" => Ok(Kind::Memory),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Kind::Sqlite),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Kind::Postgres),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Kind::Mysql),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis-cluster" | "redis-sentinel" => Ok(Kind::Redis),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(left_out("sqlite")),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(left_out("postgres")),
        #[cfg(not(feature = "mysql"))]
        "mysql" | "mariadb" => Err(left_out("mysql")),
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis-cluster" | "redis-sentinel" => Err(left_out("redis")),
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
        Kind::Sqlite => sqlite_path(url).map(drop),
        #[cfg(feature = "postgres")]
        Kind::Postgres => crate::stores::Postgres::read_url(url),
        #[cfg(feature = "mysql")]
        Kind::Mysql => crate::stores::Mysql::read_url(url),
        #[cfg(feature = "redis")]
        Kind::Redis => crate::stores::Redis::read_url(url),
    }
}

fn unknown(what: &str) -> Error {
    Error::invalid("store", format!("{what}: write one of {SCHEMES}"))
}

#[cfg(feature = "sqlite")]
fn sqlite_path(url: &str) -> Result<&str> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path == ":memory:" {
        return Err(Error::invalid(
            "store",
            "sqlite: needs the path of a file, as in sqlite:jobs.db",
        ));
    }
    Ok(path)
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis")))]
fn left_out(feature: &str) -> Error {
    let message = format!("this program was built without the feature {feature:?}");
    Error::new(crate::model::ErrorKind::Unsupported, message).in_field("store")
}
