//! The judgements of claims and deliveries. Order and loss are in `order.rs`, limits in `limits.rs`.

use std::collections::{HashMap, HashSet};

use seriatim::JobId;
use seriatim::store::{Fate, Token};

use super::draws::{By, Draws};
use super::facts::{Entity, Facts, Turn, gather};
use super::history::History;
use super::report::{Judgement, Report};
use super::settles::Settles;
use super::{limits, order, throttle};

pub(super) fn judge(history: &History) -> Report {
    let mut report = Report { torn_lines: history.torn_lines(), ..Report::default() };
    for judgement in Judgement::ALL {
        report.verdicts.entry(judgement).or_default();
    }
    let facts = gather(history, &mut report);
    let (draws, settles) = (Draws::of(&facts), Settles::of(&facts));
    report.recoveries_ms = recoveries_ms(&facts);
    overlaps(&facts, &draws, &settles, &mut report);
    fences(&facts, &draws, &mut report);
    duplicates(&facts, &draws, &mut report);
    limits::exceeded(&facts, &settles, &mut report);
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

/// When a newer claim of the key became allowed. If it is unknown how long the claim surely lasted, that is the first newer
/// one. Otherwise its own settle allows one, the release by a person, the end of its lease, or a takeover after its last
/// heartbeat; before the lease has ended, only one on record: its process may have been seen to be gone.
fn end(turn: &Turn<'_>, draws: &Draws<'_>, settles: &Settles<'_>) -> i64 {
    let Some(next) = draws.above(&turn.entity, turn.token) else { return i64::MAX };
    let Some(kept) = turn.kept else { return next.first() };
    // Its process may have died unrecorded.
    let free_at = if turn.until == i64::MAX { kept.seen_at } else { kept.until };
    let settled_at = settles.own(&turn.entity, turn.token).unwrap_or(i64::MAX);
    let claimed_at = next.first_by(By::Claim).max(free_at.min(settled_at));
    let rescued_at = next.first_by(By::Rescue).max(kept.seen_at);
    claimed_at.min(rescued_at).min(next.first_by(By::Person))
}

fn overlaps(facts: &Facts<'_>, draws: &Draws<'_>, settles: &Settles<'_>, report: &mut Report) {
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
        let end = end(turn, draws, settles);
        if end <= turn.at {
            continue;
        }
        let until = turn.until.min(end);
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

fn fences(facts: &Facts<'_>, draws: &Draws<'_>, report: &mut Report) {
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        let Some(next) = draws.above(&settled.entity, settled.token) else { continue };
        let superseded = next.first();
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

/// Jobs that came back without a settle on record, and why: a person released their claim, or it was taken over and the
/// answer to that was lost. The latter only if the turn's own outcome was refused or never answered and its lease may have
/// ended, or its process died.
fn unseen_returns<'f>(
    facts: &'f Facts<'_>,
    draws: &'f Draws<'_>,
) -> impl Iterator<Item = (JobId, &'static str)> + 'f {
    let accepted = answered(facts, true);
    let refused = answered(facts, false);
    // One that would have kept jobs explains itself that they came back.
    let ends =
        facts.maybes.iter().filter(|(.., fates)| fates.iter().all(|job| job.fate != Fate::Keep));
    let unanswered: HashSet<(&Entity, Token)> =
        ends.map(|(_, entity, token, _)| (entity, *token)).collect();
    let why = move |turn: &Turn<'_>| {
        let held = (&turn.entity, turn.token);
        let next = draws.above(&turn.entity, turn.token)?;
        let settles_itself = next.by != By::Claim && accepted.contains(&(&turn.entity, next.token));
        if accepted.contains(&held) || settles_itself {
            return None;
        }
        // If the handler had ended, its process may have died before it could settle.
        let died = turn.died_at.is_some_and(|died| died == turn.until || died <= next.at);
        let expired = refused.contains(&held) && turn.kept.is_none_or(|kept| kept.until <= next.at);
        let vanished =
            unanswered.contains(&held) && turn.kept.is_none_or(|kept| kept.seen_at <= next.at);
        match next.by {
            By::Person => Some("release by a person"),
            By::Claim if died || expired || vanished => Some("takeover whose answer was lost"),
            _ => None,
        }
    };
    let returns = facts.turns.iter().filter_map(move |turn| Some((turn, why(turn)?)));
    returns.flat_map(|(turn, why)| turn.jobs.iter().map(move |job| (job.job_id, why)))
}

fn duplicates(facts: &Facts<'_>, draws: &Draws<'_>, report: &mut Report) {
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
    for (job, why) in unseen_returns(facts, draws) {
        returns.entry(job).or_default().push(why);
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
