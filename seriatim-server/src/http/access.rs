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
        self == Self::Open || self.roles().contains(&role)
    }

    /// The roles that may; none for what is open to everyone.
    pub(super) fn roles(self) -> &'static [Role] {
        use Role::{Admin, Operator, Producer, Reader, Worker};
        match self {
            Self::Open => &[],
            Self::Read => &[Reader, Operator, Admin],
            Self::Produce => &[Producer, Admin],
            Self::Follow => &[Reader, Operator, Producer, Admin],
            Self::Cancel => &[Operator, Producer, Admin],
            Self::Operate => &[Operator, Admin],
            Self::Work => &[Worker, Admin],
            Self::Admin => &[Admin],
        }
    }
}
