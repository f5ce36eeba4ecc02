//! The judgements of order and loss.

use std::collections::{BTreeMap, HashMap, HashSet};

use seriatim::store::{JobState, PushStatus};
use seriatim::{
    JobId, Merge, Mode,
    store::{Fate, Token},
};

use super::facts::{Entity, Facts, Pushed, Turn};
use super::history::JobFate;
use super::report::{Judgement, Report};

/// (score, arrival).
type Rank = (i64, u64);

fn rank(score: f64, job: JobId) -> Rank {
    let bits = (score + 0.0).to_bits() as i64;
    (if bits < 0 { bits ^ i64::MAX } else { bits }, job.seq())
}

/// The jobs that wait for a key: by rank, the job and its payload's tag.
type Waiting<'f> = BTreeMap<Rank, (JobId, &'f str)>;

/// An event of one key, in order of time.
enum Moment<'f, 'h> {
    /// An acknowledged push.
    Arrived { job: JobId, tag: &'f str, score: f64, merge: Option<Merge> },
    /// A turn begins: every job that arrived before its claim and ranks lower must be in it or over.
    Began(&'f Turn<'h>),
    /// A job has ended.
    Over(JobId),
    /// A job went back into its lane, where an equal one may have arrived.
    Kept(JobId, Merge),
    /// A dead job was requeued: its rank and that of its equals are unknown.
    Back(&'f str),
}

/// Judges the order of keys in `accumulate` and `fifo`; the other modes do not guarantee one.
pub(super) fn inversions(facts: &Facts<'_>, report: &mut Report) {
    let mut moments: HashMap<&Entity, Vec<(i64, u8, Moment<'_, '_>)>> = HashMap::new();
    let ordered = |queue: &str| {
        let (mode, merge) =
            facts.modes.get(queue).copied().unwrap_or((Mode::Exclusive, Merge::None));
        matches!(mode, Mode::Accumulate | Mode::Fifo).then_some((mode, merge))
    };
    for push in facts.pushes.iter().filter(|push| !push.is_throttled()) {
        let Some((mode, merge)) = ordered(&push.entity.0) else { continue };
        let Some(score) = push.score.or((mode == Mode::Fifo).then_some(0.0)) else {
            // Its score is the store's clock, which is not recorded; also if a later push with a score merges into it.
            let nowhere = Moment::Over(push.job_id);
            moments.entry(&push.entity).or_default().push((push.at, 0, nowhere));
            continue;
        };
        let merge = match push.status {
            PushStatus::Queued => None,
            PushStatus::Merged => Some(merge),
            PushStatus::Duplicate | PushStatus::Throttled => continue,
        };
        let arrived = Moment::Arrived { job: push.job_id, tag: &push.tag, score, merge };
        moments.entry(&push.entity).or_default().push((push.at, 0, arrived));
    }
    for turn in facts.turns.iter().filter(|turn| ordered(&turn.entity.0).is_some()) {
        // Placed at its claim: later pushes do not affect it.
        moments.entry(&turn.entity).or_default().push((turn.claimed_at, 2, Moment::Began(turn)));
    }
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        let merge = ordered(&settled.entity.0).filter(|_| merges(facts, &settled.entity.0));
        let merge = merge.map_or(Merge::None, |(_, merge)| merge);
        for job in settled.fates {
            let moment = match job.fate {
                Fate::Keep => Moment::Kept(job.job_id, merge),
                _ => Moment::Over(job.job_id),
            };
            moments.entry(&settled.entity).or_default().push((settled.sent_at, 1, moment));
        }
    }
    for (at, entity, _, fates) in &facts.maybes {
        // It may have ended: then its rank is unknown.
        for job in fates.iter().filter(|job| job.fate != Fate::Keep) {
            moments.entry(entity).or_default().push((*at, 1, Moment::Over(job.job_id)));
        }
    }
    for push in facts.pushes.iter().filter(|push| !push.is_throttled()) {
        if let Some(at) = facts.removed.get(&push.job_id) {
            let place = moments.entry(&push.entity).or_default();
            place.push((*at, 1, Moment::Over(push.job_id)));
        }
        if let Some(at) = facts.requeued_at.get(&push.job_id)
            && merges(facts, &push.entity.0)
        {
            let place = moments.entry(&push.entity).or_default();
            place.extend(at.iter().map(|at| (*at, 1, Moment::Back(&push.tag))));
        }
    }
    for (entity, mut moments) in moments {
        moments.sort_by_key(|(at, kind, _)| (*at, *kind));
        judge_key(facts, entity, &moments, report);
    }
}

fn judge_key(
    facts: &Facts<'_>,
    entity: &Entity,
    moments: &[(i64, u8, Moment<'_, '_>)],
    report: &mut Report,
) {
    let mut waiting: Waiting<'_> = BTreeMap::new();
    let mut ranks: HashMap<JobId, Rank> = HashMap::new();
    let mut over: HashSet<JobId> = HashSet::new();
    for (_, _, moment) in moments {
        match moment {
            Moment::Arrived { job, tag, score, merge } => {
                if over.contains(job) || facts.requeues.contains_key(job) {
                    continue;
                }
                let mut place = rank(*score, *job);
                if let (Some(merge), Some(old)) = (merge, ranks.get(job)) {
                    waiting.remove(old);
                    place = if *merge == Merge::Max { place.max(*old) } else { place.min(*old) };
                }
                ranks.insert(*job, place);
                waiting.insert(place, (*job, tag));
            }
            Moment::Over(job) => {
                over.insert(*job);
                if let Some(place) = ranks.remove(job) {
                    waiting.remove(&place);
                }
            }
            Moment::Kept(job, merge) => unite(*job, *merge, &mut waiting, &mut ranks),
            Moment::Back(tag) => {
                let alike: Vec<JobId> = waiting
                    .extract_if(.., |_, (_, other)| other == tag)
                    .map(|(_, (job, _))| job)
                    .collect();
                alike.iter().for_each(|job| {
                    ranks.remove(job);
                });
                over.extend(alike);
            }
            Moment::Began(turn) => {
                if merges(facts, &entity.0) {
                    take_along(turn, &mut waiting, &mut ranks);
                }
                judge_turn(entity, turn, &mut waiting, &ranks, report);
            }
        }
    }
}

/// Merges a job that went back with an equal one that arrived meanwhile, under the older id.
fn unite(job: JobId, merge: Merge, waiting: &mut Waiting<'_>, ranks: &mut HashMap<JobId, Rank>) {
    let Some(own) = ranks.get(&job).copied() else { return };
    let Some((_, tag)) = waiting.get(&own).copied() else { return };
    let is_other = |(_, (other, text)): &(&Rank, &(JobId, &str))| *other != job && *text == tag;
    let Some((&place, &(other, _))) = waiting.iter().find(is_other) else { return };
    let score = match merge {
        Merge::Min => own.0.min(place.0),
        Merge::Max => own.0.max(place.0),
        Merge::None => return,
    };
    let (survivor, gone) = if job.seq() < other.seq() { (job, other) } else { (other, job) };
    waiting.remove(&own);
    waiting.remove(&place);
    ranks.remove(&gone);
    ranks.insert(survivor, (score, survivor.seq()));
    waiting.insert((score, survivor.seq()), (survivor, tag));
}

fn judge_turn(
    entity: &Entity,
    turn: &Turn<'_>,
    waiting: &mut Waiting<'_>,
    ranks: &HashMap<JobId, Rank>,
    report: &mut Report,
) {
    let handed: Vec<Rank> = turn.jobs.iter().map(|job| rank(job.score, job.job_id)).collect();
    if !handed.is_sorted() {
        report.violate(Judgement::Order, || {
            format!("{entity:?}: the jobs under token {} are not in order", turn.token)
        });
    }
    let Some(last) = turn.jobs.iter().filter_map(|job| ranks.get(&job.job_id)).max() else {
        return;
    };
    let tags: HashSet<JobId> = turn.jobs.iter().map(|job| job.job_id).collect();
    let overtaken: Vec<(Rank, JobId)> = waiting
        .range(..*last)
        .filter(|(_, (job, _))| !tags.contains(job))
        .map(|(rank, (job, _))| (*rank, *job))
        .collect();
    for (rank, job) in overtaken {
        report.violate(Judgement::Order, || {
            format!("{entity:?}: job {job} waited and was overtaken under token {}", turn.token)
        });
        // Report it once.
        waiting.remove(&rank);
    }
}

/// Whether this queue merges equal payloads.
fn merges(facts: &Facts<'_>, queue: &str) -> bool {
    facts
        .modes
        .get(queue)
        .is_some_and(|(mode, merge)| *mode == Mode::Accumulate && *merge != Merge::None)
}

/// Removes a waiting job whose payload equals one of the turn's: it was delivered with it.
fn take_along(turn: &Turn<'_>, waiting: &mut Waiting<'_>, ranks: &mut HashMap<JobId, Rank>) {
    waiting.retain(|_, (job, tag)| {
        let is_alike =
            |handed: &&super::history::Handed| handed.tag == *tag && handed.job_id != *job;
        let stays = !turn.jobs.iter().any(is_alike);
        if !stays {
            ranks.remove(job);
        }
        stays
    });
}

/// The tag of each job, if recorded.
fn tags<'f>(facts: &'f Facts<'_>) -> HashMap<JobId, &'f str> {
    let queued = facts.pushes.iter().filter(|push| push.status == PushStatus::Queued);
    let mut tags: HashMap<JobId, &str> =
        queued.map(|push| (push.job_id, push.tag.as_str())).collect();
    let handed_over = facts.turns.iter().flat_map(|turn| &turn.jobs);
    tags.extend(handed_over.map(|job| (job.job_id, job.tag.as_str())));
    tags
}

/// When a push was sent from which on its job must be accounted for. `None`: the first push with its idempotency key is
/// judged instead, unless the answer to that was lost.
fn first_sent_at(facts: &Facts<'_>, push: &Pushed) -> Option<i64> {
    if push.status != PushStatus::Duplicate {
        return Some(push.sent_at);
    }
    let mut entity = push.entity.clone();
    if !entity.1.starts_with("key ") {
        // Which job a lost answer named is unknown.
        "job".clone_into(&mut entity.1);
    }
    facts.unknown.get(&(entity, push.tag.clone())).copied()
}

/// When a dead job was requeued last: how it had ended before does not account for it.
fn back_at(facts: &Facts<'_>, job: JobId) -> Option<i64> {
    facts.requeued_at.get(&job)?.iter().max().copied()
}

/// The jobs that have ended, or may have, and were not requeued since.
fn ended_jobs(facts: &Facts<'_>) -> HashSet<JobId> {
    let ends = |job: &&JobFate| job.fate != Fate::Keep;
    let answered = facts.settles.iter().filter(|settled| settled.accepted).flat_map(|settled| {
        let is_last = |job: &&JobFate| back_at(facts, job.job_id).is_none_or(|at| at <= settled.at);
        settled.fates.iter().filter(ends).filter(is_last)
    });
    let maybe = facts.maybes.iter().flat_map(|(.., fates)| fates.iter()).filter(ends);
    answered.chain(maybe).map(|job| job.job_id).collect()
}

/// Judges whether every acknowledged push is accounted for.
pub(super) fn losses(facts: &Facts<'_>, report: &mut Report) {
    let over = ended_jobs(facts);
    // The last claim under which each payload of a key was delivered and then ended.
    let mut ended: HashMap<(&Entity, &str), i64> = HashMap::new();
    let mut last_claim: HashMap<JobId, i64> = HashMap::new();
    for turn in &facts.turns {
        for job in &turn.jobs {
            let known = last_claim.entry(job.job_id).or_insert(turn.claimed_at);
            *known = (*known).max(turn.claimed_at);
            if over.contains(&job.job_id) || facts.finals.contains_key(&job.job_id) {
                let last = ended.entry((&turn.entity, &job.tag)).or_insert(turn.claimed_at);
                *last = (*last).max(turn.claimed_at);
            }
        }
    }
    // Also a claim that was not delivered: its jobs had expired or were cancelled.
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        let Some(claimed_at) = settled.claimed_at else { continue };
        for job in settled.fates {
            let known = last_claim.entry(job.job_id).or_insert(claimed_at);
            *known = (*known).max(claimed_at);
        }
    }
    let tags = tags(facts);
    let mut missing = 0;
    // Throttled ones are judged elsewhere.
    for push in facts.pushes.iter().filter(|push| !push.is_throttled()) {
        let Some(sent_at) = first_sent_at(facts, push) else { continue };
        let sent_at = back_at(facts, push.job_id).map_or(sent_at, |at| at.max(sent_at));
        // An equal payload claimed after this push was sent includes it.
        let taken_along =
            ended.get(&(&push.entity, push.tag.as_str())).is_some_and(|at| *at >= sent_at);
        let by_id = match push.status {
            PushStatus::Merged => {
                over.contains(&push.job_id)
                    && last_claim.get(&push.job_id).is_none_or(|at| *at >= push.sent_at)
            }
            _ => over.contains(&push.job_id),
        };
        let is_removed = facts.removed.contains_key(&push.job_id);
        // Only equal payloads merge: another job's fate does not account for this one.
        let is_another = push.status == PushStatus::Merged
            && tags.get(&push.job_id).is_some_and(|tag| *tag != push.tag);
        // A job stored as done does not include a push that merged into it after its last claim.
        let is_kept = facts.finals.get(&push.job_id).is_some_and(|state| {
            let was_claimed = last_claim.get(&push.job_id).is_some_and(|at| *at < push.sent_at);
            let came_late = push.status == PushStatus::Merged && was_claimed;
            !(came_late && *state == JobState::Succeeded)
        });
        if taken_along || !is_another && (by_id || is_removed || is_kept) {
            continue;
        }
        missing += 1;
        if facts.is_complete {
            report.violate(Judgement::Loss, || {
                format!(
                    "{:?}: job {} ({}) acknowledged at {} is nowhere",
                    push.entity, push.job_id, push.tag, push.at
                )
            });
        }
    }
    if missing > 0 && !facts.is_complete {
        let why = format!(
            "{missing} pushes are not over, and the history has no final list of what is still there"
        );
        report.verdicts.entry(Judgement::Loss).or_default().not_judged = Some(why);
    }
}

/// What was handed over under a token.
#[derive(Default)]
struct HandedOver<'f> {
    jobs: HashSet<JobId>,
    tags: HashSet<&'f str>,
}

/// Judges whether jobs that were settled as done had been handed over: otherwise nobody worked on them. Only turns are
/// judged of which something was, as not every program records what it starts.
pub(super) fn skipped(facts: &Facts<'_>, report: &mut Report) {
    if report.torn_lines > 0 {
        return;
    }
    let mut turns: HashMap<(&Entity, Token), HandedOver<'_>> = HashMap::new();
    for turn in &facts.turns {
        let handed = turns.entry((&turn.entity, turn.token)).or_default();
        handed.jobs.extend(turn.jobs.iter().map(|job| job.job_id));
        handed.tags.extend(turn.jobs.iter().map(|job| job.tag.as_str()));
    }
    let tags = tags(facts);
    for settled in facts.settles.iter().filter(|settled| settled.accepted) {
        let Some(handed) = turns.get(&(&settled.entity, settled.token)) else { continue };
        for job in settled.fates.iter().filter(|job| job.fate == Fate::Done) {
            // It may have merged into an equal one.
            let may_be_in = tags.get(&job.job_id).is_none_or(|tag| handed.tags.contains(tag));
            if !may_be_in && !handed.jobs.contains(&job.job_id) {
                report.violate(Judgement::Loss, || {
                    let (entity, token) = (&settled.entity, settled.token);
                    format!(
                        "{entity:?}: job {} is done under token {token} and was not handed over",
                        job.job_id
                    )
                });
            }
        }
    }
}
