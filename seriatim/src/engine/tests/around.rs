//! Middleware, codecs, hooks, and the handle of an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::client::NextPush;
use crate::contract::{JobState, PushStatus, run_schedule};
use crate::engine::*;
use crate::*;

#[tokio::test(start_paused = true)]
async fn l13_middleware_stands_around_every_call_the_first_outermost() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap().task("send")).await;
    let mut builder = engine(&rig);
    for name in ["outer", "inner"] {
        let log = log.clone();
        builder = builder.middleware(move |call: Context, next: Next| {
            let log = log.clone();
            async move {
                log.add(format!("{name} {} {}", call.queue(), call.task().unwrap_or("-")));
                let answer = next.run().await;
                log.add(format!("{name} {}", answer.is_ok()));
                answer
            }
        });
    }
    let running = Running::start(builder.worker("mail", log.adds::<u32>("handler")));
    log.reaches(5).await;
    running.stop().await;
    let expected = ["outer mail send", "inner mail send", "handler", "inner true", "outer true"];
    // A handler is created before the middleware runs, and polled inside it.
    let mut lines = log.lines();
    lines.retain(|line| line != "handler");
    assert_eq!(lines, [expected[0], expected[1], expected[3], expected[4]]);
}

#[tokio::test(start_paused = true)]
async fn s7_middleware_may_answer_in_place_of_the_handler() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let refuse = move |_: Context, _: Next| {
        written.add("refused");
        async { Ok(Outcome::Bury { error: "not on Sundays".into() }.into()) }
    };
    let builder = engine(&rig).middleware(refuse);
    let running = Running::start(
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("must not run".into()) }),
    );
    log.reaches(1).await;
    running.stop().await;
    let job = rig.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.error.as_deref()), (JobState::Dead, Some("not on Sundays")));
}

/// A client whose pushes tell the log what is around them.
fn wrapped(rig: &Rig, log: &Log) -> Client {
    let mut client = Client::new(rig.shared());
    for name in ["outer", "inner"] {
        let log = log.clone();
        client = client.around(move |jobs: Vec<Job>, push: NextPush| {
            let log = log.clone();
            async move {
                log.add(format!("{name} {}", jobs.len()));
                let answer = push.run(jobs).await;
                log.add(format!("{name} {:?}", answer.as_ref().map(Vec::len).map_err(Error::kind)));
                answer
            }
        });
    }
    client
}

#[tokio::test(start_paused = true)]
async fn l13_s7_client_middleware_stands_around_a_push_and_sees_its_answer() {
    let (rig, log) = (Rig::new(), Log::default());
    let client = wrapped(&rig, &log);
    client
        .push_all(vec![Job::new("mail", &1).unwrap(), Job::new("mail", &2).unwrap()])
        .await
        .unwrap();
    assert_eq!(log.lines(), ["outer 2", "inner 2", "inner Ok(2)", "outer Ok(2)"]);
    let keyed = Job::new("mail", &3).unwrap().key("k");
    assert_eq!(client.push(keyed).await.unwrap_err().field(), Some("key"));
    assert_eq!(
        log.lines()[4..],
        ["outer 1", "inner 1", "inner Err(Invalid)", "outer Err(Invalid)"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_around_a_push_answers_for_each_of_its_jobs() {
    let rig = Rig::new();
    let client = Client::new(rig.shared());
    let silent = client.clone().around(|_: Vec<Job>, _: NextPush| async { Ok(Vec::new()) });
    let error = silent.push(Job::new("mail", &1).unwrap()).await.unwrap_err();
    assert!(error.message().contains("0 of 1 jobs"), "{error}");
    assert!(rig.shared().queues().await.unwrap().is_empty(), "nothing was pushed");
}

#[tokio::test(start_paused = true)]
async fn l12_client_middleware_computes_the_key_and_refuses() {
    let rig = Rig::new();
    let client = Client::new(rig.shared()).middleware(|job: &mut Job| {
        let payload: serde_json::Value = job.payload.decode()?;
        let order = payload["order"].as_u64();
        let order = order.ok_or_else(|| Error::invalid("payload", "must name its order"))?;
        job.key = Some(format!("order-{order}"));
        Ok(())
    });
    let queue = Queue::fifo("orders");
    rig.declare(store::Declare { now: None, queues: vec![queue] }).await.unwrap();
    let pushed = client.push(Job::new("orders", &json!({"order": 42})).unwrap()).await.unwrap();
    let job = rig.job(pushed.job_id).await.unwrap().unwrap();
    assert_eq!(job.key.as_deref(), Some("order-42"));
    let jobs = [json!({"order": 1}), json!({})].map(|p| Job::new("orders", &p).unwrap());
    let refused = client.push_all(jobs.to_vec()).await.unwrap_err();
    assert_eq!(refused.to_string(), "jobs[1].payload: must name its order");
}

/// Encodes payloads as text with a marker in front.
struct Marked;

impl Codec for Marked {
    fn encode(&self, payload: &Payload) -> Result<Payload> {
        Payload::json(&format!("~{}", String::from_utf8_lossy(payload.as_bytes())))
    }

    fn decode(&self, stored: &Payload) -> Result<Payload, Failure> {
        let text: String = stored.decode()?;
        let plain = text.strip_prefix('~').ok_or("without its mark")?;
        Ok(Payload::from_json_text(plain)?)
    }

    fn digest(&self, plain: store::Digest) -> store::Digest {
        plain
    }
}

#[tokio::test(start_paused = true)]
async fn l14_a_codec_stands_between_payloads_and_the_store() {
    let (rig, log) = (Rig::new(), Log::default());
    let client = Client::new(rig.shared()).codec(Marked);
    let id = client.push(Job::new("mail", &17).unwrap()).await.unwrap().job_id;
    let stored = rig.job(id).await.unwrap().unwrap();
    assert_eq!(stored.payload.as_bytes(), b"\"~17\"");
    let plain = rig.push(Job::new("mail", &18).unwrap()).await;
    let written = log.clone();
    let builder = engine(&rig).codec(Marked);
    let running = Running::start(builder.worker("mail", move |batch: Batch<u32>| {
        written.add(format!("{:?}", batch.payloads().collect::<Vec<_>>()));
        async {}
    }));
    log.reaches(1).await;
    pass(secs(1)).await;
    running.stop().await;
    assert_eq!(log.lines(), ["[17]"]);
    assert_eq!(rig.job(plain).await.unwrap().unwrap().state, JobState::Dead);
}

/// Writes equal payloads differently each time, and has digests of its own.
#[derive(Default)]
struct Salted(AtomicUsize);

impl Codec for Salted {
    fn encode(&self, payload: &Payload) -> Result<Payload> {
        let salt = self.0.fetch_add(1, Ordering::SeqCst);
        Payload::json(&(salt, String::from_utf8_lossy(payload.as_bytes())))
    }

    fn decode(&self, stored: &Payload) -> Result<Payload, Failure> {
        let (_, plain): (usize, String) = stored.decode()?;
        Ok(Payload::from_json_text(&plain)?)
    }

    fn digest(&self, plain: store::Digest) -> store::Digest {
        plain.map(|byte| !byte)
    }
}

#[tokio::test(start_paused = true)]
async fn equal_payloads_merge_whatever_a_codec_writes() {
    let rig = Rig::new();
    rig.store_declared(Queue::accumulate("orders")).await;
    let client = Client::new(rig.shared()).codec(Salted::default());
    let payload = |text: &str| Payload::from_json_text(text).unwrap();
    let job = |text: &str| Job::with_payload("orders", payload(text)).key("42");
    let [one, same, other] = [r#"{"a":1,"b":2}"#, r#"{"b": 2, "a": 1}"#, r#"{"a":2}"#].map(job);
    let jobs = vec![one.clone(), same.clone(), other];
    let pushed = client.push_all(jobs).await.unwrap();
    let statuses: Vec<_> = pushed.iter().map(|pushed| pushed.status).collect();
    assert_eq!(statuses, [PushStatus::Queued, PushStatus::Merged, PushStatus::Queued]);
    assert_eq!(client.push(same).await.unwrap().job_id, pushed[0].job_id);
    let plain = rig.push(one).await;
    assert!(pushed.iter().all(|pushed| pushed.job_id != plain), "the digest is the codec's");
}

/// Counts the digests that it is asked for.
struct Counting(Arc<AtomicUsize>);

impl Codec for Counting {
    fn encode(&self, payload: &Payload) -> Result<Payload> {
        Ok(payload.clone())
    }

    fn decode(&self, stored: &Payload) -> Result<Payload, Failure> {
        Ok(stored.clone())
    }

    fn digest(&self, plain: store::Digest) -> store::Digest {
        self.0.fetch_add(1, Ordering::SeqCst);
        plain
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_makes_no_digest_for_a_queue_that_its_client_knows_not_to_compare_payloads() {
    let (rig, asked) = (Rig::new(), Arc::new(AtomicUsize::new(0)));
    let client = Client::new(rig.shared()).codec(Counting(asked.clone()));
    let client = client.queues([Queue::fifo("orders"), Queue::accumulate("sums")]);
    for (queue, count) in [("orders", 0), ("sums", 1), ("unknown", 2)] {
        client.push(Job::new(queue, &1).unwrap().key("k")).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), count, "{queue}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_and_a_run_by_hand_merge_with_equal_payloads_of_clients_behind_a_codec() {
    let rig = Rig::new();
    rig.store_declared(Queue::accumulate("orders")).await;
    let job = Job::new("orders", &7).unwrap().key("42");
    let cron = Cron::new("tick", "*/10 * * * *", job.clone()).unwrap();
    let running = Running::start(engine(&rig).codec(Salted::default()).cron(cron));
    pass(secs(5)).await;
    let client = Client::new(rig.shared()).codec(Salted::default());
    let first = client.push(job).await.unwrap();
    let by_hand = run_schedule(&*rig, "tick", "a person").await.unwrap();
    assert_eq!(by_hand, first.job_id);
    pass(secs(600)).await;
    running.stop().await;
    let count = rig.stats(None).await.unwrap()[0].jobs;
    assert_eq!(count, 1, "the tick has merged too");
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_pushes_itself_goes_through_its_codec() {
    let (rig, log) = (Rig::new(), Log::default());
    let (ticks, dead) = (log.clone(), log.clone());
    let cron = Cron::new("tick", "*/10 * * * *", Job::new("mail", &5).unwrap().max_retries(0));
    let builder = engine(&rig).codec(Marked).cron(cron.unwrap());
    let builder = builder.worker("mail", move |batch: Batch<u32>| {
        ticks.add(format!("{:?}", batch.payloads().collect::<Vec<_>>()));
        async { Err::<(), Failure>("no stamps".into()) }
    });
    let running = Running::start(builder.on_retries_exhausted(move |exhausted: Exhausted| {
        dead.add(format!("{:?}", exhausted.error));
        async { Ok(()) }
    }));
    log.reaches(2).await;
    running.stop().await;
    assert_eq!(log.lines(), ["[5]", "Some(\"no stamps\")"]);
}

#[tokio::test(start_paused = true)]
async fn l14_failures_are_written_as_the_engine_is_told() {
    let rig = Rig::new();
    let id = rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    let builder = engine(&rig).error_format(|failure| format!("<{failure}>"));
    let running = Running::start(
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) }),
    );
    pass(secs(1)).await;
    running.stop().await;
    assert_eq!(rig.job(id).await.unwrap().unwrap().error.as_deref(), Some("<no stamps>"));
}

#[tokio::test(start_paused = true)]
async fn l13_the_exhausted_hook_is_told_once_and_again_when_it_fails() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    let (written, tries) = (log.clone(), Arc::new(AtomicUsize::new(0)));
    let builder = engine(&rig).on_retries_exhausted(move |dead: Exhausted| {
        let (log, first) = (written.clone(), tries.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            log.add(format!("{} {} {:?}", dead.job_id, dead.queue, dead.error));
            if first { Err("the pager is down".into()) } else { Ok(()) }
        }
    });
    let running = Running::start(
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) }),
    );
    log.reaches(2).await;
    pass(secs(600)).await;
    running.stop().await;
    let line = format!("{id} mail Some(\"no stamps\")");
    assert_eq!(log.lines(), [line.clone(), line]);
}

#[tokio::test(start_paused = true)]
async fn a_payload_too_deep_to_be_repeated_keeps_no_call_from_the_exhausted_hook() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.store_declared(Queue::parallel("mail").batch_size(2).max_retries(0)).await;
    for depth in [1, crate::model::limits::PAYLOAD_DEPTH_MAX] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        rig.push(Job::with_payload("mail", Payload::from_json_text(&nested).unwrap())).await;
    }
    let written = log.clone();
    let builder = engine(&rig).on_retries_exhausted(move |dead: Exhausted| {
        written.add(if dead.payload.is_some() { "with it" } else { "without it" });
        async { Ok(()) }
    });
    let running = Running::start(builder.worker("mail", |_: Batch<serde_json::Value>| async {
        Err::<(), Failure>("no stamps".into())
    }));
    log.reaches(2).await;
    running.stop().await;
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["with it", "without it"]);
}

#[tokio::test(start_paused = true)]
async fn the_exhausted_hook_hears_of_no_job_that_was_cancelled() {
    let (kept, forgotten) = (Queue::exclusive("mail"), Queue::fifo("mail"));
    // The node may not have heard of it yet when the handler fails.
    for (queue, hears_of_it) in [(kept.clone(), true), (kept, false), (forgotten, true)] {
        let (rig, log, ends) = (Rig::new(), Log::default(), Arc::new(tokio::sync::Notify::new()));
        rig.store_declared(queue.max_retries(0)).await;
        let id = rig.push(Job::new("mail", &1).unwrap().key("k")).await;
        let (told, begun, waits) = (log.clone(), log.clone(), ends.clone());
        let builder = engine(&rig).on_retries_exhausted(move |_: Exhausted| {
            told.add("told");
            async { Ok(()) }
        });
        let builder = builder.worker("mail", move |_: Batch<u32>, call: Context| {
            begun.add("begun");
            let waits = waits.clone();
            async move {
                if hears_of_it {
                    call.cancelled().await;
                } else {
                    waits.notified().await;
                }
                Err::<(), Failure>("cancelled".into())
            }
        });
        let running = Running::start(builder);
        log.reaches(1).await;
        let cancel = store::Cancel { now: None, jobs: vec![id] };
        assert_eq!(rig.cancel(cancel).await.unwrap(), [store::Cancelled::Flagged]);
        ends.notify_one();
        pass(secs(60)).await;
        assert_eq!(running.stop().await.cancelled, 1);
        assert_eq!(log.lines(), ["begun"], "{hears_of_it}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_exhausted_hook_hears_of_no_job_that_lives_on_beside_one_that_died() {
    let (rig, log) = (Rig::new(), Log::default());
    let calls = Queue::parallel(Exhausted::QUEUE).batch_size(2);
    rig.store_declared(calls.clone()).await;
    rig.store_declared(Queue::parallel("mail")).await;
    let alive = rig.push(Job::new("mail", &1).unwrap()).await.to_string();
    // Nothing is kept of it.
    let dead = "01a1fd84-a548-7000-8001-00000000ffff";
    for id in [alive.as_str(), dead] {
        let about = json!({
            "job_id": id, "queue": "mail", "key": null, "task": null, "attempts": 1, "error": null
        });
        rig.push(Job::new(Exhausted::QUEUE, &about).unwrap()).await;
    }
    let written = log.clone();
    let builder = engine(&rig).queue(calls).on_retries_exhausted(move |dead: Exhausted| {
        written.add(dead.job_id.to_string());
        async { Ok(()) }
    });
    let running = Running::start(builder);
    log.reaches(1).await;
    pass(secs(60)).await;
    running.stop().await;
    assert_eq!(log.lines(), [dead]);
}

#[tokio::test(start_paused = true)]
async fn l13_the_exhausted_hook_gets_the_payload_of_a_job_whose_process_died() {
    let (rig, log) = (Rig::new(), Log::default());
    let queue = Queue::parallel("mail").max_crashes(1);
    rig.store_declared(queue.clone()).await;
    rig.push(Job::new("mail", &json!({ "to": "ada" })).unwrap()).await;
    assert_eq!(rig.claim_as("predecessor", "mail", secs(1)).await.len(), 1);
    let written = log.clone();
    let builder = engine(&rig).queue(queue).on_retries_exhausted(move |dead: Exhausted| {
        let payload = dead.payload.map(|payload| payload.as_bytes().to_vec());
        written.add(String::from_utf8(payload.unwrap_or_default()).unwrap());
        async { Ok(()) }
    });
    let running = Running::start(builder.worker("mail", |_: Batch<Payload>| async {}));
    log.reaches(1).await;
    running.stop().await;
    assert_eq!(log.lines(), [r#"{"to":"ada"}"#]);
}

#[tokio::test(start_paused = true)]
async fn h9_an_exhausted_hook_whose_process_died_is_called_by_another() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    let hooked = |log: Log, dies: bool| {
        let builder = engine(&rig).on_retries_exhausted(move |_: Exhausted| {
            log.add("told");
            async move {
                if dies {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        });
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) })
    };
    let first = Running::start(hooked(log.clone(), true));
    log.reaches(1).await;
    first.kill();
    let second = Running::start(hooked(log.clone(), false));
    log.reaches(2).await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l13_the_exhausted_hook_of_one_node_hears_of_jobs_that_died_on_another() {
    let (rig, log) = (Rig::new(), Log::default());
    let written = log.clone();
    let hooked = Running::start(engine(&rig).on_retries_exhausted(move |dead: Exhausted| {
        written.add(dead.queue);
        async { Ok(()) }
    }));
    pass(secs(1)).await;
    let other = Running::start(
        engine(&rig)
            .worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) }),
    );
    rig.push(Job::new("mail", &1).unwrap().max_retries(0)).await;
    log.reaches(1).await;
    hooked.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_about_a_refused_end_is_none_about_the_end_that_followed() {
    let (rig, log) = (Rig::new(), Log::default());
    let job_id = rig.push(Job::new("mail", &1).unwrap().max_retries(1)).await;
    let written = log.clone();
    let builder = engine(&rig).on_retries_exhausted(move |dead: Exhausted| {
        written.add(dead.attempts.to_string());
        async { Ok(()) }
    });
    let running = Running::start(
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>("no stamps".into()) }),
    );
    log.reaches(1).await;
    // As of a node whose claim was taken over while it buried the job.
    let (queue, error, payload) = ("mail".to_owned(), None, None);
    let refused = Exhausted { job_id, queue, key: None, task: None, attempts: 1, error, payload };
    let call = rig.push(Job::new(Exhausted::QUEUE, &refused).unwrap()).await;
    pass(secs(60)).await;
    running.stop().await;
    assert_eq!((log.lines(), rig.state(call).await), (vec!["2".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn l19_a_fatal_failure_stops_the_engine_after_the_others_have_finished() {
    let (rig, log) = (Rig::new(), Log::default());
    let bad = rig.push(Job::new("mail", "bad").unwrap()).await;
    let good = rig.push(Job::new("mail", "good").unwrap()).await;
    let written = log.clone();
    let builder = engine(&rig).on_fatal(move |why| written.add(format!("fatal: {why}")));
    let builder = builder.worker("mail", |batch: Batch<String>| {
        let bad = batch.payloads().any(|payload| payload == "bad");
        async move {
            if bad {
                return Err::<(), Failure>(Fatal("the license has run out".to_owned()).into());
            }
            pass(secs(3)).await;
            Ok(())
        }
    });
    let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Fatal, "the license has run out"));
    assert_eq!(log.lines(), ["fatal: the license has run out"]);
    assert_eq!(rig.job(bad).await.unwrap().unwrap().state, JobState::Queued);
    assert!(rig.job(good).await.unwrap().is_none(), "it was finished");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_wraps_a_fatal_one_stops_the_engine_too() {
    let fatal = || Fatal("the license has run out".to_owned());
    let wrapped: [Failure; 3] = [
        anyhow::Error::new(fatal()).context("the mail cannot be sent").into(),
        eyre::Report::new(fatal()).wrap_err("the mail cannot be sent").into(),
        Error::new(ErrorKind::Internal, "the mail cannot be sent").because(fatal()).into(),
    ];
    for failure in wrapped {
        let (rig, failure) = (Rig::new(), std::sync::Mutex::new(Some(failure)));
        rig.push(Job::new("mail", &1).unwrap()).await;
        let builder = engine(&rig).worker("mail", move |_: Batch<u32>| {
            let failure = failure.lock().unwrap().take().unwrap();
            async move { Err::<(), Failure>(failure) }
        });
        let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Fatal, "the license has run out"));
    }
}

#[tokio::test(start_paused = true)]
async fn l13_an_engine_whose_start_hook_fails_claims_nothing() {
    let (rig, log) = (Rig::new(), Log::default());
    let id = rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let builder = engine(&rig).on_start(|| async { Err("no configuration".into()) });
    let builder = builder.on_fatal(move |why| written.add(why));
    let builder = builder.worker("mail", |_: Batch<u32>| async {});
    let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.message(), "on_start failed: no configuration");
    assert_eq!(log.lines(), [error.to_string()]);
    assert_eq!(rig.job(id).await.unwrap().unwrap().attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn l13_the_fatal_hook_hears_that_the_store_refuses_the_start() {
    let (rig, log) = (Rig::new(), Log::default());
    let declare = |queue| store::Declare { now: None, queues: vec![queue] };
    rig.declare(declare(Queue::parallel("mail"))).await.unwrap();
    rig.push(Job::new("mail", &1).unwrap()).await;
    let written = log.clone();
    let builder = engine(&rig).queue(Queue::fifo("mail")).on_fatal(move |why| written.add(why));
    let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(log.lines(), [error.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn l18_running_calls_are_listed_with_their_age() {
    let (rig, log) = (Rig::new(), Log::default());
    let job = Job::new("orders", &1).unwrap().key("order-7").task("sync");
    rig.declare(store::Declare { now: None, queues: vec![Queue::fifo("orders")] }).await.unwrap();
    rig.push(job).await;
    let written = log.clone();
    let worker = Worker::new("orders", move |_: Batch<u32>, call: Context| {
        written.add("begun");
        async move {
            call.cancelled().await;
        }
    });
    let engine = engine(&rig).with(worker).shutdown_timeout(secs(1)).build().unwrap();
    let handle = engine.handle();
    let running = tokio::spawn(engine.run_until(std::future::pending::<()>()));
    log.reaches(1).await;
    pass(secs(7)).await;
    let calls = handle.running();
    let seen = (calls[0].queue.as_str(), calls[0].task.as_deref(), calls[0].keys.as_slice());
    assert_eq!(seen, ("orders", Some("sync"), &["order-7".to_owned()][..]));
    assert!((secs(7)..secs(8)).contains(&calls[0].age), "{calls:?}");
    handle.stop();
    running.await.unwrap().unwrap();
    assert_eq!(handle.running(), []);
}
