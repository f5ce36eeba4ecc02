//! Which lanes and jobs a claim takes.

use std::time::Duration;

use seriatim::store::{Claim, Lease};
use seriatim::{ErrorKind, Job, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        l1_d7_a_busy_key_cannot_be_claimed,
        a_key_stands_in_a_batch_once,
        l2_lanes_are_taken_by_priority_then_due_then_age,
        s3_a_scheduled_job_is_not_claimed_before_its_time,
        a_scheduled_lane_keeps_its_priority_when_it_falls_due,
        l3_accumulate_hands_over_all_that_waits_by_score,
        negative_and_equal_scores_are_ordered,
        fifo_hands_over_one_by_score_then_arrival,
        fifo_takes_several_when_asked,
        fifo_with_a_head_in_the_future_waits,
        d7_exclusive_takes_the_best_due_job,
        exclusive_prefers_a_job_that_falls_due_later_but_is_more_urgent,
        a_turn_stops_at_another_task,
        a_turn_stops_at_its_limit_of_jobs,
        what_a_turn_left_is_due_at_once_after_it,
        tokens_grow_for_a_key_even_when_its_lane_was_gone,
        a_job_for_a_node_is_claimed_by_that_node_only,
        d13_a_job_for_a_group_is_claimed_by_its_members_only,
        a_key_goes_to_one_place_only,
        an_unknown_node_may_not_claim,
        crashed_lanes_are_taken_up_to_their_limit,
        a_claim_ends_before_the_turn_that_exceeds_its_bytes,
        d6_many_priorities_and_scheduled_lanes_do_not_hide_what_is_due,
        due_answers_for_all_queues_at_once,
    ]
}

async fn l1_d7_a_busy_key_cannot_be_claimed(mut bench: Bench) {
    for mode in [Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let push = |tag: &str| Job::new(mode.as_str(), &tag).unwrap().key("k");
        bench.push(push("a")).await;
        let request = bench.claim_request(mode.as_str(), 10);
        let first = bench.claimed(request.clone()).await.turns;
        assert_eq!(first.len(), 1);
        bench.push_all(vec![push("b"), push("c")]).await;
        let second = bench.claimed(request.clone()).await;
        assert_eq!(second.turns, [], "{mode}");
        assert_eq!(second.next_due, None, "{mode}: only the settle can change that");
        bench.done(&first[0]).await;
        assert_eq!(bench.claimed(request).await.turns.len(), 1, "{mode}");
    }
}

async fn a_key_stands_in_a_batch_once(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let jobs = (0..6).map(|i| loose(&i.to_string()).key(format!("k{}", i % 2))).collect();
    bench.push_all(jobs).await;
    let turns = bench.claim(10).await;
    assert_eq!(keys(&turns), ["k0", "k1"]);
}

async fn l2_lanes_are_taken_by_priority_then_due_then_age(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let early = bench.now - Duration::from_secs(5);
    let jobs = vec![
        loose("d").priority(200),
        loose("b"),
        loose("c"),
        loose("a").run_at(early),
        loose("first").priority(0),
        loose("last").priority(200),
    ];
    bench.push_all(jobs).await;
    let turns = bench.claim(10).await;
    let order: Vec<String> = turns.iter().flat_map(tags).collect();
    assert_eq!(order, ["first", "a", "b", "c", "d", "last"]);
}

async fn s3_a_scheduled_job_is_not_claimed_before_its_time(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let due = bench.now + WAIT;
    bench.push_all(vec![loose("later").run_in(WAIT * 2), loose("soon").run_at(due)]).await;
    assert_eq!(bench.nothing().await, Some(due));
    bench.pass(Duration::from_micros(9_999_999));
    bench.nothing().await;
    bench.pass(Duration::from_micros(1));
    assert_eq!(tags(&bench.one().await), ["soon"]);
    assert_eq!(bench.nothing().await, Some(due + WAIT));
}

async fn a_scheduled_lane_keeps_its_priority_when_it_falls_due(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(vec![loose("urgent").run_in(WAIT).priority(1), loose("usual")]).await;
    bench.pass(WAIT);
    let order: Vec<String> = bench.claim(10).await.iter().flat_map(tags).collect();
    assert_eq!(order, ["urgent", "usual"]);
}

async fn l3_accumulate_hands_over_all_that_waits_by_score(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = [("c", 3.0), ("a", 1.0), ("b", 2.0)].map(|(tag, score)| job(tag).score(score));
    bench.push_all(jobs.to_vec()).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "b", "c"]);
    assert_eq!((turn.retry_count, turn.crashes, turn.attempt()), (-1, 0, 1));
    assert_eq!((turn.key.as_deref(), &*turn.queue, turn.claimed_at), (Some("k"), "q", bench.now));
}

async fn negative_and_equal_scores_are_ordered(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let scores = [0.0, -0.0, 1e-310, -1e-310, -7.5, 1e300, -1e300, 0.1, 0.1];
    let jobs = scores.iter().enumerate().map(|(i, s)| job(&format!("{i}")).score(*s)).collect();
    bench.push_all(jobs).await;
    assert_eq!(tags(&bench.one().await), ["6", "4", "3", "0", "1", "2", "7", "8", "5"]);
}

async fn fifo_hands_over_one_by_score_then_arrival(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("b"), job("c"), job("d").score(1.0), job("a").score(-1.0)]).await;
    for expected in ["a", "b", "c", "d"] {
        let turn = bench.one().await;
        assert_eq!(tags(&turn), [expected]);
        bench.done(&turn).await;
    }
    bench.nothing().await;
}

async fn fifo_takes_several_when_asked(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(3)).await;
    bench.push_all(["a", "b", "c", "d"].map(job).to_vec()).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "b", "c"]);
    bench.push(job("before").score(-1.0)).await;
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["before", "d"]);
}

async fn fifo_with_a_head_in_the_future_waits(mut bench: Bench) {
    bench.declare(Queue::fifo("q").take(5)).await;
    let due = bench.now + WAIT;
    bench.push_all(vec![job("a").run_at(due), job("b")]).await;
    assert_eq!(bench.nothing().await, Some(due));
    bench.pass(WAIT);
    bench.push(job("c").run_in(WAIT)).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a", "b"], "it stops at a job that is not due");
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(due + WAIT));
}

async fn d7_exclusive_takes_the_best_due_job(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    let jobs = vec![
        job("usual"),
        job("future").priority(1).run_in(WAIT),
        job("urgent").priority(5),
        job("usual too"),
    ];
    bench.push_all(jobs).await;
    for expected in ["urgent", "usual", "usual too"] {
        let turn = bench.one().await;
        assert_eq!(tags(&turn), [expected]);
        bench.done(&turn).await;
    }
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT));
    bench.pass(WAIT);
    assert_eq!(tags(&bench.one().await), ["future"]);
}

async fn exclusive_prefers_a_job_that_falls_due_later_but_is_more_urgent(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.push_all(vec![job("usual"), job("urgent").priority(1).run_in(WAIT)]).await;
    bench.push(loose("other lane").key("z").priority(50)).await;
    bench.pass(WAIT);
    let turns = bench.claim(10).await;
    let order: Vec<String> = turns.iter().flat_map(tags).collect();
    assert_eq!(order, ["urgent", "other lane"]);
}

async fn a_turn_stops_at_another_task(mut bench: Bench) {
    for mode in [Mode::Accumulate, Mode::Fifo] {
        let queue = Queue::new(mode.as_str(), mode);
        bench.declare(if mode == Mode::Fifo { queue.take(9) } else { queue }).await;
        let push = |tag: i32, task: &str| {
            Job::new(mode.as_str(), &tag).unwrap().key("k").task(task).score(f64::from(tag))
        };
        let jobs = vec![push(1, "x"), push(2, "x"), push(3, "y"), push(4, "x")];
        bench.push_all(jobs).await;
        for (task, count) in [("x", 2), ("y", 1), ("x", 1)] {
            let request = bench.claim_request(mode.as_str(), 10);
            let turns = bench.claimed(request).await.turns;
            let turn = &turns[0];
            assert_eq!((turn.task().map(|t| &**t), turn.jobs.len()), (Some(task), count), "{mode}");
            bench.done(turn).await;
        }
    }
}

async fn a_turn_stops_at_its_limit_of_jobs(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let most = seriatim::limits::TURN_JOBS_MAX;
    for half in 0..2 {
        let numbers = half * 6_000..(half + 1) * 6_000;
        bench.push_all(numbers.map(|i| job(&i.to_string()).score(f64::from(i))).collect()).await;
    }
    let turn = bench.one().await;
    assert_eq!((turn.jobs.len(), tags(&turn)[0].as_str()), (most, "0"));
    bench.done(&turn).await;
    let turn = bench.one().await;
    assert_eq!((turn.jobs.len(), tags(&turn)[0].clone()), (12_000 - most, most.to_string()));
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, None);
}

async fn what_a_turn_left_is_due_at_once_after_it(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("a").task("x").score(1.0), job("b").task("y").score(2.0)]).await;
    let turn = bench.one().await;
    bench.push(job("c").task("y").score(3.0).run_in(WAIT)).await;
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["b", "c"], "what waited before sets the due time");
}

async fn tokens_grow_for_a_key_even_when_its_lane_was_gone(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let mut last = seriatim::store::Token(0);
    for i in 0..5 {
        bench.push(job(&i.to_string())).await;
        let turn = bench.one().await;
        assert!(turn.token > last && turn.token.0 <= seriatim::limits::TOKEN_MAX);
        last = turn.token;
        bench.done(&turn).await;
    }
}

async fn a_job_for_a_node_is_claimed_by_that_node_only(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new(mode.as_str(), mode)).await;
        let push = |tag: &str| {
            let job = Job::new(mode.as_str(), &tag).unwrap();
            if mode.is_keyed() { job.key(tag) } else { job }
        };
        bench.push_all(vec![push("bound").node("a"), push("free")]).await;
        let request = bench.claim_request(mode.as_str(), 10);
        let stranger = Claim { node_name: Some(arc("b")), ..request.clone() };
        let turns = bench.claimed(stranger).await.turns;
        assert_eq!(turns.len(), 1, "{mode}");
        assert_eq!(turns[0].jobs[0].payload.to_value(), "free", "{mode}");
        let bound = Claim { node_name: Some(arc("a")), ..request };
        let turns = bench.claimed(bound).await.turns;
        assert_eq!(turns[0].jobs[0].payload.to_value(), "bound", "{mode}");
    }
}

async fn d13_a_job_for_a_group_is_claimed_by_its_members_only(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let jobs =
        vec![loose("both").node("a").consumer_group("g"), loose("group").consumer_group("g")];
    bench.push_all(jobs).await;
    bench.nothing().await;
    let request = bench.claim_request("q", 10);
    let member = Claim { groups: vec![arc("f"), arc("g")], ..request };
    let turns = bench.claimed(member.clone()).await.turns;
    assert_eq!(turns.iter().flat_map(tags).collect::<Vec<_>>(), ["group"]);
    let right = Claim { node_name: Some(arc("a")), ..member };
    assert_eq!(
        bench.claimed(right).await.turns.iter().flat_map(tags).collect::<Vec<_>>(),
        ["both"]
    );
}

async fn a_key_goes_to_one_place_only(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a").node("here")).await;
    let wrong = vec![loose("x").key("z"), job("b").node("there")];
    refused(bench.try_push(wrong).await, ErrorKind::Conflict, "jobs[1].key");
    let wrong = vec![loose("x").key("z").node("n"), loose("y").key("z")];
    refused(bench.try_push(wrong).await, ErrorKind::Conflict, "jobs[1].key");
    bench.push(job("c").node("here")).await;
    assert_eq!(bench.stats().await.jobs, 2);
}

async fn an_unknown_node_may_not_claim(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    let request = Claim { node: "nobody".into(), ..bench.claim_request("q", 1) };
    let error = bench.store.claim(request).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::NodeGone, "{error}");
}

async fn crashed_lanes_are_taken_up_to_their_limit(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b", "c"].map(loose).to_vec()).await;
    for turn in bench.claim(2).await {
        bench.end(&turn, Outcome::Crash { error: "it died".into() }).await;
    }
    let request = Claim { crashed_max: 0, ..bench.claim_request("q", 10) };
    let turns = bench.claimed(request.clone()).await.turns;
    assert_eq!(turns.iter().flat_map(tags).collect::<Vec<_>>(), ["c"]);
    let one = Claim { crashed_max: 1, ..request };
    let turns = bench.claimed(one).await.turns;
    assert_eq!(
        (turns.iter().flat_map(tags).collect::<Vec<_>>(), turns[0].crashes),
        (vec!["a".to_owned()], 1)
    );
}

async fn a_claim_ends_before_the_turn_that_exceeds_its_bytes(mut bench: Bench) {
    for (mode, take) in [
        (Mode::Parallel, 1),
        (Mode::Accumulate, 1),
        (Mode::Fifo, 1),
        (Mode::Fifo, 3),
        (Mode::Exclusive, 1),
    ] {
        let name = format!("{mode}{take}");
        bench.declare(Queue::new(&name, mode).take(take)).await;
        // Each job counts 2,000 bytes, including its quotes; for a key with three jobs a turn takes one, or all.
        let job = |(i, key)| {
            let job = Job::new(&name, &format!("{i}{}", "x".repeat(1_485))).unwrap();
            if mode == Mode::Parallel { job } else { job.key(key) }
        };
        let keys = ["a", "b", "c", "c", "c", "d"];
        bench.push_all(keys.into_iter().enumerate().map(job).collect()).await;
        for kind in [Lease::Node { ttl: WAIT }, Lease::Own { ttl: WAIT }] {
            let within = |bench: &Bench, lanes_max: usize, bytes| Claim {
                bytes_max: Some(bytes),
                lease: kind,
                ..bench.claim_request(&name, lanes_max)
            };
            let claimed = bench.claimed(within(&bench, 10, 1_999)).await;
            assert_eq!((claimed.turns.len(), claimed.cut), (0, true), "{name}");
            assert!(claimed.next_due.is_some_and(|due| due <= bench.now), "{name}: {claimed:?}");
            let claimed = bench.claimed(within(&bench, 10, 5_999)).await;
            assert_eq!((claimed.turns.len(), claimed.cut), (2, true), "{name}");
            let third = bench.claimed(within(&bench, 1, 10_000)).await;
            let jobs = if mode == Mode::Accumulate || take == 3 { 3 } else { 1 };
            assert_eq!((third.turns[0].jobs.len(), third.cut), (jobs, false), "{name}");
            for turn in claimed.turns.iter().chain(&third.turns) {
                bench.end(turn, Outcome::Release).await;
            }
            let all = bench.claimed(within(&bench, 10, usize::MAX)).await;
            assert!(all.turns.len() > 2 && !all.cut, "{name}: {all:?}");
            for turn in &all.turns {
                bench.end(turn, Outcome::Release).await;
            }
        }
    }
}

async fn d6_many_priorities_and_scheduled_lanes_do_not_hide_what_is_due(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let jobs = (0..1_000).map(|i| loose(&i.to_string()).priority(i).run_in(WAIT)).collect();
    bench.push_all(jobs).await;
    bench.push_all(vec![loose("x").priority(999), loose("y").priority(500)]).await;
    let order: Vec<String> = bench.claim(10).await.iter().flat_map(tags).collect();
    assert_eq!(order, ["y", "x"]);
    bench.pass(WAIT);
    let order: Vec<String> = bench.claim(3).await.iter().flat_map(tags).collect();
    assert_eq!(order, ["0", "1", "2"]);
}

async fn due_answers_for_all_queues_at_once(mut bench: Bench) {
    let later = bench.now + WAIT;
    let push = |queue: &str| Job::new(queue, &1).unwrap();
    bench.push_all(vec![push("now"), push("later").run_at(later), push("now").run_at(later)]).await;
    bench.declare(Queue::parallel("empty")).await;
    let mut due = bench.store.due(vec![]).await.unwrap();
    due.sort_by(|a, b| a.queue.cmp(&b.queue));
    let due: Vec<_> = due.iter().map(|source| (&*source.queue, source.due)).collect();
    assert_eq!(due, [("empty", None), ("later", Some(later)), ("now", Some(bench.now))]);
    let some = vec![arc("later")];
    assert_eq!(bench.store.due(some).await.unwrap().len(), 1);
}
