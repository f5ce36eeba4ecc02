//! The rule by which groups take turns, on a list of ready lanes.
use std::collections::BTreeMap;

use super::*;
use crate::model::flow::Groups;
use crate::model::rate::Rate;

/// Groups with a number of ready lanes each.
#[derive(Default)]
struct Fake {
    lanes: BTreeMap<u64, usize>,
    usages: BTreeMap<u64, Usage>,
    shares: BTreeMap<u64, Share>,
    /// Lanes of groups, in the order in which they were claimed.
    taken: Vec<u64>,
    visits: usize,
}

impl Ready for Fake {
    fn group_from(&mut self, from: u64) -> Result<Option<u64>> {
        self.visits += 1;
        Ok(self.lanes.range(from..).next().map(|(group, _)| *group))
    }

    fn share(&self, group: u64) -> Share {
        self.shares.get(&group).copied().unwrap_or_default()
    }

    fn usage(&mut self, group: u64) -> Result<Usage> {
        Ok(self.usages.get(&group).copied().unwrap_or_default())
    }

    fn used(&mut self, group: u64, usage: Usage) -> Result<()> {
        self.usages.insert(group, usage);
        Ok(())
    }

    fn is_ready(&mut self, group: u64) -> Result<bool> {
        Ok(self.lanes.get(&group).is_some_and(|lanes| *lanes > 0))
    }

    fn take(&mut self, group: u64, most: usize) -> Result<usize> {
        let Some(lanes) = self.lanes.get_mut(&group) else { return Ok(0) };
        let given = most.min(*lanes);
        *lanes -= given;
        if *lanes == 0 {
            self.lanes.remove(&group);
        }
        self.taken.extend(std::iter::repeat_n(group, given));
        Ok(given)
    }

    fn is_full(&self) -> bool {
        false
    }
}

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn of(lanes: &[(u64, usize)]) -> Fake {
    Fake { lanes: lanes.iter().copied().collect(), ..Fake::default() }
}

/// A claim of at most `most` lanes from a queue without limits of its own.
fn claim(fake: &mut Fake, round: &mut Round, most: usize) -> Shared {
    let queue = Queue::fifo("q").groups(Groups::default());
    share_out(fake, (&queue, &mut Usage::default()), round, most, NOW).unwrap()
}

#[test]
fn groups_take_turns_whatever_waits_for_each() {
    let mut fake = of(&[(1, 100_000), (2, 2), (3, 1)]);
    assert_eq!(claim(&mut fake, &mut Round::default(), 6), Shared::Full);
    assert_eq!(fake.taken, [1, 2, 3, 1, 2, 1]);
}

#[test]
fn a_group_gives_as_many_lanes_in_its_turn_as_it_has_weight() {
    let mut fake = of(&[(1, 100), (2, 100)]);
    fake.shares.insert(1, Share::default().weight(3));
    claim(&mut fake, &mut Round::default(), 8);
    assert_eq!(fake.taken, [1, 1, 1, 2, 1, 1, 1, 2]);
}

#[test]
fn the_next_claim_goes_on_in_the_middle_of_a_turn() {
    let mut fake = of(&[(1, 100), (2, 100)]);
    fake.shares.insert(1, Share::default().weight(3));
    let mut round = Round::default();
    for _ in 0..8 {
        claim(&mut fake, &mut round, 1);
    }
    assert_eq!(fake.taken, [1, 1, 1, 2, 1, 1, 1, 2]);
}

#[test]
fn a_group_whose_turns_all_run_is_left_out_and_the_others_go_on() {
    let mut fake = of(&[(1, 100), (2, 3)]);
    fake.shares.insert(1, Share::default().running(2));
    assert_eq!(claim(&mut fake, &mut Round::default(), 10), Shared::Empty(None));
    assert_eq!(fake.taken, [1, 2, 1, 2, 2]);
    fake.usages.get_mut(&1).unwrap().running -= 1;
    assert_eq!(claim(&mut fake, &mut Round::default(), 10), Shared::Empty(None));
    assert_eq!(fake.taken[5..], [1]);
}

#[test]
fn an_empty_claim_says_when_the_first_rate_lets_a_turn_start() {
    let mut fake = of(&[(1, 100), (2, 100), (3, 1)]);
    fake.shares.insert(1, Share::default().rate(Rate::per_second(10)).burst(1));
    fake.shares.insert(2, Share::default().rate(Rate::per_second(20)).burst(2));
    fake.shares.insert(3, Share::default().rate(Rate::per_second(1_000)).burst(1));
    let soonest = Some(Timestamp::from_micros(NOW.as_micros() + 50_000));
    assert_eq!(claim(&mut fake, &mut Round::default(), 10), Shared::Empty(soonest));
    assert_eq!(fake.taken, [1, 2, 3, 2]);
}

#[test]
fn a_limit_of_the_queue_counts_for_all_groups_together() {
    let mut fake = of(&[(1, 100), (2, 100)]);
    let queue = Queue::fifo("q").groups(Groups::default()).running(3);
    let (mut whole, mut round) = (Usage::default(), Round::default());
    let first = share_out(&mut fake, (&queue, &mut whole), &mut round, 10, NOW).unwrap();
    assert_eq!((first, whole.running), (Shared::Empty(None), 3));
    assert_eq!(fake.taken, [1, 2, 1]);
}

#[test]
fn one_claim_visits_a_bounded_number_of_groups_and_the_next_goes_on_behind_them() {
    let all = VISITS_MAX as u64 + 10;
    let mut fake = of(&(0..all).map(|group| (group, 1)).collect::<Vec<_>>());
    for group in 0..all - 1 {
        fake.shares.insert(group, Share::default().running(1));
        fake.usages.insert(group, Usage { running: 1, paced: 0 });
    }
    let mut round = Round::default();
    assert_eq!(claim(&mut fake, &mut round, 1), Shared::Empty(Some(NOW + REST)));
    assert_eq!((fake.visits, round.from), (VISITS_MAX, VISITS_MAX as u64));
    claim(&mut fake, &mut round, 1);
    assert_eq!(fake.taken, [all - 1]);
}

#[test]
fn a_group_that_is_alone_gives_its_turns_together_and_one_at_its_limit_is_visited_once_or_twice() {
    let mut fake = of(&[(1, 100), (2, 100)]);
    fake.shares.insert(1, Share::default().weight(3));
    fake.shares.insert(2, Share::default().running(1));
    fake.usages.insert(2, Usage { running: 1, paced: 0 });
    let mut round = Round::default();
    assert_eq!(claim(&mut fake, &mut round, 50), Shared::Full);
    assert_eq!((fake.taken, fake.visits), (vec![1; 50], 4));
    assert_eq!(round, Round { from: 1, given: 2 }, "50 = 16 × 3 + 2");
}

#[cfg(feature = "postgres")]
mod beside;
