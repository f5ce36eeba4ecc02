//! `[faktory]`: where clients of Faktory connect.

use serde::Deserialize;

/// Without an address nothing listens.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FaktoryConfig {
    pub(crate) listen: Option<String>,
}
