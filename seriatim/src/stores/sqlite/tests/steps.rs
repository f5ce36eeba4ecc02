//! Actions on many jobs: in steps of bounded size, and at a cost in proportion to the jobs.

use super::super::actions::STEP_JOBS;
use super::super::connect_writer;
use super::super::migrate::migrate;
use super::super::tx::{Definitions, Tx};
use super::*;
use crate::contract::{Act, DeleteQueue, LaneAction, LaneSelection};
use crate::model::limits::PROMOTE_JOBS_MAX;
use crate::model::{Mode, Queue, Timestamp};

/// Runs `body` among the jobs of a failed key, in the savepoint of an operation.
fn with_failed<T>(jobs: u32, body: impl FnOnce(&mut Tx<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect_writer(&folder.path().join("jobs.db"), false).unwrap();
    migrate(&connection).unwrap();
    let mut definitions = Definitions::default();
    connection.execute_batch("BEGIN").unwrap();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(None).declare(&[Queue::new("q", Mode::Accumulate)], false).unwrap();
    let numbers: Vec<u32> = (0..jobs).collect();
    for numbers in numbers.chunks(STEP_JOBS) {
        let job = |number| Job::new("q", &format!("{number:01000}")).unwrap().key("k");
        tx.push(&numbers.iter().map(job).collect::<Vec<_>>()).unwrap();
    }
    tx.execute("UPDATE lane SET retry = 0, error = 'boom'", []).unwrap();
    tx.finish().unwrap();
    connection.execute_batch("COMMIT; BEGIN; SAVEPOINT task").unwrap();
    body(Tx::begin(&connection, &mut definitions).unwrap().at(None))
}

/// Acts on the key, and calls `after` after each step with how many lanes it began with.
fn act(tx: &mut Tx<'_>, action: LaneAction, mut after: impl FnMut(&Tx<'_>, u64)) {
    let act = Act { now: None, queue: "q".into(), lanes: LaneSelection::Key("k".into()), action };
    let (mut rest, _) = tx.chosen(&act).unwrap();
    while !rest.lanes.is_empty() {
        let (count, left) = tx.act(&act, &rest).unwrap();
        after(tx, count);
        rest = left;
    }
}

fn count(tx: &Tx<'_>, what: &str) -> i64 {
    tx.first(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap().unwrap()
}

#[test]
fn an_action_on_a_long_lane_moves_a_bounded_number_of_jobs_in_each_step() {
    let jobs = STEP_JOBS as i64 * 5 / 2;
    for action in [LaneAction::Bury, LaneAction::DeleteFailed, LaneAction::Delete] {
        let (mut left, mut lanes, mut steps) = (jobs, 0, 0);
        with_failed(jobs as u32, |tx| {
            act(tx, action, |tx, count_of_step| {
                let now_left = count(tx, "item") + count(tx, "lane WHERE seq IS NOT NULL");
                assert!(left - now_left <= STEP_JOBS as i64, "{action:?}: {left}, then {now_left}");
                (left, lanes, steps) = (now_left, lanes + count_of_step, steps + 1);
            });
            let dead = if action == LaneAction::Bury { jobs } else { 0 };
            assert_eq!(count(tx, "ended WHERE dead = 1 AND error = 'boom'"), dead);
        });
        assert_eq!((left, lanes, steps), (0, 1, 3), "{action:?}");
    }
}

#[test]
fn a_queue_with_a_long_key_is_deleted_in_parts() {
    let jobs = STEP_JOBS as i64 * 5 / 2;
    with_failed(jobs as u32, |tx| {
        let (mut left, mut steps) = (jobs, 0);
        let request = DeleteQueue { queue: "q".into(), rows_max: 10_000 };
        while tx.delete_queue(&request).unwrap().more {
            let now_left = count(tx, "item") + count(tx, "lane WHERE seq IS NOT NULL");
            assert!(left - now_left <= STEP_JOBS as i64 + 1, "{left}, then {now_left}");
            (left, steps) = (now_left, steps + 1);
        }
        assert!(steps >= 2 && left <= STEP_JOBS as i64, "{steps} steps, {left} jobs");
        for table in ["item", "lane", "body", "alias", "queue"] {
            assert_eq!(count(tx, table), 0, "{table}");
        }
    });
}

/// Runs `body` among the jobs of an `exclusive` key that are due in an hour, and tells it when.
fn with_scheduled(jobs: u32, body: impl FnOnce(&mut Tx<'_>, Timestamp)) {
    let folder = tempfile::tempdir().unwrap();
    let connection = connect_writer(&folder.path().join("jobs.db"), false).unwrap();
    migrate(&connection).unwrap();
    let mut definitions = Definitions::default();
    connection.execute_batch("BEGIN").unwrap();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(None).declare(&[Queue::new("q", Mode::Exclusive)], false).unwrap();
    let due = Timestamp::of_this_machine() + Duration::from_secs(3_600);
    let job = |number| Job::new("q", &number).unwrap().key("k").run_at(due);
    tx.push(&(0..jobs).map(job).collect::<Vec<_>>()).unwrap();
    body(&mut tx, due);
}

const SCHEDULED: &str = "item WHERE gen = 9223372036854775807";

#[test]
fn a_long_exclusive_key_is_run_now_in_steps_also_if_it_is_claimed_between_them() {
    with_scheduled(2_500, |tx, _| {
        let (mut left, mut steps) = (count(tx, SCHEDULED), 0);
        act(tx, LaneAction::RunNow, |tx, lanes| {
            let now_left = count(tx, SCHEDULED);
            assert!(left - now_left <= STEP_JOBS as i64, "{left}, then {now_left}");
            (left, steps) = (now_left, steps + 1);
            assert_eq!(lanes, u64::from(steps == 1));
            tx.execute("UPDATE lane SET st = 2, tok = 1, gen = -1", []).unwrap();
        });
        assert_eq!((left, steps), (0, 3));
    });
}

#[test]
fn a_call_moves_a_bounded_number_of_jobs_that_have_become_due() {
    with_scheduled(2_500, |tx, due| {
        let mut left = count(tx, SCHEDULED);
        while left > 0 {
            let lane = tx.at(Some(due)).lane_of_key(1, "k").unwrap().unwrap();
            tx.save(lane).unwrap();
            let now_left = count(tx, SCHEDULED);
            assert!(
                (1..=PROMOTE_JOBS_MAX as i64).contains(&(left - now_left)),
                "{left}, then {now_left}"
            );
            let again = tx.first_wake(1).unwrap().is_some_and(|wake| wake <= due.as_micros());
            assert_eq!(again, now_left > 0, "the next claim moves the rest");
            left = now_left;
        }
    });
}

/// Nanoseconds that this thread has computed.
#[cfg(target_os = "linux")]
fn computed() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// SQLite keeps the pages that a savepoint changed in a list. A statement that needs a savepoint of its own walks that list
/// when it ends, so the steps of its virtual machine do not show the cost.
#[cfg(target_os = "linux")]
#[test]
fn a_burial_costs_in_proportion_to_its_jobs() {
    let cost = |jobs| {
        with_failed(jobs, |tx| {
            let before = computed();
            act(tx, LaneAction::Bury, |_, _| {});
            computed() - before
        })
    };
    // What runs beside it takes part of the processor's caches.
    let least = |jobs| (0..3).map(|_| cost(jobs)).min().unwrap_or_default();
    let (few, many) = (least(1_000), least(8_000));
    // In proportion it is 8; if each job walked the list, 64.
    assert!(many < few * 24, "1,000 jobs: {few} ns, 8,000: {many} ns");
}
