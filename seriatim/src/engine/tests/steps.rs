//! Jobs with several steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Cancel, JobState};
use crate::*;

/// Three steps that log their names; the second fails as `how` says, while `bad` is set.
fn pipeline(log: &Log, bad: &Arc<AtomicBool>, how: fn() -> bool) -> Worker {
    let (log, bad) = (log.clone(), bad.clone());
    Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let (log, bad) = (log.clone(), bad.clone());
        async move {
            let lane = &batch.lanes()[0];
            let mut steps = call.steps(lane).await?;
            let rows: Vec<u32> = steps
                .run("extract", || async {
                    log.add("extract");
                    Ok(vec![1, 2, 3])
                })
                .await?;
            let sum: u32 = steps
                .run("transform", || async {
                    log.add("transform");
                    if bad.load(Ordering::SeqCst) {
                        if how() {
                            return Err("no memory".into());
                        }
                        std::future::pending::<()>().await;
                    }
                    Ok(rows.iter().sum())
                })
                .await?;
            steps
                .run("load", || async {
                    log.add(format!("load {sum}"));
                    Ok(())
                })
                .await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn d12_a_failed_pipeline_goes_on_at_the_step_that_failed() {
    let (rig, log, bad) = (Rig::new(), Log::default(), Arc::new(AtomicBool::new(true)));
    rig.push(Job::new("etl", &7).unwrap()).await;
    let running = Running::start(engine(&rig).with(pipeline(&log, &bad, || true)));
    log.reaches(2).await;
    bad.store(false, Ordering::SeqCst);
    log.reaches(4).await;
    let summary = running.stop().await;
    assert_eq!(log.lines(), ["extract", "transform", "transform", "load 6"]);
    assert_eq!((summary.done, summary.failed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn d12_a_pipeline_whose_node_died_goes_on_elsewhere_at_the_last_finished_step() {
    let (rig, log, bad) = (Rig::new(), Log::default(), Arc::new(AtomicBool::new(true)));
    rig.push(Job::new("etl", &7).unwrap()).await;
    let doomed = Running::start(engine(&rig).with(pipeline(&log, &bad, || false)));
    log.reaches(2).await;
    doomed.kill();
    bad.store(false, Ordering::SeqCst);
    let other = Running::start(engine(&rig).with(pipeline(&log, &bad, || false)));
    log.reaches(4).await;
    let summary = other.stop().await;
    assert_eq!(log.lines(), ["extract", "transform", "transform", "load 6"]);
    assert_eq!(summary.rescued, 1);
}

#[tokio::test(start_paused = true)]
async fn d12_steps_and_progress_do_not_replace_each_other() {
    let (rig, log, bad) = (Rig::new(), Log::default(), Arc::new(AtomicBool::new(true)));
    let id = rig.push(Job::new("etl", &7).unwrap()).await;
    let (written, fails) = (log.clone(), bad.clone());
    let worker = Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let (log, fails) = (written.clone(), fails.clone());
        async move {
            let lane = &batch.lanes()[0];
            // Before it is known which steps have ended.
            call.progress(lane, &"begun")?;
            pass(secs(2)).await;
            let mut steps = call.steps(lane).await?;
            steps
                .run("extract", || async {
                    log.add("extract");
                    call.progress(lane, &50)?;
                    Ok(())
                })
                .await?;
            call.progress(lane, &"extracted")?;
            log.add("waiting");
            pass(secs(2)).await;
            if fails.swap(false, Ordering::SeqCst) {
                return Err::<(), Failure>("no memory".into());
            }
            log.add("again");
            std::future::pending().await
        }
    });
    let running = Running::start(engine(&rig).with(worker));
    log.reaches(4).await;
    assert_eq!(log.lines(), ["extract", "waiting", "waiting", "again"]);
    let kept = rig.job(id).await.unwrap().unwrap().progress;
    let report = crate::store::TurnReport::read(kept.as_deref());
    assert_eq!(report.progress.as_deref(), Some("\"extracted\""));
    assert!(report.steps.unwrap().done.contains_key("extract"));
    running.kill();
}

/// Logs its steps, each of which takes so many seconds.
fn three_steps(log: &Log, seconds: u64) -> Worker {
    let log = log.clone();
    Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let log = log.clone();
        async move {
            let mut steps = call.steps(&batch.lanes()[0]).await?;
            for name in ["one", "two", "three"] {
                steps
                    .run(name, || async {
                        log.add(name);
                        pass(secs(seconds)).await;
                        Ok(())
                    })
                    .await?;
            }
            Ok::<_, Failure>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn d4_a_cancelled_pipeline_ends_before_its_next_step() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("etl", &7).unwrap().max_retries(0)).await;
    let running = Running::start(engine(&rig).with(three_steps(&log, 10)));
    log.reaches(1).await;
    rig.cancel(Cancel { now: None, jobs: vec![id] }).await.unwrap();
    pass(secs(120)).await;
    running.stop().await;
    assert_eq!(log.lines(), ["one"]);
    // This queue keeps no record of it, and it did not fail.
    assert!(rig.job(id).await.unwrap().is_none_or(|job| job.state == JobState::Canceled));
}

#[tokio::test(start_paused = true)]
async fn d16_a_stopping_node_leaves_a_pipeline_between_two_steps_to_others() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("etl", &7).unwrap()).await;
    let worker = || three_steps(&log, 3);
    let first = Running::start(engine(&rig).with(worker()));
    log.reaches(1).await;
    let summary = first.stop().await;
    assert_eq!((summary.put_off, summary.failed, log.len()), (1, 0, 1));
    let second = Running::start(engine(&rig).with(worker()));
    log.reaches(3).await;
    let summary = second.stop().await;
    // The last step was under way: it may end, and no step is left.
    assert_eq!(summary.done, 1);
    assert_eq!(log.lines(), ["one", "two", "three"]);
}

/// Two steps; what ends them early becomes the error that `how` makes of it.
fn two_steps(log: &Log, how: fn(Failure) -> Failure) -> Worker {
    let log = log.clone();
    Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let log = log.clone();
        async move {
            let mut steps = call.steps(&batch.lanes()[0]).await?;
            for name in ["one", "two"] {
                let step = || async {
                    log.add(name);
                    pass(secs(3)).await;
                    Ok(())
                };
                steps.run(name, step).await.map_err(how)?;
            }
            Ok::<_, Failure>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_a_stop_interrupts_is_not_counted_whatever_its_error_becomes() {
    let hows: [fn(Failure) -> Failure; 2] = [
        |error| error.to_string().into(),
        // As `unwrap` does.
        |error| panic!("{error}"),
    ];
    for how in hows {
        let (rig, log) = (Rig::new(), Log::default());
        let id = rig.push(Job::new("etl", &7).unwrap().max_retries(0)).await;
        let running = Running::start(engine(&rig).with(two_steps(&log, how)));
        log.reaches(1).await;
        let summary = running.stop().await;
        assert_eq!((summary.put_off, summary.failed, log.len()), (1, 0, 1));
        assert_eq!(rig.state(id).await, Some(JobState::Queued));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fatal_failure_after_an_interruption_is_told_and_its_jobs_are_not_counted() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("etl", &7).unwrap().max_retries(0)).await;
    let worker = two_steps(&log, |error| Fatal(error.to_string()).into());
    let stop = log.clone();
    let stopped = engine(&rig).with(worker).run_until(async move { stop.reaches(1).await });
    assert_eq!(stopped.await.unwrap_err().kind(), ErrorKind::Fatal);
    assert_eq!(rig.state(id).await, Some(JobState::Queued));
}

/// Otherwise each later attempt would fail at the stored one.
#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_read_back_fails_its_step_and_is_not_kept() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue = Queue::parallel("etl").backoff(Backoff::Constant { base: secs(1) });
    let written = log.clone();
    let worker = Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let log = written.clone();
        async move {
            let mut steps = call.steps(&batch.lanes()[0]).await?;
            let rate = if log.len() == 0 { f64::NAN } else { 1.5 };
            log.add("asked");
            let rate = steps.run("rate", || async { Ok(rate) }).await?;
            log.add(rate.to_string());
            Ok::<_, Failure>(())
        }
    });
    let running = Running::start(engine(&rig).queue(queue).with(worker));
    rig.push(Job::new("etl", &7).unwrap()).await;
    log.reaches(3).await;
    let summary = running.stop().await;
    assert_eq!((summary.done, summary.failed), (1, 1));
    assert_eq!(log.lines(), ["asked", "asked", "1.5"]);
}

#[tokio::test(start_paused = true)]
async fn d12_results_too_large_to_keep_fail_with_the_name_of_the_step() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("etl", &7).unwrap().max_retries(0)).await;
    let written = log.clone();
    let worker = Worker::new("etl", move |batch: Batch<u32>, call: Context| {
        let log = written.clone();
        async move {
            let mut steps = call.steps(&batch.lanes()[0]).await?;
            log.add("begun");
            steps.run("extract", || async { Ok("x".repeat(100_000)) }).await?;
            Ok::<_, Failure>(())
        }
    });
    let running = Running::start(engine(&rig).with(worker));
    log.reaches(1).await;
    pass(secs(1)).await;
    running.stop().await;
    let error = rig.job(id).await.unwrap().unwrap().error.unwrap();
    assert!(error.contains("\"extract\": the results have 1000"), "{error}");
}
