//! The values of the headers of an `http` worker: in the configuration, or, if they are secret, elsewhere.

use hyper::header::HeaderValue;
use serde::{Deserialize, Deserializer};

use super::key::KeyConfig;
use super::text_or_table::{TextOrTable, text_or_table};

#[derive(Clone, Debug)]
pub(crate) enum HeaderConfig {
    Text(String),
    Kept(KeyConfig),
}

impl HeaderConfig {
    /// The variable that has it.
    pub(super) fn variable(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Kept(key) => key.env.as_deref(),
        }
    }

    /// Refuses what can be seen to be wrong without reading a secret.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Text(_) => self.value().map(drop),
            Self::Kept(key) => key.check("{ env = \"HOOK_TOKEN\" }"),
        }
    }

    /// What to send; never shown.
    pub(crate) fn value(&self) -> Result<HeaderValue, String> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Kept(key) => key.text()?,
        };
        let value = HeaderValue::try_from(text);
        let mut value = value.map_err(|_| "has a value that is invalid in a header")?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl<'de> Deserialize<'de> for HeaderConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expecting = "a string, or where it is: { env = \"VARIABLE\" } or { file = \"PATH\" }";
        Ok(match text_or_table(from, expecting)? {
            TextOrTable::Text(text) => Self::Text(text),
            TextOrTable::Table(key) => Self::Kept(key),
        })
    }
}
