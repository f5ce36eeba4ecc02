//! Lanes that are now due become ready.

use std::collections::HashMap;

use super::bodies::Bodies;
use super::error::Try;
use super::load::Need;
use super::sql::Columns;
use super::work::{Work, by_id};
use crate::model::limits::PROMOTE_LANES_MAX;

/// How many lanes are promoted in one step.
const PROMOTE_STEP: usize = 1_000;

/// Moves lanes that are now due to ready. Lanes locked by other sessions are left for later.
pub(super) async fn promote(work: &mut Work<'_>, queue: u32) -> Try<()> {
    let now = work.now.as_micros();
    let mut left = PROMOTE_LANES_MAX;
    while left > 0 {
        let step = left.min(PROMOTE_STEP);
        let scheduled = format!(
            "FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 1 AND class = 0 AND prio = 0 AND due <= {now} \
             ORDER BY due, id LIMIT {step} FOR UPDATE SKIP LOCKED"
        );
        let ids = work.read_lanes(&scheduled, Bodies::None).await?;
        reposition(work, &ids).await?;
        if ids.len() < step {
            break;
        }
        left -= step;
    }
    let ready = format!(
        "SELECT lane FROM seriatim_wake WHERE q = {queue} AND wake <= {now} ORDER BY wake, lane LIMIT {PROMOTE_STEP}"
    );
    let mut ids = Vec::new();
    for row in work.rows(&ready).await? {
        ids.push(Columns::of(row).int()? as u64);
    }
    if !ids.is_empty() {
        let these = format!("{} AND wake <= {now} FOR UPDATE SKIP LOCKED", by_id(ids));
        let ids = work.read_lanes(&these, Bodies::None).await?;
        reposition(work, &ids).await?;
    }
    Ok(())
}

async fn reposition(work: &mut Work<'_>, ids: &[u64]) -> Try<()> {
    work.load_jobs(ids, Need::Position, false, Bodies::None, &HashMap::new()).await?;
    let time = work.now;
    for id in ids {
        work.state.position(*id, time);
    }
    work.save().await?;
    // Their jobs were read without payloads, which a claim needs.
    work.forget_lanes();
    Ok(())
}

impl Work<'_> {
    /// Forgets what was read and saved. The locks stay.
    fn forget_lanes(&mut self) {
        self.lanes.clear();
        self.jobs.clear();
        self.state.lanes.clear();
        self.state.keys.clear();
        self.state.jobs.clear();
        self.state.claimed.clear();
        self.state.ready.clear();
        self.state.wake.clear();
        self.state.due.clear();
    }
}
