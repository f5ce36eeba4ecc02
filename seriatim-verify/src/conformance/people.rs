//! Administrative actions and expiry: the morgue, pauses, actions, sweeping.

use std::time::Duration;

use seriatim::limits::LEAD_MAX;
use seriatim::store::*;
use seriatim::{ErrorKind, Job, Merge, Mode, Outcome, Queue, Timestamp};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_requeued_job_comes_back_as_it_was,
        a_requeued_job_belongs_to_no_earlier_claim,
        l4_a_requeued_payload_merges_with_one_that_waits,
        a_requeued_payload_merges_if_its_queue_merged_none_when_it_was_pushed,
        requeued_payloads_stay_apart_if_their_queue_merges_none_by_now,
        requeued_jobs_of_a_key_are_handed_over_if_their_queue_is_parallel_by_now,
        a_requeue_onto_a_claimed_lane_counts_as_an_arrival,
        requeue_and_bury_of_one_key_lose_nothing,
        dead_jobs_are_chosen_by_id_and_by_key,
        a_deleted_dead_job_is_unknown,
        a_paused_queue_hands_nothing_over,
        a_paused_lane_hands_nothing_over,
        a_lane_paused_while_it_runs_stays_so_afterwards,
        named_lanes_are_acted_on_at_once_and_those_of_other_queues_not_at_all,
        everything_can_be_made_due_now_in_order,
        however_many_jobs_of_an_exclusive_key_become_due_they_run_by_urgency,
        many_jobs_of_an_exclusive_key_can_be_made_due_now,
        a_held_lane_goes_on_when_resumed,
        what_has_failed_can_be_buried,
        l16_all_that_waits_for_a_failed_key_is_buried_or_deleted_in_accumulate,
        what_has_failed_can_be_deleted,
        a_long_key_that_failed_is_deleted_whole,
        actions_leave_running_turns_alone,
        a_job_can_be_rescheduled,
        a_job_that_is_rescheduled_behind_a_turn_is_due_at_its_time_after_it,
        a_job_that_is_rescheduled_behind_a_turn_holds_up_nothing_if_that_is_released,
        what_arrived_during_a_turn_and_has_left_makes_nothing_due,
        what_a_turn_left_and_has_left_too_makes_nothing_due,
        a_job_can_be_bound_to_another_node,
        a_waiting_job_can_be_deleted,
        n8_expired_jobs_are_swept,
        jobs_that_merge_while_their_queue_changes_its_mode_expire_once,
        a_job_that_was_tried_expires_no_more,
        a_job_that_was_only_claimed_still_expires,
        a_requeued_job_does_not_expire_even_if_it_died_untried,
        n8_finished_jobs_are_swept_after_their_retention,
        s6_n8_dead_jobs_are_swept_by_age_and_by_number,
        a_queue_may_keep_any_number_of_dead_jobs,
        a_sweep_has_a_limit_and_says_so,
        a_role_has_one_leader_at_a_time,
        a_command_reaches_its_node,
        an_unknown_queue_is_named,
    ]
}

async fn bury(bench: &mut Bench, turn: &seriatim::store::Turn) {
    assert!(bench.end(turn, Outcome::Bury { error: "hopeless".into() }).await.is_ok());
}

fn selected(bench: &Bench, which: Selection) -> Selected {
    Selected { now: Some(bench.now), queue: "q".into(), which }
}

async fn a_requeued_job_comes_back_as_it_was(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new("q", mode)).await;
        let job = if mode.is_keyed() { job("a") } else { loose("a") };
        let id = bench.push(job.score(7.5).priority(3).task("t")).await.job_id;
        let turn = bench.one().await;
        bury(&mut bench, &turn).await;
        bench.pass(WAIT);
        assert_eq!(bench.requeue_all().await, 1, "{mode}");
        assert_eq!(bench.requeue_all().await, 0, "{mode}: it is there no more");
        let turn = bench.one().await;
        let back = &turn.jobs[0];
        assert_eq!((back.id, back.score, back.priority), (id, 7.5, 3), "{mode}");
        assert_eq!((turn.retry_count, turn.crashes, turn.error.as_ref()), (-1, 0, None), "{mode}");
        assert_eq!((back.task.as_deref(), tags(&turn)), (Some("t"), vec!["a".into()]), "{mode}");
        bench.done(&turn).await;
        assert_eq!(bench.dead().await.len(), 0, "{mode}");
    }
}

async fn a_requeued_job_belongs_to_no_earlier_claim(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b", "c"].map(loose).to_vec()).await;
    let turns = bench.claim(3).await;
    bury(&mut bench, &turns[0]).await;
    assert_eq!(bench.requeue_all().await, 1);
    let again = bench.claim(9).await;
    assert_eq!(again.len(), 1, "the others are still claimed");
    assert_eq!(bench.end(&turns[0], Outcome::Done).await, Settled::Stale);
    bench.fail(&again[0]).await;
    bench.pass(WAIT);
    let again = bench.claim(9).await;
    assert_eq!(again.len(), 1);
    for turn in [&again[0], &turns[1], &turns[2]] {
        bench.done(turn).await;
    }
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.claimed, stats.processed), (0, 0, 0, 3));
}

async fn l4_a_requeued_payload_merges_with_one_that_waits(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let older = bench.push(job("v").score(4.0)).await.job_id;
    let turn = bench.one().await;
    bury(&mut bench, &turn).await;
    let newer = bench.push(job("v").score(2.0).run_in(WAIT)).await.job_id;
    assert_eq!(bench.requeue_all().await, 1);
    let turn = bench.one().await;
    assert_eq!((turn.jobs.len(), turn.jobs[0].id, turn.jobs[0].score), (1, older, 2.0));
    assert_eq!(bench.job(newer).await.id, newer, "both stay known");
    assert_eq!(turn.retry_count, -1);
}

async fn a_requeued_payload_merges_if_its_queue_merged_none_when_it_was_pushed(mut bench: Bench) {
    for queue in [Queue::fifo("q"), Queue::accumulate("q").merge(Merge::None)] {
        bench.declare(queue).await;
        let large = "x".repeat(100_000);
        let dead = bench.push_all(vec![job("a"), job(&large).key("large")]).await;
        for turn in bench.claim(2).await {
            bury(&mut bench, &turn).await;
        }
        bench.queue(Mode::Accumulate).await;
        bench.push_all(vec![job("a"), job(&large).key("large")]).await;
        assert_eq!(bench.requeue_all().await, 2);
        let turns = bench.claim(2).await;
        let mut ids: Vec<_> = turns.iter().flat_map(|turn| &turn.jobs).map(|job| job.id).collect();
        ids.sort();
        assert_eq!(ids, [dead[0].job_id, dead[1].job_id]);
        for turn in &turns {
            bench.done(turn).await;
        }
    }
}

async fn requeued_payloads_stay_apart_if_their_queue_merges_none_by_now(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for _ in 0..3 {
        bench.push(job("a")).await;
        let turn = bench.one().await;
        bury(&mut bench, &turn).await;
    }
    bench.declare(Queue::accumulate("q").merge(Merge::None)).await;
    assert_eq!(bench.requeue_all().await, 3);
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a"; 3]);
    bench.done(&turn).await;
}

async fn requeued_jobs_of_a_key_are_handed_over_if_their_queue_is_parallel_by_now(
    mut bench: Bench,
) {
    bench.queue(Mode::Fifo).await;
    let mut ids = Vec::new();
    for tag in ["a", "b"] {
        ids.push(bench.push(job(tag)).await.job_id);
        let turn = bench.one().await;
        bury(&mut bench, &turn).await;
    }
    bench.queue(Mode::Parallel).await;
    // One after the other: the second comes back behind the first.
    for id in ids {
        let which = Selection::Jobs(vec![id]);
        let requeued = Selected { now: Some(bench.now), queue: "q".into(), which };
        assert_eq!(bench.store.requeue(requeued).await.unwrap().count, 1);
    }
    let mut handed = Vec::new();
    for _ in 0..2 {
        for turn in bench.claim(1).await {
            handed.extend(tags(&turn));
            bench.done(&turn).await;
        }
    }
    assert_eq!(handed, ["a", "b"]);
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.processed), (0, 0, 2));
}

async fn a_requeue_onto_a_claimed_lane_counts_as_an_arrival(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("dead")).await;
    let turn = bench.one().await;
    bury(&mut bench, &turn).await;
    bench.push(job("running")).await;
    let turn = bench.one().await;
    assert_eq!(bench.requeue_all().await, 1);
    bench.nothing().await;
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["dead"]);
}

async fn requeue_and_bury_of_one_key_lose_nothing(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    let turn = bench.one().await;
    bury(&mut bench, &turn).await;
    let turn = bench.one().await;
    bench.requeue_all().await;
    bury(&mut bench, &turn).await;
    assert_eq!(tags(&bench.one().await), ["a"]);
    let dead: Vec<String> = bench.dead().await.iter().map(|job| tag(&job.payload)).collect();
    assert_eq!(dead, ["b"]);
}

async fn dead_jobs_are_chosen_by_id_and_by_key(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = ["a", "b", "c", "d"].map(|k| loose(k).key(k));
    bench.push_all(jobs.to_vec()).await;
    for turn in bench.claim(10).await {
        bury(&mut bench, &turn).await;
    }
    let dead = bench.dead().await;
    let by_id = selected(&bench, Selection::Jobs(vec![dead[1].id, dead[3].id]));
    assert_eq!(bench.store.requeue(by_id.clone()).await.unwrap().count, 2);
    assert_eq!(bench.store.requeue(by_id).await.unwrap().count, 0);
    let by_key = selected(&bench, Selection::Keys(vec!["c".into(), "nobody".into()]));
    assert_eq!(bench.store.delete_dead(by_key).await.unwrap().count, 1);
    let left: Vec<String> = bench.dead().await.iter().map(|job| tag(&job.payload)).collect();
    assert_eq!(left, ["a"]);
    assert_eq!(keys(&bench.claim(10).await), ["b", "d"]);
}

async fn a_deleted_dead_job_is_unknown(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let id = bench.push(loose("a")).await.job_id;
    let turn = bench.one().await;
    bury(&mut bench, &turn).await;
    assert_eq!(bench.stats().await.dead, 1);
    let all = selected(&bench, Selection::All);
    let acted = bench.store.delete_dead(all).await.unwrap();
    assert_eq!(acted, Acted { count: 1, more: false });
    assert_eq!((bench.find(id).await, bench.stats().await.dead), (None, 0));
}

async fn a_paused_queue_hands_nothing_over(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    bench.store.pause_queue("q".into(), true).await.unwrap();
    assert_eq!(bench.nothing().await, None);
    let due = bench.store.due(vec![]).await.unwrap();
    assert_eq!(due[0].due, None);
    assert!(bench.stats().await.paused);
    bench.push(loose("b")).await;
    bench.store.pause_queue("q".into(), false).await.unwrap();
    assert_eq!(bench.claim(10).await.len(), 2);
}

async fn a_paused_lane_hands_nothing_over(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![loose("a").key("a"), loose("b").key("b")]).await;
    let key = LaneSelection::Key("a".into());
    assert_eq!(bench.act(key.clone(), LaneAction::Pause).await, 1);
    assert_eq!(keys(&[bench.one().await]), ["b"]);
    bench.push(loose("a2").key("a")).await;
    assert_eq!(bench.nothing().await, None);
    assert_eq!(bench.act(key, LaneAction::Resume).await, 1);
    assert_eq!(tags(&bench.one().await), ["a"]);
}

async fn a_lane_paused_while_it_runs_stays_so_afterwards(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    let turn = bench.one().await;
    bench.act(LaneSelection::Lanes(vec![turn.lane]), LaneAction::Pause).await;
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, None);
    bench.act(LaneSelection::All, LaneAction::Resume).await;
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn named_lanes_are_acted_on_at_once_and_those_of_other_queues_not_at_all(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.declare(Queue::fifo("other")).await;
    let elsewhere = Job::new("other", &"o").unwrap().key("o");
    let jobs = ["a", "b", "c", "d"].map(|key| loose(key).key(key));
    bench.push_all(jobs.into_iter().chain([elsewhere]).collect()).await;
    let lane = async |bench: &Bench, queue: &str, key: &str| {
        let query = LaneQuery { key: Some(key.to_owned()), ..LaneQuery::new(queue) };
        bench.store.lanes(query).await.unwrap().rows.remove(0).lane
    };
    let (a, c) = (lane(&bench, "q", "a").await, lane(&bench, "q", "c").await);
    let foreign = lane(&bench, "other", "o").await;
    let forged = LaneId { queue: a.queue, ..foreign };
    let gone = LaneId { number: 999_999, ..a };
    let named = LaneSelection::Lanes(vec![c, a, foreign, forged, gone, a]);
    let hit = bench.act(named, LaneAction::Pause).await;
    // A shard numbers its lanes itself, so that the forged one may be one of this queue.
    assert!(hit == 2 || hit == 3, "{hit}");
    assert_eq!(bench.claim(10).await.len() as u64, 4 - hit);
    let request = bench.claim_request("other", 10);
    assert_eq!(bench.claimed(request).await.turns.len(), 1);
    assert_eq!(bench.act(LaneSelection::Lanes(Vec::new()), LaneAction::Delete).await, 0);
    assert_eq!(bench.act(LaneSelection::Lanes(vec![a, c]), LaneAction::Delete).await, 2);
    assert_eq!(bench.stats().await.lanes, 2);
}

async fn everything_can_be_made_due_now_in_order(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode)).await;
        let later = |tag: &str, seconds: u64| {
            let job = Job::new(name, &tag).unwrap().run_in(Duration::from_secs(seconds));
            if mode.is_keyed() { job.key(tag) } else { job }
        };
        bench.push_all(vec![later("a", 300), later("b", 100), later("c", 200)]).await;
        let request = Act {
            now: Some(bench.now),
            queue: name.into(),
            lanes: LaneSelection::All,
            action: LaneAction::RunNow,
        };
        assert_eq!(bench.store.act(request).await.unwrap().count, 3, "{mode}");
        let due = vec![name.into()];
        assert_eq!(bench.store.due(due).await.unwrap()[0].due, Some(bench.now), "{mode}");
        let request = bench.claim_request(name, 10);
        let turns = bench.claimed(request).await.turns;
        let order: Vec<_> = turns.iter().map(|turn| turn.jobs[0].payload.to_value()).collect();
        assert_eq!(order, ["a", "b", "c"], "{mode}");
    }
}

async fn a_held_lane_goes_on_when_resumed(mut bench: Bench) {
    bench.declare(Queue::fifo("q").max_retries(0).exhausted(seriatim::Exhaustion::Hold)).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    assert_eq!(bench.nothing().await, None);
    bench.act(LaneSelection::Key("k".into()), LaneAction::Resume).await;
    assert_eq!(tags(&bench.one().await), ["a"]);
}

async fn what_has_failed_can_be_buried(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode)).await;
        let push = |tag: &str| {
            let job = Job::new(name, &tag).unwrap();
            if mode.is_keyed() { job.key(tag) } else { job }
        };
        let pushed = bench.push_all(vec![push("bad"), push("good")]).await;
        let request = bench.claim_request(name, 10);
        let turns = bench.claimed(request.clone()).await.turns;
        bench.fail(&turns[0]).await;
        bench.end(&turns[1], Outcome::Release).await;
        let action = Act {
            now: Some(bench.now),
            queue: name.into(),
            lanes: LaneSelection::Failed,
            action: LaneAction::Bury,
        };
        assert_eq!(bench.store.act(action).await.unwrap().count, 1, "{mode}");
        let dead = bench.job(pushed[0].job_id).await;
        assert_eq!((dead.state, dead.error.as_deref()), (JobState::Dead, Some("it failed")));
        assert_eq!(bench.claimed(request).await.turns.len(), 1, "{mode}");
    }
}

async fn l16_all_that_waits_for_a_failed_key_is_buried_or_deleted_in_accumulate(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for action in [LaneAction::Bury, LaneAction::DeleteFailed] {
        let pushed = bench.push_all(["a", "b", "c"].map(job).to_vec()).await;
        let turn = bench.one().await;
        bench.fail(&turn).await;
        bench.push(job("later")).await;
        bench.push(loose("other").key("good")).await;
        // A lane that has not failed has nothing to bury.
        assert_eq!(bench.act(LaneSelection::Key("good".into()), LaneAction::Bury).await, 0);
        assert_eq!(bench.act(LaneSelection::Failed, action).await, 1, "{action:?}");
        let other = bench.one().await;
        assert_eq!(tags(&other), ["other"], "{action:?}: the key waits no more");
        bench.done(&other).await;
        let dead = bench.dead().await;
        assert!(dead.iter().all(|job| job.error.as_deref() == Some("it failed")), "{dead:?}");
        assert_eq!(dead.len(), 4, "{action:?}");
        assert_eq!(bench.find(pushed[0].job_id).await.is_some(), action == LaneAction::Bury);
        bench.pass(WAIT * 100);
        assert_eq!(bench.nothing().await, None, "{action:?}: nor later");
    }
    assert_eq!(bench.requeue_all().await, 4);
    assert_eq!(tags(&bench.one().await), ["a", "b", "c", "later"]);
}

/// More jobs of an `exclusive` key than one step of a store moves, due later; the last one is urgent.
async fn push_many_later(bench: &mut Bench) {
    bench.queue(Mode::Exclusive).await;
    let later = bench.now + WAIT;
    let mut jobs: Vec<Job> = (0..1_100).map(|n| job(&n.to_string()).run_at(later)).collect();
    jobs.push(job("urgent").run_at(later).priority(0));
    bench.push_all(jobs).await;
    assert_eq!(bench.claim(1).await.len(), 0);
}

/// A store may move them in steps, earliest first.
async fn claim_the_urgent_one(bench: &mut Bench) {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let turn = bench.one().await;
        seen.extend(tags(&turn));
        bench.done(&turn).await;
    }
    assert!(seen.contains(&"urgent".to_owned()), "{seen:?}");
    assert_eq!(bench.stats().await.jobs, 1_097);
    assert_eq!(bench.act(LaneSelection::Key("k".into()), LaneAction::Delete).await, 1);
    assert_eq!(bench.stats().await.jobs, 0);
}

async fn however_many_jobs_of_an_exclusive_key_become_due_they_run_by_urgency(mut bench: Bench) {
    push_many_later(&mut bench).await;
    bench.pass(WAIT);
    claim_the_urgent_one(&mut bench).await;
}

async fn many_jobs_of_an_exclusive_key_can_be_made_due_now(mut bench: Bench) {
    push_many_later(&mut bench).await;
    assert_eq!(bench.act(LaneSelection::Key("k".into()), LaneAction::RunNow).await, 1);
    claim_the_urgent_one(&mut bench).await;
}

async fn a_long_key_that_failed_is_deleted_whole(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all((0..1_100).map(|n| job(&n.to_string())).collect()).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    assert_eq!(bench.act(LaneSelection::Failed, LaneAction::Delete).await, 1);
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs), (0, 0));
}

async fn what_has_failed_can_be_deleted(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    let pushed = bench.push_all(vec![job("bad"), job("good")]).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    assert_eq!(bench.act(LaneSelection::Failed, LaneAction::DeleteFailed).await, 1);
    assert_eq!(bench.find(pushed[0].job_id).await, None);
    assert_eq!(tags(&bench.one().await), ["good"]);
    assert_eq!(bench.act(LaneSelection::Failed, LaneAction::DeleteFailed).await, 0);
}

async fn actions_leave_running_turns_alone(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    bench.pass(WAIT);
    let turn = bench.one().await;
    bench.push(job("b")).await;
    for action in
        [LaneAction::RunNow, LaneAction::Bury, LaneAction::DeleteFailed, LaneAction::Delete]
    {
        assert_eq!(bench.act(LaneSelection::All, action).await, 0, "{action:?}");
    }
    bench.done(&turn).await;
    assert_eq!(tags(&bench.one().await), ["b"]);
}

async fn amend(bench: &mut Bench, job: seriatim::JobId, change: Change) -> seriatim::Result<()> {
    bench.store.amend(Amend { now: Some(bench.now), job, change }).await
}

async fn a_job_can_be_rescheduled(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode)).await;
        let job = Job::new(name, &1).unwrap();
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        let due = bench.now + WAIT;
        amend(&mut bench, id, Change::RunAt(due)).await.unwrap();
        let request = bench.claim_request(name, 1);
        assert_eq!(bench.claimed(request).await.next_due, Some(due), "{mode}");
        let now = bench.now;
        amend(&mut bench, id, Change::RunAt(now)).await.unwrap();
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        let running = amend(&mut bench, id, Change::RunAt(due)).await;
        refused(running, ErrorKind::NotFound, "job_id");
        bench.done(&turn).await;
    }
}

async fn a_job_that_is_rescheduled_behind_a_turn_is_due_at_its_time_after_it(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for sooner in [false, true] {
        bench.push(job("a")).await;
        let turn = bench.one().await;
        let first = if sooner { WAIT * 2 } else { Duration::ZERO };
        let behind = bench.push(job("b").run_in(first)).await;
        let due = bench.now + WAIT;
        amend(&mut bench, behind.job_id, Change::RunAt(due)).await.unwrap();
        bench.done(&turn).await;
        assert_eq!(bench.nothing().await, Some(due), "sooner: {sooner}");
        bench.pass(WAIT);
        let turn = bench.one().await;
        assert_eq!(tags(&turn), ["b"]);
        bench.done(&turn).await;
    }
}

async fn a_job_that_is_rescheduled_behind_a_turn_holds_up_nothing_if_that_is_released(
    mut bench: Bench,
) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("a")).await;
    let turn = bench.one().await;
    let behind = bench.push(job("b")).await;
    let later = bench.now + WAIT;
    amend(&mut bench, behind.job_id, Change::RunAt(later)).await.unwrap();
    assert!(bench.end(&turn, Outcome::Release).await.is_ok());
    assert_eq!(tags(&bench.one().await), ["a", "b"]);
}

async fn what_arrived_during_a_turn_and_has_left_makes_nothing_due(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    for how in ["cancelled", "deleted", "expired"] {
        bench.push(job("a")).await;
        let turn = bench.one().await;
        let soon = bench.now + Duration::from_secs(1);
        let arrived = bench.push(job("b").expires_at(soon)).await.job_id;
        match how {
            "cancelled" => assert_eq!(bench.cancel(arrived).await, Cancelled::Now),
            "deleted" => amend(&mut bench, arrived, Change::Delete).await.unwrap(),
            _ => {
                bench.pass(Duration::from_secs(1));
                assert_eq!(sweep(&mut bench, 100).await.expired, [arrived]);
            }
        }
        bench.push(job("c").run_in(WAIT)).await;
        let due = bench.now + WAIT;
        bench.done(&turn).await;
        assert_eq!(bench.nothing().await, Some(due), "{how}");
        bench.pass(WAIT);
        let turn = bench.one().await;
        assert_eq!(tags(&turn), ["c"], "{how}");
        bench.done(&turn).await;
    }
}

async fn what_a_turn_left_and_has_left_too_makes_nothing_due(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let pushed = bench.push_all(vec![job("a"), job("b").task("other")]).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["a"]);
    assert_eq!(bench.cancel(pushed[1].job_id).await, Cancelled::Now);
    bench.push(job("c").run_in(WAIT)).await;
    bench.done(&turn).await;
    assert_eq!(bench.nothing().await, Some(bench.now + WAIT));
}

async fn a_job_can_be_bound_to_another_node(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode)).await;
        let job = Job::new(name, &1).unwrap().node("a");
        let id = bench.push(if mode.is_keyed() { job.key("k") } else { job }).await.job_id;
        amend(&mut bench, id, Change::Node(Some("b".into()))).await.unwrap();
        let request = bench.claim_request(name, 1);
        let by_a = Claim { node_name: Some(arc("a")), ..request.clone() };
        assert_eq!(bench.claimed(by_a).await.turns, [], "{mode}");
        let by_b = Claim { node_name: Some(arc("b")), ..request.clone() };
        let turn = bench.claimed(by_b).await.turns.remove(0);
        bench.end(&turn, Outcome::Release).await;
        amend(&mut bench, id, Change::Node(None)).await.unwrap();
        assert_eq!(bench.claimed(request).await.turns.len(), 1, "{mode}");
    }
}

async fn a_waiting_job_can_be_deleted(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let pushed = bench.push_all(vec![job("a"), job("b"), job("c")]).await;
    for i in [1, 0] {
        amend(&mut bench, pushed[i].job_id, Change::Delete).await.unwrap();
        assert_eq!(bench.find(pushed[i].job_id).await, None);
    }
    let again = amend(&mut bench, pushed[0].job_id, Change::Delete).await;
    refused(again, ErrorKind::NotFound, "job_id");
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["c"]);
    assert_eq!(bench.stats().await.jobs, 1);
}

async fn sweep(bench: &mut Bench, rows_max: usize) -> Swept {
    bench.store.sweep(Sweep { now: Some(bench.now), rows_max }).await.unwrap()
}

/// The third job is the first one since they merged.
async fn jobs_that_merge_while_their_queue_changes_its_mode_expire_once(mut bench: Bench) {
    let soon = bench.now + WAIT;
    let jobs = ["a", "b", "a"].map(|tag| job(tag).expires_at(soon));
    let pushed = bench.push_all(jobs.into()).await;
    bench.declare(Queue::accumulate("q")).await;
    bench.pass(WAIT);
    let mut expired = sweep(&mut bench, 100).await.expired;
    expired.sort_unstable();
    assert_eq!(expired, [pushed[0].job_id, pushed[1].job_id]);
    assert_eq!(sweep(&mut bench, 100).await.expired, []);
    assert_eq!(bench.stats().await.jobs, 0);
    bench.push(job("c")).await;
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn n8_expired_jobs_are_swept(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT * 10)).await;
        let push = |tag: &str| {
            let job = Job::new(name, &tag).unwrap();
            if mode.is_keyed() { job.key("k") } else { job }
        };
        let soon = bench.now + WAIT;
        let later = soon + WAIT;
        let jobs = vec![push("a").expires_at(soon), push("b"), push("c").expires_at(later)];
        let pushed = bench.push_all(jobs).await;
        let first = pushed[0].job_id;
        assert!(!sweep(&mut bench, 100).await.expired.contains(&first), "{mode}");
        bench.pass(WAIT);
        assert!(sweep(&mut bench, 100).await.expired.contains(&first), "{mode}");
        let expired = bench.job(pushed[0].job_id).await;
        assert_eq!(
            (expired.state, expired.error.as_deref()),
            (JobState::Canceled, Some("expired"))
        );
        let request = bench.claim_request(name, 10);
        let turns = bench.claimed(request).await.turns;
        let ids: Vec<_> = turns.iter().flat_map(|turn| &turn.jobs).map(|job| job.id).collect();
        assert!(ids.contains(&pushed[1].job_id) && !ids.contains(&pushed[0].job_id), "{mode}");
        for turn in &turns {
            bench.done(turn).await;
        }
    }
}

/// A job of the mode's queue `q` that expires in half a retry's time.
fn expiring(bench: &Bench, mode: Mode) -> Job {
    let job = if mode.is_keyed() { job("a") } else { loose("a") };
    job.expires_at(bench.now + WAIT / 2)
}

async fn a_job_that_was_tried_expires_no_more(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.beat().await;
        bench.declare(Queue::new("q", mode).max_retries(1)).await;
        let id = bench.push(expiring(&bench, mode)).await.job_id;
        let turn = bench.one().await;
        bench.fail(&turn).await;
        bench.pass(WAIT);
        assert_eq!(sweep(&mut bench, 100).await.expired, [], "{mode}: it waits for its retry");
        let turn = bench.one().await;
        assert!(!turn.jobs[0].has_expired(bench.now), "{mode}: it is handed over");
        bench.fail(&turn).await;
        assert_eq!(bench.state(id).await, Some(JobState::Dead), "{mode}");
        bench.pass(WAIT);
        assert_eq!(bench.requeue_all().await, 1, "{mode}");
        assert_eq!(sweep(&mut bench, 100).await.expired, [], "{mode}: a person brought it back");
        let turn = bench.one().await;
        assert!(!turn.jobs[0].has_expired(bench.now), "{mode}: it is handed over");
        bench.done(&turn).await;
    }
}

async fn a_job_that_was_only_claimed_still_expires(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.beat().await;
        bench.queue(mode).await;
        let id = bench.push(expiring(&bench, mode)).await.job_id;
        let turn = bench.one().await;
        bench.pass(WAIT);
        assert_eq!(sweep(&mut bench, 100).await.expired, [], "{mode}: it is its holder's");
        assert!(turn.jobs[0].has_expired(bench.now), "{mode}");
        assert!(bench.end(&turn, Outcome::Release).await.is_ok(), "{mode}");
        assert_eq!(sweep(&mut bench, 100).await.expired, [id], "{mode}");
    }
}

async fn a_requeued_job_does_not_expire_even_if_it_died_untried(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push(job("failed")).await;
    let turn = bench.one().await;
    bench.fail(&turn).await;
    let untried = bench.push(expiring(&bench, Mode::Accumulate)).await.job_id;
    assert_eq!(bench.act(LaneSelection::All, LaneAction::Bury).await, 1);
    let past = Past { dead_at: Some(bench.now), ..Past::default() };
    bench.push(job("elsewhere").expires_at(bench.now + WAIT / 2).past(past)).await;
    assert_eq!(bench.job(untried).await.attempt, 0);
    bench.pass(WAIT);
    assert_eq!(bench.requeue_all().await, 3);
    assert_eq!(sweep(&mut bench, 100).await.expired, []);
    let turn = bench.one().await;
    assert_eq!(turn.jobs.len(), 3);
    assert!(turn.jobs.iter().all(|job| !job.has_expired(bench.now)), "all are handed over");
}

async fn n8_finished_jobs_are_swept_after_their_retention(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_completed(WAIT)).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.pass(Duration::from_secs(1));
    bench.done(&turn).await;
    let done = bench.job(id).await;
    assert_eq!((done.state, done.attempt), (JobState::Succeeded, 1));
    assert_eq!((done.started_at, done.finished_at), (Some(turn.claimed_at), Some(bench.now)));
    bench.pass(Duration::from_micros(9_999_999));
    assert_eq!(sweep(&mut bench, 100).await.completed, 0);
    bench.pass(Duration::from_micros(1));
    assert_eq!(sweep(&mut bench, 100).await.completed, 1);
    assert_eq!(bench.find(id).await, None);
}

async fn s6_n8_dead_jobs_are_swept_by_age_and_by_number(mut bench: Bench) {
    let mut queue = Queue::parallel("q");
    (queue.retain_dead, queue.retain_dead_max) = (WAIT, 2);
    bench.declare(queue).await;
    let pushed = bench.push_all(["a", "b", "c", "d"].map(loose).to_vec()).await;
    for turn in bench.claim(3).await {
        bury(&mut bench, &turn).await;
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(sweep(&mut bench, 100).await.dead, [pushed[0].job_id], "the oldest over the cap");
    bench.pass(Duration::from_secs(8));
    assert_eq!(sweep(&mut bench, 100).await.dead, [pushed[1].job_id], "and what is too old");
    assert_eq!(bench.stats().await.dead, 1);
}

async fn a_queue_may_keep_any_number_of_dead_jobs(mut bench: Bench) {
    bench.declare(Queue::parallel("q").retain_dead_max(u64::MAX)).await;
    bench.push(loose("a")).await;
    let turn = bench.one().await;
    bury(&mut bench, &turn).await;
    assert_eq!(sweep(&mut bench, 100).await.dead, []);
    assert_eq!(bench.stats().await.dead, 1);
}

async fn a_sweep_has_a_limit_and_says_so(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let soon = bench.now + WAIT;
    bench.push_all((0..5).map(|i| loose(&i.to_string()).expires_at(soon)).collect()).await;
    bench.pass(WAIT);
    let mut counts = Vec::new();
    loop {
        let swept = sweep(&mut bench, 2).await;
        counts.push(swept.expired.len());
        if !swept.more {
            break;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 5);
    assert!(counts.iter().all(|count| *count <= 2) && counts.len() <= 4);
    bench.push(loose("x").expires_at(bench.now + WAIT)).await;
    bench.pass(WAIT);
    assert_eq!(sweep(&mut bench, usize::MAX).await.expired.len(), 1);
}

async fn a_role_has_one_leader_at_a_time(mut bench: Bench) {
    let lead = |bench: &Bench, node: &str| {
        let request = Lead {
            now: Some(bench.now),
            role: "maintenance".into(),
            node: node.into(),
            ttl: LEASE,
        };
        let store = bench.store.clone();
        async move { store.lead(request).await.unwrap() }
    };
    assert!(lead(&bench, "a").await && !lead(&bench, "b").await);
    bench.pass(LEASE / 2);
    assert!(lead(&bench, "a").await, "it may renew");
    bench.pass(LEASE / 2);
    assert!(!lead(&bench, "b").await);
    bench.pass(LEASE / 2);
    assert!(lead(&bench, "b").await && !lead(&bench, "a").await);
    // The clock is set back, and the leader does not come again.
    bench.now = bench.now - LEASE * 1_000;
    assert!(!lead(&bench, "a").await);
    bench.pass(LEAD_MAX - Duration::from_micros(1));
    assert!(!lead(&bench, "a").await);
    bench.pass(Duration::from_micros(1));
    assert!(lead(&bench, "a").await && !lead(&bench, "b").await);
}

async fn a_command_reaches_its_node(mut bench: Bench) {
    assert_eq!(bench.beat().await.command, None);
    bench.store.command_node(bench.node.id.clone(), Command::Quiet).await.unwrap();
    assert_eq!(bench.beat().await.command, Some(Command::Quiet));
    assert_eq!(bench.beat().await.command, Some(Command::Quiet), "with every beat");
    bench.store.command_node(bench.node.id.clone(), Command::Resume).await.unwrap();
    assert_eq!(bench.beat().await.command, None);
    assert_eq!(bench.store.nodes().await.unwrap()[0].state(bench.now), NodeState::Alive);
    let error = bench.store.command_node("nobody".into(), Command::Stop).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn an_unknown_queue_is_named(bench: Bench) {
    let nowhere = Act {
        now: Some(Timestamp::from_micros(1)),
        queue: "nowhere".into(),
        lanes: LaneSelection::All,
        action: LaneAction::Pause,
    };
    let error = bench.store.act(nowhere).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotFound, Some("queue")));
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = bench.store.pause_queue("nowhere".into(), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
