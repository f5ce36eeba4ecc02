//! Calls whose answers were lost.

use super::*;
use crate::contract::{Consumer, Fleet, GiveUp, LaneQuery, LaneStage, Views};

/// Makes claims wait until its transaction ends, as for a change of the queue's mode.
async fn hold_claims(schema: &str) -> tokio_postgres::Client {
    let client = session().await;
    let alone =
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext('seriatim.'), number) FROM seriatim.queue";
    let lock = in_schema(alone, schema);
    client.batch_execute(&lock).await.unwrap();
    client
}

async fn held(store: &Postgres) -> Vec<Option<Token>> {
    let query = LaneQuery { stages: vec![LaneStage::Running], ..LaneQuery::new("q") };
    store.lanes(query).await.unwrap().rows.into_iter().map(|lane| lane.token).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_under_way_takes_is_there_to_be_seen_when_it_has_been_given_up() {
    let schema = new_schema();
    let (store, watcher) = (open(&schema).await, session().await);
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let lock = hold_claims(&schema).await;
    let request = Claim { ticket: 1, ..claiming("q", 1) };
    let claim = tokio::spawn({
        let store = store.clone();
        async move { store.claim(request).await }
    });
    until_waiting(&watcher, &schema, 1).await;
    let given_up = tokio::spawn({
        let store = store.clone();
        async move {
            store.give_up(GiveUp { node: "n".into(), ticket: 1, queue: None }).await.unwrap();
            held(&store).await
        }
    });
    // It waits for the claim, which waits for the lock. A heartbeat does not.
    until_waiting(&watcher, &schema, 2).await;
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    lock.batch_execute("COMMIT").await.unwrap();
    let turns = claim.await.unwrap().unwrap().turns;
    assert_eq!(turns.len(), 1);
    assert_eq!(given_up.await.unwrap(), [Some(turns[0].token)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_nobody_waits_for_any_more_ends_on_the_server_too() {
    let schema = new_schema();
    let (store, watcher) = (open(&schema).await, session().await);
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let lock = hold_claims(&schema).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let hasty = format!("{}{mark}schema={schema}&call_timeout=500ms", url());
    let hasty = Postgres::connect(&hasty).await.unwrap();
    let error = hasty.claim(claiming("q", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let waiting = "SELECT count(*) FROM pg_stat_activity \
        WHERE application_name = $1 AND wait_event_type = 'Lock'";
    let name = format!("seriatim {schema}");
    while watcher.query_one(waiting, &[&name]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    lock.batch_execute("COMMIT").await.unwrap();
    assert_eq!(held(&store).await, [], "it was undone");
}
