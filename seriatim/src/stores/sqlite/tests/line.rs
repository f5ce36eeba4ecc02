//! The calls that wait for the writing thread, while another process holds the file's lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{FutureExt, join_all};

use super::*;
use crate::contract::{Fleet, Heartbeat};

/// A store, and a connection that holds the lock until `COMMIT`.
async fn locked(folder: &tempfile::TempDir) -> (Sqlite, rusqlite::Connection) {
    let path = folder.path().join("jobs.db");
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    store.push(push(0)).await.unwrap();
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    (store, other)
}

#[tokio::test]
async fn a_heartbeat_goes_before_pushes_that_wait() {
    const PUSHES: usize = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = locked(&folder).await;
    let (called, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let push_one = |number| {
        let (store, called, answered) = (store.clone(), called.clone(), answered.clone());
        tokio::spawn(async move {
            let mut pushed = std::pin::pin!(store.push(push(number)));
            assert!((&mut pushed).now_or_never().is_none());
            called.fetch_add(1, Ordering::Relaxed);
            pushed.await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        })
    };
    let pushing: Vec<_> = (0..PUSHES as u32).map(push_one).collect();
    while called.load(Ordering::Relaxed) < PUSHES {
        tokio::task::yield_now().await;
    }
    let node = NodeInfo::new("n".into(), LEASE);
    let mut heartbeat = store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() });
    assert!((&mut heartbeat).now_or_never().is_none());
    other.execute_batch("COMMIT").unwrap();
    heartbeat.await.unwrap();
    // Those of the commit that waited for the lock, and of the heartbeat's own.
    let before = answered.load(Ordering::Relaxed);
    assert!(before <= 512, "behind {before} pushes");
    for push in pushing {
        push.await.unwrap();
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn pushes_that_wait_for_the_writer_hold_no_more_than_64_mib() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = locked(&folder).await;
    let text = "x".repeat(1_000_000);
    let job = Job::new("mail", &text).unwrap();
    let pushes = (0..100).map(|_| store.push(Push { now: None, jobs: vec![job.clone()] }));
    let mut pushes: Pin<Box<dyn Future<Output = _>>> = Box::pin(join_all(pushes));
    assert!((&mut pushes).now_or_never().is_none());
    assert!(store.write.waiting_bytes() <= 64 << 20, "{}", store.write.waiting_bytes());
    other.execute_batch("COMMIT").unwrap();
    for pushed in pushes.await {
        pushed.unwrap();
    }
    assert_eq!(store.write.waiting_bytes(), 0);
    store.close().await.unwrap();
}
