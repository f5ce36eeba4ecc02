//! Statistics and listings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::Redis;
use super::args::Args;
use super::by_due::ByDue;
use super::link::{DUE, LANES, STATS, TURN, VIEW};
use super::many::Question;
use super::memo::Known;
use super::page::{Chosen, Rows, lane_entry, lane_state, runs};
use super::reply::{Fields, Shard, corrupt, name_job, score_of};
use super::turns::Handed;
use crate::contract::{
    Command, JobQuery, JobState, JobView, LaneJob, LaneQuery, LaneView, NodeInfo, NodeView, Page,
    QueueDue, QueueStats, QueueView, Store, Views, Vitals,
};
use crate::model::{
    ErrorKind, JobId, LaneId, NodeId, Payload, Result, Timestamp, Token, Turn, result,
};
use crate::stores::asked::is_asked;
use crate::stores::{gone, job_look};

/// Most shards that one script looks at.
const DUE_SHARDS_MAX: usize = 200;
const STATS_SHARDS_MAX: usize = 100;

/// The statistics of one shard.
struct Numbers {
    /// Lanes, jobs, claimed, retrying, dead, processed, failed.
    counts: [u64; 7],
    due: Option<Timestamp>,
}

impl Numbers {
    fn read(mut fields: Fields) -> Result<Option<Self>> {
        if fields.is_empty() {
            return Ok(None);
        }
        let mut counts = [0; 7];
        for number in &mut counts {
            *number = fields.int()? as u64;
        }
        Ok(Some(Self { counts, due: fields.opt_time()? }))
    }
}

/// The statistics of a queue, from those of its shards.
fn stats_of(known: &Known, now: Timestamp, shards: impl Iterator<Item = Numbers>) -> QueueStats {
    let mut sum = [0; 7];
    let mut due: Option<Timestamp> = None;
    for numbers in shards {
        sum.iter_mut().zip(numbers.counts).for_each(|(sum, number)| *sum += number);
        due = due.into_iter().chain(numbers.due).min();
    }
    let [lanes, jobs, claimed, retrying, dead, processed, failed] = sum;
    QueueStats {
        queue: known.name.clone(),
        mode: Some(known.queue.mode),
        paused: known.paused,
        lanes,
        jobs,
        claimed,
        retrying,
        dead,
        processed,
        failed,
        lag: due.map(|due| now.since(due)).unwrap_or_default(),
    }
}

/// A view, and the node whose lease the job's claim has.
type Held = (JobView, Option<Arc<str>>);

#[async_trait]
impl Views for Redis {
    async fn queues(&self) -> Result<Vec<QueueView>> {
        let view = |known: &Arc<Known>| QueueView {
            number: known.number,
            queue: known.queue.clone(),
            declared: known.declared,
            paused: known.paused,
        };
        Ok(self.all_queues().await?.iter().map(view).collect())
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        let now = match now {
            Some(now) => now,
            None => self.now().await?,
        };
        let queues = self.all_queues().await?;
        let shards = queues.iter().flat_map(|known| known.shards());
        let question = Question { code: &STATS, args: Args::default(), most: STATS_SHARDS_MAX };
        let numbers = |fields: &mut Fields| Numbers::read(fields.list()?);
        let (numbers, away) = self.ask(&question, shards, numbers).await?;
        if let Some(error) = away {
            return Err(error);
        }
        let mut numbers = numbers.into_iter();
        let stats = |known: &Arc<Known>| {
            let of_queue = numbers.by_ref().take(known.shards().count());
            stats_of(known, now, of_queue.flatten().flatten())
        };
        Ok(queues.iter().map(stats).collect())
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        let is_asked = is_asked(&queues);
        let (known, _) = self.known_queues_for(&is_asked).await?;
        let asked: Vec<&Arc<Known>> =
            known.queues.iter().filter(|known| is_asked(&known.name)).collect();
        let shards = asked.iter().flat_map(|known| known.open_shards());
        // Others look too, such as pages: a push need not wake them.
        let waits = asked.iter().all(|known| self.bell.is_awaited(&known.name));
        let mut args = Args::default();
        args.flag(waits);
        let question = Question { code: &DUE, args, most: DUE_SHARDS_MAX };
        let (dues, _) = self.ask(&question, shards, first_due).await?;
        let mut dues = dues.into_iter();
        let due_of = |known: &&Arc<Known>| {
            let (name, count) = (known.name.clone(), known.open_shards().count());
            dues.by_ref().take(count).fold(QueueDue::new(name, None), |all, due| QueueDue {
                due: all.due.into_iter().chain(due.flatten()).min(),
                unanswered: all.unanswered || due.is_none(),
                ..all
            })
        };
        let mut answer: Vec<QueueDue> = asked.iter().map(due_of).collect();
        let unread = known.unread().filter(|name| is_asked(name));
        answer.extend(unread.map(|queue| QueueDue { queue, due: None, unanswered: true }));
        Ok(answer)
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        let known = self.current(&query.queue).await?;
        let now = match query.now {
            Some(now) => now,
            None => self.now().await?,
        };
        let mut chosen = Chosen::of_lanes(&query)?;
        let asked = |shard: &Shard| query.lane.is_none_or(|lane| lane.shard == shard.shard);
        let looks_max = query.looks_max().div_ceil(known.shards().count().max(1));
        let by_due = ByDue::of(&query, now, known.queue.mode, looks_max);
        for shard in known.shards().filter(asked) {
            if let Some(page) = &by_due
                && self.add_by_due(shard, page, &mut chosen).await?
            {
                continue;
            }
            let rows = Rows::of_lanes(&query, &chosen, shard.shard);
            let look = |row| {
                chosen.add(lane_entry(Fields::of(row)?, shard, &query, now)?);
                Ok(())
            };
            self.each_row(shard, &rows, look).await?;
        }
        let (page, next, cut) = chosen.page();
        let mut rows = Vec::new();
        for (shard, numbers) in runs(&known, &page) {
            rows.extend(self.lane_views(shard, &numbers).await?);
        }
        Ok(Page { rows, next, cut })
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        job_look::page(self, query).await
    }

    // An alias shows the state of the job it was merged into.
    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let Some(known) = self.numbered(id.queue()).await? else { return Ok(None) };
        let args = one_job(id);
        let (views, _) = self.views(Shard::of_job(id), &known.name, &args).await?;
        if let Some(view) = views.into_iter().next() {
            return Ok(Some(JobView { id, ..view }));
        }
        // The job may have been requeued into another shard.
        let Some(there) = self.moved_to(id).await? else { return Ok(None) };
        let args = one_job(there);
        let (views, _) = self.views(Shard::of_job(there), &known.name, &args).await?;
        Ok(views.into_iter().next().map(|view| JobView { id, ..view }))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let Some(known) = self.numbered(lane.queue).await? else { return Ok(None) };
        let Some(handed) = self.handed(&known, lane, token).await? else { return Ok(None) };
        match self.with_bodies(Shard::of_lane(lane), handed).await {
            // A turn that ends takes its payloads with it.
            Err(error)
                if error.kind() == ErrorKind::Corrupt
                    && self.handed(&known, lane, token).await?.is_none() =>
            {
                Ok(None)
            }
            turns => Ok(turns?.pop()),
        }
    }

    async fn vitals(&self) -> Result<Vitals> {
        self.link.vitals().await
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        let infos: BTreeMap<Arc<str>, Arc<str>> = self.pairs("nodes").await?.into_iter().collect();
        let beats: HashMap<_, _> = self.pairs("beats").await?.into_iter().collect();
        let commands: HashMap<_, _> = self.pairs("commands").await?.into_iter().collect();
        let mut cmd = redis::cmd("ZRANGE");
        let mut list = self.link.fields(cmd.arg(self.global("dead")).arg(0).arg(-1)).await?;
        let mut dead = HashSet::new();
        while !list.is_empty() {
            dead.insert(list.text()?);
        }
        let view = |(id, info): (Arc<str>, Arc<str>)| {
            let info: NodeInfo = serde_json::from_str(&info).map_err(|e| corrupt().because(e))?;
            let beat = beats.get(&id).and_then(|beat| beat.parse().ok()).unwrap_or_default();
            Ok(NodeView {
                info,
                heartbeat_at: gone::as_it_was(Timestamp::from_micros(beat)),
                dead: dead.contains(&id),
                command: commands.get(&id).and_then(|name| Command::named(name)),
            })
        };
        infos.into_iter().map(view).collect()
    }
}

impl Redis {
    /// A turn without the payloads that are apart. `None`: the lane has another token.
    async fn handed(&self, known: &Known, lane: LaneId, token: Token) -> Result<Option<Handed>> {
        let shard = Shard::of_lane(lane);
        let mut args = Args::default();
        args.int(lane.number).int(token.0);
        match self.link.run(&TURN, &self.key(shard, ""), &args).await? {
            Value::Nil => Ok(None),
            turn => {
                let mut handed = Handed::default();
                handed.turns.push(Fields::of(turn)?.turn(shard, &known.name, &mut handed.apart)?);
                Ok(Some(handed))
            }
        }
    }

    pub(super) async fn lane_views(&self, shard: Shard, numbers: &[i64]) -> Result<Vec<LaneView>> {
        let mut lanes: Vec<(LaneView, Option<Duration>)> = Vec::new();
        let mut left = numbers;
        while !left.is_empty() {
            let mut args = Args::default();
            left.iter().for_each(|number| {
                args.int(*number);
            });
            let answer = self.link.call(&LANES, &self.key(shard, ""), &args).await?;
            let some: Vec<Value> = answer.rest().collect();
            left = &left[some.len().clamp(1, left.len())..];
            let known = some.into_iter().filter(|lane| *lane != Value::Nil);
            for lane in known {
                lanes.push(lane_view(Fields::of(lane)?, shard)?);
            }
        }
        let of_nodes = lanes.iter().filter(|(_, ttl)| ttl.is_some());
        let holders = of_nodes.filter_map(|(lane, _)| Some(lane.node.as_ref()?.0.clone()));
        let beats = self.beats_of(holders.collect()).await?;
        let until = |(mut lane, ttl): (LaneView, Option<Duration>)| {
            let beat = lane.node.as_ref().and_then(|node| beats.get(&node.0).copied());
            if let Some(ttl) = ttl {
                lane.lease_until = beat.map(|beat| gone::lease_end(beat, ttl));
            }
            lane
        };
        Ok(lanes.into_iter().map(until).collect())
    }

    /// The views of the first of these jobs, and how many jobs they cover: fewer than all if payloads are large.
    pub(super) async fn job_views(
        &self,
        shard: Shard,
        queue: &Arc<str>,
        numbers: &[i64],
        payload_bytes_max: Option<usize>,
    ) -> Result<(Vec<JobView>, usize)> {
        let mut args = Args::default();
        args.text(&payload_bytes_max.map(|most| most.to_string()).unwrap_or_default());
        for number in numbers {
            args.int(*number).text("");
        }
        self.views(shard, queue, &args).await
    }

    /// The present id of a job that was requeued into another shard, perhaps several times.
    pub(super) async fn moved_to(&self, id: JobId) -> Result<Option<JobId>> {
        let mut there = None;
        loop {
            let at = there.unwrap_or(id);
            let key = self.key(Shard::of_job(at), "");
            let answer = self.link.call(&VIEW, &key, &one_job(at)).await?.rest().next();
            let Some(view @ Value::Array(_)) = answer else { return Ok(there) };
            let mut fields = Fields::of(view)?;
            if &*fields.text()? != "moved" {
                return Ok(there);
            }
            let place = fields.rest().nth(ERROR_AT - 1).ok_or_else(corrupt)?;
            there = Some(place_in(&super::reply::single(place)?.text()?, id).ok_or_else(corrupt)?);
        }
    }

    /// A job's options as stored: empty if it has none.
    pub(super) async fn options_text(&self, id: JobId) -> Result<Option<String>> {
        let key = self.key(Shard::of_job(id), "");
        let answer = self.link.call(&VIEW, &key, &one_job(id)).await?;
        let Some(view @ Value::Array(_)) = answer.rest().next() else { return Ok(None) };
        let options = Fields::of(view)?.rest().nth(OPTIONS_AT).ok_or_else(corrupt)?;
        let options = super::reply::single(options)?.text()?;
        Ok(Some(options.to_string()))
    }

    async fn views(
        &self,
        shard: Shard,
        queue: &Arc<str>,
        args: &Args,
    ) -> Result<(Vec<JobView>, usize)> {
        let answer = self.link.call(&VIEW, &self.key(shard, ""), args).await?;
        let all: Vec<Value> = answer.rest().collect();
        let looked = all.len();
        let known = all.into_iter().filter(|job| *job != Value::Nil);
        let held = known.map(|job| job_view(Fields::of(job)?, shard, queue));
        let held: Vec<Held> = held.filter_map(Result::transpose).collect::<Result<_>>()?;
        let holders = held.iter().filter_map(|(_, node)| node.clone()).collect();
        let beats = self.beats_of(holders).await?;
        let beaten = |(mut view, node): Held| {
            let beat = node.and_then(|node| beats.get(&node).copied());
            view.heartbeat_at = view.heartbeat_at.into_iter().chain(beat).max();
            view
        };
        Ok((held.into_iter().map(beaten).collect(), looked))
    }

    /// The last heartbeats of these nodes, as stored.
    async fn beats_of(&self, mut nodes: Vec<Arc<str>>) -> Result<HashMap<Arc<str>, Timestamp>> {
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() {
            return Ok(HashMap::new());
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.global("beats"));
        for node in &nodes {
            cmd.arg(&**node);
        }
        let mut found = self.link.fields(&cmd).await?;
        let mut beats = HashMap::new();
        for node in nodes {
            beats.extend(found.opt_time()?.map(|beat| (node, beat)));
        }
        Ok(beats)
    }
}

/// When a shard has a lane due first, as `due.lua` says it.
fn first_due(fields: &mut Fields) -> Result<Option<Timestamp>> {
    let due = fields.name()?;
    let time = |due: Arc<str>| due.parse().map(Timestamp::from_micros).map_err(|_| corrupt());
    due.map(time).transpose()
}

/// The arguments of `view.lua` for one job with its payload.
fn one_job(id: JobId) -> Args {
    let mut args = Args::default();
    args.text("");
    name_job(&mut args, id);
    args
}

/// The job at `shard:seq:created`, in the same queue as `like`.
fn place_in(text: &str, like: JobId) -> Option<JobId> {
    let mut numbers = text.split(':');
    let shard = Shard { queue: like.queue(), shard: numbers.next()?.parse().ok()? };
    Some(shard.job(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The position of the error in an answer of `view.lua`; for a moved job, its new place.
const ERROR_AT: usize = 12;
/// The position of the options in an answer of `view.lua`.
const OPTIONS_AT: usize = 16;

fn job_view(mut fields: Fields, shard: Shard, queue: &Arc<str>) -> Result<Option<Held>> {
    let state = match &*fields.text()? {
        "live" => JobState::Queued,
        "running" => JobState::Running,
        "done" => JobState::Succeeded,
        "dead" => JobState::Dead,
        "canceled" => JobState::Canceled,
        "moved" => return Ok(None),
        _ => return Err(corrupt()),
    };
    let (seq, created) = (fields.int()?, fields.int()?);
    let mut view = JobView {
        id: shard.job(seq, created),
        queue: queue.clone(),
        key: fields.name()?,
        task: fields.name()?,
        state,
        payload: Payload::from_bytes(fields.bytes()?),
        payload_bytes: 0,
        score: score_of(&fields.text()?)?,
        priority: fields.int()? as u16,
        run_at: fields.time()?,
        attempt: fields.int()? as u32,
        retry_count: fields.int()? as i32,
        crashes: fields.int()? as u32,
        error: fields.opt_text()?,
        result: None,
        cancel_requested: fields.flag()?,
        created_at: Timestamp::from_micros(created),
        started_at: fields.opt_time()?,
        finished_at: fields.opt_time()?,
        options: fields.options()?,
        heartbeat_at: fields.opt_time()?,
        progress: None,
        lane: None,
        token: None,
        node: None,
    };
    (view.error, view.result) = result::read(view.error);
    let node = fields.opt_text()?;
    view.progress = fields.opt_text()?;
    view.payload_bytes = fields.int()? as usize;
    view.lane = fields.opt_int()?.map(|lane| shard.lane(lane));
    view.token = fields.opt_int()?.map(Token);
    view.node = fields.opt_text()?.map(NodeId);
    Ok(Some((view, node)))
}

/// A lane, and how long its claim outlives a heartbeat of its node.
fn lane_view(mut fields: Fields, shard: Shard) -> Result<(LaneView, Option<Duration>)> {
    let mut view = LaneView {
        lane: shard.lane(fields.int()?),
        key: fields.name()?,
        state: lane_state(&fields.text()?),
        due: fields.opt_time()?,
        priority: fields.opt_int()?.unwrap_or(0) as u16,
        jobs: fields.int()? as u64,
        retry_count: fields.int()? as i32,
        crashes: fields.int()? as u32,
        error: fields.opt_text()?,
        token: fields.opt_int()?.map(Token),
        node: fields.opt_text()?.map(NodeId),
        claimed_at: fields.opt_time()?,
        progress: fields.opt_text()?,
        lease_until: None,
        collects_until: None,
        only: None,
    };
    view.lease_until = fields.opt_time()?;
    let ttl = fields.opt_int()?;
    view.collects_until = fields.opt_time()?;
    let job = fields.opt_int()?.zip(fields.opt_int()?);
    if let Some((seq, created)) = job {
        let (task, options) = (fields.name()?, fields.options()?);
        view.only = Some(LaneJob { id: shard.job(seq, created), task, options });
    }
    Ok((view, ttl.map(|ttl| Duration::from_micros(ttl.max(0) as u64))))
}
