//! Turns settled on the fast path.

use super::*;
use crate::contract::Cancel;
use crate::contract::{Actions, Views};

/// Two lanes with a job each, claimed by this process.
async fn two_turns(store: &Mysql) -> Vec<Turn> {
    declare(store, Queue::accumulate("q")).await;
    push(store, vec![job("k", 1), job("l", 2)]).await;
    claim(store, "q", 2).await.turns
}

async fn count(conn: &mut Conn, table: &str) -> i64 {
    conn.query_first(format!("SELECT COUNT(*) FROM {table}")).await.unwrap().unwrap()
}

#[tokio::test]
async fn turns_of_one_job_that_are_done_end_without_being_read() {
    let store = open(&new_database().await).await;
    let turns = two_turns(&store).await;
    store.inner.pool.statements.lock().unwrap().clear();
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    let statements = store.inner.pool.statements.lock().unwrap().clone();
    assert_eq!(statements.len(), 2, "round trips: {statements:?}");
    assert!(!statements.concat().contains("j_score"), "{statements:?}");
    let stats = &store.stats(None).await.unwrap()[0];
    assert_eq!((stats.jobs, stats.processed), (0, 2));
}

#[tokio::test]
async fn a_turn_that_was_taken_over_is_stale_and_the_others_end() {
    let database = new_database().await;
    let store = open(&database).await;
    let turns = two_turns(&store).await;
    let mut conn = session(&database).await;
    let taken_over =
        format!("UPDATE seriatim_lane SET tok = tok + 1 WHERE id = {}", turns[0].lane.number);
    conn.query_drop(taken_over).await.unwrap();
    let settled: Vec<bool> = done(&store, &turns).await.iter().map(Settled::is_ok).collect();
    assert_eq!(settled, [false, true]);
    assert_eq!(count(&mut conn, "seriatim_lane").await, 1);
}

#[tokio::test]
async fn what_came_to_a_lane_meanwhile_is_there_when_its_turn_has_ended() {
    let store = open(&new_database().await).await;
    let turns = two_turns(&store).await;
    push(&store, vec![job("k", 3)]).await;
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    let next = claim(&store, "q", 2).await.turns;
    assert_eq!(next.iter().map(|turn| turn.key.as_deref()).collect::<Vec<_>>(), [Some("k")]);
}

#[tokio::test]
async fn a_job_that_was_to_be_cancelled_and_is_done_leaves_no_flag() {
    let database = new_database().await;
    let store = open(&database).await;
    let turns = two_turns(&store).await;
    let jobs = vec![turns[0].jobs[0].id];
    store.cancel(Cancel { now: None, jobs }).await.unwrap();
    let mut conn = session(&database).await;
    assert_eq!(count(&mut conn, "seriatim_flag").await, 1);
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    assert_eq!(count(&mut conn, "seriatim_flag").await, 0);
}
