//! Exceptions to the rules, each with its reason.

use super::rules::{Finding, RuleName};

/// One exception to one rule.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) rule: RuleName,
    /// From the root of the repository.
    pub(super) path: &'static str,
    /// The function or constant, for [`RuleName::LongFunction`] and [`RuleName::LongSql`]; otherwise empty.
    pub(super) item: &'static str,
    /// The allowed number of lines of a function, SQL statement or file. 0 for the other rules.
    pub(super) size_max: usize,
    /// For readers only.
    #[allow(dead_code)]
    pub(super) reason: &'static str,
}

/// Shorten this list; add to it only with a convincing reason.
pub(super) const ALLOWED: &[Allowed] = &[Allowed {
    rule: RuleName::SleepInTest,
    path: "seriatim/src/engine/tests/rig.rs",
    item: "",
    size_max: 0,
    reason: "time is virtual here: the tests let it pass by a sleep, which takes no real time",
}];

impl Allowed {
    /// Whether this entry is about `finding`, whatever its size.
    pub(super) fn concerns(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.path == finding.path && self.item == finding.item
    }

    /// Whether it allows `finding`.
    pub(super) fn covers(&self, finding: &Finding) -> bool {
        self.concerns(finding) && finding.size <= self.size_max
    }
}
