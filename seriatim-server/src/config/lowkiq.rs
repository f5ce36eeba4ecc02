//! What `[[bridges]]` of the kind `lowkiq` have of their own.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use seriatim::names::did_you_mean;

use super::environment::{is_variable, refuse_reserved};

/// Most shards of a queue.
const SHARDS_MAX: u32 = 1_000;

/// How many shards the queues have: all as many, or each its own number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShardsCount {
    All(u32),
    Each(BTreeMap<String, u32>),
}

/// What payloads become here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PayloadForm {
    /// An envelope around what Marshal wrote, for Ruby workers.
    #[default]
    Marshal,
    /// JSON, for all.
    Plain,
}

/// The keys of the kind, as they are written.
pub(super) struct Written<'a> {
    pub(super) shards_count: Option<&'a ShardsCount>,
    pub(super) payloads: Option<PayloadForm>,
    pub(super) mac_key_env: Option<&'a str>,
}

/// The same, checked.
pub(crate) struct Lowkiq<'a> {
    pub(crate) shards: &'a ShardsCount,
    /// The variable with the key of signatures; none if payloads become JSON.
    pub(crate) mac_key_env: Option<&'a str>,
}

impl ShardsCount {
    pub(crate) fn of(&self, queue: &str) -> Option<u32> {
        match self {
            Self::All(count) => Some(*count),
            Self::Each(counts) => counts.get(queue).copied(),
        }
    }

    fn check(&self, queues: &[String]) -> Result<(), String> {
        if let Self::Each(counts) = self
            && let Some(name) = counts.keys().find(|name| !queues.contains(name))
        {
            let near = did_you_mean(name, queues.iter().map(String::as_str));
            return Err(format!("`shards_count`: no queue of this bridge is {name:?}{near}"));
        }
        queues.iter().try_for_each(|queue| match self.of(queue) {
            None => Err(format!("`shards_count` lacks queue {queue:?}")),
            Some(1..=SHARDS_MAX) => Ok(()),
            Some(count) => Err(format!("`shards_count` is {count}: 1 to {SHARDS_MAX}")),
        })
    }
}

impl Written<'_> {
    /// Refuses what only a bridge to Lowkiq has.
    pub(super) fn refuse(&self, kind: &str) -> Result<(), String> {
        let given = [
            ("shards_count", self.shards_count.is_some()),
            ("payloads", self.payloads.is_some()),
            ("mac_key_env", self.mac_key_env.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(format!("`{key}` is for kind = \"lowkiq\", not \"{kind}\"")),
            None => Ok(()),
        }
    }

    /// `secrets`: variables that only this server may see.
    pub(super) fn check(&self, queues: &[String], secrets: &[&str]) -> Result<(), String> {
        let missing = "`shards_count` is missing: write that of the modules, as in shards_count = 5, or of each as in { \"Shop::Sync\" = 24 }";
        self.shards_count.ok_or(missing)?.check(queues)?;
        match (self.payloads.unwrap_or_default(), self.mac_key_env) {
            (PayloadForm::Plain, None) => Ok(()),
            (PayloadForm::Plain, Some(_)) => {
                Err("`mac_key_env` contradicts payloads = \"plain\": JSON needs no signature".to_owned())
            }
            (PayloadForm::Marshal, Some(name)) if is_variable(name) => {
                refuse_reserved("mac_key_env", name)?;
                if secrets.contains(&name) {
                    return Err(format!("`mac_key_env`: {name} has a secret of this server"));
                }
                Ok(())
            }
            (PayloadForm::Marshal, _) => Err("`mac_key_env` names the variable with the signing key, as in mac_key_env = \"LOWKIQ_MAC_KEY\": Ruby workers read no payload without one; or write payloads = \"plain\"".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for ShardsCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = ShardsCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number such as 5, or a table such as { \"Shop::Sync\" = 24 }")
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<ShardsCount, E> {
        let wrong = |_| E::custom(format!("`shards_count` is {count}: 1 to {SHARDS_MAX}"));
        u32::try_from(count).map(ShardsCount::All).map_err(wrong)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ShardsCount, A::Error> {
        let mut counts = BTreeMap::new();
        while let Some((queue, count)) = map.next_entry()? {
            counts.insert(queue, count);
        }
        Ok(ShardsCount::Each(counts))
    }
}
