//! Errors that differ in numbers, ids and quotes only are one cause.

use std::collections::HashMap;
use std::sync::Arc;

use seriatim::Timestamp;
use seriatim::store::{JobOrder, JobQuery, JobState, JobView, Store};

use super::error::Result;
use super::find;
use crate::base::text::{cut, one_line};
use crate::protocol::document;
use crate::protocol::value::Time;

/// The cause of jobs without an error.
pub(crate) const UNKNOWN_CAUSE: &str = "no error is known";
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

/// Dead jobs that causes are found among, the latest.
pub(crate) const JOBS_MAX: usize = 1_000;

/// What the latest dead jobs of a queue died of.
pub(crate) async fn of_queue(store: &dyn Store, queue: &str) -> Result<document::Causes> {
    find::queue(store, queue).await?;
    let query = JobQuery {
        order: JobOrder::UpdatedAt,
        rows_max: JOBS_MAX,
        payload_bytes_max: Some(0),
        ..JobQuery::new(queue, JobState::Dead)
    };
    let page = store.jobs(query).await?;
    let cause = |cause: Cause| document::Cause {
        error: cause.error,
        task: cause.task,
        count: cause.count,
        first_at: Time(cause.first),
        last_at: Time(cause.last),
        job_id: cause.sample.id,
    };
    Ok(document::Causes {
        causes: of(&page.rows).into_iter().map(cause).collect(),
        looked_at: page.rows.len(),
        more: page.next.is_some(),
    })
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

/// The first line of an error with `N` for numbers, `ID` for ids and `"…"` for quotes.
pub(crate) fn masked(error: &str) -> String {
    let line = one_line(error.lines().next().unwrap_or_default());
    let mut masked = String::new();
    let mut rest = line.as_str();
    while let Some(c) = rest.chars().next() {
        if let Some(length) = quote(rest) {
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

/// The length of a quoted text that begins here.
fn quote(text: &str) -> Option<usize> {
    let mark = text.chars().next().filter(|c| matches!(c, '"' | '`'))?;
    text[1..].find(mark).map(|end| end + 2)
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
        ] {
            assert_eq!(masked(one), masked(other));
        }
        assert_eq!(masked("it's 3 o'clock"), "it's N o'clock");
        assert_ne!(masked("cannot connect"), masked("cannot send"));
    }
}
