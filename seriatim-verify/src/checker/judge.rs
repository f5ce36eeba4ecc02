//! The judgements of claims and deliveries. Order and loss are in `order.rs`, limits in `limits.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};

use seriatim::JobId;
use seriatim::store::{Fate, Token};

use super::facts::{Entity, Facts, Turn, above, gather};
use super::history::History;
use super::report::{Judgement, Report};
use super::{limits, order, throttle};

pub(super) fn judge(history: &History) -> Report {
    let mut report = Report { torn_lines: history.torn_lines(), ..Report::default() };
    for judgement in Judgement::ALL {
        report.verdicts.entry(judgement).or_default();
    }
    let facts = gather(history, &mut report);
    report.recoveries_ms = recoveries_ms(&facts);
    overlaps(&facts, &mut report);
    fences(&facts, &mut report);
    duplicates(&facts, &mut report);
    limits::exceeded(&facts, &mut report);
    order::skipped(&facts, &mut report);
    order::inversions(&facts, &mut report);
    if facts.lacks_pushes() {
        without_pushes(&mut report);
    } else {
        phantoms(&facts, &mut report);
        order::losses(&facts, &mut report);
        throttle::judge(&facts, &mut report);
    }
    report
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
    let stored = facts.pushes.iter().filter(|push| !push.is_throttled());
    let mut known: HashSet<(&Entity, &str)> =
        stored.map(|push| (&push.entity, push.tag.as_str())).collect();
    known.extend(facts.unknown.keys().map(|(entity, tag)| (entity, tag.as_str())));
    // A job without a key whose push was not answered: its lane is unknown.
    let loose: HashSet<(&str, &str)> =
        facts.unknown.keys().map(|((queue, _), tag)| (queue.as_str(), tag.as_str())).collect();
    let unpushed = facts.unpushed_queues();
    for turn in facts.turns.iter().filter(|turn| !unpushed.contains(turn.entity.0.as_str())) {
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
    let verdict = report.verdicts.entry(Judgement::Phantom).or_default();
    if verdict.violations == 0 && !unpushed.is_empty() {
        let queues: Vec<&str> = unpushed.into_iter().collect();
        verdict.not_judged = Some(format!("no pushes recorded of {}", queues.join(", ")));
    }
}

/// The turns whose outcome was accepted, or refused.
fn answered<'f>(facts: &'f Facts<'_>, accepted: bool) -> HashSet<(&'f Entity, Token)> {
    let of_it = facts.settles.iter().filter(|settled| settled.accepted == accepted);
    of_it.map(|settled| (&settled.entity, settled.token)).collect()
}

/// Jobs of turns that were taken over without a record: the turn's own outcome was refused or never answered, or its
/// process died, and the next event of its entity is a claim, not a takeover.
fn unseen_takeovers<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = JobId> + 'f {
    let times = token_times(facts);
    let rescued: HashSet<(&Entity, Token)> =
        facts.rescues.iter().map(|(entity, token, _)| (entity, *token)).collect();
    let (accepted, mut refused) = (answered(facts, true), answered(facts, false));
    // One that would have kept jobs explains itself that they came back.
    let ends =
        facts.maybes.iter().filter(|(.., fates)| fates.iter().all(|job| job.fate != Fate::Keep));
    refused.extend(ends.map(|(_, entity, token, _)| (entity, *token)));
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
    for (.., fates) in &facts.maybes {
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
