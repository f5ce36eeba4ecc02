//! The log of an engine without an observer.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::JobState;
use crate::*;

/// Records this thread's log lines as `LEVEL message field=value`.
struct Scribe {
    most: LevelFilter,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Scribe {
    fn start(most: LevelFilter) -> (DefaultGuard, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Self { most, lines: lines.clone() });
        (guard, lines)
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.most
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

/// The lines that start with `begin`.
fn of(lines: &Mutex<Vec<String>>, begin: &str) -> Vec<String> {
    let lines = lines.lock().unwrap();
    lines.iter().filter(|line| line.starts_with(begin)).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_nobody_watches_logs_what_fails_is_held_and_is_given_up() {
    let (_guard, lines) = Scribe::start(LevelFilter::INFO);
    let rig = Rig::new();
    rig.store_declared(Queue::parallel("mail").max_retries(1)).await;
    rig.store_declared(Queue::fifo("orders").max_retries(0).exhausted(Exhaustion::Hold)).await;
    let mail = rig.push(Job::new("mail", &1).unwrap()).await;
    let spoilt = rig.push(Job::new("mail", &"one").unwrap()).await;
    let order = rig.push(Job::new("orders", &1).unwrap().key("a\nb")).await;
    let fail =
        |_: Batch<u32>| async { Err::<(), Failure>("the card\r\n\u{1b}[2Jwas refused".into()) };
    let running = Running::start(engine(&rig).worker("mail", fail).worker("orders", fail));
    while rig.state(mail).await != Some(JobState::Dead) {
        pass(secs(1)).await;
    }
    running.stop().await;
    let error = "the card\\r\\n\\u{1b}[2Jwas refused";
    let retried = of(&lines, "WARN queue mail");
    let begin = format!("WARN queue mail, job {mail}: attempt 1 failed: {error}; tried again in ");
    assert!(retried.len() == 1 && retried[0].starts_with(&begin), "{retried:?}");
    let held = of(&lines, "WARN queue orders");
    let begin = format!(
        "WARN queue orders, key \"a\\nb\", job {order}: attempt 1 failed: {error}; its key is held"
    );
    assert!(held.len() == 1 && held[0].starts_with(&begin), "{held:?}");
    let given_up = of(&lines, "ERROR ");
    assert_eq!(given_up.len(), 2, "{given_up:?}");
    let undecodable = format!("ERROR queue mail, job {spoilt}: attempt 1 failed: payload: ");
    let line = given_up.iter().find(|line| line.starts_with(&undecodable)).unwrap();
    assert!(line.contains("invalid type: string \"one\", expected u32"), "{line}");
    assert!(line.ends_with("; dead: `seriatim morgue mail` shows it"), "{line}");
    let buried = format!("ERROR queue mail, job {mail}: attempt 2 failed: {error}; dead: ");
    assert!(given_up.iter().any(|line| line.starts_with(&buried)), "{given_up:?}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_failures_writes_few_lines_and_then_how_many_it_left_out() {
    for stops_at_once in [false, true] {
        let (_guard, lines) = Scribe::start(LevelFilter::INFO);
        let (rig, log) = (Rig::new(), Log::default());
        let backoff = Backoff::Constant { base: secs(3_600) };
        rig.store_declared(Queue::parallel("mail").backoff(backoff)).await;
        for number in 0..300 {
            rig.push(Job::new("mail", &number).unwrap()).await;
        }
        let written = log.clone();
        let running = Running::start(engine(&rig).worker("mail", move |_: Batch<u32>| {
            written.add("failed");
            async { Err::<(), Failure>("no".into()) }
        }));
        log.reaches(300).await;
        if !stops_at_once {
            pass(secs(60)).await;
            let counted = of(&lines, "WARN more turns failed");
            assert!(counted.len() == 1 && counted[0].ends_with(" turns=280"), "{counted:?}");
        }
        running.stop().await;
        let counted = of(&lines, "WARN more turns failed");
        assert!(counted.len() == 1 && counted[0].ends_with(" turns=280"), "{counted:?}");
        assert_eq!(of(&lines, "WARN queue mail").len(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_that_ends_is_a_line_at_debug_and_none_above_it() {
    let mut seen = Vec::new();
    for most in [LevelFilter::INFO, LevelFilter::DEBUG] {
        let (_guard, lines) = Scribe::start(most);
        let (rig, log) = (Rig::new(), Log::default());
        rig.store_declared(Queue::accumulate("orders")).await;
        rig.push(Job::new("orders", &1).unwrap().key("k")).await;
        rig.push(Job::new("orders", &2).unwrap().key("k")).await;
        let running = Running::start(engine(&rig).worker("orders", log.adds::<u32>("called")));
        log.reaches(1).await;
        running.stop().await;
        seen.push(of(&lines, "DEBUG call ended"));
    }
    assert!(seen[0].is_empty(), "{seen:?}");
    let [line] = seen[1].as_slice() else { panic!("{seen:?}") };
    let begin = "DEBUG call ended queue=\"orders\" key=\"k\" lanes=1 jobs=2 attempt=1 outcome=done took_ms=";
    assert!(line.starts_with(begin), "{line}");
}
