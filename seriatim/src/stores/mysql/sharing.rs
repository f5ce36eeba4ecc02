//! Claims of queues with groups or limits.
//!
//! Lanes are chosen among those that were read without locks, which reads more until enough is known. Then the chosen
//! ones are locked, and it is decided again about these. How many turns of a group run is counted among the claimed
//! lanes, whose class says their group: so nothing has to be given back.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::bodies::Bodies;
use super::due::{first_wakes, is_due, wake_of};
use super::error::Try;
use super::load::Need;
use super::promote::promote;
use super::remembered::Mine;
use super::sql::{Columns, list};
use super::tokens::{draw_token, note_time_of_claim};
use super::work::{Work, by_id};
use crate::contract::{Claim, Claimed};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{Queue, Result, Share, Timestamp, Turn, Usage};
use crate::stores::room::Room;
use crate::stores::route::{first_class, group_of_class, last_class};
use crate::stores::sharing::{Ready, Round, Shared, Shares, share_out};
use crate::stores::state::State;

/// In the table `seriatim_share`, the row of a whole queue.
const WHOLE: i64 = -1;
/// Classes of ready lanes that are looked for at once, at most.
const CLASSES_MAX: usize = 50;
/// The same in the first look, since most queues have few, and to see whether any lane is left. Each further look of a claim
/// doubles it.
const LOOK: usize = 4;

/// Where a ready lane is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    prio: i64,
    due: i64,
    id: u64,
}

/// The ready lanes of a class that were read.
#[derive(Default)]
struct Class {
    spots: Vec<Spot>,
    /// Whether there are no others.
    is_all: bool,
    /// Whether the caller may take them. Of others none is read.
    is_mine: bool,
}

/// What must be read before lanes can be chosen.
#[derive(Clone, Copy)]
enum Missing {
    /// The classes from this one on.
    Classes(u64),
    /// More lanes of this class.
    Lanes(u64),
}

/// What was read of the ready lanes of a queue.
struct Seen {
    queue: u32,
    shares: Shares,
    most: usize,
    classes: BTreeMap<u64, Class>,
    /// Which classes were looked for: from the first to before the second.
    ranges: BTreeMap<u64, u64>,
    usages: HashMap<u64, Usage>,
}

impl Seen {
    /// Up to which class all are known, from this one on.
    fn known_to(&self, class: u64) -> u64 {
        let mut to = class;
        while let Some((_, end)) =
            self.ranges.range(..=to).next_back().filter(|(_, end)| **end > to)
        {
            to = *end;
        }
        to
    }

    async fn read(&mut self, work: &mut Work<'_>, request: &Claim, missing: Missing) -> Try<()> {
        match missing {
            Missing::Classes(from) => self.read_classes(work, request, from).await,
            Missing::Lanes(class) => {
                let known = self.classes.get(&class).map_or(0, |class| class.spots.len());
                self.read_lanes(work, &[class], (known * 2).max(self.most)).await
            }
        }
    }

    /// Reads the next classes, and the first lanes of each.
    async fn read_classes(&mut self, work: &mut Work<'_>, request: &Claim, from: u64) -> Try<()> {
        let steps = (2 * self.most + 2).min(LOOK << self.ranges.len().min(8)).min(CLASSES_MAX);
        let found = classes_from(work, self.queue, from, steps).await?;
        let end = found.get(steps - 1).map_or(u64::MAX, |last| last + 1);
        self.ranges.insert(from, end);
        let is_mine = |class: &u64| work.state.may_take(class / 2, request);
        let mine: Vec<u64> = found.iter().copied().filter(is_mine).collect();
        for class in found {
            let is_mine = mine.contains(&class);
            self.classes.insert(class, Class { is_mine, ..Class::default() });
        }
        if mine.is_empty() {
            return Ok(());
        }
        // One more shows whether others are left.
        let each = (2 * self.most).div_ceil(mine.len()).clamp(1, self.most + 1);
        self.read_usages(work, &mine).await?;
        self.read_lanes(work, &mine, each).await
    }

    /// Reads the first lanes of these classes, at most `each` of one class.
    async fn read_lanes(&mut self, work: &mut Work<'_>, classes: &[u64], each: usize) -> Try<()> {
        let queue = self.queue;
        let first = |class: &u64| {
            format!(
                "(SELECT class, prio, due, id FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 \
                 AND class = {class} ORDER BY prio, due, id LIMIT {each})"
            )
        };
        let parts: Vec<String> = classes.iter().map(first).collect();
        let mut spots: HashMap<u64, Vec<Spot>> = HashMap::new();
        for row in work.rows(&parts.join(" UNION ALL ")).await? {
            let mut row = Columns::of(row);
            let class = row.int()? as u64;
            let spot = Spot { prio: row.int()?, due: row.int()?, id: row.int()? as u64 };
            spots.entry(class).or_default().push(spot);
        }
        for class in classes {
            let mut spots = spots.remove(class).unwrap_or_default();
            spots.sort_unstable();
            let is_all = spots.len() < each;
            self.classes.insert(*class, Class { spots, is_all, is_mine: true });
        }
        Ok(())
    }

    /// Reads what the groups of these classes use of their limits.
    async fn read_usages(&mut self, work: &mut Work<'_>, classes: &[u64]) -> Try<()> {
        let groups: BTreeSet<u64> = classes.iter().map(|class| group_of_class(*class)).collect();
        let limited: Vec<u64> = groups
            .into_iter()
            .filter(|group| {
                self.shares.of(*group).limit.is_set() && !self.usages.contains_key(group)
            })
            .collect();
        if limited.is_empty() {
            return Ok(());
        }
        let queue = self.queue;
        let running = |group: &u64| {
            format!(
                "(SELECT {group}, COUNT(*) FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 2 \
                 AND class = {})",
                first_class(*group)
            )
        };
        let counts: Vec<String> = limited.iter().map(running).collect();
        let groups = list(&limited);
        let sql = format!(
            "{}; SELECT grp, paced FROM seriatim_share WHERE q = {queue} AND grp IN ({groups})",
            counts.join(" UNION ALL ")
        );
        let mut answers = work.run(&sql).await?.into_iter();
        let mut next = || answers.next().map(|answer| answer.rows).unwrap_or_default();
        for row in next() {
            let mut row = Columns::of(row);
            let usage = self.usages.entry(row.int()? as u64).or_default();
            usage.running = row.int()? as u32;
        }
        for row in next() {
            let mut row = Columns::of(row);
            let usage = self.usages.entry(row.int()? as u64).or_default();
            usage.paced = row.int()?;
        }
        Ok(())
    }
}

/// The classes of ready lanes from this one on, at most `steps`. A statement for each: the server finds the first entry
/// behind a constant, and what it finds in a row of the same statement is none.
async fn classes_from(work: &mut Work<'_>, queue: u32, from: u64, steps: usize) -> Try<Vec<u64>> {
    let next = format!(
        "SELECT MIN(class) INTO @seriatim FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 \
         AND class > @seriatim;SELECT @seriatim;"
    );
    let sql = format!("SET @seriatim = {};{}", from as i64 - 1, next.repeat(steps));
    let mut classes = Vec::new();
    for row in work.run(sql.trim_end_matches(';')).await?.into_iter().flat_map(|answer| answer.rows)
    {
        classes.extend(Columns::of(row).maybe_int()?.map(|class| class as u64));
    }
    Ok(classes)
}

/// A pass of [`share_out`] over what was read.
struct Pass<'a> {
    seen: &'a Seen,
    /// How many lanes of each class are taken.
    at: HashMap<u64, usize>,
    used: BTreeMap<u64, Usage>,
    crashed_left: usize,
    /// Whether lanes were left because of their crashes, or because others have locked them.
    leaves: bool,
    missing: Option<Missing>,
    chosen: Vec<u64>,
    taking: Option<Taking<'a>>,
}

/// How the second pass claims what the first one chose.
struct Taking<'a> {
    state: &'a mut State,
    request: &'a Claim,
    now: Timestamp,
    /// Those of the chosen lanes that are locked, and the others.
    locked: HashSet<u64>,
    lost: HashSet<u64>,
    /// For all lanes of the claim.
    token: i64,
    room: Room,
    turns: Vec<Turn>,
}

impl<'a> Pass<'a> {
    fn new(seen: &'a Seen, request: &Claim, taking: Option<Taking<'a>>) -> Self {
        let (at, used, chosen) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let crashed_left = request.crashed_max;
        Self { seen, at, used, crashed_left, leaves: false, missing: None, chosen, taking }
    }

    /// The first lane of a class that is not taken, or lost.
    fn first_of(&mut self, class: u64) -> Option<Spot> {
        let known = self.seen.classes.get(&class).filter(|known| known.is_mine)?;
        let at = self.at.entry(class).or_default();
        if let Some(taking) = &self.taking {
            while known.spots.get(*at).is_some_and(|spot| taking.lost.contains(&spot.id)) {
                *at += 1;
                self.leaves = true;
            }
        }
        let first = known.spots.get(*at).copied();
        if first.is_none() && !known.is_all {
            match self.taking {
                None => self.missing = Some(Missing::Lanes(class)),
                Some(_) => self.leaves = true,
            }
        }
        first
    }

    /// The classes of a group.
    fn classes(&self, group: u64) -> Vec<u64> {
        let classes = self.seen.classes.range(first_class(group)..=last_class(group));
        classes.map(|(class, _)| *class).collect()
    }

    /// Whether lanes are left among those that were read.
    fn has_more(&self) -> bool {
        let taken = |class: &u64| self.at.get(class).copied().unwrap_or_default();
        self.seen.classes.iter().any(|(class, known)| taken(class) < known.spots.len())
    }

    fn best(&mut self, group: u64) -> Option<(Spot, u64)> {
        let (mut best, mut leaves_crashed) = (None, false);
        for class in self.classes(group) {
            let Some(spot) = self.first_of(class) else { continue };
            if class % 2 == 1 && self.crashed_left == 0 {
                leaves_crashed = true;
            } else if best.is_none_or(|(before, _)| spot < before) {
                best = Some((spot, class));
            }
        }
        self.leaves |= best.is_none() && leaves_crashed;
        best
    }

    /// Claims a chosen lane. False if it does not fit, or is another one, since chosen ones were lost.
    fn claim(&mut self, id: u64) -> bool {
        let Some(taking) = &mut self.taking else { return true };
        if !taking.locked.contains(&id) {
            self.leaves = true;
            return false;
        }
        taking.state.token = taking.token - 1;
        let turn = taking.state.claim_lane(taking.now, id, taking.request, &mut taking.room);
        let fits = turn.is_some();
        taking.turns.extend(turn);
        fits
    }
}

impl Ready for Pass<'_> {
    fn group_from(&mut self, from: u64) -> Result<Option<u64>> {
        let start = first_class(from);
        let end = self.seen.known_to(start);
        let is_left = |(class, known): &(&u64, &Class)| {
            let taken = self.at.get(class).copied().unwrap_or_default();
            !known.is_mine || !known.is_all || taken < known.spots.len()
        };
        let group = self.seen.classes.range(start..end).find(is_left);
        let group = group.map(|(class, _)| group_of_class(*class));
        // All classes of a group must be known.
        let wanted = group.map_or(u64::MAX, |group| last_class(group) + 1);
        if end < wanted {
            self.missing = Some(Missing::Classes(end));
        }
        Ok(group)
    }

    fn share(&self, group: u64) -> Share {
        self.seen.shares.of(group)
    }

    fn usage(&mut self, group: u64) -> Result<Usage> {
        let usage = self.used.get(&group).or_else(|| self.seen.usages.get(&group));
        Ok(usage.copied().unwrap_or_default())
    }

    fn used(&mut self, group: u64, usage: Usage) -> Result<()> {
        self.used.insert(group, usage);
        Ok(())
    }

    fn is_ready(&mut self, group: u64) -> Result<bool> {
        Ok(self.classes(group).into_iter().any(|class| self.first_of(class).is_some()))
    }

    fn take(&mut self, group: u64, most: usize) -> Result<usize> {
        let before = self.chosen.len();
        while self.chosen.len() < before + most && !self.is_full() {
            let Some((spot, class)) = self.best(group) else { break };
            if !self.claim(spot.id) {
                break;
            }
            self.chosen.push(spot.id);
            *self.at.entry(class).or_default() += 1;
            self.crashed_left -= usize::from(class % 2 == 1);
        }
        Ok(self.chosen.len() - before)
    }

    fn is_full(&self) -> bool {
        match &self.taking {
            Some(taking) => taking.room.is_full,
            None => self.missing.is_some(),
        }
    }
}

/// The claim of such a queue, whose node may claim.
pub(super) async fn claim_in_rounds(
    work: &mut Work<'_>,
    request: &Claim,
    queue: u32,
) -> Try<(Claimed, Vec<Mine>)> {
    let definition = work.state.queue(&request.queue)?.queue.clone();
    let (mut whole, mut round, wake) = begin(work, queue, &definition).await?;
    if is_due(wake, work.now) {
        promote(work, queue).await?;
    }
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    let mut seen = Seen {
        queue,
        shares: Shares::of_queue(&definition),
        most,
        classes: BTreeMap::new(),
        ranges: BTreeMap::new(),
        usages: HashMap::new(),
    };
    let chosen = loop {
        let mut pass = Pass::new(&seen, request, None);
        let (mut whole, mut round) = (whole, round);
        share_out(&mut pass, (&definition, &mut whole), &mut round, most, work.now)?;
        let Pass { missing, chosen, .. } = pass;
        match missing {
            Some(missing) => seen.read(work, request, missing).await?,
            None => break chosen,
        }
    };
    let before = (whole, round);
    let locked = lock_chosen(work, &seen, &chosen).await?;
    let (token, locked_at) =
        if locked.is_empty() { (0, work.now) } else { draw_token(work).await? };
    work.load_jobs(&locked, Need::Turn, false, Bodies::Lengths, &HashMap::new()).await?;
    let locked: HashSet<u64> = locked.into_iter().collect();
    let now = work.now;
    let taking = Taking {
        state: &mut work.state,
        request,
        now,
        lost: chosen.into_iter().filter(|id| !locked.contains(id)).collect(),
        locked,
        token,
        room: Room::of(request),
        turns: Vec::new(),
    };
    let mut pass = Pass::new(&seen, request, Some(taking));
    let shared = share_out(&mut pass, (&definition, &mut whole), &mut round, most, now)?;
    let has_more = pass.has_more();
    let Pass { used, leaves, taking, .. } = pass;
    let (mut turns, cut) =
        taking.map_or_else(Default::default, |taking| (taking.turns, taking.room.is_full));
    let paced: Vec<(i64, Usage)> = used
        .into_iter()
        .filter(|(group, _)| seen.shares.of(*group).limit.rate.is_some())
        .map(|(group, usage)| (group as i64, usage))
        .collect();
    write_shares(work, queue, &paced, (before != (whole, round)).then_some((whole, round))).await?;
    note_time_of_claim(work, &mut turns, request, locked_at);
    work.save().await?;
    let mine = turns.iter().filter_map(|turn| work.mine(turn.lane.number)).collect();
    work.fill(turns.iter_mut()).await?;
    let any =
        leaves || shared == Shared::Full && (has_more || any_left(work, queue, request).await?);
    let wake = work.finish(&format!("SELECT MIN(w.wake) FROM ({}) w", first_wakes(queue))).await?;
    let wake = wake.into_iter().next().map(wake_of).transpose()?.flatten();
    let next_due = shared.next_due(any, now, wake);
    Ok((Claimed { turns, next_due, cut, unanswered: false }, mine))
}

/// Keeps other claims of the queue out until this one ends: each sees what the ones before it took. Returns what the queue
/// uses of its limit, where the round is, and when a lane must be positioned again.
async fn begin(
    work: &mut Work<'_>,
    queue: u32,
    definition: &Queue,
) -> Try<(Usage, Round, Option<Timestamp>)> {
    let running = match definition.limit.running {
        // Each statement sees what was committed before it.
        Some(_) => format!(
            "SELECT SUM(f.claimed) FROM (SELECT claimed FROM seriatim_tally WHERE q = {queue} UNION ALL \
             SELECT claimed FROM seriatim_delta WHERE q = {queue}) f"
        ),
        None => "SELECT 0".to_owned(),
    };
    let sql = format!(
        "SELECT paced, next, given FROM seriatim_share WHERE q = {queue} AND grp = {WHOLE} FOR UPDATE; \
         {running}; SELECT MIN(w.wake) FROM ({}) w",
        first_wakes(queue)
    );
    let mut answers = work.run(&sql).await?.into_iter();
    if answers.as_slice().first().is_none_or(|answer| answer.rows.is_empty()) {
        let row = format!("INSERT IGNORE INTO seriatim_share (q, grp) VALUES ({queue}, {WHOLE})");
        work.run(&row).await?;
        answers = work.run(&sql).await?.into_iter();
    }
    let mut next =
        || answers.next().and_then(|answer| answer.rows.into_iter().next()).map(Columns::of);
    let mut row = next().ok_or_else(super::sql::corrupt)?;
    let (paced, from, given) = (row.int()?, row.int()? as u64, row.int()? as u32);
    let running = next().ok_or_else(super::sql::corrupt)?.maybe_int()?.unwrap_or_default();
    let wake = next().ok_or_else(super::sql::corrupt)?.maybe_int()?.map(Timestamp::from_micros);
    Ok((Usage { running: running.max(0) as u32, paced }, Round { from, given }, wake))
}

/// Locks the chosen lanes. Returns those that are still where they were found.
async fn lock_chosen(work: &mut Work<'_>, seen: &Seen, chosen: &[u64]) -> Try<Vec<u64>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let these = by_id(chosen.iter().copied());
    let sql = format!("{these} AND st = 0 FOR UPDATE SKIP LOCKED");
    let mut locked: HashSet<u64> =
        work.read_lanes(&sql, Bodies::Lengths).await?.into_iter().collect();
    locked.retain(|id| {
        let Some(row) = work.lanes.get(id) else { return false };
        let spot = Spot { prio: row.prio, due: row.due, id: *id };
        let class = seen.classes.get(&(row.class as u64));
        class.is_some_and(|class| class.spots.binary_search(&spot).is_ok())
    });
    Ok(chosen.iter().copied().filter(|id| locked.contains(id)).collect())
}

/// Writes what changed of the rows of a queue.
async fn write_shares(
    work: &mut Work<'_>,
    queue: u32,
    groups: &[(i64, Usage)],
    whole: Option<(Usage, Round)>,
) -> Try<()> {
    if let Some((usage, round)) = whole {
        let (paced, next, given) = (usage.paced, round.from, round.given);
        let sql = format!(
            "UPDATE seriatim_share SET paced = {paced}, next = {next}, given = {given} WHERE q = {queue} AND grp = {WHOLE}"
        );
        work.write(&sql).await?;
    }
    if groups.is_empty() {
        return Ok(());
    }
    let rows: Vec<String> =
        groups.iter().map(|(group, usage)| format!("({queue},{group},{})", usage.paced)).collect();
    let sql = format!(
        "INSERT INTO seriatim_share (q, grp, paced) VALUES {} ON DUPLICATE KEY UPDATE paced = VALUES(paced)",
        rows.join(",")
    );
    work.write(&sql).await
}

/// Whether the caller may take any ready lane of a queue, whatever the limits.
async fn any_left(work: &mut Work<'_>, queue: u32, request: &Claim) -> Try<bool> {
    let mut from = 0;
    loop {
        let classes = classes_from(work, queue, from, LOOK).await?;
        if classes.iter().any(|class| work.state.may_take(class / 2, request)) {
            return Ok(true);
        }
        match classes.last() {
            Some(last) if classes.len() == LOOK => from = last + 1,
            _ => return Ok(false),
        }
    }
}

impl Work<'_> {
    /// Whether claims of a queue follow [`share_out`]: by its definition, or because jobs may have groups from a time when it
    /// had some.
    pub(super) fn is_shared_out(&self, queue: u32) -> bool {
        let row = self.state.queue_row(queue);
        row.is_some_and(|row| row.queue.is_shared_out()) || self.known.grouped.contains(&queue)
    }

    /// Tells other processes that turns of these queues have ended, if a limit may have held others back.
    pub(super) async fn ring_shared(&mut self, queues: impl Iterator<Item = u32>) -> Try<()> {
        let shared: BTreeSet<u32> = queues.filter(|queue| self.is_shared_out(*queue)).collect();
        // Of what was held back, not every process may take what is bound.
        match self.state.routes.is_empty() {
            true => self.ring_queues(shared, BTreeSet::new()).await,
            false => self.ring_queues(BTreeSet::new(), shared).await,
        }
    }
}
