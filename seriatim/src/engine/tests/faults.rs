//! A store that fails, and lost answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::JobState;
use crate::*;

fn counting(rig: &Rig, log: &Log) -> EngineBuilder {
    let log = log.clone();
    engine(rig).worker("mail", move |batch: Batch<u32>| {
        log.add(batch.lanes()[0].payloads()[0].to_string());
        async {}
    })
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_for_and_nothing_is_lost() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(counting(&rig, &log));
    pass(secs(1)).await;
    for i in 0..50 {
        rig.push(Job::new("mail", &i).unwrap()).await;
    }
    rig.faults.down.store(true, Ordering::SeqCst);
    pass(secs(12)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    log.reaches(50).await;
    pass(secs(6)).await;
    let summary = running.stop().await;
    assert_eq!((summary.done, summary.stale, summary.unsettled), (50, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_the_store_that_is_away_holds_up_no_other() {
    let (rig, log) = (Rig::new(), Log::default());
    let lost = log.clone();
    let builder = counting(&rig, &log).worker("lost", move |_: Batch<u32>| {
        lost.add("lost");
        async {}
    });
    *rig.faults.away.lock().unwrap() = Some("lost");
    rig.push(Job::new("lost", &0).unwrap()).await;
    let running = Running::start(builder);
    pass(secs(20)).await;
    for number in 0..50 {
        rig.push(Job::new("mail", &number).unwrap()).await;
        pass(Duration::from_millis(100)).await;
        assert_eq!(log.len(), number + 1, "each runs at once");
    }
    *rig.faults.away.lock().unwrap() = None;
    pass(secs(10)).await;
    assert_eq!(log.lines().last().unwrap(), "lost");
    assert_eq!(running.stop().await.done, 51);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_starts_in_an_outage_waits_for_its_end() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &7).unwrap()).await;
    rig.faults.down.store(true, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log));
    pass(secs(60)).await;
    rig.faults.down.store(false, Ordering::SeqCst);
    log.reaches(1).await;
    assert_eq!(running.stop().await.done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_goes_back_and_runs_once() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.lost_claims.store(1, Ordering::SeqCst);
    let id = rig.push(Job::new("mail", &7).unwrap()).await;
    let running = Running::start(counting(&rig, &log));
    log.reaches(1).await;
    pass(secs(3)).await;
    assert_eq!(running.stop().await.done, 1);
    assert_eq!(log.lines(), ["7"]);
    assert_eq!(rig.state(id).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_goes_back_with_a_turn_that_cannot_be_read() {
    let (rig, log) = (Rig::new(), Log::default());
    let first = rig.push(Job::new("mail", &0).unwrap()).await;
    for number in 1..4 {
        rig.push(Job::new("mail", &number).unwrap()).await;
    }
    *rig.faults.unreadable.lock().unwrap() = Some(first);
    rig.faults.lost_claims.store(1, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log));
    log.reaches(4).await;
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["0", "1", "2", "3"]);
    pass(secs(3)).await;
    assert_eq!(running.stop().await.done, 4);
}

#[tokio::test(start_paused = true)]
async fn of_claims_side_by_side_one_is_lost_and_all_jobs_run_once() {
    let (rig, log) = (Rig::new(), Log::default());
    for number in 0..4 {
        rig.push(Job::new("mail", &number).unwrap()).await;
    }
    rig.faults.claim_split.store(1, Ordering::SeqCst);
    rig.faults.lost_claims.store(1, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log));
    log.reaches(4).await;
    pass(secs(3)).await;
    assert_eq!(running.stop().await.done, 4);
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["0", "1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_goes_back_also_when_its_queue_has_nothing_else() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("alone", &7).unwrap()).await;
    rig.faults.lost_claims.store(1, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log).worker("alone", log.adds::<u32>("alone")));
    pass(secs(3)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    log.reaches(2).await;
    assert_eq!(running.stop().await.done, 2);
}

#[tokio::test(start_paused = true)]
async fn a_rescue_whose_answer_was_lost_leaves_no_lane_held_for_ever() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &7).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "mail", secs(10)).await.len(), 1);
    rig.faults.lost_rescues.store(1, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log));
    log.reaches(1).await;
    pass(secs(1)).await;
    assert_eq!(running.stop().await.done, 1);
    assert_eq!(rig.state(id).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_rescue_of_a_queue_of_others_goes_back_once_it_can_be_read() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("of-others", &7).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "of-others", secs(10)).await.len(), 1);
    rig.faults.lost_rescues.store(1, Ordering::SeqCst);
    *rig.faults.incomparable.lock().unwrap() = Some("of-others");
    let running = Running::start(counting(&rig, &log));
    pass(secs(60)).await;
    assert_eq!(rig.state(id).await, Some(JobState::Running));
    *rig.faults.incomparable.lock().unwrap() = None;
    pass(secs(60)).await;
    assert_eq!(rig.state(id).await, Some(JobState::Queued));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_rescued_while_the_queues_cannot_be_read_is_judged_by_what_was_read_last() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("of-others").max_crashes(1)).await;
    let id = rig.push(Job::new("of-others", &7).unwrap()).await;
    assert_eq!(rig.claim_as("dead", "of-others", secs(40)).await.len(), 1);
    let running = Running::start(counting(&rig, &log));
    pass(secs(25)).await;
    rig.faults.no_queues.store(true, Ordering::SeqCst);
    pass(secs(35)).await;
    assert_eq!(rig.state(id).await, Some(JobState::Dead));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_due_lane_that_is_for_another_node_makes_nobody_spin() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &7).unwrap().node("elsewhere")).await;
    for i in 0..2 {
        rig.push(Job::new("slow", &i).unwrap()).await;
    }
    let slow = |_: Batch<u32>| async {
        pass(secs(20)).await;
    };
    // The second slow job is due but has no slot, so the queue stays due.
    let running =
        Running::start(counting(&rig, &log).with(Worker::new("slow", slow).concurrency(1)));
    pass(secs(10)).await;
    let claims = rig.faults.claims.load(Ordering::SeqCst);
    assert!(claims <= 30, "{claims} claims in 10 s");
    running.kill();
    assert_eq!(log.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_settle_whose_answer_was_lost_is_repeated_and_the_job_runs_once() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.lost_settles.store(1, Ordering::SeqCst);
    let id = rig.push(Job::new("mail", &7).unwrap()).await;
    let running = Running::start(counting(&rig, &log));
    log.reaches(1).await;
    pass(secs(3)).await;
    assert_eq!(running.stop().await.unsettled, 0);
    assert_eq!(log.lines(), ["7"]);
    assert_eq!(rig.state(id).await, None);
}

#[tokio::test(start_paused = true)]
async fn s5_a_scheduled_job_starts_when_it_is_due() {
    let (rig, log) = (Rig::new(), Log::default());
    let origin = tokio::time::Instant::now();
    let written = log.clone();
    let running = Running::start(engine(&rig).poll_interval(secs(3_600)).worker(
        "mail",
        move |_: Batch<u32>| {
            written.add(origin.elapsed().as_millis().to_string());
            async {}
        },
    ));
    pass(secs(1)).await;
    rig.push(Job::new("mail", &1).unwrap().run_in(Duration::from_millis(12_345))).await;
    log.reaches(1).await;
    running.stop().await;
    let late_ms: i64 = log.lines()[0].parse::<i64>().unwrap() - 13_345;
    assert!((0..=5).contains(&late_ms), "{late_ms} ms late");
}

#[tokio::test(start_paused = true)]
async fn d10_a_job_pushed_to_a_queue_that_nobody_declared_is_found_by_its_wake_up() {
    let (rig, log) = (Rig::new(), Log::default());
    let running = Running::start(counting(&rig, &log).poll_interval(secs(3_600)));
    pass(secs(5)).await;
    rig.push(Job::new("mail", &1).unwrap()).await;
    pass(Duration::from_millis(5)).await;
    assert_eq!(log.len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s5_d10_a_job_whose_wake_up_was_lost_is_found_by_the_next_poll() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.deaf.store(true, Ordering::SeqCst);
    let running = Running::start(counting(&rig, &log).poll_interval(secs(7)));
    pass(secs(2)).await;
    let pushed = tokio::time::Instant::now();
    rig.push(Job::new("mail", &1).unwrap()).await;
    log.reaches(1).await;
    let waited = pushed.elapsed();
    assert!((secs(1)..=secs(7)).contains(&waited), "{waited:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_queue_whose_part_of_the_store_does_not_say_what_is_due_is_found_by_a_claim() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.faults.deaf.store(true, Ordering::SeqCst);
    *rig.faults.silent.lock().unwrap() = Some("mail");
    // An engine with one queue asks nothing before it claims.
    let builder = counting(&rig, &log).worker("idle", |_: Batch<u32>| async {});
    let running = Running::start(builder.poll_interval(secs(7)));
    pass(secs(2)).await;
    let pushed = tokio::time::Instant::now();
    rig.push(Job::new("mail", &1).unwrap()).await;
    log.reaches(1).await;
    assert!(pushed.elapsed() <= secs(7), "{:?}", pushed.elapsed());
    assert!(rig.faults.due_calls.load(Ordering::SeqCst) > 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn single_pushes_of_many_callers_share_batches() {
    let rig = Rig::new();
    let client = Client::new(rig.shared());
    let pushes: Vec<_> = (0..100)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.push(Job::new("mail", &i).unwrap()).await })
        })
        .collect();
    let mut ids = Vec::new();
    for push in pushes {
        ids.push(push.await.unwrap().unwrap().job_id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 100);
    assert!(rig.faults.pushes.load(Ordering::SeqCst) <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_push_is_its_caller_s_alone() {
    let rig = Rig::new();
    rig.store_declared(Queue::fifo("orders")).await;
    let client = Client::new(rig.shared());
    let pushes: Vec<_> = (0..10)
        .map(|i| {
            let client = client.clone();
            let job = Job::new("orders", &i).unwrap();
            let job = if i == 5 { job } else { job.key("a") };
            tokio::spawn(async move { client.push(job).await })
        })
        .collect();
    for (i, push) in pushes.into_iter().enumerate() {
        let answer = push.await.unwrap();
        assert_eq!(answer.is_err(), i == 5);
        if let Err(error) = answer {
            assert_eq!(error.field(), Some("key"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_nobody_behind() {
    let rig = Rig::new();
    let client = Client::new(rig.shared());
    let leader = client.clone();
    let leader = tokio::spawn(async move { leader.push(Job::new("mail", &1).unwrap()).await });
    tokio::task::yield_now().await;
    let follower = client.clone();
    let follower = tokio::spawn(async move { follower.push(Job::new("mail", &2).unwrap()).await });
    leader.abort();
    assert!(follower.await.unwrap().is_ok());
    assert!(client.push(Job::new("mail", &3).unwrap()).await.is_ok());
    let id = client.push(Job::new("mail", &4).unwrap()).await.unwrap().job_id;
    assert_eq!(rig.job(id).await.unwrap().unwrap().state, JobState::Queued);
}

/// As between two items of a stream of pushes.
#[tokio::test(start_paused = true)]
async fn a_push_that_nobody_polls_holds_up_no_other() {
    let rig = Rig::new();
    let client = Client::new(rig.shared());
    let push = |number: u32| client.push(Job::new("mail", &number).unwrap());
    let soon = async |number| tokio::time::timeout(secs(1), push(number)).await.expect("it goes");
    let (mut first, mut second) = (Box::pin(push(1)), Box::pin(push(2)));
    // The second waits behind the first.
    for one in [&mut first, &mut second] {
        assert!(futures_util::poll!(one).is_pending());
    }
    soon(3).await.unwrap();
    first.await.unwrap();
    soon(4).await.unwrap();
    second.await.unwrap();
    let mut pushes = stream::iter(5..30).map(push).buffer_unordered(4);
    while let Some(pushed) = pushes.next().await {
        pushed.unwrap();
        soon(30).await.unwrap();
    }
    assert_eq!(rig.stats(None).await.unwrap()[0].jobs, 29 + 25);
}

#[tokio::test(start_paused = true)]
async fn a_push_that_panics_around_the_jobs_of_several_callers_holds_up_nobody_later() {
    let rig = Rig::new();
    let is_first_group = Arc::new(AtomicBool::new(true));
    let client = Client::new(rig.shared()).around(move |jobs, next| {
        let panics = jobs.len() > 1 && is_first_group.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            assert!(!panics, "what is around the push panics");
            next.run(jobs).await
        })
    });
    let pushes: Vec<_> = (0..5)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.push(Job::new("mail", &i).unwrap()).await })
        })
        .collect();
    let mut failed = 0;
    for push in pushes {
        failed +=
            usize::from(push.await.unwrap().is_err_and(|e| e.kind() == ErrorKind::Unavailable));
    }
    assert_eq!(failed, 4, "those that were pushed together");
    assert!(client.push(Job::new("mail", &5).unwrap()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_push_of_several_callers_whose_answer_cannot_be_used_is_not_repeated() {
    let rig = Rig::new();
    let around = |jobs: Vec<Job>, next: store::NextPush| async move {
        let left_out = usize::from(jobs.len() > 1);
        let answered = next.run(jobs).await;
        answered.map(|answers| answers.into_iter().skip(left_out).collect::<Vec<_>>())
    };
    let client = Client::new(rig.shared()).around(around);
    let pushes: Vec<_> = (0..5)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.push(Job::new("mail", &i).unwrap()).await })
        })
        .collect();
    let mut failed = 0;
    for push in pushes {
        failed += usize::from(push.await.unwrap().is_err_and(|e| e.kind() == ErrorKind::Internal));
    }
    assert_eq!(failed, 4, "those that were pushed together");
    assert_eq!(rig.stats(None).await.unwrap()[0].jobs, 5, "each is stored once");
}

/// A runtime of one thread runs only while that thread waits for something.
#[test]
fn a_caller_does_not_wait_for_the_runtime_of_the_one_that_pushed_before_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, is_first) = (Arc::new(tokio::sync::Notify::new()), AtomicBool::new(true));
    let ended = end.clone();
    let client = Client::new(Arc::new(crate::stores::Memory::new())).around(move |jobs, next| {
        let begin = is_first.swap(false, Ordering::SeqCst).then(|| begin.clone());
        let ended = ended.clone();
        Box::pin(async move {
            if let Some(begin) = begin {
                begin.send(()).unwrap();
                ended.notified().await;
            }
            next.run(jobs).await
        })
    });
    let push = |number: u32| {
        let client = client.clone();
        async move { client.push(Job::new("mail", &number).unwrap()).await }
    };
    let (first, mut second) = (push(1), Box::pin(push(2)));
    let first = std::thread::spawn(move || {
        let runtime = runtime();
        runtime.block_on(first).unwrap();
        runtime
    });
    begun.recv().unwrap();
    let here = runtime();
    here.block_on(async { assert!(futures_util::poll!(&mut second).is_pending()) });
    end.notify_one();
    let _idle = first.join().unwrap();
    let answer = here.block_on(async { tokio::time::timeout(secs(20), second).await });
    answer.expect("it need not wait").unwrap();
}
