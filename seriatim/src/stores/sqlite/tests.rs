//! Several processes on one file, and a file that is removed or replaced.

mod deletion;
mod flush;
mod inbox;
mod light;
mod line;
mod names;
mod parked;
mod reading;
mod steps;
mod upgrade;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use super::Sqlite;
use crate::contract::{Claim, Lease, NodeInfo, Producer, Push, Store, Views, Wake};
use crate::model::limits::ROUTES_MAX;
use crate::model::{ErrorKind, Job};
use crate::stores::route;

const LEASE: Duration = Duration::from_secs(60);

/// A claim by node "n".
fn claiming(queue: &str, lanes_max: usize) -> Claim {
    Claim::new(queue, "n", lanes_max, Lease::Node { ttl: LEASE })
}

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
    // Repeated, also in quick succession, when the log's time may not have changed.
    for number in 0..20 {
        while wakeups.wait(Duration::from_millis(60)).await.is_some() {}
        there.push(push(number)).await.unwrap();
        assert!(
            wakeups.wait(Duration::from_secs(5)).await.is_some(),
            "push {number} was not heard"
        );
    }
    here.close().await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_push_wakes_the_listeners_of_its_queue_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("jobs.db")).unwrap();
    store.migrate().await.unwrap();
    let mut mail = store.wakeups().only(["mail".into()]);
    let mut orders = store.wakeups().only(["orders".into()]);
    assert_eq!(mail.wait(Duration::from_millis(200)).await, None, "no other process has written");
    store.push(push(1)).await.unwrap();
    assert_eq!(mail.wait(Duration::from_secs(5)).await, Some(Wake::of(["mail"])));
    assert_eq!(orders.wait(Duration::ZERO).await, None);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_list_keeps_nobody_from_asking_what_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path().join("jobs.db")).unwrap());
    store.migrate().await.unwrap();
    store.push(push(1)).await.unwrap();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let mut begun = Some(begun);
    let list = tokio::spawn({
        let store = store.clone();
        async move {
            let look = store.look(move |_| {
                let _ = begun.take().map(|begun| begun.send(()));
                let _ = ends.recv();
                Ok(())
            });
            look.await
        }
    });
    begins.await.unwrap();
    let due = tokio::time::timeout(Duration::from_secs(20), store.due(Vec::new()));
    assert_eq!(due.await.expect("it does not wait for the list").unwrap().len(), 1);
    end.send(()).unwrap();
    list.await.unwrap().unwrap();
    store.close().await.unwrap();
}

#[test]
fn a_path_that_can_never_be_opened_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let error = Sqlite::open(folder.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_acknowledged_into_a_file_that_was_removed_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("jobs.db"), folder.path().join("aside.db"));
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    store.push(push(1)).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1);

    std::fs::rename(&path, &aside).unwrap();
    let gone = store.push(push(2)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable);
    assert!(gone.message().contains("removed or moved away"), "{gone}");
    std::fs::write(&path, "").unwrap();
    for error in [
        store.push(push(3)).await.unwrap_err(),
        store.stats(None).await.unwrap_err(),
        store.now().await.unwrap_err(),
    ] {
        assert!(error.message().contains("another file has taken its place"), "{error}");
    }

    std::fs::rename(&aside, &path).unwrap();
    store.push(push(4)).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 2);
    store.close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_first_listing_opens_no_file_that_took_the_place_of_the_stores_own() {
    let folder = tempfile::tempdir().unwrap();
    let [path, aside, other] = ["jobs.db", "aside.db", "other.db"].map(|n| folder.path().join(n));
    for (path, jobs) in [(&other, 3), (&path, 1)] {
        let store = Sqlite::open(path).unwrap();
        store.migrate().await.unwrap();
        for number in 0..jobs {
            store.push(push(number)).await.unwrap();
        }
        store.close().await.unwrap();
    }
    let store = Sqlite::open(&path).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let replaced = store.stats(None).await.unwrap_err();
    assert!(replaced.message().contains("another file has taken its place"), "{replaced}");
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_last_number_of_a_route_is_given_out_and_no_further_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Sqlite::open(&path).unwrap();
    store.migrate().await.unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    let sql = format!("INSERT INTO route (number, node) VALUES ({}, 'n')", ROUTES_MAX - 1);
    file.execute(&sql, []).unwrap();
    file.execute("UPDATE meta SET definitions = definitions + 1", []).unwrap();
    route::tests::the_last_number_is_given_out_and_no_further_one(&store).await;
}
