//! The morgue: requeueing and deleting dead jobs, including those whose keys have moved to another shard.

use std::collections::BTreeSet;

use super::Redis;
use super::args::Args;
use super::layout::{Layout, Take};
use super::link::{DIGEST, MORGUE, MOVED, TAKE_IN};
use super::memo::Known;
use super::queues::{ATTEMPTS, changing};
use super::reply::{Fields, Shard, name_job};
use crate::contract::{Acted, Selected, Selection};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::payload::digest;
use crate::model::{JobId, Payload, Result, Timestamp};

/// Most jobs cancelled, or dead ones requeued or deleted, per script.
pub(super) const STEP_JOBS: usize = 200;

/// The operations of `morgue.lua`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Requeue,
    /// Requeue only if the key has a lane.
    Join,
    Delete,
    List,
    Undigested,
    HandOut,
}

impl What {
    fn text(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Join => "join",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Undigested => "undigested",
            Self::HandOut => "hand_out",
        }
    }
}

/// The answer of a shard's morgue.
struct Reply {
    /// `None` if the shard has another version than the named one.
    count: Option<u64>,
    more: bool,
    rows: Fields,
    /// How many of those that it looked at are still there.
    stayed: u64,
}

impl Redis {
    pub(super) async fn on_dead(&self, what: What, request: Selected) -> Result<Acted> {
        let known = self.current(&request.queue).await?;
        let which = match request.which {
            Selection::Jobs(jobs) if known.layout.changed => {
                Selection::Jobs(self.where_they_are(jobs).await?)
            }
            which => which,
        };
        let walks = what == What::Requeue && known.layout.changed;
        let first = if walks { What::List } else { what };
        let mut acted = Acted::default();
        for (shard, which) in selections(&known, &which) {
            let mut passed = 0;
            let what = (first, request.now);
            while self.step(&known, shard, what, &which, (&mut acted, &mut passed)).await? {}
        }
        Ok(acted)
    }

    /// One script's part of an action; whether another one follows. What stays dead, because its payload is lost, is passed by:
    /// the others behind it must not wait for a person to delete it.
    async fn step(
        &self,
        known: &Known,
        shard: Shard,
        (what, now): (What, Option<Timestamp>),
        which: &Args,
        (acted, passed): (&mut Acted, &mut u64),
    ) -> Result<bool> {
        let left = ACTION_ROWS_MAX as u64 - acted.count;
        let rows_max = left.min(STEP_JOBS as u64);
        if what != What::Delete && known.queue.merges() {
            let call = Call { what: What::Undigested, version: 0, floor: 0, passed: *passed, now };
            self.digest_dead(shard, call, rows_max, which).await?;
        }
        let call = Call { what, version: known.version, floor: 0, passed: *passed, now };
        let mut reply = self.in_morgue(shard, call, rows_max, which).await?;
        if reply.count.is_none() {
            // The keys may have moved since the check.
            let call = Call { what: What::List, ..call };
            reply = self.in_morgue(shard, call, rows_max, which).await?;
        }
        // Only `list` returns rows here.
        let requeued = self.requeue_each(known, shard, now, reply.rows).await?;
        let count = reply.count.unwrap_or(0) + requeued;
        acted.count += count;
        *passed += reply.stayed.saturating_sub(requeued);
        let goes_on = reply.more && count < left;
        acted.more |= reply.more && !goes_on;
        Ok(goes_on)
    }

    /// Gives dead jobs that were pushed when their queue did not compare payloads what they are compared by.
    async fn digest_dead(
        &self,
        shard: Shard,
        call: Call,
        rows_max: u64,
        which: &Args,
    ) -> Result<()> {
        loop {
            let mut rows = self.in_morgue(shard, call, rows_max, which).await?.rows;
            if rows.is_empty() {
                return Ok(());
            }
            let mut args = Args::at(call.now);
            while !rows.is_empty() {
                let job = shard.job(rows.int()?, rows.int()?);
                let (task, payload) = (rows.name()?, Payload::from_bytes(rows.bytes()?));
                name_job(&mut args, job).bytes(digest(task.as_deref(), &payload));
            }
            self.link.run(&DIGEST, &self.key(shard, ""), &args).await?;
        }
    }

    async fn in_morgue(
        &self,
        shard: Shard,
        call: Call,
        rows_max: u64,
        which: &Args,
    ) -> Result<Reply> {
        let mut args = Args::at(call.now);
        args.text(call.what.text()).int(rows_max).int(call.version).int(call.floor);
        args.int(call.passed);
        args.0.extend(which.0.iter().cloned());
        let mut answer = self.link.call(&MORGUE, &self.key(shard, ""), &args).await?;
        let count = u64::try_from(answer.int()?).ok();
        let (more, rows) = (answer.flag()?, answer.list()?);
        Ok(Reply { count, more, rows, stayed: answer.int()? as u64 })
    }

    /// Requeues, one by one, dead jobs of a queue whose keys may be in other shards by now.
    async fn requeue_each(
        &self,
        known: &Known,
        shard: Shard,
        now: Option<Timestamp>,
        mut rows: Fields,
    ) -> Result<u64> {
        let mut count = 0;
        while !rows.is_empty() {
            let job = shard.job(rows.int()?, rows.int()?);
            let key = rows.text()?;
            count += u64::from(self.requeue_one(&known.name, job, &key, now).await?);
        }
        Ok(count)
    }

    /// Visits the shards on the key's path, like a push: first those with an existing lane, then the present one.
    async fn requeue_one(
        &self,
        queue: &str,
        job: JobId,
        key: &str,
        now: Option<Timestamp>,
    ) -> Result<bool> {
        'again: for _ in 0..ATTEMPTS {
            let known = self.current(queue).await?;
            // Every older shard must have adopted the latest number before its answer "not here" counts.
            self.adopt(&known).await?;
            let mut floor = 0;
            for step in known.layout.way(&name_of(job, key)) {
                let shard = Layout::shard(known.number, step);
                let here = shard == Shard::of_job(job);
                let call = |what| Call { what, version: known.version, floor, passed: 0, now };
                let answer = match step.take {
                    Take::Repeated if here => continue,
                    Take::Joining if here => self.requeue_here(job, call(What::Join)).await?,
                    Take::All if here => self.requeue_here(job, call(What::Requeue)).await?,
                    take => self.take_in(shard, take, call(What::HandOut), job).await?,
                };
                match answer {
                    Walked::Done(requeued) => return Ok(requeued),
                    Walked::Further(token) => floor = floor.max(token),
                    Walked::Stale => continue 'again,
                }
            }
            return Ok(false);
        }
        Err(changing(queue))
    }

    async fn requeue_here(&self, job: JobId, call: Call) -> Result<Walked> {
        let mut reply = self.in_morgue(Shard::of_job(job), call, 1, &only(job)).await?;
        match reply.count {
            None => Ok(Walked::Stale),
            Some(_) if !reply.rows.is_empty() => Ok(Walked::Further(reply.rows.int()?)),
            Some(count) => Ok(Walked::Done(count > 0)),
        }
    }

    /// Moves a dead job into another shard, and makes its old id refer to the new one. If interrupted in between, the
    /// job is still in the morgue, and the next requeue recognizes the copy.
    async fn take_in(&self, shard: Shard, take: Take, call: Call, job: JobId) -> Result<Walked> {
        let was = Shard::of_job(job);
        let mut reply = self.in_morgue(was, call, 1, &only(job)).await?;
        if reply.rows.is_empty() {
            return Ok(Walked::Done(false));
        }
        let mut args = Args::at(call.now);
        args.int(call.version).text(take.text()).int(call.floor);
        args.text(&was_at(job)).bytes(reply.rows.bytes()?);
        let mut answer = self.link.call(&TAKE_IN, &self.key(shard, ""), &args).await?;
        match &*answer.text()? {
            "OK" => {}
            "ELSEWHERE" => return Ok(Walked::Further(answer.int()?)),
            _ => return Ok(Walked::Stale),
        }
        let place = format!("{}:{}:{}", shard.shard, answer.int()?, answer.int()?);
        let mut args = Args::at(call.now);
        name_job(&mut args, job);
        args.text(&place);
        self.link.run(&MOVED, &self.key(was, ""), &args).await?;
        Ok(Walked::Done(true))
    }

    /// The present ids of these jobs.
    pub(super) async fn where_they_are(&self, jobs: Vec<JobId>) -> Result<Vec<JobId>> {
        let mut there = Vec::with_capacity(jobs.len());
        for job in jobs {
            there.push(self.moved_to(job).await?.unwrap_or(job));
        }
        Ok(there)
    }
}

/// How a step on a dead job's path ended.
enum Walked {
    /// Whether it was requeued; if not, it is no longer dead.
    Done(bool),
    /// Its key has no lane in this shard; the shard's last token.
    Further(i64),
    /// The shard has another definition than the path was computed from.
    Stale,
}

/// A request to a morgue.
#[derive(Clone, Copy)]
struct Call {
    what: What,
    /// The version of the queue from which the shard was computed.
    version: i64,
    /// Lower limit for tokens.
    floor: i64,
    /// How many of the chosen jobs were looked at before, and are still there.
    passed: u64,
    now: Option<Timestamp>,
}

/// Where a dead job was; the shard that takes it in remembers this.
fn was_at(job: JobId) -> String {
    format!("{}:{}", Shard::of_job(job).shard, job.seq())
}

/// The name that determines a dead job's path: its key, or without one the name that the new shard remembers.
fn name_of(job: JobId, key: &str) -> String {
    match key.is_empty() {
        true => format!("\u{1}{}", was_at(job)),
        false => key.to_owned(),
    }
}

fn only(job: JobId) -> Args {
    let mut args = Args::default();
    args.text("jobs");
    name_job(&mut args, job);
    args
}

/// The arguments of each step: `all`, `jobs` with their numbers, or `keys`.
fn selections(known: &Known, which: &Selection) -> Vec<(Shard, Args)> {
    let mut steps = Vec::new();
    for shard in known.shards() {
        let step = |what: &str, named: &[Args]| {
            let mut args = Args::default();
            args.text(what).0.extend(named.iter().flat_map(|name| name.0.iter().cloned()));
            (shard, args)
        };
        match which {
            Selection::All => steps.push(step("all", &[])),
            Selection::Jobs(jobs) => {
                let here = jobs.iter().filter(|job| Shard::of_job(**job) == shard);
                let named: Vec<Args> =
                    here.map(|job| name_job(&mut Args::default(), *job).clone()).collect();
                steps.extend(named.chunks(STEP_JOBS).map(|jobs| step("jobs", jobs)));
            }
            Selection::Keys(keys) => {
                let keys: BTreeSet<&String> = keys.iter().filter(|key| !key.is_empty()).collect();
                let named: Vec<Args> =
                    keys.into_iter().map(|key| Args::default().text(key).clone()).collect();
                steps.extend(named.chunks(STEP_JOBS).map(|keys| step("keys", keys)));
            }
        }
    }
    steps
}
