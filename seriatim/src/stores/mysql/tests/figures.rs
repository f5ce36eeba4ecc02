//! The figures of queues are kept, not counted.

use super::*;
use crate::contract::QueueStats;
use crate::model::Fate;
use crate::stores::mysql::work::Lock;

/// The figures of a queue, counted.
async fn counted(conn: &mut Conn) -> (u64, u64, u64, u64, u64) {
    let lanes = "SELECT COUNT(*), COALESCE(SUM(n + c), 0), COALESCE(SUM(st = 2), 0), COALESCE(SUM(retry >= 0), 0) \
                 FROM seriatim_lane WHERE q = 1";
    let (lanes, jobs, claimed, retrying): (u64, u64, u64, u64) =
        conn.query_first(lanes).await.unwrap().unwrap();
    let dead = "SELECT COUNT(*) FROM seriatim_ended WHERE q = 1 AND state = 3";
    let dead: u64 = conn.query_first(dead).await.unwrap().unwrap();
    (lanes, jobs, claimed, retrying, dead)
}

fn shown(stats: &QueueStats) -> (u64, u64, u64, u64, u64) {
    (stats.lanes, stats.jobs, stats.claimed, stats.retrying, stats.dead)
}

async fn fold(store: &Mysql) -> bool {
    transact!(store.inner, Lock::FREE, None, work => work.fold_figures()).unwrap()
}

async fn deltas(conn: &mut Conn) -> u64 {
    conn.query_first("SELECT COUNT(*) FROM seriatim_delta").await.unwrap().unwrap()
}

async fn figures_are_exact(queue: Queue) {
    let mut rng = fastrand::Rng::with_seed(7);
    let database = new_database().await;
    let store = open(&database).await;
    let mut conn = session(&database).await;
    declare(&store, queue.clone()).await;
    let (mut turns, mut done_jobs) = (Vec::new(), 0);
    for _ in 0..150 {
        match rng.u32(0..10) {
            0..4 => {
                let jobs =
                    (0..rng.u32(1..6)).map(|_| job(&format!("k{}", rng.u32(0..5)), rng.u32(0..9)));
                push(&store, jobs.collect()).await;
            }
            4..6 => turns.extend(claim(&store, "q", 3).await.turns),
            6..9 if !turns.is_empty() => {
                let turn: Turn = turns.swap_remove(rng.usize(0..turns.len()));
                let fate = [Fate::Done, Fate::Done, Fate::Keep, Fate::Bury][rng.usize(0..4)];
                let ends = Settlement { rest: fate, ..Settlement::done(turn.lane, turn.token) };
                let mut ends = Settlement { keep: ends.keep.clone(), ..ends };
                ends.keep.retry_count = i32::from(rng.bool());
                ends.keep.job = Some(turn.jobs[0].id);
                if fate == Fate::Done {
                    done_jobs += turn.jobs.len() as u64;
                }
                assert!(store.settle(Settle::now(vec![ends])).await.unwrap()[0].is_ok());
            }
            9 => drop(fold(&store).await),
            _ => {}
        }
        let stats = store.stats(None).await.unwrap().remove(0);
        assert_eq!(shown(&stats), counted(&mut conn).await, "{}", queue.mode);
        assert_eq!(stats.processed, done_jobs, "{}", queue.mode);
    }
    while fold(&store).await {}
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((shown(&stats), deltas(&mut conn).await), (counted(&mut conn).await, 0));
}

#[tokio::test]
async fn kept_figures_are_the_counted_ones_in_fifo() {
    figures_are_exact(Queue::fifo("q").take(2)).await;
}

#[tokio::test]
async fn kept_figures_are_the_counted_ones_in_accumulate() {
    figures_are_exact(Queue::accumulate("q")).await;
}

#[tokio::test]
async fn kept_figures_are_the_counted_ones_in_exclusive() {
    figures_are_exact(Queue::exclusive("q")).await;
}

#[tokio::test]
async fn an_open_transaction_holds_up_neither_figures_nor_their_fold() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    let client = crate::Client::new(store.clone());
    let mut user = session(&database).await;
    let mut options = mysql_async::TxOpts::new();
    options.with_isolation_level(mysql_async::IsolationLevel::ReadCommitted);
    let mut transaction = user.start_transaction(options).await.unwrap();
    client.push_in(&mut transaction, vec![job("open", 1)]).await.unwrap();
    push(&store, vec![job("k", 1)]).await;
    let calls = async {
        assert!(!fold(&store).await);
        assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1);
    };
    tokio::time::timeout(Duration::from_secs(4), calls).await.expect("nothing waits");
    transaction.commit().await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 2);
    fold(&store).await;
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 2);
}

#[tokio::test]
async fn a_deleted_queue_leaves_no_figures_to_its_successor() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let turns = claim(&store, "q", 1).await.turns;
    done(&store, &turns).await;
    crate::contract::deletion::tests::delete_all(open(&database).await).await;
    declare(&store, Queue::fifo("next")).await;
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((shown(&stats), stats.processed, stats.failed), ((0, 0, 0, 0, 0), 0, 0));
}
