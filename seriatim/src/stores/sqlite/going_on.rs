//! Lanes that go on: their next turns are claimed by the write that settles the last ones.

use super::claim::{Candidate, ClaimRow, Close, turn};
use super::lane::Work;
use super::row::{TAKEN, state};
use super::tx::{QueueRow, Tx};
use crate::contract::{Claim, Lease, Settle};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{Result, Turn};
use crate::stores::room::Room;

/// The lanes of a settle that may go on.
pub(super) struct GoingOn<'r> {
    queues: Vec<OfQueue<'r>>,
    /// For each settlement, its queue above.
    by_place: Vec<Option<usize>>,
}

/// Those of one queue.
struct OfQueue<'r> {
    claim: &'r Claim,
    queue: QueueRow,
    /// The best priority of the lanes that were ready before; `None` if there was none.
    best: Option<i64>,
    left: usize,
    rows: Vec<ClaimRow>,
}

impl<'r> GoingOn<'r> {
    /// Looks at the queues before anything is settled.
    pub(super) fn of(tx: &mut Tx<'_>, request: &'r Settle) -> Result<Self> {
        let mut going_on = Self { queues: Vec::new(), by_place: Vec::new() };
        for go_on in &request.go_on {
            let claim = &go_on.claim;
            let Ok(queue) =
                tx.check_node(&claim.node, claim.ticket).and_then(|()| tx.queue_to_claim(claim))
            else {
                continue;
            };
            if tx.is_shared_out(&queue)? {
                // Each lane waits for the turn of its group.
                continue;
            }
            let best = tx.best_priority(queue.number, claim)?;
            let left = if queue.paused { 0 } else { claim.lanes_max.min(CLAIM_LANES_MAX) };
            going_on.by_place.resize(request.turns.len(), None);
            for place in &go_on.places {
                if let Some(entry) = going_on.by_place.get_mut(*place) {
                    *entry = Some(going_on.queues.len());
                }
            }
            going_on.queues.push(OfQueue { claim, queue, best, left, rows: Vec::new() });
        }
        Ok(going_on)
    }

    /// The queue of the settlement at this place, if its lane may go on.
    fn at(&mut self, place: usize) -> Option<&mut OfQueue<'r>> {
        let entry = (*self.by_place.get(place)?)?;
        self.queues.get_mut(entry).filter(|queue| queue.left > 0)
    }

    /// Stores the claims.
    pub(super) fn store(self, tx: &mut Tx<'_>) -> Result<()> {
        for of in self.queues {
            let own = matches!(of.claim.lease, Lease::Own { .. });
            tx.store_claims(of.queue.number, &of.claim.node, own, &of.rows)?;
        }
        Ok(())
    }
}

impl Tx<'_> {
    /// Claims the next turn of a lane whose turn is being settled. Its row is positioned, and not stored yet.
    pub(super) fn next_turn(
        &mut self,
        work: &mut Work,
        place: usize,
        going_on: &mut GoingOn<'_>,
    ) -> Result<Option<Turn>> {
        let head = &work.row.head;
        let (st, class, priority) = (head.st, head.class, head.prio);
        let Some(of) = going_on.at(place) else { return Ok(None) };
        let is_best = of.best.is_none_or(|best| priority <= best);
        if st != state::READY
            || class % 2 == 1
            || !is_best
            || work.queue.number != of.queue.number
            || !self.may_take(class / 2, of.claim)?
        {
            return Ok(None);
        }
        let candidate = Candidate::of(work);
        let chosen = self.choose(&of.queue, of.claim, candidate, &mut Room::unlimited())?;
        let Some(taken) = chosen else { return Ok(None) };
        let own = matches!(of.claim.lease, Lease::Own { .. });
        let row = ClaimRow::of(&mut of.rows, own, taken.ttl, || self.next_token());
        row.add(work.row.head.id);
        let token = row.token;
        of.left -= 1;
        let head = &mut work.row.head;
        (head.st, head.wake, head.token) = (state::CLAIMED, None, token);
        (head.claimed_at, head.beat_at) = (Some(self.now), Some(self.now));
        head.next_due = taken.leaves_some.then_some(head.due);
        head.flags |= taken.flags;
        match taken.close {
            Close::Slot => {
                if let Some(slot) = work.slot_mut() {
                    slot.gen_ = TAKEN;
                }
            }
            Close::All => head.open = token,
            Close::Items => {}
        }
        self.delta(of.queue.number).running += 1;
        Ok(Some(turn(&of.queue, taken, token, self.now)))
    }

    /// The best priority of the ready lanes that a claim may take, apart from those with earlier crashes.
    fn best_priority(&mut self, queue: u32, claim: &Claim) -> Result<Option<i64>> {
        let sql = "SELECT prio FROM ready WHERE q = ?1 AND class = ?2 ORDER BY prio LIMIT 1";
        let mut best = None;
        for class in self.classes(queue, 0, claim)?.into_iter().filter(|class| class % 2 == 0) {
            let first: Option<i64> =
                self.first(sql, rusqlite::params![queue, class], |row| row.get(0))?;
            best = best.into_iter().chain(first).min();
        }
        Ok(best)
    }
}
