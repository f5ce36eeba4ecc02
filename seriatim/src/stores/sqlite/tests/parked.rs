//! What keys that wait for a limit of their group cost the others, and jobs that wait for other nodes.

use super::super::tx::{Definitions, STEPS, Tx};
use super::reading::in_memory;
use super::*;
use crate::contract::{Heartbeat, Settle};
use crate::model::Settlement;
use crate::{Groups, Queue, Share};

/// Keys of the others, and of each claim.
const KEYS: usize = 400;
const LANES: usize = 100;

/// Steps in which the others are claimed and settled beside so many keys of each of these groups, whose limits are reached.
fn steps_beside(parked: usize, groups: usize) -> u64 {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    let names: Vec<String> = (0..groups).map(|group| format!("group {group}")).collect();
    let one = Share::default().running(1);
    let shares = names.iter().fold(Groups::default(), |all, name| all.named(name, one));
    tx.at(None).declare(&[Queue::fifo("q").groups(shares)], false).unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    tx.heartbeat(&Heartbeat { now: None, node, beats: Vec::new() }).unwrap();
    let job = |key: String| Job::new("q", &1).unwrap().key(key);
    for name in &names {
        let waiting = (0..=parked).map(|i| job(format!("{name}-{i}")).group(name.as_str()));
        tx.push(&waiting.collect::<Vec<_>>()).unwrap();
    }
    let running = tx.claim(&claiming("q", groups * 2)).unwrap().turns;
    assert_eq!(running.len(), groups);
    tx.push(&(0..KEYS).map(|i| job(format!("other {i}"))).collect::<Vec<_>>()).unwrap();
    let before = STEPS.get();
    for _ in 0..KEYS / LANES {
        let turns = tx.claim(&claiming("q", LANES)).unwrap().turns;
        assert_eq!(turns.len(), LANES);
        let done = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token));
        tx.settle(&Settle::now(done.collect())).unwrap();
    }
    STEPS.get() - before
}

#[test]
fn keys_that_wait_for_a_limit_cost_the_others_the_same_however_many_they_are_and_a_look_in_each_claim()
 {
    let [alone, few, many] =
        [(0, 0), (10, 3), (1_000, 3)].map(|(parked, groups)| steps_beside(parked, groups));
    assert!(few.abs_diff(many) < 100, "{few} steps beside few, {many} beside many");
    // Most of it is that turns of groups are counted at all.
    assert!(many < alone + alone / 10, "{alone} steps alone, {many} beside them");
}

/// Steps in which a job is claimed beside jobs that are bound to so many other nodes.
fn steps_beside_nodes(nodes: usize) -> u64 {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    tx.heartbeat(&Heartbeat { now: None, node, beats: Vec::new() }).unwrap();
    let job = || Job::new("q", &1).unwrap();
    let bound = (0..nodes).map(|i| job().node(format!("node {i}")));
    tx.at(None).push(&bound.chain([job(), job().node("mine")]).collect::<Vec<_>>()).unwrap();
    let before = STEPS.get();
    let claim = Claim { node_name: Some("mine".into()), ..claiming("q", LANES) };
    assert_eq!(tx.claim(&claim).unwrap().turns.len(), 2);
    STEPS.get() - before
}

#[test]
fn jobs_that_are_bound_to_other_nodes_cost_a_claim_nothing_however_many_nodes_these_are() {
    let [few, many] = [3, 1_000].map(steps_beside_nodes);
    assert!(few.abs_diff(many) < 100, "{few} steps beside few, {many} beside many");
}
