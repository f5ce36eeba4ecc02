//! A claim of one job of a lane in which others wait.

use std::future::Future;

use super::*;
use crate::contract::{GoOn, JobFilter, JobQuery, JobState};

/// The statements of these calls that change rows of jobs.
async fn changed_jobs<T>(store: &Mysql, calls: impl Future<Output = T>) -> (T, Vec<String>) {
    store.inner.pool.statements.lock().unwrap().clear();
    let answer = calls.await;
    let statements = store.inner.pool.statements.lock().unwrap().clone();
    let changes = |text: &String| text.contains("UPDATE seriatim_job");
    (answer, statements.into_iter().filter(changes).collect())
}

async fn numbers(store: &Mysql, state: JobState) -> Vec<u32> {
    let query = JobQuery::new("q", JobFilter::In(state));
    let rows = store.jobs(query).await.unwrap().rows;
    rows.iter().map(|job| job.payload.decode().unwrap()).collect()
}

#[tokio::test]
async fn a_turn_of_one_job_does_not_write_the_row_of_the_job() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (1..=5).map(|number| job("k", number)).collect()).await;
    // The first job is in the lane's row.
    let turns = claim(&store, "q", 1).await.turns;
    done(&store, &turns).await;
    let (turn, changes) =
        changed_jobs(&store, async { claim(&store, "q", 1).await.turns.remove(0) }).await;
    assert_eq!(changes, Vec::<String>::new());
    assert_eq!(turn.jobs[0].payload.decode::<u32>().unwrap(), 2);
    assert_eq!(numbers(&store, JobState::Running).await, [2]);
    assert_eq!(numbers(&store, JobState::Queued).await, [3, 4, 5]);
    let settle = |turn: &Turn| {
        let go_on = vec![GoOn { claim: claim_request("q", 1), places: vec![0] }];
        let turns = vec![Settlement::done(turn.lane, turn.token)];
        store.settle(Settle { go_on, ..Settle::now(turns) })
    };
    let (settled, changes) = changed_jobs(&store, settle(&turn)).await;
    assert_eq!(changes, Vec::<String>::new());
    let Settled::Ok { next: Some(next), .. } = settled.unwrap().remove(0) else {
        panic!("the lane goes on")
    };
    assert_eq!(next.jobs[0].payload.decode::<u32>().unwrap(), 3);
    assert_eq!(numbers(&store, JobState::Running).await, [3]);
    assert_eq!(numbers(&store, JobState::Queued).await, [4, 5]);
}

#[tokio::test]
async fn lanes_that_are_claimed_together_are_one_statement_whatever_their_times() {
    let store = open(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
    for round in 0..3 {
        // Each push has a time of its own.
        for key in &keys {
            push(&store, vec![job(key, round)]).await;
        }
    }
    for round in 0..3 {
        store.inner.pool.statements.lock().unwrap().clear();
        let turns = claim(&store, "q", 20).await.turns;
        let sent = store.inner.pool.statements.lock().unwrap().concat();
        assert_eq!(sent.matches("UPDATE seriatim_lane").count(), 1, "{round}: {sent}");
        let numbers = turns.iter().map(|turn| turn.jobs[0].payload.decode::<u32>().unwrap());
        assert_eq!(numbers.collect::<Vec<_>>(), vec![round; 20]);
        assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    }
}
