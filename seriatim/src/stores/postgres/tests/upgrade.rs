//! Stores of earlier versions.

use super::*;
use crate::contract::{Act, Actions, LaneAction, LaneSelection};
use crate::{Groups, Share};

/// Makes a store as version 19 did: without what `sql/to_20.sql` and later steps add.
async fn as_before(schema: &str) {
    let before = concat!(
        include_str!("../sql/drop.sql"),
        "DROP TABLE seriatim.share, seriatim.freed, seriatim.job_batch;
         ALTER TABLE seriatim.queue DROP COLUMN shares, DROP COLUMN grouped, DROP COLUMN counted, DROP COLUMN throttle, DROP COLUMN refuses,
           DROP COLUMN window_from;
         ALTER TABLE seriatim.lane ALTER COLUMN route TYPE int, ALTER COLUMN class TYPE int, DROP COLUMN grp, DROP COLUMN joined;
         ALTER TABLE seriatim.ready ALTER COLUMN class TYPE int;
         ALTER TABLE seriatim.item ALTER COLUMN route TYPE int;
         ALTER TABLE seriatim.ended ALTER COLUMN route TYPE int;
         ALTER TABLE seriatim.tally DROP COLUMN retrying;
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
