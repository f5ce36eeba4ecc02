//! `[node] splitter`: which queues a node prefers.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use seriatim::engine::{FleetView, Splitter};

use super::text_or_table::{TextOrTable, text_or_table};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SplitterConfig {
    #[default]
    All,
    ByNode,
    /// Every `of`-th queue, from the one at `number` on.
    Part {
        number: u32,
        of: u32,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    number: u32,
    of: u32,
}

impl SplitterConfig {
    /// The splitter of the engine; `queues` are all of the configuration, in order.
    pub(crate) fn over<'a>(self, queues: impl Iterator<Item = &'a String>) -> Splitter {
        match self {
            Self::All => Splitter::All,
            Self::ByNode => Splitter::ByNode,
            Self::Part { .. } => {
                let queues: Vec<String> = queues.cloned().collect();
                let prefers = move |_: &FleetView<'_>, queue: &str| self.takes(&queues, queue);
                Splitter::Custom(Arc::new(prefers))
            }
        }
    }

    /// Whether a part has a queue. By its place and not by a hash, so that the parts are equal also of few queues.
    pub(super) fn takes(self, queues: &[String], queue: &str) -> bool {
        let Self::Part { number, of } = self else { return true };
        let place = queues.iter().position(|other| other == queue);
        place.is_none_or(|place| place % of as usize == number as usize)
    }
}

impl<'de> Deserialize<'de> for SplitterConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match text_or_table(from, "\"all\", \"by_node\" or { number = 0, of = 3 }")? {
            TextOrTable::Text(name) => match &*name {
                "all" => Ok(Self::All),
                "by_node" => Ok(Self::ByNode),
                _ => Err(de::Error::unknown_variant(&name, &["all", "by_node"])),
            },
            TextOrTable::Table(Part { number, of }) if number < of => Ok(Self::Part { number, of }),
            TextOrTable::Table(_) => {
                Err(de::Error::custom("`number` counts from 0: it must be less than `of`"))
            }
        }
    }
}
