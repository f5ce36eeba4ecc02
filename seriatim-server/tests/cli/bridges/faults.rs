//! Nodes, Redis and stores that are killed while a producer goes on.

use rustix::process::Signal;
use seriatim_testkit::Redis;

use super::{CONFIG, ROUND, Shop, Works, check_all_ran_once_in_order, rounds};
use crate::site::eventually;

const KEYS: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn s11_b1_a_bridge_that_is_killed_again_and_again_loses_nothing_and_runs_nothing_twice() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mut producer = shop.producer();
    let mut node = shop.serve("node-0");
    let sequence = "seriatim:shop:sequence:queue:critical";
    eventually("the store has queues", async || store.queues().await.unwrap().len() == 2).await;
    let works = Works::on(&store);
    for round in 1..=rounds() {
        // Half of the round is moved, and the producer has not ended it.
        let half = (round * ROUND - ROUND / 2) as usize;
        producer.begins(&format!("orders {ROUND} {KEYS}"));
        works.have_got(half.min(works.count() + 1)).await;
        eventually("half of the round left its queue", async || {
            shop.redis.send(&["GET", sequence]).is_ok_and(|answer| {
                answer.lines().nth(1).and_then(|line| line.trim().parse::<usize>().ok())
                    >= Some(half)
            })
        })
        .await;
        node.kill();
        producer.has_done();
        node = shop.serve(&format!("node-{round}"));
    }
    let all = rounds() * ROUND;
    works.have_got(all as usize).await;
    eventually("nothing is in flight", async || {
        shop.number(&["EXISTS", "seriatim:shop:inflight:queue:critical"]) == 0
    })
    .await;
    // Before that it does not stop well.
    shop.site.said(&format!("node-{}", rounds()), "serving", &store).await;
    node.stop();
    check_all_ran_once_in_order(&works.end().await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_a_leader_that_sleeps_beyond_its_lease_and_wakes_keeps_the_order_of_every_key() {
    let shop = Shop::with_the_store_in_redis(CONFIG);
    let store = seriatim::connect(&shop.redis.url()).await.unwrap();
    let mut producer = shop.producer();
    let first = shop.serve("first");
    eventually("the store has queues", async || store.queues().await.unwrap().len() == 2).await;
    let works = Works::on(&store);
    producer.does("bulk 2000 1000");
    works.have_got(1).await;
    // The first one leads. It sleeps in the middle of whatever it does.
    let second = shop.serve("second");
    first.signal(Signal::STOP);
    producer.does("bulk 8000 1000");
    works.have_got(10_000).await;
    // Now the second one leads: it sleeps, the first one wakes with what it held.
    second.signal(Signal::STOP);
    first.signal(Signal::CONT);
    producer.does("bulk 5000 1000");
    works.have_got(15_000).await;
    second.signal(Signal::CONT);
    producer.does("bulk 2000 1000");
    works.have_got(17_000).await;
    first.stop();
    second.stop();
    check_all_ran_once_in_order(&works.end().await, 17_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_a_redis_that_crashes_loses_none_of_what_it_kept_and_nothing_runs_twice() {
    let mut shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let node = shop.serve("node");
    eventually("the store has queues", async || store.queues().await.unwrap().len() == 2).await;
    let works = Works::on(&store);
    let mut producer = shop.producer();
    let mut kept = Vec::new();
    for _ in 0..rounds().min(10) {
        let before = works.count();
        producer.does(&format!("mails {ROUND}"));
        works.have_got(before + 1).await;
        // It syncs every second: the last writes of producer and bridge may be lost, each by itself.
        shop.redis.kill().unwrap();
        node.signal(Signal::STOP);
        shop.redis.restart().unwrap();
        kept.extend(numbers(&shop.texts(&["LRANGE", "queue:default", "0", "-1"])));
        let in_flight = ["HVALS", "seriatim:shop:inflight:queue:default"];
        kept.extend(numbers(&shop.texts(&in_flight)));
        node.signal(Signal::CONT);
        eventually("the queue is empty", async || {
            shop.number(&["LLEN", "queue:default"]) == 0
                && shop.number(&["EXISTS", in_flight[1]]) == 0
        })
        .await;
    }
    eventually("all that was kept has run", async || {
        let ran = works.got.lock().unwrap().clone();
        kept.iter().all(|kept| ran.iter().any(|(_, number)| number == kept))
    })
    .await;
    node.stop();
    let mut ran: Vec<u64> = works.end().await.into_iter().map(|(_, number)| number).collect();
    let all = ran.len();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), all, "something ran twice");
}

/// The numbers of mails among these texts.
fn numbers(texts: &[String]) -> Vec<u64> {
    let number = |text: &String| {
        let (_, rest) = text.split_once("\"args\":[")?;
        rest.split(']').next()?.parse().ok()
    };
    texts.iter().filter_map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_b11_a_store_that_is_away_or_crashes_leaves_the_jobs_in_redis_and_gets_each_once() {
    // As otherwise a crash may lose what it has acknowledged, which is not what is tested.
    let mut server = Redis::start_with(&["--appendfsync", "always"]).unwrap();
    let shop = Shop::new(&format!("[store]\nurl = \"{}\"\n{CONFIG}", server.url()));
    let mut producer = shop.producer();
    let node = shop.serve("node");
    let store = seriatim::connect(&server.url()).await.unwrap();
    eventually("the store has queues", async || store.queues().await.unwrap().len() == 2).await;
    let works = Works::on(&store);
    let rounds = rounds().min(10);
    for round in 0..rounds {
        let before = (round * 2 * ROUND) as usize;
        producer.begins(&format!("orders {ROUND} {KEYS}"));
        works.have_got(before + 1).await;
        server.kill().unwrap();
        producer.has_done();
        producer.does(&format!("orders {ROUND} {KEYS}"));
        // All but the batch in flight can be seen where it was.
        assert!(shop.number(&["LLEN", "queue:critical"]) >= ROUND - 500);
        server.restart().unwrap();
        works.have_got(before + 2 * ROUND as usize).await;
    }
    node.stop();
    check_all_ran_once_in_order(&works.end().await, rounds * 2 * ROUND);
}
