//! Claims that go side by side, each of which sees what was committed before it.

use super::*;

/// A claim behind a door that is not yet committed, and how many lanes it takes.
type UnderWay = [Option<u32>; DOORS as usize];

#[test]
fn claims_side_by_side_exceed_no_limit_whatever_each_of_them_sees() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let limit = rng.u32(1..200);
        let beside = Beside::of(&Queue::parallel("q").running(limit)).unwrap();
        let (mut committed, mut doors, mut most) = (0, UnderWay::default(), 0);
        for _ in 0..1_000 {
            let door = &mut doors[rng.usize(..DOORS as usize)];
            match door.take() {
                Some(lanes) => committed += lanes,
                None => {
                    let lanes = rng.u32(1..=beside.most + 1);
                    *door = beside.has_room(limit, committed, lanes).then_some(lanes);
                }
            }
            if rng.u8(..4) == 0 {
                committed -= rng.u32(..=committed);
            }
            let all = committed + doors.iter().flatten().sum::<u32>();
            most = most.max(all);
            assert!(all <= limit, "{all} of {limit}");
        }
        assert!(limit < 2 * DOORS || most > 0);
    }
}

#[test]
fn only_a_queue_with_nothing_but_a_limit_of_running_turns_is_claimed_side_by_side() {
    let plain = Queue::parallel("q").running(80);
    assert_eq!(Beside::of(&plain).map(|beside| beside.most), Some(10));
    assert!(Beside::of(&plain.clone().groups(Groups::default())).is_none());
    assert!(Beside::of(&plain.rate(Rate::per_second(1))).is_none());
    assert!(Beside::of(&Queue::parallel("q")).is_none());
}
