//! Idempotency keys whose jobs stay.

use super::*;
use crate::contract::{Fleet, PushStatus, Sweep};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kept_name_is_not_written_again_each_minute() {
    const MINUTE: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("jobs.db")).unwrap();
    store.migrate().await.unwrap();
    let named = |number: u32| {
        let job = Job::new("mail", &number).unwrap().run_in(MINUTE * 60 * 24 * 365);
        job.idempotency_key(format!("n{number}"))
    };
    let pushed = store.push(Push { now: None, jobs: (0..50).map(named).collect() }).await.unwrap();
    let file = rusqlite::Connection::open(folder.path().join("jobs.db")).unwrap();
    let version =
        || -> i64 { file.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap() };
    let mut now = store.now().await.unwrap() + MINUTE * 60 * 24;
    let (mut writes, mut seen) = (0, version());
    for _ in 0..200 {
        store.sweep(Sweep { now: Some(now), rows_max: 1_000 }).await.unwrap();
        writes += u32::from(version() != seen);
        (seen, now) = (version(), now + MINUTE);
    }
    assert!((1..=10).contains(&writes), "{writes} of 200 sweeps wrote");
    let again = store.push(Push { now: Some(now), jobs: vec![named(7)] }).await.unwrap();
    assert_eq!((again[0].job_id, again[0].status), (pushed[7].job_id, PushStatus::Duplicate));
    store.close().await.unwrap();
}
