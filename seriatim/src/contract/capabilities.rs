//! What a store can do, and the secret that its users share.

use std::fmt;

use serde::Serialize;

/// What a store can and cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The store's name, as in a URL: `sqlite`, `postgres`, …
    pub name: &'static str,
    /// Whether several processes can use it concurrently.
    pub shared: bool,
    /// Set for a server with several cores, which answers concurrent calls sooner: two claims may be on their way at
    /// once, and a claim of more lanes than this is sent as two of half the size. `None`: one claim is as fast.
    pub claim_split: Option<usize>,
    /// Whether claims may have turns of several jobs that are handed over one after the other: see
    /// [`Claim::series_max`](crate::store::Claim::series_max).
    pub series: bool,
    /// Whether SQL sessions can insert tasks: see [`Inbox`](crate::store::Inbox).
    pub inbox: bool,
    /// Whether an idempotency key can be unique in the whole store: see
    /// [`IdempotencyScope::Store`](crate::store::IdempotencyScope::Store). A push that asks for it elsewhere is `Invalid`.
    pub store_scope: bool,
    /// Whether jobs can belong to batches: see [`Batches`](crate::store::Batches). A push that names one elsewhere is
    /// `Invalid`.
    pub batches: bool,
    /// Whether finished jobs can be listed newest first, or by the time of their end, without reading all that the
    /// queue keeps. Dead jobs can be, on every store.
    pub finished_by_time: bool,
}

/// A secret that all users of a store share. `Debug` does not show it. See [`crate::store::Store::secret`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
