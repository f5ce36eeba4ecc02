//! Claims of queues with groups or limits, and what groups use of their limits.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use rusqlite::params;

use super::claim::{Candidate, FIRST, Taken};
use super::tx::{QueueRow, Tx};
use crate::contract::{Claim, Claimed, Settled};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{Result, Settlement, Share, Timestamp, Usage};
use crate::stores::room::Room;
use crate::stores::route::{first_class, group_of_class};
use crate::stores::sharing::{Ready, Round, Shared, Shares, share_out};

/// In the table `share`, the row of a whole queue.
const WHOLE: i64 = -1;

/// The ready lanes of a queue during a claim.
struct Look<'a, 'c> {
    tx: &'a mut Tx<'c>,
    queue: &'a QueueRow,
    request: &'a Claim,
    shares: Shares,
    room: Room,
    crashed_left: usize,
    /// Whether lanes were left because of their crashes.
    leaves_crashed: bool,
    groups: HashMap<u64, Vec<Class>>,
    taken: Vec<Taken>,
}

/// The ready lanes of a class that were read.
struct Class {
    number: i64,
    lanes: VecDeque<Candidate>,
    /// The place of the last one that was read.
    last: (i64, i64, i64),
    /// Whether there are no others.
    is_all: bool,
    /// How many to read next: more each time that the group has a turn in this claim.
    most: usize,
}

impl Class {
    /// Makes sure that its first lane is known, if there is one.
    fn look(&mut self, tx: &Tx<'_>, queue: u32) -> Result<Option<&Candidate>> {
        if self.lanes.is_empty() && !self.is_all {
            // One more shows whether others are left.
            let found = tx.ready_of(queue, self.number, self.most + 1, self.last)?;
            self.is_all = found.len() <= self.most;
            self.most = (self.most * 2).min(CLAIM_LANES_MAX);
            self.last = found.last().map_or(self.last, Candidate::place);
            self.lanes.extend(found);
        }
        Ok(self.lanes.front())
    }
}

impl Look<'_, '_> {
    /// The classes of a group that the caller may take.
    fn classes(&mut self, group: u64, most: usize) -> Result<()> {
        if !self.groups.contains_key(&group) {
            let numbers = self.tx.classes(self.queue.number, group, self.request)?;
            let class =
                |number| Class { number, lanes: VecDeque::new(), last: FIRST, is_all: false, most };
            self.groups.insert(group, numbers.into_iter().map(class).collect());
        }
        Ok(())
    }

    /// The class of a group whose first lane comes first.
    fn best_class(&mut self, group: u64, most: usize) -> Result<Option<usize>> {
        self.classes(group, most)?;
        let (mut best, mut leaves_crashed) = (None, false);
        for (i, class) in self.groups.get_mut(&group).into_iter().flatten().enumerate() {
            let is_crashed = class.number % 2 == 1;
            let Some(lane) = class.look(self.tx, self.queue.number)? else { continue };
            if is_crashed && self.crashed_left == 0 {
                leaves_crashed = true;
            } else if best.is_none_or(|(place, _)| lane.place() < place) {
                best = Some((lane.place(), i));
            }
        }
        self.leaves_crashed |= best.is_none() && leaves_crashed;
        Ok(best.map(|(_, i)| i))
    }

    /// Takes a class out of `ready` that has given all its lanes, so that nobody looks there again.
    fn clear(&mut self, class: i64) -> Result<()> {
        let sql = "DELETE FROM ready WHERE q = ?1 AND class = ?2";
        self.tx.execute(sql, params![self.queue.number, class]).map(drop)
    }
}

impl Ready for Look<'_, '_> {
    fn group_from(&mut self, from: u64) -> Result<Option<u64>> {
        let sql = "SELECT class FROM ready WHERE q = ?1 AND class >= ?2 ORDER BY class LIMIT 1";
        let values = params![self.queue.number, first_class(from) as i64];
        let class: Option<i64> = self.tx.first(sql, values, |row| row.get(0))?;
        Ok(class.map(|class| group_of_class(class as u64)))
    }

    fn share(&self, group: u64) -> Share {
        self.shares.of(group)
    }

    fn usage(&mut self, group: u64) -> Result<Usage> {
        self.tx.usage(self.queue.number, group as i64)
    }

    fn used(&mut self, group: u64, usage: Usage) -> Result<()> {
        let sql = "INSERT INTO share (q, grp, running, paced) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET running = ?3, paced = ?4";
        let values = params![self.queue.number, group as i64, usage.running, usage.paced];
        self.tx.execute(sql, values).map(drop)
    }

    fn is_ready(&mut self, group: u64) -> Result<bool> {
        self.classes(group, 1)?;
        for class in self.groups.get_mut(&group).into_iter().flatten() {
            if class.look(self.tx, self.queue.number)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take(&mut self, group: u64, most: usize) -> Result<usize> {
        let before = self.taken.len();
        while self.taken.len() < before + most {
            let Some(best) = self.best_class(group, most)? else { break };
            let Some(class) = self.groups.get_mut(&group).and_then(|of| of.get_mut(best)) else {
                break;
            };
            let Some(lane) = class.lanes.pop_front() else { break };
            let is_empty = class.look(self.tx, self.queue.number)?.is_none();
            let number = class.number;
            let chosen = self.tx.choose(self.queue, self.request, lane, &mut self.room)?;
            let Some(taken) = chosen else { break };
            self.taken.push(taken);
            self.crashed_left -= usize::from(number % 2 == 1);
            if is_empty {
                self.clear(number)?;
            }
        }
        Ok(self.taken.len() - before)
    }

    fn is_full(&self) -> bool {
        self.room.is_full
    }
}

impl Tx<'_> {
    /// Whether claims of a queue follow [`share_out`]: by its definition, or because jobs have groups from a time when it
    /// had some.
    pub(super) fn is_shared_out(&self, queue: &QueueRow) -> Result<bool> {
        if queue.queue.is_shared_out() {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM ready WHERE q = ?1 AND class >= ?2 LIMIT 1";
        let values = params![queue.number, first_class(1) as i64];
        Ok(self.first(sql, values, |_| Ok(()))?.is_some())
    }

    pub(super) fn claim_in_rounds(&mut self, queue: &QueueRow, request: &Claim) -> Result<Claimed> {
        let number = queue.number;
        let (mut whole, mut round) = (self.usage(number, WHOLE)?, self.round(number)?);
        whole.running = self.running(number)?;
        let now = Timestamp::from_micros(self.now);
        let mut look = Look {
            queue,
            request,
            shares: Shares::of_queue(&queue.queue),
            room: Room::of(request),
            crashed_left: request.crashed_max,
            leaves_crashed: false,
            groups: HashMap::new(),
            taken: Vec::new(),
            tx: self,
        };
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let shared = share_out(&mut look, (&queue.queue, &mut whole), &mut round, most, now)?;
        let Look { taken, room, leaves_crashed, .. } = look;
        self.keep_round(number, whole, round)?;
        let turns = self.close_lanes(queue, request, taken)?;
        self.delta(number).running += turns.len() as i64;
        let any = leaves_crashed || shared == Shared::Full && self.any_left(number, request)?;
        let wake = self.first_wake(number)?.map(Timestamp::from_micros);
        let next_due = shared.next_due(any, now, wake);
        Ok(Claimed { turns, next_due, cut: room.is_full, unanswered: false })
    }

    /// Whether the caller may take any ready lane of a queue, whatever the limits.
    fn any_left(&mut self, queue: u32, request: &Claim) -> Result<bool> {
        let sql = "SELECT class FROM ready WHERE q = ?1 AND class > ?2 ORDER BY class LIMIT 1";
        let mut last = -1;
        while let Some(class) = self.first(sql, params![queue, last], |row| row.get::<_, i64>(0))? {
            if self.may_take(class / 2, request)? {
                return Ok(true);
            }
            last = class;
        }
        Ok(false)
    }

    /// What a group, or a whole queue, uses of its limit.
    fn usage(&self, queue: u32, group: i64) -> Result<Usage> {
        let sql = "SELECT running, paced FROM share WHERE q = ?1 AND grp = ?2";
        let read = |row: &rusqlite::Row<'_>| Ok(Usage { running: row.get(0)?, paced: row.get(1)? });
        Ok(self.first(sql, params![queue, group], read)?.unwrap_or_default())
    }

    fn running(&self, queue: u32) -> Result<u32> {
        let sql = "SELECT running FROM queue WHERE number = ?1";
        let stored: i64 = self.first(sql, [queue], |row| row.get(0))?.unwrap_or_default();
        Ok((stored + self.change_of(queue).running).max(0) as u32)
    }

    fn round(&self, queue: u32) -> Result<Round> {
        let sql = "SELECT next, given FROM share WHERE q = ?1 AND grp = ?2";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Round { from: row.get::<_, i64>(0)? as u64, given: row.get(1)? })
        };
        Ok(self.first(sql, params![queue, WHOLE], read)?.unwrap_or_default())
    }

    fn keep_round(&self, queue: u32, whole: Usage, round: Round) -> Result<()> {
        let sql =
            "INSERT INTO share (q, grp, running, paced, next, given) VALUES (?1, ?2, 0, ?3, ?4, ?5)
                   ON CONFLICT DO UPDATE SET paced = ?3, next = ?4, given = ?5
                   WHERE (paced, next, given) IS NOT (?3, ?4, ?5)";
        let values = params![queue, WHOLE, whole.paced, round.from as i64, round.given];
        self.execute(sql, values).map(drop)
    }

    /// Counts the running turns of each group again, after the limits of a queue changed.
    pub(super) fn count_groups(&mut self, queue: &QueueRow) -> Result<()> {
        self.execute("UPDATE share SET running = 0 WHERE q = ?1", [queue.number])?;
        let shares = Shares::of_queue(&queue.queue);
        let sql = "SELECT l.class FROM held h CROSS JOIN lane l ON l.id = h.id WHERE h.q = ?1";
        let mut running: BTreeMap<u64, u32> = BTreeMap::new();
        for class in self.rows(sql, [queue.number], |row| row.get::<_, i64>(0))? {
            *running.entry(group_of_class(class as u64)).or_default() += 1;
        }
        let sql = "INSERT INTO share (q, grp, running) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET running = ?3";
        for (group, running) in running {
            if shares.of(group).limit.is_set() {
                self.execute(sql, params![queue.number, group as i64, running])?;
            }
        }
        Ok(())
    }
}

/// The groups of turns that a settle ends, in queues that limit them.
pub(super) struct Groups(Vec<Option<(u32, i64)>>);

impl Groups {
    /// Looks before anything is settled.
    pub(super) fn of(tx: &mut Tx<'_>, turns: &[Settlement]) -> Result<Self> {
        let mut limited: BTreeMap<u32, Option<Shares>> = BTreeMap::new();
        let mut groups = Vec::new();
        for (place, turn) in turns.iter().enumerate() {
            let shares = match limited.entry(turn.lane.queue) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let queue = tx.queue_number(*unknown.key())?;
                    let shares = queue.map(|queue| Shares::of_queue(&queue.queue));
                    unknown.insert(shares.filter(Shares::any_limit))
                }
            };
            let Some(shares) = shares else { continue };
            let sql = "SELECT class FROM lane WHERE id = ?1";
            let class = tx.first(sql, [turn.lane.number as i64], |row| row.get::<_, i64>(0))?;
            let group = class.map(|class| group_of_class(class as u64));
            groups.resize(turns.len(), None);
            groups[place] = group.filter(|group| shares.of(*group).limit.is_set());
        }
        let numbered = groups.into_iter().zip(turns);
        Ok(Self(numbered.map(|(group, turn)| Some((turn.lane.queue, group? as i64))).collect()))
    }

    /// The turns that have ended run no longer.
    pub(super) fn end(self, tx: &Tx<'_>, settled: &[Settled]) -> Result<()> {
        let mut ended: BTreeMap<(u32, i64), u32> = BTreeMap::new();
        for (group, settled) in self.0.into_iter().zip(settled) {
            if let (Some(group), Settled::Ok { next: None, .. }) = (group, settled) {
                *ended.entry(group).or_default() += 1;
            }
        }
        let sql = "UPDATE share SET running = max(running - ?3, 0) WHERE q = ?1 AND grp = ?2";
        for ((queue, group), turns) in ended {
            tx.execute(sql, params![queue, group, turns])?;
        }
        Ok(())
    }
}
