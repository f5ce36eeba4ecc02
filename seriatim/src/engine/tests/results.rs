//! Results of handlers, and clients that wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{JobState, JobView};
use crate::*;

/// A queue that keeps finished jobs.
fn sums() -> Queue {
    Queue::fifo("sums").retain_completed(secs(3_600)).backoff(Backoff::Constant { base: secs(10) })
}

/// Adds numbers up, which takes a second for each.
fn adder() -> Worker {
    Worker::new("sums", |batch: Batch<Vec<u32>>, call: Context| async move {
        for lane in batch.lanes() {
            let numbers = &lane.payloads()[0];
            pass(secs(numbers.len() as u64)).await;
            call.result(lane, &numbers.iter().sum::<u32>())?;
        }
        Ok::<(), Failure>(())
    })
}

fn job(numbers: &[u32]) -> Job {
    Job::new("sums", &numbers).unwrap().key("k")
}

fn end_of(job: &JobView) -> (JobState, Option<&str>, Option<&str>) {
    (job.state, job.result.as_deref(), job.error.as_deref())
}

#[tokio::test(start_paused = true)]
async fn who_pushes_and_waits_gets_the_result() {
    let rig = Rig::new();
    let client = Client::new(rig.shared()).queues([sums()]);
    let running = Running::start(engine(&rig).queue(sums()).with(adder()));
    let sum = client.push_and_wait(job(&[1, 2, 3]), secs(60)).await.unwrap();
    assert_eq!(end_of(&sum), (JobState::Succeeded, Some("6"), None));
    let again = job(&[4]).idempotency_key("once");
    for _ in 0..2 {
        let sum = client.push_and_wait(again.clone(), secs(60)).await.unwrap();
        assert_eq!(end_of(&sum), (JobState::Succeeded, Some("4"), None));
    }
    assert_eq!(running.stop().await.done, 2, "a repeated idempotency key runs nothing");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_push_that_is_refused_is_told_when_it_may_come_again() {
    let rig = Rig::new();
    let queue = sums().throttle(secs(60)).refuse_throttled();
    let client = Client::new(rig.shared()).queues([queue.clone()]);
    let running = Running::start(engine(&rig).queue(queue).with(adder()));
    client.push_and_wait(job(&[1]), secs(20)).await.unwrap();
    let error = client.push_and_wait(job(&[2]), secs(20)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().starts_with("refused: key \"k\" may be pushed again at 20"), "{error}");
    pass(secs(60)).await;
    let sum = client.push_and_wait(job(&[2]), secs(20)).await.unwrap();
    assert_eq!(end_of(&sum), (JobState::Succeeded, Some("2"), None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_time_is_up_the_job_is_answered_as_it_is_and_one_may_wait_again() {
    let rig = Rig::new();
    let client = Client::new(rig.shared()).queues([sums()]);
    let began = tokio::time::Instant::now();
    let waiting = client.push_and_wait(job(&[1, 2, 3]), secs(2)).await.unwrap();
    assert_eq!(end_of(&waiting), (JobState::Queued, None, None));
    assert_eq!(began.elapsed(), secs(2));
    let running = Running::start(engine(&rig).queue(sums()).with(adder()));
    let busy = client.wait(waiting.id, secs(1)).await.unwrap();
    assert_eq!(busy.state, JobState::Running);
    let sum = client.wait(waiting.id, secs(60)).await.unwrap();
    assert_eq!(end_of(&sum), (JobState::Succeeded, Some("6"), None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_looks_seldom_and_hardly_later_than_the_job_takes() {
    let rig = Rig::new();
    let client = Client::new(rig.shared()).queues([sums()]);
    let running = Running::start(engine(&rig).queue(sums()).with(adder()));
    let began = tokio::time::Instant::now();
    client.push_and_wait(job(&[1; 600]), secs(3_600)).await.unwrap();
    let late = began.elapsed() - secs(600);
    assert!(late <= limits::LOOK_PAUSE_MAX, "{late:?}");
    let looks = rig.faults.looks.load(Ordering::SeqCst);
    assert!((590..640).contains(&looks), "{looks}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_job_answers_its_error() {
    let rig = Rig::new();
    let client = Client::new(rig.shared()).queues([sums()]);
    let worker = Worker::new("sums", |_: Batch<Vec<u32>>| async { Err::<(), _>("no memory") });
    let running = Running::start(engine(&rig).queue(sums()).with(worker));
    let dead = client.push_and_wait(job(&[1]).max_retries(1), secs(60)).await.unwrap();
    assert_eq!(end_of(&dead), (JobState::Dead, None, Some("no memory")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_survives_the_death_of_the_node_and_comes_from_the_run_that_ended() {
    let (rig, log, dies) = (Rig::new(), Log::default(), Arc::new(AtomicBool::new(true)));
    let worker = || {
        let (log, dies) = (log.clone(), dies.clone());
        Worker::new("sums", move |batch: Batch<Vec<u32>>, call: Context| {
            let (log, dies) = (log.clone(), dies.clone());
            async move {
                call.result(&batch.lanes()[0], &log.len())?;
                log.add("began");
                if dies.swap(false, Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok::<(), Failure>(())
            }
        })
    };
    let client = Client::new(rig.shared()).queues([sums()]);
    let doomed = Running::start(engine(&rig).queue(sums()).with(worker()));
    let waiting = tokio::spawn(async move { client.push_and_wait(job(&[1]), secs(600)).await });
    log.reaches(1).await;
    doomed.kill();
    let other = Running::start(engine(&rig).queue(sums()).with(worker()));
    let sum = waiting.await.unwrap().unwrap();
    assert_eq!(end_of(&sum), (JobState::Succeeded, Some("1"), None));
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_of_a_call_that_fails_is_dropped() {
    let (rig, fails) = (Rig::new(), Arc::new(AtomicBool::new(true)));
    let worker = Worker::new("sums", move |batch: Batch<Vec<u32>>, call: Context| {
        let fails = fails.clone();
        async move {
            if fails.swap(false, Ordering::SeqCst) {
                call.result(&batch.lanes()[0], &"early")?;
                return Err::<(), Failure>("no memory".into());
            }
            Ok(())
        }
    });
    let client = Client::new(rig.shared()).queues([sums()]);
    let running = Running::start(engine(&rig).queue(sums()).with(worker));
    let job = client.push_and_wait(job(&[1]), secs(60)).await.unwrap();
    assert_eq!(end_of(&job), (JobState::Succeeded, None, Some("no memory")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_are_handed_over_one_after_the_other_have_each_its_own_result() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(sums()).await;
    let mut ids = Vec::new();
    for number in 0..60 {
        ids.push(rig.push(job(&[number])).await);
    }
    let seen = log.clone();
    let worker = Worker::new("sums", move |batch: Batch<Vec<u32>>, call: Context| {
        let log = seen.clone();
        async move {
            let lane = &batch.lanes()[0];
            let number = lane.payloads()[0][0];
            log.add(number.to_string());
            // Behind some without a result, which are done in the same turn.
            if number % 3 == 2 {
                call.result(lane, &number)?;
            }
            Ok::<(), Failure>(())
        }
    });
    let running = Running::start(engine(&rig).queue(sums()).with(worker));
    log.reaches(60).await;
    running.stop().await;
    assert_eq!(log.lines(), (0..60).map(|number| number.to_string()).collect::<Vec<_>>());
    for (number, id) in ids.into_iter().enumerate() {
        let job = rig.job(id).await.unwrap().unwrap();
        let wanted = (number % 3 == 2).then(|| number.to_string());
        assert_eq!(end_of(&job), (JobState::Succeeded, wanted.as_deref(), None));
        assert_eq!(job.attempt, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_long_fails_the_call_with_what_is_allowed() {
    let rig = Rig::new();
    let worker = Worker::new("sums", |batch: Batch<Vec<u32>>, call: Context| async move {
        call.result(&batch.lanes()[0], &"x".repeat(limits::RESULT_BYTES_MAX))?;
        Ok::<(), Failure>(())
    });
    let client = Client::new(rig.shared()).queues([sums()]);
    let running = Running::start(engine(&rig).queue(sums()).with(worker));
    let dead = client.push_and_wait(job(&[1]).max_retries(0), secs(60)).await.unwrap();
    let error = dead.error.unwrap();
    assert!(error.contains("65538 bytes; at most 65536 are kept"), "{error}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_that_leaves_no_trace_cannot_be_waited_for() {
    let rig = Rig::new();
    let kept_briefly = Queue::fifo("sums").retain_completed(Duration::from_millis(10));
    for (queue, said) in
        [(Queue::fifo("sums"), "keeps no finished jobs"), (kept_briefly, "for 10ms only")]
    {
        rig.store_declared(queue).await;
        let client = Client::new(rig.shared());
        let error = client.push_and_wait(job(&[1]), secs(1)).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("wait")));
        assert!(error.message().contains(said), "{error}");
        assert!(error.message().contains("retain_completed to 5s or more"), "{error}");
        assert_eq!(rig.faults.pushes.load(Ordering::SeqCst), 0, "nothing is pushed");
    }
    let id = rig.push(job(&[1])).await;
    let client = Client::new(rig.shared());
    let error = client.wait(id, secs(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("wait")));
    let unknown = JobId::from_bytes([7; 16]);
    assert_eq!(client.wait(unknown, secs(1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    // An implied queue keeps them if it is `exclusive`.
    let implied = |key: Option<&str>| {
        let job = Job::new("implied", &1).unwrap();
        key.map_or(job.clone(), |key| job.key(key))
    };
    let error = client.push_and_wait(implied(None), secs(1)).await.unwrap_err();
    assert_eq!(error.field(), Some("wait"));
    let job = client.push_and_wait(implied(Some("k")), secs(1)).await.unwrap();
    assert_eq!(job.state, JobState::Queued);
}
