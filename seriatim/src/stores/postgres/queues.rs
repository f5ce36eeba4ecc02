//! Declaring, pausing and deleting queues.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::actions::acted;
use super::convert::{column, kept, micros, micros_of};
use super::{Postgres, error};
use crate::contract::definition::Found;
use crate::contract::errors::{is_claimed, is_closing, no_queue};
use crate::contract::{Acted, Declare, DeleteQueue, Queues, Wake};
use crate::model::limits::{ACTION_ROWS_MAX, QUEUES_MAX};
use crate::model::{DueRule, Error, Limit, Merge, Mode, Queue, Result, Share, Throttled};
use crate::stores::json;
use crate::stores::sharing::{Beside, DOORS, Shares, VISITS_MAX};

const DECLARE: &str = "SELECT seriatim.declare($1, $2::text::jsonb)";
const PAUSE: &str =
    "UPDATE seriatim.queue SET paused = closing OR $2 WHERE name = $1 RETURNING closing, number";
const END_CLAIMS: &str = "SELECT seriatim.end_claims($1)";
const DELETE_QUEUE: &str = "SELECT * FROM seriatim.delete_queue($1, $2)";

/// The modes, indexed by their numbers in the store.
pub(super) const MODES: [Mode; 4] = Mode::ALL;
const MERGES: [Merge; 3] = [Merge::Min, Merge::Max, Merge::None];

#[async_trait]
impl Queues for Postgres {
    async fn declare(&self, request: Declare) -> Result<()> {
        self.define(&request, false).await
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.define(&request, true).await
    }

    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()> {
        let rows = self.pool.query(PAUSE, &[&kept(&queue), &paused]).await?;
        let row = rows.first().ok_or_else(|| no_queue(&queue))?;
        if paused {
            // When this returns, the claims that were under way have ended.
            self.pool.query(END_CLAIMS, &[&column::<_, i32>(row, "number")?]).await?;
        }
        self.ring(&Wake::of([&*queue]));
        if column(row, "closing")? { Err(is_closing(&queue)) } else { Ok(()) }
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        let rows_max = request.rows_max.clamp(1, ACTION_ROWS_MAX) as i32;
        let refused = |e| match error::ours(&e) {
            Some(("SR011", lanes)) => is_claimed(&request.queue, lanes.parse().unwrap_or(1)),
            _ => error::common(e),
        };
        let params: super::pool::Params<'_> = &[&kept(&request.queue), &rows_max];
        let rows = self.pool.query_giving_way(DELETE_QUEUE, params, refused).await?;
        rows.first().map_or_else(|| Ok(Acted::default()), acted)
    }
}

impl Postgres {
    /// Declares queues; with `keep` only those that are not declared.
    async fn define(&self, request: &Declare, keep: bool) -> Result<()> {
        for (i, queue) in request.queues.iter().enumerate() {
            queue.validate().map_err(|e| e.in_field(format!("queues[{i}]")))?;
        }
        let asked = |queue: &Queue| -> Result<Value> {
            let mut asked = policy(queue)?;
            asked["keep"] = keep.into();
            Ok(asked)
        };
        let policies: Result<Vec<Value>> = request.queues.iter().map(asked).collect();
        let policies = Value::Array(policies?).to_string();
        let conflict = |e| declare_error(e, &request.queues);
        let now = request.now.map(micros);
        self.pool.query_giving_way(DECLARE, &[&now, &policies], conflict).await?;
        let names = || request.queues.iter().map(|queue| &*queue.name);
        self.seen.learn(names());
        self.ring(&Wake::of(names()));
        Ok(())
    }
}

/// The columns of a queue, besides its definition.
pub(super) fn policy(queue: &Queue) -> Result<Value> {
    let definition = json::json(queue)?;
    let number = |place: Option<usize>| place.unwrap_or_default();
    let mut policy = serde_json::json!({
        "name": queue.name,
        "mode": number(MODES.iter().position(|mode| *mode == queue.mode)),
        "merge": number(MERGES.iter().position(|merge| *merge == queue.merge)),
        "earliest": queue.due == DueRule::Earliest,
        "take": queue.take,
        "retain": micros_of(queue.retention()),
        "retain_dead": micros_of(queue.retain_dead),
        "retain_dead_max": i64::try_from(queue.retain_dead_max).unwrap_or(i64::MAX),
        "idempotency_ttl": micros_of(queue.idempotency_ttl),
        "lease_max": micros_of(queue.lease_max),
        "throttle": queue.throttle.map(micros_of),
        "refuses": queue.throttled == Throttled::Refuse,
        "definition": definition,
        "queues_max": QUEUES_MAX,
    });
    if let Some(window) = queue.window {
        policy["quiet"] = micros_of(window.quiet).into();
        policy["max_wait"] = micros_of(window.max_wait).into();
        policy["max_jobs"] = window.max_jobs.into();
        policy["max_bytes"] = window.max_bytes.into();
    }
    if queue.is_shared_out() {
        policy["shares"] = shares(queue);
        policy["grouped"] = queue.groups.is_some().into();
        if let Some(counted) = Shares::of_queue(queue).counted() {
            policy["counted"] = counted.into();
        }
    }
    Ok(policy)
}

/// What a claim of a queue with groups or limits follows: see `sql/share.sql`.
fn shares(queue: &Queue) -> Value {
    let limit = |limit: &Limit| {
        let mut fields = serde_json::Map::new();
        if let Some(running) = limit.running {
            fields.insert("running".into(), running.into());
        }
        if let Some(rate) = limit.rate {
            let interval = rate.interval();
            fields.insert("interval".into(), interval.into());
            fields
                .insert("room".into(), (i64::from(limit.burst()).saturating_mul(interval)).into());
        }
        fields
    };
    let share = |share: Share| {
        let mut fields = limit(&share.limit);
        fields.insert("weight".into(), share.weight.unwrap_or(1).into());
        Value::Object(fields)
    };
    let shares = Shares::of_queue(queue);
    let named = shares.named().map(|(group, of)| (group.to_string(), share(of)));
    let mut all = serde_json::json!({
        "visits": VISITS_MAX,
        "rates": queue.rates(),
        "limit": limit(&queue.limit),
        "each": share(shares.each()),
        "named": named.collect::<serde_json::Map<_, _>>(),
    });
    if queue.groups.is_some() {
        all["round"] = true.into();
    }
    if let Some(beside) = Beside::of(queue) {
        (all["beside"], all["doors"]) = (beside.most.into(), DOORS.into());
    }
    all
}

fn declare_error(e: tokio_postgres::Error, queues: &[Queue]) -> Error {
    let detail = match error::ours(&e) {
        Some(("SR002", detail)) => detail,
        Some(("SR010", name)) => {
            let place = queues.iter().position(|queue| queue.name == name).unwrap_or_default();
            return error::common(e).in_field(format!("queues[{place}]"));
        }
        _ => return error::common(e),
    };
    let words: Vec<usize> = detail.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [place, mode, merge, declared, runs] = words[..] else { return error::of_driver(e) };
    let (Some(queue), Some(&mode), Some(&merge)) =
        (queues.get(place), MODES.get(mode), MERGES.get(merge))
    else {
        return error::of_driver(e);
    };
    let found = Found { mode, merge, declared: declared == 1, holds_jobs: true, runs: runs == 1 };
    found.conflict(queue).in_field(format!("queues[{place}]"))
}
