//! Queues: their numbers and their definitions.
//!
//! The register in the global slot maps a name to its number until the queue is deleted. The definition is stored in
//! the queue's first shard, so that one script can check it against the lanes; the other shards adopt it. Every push
//! names the version that it was checked against, and a shard with another version refuses it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::Redis;
use super::args::{Args, micros};
use super::layout::Layout;
use super::link::{
    CHANGE, DECLARE, GLOBAL_CHANGED, GLOBAL_FREE, GLOBAL_REGISTER, GLOBAL_UNREGISTER,
};
use super::memo::{All, Known};
use super::reply::{Shard, corrupt, single};
use crate::contract::definition::Found;
use crate::contract::errors::{is_closing, no_queue, too_many_queues};
use crate::contract::{Acted, Declare, DeleteQueue, Queues, Resharded, Wake};
use crate::model::limits::QUEUES_MAX;
use crate::model::rate::Rate;
use crate::model::{DueRule, Error, ErrorKind, Merge, Mode, Queue, Result, Share, Timestamp};
use crate::stores::json::json;
use crate::stores::sharing::Shares;

/// A group is 6 bytes in the store.
const GROUP_AT: usize = 2;

/// Most attempts at an operation that depends on a definition, if the definition changes meanwhile.
pub(super) const ATTEMPTS: usize = 10;

/// A shard's answer to a definition.
enum Answer {
    Ok,
    Exists,
    /// It is being deleted.
    Closing,
    /// It has another number of shards.
    Shards,
    /// The number now belongs to another queue, which has jobs here.
    Other(Arc<str>),
    Refused(Error),
}

#[async_trait]
impl Queues for Redis {
    async fn declare(&self, request: Declare) -> Result<()> {
        self.declare_as(request, Declared::Always).await
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.declare_as(request, Declared::IfNew).await
    }

    async fn pause_queue(&self, queue: Arc<str>, paused: bool) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let known = self.current(&queue).await?;
            if known.closing {
                return Err(is_closing(&queue));
            }
            if self.set_flags(&known, paused, false).await? {
                self.adopt(&*self.current(&queue).await?).await?;
                self.bell.ring(&Wake::of([&*queue]));
                return Ok(());
            }
        }
        Err(changing(&queue))
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        // In one step: the server frees the memory in the background.
        let name = &*request.queue;
        let known = self.close_queue(name).await?;
        let home = Known::home(known.number);
        let mut count = 0;
        for shard in known.shards() {
            count += self.wipe(&known, shard, shard != home).await?;
        }
        let mut args = Args::default();
        args.text(name).int(known.number);
        let ours = self.link.run(&GLOBAL_UNREGISTER, &self.global(""), &args).await?;
        if single(ours)?.flag()? {
            self.wipe(&known, home, true).await?;
            let mut args = Args::default();
            args.int(known.number);
            self.link.run(&GLOBAL_FREE, &self.global(""), &args).await?;
        }
        self.memo.forget(name);
        self.changed().await?;
        Ok(Acted { count, more: false })
    }

    async fn reshard(&self, queue: Arc<str>, shards: u16) -> Result<Resharded> {
        let known = self.reload(&queue).await?.ok_or_else(|| no_queue(&queue))?;
        Queue { shards, ..known.queue.clone() }.validate()?;
        let known = self.with_shards(&queue, shards).await?;
        // A concurrent claim or push may bring the shards to the new version too.
        self.adopt(&known).await?;
        let left = self.left_behind(&known, false).await?;
        let known = if left.is_nothing() { self.forget_older(known).await? } else { known };
        Ok(Resharded {
            shards: known.queue.shards,
            older: known.layout.older.len() as u16,
            lanes_left: left.lanes,
            idempotency_keys_left: left.idempotency_keys,
        })
    }
}

impl Redis {
    /// A queue by name, from the cache if possible.
    pub(super) async fn known(&self, name: &str) -> Result<Option<Arc<Known>>> {
        match self.memo.get(name) {
            Some(known) => Ok(Some(known)),
            None => self.reload(name).await,
        }
    }

    pub(super) async fn existing(&self, name: &str) -> Result<Arc<Known>> {
        self.known(name).await?.ok_or_else(|| no_queue(name))
    }

    /// The queue's current definition. Views and actions use it, because they cover all shards.
    pub(super) async fn current(&self, name: &str) -> Result<Arc<Known>> {
        self.reload(name).await?.ok_or_else(|| no_queue(name))
    }

    pub(super) async fn reload(&self, name: &str) -> Result<Option<Arc<Known>>> {
        match self.registered(name).await? {
            Some(number) => self.load(name, number).await,
            None => {
                self.memo.forget(name);
                Ok(None)
            }
        }
    }

    async fn registered(&self, name: &str) -> Result<Option<u32>> {
        let number =
            self.link.query(redis::cmd("HGET").arg(self.global("queues")).arg(name)).await?;
        Ok(single(number)?.opt_int()?.map(|number| number as u32))
    }

    async fn load(&self, name: &str, number: u32) -> Result<Option<Arc<Known>>> {
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.key(Known::home(number), "meta"));
        cmd.arg(&[
            "version",
            "definition",
            "declared",
            "paused",
            "older",
            "span",
            "floor",
            "lanes",
            "closing",
        ]);
        let mut fields = self.link.fields(&cmd).await?;
        let Some(version) = fields.opt_int()? else {
            self.memo.forget(name);
            return Ok(None);
        };
        let queue: Queue =
            serde_json::from_str(&fields.text()?).map_err(|e| corrupt().because(e))?;
        let declared = fields.flag()?;
        let paused = fields.opt_int()? == Some(1);
        let layout = Layout::read(queue.shards, &mut fields)?;
        let is_empty = fields.opt_int()?.unwrap_or(0) == 0;
        let closing = fields.opt_int()? == Some(1);
        if queue.name != name {
            // Either the store was wiped while a definition was being written, which the next definition replaces; or
            // it was wiped between the two reads, and the number now belongs to another queue.
            if is_empty || self.registered(name).await? != Some(number) {
                self.memo.forget(name);
                return Ok(None);
            }
            return Err(lost(name, &queue.name));
        }
        let name = name.into();
        let known = Known { number, name, version, queue, declared, paused, closing, layout };
        Ok(Some(self.memo.put(known)))
    }

    /// All current queues, by name. Fails if one of them cannot be read, and this process does not know it.
    pub(super) async fn all_queues(&self) -> Result<Arc<[Arc<Known>]>> {
        match self.known_queues().await? {
            (all, None) => Ok(all.queues),
            (_, Some(error)) => Err(error),
        }
    }

    /// All current queues, and why some are missing, if so.
    pub(super) async fn known_queues(&self) -> Result<(All, Option<Error>)> {
        self.known_queues_for(|_| true).await
    }

    /// All current queues for a caller that needs these, and why some of these are missing, if so. Read again if the stamp shows
    /// that one has changed. In a cluster, servers with the register or with first shards may be away, and the others have work:
    /// then what this process read last is used.
    pub(super) async fn known_queues_for(
        &self,
        needs: impl Fn(&str) -> bool,
    ) -> Result<(All, Option<Error>)> {
        let cmd = redis::cmd("HGET").arg(self.global("meta")).arg("stamp").to_owned();
        let before = match self.link.query(&cmd).await {
            Err(error) if self.is_of_one_server(&error) => self.memo.last().ok_or(error)?,
            stamp => {
                let stamp = single(stamp?)?.opt_int()?;
                match stamp.and_then(|stamp| self.memo.all(stamp)) {
                    Some(before) => before,
                    None => return self.load_all(stamp).await,
                }
            }
        };
        // Those could not be read with the others.
        let (again, left): (Vec<_>, Vec<_>) =
            before.away.iter().cloned().partition(|(name, _)| needs(name));
        if again.is_empty() {
            return Ok((before, None));
        }
        let (mut all, error) = self.load_each(&again, before.stamp).await?;
        let is_old = |known: &&Arc<Known>| !again.iter().any(|(name, _)| *name == known.name);
        all.queues = before.queues.iter().filter(is_old).chain(&*all.queues).cloned().collect();
        all.away.extend(left);
        Ok((self.remember(All { read_at: before.read_at, ..all }), error))
    }

    async fn load_all(&self, stamp: Option<i64>) -> Result<(All, Option<Error>)> {
        let cmd = redis::cmd("HGETALL").arg(self.global("queues")).to_owned();
        let mut fields = self.link.fields(&cmd).await?;
        let mut registered = Vec::new();
        while !fields.is_empty() {
            registered.push((fields.text()?, fields.int()? as u32));
        }
        let (all, error) = self.load_each(&registered, stamp.unwrap_or_default()).await?;
        // Without a stamp no queue has been defined yet.
        Ok((if stamp.is_some() { self.remember(all) } else { all }, error))
    }

    fn remember(&self, all: All) -> All {
        let mut queues = all.queues.to_vec();
        queues.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let all = All { queues: queues.into(), ..all };
        self.memo.put_all(all.clone());
        all
    }

    /// Reads these queues, and says why some are missing, if so.
    async fn load_each(
        &self,
        registered: &[(Arc<str>, u32)],
        stamp: i64,
    ) -> Result<(All, Option<Error>)> {
        let read_at = Instant::now();
        let loads = registered.iter().map(|(name, number)| self.load(name, *number));
        let (mut queues, mut away, mut missing) = (Vec::new(), Vec::new(), None);
        for (one, loaded) in registered.iter().zip(join_all(loads).await) {
            // A name may be registered before its queue is defined.
            queues.extend(match loaded {
                Err(error) if self.spares_others(&error) => {
                    let last = self.memo.get(&one.0).filter(|known| known.number == one.1);
                    missing = missing.or(last.is_none().then_some(error));
                    away.push(one.clone());
                    last
                }
                loaded => loaded?,
            });
        }
        Ok((All { stamp, read_at, queues: queues.into(), away }, missing))
    }

    /// Tells all processes that a queue was defined, changed or deleted.
    pub(super) async fn changed(&self) -> Result<()> {
        self.link.run(&GLOBAL_CHANGED, &self.global(""), &Args::at(None)).await.map(drop)
    }

    /// The queue with the number in an id.
    pub(super) async fn numbered(&self, number: u32) -> Result<Option<Arc<Known>>> {
        if let Some(known) = self.memo.by_number(number) {
            return Ok(Some(known));
        }
        let (all, missing) = self.known_queues().await?;
        match all.queues.iter().find(|known| known.number == number) {
            Some(known) => Ok(Some(known.clone())),
            // It may be one of those that could not be read.
            None => missing.map_or(Ok(None), Err),
        }
    }

    async fn declare_as(&self, request: Declare, declared: Declared) -> Result<()> {
        let place = |i: usize| move |error: Error| error.in_field(format!("queues[{i}]"));
        for (i, queue) in request.queues.iter().enumerate() {
            queue.validate().map_err(place(i))?;
        }
        let first = Definition::of_first(declared, request.now);
        let mut asked = Vec::new();
        for (i, queue) in request.queues.iter().enumerate() {
            match self.reload(&queue.name).await? {
                Some(known) if known.declared && declared == Declared::IfNew => continue,
                Some(known) => self.may_declare(&known, queue, first).await.map_err(place(i))?,
                None if queue.is_shared_out() && queue.shards > 1 => {
                    return Err(place(i)(spread(queue)));
                }
                None => {}
            }
            asked.push((i, queue));
        }
        for (i, queue) in asked {
            self.define(queue, first).await.map_err(place(i))?;
        }
        self.bell.ring(&Wake::of(request.queues.iter().map(|queue| &*queue.name)));
        Ok(())
    }

    async fn may_declare(&self, known: &Known, queue: &Queue, first: Definition) -> Result<()> {
        if (known.queue.mode, known.queue.merge) != (queue.mode, queue.merge) {
            for shard in known.shards().skip(1) {
                let cmd = redis::cmd("HGET").arg(self.key(shard, "meta")).arg("lanes").to_owned();
                let lanes = single(self.link.query(&cmd).await?)?.opt_int()?;
                if lanes.unwrap_or(0) > 0 {
                    let (mode, merge, declared) =
                        (known.queue.mode, known.queue.merge, known.declared);
                    let found = Found { mode, merge, declared, holds_jobs: true, runs: true };
                    return Err(found.conflict(queue));
                }
            }
        }
        let queue = Queue { shards: known.queue.shards, ..queue.clone() };
        let check = Definition { dry: true, ..first };
        match self.define_in(Known::home(known.number), &queue, check).await? {
            Answer::Refused(error) => Err(error),
            Answer::Closing => Err(is_closing(&queue.name)),
            _ => Ok(()),
        }
    }

    /// Defines a declared queue.
    async fn define(&self, queue: &Queue, first: Definition) -> Result<()> {
        let mut refused = changing(&queue.name);
        for _ in 0..ATTEMPTS {
            let home = Known::home(self.number_for(&queue.name).await?);
            let known = self.reload(&queue.name).await?;
            let before = known.as_ref().map(|known| known.version);
            // An existing queue keeps its number of shards.
            let shards = known.map_or(queue.shards, |known| known.queue.shards);
            let queue = Queue { shards, ..queue.clone() };
            match self.define_in(home, &queue, first).await? {
                Answer::Shards => continue,
                Answer::Closing => return Err(is_closing(&queue.name)),
                Answer::Other(other) => {
                    refused = lost(&queue.name, &other);
                    continue;
                }
                Answer::Refused(error) => return Err(error),
                Answer::Ok | Answer::Exists => {}
            }
            if let Some(known) = self.reload(&queue.name).await? {
                if before != Some(known.version) {
                    self.changed().await?;
                }
                self.adopt(&known).await?;
            }
            return Ok(());
        }
        Err(refused)
    }

    /// Creates a queue that is not declared. If it exists by then, it does not change.
    pub(super) async fn create(&self, queue: &Queue) -> Result<Arc<Known>> {
        let mut refused = changing(&queue.name);
        for _ in 0..ATTEMPTS {
            let home = Known::home(self.number_for(&queue.name).await?);
            let first = Definition::of_first(Declared::Not, None);
            match self.define_in(home, queue, first).await? {
                Answer::Other(other) => {
                    refused = lost(&queue.name, &other);
                    continue;
                }
                Answer::Closing => return Err(is_closing(&queue.name)),
                Answer::Refused(error) => return Err(error),
                Answer::Ok => self.changed().await?,
                Answer::Exists | Answer::Shards => {}
            }
            // `None`: a deletion removed the name from the register meanwhile.
            match self.reload(&queue.name).await? {
                Some(known) => return Ok(known),
                None => refused = changing(&queue.name),
            }
        }
        Err(refused)
    }

    /// Brings the other shards of a queue to the version of the first.
    pub(super) async fn adopt(&self, known: &Known) -> Result<()> {
        let adopt = async |shard| {
            let how = Definition {
                dry: false,
                adopt: Some(known.version),
                declared: if known.declared { Declared::Always } else { Declared::Not },
                paused: Some(known.paused),
                floor: known.layout.floor,
                now: None,
            };
            match self.define_in(shard, &known.queue, how).await? {
                Answer::Refused(error) => Err(error),
                Answer::Other(other) => Err(lost(&known.name, &other)),
                Answer::Ok | Answer::Exists | Answer::Closing | Answer::Shards => Ok(()),
            }
        };
        // A shard that fails must not keep the definition from the others.
        join_all(known.shards().skip(1).map(adopt)).await.into_iter().collect()
    }

    /// The same for a call that goes on with some of the shards: those of a server that is away adopt it later.
    pub(super) async fn adopt_in_reach(&self, known: &Known) -> Result<()> {
        match self.adopt(known).await {
            Err(error) if self.is_of_one_server(&error) => Ok(()),
            end => end,
        }
    }

    async fn number_for(&self, name: &str) -> Result<u32> {
        let mut args = Args::default();
        args.text(name).int(QUEUES_MAX);
        let number = self.link.run(&GLOBAL_REGISTER, &self.global(""), &args).await?;
        match single(number)?.int()? {
            0 => Err(too_many_queues()),
            number => Ok(number as u32),
        }
    }

    async fn define_in(&self, shard: Shard, queue: &Queue, how: Definition) -> Result<Answer> {
        let mut args = Args::default();
        args.flag(how.dry).name(how.adopt.map(|version| version.to_string()).as_deref());
        args.text(how.declared.as_text());
        args.name(how.paused.map(|paused| if paused { "1" } else { "0" }));
        settings(&mut args, shard.queue, queue)?;
        args.int(how.floor).flag(self.parks()).now(how.now);
        shares(&mut args, queue);
        let mut answer = self.link.call(&DECLARE, &self.key(shard, ""), &args).await?;
        let refused = match &*answer.text()? {
            "OK" => return Ok(Answer::Ok),
            "EXISTS" => return Ok(Answer::Exists),
            "CLOSING" => return Ok(Answer::Closing),
            "SHARDS" => return Ok(Answer::Shards),
            "OTHER" => return Ok(Answer::Other(answer.text()?)),
            "SPREAD" => spread(queue),
            "BIG" => too_big(queue, answer.int()?),
            _ => {
                let mode = Mode::from_name(&answer.text()?).ok_or_else(corrupt)?;
                let merge = merge_named(&answer.text()?)?;
                let (declared, runs) = (answer.flag()?, answer.flag()?);
                Found { mode, merge, declared, holds_jobs: true, runs }.conflict(queue)
            }
        };
        Ok(Answer::Refused(refused))
    }

    /// Pauses or closes a queue in its first shard. False if it has another version than `known`.
    pub(super) async fn set_flags(
        &self,
        known: &Known,
        paused: bool,
        closing: bool,
    ) -> Result<bool> {
        if (known.paused, known.closing) == (paused, closing) {
            return Ok(true);
        }
        let mut fields = Args::default();
        fields.text("paused").flag(paused).text("closing").flag(closing);
        self.change(known, 0, &fields).await
    }

    /// Writes fields of `meta` in the first shard, and raises its tokens to `floor`. False if it has another version than `known`.
    pub(super) async fn change(&self, known: &Known, floor: i64, fields: &Args) -> Result<bool> {
        let mut args = Args::default();
        args.int(known.version).int(floor).0.extend(fields.0.iter().cloned());
        let home = self.key(Known::home(known.number), "");
        let is_done = single(self.link.run(&CHANGE, &home, &args).await?)?.flag()?;
        if is_done {
            self.changed().await?;
        }
        Ok(is_done)
    }
}

/// Whether a definition is a declaration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declared {
    /// It changes no queue that exists.
    Not,
    Always,
    /// It changes no queue that was declared before.
    IfNew,
}

impl Declared {
    fn as_text(self) -> &'static str {
        match self {
            Self::Not => "0",
            Self::Always => "1",
            Self::IfNew => "2",
        }
    }
}

/// How to apply a definition.
#[derive(Clone, Copy)]
struct Definition {
    /// Only checks.
    dry: bool,
    /// The version of the first shard, for another shard to adopt.
    adopt: Option<i64>,
    declared: Declared,
    paused: Option<bool>,
    /// Lower limit for the shard's tokens.
    floor: i64,
    /// The time at which jobs are pushed again; the server's clock if unset.
    now: Option<Timestamp>,
}

impl Definition {
    /// For the first shard, which decides.
    fn of_first(declared: Declared, now: Option<Timestamp>) -> Self {
        Self { dry: false, adopt: None, declared, paused: None, floor: 0, now }
    }
}

fn settings(args: &mut Args, number: u32, queue: &Queue) -> Result<()> {
    let text = json(queue)?;
    args.int(number).int(queue.shards).text(queue.mode.as_str()).text(queue.merge.as_str());
    args.text(&due_text(queue));
    args.int(queue.take).micros(queue.retention()).micros(queue.idempotency_ttl);
    args.micros(queue.retain_dead)
        .int(queue.retain_dead_max.min(micros(std::time::Duration::MAX) as u64));
    args.text(&text);
    Ok(())
}

/// The field `due` of a queue in the store: a window says all in one field, and where groups or limits are it ends with
/// `shared`, so that scripts of other queues read no more.
fn due_text(queue: &Queue) -> String {
    let shared = if queue.is_shared_out() { " shared" } else { "" };
    due_rule(queue) + shared
}

fn due_rule(queue: &Queue) -> String {
    match (&queue.window, queue.due) {
        (Some(window), _) => {
            let (jobs, bytes) = (window.max_jobs.unwrap_or(0), window.max_bytes.unwrap_or(0));
            let (quiet, step) = (micros(window.quiet), micros(window.step()));
            format!("window {quiet} {step} {} {jobs} {bytes}", micros(window.max_wait))
        }
        (None, DueRule::First) => "first".to_owned(),
        (None, DueRule::Earliest) => "earliest".to_owned(),
    }
}

/// The limit of the queue, what each group gets, and the rates; then the groups with settings of their own, and these.
fn shares(args: &mut Args, queue: &Queue) {
    if !queue.is_shared_out() {
        return;
    }
    let Shares { each, named } = Shares::of_queue(queue);
    let whole = Share { limit: queue.limit, ..Share::default() };
    args.text(&share_text(&whole)).text(&share_text(&each)).text(&queue.rates());
    for (group, share) in named {
        args.bytes(&group.to_be_bytes()[GROUP_AT..]).text(&share_text(&share));
    }
}

fn share_text(share: &Share) -> String {
    let limit = &share.limit;
    let (weight, running) = (share.weight.unwrap_or(1), limit.running.unwrap_or(0));
    format!("{weight} {running} {} {}", limit.rate.map_or(0, Rate::interval), limit.burst())
}

fn merge_named(name: &str) -> Result<Merge> {
    let all = [Merge::Min, Merge::Max, Merge::None];
    all.into_iter().find(|merge| merge.as_str() == name).ok_or_else(corrupt)
}

pub(super) fn changing(queue: &str) -> Error {
    let message =
        format!("other clients are changing the definition of queue {queue:?}: try again");
    Error::new(ErrorKind::Unavailable, message)
}

/// A script sees one shard.
fn spread(queue: &Queue) -> Error {
    let field = if queue.groups.is_some() { "groups" } else { "limit" };
    let message = format!(
        "needs a queue with one shard, and the jobs of {:?} are in several: change their number with `seriatim queues reshard`, \
         and wait until none are left where earlier numbers put them",
        queue.name
    );
    Error::invalid(field, message)
}

fn too_big(queue: &Queue, jobs: i64) -> Error {
    let message = format!(
        "queue {:?} was created by a push and has {jobs} jobs, too many to convert in one step: drain it first",
        queue.name
    );
    Error::new(ErrorKind::Conflict, message).in_field("mode")
}

fn lost(name: &str, other: &str) -> Error {
    let message = format!(
        "the register of queues gives {name:?} the number of {other:?}: a part of the database was lost"
    );
    Error::new(ErrorKind::Corrupt, message)
}
