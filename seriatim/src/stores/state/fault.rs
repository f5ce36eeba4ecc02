//! Deliberate defects: the checker must find each of them in a recorded history.

/// What a defective store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A settle with an old token is carried out.
    NoFence,
    /// A lane that is claimed can be claimed again.
    BusyLaneClaimable,
    /// A job that is pushed while its lane is claimed is taken for merged into one in flight.
    MergeDropped,
    /// Settling deletes what waits under the same key too.
    SettleByIdOnly,
    /// Every claim gets the same token.
    TokenNotGrowing,
    /// A job that waits for a retry goes behind the later ones.
    RetryOvertakes,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NoFence,
        Self::BusyLaneClaimable,
        Self::MergeDropped,
        Self::SettleByIdOnly,
        Self::TokenNotGrowing,
        Self::RetryOvertakes,
    ];
}
