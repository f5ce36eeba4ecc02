//! The result of a done job, for callers that wait for it. A store keeps it where it keeps the last error of a job, so
//! that jobs without a result need no more space and no extra step.

use std::sync::Arc;

use crate::model::error::{Error, Result};
use crate::model::limits::{RESULT_BYTES_MAX, TURN_BYTES_MAX};

/// Before a result, where an error could be. No error begins with it: see [`without_mark`].
const MARK: &str = "seriatim-result:";

/// The text that a store keeps.
pub(crate) fn kept(result: &str) -> Arc<str> {
    format!("{MARK}{result}").into()
}

/// The error and the result in a text that a store keeps.
pub(crate) fn read(kept: Option<Arc<str>>) -> (Option<Arc<str>>, Option<Arc<str>>) {
    match kept.as_deref().and_then(|text| text.strip_prefix(MARK)) {
        Some(result) => (None, Some(result.into())),
        None => (kept, None),
    }
}

/// An error that is not mistaken for a result.
pub(crate) fn without_mark(error: &str) -> &str {
    error.trim_start_matches(MARK)
}

/// Refuses a result that is too long for a turn of this many jobs, because each of them keeps it.
pub fn check_result(text: &str, jobs: usize) -> Result<()> {
    let most = RESULT_BYTES_MAX.min(TURN_BYTES_MAX / jobs.max(1));
    match text.len() {
        bytes if bytes > most => {
            let of = if most < RESULT_BYTES_MAX {
                format!(" in a turn of {jobs} jobs")
            } else {
                String::new()
            };
            let message =
                format!("has {bytes} bytes; at most {most} are kept{of}: return a reference");
            Err(Error::invalid("result", message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits::TURN_JOBS_MAX;

    #[test]
    fn a_result_is_read_as_it_was_kept_and_an_error_is_never_one() {
        assert_eq!(read(Some(kept("7"))), (None, Some("7".into())));
        assert_eq!(read(Some("broken".into())), (Some("broken".into()), None));
        assert_eq!(read(None), (None, None));
        assert_eq!(without_mark(&kept(&kept("7"))), "7");
    }

    #[test]
    fn the_jobs_of_a_turn_keep_no_more_together_than_their_payloads_may_have() {
        let longest = "7".repeat(RESULT_BYTES_MAX);
        check_result(&longest, 1).unwrap();
        check_result(&longest, 256).unwrap();
        let error = check_result(&longest, 257).unwrap_err();
        assert!(error.to_string().contains("257 jobs"), "{error}");
        assert!(check_result(&format!("{longest}7"), 1).is_err());
        check_result("{}", TURN_JOBS_MAX).unwrap();
    }
}
