//! Light claims: the claim's row alone holds its lanes.

use super::*;
use crate::contract::{
    Actions, Beat, Cancel, Cancelled, ClaimSelection, Consumer, Fleet, Heartbeat, JobFilter,
    JobQuery, JobState, LaneQuery, LaneStage, Release, Rescue, Settle, Settled, Sweep,
};
use crate::model::{Outcome, Queue, Settlement, Turn, plan};

async fn filled(folder: &tempfile::TempDir, jobs: u32) -> Sqlite {
    let store = Sqlite::open(folder.path().join("jobs.db")).unwrap();
    store.migrate().await.unwrap();
    store.push(Push { now: None, jobs: (0..jobs).map(job).collect() }).await.unwrap();
    beat(&store, Vec::new()).await;
    store
}

fn job(number: u32) -> Job {
    Job::new("mail", &number).unwrap()
}

async fn beat(store: &Sqlite, beats: Vec<Beat>) {
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats }).await.unwrap();
}

async fn claim(store: &Sqlite, lanes_max: usize) -> Vec<Turn> {
    store.claim(claiming("mail", lanes_max)).await.unwrap().turns
}

async fn done(store: &Sqlite, turns: &[Turn]) -> Vec<bool> {
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let settled = store.settle(Settle::now(turns)).await.unwrap();
    settled.iter().map(Settled::is_ok).collect()
}

/// A number that a query finds in the file.
fn number(folder: &tempfile::TempDir, sql: &str) -> i64 {
    let file = rusqlite::Connection::open(folder.path().join("jobs.db")).unwrap();
    file.query_row(&format!("SELECT {sql}"), [], |row| row.get(0)).unwrap()
}

const CLAIMED_ROWS: &str = "count(*) FROM lane WHERE st = 2 OR tok > 0";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_claim_writes_one_row_and_no_lane_and_holds_until_it_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 6).await;
    let turns = claim(&store, 5).await;
    assert_eq!(number(&folder, CLAIMED_ROWS), 0);
    assert_eq!(number(&folder, "count(*) FROM claim"), 1);
    assert_eq!(number(&folder, "count(*) FROM ready"), 1);
    store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    assert_eq!(claim(&store, 9).await.len(), 1, "only the sixth waits");
    assert_eq!(done(&store, &turns[..1]).await, [true]);
    assert_eq!(done(&store, &turns).await, [false, true, true, true, true]);
    assert_eq!(number(&folder, "count(*) FROM lane"), 1);
    assert_eq!(number(&folder, "count(*) FROM claim"), 1);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn listings_show_a_light_claim_and_do_not_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 3).await;
    let turns = claim(&store, 2).await;
    let lanes = async |stages: &[LaneStage], node: Option<&str>| {
        let (stages, node) = (stages.to_vec(), node.map(Into::into));
        let query = LaneQuery { stages, node, ..LaneQuery::new("mail") };
        store.lanes(query).await.unwrap().rows.len()
    };
    assert_eq!(lanes(&[LaneStage::Running], None).await, 2);
    assert_eq!(lanes(&LaneStage::WAITING, None).await, 1);
    assert_eq!(lanes(&[], Some("n")).await, 2);
    assert_eq!(lanes(&[], Some("other")).await, 0);
    for (state, count) in [(JobState::Running, 2), (JobState::Queued, 1)] {
        let query = JobQuery::new("mail", JobFilter::In(state));
        let jobs = store.jobs(query).await.unwrap().rows;
        assert!(jobs.iter().all(|job| job.state == state), "{jobs:?}");
        assert_eq!(jobs.len(), count, "{state:?}");
    }
    let shown = store.turn(turns[0].lane, turns[0].token).await.unwrap().unwrap();
    assert_eq!((shown.jobs[0].id, shown.claimed_at), (turns[0].jobs[0].id, turns[0].claimed_at));
    assert_eq!(number(&folder, CLAIMED_ROWS), 0);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn progress_and_a_cancel_reach_only_their_lane_of_a_light_claim() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 9).await;
    let turns = claim(&store, 9).await;
    let progress = Some("1".into());
    let one = Beat { progress, ..Beat::of(&turns[0]) };
    beat(&store, vec![one]).await;
    let jobs = vec![turns[1].jobs[0].id];
    let cancelled = store.cancel(Cancel { now: None, jobs }).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Flagged]);
    assert_eq!(number(&folder, CLAIMED_ROWS), 2);
    let view = store.job(turns[0].jobs[0].id).await.unwrap().unwrap();
    assert_eq!((view.state, view.progress.as_deref()), (JobState::Running, Some("1")));
    assert_eq!(done(&store, &turns).await, [true; 9]);
    assert_eq!(number(&folder, "(SELECT count(*) FROM lane) + (SELECT count(*) FROM claim)"), 0);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_light_claim_that_was_taken_over_settles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 7).await;
    let turns = claim(&store, 7).await;
    let claims = ClaimSelection::Lane(turns[6].lane);
    let release = Release { now: None, claims, made_by: None, lanes_max: 9 };
    assert_eq!(store.release(release).await.unwrap().len(), 1);
    let claims = ClaimSelection::Queue("mail".into());
    let release = Release { now: None, claims, made_by: None, lanes_max: 3 };
    assert_eq!(store.release(release).await.unwrap().len(), 3);
    let later = store.now().await.unwrap() + LEASE * 2;
    let node = NodeInfo::new("m".into(), LEASE);
    let heartbeat = Heartbeat { now: Some(later), node, beats: Vec::new() };
    store.heartbeat(heartbeat).await.unwrap();
    let node = "m".into();
    let rescue = Rescue { now: Some(later), node, lease: LEASE, lanes_max: 9, ticket: 0 };
    let rescued = store.rescue(rescue).await.unwrap();
    assert_eq!(rescued.len(), 7);
    assert_eq!(done(&store, &turns).await, [false; 7]);
    assert_eq!(done(&store, &rescued).await, [true; 7]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_requeued_job_takes_along_the_ids_that_merged_into_it_when_it_is_done() {
    use crate::contract::{Declare, Queues, Selected, Selection};
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 0).await;
    let queue = Queue::accumulate("mail");
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
    let push = || Push { now: None, jobs: vec![job(1).key("k")] };
    let end = async |turn: &Turn, outcome: Outcome| {
        let settlement = plan(turn, &queue, &outcome.into(), &|_| Duration::ZERO);
        assert!(store.settle(Settle::now(vec![settlement])).await.unwrap()[0].is_ok());
    };
    store.push(push()).await.unwrap();
    let turn = claim(&store, 1).await.remove(0);
    store.push(push()).await.unwrap();
    end(&turn, Outcome::Retry { error: "it failed".into(), retry_in: None }).await;
    let turn = claim(&store, 1).await.remove(0);
    assert_eq!((turn.jobs.len(), number(&folder, "count(*) FROM alias")), (1, 1));
    end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
    let dead = Selected { now: None, queue: "mail".into(), which: Selection::All };
    assert_eq!(store.requeue(dead).await.unwrap().count, 1);
    let turns = claim(&store, 1).await;
    assert_eq!(done(&store, &turns).await, [true]);
    assert_eq!(number(&folder, "(SELECT count(*) FROM alias) + (SELECT count(*) FROM lane)"), 0);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_refused_call_takes_no_numbers_back() {
    use crate::contract::{DeleteQueue, Queues};
    use futures_util::future::FutureExt;
    let folder = tempfile::tempdir().unwrap();
    let store = filled(&folder, 1).await;
    claim(&store, 1).await;
    let other = rusqlite::Connection::open(folder.path().join("jobs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let all = async {
        tokio::join!(
            store.push(push(1)),
            store.push(push(2)),
            store.delete_queue(DeleteQueue { queue: "mail".into(), rows_max: 9 })
        )
    };
    let mut all = std::pin::pin!(all);
    assert!((&mut all).now_or_never().is_none());
    other.execute_batch("COMMIT").unwrap();
    let (one, two, deleted) = all.await;
    one.unwrap();
    two.unwrap();
    deleted.unwrap_err();
    store.push(push(3)).await.unwrap();
}
