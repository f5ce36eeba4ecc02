//! The rule against a plain reference, which remembers all pushes.

use proptest::prelude::*;

use super::*;

/// The pushes to a lane, and when it would be due if each of them moved it.
struct Reference {
    window: Window,
    first: Timestamp,
    last: Timestamp,
}

impl Reference {
    fn latest(&self) -> Timestamp {
        self.first + self.window.max_wait
    }

    fn due(&self) -> Timestamp {
        (self.last + self.window.quiet).min(self.latest())
    }
}

const START: Timestamp = Timestamp::from_micros(1_000_000_000);

fn windows() -> impl Strategy<Value = Window> {
    (1_u64..20_000, 0_u64..100_000).prop_map(|(quiet, more)| {
        let quiet = Duration::from_micros(quiet);
        Window::new(quiet, quiet + Duration::from_micros(more))
    })
}

fn pauses() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0_u64..4_000, 0..200)
}

proptest! {
    #[test]
    fn a_waiting_lane_is_due_as_if_each_push_moved_it_but_for_an_eighth(
        window in windows(),
        pauses in pauses(),
    ) {
        let mut all = Reference { window, first: START, last: START };
        let mut now = START;
        let mut dues = window.open(now + window.quiet, now);
        for pause in pauses {
            now = now + Duration::from_micros(pause);
            let before = dues;
            let moved = window.push(&mut dues, now + window.quiet, now);
            if before.due <= now {
                prop_assert_eq!((dues, moved), (before, false), "it is due");
                break;
            }
            all.last = now;
            prop_assert_eq!(dues.next, Some(all.latest()));
            prop_assert!(dues.due <= all.due() && all.due() <= dues.due + window.step());
            prop_assert_eq!(moved, dues.due > before.due);
            prop_assert!(dues.due >= before.due, "no push makes it sooner");
        }
    }

    #[test]
    fn pushes_at_any_rate_move_a_lane_at_most_nine_times_in_a_quiet_time(
        window in windows(),
        pauses in pauses(),
    ) {
        let mut now = START;
        let mut dues = window.open(now + window.quiet, now);
        let mut moves = vec![now];
        for pause in pauses {
            now = now + Duration::from_micros(pause);
            if window.push(&mut dues, now + window.quiet, now) {
                moves.push(now);
            }
        }
        for (place, from) in moves.iter().enumerate() {
            let within = moves[place..].iter().take_while(|at| at.since(*from) <= window.quiet);
            prop_assert!(within.count() <= 9);
        }
    }

    #[test]
    fn what_arrives_during_a_turn_waits_for_its_quiet_time_and_no_longer_than_allowed(
        window in windows(),
        pauses in pauses(),
    ) {
        let mut now = START;
        let mut dues = Dues { due: START, next: None };
        let mut first = None;
        for pause in pauses {
            now = now + Duration::from_micros(pause);
            window.push_in_turn(&mut dues, now);
            first.get_or_insert(now);
        }
        let after = after_turn(Some(&window), dues, now);
        match first {
            None => prop_assert_eq!(after, dues),
            Some(first) => {
                let reference = Reference { window, first, last: now };
                prop_assert_eq!(after.due, reference.due());
                prop_assert_eq!(after.next, Some(reference.latest()));
            }
        }
    }
}

#[test]
fn without_a_window_arrivals_are_due_at_their_own_time() {
    let due = START + Duration::from_secs(1);
    let dues = Dues { due: START, next: Some(due) };
    assert_eq!(after_turn(None, dues, START), Dues { due, next: None });
}

#[test]
fn a_window_is_full_by_jobs_or_bytes() {
    let window = Window::new(Duration::from_secs(1), Duration::from_secs(2));
    assert!(!window.is_full(u64::MAX, u64::MAX) && !window.has_limits());
    let limited = window.max_jobs(3).max_bytes(10);
    let full = [(2, 9), (3, 0), (0, 10)].map(|(jobs, bytes)| limited.is_full(jobs, bytes));
    assert_eq!(full, [false, true, true]);
}
