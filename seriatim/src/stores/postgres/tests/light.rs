//! Light claims: those of lanes with one job, which are only a row of their own.

use super::*;
use crate::Mode;
use crate::contract::{
    Actions, Cancel, Cancelled, ClaimSelection, LaneQuery, Release, Rescue, Selected, Selection,
    Sweep,
};
use crate::model::{Fate, NodeId};

async fn filled(schema: &str, jobs: usize) -> Arc<Postgres> {
    filled_in(Mode::Parallel, schema, jobs).await
}

/// With a key for each job, if the mode has keys.
async fn filled_in(mode: Mode, schema: &str, jobs: usize) -> Arc<Postgres> {
    let store = open(schema).await;
    declare(&store, Queue::new("q", mode)).await;
    let job = |i: usize| match mode.is_keyed() {
        true => job(&format!("k{i:04}"), i as u32),
        false => Job::new("q", &i).unwrap(),
    };
    push(&store, (0..jobs).map(job).collect()).await;
    store
}

/// Rows of a table.
async fn rows(schema: &str, table: &str) -> i64 {
    let sql = in_schema(&format!("SELECT count(*) FROM seriatim.{table}"), schema);
    session().await.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_claim_writes_no_lane_and_holds_until_it_is_settled() {
    for mode in Mode::ALL {
        let schema = new_schema();
        let store = filled_in(mode, &schema, 3).await;
        let turns = claim(&store, "q", 2).await.turns;
        assert_eq!(rows(&schema, "lane WHERE claimed OR token > 0").await, 0);
        store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
        let held = store.lanes(LaneQuery::new("q")).await.unwrap().rows;
        let tokens: Vec<Option<Token>> = held.iter().map(|lane| lane.token).collect();
        assert_eq!(tokens, [Some(turns[0].token), Some(turns[1].token), None]);
        assert_eq!(store.stats(None).await.unwrap()[0].claimed, 2);
        assert_eq!(claim(&store, "q", 9).await.turns.len(), 1, "only the third waits");
        assert!(done(&store, &turns[..1]).await[0].is_ok());
        assert_eq!(
            done(&store, &turns).await.iter().map(Settled::is_ok).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!((rows(&schema, "lane").await, rows(&schema, "batch").await), (1, 1));
    }
}

#[tokio::test]
async fn a_claim_that_was_taken_over_settles_nothing() {
    for mode in Mode::ALL {
        let schema = new_schema();
        let store = filled_in(mode, &schema, 4).await;
        let turns = claim(&store, "q", 4).await.turns;
        let claims = ClaimSelection::Node(NodeId("n".into()));
        let release = Release { now: None, claims, made_by: None, lanes_max: 3 };
        let released = store.release(release).await.unwrap();
        assert_eq!(released.len(), 3);
        assert!(released.iter().all(|turn| turn.token > turns[0].token));
        let settled = done(&store, &turns).await;
        assert_eq!(settled.iter().filter(|settled| settled.is_ok()).count(), 1);
        let rescue = Rescue { now: None, node: "n".into(), lease: LEASE, lanes_max: 9, ticket: 0 };
        assert_eq!(store.rescue(rescue).await.unwrap().len(), 3, "an expired lease");
    }
}

/// A cancel meets claims under way: it sees each job as it waits, as it runs, or as it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_ends_once_among_claims_cancels_and_releases() {
    for mode in Mode::ALL {
        const JOBS: usize = 300;
        let schema = new_schema();
        let store = filled_in(mode, &schema, JOBS).await;
        let jobs: Vec<_> = store
            .jobs(crate::contract::JobQuery::new("q", crate::contract::JobFilter::Live))
            .await
            .unwrap()
            .rows
            .iter()
            .map(|job| job.id)
            .collect();
        let worker = |schema: String| {
            tokio::spawn(async move {
                let store = open(&schema).await;
                let mut ended = 0;
                loop {
                    let turns = claim(&store, "q", 7).await.turns;
                    if turns.is_empty() {
                        return ended;
                    }
                    let settled = done(&store, &turns).await;
                    ended += settled.iter().filter(|settled| settled.is_ok()).count();
                }
            })
        };
        let canceller = tokio::spawn({
            let store = store.clone();
            async move {
                let mut cancelled = 0;
                for jobs in jobs.chunks(3) {
                    let answers =
                        store.cancel(Cancel { now: None, jobs: jobs.to_vec() }).await.unwrap();
                    cancelled += answers.iter().filter(|answer| **answer == Cancelled::Now).count();
                }
                cancelled
            }
        });
        let workers = [worker(schema.clone()), worker(schema.clone())];
        let mut ended = canceller.await.unwrap();
        for worker in workers {
            ended += worker.await.unwrap();
        }
        assert_eq!(ended, JOBS);
        for table in ["lane", "ready", "batch", "item"] {
            assert_eq!(rows(&schema, table).await, 0, "{table}");
        }
    }
}

/// A push meets the claims of its keys before, during and after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_runs_twice_at_once_and_none_stays_behind_while_pushes_come() {
    const KEYS: usize = 40;
    for mode in [Mode::Fifo, Mode::Accumulate, Mode::Exclusive] {
        let schema = new_schema();
        let store = filled_in(mode, &schema, KEYS).await;
        let pusher = tokio::spawn({
            let store = store.clone();
            async move {
                for round in 1..20 {
                    let one = |i: usize| job(&format!("k{i:04}"), (round * KEYS + i) as u32);
                    push(&store, (0..KEYS).filter(|i| i % 3 == round % 3).map(one).collect()).await;
                }
            }
        });
        let running = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
        let worker = |schema: String| {
            let running = running.clone();
            tokio::spawn(async move {
                let store = open(&schema).await;
                let mut idle = 0;
                while idle < 3 {
                    let turns = claim(&store, "q", 7).await.turns;
                    idle = if turns.is_empty() { idle + 1 } else { 0 };
                    for turn in &turns {
                        assert!(
                            running.lock().unwrap().insert(turn.key.clone()),
                            "{mode}: {:?}",
                            turn.key
                        );
                    }
                    turns
                        .iter()
                        .for_each(|turn| assert!(running.lock().unwrap().remove(&turn.key)));
                    assert!(done(&store, &turns).await.iter().all(Settled::is_ok), "{mode}");
                }
            })
        };
        let workers = [worker(schema.clone()), worker(schema.clone())];
        pusher.await.unwrap();
        for worker in workers {
            worker.await.unwrap();
        }
        worker(schema.clone()).await.unwrap();
        for table in ["lane", "ready", "batch", "item"] {
            assert_eq!(rows(&schema, table).await, 0, "{mode}: {table}");
        }
    }
}

/// How long the claims and settles of this many jobs take, a part of them at a time.
async fn time_of(mode: Mode, jobs: usize, at_once: usize) -> Duration {
    const WARM: usize = 200;
    let schema = new_schema();
    let store = filled_in(mode, &schema, WARM + jobs).await;
    // One lane was claimed before, so its next claim is not light.
    let first = claim(&store, "q", 1).await.turns.remove(0);
    let back = vec![crate::model::release(&first, &Queue::new("q", mode))];
    assert!(store.settle(Settle::now(back)).await.unwrap()[0].is_ok());
    // After a few calls the server plans without looking at the numbers of a call.
    for _ in 0..WARM / 10 {
        done(&store, &claim(&store, "q", 10).await.turns).await;
    }
    let began = std::time::Instant::now();
    let mut ended = 0;
    while ended < jobs {
        let turns = claim(&store, "q", at_once).await.turns;
        assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
        ended += turns.len();
    }
    began.elapsed()
}

#[tokio::test]
async fn a_turn_costs_no_more_if_many_are_claimed_and_settled_at_once() {
    for mode in Mode::ALL {
        let (mut small, mut large) = (Duration::MAX, Duration::MAX);
        for _ in 0..2 {
            small = small.min(time_of(mode, 3_000, 300).await);
            large = large.min(time_of(mode, 3_000, 3_000).await);
        }
        assert!(large < small * 2, "{mode}: {large:?} in one call, {small:?} in ten");
    }
}

#[tokio::test]
async fn what_was_claimed_and_what_has_ended_is_vacuumed_before_autovacuum_comes() {
    let schema = new_schema();
    let store = filled(&schema, 0).await;
    let sql = "ALTER TABLE seriatim.lane SET (autovacuum_enabled = false)";
    session().await.batch_execute(&in_schema(sql, &schema)).await.unwrap();
    for _ in 0..25 {
        push(&store, (0..2_000).map(|i| Job::new("q", &i).unwrap()).collect()).await;
        for _ in 0..2 {
            let turns = claim(&store, "q", 1_000).await.turns;
            assert_eq!(done(&store, &turns).await.len(), 1_000);
        }
    }
    let client = session().await;
    for table in ["ready", "lane"] {
        let sql = format!("SELECT pg_stat_get_vacuum_count('seriatim.{table}'::regclass)");
        let sql = in_schema(&sql, &schema);
        while client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Three claimed jobs, of which the first was buried and waits again.
async fn requeued(schema: &str) -> (Arc<Postgres>, Vec<Turn>) {
    let store = filled(schema, 3).await;
    let turns = claim(&store, "q", 3).await.turns;
    let buried = Settlement { rest: Fate::Bury, ..Settlement::done(turns[0].lane, turns[0].token) };
    assert!(store.settle(Settle::now(vec![buried])).await.unwrap()[0].is_ok());
    let selected = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.requeue(selected).await.unwrap().count, 1);
    (store, turns)
}

#[tokio::test]
async fn a_requeued_job_is_cancelled_at_once_and_leaves_no_place_in_line() {
    let schema = new_schema();
    let (store, turns) = requeued(&schema).await;
    let jobs = vec![turns[0].jobs[0].id];
    assert_eq!(store.cancel(Cancel { now: None, jobs }).await.unwrap(), [Cancelled::Now]);
    assert_eq!(rows(&schema, "ready").await, 0);
    push(&store, vec![Job::new("q", &7).unwrap()]).await;
    assert_eq!(claim(&store, "q", 1).await.turns.len(), 1);
}
