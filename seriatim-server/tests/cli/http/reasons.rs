//! Each reason why a key waits, as a person reads it.

use std::time::Duration;

use seriatim::store::{Act, LaneAction, LaneSelection};
use seriatim::{Exhaustion, Job, Queue};

use super::Api;
use super::pages::between_tags;
use crate::hand::Hand;
use crate::site::Site;

fn job(queue: &str) -> Job {
    Job::new(queue, &1).unwrap().key(format!("of-{queue}"))
}

/// A queue for each reason, with a key that waits for it; the last one runs.
async fn filled() -> Api {
    let site = Site::new("");
    let plain = ["paused", "stopped", "later", "failed", "bound", "grouped", "ready", "running"];
    let mut queues: Vec<Queue> = plain.map(Queue::fifo).to_vec();
    queues.push(Queue::fifo("held").max_retries(0).exhausted(Exhaustion::Hold));
    queues.push(Queue::fifo("limited").running(1));
    let hand = Hand::new(site.store().await, queues).await;
    // Nodes work on all but this one.
    hand.push(job("deserted")).await;
    for queue in ["paused", "stopped", "failed", "held", "running", "ready"] {
        hand.push(job(queue)).await;
    }
    hand.push(job("later").run_in(Duration::from_secs(3_600))).await;
    hand.push(job("bound").node("nobody")).await;
    hand.push(job("grouped").consumer_group("canary")).await;
    hand.store.pause_queue("paused".into(), true).await.unwrap();
    let of_stopped = LaneSelection::Key("of-stopped".to_owned());
    let action = LaneAction::Pause;
    let pause = Act { now: Some(hand.now), queue: "stopped".into(), lanes: of_stopped, action };
    hand.store.act(pause).await.unwrap();
    hand.fail_all("failed", "no stock").await;
    hand.fail_all("held", "no stock").await;
    hand.claim("running").await;
    hand.push(Job::new("limited", &1).unwrap().key("first")).await;
    hand.claim("limited").await;
    hand.push(job("limited")).await;
    hand.store.close().await.unwrap();
    Api::with(site, |_| {})
}

#[tokio::test]
async fn the_page_of_a_key_says_each_reason_why_it_waits() {
    let api = filled().await;
    for (queue, why) in [
        ("paused", "the queue is paused"),
        ("stopped", "paused"),
        ("later", "due in 59m"),
        ("failed", "retry 1 of 25"),
        ("held", "its retries are used up"),
        ("bound", "bound to node nobody, which does not work on this queue now"),
        ("grouped", "for consumer group canary, which no node of this queue serves now"),
        ("deserted", "no node works on this queue"),
        ("limited", "1 turn of the queue runs, and at most 1 may"),
        ("ready", "ready"),
        ("running", "running on hand-1"),
    ] {
        let page = api.get(&format!("/key?k=of-{queue}")).text();
        let said = page.split_once("<p class=\"why\"").unwrap().1.split_once("</p>").unwrap().0;
        assert!(between_tags(said).contains(why), "{queue}: {said}");
    }
}
