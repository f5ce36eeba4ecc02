//! Leases, heartbeats, rescue.

use std::time::Duration;

use seriatim::store::{
    Beat, Claim, Command, GiveUp, Lease, NodeInfo, NodeState, Rescue, Secret, Settled, Sweep,
};
use seriatim::{ErrorKind, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

const TICK: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn cases() -> Vec<Case> {
    listed![
        d8_n8_an_expired_claim_is_taken_over_and_its_holder_fenced_off,
        a_heartbeat_extends_all_claims_of_a_node,
        a_node_declared_dead_stays_dead,
        what_a_node_held_that_is_known_to_be_gone_is_taken_over_at_once,
        a_node_that_beats_is_not_declared_dead_by_others,
        a_node_that_died_before_the_clock_was_set_back_is_dead_a_lease_later,
        a_node_that_deregistered_has_stopped_and_is_forgotten_after_a_day,
        a_rescued_lane_keeps_its_jobs_and_newcomers_apart,
        crashes_count_and_poison_is_buried,
        a_claim_with_its_own_lease_is_extended_by_name_only,
        the_death_of_a_node_does_not_touch_a_lease_of_its_own,
        a_longer_lease_of_a_job_is_kept,
        a_rescuer_that_dies_is_rescued_too,
        two_rescuers_do_not_get_the_same_lane,
        a_dead_rescuer_is_refused,
        n11_progress_is_kept_and_stale_lanes_are_told,
        progress_stays_until_a_turn_ends_with_nothing_left,
        an_unknown_token_is_nobody_s_turn,
        the_first_secret_that_is_offered_is_everybody_s,
        of_secrets_that_are_offered_at_once_one_is_everybody_s,
        a_claim_that_arrives_after_it_was_given_up_takes_nothing,
        a_rescue_that_arrives_after_it_was_given_up_takes_nothing,
        a_flagged_job_is_told_to_its_holder,
        a_flagged_job_that_ends_done_succeeded,
        a_flagged_job_that_fails_ends_cancelled_and_the_rest_is_retried,
        a_waiting_job_is_cancelled_at_once,
        cancelling_what_is_gone_changes_nothing,
    ]
}

async fn d8_n8_an_expired_claim_is_taken_over_and_its_holder_fenced_off(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new("q", mode)).await;
        let job = if mode.is_keyed() { job("a") } else { loose("a") };
        bench.push(job).await;
        let holder = bench.other_node(&format!("holder-{mode}")).await;
        let old = bench.claim_by(&holder.id, 1).await.remove(0);
        bench.pass(LEASE);
        bench.beat().await;
        let rescuer = bench.node.clone();
        assert_eq!(
            bench.rescue(&rescuer).await,
            [],
            "{mode}: at its very end a lease still stands"
        );
        bench.pass(TICK);
        let turns = bench.rescue(&rescuer).await;
        assert_eq!(turns.len(), 1, "{mode}");
        assert!(turns[0].token > old.token, "{mode}");
        assert_eq!(bench.end(&old, Outcome::Done).await, Settled::Stale, "{mode}");
        assert!(bench.end(&turns[0], Outcome::Crash { error: "lost".into() }).await.is_ok());
        assert_eq!(bench.end(&old, Outcome::Done).await, Settled::Stale, "{mode}");
        let next = bench.one().await;
        assert!(next.token > turns[0].token, "{mode}");
        assert_eq!((next.crashes, next.attempt(), tags(&next)), (1, 2, vec!["a".into()]), "{mode}");
        assert_eq!(bench.end(&old, failure()).await, Settled::Stale, "{mode}");
        bench.done(&next).await;
    }
}

async fn a_heartbeat_extends_all_claims_of_a_node(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b"].map(loose).to_vec()).await;
    let holder = bench.other_node("holder").await;
    let turns = bench.claim_by(&holder.id, 2).await;
    for _ in 0..5 {
        bench.pass(LEASE);
        bench.beat().await;
        bench.beat_as(holder.clone(), Vec::new()).await;
        assert_eq!(bench.rescue(&bench.node.clone()).await, []);
    }
    bench.done(&turns[0]).await;
    bench.done(&turns[1]).await;
}

async fn a_node_declared_dead_stays_dead(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let holder = bench.other_node("holder").await;
    bench.pass(LEASE + TICK);
    bench.beat().await;
    bench.rescue(&bench.node.clone()).await;
    assert!(!bench.beat_as(holder.clone(), Vec::new()).await.alive);
    bench.push(loose("a")).await;
    let request = Claim { node: holder.id, ..bench.claim_request("q", 1) };
    let error = bench.store.claim(request).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::NodeGone);
    bench.other_node("holder-again").await;
}

async fn a_node_that_died_before_the_clock_was_set_back_is_dead_a_lease_later(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(job("a")).await;
    let dead = bench.other_node("dead").await;
    let lost = bench.claim_by(&dead.id, 1).await.remove(0);
    let alive = bench.other_node("alive").await;
    bench.now = bench.now - DAY;
    let next = bench.other_node("next").await;
    assert_eq!(bench.rescue(&next).await, []);
    bench.pass(LEASE);
    for node in [&alive, &next] {
        assert!(bench.beat_as(node.clone(), Vec::new()).await.alive);
    }
    bench.pass(TICK);
    let rescued = bench.rescue(&next).await;
    assert_eq!(rescued.iter().map(|turn| turn.lane).collect::<Vec<_>>(), [lost.lane]);
    assert!(!bench.beat_as(dead, Vec::new()).await.alive);
    assert!(bench.beat_as(alive, Vec::new()).await.alive, "it has beaten since");
}

async fn a_node_that_deregistered_has_stopped_and_is_forgotten_after_a_day(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    let leaver = bench.other_node("leaver").await;
    bench.claim_by(&leaver.id, 1).await;
    let deregistration = NodeInfo { lease: Duration::ZERO, ..leaver.clone() };
    assert!(!bench.beat_as(deregistration, Vec::new()).await.alive);
    assert_eq!(state_of(&bench, &leaver).await, Some(NodeState::Stopped));
    let claim = Claim { node: leaver.id.clone(), ..bench.claim_request("q", 1) };
    assert_eq!(bench.store.claim(claim).await.unwrap_err().kind(), ErrorKind::NodeGone);
    let answer = bench.store.command_node(leaver.id.clone(), Command::Quiet).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!bench.beat_as(leaver.clone(), Vec::new()).await.alive, "it does not come back");
    // Its claims are rescued when its lease has expired, not before.
    bench.pass(LEASE);
    bench.beat().await;
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 0);
    bench.pass(TICK);
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 1);
    assert_eq!(state_of(&bench, &leaver).await, Some(NodeState::Stopped), "not dead");
    for (wait, left) in [(DAY - LEASE - TICK * 2, true), (TICK, false)] {
        bench.pass(wait);
        bench.store.sweep(Sweep { now: Some(bench.now), rows_max: 10 }).await.unwrap();
        assert_eq!(state_of(&bench, &leaver).await.is_some(), left);
    }
}

async fn what_a_node_held_that_is_known_to_be_gone_is_taken_over_at_once(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let mut patient = job("b").key("patient");
    patient.options.lease_ttl = Some(LEASE * 10);
    bench.push_all(vec![job("a").key("usual"), patient]).await;
    let holder = bench.other_node("holder").await;
    let old = bench.claim_by(&holder.id, 2).await;
    bench.push(job("c").key("own")).await;
    let request = Claim {
        node: holder.id.clone(),
        lease: Lease::Own { ttl: LEASE },
        ..bench.claim_request("q", 1)
    };
    let own = bench.store.claim(request).await.unwrap().turns.remove(0);
    let beaten_at = bench.now;
    bench.pass(TICK);
    bench.beat().await;
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 0);
    assert!(bench.declare_dead(&holder, beaten_at).await);
    assert_eq!(state_of(&bench, &holder).await, Some(NodeState::Dead));
    let nodes = bench.store.nodes().await.unwrap();
    let view = nodes.iter().find(|view| view.info.id == holder.id).unwrap();
    assert_eq!(view.heartbeat_at, beaten_at, "its last beat is shown as it was");
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 2, "however long their lease is");
    assert_eq!(bench.end(&old[0], Outcome::Done).await, Settled::Stale);
    assert!(!bench.beat_as(holder.clone(), Vec::new()).await.alive, "it stays dead");
    assert!(!bench.declare_dead(&holder, beaten_at).await, "it was dead already");
    bench.done(&own).await;
}

async fn a_node_that_beats_is_not_declared_dead_by_others(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    let holder = bench.other_node("holder").await;
    let turn = bench.claim_by(&holder.id, 1).await.remove(0);
    let seen = bench.now;
    bench.pass(TICK);
    bench.beat().await;
    bench.beat_as(holder.clone(), Vec::new()).await;
    assert!(!bench.declare_dead(&holder, seen).await, "it has beaten since");
    let unknown = NodeInfo::new("unknown".into(), LEASE);
    assert!(!bench.declare_dead(&unknown, seen).await);
    assert_eq!(state_of(&bench, &holder).await, Some(NodeState::Alive));
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 0);
    bench.done(&turn).await;
}

async fn state_of(bench: &Bench, node: &NodeInfo) -> Option<NodeState> {
    let nodes = bench.store.nodes().await.unwrap();
    nodes.iter().find(|view| view.info.id == node.id).map(|view| view.state(bench.now))
}

async fn a_rescued_lane_keeps_its_jobs_and_newcomers_apart(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("v1").score(1.0), job("v2").score(2.0)]).await;
    let holder = bench.other_node("holder").await;
    bench.claim_by(&holder.id, 1).await;
    bench.push(job("v3").score(3.0)).await;
    bench.pass(LEASE + TICK);
    bench.beat().await;
    let turns = bench.rescue(&bench.node.clone()).await;
    assert_eq!(turns[0].jobs.len(), 2, "what arrived meanwhile is not the dead holder's");
    bench.end(&turns[0], Outcome::Crash { error: "lost".into() }).await;
    assert_eq!(tags(&bench.one().await), ["v1", "v2", "v3"]);
}

async fn crashes_count_and_poison_is_buried(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").max_crashes(3)).await;
    let pushed = bench.push_all(vec![job("poison").score(1.0), job("fine").score(2.0)]).await;
    for crash in 1..=3 {
        let holder = bench.other_node(&format!("holder-{crash}")).await;
        assert_eq!(bench.claim_by(&holder.id, 1).await[0].crashes, crash - 1);
        bench.pass(LEASE + TICK);
        bench.beat().await;
        assert_eq!(bench.crash_all(&bench.node.clone()).await, 1);
    }
    assert_eq!(bench.state(pushed[0].job_id).await, Some(seriatim::store::JobState::Dead));
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.crashes), (vec!["fine".to_owned()], 0));
}

async fn a_claim_with_its_own_lease_is_extended_by_name_only(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b"].map(loose).to_vec()).await;
    let request = Claim { lease: Lease::Own { ttl: WAIT }, ..bench.claim_request("q", 2) };
    let turns = bench.claimed(request).await.turns;
    bench.pass(WAIT);
    let beat = Beat { extend: Some(WAIT), ..Beat::of(&turns[0]) };
    bench.beat_as(bench.node.clone(), vec![beat]).await;
    bench.pass(TICK);
    let lost = bench.rescue(&bench.node.clone()).await;
    assert_eq!(lost.iter().map(|turn| turn.lane).collect::<Vec<_>>(), [turns[1].lane]);
    bench.done(&turns[0]).await;
}

async fn the_death_of_a_node_does_not_touch_a_lease_of_its_own(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    let holder = bench.other_node("holder").await;
    let lease = Lease::Own { ttl: LEASE * 10 };
    let request = Claim { node: holder.id, lease, ..bench.claim_request("q", 2) };
    let turn = bench.claimed(request).await.turns.remove(0);
    bench.pass(LEASE * 5);
    bench.beat().await;
    assert_eq!(bench.rescue(&bench.node.clone()).await, []);
    bench.done(&turn).await;
}

async fn a_longer_lease_of_a_job_is_kept(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let mut long = loose("long");
    long.options.lease_ttl = Some(LEASE * 3);
    bench.push_all(vec![long, loose("usual")]).await;
    let holder = bench.other_node("holder").await;
    assert_eq!(bench.claim_by(&holder.id, 2).await.len(), 2);
    for expected in [vec!["usual"], vec![], vec!["long"]] {
        bench.pass(LEASE + TICK);
        bench.beat().await;
        let rescued = bench.rescue(&bench.node.clone()).await;
        let mut tags = Vec::new();
        for turn in &rescued {
            tags.push(tag(&bench.job(turn.jobs[0].id).await.payload));
            bench.done(turn).await;
        }
        assert_eq!(tags, expected);
    }
}

async fn a_rescuer_that_dies_is_rescued_too(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(job("a")).await;
    let holder = bench.other_node("holder").await;
    bench.claim_by(&holder.id, 1).await;
    bench.pass(LEASE + TICK);
    bench.beat().await;
    let rescuer = bench.other_node("rescuer").await;
    let first = bench.rescue(&rescuer).await.remove(0);
    bench.pass(LEASE + TICK);
    bench.beat().await;
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 1);
    assert_eq!(bench.end(&first, Outcome::Done).await, Settled::Stale);
    assert_eq!(bench.one().await.crashes, 1, "one crash of the job, whichever node cleaned up");
}

async fn two_rescuers_do_not_get_the_same_lane(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all((0..20).map(|i| loose(&i.to_string())).collect()).await;
    let holder = bench.other_node("holder").await;
    assert_eq!(bench.claim_by(&holder.id, 20).await.len(), 20);
    bench.pass(LEASE + TICK);
    bench.beat().await;
    let (one, two) = (bench.node.clone(), bench.other_node("two").await);
    assert_eq!((bench.rescue(&one).await.len(), bench.rescue(&two).await.len()), (20, 0));
}

async fn a_dead_rescuer_is_refused(mut bench: Bench) {
    let old = bench.other_node("old").await;
    bench.pass(LEASE + TICK);
    bench.beat().await;
    bench.rescue(&bench.node.clone()).await;
    let request = seriatim::store::Rescue {
        now: Some(bench.now),
        node: old.id,
        lease: LEASE,
        lanes_max: 1,
        ticket: 0,
    };
    let error = bench.store.rescue(request).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::NodeGone);
}

async fn n11_progress_is_kept_and_stale_lanes_are_told(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.pass(WAIT);
    let progress = Some(arc(r#"{"percent":40}"#));
    let good = Beat { progress: progress.clone(), ..Beat::of(&turn) };
    let stale = Beat { token: seriatim::store::Token(1), ..good.clone() };
    assert_eq!(bench.beat_as(bench.node.clone(), vec![good]).await.lost, []);
    assert_eq!(bench.beat_as(bench.node.clone(), vec![stale]).await.lost, [turn.lane]);
    let view = bench.job(id).await;
    assert_eq!((view.progress, view.heartbeat_at), (progress, Some(bench.now)));
    bench.done(&turn).await;
    let late = Beat::of(&turn);
    assert_eq!(bench.beat_as(bench.node.clone(), vec![late]).await.lost, [turn.lane]);
}

async fn progress_stays_until_a_turn_ends_with_nothing_left(mut bench: Bench) {
    for mode in [Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        bench.queue(mode).await;
        let first = bench.push(job("a")).await.job_id;
        let turn = bench.one().await;
        let report = Some(arc(r#"{"step":2}"#));
        let beat = Beat { progress: report.clone(), ..Beat::of(&turn) };
        bench.beat_as(bench.node.clone(), vec![beat]).await;
        bench.fail(&turn).await;
        assert_eq!(bench.job(first).await.progress, None, "{mode}: it is not running");
        let lane =
            bench.store.lanes(seriatim::store::LaneQuery::new("q")).await.unwrap().rows.remove(0);
        assert_eq!(lane.progress, None, "{mode}: it is not running");
        bench.pass(std::time::Duration::from_secs(3_600));
        bench.beat().await;
        let turn = bench.one().await;
        assert_eq!(bench.job(first).await.progress, report, "{mode}");
        let second = bench.push(job("b")).await.job_id;
        bench.done(&turn).await;
        let turn = bench.one().await;
        assert_eq!(bench.job(second).await.progress, None, "{mode}: another job's");
        bench.done(&turn).await;
    }
}

async fn give_up(bench: &Bench, node: &NodeInfo, ticket: u64) {
    let request = GiveUp { node: node.id.clone(), ticket, queue: None };
    bench.store.give_up(request).await.expect("it is given up");
}

async fn the_first_secret_that_is_offered_is_everybody_s(bench: Bench) {
    let first = Secret([1; 32]);
    assert_eq!(bench.store.secret(first).await.unwrap(), first);
    assert_eq!(bench.store.secret(Secret([2; 32])).await.unwrap(), first);
    bench.store.migrate().await.unwrap();
    assert_eq!(bench.store.secret(Secret([3; 32])).await.unwrap(), first);
}

async fn of_secrets_that_are_offered_at_once_one_is_everybody_s(bench: Bench) {
    let offers = (1..=16).map(|i| bench.store.secret(Secret([i; 32])));
    let answers = futures_util::future::try_join_all(offers).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{}", answers.len());
    assert!((1..=16).any(|i| answers[0] == Secret([i; 32])));
}

async fn a_claim_that_arrives_after_it_was_given_up_takes_nothing(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push_all(["a", "b", "c", "d"].map(loose).to_vec()).await;
    let (node, other) = (bench.node.clone(), bench.other_node("other").await);
    let claim = |bench: &Bench, ticket| Claim { ticket, ..bench.claim_request("q", 1) };
    assert_eq!(bench.claimed(claim(&bench, 3)).await.turns.len(), 1, "nothing is given up yet");
    give_up(&bench, &node, 5).await;
    for late in [5, 4, 1] {
        let error = bench.store.claim(claim(&bench, late)).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{late}: {error}");
    }
    give_up(&bench, &node, 2).await;
    bench.store.claim(claim(&bench, 5)).await.expect_err("a lower ticket takes nothing back");
    assert_eq!(bench.stats().await.claimed, 1, "only what was claimed before is held");
    assert_eq!(bench.claimed(claim(&bench, 6)).await.turns.len(), 1, "a later one takes");
    assert_eq!(bench.claim(1).await.len(), 1, "so does one without a ticket");
    let theirs = Claim { node: other.id, ..claim(&bench, 1) };
    assert_eq!(bench.claimed(theirs).await.turns.len(), 1, "another node's is left alone");
}

async fn a_rescue_that_arrives_after_it_was_given_up_takes_nothing(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.push(loose("a")).await;
    let holder = bench.other_node("holder").await;
    bench.claim_by(&holder.id, 1).await;
    bench.pass(LEASE + TICK);
    bench.beat().await;
    let node = bench.node.clone();
    give_up(&bench, &node, 7).await;
    let rescue = |bench: &Bench, ticket| Rescue {
        now: Some(bench.now),
        node: node.id.clone(),
        lease: LEASE,
        lanes_max: 10,
        ticket,
    };
    let error = bench.store.rescue(rescue(&bench, 7)).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(bench.store.rescue(rescue(&bench, 8)).await.expect("it is taken").len(), 1);
}

async fn an_unknown_token_is_nobody_s_turn(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("b").score(2.0), job("a").score(1.0)]).await;
    let turn = bench.one().await;
    bench.push(job("c")).await;
    let found = bench.store.turn(turn.lane, turn.token).await.unwrap();
    assert_eq!(found.as_ref(), Some(&turn), "as its holder got it");
    assert_eq!(bench.store.turn(turn.lane, seriatim::store::Token(1)).await.unwrap(), None);
    bench.done(&turn).await;
    assert_eq!(bench.store.turn(turn.lane, turn.token).await.unwrap(), None);
}

async fn a_flagged_job_is_told_to_its_holder(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![job("a").score(1.0), job("b").score(2.0)]).await;
    let holder = bench.other_node("holder").await;
    let turn = bench.claim_by(&holder.id, 1).await.remove(0);
    assert_eq!(bench.beat_as(holder.clone(), Vec::new()).await.cancel, []);
    assert_eq!(bench.cancel(turn.jobs[1].id).await, seriatim::store::Cancelled::Flagged);
    let cancel = bench.beat_as(holder.clone(), Vec::new()).await.cancel;
    assert_eq!((cancel[0].lane, cancel[0].token), (turn.lane, turn.token));
    assert_eq!(cancel[0].jobs, [turn.jobs[1].id]);
    assert_eq!(bench.beat().await.cancel, [], "only the holder gets it");
    bench.done(&turn).await;
    assert_eq!(bench.beat_as(holder, Vec::new()).await.cancel, []);
}

async fn a_flagged_job_that_ends_done_succeeded(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.cancel(id).await;
    assert!(bench.job(id).await.cancel_requested);
    assert_eq!(bench.end(&turn, Outcome::Done).await, Settled::ok(vec![]));
    assert_eq!(bench.state(id).await, Some(seriatim::store::JobState::Succeeded));
}

async fn a_flagged_job_that_fails_ends_cancelled_and_the_rest_is_retried(mut bench: Bench) {
    bench.declare(Queue::accumulate("q").retain_completed(WAIT * 10)).await;
    bench.push_all(vec![job("a").score(1.0), job("b").score(2.0)]).await;
    let turn = bench.one().await;
    let id = turn.jobs[0].id;
    bench.cancel(id).await;
    assert_eq!(bench.end(&turn, failure()).await, Settled::ok(vec![id]));
    assert_eq!(bench.state(id).await, Some(seriatim::store::JobState::Canceled));
    bench.pass(WAIT);
    let turn = bench.one().await;
    assert_eq!((tags(&turn), turn.retry_count), (vec!["b".to_owned()], 0));
}

async fn a_waiting_job_is_cancelled_at_once(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode).retain_completed(WAIT)).await;
        let push = |tag: &str| {
            let job = seriatim::Job::new(name, &tag).unwrap();
            if mode.is_keyed() { job.key("k") } else { job }
        };
        let pushed = bench.push_all(vec![push("a"), push("b")]).await;
        assert_eq!(bench.cancel(pushed[0].job_id).await, seriatim::store::Cancelled::Now, "{mode}");
        let job = bench.job(pushed[0].job_id).await;
        assert_eq!(job.state, seriatim::store::JobState::Canceled, "{mode}");
        let request = bench.claim_request(name, 10);
        let turns = bench.claimed(request.clone()).await.turns;
        assert_eq!((turns.len(), turns[0].jobs.len()), (1, 1), "{mode}");
        assert_eq!(turns[0].jobs[0].id, pushed[1].job_id, "{mode}");
        let while_running = bench.push(push("c")).await.job_id;
        assert_eq!(bench.cancel(while_running).await, seriatim::store::Cancelled::Now, "{mode}");
        bench.done(&turns[0]).await;
        assert_eq!(bench.claimed(request).await, seriatim::store::Claimed::default(), "{mode}");
    }
}

async fn cancelling_what_is_gone_changes_nothing(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_completed(WAIT)).await;
    let id = bench.push(job("a")).await.job_id;
    let turn = bench.one().await;
    bench.done(&turn).await;
    assert_eq!(bench.cancel(id).await, seriatim::store::Cancelled::Ended);
    let unknown = seriatim::JobId::new(bench.now, id.queue(), 0, 999_999);
    assert_eq!(bench.cancel(unknown).await, seriatim::store::Cancelled::Unknown);
    let nowhere = seriatim::JobId::new(bench.now, 9_999, 0, 1);
    assert_eq!(bench.cancel(nowhere).await, seriatim::store::Cancelled::Unknown);
}
