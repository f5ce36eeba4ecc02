//! Deleting a queue.
//!
//! The order makes it safe to interrupt a deletion or to run two concurrently: the queue is closed in its first shard
//! and, through the version, in all; then nothing is added any more, and the shards are emptied. The name is removed
//! from the register before the definition, and only after that is the number free for another queue.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::Redis;
use super::args::Args;
use super::link::WIPE;
use super::memo::Known;
use super::queues::{ATTEMPTS, changing};
use super::reply::{Shard, single};
use crate::contract::errors::is_claimed;
use crate::model::Result;

/// Answers of `wipe.lua`: the queue has another version than the caller knows, and a lane is claimed.
const OTHER: i64 = -1;
const CLAIMED: i64 = -2;

impl Redis {
    /// Closes a queue without claimed lanes to new jobs.
    pub(super) async fn close_queue(&self, name: &str) -> Result<Arc<Known>> {
        for _ in 0..ATTEMPTS {
            let known = self.current(name).await?;
            self.check_unclaimed(&known).await?;
            if !known.closing && !self.set_flags(&known, true, true).await? {
                continue;
            }
            let closed = self.current(name).await?;
            self.adopt(&closed).await?;
            // A shard that had not adopted the version may have granted a claim meanwhile.
            if let Err(claimed) = self.check_unclaimed(&closed).await {
                if !known.closing {
                    self.open_again(&closed, known.paused).await?;
                }
                return Err(claimed);
            }
            return Ok(closed);
        }
        Err(changing(name))
    }

    /// Reopens a queue that this call has closed. Nodes of earlier builds may change its shards meanwhile, so it tries
    /// again with the new version.
    async fn open_again(&self, closed: &Known, paused: bool) -> Result<()> {
        let name = &*closed.name;
        for _ in 0..ATTEMPTS {
            let Some(now) = self.reload(name).await? else { return Ok(()) };
            // Another call may have deleted it, and a new one may have its name.
            if now.number != closed.number || !now.closing {
                return Ok(());
            }
            if self.set_flags(&now, paused, false).await? {
                let Some(open) = self.reload(name).await? else { return Ok(()) };
                return self.adopt(&open).await;
            }
        }
        Err(changing(name))
    }

    async fn check_unclaimed(&self, known: &Known) -> Result<()> {
        let claimed = try_join_all(known.shards().map(|shard| self.claimed_in(shard))).await?;
        match claimed.iter().sum::<i64>() {
            0 => Ok(()),
            lanes => Err(is_claimed(&known.name, lanes as u64)),
        }
    }

    async fn claimed_in(&self, shard: Shard) -> Result<i64> {
        let cmd = redis::cmd("HGET").arg(self.key(shard, "meta")).arg("running").to_owned();
        Ok(single(self.link.query(&cmd).await?)?.opt_int()?.unwrap_or(0))
    }

    /// Removes the contents of a shard; with `whole`, its settings too. Returns the number of jobs.
    pub(super) async fn wipe(&self, known: &Known, shard: Shard, whole: bool) -> Result<u64> {
        let mut args = Args::default();
        args.int(known.version).flag(whole);
        match single(self.link.run(&WIPE, &self.key(shard, ""), &args).await?)?.int()? {
            OTHER => Err(changing(&known.name)),
            CLAIMED => Err(is_claimed(&known.name, 1)),
            jobs => Ok(jobs as u64),
        }
    }
}
