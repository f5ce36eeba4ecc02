//! Sizes and counters of the store's server.

use serde::Serialize;

/// Sizes and counters of the store's server. `None`: this store has no such figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vitals {
    /// Bytes: of the database with all its tables, or of the memory that Redis uses; in a cluster, of all masters.
    pub bytes: Option<u64>,
    /// The limit of these bytes, if the server has one.
    pub bytes_max: Option<u64>,
    /// Open connections: of everyone to this database, or to this server.
    pub connections: Option<u64>,
    /// The server's limit of connections.
    pub connections_max: Option<u64>,
    /// Transactions, statements or commands since the server started. It may begin at 0 again.
    pub operations: Option<u64>,
}
