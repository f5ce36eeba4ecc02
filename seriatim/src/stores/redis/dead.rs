//! The morgue: requeueing and deleting dead jobs, also of keys that have moved to another shard.

use std::collections::BTreeSet;

use super::Redis;
use super::args::Args;
use super::layout::{Layout, Take};
use super::link::{MORGUE, MOVED, TAKE_IN};
use super::queues::{ATTEMPTS, Known, changing};
use super::reply::{Fields, Shard, name_job};
use crate::contract::{Acted, Selected, Selection};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::JobId;
use crate::model::limits::ACTION_ROWS_MAX;

/// What `morgue.lua` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Requeue,
    /// Requeue only where the key has a lane.
    Join,
    Delete,
    List,
    HandOut,
}

impl What {
    fn text(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Join => "join",
            Self::Delete => "delete",
            Self::List => "list",
            Self::HandOut => "hand_out",
        }
    }
}

/// What a shard's morgue answers.
struct Reply {
    /// None when the shard has not the version that was named.
    count: Option<u64>,
    more: bool,
    rows: Fields,
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
            let rows_max = ACTION_ROWS_MAX as u64 - acted.count;
            let call = Call { what: first, version: known.version, floor: 0, now: request.now };
            let mut told = self.in_morgue(shard, call, rows_max, &which).await?;
            if told.count.is_none() {
                // The keys may be elsewhere since we looked.
                let call = Call { what: What::List, ..call };
                told = self.in_morgue(shard, call, rows_max, &which).await?;
            }
            acted.more |= told.more;
            acted.count += told.count.unwrap_or(0);
            // None but `list` has rows here.
            acted.count += self.requeue_each(&known, shard, request.now, told.rows).await?;
        }
        Ok(acted)
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
        args.0.extend(which.0.iter().cloned());
        let mut answer = self.link.call(&MORGUE, &self.key(shard, ""), &args).await?;
        let count = u64::try_from(answer.int()?).ok();
        Ok(Reply { count, more: answer.flag()?, rows: answer.list()? })
    }

    /// Requeues dead jobs of a queue whose keys may be elsewhere by now, one by one.
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

    /// Asks on the key's way, like a push: only where a lane of it is, then where it belongs.
    async fn requeue_one(
        &self,
        queue: &str,
        job: JobId,
        key: &str,
        now: Option<Timestamp>,
    ) -> Result<bool> {
        'again: for _ in 0..ATTEMPTS {
            let known = self.current(queue).await?;
            // Every older shard must have heard of the latest number before it says "not here".
            self.adopt(&known).await?;
            let mut floor = 0;
            for step in known.layout.way(&name_of(job, key)) {
                let shard = Layout::shard(known.number, step);
                let here = shard == Shard::of_job(job);
                let call = |what| Call { what, version: known.version, floor, now };
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
        let mut told = self.in_morgue(Shard::of_job(job), call, 1, &only(job)).await?;
        match told.count {
            None => Ok(Walked::Stale),
            Some(_) if !told.rows.is_empty() => Ok(Walked::Further(told.rows.int()?)),
            Some(count) => Ok(Walked::Done(count > 0)),
        }
    }

    /// Takes a dead job into another shard; then its id leads there. Broken off in between it is
    /// still in the morgue, and requeueing it again finds what was taken in.
    async fn take_in(&self, shard: Shard, take: Take, call: Call, job: JobId) -> Result<Walked> {
        let was = Shard::of_job(job);
        let mut told = self.in_morgue(was, call, 1, &only(job)).await?;
        if told.rows.is_empty() {
            return Ok(Walked::Done(false));
        }
        let mut args = Args::at(call.now);
        args.int(call.version).text(take.text()).int(call.floor);
        args.text(&was_at(job)).bytes(told.rows.bytes()?);
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

    /// The same jobs, of those that moved to another shard where they are now.
    pub(super) async fn where_they_are(&self, jobs: Vec<JobId>) -> Result<Vec<JobId>> {
        let mut there = Vec::with_capacity(jobs.len());
        for job in jobs {
            there.push(self.moved_to(job).await?.unwrap_or(job));
        }
        Ok(there)
    }
}

/// How a step of a dead job's way ended.
enum Walked {
    /// Whether it is requeued; else it is not dead any more.
    Done(bool),
    /// Its key has no lane there; the shard's last token.
    Further(i64),
    /// The shard has not the definition that the way was made of.
    Stale,
}

/// What a morgue is asked.
#[derive(Clone, Copy)]
struct Call {
    what: What,
    /// The queue's, by which it was decided to ask here.
    version: i64,
    /// Tokens are higher.
    floor: i64,
    now: Option<Timestamp>,
}

/// Where a dead job was, as the shard that takes it in remembers it.
fn was_at(job: JobId) -> String {
    format!("{}:{}", Shard::of_job(job).shard, job.seq())
}

/// By what a dead job's way is found: its key; without one, what the shard that takes it in remembers.
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

/// What each shard is asked for: `all`, `jobs` with their numbers, or `keys`.
fn selections(known: &Known, which: &Selection) -> Vec<(Shard, Args)> {
    let mut of_shards = Vec::new();
    for shard in known.shards() {
        let mut args = Args::default();
        match which {
            Selection::All => {
                args.text("all");
            }
            Selection::Jobs(jobs) => {
                args.text("jobs");
                let here = jobs.iter().filter(|job| Shard::of_job(**job) == shard);
                here.for_each(|job| name_job(&mut args, *job));
            }
            Selection::Keys(keys) => {
                args.text("keys");
                let keys: BTreeSet<&String> = keys.iter().filter(|key| !key.is_empty()).collect();
                args.0.extend(keys.into_iter().map(|key| key.clone().into_bytes()));
            }
        }
        of_shards.push((shard, args));
    }
    of_shards
}
