//! Walks through all jobs of a queue, page by page, which have no index by arrival.

use super::depth::calls;
use super::*;
use crate::contract::{JobOrder, Selection};
use crate::store::Fate;

fn page_of(state: JobState, rows_max: usize) -> JobQuery {
    JobQuery { rows_max, order: JobOrder::Arrival, ..JobQuery::new("q", state) }
}

/// The ids, and the cursor behind each page.
async fn walk(store: &Redis, mut query: JobQuery) -> (Vec<JobId>, Vec<String>) {
    let (mut ids, mut cursors) = (Vec::new(), Vec::new());
    loop {
        let page = store.jobs(query.clone()).await.unwrap();
        ids.extend(page.rows.iter().map(|job| job.id));
        query.after = page.next;
        match &query.after {
            Some(next) => cursors.push(next.clone()),
            None => return (ids, cursors),
        }
    }
}

async fn pushed(store: &Redis, jobs: u32) -> Vec<JobId> {
    let mut ids = Vec::new();
    for first in (0..jobs).step_by(1_000) {
        let batch = (first..jobs.min(first + 1_000)).map(|i| Job::new("q", &i).unwrap());
        ids.extend(push(store, batch.collect()).await.iter().map(|pushed| pushed.job_id));
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_through_twice_as_many_jobs_costs_twice_as_much() {
    let server = seriatim_testkit::Redis::start().unwrap();
    // A page with filters ends between the jobs that a step reads.
    let filtered = JobQuery { to: Some(Timestamp::MAX), ..page_of(JobState::Queued, 500) };
    let queries = [page_of(JobState::Queued, 100), filtered];
    let mut costs = queries.clone().map(|_| Vec::new());
    for jobs in [5_000, 10_000, 20_000] {
        let store = open_at(&server.url(), &new_prefix()).await;
        declare(&store, Queue::parallel("q")).await;
        let ids = pushed(&store, jobs).await;
        for (query, costs) in queries.iter().zip(&mut costs) {
            let before = calls(&server.url()).await;
            let walked = walk(&store, query.clone()).await.0;
            costs.push(calls(&server.url()).await - before);
            assert_eq!(walked, ids);
        }
    }
    for costs in costs {
        assert!(costs.windows(2).all(|two| two[1] < two[0] * 5 / 2), "{costs:?} commands");
    }
}

#[tokio::test]
async fn a_walk_ends_with_what_was_there_when_it_began_whatever_another_one_left() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q")).await;
    let mut ids = pushed(&store, 60).await;
    assert_eq!(walk(&store, page_of(JobState::Queued, 40)).await.0, ids);
    ids.extend(pushed(&store, 40).await);
    for rows_max in [20, 50, 40] {
        assert_eq!(walk(&store, page_of(JobState::Queued, rows_max)).await.0, ids, "{rows_max}");
    }
}

#[tokio::test]
async fn a_walk_shows_what_was_there_when_it_began_whatever_another_one_goes_on_with() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q").max_retries(0)).await;
    let ids = pushed(&store, 60).await;
    let turns = claim(&store, 60).await;
    let bury = async |place: usize| {
        let turns = turns.iter().skip(place).step_by(2);
        let bury = |turn: &Turn| Settlement {
            rest: Fate::Bury,
            ..Settlement::done(turn.lane, turn.token)
        };
        let settle = Settle::now(turns.map(bury).collect());
        assert!(store.settle(settle).await.unwrap().iter().all(Settled::is_ok));
    };
    bury(0).await;
    let mut other = page_of(JobState::Dead, 5);
    for _ in 0..2 {
        other.after = store.jobs(other.clone()).await.unwrap().next;
    }
    bury(1).await;
    assert_eq!(walk(&store, page_of(JobState::Dead, 5)).await.0, ids);
    // What the other one knows of is what it began with, in as few scans.
    let rest = walk(&store, other).await.0;
    assert!(rest[..15].iter().eq(ids[20..].iter().step_by(2).take(15)), "{rest:?}");
}

#[tokio::test]
async fn a_page_that_is_asked_for_again_shows_what_changed_meanwhile() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q").max_retries(0)).await;
    let ids = pushed(&store, 60).await;
    let bury =
        |turn: &Turn| Settlement { rest: Fate::Bury, ..Settlement::done(turn.lane, turn.token) };
    let ends = claim(&store, 30).await.iter().map(bury).collect();
    assert!(store.settle(Settle::now(ends)).await.unwrap().iter().all(Settled::is_ok));
    let (waiting, cursors) = walk(&store, page_of(JobState::Queued, 10)).await;
    assert_eq!((&waiting[..], cursors.len()), (&ids[30..], 2));
    let all = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.requeue(all).await.unwrap().count, 30);
    let (waiting, cursors) = walk(&store, page_of(JobState::Queued, 10)).await;
    assert_eq!((&waiting[..], cursors.len()), (&ids[..], 5));
    let canceled = store.cancel(Cancel { now: None, jobs: vec![ids[25]] }).await.unwrap();
    assert_eq!(canceled, [Cancelled::Now]);
    let again = JobQuery { after: Some(cursors[1].clone()), ..page_of(JobState::Queued, 10) };
    let shown = store.jobs(again).await.unwrap().rows;
    let wanted = ids[20..31].iter().filter(|id| **id != ids[25]).copied();
    assert_eq!(shown.iter().map(|job| job.id).collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
}
