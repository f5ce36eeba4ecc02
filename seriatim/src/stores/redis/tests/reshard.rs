//! Changing the number of shards. Under load: `seriatim-verify/tests/reshard.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use super::*;
use crate::stores::Memory;

/// Polls a future until it has waited for `answers` answers, and then drops it. True if it completed.
async fn killed_after(answers: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut left = answers;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn a_resharder_that_dies_anywhere_leaves_a_queue_that_works_and_the_next_one_finishes() {
    let mut ended = false;
    for answers in (0..).take_while(|answers| *answers < 60) {
        let prefix = new_prefix();
        let (old, other) = (open(&prefix).await, open(&prefix).await);
        declare(&old, in_shards(Queue::fifo("q"), 2)).await;
        let keys: Vec<String> = (0..8).map(|i| format!("k{i}")).collect();
        let round = |i: u32| keys.iter().map(|key| job(key, i)).collect::<Vec<_>>();
        push(&old, round(0)).await;
        ended = killed_after(answers, other.reshard("q".into(), 5)).await;
        // One process knows of the change, the other does not.
        push(&other, round(1)).await;
        push(&old, round(2)).await;
        let mut next: HashMap<String, u32> = HashMap::new();
        let worker = [&old, &other][answers % 2];
        while next.values().filter(|i| **i == 3).count() < keys.len() {
            let turns = claim(worker, 3).await;
            assert!(!turns.is_empty(), "after {answers} answers something is stranded: {next:?}");
            for turn in &turns {
                let expected = next.entry(turn.key.as_deref().unwrap().to_owned()).or_default();
                assert_eq!(tag(turn), *expected, "after {answers} answers");
                *expected += 1;
            }
            done(worker, &turns).await;
        }
        let end = open(&prefix).await.reshard("q".into(), 5).await.unwrap();
        assert_eq!((end.shards, end.older, end.lanes_left), (5, 0, 0), "after {answers} answers");
        if ended {
            break;
        }
    }
    assert!(ended, "the last one was not killed");
}

/// Pushes a job for each key and claims the first half.
async fn half_claimed(store: &Redis) -> (Vec<Pushed>, Vec<Turn>) {
    let pushed = push(store, (0..12).map(|i| job(&format!("k{i}"), i)).collect()).await;
    (pushed, claim(store, 6).await)
}

#[tokio::test]
async fn l20_a_key_stays_where_its_lane_is_and_all_that_was_pushed_is_found_and_cancelled() {
    let prefix = new_prefix();
    let (store, other) = (open(&prefix).await, open(&prefix).await);
    declare(&store, in_shards(Queue::fifo("q"), 1)).await;
    let (before, turns) = half_claimed(&store).await;
    let answer = other.reshard("q".into(), 7).await.unwrap();
    assert_eq!((answer.shards, answer.older), (7, 1));
    assert!((8..=12).contains(&answer.lanes_left), "most of 12 keys leave shard 0: {answer:?}");
    let after = push(&store, (0..12).map(|i| job(&format!("k{i}"), 100 + i)).collect()).await;
    assert!(after.iter().all(|pushed| pushed.job_id.shard() == 0), "their lanes are there");
    for pushed in before.iter().chain(&after) {
        let view = store.job(pushed.job_id).await.unwrap();
        assert!(view.is_some_and(|view| view.id == pushed.job_id));
    }
    let jobs = before.iter().chain(&after).map(|pushed| pushed.job_id).collect();
    let answers = store.cancel(Cancel { now: None, jobs }).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| **answer == Cancelled::Flagged).count(), 6);
    assert_eq!(answers.iter().filter(|answer| **answer == Cancelled::Now).count(), 18);
    done(&other, &turns).await;
    let fresh = push(&store, (0..12).map(|i| job(&format!("k{i}"), 200 + i)).collect()).await;
    assert!(fresh.iter().any(|pushed| pushed.job_id.shard() != 0), "the keys go on elsewhere");
    let end = other.reshard("q".into(), 7).await.unwrap();
    assert_eq!((end.older, end.lanes_left), (0, 0));
}

#[tokio::test]
async fn l20_tokens_of_a_key_grow_also_from_one_shard_to_the_next() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::fifo("q"), 1)).await;
    for forget_older in [false, true] {
        let shards = if forget_older { 5 } else { 9 };
        let keys: Vec<String> = (0..6).map(|i| format!("k{i}")).collect();
        push(&store, keys.iter().map(|key| job(key, 1)).collect()).await;
        // From a server whose clock is ahead.
        let ahead = store.now().await.unwrap() + Duration::from_secs(3_600);
        let request = Claim { now: Some(ahead), ..claim_request("q", 6) };
        let before = store.claim(request).await.unwrap().turns;
        assert_eq!(before.len(), 6);
        store.reshard("q".into(), shards).await.unwrap();
        done(&store, &before).await;
        if forget_older {
            assert_eq!(store.reshard("q".into(), shards).await.unwrap().older, 0);
        }
        push(&store, keys.iter().map(|key| job(key, 2)).collect()).await;
        let after = claim(&store, 6).await;
        assert_eq!(after.len(), 6);
        for turn in &after {
            let was = before.iter().find(|before| before.key == turn.key).unwrap();
            assert!(turn.token > was.token, "{:?}", turn.key);
        }
        done(&store, &after).await;
    }
}

#[tokio::test]
async fn idempotency_keys_are_known_by_every_number_of_shards_that_remembers_them() {
    for queue in [Queue::parallel("q"), Queue::exclusive("q")] {
        let prefix = new_prefix();
        let store = open(&prefix).await;
        declare(&store, in_shards(queue.clone(), 4)).await;
        let batch = || -> Vec<Job> {
            let job = |i: u32| Job::new("q", &i).unwrap().idempotency_key(format!("i{i}"));
            let keyed = queue.mode.is_keyed();
            (0..9).map(|i| if keyed { job(i).key(format!("k{i}")) } else { job(i) }).collect()
        };
        let first: Vec<JobId> =
            push(&store, batch()).await.iter().map(|pushed| pushed.job_id).collect();
        done(&store, &claim(&store, 9).await).await;
        for shards in [16, 3] {
            store.reshard("q".into(), shards).await.unwrap();
            let again = push(&store, batch()).await;
            assert!(again.iter().all(|pushed| pushed.status == PushStatus::Duplicate));
            assert_eq!(again.iter().map(|pushed| pushed.job_id).collect::<Vec<_>>(), first);
        }
        assert!(store.reshard("q".into(), 3).await.unwrap().idempotency_keys_left > 0);
    }
}

async fn bury(store: &Redis, turns: &[Turn]) {
    let bury = |turn: &Turn| Settlement {
        rest: crate::store::Fate::Bury,
        ..Settlement::done(turn.lane, turn.token)
    };
    let turns = turns.iter().map(bury).collect();
    store.settle(Settle::now(turns)).await.unwrap();
}

#[tokio::test]
async fn dead_jobs_are_requeued_where_their_keys_are_now_and_found_by_their_ids() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::fifo("q"), 1)).await;
    let keys: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
    let dead = push(&store, keys.iter().map(|key| job(key, 1)).collect()).await;
    bury(&store, &claim(&store, 10).await).await;
    let large = "1".repeat(5_000);
    let big = Job::new("q", &large).unwrap().key("big");
    let big = push(&store, vec![big]).await[0].job_id;
    bury(&store, &claim(&store, 1).await).await;
    store.reshard("q".into(), 6).await.unwrap();
    // Half of the keys have a claimed lane in their present shard.
    push(&store, keys[..5].iter().map(|key| job(key, 2)).collect()).await;
    let running = claim(&store, 5).await;
    let all = Selected { now: None, queue: "q".into(), which: Selection::All };
    assert_eq!(store.requeue(all.clone()).await.unwrap().count, 11);
    assert_eq!(store.requeue(all).await.unwrap().count, 0, "each once");
    let turns = claim(&store, 20).await;
    assert_eq!(turns.len(), 6, "no key that runs is handed over");
    assert!(
        turns
            .iter()
            .any(|turn| turn.jobs[0].payload.decode::<String>().is_ok_and(|text| text == large))
    );
    for id in dead.iter().map(|pushed| pushed.job_id).chain([big]) {
        let view = store.job(id).await.unwrap().expect("it is found");
        let state = if view.key.as_deref().is_some_and(|key| keys[..5].contains(&key.to_owned())) {
            JobState::Queued
        } else {
            JobState::Running
        };
        assert_eq!((view.id, view.state, view.retry_count), (id, state, -1));
    }
    let jobs = vec![dead[0].job_id, dead[7].job_id];
    let answers = store.cancel(Cancel { now: None, jobs }).await.unwrap();
    assert_eq!(answers, [Cancelled::Now, Cancelled::Flagged]);
    // Dead again in the present shard: the first id still refers to them.
    bury(&store, &turns).await;
    let which = Selection::Jobs(vec![dead[8].job_id]);
    let again = Selected { now: None, queue: "q".into(), which };
    assert_eq!(store.requeue(again).await.unwrap().count, 1);
    done(&store, &running).await;
}

#[tokio::test]
async fn a_declaration_leaves_the_number_of_shards_of_a_queue_that_exists_alone() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::fifo("q"), 2)).await;
    store.reshard("q".into(), 5).await.unwrap();
    declare(&store, in_shards(Queue::fifo("q").max_retries(3), 2)).await;
    let view = store.queues().await.unwrap().remove(0);
    assert_eq!((view.queue.shards, view.queue.max_retries), (5, 3));
    for shards in [0, 5_000] {
        let error = store.reshard("q".into(), shards).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(store.reshard("none".into(), 2).await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = Memory::new().reshard("q".into(), 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_process_that_only_claims_hears_of_new_shards() {
    let prefix = new_prefix();
    let (worker, other) = (open(&prefix).await, open(&prefix).await);
    declare(&worker, in_shards(Queue::fifo("q"), 1)).await;
    assert!(claim(&worker, 1).await.is_empty());
    other.reshard("q".into(), 8).await.unwrap();
    push(&other, (0..20).map(|i| job(&format!("k{i}"), i)).collect()).await;
    // The claim finds another definition and checks all shards.
    assert_eq!(claim(&worker, 20).await.len(), 20);
}
