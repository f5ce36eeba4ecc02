//! How much a page of a listing reads: what it shows, what runs and what is stopped, however much waits or has ended.

use seriatim_testkit::PostgresOptions;

use super::reading::{Watched, open_at, push_many};
use super::*;
use crate::contract::{
    Act, Actions, JobFilter, JobOrder, JobQuery, JobState, LaneAction, LaneOrder, LaneQuery,
    LaneSelection, LaneStage,
};
use crate::{Mode, Outcome};

/// Lanes in a queue: few and many.
const LANES: [usize; 2] = [100, 1_000];
const ROWS: usize = 20;
/// Claimed and paused ones in each.
const SOME: usize = 5;
/// Index entries that a page of the larger queue may read more.
const SLACK: i64 = 60;

/// A queue with lanes of all kinds.
async fn fill(store: &Postgres, mode: Mode, lanes: usize) -> Queue {
    let queue = Queue::new(format!("{mode}-{lanes}"), mode).retain_completed(LEASE * 600);
    declare(store, queue.clone()).await;
    let job = |kind: &str, i: usize| {
        let job = Job::new(&*queue.name, &i).unwrap();
        if mode == Mode::Parallel { job } else { job.key(format!("{kind}-{i}")) }
    };
    let end = async |kind: &str, outcome: Outcome| {
        push_many(store, (0..lanes).map(|i| job(kind, i)).collect()).await;
        let turns = claim(store, &queue.name, lanes).await.turns;
        let plan = |turn| crate::store::plan(turn, &queue, &outcome.clone().into(), &|_| LEASE);
        store.settle(Settle::now(turns.iter().map(plan).collect())).await.unwrap();
    };
    end("dead", Outcome::Bury { error: "e".into() }).await;
    end("done", Outcome::Done).await;
    end("failed", Outcome::Retry { error: "e".into(), retry_in: Some(LEASE) }).await;
    push_many(store, (0..SOME).map(|i| job("claimed", i)).collect()).await;
    assert_eq!(claim(store, &queue.name, SOME).await.turns.len(), SOME);
    let later = (0..lanes).map(|i| job("later", i).run_in(LEASE * 600));
    push_many(store, later.collect()).await;
    push_many(store, (0..lanes).map(|i| job("waiting", i).priority((i % 3) as u16)).collect())
        .await;
    if mode != Mode::Parallel {
        push_many(store, (0..lanes).map(|i| job("waiting", i)).collect()).await;
        for i in 0..SOME {
            let lanes = LaneSelection::Key(format!("waiting-{i}"));
            let queue = queue.name.as_str().into();
            store.act(Act { now: None, queue, lanes, action: LaneAction::Pause }).await.unwrap();
        }
    }
    queue
}

fn lane_queries(queue: &str) -> Vec<LaneQuery> {
    use LaneOrder::{Age, Due, Key, RetryCount};
    use LaneStage::{Crashed, Held, Paused, Running};
    let stages = [&[][..], &LaneStage::WAITING, &[Running], &[Held], &[Paused]];
    let one = |order| {
        stages.map(|stages| LaneQuery {
            order,
            stages: stages.to_vec(),
            rows_max: ROWS,
            ..LaneQuery::new(queue)
        })
    };
    let mut all: Vec<_> = [Age, Key, Due, RetryCount].into_iter().flat_map(one).collect();
    let prefix = Some("waiting-".into());
    all.push(LaneQuery { prefix, order: Key, rows_max: ROWS, ..LaneQuery::new(queue) });
    // A bounded look for what nothing has.
    all.extend([Age, Key, Due, RetryCount].map(|order| LaneQuery {
        order,
        stages: vec![Crashed],
        scan_max: Some(ROWS),
        ..LaneQuery::new(queue)
    }));
    all
}

fn job_queries(queue: &str) -> Vec<JobQuery> {
    use JobOrder::{Arrival, Key, UpdatedAt};
    use JobState::{Canceled, Dead, Queued, Running, Succeeded};
    let ended = [Succeeded, Dead, Canceled].map(JobFilter::In);
    let by = |order, filter| JobQuery { order, rows_max: ROWS, ..JobQuery::new(queue, filter) };
    let mut all: Vec<_> = [JobFilter::Live, JobFilter::In(Queued), JobFilter::In(Running)]
        .map(|filter| by(Arrival, filter))
        .to_vec();
    all.extend([Arrival, Key, UpdatedAt].iter().flat_map(|o| ended.map(|filter| by(*o, filter))));
    all
}

/// What the first two pages of each listing read, by its name.
async fn pages(watched: &Watched, store: &Postgres, queue: &str) -> Vec<(String, i64)> {
    let mut read = Vec::new();
    for mut query in lane_queries(queue) {
        let name = format!("lanes by {:?}, {:?}", query.order, query.stages);
        for page in 1..=2 {
            let (lanes, entries) = watched.counted(store.lanes(query.clone())).await;
            read.push((format!("{name}, page {page}: {} lanes", lanes.rows.len()), entries));
            query.after = lanes.next;
        }
    }
    for mut query in job_queries(queue) {
        let name = format!("jobs by {:?}, {:?}", query.order, query.filter);
        for page in 1..=2 {
            let (jobs, entries) = watched.counted(store.jobs(query.clone())).await;
            read.push((format!("{name}, page {page}: {} jobs", jobs.rows.len()), entries));
            query.after = jobs.next;
        }
    }
    read
}

#[tokio::test]
async fn a_page_of_a_listing_reads_what_it_shows() {
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let other = open_at(&server.url()).await;
    let store = open_at(&format!("{}?connections=1", server.url())).await;
    let watched = Watched::new(store.clone());
    let mut much = Vec::new();
    for mode in [Mode::Fifo, Mode::Parallel] {
        // The plans are made while the tables are nearly empty.
        let [few, many] = LANES;
        let small = fill(&other, mode, few).await;
        server.query("VACUUM").unwrap();
        pages(&watched, &store, &small.name).await;
        let large = fill(&other, mode, many).await;
        for planned in ["before", "after"] {
            server.query(if planned == "after" { "VACUUM ANALYZE" } else { "VACUUM" }).unwrap();
            let few = pages(&watched, &store, &small.name).await;
            let many = pages(&watched, &store, &large.name).await;
            for ((name, few), (other, many)) in few.into_iter().zip(many) {
                assert_eq!(name, other, "{mode}");
                if many > few + SLACK {
                    much.push(format!("{mode}, planned {planned}: {name}: {few}, then {many}"));
                }
            }
        }
    }
    assert!(much.is_empty(), "{}", much.join("\n"));
}

#[tokio::test]
async fn each_job_of_a_key_is_listed_once() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q").retain_completed(LEASE)).await;
    for number in 0..3 {
        push(&store, vec![job("k", number)]).await;
        let query = JobQuery { key: Some("k".into()), ..JobQuery::new("q", JobFilter::Live) };
        assert_eq!(store.jobs(query).await.unwrap().rows.len(), number as usize + 1);
    }
    done(&store, &claim(&store, "q", 1).await.turns).await;
    for (filter, expected) in [(JobFilter::Live, 2), (JobState::Succeeded.into(), 1)] {
        let query = JobQuery { key: Some("k".into()), ..JobQuery::new("q", filter) };
        assert_eq!(store.jobs(query).await.unwrap().rows.len(), expected, "{filter:?}");
    }
}
