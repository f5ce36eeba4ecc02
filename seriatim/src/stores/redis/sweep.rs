//! Removing what has outlived its time.

use std::time::Duration;

use super::Redis;
use super::args::Args;
use super::link::{GLOBAL_SWEEP, SWEEP};
use crate::contract::{Sweep, Swept};
use crate::model::error::Result;
use crate::model::limits::ACTION_ROWS_MAX;

/// How long a dead node is shown.
const DEAD_NODE_SHOWN: Duration = Duration::from_secs(86_400);

impl Redis {
    pub(super) async fn do_sweep(&self, request: Sweep) -> Result<Swept> {
        let rows_max = request.rows_max.min(ACTION_ROWS_MAX);
        let (mut swept, mut names) = (Swept::default(), 0);
        for known in self.all_queues().await? {
            if !known.layout.older.is_empty() {
                self.adopt(&known).await?;
                self.retire(known.clone()).await?;
            }
            for shard in known.shards() {
                let mut args = Args::at(request.now);
                for taken in
                    [swept.expired.len(), swept.completed as usize, swept.dead.len(), names]
                {
                    args.int(rows_max.saturating_sub(taken) as i64);
                }
                let mut answer = self.link.call(&SWEEP, &self.key(shard, ""), &args).await?;
                swept.expired.extend(answer.ids(shard)?);
                swept.completed += answer.int()? as u64;
                swept.dead.extend(answer.ids(shard)?);
                names += answer.int()? as usize;
                swept.more |= answer.flag()?;
            }
        }
        let mut args = Args::at(request.now);
        args.micros(DEAD_NODE_SHOWN);
        self.link.run(&GLOBAL_SWEEP, &self.global(""), &args).await?;
        Ok(swept)
    }
}
