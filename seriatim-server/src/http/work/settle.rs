//! Results of remote workers, planned as the engine plans those of its own handlers.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::limits::DELAY_MAX;
use seriatim::store::{Settle, Settled};
use seriatim::{
    Error, Timestamp,
    engine::TurnLog,
    store::{
        LaneId, NextRetry, Settlement, Store, Token, Turn, TurnJob, Verdict, check_result, plan,
    },
};
use tokio::time::Instant;

use super::super::input::{AtMost, BulkJson, Object};
use super::super::limits::NAMED_LANES_MAX;
use super::super::seen::Known;
use super::super::{Answer, App, Caller, Problem, Result, Shared};
use super::deaths::announce;
use super::repeats::check_once;
use super::reports::LOOKUPS_MAX;
use super::secret::{Named, refused};
use super::taken::drop_payloads;
use super::workers::{WORKER_PATTERN, check_name};
use crate::protocol::document::{self, SettleStatus, SettledTurn};
use crate::protocol::lane::SECRET_PATTERN;
use crate::protocol::outcome::{With, Word, miscounted};
use crate::protocol::schema::Foreign;
use crate::protocol::value::Length;

/// How long a request waits if transactions have locked the keys of all its results, and the pause between two looks.
const LOCKED_MAX: Duration = Duration::from_secs(5);
const LOCKED_PAUSE: Duration = Duration::from_millis(500);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Results")]
pub(super) struct Said {
    /// The name of the worker
    #[schemars(regex(pattern = WORKER_PATTERN))]
    worker: String,
    results: AtMost<Object<Ended>, NAMED_LANES_MAX>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Ended {
    #[schemars(with = "Foreign<LaneId>")]
    lane: LaneId,
    /// The fencing token of the claim
    #[schemars(with = "Foreign<Token>")]
    token: Token,
    /// The secret of the claim
    #[schemars(regex(pattern = SECRET_PATTERN))]
    secret: String,
    outcome: Word,
    /// Why, for outcomes other than `done` and `release`
    error: Option<String>,
    /// The wait before the next try, after `retry` and `snooze`. Default: the backoff; 30 s for `snooze`
    retry_in: Option<Length>,
    /// How many of the turn's first jobs are done; the outcome is that of the next one
    done: Option<usize>,
    /// With `done`: the result for callers that wait for the jobs of the turn, at most 64 KiB; kept with the finished jobs
    result: Option<Box<RawValue>>,
}

pub(super) async fn settle(
    app: Shared,
    caller: Caller,
    BulkJson(said, _share): BulkJson<Said>,
) -> Result<Answer<document::Settled>> {
    said.check()?;
    said.check_secrets(&app, &caller).await?;
    let numbers = said.results.0.iter().map(|Object(ended)| ended.lane.queue);
    let known = app.queues.seen.with(&*app.store, numbers).await?;
    // Before anything is settled: a failure behind that would be answered as if nothing was.
    let now = app.store.now().await?;
    let find = |Object(ended): &Object<Ended>| {
        let (store, lane, token) = (app.store.clone(), ended.lane, ended.token);
        async move { Ok::<_, Error>(store.turn(lane, token).await?.map(without_payloads)) }
    };
    let finds: Vec<_> = said.results.0.iter().map(find).collect();
    let found: Vec<Option<Turn>> = stream::iter(finds).buffered(LOOKUPS_MAX).try_collect().await?;
    said.check_results(&found)?;
    let settlements: Vec<Option<Settlement>> = said
        .results
        .0
        .iter()
        .zip(&found)
        .map(|(Object(ended), turn)| ended.settlement(turn.as_ref()?, &known))
        .collect();
    let ends =
        settlements.iter().zip(&found).filter_map(|(end, turn)| turn.as_ref().zip(end.as_ref()));
    let unannounced = announce(&app, &known, ends).await;
    let is_sent = |end: &&Settlement| !unannounced.contains(&end.lane);
    let turns: Vec<Settlement> = settlements.iter().flatten().filter(is_sent).cloned().collect();
    let some_are_stale = settlements.iter().any(Option::is_none);
    if turns.is_empty() && !unannounced.is_empty() && !some_are_stale {
        let why = "the store does not accept the seriatim.exhausted jobs of these results";
        return Err(Problem::unavailable(why));
    }
    let settled = settle_free(&*app.store, turns, some_are_stale).await?;
    let all_open = !some_are_stale && !settled.is_empty() && settled.iter().all(Settled::is_open);
    let mut answers = settled.into_iter();
    // One that has no turn was stale before it got to the store.
    let ends = settlements.iter().zip(&found).zip(&said.results.0);
    let statuses: Vec<SettleStatus> = ends
        .map(|((end, turn), Object(ended))| match turn.as_ref().zip(end.as_ref()) {
            Some((_, end)) if !is_sent(&end) => SettleStatus::Busy,
            Some((turn, end)) => match answers.next() {
                Some(settled) => app.answered(turn, end, &settled, ended.outcome, now),
                None => SettleStatus::Busy,
            },
            None => {
                app.settled(None);
                SettleStatus::Stale
            }
        })
        .collect();
    if all_open {
        let why = "a transaction keeps the keys of all results locked, or a part of the store does not answer";
        return Err(Problem::unavailable(why));
    }
    let answer = |(Object(ended), status): (&Object<Ended>, _)| {
        let (lane, token) = (ended.lane, ended.token);
        SettledTurn { lane, token, status }
    };
    let results = said.results.0.iter().zip(statuses).map(answer).collect();
    Ok(Answer::of(&document::Settled { results }))
}

impl App {
    /// Notes what the store did with the end of a turn.
    fn answered(
        &self,
        turn: &Turn,
        end: &Settlement,
        settled: &Settled,
        outcome: Word,
        now: Timestamp,
    ) -> SettleStatus {
        match settled {
            Settled::Busy => {
                self.locked.met(turn);
                return SettleStatus::Busy;
            }
            Settled::Unanswered => return SettleStatus::Busy,
            Settled::Ok { .. } | Settled::Stale => self.locked.over(turn.lane),
        }
        let Settled::Ok { cancelled, .. } = settled else {
            self.settled(None);
            return SettleStatus::Stale;
        };
        self.settled(Some(end.ending(turn.jobs.iter().map(|job| job.id), cancelled)));
        let took = now.since(turn.claimed_at);
        if TurnLog::tells_calls() {
            TurnLog::call_ended(std::slice::from_ref(turn), outcome.name(), took);
        }
        self.turn_log.settled(turn, end, cancelled);
        self.meter.handled(turn, outcome.name(), took);
        SettleStatus::Ok
    }
}

/// Settles turns, except those whose keys a transaction keeps locked: it may stay open for long. While there is nothing else to
/// answer, it waits for them, so that no worker asks without a pause.
async fn settle_free(
    store: &dyn Store,
    turns: Vec<Settlement>,
    answers: bool,
) -> Result<Vec<Settled>> {
    let end = Instant::now() + LOCKED_MAX;
    while !turns.is_empty() {
        let request = Settle { skip_locked: true, ..Settle::now(turns.clone()) };
        let settled = store.settle(request).await?;
        if answers || !settled.iter().all(Settled::is_open) || Instant::now() >= end {
            return Ok(settled);
        }
        tokio::time::sleep(LOCKED_PAUSE).await;
    }
    Ok(Vec::new())
}

/// A settlement is planned without payloads, of which ten thousand turns may have a lot.
fn without_payloads(mut turn: Turn) -> Turn {
    drop_payloads(&mut turn);
    turn
}

/// The jobs that had expired when the turn was claimed: they were never handed over.
fn expired(turn: &Turn) -> impl Iterator<Item = &TurnJob> {
    turn.jobs.iter().filter(|job| job.has_expired(turn.claimed_at))
}

impl Said {
    async fn check_secrets(&self, app: &App, caller: &Caller) -> Result<()> {
        let claims = self.results.0.iter().map(|Object(ended)| Named {
            lane: ended.lane,
            token: ended.token,
            secret: &ended.secret,
        });
        let (secrets, bearer) = (&app.workers.secrets, caller.bearer());
        match secrets.first_wrong(&*app.store, bearer.as_deref(), claims).await? {
            None => Ok(()),
            Some(i) => Err(refused(format!("results[{i}].secret"))),
        }
    }

    /// Refuses what does not fit its turn: a result that is too long, more done jobs than it has.
    fn check_results(&self, found: &[Option<Turn>]) -> Result<()> {
        for (i, (Object(ended), turn)) in self.results.0.iter().zip(found).enumerate() {
            let Some(turn) = turn else { continue };
            if let Some(result) = &ended.result {
                check_result(result.get(), turn.jobs.len())
                    .map_err(|error| Problem::from(error).inside(&format!("results[{i}]")))?;
            }
            let jobs = turn.jobs.len() - expired(turn).count();
            let (is_done, done) = (ended.outcome == Word::Done, ended.done.unwrap_or(0));
            if let Some(why) = miscounted(is_done, done, jobs) {
                return Err(Problem::invalid(
                    format!("results[{i}].done"),
                    format!("is {done}: {why}"),
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check_name(&self.worker)?;
        for (i, Object(ended)) in self.results.0.iter().enumerate() {
            if let Some((field, of)) = ended.outcome.misplaced(&ended.with()) {
                let detail = format!("goes with outcome {of}, not with {}", ended.outcome.name());
                return Err(Problem::invalid(format!("results[{i}].{field}"), detail));
            }
        }
        let is_far = |Object(ended): &Object<Ended>| {
            ended.retry_in.is_some_and(|Length(length)| length > DELAY_MAX)
        };
        if let Some(i) = self.results.0.iter().position(is_far) {
            let most = seriatim::duration::format(DELAY_MAX);
            let field = format!("results[{i}].retry_in");
            return Err(Problem::invalid(field, format!("must be at most {most}")));
        }
        check_once("results", self.results.0.iter().map(|Object(ended)| ended.lane))
    }
}

impl Ended {
    /// How the turn ends; none if its queue is gone.
    fn settlement(&self, turn: &Turn, known: &Known) -> Option<Settlement> {
        let queue = &known.numbered(self.lane.queue)?.queue;
        let verdict = Verdict {
            done: self.done.unwrap_or(0),
            outcome: self.outcome.outcome(&self.with()),
            undecodable: Vec::new(),
            expired: expired(turn).map(|job| job.id).collect(),
            result: self.result.as_deref().map(|raw| raw.get().into()),
        };
        let wait = |retry: NextRetry<'_>| retry.backoff(queue).wait(retry.count, fastrand::f64());
        Some(plan(turn, queue, &verdict, &wait))
    }

    fn with(&self) -> With<'_> {
        With {
            error: self.error.as_deref(),
            retry_in: self.retry_in.map(|Length(length)| length),
            has_result: self.result.is_some(),
        }
    }
}
