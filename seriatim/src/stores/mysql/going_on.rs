//! Lanes that go on: the transaction that settles their turns claims their next ones.

use std::collections::{BTreeSet, HashMap};

use super::bodies::Bodies;
use super::definitions::{Known, STAMP};
use super::due::mine;
use super::error::Try;
use super::gates::begin_claim;
use super::load::{Need, nodes};
use super::sql::Columns;
use super::tickets::{given_up_of, ticket_of};
use super::tokens::draw_token_after;
use super::work::Work;
use crate::contract::{GoOn, Settle, Settled};
use crate::model::{Token, Turn};
use crate::stores::state::State;

/// The lanes of a settle that may go on.
pub(super) struct GoingOn<'r> {
    request: &'r Settle,
    /// For each queue, the best priority of its ready lanes before anything is settled.
    best: Vec<Option<u16>>,
    pub lanes: BTreeSet<u64>,
}

impl<'r> GoingOn<'r> {
    /// Reads nodes and best priorities, before any lane is locked. `stamp`: the version of the definitions that the
    /// statements [`ahead`] were made of.
    pub(super) async fn of(work: &mut Work<'_>, request: &'r Settle, stamp: i64) -> Try<Self> {
        let mut best = Vec::new();
        if !request.go_on.is_empty() {
            let mut answers = std::mem::take(&mut work.ahead);
            if answers.is_empty() || work.known.stamp != stamp {
                let sql = ahead(&work.known, request);
                answers = work.run(&sql).await?;
            }
            let mut answers = answers.into_iter();
            for GoOn { claim, .. } in &request.go_on {
                let mut next = || answers.next().map(|answer| answer.rows).unwrap_or_default();
                let given_up = given_up_of(next())?;
                work.add_nodes(next())?;
                if let Some(node) = work.state.nodes.get_mut(&claim.node) {
                    node.given_up = node.given_up.max(given_up);
                }
                let first = next().into_iter().next();
                let first = first.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten();
                best.push(first.map(|priority| priority as u16));
            }
        }
        Ok(Self { request, best, lanes: BTreeSet::new() })
    }

    /// Chooses those of the locked lanes that have more jobs.
    pub(super) fn choose(&mut self, work: &Work<'_>) {
        let places = self.request.go_on.iter().flat_map(|go_on| &go_on.places);
        let turns = places.filter_map(|place| self.request.turns.get(*place));
        let has_next = |lane: &u64| work.lanes.get(lane).is_some_and(|row| row.n > 0);
        let lanes = turns.filter(|turn| turn.is_all_done()).map(|turn| turn.lane.number);
        self.lanes = lanes.filter(has_next).collect();
    }

    /// Reads the jobs of these lanes: of the turns that end, and of the next ones.
    pub(super) async fn load(&self, work: &mut Work<'_>, lanes: &[u64]) -> Try<()> {
        if lanes.is_empty() {
            return Ok(());
        }
        work.load_closed(lanes).await?;
        work.load_jobs(lanes, Need::NextTurn, false, Bodies::Lengths, &HashMap::default()).await
    }

    /// Claims the next turns of settled lanes, all under one token.
    pub(super) async fn claim(&self, work: &mut Work<'_>, settled: &mut [Settled]) -> Try<()> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        let token = self.draw_token(work).await?;
        work.state.token = token - 1;
        let now = work.now;
        work.state.go_on(now, self.request, &self.best, settled);
        for turn in next_turns_mut(settled) {
            turn.token = Token(token);
            if let Some(lane) = work.state.lanes.get_mut(&turn.lane.number) {
                lane.token = Token(token);
            }
        }
        Ok(())
    }

    /// Draws the token. Pauses the queues in the model if definitions have changed: the settle may have waited long for its
    /// lanes, and a pause or limit that has returned holds.
    async fn draw_token(&self, work: &mut Work<'_>) -> Try<i64> {
        let names = self.request.go_on.iter().map(|go_on| &go_on.claim.queue);
        let queues: BTreeSet<u32> =
            names.filter_map(|name| Some(work.state.queue(name).ok()?.number)).collect();
        let sql = format!("{};{STAMP}", begin_claim(&queues));
        let (answers, (token, _)) = draw_token_after(work, sql).await?;
        let stamp = answers.into_iter().nth(1).and_then(|answer| answer.rows.into_iter().next());
        let stamp = Columns::of(stamp.ok_or_else(super::sql::corrupt)?).int()?;
        if stamp != work.known.stamp {
            for queue in &queues {
                if let Some(row) = work.state.queues.get_mut(queue) {
                    row.paused = true;
                }
            }
        }
        Ok(token)
    }

    /// Adds the large payloads to the next turns.
    pub(super) async fn fill(&self, work: &mut Work<'_>, settled: &mut [Settled]) -> Try<()> {
        work.fill(next_turns_mut(settled)).await
    }
}

pub(super) fn next_turns(settled: &[Settled]) -> impl Iterator<Item = &Turn> {
    settled.iter().filter_map(|settled| match settled {
        Settled::Ok { next, .. } => next.as_deref(),
        _ => None,
    })
}

fn next_turns_mut(settled: &mut [Settled]) -> impl Iterator<Item = &mut Turn> {
    settled.iter_mut().filter_map(|settled| match settled {
        Settled::Ok { next, .. } => next.as_deref_mut(),
        _ => None,
    })
}

/// The statements for what a settle reads before it locks lanes; none if no lane may go on.
pub(super) fn ahead(known: &Known, request: &Settle) -> String {
    let sql: Vec<String> = request.go_on.iter().map(|go_on| looks(known, go_on)).collect();
    sql.join(";")
}

/// The statements that read a node's ticket, the node, and the best priority of the lanes that it could claim.
fn looks(known: &Known, go_on: &GoOn) -> String {
    let claim = &go_on.claim;
    let (ticket, node) = (ticket_of(&claim.node, claim.ticket), nodes(Some(&claim.node.0), ""));
    let queue = known.queues.named(&claim.queue);
    let Some(queue) = queue.map(|row| row.number) else {
        return format!("{ticket};{node};SELECT NULL");
    };
    let first = |class: u64| {
        format!(
            "(SELECT prio FROM seriatim_lane FORCE INDEX (lane_ready) WHERE q = {queue} AND st = 0 AND class = {class} \
             ORDER BY prio LIMIT 1)"
        )
    };
    let state = State { routes: known.routes.clone(), ..State::default() };
    let sound = mine(&state, claim).into_iter().filter(|class| class % 2 == 0);
    let each: Vec<String> = sound.map(first).collect();
    format!("{ticket};{node};SELECT MIN(l.prio) FROM ({}) l", each.join(" UNION ALL "))
}
