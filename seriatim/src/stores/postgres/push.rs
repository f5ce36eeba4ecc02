//! Pushing jobs.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::convert::{column, job_id, micros, micros_of};
use super::params::Param;
use super::pool::{Params, Pool};
use super::queues::{MODES, policy};
use super::summons::Summons;
use super::{Postgres, error};
use crate::contract::batches::{batch_has_ended, no_batch};
use crate::contract::errors::other_route;
use crate::contract::{Producer, Push, PushStatus, Pushed, validate_job, validate_push};
use crate::model::{Error, Job, Mode, Queue, Result, RunAt, Timestamp, group_number};
use crate::stores::json::json;
use crate::stores::options::WriteOptions;

pub(super) const PUSH: &str = "SELECT * FROM seriatim.push($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
    $13, $14, $15, $16, $17, $18, $19)";

const PUSH_IN_BATCHES: &str = "SELECT * FROM seriatim.push_in_batches($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
    $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";

/// None is made if one of the jobs could not be pushed to its queue whatever that holds.
const MAKE_QUEUES: &str = "SELECT seriatim.check_jobs(ARRAY(SELECT q.numbers[j.place] \
     FROM unnest($2) WITH ORDINALITY j (place, nth) ORDER BY j.nth), $3, $4, $5) \
     FROM (SELECT seriatim.queues_for($1::text::jsonb) AS numbers OFFSET 0) q";
const MAKE_ROUTES: &str = "SELECT seriatim.routes_for($1, $2)";
const HAS_ROOM: &str = "SELECT seriatim.has_room($1::text::jsonb, $2, $3)";

/// What pushes these jobs.
pub(super) fn statement_of(jobs: &[Job]) -> &'static str {
    if are_in_batches(jobs) { PUSH_IN_BATCHES } else { PUSH }
}

fn are_in_batches(jobs: &[Job]) -> bool {
    jobs.iter().any(|job| job.options.batch.is_some())
}

#[async_trait]
impl Producer for Postgres {
    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        if request.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let batch = PushBatch::new(request.now, &request.jobs)?;
        self.make_room(&self.pool, &batch, &request.jobs).await?;
        let params = batch.params();
        let refused = |e| push_error(e, &request.jobs);
        let rows = self.pool.push(statement_of(&request.jobs), &params, refused).await?;
        self.rounds.count(&self.pool);
        self.summon(&Summons::of_jobs(&request.jobs));
        all_pushed(&rows)
    }
}

impl Postgres {
    /// Makes the queues and routes of a batch that this process has not seen yet, each in a transaction of its own.
    pub(super) async fn make_room(
        &self,
        pool: &Pool,
        batch: &PushBatch<'_>,
        jobs: &[Job],
    ) -> Result<()> {
        if !self.seen.has_queues_of(jobs) {
            let refused = |e| push_error(e, jobs);
            pool.query_or(MAKE_QUEUES, &batch.params_of_queues(), refused).await?;
            self.seen.learn(jobs.iter().map(|job| &*job.queue));
        }
        if !self.seen.has_routes_of(jobs) {
            pool.query(MAKE_ROUTES, &batch.params_of_routes()).await?;
            self.seen.learn_routes_of(jobs);
        }
        Ok(())
    }

    /// The same for a push in a user's transaction. What was seen may have been deleted since, and the push would make it there.
    pub(super) async fn make_room_surely(&self, batch: &PushBatch<'_>, jobs: &[Job]) -> Result<()> {
        let params: Params<'_> = &[&batch.policies, &batch.node, &batch.consumer_group];
        if !column::<_, bool>(&self.pool.query_one(HAS_ROOM, params).await?, 0)? {
            self.seen.forget();
        }
        self.make_room(&self.pool, batch, jobs).await
    }
}

pub(super) fn all_pushed(rows: &[tokio_postgres::Row]) -> Result<Vec<Pushed>> {
    rows.iter().map(pushed).collect()
}

fn pushed(row: &tokio_postgres::Row) -> Result<Pushed> {
    let status = match column::<_, i16>(row, "o_status")? {
        0 => PushStatus::Queued,
        1 => PushStatus::Merged,
        2 => PushStatus::Duplicate,
        _ => PushStatus::Throttled,
    };
    let queue = column(row, "o_queue")?;
    let job_id = job_id(column(row, "o_created_at")?, queue, column(row, "o_seq")?);
    let again_at = column::<_, Option<i64>>(row, "o_again_at")?.map(Timestamp::from_micros);
    Ok(Pushed { job_id, status, again_at })
}

/// A batch as arrays, one entry per job.
pub(super) struct PushBatch<'a> {
    now: Option<i64>,
    /// The queues of the batch, with the definitions for creating them.
    policies: String,
    queue: Vec<i32>,
    key: Vec<Option<&'a str>>,
    task: Vec<Option<&'a str>>,
    digest: Vec<Option<Vec<u8>>>,
    score: Vec<Option<f64>>,
    priority: Vec<i16>,
    at: Vec<Option<i64>>,
    delay: Vec<Option<i64>>,
    options: Vec<Option<String>>,
    lease_ttl: Vec<Option<i64>>,
    expires_at: Vec<Option<i64>>,
    name: Vec<Option<&'a str>>,
    node: Vec<Option<&'a str>>,
    consumer_group: Vec<Option<&'a str>>,
    payload: Vec<&'a [u8]>,
    /// Empty if no job has a group.
    group: Vec<i64>,
    /// Empty if no job has a past.
    past: Vec<Option<String>>,
    /// Empty if no job has a batch.
    batch: Vec<Option<&'a str>>,
}

impl<'a> PushBatch<'a> {
    pub(super) fn new(now: Option<Timestamp>, jobs: &'a [Job]) -> Result<Self> {
        let (policies, queue) = queues_of(jobs)?;
        let mut write = WriteOptions::default();
        let options = jobs.iter().map(|job| write.json(&job.options)).collect::<Result<_>>()?;
        let each = |of: fn(&'a Job) -> Option<&'a str>| jobs.iter().map(of).collect();
        let (at, delay) = jobs.iter().map(due).unzip();
        Ok(Self {
            now: now.map(micros),
            policies,
            queue,
            key: each(|job| job.key.as_deref()),
            task: each(|job| job.task.as_deref()),
            // Digests are compared only among payloads of the same key.
            digest: jobs.iter().map(digest).collect(),
            // Adding 0 turns -0 into 0, which is equal.
            score: jobs.iter().map(|job| job.score.map(|score| score + 0.0)).collect(),
            priority: jobs.iter().map(|job| job.priority as i16).collect(),
            at,
            delay,
            options,
            lease_ttl: jobs.iter().map(|job| job.options.lease_ttl.map(micros_of)).collect(),
            expires_at: jobs.iter().map(|job| job.options.expires_at.map(micros)).collect(),
            name: each(|job| job.options.idempotency_key.as_deref()),
            node: each(|job| job.options.node.as_deref()),
            consumer_group: each(|job| job.options.consumer_group.as_deref()),
            payload: jobs.iter().map(|job| job.payload.as_bytes()).collect(),
            group: groups_of(jobs),
            past: pasts_of(jobs)?,
            batch: match are_in_batches(jobs) {
                true => each(|job| job.options.batch.as_deref()),
                false => Vec::new(),
            },
        })
    }

    /// The callback of a batch, which is its only job, as `call_back()` reads it.
    pub(super) fn as_callback(&self, queue: &str) -> String {
        serde_json::json!({
            "queue": queue,
            "queues": self.policies,
            "key": self.key.first(),
            "task": self.task.first(),
            "score": self.score.first(),
            "priority": self.priority.first(),
            "options": self.options.first(),
            "lease_ttl": self.lease_ttl.first(),
            "expires_at": self.expires_at.first(),
            "name": self.name.first(),
            "node": self.node.first(),
            "consumer_group": self.consumer_group.first(),
            "groups": self.group,
        })
        .to_string()
    }

    /// What its queues must be made for.
    pub(super) fn params_of_queues(&self) -> [&dyn Param; 5] {
        [&self.policies, &self.queue, &self.key, &self.lease_ttl, &self.group]
    }

    /// Nodes and consumer groups.
    pub(super) fn params_of_routes(&self) -> [&dyn Param; 2] {
        [&self.node, &self.consumer_group]
    }

    pub(super) fn params(&self) -> Vec<&dyn Param> {
        let mut params: Vec<&dyn Param> = vec![
            &self.now,
            &self.policies,
            &self.queue,
            &self.key,
            &self.task,
            &self.digest,
            &self.score,
            &self.priority,
            &self.at,
            &self.delay,
            &self.options,
            &self.lease_ttl,
            &self.expires_at,
            &self.name,
            &self.node,
            &self.consumer_group,
            &self.payload,
            &self.group,
            &self.past,
        ];
        if !self.batch.is_empty() {
            params.push(&self.batch);
        }
        params
    }
}

/// The queues of a batch by first appearance, and the place of each job's queue, from 1.
fn queues_of(jobs: &[Job]) -> Result<(String, Vec<i32>)> {
    let mut places = std::collections::HashMap::new();
    let mut policies = Vec::new();
    let mut queue = Vec::with_capacity(jobs.len());
    for job in jobs {
        let next = policies.len() as i32 + 1;
        let place = *places.entry(job.queue.as_str()).or_insert(next);
        if place == next {
            policies.push(policy(&Queue::implied(&job.queue, job.key.is_some()))?);
        }
        queue.push(place);
    }
    Ok((Value::Array(policies).to_string(), queue))
}

fn groups_of(jobs: &[Job]) -> Vec<i64> {
    if jobs.iter().all(|job| job.options.group.is_none()) {
        return Vec::new();
    }
    jobs.iter().map(|job| group_number(job.options.group.as_deref()) as i64).collect()
}

fn pasts_of(jobs: &[Job]) -> Result<Vec<Option<String>>> {
    if jobs.iter().all(|job| job.past.is_none()) {
        return Ok(Vec::new());
    }
    jobs.iter().map(|job| job.past.as_ref().map(json).transpose()).collect()
}

fn digest(job: &Job) -> Option<Vec<u8>> {
    job.key.as_ref().map(|_| job.merge_digest().to_vec())
}

fn due(job: &Job) -> (Option<i64>, Option<i64>) {
    match job.run_at {
        // With a window, the queue says how much later.
        RunAt::Now => (None, None),
        RunAt::In(delay) => (None, Some(micros_of(delay))),
        RunAt::At(time) => (Some(time.as_micros()), None),
    }
}

pub(super) fn push_error(e: tokio_postgres::Error, jobs: &[Job]) -> Error {
    let (code, place, mode) = match error::ours(&e) {
        Some(("SR010", name)) => {
            let place = jobs.iter().position(|job| job.queue == name).unwrap_or_default();
            return error::common(e).in_field(format!("jobs[{place}]"));
        }
        Some((code @ ("SR021" | "SR022"), place)) => {
            let place: usize = place.parse().unwrap_or_default();
            let id = jobs.get(place).and_then(|job: &Job| job.options.batch.as_deref());
            let why = if code == "SR022" { no_batch } else { batch_has_ended };
            return why(id.unwrap_or_default()).in_field(format!("jobs[{place}]"));
        }
        Some((code @ ("SR001" | "SR003" | "SR009" | "SR012"), detail)) => {
            let mut words = detail.split(' ').map(|word| word.parse::<usize>().unwrap_or_default());
            (code, words.next().unwrap_or_default(), words.next().unwrap_or_default())
        }
        _ => return error::common(e),
    };
    let Some(job) = jobs.get(place) else {
        return error::of_driver(e);
    };
    if code == "SR003" {
        return other_route(job.key.as_deref().unwrap_or_default(), place);
    }
    let queue = match code {
        "SR009" => {
            let own = Queue::implied(&job.queue, job.key.is_some());
            own.lease_max(Duration::from_micros(mode as u64))
        }
        "SR012" => Queue::implied(&job.queue, job.key.is_some()),
        _ => Queue::new(job.queue.clone(), MODES.get(mode).copied().unwrap_or(Mode::Parallel)),
    };
    match validate_job(&queue, job, place) {
        Err(refusal) => refusal,
        Ok(()) => error::of_driver(e),
    }
}
