//! The judgements of claims and deliveries. Order and loss are in `order.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use seriatim::store::{JobState, PushStatus};
use seriatim::{
    JobId, Merge, Mode,
    store::{Fate, LaneId, Token},
};

use super::history::{Event, Handed, History, JobFate, PushResult};
use super::order;
use super::report::{Judgement, Report};

/// (queue, key); a job without a key is its own entity.
pub(super) type Entity = (String, String);

/// A push.
#[derive(Clone, Debug)]
pub(super) struct Pushed {
    pub sent_at: i64,
    pub at: i64,
    pub entity: Entity,
    pub score: Option<f64>,
    pub tag: String,
    pub job_id: JobId,
    pub status: PushStatus,
}

/// A turn delivered to a handler.
#[derive(Clone, Debug)]
pub(super) struct Turn<'h> {
    pub at: i64,
    pub until: i64,
    /// When its process died, if it did. The handler may have ended before.
    pub died_at: Option<i64>,
    pub entity: Entity,
    pub lane: LaneId,
    pub token: Token,
    pub claimed_at: i64,
    pub jobs: Vec<&'h Handed>,
}

/// A settle that the store answered.
#[derive(Clone, Debug)]
pub(super) struct Settled<'h> {
    pub sent_at: i64,
    pub at: i64,
    pub entity: Entity,
    pub token: Token,
    pub claimed_at: Option<i64>,
    pub accepted: bool,
    pub fates: &'h [JobFate],
    pub cause: &'h str,
}

/// The history, sorted by kind of event.
#[derive(Default)]
pub(super) struct Facts<'h> {
    pub modes: HashMap<String, (Mode, Merge)>,
    pub pushes: Vec<Pushed>,
    pub unknown: HashSet<(Entity, String)>,
    pub turns: Vec<Turn<'h>>,
    pub settles: Vec<Settled<'h>>,
    /// Settles that may or may not have been executed: (sent at, entity, fates).
    pub maybes: Vec<(i64, Entity, &'h [JobFate])>,
    /// (entity, token, when the store answered).
    pub rescues: Vec<(Entity, Token, i64)>,
    pub requeues: HashMap<JobId, u64>,
    pub requeued_at: HashMap<JobId, Vec<i64>>,
    /// Waiting jobs removed by administrators, and when.
    pub removed: HashMap<JobId, i64>,
    /// The jobs that the store still has at the end.
    pub finals: HashMap<JobId, JobState>,
    pub is_complete: bool,
}

pub(super) fn judge(history: &History) -> Report {
    let mut report = Report { torn_lines: history.torn_lines(), ..Report::default() };
    for judgement in Judgement::ALL {
        report.verdicts.entry(judgement).or_default();
    }
    let facts = gather(history, &mut report);
    overlaps(&facts, &mut report);
    fences(&facts, &mut report);
    duplicates(&facts, &mut report);
    order::inversions(&facts, &mut report);
    if facts.lacks_pushes() {
        without_pushes(&mut report);
    } else {
        phantoms(&facts, &mut report);
        order::losses(&facts, &mut report);
    }
    report
}

impl Turn<'_> {
    /// Whether these can be its next jobs: a turn may be handed over in parts, each after the end of the last one.
    fn goes_on_with(&self, jobs: &[Handed]) -> bool {
        !self.jobs.iter().any(|had| jobs.iter().any(|job| job.job_id == had.job_id))
    }
}

impl Facts<'_> {
    /// Whether jobs were delivered but no push is recorded: the producers keep no history, like the command line.
    fn lacks_pushes(&self) -> bool {
        self.pushes.is_empty() && self.unknown.is_empty() && !self.turns.is_empty()
    }
}

/// Without recorded pushes, phantoms and losses cannot be judged, and order only within each turn.
fn without_pushes(report: &mut Report) {
    for judgement in [Judgement::Phantom, Judgement::Loss, Judgement::Order] {
        let verdict = report.verdicts.entry(judgement).or_default();
        if verdict.violations == 0 {
            verdict.not_judged = Some("no pushes recorded".to_owned());
        }
    }
}

fn entity(queue: &str, key: Option<&String>, job: Option<JobId>) -> Entity {
    let loose = || job.map_or_else(|| "job".to_owned(), |job| format!("job {job}"));
    (queue.to_owned(), key.map_or_else(loose, |key| format!("key {key}")))
}

fn gather<'h>(history: &'h History, report: &mut Report) -> Facts<'h> {
    let mut facts = Facts::default();
    let mut ends: HashMap<(LaneId, Token), i64> = HashMap::new();
    let mut deaths: HashMap<&str, Vec<i64>> = HashMap::new();
    let mut actors: Vec<&str> = Vec::new();
    let mut latest: HashMap<(LaneId, Token), usize> = HashMap::new();
    let mut sent: HashMap<(LaneId, Token), (i64, Entity, &[JobFate])> = HashMap::new();
    for event in history.events() {
        match event {
            Event::Queue { queue, mode, merge } => {
                facts.modes.insert(queue.clone(), (*mode, *merge));
            }
            Event::Push { .. } => gather_push(event, &mut facts, report),
            Event::Start { at, actor, queue, key, lane, token, claimed_at, jobs } => {
                report.deliveries += jobs.len() as u64;
                let place = latest.get(&(*lane, *token)).filter(|place| actors[**place] == actor);
                if let Some(turn) = place.map(|place| &mut facts.turns[*place])
                    && turn.goes_on_with(jobs)
                    && ends.get(&(*lane, *token)).is_some_and(|ended| ended <= at)
                {
                    turn.jobs.extend(jobs);
                    ends.remove(&(*lane, *token));
                    continue;
                }
                report.turns += 1;
                latest.insert((*lane, *token), facts.turns.len());
                actors.push(actor.as_str());
                facts.turns.push(Turn {
                    at: *at,
                    until: i64::MAX,
                    died_at: None,
                    entity: entity(queue, key.as_ref(), jobs.first().map(|job| job.job_id)),
                    lane: *lane,
                    token: *token,
                    claimed_at: *claimed_at,
                    jobs: jobs.iter().collect(),
                });
            }
            Event::End { at, lane, token } => {
                ends.insert((*lane, *token), *at);
            }
            Event::Settling { at, queue, key, lane, token, fates } => {
                let entity = entity(queue, key.as_ref(), fates.first().map(|job| job.job_id));
                sent.insert((*lane, *token), (*at, entity, fates));
            }
            Event::Settle { lane, token, accepted, .. } => {
                sent.remove(&(*lane, *token));
                report.refused += u64::from(!accepted);
                gather_settle(event, &mut facts);
            }
            Event::Rescue { at, queue, key, token, job_id, .. } => {
                report.rescued += 1;
                facts.rescues.push((entity(queue, key.as_ref(), *job_id), *token, *at));
            }
            Event::Died { at, actor } => deaths.entry(actor).or_default().push(*at),
            Event::Requeue { at, job_id } => {
                facts.requeued_at.entry(*job_id).or_default().push(*at);
                *facts.requeues.entry(*job_id).or_default() += 1;
                facts.removed.remove(job_id);
            }
            Event::Removed { at, job_id } => {
                facts.removed.insert(*job_id, *at);
            }
            Event::Final { job_id, state } => {
                facts.finals.insert(*job_id, *state);
            }
            Event::FinalEnd {} => facts.is_complete = true,
        }
    }
    for (turn, actor) in facts.turns.iter_mut().zip(actors) {
        let died =
            deaths.get(actor).and_then(|times| times.iter().filter(|at| **at >= turn.at).min());
        let ended = ends.get(&(turn.lane, turn.token)).filter(|at| **at >= turn.at);
        turn.until = ended.into_iter().chain(died).copied().min().unwrap_or(i64::MAX);
        turn.died_at = died.copied();
    }
    facts.maybes = sent.into_values().collect();
    facts.turns.sort_by_key(|turn| (turn.at, turn.token));
    facts.settles.sort_by_key(|settled| settled.at);
    report.recoveries_ms = recoveries_ms(&facts);
    facts
}

/// For each turn whose process died before its outcome was accepted: the time until the next turn of its key or job.
fn recoveries_ms(facts: &Facts<'_>) -> Vec<u64> {
    let accepted = answered(facts, true);
    let mut dead: HashMap<&Entity, i64> = HashMap::new();
    let mut all = Vec::new();
    for turn in &facts.turns {
        if let Some(died_at) = dead.remove(&turn.entity).filter(|died_at| turn.at >= *died_at) {
            all.push((turn.at - died_at) as u64 / 1_000);
        }
        let died_at = turn.died_at.filter(|_| !accepted.contains(&(&turn.entity, turn.token)));
        dead.extend(died_at.map(|died_at| (&turn.entity, died_at)));
    }
    all.sort_unstable();
    all
}

fn gather_settle<'h>(event: &'h Event, facts: &mut Facts<'h>) {
    let Event::Settle {
        sent_at, at, queue, key, token, claimed_at, accepted, fates, cause, ..
    } = event
    else {
        return;
    };
    facts.settles.push(Settled {
        sent_at: *sent_at,
        at: *at,
        entity: entity(queue, key.as_ref(), fates.first().map(|job| job.job_id)),
        token: *token,
        claimed_at: *claimed_at,
        accepted: *accepted,
        fates,
        cause,
    });
}

fn gather_push(event: &Event, facts: &mut Facts<'_>, report: &mut Report) {
    let Event::Push { sent_at, at, queue, key, score, tag, result, job_id, status } = event else {
        return;
    };
    let entity = entity(queue, key.as_ref(), *job_id);
    match (result, job_id, status) {
        (PushResult::Acknowledged, Some(job_id), Some(status)) => {
            report.pushes += 1;
            report.merged += u64::from(*status == PushStatus::Merged);
            report.repeated += u64::from(*status == PushStatus::Duplicate);
            facts.pushes.push(Pushed {
                sent_at: *sent_at,
                at: *at,
                entity,
                score: *score,
                tag: tag.clone(),
                job_id: *job_id,
                status: *status,
            });
        }
        (PushResult::Unknown, ..) => {
            report.unknown += 1;
            facts.unknown.insert((entity, tag.clone()));
        }
        _ => {}
    }
}

/// When each token of an entity is first known to be held: from a claim or a takeover.
fn token_times(facts: &Facts<'_>) -> HashMap<Entity, BTreeMap<Token, i64>> {
    let mut times: HashMap<Entity, BTreeMap<Token, i64>> = HashMap::new();
    let claims = facts.turns.iter().map(|turn| (&turn.entity, turn.token, turn.claimed_at));
    let rescues = facts.rescues.iter().map(|(entity, token, at)| (entity, *token, *at));
    for (entity, token, at) in claims.chain(rescues) {
        let known = times.entry(entity.clone()).or_default().entry(token).or_insert(at);
        *known = (*known).min(at);
    }
    times
}

/// All higher tokens.
fn above(token: Token) -> (Bound<Token>, Bound<Token>) {
    (Bound::Excluded(token), Bound::Unbounded)
}

/// When a token was superseded: when the next higher one was drawn.
fn superseded_at(times: &BTreeMap<Token, i64>, token: Token) -> i64 {
    times.range(above(token)).map(|(_, at)| *at).min().unwrap_or(i64::MAX)
}

fn overlaps(facts: &Facts<'_>, report: &mut Report) {
    let times = token_times(facts);
    let mut held: HashMap<&Entity, (i64, Token)> = HashMap::new();
    let mut seen: HashMap<&Entity, HashSet<Token>> = HashMap::new();
    for turn in &facts.turns {
        if !seen.entry(&turn.entity).or_default().insert(turn.token) {
            report.violate(Judgement::Overlap, || {
                format!(
                    "{:?}: token {} was held twice, again at {}",
                    turn.entity, turn.token, turn.at
                )
            });
        }
        let superseded = times.get(&turn.entity).map_or(i64::MAX, |t| superseded_at(t, turn.token));
        if superseded <= turn.at {
            continue;
        }
        let until = turn.until.min(superseded);
        match held.get(&turn.entity) {
            Some((busy_until, other)) if *busy_until > turn.at => {
                report.violate(Judgement::Overlap, || {
                    format!(
                        "{:?}: token {} began at {} while token {other} was held",
                        turn.entity, turn.token, turn.at
                    )
                });
            }
            _ => {}
        }
        let last = held.entry(&turn.entity).or_insert((until, turn.token));
        if until >= last.0 {
            *last = (until, turn.token);
        }
    }
}

fn fences(facts: &Facts<'_>, report: &mut Report) {
    let times = token_times(facts);
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        let Some(times) = times.get(&settled.entity) else { continue };
        let superseded = superseded_at(times, settled.token);
        if superseded < settled.sent_at {
            report.violate(Judgement::Fence, || {
                format!(
                    "{:?}: the settle of token {} was accepted at {}, but a higher token was taken at {superseded}",
                    settled.entity, settled.token, settled.at
                )
            });
        }
    }
}

fn phantoms(facts: &Facts<'_>, report: &mut Report) {
    let mut known: HashSet<(&Entity, &str)> =
        facts.pushes.iter().map(|push| (&push.entity, push.tag.as_str())).collect();
    known.extend(facts.unknown.iter().map(|(entity, tag)| (entity, tag.as_str())));
    // A job without a key whose push was not answered: its lane is unknown.
    let loose: HashSet<(&str, &str)> =
        facts.unknown.iter().map(|((queue, _), tag)| (queue.as_str(), tag.as_str())).collect();
    for turn in &facts.turns {
        for job in &turn.jobs {
            let tag = job.tag.as_str();
            let may_be_unknown =
                turn.entity.1.starts_with("job") && loose.contains(&(turn.entity.0.as_str(), tag));
            if !known.contains(&(&turn.entity, tag)) && !may_be_unknown {
                report.violate(Judgement::Phantom, || {
                    format!(
                        "{:?}: job {} ({tag}) was handed over and never pushed",
                        turn.entity, job.job_id
                    )
                });
            }
        }
    }
}

/// The turns whose outcome was accepted, or refused.
fn answered<'f>(facts: &'f Facts<'_>, accepted: bool) -> HashSet<(&'f Entity, Token)> {
    let of_it = facts.settles.iter().filter(|settled| settled.accepted == accepted);
    of_it.map(|settled| (&settled.entity, settled.token)).collect()
}

/// Jobs of turns that were taken over without a record: the turn's own outcome was refused or its process died, and
/// the next event of its entity is a claim, not a takeover.
fn unseen_takeovers<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = JobId> + 'f {
    let times = token_times(facts);
    let rescued: HashSet<(&Entity, Token)> =
        facts.rescues.iter().map(|(entity, token, _)| (entity, *token)).collect();
    let (accepted, refused) = (answered(facts, true), answered(facts, false));
    let was_taken = move |turn: &&Turn<'_>| {
        let held = (&turn.entity, turn.token);
        let next = times.get(&turn.entity);
        let next = next.and_then(|times| times.range(above(turn.token)).next());
        let Some((_, claimed_at)) =
            next.filter(|(token, _)| !rescued.contains(&(&turn.entity, **token)))
        else {
            return false;
        };
        // If the handler had ended, its process may have died before it could settle.
        let died = turn.died_at.is_some_and(|died| died == turn.until || died <= *claimed_at);
        !accepted.contains(&held) && (died || refused.contains(&held))
    };
    facts.turns.iter().filter(was_taken).flat_map(|turn| &turn.jobs).map(|job| job.job_id)
}

fn duplicates(facts: &Facts<'_>, report: &mut Report) {
    let mut deliveries: HashMap<JobId, u64> = HashMap::new();
    for job in facts.turns.iter().flat_map(|turn| &turn.jobs) {
        *deliveries.entry(job.job_id).or_default() += 1;
    }
    let mut returns: HashMap<JobId, Vec<&str>> = HashMap::new();
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        for job in settled.fates.iter().filter(|job| job.fate == Fate::Keep) {
            returns.entry(job.job_id).or_default().push(settled.cause);
        }
    }
    for (_, _, fates) in &facts.maybes {
        for job in fates.iter().filter(|job| job.fate == Fate::Keep) {
            returns.entry(job.job_id).or_default().push("lost answer");
        }
    }
    for job in unseen_takeovers(facts) {
        returns.entry(job).or_default().push("takeover whose answer was lost");
    }
    for (job, count) in deliveries {
        let causes = returns.get(&job).map_or(&[][..], |causes| causes);
        let requeued = facts.requeues.get(&job).copied().unwrap_or_default();
        let again = count - 1;
        for cause in causes.iter().take(again as usize) {
            *report.duplicates.entry((*cause).to_owned()).or_default() += 1;
        }
        if again > causes.len() as u64 + requeued {
            report.violate(Judgement::Duplicate, || {
                format!(
                    "job {job} was handed over {count} times; {} returns explain it",
                    causes.len()
                )
            });
        }
    }
}
