//! Jobs that were merged into others.

use super::*;
use crate::contract::{
    Act, Actions, Cancel, Cancelled, LaneAction, LaneSelection, Selected, Selection,
};
use crate::model::{Due, Fate, Keep};

/// Ends a turn with all its jobs having this fate.
async fn end(store: &Mysql, turn: &Turn, fate: Fate) {
    let keep = Keep { due: Due::Now, ..Settlement::done(turn.lane, turn.token).keep };
    let settlement = Settlement { rest: fate, keep, ..Settlement::done(turn.lane, turn.token) };
    assert!(store.settle(Settle::now(vec![settlement])).await.unwrap()[0].is_ok());
}

async fn id_of(store: &Mysql, job: Job) -> crate::JobId {
    store.push(Push { now: None, jobs: vec![job] }).await.unwrap()[0].job_id
}

/// The settle merges the job that waits into the one that ran, in whatever moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_merges_while_it_is_cancelled_is_known() {
    let database = new_database().await;
    let (store, other) = (open(&database).await, open(&database).await);
    declare(&store, Queue::accumulate("q")).await;
    for round in 0..60 {
        push(&store, vec![job("k", 1)]).await;
        let turn = claim(&store, "q", 1).await.turns.remove(0);
        let waiting = id_of(&store, job("k", 1)).await;
        let cancel = async {
            // At another moment of the settle each time.
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            other.cancel(Cancel { now: None, jobs: vec![waiting] }).await.unwrap()
        };
        let (cancelled, ()) = tokio::join!(cancel, end(&store, &turn, Fate::Keep));
        assert_eq!(cancelled, [Cancelled::Now], "round {round}");
        let lanes = LaneSelection::All;
        let delete = Act { now: None, queue: "q".into(), lanes, action: LaneAction::Delete };
        store.act(delete).await.unwrap();
    }
}

#[tokio::test]
async fn a_job_that_was_merged_twice_is_known_by_all_its_ids() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::accumulate("q")).await;
    let dead = id_of(&store, job("k", 1)).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    end(&store, &turn, Fate::Bury).await;
    let second = id_of(&store, job("k", 1)).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    let third = id_of(&store, job("k", 1)).await;
    end(&store, &turn, Fate::Keep).await;
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1, "the third is in the second");
    let which = Selection::Jobs(vec![dead]);
    store.requeue(Selected { now: None, queue: "q".into(), which }).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1, "both are in the first");
    for id in [dead, second, third] {
        assert!(store.job(id).await.unwrap().is_some(), "{id}");
    }
}
