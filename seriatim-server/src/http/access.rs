//! What endpoints ask for.

use crate::config::Role;

/// What an endpoint asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone.
    Open,
    /// Readers.
    Read,
    /// Producers.
    Produce,
    /// Readers and producers: the state of a job whose id one knows.
    Follow,
    /// Producers and operators: cancelling a job, sealing a batch.
    Cancel,
    /// Operators: what changes when work runs, and loses nothing.
    Operate,
    /// Workers.
    Work,
    /// Admins alone.
    Admin,
}

impl Access {
    /// Whether the role is enough.
    pub(super) fn admits(self, role: Role) -> bool {
        match self {
            Self::Open => true,
            _ if role == Role::Admin => true,
            Self::Read => matches!(role, Role::Reader | Role::Operator),
            Self::Produce => role == Role::Producer,
            Self::Follow => matches!(role, Role::Reader | Role::Operator | Role::Producer),
            Self::Cancel => matches!(role, Role::Operator | Role::Producer),
            Self::Operate => role == Role::Operator,
            Self::Work => role == Role::Worker,
            Self::Admin => false,
        }
    }

    /// The roles that may, for the documentation.
    pub(super) fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Open => &[],
            Self::Read => &["reader", "operator", "admin"],
            Self::Produce => &["producer", "admin"],
            Self::Follow => &["reader", "operator", "producer", "admin"],
            Self::Cancel => &["operator", "producer", "admin"],
            Self::Operate => &["operator", "admin"],
            Self::Work => &["worker", "admin"],
            Self::Admin => &["admin"],
        }
    }
}
