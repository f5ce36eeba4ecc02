//! The stores, one folder each, and the code that several of them share.

mod asked;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod asleep;
#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod behind;
#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod contended;
pub(crate) mod gone;
mod handover;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod idle;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod inbox;
mod job_look;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
mod json;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod lane_filter;
mod look;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod marks;
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod options;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod order;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(all(test, any(feature = "mysql", feature = "postgres", feature = "redis")))]
mod race;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod room;
mod route;
mod sharing;
#[cfg(all(test, any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
mod sql_session;
#[cfg(all(test, any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
mod sql_views;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod state;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    expect(dead_code, reason = "Redis has no connections to count")
)]
mod url;
#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod waiting;

#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use memory::Memory;
#[cfg(feature = "mysql")]
pub use mysql::Mysql;
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use sqlite::{Durability, Sqlite};
