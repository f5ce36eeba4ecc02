//! Pushing.

use std::time::Duration;

use serde_json::json;
use seriatim::store::PushStatus::{Duplicate, Merged, Queued};
use seriatim::store::{Claim, Declaration, Declare, LaneAction, LaneSelection, Past, QueueStats};
use seriatim::{Backoff, DueRule, ErrorKind, Job, Merge, Mode, Payload, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        n7_a_pushed_job_is_queued_and_known_by_its_id,
        an_undeclared_push_creates_the_queue_that_its_key_implies,
        a_key_must_fit_the_mode,
        a_backoff_is_no_longer_than_a_delay_may_be,
        one_invalid_job_refuses_the_whole_batch,
        each_wrong_field_is_named,
        l4_equal_payloads_merge_to_the_least_score,
        equal_payloads_merge_to_the_greatest_score_when_asked,
        equal_payloads_are_kept_apart_when_asked,
        payloads_are_equal_however_their_fields_are_ordered,
        integers_beyond_64_bits_and_nul_characters_are_compared_and_kept_exactly,
        another_task_is_another_payload,
        fifo_and_exclusive_keep_equal_payloads_apart,
        a_payload_equal_to_one_in_flight_waits_for_the_next_turn,
        a_merge_keeps_due_and_takes_the_sooner_priority,
        later_pushes_do_not_move_the_due_time_of_a_lane,
        the_earliest_push_sets_the_due_time_when_asked,
        d2_a_repeated_idempotency_key_returns_the_first_job,
        an_idempotency_key_is_scoped_by_queue_and_key,
        an_idempotency_key_is_forgotten_after_its_time,
        a_forgotten_idempotency_key_excuses_no_other_node,
        a_large_batch_arrives_in_order,
        a_contradicting_definition_is_refused,
        an_undeclared_queue_may_be_declared_while_nothing_runs,
        a_declared_queue_keeps_its_definition_when_only_new_ones_are_declared,
        a_queue_that_changes_its_mode_takes_its_jobs_in_order_of_arrival,
        a_queue_that_changes_its_mode_keeps_what_is_scheduled,
        what_was_pushed_before_a_queue_was_declared_as_fifo_runs_before_later_jobs,
        a_key_that_was_paused_before_its_queue_was_declared_stays_paused,
        what_becomes_of_a_declaration_is_foretold,
        who_declares_a_queue_claims_nothing_from_one_that_a_push_made,
        a_store_that_is_set_up_passes_its_check,
    ]
}

async fn n7_a_pushed_job_is_queued_and_known_by_its_id(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let pushed = bench.push(loose("a").task("sync").priority(7).score(3.5)).await;
    assert_eq!(pushed.status, Queued);
    let job = bench.job(pushed.job_id).await;
    assert_eq!((job.state, &*job.queue, job.key), (seriatim::store::JobState::Queued, "q", None));
    assert_eq!((job.task.as_deref(), job.priority, job.score), (Some("sync"), 7, 3.5));
    assert_eq!((job.created_at, job.run_at, job.attempt), (bench.now, bench.now, 0));
    assert_eq!(job.payload.to_value(), json!({ "tag": "a" }));
    assert_eq!(pushed.job_id.to_string().as_bytes()[14], b'7', "it is a UUIDv7");
}

async fn an_undeclared_push_creates_the_queue_that_its_key_implies(mut bench: Bench) {
    bench.push(Job::new("loose", &1).unwrap()).await;
    bench.push(Job::new("keyed", &1).unwrap().key("k")).await;
    let queues = bench.store.queues().await.unwrap();
    let modes: Vec<_> =
        queues.iter().map(|q| (q.queue.name.as_str(), q.queue.mode, q.declared)).collect();
    assert_eq!(modes, [("keyed", Mode::Exclusive, false), ("loose", Mode::Parallel, false)]);
}

async fn a_backoff_is_no_longer_than_a_delay_may_be(mut bench: Bench) {
    let endless = Backoff::Exponential { base: WAIT, cap: Duration::MAX, jitter: 0 };
    let refusal = bench.try_declare(Queue::parallel("q").backoff(endless)).await;
    refused(refusal, ErrorKind::Invalid, "queues[0].backoff");
    let mut job = loose("a");
    job.options.backoff = Some(endless);
    refused(bench.try_push(vec![job]).await, ErrorKind::Invalid, "jobs[0].backoff");
}

async fn a_key_must_fit_the_mode(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    refused(bench.try_push(vec![job("a")]).await, ErrorKind::Invalid, "jobs[0].key");
    bench.declare(Queue::fifo("f")).await;
    let keyless = Job::new("f", &1).unwrap();
    let keyed = keyless.clone().key("k");
    refused(bench.try_push(vec![keyed, keyless]).await, ErrorKind::Invalid, "jobs[1].key");
    let queued: u64 =
        bench.store.stats(Some(bench.now)).await.unwrap().iter().map(|q| q.jobs).sum();
    assert_eq!(queued, 0, "nothing of a refused batch is pushed");
}

async fn one_invalid_job_refuses_the_whole_batch(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let bad = job("b").score(f64::NAN);
    refused(bench.try_push(vec![job("a"), bad]).await, ErrorKind::Invalid, "jobs[1].score");
    assert_eq!(bench.nothing().await, None);
    assert_eq!(bench.stats().await.jobs, 0);
}

async fn each_wrong_field_is_named(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let large = Payload::from_bytes(vec![b'1'; seriatim::limits::PAYLOAD_BYTES_MAX + 1]);
    let wrong = [
        ("queue", Job::new("no spaces", &1).unwrap()),
        ("key", loose("a").key("")),
        ("key", loose("a").key("k".repeat(5_000))),
        ("key", loose("a").key("nul\0")),
        ("score", job("a").score(f64::INFINITY)),
        ("priority", job("a").priority(40_000)),
        ("delay", job("a").run_in(Duration::from_secs(1 << 40))),
        ("run_at", job("a").run_at(seriatim::Timestamp::from_micros(-1))),
        ("task", job("a").task("")),
        ("payload", Job::with_payload("q", large).key("k")),
    ];
    for (field, job) in wrong {
        let at = format!("jobs[0].{field}");
        refused(bench.try_push(vec![job]).await, ErrorKind::Invalid, &at);
    }
    assert_eq!(bench.stats().await.jobs, 0);
}

async fn l4_equal_payloads_merge_to_the_least_score(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let first = bench.push_all(vec![job("v1").score(1.0), job("v2").score(2.0)]).await;
    let second = bench.push_all(vec![job("v2").score(3.0), job("v3").score(4.0)]).await;
    assert_eq!((second[0].status, second[0].job_id), (Merged, first[1].job_id));
    let lower = bench.push(job("v3").score(-5.0)).await;
    assert_eq!((lower.status, lower.job_id), (Merged, second[1].job_id));
    let turn = bench.one().await;
    let scores: Vec<f64> = turn.jobs.iter().map(|job| job.score).collect();
    assert_eq!(
        (tags(&turn), scores),
        (vec!["v3".into(), "v1".into(), "v2".into()], vec![-5.0, 1.0, 2.0])
    );
}

async fn integers_beyond_64_bits_and_nul_characters_are_compared_and_kept_exactly(
    mut bench: Bench,
) {
    bench.queue(Mode::Accumulate).await;
    let texts = [
        r#"{"id":123456789012345678901234567890}"#,
        r#"{"id":123456789012345678901234567891}"#,
        r#"{"id":"a\u0000b"}"#,
        r#"{"id":"a\u0000c"}"#,
    ];
    let mut ids = Vec::new();
    for (score, text) in texts.iter().enumerate() {
        let mut job = job("").score(score as f64);
        job.payload = Payload::from_json_text(text).unwrap();
        let pushed = bench.push(job.clone()).await;
        assert_eq!(pushed.status, Queued, "{text}");
        assert_eq!(bench.push(job).await.status, Merged, "{text}");
        ids.push(pushed.job_id);
    }
    let turn = bench.one().await;
    for (job, (id, text)) in turn.jobs.iter().zip(ids.iter().zip(texts)) {
        assert_eq!((job.id, job.payload.as_bytes()), (*id, text.as_bytes()));
    }
    assert_eq!(turn.jobs.len(), texts.len());
}

async fn equal_payloads_merge_to_the_greatest_score_when_asked(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").merge(Merge::Max)).await;
    let jobs = [("open", 1.0), ("closed", 2.0), ("open", 3.0)];
    bench.push_all(jobs.map(|(tag, score)| job(tag).score(score)).to_vec()).await;
    assert_eq!(tags(&bench.one().await), ["closed", "open"], "the last state wins");
}

async fn equal_payloads_are_kept_apart_when_asked(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").merge(Merge::None)).await;
    let jobs = [("open", 1.0), ("closed", 2.0), ("open", 3.0)];
    bench.push_all(jobs.map(|(tag, score)| job(tag).score(score)).to_vec()).await;
    assert_eq!(tags(&bench.one().await), ["open", "closed", "open"]);
}

async fn payloads_are_equal_however_their_fields_are_ordered(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let texts = [r#"{"a":1,"b":{"c":2,"d":3}}"#, r#"{ "b": {"d":3, "c":2}, "a": 1 }"#];
    let jobs = texts.map(|t| Job::with_payload("q", Payload::from_json_text(t).unwrap()).key("k"));
    let pushed = bench.push_all(jobs.to_vec()).await;
    assert_eq!(pushed[1].status, Merged);
}

async fn another_task_is_another_payload(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let pushed = bench.push_all(vec![job("a").task("x"), job("a").task("y"), job("a")]).await;
    assert!(pushed.iter().all(|pushed| pushed.status == Queued));
}

async fn fifo_and_exclusive_keep_equal_payloads_apart(mut bench: Bench) {
    for mode in [Mode::Fifo, Mode::Exclusive] {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let job = Job::new(mode.as_str(), &1).unwrap().key("k");
        let pushed = bench.push_all(vec![job.clone(), job]).await;
        assert!(pushed.iter().all(|pushed| pushed.status == Queued));
        assert_ne!(pushed[0].job_id, pushed[1].job_id);
    }
}

async fn a_payload_equal_to_one_in_flight_waits_for_the_next_turn(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let first = bench.push(job("v1").score(1.0)).await;
    let turn = bench.one().await;
    let second = bench.push(job("v1").score(2.0)).await;
    assert_eq!(second.status, Queued);
    assert_ne!(second.job_id, first.job_id);
    bench.done(&turn).await;
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.jobs[0].id), (vec!["v1".to_owned()], second.job_id));
}

async fn a_merge_keeps_due_and_takes_the_sooner_priority(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let due = bench.now + WAIT;
    bench.push(job("a").run_at(due).priority(50)).await;
    bench.push(job("a").priority(20)).await;
    bench.push(job("a").priority(90)).await;
    assert_eq!(bench.nothing().await, Some(due));
    bench.pass(WAIT);
    assert_eq!(bench.one().await.jobs[0].priority, 20);
}

async fn later_pushes_do_not_move_the_due_time_of_a_lane(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let due = bench.now + WAIT;
    bench.push(job("a").run_at(due)).await;
    bench.push(job("b")).await;
    bench.push(job("c").run_at(due + WAIT)).await;
    assert_eq!(bench.nothing().await, Some(due));
    bench.pass(WAIT);
    assert_eq!(bench.one().await.jobs.len(), 3, "all that waits is handed over");
}

async fn the_earliest_push_sets_the_due_time_when_asked(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").due(DueRule::Earliest)).await;
    let due = bench.now + WAIT;
    bench.push(job("a").run_at(due + WAIT)).await;
    bench.push(job("b").run_at(due)).await;
    assert_eq!(bench.nothing().await, Some(due));
    bench.push(job("c")).await;
    assert_eq!(bench.one().await.jobs.len(), 3);
}

async fn d2_a_repeated_idempotency_key_returns_the_first_job(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    let first = bench.push(job("a").idempotency_key("i")).await;
    let again = bench.push(job("b").idempotency_key("i")).await;
    assert_eq!((again.status, again.job_id), (Duplicate, first.job_id));
    let turn = bench.one().await;
    assert_eq!(bench.push(job("c").idempotency_key("i")).await.job_id, first.job_id);
    bench.done(&turn).await;
    assert_eq!(bench.push(job("d").idempotency_key("i")).await.job_id, first.job_id);
    bench.nothing().await;
    let both = vec![job("e").idempotency_key("j"), job("f").idempotency_key("j")];
    let both = bench.push_all(both).await;
    assert_eq!((both[1].status, both[1].job_id), (Duplicate, both[0].job_id));
}

async fn an_idempotency_key_is_scoped_by_queue_and_key(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.declare(Queue::exclusive("other")).await;
    let same = |queue: &str, key: &str| Job::new(queue, &1).unwrap().key(key).idempotency_key("i");
    let jobs = vec![same("q", "a"), same("q", "b"), same("other", "a"), same("q", "a")];
    let statuses: Vec<_> = bench.push_all(jobs).await.iter().map(|p| p.status).collect();
    assert_eq!(statuses, [Queued, Queued, Queued, Duplicate]);
}

async fn an_idempotency_key_is_forgotten_after_its_time(mut bench: Bench) {
    let mut queue = Queue::fifo("q");
    queue.idempotency_ttl = WAIT;
    bench.declare(queue).await;
    bench.push(job("a").idempotency_key("i")).await;
    bench.pass(WAIT);
    let known = bench.push(job("b").idempotency_key("i")).await;
    assert_eq!(known.status, Duplicate, "the job is still there");
    let turn = bench.one().await;
    bench.done(&turn).await;
    assert_eq!(bench.push(job("c").idempotency_key("i")).await.status, Queued);
}

async fn a_forgotten_idempotency_key_excuses_no_other_node(mut bench: Bench) {
    let mut queue = Queue::fifo("q");
    queue.idempotency_ttl = WAIT;
    bench.declare(queue).await;
    bench.push(job("a").idempotency_key("i")).await;
    let turn = bench.one().await;
    bench.done(&turn).await;
    bench.push(job("b").node("n1")).await;
    let other = || vec![job("c").node("n2").idempotency_key("i")];
    assert_eq!(bench.push_all(other()).await[0].status, Duplicate);
    bench.pass(WAIT);
    refused(bench.try_push(other()).await, ErrorKind::Conflict, "jobs[0].key");
}

async fn a_large_batch_arrives_in_order(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let jobs: Vec<Job> = (0..500).map(|i| job(&i.to_string())).collect();
    bench.push_all(jobs).await;
    for i in 0..20 {
        let turn = bench.one().await;
        assert_eq!(tags(&turn), [i.to_string()]);
        bench.done(&turn).await;
    }
}

async fn a_contradicting_definition_is_refused(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a")).await;
    let fifo = bench.try_declare(Queue::fifo("q")).await;
    refused(fifo, ErrorKind::Conflict, "queues[0].mode");
    let max = bench.try_declare(Queue::accumulate("q").merge(Merge::Max)).await;
    refused(max, ErrorKind::Conflict, "queues[0].mode");
    bench.declare(Queue::accumulate("q").batch_size(7)).await;
    assert_eq!(bench.store.queues().await.unwrap()[0].queue.batch_size, 7);
    let turn = bench.one().await;
    bench.done(&turn).await;
    bench.declare(Queue::fifo("q")).await;
    let invalid = bench.try_declare(Queue::parallel("q").take(3)).await;
    refused(invalid, ErrorKind::Invalid, "queues[0].take");
}

async fn an_undeclared_queue_may_be_declared_while_nothing_runs(mut bench: Bench) {
    bench.push_all(vec![job("b").score(2.0), job("a").score(1.0), job("b").score(0.5)]).await;
    let turn = bench.one().await;
    let refusal = bench.try_declare(Queue::accumulate("q")).await;
    refused(refusal, ErrorKind::Conflict, "queues[0].mode");
    let released = bench.planned(&turn, seriatim::Outcome::Release);
    bench.settle(vec![released]).await;
    bench.declare(Queue::accumulate("q")).await;
    assert_eq!(tags(&bench.one().await), ["b", "a"], "merged and in order of score");
}

async fn a_queue_that_changes_its_mode_takes_its_jobs_in_order_of_arrival(mut bench: Bench) {
    bench.push(job("first")).await;
    let past = Past { created_at: Some(bench.now - WAIT), ..Past::default() };
    bench.push(job("older, from elsewhere").run_in(WAIT).past(past)).await;
    bench.declare(Queue::accumulate("q")).await;
    assert_eq!(bench.one().await.jobs.len(), 2, "due with the first that arrived");
}

async fn what_was_pushed_before_a_queue_was_declared_as_fifo_runs_before_later_jobs(
    mut bench: Bench,
) {
    bench.push_all(vec![job("first"), job("second")]).await;
    bench.pass(WAIT);
    bench.declare(Queue::fifo("q")).await;
    bench.push(job("third")).await;
    for tag in ["first", "second", "third"] {
        let turn = bench.one().await;
        assert_eq!(tags(&turn), [tag]);
        bench.done(&turn).await;
    }
}

async fn a_key_that_was_paused_before_its_queue_was_declared_stays_paused(mut bench: Bench) {
    bench.push_all(vec![job("paused"), loose("free").key("other")]).await;
    bench.act(LaneSelection::Key("k".into()), LaneAction::Pause).await;
    bench.declare(Queue::fifo("q")).await;
    assert_eq!(tags(&bench.one().await), ["free"]);
    bench.nothing().await;
    bench.act(LaneSelection::Key("k".into()), LaneAction::Resume).await;
    assert_eq!(tags(&bench.one().await), ["paused"]);
}

async fn a_queue_that_changes_its_mode_keeps_what_is_scheduled(mut bench: Bench) {
    bench.push(job("later").run_in(WAIT)).await;
    bench.declare(Queue::fifo("q")).await;
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT));
    bench.pass(WAIT);
    assert_eq!(tags(&bench.one().await), ["later"]);
}

async fn a_declared_queue_keeps_its_definition_when_only_new_ones_are_declared(mut bench: Bench) {
    let declared = Queue::fifo("declared").max_retries(1);
    bench.declare(declared.clone()).await;
    bench.push(Job::new("pushed", &1).unwrap().key("k")).await;
    bench.push(Job::new("same", &1).unwrap().key("k")).await;
    let new = [
        Queue::accumulate("declared"),
        Queue::fifo("pushed").max_retries(2),
        Queue::exclusive("same"),
        Queue::parallel("unknown").max_retries(2),
    ];
    let others = new.clone().map(|queue| queue.max_retries(3));
    // The second time there is none that is new.
    for queues in [new.clone(), others] {
        let request = Declare { now: Some(bench.now), queues: queues.into() };
        bench.store.declare_new(request).await.unwrap();
    }
    let views = bench.store.queues().await.unwrap().into_iter();
    let views: Vec<(Queue, bool)> = views.map(|view| (view.queue, view.declared)).collect();
    let [_, pushed, same, unknown] = new.map(|queue| (queue, true));
    assert_eq!(views, [(declared, true), pushed, same, unknown]);
    let request = Claim { queue: "pushed".into(), declared: true, ..bench.claim_request("q", 10) };
    assert_eq!(bench.claimed(request).await.turns.len(), 1, "its job was kept");
    bench.push(Job::new("keyed", &1).unwrap().key("k")).await;
    // Also of one that keeps its definition.
    let invalid = ["loose", "declared"].map(|name| (Queue::parallel(name).take(3), "take"));
    for (queue, field) in invalid.into_iter().chain([(Queue::parallel("keyed"), "mode")]) {
        let kind = if field == "mode" { ErrorKind::Conflict } else { ErrorKind::Invalid };
        let request = Declare { now: None, queues: vec![Queue::fifo("declared"), queue] };
        refused(bench.store.declare_new(request).await, kind, &format!("queues[1].{field}"));
    }
}

/// A queue as a push created it (`None`) or as declared: empty, with jobs, or with a running one.
async fn queue_in(bench: &mut Bench, name: &str, declared: Option<Mode>, keyed: bool, jobs: u8) {
    if let Some(mode) = declared {
        bench.declare(Queue::new(name, mode)).await;
    }
    let job = Job::new(name, &1).unwrap();
    bench.push(if keyed { job.key("k") } else { job }).await;
    if jobs == 1 {
        return;
    }
    let turn = bench.claimed(bench.claim_request(name, 1)).await.turns.remove(0);
    if jobs == 0 {
        bench.done(&turn).await;
    }
}

async fn what_becomes_of_a_declaration_is_foretold(mut bench: Bench) {
    let mut fates = std::collections::BTreeSet::new();
    for (i, declared) in [None, Some(Mode::Parallel), Some(Mode::Exclusive), Some(Mode::Fifo)]
        .into_iter()
        .enumerate()
    {
        for keyed in [false, true] {
            if declared.is_some_and(|mode| mode.is_keyed() != keyed) {
                continue;
            }
            for jobs in 0..=2 {
                for mode in [Mode::Parallel, Mode::Fifo] {
                    let name = format!("{i}-{keyed}-{jobs}-{mode}");
                    queue_in(&mut bench, &name, declared, keyed, jobs).await;
                    let views = bench.store.queues().await.unwrap();
                    let view = views.iter().find(|view| view.queue.name == name);
                    let stats = bench.store.stats(Some(bench.now)).await.unwrap();
                    let stats = stats.iter().find(|stats| *stats.queue == *name);
                    let queue = Queue::new(name.as_str(), mode);
                    let foretold = Declaration::of(&queue, view, stats);
                    let done = bench.try_declare(queue.clone()).await;
                    let about = format!("{name}: {foretold:?}, {done:?}");
                    assert_eq!(foretold.is_taken(), done.is_ok(), "{about}");
                    let says = match foretold {
                        Declaration::Waits => "as soon as none of its jobs runs",
                        Declaration::Stuck => "delete them with",
                        Declaration::Refused => "drain it, or declare it as it is",
                        _ => "",
                    };
                    assert!(done.err().is_none_or(|e| e.message().contains(says)), "{about}");
                    fates.insert(format!("{foretold:?}"));
                    let views = bench.store.queues().await.unwrap();
                    let view = views.iter().find(|view| view.queue.name == name);
                    let after = Declaration::of(&queue, view, Some(&QueueStats::default()));
                    assert_eq!(after == Declaration::Kept, foretold.is_taken(), "{about}");
                }
            }
        }
    }
    assert_eq!(fates.len(), 6, "all but Created: {fates:?}");
    let new = Queue::parallel("new");
    assert_eq!(Declaration::of(&new, None, None), Declaration::Created);
}

async fn who_declares_a_queue_claims_nothing_from_one_that_a_push_made(mut bench: Bench) {
    let request = |bench: &Bench| Claim { declared: true, ..bench.claim_request("q", 1) };
    refused(bench.store.claim(request(&bench)).await, ErrorKind::NotFound, "queue");
    bench.push(job("a")).await;
    refused(bench.store.claim(request(&bench)).await, ErrorKind::NotFound, "queue");
    bench.queue(Mode::Fifo).await;
    assert_eq!(bench.claimed(request(&bench)).await.turns.len(), 1);
}

async fn a_store_that_is_set_up_passes_its_check(bench: Bench) {
    bench.store.check().await.unwrap();
}
