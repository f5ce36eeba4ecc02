//! Payloads that are stored apart from their jobs: long ones, so that no script touches them that hands jobs over
//! (`compact.lua`). Who has claimed such jobs reads them with one command.
//!
//! Nothing changes or removes the payload of a claimed job but the settle with the claim's token, or the deletion of its queue. So
//! if the payload of a claimed job is gone, the claim is no longer the caller's, or the server has lost data. A claim then
//! buries the job, which the token prevents in the first case: nobody can ever run it, and its lane must go on. A job is never
//! handed over without its payload.

use std::collections::HashMap;

use super::Redis;
use super::reply::{Fields, Shard};
use super::settle::Part;
use super::turns::Handed;
use crate::contract::Settle;
use crate::model::{
    Error, ErrorKind, JobId, Outcome, Payload, Queue, Result, Settlement, Timestamp, Turn, Verdict,
    plan,
};

/// What is kept with a job that is buried for it.
const LOST: &str = "its payload is not in the store any more: the server has lost data";

impl Redis {
    /// Completes turns with the payloads that are apart.
    pub(super) async fn with_bodies(&self, shard: Shard, handed: Handed) -> Result<Vec<Turn>> {
        let (turns, lost) = self.bodies_of(shard, handed).await?;
        match lost.first() {
            Some((job, place)) => Err(missing(*job, &turns[*place].queue)),
            None => Ok(turns),
        }
    }

    /// The same for turns that the caller has just claimed. Jobs whose payload is lost go to the morgue, and what else their
    /// turns have goes back.
    pub(super) async fn claimed_with_bodies(
        &self,
        (shard, queue): (Shard, &Queue),
        handed: Handed,
        now: Option<Timestamp>,
    ) -> Result<Vec<Turn>> {
        let (turns, lost) = self.bodies_of(shard, handed).await?;
        if lost.is_empty() {
            return Ok(turns);
        }
        let (mut whole, mut ends) = (Vec::new(), Vec::new());
        for (place, turn) in turns.into_iter().enumerate() {
            let of_turn = lost.iter().filter(|(_, of)| *of == place).map(|(job, _)| *job);
            let gone: Vec<JobId> = of_turn.collect();
            match gone.is_empty() {
                true => whole.push(turn),
                false => ends.push(without(&turn, queue, &gone)),
            }
        }
        let settle = Settle { now, ..Settle::now(ends) };
        let mut part = Part::of((0..settle.turns.len()).collect(), &settle.turns);
        // A settle may claim, and comes here again.
        Box::pin(self.settle_in(shard, &mut part, &settle)).await?;
        Ok(whole)
    }

    /// The turns, and the jobs whose payloads are not there, with the places of their turns.
    async fn bodies_of(
        &self,
        shard: Shard,
        mut handed: Handed,
    ) -> Result<(Vec<Turn>, Vec<(JobId, usize)>)> {
        let mut lost = Vec::new();
        if handed.apart.is_empty() {
            return Ok((handed.turns, lost));
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.key(shard, "bodies")).arg(&handed.apart);
        let mut found: Fields = self.link.fields(&cmd).await?;
        let mut bodies = HashMap::with_capacity(handed.apart.len());
        for number in handed.apart {
            bodies.insert(number, found.opt_bytes()?);
        }
        for (place, turn) in handed.turns.iter_mut().enumerate() {
            for job in &mut turn.jobs {
                match bodies.remove(&job.id.seq()) {
                    Some(Some(body)) => job.payload = Payload::from_bytes(body),
                    Some(None) => lost.push((job.id, place)),
                    None => {}
                }
            }
        }
        Ok((handed.turns, lost))
    }
}

/// How a turn ends of whose jobs some have lost their payloads.
fn without(turn: &Turn, queue: &Queue, gone: &[JobId]) -> Settlement {
    for job in gone {
        tracing::error!(queue = &*turn.queue, %job, lane = %turn.lane, "a job goes to the morgue: {LOST}");
    }
    let undecodable = gone.iter().map(|job| (*job, LOST.into())).collect();
    let verdict = Verdict { undecodable, ..Outcome::Release.into() };
    plan(turn, queue, &verdict, &|_| std::time::Duration::ZERO)
}

fn missing(job: JobId, queue: &str) -> Error {
    let message = format!(
        "the payload of job {job} in queue {queue} is not in the store: its claim has ended meanwhile, or the server has lost data"
    );
    Error::new(ErrorKind::Corrupt, message)
}
