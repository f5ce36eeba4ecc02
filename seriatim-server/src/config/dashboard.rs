//! `[dashboard]` and `[http.proxy]`: what pages show, and to which visitors.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::access::Role;

/// In `trace_url`, what stands for the id of a trace.
const TRACE_ID: &str = "{trace_id}";

/// What the pages for people show.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DashboardConfig {
    /// Without it there are no pages; the API stays.
    pub(crate) enabled: bool,
    pub(crate) payloads: Payloads,
    /// Names of JSON fields whose values no page shows, at any depth.
    pub(crate) redact: Vec<String>,
    /// Where a trace is seen, with `{trace_id}` in it.
    pub(crate) trace_url: Option<String>,
}

impl Default for DashboardConfig {
    fn default() -> Self {
        let (payloads, redact) = (Payloads::default(), Vec::new());
        Self { enabled: true, payloads, redact, trace_url: None }
    }
}

impl DashboardConfig {
    pub(super) fn validate(&self) -> Result<(), String> {
        let Some(url) = &self.trace_url else { return Ok(()) };
        let is_of_web = url.starts_with("https://") || url.starts_with("http://");
        match is_of_web && url.contains(TRACE_ID) {
            true => Ok(()),
            false => Err(format!(
                "dashboard.trace_url: write an address with {TRACE_ID}, as in https://jaeger.example.com/trace/{TRACE_ID}"
            )),
        }
    }

    /// The page of a trace.
    pub(crate) fn trace(&self, id: &str) -> Option<String> {
        Some(self.trace_url.as_ref()?.replace(TRACE_ID, id))
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
