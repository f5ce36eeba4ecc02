//! Queues with groups, which take turns, and with limits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::*;
use seriatim::{ErrorKind, Groups, Job, Mode, Outcome, Queue, Rate, Share, SharedStore};

use super::bench::{Bench, LEASE, job, loose, refused};
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        a_job_waits_for_one_turn_of_each_other_group,
        a_group_with_many_keys_gets_no_more_than_one_with_a_single_key,
        weights_three_to_one_give_three_quarters,
        jobs_without_a_group_take_turns_as_one_group,
        within_a_group_the_most_urgent_and_oldest_comes_first,
        the_jobs_of_a_key_stay_in_order_among_groups,
        a_group_whose_jobs_are_for_another_node_passes_its_turn,
        a_lane_of_a_queue_with_groups_does_not_go_on,
        the_group_of_a_key_is_that_of_its_first_job,
        repeats_in_a_push_that_contradicts_itself_are_refused_too,
        a_dead_job_that_is_sent_back_has_its_group,
        no_more_turns_of_a_queue_run_than_may,
        no_more_turns_of_a_group_run_than_may_and_others_go_on,
        a_group_at_its_limit_keeps_its_place_behind_the_last_lane_of_a_full_claim,
        claims_at_once_exceed_no_limit_and_lose_no_place,
        claims_side_by_side_exceed_no_limit_and_lose_no_place,
        a_crash_gives_the_place_of_a_turn_back,
        a_retry_takes_its_place_anew,
        turns_start_at_the_rate_of_the_queue,
        turns_of_a_group_start_at_its_rate_and_those_of_others_at_once,
        a_raised_rate_holds_at_once,
        a_definition_with_the_same_rates_does_not_begin_them_anew,
        a_limit_may_be_changed_while_turns_run,
        groups_may_be_removed_while_jobs_wait,
        what_had_a_group_when_groups_were_removed_waits_for_no_end_of_the_others,
        a_group_where_there_are_none_is_refused,
        contradicting_limits_are_refused,
    ]
}

fn grouped(mode: Mode) -> Queue {
    Queue::new("q", mode).groups(Groups::default())
}

/// A job of this key and group, with the name of the group as its payload.
fn of(group: &str, key: &str) -> Job {
    job(group).key(key).group(group)
}

/// A job without a key.
fn free(group: &str) -> Job {
    loose(group).group(group)
}

/// The groups of the next turns, which are done.
async fn groups(bench: &mut Bench, turns: usize) -> Vec<String> {
    let turns = bench.claim(turns).await;
    let ends = turns.iter().map(|turn| bench.planned(turn, Outcome::Done)).collect();
    assert!(bench.settle(ends).await.iter().all(Settled::is_ok), "all turns are settled");
    turns.iter().map(|turn| super::bench::tag(&turn.jobs[0].payload)).collect()
}

async fn a_job_waits_for_one_turn_of_each_other_group(mut bench: Bench) {
    bench.declare(grouped(Mode::Parallel)).await;
    bench.push_all((0..200).map(|_| free("large")).collect()).await;
    bench.push_all((0..20).map(|i| free(&format!("small-{i}"))).collect()).await;
    let mut begun = bench.claim(7).await;
    bench.push(free("late")).await;
    let mut waited = 0;
    while super::bench::tag(&begun[0].jobs[0].payload) != "late" {
        begun = bench.claim(1).await;
        waited += 1;
    }
    assert!(waited <= 22, "{waited} claims of one lane, with 21 other groups");
}

async fn a_group_with_many_keys_gets_no_more_than_one_with_a_single_key(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    let many = (0..100).map(|i| of("many", &format!("key {i}")));
    let single = (0..30).map(|_| of("single", "the key"));
    bench.push_all(many.chain(single).collect()).await;
    let mut got: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..40 {
        for group in groups(&mut bench, 1).await {
            *got.entry(group).or_default() += 1;
        }
    }
    assert_eq!(got, BTreeMap::from([("many".into(), 20), ("single".into(), 20)]));
}

async fn weights_three_to_one_give_three_quarters(mut bench: Bench) {
    let shares = Groups::default().named("heavy", Share::default().weight(3));
    bench.declare(Queue::parallel("q").groups(shares)).await;
    let jobs = (0..400).map(|i| free(if i < 200 { "heavy" } else { "light" }));
    bench.push_all(jobs.collect()).await;
    let mut heavy = 0;
    for lanes in [1, 2, 3, 5, 7, 11, 13].into_iter().cycle().take(28) {
        heavy += groups(&mut bench, lanes).await.iter().filter(|group| *group == "heavy").count();
    }
    assert!((124..=128).contains(&heavy), "{heavy} of 168");
}

async fn jobs_without_a_group_take_turns_as_one_group(mut bench: Bench) {
    bench.declare(grouped(Mode::Parallel)).await;
    let jobs = (0..20).map(|i| if i < 10 { loose("none") } else { free("a") });
    bench.push_all(jobs.collect()).await;
    let mut got = groups(&mut bench, 10).await;
    got.sort_unstable();
    assert_eq!(got, [["a"; 5], ["none"; 5]].concat());
}

async fn within_a_group_the_most_urgent_and_oldest_comes_first(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    bench.push(of("a", "old")).await;
    bench.pass(Duration::from_secs(1));
    bench.push(of("a", "young")).await;
    bench.push(of("a", "urgent").priority(1)).await;
    let turns = bench.claim(3).await;
    assert_eq!(super::bench::keys(&turns), ["urgent", "old", "young"]);
}

async fn the_jobs_of_a_key_stay_in_order_among_groups(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    for i in 0..5 {
        for (group, key) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
            bench.push(job(&format!("{key} {i}")).key(key).group(group)).await;
        }
    }
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..15 {
        let turn = bench.claim(1).await.remove(0);
        let key = turn.key.as_deref().unwrap().to_owned();
        seen.entry(key).or_default().extend(super::bench::tags(&turn));
        bench.done(&turn).await;
    }
    for (key, jobs) in seen {
        assert_eq!(jobs, (0..5).map(|i| format!("{key} {i}")).collect::<Vec<_>>());
    }
}

async fn a_group_whose_jobs_are_for_another_node_passes_its_turn(mut bench: Bench) {
    bench.declare(grouped(Mode::Parallel)).await;
    let elsewhere = (0..5).map(|_| free("bound").node("elsewhere"));
    bench.push_all(elsewhere.chain((0..5).map(|_| free("free"))).collect()).await;
    assert_eq!(groups(&mut bench, 10).await, ["free"; 5]);
    assert_eq!(bench.nothing().await, None);
    let there = Claim { node_name: Some("elsewhere".into()), ..bench.claim_request("q", 10) };
    assert_eq!(bench.claimed(there).await.turns.len(), 5);
}

async fn a_lane_of_a_queue_with_groups_does_not_go_on(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    bench.push_all(vec![of("a", "k"), of("a", "k"), of("b", "l")]).await;
    let turn = bench.claim(1).await.remove(0);
    let go_on = GoOn { claim: bench.claim_request("q", 1), places: vec![0] };
    let planned = bench.planned(&turn, Outcome::Done);
    let settled = bench.settle_and_go_on(vec![planned], vec![go_on]).await;
    assert_eq!(settled, [Settled::ok(Vec::new())]);
    let mut both = groups(&mut bench, 2).await;
    both.sort_unstable();
    assert_eq!(both, ["a", "b"]);
}

async fn the_group_of_a_key_is_that_of_its_first_job(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    bench.push(of("a", "k")).await;
    let other = vec![of("b", "other"), of("b", "k")];
    refused(bench.try_push(other).await, ErrorKind::Conflict, "jobs[1].key");
    assert_eq!(bench.stats().await.jobs, 1);
    let turn = bench.one().await;
    bench.done(&turn).await;
    bench.push(of("b", "k")).await;
    assert_eq!(groups(&mut bench, 1).await, ["b"]);
}

async fn a_dead_job_that_is_sent_back_has_its_group(mut bench: Bench) {
    let shares = Groups::default().named("one", Share::default().running(1));
    bench.declare(Queue::exclusive("q").groups(shares)).await;
    bench.push_all(vec![of("one", "a"), of("one", "b")]).await;
    for _ in 0..2 {
        let turn = bench.one().await;
        bench.end(&turn, Outcome::Bury { error: "bad".into() }).await;
    }
    assert_eq!(bench.requeue_all().await, 2);
    let turn = bench.one().await;
    assert_eq!(bench.nothing().await, None);
    bench.done(&turn).await;
    assert_eq!(bench.claim(5).await.len(), 1);
}

async fn no_more_turns_of_a_queue_run_than_may(mut bench: Bench) {
    bench.declare(Queue::parallel("q").running(3)).await;
    bench.push_all((0..10).map(|i| loose(&format!("{i}"))).collect()).await;
    let first = bench.claim(10).await;
    assert_eq!(first.len(), 3);
    let other = bench.other_node("other").await;
    assert!(bench.claim_by(&other.id, 5).await.is_empty());
    bench.done(&first[1]).await;
    let mut wakeups = bench.store.wakeups();
    let second = bench.claim_by(&other.id, 5).await;
    assert_eq!(second.len(), 1);
    assert_eq!(bench.nothing().await, None);
    bench.fail(&first[0]).await;
    bench.done(&second[0]).await;
    // Those who wait are told that places are free.
    let heard = wakeups.wait(super::bench::WAIT).await;
    assert!(heard.expect("a wake-up").names("q"));
    assert_eq!(bench.claim(10).await.len(), 2);
}

async fn no_more_turns_of_a_group_run_than_may_and_others_go_on(mut bench: Bench) {
    let shares = Groups::each(Share::default().running(1))
        .named("two", Share::default().running(2))
        .named("many", Share::default().running(1_000));
    bench.declare(Queue::fifo("q").groups(shares)).await;
    let names = ["one", "two", "many"];
    let jobs = names.iter().flat_map(|name| (0..5).map(move |i| of(name, &format!("{name} {i}"))));
    bench.push_all(jobs.collect()).await;
    let turns = bench.claim(20).await;
    let count = |name: &str| {
        turns.iter().filter(|turn| super::bench::tag(&turn.jobs[0].payload) == name).count()
    };
    assert_eq!(names.map(count), [1, 2, 5]);
    for turn in &turns {
        bench.done(turn).await;
    }
    let next = groups(&mut bench, 20).await;
    assert_eq!(next.len(), 3, "{next:?}");
}

/// How many turns run, by group, and of all.
type Running = Arc<Mutex<BTreeMap<String, u32>>>;
/// Most turns of a name; of others two.
type Most = &'static [(&'static str, u32)];

/// Takes part in the work of a queue until this many turns are done.
async fn work(
    store: SharedStore,
    claim: Claim,
    running: Running,
    most: Most,
    left: Arc<AtomicUsize>,
) {
    while left.load(Ordering::SeqCst) > 0 {
        let turns = store.claim(claim.clone()).await.unwrap().turns;
        let group = |turn: &Turn| super::bench::tag(&turn.jobs[0].payload);
        let names: Vec<String> =
            turns.iter().flat_map(|turn| [group(turn), "all".to_owned()]).collect();
        for name in &names {
            let mut running = running.lock().unwrap();
            let now = running.entry(name.clone()).or_default();
            *now += 1;
            let most = most.iter().find(|(of, _)| of == name).map_or(2, |(_, most)| *most);
            assert!(*now <= most, "{now} turns of {name}");
        }
        tokio::task::yield_now().await;
        for name in &names {
            *running.lock().unwrap().entry(name.clone()).or_default() -= 1;
        }
        let done = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        let settle = Settle { now: claim.now, ..Settle::now(done) };
        assert!(store.settle(settle).await.unwrap().iter().all(Settled::is_ok));
        left.fetch_sub(turns.len(), Ordering::SeqCst);
    }
}

async fn a_group_at_its_limit_keeps_its_place_behind_the_last_lane_of_a_full_claim(
    mut bench: Bench,
) {
    let shares = Groups::default().named("narrow", Share::default().running(1));
    bench.declare(Queue::parallel("q").groups(shares)).await;
    bench.push_all((0..2).map(|_| free("narrow")).collect()).await;
    let narrow = bench.one().await;
    bench.push_all((0..5).map(|_| free("wide")).collect()).await;
    assert_eq!(groups(&mut bench, 2).await, ["wide", "wide"]);
    bench.done(&narrow).await;
    assert_eq!(groups(&mut bench, 1).await, ["narrow"]);
}

async fn claims_at_once_exceed_no_limit_and_lose_no_place(mut bench: Bench) {
    let each = Share::default().running(2);
    let shares = Groups::each(each).named("a", Share::default().weight(3).running(3));
    bench.declare(Queue::exclusive("q").groups(shares).running(6)).await;
    let jobs = || (0..80).map(|i| of(["a", "b", "c", "d"][i % 4], &format!("key {i}"))).collect();
    bench.push_all(jobs()).await;
    work_all(&bench, (4, 3), &[("a", 3), ("all", 6)], 80).await;
    bench.push_all(jobs()).await;
    assert_eq!(bench.claim(20).await.len(), 6);
}

/// Far below the limit a store may let them go side by side, but the last ones must wait for those under way.
async fn claims_side_by_side_exceed_no_limit_and_lose_no_place(mut bench: Bench) {
    for mode in [Mode::Parallel, Mode::Accumulate] {
        bench.declare(Queue::new("q", mode).running(64)).await;
        let job = |i: usize| match mode {
            Mode::Parallel => loose("job"),
            _ => job("job").key(format!("key {i}")),
        };
        bench.push_all((0..600).map(job).collect()).await;
        work_all(&bench, (12, 8), &[("job", 64), ("all", 64)], 600).await;
        bench.push_all((0..80).map(job).collect()).await;
        let turns = bench.claim(80).await;
        assert_eq!(turns.len(), 64);
        for turn in &turns {
            bench.done(turn).await;
        }
        for turn in &bench.claim(80).await {
            bench.done(turn).await;
        }
    }
}

/// Works by so many claims at once, of so many lanes, until so many turns are done.
async fn work_all(bench: &Bench, (claims, lanes): (usize, usize), most: Most, turns: usize) {
    let (running, left) = (Running::default(), Arc::new(AtomicUsize::new(turns)));
    let claim = bench.claim_request("q", lanes);
    let worker = |_| {
        let (running, left) = (running.clone(), left.clone());
        tokio::spawn(work(bench.store.clone(), claim.clone(), running, most, left))
    };
    let workers: Vec<_> = (0..claims).map(worker).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

async fn a_crash_gives_the_place_of_a_turn_back(mut bench: Bench) {
    let shares = Groups::each(Share::default().running(1));
    bench.declare(Queue::exclusive("q").groups(shares).running(1)).await;
    bench.push_all(vec![of("a", "x"), of("a", "y")]).await;
    bench.one().await;
    assert_eq!(bench.nothing().await, None);
    bench.pass(LEASE * 2);
    let rescuer = bench.other_node("rescuer").await;
    assert_eq!(bench.crash_all(&rescuer).await, 1);
    bench.node = rescuer;
    assert_eq!(bench.claim(5).await.len(), 1);
    assert_eq!(bench.nothing().await, None);
}

async fn a_retry_takes_its_place_anew(mut bench: Bench) {
    let shares = Groups::each(Share::default().running(1));
    bench.declare(Queue::fifo("q").groups(shares)).await;
    bench.push_all(vec![of("a", "x"), of("a", "y")]).await;
    let failed = bench.one().await;
    bench.fail(&failed).await;
    let other = bench.one().await;
    assert_ne!(failed.key, other.key);
    bench.pass(Duration::from_secs(3_600));
    bench.beat().await;
    assert_eq!(bench.nothing().await, None);
    bench.done(&other).await;
    assert_eq!(bench.one().await.key, failed.key);
}

async fn turns_start_at_the_rate_of_the_queue(mut bench: Bench) {
    bench.declare(Queue::parallel("q").rate(Rate::per_second(2)).burst(3)).await;
    bench.push_all((0..10).map(|i| loose(&format!("{i}"))).collect()).await;
    let begin = bench.now;
    assert_eq!(bench.claim(10).await.len(), 3);
    let half = Duration::from_millis(500);
    for _ in 0..3 {
        assert_eq!(bench.nothing().await, Some(bench.now + half));
        bench.pass(half);
        assert_eq!(bench.claim(10).await.len(), 1);
    }
    assert_eq!(bench.now, begin + half * 3);
    bench.pass(Duration::from_secs(60));
    bench.beat().await;
    assert_eq!(bench.claim(10).await.len(), 3);
}

async fn turns_of_a_group_start_at_its_rate_and_those_of_others_at_once(mut bench: Bench) {
    let slow = Share::default().rate(Rate::per_minute(6)).burst(1);
    let shares = Groups::default().named("slow", slow);
    bench.declare(Queue::parallel("q").groups(shares)).await;
    let jobs = (0..10).map(|i| free(if i < 5 { "slow" } else { "fast" }));
    bench.push_all(jobs.collect()).await;
    let mut first = groups(&mut bench, 10).await;
    first.sort_unstable();
    assert_eq!(first, ["fast", "fast", "fast", "fast", "fast", "slow"]);
    let next = bench.now + Duration::from_secs(10);
    assert_eq!(bench.nothing().await, Some(next));
    bench.pass(Duration::from_secs(10));
    assert_eq!(groups(&mut bench, 10).await, ["slow"]);
}

async fn a_raised_rate_holds_at_once(mut bench: Bench) {
    let with = |rate: Rate| Queue::parallel("q").groups(Groups::each(Share::default().rate(rate)));
    bench.declare(with(Rate::per_minute(1))).await;
    bench.push_all((0..30).map(|_| free("a")).collect()).await;
    assert_eq!(bench.claim(30).await.len(), 1);
    assert_eq!(bench.nothing().await, Some(bench.now + Duration::from_secs(60)));
    bench.declare(with(Rate::per_second(100))).await;
    assert_eq!(bench.claim(30).await.len(), 10);
    bench.declare(Queue::parallel("q").rate(Rate::per_hour(1))).await;
    assert_eq!(bench.claim(30).await.len(), 1);
    bench.declare(Queue::parallel("q").rate(Rate::per_second(50))).await;
    assert_eq!(bench.claim(30).await.len(), 5);
}

async fn a_definition_with_the_same_rates_does_not_begin_them_anew(mut bench: Bench) {
    let with = |running| Queue::parallel("q").rate(Rate::per_minute(1)).running(running);
    bench.declare(with(2)).await;
    bench.push_all((0..3).map(|i| loose(&format!("{i}"))).collect()).await;
    assert_eq!(bench.claim(10).await.len(), 1);
    bench.declare(with(3)).await;
    assert_eq!(bench.nothing().await, Some(bench.now + Duration::from_secs(60)));
}

async fn a_limit_may_be_changed_while_turns_run(mut bench: Bench) {
    let with = |running: Option<u32>| {
        let each = running.map_or(Share::default(), |most| Share::default().running(most));
        Queue::parallel("q").groups(Groups::each(each))
    };
    bench.declare(with(None)).await;
    bench.push_all((0..10).map(|_| free("a")).collect()).await;
    let turns = bench.claim(4).await;
    bench.declare(with(Some(2))).await;
    assert_eq!(bench.nothing().await, None);
    for turn in &turns[..2] {
        bench.done(turn).await;
        assert_eq!(bench.nothing().await, None);
    }
    bench.done(&turns[2]).await;
    assert_eq!(bench.claim(10).await.len(), 1);
    bench.declare(with(Some(4))).await;
    assert_eq!(bench.claim(10).await.len(), 2);
    bench.declare(with(None)).await;
    assert_eq!(bench.claim(10).await.len(), 3);
}

async fn groups_may_be_removed_while_jobs_wait(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    bench.push_all(vec![of("a", "x"), of("b", "y"), job("").key("z")]).await;
    bench.declare(Queue::fifo("q")).await;
    let turns = bench.claim(10).await;
    assert_eq!(turns.len(), 3);
    for turn in &turns {
        bench.done(turn).await;
    }
    assert_eq!(bench.stats().await.lanes, 0);
}

async fn what_had_a_group_when_groups_were_removed_waits_for_no_end_of_the_others(
    mut bench: Bench,
) {
    bench.declare(grouped(Mode::Parallel)).await;
    bench.push_all(["a", "b", "c"].map(free).into()).await;
    bench.declare(Queue::parallel("q")).await;
    let mut old = Vec::new();
    // Others are always there.
    for _ in 0..4 {
        bench.push_all(vec![loose("new"); 600]).await;
        let got = groups(&mut bench, 600).await;
        old.extend(got.into_iter().filter(|group| group != "new"));
    }
    old.sort();
    assert_eq!(old, ["a", "b", "c"]);
}

async fn repeats_in_a_push_that_contradicts_itself_are_refused_too(mut bench: Bench) {
    bench.declare(grouped(Mode::Fifo)).await;
    let one = |group: &str| of(group, "k").idempotency_key("x");
    let error = bench.try_push(vec![one("a"), of("a", "k"), one("b")]).await;
    refused(error, ErrorKind::Conflict, "jobs[2].key");
    assert_eq!(bench.stats().await.jobs, 0);
    bench.push_all(vec![one("a"), one("a")]).await;
    // A repeat of an earlier push is none of this one's jobs.
    bench.push_all(vec![of("a", "k"), one("b")]).await;
    assert_eq!(bench.stats().await.jobs, 2);
}

async fn a_group_where_there_are_none_is_refused(mut bench: Bench) {
    for mode in [Mode::Parallel, Mode::Fifo] {
        let name = format!("plain {mode}").replace(' ', "-");
        bench.declare(Queue::new(&name, mode)).await;
        let mut one = if mode == Mode::Parallel { free("a") } else { of("a", "k") };
        one.queue = name;
        refused(bench.try_push(vec![one]).await, ErrorKind::Invalid, "jobs[0].group");
    }
    let mut created = free("a");
    created.queue = "made-by-the-push".into();
    refused(bench.try_push(vec![created]).await, ErrorKind::Invalid, "jobs[0].group");
    assert!(
        bench.store.queues().await.unwrap().iter().all(|row| row.queue.name != "made-by-the-push")
    );
}

async fn contradicting_limits_are_refused(mut bench: Bench) {
    let none = Queue::parallel("q").running(0);
    refused(bench.try_declare(none).await, ErrorKind::Invalid, "queues[0].limit.running");
    let no_rate = Queue::parallel("q").burst(5);
    refused(bench.try_declare(no_rate).await, ErrorKind::Invalid, "queues[0].limit.burst");
    let shares = Groups::default().named("a", Share::default().weight(0));
    let weightless = Queue::parallel("q").groups(shares);
    refused(
        bench.try_declare(weightless).await,
        ErrorKind::Invalid,
        "queues[0].groups.named.a.weight",
    );
}
