//! Claims of remote workers, for those who have lost count of what they hold.

use std::collections::HashMap;
use std::sync::Arc;

use seriatim::store::REMOTE_NAME_START;

use super::super::{App, Problem, Result};
use super::secret::secret_of;
use super::taken::{lane_job, tries};
use crate::app::running::running;
use crate::protocol::lane::Lane;

/// Most claims that are looked at in each queue.
const FOUND_MAX: usize = 1_000;

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
    let (stats, key) = (store.stats(None).await?, app.workers.secrets.key(store).await?);
    for one in running(store, &stats, None, FOUND_MAX).await? {
        let name = one.lane.node.as_ref().and_then(|node| names.get(node));
        let (Some(name), Some(token)) = (name, one.lane.token) else { continue };
        if is_known(&one.lane.lane.to_string(), token.0 as u64) {
            continue;
        }
        let Some(turn) = store.turn(one.lane.lane, token).await? else { continue };
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
