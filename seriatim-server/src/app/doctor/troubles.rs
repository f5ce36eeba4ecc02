//! Problems that nodes report.

use seriatim::store::{Trouble, TroubleKind};

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::app::troubles;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let told = troubles::of(&seen.nodes, seen.now);
    let finding = |(node, trouble): (&seriatim::store::NodeView, &Trouble)| {
        let (severity, advice) = judged(trouble.kind);
        let about = format!("node {}", node.info.id);
        let line = troubles::line(trouble, seen.now);
        match &trouble.queue {
            Some(queue) => Finding::of_queue(severity, queue, format!("{about}: {line}"), advice),
            None => Finding::new(severity, about, line, advice),
        }
    };
    told.map(finding).collect()
}

fn judged(kind: TroubleKind) -> (Severity, &'static str) {
    match kind {
        TroubleKind::WorkerCannotStart => (
            Severity::Serious,
            "make the program run on that node (try it by hand, as its user, in its folder), or correct the [[workers]] entry and restart the node; meanwhile its jobs wait without counting failures",
        ),
        TroubleKind::WorkerSilent => (
            Severity::Warning,
            "check the log of that node for output of the process; does it flush its output? set `timeout` to end such calls",
        ),
        TroubleKind::QueueNotApplied => (
            Severity::Warning,
            "make the definitions of that node and of the store agree: see `seriatim queues show`",
        ),
        TroubleKind::SettlesPutAside | TroubleKind::ClaimsPutAside => (
            Severity::Serious,
            "the store refuses it: check the log of that node, and the named lane or queue",
        ),
        TroubleKind::SettlesLocked => (
            Severity::Warning,
            "end that transaction, or the session that forgot it (PostgreSQL: `pg_stat_activity`, MySQL: `information_schema.innodb_trx`); the outcome is sent again until it is stored, or until the claim's lease ends",
        ),
        TroubleKind::WritesLost => (
            Severity::Warning,
            "jobs pushed just before may be missing too, and jobs done just before run again: let replicas confirm writes (Redis: `wait_replicas` in the URL), and consider `appendfsync always`",
        ),
        TroubleKind::InboxNotDrained => (
            Severity::Serious,
            "tasks that SQL sessions insert wait: check the log of that node, and its rights in the database",
        ),
        _ => (Severity::Warning, "see the log of that node"),
    }
}
