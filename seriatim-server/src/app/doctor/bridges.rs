//! Bridges that do not move what they should.

use std::time::Duration;

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::app::bridges::{PAUSING, UNATTENDED, state};
use crate::base::text::{count, one_line};
use crate::base::time::length;
use crate::protocol::document::{Bridge, BridgeSource};

/// Jobs wait in the other system for longer than this.
const LAG_MAX: Duration = Duration::from_secs(300);

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let sources = |bridge: &'_ Bridge| {
        let found: Vec<Finding> =
            bridge.sources.iter().flat_map(|source| of_source(seen, bridge, source)).collect();
        found
    };
    seen.bridges.iter().flat_map(sources).collect()
}

fn of_source(seen: &Seen, bridge: &Bridge, source: &BridgeSource) -> Vec<Finding> {
    let status = &source.status;
    let about = format!("bridge {}, {}", bridge.name, status.source);
    let name = status.source.strip_prefix("queue:").unwrap_or(&status.source);
    let mut found = Vec::new();
    let (word, why) = state(bridge, source, seen.now);
    let why = why.map(|why| format!(": {}", one_line(&why))).unwrap_or_default();
    if status.in_doubt > 0 {
        let what = format!(
            "{} in doubt: they left the source, and it is no longer known whether they are here",
            count(status.in_doubt, "job")
        );
        let advice = format!(
            "look for them here (`seriatim jobs list`), then `seriatim bridge decide {} {name} --again` or `--drop`; the queue waits meanwhile",
            bridge.name
        );
        found.push(Finding::new(Severity::Serious, about.clone(), what, advice));
    } else if word == UNATTENDED {
        let advice = "start a node whose configuration has this bridge; if the bridge is no longer needed, this finding disappears after a week";
        found.push(Finding::new(Severity::Serious, about.clone(), word, advice));
    } else if !matches!(word, "moving" | "paused" | PAUSING) {
        let advice = "fix this; meanwhile the jobs wait in the other system";
        found.push(Finding::new(Severity::Serious, about.clone(), format!("{word}{why}"), advice));
    }
    if status.rejected > 0 {
        let what = format!("{} refused, and kept beside the source", count(status.rejected, "job"));
        let advice = format!(
            "`seriatim bridge check {}` shows why; correct the routes, restart, then `seriatim bridge return {} {name}`",
            bridge.name, bridge.name
        );
        found.push(Finding::new(Severity::Warning, about.clone(), what, advice));
    }
    let lag = Duration::try_from_secs_f64(status.lag).unwrap_or_default();
    if lag > LAG_MAX && matches!(word, "moving") {
        let what = format!("its oldest job has waited there for {}", length(lag));
        let advice = "the store takes jobs more slowly than they arrive: see `seriatim stats` and the log of the node";
        found.push(Finding::new(Severity::Warning, about, what, advice));
    } else if word == "paused" {
        found.push(Finding::new(
            Severity::Notice,
            about,
            format!("paused{why}"),
            "nothing is taken until `seriatim bridge resume`",
        ));
    }
    found
}
