//! Lanes by due time: what a page reads, and that it has all of them.

use super::depth::calls;
use super::listings::all_lanes;
use super::*;
use crate::contract::LaneOrder;
use crate::store::LaneId;

const ROWS: usize = 25;
/// A search in a list or an index takes a command for each halving.
const MORE_CALLS: u64 = 60;

fn by_due(rows_max: usize) -> LaneQuery {
    LaneQuery { order: LaneOrder::Due, rows_max, ..LaneQuery::new("q") }
}

async fn act_on(store: &Redis, lanes: LaneSelection, action: LaneAction) {
    store.act(Act { now: None, queue: "q".into(), lanes, action }).await.unwrap();
}

/// So many lanes: some with another priority, scheduled, claimed and paused, and some that no longer wait where they arrived.
async fn filled(url: &str, lanes: u32) -> Arc<Redis> {
    let store = open_at(url, &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let now = store.now().await.unwrap();
    for first in (0..lanes).step_by(1_000) {
        let jobs = (first..lanes.min(first + 1_000)).map(|i| {
            let job = job(&format!("k{i}"), i);
            match i % 10 {
                0 => job.priority(7),
                1 => job.run_at(now + Duration::from_secs(3_600 + u64::from(i))),
                _ => job,
            }
        });
        push(&store, jobs.collect()).await;
    }
    assert_eq!(claim(&store, 5).await.len(), 5);
    for i in 52..56 {
        let key = || LaneSelection::Key(format!("k{i}"));
        act_on(&store, key(), LaneAction::Pause).await;
        if i % 2 == 0 {
            act_on(&store, key(), LaneAction::Resume).await;
        }
    }
    store
}

/// The commands of the first page and of the second one.
async fn pages_of(url: &str, store: &Redis, query: LaneQuery) -> [u64; 2] {
    let mut query = query;
    let mut costs = [0; 2];
    for cost in &mut costs {
        let before = calls(url).await;
        let page = store.lanes(query.clone()).await.unwrap();
        *cost = calls(url).await - before;
        assert_eq!((page.rows.len(), page.cut), (ROWS, false));
        query.after = page.next;
        assert!(query.after.is_some());
    }
    costs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_by_due_time_reads_as_much_of_20_000_lanes_as_of_200() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let (few, many) = (filled(&server.url(), 200).await, filled(&server.url(), 20_000).await);
    let waiting = LaneQuery { stages: LaneStage::WAITING.to_vec(), ..by_due(ROWS) };
    let ready = LaneQuery { stages: vec![LaneStage::Ready], ..by_due(ROWS) };
    for query in [by_due(ROWS), waiting, ready] {
        let of_few = pages_of(&server.url(), &few, query.clone()).await;
        let of_many = pages_of(&server.url(), &many, query.clone()).await;
        for (few, many) in of_few.iter().zip(of_many) {
            assert!(many <= few + MORE_CALLS, "{of_few:?}, then {of_many:?} commands: {query:?}");
        }
    }
}

/// Those of all lanes that fit, in the order.
async fn wanted(store: &Redis, query: &LaneQuery) -> Vec<LaneId> {
    let now = query.now.unwrap();
    let all = LaneQuery { now: Some(now), rows_max: 1_000, ..LaneQuery::new("q") };
    let mut all = all_lanes(store, all).await;
    let from = match query.from {
        Some(LanePlace::Due(from)) => Some(from),
        _ => None,
    };
    all.retain(|lane| query.shows(lane, now) && from.is_none_or(|from| lane.due >= Some(from)));
    all.sort_by_key(|lane| (lane.due, lane.lane.shard, lane.lane.number));
    all.into_iter().map(|lane| lane.lane).collect()
}

/// Checks that the pages of a listing by due time, cut or not, are all lanes that fit; answers how many pages.
pub(super) async fn assert_all_are_listed(store: &Redis, query: LaneQuery) -> usize {
    let wanted = wanted(store, &query).await;
    let (mut query, mut found, mut pages) = (query, Vec::new(), 0);
    loop {
        let page = store.lanes(query.clone()).await.unwrap();
        pages += 1;
        assert!(page.next.is_none() || page.next != query.after, "{query:?}");
        assert!(page.rows.len() <= query.rows_max && (!page.cut || page.next.is_some()));
        assert!(page.cut || page.next.is_none() || page.rows.len() == query.rows_max, "{query:?}");
        found.extend(page.rows.iter().map(|lane| lane.lane));
        query.after = page.next;
        if query.after.is_none() {
            assert_eq!(found, wanted, "{query:?}");
            return pages;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_lets_few_through_cuts_pages_of_several_shards_and_hides_none() {
    let store = open(&new_prefix()).await;
    declare(&store, in_shards(Queue::fifo("q"), 3)).await;
    push(&store, (0..600).map(|i| job(&format!("k{i}"), i)).collect()).await;
    for i in [3, 100, 101, 599] {
        act_on(&store, LaneSelection::Key(format!("k{i}")), LaneAction::Pause).await;
    }
    claim(&store, 20).await;
    let now = Some(store.now().await.unwrap());
    let query = LaneQuery { now, scan_max: Some(60), ..by_due(3) };
    for stages in [vec![LaneStage::Paused, LaneStage::Retrying], vec![LaneStage::Crashed]] {
        let pages = assert_all_are_listed(&store, LaneQuery { stages, ..query.clone() }).await;
        assert!((5..=40).contains(&pages), "{pages}");
    }
    let pages =
        assert_all_are_listed(&store, LaneQuery { prefix: Some("k5".into()), ..query }).await;
    assert!(pages >= 37, "{pages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_more_priorities_than_are_merged_are_listed_by_due_time_too() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q")).await;
    let jobs = (0..60).map(|i| Job::new("q", &i).unwrap().priority(i as u16));
    push(&store, jobs.collect()).await;
    let now = Some(store.now().await.unwrap());
    let pages = assert_all_are_listed(&store, LaneQuery { now, ..by_due(7) }).await;
    assert_eq!(pages, 9);
}

/// The value of a field of the first shard's `meta`.
async fn asked(prefix: &str, words: &[&str]) -> Option<String> {
    let mut link = linked(&url()).await;
    let mut cmd = ::redis::cmd(words[0]);
    cmd.arg(format!("{prefix}:{}", words[1])).arg(&words[2..]);
    cmd.query_async(&mut link).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_an_earlier_build_paused_are_listed_and_the_sweep_enters_them() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    asked(&prefix, &["HSET", "{g}:meta", "version", "6"]).await;
    asked(&prefix, &["ZADD", "{g}:alive", "9007199254740991", "old"]).await;
    asked(&prefix, &["HSET", "{g}:nodes", "old", r#"{"layout":6,"id":"old"}"#]).await;
    let store = {
        drop(store);
        open(&prefix).await
    };
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..3_000).map(|i| job(&format!("k{i}"), i)).collect()).await;
    for i in 0..40 {
        act_on(&store, LaneSelection::Key(format!("k{i}")), LaneAction::Pause).await;
    }
    // As if that build had paused them.
    asked(&prefix, &["DEL", "{q1:0}:parked"]).await;
    let sweep = async || store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    let list = async |store: &Redis| {
        let now = Some(store.now().await.unwrap());
        let stages = vec![LaneStage::Paused];
        assert_all_are_listed(store, LaneQuery { now, ..by_due(1_000) }).await;
        assert_all_are_listed(store, LaneQuery { now, stages, ..by_due(1_000) }).await;
    };
    sweep().await;
    assert_eq!(asked(&prefix, &["HGET", "{q1:0}:meta", "parks"]).await, None);
    list(&store).await;
    asked(&prefix, &["ZREM", "{g}:alive", "old"]).await;
    sweep().await;
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    sweep().await;
    assert_eq!(asked(&prefix, &["HGET", "{q1:0}:meta", "parks"]).await.as_deref(), Some("1"));
    assert_eq!(asked(&prefix, &["ZCARD", "{q1:0}:parked"]).await.as_deref(), Some("40"));
    list(&store).await;
}
