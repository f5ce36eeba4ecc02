//! Filters of listings of jobs.

use seriatim::Timestamp;
use seriatim::store::{JobQuery, Store};

use super::error::{Error, Result};
use crate::base::time::Moment;

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
    pub(crate) async fn of(self, store: &dyn Store, query: JobQuery) -> Result<JobQuery> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(JobQuery {
            key: given(self.key),
            prefix: given(self.prefix),
            task: given(self.task),
            error: given(self.error),
            text: given(self.text),
            from: moment(store, "from", self.from).await?,
            to: moment(store, "to", self.to).await?,
            ..query
        })
    }

    /// Whether any is set.
    pub(crate) fn is_any(self) -> bool {
        self.looks() || !self.key.is_empty()
    }

    /// Whether the store looks at jobs one by one for those that fit.
    pub(crate) fn looks(self) -> bool {
        self.seeks() || !self.from.is_empty() || !self.to.is_empty()
    }

    /// Whether it passes by jobs of the times that are wanted.
    pub(crate) fn seeks(self) -> bool {
        [self.prefix, self.task, self.error, self.text].iter().any(|text| !text.is_empty())
    }
}

async fn moment(store: &dyn Store, field: &'static str, text: &str) -> Result<Option<Timestamp>> {
    if text.is_empty() {
        return Ok(None);
    }
    let moment = Moment::read(text).map_err(|why| Error::Bound { field, why })?;
    Ok(Some(moment.of(store).await?))
}
