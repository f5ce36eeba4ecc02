//! `queues reshard`, on a store that can and on one that cannot.

use serde_json::json;
use seriatim::store::{Declare, Producer, Queues};
use seriatim::{
    Job, Queue, Timestamp,
    store::{Redis, Store},
};

use super::{House, Site, text};

#[tokio::test]
async fn a_store_with_one_shard_refuses_another_number() {
    let house = House::new().await;
    let output = house.site.run(&["queues", "reshard", "orders", "4"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("a queue of this store has one shard"), "{}", text(&output));
}

#[tokio::test]
async fn a_queue_in_redis_is_split_and_says_what_is_left() {
    let url = seriatim_testkit::redis_url().unwrap();
    let micros = Timestamp::of_this_machine().as_micros();
    let name = format!("reshard-{micros}-{}", std::process::id());
    let store = Redis::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let queues = vec![Queue::fifo(&*name)];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let jobs = (0..20).map(|i| Job::new(&*name, &i).unwrap().key(format!("k{i}"))).collect();
    store.push(seriatim::store::Push { now: None, jobs }).await.unwrap();
    let site = Site::new("");
    let run = |words: &[&str]| site.run(&[words, &["--store", &url]].concat());
    let output = run(&["queues", "reshard", &name, "8", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["shards"], &told["older"]), (&json!(8), &json!(1)));
    assert!(told["lanes_left"].as_u64().is_some_and(|left| left > 0), "{told}");
    let said = text(&run(&["queues", "reshard", &name, "8"]));
    assert!(said.contains("now has 8 shards") && said.contains("lanes"), "{said}");
}
