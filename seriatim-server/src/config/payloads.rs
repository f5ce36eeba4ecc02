//! `[payloads]`: how payloads are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use seriatim::names::did_you_mean;

use super::QueueConfig;

/// All queues.
const ALL: &str = "*";

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

/// Where a key is: in one of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeyConfig {
    pub(crate) env: Option<String>,
    pub(crate) file: Option<PathBuf>,
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
            return Err(
                "payloads.encrypt: there is no key: write payloads.keys, as in [{ env = \"PAYLOAD_KEY\" }]".to_owned(),
            );
        }
        let both = |key: &KeyConfig| key.env.is_some() == key.file.is_some();
        match self.keys.iter().position(both) {
            Some(i) => Err(format!("payloads.keys[{i}]: write `env` or `file`")),
            None => Ok(()),
        }
    }
}

impl KeyConfig {
    /// The text of the key.
    pub(crate) fn text(&self) -> Result<String, String> {
        let text = match (&self.env, &self.file) {
            (Some(name), _) => std::env::var(name)
                .map_err(|_| format!("variable {name} is not set, or is not text"))?,
            (None, Some(file)) => std::fs::read_to_string(file)
                .map_err(|e| format!("cannot read {}: {e}", file.display()))?,
            (None, None) => return Err("write `env` or `file`".to_owned()),
        };
        Ok(text.trim().to_owned())
    }
}
