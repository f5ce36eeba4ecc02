//! What a worker sets for itself, beside its queue; limits of what an engine is given.

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{JobState, JobView};
use crate::*;

/// A worker of this task that always fails, and tells the log.
fn failing(task: &str, log: &Log) -> Worker {
    let (name, log) = (task.to_owned(), log.clone());
    let fail = move |_: Batch<u32>| {
        log.add(&name);
        async { Err::<(), Failure>("no such address".into()) }
    };
    Worker::new("mail", fail).task(task)
}

/// A job of each task fails as often as `calls` says in all; then their views.
async fn failed<const N: usize>(
    workers: [(&str, Worker); N],
    log: &Log,
    calls: usize,
) -> [Option<JobView>; N] {
    let rig = Rig::new();
    let queue = Queue::parallel("mail").max_retries(1).backoff(Backoff::Constant { base: secs(5) });
    rig.store_declared(queue).await;
    let mut builder = engine(&rig);
    let mut ids = Vec::new();
    for (task, worker) in workers {
        ids.push(rig.push(Job::new("mail", &7).unwrap().task(task)).await);
        builder = builder.with(worker);
    }
    let running = Running::start(builder);
    log.reaches(calls).await;
    pass(secs(1)).await;
    running.stop().await;
    let mut views = Vec::new();
    for id in ids {
        views.push(rig.job(id).await.unwrap());
    }
    views.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn l6_a_task_has_its_own_number_of_retries() {
    let log = Log::default();
    let own = failing("welcome", &log).max_retries(3);
    let [own, usual] = failed([("welcome", own), ("other", failing("other", &log))], &log, 6).await;
    let state = |view: Option<JobView>| view.map(|job| (job.state, job.attempt));
    assert_eq!(state(own), Some((JobState::Dead, 4)));
    assert_eq!(state(usual), Some((JobState::Dead, 2)), "the queue's");
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_the_number_of_retries_that_holds_for_its_worker() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").max_retries(1)).await;
    let telling = |task: &str| {
        let log = log.clone();
        let tell = move |mails: Batch<u32>| {
            log.add(mails.lanes()[0].max_retries().to_string());
            async {}
        };
        Worker::new("mail", tell).task(task)
    };
    let workers = [telling("welcome").max_retries(3), telling("other")];
    let running = Running::start(workers.into_iter().fold(engine(&rig), EngineBuilder::with));
    let job = |task: &str| Job::new("mail", &7).unwrap().task(task);
    let jobs = [job("welcome"), job("other"), job("welcome").max_retries(9)];
    for (place, job) in jobs.into_iter().enumerate() {
        rig.push(job).await;
        log.reaches(place + 1).await;
    }
    running.stop().await;
    assert_eq!(log.lines(), ["3", "1", "9"]);
}

#[tokio::test(start_paused = true)]
async fn s4_a_task_without_retries_may_be_dropped_instead_of_buried() {
    let log = Log::default();
    let dropped = failing("ping", &log).max_retries(0).exhausted(Exhaustion::Drop);
    let [dropped] = failed([("ping", dropped)], &log, 1).await;
    assert_eq!(dropped.map(|job| job.state), None);
}

#[tokio::test(start_paused = true)]
async fn s4_e5_the_backoff_sees_the_error_and_the_job() {
    let log = Log::default();
    let seen = log.clone();
    let worker = failing("welcome", &log).backoff(move |failed| {
        let job = failed.job().unwrap();
        seen.add(format!(
            "retry {} of {:?} {}: {}",
            failed.retry_count(),
            job.task.as_deref(),
            String::from_utf8_lossy(job.payload.as_bytes()),
            failed.error()
        ));
        secs(3_600)
    });
    let [waiting] = failed([("welcome", worker)], &log, 2).await;
    assert_eq!(log.lines(), ["welcome", "retry 0 of Some(\"welcome\") 7: no such address"]);
    let waiting = waiting.unwrap();
    assert_eq!((waiting.state, waiting.retry_count), (JobState::Queued, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_job_sets_for_itself_counts_more_than_its_worker() {
    let (rig, log) = (Rig::new(), Log::default());
    let own = Backoff::Constant { base: secs(2) };
    let mut job = Job::new("mail", &7).unwrap().task("welcome").max_retries(1);
    job.options.backoff = Some(own);
    let id = rig.push(job).await;
    let worker = failing("welcome", &log).max_retries(9).backoff(|_| secs(3_600));
    let running = Running::start(engine(&rig).with(worker));
    log.reaches(2).await;
    pass(secs(1)).await;
    running.stop().await;
    assert_eq!(rig.job(id).await.unwrap().unwrap().state, JobState::Dead);
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_too_many_retries_is_refused() {
    let rig = Rig::new();
    let worker = failing("welcome", &Log::default()).max_retries(1_000_001);
    let error = engine(&rig).with(worker).build().err().unwrap();
    assert_eq!(error.field(), Some("max_retries"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_calls_have_no_time_is_refused() {
    let worker = || failing("welcome", &Log::default());
    let workers = [
        ("timeout", worker().timeout(secs(0))),
        ("timeout_default", worker().timeout_default(secs(0))),
    ];
    for (field, worker) in workers {
        let error = engine(&Rig::new()).with(worker).build().err().unwrap();
        assert_eq!(error.field(), Some(field));
    }
}

#[tokio::test(start_paused = true)]
async fn more_periodic_workers_than_heartbeats_can_report_are_refused() {
    let rig = Rig::new();
    let add = |builder: EngineBuilder, n: usize| {
        builder.periodic(Periodic::new(n.to_string(), secs(1), |_| async { Ok(()) }))
    };
    assert!((0..100).fold(engine(&rig), add).build().is_ok());
    let error = (0..101).fold(engine(&rig), add).build().err().unwrap();
    assert_eq!(error.field(), Some("periodic"));
}
