//! A file of an earlier build.

use super::*;
use crate::Outcome;
use crate::contract::{Consumer, Declare, Fleet, Heartbeat, LaneQuery, Queues, Settle};
use crate::model::{Queue, Settlement, Turn};

/// Turns a file of this build, in which every claim is in the rows of its lanes, into one of version 3.
fn downgrade(file: &rusqlite::Connection, claimed: &Turn) {
    let sql = "DROP TABLE seriatim_inbox; DROP VIEW seriatim_nodes; DROP VIEW seriatim_morgue; DROP VIEW seriatim_lanes;
        DROP VIEW seriatim_jobs; DROP VIEW seriatim_claims;
        ALTER TABLE meta RENAME COLUMN definitions TO version; DROP VIEW held; DROP TABLE ready; DROP TABLE share;
        ALTER TABLE claim DROP COLUMN at;
        CREATE INDEX lane_ready ON lane (q, class, prio, due) WHERE st = 0;
        DROP INDEX idempotency_look_at; ALTER TABLE idempotency DROP COLUMN look_at;
        CREATE INDEX idempotency_until ON idempotency (until);
        ALTER TABLE meta DROP COLUMN reserved; ALTER TABLE meta DROP COLUMN boot; DROP TABLE note; DROP TABLE batch;
        DROP INDEX lane_parked; DROP INDEX lane_worst; CREATE INDEX lane_failed ON lane (q, retry) WHERE retry >= 0; ALTER TABLE queue DROP COLUMN retrying;
        UPDATE lane SET flags = flags & ~64; PRAGMA user_version = 3";
    file.execute_batch(sql).unwrap();
    let lanes = claimed.lane.number.to_le_bytes();
    assert_eq!(file.execute("UPDATE claim SET lanes = ?1", [lanes]).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_an_earlier_build_claimed_and_kept_ready_is_settled_and_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    let queues = vec![Queue::accumulate("orders")];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let job = |key: &str, number: u32| Job::new("orders", &number).unwrap().key(key);
    let jobs = (0..3).map(|number| job("k", number)).collect();
    store.push(Push { now: None, jobs }).await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    let turn = store.claim(claiming("orders", 1)).await.unwrap().turns.remove(0);
    assert_eq!(turn.jobs.len(), 3);
    // Arrives during the turn, so that the lane is not deleted as a whole.
    let jobs = vec![job("k", 7), job("ready", 8).idempotency_key("name")];
    store.push(Push { now: None, jobs }).await.unwrap();
    store.close().await.unwrap();

    downgrade(&rusqlite::Connection::open(&path).unwrap(), &turn);
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    let query = LaneQuery { node: Some("n".into()), ..LaneQuery::new("orders") };
    let held = store.lanes(query).await.unwrap().rows;
    assert_eq!(held.iter().map(|lane| lane.token).collect::<Vec<_>>(), [Some(turn.token)]);
    let ready = store.claim(claiming("orders", 9)).await.unwrap().turns;
    assert_eq!(ready.iter().map(|turn| turn.key.as_deref()).collect::<Vec<_>>(), [Some("ready")]);
    let turns = [turn, ready[0].clone()];
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let settled = store.settle(Settle::now(turns)).await.unwrap();
    assert!(settled.iter().all(|settled| settled.is_ok()));
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.jobs, stats.processed), (1, 4));
    assert_eq!(store.claim(claiming("orders", 9)).await.unwrap().turns.len(), 1);
    store.close().await.unwrap();
}

#[test]
fn an_earlier_build_fails_on_a_file_of_this_one() {
    let file = rusqlite::Connection::open_in_memory().unwrap();
    super::super::migrate::migrate(&file).unwrap();
    // The first statement of each of its transactions.
    let sql = "SELECT seq, token, version FROM meta WHERE id = 1";
    assert!(file.prepare(sql).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lanes_that_failed_before_the_upgrade_are_in_the_figures_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    store.push(push(1)).await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    let turn = store.claim(claiming("mail", 1)).await.unwrap().turns.remove(0);
    let failure = Outcome::Retry { error: "e".into(), retry_in: None }.into();
    let plan = crate::store::plan(&turn, &Queue::parallel("mail"), &failure, &|_| LEASE);
    store.settle(Settle::now(vec![plan])).await.unwrap();
    store.close().await.unwrap();

    let file = rusqlite::Connection::open(&path).unwrap();
    let before = "ALTER TABLE queue DROP COLUMN retrying; CREATE INDEX lane_failed ON lane (q, retry) WHERE retry >= 0;
                  ALTER TABLE seriatim_inbox DROP COLUMN max_retries; ALTER TABLE seriatim_inbox DROP COLUMN key_group;
                  PRAGMA user_version = 14";
    file.execute_batch(before).unwrap();
    drop(file);
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].retrying, 1);
    store.close().await.unwrap();
}
