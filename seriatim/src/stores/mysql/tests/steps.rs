//! Actions on many jobs take several transactions: until one ends, other calls may wait for its rows.

use super::*;
use crate::contract::{
    Act, Actions, JobQuery, JobState, LaneAction, LaneSelection, Selected, Selection,
};
use crate::model::settle::{Outcome, plan};

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
    let commits = committed(&store);
    assert!(commits >= 4, "{commits}: a look, two steps and the rest");
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
