//! Claiming lanes, releasing claims, and giving calls up.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;

use super::Mysql;
use super::bodies::Bodies;
use super::definitions::Known;
use super::due::{first_wakes, is_due, look, looks, mine, ready_of, wake_of};
use super::error::{Fail, Try};
use super::fold::count_call;
use super::gates::Lock;
use super::going_on::{self, next_turns};
use super::lane_row::{holder_number, lane_columns};
use super::load::{Need, nodes};
use super::pool::Answer;
use super::promote::promote;
use super::remembered::{Deletion, Mine};
use super::sharing::claim_in_rounds;
use super::sql::{Columns, LIST_MAX, given, list, text};
use super::tickets::{check_given_up, give_up, hold_ticket, ticket_of};
use super::tokens::{draw_token, note_time_of_claim};
use super::work::Work;
use crate::contract::{
    Claim, ClaimSelection, Claimed, Consumer, GiveUp, Release, Settle, Settled, Wake,
};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{LaneId, Result, Timestamp, Token, Turn};
use crate::stores::asleep::leaves_some;
use crate::stores::room::Room;
use crate::stores::state::State;

/// A claim that may take more classes first reads which of them have ready lanes.
const CLASSES_AHEAD: usize = 8;

#[async_trait]
impl Consumer for Mysql {
    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let request = Claim { series_max: 1, ..request };
        self.inner.sleepers.asleep().claims(&request.queue);
        let asked = AtomicU32::new(0);
        let ahead = || ahead(&self.inner.definitions.known(), &request, &asked);
        let (claimed, mine) = transact!(
            self.inner, Lock::Claim(request.queue.clone()), request.now, ahead(), work => claim(
                work, &request, asked.load(Ordering::Relaxed)
            )
        )?;
        self.inner.remembered.add(mine);
        count_call(&self.inner);
        if leaves_some(&claimed) {
            self.inner.leaves_some(&request.queue);
        } else {
            self.inner.falls_asleep(&request.queue);
        }
        Ok(claimed)
    }

    async fn settle(&self, mut request: Settle) -> Result<Vec<Settled>> {
        request.validate()?;
        request.go_on.iter_mut().for_each(|go_on| go_on.claim.series_max = 1);
        let (known, mine) =
            (self.inner.definitions.known(), self.inner.remembered.take(&request.turns));
        let deletion = Deletion::of(&request.turns, &mine, &known);
        let ahead = || match &deletion {
            Some(deletion) => deletion.sql.clone(),
            None => going_on::ahead(&known, &request),
        };
        let (settled, wake) = transact!(
            self.inner, Lock::of_settle(&request), request.now, ahead(), work => async {
                match deletion.as_ref().filter(|_| !work.ahead.is_empty()) {
                    Some(deletion) => {
                        let settled = deletion.settle(work, &request.turns).await?;
                        let wake = request.turns.iter().filter_map(|turn| work.state.wakes(turn.lane));
                        Ok((settled, Wake::of(wake)))
                    }
                    None => super::settle::settle(work, &request, &mine, known.stamp).await,
                }
            }
        )?;
        self.inner.remembered.add(next_turns(&settled).map(Mine::of_next).collect());
        self.inner.ring(&wake);
        count_call(&self.inner);
        Ok(settled)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        transact!(self.inner, Lock::FREE, None, work => give_up(work, &request))
    }
}

/// The statements that a claim sends ahead, if the definitions are cached: its node, the next `wake`, and the lanes to
/// take if none has to be promoted.
fn ahead(known: &Known, request: &Claim, asked: &AtomicU32) -> String {
    asked.store(0, Ordering::Relaxed);
    let Some(row) = known.queues.named(&request.queue) else {
        return String::new();
    };
    let queue = row.number;
    if row.queue.is_shared_out() || known.grouped.contains(&queue) {
        return String::new();
    }
    let state = State { routes: known.routes.clone(), ..State::default() };
    let classes = takeable(&state, request);
    if classes.len() > CLASSES_AHEAD {
        return String::new();
    }
    asked.store(queue, Ordering::Relaxed);
    let ticket = ticket_of(&request.node, request.ticket);
    let node = format!("{ticket};{}", nodes(Some(&request.node.0), ""));
    let wake = format!("SELECT MIN(w.wake) FROM ({}) w", first_wakes(queue));
    let lanes: String = classes.iter().map(|class| best(queue, *class, request)).collect();
    format!("{node};{wake};{lanes}")
}

/// Claims lanes. `asked` is the number of the queue that the statements ahead were for; 0 if there were none. Also
/// returns what to remember of them.
async fn claim(work: &mut Work<'_>, request: &Claim, asked: u32) -> Try<(Claimed, Vec<Mine>)> {
    // A repeated call sends nothing ahead.
    let asked = if work.ahead.is_empty() { 0 } else { asked };
    let mut ahead = std::mem::take(&mut work.ahead).into_iter();
    match (ahead.next(), ahead.next()) {
        (Some(given_up), Some(node)) => {
            check_given_up(request.ticket, given_up.rows)?;
            work.add_nodes(node.rows)?;
        }
        _ => {
            hold_ticket(work, &request.node, request.ticket).await?;
            work.load_nodes(Some(&request.node.0), "").await?;
        }
    }
    work.state.check_node(&request.node, request.ticket)?;
    let row = work.state.queue_to_claim(request)?;
    let (queue, paused) = (row.number, row.paused);
    if asked != 0 && asked != queue {
        return Err(Fail::NotFast); // The store was emptied: the results ahead are for another queue.
    }
    if paused {
        return Ok(Default::default());
    }
    if work.is_shared_out(queue) {
        // What was sent ahead has locked lanes before the shares.
        return if asked == 0 {
            claim_in_rounds(work, request, queue).await
        } else {
            Err(Fail::NotFast)
        };
    }
    let classes = takeable(&work.state, request);
    let none_is_due = ahead.next().map(wake_of).transpose()?.map(|wake| !is_due(wake, work.now));
    let (taken, mut ready) = match none_is_due {
        Some(true) => {
            if ahead.len() != classes.len() {
                return Err(Fail::NotFast); // The node may take a new route.
            }
            let taken = choose(work, request, &classes, ahead)?;
            // Lanes locked by other sessions were skipped and may still be ready.
            let ready =
                if taken.is_empty() { Some(look(work, queue, request).await?) } else { None };
            (taken, ready)
        }
        _ => {
            let mut ready = look(work, queue, request).await?;
            if is_due(ready.wake, work.now) {
                promote(work, queue).await?;
                ready = look(work, queue, request).await?;
            }
            (candidates(work, queue, request, &ready.classes).await?, Some(ready))
        }
    };
    let (mut turns, mut mine, mut room) = (Vec::new(), Vec::new(), Room::of(request));
    if !taken.is_empty() {
        turns = take(work, request, &taken, &mut room).await?;
        mine.extend(turns.iter().filter_map(|turn| work.mine(turn.lane.number)));
        work.fill(turns.iter_mut()).await?;
        let sql = looks(&work.state, queue, request);
        ready = Some(ready_of(work.finish(&sql).await?)?);
    }
    let ready = ready.ok_or_else(super::sql::corrupt)?;
    let next_due = if ready.classes.is_empty() { ready.wake } else { Some(work.now) };
    Ok((Claimed { turns, next_due, cut: room.is_full, unanswered: false }, mine))
}

/// Claims locked lanes.
async fn take(
    work: &mut Work<'_>,
    request: &Claim,
    lanes: &[u64],
    room: &mut Room,
) -> Try<Vec<Turn>> {
    let (token, locked_at) = draw_token(work).await?;
    work.load_jobs(lanes, Need::Turn, false, Bodies::Lengths, &HashMap::new()).await?;
    let (now, mut turns) = (work.now, Vec::with_capacity(lanes.len()));
    for id in lanes {
        // One token for all lanes of a call.
        work.state.token = token - 1;
        let Some(turn) = work.state.claim_lane(now, *id, request, room) else { break };
        turns.push(turn);
    }
    note_time_of_claim(work, &mut turns, request, locked_at);
    work.save().await?;
    Ok(turns)
}

/// The classes of which the request takes any lanes.
fn takeable(state: &State, request: &Claim) -> Vec<u64> {
    mine(state, request).into_iter().filter(|class| most(*class, request) > 0).collect()
}

/// Most lanes of a class to take.
fn most(class: u64, request: &Claim) -> usize {
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    if class % 2 == 1 { most.min(request.crashed_max) } else { most }
}

/// Locks the lanes to take from these classes.
async fn candidates(
    work: &mut Work<'_>,
    queue: u32,
    request: &Claim,
    classes: &[u64],
) -> Try<Vec<u64>> {
    let wanted = |class: &u64| most(*class, request) > 0;
    let classes: Vec<u64> = classes.iter().copied().filter(wanted).collect();
    if classes.is_empty() {
        return Ok(Vec::new());
    }
    let sql: String = classes.iter().map(|class| best(queue, *class, request)).collect();
    let answers = work.run(sql.trim_end_matches(';')).await?;
    choose(work, request, &classes, answers.into_iter())
}

/// The statement that locks the first lanes of a class.
fn best(queue: u32, class: u64, request: &Claim) -> String {
    let (body, limit) = (Bodies::Lengths.of("payload"), most(class, request));
    format!(
        "SELECT {}, {body} FROM seriatim_lane FORCE INDEX (lane_ready) \
         WHERE q = {queue} AND st = 0 AND class = {class} ORDER BY prio, due, id LIMIT {limit} \
         FOR UPDATE SKIP LOCKED;",
        lane_columns()
    )
}

/// Merges the lanes of several classes in the order of claiming.
fn choose(
    work: &mut Work<'_>,
    request: &Claim,
    classes: &[u64],
    answers: impl Iterator<Item = Answer>,
) -> Try<Vec<u64>> {
    let mut found = Vec::new();
    for (class, answer) in classes.iter().zip(answers) {
        for id in work.add_lanes(answer.rows)? {
            let row = work.lanes.get(&id).ok_or_else(super::sql::corrupt)?;
            found.push((row.prio, row.due, id, class % 2 == 1));
        }
    }
    found.sort_unstable();
    let mut crashed_left = request.crashed_max;
    let mut taken = Vec::new();
    for (_, _, id, crashed) in found {
        if taken.len() == most(0, request) {
            break;
        }
        if crashed && crashed_left == 0 {
            continue;
        }
        crashed_left -= usize::from(crashed);
        taken.push(id);
    }
    Ok(taken)
}

pub(super) async fn release(work: &mut Work<'_>, request: &Release) -> Try<Vec<Turn>> {
    let filter = match &request.claims {
        ClaimSelection::Key { queue, key } => {
            format!("q = {} AND k = {}", work.state.queue(queue)?.number, text(key))
        }
        ClaimSelection::Lane(lane) => format!("q = {} AND id = {}", lane.queue, lane.number),
        ClaimSelection::Queue(queue) => format!("q = {}", work.state.queue(queue)?.number),
        ClaimSelection::Node(node) => {
            let queues = list(work.state.queues.keys().map(|number| u64::from(*number)));
            format!("q IN ({queues}) AND node = {}", holder_number(&node.0))
        }
    };
    let made_by = request.made_by.map_or(i64::MAX, Timestamp::as_micros);
    let most = request.lanes_max.min(CLAIM_LANES_MAX);
    let sql = format!(
        "SELECT id FROM seriatim_lane WHERE {filter} AND st = 2 AND claimed_at <= {made_by} ORDER BY id LIMIT {most}"
    );
    let mut ids = BTreeSet::new();
    for row in work.rows(&sql).await? {
        ids.insert(Columns::of(row).int()? as u64);
    }
    work.lock_lanes(&ids).await?;
    let here: Vec<u64> = work.lanes.keys().copied().collect();
    if here.is_empty() {
        return Ok(Vec::new());
    }
    let now = work.now;
    take_over(work, &here, |state| state.release(now, request)).await
}

/// Takes over locked lanes with one new token; the model would draw one per lane.
pub(super) async fn take_over(
    work: &mut Work<'_>,
    lanes: &[u64],
    carry_out: impl FnOnce(&mut State) -> Result<Vec<Turn>>,
) -> Try<Vec<Turn>> {
    work.load_closed(lanes).await?;
    let (token, _) = draw_token(work).await?;
    work.state.token = token - 1;
    let mut turns = carry_out(&mut work.state)?;
    for turn in &mut turns {
        turn.token = Token(token);
        if let Some(lane) = work.state.lanes.get_mut(&turn.lane.number) {
            lane.token = Token(token);
        }
    }
    work.save().await?;
    Ok(turns)
}

pub(super) async fn turn(work: &mut Work<'_>, lane: LaneId, token: Token) -> Try<Option<Turn>> {
    let one = format!("WHERE id = {} AND tok = {}", lane.number, token.0);
    let ids = work.read_lanes(&one, Bodies::All).await?;
    work.load_closed_with(&ids, Bodies::All).await?;
    Ok(work.state.turn(lane, token))
}

impl Work<'_> {
    /// Reads the jobs of these lanes' turns, without payload.
    pub(super) async fn load_closed(&mut self, lanes: &[u64]) -> Try<()> {
        self.load_closed_with(lanes, Bodies::None).await
    }

    pub(super) async fn load_closed_with(&mut self, lanes: &[u64], bodies: Bodies) -> Try<()> {
        let (mut closed, mut taken) = (Vec::new(), Vec::new());
        for id in lanes {
            let Some(row) = self.lanes.get(id) else { continue };
            match (row.taken as u64, self.state.lanes.get(id)) {
                (0, Some(lane)) if lane.unread.closed > 0 => closed.push(*id),
                (0, _) => {}
                (seq, _) => taken.push(seq),
            }
        }
        for ids in closed.chunks(LIST_MAX) {
            let from = format!(
                "FROM {} STRAIGHT_JOIN seriatim_lane l FORCE INDEX (PRIMARY) ON l.id = given.number \
                 STRAIGHT_JOIN seriatim_job j FORCE INDEX (job_lane) ON j.lane = l.id \
                 WHERE j.gen < l.open",
                given(ids)
            );
            self.read_jobs(&from, bodies).await?;
        }
        for seqs in taken.chunks(LIST_MAX) {
            let seqs = list(seqs.iter().copied());
            let from = format!("FROM seriatim_job j FORCE INDEX (PRIMARY) WHERE j.seq IN ({seqs})");
            self.read_jobs(&from, bodies).await?;
        }
        Ok(())
    }
}
