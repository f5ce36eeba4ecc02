//! Cases for a queue that one process deletes while others use it; the tests of each store open it twice.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::contract::*;
use crate::{Error, ErrorKind, Job, JobId, SharedStore};

/// How many pushes are answered before the deletion begins, and after it ended.
const PUSHES: usize = 20;
const ROUNDS: usize = 5;

/// A push during a deletion is refused, or came before it and its job is gone, or its job is in a new queue. So of
/// one client's answered pushes, in order, every job after the first one that exists must exist.
pub(crate) async fn no_push_is_lost_behind_a_deletion(open: impl AsyncFn() -> SharedStore) {
    let (ours, others) = (open().await, open().await);
    for round in 0..ROUNDS {
        let stop = Arc::new(AtomicBool::new(false));
        let (answered, mut answers) = mpsc::unbounded_channel();
        let (pusher, stopped) = (ours.clone(), stop.clone());
        let pushing = tokio::spawn(async move {
            let mut number = 0_u32;
            while !stopped.load(Ordering::SeqCst) {
                number += 1;
                let job = Job::new("orders", &number).unwrap().key(format!("k{}", number % 7));
                match pusher.push(Push { now: None, jobs: vec![job] }).await {
                    Ok(pushed) => answered.send(pushed[0].job_id).unwrap(),
                    Err(error) => {
                        let kinds = [ErrorKind::Conflict, ErrorKind::Unavailable];
                        assert!(kinds.contains(&error.kind()), "{error}");
                    }
                }
                tokio::task::yield_now().await;
            }
        });
        let mut acknowledged: Vec<JobId> = Vec::new();
        while acknowledged.len() < PUSHES {
            acknowledged.push(answers.recv().await.unwrap());
        }
        delete_queue(&*others, "orders", false).await.unwrap();
        for _ in 0..PUSHES {
            acknowledged.push(answers.recv().await.unwrap());
        }
        // Pushes that were answered before the deletion ended may still be in the channel.
        let ended = acknowledged.len();
        stop.store(true, Ordering::SeqCst);
        pushing.await.unwrap();
        while let Some(id) = answers.recv().await {
            acknowledged.push(id);
        }
        let mut is_there = Vec::new();
        for id in &acknowledged {
            is_there.push(others.job(*id).await.unwrap().is_some());
        }
        let first = is_there.iter().position(|there| *there).unwrap_or(is_there.len());
        assert!(first >= PUSHES, "round {round}: {first}");
        assert!(is_there[first..].iter().all(|there| *there), "round {round}: {is_there:?}");
        assert!(ended <= is_there.len());
        let deleted = delete_queue(&*others, "orders", false).await;
        // All answers may be from before the deletion; then there is no new queue.
        let is_gone = |error: &Error| error.kind() == ErrorKind::NotFound;
        assert!(deleted.as_ref().map_or_else(is_gone, |_| true), "{deleted:?}");
    }
    ours.close().await.unwrap();
    others.close().await.unwrap();
}

/// Deletes every queue, also queues in use.
pub(crate) async fn delete_all(store: SharedStore) {
    for view in store.queues().await.unwrap() {
        delete_queue(&*store, &view.queue.name, true).await.unwrap();
    }
    store.close().await.unwrap();
}
