//! What may stay although a rule forbids it, each with the reason.

use super::rules::{Finding, RuleName};

/// One exception to one rule.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) rule: RuleName,
    /// From the root of the repository.
    pub(super) path: &'static str,
    /// The function or constant, for [`RuleName::LongFunction`] and [`RuleName::LongSql`]; otherwise empty.
    pub(super) item: &'static str,
    /// The most there may be of it: lines of a function or a file. 0 for the other rules.
    pub(super) size_max: usize,
    /// Read by people only.
    #[allow(dead_code)]
    pub(super) reason: &'static str,
}

/// Shorten this list; lengthen it only with a reason that convinces a reviewer.
pub(super) const ALLOWED: &[Allowed] = &[
    Allowed {
        rule: RuleName::SleepInTest,
        path: "seriatim/src/engine/tests/rig.rs",
        item: "",
        size_max: 0,
        reason: "its time is virtual: a sleep is how the tests let it pass, and takes none",
    },
    Allowed {
        rule: RuleName::LongSql,
        path: "seriatim/src/stores/postgres/views.rs",
        item: "STATS",
        size_max: 15,
        reason: "beside the code that reads its columns; it belongs in sql/views.sql",
    },
];

impl Allowed {
    /// Whether `finding` is the thing this entry is about, of whatever size.
    pub(super) fn concerns(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.path == finding.path && self.item == finding.item
    }

    /// Whether `finding` may stay.
    pub(super) fn covers(&self, finding: &Finding) -> bool {
        self.concerns(finding) && finding.size <= self.size_max
    }
}
