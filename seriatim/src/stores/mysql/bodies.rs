//! Which payloads are read with their jobs.

/// Larger payloads are read only once a claim has taken their job.
const INLINE_BYTES: usize = 4 << 10;

/// What is read of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bodies {
    /// Nothing: they are empty.
    None,
    /// The small ones, and the length of the others.
    Lengths,
    /// All.
    All,
}

impl Bodies {
    /// The two columns that are read for it.
    pub(super) fn of(self, payload: &str) -> String {
        match self {
            Self::None => "NULL, 0".to_owned(),
            Self::All => format!("{payload}, 0"),
            Self::Lengths => format!(
                "IF(LENGTH({payload}) <= {INLINE_BYTES}, {payload}, NULL), IFNULL(LENGTH({payload}), 0)"
            ),
        }
    }
}
