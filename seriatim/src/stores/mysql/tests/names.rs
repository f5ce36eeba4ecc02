//! Idempotency keys: new ones that several push at once, and expired ones.

use super::*;
use crate::contract::Sweep;
use crate::store::Fleet;

#[tokio::test]
async fn names_of_waiting_jobs_are_not_in_the_way_of_others() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q").idempotency_ttl(Duration::from_secs(1))).await;
    let start = Timestamp::of_this_machine();
    let named = |i: u32| job("k", i).idempotency_key(format!("n{i}"));
    // Those of waiting jobs expired first, and are more than a sweep looks at.
    let request = |at, jobs| Push { now: Some(at), jobs };
    let waiting = (0..15).map(|i| named(i).run_in(Duration::from_secs(86_400)));
    store.push(request(start, waiting.collect())).await.unwrap();
    let later = start + Duration::from_secs(1);
    let ended = job("l", 99).idempotency_key("ended");
    store.push(request(later, vec![ended])).await.unwrap();
    let turns = claim(&store, "q", 1).await.turns;
    assert!(done(&store, &turns).await[0].is_ok());
    let sweep = Sweep { now: Some(later + Duration::from_secs(60)), rows_max: 9 };
    for _ in 0..3 {
        store.sweep(sweep).await.unwrap();
    }
    let mut conn = session(&database).await;
    let names = "SELECT COUNT(*), SUM(name = 'ended') FROM seriatim_idempotency";
    let (all, of_ended): (u64, u64) = conn.query_first(names).await.unwrap().unwrap();
    assert_eq!((all, of_ended), (15, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_idempotency_keys_that_several_push_at_once_store_one_job_each() {
    let database = new_database().await;
    let mut stores: Vec<SharedStore> = Vec::new();
    for _ in 0..3 {
        stores.push(open(&database).await);
    }
    race::new_names_race(stores).await;
}
