//! The limits of queues and groups: what of them is used, and changes of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use seriatim::store::{Declare, JobQuery, JobState, LaneId, Store};
use seriatim::{ErrorKind, Groups, Limit, Queue, Rate};

use super::error::Result;
use super::figures::Figures;
use super::find;
use crate::base::text::{count, one_line};

/// Jobs of running turns that are read to count the turns of each group; if more run, a count is too low.
const JOBS_READ_MAX: usize = 1_000;

/// A group of a queue, or the jobs without one.
pub(crate) type Group = Option<String>;

/// How many turns run, as far as limits ask for it.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    turns: u64,
    groups: BTreeMap<Group, u64>,
}

/// For lanes that do not wait for a limit.
pub(crate) static UNKNOWN: Usage = Usage { turns: 0, groups: BTreeMap::new() };

impl Usage {
    /// The usage of a queue with this many claimed lanes, without its groups.
    pub(crate) fn of_turns(turns: u64) -> Self {
        Self { turns, groups: BTreeMap::new() }
    }

    /// That of a queue, without its groups.
    pub(crate) async fn of_queue(store: &dyn Store, queue: &Queue) -> seriatim::Result<Self> {
        match queue.limit.running {
            Some(_) => Ok(Self::of_turns(Figures::one(store, &queue.name).await?.stats.claimed)),
            None => Ok(Self::default()),
        }
    }

    /// That of a queue and its groups.
    pub(crate) async fn read(store: &dyn Store, queue: &Queue) -> seriatim::Result<Self> {
        let groups = match limits_groups(queue) {
            true => by_group(store, &queue.name).await?,
            false => BTreeMap::new(),
        };
        Ok(Self { groups, ..Self::of_queue(store, queue).await? })
    }

    /// How many turns of the queue run.
    pub(crate) fn of_all(&self) -> u64 {
        self.turns
    }

    /// How many turns of a group run.
    pub(crate) fn of_group(&self, group: Option<&str>) -> u64 {
        let of = |(known, _): &(&Group, &u64)| known.as_deref() == group;
        self.groups.iter().find(of).map_or(0, |(_, turns)| *turns)
    }

    /// Which limit of turns at once lets no lane start, in words. `group` is that of the lane, if it is known.
    pub(crate) fn reached(&self, queue: &Queue, group: Option<&Group>) -> Option<String> {
        let told = |limit: &Limit, turns, whose: &str| {
            let most = limit.running.filter(|most| turns >= u64::from(*most))?;
            let run = if turns == 1 { "runs" } else { "run" };
            Some(format!("{} of {whose} {run}, and at most {most} may", count(turns, "turn")))
        };
        told(&queue.limit, self.turns, "the queue").or_else(|| {
            let (group, groups) = (group?.as_deref(), queue.groups.as_ref()?);
            told(&groups.share(group).limit, self.of_group(group), &named(group))
        })
    }

    /// The groups of which no more turns may run.
    pub(crate) fn full_groups(&self, queue: &Queue) -> Vec<String> {
        let Some(groups) = &queue.groups else { return Vec::new() };
        let is_full = |(group, turns): &(&Group, &u64)| {
            let most = groups.share(group.as_deref()).limit.running;
            most.is_some_and(|most| **turns >= u64::from(most))
        };
        self.groups.iter().filter(is_full).map(|(group, _)| named(group.as_deref())).collect()
    }
}

/// What else may hold a ready lane back, in words: a rate, and the turns of other groups.
pub(crate) fn others(queue: &Queue, group: Option<&Group>) -> Vec<String> {
    let share = queue.groups.as_ref().zip(group).map(|(all, group)| all.share(group.as_deref()));
    let whose = group.map(|group| named(group.as_deref())).unwrap_or_default();
    let rate = |limit: &Limit, whose: &str| {
        limit.rate.map(|rate| format!("{whose} starts at most {rate}"))
    };
    let mut others = Vec::new();
    others.extend(rate(&queue.limit, "the queue"));
    others.extend(share.and_then(|share| rate(&share.limit, &whose)));
    if share.is_some() {
        others.push(format!("{whose} takes turns with others"));
    }
    others
}

/// Whether any group has a limit of running turns.
fn limits_groups(queue: &Queue) -> bool {
    queue.groups.as_ref().is_some_and(|groups| {
        let mut all = groups.named.values().chain([&groups.each]);
        all.any(|share| share.limit.running.is_some())
    })
}

/// The turns that run, by group.
async fn by_group(store: &dyn Store, queue: &str) -> seriatim::Result<BTreeMap<Group, u64>> {
    let all = JobQuery::new(queue, JobState::Running);
    let query = JobQuery { rows_max: JOBS_READ_MAX, payload_bytes_max: Some(0), ..all };
    let mut lanes: BTreeMap<Group, BTreeSet<LaneId>> = BTreeMap::new();
    for job in store.jobs(query).await?.rows {
        let group = job.options.and_then(|options| options.group.clone());
        lanes.entry(group).or_default().extend(job.lane);
    }
    Ok(lanes.into_iter().map(|(group, lanes)| (group, lanes.len() as u64)).collect())
}

/// A group in words.
pub(crate) fn named(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("group {}", one_line(group)),
        None => "the group without a name".to_owned(),
    }
}

/// Whose limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Queue,
    EachGroup,
    Group(String),
}

/// A change of a limit: what is unset stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amended {
    pub(crate) running: Option<u32>,
    pub(crate) rate: Option<Rate>,
    pub(crate) burst: Option<u32>,
    /// Not of the queue
    pub(crate) weight: Option<u32>,
}

impl Amended {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Changes it; a queue without groups gets them.
    pub(crate) fn apply(&self, queue: &mut Queue, whose: &Whose) {
        let share = match whose {
            Whose::Queue => return self.set(&mut queue.limit),
            Whose::EachGroup => &mut queue.groups.get_or_insert_default().each,
            Whose::Group(name) => {
                let groups = queue.groups.get_or_insert_default();
                groups.named.entry(name.clone()).or_default()
            }
        };
        share.weight = self.weight.or(share.weight);
        self.set(&mut share.limit);
    }

    fn set(&self, limit: &mut Limit) {
        let mut change = Limit::default();
        (change.running, change.rate, change.burst) = (self.running, self.rate, self.burst);
        *limit = change.over(*limit);
    }
}

/// The limits of a queue and its groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    #[serde(skip_serializing_if = "is_unset")]
    limit: Limit,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes it so.
fn is_unset(limit: &Limit) -> bool {
    *limit == Limit::default()
}

impl Limits {
    pub(crate) fn of(queue: &Queue) -> Self {
        Self { limit: queue.limit, groups: queue.groups.clone() }
    }

    pub(crate) fn give(self, queue: &mut Queue) {
        (queue.limit, queue.groups) = (self.limit, self.groups);
    }

    pub(crate) fn text(&self) -> String {
        // Numbers and texts only: writing them cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

/// Removes a limit: that of the queue, all groups, or what one group has of its own.
pub(crate) fn remove(queue: &mut Queue, whose: &Whose) -> seriatim::Result<()> {
    match whose {
        Whose::Queue => queue.limit = Limit::default(),
        Whose::EachGroup => queue.groups = None,
        Whose::Group(name) => {
            let named = queue.groups.as_mut().and_then(|groups| groups.named.remove(name));
            let missing = || {
                let message = format!("{name:?} has no limit of its own");
                seriatim::Error::invalid("group", message)
            };
            named.map(drop).ok_or_else(missing)?;
        }
    }
    Ok(())
}

/// Changes the limits or groups of a queue, and leaves its other settings. Refuses a queue that only a push made.
pub(crate) async fn change(
    store: &dyn Store,
    name: &str,
    change: impl FnOnce(&mut Queue) -> seriatim::Result<()>,
) -> Result<Queue> {
    let view = find::queue(store, name).await?;
    if !view.declared {
        // This would declare it with a mode that was never chosen.
        let message = format!(
            "a push made queue {name:?}: define it first, with its mode, in the configuration or with PUT /api/v1/queues/{name}"
        );
        return Err(seriatim::Error::new(ErrorKind::Conflict, message).into());
    }
    let mut queue = view.queue;
    change(&mut queue)?;
    queue.validate()?;
    let queues = vec![queue.clone()];
    store.declare(Declare { now: None, queues }).await?;
    Ok(queue)
}
