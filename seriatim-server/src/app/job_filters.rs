//! Filters of listings of jobs.

use seriatim::store::JobQuery;

use super::error::Error;
use crate::base::time;

/// Longest payload in a table, in bytes: only its beginning is shown.
pub(crate) const TABLE_PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// The filters, as a user writes them; an empty one is none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filters<'a> {
    pub(crate) key: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) task: &'a str,
    pub(crate) error: &'a str,
    pub(crate) text: &'a str,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
}

impl Filters<'_> {
    /// The query with these filters.
    pub(crate) fn of(self, query: JobQuery) -> Result<JobQuery, Error> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let read = |field, text: &str| {
            let read = |text: String| time::read(&text).map_err(|why| Error::Bound { field, why });
            given(text).map(read).transpose()
        };
        Ok(JobQuery {
            key: given(self.key),
            prefix: given(self.prefix),
            task: given(self.task),
            error: given(self.error),
            text: given(self.text),
            from: read("from", self.from)?,
            to: read("to", self.to)?,
            ..query
        })
    }

    /// Whether the store looks at jobs one by one for those that fit.
    pub(crate) fn looks(self) -> bool {
        [self.prefix, self.task, self.error, self.text, self.from, self.to]
            .iter()
            .any(|text| !text.is_empty())
    }
}
