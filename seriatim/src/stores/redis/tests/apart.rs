//! Long payloads, which are stored apart from their jobs.

use std::pin::pin;

use super::reshard_races::advance;
use super::*;
use crate::store::Fate;
use crate::stores::redis::compact::APART_BYTES_MIN;
use crate::stores::redis::dead::STEP_JOBS;

const MODES: [fn(&'static str) -> Queue; 4] =
    [Queue::parallel, Queue::fifo, Queue::accumulate, Queue::exclusive];
/// Whole in the job's record, apart from it, and so long that each build kept it apart.
const LENGTHS: [usize; 3] = [APART_BYTES_MIN - 1, APART_BYTES_MIN, 100_000];

/// A payload of this many bytes, unlike all others.
fn text(tag: u32, bytes: usize) -> String {
    let tag = tag.to_string();
    "0".repeat(bytes - 2 - tag.len()) + &tag
}

fn long(queue: &Queue, key: &str, text: &String) -> Job {
    let job = Job::new(&*queue.name, text).unwrap();
    if queue.mode.is_keyed() { job.key(key) } else { job }
}

fn texts(turns: &[Turn]) -> Vec<String> {
    let jobs = turns.iter().flat_map(|turn| &turn.jobs);
    jobs.map(|job| job.payload.decode().unwrap()).collect()
}

async fn asked(prefix: &str, words: &[&str]) -> i64 {
    let mut cmd = ::redis::cmd(words[0]);
    cmd.arg(format!("{prefix}:{}", words[1])).arg(&words[2..]);
    cmd.query_async(&mut linked(&url()).await).await.unwrap()
}

/// How many payloads are apart.
async fn apart(prefix: &str) -> i64 {
    asked(prefix, &["HLEN", "{q1:0}:bodies"]).await
}

/// The turns, all with this end of their jobs.
async fn end(store: &Redis, turns: &[Turn], rest: Fate) {
    let end = |turn: &Turn| {
        let mut end = Settlement { rest, ..Settlement::done(turn.lane, turn.token) };
        end.keep.job = turn.jobs.first().map(|job| job.id);
        (end.keep.retry_count, end.keep.counted) = (0, rest == Fate::Keep);
        end
    };
    let turns = turns.iter().map(end).collect();
    assert!(store.settle(Settle::now(turns)).await.unwrap().iter().all(Settled::is_ok));
}

/// Claims all, a job or a turn of jobs at a time.
async fn all(store: &Redis, rest: Fate) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let turns = claim(store, 2).await;
        if turns.is_empty() {
            return found;
        }
        found.extend(texts(&turns));
        end(store, &turns, rest).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_payloads_are_whole_whatever_happens_to_their_jobs() {
    for mode in MODES {
        let (prefix, queue) = (new_prefix(), mode("q").retain_completed(Duration::ZERO));
        let store = open(&prefix).await;
        declare(&store, queue.clone()).await;
        let payloads: Vec<String> =
            (0..30).map(|i| text(i, LENGTHS[i as usize % LENGTHS.len()])).collect();
        // One key has many jobs, the others one.
        let key = |i: usize| if i < 15 { "k".to_owned() } else { format!("k{i}") };
        let job = |(i, payload): (usize, &String)| match i % 5 {
            0 => long(&queue, &key(i), payload).idempotency_key(format!("{i}")),
            1 => long(&queue, &key(i), payload).priority(7),
            2 => long(&queue, &key(i), payload).expires_at(Timestamp::MAX),
            _ => long(&queue, &key(i), payload),
        };
        let jobs: Vec<Job> = payloads.iter().enumerate().map(job).collect();
        let ids: Vec<JobId> =
            push(&store, jobs.clone()).await.iter().map(|pushed| pushed.job_id).collect();
        let before = apart(&prefix).await;
        assert!((16..=20).contains(&before), "{mode:?}: {before}", mode = queue.mode);
        // A repeat stores nothing.
        push(&store, vec![jobs[0].clone(), jobs[10].clone()]).await;
        assert_eq!(apart(&prefix).await, before);

        for (id, payload) in ids.iter().zip(&payloads) {
            let view = store.job(*id).await.unwrap().unwrap();
            assert_eq!(view.payload.decode::<String>().unwrap(), *payload);
            assert_eq!(view.payload_bytes, payload.len() + 2);
        }
        let first = claim(&store, 5).await;
        let held = store.turn(first[0].lane, first[0].token).await.unwrap().unwrap();
        assert_eq!(texts(&[held]), texts(&first[..1]));
        end(&store, &first, Fate::Keep).await;
        let mut buried = all(&store, Fate::Bury).await;
        buried.sort();
        let mut sorted = payloads.clone();
        sorted.sort();
        assert_eq!(buried, sorted);
        assert_eq!(apart(&prefix).await, before, "the dead have theirs");

        let which = Selection::All;
        let requeue = Selected { now: None, queue: "q".into(), which };
        assert_eq!(store.requeue(requeue).await.unwrap().count, 30);
        let mut done = all(&store, Fate::Done).await;
        done.sort();
        assert_eq!(done, sorted);
        assert_eq!(apart(&prefix).await, 0, "nothing is left of jobs that are done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_payload_is_removed_with_its_job_however_it_ends() {
    for mode in MODES {
        let (prefix, queue) = (new_prefix(), mode("q").retain_completed(LEASE));
        let store = open(&prefix).await;
        declare(&store, queue.clone()).await;
        let jobs = |from: u32| {
            let job = |i: u32| long(&queue, &format!("k{}", i % 4), &text(i, 5_000));
            (from..from + 12).map(job).collect()
        };
        let ids: Vec<JobId> =
            push(&store, jobs(0)).await.iter().map(|pushed| pushed.job_id).collect();
        let cancel = Cancel { now: None, jobs: ids[8..].to_vec() };
        store.cancel(cancel).await.unwrap();
        let finished = all(&store, Fate::Done).await;
        assert_eq!(finished.len(), 8);
        let kept = store.job(ids[0]).await.unwrap().unwrap();
        assert_eq!(kept.payload.decode::<String>().unwrap(), text(0, 5_000));
        assert_eq!(apart(&prefix).await, 12, "they are kept for a while");
        let now = Some(store.now().await.unwrap() + LEASE + LEASE);
        store.sweep(Sweep { now, rows_max: 1_000 }).await.unwrap();
        assert_eq!(apart(&prefix).await, 0);

        push(&store, jobs(100)).await;
        let lanes = LaneSelection::All;
        let act = Act { now: None, queue: "q".into(), lanes, action: LaneAction::Delete };
        store.act(act).await.unwrap();
        assert_eq!((numbers(&store).await.jobs, apart(&prefix).await), (0, 0));
        push(&store, jobs(200)).await;
        delete_queue(&*store, "q", true).await.unwrap();
        assert_eq!(apart(&prefix).await, 0);
    }
}

#[tokio::test]
async fn equal_long_payloads_merge() {
    let prefix = new_prefix();
    let (store, queue) = (open(&prefix).await, Queue::accumulate("q").merge(Merge::Min));
    declare(&store, queue.clone()).await;
    let job = |i: u32| long(&queue, "k", &text(i, 5_000)).score(f64::from(i));
    for _ in 0..2 {
        push(&store, vec![job(1), job(2), job(1)]).await;
    }
    assert_eq!((numbers(&store).await.jobs, apart(&prefix).await), (2, 2));
    // One that arrives during the turn merges with what goes back.
    let turns = claim(&store, 1).await;
    push(&store, vec![job(2), job(3)]).await;
    end(&store, &turns, Fate::Keep).await;
    assert_eq!((numbers(&store).await.jobs, apart(&prefix).await), (3, 3));
    assert_eq!(all(&store, Fate::Done).await, [1, 2, 3].map(|i| text(i, 5_000)));
    assert_eq!(apart(&prefix).await, 0);
}

/// A claim is answered before its payloads are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_people_do_takes_the_payload_of_a_claimed_job() {
    for mode in MODES {
        let (prefix, queue) = (new_prefix(), mode("q").retain_completed(Duration::ZERO));
        let store = open(&prefix).await;
        declare(&store, queue.clone()).await;
        let payloads = [text(1, 5_000), text(2, 5_000)];
        push(&store, payloads.iter().map(|payload| long(&queue, "k", payload)).collect()).await;
        let turns = claim(&store, 2).await;
        let (claimed, running) = (texts(&turns), turns.iter().flat_map(|turn| &turn.jobs));
        let running: Vec<JobId> = running.map(|job| job.id).collect();
        for job in &running {
            let amend = Amend { now: None, job: *job, change: Change::Delete };
            store.amend(amend).await.unwrap_err();
        }
        for action in [LaneAction::Bury, LaneAction::DeleteFailed, LaneAction::Delete] {
            let act = Act { now: None, queue: "q".into(), lanes: LaneSelection::All, action };
            store.act(act).await.unwrap();
        }
        let cancel = Cancel { now: None, jobs: running };
        store.cancel(cancel).await.unwrap();
        for (turn, payload) in turns.iter().zip(&claimed) {
            let held = store.turn(turn.lane, turn.token).await.unwrap().unwrap();
            assert!(texts(&[held]).contains(payload), "{:?}", queue.mode);
        }
        end(&store, &turns, Fate::Done).await;
        all(&store, Fate::Done).await;
        assert_eq!(apart(&prefix).await, 0, "{:?}", queue.mode);
    }
}

/// The server answers which turn it is before the payload is read.
#[tokio::test]
async fn a_turn_that_ends_while_it_is_read_is_none() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q").retain_completed(Duration::ZERO));
    let (store, other) = (open(&prefix).await, open(&prefix).await);
    declare(&store, queue.clone()).await;
    push(&store, vec![long(&queue, "k", &text(1, 5_000))]).await;
    numbers(&other).await;
    let turns = claim(&store, 1).await;
    let mut reading = pin!(store.turn(turns[0].lane, turns[0].token));
    assert!(advance(0, reading.as_mut()).await.is_none());
    assert!(done(&other, &turns).await[0].is_ok());
    assert!(reading.await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_its_payload_is_buried_and_holds_up_no_other() {
    for mode in MODES {
        let (prefix, queue) = (new_prefix(), mode("q").retain_completed(Duration::ZERO));
        let store = open(&prefix).await;
        declare(&store, queue.clone()).await;
        let payloads = [text(1, 5_000), text(2, 5_000), text(3, 5_000)];
        let jobs = payloads.iter().map(|payload| long(&queue, "k", payload)).collect();
        let pushed = push(&store, jobs).await;
        push(&store, vec![long(&queue, "other", &text(4, 10))]).await;
        let lost = pushed[1].job_id;
        asked(&prefix, &["HDEL", "{q1:0}:bodies", &lost.seq().to_string()]).await;
        // A view is the same before and after.
        assert_eq!(store.job(lost).await.unwrap().unwrap().state, JobState::Queued);
        let mut ran = Vec::new();
        while numbers(&store).await.jobs > 0 {
            let turns = claim(&store, 10).await;
            ran.extend(texts(&turns));
            assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
        }
        ran.sort();
        let mut wanted = vec![payloads[0].clone(), payloads[2].clone(), text(4, 10)];
        wanted.sort();
        assert_eq!(ran, wanted, "{:?}", queue.mode);
        let dead = store.job(lost).await.unwrap().unwrap();
        assert_eq!(dead.state, JobState::Dead, "{:?}", queue.mode);
        assert!(dead.error.unwrap().contains("payload"), "{:?}", queue.mode);
        let stats = numbers(&store).await;
        assert_eq!((stats.claimed, stats.dead, stats.processed), (0, 1, 3), "{:?}", queue.mode);
    }
}

#[tokio::test]
async fn a_dead_job_without_its_payload_takes_none_from_its_equal() {
    let prefix = new_prefix();
    let (store, queue) = (open(&prefix).await, Queue::accumulate("q"));
    declare(&store, queue.clone()).await;
    let job = || long(&queue, "k", &text(1, 5_000));
    let lost = push(&store, vec![job()]).await[0].job_id;
    end(&store, &claim(&store, 1).await, Fate::Bury).await;
    asked(&prefix, &["DEL", "{q1:0}:bodies"]).await;
    push(&store, vec![job()]).await;
    let requeue = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.requeue(requeue).await.unwrap().count, 0);
    assert_eq!(all(&store, Fate::Done).await, [text(1, 5_000)]);
    assert_eq!(store.job(lost).await.unwrap().unwrap().state, JobState::Dead);
}

/// Their payloads are handed over from shard to shard.
#[tokio::test]
async fn dead_jobs_without_their_payloads_hold_up_no_other_that_moves_to_a_new_shard() {
    let prefix = new_prefix();
    let (store, queue) = (open(&prefix).await, Queue::fifo("q"));
    declare(&store, queue.clone()).await;
    let jobs = (0..10).map(|i| long(&queue, &format!("k{i}"), &text(i, 5_000))).collect();
    let pushed = push(&store, jobs).await;
    end(&store, &claim(&store, 10).await, Fate::Bury).await;
    for lost in pushed.iter().step_by(2) {
        let lost = lost.job_id.seq().to_string();
        assert_eq!(asked(&prefix, &["HDEL", "{q1:0}:bodies", &lost]).await, 1);
    }
    store.reshard("q".into(), 6).await.unwrap();
    let requeue = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.requeue(requeue).await.unwrap().count, 5);
    let mut ran = all(&store, Fate::Done).await;
    ran.sort();
    assert_eq!(ran, [1, 3, 5, 7, 9].map(|i| text(i, 5_000)));
    let selected = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.delete_dead(selected).await.unwrap().count, 5);
}

/// More of them than one script looks at.
#[tokio::test]
async fn many_dead_jobs_without_their_payloads_keep_none_behind_them_from_being_requeued() {
    const LOST: usize = STEP_JOBS + 50;
    for (shards, selects) in [(1, 0), (1, 1), (1, 2), (6, 0), (6, 1)] {
        let prefix = new_prefix();
        let (store, queue) = (open(&prefix).await, Queue::fifo("q"));
        declare(&store, queue.clone()).await;
        let job = |i: usize| long(&queue, &format!("k{}", i % 3), &text(i as u32, 2_000));
        let pushed = push(&store, (0..LOST + 3).map(job).collect()).await;
        all(&store, Fate::Bury).await;
        let lost = pushed[..LOST].iter().map(|pushed| pushed.job_id.seq().to_string());
        let lost: Vec<String> = lost.collect();
        let mut words = vec!["HDEL", "{q1:0}:bodies"];
        words.extend(lost.iter().map(String::as_str));
        assert_eq!(asked(&prefix, &words).await, LOST as i64);
        if shards > 1 {
            store.reshard("q".into(), shards).await.unwrap();
        }
        let which = match selects {
            0 => Selection::All,
            1 => Selection::Keys((0..3).map(|i| format!("k{i}")).collect()),
            _ => Selection::Jobs(pushed.iter().map(|pushed| pushed.job_id).collect()),
        };
        let requeue = Selected { now: None, queue: "q".into(), which };
        let acted = store.requeue(requeue).await.unwrap();
        assert_eq!(acted, Acted { count: 3, more: false }, "{shards} {selects}");
        assert_eq!(numbers(&store).await.dead, LOST as u64);
    }
}

/// Lanes that go on are claimed by a settle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_its_payload_is_buried_by_the_settle_that_claims_it() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q").retain_completed(Duration::ZERO));
    let store = open(&prefix).await;
    declare(&store, queue.clone()).await;
    let payloads = [text(1, 5_000), text(2, 5_000), text(3, 5_000)];
    let jobs = payloads.iter().map(|payload| long(&queue, "k", payload)).collect();
    let pushed = push(&store, jobs).await;
    let turns = claim(&store, 1).await;
    asked(&prefix, &["HDEL", "{q1:0}:bodies", &pushed[1].job_id.seq().to_string()]).await;
    let go_on = vec![GoOn { claim: claim_request("q", 1), places: vec![0] }];
    let settled = store.settle(Settle { go_on, ..settle_done(&turns) }).await.unwrap();
    assert!(matches!(settled[0], Settled::Ok { next: None, .. }), "{settled:?}");
    assert_eq!(store.job(pushed[1].job_id).await.unwrap().unwrap().state, JobState::Dead);
    assert_eq!(texts(&claim(&store, 1).await), payloads[2..]);
}

/// A view ends nothing: who holds the turn may have read the payload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_payload_is_lost_cannot_be_read() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q"));
    let store = open(&prefix).await;
    declare(&store, queue.clone()).await;
    push(&store, vec![long(&queue, "k", &text(1, 5_000))]).await;
    let turns = claim(&store, 1).await;
    asked(&prefix, &["DEL", "{q1:0}:bodies"]).await;
    let error = store.turn(turns[0].lane, turns[0].token).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("payload"), "{error}");
    assert!(done(&store, &turns).await[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_ends_with_the_bytes_of_payloads_that_are_apart() {
    for mode in MODES {
        let (prefix, queue) = (new_prefix(), mode("q").retain_completed(Duration::ZERO));
        let store = open(&prefix).await;
        declare(&store, queue.clone()).await;
        for i in 0..20 {
            let payload = text(i, 1 << 20);
            push(&store, vec![long(&queue, &format!("k{i}"), &payload)]).await;
        }
        assert_eq!(claim(&store, 100).await.len(), 16, "{:?}", queue.mode);
        let request = Claim { bytes_max: Some(3 << 20), ..claim_request("q", 100) };
        assert_eq!(store.claim(request).await.unwrap().turns.len(), 2, "{:?}", queue.mode);
        // What one script does not take over, the next one does.
        let claims = ClaimSelection::Queue("q".into());
        let release = Release { now: None, claims, lanes_max: 100, made_by: None };
        assert_eq!(store.release(release).await.unwrap().len(), 16);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_are_apart_once_no_node_of_an_earlier_build_lives() {
    let (prefix, queue) = (new_prefix(), Queue::fifo("q"));
    let store = open(&prefix).await;
    declare(&store, queue.clone()).await;
    // The store of an earlier build, with one of its nodes, which does not say what it can read.
    asked(&prefix, &["HSET", "{g}:meta", "version", "4"]).await;
    asked(&prefix, &["ZADD", "{g}:alive", "9007199254740991", "old"]).await;
    asked(&prefix, &["HSET", "{g}:nodes", "old", r#"{"id":"old","version":"0.1.0"}"#]).await;
    let job = |i: u32| long(&queue, "k", &text(i, 5_000));
    let store = open(&prefix).await;
    let sweep = || store.sweep(Sweep { now: None, rows_max: 100 });
    sweep().await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    let beat = || store.heartbeat(Heartbeat { now: None, node: node.clone(), beats: Vec::new() });
    beat().await.unwrap();
    push(&store, vec![job(0), job(1)]).await;
    assert_eq!(apart(&prefix).await, 0, "the old node can read them");

    asked(&prefix, &["ZREM", "{g}:alive", "old"]).await;
    sweep().await.unwrap();
    beat().await.unwrap();
    push(&store, vec![job(2), job(3)]).await;
    assert_eq!(apart(&prefix).await, 2);
    assert_eq!(all(&store, Fate::Done).await, [0, 1, 2, 3].map(|i| text(i, 5_000)));
    let again = open(&prefix).await;
    push(&again, vec![job(4)]).await;
    assert_eq!(apart(&prefix).await, 1, "and so it stays");
}
