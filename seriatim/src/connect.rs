//! From a URL to a store.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Memory, SharedStore};

/// The URL of a store that names none.
pub const DEFAULT_URL: &str = "sqlite:seriatim.db";

/// Opens the store that `url` names, and creates or upgrades what it keeps.
///
/// `sqlite:PATH`, `memory:`, `postgres://…`, `redis://…`. A store that this build was made without
/// is `Unsupported`, naming the feature; an unknown scheme is `Invalid`. No error shows a password.
pub async fn connect(url: &str) -> Result<SharedStore> {
    let store = open(url)?;
    store.migrate().await.map_err(|e| e.while_doing(&format!("opening {}", redacted(url))))?;
    Ok(store)
}

fn open(url: &str) -> Result<SharedStore> {
    let Some((scheme, rest)) = url.split_once(':') else {
        let message = format!(
            "{:?} names no store: write sqlite:{url}, memory: or postgres://…",
            redacted(url)
        );
        return Err(Error::invalid("store", message));
    };
    match scheme {
        "memory" => Ok(Arc::new(Memory::new())),
        "sqlite" => sqlite(rest),
        "postgres" | "postgresql" => Err(not_built("PostgreSQL", "postgres")),
        "redis" | "rediss" | "redis-cluster" | "redis-sentinel" => Err(not_built("Redis", "redis")),
        "mysql" | "mariadb" => Err(not_built("MySQL and MariaDB", "mysql")),
        _ => {
            let message = format!(
                "{scheme:?} is no kind of store: write sqlite:PATH, memory:, postgres://… or redis://…"
            );
            Err(Error::invalid("store", message))
        }
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(rest: &str) -> Result<SharedStore> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(Error::invalid("store", "names no file: write sqlite:PATH"));
    }
    Ok(Arc::new(crate::store::Sqlite::open(path)?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str) -> Result<SharedStore> {
    Err(not_built("SQLite", "sqlite"))
}

fn not_built(what: &str, feature: &str) -> Error {
    let message = format!("this build has no store for {what} (feature {feature})");
    Error::new(ErrorKind::Unsupported, message).in_field("store")
}

/// The URL without its password, for messages.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // An unescaped password may hold any character: what counts is the last `@`.
    let shown = match rest.rsplit_once('@') {
        Some((user, host)) => format!("{}:***@{host}", user.split(':').next().unwrap_or("")),
        None => rest.to_owned(),
    };
    // Drivers also take `?password=…`.
    let shown = shown.split_once('?').map_or(shown.clone(), |(path, _)| format!("{path}?…"));
    format!("{scheme}://{shown}")
}
