//! Stores of earlier versions.

use super::*;
use crate::contract::{Act, Actions, LaneAction, LaneSelection};
use crate::{Groups, Share};

/// Makes a store as version 19 did: without what `sql/to_20.sql` and later steps add.
async fn as_before(schema: &str) {
    let before = concat!(
        include_str!("../sql/drop.sql"),
        "DROP TABLE seriatim.share, seriatim.freed, seriatim.job_batch, seriatim.sleeper;
         ALTER TABLE seriatim.queue DROP COLUMN shares, DROP COLUMN grouped, DROP COLUMN counted, DROP COLUMN throttle, DROP COLUMN refuses,
           DROP COLUMN window_from;
         ALTER TABLE seriatim.lane ALTER COLUMN route TYPE int, ALTER COLUMN class TYPE int, DROP COLUMN grp, DROP COLUMN joined;
         ALTER TABLE seriatim.ready ALTER COLUMN class TYPE int;
         ALTER TABLE seriatim.item ALTER COLUMN route TYPE int;
         ALTER TABLE seriatim.ended ALTER COLUMN route TYPE int;
         ALTER TABLE seriatim.tally DROP COLUMN retrying;
         ALTER TABLE seriatim.inbox DROP COLUMN max_retries, DROP COLUMN key_group;
         DROP INDEX seriatim.batch_node;
         ALTER TABLE seriatim.batch DROP COLUMN queue, DROP COLUMN low, DROP COLUMN high;
         ALTER TABLE seriatim.lane ALTER COLUMN payload SET COMPRESSION default;
         ALTER TABLE seriatim.item ALTER COLUMN payload SET COMPRESSION default;
         UPDATE seriatim.meta SET version = 19;"
    );
    session().await.batch_execute(&in_schema(before, schema)).await.unwrap();
}

#[tokio::test]
async fn a_store_of_version_19_goes_on_with_what_it_holds() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("a", 2), job("b", 1), job("c", 1).node("n")]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    as_before(&schema).await;
    assert!(store.check().await.unwrap_err().to_string().contains("version 19"));
    store.migrate().await.unwrap();
    assert!(done(&store, &[turn]).await[0].is_ok());
    let shares = Groups::each(Share::default().running(1));
    declare(&store, Queue::fifo("q").groups(shares)).await;
    push(&store, vec![job("d", 1).group("g"), job("e", 1).group("g")]).await;
    let mine = Claim { node_name: Some("n".into()), ..claiming("q", 9) };
    let mut keys = Vec::new();
    for _ in 0..5 {
        let turns = store.claim(mine.clone()).await.unwrap().turns;
        done(&store, &turns).await;
        keys.extend(turns.iter().map(|turn| turn.key.as_deref().unwrap().to_owned()));
    }
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn lanes_that_failed_before_version_31_are_in_the_figures_after_it() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 1), job("c", 1)]).await;
    let turns = claim(&store, "q", 2).await.turns;
    fail(&store, &Queue::fifo("q"), &turns).await;
    as_before(&schema).await;
    store.migrate().await.unwrap();
    let retrying = async || store.stats(None).await.unwrap()[0].retrying;
    assert_eq!(retrying().await, 2);
    let (queue, lanes) = ("q".into(), LaneSelection::Failed);
    let deletion = Act { now: None, queue, lanes, action: LaneAction::DeleteFailed };
    assert_eq!(store.act(deletion).await.unwrap().count, 2);
    assert_eq!(retrying().await, 0);
}

/// PostgreSQL's own method would take twice as long as the rest of the push.
#[tokio::test]
async fn long_payloads_are_compressed_with_lz4_also_after_an_upgrade() {
    let schema = new_schema();
    let store = open(&schema).await;
    as_before(&schema).await;
    store.migrate().await.unwrap();
    declare(&store, Queue::fifo("q")).await;
    let text = "a long text ".repeat(400);
    let long = |key| Job::new("q", &serde_json::json!({ "text": text })).unwrap().key(key);
    push(&store, vec![long("a"), long("b"), long("b")]).await;
    let stored =
        "SELECT pg_column_compression(payload) FROM seriatim.lane WHERE payload IS NOT NULL
        UNION ALL SELECT pg_column_compression(payload) FROM seriatim.item";
    let rows = session().await.query(&in_schema(stored, &schema), &[]).await.unwrap();
    let methods: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(methods, vec![Some("lz4".to_owned()); 3]);
}
