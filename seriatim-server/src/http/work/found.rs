//! Claims of remote workers, for those who have lost count of what they hold.

use std::collections::HashMap;
use std::sync::Arc;

use seriatim::store::{LaneQuery, LaneStage, LaneView, REMOTE_NAME_START, Store};

use super::super::{App, Problem, Result};
use super::secret::secret_of;
use super::taken::{lane_job, tries};
use crate::protocol::lane::Lane;

/// Tells the claims of this token's workers that are not known, by their lane and token: the name of the worker, and the
/// lane as it was handed over. One after the other, because each has payloads.
pub(in crate::http) async fn claims_of(
    app: &App,
    bearer: Option<Arc<str>>,
    is_known: impl Fn(&str, u64) -> bool,
    mut found: impl FnMut(&str, &str),
) -> Result<()> {
    let store = &*app.store;
    let start = match &bearer {
        Some(token) => format!("{REMOTE_NAME_START}{token}/"),
        None => REMOTE_NAME_START.to_owned(),
    };
    let nodes = store.nodes().await?.into_iter().map(|node| (node.info.id, node.info.name));
    let names: HashMap<_, _> = nodes.filter(|(_, name)| name.starts_with(&*start)).collect();
    let key = app.workers.secrets.key(store).await?;
    for one in claimed(store).await? {
        let name = one.node.as_ref().and_then(|node| names.get(node));
        let (Some(name), Some(token)) = (name, one.token) else { continue };
        if is_known(&one.lane.to_string(), token.0 as u64) {
            continue;
        }
        let Some(turn) = store.turn(one.lane, token).await? else { continue };
        let secret = secret_of(key, bearer.as_deref(), turn.lane, turn.token);
        let jobs = turn.jobs.iter().filter(|job| !job.has_expired(turn.claimed_at)).map(lane_job);
        let tries = tries(app, std::slice::from_ref(&turn)).await?;
        let Some(tries) = tries.into_iter().next() else { continue };
        let lane = serde_json::to_string(&Lane::new(&turn, Some(secret), tries, jobs));
        let lane = lane.map_err(|error| Problem::unavailable(error.to_string()))?;
        found(&name[start.len()..], &lane);
    }
    Ok(())
}

/// The claimed lanes of all nodes. If a claim is not found, its job runs again although its worker has finished it.
async fn claimed(store: &dyn Store) -> seriatim::Result<Vec<LaneView>> {
    let mut all = Vec::new();
    for queue in store.stats(None).await?.into_iter().filter(|queue| queue.claimed > 0) {
        let stages = vec![LaneStage::Running];
        let mut query = LaneQuery { stages, bare: true, ..LaneQuery::new(queue.queue) };
        loop {
            let page = store.lanes(query.clone()).await?;
            all.extend(page.rows);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
    }
    Ok(all)
}
