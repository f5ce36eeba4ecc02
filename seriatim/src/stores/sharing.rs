//! How a claim shares its places out among the groups of a queue: each gives as many lanes as its weight, then the next
//! one. The round goes on where the last claim ended, so a group waits for one turn of each other group at most.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::model::limits::WEIGHT_MAX;
use crate::model::{Limit, Queue, Result, Share, Spent, Timestamp, Usage, group_number};

/// Most groups that one claim visits; the next claim goes on behind them.
pub(in crate::stores) const VISITS_MAX: usize = 10_000;

/// The pause after a claim that visited the most groups and found nothing.
const REST: Duration = Duration::from_secs(1);

/// Claims that may be under way at once where [`Beside`] allows it.
#[cfg(feature = "postgres")]
pub(in crate::stores) const DOORS: u32 = 4;

/// How claims of a queue whose only limit is one of running turns go side by side: by [`DOORS`]. Each takes a door, counts what
/// runs, and keeps the door until it is committed. Others wait until all doors are closed.
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug)]
pub(in crate::stores) struct Beside {
    /// Most lanes of such a claim.
    pub most: u32,
}

#[cfg(feature = "postgres")]
impl Beside {
    /// `None`: the claims of the queue follow one another.
    pub(in crate::stores) fn of(queue: &Queue) -> Option<Self> {
        let limit = queue.limit.running?;
        let only = queue.groups.is_none() && queue.limit.rate.is_none();
        only.then_some(Self { most: limit / (2 * DOORS) })
    }

    /// Whether a claim of so many lanes that has a door may take them. What it counted misses no more than the claims that had
    /// the other doors then, so there is room for it and for them. Claims that count later miss this one only while it has
    /// its door, and leave room for it likewise. In the store it is a part of `sql/share.sql`.
    #[cfg(test)]
    pub(in crate::stores) fn has_room(self, limit: u32, running: u32, lanes: u32) -> bool {
        let others = (DOORS - 1) * self.most;
        lanes <= self.most && running.saturating_add(others + lanes) <= limit
    }
}

/// Where the round of a queue's groups is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Round {
    /// The first group to look for.
    pub from: u64,
    /// How many lanes this one has given in its turn.
    pub given: u32,
}

/// What the groups of a queue get, by number.
pub(in crate::stores) struct Shares {
    pub each: Share,
    pub named: HashMap<u64, Share>,
}

impl Shares {
    pub(in crate::stores) fn of_queue(queue: &Queue) -> Self {
        let Some(groups) = &queue.groups else {
            // Its lanes are one group, beside those that are left from a time when it had some: these get turns too.
            let each = Share { weight: Some(WEIGHT_MAX), ..Share::default() };
            return Self { each, named: HashMap::new() };
        };
        let named = groups.named.keys();
        let named = named.map(|name| (group_number(Some(name)), groups.share(Some(name))));
        Self { each: groups.each, named: named.collect() }
    }

    /// What a group gets that is not named.
    #[cfg(feature = "postgres")]
    pub(in crate::stores) fn each(&self) -> Share {
        self.each
    }

    /// The groups that get something of their own.
    #[cfg(feature = "postgres")]
    pub(in crate::stores) fn named(&self) -> impl Iterator<Item = (u64, Share)> {
        self.named.iter().map(|(group, share)| (*group, *share))
    }

    /// The groups of which no more turns may run than some number; if empty, all. None: no group has such a limit.
    #[cfg(feature = "postgres")]
    pub(in crate::stores) fn counted(&self) -> Option<Vec<u64>> {
        let has = |share: &Share| share.limit.running.is_some();
        if has(&self.each) {
            return Some(Vec::new());
        }
        let named = self.named.iter().filter(|(_, share)| has(share));
        let counted: Vec<u64> = named.map(|(group, _)| *group).collect();
        (!counted.is_empty()).then_some(counted)
    }

    /// Whether any group has a limit.
    #[cfg(feature = "sqlite")]
    pub(in crate::stores) fn any_limit(&self) -> bool {
        self.each.limit.is_set() || self.named.values().any(|share| share.limit.is_set())
    }

    pub(in crate::stores) fn of(&self, group: u64) -> Share {
        self.named.get(&group).copied().unwrap_or(self.each)
    }
}

/// The ready lanes of a queue, by group, as a claim sees them.
pub(in crate::stores) trait Ready {
    /// The first group from this number on that has ready lanes, and its settings.
    fn group_from(&mut self, from: u64) -> Result<Option<u64>>;
    /// What a group gets.
    fn share(&self, group: u64) -> Share;
    /// What a group uses of its limit. Asked only for groups with a limit.
    fn usage(&mut self, group: u64) -> Result<Usage>;
    /// Notes what a group uses now.
    fn used(&mut self, group: u64, usage: Usage) -> Result<()>;
    /// Whether the group has a ready lane that the caller may take. Asked only for groups whose rate is spent.
    fn is_ready(&mut self, group: u64) -> Result<bool>;
    /// Claims the first lanes of a group, at most `most`. Returns how many.
    fn take(&mut self, group: u64, most: usize) -> Result<usize>;
    /// Whether nothing else may be claimed, whatever is ready.
    fn is_full(&self) -> bool;
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Shared {
    /// It has as many lanes as it may take, or has looked at enough groups: more may be ready.
    Full,
    /// Nothing more can be claimed now. What a rate holds back may start then.
    Empty(Option<Timestamp>),
}

impl Shared {
    /// When a claim may next find something: now if the caller may take `any` lane that is left.
    pub(in crate::stores) fn next_due(
        self,
        any: bool,
        now: Timestamp,
        wake: Option<Timestamp>,
    ) -> Option<Timestamp> {
        match self {
            _ if any => Some(now),
            Self::Full => wake,
            Self::Empty(soonest) => soonest.into_iter().chain(wake).min(),
        }
    }
}

/// Claims at most `most` lanes of a queue with groups or a limit.
pub(in crate::stores) fn share_out(
    ready: &mut impl Ready,
    (queue, whole): (&Queue, &mut Usage),
    round: &mut Round,
    most: usize,
    now: Timestamp,
) -> Result<Shared> {
    let (mut left, mut soonest, mut nothing_since, mut giver) = (most, None, None, None);
    // Groups at their limits, which stay there during this claim.
    let mut spent_groups = HashSet::new();
    for _ in 0..VISITS_MAX {
        if left == 0 || ready.is_full() {
            return Ok(Shared::Full);
        }
        let free = match whole.free(&queue.limit, now) {
            Ok(free) => free,
            Err(spent) => return Ok(Shared::Empty(earlier(soonest, spent))),
        };
        let next = match ready.group_from(round.from)? {
            None if round.from > 0 => ready.group_from(0)?,
            next => next,
        };
        let Some(group) = next.filter(|group| nothing_since != Some(*group)) else {
            return Ok(Shared::Empty(soonest));
        };
        if group != round.from {
            *round = Round { from: group, given: 0 };
        }
        let share = ready.share(group);
        let weight = share.weight.unwrap_or(1);
        if round.given >= weight {
            // It was reduced.
            *round = Round { from: group + 1, given: 0 };
            continue;
        }
        // If none of the others gave anything since its last visit, they have nothing in this claim: it takes all its turns
        // at once.
        let turn = if giver == Some(group) { left } else { (weight - round.given) as usize };
        let most = left.min(free).min(turn);
        let given = match spent_groups.contains(&group) {
            true => 0,
            false => give(ready, (group, &share.limit), most, now)?.unwrap_or_else(|spent| {
                soonest = earlier(soonest, spent);
                spent_groups.insert(group);
                0
            }),
        };
        if given > 0 {
            whole.start(&queue.limit, now, given);
            (left, nothing_since, giver) = (left - given, None, Some(group));
            round.given = (round.given + given as u32 - 1) % weight + 1;
        } else {
            nothing_since = nothing_since.or(Some(group));
        }
        if given < most || round.given >= weight || given == 0 {
            *round = Round { from: group + 1, given: 0 };
        }
    }
    Ok(match left < most {
        true => Shared::Full,
        // None of these groups may give a lane: the next claim continues behind them, after a pause.
        false => Shared::Empty(earlier(soonest, Spent::Until(now + REST))),
    })
}

/// Claims lanes of one group within its limit.
fn give(
    ready: &mut impl Ready,
    (group, limit): (u64, &Limit),
    most: usize,
    now: Timestamp,
) -> Result<std::result::Result<usize, Spent>> {
    if !limit.is_set() {
        return ready.take(group, most).map(Ok);
    }
    let mut usage = ready.usage(group)?;
    let free = match usage.free(limit, now) {
        Ok(free) => free,
        Err(Spent::Until(_)) if !ready.is_ready(group)? => return Ok(Ok(0)),
        Err(spent) => return Ok(Err(spent)),
    };
    let given = ready.take(group, most.min(free))?;
    usage.start(limit, now, given);
    ready.used(group, usage)?;
    Ok(Ok(given))
}

fn earlier(soonest: Option<Timestamp>, spent: Spent) -> Option<Timestamp> {
    match spent {
        Spent::Running => soonest,
        Spent::Until(time) => Some(soonest.map_or(time, |soonest| soonest.min(time))),
    }
}

#[cfg(test)]
mod tests;
