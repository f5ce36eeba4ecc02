//! Finds what is stuck, failing, slow or misconfigured, and suggests what to do.

mod batches;
mod bound;
mod bridges;
mod definitions;
mod finding;
mod inbox;
mod lanes;
mod look;
mod nodes;
pub(crate) mod place;
mod queues;
mod room;
mod troubles;

use seriatim::Queue;

pub(crate) use finding::{Finding, List, Repair, Severity};
pub(crate) use look::{DEAD_MAX, LANES_MAX, Seen, look};

/// The findings, the worst first. `declared`: the queues of the configuration.
pub(crate) fn judge(seen: &Seen, declared: &[Queue]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = look::check_clock(seen).into_iter().collect();
    findings.extend(look::check_left_out(seen));
    findings.extend(room::check(&seen.vitals));
    findings.extend(definitions::check(seen, declared));
    findings.extend(nodes::check(seen));
    findings.extend(troubles::check(seen));
    findings.extend(inbox::check(seen));
    findings.extend(bridges::check(seen));
    findings.extend(batches::check(seen));
    findings.extend(bound::check(seen));
    findings.extend(queues::check(seen));
    findings.extend(lanes::check(seen));
    findings.sort_by_key(|finding| finding.severity);
    findings
}
