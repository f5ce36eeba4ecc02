//! Lanes of which a part was read.

use super::*;
use crate::contract::{LaneQuery, LaneView};
use crate::stores::mysql::bodies::Bodies;
use crate::stores::mysql::error::Fail;
use crate::stores::mysql::work::{Lock, Work};

/// An operation on the locked lanes of a store, of which no jobs were read.
async fn on_bare_lanes(
    store: &Mysql,
    operation: impl FnOnce(&mut crate::stores::state::State, Timestamp),
) -> Result<(), Fail> {
    let inner = &store.inner;
    let mut work =
        Work::begin(&inner.pool, &inner.definitions, Lock::FREE, None, "").await.ok().unwrap();
    work.read_lanes("WHERE q = 1 FOR UPDATE", Bodies::None).await?;
    let now = work.now;
    operation(&mut work.state, now);
    let saved = work.save().await.map(drop);
    work.session.undo_after(Fail::Partial, "ROLLBACK").await;
    saved
}

#[tokio::test]
async fn what_was_not_read_of_a_lane_is_not_taken_for_nothing() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::fifo("q").take(3)).await;
    push(&store, vec![job("k", 1), job("k", 2).score(-1.0), job("k", 3)]).await;
    let id = store.lanes(LaneQuery::new("q")).await.unwrap().rows[0].lane.number;
    let positioned = on_bare_lanes(&store, |state, now| state.position(id, now)).await;
    assert!(matches!(positioned, Err(Fail::Partial)), "its first job was not read");
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let settlement = Settlement::done(turn.lane, turn.token);
    let settled = on_bare_lanes(&store, |state, now| drop(state.settle(now, &[settlement]))).await;
    assert!(matches!(settled, Err(Fail::Partial)), "the jobs of its turn were not read");
    assert!(done(&store, &[turn]).await[0].is_ok());
    assert_eq!(store.stats(None).await.unwrap()[0].processed, 3);
}

#[tokio::test]
async fn a_listing_shows_the_best_priority_of_a_deep_lane() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::accumulate("q")).await;
    let jobs = (0..200).map(|i| job("k", i).priority(if i == 150 { 7 } else { 100 }));
    push(&store, jobs.collect()).await;
    let lanes: Vec<LaneView> = store.lanes(LaneQuery::new("q")).await.unwrap().rows;
    assert_eq!(lanes.iter().map(|lane| (lane.jobs, lane.priority)).collect::<Vec<_>>(), [(200, 7)]);
}
