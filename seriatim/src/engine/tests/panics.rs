//! Panics of the user's code, and of the engine's own tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{JobState, Settled};
use crate::engine::*;
use crate::store::{Digest, Settlement, Token, Turn, Verdict};
use crate::*;

/// The failure of the handlers of `broken`: its text cannot be written.
#[derive(Debug)]
struct Speechless;

impl fmt::Display for Speechless {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Speechless {}

/// The failure of a handler that panics when it is dropped, which is after its call.
#[derive(Debug)]
struct Explosive;

impl fmt::Display for Explosive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no")
    }
}

impl std::error::Error for Explosive {}

impl Drop for Explosive {
    fn drop(&mut self) {
        panic!("too late")
    }
}

/// An observer that notes how turns begin and end.
struct Noting(Log);

impl Observer for Noting {
    fn started(&self, _: &Turn) {
        self.0.add("started");
    }
    fn ended(&self, _: &Turn, verdict: &Verdict) {
        self.0.add(format!("ended: {}", verdict.outcome.name()));
    }
}

/// An observer whose methods all panic.
struct Jumpy;

impl Observer for Jumpy {
    fn started(&self, _: &Turn) {
        panic!("a start")
    }
    fn ended(&self, _: &Turn, _: &Verdict) {
        panic!("an end")
    }
    fn settling(&self, _: &Turn, _: &Settlement) {
        panic!("a settlement")
    }
    fn settled(&self, _: &Turn, _: &Settlement, _: &Settled, _: Timestamp) {
        panic!("an answer")
    }
    fn rescued(&self, _: &Turn) {
        panic!("a rescue")
    }
    fn lost(&self, _: &[Token]) {
        panic!("a loss")
    }
}

struct Scrambled;

impl Codec for Scrambled {
    fn encode(&self, payload: &Payload) -> Result<Payload> {
        Ok(payload.clone())
    }
    fn decode(&self, stored: &Payload) -> Result<Payload, Failure> {
        assert!(!stored.as_bytes().starts_with(b"13"), "it cannot be 13");
        Ok(stored.clone())
    }
    fn digest(&self, plain: Digest) -> Digest {
        plain
    }
}

/// The body of a callback that panics.
fn broken(text: &str) -> Result<(), Failure> {
    panic!("{text}")
}

/// A handler that fails.
fn failing() -> Worker {
    Worker::new("broken", |_: Batch<u32>| async { Err::<(), Failure>("no".into()) })
}

type Change = fn(EngineBuilder) -> EngineBuilder;

/// The callbacks that panic, and the error that the job of `broken` then has.
fn callbacks() -> Vec<(&'static str, Change, &'static str)> {
    vec![
        ("a backoff", |b| b.with(failing().backoff(|_| panic!("no idea"))), "no"),
        (
            "a handler before its first await",
            |b| {
                b.worker("broken", |_: Batch<u32>| -> std::future::Ready<_> {
                    std::future::ready(broken("a handler"))
                })
            },
            "the handler panicked: a handler",
        ),
        (
            "a blocking handler",
            |b| b.with(Worker::blocking("broken", |_: Batch<u32>| broken("a thread"))),
            "the handler panicked: a thread",
        ),
        (
            "a middleware before its first await",
            |b| {
                b.with(failing()).middleware(|call: Context, next: Next| {
                    assert_ne!(call.queue(), "broken", "not this one");
                    next.run()
                })
            },
            "a middleware panicked: assertion `left != right` failed: not this one",
        ),
        (
            "a middleware later",
            |b| {
                b.with(failing()).middleware(|call: Context, next: Next| async move {
                    let broken = call.queue() == "broken";
                    let answer = next.run().await;
                    assert!(!broken, "not that one");
                    answer
                })
            },
            "the handler panicked: not that one",
        ),
    ]
}

/// The same for the code around the calls.
fn callbacks_around() -> Vec<(&'static str, Change, &'static str)> {
    vec![
        ("an observer", |b| b.with(failing()).observer(Arc::new(Jumpy)), "no"),
        (
            "a splitter",
            |b| b.with(failing()).splitter(Splitter::Custom(Arc::new(|_, _| panic!("a coin")))),
            "no",
        ),
        (
            "a codec",
            |b| b.with(failing()).codec(Scrambled),
            "the handler panicked: it cannot be 13",
        ),
        ("a writer of failures", |b| b.with(failing()).error_format(|_| panic!("no pen")), "no"),
        (
            "a log of turns",
            |b| {
                let log = TurnLog::default().with_trace_id(|_| panic!("no trace"));
                let log = log.with_listener(|_| panic!("no ear"));
                b.with(failing()).turn_log(Arc::new(log))
            },
            "no",
        ),
        (
            "the text of a failure",
            |b| b.worker("broken", |_: Batch<u32>| async { Err::<(), Failure>(Speechless.into()) }),
            "a failure whose text cannot be written: that panicked",
        ),
        (
            "a periodic worker before its first await",
            |b| {
                b.with(failing()).periodic(Periodic::new(
                    "tick",
                    secs(1),
                    |_| -> std::future::Ready<_> { std::future::ready(broken("a tick")) },
                ))
            },
            "no",
        ),
        (
            "the hook for exhausted jobs",
            |b| {
                b.with(failing()).on_retries_exhausted(|_| -> std::future::Ready<_> {
                    std::future::ready(broken("a hook"))
                })
            },
            "no",
        ),
    ]
}

/// One slot: if the panic lost it, nothing would run afterwards.
#[tokio::test(start_paused = true)]
async fn a_panic_of_any_callback_fails_its_call_and_nothing_else() {
    for (callback, change, error) in callbacks().into_iter().chain(callbacks_around()) {
        let (rig, log) = (Rig::new(), Log::default());
        let mut queue = Queue::parallel("broken");
        queue.max_retries = 1;
        rig.store_declared(queue).await;
        let id = rig.push(Job::new("broken", &13).unwrap()).await;
        let builder = engine(&rig).concurrency(1).worker("fine", log.adds::<u32>("fine"));
        let running = Running::start(change(builder));
        // The second failure buries it.
        let buried = async {
            while rig.state(id).await != Some(JobState::Dead) {
                pass(Duration::from_millis(100)).await;
            }
        };
        let ended = tokio::time::timeout(secs(3_600), buried).await;
        assert!(ended.is_ok(), "{callback}: {:?}", rig.state(id).await);
        assert_eq!(rig.error(id).await.lines().next(), Some(error), "{callback}");
        for i in 0..3 {
            rig.push(Job::new("fine", &i).unwrap()).await;
        }
        log.reaches(3).await;
        let summary = running.stop().await;
        assert_eq!(summary.unsettled, 0, "{callback}");
        let stats = rig.stats(None).await.unwrap();
        assert_eq!(stats.iter().map(|queue| queue.claimed).sum::<u64>(), 0, "{callback}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_whose_call_panics_is_told_like_any_other() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    let builder = engine(&rig).observer(Arc::new(Noting(log.clone())));
    let running = Running::start(
        builder.worker("mail", |_: Batch<u32>| async { Err::<(), Failure>(Explosive.into()) }),
    );
    log.reaches(2).await;
    assert_eq!(running.stop().await.unsettled, 0);
    assert_eq!(log.lines()[..2], ["started", "ended: retry"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_when_a_lane_is_rescued_stops_nothing() {
    let (rig, log) = (Rig::new(), Log::default());
    rig.push(Job::new("mail", &1).unwrap()).await;
    rig.claim_as("gone", "mail", secs(1)).await;
    let builder = engine(&rig).observer(Arc::new(Jumpy));
    let running = Running::start(builder.worker("mail", log.adds::<u32>("mail")));
    log.reaches(1).await;
    assert_eq!(running.stop().await.rescued, 1);
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_start_hook_panics_does_not_start() {
    let rig = Rig::new();
    let builder = engine(&rig)
        .on_start(|| -> std::future::Ready<_> { std::future::ready(broken("a license")) });
    let error = builder.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Fatal, "on_start panicked: a license"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_of_which_a_task_breaks_stops_and_names_it() {
    let tasks = [
        ("claim", "fetch"),
        ("settle", "settle"),
        ("heartbeat", "heartbeat"),
        ("rescue", "maintenance"),
    ];
    for (call, task) in tasks {
        let (rig, calls) = (Rig::new(), Arc::new(AtomicUsize::new(0)));
        let counter = calls.clone();
        let builder = engine(&rig)
            .shutdown_timeout(secs(1))
            .on_fatal(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            })
            .worker("mail", |_: Batch<u32>| async {});
        let engine = tokio::spawn(builder.run_until(std::future::pending::<()>()));
        pass(secs(1)).await;
        rig.faults.panics(call);
        rig.push(Job::new("mail", &1).unwrap()).await;
        let ended = tokio::time::timeout(secs(120), engine).await;
        let error = ended.unwrap_or_else(|_| panic!("{call}: it runs on")).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fatal, "{call}: {error}");
        let expected = format!("the engine's task {task:?} panicked: the store panics in {call}");
        assert_eq!(error.message(), expected, "{call}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{call}");
    }
}
