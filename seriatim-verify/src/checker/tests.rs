//! The checker against a correct store and against defective ones.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use seriatim::store::*;
use seriatim::{
    Groups, Job, JobId, Mode, Outcome, Queue, Rate, Share, SharedStore, Timestamp,
    store::{Memory, NodeId, Settlement, Turn, plan},
};

use super::*;
use crate::broken::Fault;

const LEASE: Duration = Duration::from_secs(60);

/// A world with two nodes, one of which is paused now and then, on a store that may be defective.
struct World {
    store: SharedStore,
    queue: Queue,
    history: History,
    rng: Rng,
    now: Timestamp,
    nodes: [NodeId; 2],
    held: Vec<(usize, Turn)>,
    pushes: u32,
}

impl World {
    async fn new(store: SharedStore, queue: Queue, seed: u64) -> Self {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        store.declare(Declare { now: Some(now), queues: vec![queue.clone()] }).await.unwrap();
        let mut history = History::new();
        history.add(Event::queue(&queue));
        let nodes = ["a".into(), "b".into()];
        let (rng, held) = (Rng::with_seed(seed), Vec::new());
        let mut world = Self { store, queue, history, rng, now, nodes, held, pushes: 0 };
        world.beat(0).await;
        world.beat(1).await;
        world
    }

    fn tick(&mut self) -> i64 {
        self.now = self.now + Duration::from_micros(self.rng.u64(1..50_000));
        self.now.as_micros()
    }

    async fn beat(&mut self, node: usize) -> bool {
        let info = NodeInfo::new(self.nodes[node].clone(), LEASE);
        let request = Heartbeat { now: Some(self.now), node: info, beats: Vec::new() };
        let alive = self.store.heartbeat(request).await.unwrap().alive;
        if alive {
            let name = self.nodes[node].to_string();
            self.history.add(Event::Lease {
                at: self.now.as_micros(),
                actor: name.clone(),
                node: name,
                until: (self.now + LEASE).as_micros(),
            });
        }
        alive
    }

    async fn step(&mut self) {
        self.tick();
        match self.rng.u32(0..20) {
            0..8 => self.push().await,
            8..13 => {
                let node = self.rng.usize(0..2);
                self.claim(node).await;
            }
            13..18 => self.settle().await,
            18 => {
                self.now = self.now + Duration::from_secs(self.rng.u64(1..10));
                self.beat(0).await;
                self.beat(1).await;
            }
            _ => self.pause_one().await,
        }
    }

    async fn push(&mut self) {
        self.pushes += 1;
        let payload = match self.queue.mode {
            Mode::Accumulate => self.rng.u32(0..4),
            _ => self.pushes,
        };
        let mut job = Job::new("q", &json!({ "v": payload })).unwrap();
        job.score = Some(f64::from(self.pushes));
        if self.queue.mode.is_keyed() {
            job = job.key(format!("k{}", self.rng.u32(0..3)));
        }
        if self.queue.groups.is_some() && job.key.as_deref() != Some("k0") {
            job = job.group("a");
        }
        let sent_at = self.tick();
        let request = Push { now: Some(self.now), jobs: vec![job.clone()] };
        let pushed = self.store.push(request).await.unwrap()[0];
        let tag = format!("v{payload}");
        let at = self.tick();
        self.history.add(Event::Push {
            sent_at,
            at,
            queue: "q".into(),
            key: job.key,
            score: job.score,
            tag,
            result: PushResult::Acknowledged,
            job_id: Some(pushed.job_id),
            status: Some(pushed.status),
            again_at: pushed.again_at.map(Timestamp::as_micros),
        });
    }

    async fn claim(&mut self, node: usize) {
        let request = Claim {
            now: Some(self.now),
            ..Claim::new("q", self.nodes[node].clone(), 2, Lease::Node { ttl: LEASE })
        };
        for turn in self.store.claim(request).await.unwrap().turns {
            let at = self.tick();
            let handed = turn.jobs.iter().map(|job| Handed {
                job_id: job.id,
                score: job.score,
                tag: format!("v{}", job.payload.to_value()["v"]),
            });
            self.history.add(Event::Start {
                at,
                actor: self.nodes[node].to_string(),
                queue: "q".into(),
                key: turn.key.as_deref().map(str::to_owned),
                lane: turn.lane,
                token: turn.token,
                claimed_at: turn.claimed_at.as_micros(),
                group: group(&turn).map(str::to_owned),
                jobs: handed.collect(),
            });
            self.held.push((node, turn));
        }
    }

    async fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.rng.usize(0..self.held.len());
        let (_, turn) = self.held.swap_remove(place);
        let outcome = match self.rng.u32(0..10) {
            0..6 => Outcome::Done,
            6..9 => Outcome::Retry { error: "no".into(), retry_in: None },
            _ => Outcome::Snooze { length: Duration::from_secs(2) },
        };
        let at = self.tick();
        self.history.add(Event::End { at, lane: turn.lane, token: turn.token });
        self.send(&turn, outcome).await;
    }

    async fn send(&mut self, turn: &Turn, outcome: Outcome) {
        let cause = format!("{outcome:?}").split([' ', '{']).next().unwrap_or("").to_lowercase();
        let wait = |_: NextRetry<'_>| Duration::from_secs(3);
        let settlement: Settlement = plan(turn, &self.queue, &outcome.into(), &wait);
        let sent_at = self.tick();
        let request =
            Settle { now: Some(self.now), turns: vec![settlement.clone()], ..Settle::default() };
        let answer = self.store.settle(request).await.unwrap().remove(0);
        let fates = turn
            .jobs
            .iter()
            .map(|job| JobFate { job_id: job.id, fate: settlement.fate_of(job.id) });
        let at = self.tick();
        self.history.add(Event::Settle {
            sent_at,
            at,
            queue: "q".into(),
            key: turn.key.as_deref().map(str::to_owned),
            lane: turn.lane,
            token: turn.token,
            claimed_at: Some(turn.claimed_at.as_micros()),
            accepted: answer.is_ok(),
            fates: fates.collect(),
            cause,
        });
    }

    /// Node 0 pauses beyond its lease and node 1 takes over. Node 0 settles its claims late.
    async fn pause_one(&mut self) {
        for _ in 0..2 {
            self.now = self.now + LEASE / 2 + Duration::from_secs(1);
            self.beat(1).await;
        }
        let request = Rescue {
            now: Some(self.now),
            node: self.nodes[1].clone(),
            lease: LEASE,
            lanes_max: 100,
            ticket: 0,
        };
        for turn in self.store.rescue(request).await.unwrap() {
            let at = self.tick();
            self.history.add(Event::rescued(at, &turn, false));
            self.send(&turn, Outcome::Crash { error: "lost".into() }).await;
        }
        // Restarts the paused node; its old claims stay in `held`, to be settled late.
        let at = self.tick();
        self.nodes[0] = format!("a-{at}").as_str().into();
        self.beat(0).await;
    }

    async fn finish(mut self) -> Report {
        let mut seen: HashMap<JobId, JobState> = HashMap::new();
        for state in [JobState::Queued, JobState::Dead] {
            let query = JobQuery::new("q", state);
            let page = self.store.jobs(query).await.unwrap();
            seen.extend(page.rows.into_iter().map(|job| (job.id, job.state)));
        }
        // A merged job has its own id too.
        let pushed: Vec<JobId> = self
            .history
            .events()
            .iter()
            .filter_map(|event| match event {
                Event::Push { job_id, .. } => *job_id,
                _ => None,
            })
            .collect();
        for id in pushed {
            if let Some(job) = self.store.job(id).await.unwrap() {
                seen.insert(id, job.state);
            }
        }
        for (job_id, state) in seen {
            self.history.add(Event::Final { job_id, state });
        }
        self.history.add(Event::FinalEnd {});
        check(&self.history)
    }
}

fn report(store: SharedStore, mode: Mode, seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut queue = Queue::new("q", mode).max_retries(4);
        if seed % 2 == 1 {
            let share = Share::default().running(1).rate(Rate::per_minute(40)).burst(2);
            queue = queue.running(2).groups(Groups::each(share));
        }
        if seed % 3 == 2 && mode.is_keyed() {
            queue = queue.throttle(Duration::from_millis(300));
        }
        if queue.throttle.is_some() && seed.is_multiple_of(2) {
            queue = queue.refuse_throttled();
        }
        let mut world = World::new(store, queue, seed).await;
        for _ in 0..300 {
            world.step().await;
        }
        world.finish().await
    })
}

#[test]
fn a_store_that_keeps_its_promises_is_clean() {
    for mode in Mode::ALL {
        let mut rescued = 0;
        for seed in 0..60 {
            let report = report(Arc::new(Memory::new()), mode, seed);
            assert!(report.is_clean(), "{mode}, seed {seed}:\n{report}");
            assert!(report.deliveries > 20, "{mode}: {report}");
            rescued += report.rescued;
        }
        assert!(rescued > 0, "{mode}: claims were taken over");
    }
}

#[test]
fn d19_every_defect_is_found_within_a_hundred_seeds() {
    let expected = [
        (Fault::NoFence, Mode::Fifo, Judgement::Fence),
        (Fault::BusyLaneClaimable, Mode::Fifo, Judgement::Overlap),
        (Fault::BusyLaneReclaimed, Mode::Fifo, Judgement::Overlap),
        (Fault::LivingRescued, Mode::Fifo, Judgement::Overlap),
        (Fault::MergeDropped, Mode::Accumulate, Judgement::Loss),
        (Fault::SettleByIdOnly, Mode::Accumulate, Judgement::Loss),
        (Fault::TokenNotGrowing, Mode::Fifo, Judgement::Overlap),
        (Fault::RetryOvertakes, Mode::Fifo, Judgement::Order),
        (Fault::DoneKept, Mode::Fifo, Judgement::Duplicate),
        (Fault::PayloadChanged, Mode::Fifo, Judgement::Phantom),
        (Fault::LimitsIgnored, Mode::Fifo, Judgement::Limit),
        (Fault::ThrottleIgnored, Mode::Exclusive, Judgement::Limit),
    ];
    assert_eq!(expected.len(), Fault::ALL.len());
    for judgement in Judgement::ALL {
        assert!(expected.iter().any(|(_, _, broken)| *broken == judgement), "{judgement:?}");
    }
    for (fault, mode, judgement) in expected {
        let found = (0..100).any(|seed| {
            let report = report(fault.of(Arc::new(Memory::new())), mode, seed);
            report.violations(judgement) > 0
        });
        assert!(found, "{fault:?} in {mode}");
    }
}

fn read(lines: &str) -> Result<History, HistoryError> {
    let mut history = History::new();
    history.read(lines.as_bytes(), "test.log")?;
    Ok(history)
}

#[test]
fn a_torn_line_is_counted_and_any_other_is_named() {
    let whole = r#"{"type":"died","at":1,"actor":"a"}"#;
    // It ends within a name, so what is written behind it on the same line is no JSON.
    let half = &whole[..18];
    for torn in [format!("{whole}\n{half}"), format!("{half}\n{whole}\n")] {
        let history = read(&torn).unwrap();
        assert_eq!((history.torn_lines(), history.events().len()), (1, 1), "{torn}");
    }
    let error = read(&format!("{half}{whole}")).unwrap_err().to_string();
    assert!(error.starts_with("test.log:1: is not an event"), "{error}");
    let unknown = read("{\"type\":\"nonsense\"}").unwrap_err().to_string();
    assert!(unknown.contains("nonsense"), "{unknown}");
}

#[test]
fn a_history_without_an_end_is_not_called_complete() {
    let push = r#"{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged","job_id":"018bcfe5-6800-7000-8001-000000000001","status":"queued"}"#;
    let report = check(&read(push).unwrap());
    assert!(!report.is_clean());
    assert!(report.verdicts[&Judgement::Loss].not_judged.is_some());
    let complete = format!("{push}\n{{\"type\":\"final_end\"}}");
    assert_eq!(check(&read(&complete).unwrap()).violations(Judgement::Loss), 1);
}

#[test]
fn what_merged_into_a_kept_job_that_was_done_before_or_holds_something_else_is_lost() {
    let first = r#"{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged","job_id":"018bcfe5-6800-7000-8001-000000000001","status":"queued"}"#;
    let start = r#"{"type":"start","at":5,"actor":"a","queue":"q","key":"k","lane":"1-0-1","token":7,"claimed_at":4,"jobs":[{"job_id":"018bcfe5-6800-7000-8001-000000000001","score":1.0,"tag":"t"}]}"#;
    let settle = r#"{"type":"settle","sent_at":20,"at":21,"queue":"q","key":"k","lane":"1-0-1","token":7,"claimed_at":4,"accepted":true,"fates":[{"job_id":"018bcfe5-6800-7000-8001-000000000001","fate":"done"}],"cause":"done"}"#;
    let end = r#"{"type":"final","job_id":"018bcfe5-6800-7000-8001-000000000001","state":"succeeded"}
{"type":"final_end"}"#;
    let losses = |sent_at: i64, tag: &str| {
        let merged = first
            .replace("\"sent_at\":1,\"at\":2", &format!("\"sent_at\":{sent_at},\"at\":{sent_at}"))
            .replace("\"tag\":\"t\"", &format!("\"tag\":\"{tag}\""))
            .replace("queued", "merged");
        let history = [first, &merged, start, settle, end].join("\n");
        check(&read(&history).unwrap()).violations(Judgement::Loss)
    };
    assert_eq!(losses(3, "t"), 0, "it was claimed after it came");
    assert_eq!(losses(10, "t"), 1, "it came while the other ran");
    assert_eq!(losses(3, "u"), 1, "the other held something else");
}

#[test]
fn a_repeat_is_judged_if_the_answer_to_the_first_push_was_lost() {
    let lost = r#"{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"unknown","job_id":null,"status":null}"#;
    let repeat = r#"{"type":"push","sent_at":3,"at":4,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged","job_id":"018bcfe5-6800-7000-8001-000000000001","status":"duplicate"}"#;
    let stored =
        r#"{"type":"final","job_id":"018bcfe5-6800-7000-8001-000000000001","state":"queued"}"#;
    let losses = |events: &[&str]| {
        let history = format!("{}\n{{\"type\":\"final_end\"}}", events.join("\n"));
        [history.clone(), history.replace("\"key\":\"k\"", "\"key\":null")]
            .map(|history| check(&read(&history).unwrap()).violations(Judgement::Loss))
    };
    assert_eq!(losses(&[lost, repeat]), [1, 1]);
    assert_eq!(losses(&[lost, repeat, stored]), [0, 0]);
    assert_eq!(losses(&[repeat]), [0, 0], "nobody knows when its job was pushed");
}

#[test]
fn a_requeued_job_that_is_lost_afterwards_is_found() {
    let job = r#""job_id":"018bcfe5-6800-7000-8001-000000000001""#;
    let push = format!(
        r#"{{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged",{job},"status":"queued"}}"#
    );
    let turn = |at: i64, fate: &str| {
        let about =
            format!(r#""queue":"q","key":"k","lane":"1-0-1","token":{at},"claimed_at":{at}"#);
        format!(
            "{{\"type\":\"start\",\"at\":{at},\"actor\":\"a\",{about},\"jobs\":[{{{job},\"score\":1.0,\"tag\":\"t\"}}]}}\n\
             {{\"type\":\"settle\",\"sent_at\":{at},\"at\":{at},{about},\"accepted\":true,\"fates\":[{{{job},\"fate\":\"{fate}\"}}],\"cause\":\"{fate}\"}}"
        )
    };
    let losses = |events: &[&str]| {
        let history = format!("{push}\n{}\n{{\"type\":\"final_end\"}}", events.join("\n"));
        check(&read(&history).unwrap()).violations(Judgement::Loss)
    };
    let (buried, done) = (turn(10, "bury"), turn(30, "done"));
    let requeued = format!(r#"{{"type":"requeue","at":20,{job}}}"#);
    let removed = format!(r#"{{"type":"removed","at":25,{job}}}"#);
    let stored = format!(r#"{{"type":"final",{job},"state":"queued"}}"#);
    assert_eq!(losses(&[&buried, &requeued]), 1, "it had been dead");
    assert_eq!(losses(&[&buried, &requeued, &done]), 0);
    assert_eq!(losses(&[&buried, &requeued, &removed]), 0);
    assert_eq!(losses(&[&buried, &requeued, &stored]), 0);
    let again = [&turn(30, "bury"), &*requeued.replace("20", "40")];
    assert_eq!(losses(&[&[&*buried, &requeued], &again[..]].concat()), 1, "it had been dead again");
    assert_eq!(losses(&[&buried]), 0);
}

#[test]
fn a_job_that_is_done_and_was_not_handed_over_is_lost() {
    let id = |n: u32| format!(r#""job_id":"018bcfe5-6800-7000-8001-00000000000{n}""#);
    let push = |n: u32, tag: &str| {
        format!(
            r#"{{"type":"push","sent_at":{n},"at":{n},"queue":"q","key":"k","score":1.0,"tag":"{tag}","result":"acknowledged",{},"status":"queued"}}"#,
            id(n)
        )
    };
    let about = r#""queue":"q","key":"k","lane":"1-0-1","token":7,"claimed_at":4"#;
    let start = format!(
        r#"{{"type":"start","at":5,"actor":"a",{about},"jobs":[{{{},"score":1.0,"tag":"t"}}]}}"#,
        id(1)
    );
    let settle = format!(
        r#"{{"type":"settle","sent_at":8,"at":9,{about},"accepted":true,"fates":[{{{},"fate":"done"}},{{{},"fate":"done"}}],"cause":"done"}}"#,
        id(1),
        id(2)
    );
    let losses = |tag: &str, start: &str| {
        let (first, second) = (push(1, "t"), push(2, tag));
        let end = r#"{"type":"final_end"}"#;
        let history = [&*first, &second, start, &settle, end].join("\n");
        check(&read(&history).unwrap()).violations(Judgement::Loss)
    };
    assert_eq!(losses("u", &start), 1);
    assert_eq!(losses("t", &start), 0, "it had merged into the other");
    assert_eq!(losses("u", ""), 0, "not every program records what it starts");
}

#[test]
fn a_refused_or_unanswered_outcome_explains_one_repeat_although_nobody_was_told_of_the_takeover() {
    let push = r#"{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged","job_id":"018bcfe5-6800-7000-8001-000000000001","status":"queued"}"#;
    let turn = |token: i64, accepted: bool| {
        let (start, end) = (token, token + 5);
        let about =
            format!(r#""queue":"q","key":"k","lane":"1-0-1","token":{token},"claimed_at":{start}"#);
        let job = r#""job_id":"018bcfe5-6800-7000-8001-000000000001""#;
        format!(
            "{{\"type\":\"start\",\"at\":{start},\"actor\":\"a\",{about},\"jobs\":[{{{job},\"score\":1.0,\"tag\":\"t\"}}]}}\n\
             {{\"type\":\"end\",\"at\":{end},\"lane\":\"1-0-1\",\"token\":{token}}}\n\
             {{\"type\":\"settle\",\"sent_at\":{end},\"at\":{end},{about},\"accepted\":{accepted},\"fates\":[{{{job},\"fate\":\"done\"}}],\"cause\":\"done\"}}"
        )
    };
    let repeats = |first: &str| {
        let history = [push, first, &turn(20, true), "{\"type\":\"final_end\"}"];
        check(&read(&history.join("\n")).unwrap()).violations(Judgement::Duplicate)
    };
    assert_eq!(repeats(&turn(10, false)), 0, "another node had taken it over");
    assert_eq!(repeats(&turn(10, true)), 1, "it was done");
    // The handler ended at 15, and no settle is recorded.
    let unsettled = |died: &str| {
        let turn = turn(10, true);
        let (turn, _) = turn.rsplit_once('\n').unwrap();
        repeats(&format!("{turn}\n{died}"))
    };
    let death = |at: i64| format!("{{\"type\":\"died\",\"at\":{at},\"actor\":\"a\"}}");
    assert_eq!(unsettled(&death(17)), 0, "its process died before it could settle");
    assert_eq!(unsettled(&death(30)), 1, "its process lived when the job ran again");
    let sent = |fate: &str| {
        format!(
            "{{\"type\":\"settling\",\"at\":15,\"queue\":\"q\",\"key\":\"k\",\"lane\":\"1-0-1\",\"token\":10,\"fates\":[{{\"job_id\":\"018bcfe5-6800-7000-8001-000000000001\",\"fate\":\"{fate}\"}}]}}"
        )
    };
    assert_eq!(unsettled(&sent("done")), 0, "nobody knows whether its outcome was accepted");
}

/// One job that runs under token 10 from 10 on and under token 20 from 20 on, both times by "a": (overlaps, repeats that
/// nothing explains). The first settle is refused.
fn claimed_again(first_end: i64, between: &[&str]) -> (u64, u64) {
    let job = r#""job_id":"018bcfe5-6800-7000-8001-000000000001""#;
    let push = format!(
        r#"{{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"t","result":"acknowledged",{job},"status":"queued"}}"#
    );
    let turn = |token: i64, end: i64, accepted: bool| {
        let about =
            format!(r#""queue":"q","key":"k","lane":"1-0-1","token":{token},"claimed_at":{token}"#);
        [
            format!(
                r#"{{"type":"start","at":{token},"actor":"a",{about},"jobs":[{{{job},"score":1.0,"tag":"t"}}]}}"#
            ),
            format!(r#"{{"type":"end","at":{end},"lane":"1-0-1","token":{token}}}"#),
            format!(
                r#"{{"type":"settle","sent_at":{end},"at":{end},{about},"accepted":{accepted},"fates":[{{{job},"fate":"done"}}],"cause":"done"}}"#
            ),
        ]
    };
    let between = between.iter().map(|line| (*line).to_owned());
    let end = "{\"type\":\"final_end\"}".to_owned();
    let turns = turn(10, first_end, false).into_iter().chain(turn(20, 40, true));
    let lines: Vec<String> = [push].into_iter().chain(between).chain(turns).chain([end]).collect();
    let report = check(&read(&lines.join("\n")).unwrap());
    (report.violations(Judgement::Overlap), report.violations(Judgement::Duplicate))
}

#[test]
fn a_key_that_is_claimed_again_under_a_new_token_before_its_lease_can_have_expired_overlaps() {
    let lease = |at: i64, node: &str, until: i64| {
        format!(r#"{{"type":"lease","at":{at},"actor":"a","node":"{node}","until":{until}}}"#)
    };
    assert_eq!(claimed_again(30, &[]), (0, 0), "nothing is known of its lease");
    assert_eq!(claimed_again(30, &[&lease(5, "a", 100)]), (1, 1));
    assert_eq!(claimed_again(15, &[&lease(5, "a", 100)]), (0, 1), "it had ended, and runs again");
    assert_eq!(claimed_again(30, &[&lease(5, "a", 20)]), (0, 0), "it may have expired");
    assert_eq!(claimed_again(30, &[&lease(5, "a", 15), &lease(14, "a", 24)]), (1, 1), "extended");
    assert_eq!(claimed_again(30, &[&lease(5, "a", 15), &lease(16, "a", 99)]), (0, 0), "too late");
    assert_eq!(
        claimed_again(30, &[&lease(5, "a", 15), &lease(14, "b", 24)]),
        (0, 0),
        "declared dead"
    );
    let other = lease(5, "a", 100).replace("\"actor\":\"a\"", "\"actor\":\"b\"");
    assert_eq!(claimed_again(30, &[&other]), (0, 0), "of another process");
    let taken = r#"{"type":"rescue","at":19,"queue":"q","key":"k","lane":"1-0-1","token":15,"job_id":null}"#;
    assert_eq!(claimed_again(30, &[&lease(5, "a", 100), taken]).0, 0, "its process was gone");
    let alive = [&*lease(5, "a", 100), &lease(25, "a", 120), taken];
    assert_eq!(claimed_again(30, &alive).0, 1, "its process lived");
    let released = taken.replace("\"job_id\"", "\"by_person\":true,\"job_id\"");
    assert_eq!(claimed_again(30, &[alive[0], alive[1], &released]), (0, 0), "by a person");
}

#[test]
fn without_recorded_pushes_nothing_is_called_invented() {
    let start = r#"{"type":"start","at":5,"actor":"a","queue":"q","key":"k","lane":"1-0-1","token":7,"claimed_at":4,"jobs":[{"job_id":"018bcfe5-6800-7000-8001-000000000001","score":1.0,"tag":"t"}]}"#;
    let judged = |history: &str| {
        let mut read = History::new();
        read.read(history.as_bytes(), "h").unwrap();
        check(&read)
    };
    let report = judged(start);
    assert!(report.is_unbroken() && !report.is_clean(), "{report}");
    let line = "never pushed                     0   not judged: no pushes recorded";
    assert!(report.to_string().contains(line), "{report}");
    // As soon as one push is known, the others are missing.
    let push = r#"{"type":"push","sent_at":1,"at":2,"queue":"q","key":"k","score":1.0,"tag":"other","result":"acknowledged","job_id":"018bcfe5-6800-7000-8001-000000000002","status":"queued"}"#;
    let report = judged(&format!("{push}\n{start}"));
    assert_eq!(report.violations(Judgement::Phantom), 1, "{report}");
    // The order within one turn is still judged.
    let swapped = start.replace(
        r#""jobs":["#,
        r#""jobs":[{"job_id":"018bcfe5-6800-7000-8001-000000000003","score":2.0,"tag":"u"},"#,
    );
    let queue = r#"{"type":"queue","queue":"q","mode":"fifo","merge":"none"}"#;
    assert_eq!(judged(&format!("{queue}\n{swapped}")).violations(Judgement::Order), 1);
}

/// The violations of limits by turns of these keys, each with when its handler starts and its settle is sent; without, it is
/// taken over at 50.
fn exceeded(queue: &str, turns: &[(&str, i64, Option<i64>)]) -> u64 {
    let mut lines = vec![queue.to_owned()];
    for (i, (key, at, settled)) in (1..).zip(turns) {
        let about =
            format!(r#""queue":"q","key":"{key}","lane":"1-0-{i}","token":{i},"claimed_at":{at}"#);
        lines.push(format!(r#"{{"type":"start","at":{at},"actor":"a",{about},"jobs":[]}}"#));
        let settle = |sent_at: i64, about: &str| {
            format!(
                r#"{{"type":"settle","sent_at":{sent_at},"at":{sent_at},{about},"accepted":true,"fates":[],"cause":"done"}}"#
            )
        };
        lines.push(match settled {
            Some(sent_at) => settle(*sent_at, &about),
            None => settle(50, &about.replace("\"token\":", "\"token\":10")),
        });
    }
    check(&read(&lines.join("\n")).unwrap()).violations(Judgement::Limit)
}

#[test]
fn turns_count_from_their_start_until_their_claim_is_settled_by_whom_ever() {
    let queue = |limit: &str| format!(r#"{{"type":"queue","queue":"q","mode":"fifo",{limit}}}"#);
    let two = queue(r#""limit":{"running":2}"#);
    let three = [("x", 10, Some(20)), ("y", 11, Some(30)), ("z", 20, Some(40))];
    assert_eq!(exceeded(&two, &three), 0, "one ends when another starts");
    let three = [("x", 10, Some(21)), ("y", 11, Some(30)), ("z", 20, Some(40))];
    assert_eq!(exceeded(&two, &three), 1);
    assert_eq!(exceeded(&queue(r#""limit":{"running":3}"#), &three), 0);
    assert_eq!(
        exceeded(&format!("{two}\n{}", queue(r#""merge":"none""#)), &three),
        0,
        "it was removed"
    );
    let lost =
        |start: i64| exceeded(&two, &[("x", 10, None), ("y", 11, None), ("z", start, Some(60))]);
    assert_eq!((lost(50), lost(49)), (0, 1), "until it is taken over and settled");
    assert_eq!(exceeded(&queue(r#""groups":{"running":2}"#), &three), 1, "no group is one too");
    assert_eq!(exceeded(&queue(r#""groups":{"named":{"a":{"running":2}}}"#), &three), 0);
}

#[test]
fn turns_that_start_faster_than_the_rate_are_found() {
    let queue = r#"{"type":"queue","queue":"q","mode":"fifo","limit":{"rate":"1/s","burst":2}}"#;
    let at = |second: f64| ("k", (second * 1e6) as i64, Some((second * 1e6) as i64 + 1));
    let begin = [at(100.0), at(100.0), at(101.0), at(102.0)];
    assert_eq!(exceeded(queue, &begin), 0);
    assert_eq!(exceeded(queue, &[&begin[..], &[at(102.5)]].concat()), 1);
    assert_eq!(exceeded(queue, &[&begin[..], &[at(104.0), at(104.0)]].concat()), 0);
}

#[tokio::test]
async fn every_event_is_written_as_it_is_read() {
    let groups = Groups::each(Share::default().running(1));
    let queue = Queue::fifo("q").running(2).groups(groups).throttle(LEASE / 200);
    let mut world = World::new(Arc::new(Memory::new()), queue, 1).await;
    for _ in 0..300 {
        world.step().await;
    }
    world.history.add(Event::Died { at: 1, actor: "a".into() });
    world.history.add(Event::FinalEnd {});
    let mut kinds = BTreeSet::new();
    for event in world.history.events() {
        let text = serde_json::to_string(event).unwrap();
        assert_eq!(read(&text).unwrap().events(), std::slice::from_ref(event));
        kinds.extend(text.split('"').nth(3).map(str::to_owned));
    }
    assert!(kinds.len() >= 7, "{kinds:?}");
}

#[derive(Clone, Default)]
struct Written(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes whole lines, and counts them.
#[derive(Clone, Default)]
struct Whole(Arc<AtomicUsize>);

impl std::io::Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        assert!(bytes.starts_with(b"{") && bytes.ends_with(b"}\n"), "{bytes:?}");
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_event_is_one_write_so_that_processes_may_share_a_file() {
    let written = Whole::default();
    let recorder = Recorder::new("a", written.clone());
    recorder.died("b");
    recorder.queue(&Queue::fifo("q".repeat(100)));
    assert_eq!(written.0.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn pushes_of_an_observed_client_are_in_the_history() {
    let (store, written) = (Arc::new(Memory::new()), Written::default());
    let recorder = Recorder::new("pusher", written.clone());
    let client = seriatim::Client::observed(store, Arc::new(recorder));
    let jobs = (1..=2).map(|n| Job::new("q", &json!(n)).unwrap()).collect();
    let pushed = client.push_all(jobs).await.unwrap();
    // A refused one is there too, without an id.
    client.push(Job::new("q", &json!(3)).unwrap().key("k")).await.unwrap_err();
    let written = written.0.lock().unwrap().clone();
    let events: Vec<serde_json::Value> = written
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let told: Vec<_> = events
        .iter()
        .map(|event| (event["result"].as_str().unwrap(), event["job_id"].as_str()))
        .collect();
    let ids: Vec<String> = pushed.iter().map(|pushed| pushed.job_id.to_string()).collect();
    assert_eq!(
        told,
        [("acknowledged", Some(&*ids[0])), ("acknowledged", Some(&*ids[1])), ("refused", None)]
    );
}

#[test]
fn the_jobs_of_a_turn_may_start_one_after_the_other_and_not_side_by_side() {
    let job = |n: u32| {
        format!(
            r#"{{"job_id":"018bcfe5-6800-7000-8001-00000000000{n}","score":{n}.0,"tag":"t{n}"}}"#
        )
    };
    let start = |at: i64, actor: &str, n: u32| {
        let job = job(n);
        format!(
            r#"{{"type":"start","at":{at},"actor":"{actor}","queue":"q","key":"k","lane":"1-0-1","token":7,"claimed_at":4,"jobs":[{job}]}}"#
        )
    };
    let end = |at: i64| format!(r#"{{"type":"end","at":{at},"lane":"1-0-1","token":7}}"#);
    let queue = r#"{"type":"queue","queue":"q","mode":"fifo","merge":"none"}"#.to_owned();
    let judged = |events: &[String]| {
        let lines = [std::slice::from_ref(&queue), events].concat();
        let report = check(&read(&lines.join("\n")).unwrap());
        (report.violations(Judgement::Overlap), report.violations(Judgement::Order))
    };
    let [first, second] = [start(5, "a", 1), start(6, "a", 2)];
    assert_eq!(judged(&[first.clone(), end(6), second.clone(), end(9)]), (0, 0));
    let swapped = [start(5, "a", 2), end(6), start(6, "a", 1), end(9)];
    assert_eq!(judged(&swapped), (0, 1), "turned round");
    assert!(judged(&[first.clone(), second, end(9)]).0 > 0, "side by side");
    assert!(judged(&[first.clone(), end(6), start(6, "a", 1), end(9)]).0 > 0, "twice");
    assert!(judged(&[first, end(6), start(6, "b", 2), end(9)]).0 > 0, "elsewhere");
}
