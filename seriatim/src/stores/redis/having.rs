//! Which shards have something to do. Upkeep of all queues comes every few seconds, and most have nothing that it is for: one
//! script looks at many of them.

use std::collections::HashSet;

use futures_util::future::try_join_all;

use super::Redis;
use super::args::Args;
use super::link::HAVING;
use super::memo::Known;
use super::reply::Shard;
use crate::model::error::Result;

/// Most shards that one script looks at: a running script blocks all others.
const LOOKED_AT_MAX: usize = 500;

/// What a kind of upkeep is for.
pub(super) struct Needs {
    /// Any of these keys of a shard.
    pub(super) keys: &'static [&'static str],
    /// That `meta` lacks this field.
    pub(super) lacks: Option<&'static str>,
}

impl Redis {
    /// The shards of these queues that need upkeep. In a cluster all of them: a script may look at one shard there, so to look is
    /// as much work as the upkeep.
    pub(super) async fn needing<'k>(
        &self,
        queues: impl Iterator<Item = &'k Known>,
        needs: &Needs,
    ) -> Result<HashSet<Shard>> {
        let shards: Vec<Shard> = queues.flat_map(Known::shards).collect();
        if self.link.is_cluster() {
            return Ok(shards.into_iter().collect());
        }
        let parts = shards.chunks(LOOKED_AT_MAX);
        let looks = try_join_all(parts.map(|part| self.look(part, needs))).await?;
        let found = shards.into_iter().zip(looks.into_iter().flatten());
        Ok(found.filter_map(|(shard, needs)| needs.then_some(shard)).collect())
    }

    async fn look(&self, shards: &[Shard], needs: &Needs) -> Result<Vec<bool>> {
        let Some((first, others)) = shards.split_first() else { return Ok(Vec::new()) };
        let mut args = Args::default();
        args.name(needs.lacks).int(needs.keys.len() as i64);
        needs.keys.iter().for_each(|key| {
            args.text(key);
        });
        others.iter().for_each(|shard| {
            args.text(&self.key(*shard, ""));
        });
        let mut answer = self.link.call(&HAVING, &self.key(*first, ""), &args).await?;
        shards.iter().map(|_| answer.flag()).collect()
    }
}
