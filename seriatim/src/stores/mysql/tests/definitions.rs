//! Definitions are shared, not copied, and stay as they are while their queue's gate is locked.

use std::collections::BTreeSet;

use super::*;
use crate::stores::mysql::gates::{Gates, Lock};
use crate::stores::state::queues::{self, QueueRow, Queues};

#[tokio::test]
async fn work_takes_as_long_however_many_queues_there_are() {
    let store = open(&new_database().await).await;
    queues::tests::work_takes_as_long_however_many_queues_there_are(&*store).await;
}

#[test]
fn a_queue_that_was_made_again_while_its_gate_was_waited_for_is_locked_again() {
    let (number, name, queue) = (7, Arc::from("q"), Queue::fifo("q"));
    let row = QueueRow { number, name, queue, declared: true, paused: false, closing: false };
    let mut queues = Queues::default();
    queues.insert(row);
    let (none, seven) = (BTreeSet::new(), BTreeSet::from([7]));
    let named = Lock::queue(&Arc::from("q"));
    let numbered = Lock::Write(Gates::Numbered(seven.clone()));
    for lock in [named, numbered, Lock::Alone(seven.clone())] {
        assert_eq!(lock.gates(&queues), seven);
        // The gate of the first one was gone.
        assert_eq!(lock.unlocked(&queues, &none), seven, "{lock:?}");
        assert_eq!(lock.unlocked(&queues, &seven), none, "{lock:?}");
        assert_eq!(lock.unlocked(&Queues::default(), &none), none, "{lock:?}");
    }
}
