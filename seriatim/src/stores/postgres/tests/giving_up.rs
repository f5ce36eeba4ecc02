//! Calls whose answers were lost.

use super::locks::Schema;
use super::*;
use crate::contract::{Consumer, LaneQuery, LaneStage, Views};
use crate::stores::contended;

/// Makes claims wait until its transaction ends, as for a change of the queue's mode.
pub(super) async fn hold_claims(schema: &str) -> tokio_postgres::Client {
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
    let schema = Schema::new().await;
    contended::what_a_claim_under_way_takes_is_seen_when_it_was_given_up(&schema).await;
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
