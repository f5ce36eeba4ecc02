//! The order of locks.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_locks_queues_in_the_order_of_pushes() {
    let database = new_database().await;
    let (declarer, pusher) = (open(&database).await, open(&database).await);
    let both = || ["one", "two"].map(|queue| Job::new(queue, &1).unwrap().key("k")).to_vec();
    push(&pusher, both()).await;
    let mut holder = session(&database).await;
    let lock = "START TRANSACTION; SELECT * FROM seriatim_lane WHERE q = 2 FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let mut watcher = session(&database).await;
    let (one, other) = (declarer.clone(), pusher.clone());
    let queues = vec![Queue::fifo("two"), Queue::fifo("one")];
    let declares = tokio::spawn(async move { one.declare(Declare { now: None, queues }).await });
    until_waiting(&mut watcher, &database, 1).await;
    let pushes = tokio::spawn(async move { push(&other, both()).await });
    until_waiting(&mut watcher, &database, 2).await;
    holder.query_drop("COMMIT").await.unwrap();
    declares.await.unwrap().unwrap();
    pushes.await.unwrap();
    assert_eq!(declarer.repeated() + pusher.repeated(), 0, "no deadlock");
}
