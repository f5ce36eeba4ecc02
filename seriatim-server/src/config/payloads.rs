//! `[payloads]`: how payloads are stored.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use seriatim::names::did_you_mean;

use super::QueueConfig;
use super::key::KeyConfig;

/// All queues.
const ALL: &str = "*";
const KEYS: &str = "[{ env = \"PAYLOAD_KEY\" }]";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PayloadsConfig {
    /// The queues whose payloads are compressed; `*` for all.
    pub(crate) compress: BTreeSet<String>,
    /// The queues whose payloads are encrypted.
    pub(crate) encrypt: BTreeSet<String>,
    /// The first one encrypts, all decrypt.
    pub(crate) keys: Vec<KeyConfig>,
}

impl PayloadsConfig {
    pub(crate) fn compresses(&self, queue: &str) -> bool {
        self.compress.contains(ALL) || self.compress.contains(queue)
    }

    pub(crate) fn encrypts(&self, queue: &str) -> bool {
        self.encrypt.contains(ALL) || self.encrypt.contains(queue)
    }

    /// Refuses unknown queues, and encryption without a key.
    pub(super) fn check(&self, queues: &BTreeMap<String, QueueConfig>) -> Result<(), String> {
        for (key, named) in [("compress", &self.compress), ("encrypt", &self.encrypt)] {
            let unknown = |name: &&String| *name != ALL && !queues.contains_key(*name);
            if let Some(queue) = named.iter().find(unknown) {
                let near = did_you_mean(queue, queues.keys().map(String::as_str));
                return Err(format!(
                    "payloads.{key}: {queue:?} has no [queues] entry: add one, or write \"{ALL}\" for all queues{near}"
                ));
            }
        }
        if !self.encrypt.is_empty() && self.keys.is_empty() {
            return Err(format!(
                "payloads.encrypt: there is no key: write payloads.keys, as in {KEYS}"
            ));
        }
        self.keys.iter().enumerate().try_for_each(|(i, key)| {
            key.check(KEYS).map_err(|why| format!("payloads.keys[{i}] {why}"))
        })
    }
}
