//! Heartbeats of remote workers.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::limits::PROGRESS_BYTES_MAX;
use seriatim::store::{Beat, CancelNotice};
use seriatim::store::{LaneId, Token};

use super::super::input::{AtMost, BulkJson, Object};
use super::super::limits::{LEASE_SECONDS, NAMED_LANES_MAX};
use super::super::seen::check_lease;
use super::super::{Answer, Caller, Problem, Result, Shared};
use super::repeats::check_once;
use super::reports::{self, Merged, Refused, Step};
use super::secret::{Named, refused};
use super::workers::{Remote, WORKER_PATTERN, lease};
use crate::protocol::document::{Beaten, CancelledJobs};
use crate::protocol::lane::SECRET_PATTERN;
use crate::protocol::schema::Foreign;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Beat")]
pub(super) struct Said {
    /// The name of the worker
    #[schemars(regex(pattern = WORKER_PATTERN))]
    worker: String,
    /// The new lease. Default: that of the worker's last claim
    #[schemars(range(min = *LEASE_SECONDS.start(), max = *LEASE_SECONDS.end()))]
    lease_ttl_sec: Option<f64>,
    claims: AtMost<Object<Claimed>, NAMED_LANES_MAX>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Claimed {
    #[schemars(with = "Foreign<LaneId>")]
    lane: LaneId,
    /// The fencing token of the claim
    #[schemars(with = "Foreign<Token>")]
    token: Token,
    /// The secret of the claim
    #[schemars(regex(pattern = SECRET_PATTERN))]
    secret: String,
    /// Replaces the progress of the turn
    progress: Option<Box<RawValue>>,
    /// A step that begins, or has ended
    step: Option<Step>,
}

pub(super) async fn heartbeat(
    app: Shared,
    caller: Caller,
    BulkJson(said, _share): BulkJson<Said>,
) -> Result<Answer<Beaten>> {
    let worker = Remote::new(&caller, &said.worker)?;
    said.check()?;
    let asked = lease(said.lease_ttl_sec)?;
    let proofs = said.claims.0.iter().map(|Object(claim)| Named {
        lane: claim.lane,
        token: claim.token,
        secret: &claim.secret,
    });
    // All that it asks goes over the line for heartbeats.
    let store = &**app.workers.line(&app.store).await?;
    let (secrets, bearer) = (&app.workers.secrets, caller.bearer());
    if let Some(i) = secrets.first_wrong(store, bearer.as_deref(), proofs).await? {
        return Err(refused(format!("claims[{i}].secret")));
    }
    let extend = match asked {
        None if !said.claims.0.is_empty() => Some(app.workers.lease_of(store, &worker).await?),
        asked => asked,
    };
    let claims: Vec<(LaneId, Token)> =
        said.claims.0.iter().map(|Object(claim)| (claim.lane, claim.token)).collect();
    let named: HashSet<(LaneId, Token)> = claims.iter().copied().collect();
    if let Some(asked) = asked {
        let numbers = || named.iter().map(|(lane, _)| lane.queue);
        let known = app.queues.seen.with(store, numbers()).await?;
        check_lease(asked, numbers().filter_map(|number| known.numbered(number)))?;
    }
    let told = said.claims.0.into_iter().map(|Object(claim)| claim.told()).collect();
    let merged = match reports::merge(store, told).await? {
        Ok(merged) => merged,
        Err(Refused(i, error)) => {
            return Err(Problem::invalid(format!("claims[{i}].step"), error.message().to_owned()));
        }
    };
    let (mut beats, mut steps) = (Vec::new(), Vec::new());
    for (&(lane, token), Merged { kept: progress, step }) in claims.iter().zip(merged) {
        beats.push(Beat { lane, token, progress, extend });
        steps.extend(step);
    }
    let (_, pulse) = app.workers.beat(&app.store, &worker, beats).await?;
    // Several processes may work under one name: each learns of what it holds itself.
    let own = |notice: &CancelNotice| named.contains(&(notice.lane, notice.token));
    let cancel = pulse.cancel.into_iter().filter(own);
    let cancel = cancel.map(|one| CancelledJobs { lane: one.lane, job_ids: one.jobs }).collect();
    steps.retain(|step| !pulse.lost.contains(&step.lane));
    Ok(Answer::of(&Beaten { cancel, lost: pulse.lost, command: pulse.command, steps }))
}

impl Claimed {
    fn told(self) -> reports::Said {
        let Self { lane, token, progress, step, .. } = self;
        reports::Said { lane, token, progress, step }
    }
}

impl Said {
    fn check(&self) -> Result<()> {
        let size = |Object(claim): &Object<Claimed>| {
            claim.progress.as_ref().map_or(0, |text| text.get().len())
        };
        match self.claims.0.iter().position(|claim| size(claim) > PROGRESS_BYTES_MAX) {
            // A lane may be there with its former claim too, until that handler ends.
            None => check_once(
                "claims",
                self.claims.0.iter().map(|Object(claim)| (claim.lane, claim.token)),
            ),
            Some(i) => Err(Problem::invalid(
                format!("claims[{i}].progress"),
                format!("has more than {PROGRESS_BYTES_MAX} bytes"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::http::StatusCode;
    use serde_json::json;
    use seriatim::store::{LaneQuery, Memory, Push};
    use seriatim::{Job, SharedStore};

    use super::super::tests::{answered, asked};

    /// One of the steps would be lost, and answered as kept.
    #[tokio::test]
    async fn a_heartbeat_that_names_a_lane_twice_is_refused() {
        let store: SharedStore = Arc::new(Memory::new());
        let jobs = vec![Job::new("orders", &1).unwrap()];
        store.push(Push { now: None, jobs }).await.unwrap();
        let wish = json!({ "worker": "w", "queues": ["orders"] });
        let lane = asked(&store, "claim", wish).await["lanes"][0].clone();
        let ends = |step: &str| {
            let (lane, token, secret) = (&lane["lane"], &lane["token"], &lane["secret"]);
            let step = json!({ "name": step, "done": true });
            json!({ "lane": lane, "token": token, "secret": secret, "step": step })
        };
        let beat = json!({ "worker": "w", "claims": [ends("one"), ends("two")] });
        let (status, problem) = answered(&store, "heartbeat", beat).await;
        assert_eq!(
            (status, &problem["field"]),
            (StatusCode::BAD_REQUEST, &json!("claims[1].lane"))
        );
        for step in ["one", "two"] {
            let beat = json!({ "worker": "w", "claims": [ends(step)] });
            let beaten = asked(&store, "heartbeat", beat).await;
            assert_eq!(beaten["steps"][0]["state"], "kept");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_at_another_server_extends_a_claim_by_the_lease_that_it_asked_for() {
        let store: SharedStore = Arc::new(Memory::in_tokio_time());
        let jobs = vec![Job::new("orders", &1).unwrap()];
        store.push(Push { now: None, jobs }).await.unwrap();
        let wish = json!({ "worker": "w", "queues": ["orders"], "lease_ttl_sec": 600 });
        let lane = asked(&store, "claim", wish).await["lanes"][0].clone();
        // Each call is answered by another server.
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(200)).await;
            let claim =
                json!({ "lane": lane["lane"], "token": lane["token"], "secret": lane["secret"] });
            let beaten =
                asked(&store, "heartbeat", json!({ "worker": "w", "claims": [claim] })).await;
            assert_eq!(beaten["lost"], json!([]));
            let lanes = store.lanes(LaneQuery::new("orders")).await.unwrap().rows;
            let end = store.now().await.unwrap() + Duration::from_secs(600);
            assert_eq!(lanes[0].lease_until, Some(end));
        }
    }
}
