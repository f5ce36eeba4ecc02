//! Listings, statistics and nodes.

use seriatim::limits::PAGE_BYTES_MAX;
use seriatim::store::*;
use seriatim::{ErrorKind, Exhaustion, Job, JobId, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        lanes_are_listed_page_by_page,
        lanes_are_listed_by_key_due_and_retry_count,
        lanes_are_listed_in_one_state,
        lanes_are_listed_by_their_stages,
        lanes_are_listed_by_prefix_due_time_and_retries,
        a_look_at_few_lanes_ends_early_and_the_next_goes_on,
        lanes_are_listed_by_their_holder,
        lanes_are_listed_in_a_range_of_their_order,
        a_range_in_another_order_is_refused,
        a_cursor_of_another_order_is_refused,
        a_paused_lane_shows_when_and_how_urgently_it_goes_on,
        a_lane_with_one_job_shows_which,
        running_lanes_show_their_holder,
        running_lanes_show_until_when_their_claims_hold,
        jobs_show_their_lane_and_who_runs_them,
        jobs_are_listed_page_by_page,
        jobs_are_listed_in_one_state,
        a_page_of_large_jobs_ends_early_and_the_next_goes_on,
        dead_jobs_are_listed_by_key_and_by_time,
        a_listing_of_lanes_goes_on_behind_a_row_that_is_gone,
        a_listing_of_jobs_goes_on_behind_a_row_that_is_gone,
        a_page_starts_behind_any_row_by_its_time,
        numbers_follow_what_happens,
        lag_is_the_age_of_the_oldest_due_lane,
        n9_nodes_are_listed_with_their_state,
        keys_may_hold_any_character,
    ]
}

fn all_lanes(order: LaneOrder) -> LaneQuery {
    LaneQuery { order, rows_max: 3, ..LaneQuery::new("q") }
}

async fn lane_keys(bench: &Bench, mut query: LaneQuery) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let page = bench.store.lanes(query.clone()).await.unwrap();
        assert!(page.rows.len() <= query.rows_max);
        keys.extend(page.rows.iter().map(|lane| lane.key.as_deref().unwrap_or("").to_owned()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return keys,
        }
    }
}

async fn lanes_are_listed_page_by_page(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let names: Vec<String> = (0..10).map(|i| format!("k{i}")).collect();
    bench.push_all(names.iter().map(|k| loose("a").key(k.as_str())).collect()).await;
    assert_eq!(lane_keys(&bench, all_lanes(LaneOrder::Age)).await, names);
    let one = LaneQuery { key: Some("k4".into()), ..all_lanes(LaneOrder::Age) };
    let lane = bench.store.lanes(one.clone()).await.unwrap().rows.remove(0).lane;
    assert_eq!(lane_keys(&bench, one.clone()).await, ["k4"]);
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
        let named = LaneQuery { lane: Some(lane), ..all_lanes(order) };
        assert_eq!(lane_keys(&bench, named.clone()).await, ["k4"]);
        let other = LaneQuery { key: Some("k5".into()), ..named };
        assert_eq!(lane_keys(&bench, other).await, [""; 0]);
        let gone = LaneId { number: lane.number + 1_000_000, ..lane };
        let gone = LaneQuery { lane: Some(gone), ..all_lanes(order) };
        assert_eq!(lane_keys(&bench, gone).await, [""; 0]);
    }
}

async fn lanes_are_listed_by_key_due_and_retry_count(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let push = |key: &str, times: u32| loose("a").key(key).run_in(WAIT * times);
    bench.push_all(vec![push("c", 1), push("a", 3), push("b", 2), push("d", 0)]).await;
    assert_eq!(lane_keys(&bench, all_lanes(LaneOrder::Key)).await, ["a", "b", "c", "d"]);
    assert_eq!(lane_keys(&bench, all_lanes(LaneOrder::Due)).await, ["d", "c", "b", "a"]);
    assert_eq!(lane_keys(&bench, all_lanes(LaneOrder::RetryCount)).await, [""; 0]);
    for failures in [1, 2] {
        bench.pass(WAIT * 2);
        for turn in bench.claim(failures).await {
            bench.fail(&turn).await;
        }
    }
    let page = bench.store.lanes(all_lanes(LaneOrder::RetryCount)).await.unwrap();
    let counts: Vec<i32> = page.rows.iter().map(|lane| lane.retry_count).collect();
    assert!(!counts.is_empty() && counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert!(page.rows.iter().all(|lane| lane.error.as_deref() == Some("it failed")));
}

async fn lanes_are_listed_in_one_state(mut bench: Bench) {
    let queue = |mode| Queue::new("q", mode).max_retries(0).exhausted(Exhaustion::Hold);
    for mode in [Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        bench.declare(queue(mode)).await;
        let push = |key: &str| loose("a").key(key);
        bench.push_all(["held 1", "held 2", "claimed 1", "claimed 2"].map(push).to_vec()).await;
        let mut turns = bench.claim(4).await;
        for turn in turns.drain(..2) {
            bench.fail(&turn).await;
        }
        let others = ["paused 1", "paused 2", "waiting 1", "waiting 2"];
        bench.push_all(others.map(push).to_vec()).await;
        bench.push(push("waiting later").run_in(WAIT)).await;
        // A lane paused while it is claimed counts as claimed.
        for key in ["paused 1", "paused 2", "claimed 2"] {
            bench.act(LaneSelection::Key(key.into()), LaneAction::Pause).await;
        }
        for (stages, keys) in [
            (&[LaneStage::Held][..], vec!["held 1", "held 2"]),
            (&[LaneStage::Running], vec!["claimed 1", "claimed 2"]),
            (&[LaneStage::Paused], vec!["paused 1", "paused 2"]),
            (&LaneStage::WAITING, vec!["waiting 1", "waiting 2", "waiting later"]),
        ] {
            for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
                let query = LaneQuery { stages: stages.to_vec(), rows_max: 1, ..all_lanes(order) };
                let mut listed = lane_keys(&bench, query).await;
                listed.sort();
                assert_eq!(listed, keys, "{mode} {stages:?} {order:?}");
            }
            let one = LaneQuery { key: Some(keys[0].into()), ..all_lanes(LaneOrder::Age) };
            assert_eq!(
                lane_keys(&bench, LaneQuery { stages: stages.to_vec(), ..one.clone() }).await.len(),
                1
            );
            let others = LaneStage::ALL.iter().filter(|stage| !stages.contains(stage)).copied();
            let none = LaneQuery { stages: others.collect(), ..one };
            assert_eq!(lane_keys(&bench, none).await, [""; 0], "{mode} {stages:?}");
        }
        for turn in &turns {
            bench.done(turn).await;
        }
        bench.delete_queue(1_000).await;
    }
}

async fn lanes_are_listed_by_their_stages(mut bench: Bench) {
    use LaneStage::{Crashed, Paused, Ready, Retrying, Running, Scheduled};
    bench.queue(Mode::Fifo).await;
    let push = |key: &str| loose("a").key(key);
    bench.push_all(["crashed", "failed", "failed later"].map(push).to_vec()).await;
    let turns = bench.claim(3).await;
    for turn in &turns {
        match turn.key.as_deref() {
            Some("crashed") => drop(bench.end(turn, Outcome::Crash { error: "lost".into() }).await),
            _ => bench.fail(turn).await,
        }
    }
    bench.push_all(["ready", "paused"].map(push).to_vec()).await;
    bench.push(push("scheduled").run_in(WAIT * 1_000)).await;
    bench.act(LaneSelection::Key("paused".into()), LaneAction::Pause).await;
    let lanes = bench.store.lanes(all_lanes(LaneOrder::Age)).await.unwrap();
    let crashed = lanes.rows.iter().find(|lane| lane.key.as_deref() == Some("crashed")).unwrap();
    let shown = crashed.stage(bench.now);
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
        let keys = async |stages: &[LaneStage]| {
            let now = Some(bench.now);
            let query = LaneQuery { now, stages: stages.to_vec(), rows_max: 2, ..all_lanes(order) };
            let mut keys = lane_keys(&bench, query).await;
            keys.sort();
            keys
        };
        let with = |stage, mut keys: Vec<&'static str>| {
            keys.extend((shown == stage).then_some("crashed"));
            keys.sort_unstable();
            keys
        };
        assert_eq!(keys(&[Crashed]).await, ["crashed"], "{order:?}");
        assert_eq!(keys(&[Ready]).await, with(Ready, vec!["ready"]), "{order:?}");
        assert_eq!(keys(&[Scheduled]).await, with(Scheduled, vec!["scheduled"]), "{order:?}");
        let failed = with(Retrying, vec!["failed", "failed later"]);
        assert_eq!(keys(&[Retrying]).await, failed, "{order:?}");
        assert_eq!(keys(&[Running]).await, [""; 0], "{order:?}");
        assert_eq!(keys(&[Crashed, Paused]).await, ["crashed", "paused"], "{order:?}");
        assert_eq!(keys(&LaneStage::ALL).await.len(), 6, "{order:?}");
    }
    for stages in [vec![Retrying, Scheduled], vec![Scheduled], vec![Retrying]] {
        // Those that wait for their time, from now on: as without a beginning.
        let of_stages = LaneQuery { stages, rows_max: 1, ..all_lanes(LaneOrder::Due) };
        let from = Some(LanePlace::Due(bench.now + std::time::Duration::from_micros(1)));
        let later = LaneQuery { now: Some(bench.now), from, ..of_stages.clone() };
        let all = LaneQuery { now: Some(bench.now), ..of_stages };
        let keys = lane_keys(&bench, later.clone()).await;
        assert_eq!(keys, lane_keys(&bench, all).await, "{later:?}");
        assert!(!keys.is_empty(), "{later:?}");
    }
    let retrying = LaneQuery { stages: vec![Retrying], ..all_lanes(LaneOrder::RetryCount) };
    assert!(lane_keys(&bench, retrying).await.len() >= 2);
    let paused = LaneQuery { stages: vec![Paused], ..all_lanes(LaneOrder::RetryCount) };
    assert_eq!(lane_keys(&bench, paused).await, [""; 0]);
}

async fn lanes_are_listed_by_prefix_due_time_and_retries(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let names = ["a", "b", "b/1", "b/2", "b/\u{10ffff}", "b0", "\u{d7ff}1", "\u{e000}"];
    let push = |(i, key): (u32, &&str)| loose("a").key(*key).run_in(WAIT * i);
    bench.push_all((0..).zip(&names).map(push).collect()).await;
    let due = |times: u32| Some(bench.now + WAIT * times);
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
        let all = || LaneQuery { rows_max: 1, ..all_lanes(order) };
        let of = |prefix: &str| LaneQuery { prefix: Some(prefix.into()), ..all() };
        for (query, wanted) in [
            (of(""), &names[..]),
            (of("b"), &names[1..6]),
            (of("b/"), &names[2..5]),
            (of("\u{d7ff}"), &names[6..7]),
            (of("c"), &[]),
            (LaneQuery { due_from: due(2), due_to: due(3), ..all() }, &names[2..4]),
            (LaneQuery { due_to: due(1), ..all() }, &names[..2]),
            (LaneQuery { due_to: due(2), ..of("b") }, &names[1..3]),
            (LaneQuery { retries_min: Some(0), ..all() }, &[]),
        ] {
            assert_eq!(lane_keys(&bench, query.clone()).await, wanted, "{query:?}");
        }
    }
    for failures in [3, 1] {
        bench.pass(WAIT * 10);
        for turn in bench.claim(failures).await {
            bench.fail(&turn).await;
        }
    }
    for order in [LaneOrder::Age, LaneOrder::Due, LaneOrder::RetryCount] {
        for least in 0..3 {
            let all = bench.store.lanes(LaneQuery { rows_max: 10, ..all_lanes(order) }).await;
            let fits = |lane: &&LaneView| lane.retry_count >= least;
            let all = all.unwrap().rows;
            let keys = all.iter().filter(fits).map(|lane| lane.key.as_deref().unwrap().to_owned());
            let query = LaneQuery { retries_min: Some(least), ..all_lanes(order) };
            let wanted: Vec<String> = keys.collect();
            assert!(wanted.len() >= 3 || least > 0, "three have failed: {wanted:?}");
            assert_eq!(lane_keys(&bench, query).await, wanted, "{order:?} {least}");
        }
    }
}

async fn a_look_at_few_lanes_ends_early_and_the_next_goes_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let names: Vec<String> = (0..20).map(|i| format!("k{i:02}")).collect();
    bench.push_all(names.iter().map(|k| loose("a").key(k.as_str())).collect()).await;
    for key in ["k02", "k17", "k19"] {
        bench.act(LaneSelection::Key(key.into()), LaneAction::Pause).await;
    }
    // Of a mixed set, for which no store has an index.
    let stages = vec![LaneStage::Paused, LaneStage::Retrying];
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
        let mut query = LaneQuery { stages: stages.clone(), scan_max: Some(5), ..all_lanes(order) };
        let (mut keys, mut pages) = (Vec::new(), 0);
        loop {
            let page = bench.store.lanes(query.clone()).await.unwrap();
            assert!(!page.cut || (page.next.is_some() && page.rows.len() < query.rows_max));
            pages += 1;
            keys.extend(page.rows.iter().map(|lane| lane.key.as_deref().unwrap().to_owned()));
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(keys, ["k02", "k17", "k19"], "{order:?}");
        assert!((1..=4).contains(&pages), "{order:?}: {pages} pages");
    }
}

async fn lanes_are_listed_by_their_holder(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let push = |key: &str| loose("a").key(key);
    bench.push_all(["a", "b", "c", "d", "e"].map(push).to_vec()).await;
    let other = bench.other_node("other").await.id;
    bench.claim(2).await;
    bench.claim_by(&other, 2).await;
    for (node, held) in [(bench.node.id.clone(), ["a", "b"]), (other, ["c", "d"])] {
        for order in [LaneOrder::Age, LaneOrder::Key] {
            let all = LaneQuery { rows_max: 1, ..all_lanes(order) };
            assert_eq!(
                lane_keys(&bench, LaneQuery { node: Some(node.clone()), ..all }).await,
                held
            );
        }
        let waiting = LaneQuery { node: Some(node.clone()), ..all_lanes(LaneOrder::Age) };
        let waiting = LaneQuery { stages: LaneStage::WAITING.to_vec(), ..waiting };
        assert_eq!(lane_keys(&bench, waiting).await, [""; 0]);
        let one = LaneQuery { node: Some(node), ..all_lanes(LaneOrder::Age) };
        let one = LaneQuery { key: Some("c".into()), ..one };
        assert_eq!(lane_keys(&bench, one).await.len(), usize::from(held == ["c", "d"]));
    }
    // What is released has no holder.
    assert_eq!(bench.release(ClaimSelection::Queue("q".into())).await.len(), 4);
    let stranger = LaneQuery { node: Some("stranger".into()), ..all_lanes(LaneOrder::Age) };
    assert_eq!(lane_keys(&bench, stranger).await, [""; 0]);
}

async fn lanes_are_listed_in_a_range_of_their_order(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let push = |key: &str, times: u32| loose("a").key(key).run_in(WAIT * times);
    let names = ["a", "b", "b2", "c", "d"];
    bench.push_all((0..5).map(|i| push(names[i as usize], i)).collect()).await;
    let start = bench.now;
    let range = |order, from, to| LaneQuery { from, to, rows_max: 2, ..all_lanes(order) };
    let key = |text: &str| Some(LanePlace::Key(text.into()));
    let due = |times: u32| Some(LanePlace::Due(start + WAIT * times));
    for (query, wanted) in [
        (range(LaneOrder::Key, key("b"), key("c")), &names[1..4]),
        (range(LaneOrder::Key, key("b1"), None), &names[2..]),
        (range(LaneOrder::Key, None, key("b")), &names[..2]),
        (range(LaneOrder::Key, key(""), key("bb")), &names[..3]),
        (range(LaneOrder::Key, key("x"), None), &[]),
        (range(LaneOrder::Due, due(1), due(3)), &names[1..4]),
        (range(LaneOrder::Due, due(2), None), &names[2..]),
        (range(LaneOrder::Due, None, due(0)), &names[..1]),
    ] {
        assert_eq!(lane_keys(&bench, query.clone()).await, wanted, "{query:?}");
    }
    bench.pass(WAIT * 10);
    // Failures: 0, 1 and 2, minus one; "d" has never failed.
    for failures in 0..3 {
        for turn in bench.claim(4).await {
            let place = names.iter().position(|name| Some(*name) == turn.key.as_deref());
            match place.is_some_and(|place| place >= failures && place < 4) {
                true => bench.fail(&turn).await,
                false => drop(bench.end(&turn, Outcome::Release).await),
            }
        }
        bench.pass(WAIT * 10);
    }
    let count = |count| Some(LanePlace::RetryCount(count));
    let counts = |page: Page<LaneView>| -> Vec<i32> {
        page.rows.iter().map(|lane| lane.retry_count).collect()
    };
    let query = |from, to| LaneQuery { rows_max: 10, ..range(LaneOrder::RetryCount, from, to) };
    let all = counts(bench.store.lanes(query(None, None)).await.unwrap());
    assert!(all.len() >= 3 && all.is_sorted_by(|a, b| a >= b), "{all:?}");
    for (from, to) in [(Some(1), None), (None, Some(1)), (Some(1), Some(1)), (Some(9), Some(0))] {
        let fits = |n: &i32| from.is_none_or(|from| *n <= from) && to.is_none_or(|to| *n >= to);
        let wanted: Vec<i32> = all.iter().copied().filter(fits).collect();
        let page = bench.store.lanes(query(from.and_then(count), to.and_then(count))).await;
        assert_eq!(counts(page.unwrap()), wanted, "{from:?} {to:?}");
    }
}

async fn a_range_in_another_order_is_refused(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let key = Some(LanePlace::Key("a".into()));
    for order in [LaneOrder::Age, LaneOrder::Due, LaneOrder::RetryCount] {
        let from = LaneQuery { from: key.clone(), ..all_lanes(order) };
        refused(bench.store.lanes(from).await, ErrorKind::Invalid, "from");
        let to = LaneQuery { to: key.clone(), ..all_lanes(order) };
        refused(bench.store.lanes(to).await, ErrorKind::Invalid, "to");
    }
}

async fn a_cursor_of_another_order_is_refused(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push(job("a")).await;
    let after = Some("1:x".to_owned());
    for order in [LaneOrder::Age, LaneOrder::Due, LaneOrder::RetryCount] {
        let query = LaneQuery { after: after.clone(), ..all_lanes(order) };
        refused(bench.store.lanes(query).await, ErrorKind::Invalid, "after");
    }
    let far =
        LaneQuery { after: Some(format!("1:{}", i64::MAX)), ..all_lanes(LaneOrder::RetryCount) };
    refused(bench.store.lanes(far).await, ErrorKind::Invalid, "after");
    for order in [JobOrder::Arrival, JobOrder::UpdatedAt] {
        let query = JobQuery { order, after: after.clone(), ..JobQuery::new("q", JobState::Dead) };
        refused(bench.store.jobs(query).await, ErrorKind::Invalid, "after");
    }
}

async fn a_paused_lane_shows_when_and_how_urgently_it_goes_on(mut bench: Bench) {
    for mode in [Mode::Fifo, Mode::Exclusive] {
        bench.queue(mode).await;
        bench.push(job("a").priority(200)).await;
        let turn = bench.one().await;
        bench.push(job("b").priority(1).run_in(WAIT)).await;
        bench.act(LaneSelection::Key("k".into()), LaneAction::Pause).await;
        bench.done(&turn).await;
        let lane = bench.store.lanes(all_lanes(LaneOrder::Due)).await.unwrap().rows.remove(0);
        let shown = (lane.state, lane.priority, lane.due);
        assert_eq!(shown, (LaneState::Paused, 1, Some(bench.now + WAIT)), "{mode}");
        bench.act(LaneSelection::Key("k".into()), LaneAction::Delete).await;
    }
}

async fn a_lane_with_one_job_shows_which(mut bench: Bench) {
    let queues = [Mode::Parallel, Mode::Exclusive, Mode::Fifo, Mode::Accumulate];
    for mode in queues {
        let name = mode.as_str();
        bench.declare(Queue::new(name, mode)).await;
        let job = |key: &str| {
            let job = Job::new(name, &key).unwrap().task("ship").idempotency_key(key);
            if mode == Mode::Parallel { job } else { job.key(key) }
        };
        bench.push(job("a")).await;
        bench.push(job("b").run_in(LEASE)).await;
        if mode != Mode::Parallel {
            bench.push(job("c")).await;
            bench.push(Job::new(name, &"more").unwrap().key("c")).await;
        }
        let request = bench.claim_request(name, 1);
        let turn = bench.claimed(request).await.turns.remove(0);
        for is_claimed in [true, false] {
            if !is_claimed {
                bench.fail(&turn).await;
            }
            let jobs = bench.store.jobs(JobQuery::new(name, JobFilter::Live)).await.unwrap().rows;
            for lane in bench.store.lanes(LaneQuery::new(name)).await.unwrap().rows {
                let mut of_lane = jobs.iter().filter(|job| job.lane == Some(lane.lane));
                let only = |job: &JobView| {
                    let (task, options) = (job.task.clone(), job.options.clone());
                    LaneJob { id: job.id, task, options }
                };
                let first = of_lane.next().map(only);
                let is_alone = of_lane.next().is_none();
                assert_eq!(lane.only, first.filter(|_| is_alone), "{name}: {:?}", lane.key);
                assert_eq!(is_alone, lane.key.as_deref() != Some("c"));
                let options = lane.only.and_then(|job| job.options);
                assert_eq!(options.is_some(), is_alone, "{name}: {:?}", lane.key);
            }
        }
    }
}

async fn running_lanes_show_their_holder(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    bench.push_all(vec![loose("a").key("x"), loose("b").key("y"), loose("c").key("x")]).await;
    let turn = bench.claim(1).await.remove(0);
    let running = LaneQuery { stages: vec![LaneStage::Running], ..all_lanes(LaneOrder::Age) };
    let page = bench.store.lanes(running).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    let lane = &page.rows[0];
    assert_eq!((lane.lane, lane.key.as_deref()), (turn.lane, Some("x")));
    assert_eq!((lane.state, lane.jobs, lane.token), (LaneState::Claimed, 2, Some(turn.token)));
    assert_eq!(lane.node.as_ref(), Some(&bench.node.id));
    assert_eq!(lane.claimed_at, Some(bench.now));
}

async fn running_lanes_show_until_when_their_claims_hold(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(["a", "b", "c"].map(|key| loose("x").key(key)).to_vec()).await;
    let end = async |bench: &Bench, key: &str| {
        let one = LaneQuery { key: Some(key.into()), ..all_lanes(LaneOrder::Age) };
        bench.store.lanes(one).await.unwrap().rows[0].lease_until
    };
    assert_eq!(end(&bench, "a").await, None, "nobody holds it");
    let of_node = bench.claim(1).await.remove(0);
    let lease = Lease::Own { ttl: LEASE * 3 };
    let own = Claim { lease, ..bench.claim_request("q", 1) };
    let own = bench.claimed(own).await.turns.remove(0);
    let begun = bench.now;
    assert_eq!(end(&bench, "a").await, Some(begun + LEASE));
    assert_eq!(end(&bench, "b").await, Some(begun + LEASE * 3));
    assert_eq!(end(&bench, "c").await, None);
    bench.pass(LEASE / 2);
    let beat = Beat { extend: Some(LEASE * 4), ..Beat::of(&own) };
    bench.beat_as(bench.node.clone(), vec![beat]).await;
    assert_eq!(end(&bench, "a").await, Some(bench.now + LEASE), "its node lives");
    assert_eq!(end(&bench, "b").await, Some(bench.now + LEASE * 4), "it was extended");
    assert!(bench.declare_dead(&bench.node.clone(), bench.now).await);
    assert!(end(&bench, "a").await.is_some_and(|until| until <= bench.now), "its node is gone");
    bench.other_node("other").await;
    bench.done(&of_node).await;
    bench.done(&own).await;
}

async fn jobs_show_their_lane_and_who_runs_them(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new("q", mode)).await;
        let job = |i: usize| match mode {
            Mode::Parallel => loose(&format!("{i}")),
            _ => loose(&format!("{i}")).key(format!("k{}", i % 2)),
        };
        let pushed = bench.push_all((0..4).map(job).collect()).await;
        for one in &pushed {
            let job = bench.job(one.job_id).await;
            assert!(job.lane.is_some() && job.token.is_none() && job.node.is_none(), "{mode}");
        }
        let turn = bench.claim(1).await.remove(0);
        let later = bench.push(job(0)).await;
        for job in bench.store.jobs(queued()).await.unwrap().rows {
            let runs = turn.jobs.iter().any(|one| one.id == job.id);
            let node = Some(bench.node.id.clone()).filter(|_| runs);
            assert_eq!((job.token, job.node), (Some(turn.token).filter(|_| runs), node), "{mode}");
            let lane = LaneQuery { lane: job.lane, ..all_lanes(LaneOrder::Age) };
            let lane = bench.store.lanes(lane).await.unwrap().rows.remove(0);
            assert_eq!(lane.key, job.key, "{mode}");
        }
        let waiting = bench.job(later.job_id).await;
        assert!(waiting.token.is_none() && waiting.node.is_none(), "{mode}");
        bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
        let dead = bench.job(turn.jobs[0].id).await;
        assert_eq!((dead.lane, dead.token, dead.node), (None, None, None), "{mode}");
        bench.delete_queue(1_000).await;
    }
}

/// The waiting jobs, four per page.
fn queued() -> JobQuery {
    JobQuery { rows_max: 4, ..JobQuery::new("q", JobFilter::Live) }
}

async fn jobs_are_listed_page_by_page(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = (0..10).map(|i| loose(&i.to_string()).key(format!("k{}", i % 3)));
    let pushed = bench.push_all(jobs.collect()).await;
    bench.claim(1).await;
    let mut query = queued();
    let mut ids = Vec::new();
    loop {
        let page = bench.store.jobs(query.clone()).await.unwrap();
        ids.extend(page.rows.iter().map(|job| job.id));
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    assert_eq!(ids, pushed.iter().map(|pushed| pushed.job_id).collect::<Vec<_>>());
    let keyed = JobQuery { key: Some("k1".into()), after: None, ..query };
    assert_eq!(bench.store.jobs(keyed).await.unwrap().rows.len(), 3);
}

async fn jobs_are_listed_in_one_state(mut bench: Bench) {
    for mode in Mode::ALL {
        bench.declare(Queue::new("q", mode)).await;
        let key = |i: usize| format!("k{}", i % 5);
        let job = |i: usize| loose(&format!("{i}"));
        let keyed = |i: usize| if mode == Mode::Parallel { job(i) } else { job(i).key(key(i)) };
        bench.push_all((0..20).map(keyed).collect()).await;
        let turns = bench.claim(3).await;
        let mut running: Vec<_> =
            turns.iter().flat_map(|turn| turn.jobs.iter().map(|job| job.id)).collect();
        running.sort();
        let later = bench.push_all((20..25).map(keyed).collect()).await;
        let list = async |bench: &Bench, filter: JobFilter, key: Option<String>, order| {
            let mut query = JobQuery { key, order, rows_max: 2, ..JobQuery::new("q", filter) };
            let mut ids = Vec::new();
            loop {
                let page = bench.store.jobs(query.clone()).await.unwrap();
                assert!(page.rows.len() <= 2);
                assert!(page.rows.iter().all(|job| filter.shows(job.state)), "{mode} {filter:?}");
                ids.extend(page.rows.iter().map(|job| job.id));
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => return ids,
                }
            }
        };
        for order in [JobOrder::Arrival, JobOrder::Key] {
            let shown = list(&bench, JobState::Running.into(), None, order).await;
            let (mut sorted, queued) =
                (shown.clone(), list(&bench, JobState::Queued.into(), None, order).await);
            sorted.sort();
            assert_eq!(sorted, running, "{mode} {order:?}");
            assert_eq!(queued.len(), 25 - running.len(), "{mode} {order:?}");
            assert!(later.iter().all(|job| queued.contains(&job.job_id)), "{mode} {order:?}");
            assert!(!queued.iter().any(|id| running.contains(id)), "{mode} {order:?}");
            assert_eq!(list(&bench, JobFilter::Live, None, order).await.len(), 25);
        }
        if let Some(key) = turns[0].key.as_deref().map(str::to_owned) {
            let one = list(&bench, JobState::Running.into(), Some(key.clone()), JobOrder::Arrival);
            let ids: Vec<_> = turns[0].jobs.iter().map(|job| job.id).collect();
            assert_eq!(one.await, ids, "{mode}");
            let rest = list(&bench, JobState::Queued.into(), Some(key), JobOrder::Arrival).await;
            assert_eq!(rest.len(), 5 - ids.len(), "{mode}");
        }
        for turn in &turns {
            bench.done(turn).await;
        }
        bench.delete_queue(1_000).await;
    }
}

async fn a_page_of_large_jobs_ends_early_and_the_next_goes_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let large = "x".repeat(PAGE_BYTES_MAX / 2 - 2);
    let jobs = (0..5).map(|i| Job::new("q", &large).unwrap().key(format!("k{i}")));
    bench.push_all(jobs.collect()).await;
    let mut query = queued();
    assert_eq!(sizes(&bench, &mut query).await, [2, 2, 1]);
    for turn in bench.claim(10).await {
        bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
    }
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let mut query =
            JobQuery { filter: JobState::Dead.into(), order, after: None, ..query.clone() };
        assert_eq!(sizes(&bench, &mut query).await, [2, 2, 1], "{order:?}");
    }
}

/// The number of rows on each page.
async fn sizes(bench: &Bench, query: &mut JobQuery) -> Vec<usize> {
    let mut sizes = Vec::new();
    loop {
        let page = bench.store.jobs(query.clone()).await.unwrap();
        sizes.push(page.rows.len());
        query.after = page.next;
        if query.after.is_none() {
            return sizes;
        }
    }
}

async fn dead_jobs_are_listed_by_key_and_by_time(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    bench.push_all(["b", "c", "a"].map(|k| loose(k).key(k)).to_vec()).await;
    for turn in bench.claim(10).await {
        bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
        bench.pass(WAIT);
    }
    for (order, expected) in
        [(JobOrder::Key, ["a", "b", "c"]), (JobOrder::UpdatedAt, ["a", "c", "b"])]
    {
        let mut query = JobQuery { order, rows_max: 2, ..JobQuery::new("q", JobState::Dead) };
        let first = bench.store.jobs(query.clone()).await.unwrap();
        query.after = first.next;
        let second = bench.store.jobs(query).await.unwrap();
        let rows = first.rows.iter().chain(&second.rows);
        let keys: Vec<_> = rows.map(|job| job.key.as_deref().unwrap_or("")).collect();
        assert_eq!(keys, expected, "{order:?}");
        assert!(second.next.is_none());
    }
}

/// Removes the last row of each page before requesting the next one.
async fn a_listing_of_lanes_goes_on_behind_a_row_that_is_gone(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due, LaneOrder::RetryCount] {
        let names: Vec<String> = (0..9).map(|i| format!("k{i}")).collect();
        let job = |(i, key): (u32, &String)| loose("a").key(key.as_str()).run_in(WAIT / 10 * i);
        let pushed = bench.push_all((0..).zip(&names).map(job).collect()).await;
        if order == LaneOrder::RetryCount {
            bench.pass(WAIT);
            for turn in bench.claim(9).await {
                bench.fail(&turn).await;
            }
        }
        let (mut query, mut seen) = (all_lanes(order), Vec::new());
        loop {
            let page = bench.store.lanes(query.clone()).await.unwrap();
            let keys = page.rows.iter().map(|lane| lane.key.as_deref().unwrap().to_owned());
            seen.extend(keys);
            let last = names.iter().position(|name| name == seen.last().unwrap()).unwrap();
            bench.cancel(pushed[last].job_id).await;
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        assert_eq!(seen, names, "{order:?}");
        for job in &pushed {
            bench.cancel(job.job_id).await;
        }
        assert_eq!(lane_keys(&bench, all_lanes(order)).await, [""; 0]);
    }
}

async fn a_listing_of_jobs_goes_on_behind_a_row_that_is_gone(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    for (state, order) in [
        (JobState::Queued, JobOrder::Arrival),
        (JobState::Queued, JobOrder::Key),
        (JobState::Dead, JobOrder::Arrival),
        (JobState::Dead, JobOrder::Key),
        (JobState::Dead, JobOrder::UpdatedAt),
    ] {
        let job = |i| loose(&format!("{i}")).key(format!("k{i}"));
        let pushed = bench.push_all((0..8).map(job).collect()).await;
        if state == JobState::Dead {
            for turn in bench.claim(8).await {
                bench.pass(WAIT / 10);
                bench.end(&turn, Outcome::Bury { error: "enough".into() }).await;
            }
        }
        let mut wanted: Vec<_> = pushed.iter().map(|job| job.job_id).collect();
        if order == JobOrder::UpdatedAt {
            wanted.reverse();
        }
        let mut query = JobQuery { filter: state.into(), order, rows_max: 3, ..queued() };
        let mut seen = Vec::new();
        loop {
            let page = bench.store.jobs(query.clone()).await.unwrap();
            seen.extend(page.rows.iter().map(|job| job.id));
            bench.forget(*seen.last().unwrap()).await;
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        assert_eq!(seen, wanted, "{state:?} {order:?}");
        for id in wanted {
            bench.forget(id).await;
        }
    }
}

async fn a_page_starts_behind_any_row_by_its_time(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    // Three have one time.
    let job = |i: u32| loose(&i.to_string()).key(format!("k{i}")).run_in(WAIT * (i / 3));
    bench.push_all((0..9).map(job).collect()).await;
    let by_due = LaneQuery { rows_max: 100, ..all_lanes(LaneOrder::Due) };
    let lanes = bench.store.lanes(by_due.clone()).await.unwrap().rows;
    assert_eq!(lanes.len(), 9);
    for (i, lane) in lanes.iter().enumerate() {
        let before_all = LaneId { shard: 0, number: 0, ..lane.lane };
        let of_time = lanes.iter().position(|other| other.due == lane.due).unwrap();
        for (place, begin) in [(lane.lane, i + 1), (before_all, of_time)] {
            let behind = lane.due.map(|due| (due, place));
            let page = bench.store.lanes(LaneQuery { behind, ..by_due.clone() }).await.unwrap();
            assert_eq!(page.rows, lanes[begin..], "{place}");
        }
        let behind = lane.due.map(|due| (due, lane.lane));
        let by_age = LaneQuery { behind, ..all_lanes(LaneOrder::Age) };
        refused(bench.store.lanes(by_age).await, ErrorKind::Invalid, "behind");
    }
    bench.pass(WAIT * 3);
    for (i, turn) in bench.claim(9).await.iter().enumerate() {
        bench.end(turn, Outcome::Bury { error: "hopeless".into() }).await;
        bench.pass(WAIT * (i as u32 % 3 / 2));
    }
    let order = JobOrder::UpdatedAt;
    let newest = JobQuery { order, ..JobQuery::new("q", JobState::Dead) };
    let jobs = bench.store.jobs(newest.clone()).await.unwrap().rows;
    assert_eq!(jobs.len(), 9);
    for (i, job) in jobs.iter().enumerate() {
        let of_time = jobs.iter().position(|other| other.finished_at == job.finished_at).unwrap();
        for (place, begin) in [(job.id, i + 1), (JobId::from_bytes([0; 16]), of_time)] {
            let behind = job.finished_at.map(|at| (at, place));
            let page = bench.store.jobs(JobQuery { behind, ..newest.clone() }).await.unwrap();
            assert_eq!(page.rows, jobs[begin..], "{place}");
        }
        let behind = job.finished_at.map(|at| (at, job.id));
        let by_key = JobQuery { behind, order: JobOrder::Key, ..newest.clone() };
        refused(bench.store.jobs(by_key).await, ErrorKind::Invalid, "behind");
    }
}

async fn numbers_follow_what_happens(mut bench: Bench) {
    bench.queue(Mode::Accumulate).await;
    let jobs = (0..12).map(|i| loose(&i.to_string()).key(format!("k{}", i % 4)));
    bench.push_all(jobs.collect()).await;
    let turns = bench.claim(3).await;
    bench.done(&turns[0]).await;
    bench.fail(&turns[1]).await;
    bench.push(loose("new").key(&**turns[2].key.as_ref().unwrap())).await;
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.claimed, stats.retrying), (3, 10, 1, 1));
    assert_eq!((stats.processed, stats.failed, stats.dead), (3, 1, 0));
    assert_eq!(stats.mode, Some(Mode::Accumulate));
    bench.end(&turns[2], Outcome::Bury { error: "hopeless".into() }).await;
    let stats = bench.stats().await;
    assert_eq!((stats.lanes, stats.jobs, stats.claimed, stats.dead), (3, 7, 0, 3));
}

async fn lag_is_the_age_of_the_oldest_due_lane(mut bench: Bench) {
    bench.queue(Mode::Parallel).await;
    assert_eq!(bench.stats().await.lag.as_secs(), 0);
    bench.push_all(vec![loose("a").run_in(WAIT), loose("b").run_in(WAIT * 2).priority(1)]).await;
    assert_eq!(bench.stats().await.lag.as_secs(), 0);
    bench.pass(WAIT * 3);
    assert_eq!(bench.stats().await.lag, WAIT * 2);
    bench.claim(1).await;
    assert_eq!(bench.stats().await.lag, WAIT * 2, "the urgent one went first");
    bench.claim(1).await;
    assert_eq!(bench.stats().await.lag.as_secs(), 0);
}

async fn n9_nodes_are_listed_with_their_state(mut bench: Bench) {
    bench.other_node("gone").await;
    bench.pass(LEASE * 2);
    bench.beat().await;
    bench.rescue(&bench.node.clone()).await;
    let nodes = bench.store.nodes().await.unwrap();
    let mut states: Vec<_> = nodes.iter().map(|n| (&*n.info.id.0, n.dead)).collect();
    states.sort_unstable();
    assert_eq!(states, [("gone", true), ("node-1", false)]);
    let me = nodes.iter().find(|node| node.info.id == bench.node.id).unwrap();
    assert_eq!((me.heartbeat_at, &me.info), (bench.now, &bench.node));
}

async fn keys_may_hold_any_character(mut bench: Bench) {
    bench.declare(Queue::fifo("q").batch_size(10)).await;
    let odd = [
        "\u{FFFD}",
        "a b",
        "{tag}",
        "'; drop",
        "ключ",
        "\u{1F600}",
        "a\nb",
        "%_*?[",
        "\"",
        "\\",
        "É",
        "é",
    ];
    bench.push_all(odd.iter().map(|key| loose(key).key(*key)).collect()).await;
    for key in odd {
        let query = LaneQuery { key: Some(key.into()), ..all_lanes(LaneOrder::Age) };
        assert_eq!(lane_keys(&bench, query).await, [key]);
    }
    // It names none of them, also where the store has no such character.
    let nul = LaneQuery { key: Some("\0".into()), ..all_lanes(LaneOrder::Age) };
    assert_eq!(lane_keys(&bench, nul).await, [""; 0]);
    let deleted = bench.act(LaneSelection::Key("\0".into()), LaneAction::Delete).await;
    assert_eq!(deleted, 0);
    let turns = bench.claim(100).await;
    assert_eq!(keys(&turns), odd);
    for turn in &turns {
        let again = Job::new("q", &"again").unwrap().key(&**turn.key.as_ref().unwrap());
        bench.push(again).await;
        bench.done(turn).await;
    }
    assert_eq!(bench.claim(100).await.len(), odd.len());
}
