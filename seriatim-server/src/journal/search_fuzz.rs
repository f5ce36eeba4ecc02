//! Notes of the journal under fuzz.

use seriatim::store::{Memory, Notebook};
use seriatim_testkit::fuzz::Surface;

use super::*;

const JOB: &str = "01a1fd84-a548-7000-8001-00000000ffff";

#[test]
fn events_of_a_job_are_found_in_notes_whatever_else_is_in_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = Memory::new();
    let job: JobId = JOB.parse().unwrap();
    let good = format!(
        "\n{{\"at\":\"2126-01-31T12:00:00Z\",\"event\":\"queued\",\"job_id\":\"{JOB}\",\"queue\":\"orders\"}}\n"
    );
    Surface::new("journal").inputs(1_000).attack(|input| {
        let input = &input[..input.len().min(8_000)];
        let at = job.created_at() + SKEW;
        let note = Note::new(shelf::moment("orders", at), [input, good.as_bytes()].concat());
        runtime.block_on(async {
            store.write_notes(vec![note]).await.unwrap();
            let found = of_job(&store, "orders", job).await.unwrap();
            assert!(!found.is_empty() && found.len() <= JOB_EVENTS_MAX);
            assert!(found.iter().all(|event| event["job_id"] == JOB));
        });
    });
}
