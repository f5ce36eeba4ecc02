//! Payloads that are stored apart from their jobs: long ones, so that no script touches them that hands jobs over
//! (`compact.lua`). Who has claimed such jobs reads them with one command.
//!
//! Nothing changes or removes the payload of a claimed job but the settle with the claim's token, or the deletion of its queue. So
//! a claim whose payloads are gone is no longer the caller's, or the server has lost data: an error, never a job without payload.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Redis;
use super::reply::{Fields, Shard};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::payload::Payload;
use crate::model::turn::Turn;

/// Payloads of at least this length are apart. Below it, what the command and the second field cost is not regained.
pub(super) const APART_BYTES_MIN: usize = 1_024;

/// What the options of a job begin with in its record if its payload is apart: its length follows, and then `,` or `}`.
const MARK: &str = "{\"batch\":";

/// A job's options in its record, with the length of a payload that is apart.
pub(super) fn marked(options: &str, payload_bytes: usize) -> String {
    match options.strip_prefix('{') {
        Some(fields) => format!("{MARK}{payload_bytes},{fields}"),
        None => format!("{MARK}{payload_bytes}}}"),
    }
}

/// The options of a record without that mark, and whether they had it.
pub(super) fn unmarked(options: &[u8]) -> (Cow<'_, [u8]>, bool) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let marked =
        options.strip_prefix(MARK.as_bytes()).filter(|rest| rest.first().is_some_and(is_digit));
    let Some(rest) = marked else { return (options.into(), false) };
    let end = rest.iter().position(|byte| !is_digit(byte)).unwrap_or(rest.len());
    match &rest[end..] {
        [b',', fields @ ..] => ([b"{", fields].concat().into(), true),
        _ => (Cow::default(), true),
    }
}

/// Turns as a script answers them.
#[derive(Default)]
pub(super) struct Handed {
    pub(super) turns: Vec<Turn>,
    /// The numbers of the jobs whose payloads are still to be read.
    pub(super) apart: Vec<u64>,
}

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
            let body = found.opt_bytes()?.ok_or_else(|| missing(shard, number))?;
            bodies.insert(number, Payload::from_bytes(body));
        }
        for job in handed.turns.iter_mut().flat_map(|turn| &mut turn.jobs) {
            if let Some(body) = bodies.remove(&job.id.seq()) {
                job.payload = body;
            }
        }
        Ok(handed.turns)
    }
}

fn missing(shard: Shard, number: u64) -> Error {
    let message = format!(
        "the payload of job {number} in shard {} of queue {} is not in the store: its claim has ended meanwhile, or the server has \
         lost data",
        shard.shard, shard.queue
    );
    Error::new(ErrorKind::Corrupt, message)
}
