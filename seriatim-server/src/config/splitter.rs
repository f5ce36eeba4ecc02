//! `[node] splitter`: which queues a node prefers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use seriatim::engine::{FleetView, Splitter};

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
        struct Read;
        impl<'de> de::Visitor<'de> for Read {
            type Value = SplitterConfig;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\", \"by_node\" or { number = 0, of = 3 }")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                match name {
                    "all" => Ok(SplitterConfig::All),
                    "by_node" => Ok(SplitterConfig::ByNode),
                    _ => Err(E::unknown_variant(name, &["all", "by_node"])),
                }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let Part { number, of } =
                    Part::deserialize(de::value::MapAccessDeserializer::new(map))?;
                match number < of {
                    true => Ok(SplitterConfig::Part { number, of }),
                    false => {
                        Err(de::Error::custom("`number` counts from 0: it must be less than `of`"))
                    }
                }
            }
        }
        from.deserialize_any(Read)
    }
}
