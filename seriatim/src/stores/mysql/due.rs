//! Reads, without locks, which lanes are claimable and when.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Try;
use super::lane_row::st;
use super::pool::Answer;
use super::sql::{Columns, given};
use super::work::Work;
use crate::contract::{Claim, QueueDue};
use crate::model::Timestamp;
use crate::stores::asked::is_asked;
use crate::stores::state::State;

/// In how many pairs of class and priority per queue the earliest due lane is searched.
const RANKS_MAX: usize = 16;
/// Most queues in one statement.
const QUEUES_IN_STATEMENT: usize = 100;

/// The claimable lanes of a queue.
pub(super) struct Ready {
    /// The classes of ready lanes that the caller may take.
    pub classes: Vec<u64>,
    /// When a lane must next be positioned again.
    pub wake: Option<Timestamp>,
}

pub(super) async fn look(work: &mut Work<'_>, queue: u32, request: &Claim) -> Try<Ready> {
    let sql = looks(&work.state, queue, request);
    ready_of(work.run(&sql).await?)
}

/// Each query reads only the first entry of an index range, however long the range is.
pub(super) fn looks(state: &State, queue: u32, request: &Claim) -> String {
    let first = |class: u64| {
        format!(
            "(SELECT class FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 \
             AND class = {class} LIMIT 1)"
        )
    };
    let each: Vec<String> = mine(state, request).into_iter().map(first).collect();
    format!("{}; SELECT MIN(w.wake) FROM ({}) w", each.join(" UNION ALL "), first_wakes(queue))
}

pub(super) fn ready_of(answers: Vec<Answer>) -> Try<Ready> {
    let mut answers = answers.into_iter();
    let mut classes = Vec::new();
    for row in answers.next().map(|answer| answer.rows).unwrap_or_default() {
        classes.push(Columns::of(row).int()? as u64);
    }
    let wake = answers.next().map(wake_of).transpose()?.flatten();
    Ok(Ready { classes, wake })
}

pub(super) fn wake_of(answer: Answer) -> Try<Option<Timestamp>> {
    let first = answer.rows.into_iter().next();
    let wake = first.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten();
    Ok(wake.map(Timestamp::from_micros))
}

pub(super) fn is_due(wake: Option<Timestamp>, now: Timestamp) -> bool {
    wake.is_some_and(|wake| wake <= now)
}

/// The classes of lanes that the caller may take: without crashes, and with.
pub(super) fn mine(state: &State, request: &Claim) -> Vec<u64> {
    let routes = 0..=state.routes.len() as u64;
    let mine = routes.filter(|route| state.may_take(*route, request));
    mine.flat_map(|route| [route * 2, route * 2 + 1]).collect()
}

/// The first times at which lanes of a queue must be positioned again.
pub(super) fn first_wakes(queue: u32) -> String {
    format!(
        "(SELECT due AS wake FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 1 AND class = 0 \
         AND prio = 0 ORDER BY due LIMIT 1) UNION ALL \
         (SELECT wake FROM seriatim_wake FORCE INDEX (wake_first) WHERE q = {queue} ORDER BY wake LIMIT 1)"
    )
}

pub(super) async fn due(work: &mut Work<'_>, names: &[Arc<str>]) -> Try<Vec<QueueDue>> {
    let is_asked = is_asked(names);
    let queues: Vec<(u32, Arc<str>, bool)> = work
        .state
        .queues
        .values()
        .filter(|row| is_asked(&row.name))
        .map(|row| (row.number, row.name.clone(), row.paused))
        .collect();
    let sources: Vec<u32> = queues.iter().map(|(number, ..)| *number).collect();
    let dues = first_dues(work, &sources).await?;
    let source = |(number, queue, paused): (u32, Arc<str>, bool)| {
        QueueDue::new(queue, dues.get(&number).copied().filter(|_| !paused))
    };
    Ok(queues.into_iter().map(source).collect())
}

/// Those of these queues that have ready or scheduled lanes. Most queues of many are empty, and this costs little for each.
async fn with_waiting(work: &mut Work<'_>, queues: &[u32]) -> Try<Vec<u32>> {
    if queues.len() < 2 {
        return Ok(queues.to_vec());
    }
    let first = |state: i64| {
        format!(
            "(SELECT 1 FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = given.number AND st = {state} LIMIT 1)"
        )
    };
    let numbers: Vec<u64> = queues.iter().map(|queue| u64::from(*queue)).collect();
    let (ready, scheduled) = (first(st::READY), first(st::SCHEDULED));
    let sql = format!("SELECT given.number, {ready}, {scheduled} FROM {}", given(&numbers));
    let mut found = Vec::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let queue = row.int()? as u32;
        if row.maybe_int()?.or(row.maybe_int()?).is_some() {
            found.push(queue);
        }
    }
    Ok(found)
}

/// The earliest due time of each queue. For scheduled lanes it is the first entry of an index. Ready lanes are ordered
/// by class and priority: the first entry of each of the `RANKS_MAX` most urgent is read in turn.
pub(super) async fn first_dues(
    work: &mut Work<'_>,
    queues: &[u32],
) -> Try<HashMap<u32, Timestamp>> {
    let mut dues: HashMap<u32, Timestamp> = HashMap::new();
    let queues = with_waiting(work, queues).await?;
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
