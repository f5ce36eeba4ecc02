//! Idempotency keys of the whole store.

use futures_util::future::join_all;
use seriatim::store::PushStatus::{Duplicate, Queued};
use seriatim::store::{IdempotencyScope, Push, PushStatus, Pushed, Sweep};
use seriatim::{ErrorKind, Job, JobId, Mode, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    let mut all = listed![if keeps_them;
        d2_a_key_of_the_store_makes_one_job_whatever_the_queues_and_keys,
        d2_of_several_repeats_in_a_batch_the_first_is_the_job,
        d2_a_key_of_the_store_and_one_of_a_queue_are_apart,
        d2_a_repeat_across_queues_may_be_bound_to_another_node,
        d2_a_key_of_the_store_is_forgotten_after_its_time,
        d2_of_many_who_push_a_key_of_the_store_one_makes_the_job,
    ];
    all.extend(listed![
        d2_repeats_within_a_push_that_are_bound_to_different_nodes_are_refused,
        a_scope_without_a_key_is_refused,
    ]);
    all
}

/// A job of this queue, and of this key if it is not empty, with an idempotency key of the whole store.
fn once(queue: &str, key: &str, name: &str) -> Job {
    let job = Job::new(queue, name).unwrap().idempotency_key(name);
    let job = job.idempotency_scope(IdempotencyScope::Store);
    if key.is_empty() { job } else { job.key(key) }
}

/// Whether the store has such keys; one that has none says so.
async fn keeps_them(bench: &mut Bench) -> bool {
    if bench.store.capabilities().store_scope {
        return true;
    }
    let jobs = vec![loose("a"), once("q", "", "i")];
    refused(bench.try_push(jobs).await, ErrorKind::Invalid, "jobs[1].idempotency_scope");
    assert!(bench.store.queues().await.unwrap().is_empty(), "nothing was written");
    false
}

fn told(pushed: &[Pushed]) -> Vec<(PushStatus, JobId)> {
    pushed.iter().map(|pushed| (pushed.status, pushed.job_id)).collect()
}

async fn d2_a_key_of_the_store_makes_one_job_whatever_the_queues_and_keys(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.declare(Queue::accumulate("sums")).await;
    bench.declare(Queue::parallel("loose")).await;
    let first = bench.push(once("q", "a", "i")).await;
    assert_eq!(first.status, Queued);
    let again = [("q", "b"), ("sums", "a"), ("loose", ""), ("made", "k"), ("q", "a")];
    for (queue, key) in again {
        let pushed = bench.push(once(queue, key, "i")).await;
        assert_eq!((pushed.status, pushed.job_id), (Duplicate, first.job_id), "{queue} {key}");
    }
    let job = bench.job(first.job_id).await;
    assert_eq!((&*job.queue, job.key.as_deref()), ("q", Some("a")));
    for stats in bench.store.stats(Some(bench.now)).await.unwrap() {
        let expected = u64::from(&*stats.queue == "q");
        assert_eq!((stats.jobs, stats.lanes), (expected, expected), "{}", stats.queue);
    }
    let turn = bench.one().await;
    let running = bench.push(once("sums", "b", "i")).await;
    assert_eq!((running.status, running.job_id), (Duplicate, first.job_id));
    bench.done(&turn).await;
    let done = bench.push(once("sums", "b", "i")).await;
    assert_eq!((done.status, done.job_id), (Duplicate, first.job_id));
}

async fn d2_of_several_repeats_in_a_batch_the_first_is_the_job(mut bench: Bench) {
    // Numbered in this order, in which a store may go through them.
    for queue in ["a", "b", "c"] {
        bench.declare(Queue::fifo(queue)).await;
    }
    let plain = Job::new("b", &1).unwrap().key("k");
    let jobs = ["c", "a", "b", "a"].map(|queue| once(queue, "k", "i"));
    let jobs = [vec![plain], jobs.into(), vec![once("a", "k", "j")]].concat();
    let pushed = bench.push_all(jobs).await;
    let statuses: Vec<PushStatus> = pushed.iter().map(|pushed| pushed.status).collect();
    assert_eq!(statuses, [Queued, Queued, Duplicate, Duplicate, Duplicate, Queued]);
    assert!(pushed[2..5].iter().all(|again| again.job_id == pushed[1].job_id));
    assert_eq!(&*bench.job(pushed[1].job_id).await.queue, "c");
    assert_eq!(&*bench.job(pushed[5].job_id).await.queue, "a");
}

async fn d2_a_key_of_the_store_and_one_of_a_queue_are_apart(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let of_queue = || loose("a").idempotency_key("i");
    let jobs = vec![once("q", "", "i"), of_queue(), once("q", "", "i"), of_queue()];
    let pushed = bench.push_all(jobs).await;
    let (first, second) = (pushed[0].job_id, pushed[1].job_id);
    assert_ne!(first, second);
    let expected = [(Queued, first), (Queued, second), (Duplicate, first), (Duplicate, second)];
    assert_eq!(told(&pushed), expected);
}

async fn d2_a_repeat_across_queues_may_be_bound_to_another_node(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let first = bench.push(once("other", "k", "i")).await;
    bench.push(job("a").node("one")).await;
    let again = bench.push(once("q", "k", "i").node("two")).await;
    assert_eq!((again.status, again.job_id), (Duplicate, first.job_id));
    let new = bench.try_push(vec![once("q", "k", "j").node("two")]).await;
    assert_eq!(new.expect_err("its lane is bound").kind(), ErrorKind::Conflict);
}

async fn d2_repeats_within_a_push_that_are_bound_to_different_nodes_are_refused(mut bench: Bench) {
    let mut kinds = vec![job("a").idempotency_key("i")];
    if keeps_them(&mut bench).await {
        kinds.push(once("q", "k", "i"));
    }
    bench.queue(Mode::Fifo).await;
    for named in kinds {
        let jobs = vec![named.clone().node("one"), named.node("two")];
        refused(bench.try_push(jobs).await, ErrorKind::Conflict, "jobs[1].key");
        assert_eq!(bench.stats().await.jobs, 0, "nothing was written");
    }
}

async fn d2_a_key_of_the_store_is_forgotten_after_its_time(mut bench: Bench) {
    let mut queue = Queue::fifo("q");
    queue.idempotency_ttl = WAIT;
    bench.declare(queue).await;
    let sweep = async |bench: &Bench| {
        bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
    };
    let first = bench.push(once("q", "a", "i")).await;
    bench.pass(WAIT);
    sweep(&bench).await;
    let known = bench.push(once("other", "b", "i")).await;
    assert_eq!((known.status, known.job_id), (Duplicate, first.job_id), "the job is still there");
    let turn = bench.one().await;
    bench.done(&turn).await;
    let second = bench.push(once("other", "b", "i")).await;
    assert_eq!(second.status, Queued);
    // The time is that of the first job's queue.
    bench.pass(WAIT);
    assert_eq!(bench.push(once("q", "a", "i")).await.job_id, second.job_id);
    // Swept names are free again, those of stored jobs are not.
    let third = bench.push(once("q", "c", "j")).await;
    bench.pass(seriatim::limits::DELAY_MAX / 10);
    let fourth = bench.push(once("q", "a", "k")).await;
    bench.pass(WAIT);
    bench.forget(fourth.job_id).await;
    sweep(&bench).await;
    assert_eq!(bench.push(once("other", "b", "k")).await.status, Queued);
    assert_eq!(bench.push(once("other", "b", "j")).await.job_id, third.job_id);
    assert_eq!(bench.push(once("q", "a", "i")).await.job_id, second.job_id);
}

async fn d2_of_many_who_push_a_key_of_the_store_one_makes_the_job(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.declare(Queue::parallel("loose")).await;
    bench.declare(Queue::accumulate("sums")).await;
    for round in 0..5 {
        let (one, two) = (format!("a{round}"), format!("b{round}"));
        let pushes = (0..12).map(|i| {
            let (queue, key) = match i % 3 {
                0 => ("loose", String::new()),
                1 => ("q", format!("k{i}")),
                _ => ("sums", format!("k{i}")),
            };
            // In either order: a push that waits for a name holds another one.
            let names = if i % 2 == 0 { [&one, &two] } else { [&two, &one] };
            let jobs = names.map(|name| once(queue, &key, name)).into();
            let (store, now) = (bench.store.clone(), Some(bench.now));
            tokio::spawn(async move { store.push(Push { now, jobs }).await })
        });
        let mut queued = 0;
        let mut ids = std::collections::BTreeSet::new();
        for pushed in join_all(pushes.collect::<Vec<_>>()).await {
            let pushed = pushed.unwrap().expect("the push is taken");
            queued += pushed.iter().filter(|pushed| pushed.status == Queued).count();
            ids.extend(pushed.iter().map(|pushed| pushed.job_id));
        }
        assert_eq!((queued, ids.len()), (2, 2), "one job for each name");
    }
    let jobs: u64 = bench.store.stats(Some(bench.now)).await.unwrap().iter().map(|s| s.jobs).sum();
    assert_eq!(jobs, 10);
}

async fn a_scope_without_a_key_is_refused(mut bench: Bench) {
    let job = loose("a").idempotency_scope(IdempotencyScope::Store);
    refused(bench.try_push(vec![job]).await, ErrorKind::Invalid, "jobs[0].idempotency_scope");
}
