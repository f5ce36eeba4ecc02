//! Servers whose clocks differ, and what is kept for a time.

use std::collections::BTreeMap;

use super::super::rescue::Call;
use super::*;

/// The server with the nodes is ahead of the shard's.
#[tokio::test]
async fn a_lease_of_a_claim_s_own_is_judged_by_the_clock_that_began_it() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("own", 1), job("node", 2)]).await;
    let own = Claim { lease: Lease::Own { ttl: LEASE }, ..claim_request("q", 1) };
    let own = store.claim(own).await.unwrap().turns.remove(0);
    let of_node = claim(&store, 1).await.remove(0);

    let shard = Shard { queue: 1, shard: 0 };
    let ahead = store.now().await.unwrap() + Duration::from_secs(3_600);
    let rescued = async |now| {
        let request = Rescue { now, node: "m".into(), lease: LEASE, lanes_max: 10, ticket: 0 };
        let call = Call { now: ahead, request: &request, lanes_left: 10 };
        let silent = ahead.as_micros() - 2 * LEASE.as_micros() as i64;
        let mut beats = BTreeMap::from([("n".to_owned(), silent.to_string())]);
        let taken = store.rescue_in(shard, call, &mut beats).await.unwrap();
        taken.turns(shard, &"q".into()).unwrap()
    };
    let lanes = |turns: Vec<Turn>| turns.iter().map(|turn| turn.lane).collect::<Vec<_>>();
    // A heartbeat and the time now are of one clock.
    assert_eq!(lanes(rescued(None).await), [of_node.lane]);
    let later = rescued(Some(ahead)).await;
    assert!(lanes(later).contains(&own.lane), "that time has passed in the shard");
}

/// Each start of a node is another one, so its entry must not stay because others add theirs: all of a day end together.
#[tokio::test]
async fn what_a_node_gave_up_is_forgotten_though_others_give_up_later() {
    const DAY: u64 = 86_400;
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    store.give_up(GiveUp { node: "n".into(), ticket: 1, queue: None }).await.unwrap();
    let mut link = linked(&url()).await;
    let pattern = format!("{prefix}:*:given_up*");
    let keys: Vec<String> = ::redis::cmd("KEYS").arg(pattern).query_async(&mut link).await.unwrap();
    let ttl: u64 = ::redis::cmd("TTL").arg(&keys).query_async(&mut link).await.unwrap();
    let (now, _): (u64, u64) = ::redis::cmd("TIME").query_async(&mut link).await.unwrap();
    // Both are rounded.
    let after_midnight = (now + ttl + 2) % DAY;
    assert!(ttl >= DAY && after_midnight <= 4, "{after_midnight} s, in {ttl} s");
}
