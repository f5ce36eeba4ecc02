//! Where a secret is: in a variable or in a file, never in the configuration.

use std::path::PathBuf;

use serde::Deserialize;

use super::environment::is_variable;

/// In one of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "{ env = \"VARIABLE\" } or { file = \"PATH\" }")]
pub(crate) struct KeyConfig {
    pub(crate) env: Option<String>,
    pub(crate) file: Option<PathBuf>,
}

impl KeyConfig {
    /// Refuses what names none of them, or both. What is no name of a variable may be the secret itself.
    pub(super) fn check(&self, example: &str) -> Result<(), String> {
        let is_one = self.env.is_some() != self.file.is_some();
        match is_one && self.env.as_deref().is_none_or(is_variable) {
            true => Ok(()),
            false => Err(format!(
                "needs the name of a variable or of a file that has it, as in {example}"
            )),
        }
    }

    /// The text of the key.
    pub(crate) fn text(&self) -> Result<String, String> {
        let (place, text) = match (&self.env, &self.file) {
            (Some(name), _) => {
                let text = std::env::var(name)
                    .map_err(|_| format!("variable {name} is not set, or is not text"))?;
                (format!("variable {name}"), text)
            }
            (None, Some(file)) => {
                let place = file.display().to_string();
                let text = std::fs::read_to_string(file)
                    .map_err(|error| format!("cannot read {place}: {error}"))?;
                (place, text)
            }
            (None, None) => return Err("write `env` or `file`".to_owned()),
        };
        match text.trim() {
            "" => Err(format!("{place} is empty")),
            text => Ok(text.to_owned()),
        }
    }
}
