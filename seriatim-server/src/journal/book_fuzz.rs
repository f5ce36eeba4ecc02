//! Files of the journal under fuzz: disks fill up and writers are killed.
#![allow(clippy::unwrap_used)]

use seriatim_testkit::fuzz::Surface;

use super::*;

const JOB: &str = "01a1fd84-a548-7000-8001-00000000ffff";

#[test]
fn events_of_a_job_are_found_in_files_whatever_else_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let retention = Duration::from_secs(1_000 * 365 * 24 * 3_600);
    let limits = Limits { folder: folder.path().to_owned(), retention, bytes_max: 1 << 20 };
    let path = folder.path().join(format!("1{SUFFIX}"));
    let good = format!(
        "\n{{\"at\":\"2026-01-31T12:00:00Z\",\"event\":\"queued\",\"job_id\":\"{JOB}\",\"queue\":\"orders\"}}\n"
    );
    Surface::new("journal").inputs(1_000).attack(|input| {
        fs::write(&path, [input, good.as_bytes()].concat()).unwrap();
        let found = find(&limits, JOB.parse().unwrap()).unwrap();
        assert!(!found.is_empty() && found.len() <= EVENTS_MAX);
        assert!(found.iter().all(|event| event["job_id"] == JOB));
    });
}
