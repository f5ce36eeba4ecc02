//! What worker programs print, in the log: one bounded line for each of theirs, and no more of them than
//! people can read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::base::lock::lock;
use crate::base::text::one_line;

/// Lines that go to the log within [`PERIOD`].
const LINES_MAX: u64 = 500;
/// Bytes that go to the log within [`PERIOD`].
const BYTES_MAX: usize = 128 << 10;
/// The period of these limits. At its end, one line counts what was left out.
const PERIOD: Duration = Duration::from_secs(10);
/// Most bytes of a line in the log.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Where the lines of a program go.
#[derive(Clone)]
pub(crate) struct Printed {
    queue: Arc<str>,
    pid: Option<u32>,
    output: Arc<Mutex<Budget>>,
    /// Of its own: noise must not hide what is wrong.
    warnings: Arc<Mutex<Budget>>,
    /// Notified when a line is left out.
    too_much: Arc<Notify>,
}

impl Printed {
    /// Without a `pid` for a program that runs once for each call: all calls share the budget.
    pub(crate) fn new(queue: Arc<str>, pid: Option<u32>) -> Self {
        let budget = || Arc::new(Mutex::new(Budget::new(Instant::now())));
        Self { queue, pid, output: budget(), warnings: budget(), too_much: Arc::default() }
    }

    pub(crate) fn line(&self, stream: &str, text: &str) {
        let (queue, text) = (&*self.queue, for_log(text));
        if self.may_say(&self.output, text.len()) {
            match self.pid {
                Some(pid) => tracing::info!(queue, pid, stream, "{text}"),
                None => tracing::debug!(queue, stream, "{text}"),
            }
        }
    }

    /// What is wrong with the program.
    pub(crate) fn warn(&self, what: &str) {
        let (queue, pid, what) = (&*self.queue, self.pid, for_log(what));
        if self.may_say(&self.warnings, what.len()) {
            tracing::warn!(queue, pid, "worker program: {what}");
        }
    }

    /// Logs how much was left out, within a period of the first such line, while awaited.
    pub(crate) async fn keep_count(self) {
        loop {
            self.too_much.notified().await;
            sleep(PERIOD).await;
            self.finish();
        }
    }

    /// Logs how much was left out until now.
    pub(crate) fn finish(&self) {
        for budget in [&self.output, &self.warnings] {
            self.say_left_out(std::mem::take(&mut lock(budget).left_out));
        }
    }

    fn may_say(&self, budget: &Mutex<Budget>, bytes: usize) -> bool {
        let (left_out, may) = lock(budget).take(Instant::now(), bytes);
        self.say_left_out(left_out);
        if !may {
            self.too_much.notify_one();
        }
        may
    }

    fn say_left_out(&self, lines: u64) {
        if lines > 0 {
            let (queue, pid, period_s) = (&*self.queue, self.pid, PERIOD.as_secs());
            tracing::warn!(
                queue,
                pid,
                "worker program: left out {lines} lines: the log takes at most {LINES_MAX} lines and {BYTES_MAX} bytes of its output in {period_s} s"
            );
        }
    }
}

/// How much may still be logged.
struct Budget {
    ends: Instant,
    lines: u64,
    bytes: usize,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { ends: now + PERIOD, lines: LINES_MAX, bytes: BYTES_MAX, left_out: 0 }
    }

    /// How many lines were left out in the period that has ended, if it has, and whether this one
    /// may be logged.
    fn take(&mut self, now: Instant, bytes: usize) -> (u64, bool) {
        let mut left_out = 0;
        if self.ends <= now {
            left_out = self.left_out;
            *self = Self::new(now);
        }
        let may = self.lines > 0 && self.bytes >= bytes;
        if may {
            self.lines -= 1;
            self.bytes -= bytes;
        } else {
            self.left_out += 1;
        }
        (left_out, may)
    }
}

/// A text on one line, its control characters written out, and not longer than [`LINE_BYTES_MAX`].
fn for_log(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
    let more = if cut.len() < text.len() { "…" } else { "" };
    let mut line = one_line(cut);
    // Written out it can be longer.
    line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
    line + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_program_is_one_line_of_the_log_and_moves_no_cursor() {
        let text = "a\r\nb\u{1b}[2Jc\u{7}d\u{9b}e\u{202e}f\u{2028}g\u{200f}h\u{61c}i\tj\0é";
        let line = for_log(text);
        let expected =
            "a\\r\\nb\\u{1b}[2Jc\\u{7}d\\u{9b}e\\u{202e}f\\u{2028}g\\u{200f}h\\u{61c}i\\tj\\u{0}é";
        assert_eq!(line, expected);
        assert!(for_log(&"\u{1b}".repeat(1 << 20)).len() <= LINE_BYTES_MAX + "…".len());
    }

    #[test]
    fn of_too_much_the_beginning_is_said_and_the_rest_counted_once() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let said = (0..200_000).filter(|_| budget.take(now, 10).1).count();
        assert_eq!(said as u64, LINES_MAX);
        assert_eq!(budget.take(now + PERIOD, 10), (200_000 - LINES_MAX, true));
        assert_eq!(budget.take(now + PERIOD, BYTES_MAX), (0, false), "bytes count too");
        assert_eq!(budget.take(now + PERIOD * 2, BYTES_MAX), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_is_counted_within_a_period_though_nothing_follows() {
        let printed = Printed::new("orders".into(), None);
        let counting = tokio::spawn(printed.clone().keep_count());
        let left_out = || lock(&printed.output).left_out;
        for round in 0..2 {
            (0..=LINES_MAX).for_each(|_| printed.line("stdout", "x"));
            assert_eq!(left_out(), 1, "round {round}");
            sleep(PERIOD + Duration::from_millis(1)).await;
            assert_eq!(left_out(), 0, "round {round}");
        }
        counting.abort();
    }
}
