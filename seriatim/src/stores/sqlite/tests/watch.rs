//! What a store has of the kernel while somebody listens.
#![cfg(target_os = "linux")]

use std::fs::{metadata, read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

/// How many files of this process tell of writes to the file with this inode.
fn watches(inode: u64) -> usize {
    let of_file = format!("ino:{inode:x} ");
    let told = |line: &str| line.starts_with("inotify ") && line.contains(&of_file);
    let files = read_dir("/proc/self/fdinfo").unwrap().filter_map(Result::ok);
    let texts = files.filter_map(|file| read_to_string(file.path()).ok());
    texts.filter(|text| text.lines().any(told)).count()
}

/// The threads of all stores of this process.
fn threads() -> usize {
    let tasks = read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("seriatim-sqlite")).count()
}

async fn open(path: &Path) -> (Sqlite, u64) {
    let store = Sqlite::open(path).unwrap();
    store.migrate().await.unwrap();
    let log = format!("{}-wal", path.display());
    (store, metadata(log).unwrap().ino())
}

#[tokio::test]
async fn a_closed_store_leaves_no_watch_and_no_thread() {
    // Most systems allow a user 128 watches.
    const STORES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let before = threads();
    for number in 0..STORES {
        let (store, log) = open(&path).await;
        let (_one, _two) = (store.wakeups(), store.wakeups());
        // Stands behind the listeners in the line, and writes nothing, of which the watch would tell and end.
        store.migrate().await.unwrap();
        assert_eq!(watches(log), 1, "store {number}");
        store.close().await.unwrap();
        assert_eq!(watches(log), 0, "store {number}");
    }
    // The last ones may be about to end, and other tests have some.
    assert!(threads() < before + STORES / 2, "{} threads, {before} before", threads());
}

#[tokio::test]
async fn a_store_to_which_nobody_listens_has_no_watch() {
    let folder = tempfile::tempdir().unwrap();
    let (store, log) = open(&folder.path().join("jobs.db")).await;
    store.push(push(0)).await.unwrap();
    assert_eq!(watches(log), 0);
    store.close().await.unwrap();
}
