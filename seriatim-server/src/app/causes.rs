//! Errors that differ in numbers, ids and quotes only are one cause.

use std::collections::HashMap;
use std::sync::Arc;

use seriatim::Timestamp;
use seriatim::store::{JobView, Store};

use super::error::Result;
use super::job_filters::Filters;
use super::job_pages::{self, By, Latest, Status, Wanted};
use super::lane_pages::SCAN_DEFAULT;
use crate::base::text::{cut, one_line};
use crate::protocol::document;
use crate::protocol::value::Time;

/// The cause of jobs without an error.
pub(crate) const UNKNOWN_CAUSE: &str = "no error is known";
/// A shorter part of an error says too little to filter jobs by it.
const COMMON_BYTES_MIN: usize = 4;
/// Characters of a cause.
const CAUSE_COLUMNS: usize = 160;

/// Jobs that died of the same.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) queue: Arc<str>,
    pub(crate) task: Option<Arc<str>>,
    /// The error, with marks in place of what differs.
    pub(crate) error: String,
    pub(crate) count: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    /// The latest of them.
    pub(crate) sample: JobView,
}

impl From<Cause> for document::Cause {
    fn from(cause: Cause) -> Self {
        Self {
            queue: cause.queue,
            error: cause.error,
            task: cause.task,
            count: cause.count,
            first_at: Time(cause.first),
            last_at: Time(cause.last),
            job_id: cause.sample.id,
        }
    }
}

/// Dead jobs that causes are found among, the latest.
pub(crate) const JOBS_MAX: usize = 1_000;

/// The latest dead jobs that fit, of the queue that is named or of each that is seen: causes are found among them.
pub(crate) async fn latest(
    store: &dyn Store,
    queue: Option<&str>,
    filters: Filters<'_>,
    sees: impl Fn(&str) -> bool,
) -> Result<Latest> {
    let wanted = Wanted {
        queue,
        status: Status::Dead,
        by: By::Time,
        filters,
        // A cause needs no payloads.
        payload_bytes_max: Some(0),
        scan_max: SCAN_DEFAULT,
        after: None,
        rows_max: JOBS_MAX,
    };
    job_pages::latest(store, wanted, sees).await
}

/// What they died of, as programs get it.
pub(crate) fn document(latest: &Latest) -> document::Causes {
    document::Causes {
        causes: of(&latest.rows).into_iter().map(document::Cause::from).collect(),
        looked_at: latest.rows.len(),
        more: !latest.more.is_empty() || latest.left_out > 0,
        left_out: latest.left_out,
    }
}

/// The causes of these dead jobs, the most frequent first.
pub(crate) fn of<'a>(jobs: impl IntoIterator<Item = &'a JobView>) -> Vec<Cause> {
    let mut causes: HashMap<_, Cause> = HashMap::new();
    for job in jobs {
        let error = masked(job.error.as_deref().unwrap_or(UNKNOWN_CAUSE));
        let at = job.finished_at.unwrap_or(job.created_at);
        let cause = causes.entry((job.queue.clone(), job.task.clone(), error.clone()));
        let cause = cause.or_insert_with(|| Cause {
            queue: job.queue.clone(),
            task: job.task.clone(),
            error,
            count: 0,
            first: at,
            last: at,
            sample: job.clone(),
        });
        cause.count += 1;
        cause.first = cause.first.min(at);
        if at > cause.last {
            (cause.last, cause.sample) = (at, job.clone());
        }
    }
    let mut causes: Vec<Cause> = causes.into_values().collect();
    causes.sort_by(|a, b| {
        (b.count, b.last).cmp(&(a.count, a.last)).then_with(|| a.error.cmp(&b.error))
    });
    causes
}

impl Cause {
    /// The longest part of its errors that all of them have, to filter jobs by; none if all of it differs.
    pub(crate) fn common(&self) -> Option<&str> {
        let error = self.sample.error.as_deref()?;
        let differs = |c: char| matches!(c, 'N' | '…' | '"' | '\'' | '`');
        let parts = self.error.split(differs).flat_map(|part| part.split("ID"));
        let longest = parts.map(str::trim).max_by_key(|part| part.len())?;
        (longest.len() >= COMMON_BYTES_MIN && error.contains(longest)).then_some(longest)
    }
}

/// The first line of an error that says something, with `N` for numbers, `ID` for ids and `"…"` for quotes.
pub(crate) fn masked(error: &str) -> String {
    let line = error.lines().find(|line| !line.trim().is_empty());
    let line = one_line(line.unwrap_or(UNKNOWN_CAUSE));
    let last_end = last_end(&line);
    let mut masked = String::new();
    let mut rest = line.as_str();
    while let Some(c) = rest.chars().next() {
        if let Some(length) = quote(&line, rest, last_end) {
            masked += "\"…\"";
            rest = &rest[length..];
        } else if c.is_alphanumeric() {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
            masked += &word(&rest[..end]);
            rest = &rest[end..];
        } else {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    cut(&masked, CAUSE_COLUMNS)
}

/// The length of a quoted text that begins here, at the end of a line.
fn quote(line: &str, rest: &str, last_end: usize) -> Option<usize> {
    let mark = rest.chars().next().filter(|c| matches!(c, '"' | '`' | '\''))?;
    let at = line.len() - rest.len();
    // Thousands of apostrophes without an end would each be followed to the end of the line.
    if mark == '\'' && (is_of_word(line[..at].chars().next_back()) || at + 1 >= last_end) {
        return None;
    }
    let mut ends = rest.match_indices(mark).skip(1).map(|(at, _)| at + 1);
    ends.find(|end| mark != '\'' || !is_of_word(rest[*end..].chars().next()))
}

/// Behind the last apostrophe that may end a quote.
fn last_end(line: &str) -> usize {
    let mut ends = line.rmatch_indices('\'').map(|(at, _)| at + 1);
    ends.find(|end| !is_of_word(line[*end..].chars().next())).unwrap_or_default()
}

/// An apostrophe beside it stands within a word, or behind one.
fn is_of_word(c: Option<char>) -> bool {
    c.is_some_and(char::is_alphanumeric)
}

fn word(word: &str) -> String {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    match digits {
        0 => word.to_owned(),
        digits if digits == word.len() => "N".to_owned(),
        _ if word.len() >= 16 || (is_hex && word.len() >= 8) => "ID".to_owned(),
        _ => {
            // `order-17`, `30s`: only the number differs.
            let mut masked = String::new();
            for c in word.chars() {
                match c.is_ascii_digit() {
                    true if masked.ends_with('N') => {}
                    true => masked.push('N'),
                    false => masked.push(c),
                }
            }
            masked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_ids_and_quotes_are_one_cause() {
        for (one, other) in [
            ("timeout after 30s", "timeout after 7s"),
            ("order-17 has no stock", "order-9 has no stock"),
            (r#"no column "a b""#, r#"no column "c""#),
            (
                "job 0199aa12-77de-7000-8123-abcdefabcdef is gone",
                "job 0199aa12-77de-7000-8123-000000000001 is gone",
            ),
            ("refused\nat line 7", "refused\nat line 9"),
            (
                "Duplicate entry 'ann' for key 'users.name'",
                "Duplicate entry 'bob o'neil' for key 'users.name'",
            ),
            ("KeyError: 'price'", "KeyError: 'of the shop\'s'"),
        ] {
            assert_eq!(masked(one), masked(other));
        }
        assert_eq!(masked("it's 3 o'clock"), "it's N o'clock");
        let quoted = "the users' table has no column 'x', isn't it";
        assert_eq!(masked(quoted), "the users' table has no column \"…\", isn't it");
        assert_ne!(masked("cannot connect"), masked("cannot send"));
        assert_eq!(masked(" \n\nno stock"), "no stock", "without a cause, all would be meant");
        assert_eq!(masked("\n"), UNKNOWN_CAUSE);
        // Each apostrophe may begin a quote, and none ends one.
        let odd = "'a ".repeat(400_000);
        assert!(masked(&odd).starts_with("'a 'a "));
    }
}
