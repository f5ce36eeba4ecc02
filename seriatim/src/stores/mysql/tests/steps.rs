//! Actions on many jobs take several transactions: until one ends, other calls may wait for its rows.

use super::*;
use crate::contract::{
    Act, Actions, DeleteQueue, JobQuery, JobState, LaneAction, LaneSelection, Selected, Selection,
};
use crate::model::{Mode, Outcome, plan};

const JOBS: u32 = 2_500;

fn bury() -> Act {
    let lanes = LaneSelection::Key("k".into());
    Act { now: None, queue: "q".into(), lanes, action: LaneAction::Bury }
}

/// A store with many jobs of a key that failed once.
async fn with_failed() -> Arc<Mysql> {
    let store = open(&new_database().await).await;
    let queue = Queue::accumulate("q").merge(Merge::None);
    declare(&store, queue.clone()).await;
    push(&store, (0..JOBS).map(|number| job("k", number)).collect()).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let failed = Outcome::Retry { error: "boom".into(), retry_in: Some(LEASE) };
    let settlement = plan(&turn, &queue, &failed.into(), &|_| LEASE);
    assert!(store.settle(Settle::now(vec![settlement])).await.unwrap()[0].is_ok());
    crate::lock::lock(&store.inner.pool.statements).clear();
    store
}

/// How many transactions have been committed since the last time.
fn committed(store: &Mysql) -> usize {
    let statements = std::mem::take(&mut *crate::lock::lock(&store.inner.pool.statements));
    statements.iter().filter(|sql| sql.contains("COMMIT")).count()
}

#[tokio::test]
async fn a_burial_and_a_requeue_of_a_long_lane_take_several_transactions() {
    let store = with_failed().await;
    let acted = store.act(bury()).await.unwrap();
    assert_eq!((acted.count, acted.more), (1, false));
    assert_eq!(committed(&store), 3);
    let stats = &store.stats(None).await.unwrap()[0];
    assert_eq!((stats.jobs, stats.dead, stats.lanes), (0, u64::from(JOBS), 0));
    let dead = JobQuery { rows_max: 10_000, ..JobQuery::new("q", JobState::Dead) };
    let dead = store.jobs(dead).await.unwrap().rows;
    assert!(dead.iter().all(|job| job.error.as_deref() == Some("boom")));

    committed(&store);
    let all = Selected { now: None, queue: "q".into(), which: Selection::All };
    let acted = store.requeue(all).await.unwrap();
    assert_eq!((acted.count, acted.more), (u64::from(JOBS), false));
    assert_eq!(committed(&store), 3);
    assert_eq!(claim(&store, "q", 1).await.turns[0].jobs.len(), JOBS as usize);
}

#[tokio::test]
async fn a_queue_with_a_long_key_is_deleted_in_parts() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("short", 0)]).await;
    push(&store, (0..JOBS).map(|number| job("k", number)).collect()).await;
    let (mut left, mut calls) = (u64::from(JOBS) + 1, 0);
    loop {
        let request = DeleteQueue { queue: "q".into(), rows_max: 10_000 };
        let acted = store.delete_queue(request).await.unwrap();
        assert!(acted.count <= 1_001, "{acted:?}");
        (left, calls) = (left - acted.count, calls + 1);
        if !acted.more {
            break;
        }
        assert_eq!(store.stats(None).await.unwrap()[0].jobs, left);
    }
    assert_eq!((left, store.stats(None).await.unwrap().len()), (0, 0));
    assert!(calls >= 3, "{calls} calls");
}

#[tokio::test]
async fn an_action_on_many_lanes_takes_several_transactions() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..JOBS).map(|number| job(&number.to_string(), number)).collect()).await;
    crate::lock::lock(&store.inner.pool.statements).clear();
    for action in [LaneAction::Pause, LaneAction::RunNow, LaneAction::Delete] {
        let act = Act { now: None, queue: "q".into(), lanes: LaneSelection::All, action };
        let acted = store.act(act).await.unwrap();
        assert_eq!((acted.count, acted.more), (u64::from(JOBS), false), "{action:?}");
        assert_eq!(committed(&store), JOBS as usize / 200 + 1, "{action:?}");
    }
    assert_eq!(store.stats(None).await.unwrap()[0].lanes, 0);
}

#[tokio::test]
async fn what_is_due_of_an_exclusive_key_moves_in_steps() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::new("q", Mode::Exclusive)).await;
    let later = |number| job("k", number).run_in(LEASE * 600);
    push(&store, (0..JOBS).map(later).collect()).await;
    crate::lock::lock(&store.inner.pool.statements).clear();
    let lanes = LaneSelection::Key("k".into());
    let act = Act { now: None, queue: "q".into(), lanes, action: LaneAction::RunNow };
    assert_eq!(store.act(act).await.unwrap().count, 1);
    assert_eq!(committed(&store), 3);
}
