//! The figures of queues, with the same names everywhere. `docs/figures.md` defines them.

use schemars::JsonSchema;
use serde::Serialize;

/// A figure that is a whole number.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
    /// Whether it only grows.
    pub(crate) grows: bool,
    pub(crate) of: fn(&Numbers) -> u64,
}

macro_rules! figures {
    ($($name:ident $kind:ident $says:literal)*) => {
        /// The figures of one queue or several.
        #[derive(Clone, Debug, Default, Serialize, JsonSchema)]
        pub(crate) struct Numbers {
            $(#[doc = $says] pub(crate) $name: u64,)*
            /// How long the oldest due lane has been due, in seconds
            pub(crate) lag: f64,
        }

        /// The whole numbers, in the order in which they are shown.
        pub(crate) const ALL: &[Figure] = &[$(Figure {
            name: stringify!($name),
            says: $says,
            grows: $kind,
            of: |figures| figures.$name,
        }),*];
    };
}

const GAUGE: bool = false;
const COUNTER: bool = true;

figures! {
    jobs GAUGE "Jobs that have not ended"
    lanes GAUGE "Lanes that wait or are claimed"
    waiting GAUGE "Lanes that are not claimed"
    claimed GAUGE "Turns that are claimed: running or prefetched"
    running GAUGE "Turns whose handler has been called, and those of remote workers"
    prefetched GAUGE "Turns that are claimed and wait for a free slot of their node"
    retrying GAUGE "Lanes that failed and have not succeeded since"
    dead GAUGE "Jobs in the morgue"
    processed COUNTER "Jobs that are done"
    failed COUNTER "Turns that failed or crashed"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_defined_in_the_documents() {
        let page = include_str!("../../../docs/figures.md");
        for figure in ALL {
            let row = format!("\n| `{}` |", figure.name);
            assert!(page.contains(&row), "docs/figures.md has no row {row}");
        }
    }
}
