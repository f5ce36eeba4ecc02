//! The cron entries of all nodes of a store: which nodes have which, who paused one, and how the last tick ended.

mod notes;

use std::collections::BTreeMap;

use super::{NodeView, Push, Store};
use crate::cron::Cron;
use crate::model::limits::{NAME_BYTES_MAX, NOTE_BYTES_MAX};
use crate::model::names::did_you_mean;
use crate::model::{Error, ErrorKind, Job, JobId, NodeId, Result, RunAt, Timestamp, validate_text};
use notes::{Held, Known};
pub(crate) use notes::{is_paused, register, ticked, tidy};

/// A cron entry, as the nodes of a store have it.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// The definitions that live nodes have under this name; several, if they differ. If no node has it, the last
    /// one.
    pub definitions: Vec<ScheduleDefinition>,
    /// Who paused it, and why; `None` if it was never paused. See [`SchedulePause::until`].
    pub pause: Option<SchedulePause>,
    /// The last tick that was pushed or refused, or the last run by hand.
    pub last: Option<ScheduleTick>,
}

/// A definition of a cron entry, and the nodes that have it.
#[derive(Clone, Debug)]
pub struct ScheduleDefinition {
    /// The entry, with `null` as the payload of its job.
    pub cron: Cron,
    /// The live nodes that have it.
    pub nodes: Vec<NodeId>,
    mark: String,
}

/// A pause of a cron entry.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SchedulePause {
    /// When it began.
    pub since: Timestamp,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When it ended; `None`: it is paused.
    pub until: Option<Timestamp>,
}

/// A tick of a cron entry, or a run by hand.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ScheduleTick {
    /// When it was due.
    pub at: Timestamp,
    /// Who ran it by hand.
    pub by: Option<String>,
    /// The job that was pushed.
    pub job: Option<JobId>,
    /// Why none was.
    pub error: Option<String>,
}

impl Schedule {
    /// Whether ticks push nothing now.
    pub fn is_paused(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none())
    }
}

/// The cron entries of all nodes, and those that are paused, by name.
pub async fn schedules(store: &dyn Store) -> Result<Vec<Schedule>> {
    let known = notes::read(store).await?;
    let nodes = store.nodes().await?;
    let mut all: BTreeMap<String, Schedule> = BTreeMap::new();
    let Known { definitions, holders, pauses, ticks } = known;
    for (mark, held) in definitions {
        let holds = |node: &&NodeView| {
            let marks = holders.get(&node.info.id);
            !node.dead && marks.is_some_and(|marks| marks.contains(&mark))
        };
        let nodes: Vec<NodeId> =
            nodes.iter().filter(holds).map(|node| node.info.id.clone()).collect();
        let name = held.name.clone();
        match definition(held, nodes, mark) {
            Ok(one) => entry(&mut all, &name).definitions.push(one),
            Err(error) => {
                tracing::warn!(name, %error, "cannot read a cron entry that another node wrote");
            }
        }
    }
    for (name, pause) in pauses {
        entry(&mut all, &name).pause = Some(pause);
    }
    for (name, tick) in ticks {
        entry(&mut all, &name).last = Some(tick);
    }
    for schedule in all.values_mut() {
        let definitions = &mut schedule.definitions;
        if definitions.iter().any(|one| !one.nodes.is_empty()) {
            definitions.retain(|one| !one.nodes.is_empty());
        }
        definitions.sort_by_key(|one| std::cmp::Reverse(one.nodes.len()));
    }
    all.retain(|_, schedule| !schedule.definitions.is_empty() || schedule.is_paused());
    Ok(all.into_values().collect())
}

fn entry<'a>(all: &'a mut BTreeMap<String, Schedule>, name: &str) -> &'a mut Schedule {
    all.entry(name.to_owned()).or_insert_with(|| Schedule {
        name: name.to_owned(),
        definitions: Vec::new(),
        pause: None,
        last: None,
    })
}

fn definition(held: Held, nodes: Vec<NodeId>, mark: String) -> Result<ScheduleDefinition> {
    let Held { name, schedule, zone, missed, job, .. } = held;
    let cron = Cron::new(name, schedule, job.with(b"null".to_vec()))?;
    let cron = cron.time_zone(zone)?.missed(missed);
    Ok(ScheduleDefinition { cron, nodes, mark })
}

/// One cron entry; `NotFound` with the closest name if there is none.
pub async fn schedule(store: &dyn Store, name: &str) -> Result<Schedule> {
    let mut all = schedules(store).await?;
    if let Some(place) = all.iter().position(|one| one.name == name) {
        return Ok(all.swap_remove(place));
    }
    let near = did_you_mean(name, all.iter().map(|one| one.name.as_str()));
    let message = format!("no node has a cron entry {name:?}{near}");
    Err(Error::new(ErrorKind::NotFound, message))
}

/// Pauses a cron entry: no node pushes its ticks until [`resume_schedule`]. A repeat changes nothing.
pub async fn pause_schedule(
    store: &dyn Store,
    name: &str,
    by: &str,
    reason: Option<&str>,
) -> Result<Schedule> {
    if let Some(reason) = reason {
        validate_text("reason", reason, NAME_BYTES_MAX)?;
    }
    let mut schedule = schedule(store, name).await?;
    if !schedule.is_paused() {
        let (by, reason) = (by.to_owned(), reason.map(str::to_owned));
        let pause = SchedulePause { since: store.now().await?, by, reason, until: None };
        store.write_notes(vec![notes::pause(name, &pause)]).await?;
        schedule.pause = Some(pause);
    }
    Ok(schedule)
}

/// Ends the pause of a cron entry. Within a minute, its nodes treat the ticks of that time as missed ([`Missed`](crate::Missed)).
pub async fn resume_schedule(store: &dyn Store, name: &str) -> Result<Schedule> {
    let mut schedule = schedule(store, name).await?;
    if let Some(pause) = schedule.pause.as_mut().filter(|pause| pause.until.is_none()) {
        pause.until = Some(store.now().await?);
        store.write_notes(vec![notes::pause(name, pause)]).await?;
    }
    Ok(schedule)
}

/// The cron entry whose job has this idempotency key: that of a tick, or of [`run_schedule`].
pub fn schedule_of(idempotency_key: &str) -> Option<&str> {
    let (name, tick) = idempotency_key.strip_prefix("cron/")?.rsplit_once('/')?;
    tick.parse::<u64>().ok()?;
    Some(name.strip_suffix("/by-hand").unwrap_or(name))
}

/// Pushes the job of a cron entry now, beside its ticks; also while it is paused.
///
/// - If the jobs of nodes' entries of this name differ, it is `Conflict`; also if its queue refuses the push of a throttled
///   key. Different schedules do not matter.
/// - A payload of more than [`NOTE_BYTES_MAX`](crate::limits::NOTE_BYTES_MAX) bytes is not kept in the store:
///   `Unsupported`.
pub async fn run_schedule(store: &dyn Store, name: &str, by: &str) -> Result<JobId> {
    let mut job = job_of(store, &schedule(store, name).await?).await?;
    let now = store.now().await?;
    job.run_at = RunAt::Now;
    job.options.idempotency_key = Some(Cron::by_hand(name, now));
    let key = job.key.clone();
    let pushed = store.push(Push { now: None, jobs: vec![job] }).await?;
    let unanswered = || Error::new(ErrorKind::Internal, "the store answered for no job");
    let job = pushed.first().ok_or_else(unanswered)?.taken(key.as_deref())?;
    let tick = ScheduleTick { at: now, by: Some(by.to_owned()), job: Some(job), error: None };
    store.write_notes(vec![notes::tick(name, &tick)]).await?;
    Ok(job)
}

/// The job of a cron entry; refused if nodes have different ones.
async fn job_of(store: &dyn Store, schedule: &Schedule) -> Result<Job> {
    let undecided = || Error::new(ErrorKind::Conflict, undecided(schedule));
    let (first, others) = schedule.definitions.split_first().ok_or_else(undecided)?;
    let job = notes::job(store, &first.mark).await?;
    for other in others {
        if notes::job(store, &other.mark).await? != job {
            return Err(undecided());
        }
    }
    job.ok_or_else(|| {
        let message = format!(
            "the payload of cron entry {:?} is longer than {NOTE_BYTES_MAX} bytes, so only its nodes know it: push the job yourself",
            schedule.name
        );
        Error::new(ErrorKind::Unsupported, message)
    })
}

fn undecided(schedule: &Schedule) -> String {
    let name = &schedule.name;
    if schedule.definitions.is_empty() {
        return format!("no node has the cron entry {name:?} any more");
    }
    let whose = |one: &ScheduleDefinition| {
        let nodes: Vec<&str> = one.nodes.iter().map(|node| &*node.0).collect();
        format!("{} of {}", one.cron, nodes.join(", "))
    };
    let all: Vec<String> = schedule.definitions.iter().map(whose).collect();
    format!("the job of cron entry {name:?} differs between nodes: {}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Fleet, Heartbeat, NodeInfo, Notebook, Producer, Views};
    use crate::model::Payload;
    use crate::stores::Memory;

    fn nightly(payload: &str) -> Cron {
        let job = Job::with_payload("reports", Payload::from_json_text(payload).unwrap());
        Cron::new("nightly ü", "0 3 * * *", job.priority(7)).unwrap()
    }

    async fn node(store: &Memory, name: &str, cron: &Cron) -> NodeId {
        let id = NodeId::from(name);
        let info = NodeInfo::new(id.clone(), std::time::Duration::from_secs(60));
        let beat = Heartbeat { now: None, node: info, beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        register(store, &id, &[(cron, cron.job().clone())]).await.unwrap();
        id
    }

    #[tokio::test]
    async fn a_schedule_names_its_nodes_and_what_they_have_different() {
        let store = Memory::new();
        let (a, b) =
            (node(&store, "a", &nightly("1")).await, node(&store, "b", &nightly("1")).await);
        let all = schedules(&store).await.unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].definitions[0].nodes, [a, b.clone()]);
        // A payload is a part of the entry.
        node(&store, "c", &nightly("2")).await;
        let one = schedule(&store, "nightly ü").await.unwrap();
        assert_eq!(one.definitions.iter().map(|one| one.nodes.len()).collect::<Vec<_>>(), [2, 1]);
        let refused = run_schedule(&store, "nightly ü", "ops").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let unknown = schedule(&store, "nightly u").await.unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"nightly ü\"?"), "{unknown}");
        // Another file, after a restart.
        node(&store, "c", &nightly("1")).await;
        assert_eq!(schedule(&store, "nightly ü").await.unwrap().definitions.len(), 1);
    }

    #[tokio::test]
    async fn a_run_by_hand_pushes_the_job_with_all_that_it_has_also_while_paused() {
        let store = Memory::new();
        node(&store, "a", &nightly("{\"days\":1.50}")).await;
        pause_schedule(&store, "nightly ü", "ops", Some("deploy")).await.unwrap();
        let again = pause_schedule(&store, "nightly ü", "dev", None).await.unwrap();
        assert_eq!(again.pause.as_ref().unwrap().by, "ops");
        let id = run_schedule(&store, "nightly ü", "ops").await.unwrap();
        let job = store.job(id).await.unwrap().unwrap();
        assert_eq!((job.payload.as_bytes(), job.priority), (&b"{\"days\":1.50}"[..], 7));
        let resumed = resume_schedule(&store, "nightly ü").await.unwrap();
        assert!(!resumed.is_paused());
        let last = resumed.last.unwrap();
        assert_eq!((last.job, last.by.as_deref()), (Some(id), Some("ops")));
    }

    #[tokio::test]
    async fn a_run_by_hand_needs_one_job_and_not_one_schedule() {
        let store = Memory::new();
        node(&store, "a", &nightly("1")).await;
        let later = Cron::new("nightly ü", "0 4 * * *", nightly("1").job().clone()).unwrap();
        node(&store, "b", &later).await;
        assert_eq!(schedule(&store, "nightly ü").await.unwrap().definitions.len(), 2);
        let id = run_schedule(&store, "nightly ü", "ops").await.unwrap();
        let job = store.job(id).await.unwrap().unwrap();
        assert_eq!((job.payload.as_bytes(), job.priority), (&b"1"[..], 7));
        node(&store, "b", &nightly("2")).await;
        let refused = run_schedule(&store, "nightly ü", "ops").await.unwrap_err();
        assert!(refused.to_string().contains("the job of cron entry"), "{refused}");
    }

    #[tokio::test]
    async fn what_nodes_that_are_forgotten_had_is_forgotten_but_a_pause_is_kept() {
        let store = Memory::new();
        let id = NodeId::from("gone");
        let cron = nightly("1");
        register(&store, &id, &[(&cron, cron.job().clone())]).await.unwrap();
        pause_schedule(&store, "nightly ü", "ops", None).await.unwrap();
        assert!(schedule(&store, "nightly ü").await.unwrap().definitions[0].nodes.is_empty());
        tidy(&store).await.unwrap();
        let kept = schedules(&store).await.unwrap();
        assert!(kept[0].is_paused() && kept[0].definitions.is_empty());
        resume_schedule(&store, "nightly ü").await.unwrap();
        tidy(&store).await.unwrap();
        assert!(store.read_notes(super::super::NoteQuery::of("cron/")).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_payload_that_is_too_long_for_a_note_is_run_by_the_clock_alone() {
        let store = Memory::new();
        let long = format!("\"{}\"", "x".repeat(crate::model::limits::NOTE_BYTES_MAX));
        node(&store, "a", &nightly(&long)).await;
        let refused = run_schedule(&store, "nightly ü", "ops").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        let none = store.push(Push::default()).await.unwrap();
        assert!(none.is_empty());
    }
}
