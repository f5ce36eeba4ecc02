//! Stores of the last version.

use super::*;
use crate::{Groups, Share};

/// Makes a store as the last version did.
async fn as_before(database: &str) {
    let before = [
        "ALTER TABLE seriatim_lane MODIFY class INT NOT NULL DEFAULT 0, MODIFY route INT NOT NULL DEFAULT 0",
        "DROP TABLE seriatim_share, seriatim_grouped",
        "ALTER TABLE seriatim_inbox DROP COLUMN max_retries, DROP COLUMN key_group",
        "UPDATE seriatim_meta SET version = 7",
    ];
    let mut session = session(database).await;
    for statement in before {
        session.query_drop(statement).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_of_version_7_goes_on_with_what_it_holds() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("a", 2), job("b", 1), job("c", 1).node("n")]).await;
    let turn = claim(&store, "q", 1).await.turns.remove(0);
    as_before(&database).await;
    assert!(store.check().await.unwrap_err().to_string().contains("version 7"));
    store.migrate().await.unwrap();
    assert!(done(&store, &[turn]).await[0].is_ok());
    let shares = Groups::each(Share::default().running(1));
    declare(&store, Queue::fifo("q").groups(shares)).await;
    push(&store, vec![job("d", 1).group("g"), job("e", 1).group("g")]).await;
    let mine = Claim::new("q", "n", 9, Lease::Node { ttl: LEASE });
    let mine = Claim { node_name: Some("n".into()), ..mine };
    let mut keys = Vec::new();
    for _ in 0..5 {
        let turns = store.claim(mine.clone()).await.unwrap().turns;
        done(&store, &turns).await;
        keys.extend(turns.iter().map(|turn| turn.key.as_deref().unwrap().to_owned()));
    }
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
}
