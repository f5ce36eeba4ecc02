//! A pause beside claims and settles under way.

use tokio::time::timeout;

use super::*;
use crate::contract::{GoOn, LaneQuery};

/// Makes claims wait after their writes until the transaction of this session ends.
async fn hold_claims(schema: &str) -> tokio_postgres::Client {
    let client = session().await;
    let hold = "CREATE FUNCTION seriatim.hold() RETURNS trigger LANGUAGE plpgsql AS \
        'BEGIN PERFORM pg_advisory_xact_lock(hashtext(''held seriatim.'')); RETURN NEW; END'; \
        CREATE TRIGGER hold BEFORE INSERT ON seriatim.batch FOR EACH ROW EXECUTE FUNCTION seriatim.hold()";
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('held seriatim.'))";
    for sql in [hold, lock] {
        client.batch_execute(&in_schema(sql, schema)).await.unwrap();
    }
    client
}

/// Pauses the queue while a call claims a lane. The tokens of the call, and those that hold lanes when the pause has
/// returned.
async fn paused_during(
    schema: &str,
    call: impl Future<Output = Vec<Token>> + Send + 'static,
) -> (Vec<Token>, Vec<Token>) {
    let (store, watcher) = (open(schema).await, session().await);
    let holder = hold_claims(schema).await;
    let call = tokio::spawn(call);
    until_waiting(&watcher, schema, 1).await;
    let paused = tokio::spawn(async move {
        store.pause_queue("q".into(), true).await.unwrap();
        let lanes = store.lanes(LaneQuery::new("q")).await.unwrap().rows;
        lanes.into_iter().filter_map(|lane| lane.token).collect()
    });
    let _ = timeout(SOON, until_waiting(&watcher, schema, 2)).await;
    holder.batch_execute("COMMIT").await.unwrap();
    (call.await.unwrap(), paused.await.unwrap())
}

/// Ends these turns. The tokens of those lanes that go on.
async fn go_on(store: &Postgres, turns: &[Turn]) -> Vec<Token> {
    let places = (0..turns.len()).collect();
    let go_on = vec![GoOn { claim: claiming("q", turns.len()), places }];
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let settled = store.settle(Settle { go_on, ..Settle::now(turns) }).await.unwrap();
    let next = settled.into_iter().filter_map(|settled| match settled {
        Settled::Ok { next, .. } => next,
        other => panic!("{other:?}"),
    });
    next.map(|turn| turn.token).collect()
}

/// A settle of the first of two jobs of a key in `q`, which waits for the end of the session's transaction.
pub(super) async fn waiting_settle(
    store: &Arc<Postgres>,
    schema: &str,
) -> (tokio::task::JoinHandle<Vec<Token>>, tokio_postgres::Client) {
    push(store, vec![job("a", 1), job("a", 2)]).await;
    let turns = claim(store, "q", 1).await.turns;
    let holder = session().await;
    let lock = in_schema("BEGIN; SELECT FROM seriatim.lane FOR UPDATE", schema);
    holder.batch_execute(&lock).await.unwrap();
    let settler = store.clone();
    let settle = tokio::spawn(async move { go_on(&settler, &turns).await });
    until_waiting(&session().await, schema, 1).await;
    (settle, holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_pause_returns_a_claim_that_was_under_way_has_ended() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let claims = async move { vec![claim(&store, "q", 1).await.turns[0].token] };
    let (claimed, seen) = paused_during(&schema, claims).await;
    assert_eq!(claimed, seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_pause_returns_a_lane_that_was_going_on_has_begun_its_turn() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("a", 2)]).await;
    let turns = claim(&store, "q", 1).await.turns;
    let goes_on = async move { go_on(&store, &turns).await };
    let (claimed, seen) = paused_during(&schema, goes_on).await;
    assert_eq!((claimed.len(), claimed), (1, seen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_was_under_way_claims_nothing_after_a_pause_has_returned() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let (settle, holder) = waiting_settle(&store, &schema).await;
    let pause = store.pause_queue("q".into(), true);
    timeout(SOON, pause).await.expect("it waits for no lane").unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(settle.await.unwrap(), []);
    store.pause_queue("q".into(), false).await.unwrap();
    assert_eq!(claim(&store, "q", 1).await.turns.len(), 1);
}
