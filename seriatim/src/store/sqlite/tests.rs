//! What only several processes on one file can show.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::Sqlite;
use crate::job::Job;
use crate::store::{Push, Store};

fn push(number: u32) -> Push {
    Push { now: None, jobs: vec![Job::new("mail", &number).unwrap()] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pushes_of_another_process_are_heard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (here, there) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    here.migrate().await.unwrap();
    let mut wakeups = here.wakeups();
    // Again and again, also right behind each other, where the log's time may not have moved.
    for number in 0..20 {
        while wakeups.wait(Duration::from_millis(60)).await {}
        there.push(push(number)).await.unwrap();
        assert!(wakeups.wait(Duration::from_secs(5)).await, "push {number} was not heard");
    }
    here.close().await.unwrap();
    there.close().await.unwrap();
}
