//! Changing the number of shards between any two steps of another operation.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

use super::super::layout::Layout;
use super::*;
use crate::contract::Selection;

/// More than any operation here waits for.
const ANSWERS_MAX: usize = 80;

/// Polls a future until it has waited for `answers` answers; its output if it completed.
pub(super) async fn advance<T>(
    answers: usize,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut left = answers;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("k{i}")).collect()
}

fn one_of_each(keys: &[String], tag: u32) -> Vec<Job> {
    keys.iter().map(|key| job(key, tag)).collect()
}

fn all_dead() -> Selected {
    Selected { now: None, queue: "q".into(), which: Selection::All }
}

async fn bury_all(store: &Redis, lanes: usize) {
    let turns = claim(store, lanes).await;
    assert_eq!(turns.len(), lanes);
    let bury = |turn: &Turn| Settlement {
        rest: crate::store::Fate::Bury,
        ..Settlement::done(turn.lane, turn.token)
    };
    let turns = turns.iter().map(bury).collect();
    store.settle(Settle::now(turns)).await.unwrap();
}

/// Claims and settles until nothing is left; returns the number of jobs.
async fn drain(store: &Redis) -> usize {
    let mut count = 0;
    loop {
        let turns = claim(store, 100).await;
        if turns.is_empty() {
            return count;
        }
        count += turns.iter().map(|turn| turn.jobs.len()).sum::<usize>();
        assert!(done(store, &turns).await.iter().all(Settled::is_ok));
    }
}

#[tokio::test]
async fn what_is_requeued_while_the_number_of_shards_changes_never_runs_beside_its_key() {
    for resharded_before in [false, true] {
        let mut ended = false;
        for answers in 0..ANSWERS_MAX {
            let prefix = new_prefix();
            let (store, other) = (open(&prefix).await, open(&prefix).await);
            declare(&store, in_shards(Queue::fifo("q"), 1)).await;
            if resharded_before {
                assert_eq!(store.reshard("q".into(), 2).await.unwrap().older, 0);
            }
            let keys = keys(6);
            push(&store, one_of_each(&keys, 1)).await;
            bury_all(&store, keys.len()).await;
            let mut requeue = pin!(store.requeue(all_dead()));
            let answer = advance(answers, requeue.as_mut()).await;
            ended = answer.is_some();
            other.reshard("q".into(), 5).await.unwrap();
            push(&other, one_of_each(&keys, 2)).await;
            let running = claim(&other, keys.len()).await;
            let acted = match answer {
                Some(answer) => answer.unwrap(),
                None => requeue.await.unwrap(),
            };
            assert_eq!(acted.count, 6, "after {answers} answers");
            let mut busy: HashSet<_> = running.iter().map(|turn| turn.key.clone()).collect();
            for turn in claim(&other, 20).await {
                assert!(busy.insert(turn.key.clone()), "{:?} after {answers} answers", turn.key);
                assert!(done(&other, &[turn]).await[0].is_ok());
            }
            done(&other, &running).await;
            drain(&other).await;
            assert_eq!(numbers(&other).await.jobs, 0, "after {answers} answers");
            assert_eq!(other.reshard("q".into(), 5).await.unwrap().older, 0);
            if ended {
                break;
            }
        }
        assert!(ended, "the last one came to its end");
    }
}

#[tokio::test]
async fn a_queue_that_is_paused_while_its_shards_change_is_paused_in_all_of_them() {
    for pause_first in [false, true] {
        let mut ended = false;
        for answers in 0..ANSWERS_MAX {
            let prefix = new_prefix();
            let (store, other) = (open(&prefix).await, open(&prefix).await);
            declare(&store, in_shards(Queue::fifo("q"), 3)).await;
            let mut reshard = pin!(store.reshard("q".into(), 6));
            let mut pause = pin!(store.pause_queue("q".into(), true));
            if pause_first {
                ended = advance(answers, pause.as_mut()).await.is_some();
                other.reshard("q".into(), 6).await.unwrap();
                if !ended {
                    pause.await.unwrap();
                }
            } else {
                ended = advance(answers, reshard.as_mut()).await.is_some();
                other.pause_queue("q".into(), true).await.unwrap();
                if !ended {
                    reshard.await.unwrap();
                }
            }
            push(&other, one_of_each(&keys(30), 1)).await;
            let taken = claim(&other, 30).await;
            assert_eq!(taken.len(), 0, "after {answers} answers, pause first: {pause_first}");
            other.pause_queue("q".into(), false).await.unwrap();
            assert_eq!(drain(&store).await, 30);
            if ended {
                break;
            }
        }
        assert!(ended, "the last one came to its end");
    }
}

#[tokio::test]
async fn what_is_pushed_while_the_mode_of_its_queue_changes_is_claimed_in_the_one_that_stands() {
    let four = Layout { shards: 4, older: vec![], span: 4, changed: false, floor: 0 };
    let names: Vec<String> = keys(40).into_iter().filter(|name| four.home(name) == 2).collect();
    let there = |mode: Mode, i: u32| match mode.is_keyed() {
        true => job(&names[0], i),
        // Its idempotency key says where it goes.
        false => Job::new("q", &i).unwrap().idempotency_key(&*names[i as usize]),
    };
    let changes =
        [(Mode::Fifo, Mode::Exclusive), (Mode::Fifo, Mode::Parallel), (Mode::Parallel, Mode::Fifo)];
    for (before, after) in changes {
        let mut ended = false;
        for answers in 0..ANSWERS_MAX {
            let prefix = new_prefix();
            let (store, client) = (open(&prefix).await, open(&prefix).await);
            declare(&store, in_shards(Queue::new("q", before), 4)).await;
            client.known("q").await.unwrap();
            let queues = vec![in_shards(Queue::new("q", after), 4)];
            let mut change = pin!(store.declare(Declare { now: None, queues }));
            ended = advance(answers, change.as_mut()).await.is_some();
            let pushed = client.push(Push { now: None, jobs: vec![there(before, 0)] }).await;
            if !ended {
                // The job may be a reason to refuse it.
                let _ = change.await;
            }
            let mode = store.current("q").await.unwrap().queue.mode;
            push(&store, vec![there(mode, 1)]).await;
            let count = drain(&store).await;
            let expected = usize::from(pushed.is_ok()) + 1;
            assert_eq!(count, expected, "{before} to {after}, after {answers} answers");
            if ended {
                break;
            }
        }
        assert!(ended, "the last one came to its end");
    }
}

#[tokio::test]
async fn a_queue_whose_deletion_is_refused_while_its_shards_change_takes_jobs_and_gives_them() {
    let (mut ended, mut refused) = (false, 0);
    for answers in 0..ANSWERS_MAX {
        let prefix = new_prefix();
        let (store, other) = (open(&prefix).await, open(&prefix).await);
        declare(&store, in_shards(Queue::fifo("q"), 3)).await;
        push(&store, one_of_each(&keys(9), 1)).await;
        let worker = open(&prefix).await;
        worker.known("q").await.unwrap();
        let request = DeleteQueue { queue: "q".into(), rows_max: 100 };
        let mut deletion = pin!(store.delete_queue(request));
        let answer = advance(answers, deletion.as_mut()).await;
        ended = answer.is_some();
        // In shards that have not adopted yet that the queue is closed. All of this may be refused.
        let _ = worker.claim(claim_request("q", 9)).await;
        let _ = other.reshard("q".into(), 5).await;
        let answer = match answer {
            Some(answer) => answer,
            None => deletion.await,
        };
        if answer.is_err() {
            refused += 1;
            let last = open(&prefix).await;
            push(&last, vec![job("new", 2)]).await;
            let turns = claim(&last, 20).await;
            let is_new = |turn: &Turn| turn.key.as_deref() == Some("new");
            assert!(turns.iter().any(is_new), "after {answers} answers");
        }
        if ended {
            break;
        }
    }
    assert!(ended, "the last one came to its end");
    assert!(refused > 0, "some were refused");
}

#[tokio::test]
async fn what_an_engine_declares_stands_whenever_it_comes() {
    for is_pushed in [false, true] {
        let mut ended = false;
        for answers in 0..ANSWERS_MAX {
            let prefix = new_prefix();
            let (client, engine) = (open(&prefix).await, open(&prefix).await);
            if is_pushed {
                push(&client, vec![job("k", 1)]).await;
            }
            let queues = vec![in_shards(Queue::fifo("q").take(5), 2)];
            let mut new = pin!(client.declare_new(Declare { now: None, queues }));
            let answer = advance(answers, new.as_mut()).await;
            ended = answer.is_some();
            declare(&engine, in_shards(Queue::fifo("q").take(3), 2)).await;
            match answer {
                Some(answer) => answer.unwrap(),
                None => new.await.unwrap(),
            }
            let stands = engine.queues().await.unwrap().remove(0);
            assert_eq!((stands.declared, stands.queue.take), (true, 3), "after {answers} answers");
            if ended {
                break;
            }
        }
        assert!(ended, "the last one came to its end");
    }
}

#[tokio::test]
async fn a_push_of_which_a_part_is_stored_is_never_answered_as_a_refusal() {
    let (mut ended, mut in_part) = (false, 0);
    for answers in 0..ANSWERS_MAX {
        let prefix = new_prefix();
        let (client, other) = (open(&prefix).await, open(&prefix).await);
        for queue in ["q", "r"] {
            declare(&client, Queue::parallel(queue)).await;
        }
        let jobs = ["q", "r"].map(|queue| Job::new(queue, &1).unwrap()).to_vec();
        let mut pushing = pin!(client.push(Push { now: None, jobs }));
        let answer = advance(answers, pushing.as_mut()).await;
        ended = answer.is_some();
        // Jobs without a key are refused from now on; or the declaration is, if the queue has one already.
        let _ = other.declare(Declare { now: None, queues: vec![Queue::fifo("r")] }).await;
        let answer = match answer {
            Some(answer) => answer,
            None => pushing.await,
        };
        let stored: u64 = other.stats(None).await.unwrap().iter().map(|queue| queue.jobs).sum();
        match answer {
            Ok(_) => assert_eq!(stored, 2, "after {answers} answers"),
            Err(error) if error.is_transient() => in_part += stored,
            Err(error) => assert_eq!(stored, 0, "{error} after {answers} answers"),
        }
        if ended {
            break;
        }
    }
    assert!(ended, "the last one came to its end");
    assert!(in_part > 0, "one of them was stored in part");
}

#[tokio::test]
async fn a_number_of_shards_that_returns_finds_every_idempotency_key() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::exclusive("q"), 2)).await;
    let keys = keys(24);
    let repeated = |i: u32| -> Vec<Job> {
        one_of_each(&keys, i).into_iter().map(|job| job.idempotency_key(format!("i{i}"))).collect()
    };
    let mut first = Vec::new();
    for (i, shards) in [3, 2, 3].into_iter().enumerate() {
        first.push(push(&store, repeated(i as u32)).await);
        done(&store, &claim(&store, 100).await).await;
        // These keep the number in use.
        let held: Vec<String> = (0..12).map(|n| format!("held-{i}-{n}")).collect();
        push(&store, one_of_each(&held, 0)).await;
        assert!(claim(&store, 100).await.len() >= 12);
        // Some keys have a waiting lane by the second number, others by the third, others by the last.
        if i > 0 {
            push(&store, one_of_each(&keys[(i - 1) * 8..i * 8], 50)).await;
        }
        store.reshard("q".into(), shards).await.unwrap();
    }
    push(&store, one_of_each(&keys[16..], 51)).await;
    for (i, was) in first.iter().enumerate() {
        let again = push(&store, repeated(i as u32)).await;
        for (again, was) in again.iter().zip(was) {
            assert_eq!((again.job_id, again.status), (was.job_id, PushStatus::Duplicate));
        }
    }
}

#[tokio::test]
async fn jobs_without_a_key_that_wait_in_a_shard_too_many_are_claimed() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::parallel("q"), 8)).await;
    let plain = |i: u32| Job::new("q", &i).unwrap();
    for i in 0..24 {
        push(&store, vec![plain(i)]).await;
    }
    let running = claim(&store, 8).await;
    let answer = store.reshard("q".into(), 2).await.unwrap();
    assert_eq!((answer.shards, answer.older), (2, 1));
    assert!(answer.lanes_left >= 12, "three of each of six shards: {answer:?}");
    push(&store, (24..32).map(plain).collect()).await;
    done(&store, &running).await;
    assert_eq!(drain(&store).await, 24);
    let end = store.reshard("q".into(), 2).await.unwrap();
    assert_eq!((end.older, end.lanes_left), (0, 0));
}

#[tokio::test]
async fn lanes_without_a_key_of_a_queue_that_got_keys_are_claimed_from_a_shard_too_many() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::parallel("q"), 4)).await;
    for i in 0..8 {
        push(&store, vec![Job::new("q", &i).unwrap()]).await;
    }
    bury_all(&store, 8).await;
    declare(&store, in_shards(Queue::fifo("q"), 4)).await;
    assert_eq!(store.requeue(all_dead()).await.unwrap().count, 8);
    let answer = store.reshard("q".into(), 2).await.unwrap();
    assert_eq!((answer.older, answer.lanes_left), (1, 4), "two of each of two shards");
    assert_eq!(drain(&store).await, 8);
    assert_eq!(store.reshard("q".into(), 2).await.unwrap().older, 0);
}

#[tokio::test]
async fn dead_jobs_without_a_key_are_requeued_where_they_are_claimed() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::parallel("q"), 8)).await;
    let mut pushed = Vec::new();
    for i in 0..16 {
        pushed.extend(push(&store, vec![Job::new("q", &i).unwrap()]).await);
    }
    bury_all(&store, 16).await;
    store.reshard("q".into(), 2).await.unwrap();
    assert_eq!(store.requeue(all_dead()).await.unwrap().count, 16);
    assert_eq!(store.requeue(all_dead()).await.unwrap().count, 0, "each once");
    for pushed in &pushed {
        let view = store.job(pushed.job_id).await.unwrap().expect("it is found");
        assert_eq!((view.id, view.state), (pushed.job_id, JobState::Queued));
    }
    assert_eq!(drain(&store).await, 16);
}

#[tokio::test]
async fn tokens_grow_also_where_a_dead_job_comes_back_to_its_shard() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::fifo("q"), 2)).await;
    // Keys in a shard of three where a layout of two puts nothing, so that no claim there raises that shard's tokens.
    let three = Layout { shards: 3, older: vec![], span: 3, changed: false, floor: 0 };
    let keys: Vec<String> = keys(60).into_iter().filter(|key| three.home(key) == 2).collect();
    let count = keys.len();
    push(&store, one_of_each(&keys, 1)).await;
    bury_all(&store, count).await;
    store.reshard("q".into(), 3).await.unwrap();
    push(&store, one_of_each(&keys, 2)).await;
    store.reshard("q".into(), 2).await.unwrap();
    let ahead = store.now().await.unwrap() + Duration::from_secs(3_600);
    let request = Claim { now: Some(ahead), ..claim_request("q", count) };
    let before = store.claim(request).await.unwrap().turns;
    assert_eq!(done(&store, &before).await.len(), count);
    assert_eq!(store.requeue(all_dead()).await.unwrap().count, count as u64);
    let after = claim(&store, count).await;
    assert_eq!(after.len(), count);
    for turn in &after {
        let was = before.iter().find(|before| before.key == turn.key).unwrap();
        assert!(turn.token > was.token, "{:?}", turn.key);
    }
}
