//! Claims of queues with groups or limits.

use std::collections::HashMap;

use super::State;
use crate::contract::{Claim, Claimed};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{Result, Share, Timestamp, Turn, Usage};
use crate::stores::room::Room;
use crate::stores::route::{first_class, group_of_class, last_class};
use crate::stores::sharing::{Ready, Round, Shared, Shares, share_out};

/// Where the rounds of groups are, and the pace of the rates.
#[derive(Default)]
pub(in crate::stores) struct Sharing {
    /// By queue.
    rounds: HashMap<u32, Round>,
    /// [`Usage::paced`] by queue and group; without a group, of the whole queue.
    paced: HashMap<(u32, Option<u64>), i64>,
}

impl Sharing {
    /// The rates of the queue changed: other ones begin with their burst.
    pub(super) fn forget_paces(&mut self, queue: u32) {
        self.paced.retain(|(of, _), _| *of != queue);
    }

    /// The queue is deleted.
    pub(super) fn forget(&mut self, queue: u32) {
        self.rounds.remove(&queue);
        self.forget_paces(queue);
    }
}

/// The ready lanes of a queue during a claim.
struct Look<'a> {
    state: &'a mut State,
    queue: u32,
    request: &'a Claim,
    now: Timestamp,
    shares: Shares,
    room: Room,
    crashed_left: usize,
    /// Whether lanes were left because of their crashes.
    leaves_crashed: bool,
    turns: Vec<Turn>,
}

impl Ready for Look<'_> {
    fn group_from(&mut self, from: u64) -> Result<Option<u64>> {
        let classes = (self.queue, first_class(from))..=(self.queue, u64::MAX);
        Ok(self.state.ready.range(classes).next().map(|((_, class), _)| group_of_class(*class)))
    }

    fn share(&self, group: u64) -> Share {
        self.shares.of(group)
    }

    fn usage(&mut self, group: u64) -> Result<Usage> {
        Ok(self.state.usage(self.queue, Some(group)))
    }

    fn used(&mut self, group: u64, usage: Usage) -> Result<()> {
        self.state.sharing.paced.insert((self.queue, Some(group)), usage.paced);
        Ok(())
    }

    fn is_ready(&mut self, group: u64) -> Result<bool> {
        let classes = first_class(group)..=last_class(group);
        Ok(self.state.best_place(self.queue, &classes, self.request, true).is_some())
    }

    fn take(&mut self, group: u64, most: usize) -> Result<usize> {
        let classes = first_class(group)..=last_class(group);
        let before = self.turns.len();
        while self.turns.len() < before + most && !self.room.is_full {
            let crashed = self.crashed_left > 0;
            let best = self.state.best_place(self.queue, &classes, self.request, crashed);
            let Some(((_, _, number), class)) = best else {
                let any = self.state.best_place(self.queue, &classes, self.request, true);
                self.leaves_crashed |= any.is_some();
                break;
            };
            let turn = self.state.claim_lane(self.now, number, self.request, &mut self.room);
            self.crashed_left -= usize::from(turn.is_some() && class % 2 == 1);
            self.turns.extend(turn);
        }
        Ok(self.turns.len() - before)
    }

    fn is_full(&self) -> bool {
        self.room.is_full
    }
}

impl State {
    /// Whether claims of a queue follow [`share_out`]: by its definition, or because jobs have groups from a time when it
    /// had some.
    pub(super) fn is_shared_out(&self, queue: u32) -> bool {
        let by_definition = self.queue_row(queue).is_some_and(|row| row.queue.is_shared_out());
        let grouped = (queue, first_class(1))..=(queue, u64::MAX);
        by_definition || self.ready.range(grouped).next().is_some()
    }

    pub(super) fn claim_in_rounds(
        &mut self,
        now: Timestamp,
        queue: u32,
        request: &Claim,
    ) -> Result<Claimed> {
        let definition = self.queue(&request.queue)?.queue.clone();
        let mut whole = self.usage(queue, None);
        let mut round = self.sharing.rounds.get(&queue).copied().unwrap_or_default();
        let mut look = Look {
            queue,
            request,
            now,
            shares: Shares::of_queue(&definition),
            room: Room::of(request),
            crashed_left: request.crashed_max,
            leaves_crashed: false,
            turns: Vec::new(),
            state: self,
        };
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let shared = share_out(&mut look, (&definition, &mut whole), &mut round, most, now)?;
        let Look { turns, room, leaves_crashed, .. } = look;
        self.sharing.rounds.insert(queue, round);
        self.sharing.paced.insert((queue, None), whole.paced);
        let any = leaves_crashed
            || shared == Shared::Full && self.best_lane(queue, request, true).is_some();
        let next_due = shared.next_due(any, now, self.first_wake(queue));
        Ok(Claimed { turns, next_due, cut: room.is_full, unanswered: false })
    }

    /// What a group uses of its limit; without a group, the whole queue.
    fn usage(&self, queue: u32, group: Option<u64>) -> Usage {
        let of_group = |number: &&u64| {
            let hold = self.lanes.get(*number).filter(|lane| lane.id.queue == queue);
            let hold = hold.and_then(|lane| lane.hold.as_ref());
            hold.is_some_and(|hold| group.is_none_or(|group| group == hold.group))
        };
        let running = self.claimed.iter().filter(of_group).count() as u32;
        let paced = self.sharing.paced.get(&(queue, group)).copied().unwrap_or_default();
        Usage { running, paced }
    }
}
