//! Payloads that are stored apart from their jobs: long ones, so that no script touches them that hands jobs over
//! (`compact.lua`). Who has claimed such jobs reads them with one command.
//!
//! Nothing changes or removes the payload of a claimed job but the settle with the claim's token, or the deletion of its queue. So
//! a claim whose payloads are gone is no longer the caller's, or the server has lost data: an error, never a job without payload.

use std::collections::HashMap;

use super::Redis;
use super::reply::{Fields, Shard};
use super::turns::Handed;
use crate::model::{Error, ErrorKind, JobId, Payload, Result, Turn};

impl Redis {
    /// Completes turns with the payloads that are apart.
    pub(super) async fn with_bodies(&self, shard: Shard, mut handed: Handed) -> Result<Vec<Turn>> {
        if handed.apart.is_empty() {
            return Ok(handed.turns);
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.key(shard, "bodies")).arg(&handed.apart);
        let mut found: Fields = self.link.fields(&cmd).await?;
        let mut bodies = HashMap::with_capacity(handed.apart.len());
        for number in handed.apart {
            bodies.insert(number, found.opt_bytes()?);
        }
        for turn in &mut handed.turns {
            for job in &mut turn.jobs {
                let Some(body) = bodies.remove(&job.id.seq()) else { continue };
                let body = body.ok_or_else(|| missing(job.id, &turn.queue))?;
                job.payload = Payload::from_bytes(body);
            }
        }
        Ok(handed.turns)
    }
}

fn missing(job: JobId, queue: &str) -> Error {
    let message = format!(
        "the payload of job {job} in queue {queue} is not in the store: its claim has ended meanwhile, or the server has lost data"
    );
    Error::new(ErrorKind::Corrupt, message)
}
