//! Which payloads are read with their jobs.

/// Larger payloads (in bytes) are read only after a claim has taken their job.
const INLINE_BYTES: usize = 4 << 10;

/// Which payloads to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bodies {
    /// None: they are empty.
    None,
    /// Small ones, and the lengths of the others.
    Lengths,
    /// Those of at most this many bytes; others are empty.
    UpTo(usize),
    /// All.
    All,
}

impl Bodies {
    /// The two columns to read.
    pub(super) fn of(self, payload: &str) -> String {
        match self {
            Self::None => "NULL, 0".to_owned(),
            Self::UpTo(most) => format!("IF(LENGTH({payload}) <= {most}, {payload}, NULL), 0"),
            Self::All => format!("{payload}, 0"),
            Self::Lengths => format!(
                "IF(LENGTH({payload}) <= {INLINE_BYTES}, {payload}, NULL), IFNULL(LENGTH({payload}), 0)"
            ),
        }
    }
}
