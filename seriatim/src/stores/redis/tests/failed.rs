//! Plain jobs that fail, without a table of their lane: what it costs, counted in commands, and what is stored.

use super::depth::calls;
use super::*;
use crate::store::{Due, Fate};

/// Lanes of a batch, and most commands for all of them together.
const LANES: u32 = 200;
const CALLS_MAX: u64 = 60;

fn queues() -> [Queue; 4] {
    let merging = Queue::accumulate("q");
    [Queue::parallel("q"), Queue::fifo("q"), merging.clone().merge(Merge::None), merging]
}

fn lane_job(queue: &Queue, key: u32, tag: u32) -> Job {
    let job = Job::new("q", &tag).unwrap();
    if queue.mode.is_keyed() { job.key(format!("k{key}")) } else { job }
}

fn ended(queue: &Queue, turn: &Turn, rest: Fate) -> Settlement {
    let mut end = Settlement { rest, ..Settlement::done(turn.lane, turn.token) };
    end.keep.job = (queue.mode != Mode::Accumulate).then(|| turn.jobs[0].id);
    end.keep.retry_count = turn.retry_count + 1;
    (end.keep.counted, end.keep.due) = (true, Due::Now);
    end.keep.error = Some(format!("failure {}", turn.retry_count + 1).into());
    end
}

async fn end(store: &Redis, queue: &Queue, turns: &[Turn], rest: Fate) {
    let turns = turns.iter().map(|turn| ended(queue, turn, rest)).collect();
    assert!(store.settle(Settle::now(turns)).await.unwrap().iter().all(Settled::is_ok));
}

/// The letters of the records of jobs.
async fn letters(prefix: &str) -> String {
    let mut cmd = ::redis::cmd("HVALS");
    cmd.arg(format!("{prefix}:{{q1:0}}:jobs"));
    let records: Vec<Vec<u8>> = cmd.query_async(&mut linked(&url()).await).await.unwrap();
    let mut letters: Vec<char> = records.iter().map(|record| char::from(record[0])).collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_one_plain_job_fail_run_again_and_are_buried_in_few_commands() {
    let server = seriatim_testkit::Redis::start().unwrap();
    for queue in queues() {
        let queue = queue.retain_completed(Duration::ZERO);
        let store = open_at(&server.url(), &new_prefix()).await;
        declare(&store, queue.clone()).await;
        let mode = queue.mode;
        let check = async |what: &str, before: u64| {
            let took = calls(&server.url()).await - before;
            // A turn of `accumulate` reads the jobs of its lane.
            let reads = if mode == Mode::Accumulate { u64::from(LANES) } else { 0 };
            assert!(took <= CALLS_MAX + reads, "{mode:?}, {what}: {took} commands");
        };
        push(&store, (0..LANES).map(|i| lane_job(&queue, i, i)).collect()).await;
        for round in -1..3 {
            let before = calls(&server.url()).await;
            let turns = claim(&store, LANES as usize).await;
            check("claim", before).await;
            assert_eq!(turns.len(), LANES as usize);
            for turn in &turns {
                let error = (round >= 0).then(|| format!("failure {round}"));
                assert_eq!((turn.retry_count, turn.error.as_deref()), (round, error.as_deref()));
                assert_eq!(turn.jobs[0].attempt, (round + 2) as u32);
            }
            let before = calls(&server.url()).await;
            let rest = if round < 2 { Fate::Keep } else { Fate::Bury };
            end(&store, &queue, &turns, rest).await;
            check(if round < 2 { "failure" } else { "burial" }, before).await;
            let stats = numbers(&store).await;
            let (retrying, dead) = if round < 2 { (LANES.into(), 0) } else { (0, LANES.into()) };
            assert_eq!((stats.retrying, stats.dead), (retrying, dead), "{mode:?}");
        }
        let jobs =
            store.jobs(JobQuery::new("q", JobFilter::In(JobState::Dead))).await.unwrap().rows;
        assert!(jobs.iter().all(|job| job.error.as_deref() == Some("failure 3")));
    }
}

/// With retention, done jobs are kept: with their attempts.
#[tokio::test]
async fn a_plain_job_that_failed_is_done_as_any_other() {
    for queue in queues() {
        for kept in [Duration::ZERO, LEASE] {
            let (prefix, queue) = (new_prefix(), queue.clone().retain_completed(kept));
            let store = open(&prefix).await;
            declare(&store, queue.clone()).await;
            push(&store, vec![lane_job(&queue, 1, 1)]).await;
            for _ in 0..2 {
                end(&store, &queue, &claim(&store, 1).await, Fate::Keep).await;
                assert_eq!(letters(&prefix).await, "F");
            }
            assert!(done(&store, &claim(&store, 1).await).await[0].is_ok());
            let stats = numbers(&store).await;
            assert_eq!((stats.retrying, stats.lanes, stats.jobs, stats.failed), (0, 0, 0, 2));
            let done = JobFilter::In(JobState::Succeeded);
            let rows = store.jobs(JobQuery::new("q", done)).await.unwrap().rows;
            let attempts: Vec<u32> = rows.iter().map(|job| job.attempt).collect();
            assert_eq!(attempts, if kept.is_zero() { vec![] } else { vec![3] });
        }
    }
}

/// Those behind the failed one, which is at the head.
#[tokio::test]
async fn jobs_arrive_behind_a_plain_job_that_failed_and_run_after_it() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q").retain_completed(Duration::ZERO));
    let store = open(&prefix).await;
    declare(&store, queue.clone()).await;
    push(&store, (0..3).map(|tag| lane_job(&queue, 1, tag)).collect()).await;
    end(&store, &queue, &claim(&store, 1).await, Fate::Keep).await;
    push(&store, (3..30).map(|tag| lane_job(&queue, 1, tag)).collect()).await;
    assert_eq!(letters(&prefix).await, format!("F{}", "J".repeat(29)));
    for tag in 0..30 {
        let turns = claim(&store, 1).await;
        assert_eq!(super::tag(&turns[0]), tag);
        let retry_count = if tag == 0 { 0 } else { -1 };
        assert_eq!(turns[0].retry_count, retry_count);
        assert!(done(&store, &turns).await[0].is_ok());
    }
    assert_eq!(numbers(&store).await.lanes, 0);
}

#[tokio::test]
async fn a_turn_of_accumulate_fails_as_a_whole_and_runs_again_in_order_with_what_arrived() {
    for merge in [Merge::None, Merge::Min] {
        let store = open(&new_prefix()).await;
        let queue = Queue::accumulate("q").merge(merge).retain_completed(Duration::ZERO);
        declare(&store, queue.clone()).await;
        let scored = |tag: u32| lane_job(&queue, 1, tag).score(f64::from(tag * 7 % 40));
        push(&store, (0..40).map(scored).collect()).await;
        end(&store, &queue, &claim(&store, 1).await, Fate::Keep).await;
        push(&store, (40..50).map(|tag| lane_job(&queue, 1, tag).score(f64::from(tag))).collect())
            .await;
        for attempt in 2..5 {
            let turns = claim(&store, 1).await;
            let jobs = &turns[0].jobs;
            assert_eq!(jobs.len(), 50, "{merge:?}");
            assert!(jobs.is_sorted_by(|a, b| a.score <= b.score));
            for job in jobs {
                let late = u32::from(job.score >= 40.0);
                assert_eq!(job.attempt, attempt - late, "{merge:?}, {}", job.score);
            }
            end(&store, &queue, &turns, Fate::Keep).await;
        }
        // Equal payloads still meet.
        let pushed = push(&store, (0..50).map(|tag| lane_job(&queue, 1, tag)).collect()).await;
        let status = if merge == Merge::None { PushStatus::Queued } else { PushStatus::Merged };
        assert!(pushed.iter().all(|pushed| pushed.status == status), "{merge:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_job_is_written_for_earlier_builds_while_one_of_them_lives() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q"));
    let store = open(&prefix).await;
    declare(&store, queue.clone()).await;
    let meta = format!("{prefix}:{{g}}:meta");
    let (alive, nodes) = (format!("{prefix}:{{g}}:alive"), format!("{prefix}:{{g}}:nodes"));
    send(&url(), &["HSET", &meta, "version", "5"]).await;
    send(&url(), &["ZADD", &alive, "9007199254740991", "old"]).await;
    send(&url(), &["HSET", &nodes, "old", r#"{"layout":5,"id":"old"}"#]).await;
    let store = open(&prefix).await;
    push(&store, vec![lane_job(&queue, 1, 1)]).await;
    end(&store, &queue, &claim(&store, 1).await, Fate::Keep).await;
    assert!(!letters(&prefix).await.contains('F'));
    send(&url(), &["ZREM", &alive, "old"]).await;
    store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    push(&store, vec![lane_job(&queue, 2, 2)]).await;
    let turns = claim(&store, 2).await;
    assert_eq!(turns.len(), 2);
    end(&store, &queue, &turns, Fate::Keep).await;
    assert!(letters(&prefix).await.contains('F'));
}
