//! Claiming lanes, and rescuing claims whose lease has run out.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::error::Try;
use super::lane_row::LANE_COLUMNS;
use super::load::{Bodies, Need};
use super::pool::Answer;
use super::sql::{Columns, LIST_MAX, list};
use super::work::{CLOCK, Work};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{JobId, LaneId, Token};
use crate::limits::{CLAIM_LANES_MAX, PROMOTE_LANES_MAX};
use crate::store::request::{Claim, Claimed, Rescue, SourceDue};
use crate::turn::Turn;

/// How many lanes are promoted at a time.
const PROMOTE_STEP: usize = 1_000;

/// Among how many classes and priorities of a queue the lane is sought that has been due for longest.
const RANKS_MAX: usize = 16;
/// Most queues that are asked about in one statement.
const QUEUES_IN_STATEMENT: usize = 100;

pub(super) async fn claim(work: &mut Work<'_>, request: &Claim) -> Try<Claimed> {
    work.load_nodes(Some(&request.node.0), "").await?;
    work.state.check_node(&request.node)?;
    let row = work.state.queue(&request.queue)?;
    let (queue, paused) = (row.number, row.paused);
    if paused || request.shard.is_some_and(|shard| shard != 0) {
        return Ok(Claimed::default());
    }
    let mut sight = look(work, queue, request).await?;
    if sight.wake.is_some_and(|wake| wake <= work.now) {
        promote(work, queue).await?;
        sight = look(work, queue, request).await?;
    }
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    let (taken, drawn) = candidates(work, queue, request, &sight.classes, most).await?;
    let mut turns = Vec::new();
    if let Some((token, locked_at)) = drawn.filter(|_| !taken.is_empty()) {
        work.load_jobs(&taken, Need::Turn, false, Bodies::Lengths, &HashMap::new()).await?;
        // A lane may have been freed after this call began: it was claimed when it was locked.
        let claimed_at = if request.now.is_some() { work.now } else { locked_at };
        let now = work.now;
        for id in taken {
            // One token for all lanes of a call.
            work.state.token = token - 1;
            turns.extend(work.state.claim_lane(now, id, request));
        }
        for turn in &mut turns {
            turn.claimed_at = claimed_at;
            let lane = work.state.lanes.get_mut(&turn.lane.number);
            if let Some(hold) = lane.and_then(|lane| lane.hold.as_mut()) {
                hold.claimed_at = claimed_at;
            }
        }
        work.save().await?;
        fill(work, &mut turns).await?;
        sight = look(work, queue, request).await?;
    }
    let next_due = if sight.classes.is_empty() { sight.wake } else { Some(work.now) };
    Ok(Claimed { turns, next_due })
}

/// Moves lanes that have fallen due to their place among the ready ones. What others hold just now
/// is left for later.
async fn promote(work: &mut Work<'_>, queue: u32) -> Try<()> {
    let now = work.now.as_micros();
    let mut left = PROMOTE_LANES_MAX;
    while left > 0 {
        let step = left.min(PROMOTE_STEP);
        let scheduled = format!(
            "FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 1 AND class = 0 AND prio = 0 AND due <= {now} \
             ORDER BY due, id LIMIT {step} FOR UPDATE SKIP LOCKED"
        );
        let ids = work.read_lanes(&scheduled, Bodies::None).await?;
        reposition(work, &ids).await?;
        if ids.len() < step {
            break;
        }
        left -= step;
    }
    let ready = format!(
        "SELECT lane FROM seriatim_wake WHERE q = {queue} AND wake <= {now} ORDER BY wake, lane LIMIT {PROMOTE_STEP}"
    );
    let mut ids = Vec::new();
    for row in work.rows(&ready).await? {
        ids.push(Columns::of(row).int()? as u64);
    }
    if !ids.is_empty() {
        let these = format!(
            "FORCE INDEX (PRIMARY) WHERE id IN ({}) AND wake <= {now} FOR UPDATE SKIP LOCKED",
            list(ids)
        );
        let ids = work.read_lanes(&these, Bodies::None).await?;
        reposition(work, &ids).await?;
    }
    Ok(())
}

async fn reposition(work: &mut Work<'_>, ids: &[u64]) -> Try<()> {
    work.load_jobs(ids, Need::Position, false, Bodies::None, &HashMap::new()).await?;
    let time = work.now;
    for id in ids {
        work.state.position(*id, time);
    }
    work.save().await?;
    // What they hold was read without payloads, which a claim needs.
    work.forget_lanes();
    Ok(())
}

/// What there is to claim in a queue.
struct Sight {
    /// The classes of ready lanes that the caller may take.
    classes: Vec<u32>,
    /// When a lane must next be looked at again.
    wake: Option<Timestamp>,
}

/// Each of the server's answers is the first entry of a part of an index: what is behind it is not
/// looked at, however much that is.
async fn look(work: &mut Work<'_>, queue: u32, request: &Claim) -> Try<Sight> {
    let routes = 0..=work.state.routes.len() as u32;
    let mine = routes.filter(|route| work.state.may_take(*route, request));
    let first = |class: u32| {
        format!(
            "(SELECT class FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 \
             AND class = {class} LIMIT 1)"
        )
    };
    let each: Vec<String> =
        mine.flat_map(|route| [first(route * 2), first(route * 2 + 1)]).collect();
    let sql =
        format!("{}; SELECT MIN(w.wake) FROM ({}) w", each.join(" UNION ALL "), first_wakes(queue));
    let mut answers = work.run(&sql).await?.into_iter().map(|answer| answer.rows);
    let mut classes = Vec::new();
    for row in answers.next().unwrap_or_default() {
        classes.push(Columns::of(row).int()? as u32);
    }
    let first = answers.next().unwrap_or_default().into_iter().next();
    let wake = first.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten();
    Ok(Sight { classes, wake: wake.map(Timestamp::from_micros) })
}

/// The first times at which lanes of a queue must be looked at again.
fn first_wakes(queue: u32) -> String {
    format!(
        "(SELECT due AS wake FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 1 AND class = 0 \
         AND prio = 0 ORDER BY due LIMIT 1) UNION ALL \
         (SELECT wake FROM seriatim_wake FORCE INDEX (wake_first) WHERE q = {queue} ORDER BY wake LIMIT 1)"
    )
}

/// Locks the lanes to take, in the order in which they are, and draws the token of their claims.
async fn candidates(
    work: &mut Work<'_>,
    queue: u32,
    request: &Claim,
    classes: &[u32],
    most: usize,
) -> Try<(Vec<u64>, Option<Drawn>)> {
    let body = Bodies::Lengths.of("payload");
    let limit = |class: u32| if class % 2 == 1 { most.min(request.crashed_max) } else { most };
    let classes: Vec<u32> = classes.iter().copied().filter(|class| limit(*class) > 0).collect();
    if classes.is_empty() {
        return Ok((Vec::new(), None));
    }
    let select = |class: &u32| {
        let limit = limit(*class);
        format!(
            "SELECT {LANE_COLUMNS}, {body} FROM seriatim_lane FORCE INDEX (lane_ready) \
             WHERE q = {queue} AND st = 0 AND class = {class} ORDER BY prio, due, id LIMIT {limit} \
             FOR UPDATE SKIP LOCKED; "
        )
    };
    let sql = classes.iter().map(select).collect::<String>() + &draw_statements();
    let mut answers = work.run(&sql).await?;
    let drawn = answers.split_off(classes.len().min(answers.len()));
    let mut found = Vec::new();
    for (class, answer) in classes.iter().zip(answers) {
        for id in work.add_lanes(answer.rows)? {
            let row = work.lanes.get(&id).ok_or_else(super::sql::corrupt)?;
            found.push((row.prio, row.due, id, class % 2 == 1));
        }
    }
    let drawn = high_enough(work, drawn).await?;
    found.sort_unstable();
    let mut crashed_left = request.crashed_max;
    let mut taken = Vec::new();
    for (_, _, id, crashed) in found {
        if taken.len() == most {
            break;
        }
        if crashed && crashed_left == 0 {
            continue;
        }
        crashed_left -= usize::from(crashed);
        taken.push(id);
    }
    Ok((taken, Some(drawn)))
}

/// A token, and the server's time when it was drawn.
type Drawn = (i64, Timestamp);

/// The next token, higher than any before and not below the clock. It is drawn while the lanes are
/// locked, so it is also higher than any that they ever had, and nobody waits for the counter.
async fn draw_token(work: &mut Work<'_>) -> Try<Drawn> {
    let answers = work.run(&draw_statements()).await?;
    high_enough(work, answers).await
}

fn draw_statements() -> String {
    format!(
        "INSERT INTO seriatim_token (tok) VALUES (NULL); DELETE FROM seriatim_token WHERE tok = LAST_INSERT_ID(); \
         SELECT {CLOCK}"
    )
}

/// The token that was drawn, or another, if the counter is below the clock.
async fn high_enough(work: &mut Work<'_>, answers: Vec<Answer>) -> Try<Drawn> {
    let (token, clock) = drawn(answers)?;
    let now = work.now.as_micros();
    if token >= now {
        return Ok((token, clock));
    }
    // Where another lifts it at the same time the row is there already, and the counter is beyond.
    let lift = format!(
        "INSERT IGNORE INTO seriatim_token (tok) VALUES ({}); DELETE FROM seriatim_token WHERE tok = {}",
        now - 1,
        now - 1
    );
    work.run(&lift).await?;
    drawn(work.run(&draw_statements()).await?)
}

fn drawn(mut answers: Vec<Answer>) -> Try<Drawn> {
    let token = answers.first().map(|answer| answer.first_id as i64).filter(|id| *id > 0);
    let clock = answers.pop().and_then(|mut answer| answer.rows.pop());
    let clock = clock.ok_or_else(super::sql::corrupt)?;
    let clock = Timestamp::from_micros(Columns::of(clock).int()?);
    Ok((token.ok_or_else(super::sql::corrupt)?, clock))
}

/// Gives the jobs of turns the payloads that were too large to be read before.
async fn fill(work: &mut Work<'_>, turns: &mut [Turn]) -> Try<()> {
    let ids: Vec<JobId> =
        turns.iter().flat_map(|turn| turn.jobs.iter().map(|job| job.id)).collect();
    let mut bodies = work.bodies_of(&ids).await?;
    if bodies.is_empty() {
        return Ok(());
    }
    for job in turns.iter_mut().flat_map(|turn| &mut turn.jobs) {
        if let Some(body) = bodies.remove(&job.id.seq()) {
            job.payload = body;
        }
    }
    Ok(())
}

/// The refusal of a rescuer that finds itself dead must not undo that others were declared dead.
pub(super) async fn rescue(work: &mut Work<'_>, request: &Rescue) -> Try<Result<Vec<Turn>>> {
    work.load_nodes(None, "FOR UPDATE").await?;
    let now = work.now;
    let living: BTreeSet<_> = work.living();
    // Declares the dead; the claims are not read yet.
    let may = work.state.rescue(now, request);
    let dead: BTreeSet<_> = living.difference(&work.living()).cloned().collect();
    work.save_dead(&dead).await?;
    if let Err(e) = may {
        return Ok(Err(e));
    }
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    let queues = list(work.state.queues.iter().map(|row| u64::from(row.number)));
    let at = now.as_micros();
    let sql = format!(
        "SELECT l.id FROM seriatim_lane l FORCE INDEX (lane_ready) LEFT JOIN seriatim_node n ON n.id = l.node \
         WHERE l.q IN ({queues}) AND l.st = 2 AND IF(l.own, l.until < {at}, n.id IS NULL OR n.beat_at + l.ttl < {at}) \
         ORDER BY l.id LIMIT {most}"
    );
    let mut ids = Vec::new();
    for row in work.rows(&sql).await? {
        ids.push(Columns::of(row).int()? as u64);
    }
    if ids.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    for ids in ids.chunks(LIST_MAX) {
        let ids = list(ids.iter().copied());
        let lanes = format!("WHERE id IN ({ids}) AND st = 2 FOR UPDATE SKIP LOCKED");
        work.read_lanes(&lanes, Bodies::None).await?;
    }
    let here: Vec<u64> = work.lanes.keys().copied().collect();
    if here.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    work.load_closed(&here).await?;
    let (token, _) = draw_token(work).await?;
    work.state.token = token - 1;
    let tokens_before = work.state.token;
    let mut turns = work.state.rescue(now, request)?;
    // The model drew one for each lane; here they share one.
    if work.state.token > tokens_before {
        for turn in &mut turns {
            turn.token = Token(token);
            if let Some(lane) = work.state.lanes.get_mut(&turn.lane.number) {
                lane.token = Token(token);
            }
        }
    }
    work.save().await?;
    Ok(Ok(turns))
}

pub(super) async fn turn(work: &mut Work<'_>, lane: LaneId, token: Token) -> Try<Option<Turn>> {
    let one = format!("WHERE id = {} AND tok = {}", lane.number, token.0);
    let ids = work.read_lanes(&one, Bodies::All).await?;
    work.load_closed_with(&ids, Bodies::All).await?;
    Ok(work.state.turn(lane, token))
}

pub(super) async fn due(work: &mut Work<'_>, names: &[Arc<str>]) -> Try<Vec<SourceDue>> {
    let wanted = |name: &Arc<str>| names.is_empty() || names.contains(name);
    let queues: Vec<(u32, Arc<str>, bool)> = work
        .state
        .queues
        .iter()
        .filter(|row| wanted(&row.name))
        .map(|row| (row.number, row.name.clone(), row.paused))
        .collect();
    let sources: Vec<u32> = queues.iter().map(|(number, ..)| *number).collect();
    let dues = first_dues(work, &sources).await?;
    let source = |(number, queue, paused): (u32, Arc<str>, bool)| {
        let due = dues.get(&number).copied().filter(|_| !paused);
        SourceDue { queue, shard: 0, due }
    };
    Ok(queues.into_iter().map(source).collect())
}

/// The earliest due time of a lane of each queue. Of the scheduled ones it is the first entry of an index;
/// the ready ones are ordered by class and priority, and the first entry of each is looked at in turn,
/// of the `RANKS_MAX` most urgent.
async fn first_dues(work: &mut Work<'_>, queues: &[u32]) -> Try<HashMap<u32, Timestamp>> {
    let mut dues: HashMap<u32, Timestamp> = HashMap::new();
    let ready = |queue: u32, rest: String| {
        format!(
            "(SELECT q, due, class, prio FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 \
             {rest} ORDER BY class, prio, due LIMIT 1)"
        )
    };
    let scheduled = |queue: &u32| {
        format!("(SELECT {queue}, w.wake, NULL, NULL FROM ({}) w)", first_wakes(*queue))
    };
    for queues in queues.chunks(QUEUES_IN_STATEMENT) {
        let first = queues.iter().map(|queue| ready(*queue, String::new()));
        let mut parts: Vec<String> = first.chain(queues.iter().map(scheduled)).collect();
        for _ in 0..RANKS_MAX {
            if parts.is_empty() {
                break;
            }
            let rows = work.rows(&parts.join(" UNION ALL ")).await?;
            parts.clear();
            for row in rows {
                let mut row = Columns::of(row);
                let (queue, due) = (row.int()? as u32, Timestamp::from_micros(row.int()?));
                let first = dues.entry(queue).or_insert(due);
                *first = due.min(*first);
                if let (Some(class), Some(prio)) = (row.maybe_int()?, row.maybe_int()?) {
                    let behind =
                        format!("AND (class > {class} OR class = {class} AND prio > {prio})");
                    parts.push(ready(queue, behind));
                }
            }
        }
    }
    Ok(dues)
}

impl Work<'_> {
    /// What was read and saved is as if it had not been read. The locks stay.
    pub(super) fn forget_lanes(&mut self) {
        self.lanes.clear();
        self.jobs.clear();
        self.parts.clear();
        self.state.lanes.clear();
        self.state.keys.clear();
        self.state.jobs.clear();
        self.state.claimed.clear();
        self.state.ready.clear();
        self.state.wake.clear();
        self.state.due.clear();
    }

    /// Reads the jobs of the turns that hold these lanes, without payload.
    pub(super) async fn load_closed(&mut self, lanes: &[u64]) -> Try<()> {
        self.load_closed_with(lanes, Bodies::None).await
    }

    pub(super) async fn load_closed_with(&mut self, lanes: &[u64], bodies: Bodies) -> Try<()> {
        for ids in lanes.chunks(LIST_MAX) {
            let from = format!(
                "FROM seriatim_job j JOIN seriatim_lane l ON l.id = j.lane WHERE j.lane IN ({}) AND j.gen < l.open",
                list(ids.iter().copied())
            );
            self.read_jobs(&from, bodies).await?;
        }
        for lane in lanes {
            self.parts.entry(*lane).or_default().closed = true;
        }
        Ok(())
    }

    fn living(&self) -> BTreeSet<crate::id::NodeId> {
        let living = self.state.nodes.iter().filter(|(_, row)| row.dead_at.is_none());
        living.map(|(id, _)| id.clone()).collect()
    }

    async fn save_dead(&mut self, dead: &BTreeSet<crate::id::NodeId>) -> Try<()> {
        if dead.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE seriatim_node SET dead_at = {} WHERE id IN ({})",
            self.now.as_micros(),
            super::sql::literals(dead.iter().map(|id| &*id.0))
        );
        self.run(&sql).await?;
        Ok(())
    }
}
