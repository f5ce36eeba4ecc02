//! Which shards have something to do. Upkeep of all queues comes every few seconds, and most have nothing that it is for: one
//! script looks at many of them.

use std::collections::HashSet;

use super::Redis;
use super::args::Args;
use super::link::HAVING;
use super::many::Question;
use super::memo::Known;
use super::reply::{Fields, Shard};
use crate::model::error::Result;

/// Most shards that one script looks at.
const LOOKED_AT_MAX: usize = 500;

/// What a kind of upkeep is for.
pub(super) struct Needs {
    /// Any of these keys of a shard.
    pub(super) keys: &'static [&'static str],
    /// That `meta` lacks this field.
    pub(super) lacks: Option<&'static str>,
}

impl Redis {
    /// The shards of these queues that need upkeep. Of those of a server that is away it is not known: the upkeep itself finds out.
    pub(super) async fn needing<'k>(
        &self,
        queues: impl Iterator<Item = &'k Known>,
        needs: &Needs,
    ) -> Result<HashSet<Shard>> {
        let shards: Vec<Shard> = queues.flat_map(Known::shards).collect();
        let mut args = Args::default();
        args.name(needs.lacks).int(needs.keys.len() as i64);
        needs.keys.iter().for_each(|key| {
            args.text(key);
        });
        let question = Question { code: &HAVING, args, most: LOOKED_AT_MAX };
        let (needs, _) = self.ask(&question, shards.iter().copied(), Fields::flag).await?;
        let found = shards.into_iter().zip(needs);
        Ok(found.filter_map(|(shard, needs)| needs.unwrap_or(true).then_some(shard)).collect())
    }
}
