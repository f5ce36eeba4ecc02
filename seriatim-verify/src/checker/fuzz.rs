//! Fuzzing of histories: see `docs/testing.md`.

use std::fmt::Display;

use seriatim::text::is_plain;
use seriatim_testkit::fuzz::Surface;

use super::{Event, History, check};

/// An error is one line without control characters, whatever it quotes.
fn check_text(error: impl Display) {
    let text = error.to_string();
    assert!(text.chars().all(is_plain), "{text:?}");
}

#[test]
fn histories_are_judged_or_refused_and_torn_ones_are_read() {
    Surface::new("histories").inputs(4_000).attack(|input| {
        let mut history = History::new();
        if let Err(error) = history.read(input, "history") {
            return check_text(error);
        }
        for event in history.events() {
            let written = serde_json::to_string(event).unwrap();
            assert!(serde_json::from_str::<Event>(&written).is_ok(), "{written}");
        }
        let report = check(&history);
        assert!(serde_json::to_string(&report).is_ok());
        for line in report.to_string().lines() {
            check_text(line);
        }
        // As if its writer was killed at any point.
        let killed_at =
            input.iter().map(|byte| usize::from(*byte)).sum::<usize>() % (input.len() + 1);
        let mut torn = History::new();
        torn.read(&input[..killed_at], "history").unwrap();
        assert!(torn.events().len() <= history.events().len());
    });
}
