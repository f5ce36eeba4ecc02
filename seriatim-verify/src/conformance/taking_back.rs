//! Releasing claims, long leases, deleting queues.

use std::time::Duration;

use seriatim::store::{
    Beat, Claim, ClaimSelection, Declare, JobState, Lease, PushStatus, Release, Settled,
    delete_queue, release_claims,
};
use seriatim::{ErrorKind, Mode, Outcome, Queue, store::LaneId};

use super::bench::*;
use super::case::{Case, listed};

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_micros(1);

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_released_claim_counts_as_a_crash_and_its_holder_is_fenced_off,
        a_released_claim_that_nobody_settles_is_rescued_at_once,
        a_released_lane_keeps_its_order_and_poison_is_buried,
        all_claims_of_a_node_are_released_in_steps_and_nobody_else_s,
        a_requeued_job_is_not_taken_over_with_its_earlier_claim,
        releasing_what_is_not_claimed_does_nothing,
        released_claims_go_on_as_crashes,
        a_longer_lease_than_the_queue_allows_is_refused,
        a_heartbeat_extends_no_longer_than_the_queue_allows,
        a_lowered_lease_max_holds_for_jobs_that_wait,
        a_deleted_queue_is_gone_with_all_that_was_in_it,
        a_queue_is_not_deleted_while_a_lane_is_claimed,
        a_queue_that_is_being_deleted_takes_and_gives_nothing,
        a_new_queue_of_the_same_name_knows_nothing_of_the_old_one,
        a_number_that_is_given_again_is_not_taken_for_the_old_queue,
        deleting_by_force_releases_what_runs,
        an_unknown_queue_cannot_be_released_or_deleted,
    ]
}

fn key(key: &str) -> ClaimSelection {
    ClaimSelection::Key { queue: "q".into(), key: key.to_owned() }
}

fn beat(turn: &seriatim::store::Turn, extend: Option<Duration>) -> Beat {
    Beat { extend, ..Beat::of(turn) }
}

async fn a_released_claim_counts_as_a_crash_and_its_holder_is_fenced_off(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new("q", mode)).await;
        let job = if mode.is_keyed() { job("a") } else { loose("a") };
        bench.push(job).await;
        let holder = bench.other_node(&format!("holder-{mode}")).await;
        let old = match mode {
            // As remote workers claim, and as nodes do.
            Mode::Fifo | Mode::Parallel => {
                let lease = Lease::Own { ttl: HOUR };
                let node = holder.id.clone();
                let request = Claim { node, lease, ..bench.claim_request("q", 1) };
                bench.claimed(request).await.turns.remove(0)
            }
            Mode::Accumulate | Mode::Exclusive => bench.claim_by(&holder.id, 1).await.remove(0),
        };
        let lane = ClaimSelection::Lane(old.lane);
        let claims = if mode == Mode::Fifo { key("k") } else { lane };
        let turns = bench.release(claims).await;
        assert_eq!(turns.len(), 1, "{mode}");
        let ids =
            |turn: &seriatim::store::Turn| turn.jobs.iter().map(|job| job.id).collect::<Vec<_>>();
        assert_eq!((turns[0].lane, ids(&turns[0])), (old.lane, ids(&old)), "{mode}");
        assert!(turns[0].token > old.token, "{mode}");
        assert_eq!(turns[0].crashes, 0, "{mode}");
        assert_eq!(bench.end(&old, Outcome::Done).await, Settled::Stale, "{mode}");
        let pulse = bench.beat_as(holder, vec![beat(&old, Some(HOUR))]).await;
        assert_eq!((pulse.alive, pulse.lost), (true, vec![old.lane]), "{mode}");
        bench.nothing().await;
        assert!(bench.end(&turns[0], Outcome::Crash { error: "released".into() }).await.is_ok());
        let next = bench.one().await;
        assert!(next.token > turns[0].token, "{mode}");
        assert_eq!((next.crashes, next.attempt(), tags(&next)), (1, 2, vec!["a".into()]), "{mode}");
        assert_eq!(bench.end(&old, failure()).await, Settled::Stale, "{mode}");
        bench.done(&next).await;
        bench.delete_queue(100).await;
    }
}

async fn a_released_claim_that_nobody_settles_is_rescued_at_once(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(job("a")).await;
    let lease = Lease::Own { ttl: HOUR };
    let request = Claim { lease, ..bench.claim_request("q", 1) };
    let old = bench.claimed(request).await.turns.remove(0);
    let released = bench.release(key("k")).await.remove(0);
    bench.pass(TICK);
    assert_eq!(bench.crash_all(&bench.node.clone()).await, 1);
    assert_eq!(bench.end(&released, Outcome::Done).await, Settled::Stale);
    assert_eq!(bench.end(&old, Outcome::Done).await, Settled::Stale);
    let next = bench.one().await;
    assert_eq!(next.crashes, 1);
    bench.done(&next).await;
}

async fn a_released_lane_keeps_its_order_and_poison_is_buried(mut bench: Bench) {
    bench.declare(Queue::fifo("q").max_crashes(2)).await;
    bench.push_all(["a", "b"].map(job).to_vec()).await;
    for crashes in 0..2 {
        let turn = bench.one().await;
        assert_eq!((turn.crashes, tags(&turn)), (crashes, vec!["a".into()]));
        let released = bench.release(key("k")).await.remove(0);
        let crash = Outcome::Crash { error: "released".into() };
        assert!(bench.end(&released, crash).await.is_ok());
    }
    assert_eq!(bench.dead().await.len(), 1, "as many crashes bury as ever");
    let turn = bench.one().await;
    assert_eq!((turn.crashes, tags(&turn)), (0, vec!["b".into()]));
    bench.done(&turn).await;
}

async fn all_claims_of_a_node_are_released_in_steps_and_nobody_else_s(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    bench.declare(Queue::parallel("other")).await;
    let mut jobs: Vec<_> = (0..5).map(|i| loose(&i.to_string())).collect();
    jobs.push(seriatim::Job::new("other", "x").unwrap());
    bench.push_all(jobs).await;
    let hoarder = bench.other_node("hoarder").await;
    let hoards = |bench: &Bench, queue: &str, lanes| Claim {
        node: hoarder.id.clone(),
        lease: Lease::Own { ttl: HOUR },
        ..bench.claim_request(queue, lanes)
    };
    let mut held = bench.claimed(hoards(&bench, "q", 3)).await.turns;
    held.extend(bench.claimed(hoards(&bench, "other", 1)).await.turns);
    assert_eq!(held.len(), 4);
    let mine = bench.claim(1).await.remove(0);
    bench.pass(TICK);
    let mut released: Vec<LaneId> = Vec::new();
    let (began, mut made_by) = (bench.now, None);
    loop {
        let claims = ClaimSelection::Node(hoarder.id.clone());
        let request = Release { now: Some(bench.now), claims, made_by, lanes_max: 3 };
        let turns = bench.store.release(request).await.unwrap();
        made_by = Some(began);
        released.extend(turns.iter().map(|turn| turn.lane));
        if turns.len() < 3 {
            break;
        }
        // The next step does not touch what it claims meanwhile.
        bench.pass(TICK);
        assert_eq!(bench.claimed(hoards(&bench, "q", 1)).await.turns.len(), 1);
        bench.pass(TICK);
    }
    let mut lanes: Vec<LaneId> = held.iter().map(|turn| turn.lane).collect();
    lanes.sort_unstable();
    released.sort_unstable();
    assert_eq!(released, lanes);
    assert_eq!(bench.release(ClaimSelection::Node("stranger".into())).await.len(), 0);
    bench.done(&mine).await;
}

async fn a_requeued_job_is_not_taken_over_with_its_earlier_claim(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    for how in ["released", "rescued"] {
        bench.push_all(["a", "b", "c"].map(loose).to_vec()).await;
        let holder = bench.other_node(how).await;
        let turns = bench.claim_by(&holder.id, 3).await;
        assert!(bench.end(&turns[0], Outcome::Bury { error: "bad".into() }).await.is_ok());
        assert_eq!(bench.requeue_all().await, 1);
        assert_eq!(bench.stats().await.claimed, 2, "{how}");
        let taken = if how == "released" {
            bench.release(ClaimSelection::Node(holder.id)).await
        } else {
            bench.pass(LEASE + TICK);
            bench.beat().await;
            bench.rescue(&bench.node.clone()).await
        };
        assert_eq!(taken.len(), 2, "{how}");
        let again = bench.one().await;
        assert_eq!(again.jobs[0].id, turns[0].jobs[0].id, "{how}");
        for turn in taken.iter().chain([&again]) {
            bench.done(turn).await;
        }
    }
}

async fn releasing_what_is_not_claimed_does_nothing(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), job("b")]).await;
    assert_eq!(bench.release(key("k")).await, []);
    assert_eq!(bench.release(key("nobody")).await, []);
    let lane = LaneId { queue: 1, shard: 0, number: 999 };
    assert_eq!(bench.release(ClaimSelection::Lane(lane)).await, []);
    let turn = bench.one().await;
    let claims = key("k");
    let made_by = Some(bench.now - TICK);
    let request = Release { now: Some(bench.now), claims, made_by, lanes_max: 10 };
    assert_eq!(bench.store.release(request).await.unwrap(), []);
    bench.done(&turn).await;
}

async fn released_claims_go_on_as_crashes(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let jobs = (0..30).map(|i| loose("a").key(format!("k{i}"))).collect();
    bench.push_all(jobs).await;
    let held = bench.claim(20).await;
    assert_eq!(held.len(), 20);
    let node = bench.node.id.clone();
    let released = release_claims(&*bench.store, ClaimSelection::Node(node)).await.unwrap();
    assert_eq!(released, 20);
    bench.now = bench.store.now().await.unwrap();
    bench.beat().await;
    let again = bench.claim(100).await;
    assert_eq!(again.len(), 30);
    assert_eq!(again.iter().filter(|turn| turn.crashes == 1).count(), 20);
    let crashed = again.iter().find(|turn| turn.crashes == 1).unwrap();
    let error = crashed.error.as_deref().unwrap();
    assert!(error.contains("released by a person"), "{error}");
}

async fn a_longer_lease_than_the_queue_allows_is_refused(mut bench: Bench) {
    bench.declare(Queue::parallel("q").lease_max(HOUR)).await;
    bench.push(loose("a")).await;
    let long = HOUR + TICK;
    for lease in [Lease::Own { ttl: long }, Lease::Node { ttl: long }] {
        let request = Claim { lease, ..bench.claim_request("q", 1) };
        refused(bench.store.claim(request).await, ErrorKind::Invalid, "lease");
    }
    let job = |ttl| {
        let mut job = loose("b");
        job.options.lease_ttl = Some(ttl);
        job
    };
    let pushed = bench.try_push(vec![loose("c"), job(long)]).await;
    refused(pushed, ErrorKind::Invalid, "jobs[1].lease_ttl");
    let error = bench.try_push(vec![job(HOUR * 24 * 3_650)]).await.unwrap_err();
    assert!(error.to_string().contains("at most 1h"), "{error}");
    bench.push(job(HOUR)).await;
    let lease = Lease::Own { ttl: HOUR };
    let request = Claim { lease, ..bench.claim_request("q", 5) };
    assert_eq!(bench.claimed(request).await.turns.len(), 2);
}

async fn a_heartbeat_extends_no_longer_than_the_queue_allows(mut bench: Bench) {
    bench.declare(Queue::parallel("q").lease_max(HOUR)).await;
    bench.push(loose("a")).await;
    let lease = Lease::Own { ttl: LEASE };
    let request = Claim { lease, ..bench.claim_request("q", 1) };
    let turn = bench.claimed(request).await.turns.remove(0);
    let node = bench.node.clone();
    bench.beat_as(node.clone(), vec![beat(&turn, Some(HOUR * 24))]).await;
    bench.pass(HOUR);
    bench.beat().await;
    assert_eq!(bench.rescue(&node).await, [], "it stands for as long as the queue allows");
    bench.pass(TICK);
    assert_eq!(bench.rescue(&node).await.len(), 1);
}

async fn a_lowered_lease_max_holds_for_jobs_that_wait(mut bench: Bench) {
    for mode in Mode::ALL {
        let name = format!("q-{mode}");
        bench.declare(Queue::new(&name, mode).lease_max(HOUR * 24)).await;
        let mut pushed = seriatim::Job::new(&name, "a").unwrap();
        pushed.options.lease_ttl = Some(HOUR * 24);
        let pushed = if mode.is_keyed() { pushed.key("k") } else { pushed };
        bench.push(pushed).await;
        bench.declare(Queue::new(&name, mode).lease_max(HOUR)).await;
        let lease = Lease::Own { ttl: LEASE };
        let request = Claim { lease, ..bench.claim_request(&name, 1) };
        assert_eq!(bench.claimed(request).await.turns.len(), 1, "{mode}");
        bench.pass(HOUR + TICK);
        bench.beat().await;
        assert_eq!(bench.crash_all(&bench.node.clone()).await, 1, "{mode}");
        let request = bench.claim_request(&name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        bench.done(&turn).await;
    }
}

/// Creates jobs in queue `q` in every state, and returns their number.
async fn fill(bench: &mut Bench, mode: Mode) -> (Vec<seriatim::JobId>, u64) {
    bench.declare(Queue::new("q", mode).retain_completed(HOUR).max_retries(0)).await;
    let of = |tag: &str, key: &str| {
        let job = loose(tag);
        if mode.is_keyed() { job.key(key) } else { job }
    };
    let mut ids = Vec::new();
    for outcome in [Outcome::Done, failure()] {
        ids.push(bench.push(of("ends", "ended")).await.job_id);
        let turn = bench.one().await;
        assert!(bench.end(&turn, outcome).await.is_ok());
    }
    ids.push(bench.push(of("flagged", "k0")).await.job_id);
    bench.cancel(ids[2]).await;
    for i in 0..7 {
        let job = of(&format!("{i}"), &format!("k{}", i % 4));
        ids.push(bench.push(job.idempotency_key(format!("once-{i}"))).await.job_id);
    }
    let large = seriatim::Job::new("q", &"x".repeat(100_000)).unwrap();
    let large = if mode.is_keyed() { large.key("large") } else { large };
    ids.push(bench.push(large.run_in(HOUR)).await.job_id);
    let jobs = ids.len() as u64;
    (ids, jobs)
}

async fn a_deleted_queue_is_gone_with_all_that_was_in_it(mut bench: Bench) {
    for mode in Mode::ALL {
        let (ids, jobs) = fill(&mut bench, mode).await;
        bench.declare(Queue::parallel("other")).await;
        let other = bench.push(seriatim::Job::new("other", "x").unwrap()).await.job_id;
        for id in &ids {
            assert!(bench.find(*id).await.is_some(), "{mode}");
        }
        let (count, _) = bench.delete_queue(3).await;
        assert_eq!(count, jobs, "{mode}");
        for id in &ids {
            assert_eq!(bench.find(*id).await, None, "{mode}");
        }
        let queues = bench.store.queues().await.unwrap();
        let names: Vec<_> = queues.iter().map(|view| view.queue.name.as_str()).collect();
        assert_eq!(names, ["other"], "{mode}");
        let stats = bench.store.stats(Some(bench.now)).await.unwrap();
        assert_eq!(stats.len(), 1, "{mode}");
        let claim = bench.store.claim(bench.claim_request("q", 1)).await;
        refused(claim, ErrorKind::NotFound, "queue");
        refused(bench.delete_step(3).await, ErrorKind::NotFound, "queue");
        assert_eq!(bench.state(other).await, Some(JobState::Queued), "{mode}");
    }
}

async fn a_queue_is_not_deleted_while_a_lane_is_claimed(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), loose("b").key("other")]).await;
    let turn = bench.claim(1).await.remove(0);
    refused(bench.delete_step(10).await, ErrorKind::Conflict, "queue");
    // Nothing was done, and the queue is not closed.
    bench.push(loose("c").key("other")).await;
    bench.done(&turn).await;
    let turn = bench.one().await;
    assert_eq!(tags(&turn), ["b"]);
    bench.done(&turn).await;
    assert_eq!(bench.delete_queue(10).await.0, 1);
}

async fn a_queue_that_is_being_deleted_takes_and_gives_nothing(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    let first = bench.push_all((0..5).map(|i| loose(&i.to_string())).collect()).await[0];
    let step = bench.delete_step(2).await.unwrap();
    if !step.more {
        // This store needs one step for a queue of any size.
        assert_eq!(step.count, 5);
        return;
    }
    refused(bench.try_push(vec![loose("x")]).await, ErrorKind::Conflict, "jobs[0].queue");
    let declared = bench.try_declare(Queue::parallel("q")).await;
    refused(declared, ErrorKind::Conflict, "queues[0].queue");
    let only_new = Declare { now: Some(bench.now), queues: vec![Queue::fifo("q")] };
    bench.store.declare_new(only_new).await.expect("it is none of these");
    refused(bench.store.pause_queue("q".into(), false).await, ErrorKind::Conflict, "queue");
    bench.nothing().await;
    let (count, steps) = bench.delete_queue(2).await;
    assert!(steps > 1 && step.count + count == 5, "{count} in {steps}");
    assert_eq!(bench.find(first.job_id).await, None);
    bench.push(loose("y")).await;
    assert_eq!(tags(&bench.one().await), ["y"], "the name is free");
}

async fn a_new_queue_of_the_same_name_knows_nothing_of_the_old_one(mut bench: Bench) {
    bench.declare(Queue::fifo("q").retain_completed(HOUR)).await;
    let old = bench.push(job("a").idempotency_key("once")).await;
    let turn = bench.one().await;
    bench.done(&turn).await;
    bench.store.pause_queue("q".into(), true).await.unwrap();
    bench.delete_queue(100).await;
    bench.pass(TICK);
    // In another mode, not paused, with statistics starting at 0.
    bench.declare(Queue::accumulate("q")).await;
    let new = bench.push(job("b").idempotency_key("once")).await;
    assert_eq!(new.status, PushStatus::Queued);
    assert_ne!(new.job_id, old.job_id);
    let stats = bench.stats().await;
    assert_eq!((stats.processed, stats.jobs, stats.paused), (0, 1, false));
    assert_eq!(bench.find(old.job_id).await, None);
    let next = bench.one().await;
    assert!(next.token > turn.token, "tokens grow also beyond a deletion");
    assert_eq!(bench.end(&turn, Outcome::Done).await, Settled::Stale);
    bench.done(&next).await;
}

/// A process that knows a deleted queue's number must not reach another queue by it.
async fn a_number_that_is_given_again_is_not_taken_for_the_old_queue(mut bench: Bench) {
    bench.queue(Mode::Exclusive).await;
    bench.push(job("a")).await;
    let held = bench.one().await;
    bench.done(&held).await;
    let waiting = bench.push(job("b")).await.job_id;
    bench.delete_queue(100).await;
    bench.declare(Queue::exclusive("new")).await;
    let mine = bench.push(seriatim::Job::new("new", "mine").unwrap().key("k")).await.job_id;
    assert_eq!(bench.find(waiting).await, None);
    bench.cancel(waiting).await;
    assert_eq!(bench.state(mine).await, Some(JobState::Queued));
    // The same store handle pushes to the old name: that is a new queue.
    bench.push(job("c")).await;
    let claimed = bench.claimed(bench.claim_request("new", 10)).await.turns;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].jobs[0].id, mine);
    assert_eq!(bench.end(&held, Outcome::Done).await, Settled::Stale);
    assert_eq!(tags(&bench.one().await), ["c"]);
}

async fn deleting_by_force_releases_what_runs(mut bench: Bench) {
    bench.now = bench.store.now().await.unwrap();
    bench.beat().await;
    bench.queue(Mode::Fifo).await;
    bench.push_all(vec![job("a"), loose("b").key("other")]).await;
    let held = bench.claim(1).await.remove(0);
    let refusal = delete_queue(&*bench.store, "q", false).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Conflict);
    let deleted = delete_queue(&*bench.store, "q", true).await.unwrap();
    assert_eq!((deleted.jobs, deleted.released), (2, 1));
    assert_eq!(bench.end(&held, Outcome::Done).await, Settled::Stale);
    let pulse = bench.beat_as(bench.node.clone(), vec![beat(&held, None)]).await;
    assert_eq!(pulse.lost, [held.lane]);
}

async fn an_unknown_queue_cannot_be_released_or_deleted(bench: Bench) {
    for claims in [key("k"), ClaimSelection::Queue("q".into())] {
        let request = Release { now: None, claims, made_by: None, lanes_max: 1 };
        refused(bench.store.release(request).await, ErrorKind::NotFound, "queue");
    }
    let deleted = delete_queue(&*bench.store, "q", true).await;
    refused(deleted, ErrorKind::NotFound, "queue");
}
