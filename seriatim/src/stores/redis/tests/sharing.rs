//! Groups and limits, where a queue has several shards, and what they leave in the store.

use super::*;
use crate::{Groups, Rate, Share};

fn of(group: &str, tag: u32) -> Job {
    Job::new("q", &tag).unwrap().group(group)
}

/// A queue whose groups have this share.
fn grouped(share: Share) -> Queue {
    Queue::parallel("q").groups(Groups::each(share))
}

async fn try_declare(store: &Redis, queue: Queue) -> Result<(), (ErrorKind, Option<String>)> {
    let answer = store.declare(Declare { now: None, queues: vec![queue] }).await;
    answer.map_err(|error| (error.kind(), error.field().map(str::to_owned)))
}

/// A command that answers with a number or a text.
async fn asked(words: &[&str]) -> Option<String> {
    let mut link = linked(&url()).await;
    let mut cmd = ::redis::cmd(words[0]);
    cmd.arg(&words[1..]).query_async(&mut link).await.unwrap()
}

#[tokio::test]
async fn groups_and_limits_need_a_queue_with_one_shard() {
    let store = open(&new_prefix()).await;
    let refused = |field: &str| Err((ErrorKind::Invalid, Some(format!("queues[0].{field}"))));
    let limited = || Queue::fifo("q").running(1);
    let groups = || Queue::fifo("q").groups(Groups::default());
    assert_eq!(try_declare(&store, in_shards(limited(), 4)).await, refused("limit"));
    declare(&store, in_shards(Queue::fifo("q"), 4)).await;
    assert_eq!(try_declare(&store, groups()).await, refused("groups"));
    push(&store, (0..20).map(|i| job(&format!("k{i}"), i)).collect()).await;
    assert!(store.reshard("q".into(), 1).await.unwrap().lanes_left > 0);
    assert_eq!(
        try_declare(&store, limited()).await,
        refused("limit"),
        "some are left in other shards"
    );
    let mut turns = claim(&store, 20).await;
    turns.extend(claim(&store, 20).await);
    assert_eq!(turns.len(), 20);
    done(&store, &turns).await;
    store.reshard("q".into(), 1).await.unwrap();
    declare(&store, limited()).await;
    let error = store.reshard("q".into(), 2).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("shards")));
}

#[tokio::test]
async fn lanes_of_removed_groups_are_claimed_and_then_the_queue_is_as_any_other() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, grouped(Share::default().running(1))).await;
    push(&store, (0..9).map(|i| of(["a", "b", "c"][i as usize % 3], i)).collect()).await;
    let running = claim(&store, 10).await;
    assert_eq!(running.len(), 3);
    declare(&store, Queue::parallel("q")).await;
    let meta = format!("{prefix}:{{q1:0}}:meta");
    assert_eq!(asked(&["HGET", &meta, "due"]).await.as_deref(), Some("first shared"));
    assert_eq!(claim(&store, 10).await.len(), 6);
    assert_eq!(asked(&["HGET", &meta, "due"]).await.as_deref(), Some("first"));
    done(&store, &running).await;
    push(&store, vec![Job::new("q", &9).unwrap()]).await;
    assert_eq!(claim(&store, 10).await.len(), 1);
}

#[tokio::test]
async fn the_places_of_turns_are_counted_whatever_definitions_come_between() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    let limited = || grouped(Share::default().running(2));
    declare(&store, limited()).await;
    push(&store, (0..6).map(|i| of("a", i)).collect()).await;
    let first = claim(&store, 10).await;
    declare(&store, Queue::parallel("q")).await;
    done(&store, &first[..1]).await;
    declare(&store, limited()).await;
    let second = claim(&store, 10).await;
    assert_eq!((first.len(), second.len()), (2, 1));
    done(&store, &first[1..]).await;
    done(&store, &second).await;
    let shard = format!("{prefix}:{{q1:0}}:");
    assert_eq!(asked(&["HLEN", &format!("{shard}turns")]).await.as_deref(), Some("0"));
    assert_eq!(asked(&["HGET", &format!("{shard}meta"), "grouped"]).await.as_deref(), Some("0"));
}

#[tokio::test]
async fn what_the_rates_of_groups_noted_is_swept_once_it_is_over() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, grouped(Share::default().rate(Rate::per_second(1)))).await;
    push(&store, (0..50).map(|i| of(&format!("tenant {i}"), i)).collect()).await;
    assert_eq!(claim(&store, 100).await.len(), 50);
    let paced = format!("{prefix}:{{q1:0}}:paced");
    assert_eq!(asked(&["HLEN", &paced]).await.as_deref(), Some("50"));
    let now = store.now().await.unwrap() + Duration::from_secs(2);
    store.sweep(Sweep { now: Some(now), rows_max: 100 }).await.unwrap();
    assert_eq!(asked(&["HLEN", &paced]).await.as_deref(), Some("0"));
}
