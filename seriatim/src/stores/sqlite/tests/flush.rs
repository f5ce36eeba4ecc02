//! What waits for the disk, and what a loss of power may take.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::Durability;
use super::super::flush::{Boot, Flushing, TOKENS_RESERVED};
use super::*;
use crate::contract::{Actions, Cancel, Consumer, Fleet, Heartbeat, Rescue, Settle};
use crate::model::{Settlement, Timestamp, Turn};

/// A store, the number of its flushed commits, and the time of its clock.
struct Disk {
    store: Sqlite,
    flushes: Arc<AtomicUsize>,
    now: Timestamp,
}

impl Disk {
    async fn open(path: &Path, durability: Durability, boot: &str) -> Self {
        let flushing = Flushing::new(durability);
        let flushes = flushing.flushes.clone();
        let store = Sqlite::open_in(path, flushing, Boot(boot.to_owned())).unwrap();
        store.migrate().await.unwrap();
        let disk = Self { store, flushes, now: Timestamp::of_this_machine() };
        disk.beat().await;
        disk
    }

    /// The number of flushed commits since the last call.
    fn flushes(&self) -> usize {
        self.flushes.swap(0, Ordering::SeqCst)
    }

    async fn beat(&self) {
        let node = NodeInfo::new("n".into(), LEASE);
        let beat = Heartbeat { now: Some(self.now), node, beats: Vec::new() };
        self.store.heartbeat(beat).await.unwrap();
    }

    async fn push(&self) {
        self.store.push(push(1)).await.unwrap();
    }

    async fn claim(&self, lease: Lease) -> Turn {
        let now = Some(self.now);
        let request = Claim { now, lease, ..claiming("mail", 1) };
        self.store.claim(request).await.unwrap().turns.remove(0)
    }

    async fn claim_as_node(&self) -> Turn {
        self.claim(Lease::Node { ttl: LEASE }).await
    }
}

/// What the disk has of a database.
fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let name = |path: &Path| format!("{}{end}", path.display());
        std::fs::copy(name(from), name(to)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn claims_by_nodes_of_this_machine_wait_for_no_disk_and_all_that_is_promised_does() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("jobs.db"), Durability::Full, "boot").await;
    disk.flushes();
    for _ in 0..4 {
        disk.push().await;
    }
    assert_eq!(disk.flushes(), 4, "pushes");
    let turn = disk.claim_as_node().await;
    disk.claim_as_node().await;
    assert_eq!(disk.flushes(), 0, "claims that end with the machine");
    disk.claim(Lease::Own { ttl: LEASE }).await;
    assert_eq!(disk.flushes(), 1, "the claim of a remote worker, which lives on");
    let settle = Settle::now(vec![Settlement::done(turn.lane, turn.token)]);
    assert!(disk.store.settle(settle).await.unwrap()[0].is_ok());
    assert_eq!(disk.flushes(), 1, "a settle");
    disk.beat().await;
    assert_eq!(disk.flushes(), 1, "a heartbeat");
    let job = disk.claim_as_node().await.jobs[0].id;
    disk.store.cancel(Cancel { now: None, jobs: vec![job] }).await.unwrap();
    assert_eq!(disk.flushes(), 1, "an action");
    let (node, now) = ("n".into(), Some(disk.now));
    let rescue = Rescue { now, node, lease: LEASE, lanes_max: 9, ticket: 0 };
    disk.store.rescue(rescue).await.unwrap();
    assert_eq!(disk.flushes(), 1, "a rescue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_token_comes_again_after_a_loss_of_power_though_the_clock_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (path, left) = (folder.path().join("jobs.db"), folder.path().join("left.db"));
    let mut disk = Disk::open(&path, Durability::Full, "first").await;
    disk.push().await;
    copy(&path, &left);
    disk.now = disk.now + Duration::from_secs(299);
    let lost = disk.claim_as_node().await;
    disk.store.close().await.unwrap();

    let mut disk = Disk::open(&left, Durability::Full, "second").await;
    disk.now = disk.now + Duration::from_secs(1);
    let again = disk.claim_as_node().await;
    assert_eq!(again.jobs[0].id, lost.jobs[0].id, "the job waits again");
    assert_eq!((again.attempt(), again.crashes), (1, 0), "and nothing was counted");
    assert!(again.token > lost.token, "{} after {}", again.token, lost.token);
    let settle = |turn: &Turn| Settle::now(vec![Settlement::done(turn.lane, turn.token)]);
    assert!(!disk.store.settle(settle(&lost)).await.unwrap()[0].is_ok());
    assert!(disk.store.settle(settle(&again)).await.unwrap()[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_claim_whose_token_was_not_reserved_waits_for_the_disk_once() {
    let folder = tempfile::tempdir().unwrap();
    for durability in [Durability::Full, Durability::Normal] {
        let path = folder.path().join(format!("{durability:?}.db"));
        let mut disk = Disk::open(&path, durability, "boot").await;
        for _ in 0..3 {
            disk.push().await;
        }
        disk.flushes();
        disk.now = disk.now + Duration::from_micros(TOKENS_RESERVED as u64 + 1_000_000);
        // The next heartbeat is late, so that the claim alone has to reserve.
        let far = disk.claim_as_node().await;
        assert_eq!(far.token.0, disk.now.as_micros());
        assert_eq!(disk.flushes(), 1, "{durability:?}");
        disk.claim_as_node().await;
        assert_eq!(disk.flushes(), 0, "{durability:?}");
        assert_eq!(far.attempt(), 1, "the claim that was repeated counts once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_starts_again_on_a_running_machine_skips_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    for _ in 0..3 {
        let disk = Disk::open(&path, Durability::Full, "boot").await;
        disk.push().await;
        assert_eq!(disk.claim_as_node().await.token.0, disk.now.as_micros());
        disk.store.close().await.unwrap();
    }
}
