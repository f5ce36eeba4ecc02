//! Lanes with many plain jobs, longer than in the conformance suite: their lists and runs.

use super::*;
use crate::contract::Cancel;
use crate::store::{Due, Fate};

/// More than a list keeps in its record.
const JOBS: u32 = 120;

/// The answer of a direct command about the queue's only shard.
async fn ask<T: ::redis::FromRedisValue>(prefix: &str, command: &str, name: &str) -> T {
    let mut link = linked(&url()).await;
    let key = format!("{prefix}:{{q1:0}}:{name}");
    ::redis::cmd(command).arg(key).query_async(&mut link).await.unwrap()
}

/// The letters of the lanes' records; small ones are of lanes that wait in `arrivals`.
async fn forms(prefix: &str) -> Vec<u8> {
    let records: Vec<Vec<u8>> = ask(prefix, "HVALS", "lanes").await;
    records.iter().map(|record| record[0].to_ascii_uppercase()).collect()
}

/// Whether the record of the only lane, a list, shows no special state (`is_bare` of compact.lua).
async fn is_bare(prefix: &str) -> bool {
    let records: Vec<Vec<u8>> = ask(prefix, "HVALS", "lanes").await;
    records[0][67..69] == [0, 0]
}

async fn assert_nothing_is_left(prefix: &str) {
    let mut link = linked(&url()).await;
    let mut cmd = ::redis::cmd("KEYS");
    let mut keys: Vec<String> =
        cmd.arg(format!("{prefix}:{{q1:0}}:*")).query_async(&mut link).await.unwrap();
    // The process waits for more.
    keys.retain(|key| !key.ends_with(":sleepers"));
    assert_eq!(keys, [format!("{prefix}:{{q1:0}}:meta")]);
}

async fn forgetful(prefix: &str, queue: Queue) -> Arc<Redis> {
    let store = open(prefix).await;
    let retain_completed = Some(Duration::ZERO);
    declare(&store, Queue { retain_completed, ..queue }).await;
    store
}

async fn push_tags(store: &Redis, tags: std::ops::Range<u32>) -> Vec<JobId> {
    let pushed = push(store, tags.map(|tag| job("k", tag)).collect()).await;
    pushed.iter().map(|pushed| pushed.job_id).collect()
}

fn tags(turn: &Turn) -> Vec<u32> {
    turn.jobs.iter().map(|job| job.payload.decode().unwrap()).collect()
}

fn failed(turn: &Turn) -> Settlement {
    let mut end = Settlement { rest: Fate::Keep, ..Settlement::done(turn.lane, turn.token) };
    end.keep.job = Some(turn.jobs[0].id);
    (end.keep.retry_count, end.keep.counted, end.keep.due) = (0, true, Due::Now);
    end
}

async fn fail(store: &Redis, turn: &Turn) {
    let settled = store.settle(Settle::now(vec![failed(turn)])).await.unwrap();
    assert!(settled[0].is_ok());
}

async fn cancel(store: &Redis, job: JobId) -> Cancelled {
    store.cancel(Cancel { now: None, jobs: vec![job] }).await.unwrap()[0]
}

#[tokio::test]
async fn a_long_lane_keeps_its_order_through_failures_and_cancellations() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::fifo("q")).await;
    let mut ids = push_tags(&store, 0..1).await;
    ids.extend(push_tags(&store, 1..70).await);
    let mut seen = Vec::new();
    for round in 0.. {
        let turns = claim(&store, 1).await;
        let Some(turn) = turns.first() else { break };
        seen.push(tag(turn));
        match round {
            // The head fails, and more jobs arrive behind it meanwhile.
            0 | 30 => fail(&store, turn).await,
            1 => {
                ids.extend(push_tags(&store, 70..JOBS).await);
                assert_eq!(cancel(&store, ids[60]).await, Cancelled::Now);
                assert_eq!(cancel(&store, ids[119]).await, Cancelled::Now);
                done(&store, &turns).await;
                assert_eq!(ask::<u32>(&prefix, "ZCARD", "open").await, 0, "all are listed");
            }
            _ => assert!(done(&store, &turns).await[0].is_ok()),
        }
    }
    let mut expected: Vec<u32> = (0..JOBS - 1).filter(|tag| *tag != 60).collect();
    expected.insert(0, 0);
    expected.insert(30, 29);
    assert_eq!(seen, expected);
    assert_nothing_is_left(&prefix).await;
}

#[tokio::test]
async fn jobs_that_wait_for_one_key_have_no_index_entries() {
    for queue in [Queue::fifo("q"), Queue::accumulate("q").merge(Merge::None)] {
        let prefix = new_prefix();
        let store = forgetful(&prefix, queue).await;
        for tag in 0..JOBS {
            push_tags(&store, tag..tag + 1).await;
        }
        assert_eq!(forms(&prefix).await, *b"Q");
        for index in ["open", "later", "ready"] {
            assert_eq!(ask::<u32>(&prefix, "ZCARD", index).await, 0, "{index}");
        }
        assert_eq!(ask::<u32>(&prefix, "HLEN", "jobs").await, JOBS);
        assert!(ask::<u32>(&prefix, "HLEN", "runs").await < JOBS / 10);
        let mut left = JOBS as usize;
        while left > 0 {
            let turns = claim(&store, 1).await;
            left -= turns[0].jobs.len();
            assert!(done(&store, &turns).await[0].is_ok());
        }
        assert_nothing_is_left(&prefix).await;
    }
}

#[tokio::test]
async fn a_turn_of_a_long_lane_is_ordered_by_score_and_what_arrives_waits_for_the_next() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q")).await;
    let backwards = |tag: u32| job("k", tag).score(f64::from(JOBS - tag));
    push(&store, (0..JOBS).map(backwards).collect()).await;
    let turns = claim(&store, 1).await;
    assert_eq!(tags(&turns[0]), (0..JOBS).rev().collect::<Vec<_>>());
    let again = push(&store, vec![job("k", 7), job("k", 500), job("k", 7)]).await;
    let statuses = again.iter().map(|pushed| pushed.status).collect::<Vec<_>>();
    assert_eq!(statuses, [PushStatus::Queued, PushStatus::Queued, PushStatus::Merged]);
    assert_eq!(numbers(&store).await.jobs, u64::from(JOBS) + 2);
    fail(&store, &turns[0]).await;
    let turns = claim(&store, 1).await;
    assert_eq!(turns[0].jobs.len() as u32, JOBS + 1, "the two of 7 are one");
    done(&store, &turns).await;
    assert_nothing_is_left(&prefix).await;
}

#[tokio::test]
async fn a_lane_that_is_never_empty_has_its_short_form_again_when_what_failed_is_done() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q").merge(Merge::None)).await;
    push_tags(&store, 0..2).await;
    let turns = claim(&store, 1).await;
    push_tags(&store, 2..3).await;
    fail(&store, &turns[0]).await;
    assert!(!is_bare(&prefix).await, "two jobs have failed");
    let turns = claim(&store, 1).await;
    let attempts = |turn: &Turn| turn.jobs.iter().map(|job| job.attempt).collect::<Vec<_>>();
    assert_eq!((tags(&turns[0]), attempts(&turns[0])), (vec![0, 1, 2], vec![2, 2, 1]));
    push_tags(&store, 3..5).await;
    assert!(done(&store, &turns).await[0].is_ok());
    assert!(is_bare(&prefix).await, "these jobs have not");
    let turns = claim(&store, 1).await;
    assert_eq!((tags(&turns[0]), attempts(&turns[0])), (vec![3, 4], vec![1, 1]));
    done(&store, &turns).await;
    assert_nothing_is_left(&prefix).await;
}

#[tokio::test]
async fn a_lane_that_grows_stays_a_list() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q").merge(Merge::None)).await;
    for first in (0..5_000).step_by(1_000) {
        push_tags(&store, first..first + 1_000).await;
        assert_eq!(forms(&prefix).await, *b"Q");
        assert_eq!(ask::<u32>(&prefix, "ZCARD", "open").await, 0);
    }
    let turns = claim(&store, 1).await;
    assert_eq!(tags(&turns[0]), (0..5_000).collect::<Vec<_>>());
    done(&store, &turns).await;
    assert_nothing_is_left(&prefix).await;
}

/// A run whose jobs were all cancelled keeps its place until the list reaches it.
#[tokio::test]
async fn a_list_whose_last_job_is_buried_leaves_no_run() {
    for queue in [Queue::fifo("q"), Queue::accumulate("q").merge(Merge::None)] {
        let prefix = new_prefix();
        let store = forgetful(&prefix, queue).await;
        let ids = push_tags(&store, 0..JOBS).await;
        for job in &ids[1..] {
            assert_eq!(cancel(&store, *job).await, Cancelled::Now);
        }
        assert!(ask::<u32>(&prefix, "HLEN", "runs").await > 0);
        let turns = claim(&store, 1).await;
        let bury =
            Settlement { rest: Fate::Bury, ..Settlement::done(turns[0].lane, turns[0].token) };
        assert!(store.settle(Settle::now(vec![bury])).await.unwrap()[0].is_ok());
        let dead = Selected { now: None, queue: "q".into(), which: Selection::All };
        assert_eq!(store.delete_dead(dead).await.unwrap().count, 1);
        assert_nothing_is_left(&prefix).await;
    }
}

/// Of a queue that a push created.
#[tokio::test]
async fn what_a_turn_reported_is_forgotten_with_its_lane_if_its_queue_changes_its_mode() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    push_tags(&store, 0..1).await;
    let turn = claim(&store, 1).await.remove(0);
    let progress = Some("1".into());
    let beats = vec![Beat { progress, ..Beat::of(&turn) }];
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats }).await.unwrap();
    fail(&store, &turn).await;
    assert_eq!(ask::<u32>(&prefix, "HLEN", "progress").await, 1);
    declare(&store, Queue::fifo("q").retain_completed(Duration::ZERO)).await;
    done(&store, &claim(&store, 1).await).await;
    assert_nothing_is_left(&prefix).await;
}

/// A list keeps the numbers of its last 16 jobs in its record, and puts them away with the next one.
#[tokio::test]
async fn an_equal_job_puts_nothing_away_that_its_list_does_not_have() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q")).await;
    for count in 2..40 {
        push_tags(&store, 0..count).await;
        let equal = push(&store, vec![job("k", count - 1)]).await;
        assert_eq!(equal[0].status, PushStatus::Merged);
        let turns = claim(&store, 1).await;
        assert_eq!(tags(&turns[0]), (0..count).collect::<Vec<_>>());
        done(&store, &turns).await;
        assert_nothing_is_left(&prefix).await;
    }
}

/// More than a list keeps that is not in order (`UNSORTED_MAX` of compact.lua).
#[tokio::test]
async fn the_turn_of_a_long_lane_has_the_first_jobs_though_they_came_last() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q").merge(Merge::None)).await;
    let count = 12_000_u32;
    let backwards = |tag: u32| job("k", tag).score(f64::from(count - tag));
    for first in (0..count).step_by(2_000) {
        push(&store, (first..first + 2_000).map(backwards).collect()).await;
    }
    let (mut seen, mut sizes) = (Vec::new(), Vec::new());
    while let Some(turn) = claim(&store, 1).await.pop() {
        // Each fails once: it returns as it was.
        fail(&store, &turn).await;
        let again = claim(&store, 1).await;
        assert_eq!(tags(&again[0]), tags(&turn));
        assert!(again[0].jobs.iter().all(|job| job.attempt == 2));
        sizes.push(turn.jobs.len());
        seen.extend(tags(&turn));
        done(&store, &again).await;
    }
    assert_eq!(sizes, [10_000, 2_000]);
    assert_eq!(seen, (0..count).rev().collect::<Vec<_>>());
    assert_nothing_is_left(&prefix).await;
}

#[tokio::test]
async fn progress_and_a_lease_of_its_own_leave_a_lane_as_it_is() {
    for queue in [Queue::fifo("q"), Queue::exclusive("q")] {
        let prefix = new_prefix();
        let store = forgetful(&prefix, queue).await;
        let named = job("k", 1).idempotency_key("once");
        let large = Job::with_payload("q", crate::Payload::from_bytes(vec![b'1'; 4096])).key("l");
        push(&store, vec![named, large]).await;
        let lease = Lease::Own { ttl: LEASE };
        let turns = store.claim(Claim { lease, ..claim_request("q", 2) }).await.unwrap().turns;
        let (progress, extend) = (Some("50".into()), Some(LEASE));
        let beat = |turn| Beat { progress: progress.clone(), extend, ..Beat::of(turn) };
        let node = NodeInfo::new("n".into(), LEASE);
        let beat = Heartbeat { now: None, node, beats: turns.iter().map(beat).collect() };
        assert!(store.heartbeat(beat).await.unwrap().lost.is_empty());
        assert_eq!(forms(&prefix).await, *b"SS");
        let view = store.job(turns[0].jobs[0].id).await.unwrap().unwrap();
        assert_eq!((view.state, view.progress.as_deref()), (JobState::Running, Some("50")));
        assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
        assert_eq!(ask::<u32>(&prefix, "HLEN", "progress").await, 0);
    }
}

/// `T.jobs_left` of turns.lua.
#[tokio::test]
async fn a_claim_of_large_turns_leaves_lanes_to_the_next() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::accumulate("q").merge(Merge::None)).await;
    for key in ["a", "b", "c"] {
        push(&store, (0..6_000).map(|tag| job(key, tag)).collect()).await;
    }
    let claimed = store.claim(claim_request("q", 10)).await.unwrap();
    assert_eq!(claimed.turns.iter().map(|turn| turn.jobs.len()).collect::<Vec<_>>(), [6_000; 2]);
    assert!(
        claimed.next_due.is_some_and(|due| due <= claimed.turns[0].claimed_at),
        "there is more"
    );
    assert_eq!(claim(&store, 10).await.len(), 1);
}

/// The budgets of take_over.lua: 16 MiB and 10,000 jobs.
#[tokio::test]
async fn claims_of_more_than_one_script_takes_over_are_taken_over_by_the_next() {
    let large = "x".repeat(2 << 20);
    let many = |key: &str| (0..4_000).map(|tag| job(key, tag)).collect::<Vec<_>>();
    for is_large in [true, false] {
        let store =
            forgetful(&new_prefix(), Queue::accumulate("q").merge(Merge::None).max_crashes(9))
                .await;
        const KEYS: usize = 10;
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            let jobs = match is_large {
                true => vec![Job::new("q", &large).unwrap().key(&*key)],
                false => many(&key),
            };
            push(&store, jobs).await;
        }
        let claim_each = async |lease: Lease| {
            for _ in 0..KEYS {
                let request = Claim { lease, ..claim_request("q", 1) };
                assert_eq!(store.claim(request).await.unwrap().turns.len(), 1);
            }
        };
        claim_each(Lease::Node { ttl: LEASE }).await;
        let claims = ClaimSelection::Queue("q".into());
        let released = crate::store::release_claims(&*store, claims).await.unwrap();
        assert_eq!(released, KEYS as u64, "all of them, in several steps");
        assert_eq!(numbers(&store).await.claimed, 0);
        // As an engine does, by the clock of the server: the leases end at once.
        claim_each(Lease::Own { ttl: Duration::from_micros(1) }).await;
        let node = NodeInfo::new("m".into(), LEASE);
        store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
        let mut rescued = Vec::new();
        while rescued.len() < KEYS {
            let request =
                Rescue { now: None, node: "m".into(), lease: LEASE, lanes_max: 1_000, ticket: 0 };
            let turns = store.rescue(request).await.unwrap();
            assert!((1..KEYS).contains(&turns.len()), "{}", turns.len());
            rescued.extend(turns);
        }
        assert_eq!(store.lanes(lane_query()).await.unwrap().rows.len(), KEYS);
        assert!(done(&store, &rescued).await.iter().all(Settled::is_ok));
    }
}

/// Deleted in several steps.
#[tokio::test]
async fn all_jobs_of_a_long_lane_are_deleted() {
    for queue in [Queue::fifo("q"), Queue::accumulate("q"), Queue::exclusive("q")] {
        let prefix = new_prefix();
        let store = forgetful(&prefix, queue).await;
        push_tags(&store, 0..2_500).await;
        let lanes = LaneSelection::All;
        let act = Act { now: None, queue: "q".into(), lanes, action: LaneAction::Delete };
        assert_eq!(store.act(act).await.unwrap().count, 1);
        let left = numbers(&store).await;
        assert_eq!((left.jobs, left.lanes), (0, 0));
        assert!(claim(&store, 1).await.is_empty());
        assert_nothing_is_left(&prefix).await;
    }
}

#[tokio::test]
async fn a_long_list_is_shown_as_it_is() {
    let prefix = new_prefix();
    let store = forgetful(&prefix, Queue::fifo("q")).await;
    let ids = push_tags(&store, 0..1).await;
    let ids = [ids, push_tags(&store, 1..JOBS).await].concat();
    let turns = claim(&store, 1).await;
    let job = store.job(ids[50]).await.unwrap().unwrap();
    assert_eq!((job.id, job.key.as_deref(), job.state), (ids[50], Some("k"), JobState::Queued));
    assert_eq!(store.job(ids[0]).await.unwrap().unwrap().state, JobState::Running);
    let lane = &store.lanes(lane_query()).await.unwrap().rows[0];
    assert_eq!((lane.jobs, lane.key.as_deref()), (u64::from(JOBS), Some("k")));
    for key in [None, Some("k".into())] {
        let query = JobQuery { key, ..JobQuery::new("q", JobFilter::Live) };
        let shown = store.jobs(query).await.unwrap().rows;
        assert!(shown.iter().map(|job| job.id).eq(ids.iter().copied()));
    }
    assert_eq!(forms(&prefix).await, *b"Q");
    assert!(done(&store, &turns).await[0].is_ok());
}

fn lane_query() -> LaneQuery {
    LaneQuery::new("q")
}
