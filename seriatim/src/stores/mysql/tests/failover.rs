//! A replica that took over.

use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::{Batch, Engine};

const TABLES: [&str; 2] = ["seriatim_lane", "seriatim_job"];

/// A replica that took over without the last settle, while the node's connections went on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_whose_settle_a_failover_lost_is_not_held_for_ever() {
    let server = seriatim_testkit::Mysql::start().unwrap();
    let store = Arc::new(Mysql::connect(&server.url()).await.unwrap());
    store.migrate().await.unwrap();
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    let (started, mut starts) = mpsc::unbounded_channel();
    let go_on = Arc::new(Semaphore::new(0));
    let may_end = go_on.clone();
    let engine = Engine::builder(store.clone())
        .heartbeat(Duration::from_millis(100))
        .lease(Duration::from_secs(60))
        .worker("q", move |batch: Batch<u32>| {
            let (started, may_end) = (started.clone(), may_end.clone());
            async move {
                started.send(*batch.payloads().next().unwrap()).unwrap();
                may_end.acquire().await.unwrap().forget();
            }
        });
    let mut conn = Conn::from_url(server.url()).await.unwrap();
    let mut run = async |sql: String| conn.query_drop(sql).await.unwrap();
    let failover = async {
        assert_eq!(starts.recv().await, Some(1));
        for table in TABLES {
            run(format!("CREATE TABLE old_{table} AS SELECT * FROM {table}")).await;
        }
        go_on.add_permits(1);
        // The lane has gone on, so the first turn is settled.
        assert_eq!(starts.recv().await, Some(2));
        go_on.add_permits(1);
        while store.stats(None).await.unwrap()[0].jobs > 0 {}
        run("START TRANSACTION".into()).await;
        for table in TABLES {
            run(format!("DELETE FROM {table}")).await;
            run(format!("INSERT INTO {table} SELECT * FROM old_{table}")).await;
        }
        run("COMMIT".into()).await;
        run("SET GLOBAL server_id = 4711".into()).await;
        for number in [1, 2] {
            assert_eq!(starts.recv().await, Some(number));
            go_on.add_permits(1);
        }
    };
    let engine = engine.run_until(failover);
    tokio::time::timeout(Duration::from_secs(60), engine).await.expect("it runs again").unwrap();
}

/// A replica that took over without the queue that a process knows, before another one made a queue.
#[tokio::test]
async fn no_queue_is_taken_for_one_whose_making_a_failover_lost() {
    let database = new_database().await;
    let (one, two) = (open(&database).await, open(&database).await);
    let mut conn = session(&database).await;
    let version = "SELECT definitions FROM seriatim_meta";
    let before: Option<i64> = conn.query_first(version).await.unwrap();
    let to = |queue: &str| vec![Job::new(queue, &1).unwrap()];
    // The first makes the queue, the second reads what it knows of it.
    push(&one, to("lost")).await;
    push(&one, to("lost")).await;
    for table in ["queue", "gate", "lane", "delta"] {
        conn.query_drop(format!("DELETE FROM seriatim_{table}")).await.unwrap();
    }
    let back = format!("UPDATE seriatim_meta SET definitions = {}", before.unwrap());
    conn.query_drop(back).await.unwrap();
    push(&two, to("other")).await;
    push(&one, to("lost")).await;
    let stats = two.stats(None).await.unwrap();
    let jobs: Vec<_> = stats.iter().map(|queue| (&*queue.queue, queue.jobs)).collect();
    assert_eq!(jobs, [("lost", 1), ("other", 1)]);
}
