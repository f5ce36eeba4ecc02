//! Lanes that go on: their next turns are claimed in the step that settles the last ones.

use std::time::Duration;

use seriatim::store::{Claim, GiveUp, GoOn, LaneAction, LaneSelection, NodeId, Settled, Turn};
use seriatim::{Job, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_lane_goes_on_with_its_next_jobs_under_a_new_token,
        a_lane_goes_on_as_its_queue_is_declared_now,
        a_lane_that_went_on_is_rescued_like_any_other,
        a_lane_that_is_empty_does_not_go_on,
        a_lane_stays_behind_a_better_priority,
        a_lane_with_nothing_due_does_not_go_on,
        a_held_a_failed_and_a_paused_lane_do_not_go_on,
        a_stale_settle_does_not_go_on,
        a_node_that_is_gone_settles_without_going_on,
        no_more_lanes_go_on_than_asked,
        lanes_go_on_in_the_order_in_which_they_are_named,
    ]
}

impl Bench {
    /// Settles these turns as done, and lets their lanes go on as `claim` allows.
    async fn go_on_by(&mut self, turns: &[&Turn], claim: Claim) -> Vec<Settled> {
        let places = (0..turns.len()).collect();
        let turns = turns.iter().map(|turn| self.planned(turn, Outcome::Done)).collect();
        self.settle_and_go_on(turns, vec![GoOn { claim, places }]).await
    }

    /// The next turn of the lane of `turn`, which is done.
    async fn go_on(&mut self, turn: &Turn) -> Option<Turn> {
        let claim = self.claim_request("q", 1);
        next(self.go_on_by(&[turn], claim).await.remove(0))
    }
}

/// The payloads of a turn.
fn numbers(turn: &Turn) -> Vec<i32> {
    turn.jobs.iter().map(|job| job.payload.decode().expect("a number")).collect()
}

/// The lane's next turn, if it goes on. The settle took effect.
fn next(settled: Settled) -> Option<Turn> {
    match settled {
        Settled::Ok { next, .. } => next.map(|turn| *turn),
        _ => panic!("the turn is settled"),
    }
}

async fn a_lane_goes_on_with_its_next_jobs_under_a_new_token(mut bench: Bench) {
    for mode in [Mode::Fifo, Mode::Exclusive, Mode::Accumulate] {
        let queue = Queue::new(mode.as_str(), mode);
        bench.declare(queue).await;
        let job = |n: i32| Job::new(mode.as_str(), &n).unwrap().key("k");
        bench.push(job(1)).await;
        let request = bench.claim_request(mode.as_str(), 1);
        let first = bench.claimed(request.clone()).await.turns.remove(0);
        for n in 2..6 {
            bench.push(job(n)).await;
        }
        bench.pass(Duration::from_secs(1));
        let mut turn = first.clone();
        let mut payloads = Vec::new();
        let claim = Claim { now: Some(bench.now), ..request.clone() };
        while let Some(following) = next(bench.go_on_by(&[&turn], claim.clone()).await.remove(0)) {
            assert_eq!((following.lane, &following.key), (turn.lane, &turn.key), "{mode}");
            assert!(following.token > turn.token, "{mode}: the token fences the last turn");
            assert_eq!(following.claimed_at, bench.now, "{mode}");
            assert_eq!(bench.end(&turn, Outcome::Done).await, Settled::Stale, "{mode}");
            assert!(bench.claimed(claim.clone()).await.turns.is_empty(), "{mode}: it is held");
            payloads.push(numbers(&following));
            turn = following;
        }
        let expected = match mode {
            Mode::Accumulate => vec![vec![2, 3, 4, 5]],
            _ => vec![vec![2], vec![3], vec![4], vec![5]],
        };
        assert_eq!(payloads, expected, "{mode}");
        let stats = bench.store.stats(Some(bench.now)).await.unwrap();
        let stats = stats.iter().find(|stats| &*stats.queue == mode.as_str()).unwrap();
        assert_eq!((stats.jobs, stats.claimed, stats.processed), (0, 0, 5), "{mode}");
    }
}

async fn a_lane_goes_on_as_its_queue_is_declared_now(mut bench: Bench) {
    for (name, take_before, take_now) in [("more", 1, 2), ("fewer", 2, 1)] {
        bench.declare(Queue::fifo(name).take(take_before)).await;
        bench.push_all((1..=5).map(|n: i32| Job::new(name, &n).unwrap().key("k")).collect()).await;
        let request = bench.claim_request(name, 1);
        let mut turn = bench.claimed(request.clone()).await.turns.remove(0);
        let mut payloads = vec![numbers(&turn)];
        bench.declare(Queue::fifo(name).take(take_now)).await;
        while let Some(following) = next(bench.go_on_by(&[&turn], request.clone()).await.remove(0))
        {
            payloads.push(numbers(&following));
            turn = following;
        }
        let expected = match take_now {
            2 => vec![vec![1], vec![2, 3], vec![4, 5]],
            _ => vec![vec![1, 2], vec![3], vec![4], vec![5]],
        };
        assert_eq!(payloads, expected, "{name}");
        let stats = bench.store.stats(Some(bench.now)).await.unwrap();
        let stats = stats.iter().find(|stats| &*stats.queue == name).unwrap();
        assert_eq!(
            (stats.lanes, stats.jobs, stats.claimed, stats.processed),
            (0, 0, 0, 5),
            "{name}"
        );
        bench.push(Job::new(name, &6).unwrap().key("k")).await;
        assert_eq!(bench.claimed(request).await.turns.len(), 1, "{name}: nothing holds the key");
    }
}

async fn a_lane_that_went_on_is_rescued_like_any_other(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all((0..3).map(|n| Job::new("q", &n).unwrap().key("k")).collect()).await;
    let first = bench.one().await;
    let second = bench.go_on(&first).await.expect("it goes on");
    bench.pass(LEASE + Duration::from_secs(1));
    let other = bench.other_node("node-2").await;
    let rescued = bench.rescue(&other).await;
    assert_eq!(rescued.len(), 1);
    assert_eq!(rescued[0].jobs[0].id, second.jobs[0].id);
    assert!(rescued[0].token > second.token);
    assert_eq!(bench.end(&second, Outcome::Done).await, Settled::Stale);
    bench.done(&rescued[0]).await;
    assert_eq!(numbers(&bench.claim_by(&other.id, 1).await[0]), [2]);
}

async fn a_lane_that_is_empty_does_not_go_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(Job::new("q", &1).unwrap().key("k")).await;
    let turn = bench.one().await;
    assert_eq!(bench.go_on(&turn).await, None);
    assert_eq!(bench.nothing().await, None);
}

async fn a_lane_stays_behind_a_better_priority(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let job = |key: &str, priority| Job::new("q", &key).unwrap().key(key).priority(priority);
    bench.push_all(vec![job("a", 100), job("a", 100)]).await;
    let turn = bench.one().await;
    bench.push(job("b", 99)).await;
    assert_eq!(bench.go_on(&turn).await, None);
    let keys: Vec<_> = bench.claim(2).await.into_iter().filter_map(|turn| turn.key).collect();
    assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), ["b", "a"]);
}

async fn a_lane_with_nothing_due_does_not_go_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let job = |n: i32| Job::new("q", &n).unwrap().key("k");
    let later = bench.now + Duration::from_secs(60);
    bench.push_all(vec![job(1), job(2).run_at(later)]).await;
    let turn = bench.one().await;
    assert_eq!(bench.go_on(&turn).await, None);
    assert_eq!(bench.nothing().await, Some(later));
}

async fn a_held_a_failed_and_a_paused_lane_do_not_go_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all((0..4).map(|n| Job::new("q", &n).unwrap().key("k")).collect()).await;
    let turn = bench.one().await;
    let claim = bench.claim_request("q", 1);
    let failed = bench.planned(&turn, failure());
    let go_on = vec![GoOn { claim, places: vec![0] }];
    let settled = bench.settle_and_go_on(vec![failed], go_on).await.remove(0);
    assert_eq!(next(settled), None, "its turn failed");
    bench.pass(WAIT);
    let turn = bench.one().await;
    bench.store.pause_queue("q".into(), true).await.unwrap();
    assert_eq!(bench.go_on(&turn).await, None, "its queue is paused");
    bench.store.pause_queue("q".into(), false).await.unwrap();
    let turn = bench.one().await;
    bench.act(LaneSelection::Key("k".into()), LaneAction::Pause).await;
    assert_eq!(bench.go_on(&turn).await, None, "the lane is paused");
    let left = bench.nothing().await;
    assert_eq!(left, None);
}

async fn a_stale_settle_does_not_go_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all((0..3).map(|n| Job::new("q", &n).unwrap().key("k")).collect()).await;
    let turn = bench.one().await;
    bench.done(&turn).await;
    let claim = bench.claim_request("q", 1);
    assert_eq!(bench.go_on_by(&[&turn], claim).await, [Settled::Stale]);
    assert_eq!(numbers(&bench.one().await), [1]);
}

async fn a_node_that_is_gone_settles_without_going_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all((0..3).map(|n| Job::new("q", &n).unwrap().key("k")).collect()).await;
    let turn = bench.one().await;
    let claim = Claim { node: NodeId::from("nowhere"), ..bench.claim_request("q", 1) };
    assert_eq!(next(bench.go_on_by(&[&turn], claim).await.remove(0)), None, "the node is unknown");
    let turn = bench.one().await;
    let given_up = GiveUp { node: bench.node.id.clone(), ticket: 7, queue: None };
    bench.store.give_up(given_up).await.unwrap();
    let claim = Claim { ticket: 7, ..bench.claim_request("q", 1) };
    assert_eq!(next(bench.go_on_by(&[&turn], claim).await.remove(0)), None, "it was given up");
    assert_eq!(numbers(&bench.one().await), [2]);
}

async fn no_more_lanes_go_on_than_asked(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let jobs = (0..6).map(|n| Job::new("q", &n).unwrap().key(format!("k{}", n % 3)));
    bench.push_all(jobs.collect()).await;
    let turns = bench.claim(3).await;
    let claim = bench.claim_request("q", 2);
    let settled = bench.go_on_by(&turns.iter().collect::<Vec<_>>(), claim).await;
    let following: Vec<Turn> = settled.into_iter().filter_map(next).collect();
    assert_eq!(following.len(), 2);
    assert_eq!(bench.one().await.jobs.len(), 1, "the third waits for a claim");
    for turn in &following {
        bench.done(turn).await;
    }
}

async fn lanes_go_on_in_the_order_in_which_they_are_named(mut bench: Bench) {
    for (mode, first) in [Mode::Fifo, Mode::Exclusive, Mode::Accumulate]
        .into_iter()
        .flat_map(|mode| [(mode, "plain"), (mode, "special")])
    {
        let name = format!("{mode}-{first}");
        bench.declare(Queue::new(&name, mode)).await;
        let job = |key: &str, n: i32| Job::new(&name, &n).unwrap().key(key);
        let special = |n: i32| job("special", n).expires_at(bench.now + LEASE);
        let (first_jobs, next_jobs) = [1, 2].map(|n| vec![job("plain", n), special(n)]).into();
        bench.push_all(first_jobs).await;
        let request = bench.claim_request(&name, 2);
        let mut turns = bench.claimed(request).await.turns;
        bench.push_all(next_jobs).await;
        turns.sort_by_key(|turn| turn.key.as_deref() != Some(first));
        let claim = bench.claim_request(&name, 1);
        let settled = bench.go_on_by(&turns.iter().collect::<Vec<_>>(), claim).await;
        let keys: Vec<_> =
            settled.into_iter().map(|one| next(one).and_then(|turn| turn.key)).collect();
        assert_eq!(keys, [Some(first.into()), None], "{name}");
    }
}
