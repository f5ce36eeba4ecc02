//! Changing the number of shards of a queue in use: `layout.rs` explains why that is safe.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::Redis;
use super::args::Args;
use super::layout::{Layout, OLDER_MAX};
use super::link::GLOBAL_RUN;
use super::memo::Known;
use super::queues::{ATTEMPTS, changing};
use super::reply::{Fields, Shard, single};
use crate::contract::errors::{is_closing, no_queue};
use crate::model::{Error, ErrorKind, Queue, Result};
use crate::stores::json::json;

/// Most entries of a hash per scan step.
const SCAN_COUNT: usize = 1_000;

/// Entries that are still in shards of an older number.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    pub(super) lanes: u64,
    pub(super) idempotency_keys: u64,
}

impl Left {
    pub(super) fn is_nothing(self) -> bool {
        self.lanes == 0 && self.idempotency_keys == 0
    }
}

impl Redis {
    /// The queue with this number of shards. After this the change is permanent, even if this process ends.
    pub(super) async fn with_shards(&self, queue: &str, shards: u16) -> Result<Arc<Known>> {
        for _ in 0..ATTEMPTS {
            let mut known = self.reload(queue).await?.ok_or_else(|| no_queue(queue))?;
            if known.closing {
                return Err(is_closing(queue));
            }
            if known.layout.with(shards).is_some() && !known.layout.older.is_empty() {
                // The older shards may already be empty.
                self.adopt(&known).await?;
                known = self.retire(known).await?;
            }
            let Some(layout) = known.layout.with(shards) else { return Ok(known) };
            if known.queue.is_shared_out() {
                return Err(shared_out(&known));
            }
            if layout.older.len() > OLDER_MAX {
                return Err(too_many(&known));
            }
            if let Some(known) = self.lay_out(&known, &layout).await? {
                return Ok(known);
            }
        }
        Err(changing(queue))
    }

    /// Forgets the older numbers of a queue if nothing is left in their shards.
    pub(super) async fn retire(&self, known: Arc<Known>) -> Result<Arc<Known>> {
        match self.left_behind(&known, true).await?.is_nothing() {
            true => self.forget_older(known).await,
            false => Ok(known),
        }
    }

    /// Forgets the older numbers: nothing is left in their shards, and nothing can be added there.
    pub(super) async fn forget_older(&self, known: Arc<Known>) -> Result<Arc<Known>> {
        if known.layout.older.is_empty() {
            return Ok(known);
        }
        let tokens = try_join_all(known.shards().map(|shard| self.last_token(shard))).await?;
        let floor = tokens.into_iter().chain([known.layout.floor]).max().unwrap_or(0);
        let layout = Layout { older: Vec::new(), floor, ..known.layout.clone() };
        let Some(known) = self.lay_out(&known, &layout).await? else { return Ok(known) };
        self.adopt(&known).await?;
        Ok(known)
    }

    /// Writes a layout. `None` if the queue has another version than `known`, or is being deleted: a refused deletion
    /// reopens the version that it closed.
    async fn lay_out(&self, known: &Known, layout: &Layout) -> Result<Option<Arc<Known>>> {
        if known.closing {
            return Ok(None);
        }
        let queue = Queue { shards: layout.shards, ..known.queue.clone() };
        let definition = json(&queue)?;
        let mut fields = Args::default();
        fields.text("shards").int(layout.shards).text("older").text(&layout.older_text());
        fields.text("span").int(layout.span).text("floor").int(layout.floor);
        fields.text("definition").text(&definition);
        match self.change(known, layout.floor, &fields).await? {
            true => self.reload(&known.name).await,
            false => Ok(None),
        }
    }

    async fn last_token(&self, shard: Shard) -> Result<i64> {
        let cmd = redis::cmd("HGET").arg(self.key(shard, "meta")).arg("token").to_owned();
        Ok(single(self.link.query(&cmd).await?)?.opt_int()?.unwrap_or(0))
    }

    /// Counts entries of the queue outside their present shard. A shard that has adopted the present version gets no
    /// more of them, and a scan sees every entry that exists for its whole duration: so a count of zero is final. With
    /// `any` it stops at the first entry.
    pub(super) async fn left_behind(&self, known: &Known, any: bool) -> Result<Left> {
        let mut left = Left::default();
        if known.layout.older.is_empty() {
            return Ok(left);
        }
        let keyed = known.queue.mode.is_keyed();
        for shard in known.open_shards() {
            let strange = |name: Option<&str>| {
                name.is_some_and(|name| known.layout.home(name) != shard.shard)
            };
            let of_lane = |field: &str| strange(Some(field));
            left.lanes += if shard.shard >= known.layout.shards {
                // Nothing is pushed here any more. Some lanes may have no key, in a keyed queue those from before.
                let cmd = redis::cmd("HLEN").arg(self.key(shard, "lanes")).to_owned();
                single(self.link.query(&cmd).await?)?.int()? as u64
            } else {
                self.count_fields(shard, "keys", any, of_lane).await?
            };
            let of_idem = |field: &str| match field.split_once('\0') {
                Some((key, _)) if keyed => strange(Some(key)),
                other => strange(other.map(|(_, idempotency_key)| idempotency_key)),
            };
            if any && !left.is_nothing() {
                return Ok(left);
            }
            left.idempotency_keys += self.count_fields(shard, "idem", any, of_idem).await?;
            if any && !left.is_nothing() {
                return Ok(left);
            }
        }
        Ok(left)
    }

    /// Counts the fields of a shard's hash that match. A scan cursor is invalid on another server, and on the same one
    /// after a restart: then the scan starts again.
    async fn count_fields(
        &self,
        shard: Shard,
        hash: &str,
        any: bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            let run = self.run_of(shard).await?;
            let count = self.scan_fields(shard, hash, any, &wanted).await?;
            if run == self.run_of(shard).await? {
                return Ok(count);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the server of a shard keeps changing: try again"))
    }

    /// The run id of the server with a shard.
    async fn run_of(&self, shard: Shard) -> Result<String> {
        let answer = self.link.run(&GLOBAL_RUN, &self.key(shard, ""), &Args::default()).await?;
        Ok(single(answer)?.text()?.to_string())
    }

    /// Scans in small steps. A field that a scan returns twice counts twice: the number is only informative.
    async fn scan_fields(
        &self,
        shard: Shard,
        hash: &str,
        any: bool,
        wanted: &impl Fn(&str) -> bool,
    ) -> Result<u64> {
        let (mut cursor, mut count) = ("0".to_owned(), 0);
        loop {
            let mut cmd = redis::cmd("HSCAN");
            cmd.arg(self.key(shard, hash)).arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
            let mut answer = self.link.fields(&cmd).await?;
            cursor = answer.text()?.to_string();
            let mut entries: Fields = answer.list()?;
            while !entries.is_empty() {
                let field = entries.bytes()?;
                entries.value()?;
                count += u64::from(std::str::from_utf8(&field).is_ok_and(wanted));
            }
            if cursor == "0" || (any && count > 0) {
                return Ok(count);
            }
        }
    }
}

fn shared_out(known: &Known) -> Error {
    let message = format!("queue {:?} has groups or limits, and these need one shard", known.name);
    Error::new(ErrorKind::Conflict, message).in_field("shards")
}

fn too_many(known: &Known) -> Error {
    let older = known.layout.older_text();
    let message = format!(
        "jobs of queue {:?} still wait where its earlier numbers of shards ({older}) put them, and {OLDER_MAX} \
         such numbers are the most: wait until some are done, and repeat",
        known.name
    );
    Error::new(ErrorKind::Conflict, message).in_field("shards")
}
