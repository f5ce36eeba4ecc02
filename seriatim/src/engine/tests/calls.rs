//! The input of handlers, and the effects of their answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::task::coop::consume_budget;

use super::rig::{Log, Rig, Running, START, engine, pass, secs};
use crate::contract::JobState;
use crate::engine::*;
use crate::*;

#[tokio::test(start_paused = true)]
async fn all_that_waits_for_a_key_is_handed_over_together_oldest_score_first() {
    let (rig, log) = (Rig::new(), Log::default());
    for score in [3.0, 1.0, 2.0] {
        let job = Job::new("orders", &json!(score)).unwrap().key("42").score(score);
        rig.store_declared(Queue::accumulate("orders")).await;
        rig.push(job).await;
    }
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("orders", move |batch: Batch<f64>| {
        let lane = &batch.lanes()[0];
        written.add(format!("{} {:?} {}", lane.key(), lane.payloads(), lane.attempt()));
        async {}
    }));
    log.reaches(1).await;
    assert_eq!(running.stop().await.done, 1);
    assert_eq!(log.lines(), ["42 [1.0, 2.0, 3.0] 1"]);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_one_key_never_overlap_and_run_in_order() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::fifo("orders")).await;
    for i in 0..20 {
        rig.push(Job::new("orders", &i).unwrap().key("a").score(f64::from(i))).await;
    }
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("orders", move |batch: Batch<u32>| {
        let log = written.clone();
        async move {
            let number = batch.lanes()[0].payloads()[0];
            log.add(format!("start {number}"));
            pass(Duration::from_millis(10)).await;
            log.add(format!("end {number}"));
        }
    }));
    log.reaches(40).await;
    running.stop().await;
    let expected: Vec<String> =
        (0..20).flat_map(|i| [format!("start {i}"), format!("end {i}")]).collect();
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn l5_one_error_fails_every_turn_of_the_call_once_and_then_each_is_handed_alone() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue =
        Queue::accumulate("orders").batch_size(10).backoff(Backoff::Constant { base: secs(5) });
    rig.store_declared(queue).await;
    for key in ["a", "b", "c"] {
        rig.push(Job::new("orders", key).unwrap().key(key)).await;
    }
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("orders", move |batch: Batch<String>| {
        written.add(batch.lanes().len().to_string());
        let first = batch.lanes()[0].retry_count() < 0;
        async move { if first { Err::<_, Failure>("no".into()) } else { Ok(()) } }
    }));
    log.reaches(4).await;
    let summary = running.stop().await;
    assert_eq!(log.lines(), ["3", "1", "1", "1"]);
    assert_eq!((summary.failed, summary.done), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn l5_outcomes_are_per_lane() {
    let rig = Rig::new();
    rig.store_declared(Queue::accumulate("orders").batch_size(10)).await;
    let mut ids = Vec::new();
    for key in ["bad", "good", "late"] {
        ids.push(rig.push(Job::new("orders", key).unwrap().key(key)).await);
    }
    let running = Running::start(engine(&rig).worker("orders", |batch: Batch<String>| {
        let mut outcomes = Outcomes::new();
        for lane in batch.lanes() {
            match lane.key() {
                "bad" => outcomes.set(lane.id(), Outcome::Bury { error: "rotten".into() }),
                "late" => outcomes.set(lane.id(), Outcome::Snooze { length: secs(3_600) }),
                _ => &mut outcomes,
            };
        }
        async { Ok::<_, Failure>(outcomes) }
    }));
    pass(secs(10)).await;
    running.stop().await;
    assert_eq!(rig.state(ids[0]).await, Some(JobState::Dead));
    assert_eq!(rig.error(ids[0]).await, "rotten");
    assert_eq!(rig.state(ids[1]).await, None);
    assert_eq!(rig.state(ids[2]).await, Some(JobState::Queued));
}

#[tokio::test(start_paused = true)]
async fn s10_a_panic_is_a_failure_with_its_text() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |_: Batch<u32>| {
        written.add("called");
        let stamps_left = written.lines().is_empty();
        async move {
            assert!(stamps_left, "out of stamps");
        }
    }));
    log.reaches(1).await;
    let summary = running.stop().await;
    assert_eq!(summary.failed, 1);
    assert_eq!(rig.error(id).await, "the handler panicked: out of stamps");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_decoded_is_buried_and_the_rest_runs() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::accumulate("orders")).await;
    let good = rig.push(Job::new("orders", &7).unwrap().key("a").score(2.0)).await;
    let bad = rig.push(Job::new("orders", "seven").unwrap().key("a").score(1.0)).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("orders", move |batch: Batch<u32>| {
        let lane = &batch.lanes()[0];
        let scores: Vec<f64> = lane.jobs().map(|(job, _)| job.score).collect();
        written.add(format!("{:?} {scores:?}", lane.payloads()));
        async {}
    }));
    log.reaches(1).await;
    running.stop().await;
    assert_eq!(log.lines(), ["[7] [2.0]"]);
    assert_eq!(rig.state(bad).await, Some(JobState::Dead));
    let why = "payload: cannot be decoded (invalid type: string \"seven\", expected u32 at line 1 column 7)";
    assert_eq!(rig.error(bad).await, why);
    assert_eq!(rig.state(good).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_decoded_counts_as_failed_and_its_error_names_the_field() {
    #[derive(serde::Deserialize)]
    struct Order {
        #[allow(dead_code, reason = "only its type matters")]
        lines: Vec<std::collections::BTreeMap<String, u32>>,
    }
    let (rig, log) = (Rig::new(), Log::default());
    let price = serde_json::json!({ "lines": [{ "price": 1 }, { "price": "dear" }] });
    let bad = rig.push(Job::new("orders", &price).unwrap()).await;
    rig.push(Job::new("orders", &serde_json::json!({ "lines": [] })).unwrap()).await;
    let running = Running::start(engine(&rig).worker("orders", log.adds::<Order>("called")));
    log.reaches(1).await;
    let summary = running.stop().await;
    assert_eq!((summary.failed, summary.done), (1, 1));
    let error = rig.error(bad).await;
    assert!(error.starts_with("payload.lines[1].price: cannot be decoded"), "{error}");
    assert!(error.contains("string \"dear\", expected u32"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_decoded_keeps_its_error_when_the_others_fail() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::accumulate("orders")).await;
    let bad = rig.push(Job::new("orders", "seven").unwrap().key("a")).await;
    let good = rig.push(Job::new("orders", &7).unwrap().key("a")).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("orders", move |_: Batch<u32>, _| {
        written.add("called");
        async { Err::<(), Failure>("no stamps".into()) }
    }));
    log.reaches(1).await;
    running.stop().await;
    for job in [bad, good] {
        let error = rig.error(job).await;
        assert!(
            error.contains("\"seven\", expected u32") && error.ends_with("no stamps"),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_over_its_timeout_fails_and_is_dropped() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("slow").timeout(secs(3))).await;
    let id = rig.push(Job::new("slow", &1).unwrap()).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("slow", move |_: Batch<u32>, context: Context| {
            let log = written.clone();
            async move {
                context.cancelled().await;
                log.add("told");
                std::future::pending::<()>().await;
            }
        }));
    log.reaches(1).await;
    pass(secs(6)).await;
    assert_eq!(running.stop().await.failed, 1);
    assert_eq!(rig.error(id).await, "timed out (limit 3s)");
}

/// Paused time does not pass while a task is busy, so the handler lets it pass.
#[tokio::test(start_paused = true)]
async fn a_handler_that_leaves_nothing_of_its_task_s_budget_is_told_and_dropped_too() {
    async fn work(chunks: u32, context: &Context, until_told: bool) {
        for _ in 0..chunks {
            if until_told && context.is_cancelled() {
                return;
            }
            consume_budget().await;
        }
    }
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("slow").timeout(secs(3))).await;
    let id = rig.push(Job::new("slow", &1).unwrap()).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("slow", move |_: Batch<u32>, context: Context| {
            let log = written.clone();
            async move {
                log.add("start");
                tokio::time::advance(secs(4)).await;
                work(10_000, &context, true).await;
                log.add(if context.is_cancelled() { "told" } else { "not told" });
                work(1_000, &context, false).await;
                tokio::time::advance(secs(6)).await;
                work(10_000, &context, false).await;
                log.add("not dropped");
            }
        }));
    log.reaches(1).await;
    assert_eq!(running.stop().await.failed, 1);
    assert_eq!(log.lines(), ["start", "told"]);
    assert_eq!(rig.error(id).await, "timed out (limit 3s)");
}

#[tokio::test(start_paused = true)]
async fn a_default_timeout_holds_where_neither_the_queue_nor_the_job_has_one() {
    for (of_queue, of_job, limit) in [
        (None, None, secs(60)),
        (Some(secs(30)), None, secs(30)),
        (Some(secs(90)), None, secs(90)),
        (None, Some(secs(90)), secs(90)),
        (Some(secs(90)), Some(secs(30)), secs(30)),
    ] {
        let rig = Rig::new();
        let queue = Queue::parallel("slow");
        let queue = of_queue.into_iter().fold(queue, Queue::timeout);
        rig.store_declared(queue).await;
        let mut job = Job::new("slow", &1).unwrap();
        job.options.timeout = of_job;
        rig.push(job).await;
        let log = Log::default();
        let limits = log.clone();
        let worker = crate::Worker::new("slow", move |_: Batch<u32>, context: Context| {
            limits.add(format!("{:?}", context.time_left().unwrap_or_default()));
            async {}
        });
        let running = Running::start(engine(&rig).with(worker.timeout_default(secs(60))));
        log.reaches(1).await;
        running.stop().await;
        assert_eq!(log.lines(), [format!("{limit:?}")], "{of_queue:?}, {of_job:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_outlast_a_cancellation_and_is_told_when_it_must_end() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("slow").timeout(secs(60))).await;
    let id = rig.push(Job::new("slow", &1).unwrap()).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("slow", move |_: Batch<u32>, context: Context| {
            let log = written.clone();
            async move {
                log.add("started");
                context.cancelled().await;
                log.add("cancelled");
                context.must_end().await;
                log.add(format!("must end, {:?} left", context.time_left()));
            }
        }));
    log.reaches(1).await;
    rig.cancel(store::Cancel { now: None, jobs: vec![id] }).await.unwrap();
    log.reaches(3).await;
    running.stop().await;
    assert_eq!(log.lines(), ["started", "cancelled", "must end, Some(0ns) left"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_job_is_never_started() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::exclusive("offers")).await;
    let job = Job::new("offers", &1).unwrap().key("a");
    let id = rig.push(job.expires_at(START + secs(1))).await;
    pass(secs(2)).await;
    let running = Running::start(engine(&rig).worker("offers", log.adds::<u32>("called")));
    pass(secs(2)).await;
    running.stop().await;
    assert_eq!(log.len(), 0);
    assert_eq!(rig.state(id).await, Some(JobState::Canceled));
    assert_eq!(rig.error(id).await, "expired");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_is_tried_again_after_its_expiry() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::exclusive("offers").backoff(Backoff::Constant { base: secs(60) }))
        .await;
    let job = Job::new("offers", &1).unwrap().key("a");
    let id = rig.push(job.expires_at(START + secs(30))).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("offers", move |_: Batch<u32>| {
        written.add("called");
        let fails = written.len() == 1;
        async move { if fails { Err::<(), Failure>("no answer".into()) } else { Ok(()) } }
    }));
    log.reaches(2).await;
    assert_eq!(running.stop().await.done, 1);
    assert_eq!(rig.state(id).await, Some(JobState::Succeeded));
}

#[tokio::test(start_paused = true)]
async fn tasks_go_to_their_own_worker_and_the_rest_to_the_queue_s() {
    let (rig, log) = (Rig::new(), Log::default());
    for task in ["pack", "ship"] {
        rig.push(Job::new("depot", task).unwrap().task(task)).await;
    }
    let worker = |name: &'static str| {
        let log = log.clone();
        Worker::new("depot", move |batch: Batch<String>| {
            log.add(format!("{name} {}", batch.task().unwrap_or("-")));
            async {}
        })
    };
    let running =
        Running::start(engine(&rig).with(worker("packer").task("pack")).with(worker("others")));
    log.reaches(2).await;
    running.stop().await;
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["others ship", "packer pack"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_tells_its_handler_and_ends_cancelled() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::exclusive("orders")).await;
    let id = rig.push(Job::new("orders", &1).unwrap().key("a")).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("orders", move |_: Batch<u32>, context: Context| {
            let log = written.clone();
            async move {
                log.add("started");
                context.cancelled().await;
                Err::<(), Failure>("stopped half way".into())
            }
        }));
    log.reaches(1).await;
    rig.cancel(store::Cancel { now: None, jobs: vec![id] }).await.unwrap();
    pass(secs(6)).await;
    running.stop().await;
    assert_eq!(rig.state(id).await, Some(JobState::Canceled));
}

#[tokio::test(start_paused = true)]
async fn progress_goes_out_before_the_next_heartbeat_is_due() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("video", &1).unwrap()).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("video", move |batch: Batch<u32>, c: Context| {
            let log = written.clone();
            async move {
                c.progress(&batch.lanes()[0], &json!({"frame": 7}))?;
                log.add("told");
                pass(secs(10)).await;
                Ok::<_, Failure>(())
            }
        }));
    log.reaches(1).await;
    pass(Duration::from_millis(1_500)).await;
    let view = rig.job(id).await.unwrap().unwrap();
    assert_eq!(view.progress.as_deref(), Some(r#"{"frame":7}"#));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_failed_heartbeats_only_the_last_report_of_a_turn_is_sent() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let running =
        Running::start(engine(&rig).worker("mail", move |batch: Batch<u32>, c: Context| {
            let log = written.clone();
            async move {
                for frame in 1..=5 {
                    c.progress(&batch.lanes()[0], &frame)?;
                    log.add("told");
                    pass(secs(2)).await;
                }
                pass(secs(30)).await;
                Ok::<_, Failure>(())
            }
        }));
    log.reaches(1).await;
    pass(Duration::from_millis(1_500)).await;
    rig.faults.no_beats.store(true, Ordering::SeqCst);
    log.reaches(4).await;
    pass(secs(1)).await;
    rig.faults.no_beats.store(false, Ordering::SeqCst);
    log.reaches(5).await;
    pass(secs(2)).await;
    assert_eq!(rig.job(id).await.unwrap().unwrap().progress.as_deref(), Some("5"));
    assert_eq!(rig.faults.beats_of_a_lane.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_start_gives_its_jobs_back_uncounted_and_pauses() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).worker("mail", move |batch: Batch<u32>| {
        written.add(batch.lanes()[0].attempt().to_string());
        async { Err::<(), Failure>(Box::new(Unstartable("sendmail: not found".into()))) }
    }));
    pass(secs(20)).await;
    assert_eq!(log.lines(), ["1"]);
    pass(secs(20)).await;
    assert_eq!(log.lines(), ["1", "1"]);
    running.stop().await;
    let view = rig.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.retry_count), (JobState::Queued, -1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_start_may_say_so_under_a_context() {
    let rig = Rig::new();
    let id = rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    let running = Running::start(engine(&rig).worker("mail", |_: Batch<u32>| async {
        let why = anyhow::Error::new(Unstartable("sendmail: not found".into()));
        Err::<(), _>(why.context("the mail cannot be sent"))
    }));
    pass(secs(20)).await;
    running.stop().await;
    assert_eq!(rig.state(id).await, Some(JobState::Queued));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_could_not_start_tries_again_after_its_pause_however_rarely_the_engine_polls()
{
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let running = Running::start(engine(&rig).poll_interval(secs(3_600)).worker(
        "mail",
        move |_: Batch<u32>| {
            written.add("call");
            async { Err::<(), Failure>(Box::new(Unstartable("sendmail: not found".into()))) }
        },
    ));
    log.reaches(1).await;
    pass(secs(32)).await;
    assert_eq!(log.len(), 2, "the pause is 30 s");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_turn_is_counted_by_how_it_ended_and_every_job_that_is_done() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue = Queue::accumulate("orders").backoff(Backoff::Constant { base: secs(3_600) });
    rig.store_declared(queue).await;
    let push = async |key: &str, n: u32| {
        rig.push(Job::new("orders", &n).unwrap().key(key)).await;
    };
    for (key, jobs) in [("done", 3), ("fails", 2), ("buried", 2), ("later", 1), ("dropped", 1)] {
        for n in 0..jobs {
            push(key, n).await;
        }
    }
    let past = START - secs(1);
    rig.push(Job::new("orders", &1).unwrap().key("expired").expires_at(past)).await;
    let written = log.clone();
    let worker = move |batch: Batch<u32>| {
        let lane = &batch.lanes()[0];
        let error = || "no order".into();
        let outcome = match lane.key() {
            "done" => Outcome::Done,
            "fails" => Outcome::Retry { error: error(), retry_in: None },
            "buried" => Outcome::Bury { error: error() },
            "later" => Outcome::Snooze { length: secs(3_600) },
            _ => Outcome::Cancel { reason: error() },
        };
        written.add(lane.key());
        async { Ok::<_, Failure>(outcome) }
    };
    let running = Running::start(engine(&rig).worker("orders", worker));
    log.reaches(5).await;
    pass(secs(1)).await;
    let expected = Summary {
        calls: 5, // expired jobs cause no call
        processed: 3,
        done: 1,
        failed: 2,
        put_off: 1,
        cancelled: 2,
        ..Summary::default()
    };
    assert_eq!(running.stop().await, expected);
    let stats = &rig.stats(None).await.unwrap()[0];
    assert_eq!((stats.processed, stats.failed, stats.dead), (3, 2, 2));
}

async fn into_anyhow(_: Batch<u32>) -> anyhow::Result<()> {
    anyhow::bail!("no stamps")
}

async fn into_eyre(_: Batch<u32>, _: Context) -> eyre::Result<Outcomes> {
    eyre::bail!("no stamps")
}

async fn into_io(_: Batch<Payload>) -> std::io::Result<Outcome> {
    Err(std::io::Error::other("no stamps"))
}

async fn into_text(_: Batch<u32>) -> Result<(), &'static str> {
    Err("no stamps")
}

struct Sender(&'static str);

impl Perform for Sender {
    type Payload = u32;
    type Answer = Result<(), String>;

    async fn perform(&self, _: Batch<u32>, _: Context) -> Result<(), String> {
        Err(self.0.to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn functions_closures_and_structs_are_handlers_whatever_their_error_is() {
    let (rig, log) = (Rig::new(), Log::default());
    let queues = ["anyhow", "eyre", "io", "text", "struct", "nothing", "blocking"];
    let mut jobs = Vec::new();
    for queue in queues {
        rig.store_declared(Queue::parallel(queue).max_retries(0)).await;
        jobs.push(rig.push(Job::new(queue, &7).unwrap()).await);
    }
    let written = log.clone();
    let running = Running::start(
        engine(&rig)
            .worker("anyhow", into_anyhow)
            .worker("eyre", into_eyre)
            .worker("io", into_io)
            .worker("text", into_text)
            .worker("struct", Sender("no stamps"))
            .worker("nothing", move |batch: Batch<u32>| {
                written.add(format!("{:?}", batch.lanes()[0].payloads()));
                async {}
            })
            .with(Worker::blocking("blocking", |_: Batch<u32>| Err::<(), _>("no stamps"))),
    );
    log.reaches(1).await;
    pass(secs(1)).await;
    let summary = running.stop().await;
    assert_eq!((summary.done, summary.failed), (1, 6), "{summary:?}");
    for (queue, job) in queues.into_iter().zip(jobs).filter(|(queue, _)| *queue != "nothing") {
        assert_eq!(rig.error(job).await, "no stamps", "{queue}");
    }
    assert_eq!(log.lines(), ["[7]"]);
}
