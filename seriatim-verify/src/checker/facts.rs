//! The history, sorted by kind of event.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use seriatim::store::{JobState, PushStatus, Throttled};
use seriatim::{
    Groups, JobId, Limit, Merge, Mode,
    store::{LaneId, Token},
};

use super::draws::By;
use super::history::{Event, Handed, History, JobFate, PushResult};
use super::lease::{Beats, Kept};
use super::report::Report;

/// (queue, key); a job without a key is its own entity.
pub(super) type Entity = (String, String);

#[derive(Clone, Debug)]
pub(super) struct Pushed {
    pub sent_at: i64,
    pub at: i64,
    pub entity: Entity,
    pub score: Option<f64>,
    pub tag: String,
    pub job_id: JobId,
    pub status: PushStatus,
    /// Whether the answer said until when its key is throttled.
    pub kept_out: bool,
}

impl Pushed {
    /// Whether it changed nothing, as its key was throttled.
    pub(super) fn is_throttled(&self) -> bool {
        self.kept_out || self.status == PushStatus::Throttled
    }

    /// Whether it made a job or merged into one.
    pub(super) fn is_taken(&self) -> bool {
        !self.is_throttled() && self.status != PushStatus::Duplicate
    }
}

/// A turn delivered to a handler.
#[derive(Clone, Debug)]
pub(super) struct Turn<'h> {
    pub at: i64,
    pub until: i64,
    /// When its process died, if it did. The handler may have ended before.
    pub died_at: Option<i64>,
    /// Until when its claim surely lasted. `None`: nothing is known of its lease.
    pub kept: Option<Kept>,
    pub entity: Entity,
    pub lane: LaneId,
    pub token: Token,
    pub claimed_at: i64,
    pub group: Option<&'h str>,
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

/// A queue as a recorder knew it: its limit, and its groups.
pub(super) type Shared<'h> = (Limit, Option<&'h Groups>);

/// How a queue throttles its keys: for how long, and what happens to further pushes.
pub(super) type Throttle = (Option<Duration>, Throttled);

/// A settle that may or may not have been executed: (sent at, entity, token, fates).
pub(super) type Maybe<'h> = (i64, Entity, Token, &'h [JobFate]);

/// The history, sorted by kind of event.
#[derive(Default)]
pub(super) struct Facts<'h> {
    pub modes: HashMap<String, (Mode, Merge)>,
    /// The limits and groups of each queue, as its recorders knew them.
    pub shared: HashMap<&'h str, Vec<Shared<'h>>>,
    /// How each queue throttles its keys, as its recorders knew it.
    pub throttles: HashMap<&'h str, Vec<Throttle>>,
    pub pushes: Vec<Pushed>,
    /// Pushes whose answer was lost, by entity and tag: when each was sent first.
    pub unknown: HashMap<(Entity, String), i64>,
    pub turns: Vec<Turn<'h>>,
    pub settles: Vec<Settled<'h>>,
    pub maybes: Vec<Maybe<'h>>,
    /// Claims that were taken over or released: (entity, new token, when the store answered, how).
    pub taken: Vec<(Entity, Token, i64, By)>,
    pub requeues: HashMap<JobId, u64>,
    pub requeued_at: HashMap<JobId, Vec<i64>>,
    /// Waiting jobs removed by administrators, and when.
    pub removed: HashMap<JobId, i64>,
    /// The jobs that the store still has at the end.
    pub finals: HashMap<JobId, JobState>,
    pub is_complete: bool,
}

/// The turns that began, while they are gathered.
#[derive(Default)]
struct Starts<'h> {
    /// The process of each turn.
    actors: Vec<&'h str>,
    /// The place of the latest turn under a token.
    latest: HashMap<(LaneId, Token), usize>,
    /// When what ran under a token ended last.
    ends: HashMap<(LaneId, Token), i64>,
}

impl<'h> Starts<'h> {
    /// Adds a turn, or the next jobs of one: a turn may be handed over in parts, each after the end of the last one.
    fn add(&mut self, turn: Turn<'h>, actor: &'h str, turns: &mut Vec<Turn<'h>>) {
        let held = (turn.lane, turn.token);
        let place = self.latest.get(&held).filter(|place| self.actors[**place] == actor);
        if let Some(begun) = place.and_then(|place| turns.get_mut(*place))
            && self.ends.get(&held).is_some_and(|ended| *ended <= turn.at)
            && !turn.jobs.iter().any(|job| begun.jobs.iter().any(|had| had.job_id == job.job_id))
        {
            begun.jobs.extend(turn.jobs);
            self.ends.remove(&held);
            return;
        }
        self.latest.insert(held, turns.len());
        self.actors.push(actor);
        turns.push(turn);
    }
}

impl Facts<'_> {
    /// Whether jobs were delivered but no push is recorded: the producers keep no history, like the command line.
    pub(super) fn lacks_pushes(&self) -> bool {
        self.pushes.is_empty() && self.unknown.is_empty() && !self.turns.is_empty()
    }

    /// The queues of which jobs were delivered and no push is recorded.
    pub(super) fn unpushed_queues(&self) -> BTreeSet<&str> {
        let of_pushes = self.pushes.iter().map(|push| &push.entity);
        let pushed: BTreeSet<&str> = of_pushes
            .chain(self.unknown.keys().map(|(entity, _)| entity))
            .map(|(queue, _)| queue.as_str())
            .collect();
        let turns = self.turns.iter().map(|turn| turn.entity.0.as_str());
        turns.filter(|queue| !pushed.contains(queue)).collect()
    }
}

fn entity(queue: &str, key: Option<&String>, job: Option<JobId>) -> Entity {
    let loose = || job.map_or_else(|| "job".to_owned(), |job| format!("job {job}"));
    (queue.to_owned(), key.map_or_else(loose, |key| format!("key {key}")))
}

pub(super) fn gather<'h>(history: &'h History, report: &mut Report) -> Facts<'h> {
    let mut facts = Facts::default();
    let mut starts = Starts::default();
    let mut deaths: HashMap<&str, Vec<i64>> = HashMap::new();
    let mut beats = Beats::default();
    let mut sent: HashMap<(LaneId, Token), Maybe<'_>> = HashMap::new();
    for event in history.events() {
        match event {
            Event::Queue { queue, mode, merge, limit, groups, throttle_us, throttled } => {
                let period = throttle_us.map(Duration::from_micros);
                facts.throttles.entry(queue).or_default().push((period, *throttled));
                facts.modes.insert(queue.clone(), (*mode, *merge));
                facts.shared.entry(queue).or_default().push((*limit, groups.as_ref()));
            }
            Event::Push { .. } => gather_push(event, &mut facts, report),
            Event::Start { at, actor, queue, key, lane, token, claimed_at, group, jobs } => {
                report.deliveries += jobs.len() as u64;
                let turn = Turn {
                    at: *at,
                    until: i64::MAX,
                    died_at: None,
                    kept: None,
                    entity: entity(queue, key.as_ref(), jobs.first().map(|job| job.job_id)),
                    lane: *lane,
                    token: *token,
                    claimed_at: *claimed_at,
                    group: group.as_deref(),
                    jobs: jobs.iter().collect(),
                };
                starts.add(turn, actor, &mut facts.turns);
            }
            Event::End { at, lane, token } => {
                starts.ends.insert((*lane, *token), *at);
            }
            Event::Settling { at, queue, key, lane, token, fates } => {
                let entity = entity(queue, key.as_ref(), fates.first().map(|job| job.job_id));
                sent.insert((*lane, *token), (*at, entity, *token, fates));
            }
            Event::Settle { lane, token, accepted, .. } => {
                sent.remove(&(*lane, *token));
                report.refused += u64::from(!accepted);
                gather_settle(event, &mut facts);
            }
            Event::Rescue { at, queue, key, token, job_id, by_person, .. } => {
                report.rescued += u64::from(!by_person);
                let by = if *by_person { By::Person } else { By::Rescue };
                facts.taken.push((entity(queue, key.as_ref(), *job_id), *token, *at, by));
            }
            Event::Lease { at, actor, node, until } => beats.add(actor, node, (*at, *until)),
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
    report.turns += facts.turns.len() as u64;
    let (Starts { actors, ends, .. }, leases) = (starts, beats.leases());
    for (turn, actor) in facts.turns.iter_mut().zip(actors) {
        let died =
            deaths.get(actor).and_then(|times| times.iter().filter(|at| **at >= turn.at).min());
        let ended = ends.get(&(turn.lane, turn.token)).filter(|at| **at >= turn.at);
        turn.until = ended.into_iter().chain(died).copied().min().unwrap_or(i64::MAX);
        turn.died_at = died.copied();
        turn.kept = leases.kept(actor, turn.claimed_at);
    }
    facts.maybes = sent.into_values().collect();
    facts.turns.sort_by_key(|turn| (turn.at, turn.token));
    facts.settles.sort_by_key(|settled| settled.at);
    facts
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
    let Event::Push { sent_at, at, queue, key, score, tag, result, job_id, status, again_at } =
        event
    else {
        return;
    };
    let entity = entity(queue, key.as_ref(), *job_id);
    match (result, job_id, status) {
        (PushResult::Acknowledged, Some(job_id), Some(status)) => {
            report.pushes += 1;
            report.merged += u64::from(*status == PushStatus::Merged);
            report.repeated += u64::from(*status == PushStatus::Duplicate);
            let push = Pushed {
                sent_at: *sent_at,
                at: *at,
                entity,
                score: *score,
                tag: tag.clone(),
                job_id: *job_id,
                status: *status,
                kept_out: again_at.is_some(),
            };
            report.throttled += u64::from(push.is_throttled());
            facts.pushes.push(push);
        }
        (PushResult::Unknown, ..) => {
            report.unknown += 1;
            let first = facts.unknown.entry((entity, tag.clone())).or_insert(*sent_at);
            *first = (*first).min(*sent_at);
        }
        _ => {}
    }
}
