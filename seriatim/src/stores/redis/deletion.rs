//! Deleting a whole queue.
//!
//! The order is what makes it safe to be broken off, and to be done by two at once: the queue is closed in its first
//! shard and so, by the version, in all; then nothing comes in any more, and the shards are emptied. Its name
//! leaves the register before its definition goes, and its number is given to another queue only after that.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::Redis;
use super::args::Args;
use super::link::WIPE;
use super::queues::{ATTEMPTS, Known, changing};
use super::reply::{Shard, single};
use crate::contract::errors::is_claimed;
use crate::model::error::Result;

/// What `wipe.lua` answers when the queue is not as it was known, and when a lane is claimed.
const OTHER: i64 = -1;
const CLAIMED: i64 = -2;

impl Redis {
    /// Lets nothing more into a queue of which no lane is claimed.
    pub(super) async fn close_queue(&self, name: &str) -> Result<Arc<Known>> {
        for _ in 0..ATTEMPTS {
            let known = self.current(name).await?;
            self.check_unclaimed(&known).await?;
            if !known.closing && !self.set_flags(&known, true, true).await? {
                continue;
            }
            let closed = self.current(name).await?;
            self.adopt(&closed).await?;
            // A claim may have come between, to a shard that had not heard of it.
            if let Err(claimed) = self.check_unclaimed(&closed).await {
                if !known.closing && self.set_flags(&closed, known.paused, false).await? {
                    self.adopt(&*self.current(name).await?).await?;
                }
                return Err(claimed);
            }
            return Ok(closed);
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

    /// Removes what a shard holds; with `whole`, its settings too. How many jobs.
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
