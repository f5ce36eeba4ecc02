//! Listings with several steps, whose rows have equal sort values and disappear between two pages.

use super::super::args::Args;
use super::super::link::ACT;
use super::depth::calls;
use super::*;
use crate::contract::{JobOrder, LaneOrder, Selection};
use crate::store::{Due, Fate};

const LANES: u32 = 2_600;
const DEAD: usize = 900;
const FAILED: usize = 700;

/// In two shards: dead jobs of two times, failed lanes, claimed lanes, waiting lanes.
async fn filled() -> Arc<Redis> {
    let store = open(&new_prefix()).await;
    declare(&store, in_shards(Queue::fifo("q"), 2)).await;
    for first in (0..LANES).step_by(100) {
        let jobs = (first..first + 100).map(|i| job(&format!("k{i}"), i)).collect();
        push(&store, jobs).await;
    }
    let mut turns = Vec::new();
    while turns.len() < DEAD + FAILED + 50 {
        turns.extend(claim(&store, 200).await);
    }
    let settle = async |turns: &[Turn], end: &dyn Fn(Settlement) -> Settlement| {
        let turns = turns.iter().map(|turn| end(Settlement::done(turn.lane, turn.token))).collect();
        let settled = store.settle(Settle::now(turns)).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok));
    };
    for dead in turns[..DEAD].chunks(DEAD / 2) {
        settle(dead, &|turn| Settlement { rest: Fate::Bury, ..turn }).await;
    }
    for (i, failed) in turns[DEAD..DEAD + FAILED].chunks(100).enumerate() {
        let fail = |turn: Settlement| {
            let mut turn = Settlement { rest: Fate::Keep, ..turn };
            turn.keep.job = failed.iter().find(|t| t.lane == turn.lane).map(|t| t.jobs[0].id);
            turn.keep.retry_count = i as i32 % 3;
            turn.keep.due = Due::In(LEASE);
            turn
        };
        settle(failed, &fail).await;
    }
    store
}

fn lanes(order: LaneOrder, rows_max: usize) -> LaneQuery {
    LaneQuery { order, rows_max, ..LaneQuery::new("q") }
}

fn dead(order: JobOrder, rows_max: usize) -> JobQuery {
    JobQuery { order, rows_max, ..JobQuery::new("q", JobState::Dead) }
}

/// All pages of a listing put together.
pub(super) async fn all_lanes(store: &Redis, mut query: LaneQuery) -> Vec<LaneView> {
    let mut all = Vec::new();
    loop {
        let page = store.lanes(query.clone()).await.unwrap();
        assert!(page.rows.len() == query.rows_max || page.next.is_none());
        all.extend(page.rows);
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

async fn all_jobs(store: &Redis, mut query: JobQuery) -> Vec<JobView> {
    let mut all = Vec::new();
    loop {
        let page = store.jobs(query.clone()).await.unwrap();
        assert!(page.rows.len() == query.rows_max || page.next.is_none());
        all.extend(page.rows);
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn pages_put_together_are_everything_once_and_in_order() {
    let store = filled().await;
    for rows_max in [137, 1_000] {
        for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due, LaneOrder::RetryCount] {
            let rows = all_lanes(&store, lanes(order, rows_max)).await;
            let wanted =
                if order == LaneOrder::RetryCount { FAILED } else { LANES as usize - DEAD };
            let places: Vec<_> = rows
                .iter()
                .map(|row| {
                    let (key, due) = (row.key.clone(), row.due);
                    let place = match order {
                        LaneOrder::Age => (None, None, 0),
                        LaneOrder::Key => (key, None, 0),
                        LaneOrder::Due => (None, due, 0),
                        LaneOrder::RetryCount => (None, None, -row.retry_count),
                    };
                    (place, row.lane.shard, row.lane.number)
                })
                .collect();
            assert!(places.is_sorted_by(|a, b| a < b), "{order:?}");
            assert_eq!(places.len(), wanted, "{order:?}");
        }
        for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
            let rows = all_jobs(&store, dead(order, rows_max)).await;
            let places: Vec<_> = rows
                .iter()
                .map(|row| {
                    let place = match order {
                        JobOrder::Arrival | JobOrder::Turn => {
                            (None, row.id.created_at().as_micros() / 1_000)
                        }
                        JobOrder::Key => (row.key.clone(), 0),
                        JobOrder::UpdatedAt => (None, -row.finished_at.unwrap().as_micros()),
                    };
                    (place, row.id.shard(), row.id.seq())
                })
                .collect();
            assert!(places.is_sorted_by(|a, b| a < b), "{order:?}");
            assert_eq!(places.len(), DEAD, "{order:?}");
        }
        let waiting = JobQuery { filter: JobFilter::Live, ..dead(JobOrder::Arrival, rows_max) };
        assert_eq!(all_jobs(&store, waiting).await.len(), LANES as usize - DEAD);
        let running =
            LaneQuery { stages: vec![LaneStage::Running], ..lanes(LaneOrder::Age, rows_max) };
        let running = all_lanes(&store, running).await;
        assert_eq!(running.len() as u64, numbers(&store).await.claimed);
    }
    let one = LaneQuery { key: Some("k2500".into()), ..lanes(LaneOrder::Due, 10) };
    assert_eq!(all_lanes(&store, one).await.len(), 1);
    let one = JobQuery { filter: JobFilter::Live, ..dead(JobOrder::Arrival, 10) };
    let one = JobQuery { key: Some("k2500".into()), ..one };
    assert_eq!(all_jobs(&store, one).await.len(), 1);
}

#[tokio::test]
async fn a_page_goes_on_where_the_last_row_stood_though_it_is_gone() {
    let store = filled().await;
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let whole = all_jobs(&store, dead(order, 1_000)).await;
        let first = store.jobs(dead(order, 110)).await.unwrap();
        let gone = vec![first.rows[109].id];
        let which = Selection::Jobs(gone);
        let acted = store.delete_dead(Selected { now: None, queue: "q".into(), which }).await;
        assert_eq!(acted.unwrap().count, 1);
        let query = JobQuery { after: first.next, ..dead(order, 110) };
        let second: Vec<_> =
            store.jobs(query).await.unwrap().rows.iter().map(|row| row.id).collect();
        let wanted: Vec<_> = whole[110..220].iter().map(|row| row.id).collect();
        assert_eq!(second, wanted, "{order:?}");
    }
    let whole = all_lanes(&store, lanes(LaneOrder::RetryCount, 1_000)).await;
    let first = store.lanes(lanes(LaneOrder::RetryCount, 110)).await.unwrap();
    let lane = first.rows[109].lane;
    let lanes_of = LaneSelection::Lanes(vec![lane]);
    let action = LaneAction::Delete;
    let act = Act { now: None, queue: "q".into(), lanes: lanes_of, action };
    assert_eq!(store.act(act).await.unwrap().count, 1);
    let query = LaneQuery { after: first.next, ..lanes(LaneOrder::RetryCount, 110) };
    let second: Vec<_> =
        store.lanes(query).await.unwrap().rows.iter().map(|row| row.lane).collect();
    assert_eq!(second, whole[110..220].iter().map(|row| row.lane).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_action_on_all_lanes_takes_more_than_one_step() {
    let store = filled().await;
    let act = |lanes, action| Act { now: None, queue: "q".into(), lanes, action };
    let acted = store.act(act(LaneSelection::Failed, LaneAction::RunNow)).await.unwrap();
    assert_eq!((acted.count, acted.more), (FAILED as u64, false));
    let acted = store.act(act(LaneSelection::All, LaneAction::Pause)).await.unwrap();
    assert_eq!((acted.count, acted.more), (u64::from(LANES) - DEAD as u64, false));
    assert!(claim(&store, 100).await.is_empty());
}

#[tokio::test]
async fn deleted_lanes_have_no_lag_however_many_they_were() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::parallel("q")).await;
    push(&store, (0..1_500).map(|n| Job::new("q", &n).unwrap()).collect()).await;
    let (lanes, action) = (LaneSelection::All, LaneAction::Delete);
    let delete = Act { now: None, queue: "q".into(), lanes, action };
    while store.act(delete.clone()).await.unwrap().more {}
    push(&store, vec![Job::new("q", &0).unwrap().run_in(LEASE)]).await;
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.lanes, stats.lag), (1, Duration::ZERO));
    store.sweep(Sweep { now: None, rows_max: 10 }).await.unwrap();
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.lanes, stats.lag), (1, Duration::ZERO));
}

/// The first step wakes workers, of which one may claim the key before the next.
#[tokio::test]
async fn all_jobs_of_an_exclusive_key_become_due_although_one_runs_before_the_last_step() {
    const JOBS: usize = 500;
    let store = open(&new_prefix()).await;
    declare(&store, Queue::exclusive("q")).await;
    push(&store, (0..JOBS as u32).map(|n| job("k", n).run_in(LEASE)).collect()).await;
    let act = async |first: &str, lane: String| {
        let mut args = Args::at(None);
        args.text("run_now").text(first).text(&lane);
        let key = store.key(Shard { queue: 1, shard: 0 }, "");
        let mut answer = store.link.call(&ACT, &key, &args).await.unwrap();
        answer.int().unwrap();
        let mut rest = answer.list().unwrap();
        (!rest.is_empty()).then(|| rest.int().unwrap())
    };
    let lane = act("0", "kk".to_owned()).await.expect("more than one step");
    let mut turns = claim(&store, 1).await;
    while act("2", format!("n{lane}")).await.is_some() {}
    for _ in 1..JOBS {
        assert!(done(&store, &turns).await[0].is_ok());
        turns = claim(&store, 1).await;
        assert_eq!(turns.len(), 1);
    }
}

#[tokio::test]
async fn pages_of_scheduled_lanes_are_all_of_them_once_whatever_shares_a_time() {
    let store = filled().await;
    let now = store.now().await.unwrap();
    let later = |i: u32| {
        let at = now + Duration::from_secs(3_600 * u64::from(1 + i / 150));
        Job::new("q", &i).unwrap().key(format!("later {i}")).run_at(at)
    };
    push(&store, (0..600).map(later).collect()).await;
    let from = Some(LanePlace::Due(now + Duration::from_secs(1_800)));
    let stages = vec![LaneStage::Retrying, LaneStage::Scheduled];
    for rows_max in [70, 137, 1_000] {
        let query = LaneQuery {
            now: Some(now),
            from: from.clone(),
            stages: stages.clone(),
            ..lanes(LaneOrder::Due, rows_max)
        };
        let rows = all_lanes(&store, query).await;
        let places: Vec<_> =
            rows.iter().map(|row| (row.due, row.lane.shard, row.lane.number)).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "{rows_max}");
        let pushed = rows
            .iter()
            .filter(|row| row.key.as_deref().is_some_and(|key| key.starts_with("later")));
        assert_eq!(pushed.count(), 600, "{rows_max}");
    }
}

#[tokio::test]
async fn the_beginning_of_a_key_is_found_without_reading_the_lanes_of_others() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let others = (0..20_000).map(|i| job(&format!("other-{i}"), i)).collect::<Vec<_>>();
    for some in others.chunks(5_000) {
        push(&store, some.to_vec()).await;
    }
    // What these letters mean in a pattern does not count.
    let keys = ["*", "**", "*[a]", "?o", "[o]", "[o]ther", "\\", "\\*x", "ä*", "ä*b", "]"];
    push(&store, keys.map(|key| job(key, 1)).to_vec()).await;
    let mut names = keys.map(str::to_owned);
    names.sort();
    for prefix in keys.into_iter().chain(["ä"]) {
        let before = calls(&server.url()).await;
        let prefix = Some(prefix.to_owned());
        let query = LaneQuery { prefix: prefix.clone(), ..lanes(LaneOrder::Key, 100) };
        let found = store.lanes(query).await.unwrap().rows;
        let spent = calls(&server.url()).await - before;
        let found = found.into_iter().map(|lane| lane.key.unwrap().to_string());
        let wanted = names.iter().filter(|key| key.starts_with(prefix.as_deref().unwrap()));
        assert_eq!(found.collect::<Vec<_>>(), wanted.cloned().collect::<Vec<_>>(), "{prefix:?}");
        assert!(spent < 1_000, "{spent} commands for {prefix:?}");
    }
}
