//! `[dashboard]` and `[http.proxy]`: what pages show, and to which visitors.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::access::Role;

/// What the pages for people show.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DashboardConfig {
    /// Without it there are no pages; the API stays.
    pub(crate) enabled: bool,
    pub(crate) payloads: Payloads,
    /// Names of JSON fields whose values no page shows, at any depth.
    pub(crate) redact: Vec<String>,
}

impl Default for DashboardConfig {
    fn default() -> Self {
        Self { enabled: true, payloads: Payloads::default(), redact: Vec::new() }
    }
}

/// Who sees payloads on pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payloads {
    /// All who see the page.
    #[default]
    Show,
    /// Admins.
    Admin,
    /// Nobody.
    Hide,
}

/// A proxy that has asked people who they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyConfig {
    /// The networks whose headers are believed: `10.0.0.0/8`, `::1`.
    pub(crate) from: Vec<String>,
    /// The header with a person's name.
    pub(crate) user: String,
    /// The header with the person's groups, separated by commas.
    pub(crate) groups: Option<String>,
    /// The roles of groups; `*` is everyone the proxy identifies.
    pub(crate) roles: BTreeMap<String, Role>,
    /// The header with the path below which the proxy shows this server.
    pub(crate) prefix: Option<String>,
}
