//! The true history of a run: recorded where the store executes calls and where handlers start and end, not where
//! callers learn of it. So a lost answer hides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim::limits::DELAY_MAX;
use seriatim::store::{JobState, JobView, Pushed, Settled};
use seriatim::{
    Job, JobId, Limit, Mode, Queue, Timestamp,
    store::{LaneId, NodeId, Settlement, Token, Turn},
};

use super::clock::START;
use super::gate::Gate;
use super::scene::Happening;
use super::world::World;
use crate::checker::{Event, Handed, History, JobFate, cause, group, tag, too_fast};

/// From this number of crashes on, an engine runs one lane at a time.
const SUSPECT_CRASHES: u32 = 2;

/// (queue, key).
type Entity = (String, Option<String>);

/// The recorder of a run.
#[derive(Default)]
pub(super) struct Tape {
    pub(super) history: History,
    trace: Option<Vec<String>>,
    last: i64,
    /// Every job that the store has or had.
    pushed: BTreeMap<JobId, Known>,
    of_entity: BTreeMap<Entity, BTreeSet<JobId>>,
    /// Every turn that was claimed or taken over, and when it was claimed.
    turns: BTreeMap<(LaneId, Token), (Turn, i64)>,
    /// When the turns of each queue and group were claimed, by the store's clock.
    claims: BTreeMap<String, BTreeMap<Option<String>, Vec<i64>>>,
    /// The running turns of each key.
    at_work: BTreeMap<Entity, BTreeSet<Token>>,
    /// The running turns with several crashes, and who runs them.
    suspects: BTreeMap<(LaneId, Token), String>,
}

/// A job as pushed.
struct Known {
    queue: String,
    tag: String,
}

/// The states of jobs before an operation.
pub(super) struct Before(Vec<(JobId, JobState)>);

impl Tape {
    pub(super) fn new(traces: bool) -> Self {
        Self { trace: traces.then(Vec::new), ..Self::default() }
    }

    pub(super) fn traces(&self) -> bool {
        self.trace.is_some()
    }

    pub(super) fn note(&mut self, line: String) {
        self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
    }

    pub(super) fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or(&[])
    }

    pub(super) fn tick(&mut self, now: Timestamp) -> i64 {
        self.last = now.as_micros().max(self.last + 1);
        self.last
    }

    pub(super) fn add(&mut self, event: Event) {
        if self.traces() {
            let line = serde_json::to_string(&event).unwrap_or_default();
            self.note(line);
        }
        self.history.add(event);
    }

    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.pushed.keys().copied().collect()
    }

    /// Other jobs of the key that equal one of the turn's: (id, that one's).
    fn equals(&self, turn: &Turn) -> Vec<(JobId, JobId)> {
        let tag = |id: &JobId| self.pushed.get(id).map(|known| &known.tag);
        let own = |tagged| turn.jobs.iter().map(|job| job.id).find(|id| tag(id) == tagged);
        let ids = self.of_entity.get(&entity(turn)).filter(|_| turn.key.is_some());
        let others = ids.into_iter().flatten();
        let others = others.filter(|id| turn.jobs.iter().all(|job| job.id != **id));
        others.filter_map(|id| Some((*id, own(tag(id))?))).collect()
    }

    /// Whether the store accepted a job with this payload under this id.
    pub(super) fn knows(&self, id: JobId, job: &Job) -> bool {
        let tag = tag(job.task.as_deref(), &job.payload);
        self.pushed.get(&id).is_some_and(|known| known.tag == tag && known.queue == job.queue)
    }
}

impl World {
    pub(super) fn declared(&self, queue: &Queue) {
        // The history has times of its own: rates are checked by those of the store.
        let mut queue = queue.clone();
        without_rate(&mut queue.limit);
        if let Some(groups) = &mut queue.groups {
            without_rate(&mut groups.each.limit);
            groups.named.values_mut().for_each(|share| without_rate(&mut share.limit));
        }
        // Nor can a period be checked that the store's jumping clock made longer or shorter: it may have been any.
        if queue.throttle.is_some() && self.scene.events.contains(&Happening::StoreClock) {
            for period in [Duration::from_micros(1), DELAY_MAX] {
                queue.throttle = Some(period);
                self.tape().add(Event::queue(&queue));
            }
            return;
        }
        self.tape().add(Event::queue(&queue));
    }

    /// Records that the store has accepted jobs.
    pub(super) fn pushed(&self, jobs: &[Job], now: Timestamp, answer: &[Pushed]) {
        for (job, pushed) in jobs.iter().zip(answer) {
            let at = self.tick();
            let queue = self.scene.queues.iter().find(|queue| queue.name == job.queue);
            let is_fifo = queue.is_some_and(|queue| queue.mode == Mode::Fifo);
            let mut tape = self.tape();
            let tag = tag(job.task.as_deref(), &job.payload);
            let entity = (job.queue.clone(), job.key.clone());
            if pushed.again_at.is_none() {
                tape.of_entity.entry(entity).or_default().insert(pushed.job_id);
                let known = Known { queue: job.queue.clone(), tag: tag.clone() };
                tape.pushed.entry(pushed.job_id).or_insert(known);
            }
            tape.add(Event::Push {
                sent_at: at,
                at,
                queue: job.queue.clone(),
                key: job.key.clone(),
                score: job.score.or((!is_fifo).then(|| now.as_secs_f64())),
                tag,
                result: crate::checker::PushResult::Acknowledged,
                job_id: Some(pushed.job_id),
                status: Some(pushed.status),
                again_at: pushed.again_at.map(Timestamp::as_micros),
            });
        }
    }

    /// Records that the store has returned claimed turns.
    pub(super) fn claimed(&self, turns: &[Turn]) {
        for turn in turns {
            let at = self.tick();
            let mut tape = self.tape();
            let claims = tape.claims.entry(turn.queue.to_string()).or_default();
            let claims = claims.entry(group(turn).map(str::to_owned)).or_default();
            claims.push(turn.claimed_at.as_micros());
            tape.turns.entry((turn.lane, turn.token)).or_insert_with(|| (turn.clone(), at));
        }
    }

    /// The first rate of a queue or group that claims exceeded.
    pub(super) fn exceeded_rate(&self) -> Option<String> {
        let tape = self.tape();
        let exceeded = |limit: &Limit, claims: &mut Vec<i64>, what: String| {
            claims.sort_unstable();
            let at = too_fast(claims, limit.rate?, limit.burst())?;
            Some(format!("{what}: too many turns start, first at {at} by the store's clock"))
        };
        self.scene.queues.iter().find_map(|queue| {
            let claims = tape.claims.get(&queue.name)?;
            let mut all = claims.values().flatten().copied().collect();
            exceeded(&queue.limit, &mut all, queue.name.clone()).or_else(|| {
                claims.iter().find_map(|(group, claims)| {
                    let limit = queue.groups.as_ref()?.share(group.as_deref()).limit;
                    let what = format!("{}, group {group:?}", queue.name);
                    exceeded(&limit, &mut claims.clone(), what)
                })
            })
        })
    }

    /// Records that the store has given expired claims to another node, or that a person released them.
    pub(super) fn taken(&self, turns: &[Turn], by_person: bool) {
        for turn in turns {
            let at = self.tick();
            let mut tape = self.tape();
            // Its jobs were closed by the claim that was taken over.
            let lost = tape.turns.range((turn.lane, Token(i64::MIN))..(turn.lane, turn.token));
            let claimed_at = lost.last().map_or(at, |(_, (_, claimed_at))| *claimed_at);
            tape.turns.insert((turn.lane, turn.token), (turn.clone(), claimed_at));
            tape.add(Event::rescued(at, turn, by_person));
        }
    }

    /// Records that the store has executed a heartbeat. Only if its clock does not jump, which would end leases.
    pub(super) fn renewed(&self, node: &NodeId, lease: Duration) {
        let Some(gate) = Gate::current() else { return };
        if !self.scene.events.contains(&Happening::StoreClock) {
            let (actor, node) = (gate.actor.clone(), node.to_string());
            let leases = self.scene.queues.iter().filter_map(|queue| queue.lease);
            let lease = leases.fold(lease, Duration::min);
            let until = (START + self.elapsed() + lease).as_micros();
            let at = self.tick();
            self.tape().add(Event::Lease { at, actor, node, until });
        }
    }

    /// Records that a handler starts a turn.
    pub(super) fn began(&self, actor: &str, turn: &Turn) {
        let at = self.tick();
        let mut tape = self.tape();
        if turn.key.is_some() {
            let at_work = tape.at_work.entry(entity(turn)).or_default();
            at_work.insert(turn.token);
            if at_work.len() > 1 && self.is_strict() {
                let (key, tokens) = (entity(turn), &at_work);
                self.alarm.raise(format!("overlap: {key:?} under the tokens {tokens:?}"));
            }
        }
        if turn.crashes >= SUSPECT_CRASHES {
            let other = tape.suspects.iter().find(|(_, other)| *other == actor);
            if let Some(((lane, _), _)) = other {
                let two = format!("{lane} and {}", turn.lane);
                self.alarm.raise(format!("{actor} runs two lanes that crashed: {two}"));
            }
            tape.suspects.insert((turn.lane, turn.token), actor.to_owned());
        }
        let handed = turn.jobs.iter().map(|job| Handed {
            job_id: job.id,
            score: job.score,
            tag: tag(job.task.as_deref(), &job.payload),
        });
        let claimed_at = tape.turns.get(&(turn.lane, turn.token)).map_or(at, |(_, at)| *at);
        tape.add(Event::Start {
            at,
            actor: actor.to_owned(),
            queue: turn.queue.to_string(),
            key: turn.key.as_deref().map(str::to_owned),
            lane: turn.lane,
            token: turn.token,
            claimed_at,
            group: group(turn).map(str::to_owned),
            jobs: handed.collect(),
        });
    }

    /// Records that a handler has ended, normally or not.
    pub(super) fn ended(&self, lane: LaneId, token: Token) {
        let at = self.tick();
        let mut tape = self.tape();
        let entity = tape.turns.get(&(lane, token)).map(|(turn, _)| entity(turn));
        if let Some(at_work) = entity.and_then(|entity| tape.at_work.get_mut(&entity)) {
            at_work.remove(&token);
        }
        tape.suspects.remove(&(lane, token));
        tape.add(Event::End { at, lane, token });
    }

    /// Aliases of jobs of these turns: (id, the job's own). Only equal jobs merge, and an alias shows whether its job
    /// is running.
    pub(super) async fn aliases(&self, settlements: &[Settlement]) -> Vec<(JobId, JobId)> {
        let mut aliases = Vec::new();
        for settlement in settlements {
            let turn = self.store.turn(settlement.lane, settlement.token).await;
            let equals = match turn {
                Ok(Some(turn)) => self.tape().equals(&turn),
                _ => Vec::new(),
            };
            for (id, job) in equals {
                if self.state(id).await == Some(JobState::Running) {
                    aliases.push((id, job));
                }
            }
        }
        aliases
    }

    /// Records that the store has answered settlements.
    pub(super) fn settled(
        &self,
        settlements: &[Settlement],
        answer: &[Settled],
        aliases: &[(JobId, JobId)],
    ) {
        // Those that are busy will be sent again.
        let answered = |settled: &Settled| !settled.is_open();
        for (settlement, settled) in
            settlements.iter().zip(answer).filter(|(_, settled)| answered(settled))
        {
            let at = self.tick();
            let mut tape = self.tape();
            let Some((turn, claimed_at)) =
                tape.turns.get(&(settlement.lane, settlement.token)).cloned()
            else {
                continue;
            };
            tape.add(Event::Settle {
                sent_at: at,
                at,
                queue: turn.queue.to_string(),
                key: turn.key.as_deref().map(str::to_owned),
                lane: turn.lane,
                token: turn.token,
                claimed_at: Some(claimed_at),
                accepted: settled.is_ok(),
                fates: fates(&turn, settlement, settled, aliases),
                cause: cause(&turn, settlement).to_owned(),
            });
        }
    }

    /// The states of all jobs before an operation.
    pub(super) async fn before(&self) -> Before {
        let mut before = Vec::new();
        let jobs = self.tape().jobs();
        for id in jobs {
            before.extend(self.state(id).await.map(|state| (id, state)));
        }
        Before(before)
    }

    /// Records the changes since then.
    pub(super) async fn after(&self, before: Before) {
        for (job_id, was) in before.0 {
            let is = self.state(job_id).await;
            let at = self.tick();
            let waits = matches!(is, Some(JobState::Queued | JobState::Running));
            match was {
                JobState::Queued if !waits => self.tape().add(Event::Removed { at, job_id }),
                JobState::Dead if waits => self.tape().add(Event::Requeue { at, job_id }),
                _ => {}
            }
        }
    }

    /// Records the jobs that the store still has at the end.
    pub(super) async fn finals(&self) {
        let jobs = self.tape().jobs();
        for job_id in jobs {
            if let Some(state) = self.state(job_id).await {
                self.tape().add(Event::Final { job_id, state });
            }
        }
        self.tape().add(Event::FinalEnd {});
    }

    async fn state(&self, id: JobId) -> Option<JobState> {
        self.store.job(id).await.ok().flatten().map(|view: JobView| view.state)
    }
}

fn without_rate(limit: &mut Limit) {
    (limit.rate, limit.burst) = (None, None);
}

fn entity(turn: &Turn) -> Entity {
    (turn.queue.to_string(), turn.key.as_deref().map(str::to_owned))
}

fn fates(
    turn: &Turn,
    settlement: &Settlement,
    settled: &Settled,
    aliases: &[(JobId, JobId)],
) -> Vec<JobFate> {
    let cancelled = match settled {
        Settled::Ok { cancelled, .. } => cancelled.as_slice(),
        _ => &[],
    };
    let fate = |id: JobId| match cancelled.contains(&id) {
        true => seriatim::store::Fate::Cancel,
        false => settlement.fate_of(id),
    };
    let own = turn.jobs.iter().map(|job| JobFate { job_id: job.id, fate: fate(job.id) });
    let holds = |id: &JobId| turn.jobs.iter().any(|job| job.id == *id);
    let others = aliases.iter().filter(|(_, job)| holds(job));
    own.chain(others.map(|(id, job)| JobFate { job_id: *id, fate: fate(*job) })).collect()
}
