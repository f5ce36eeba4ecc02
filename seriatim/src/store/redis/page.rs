//! Listings, a page at a time. A script answers an index of the shard, the page is chosen here, and
//! a second script shows its rows: what vanished in between is left out.

use std::fmt;
use std::sync::Arc;

use super::Redis;
use super::link::{Args, INDEX};
use super::queues::Known;
use super::reply::{Fields, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::view::{
    JobOrder, JobQuery, JobState, JobView, LaneOrder, LaneQuery, LaneView, Page,
};

/// Most lanes or jobs of one shard among which a page is chosen: a script that looks at more would
/// keep all others waiting for too long.
const LISTED_MAX: i64 = 200_000;

/// By what a row is ordered, before its shard and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Number(i64),
    Text(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// A row of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    place: Place,
    shard: u16,
    number: i64,
}

impl Entry {
    /// Where the next page begins: `shard-number:place`.
    fn cursor(&self) -> String {
        format!("{}-{}:{}", self.shard, self.number, self.place)
    }

    fn of_cursor(cursor: &str, by_text: bool) -> Option<Self> {
        let (name, place) = cursor.split_once(':')?;
        let (shard, number) = name.split_once('-')?;
        let place = match by_text {
            true => Place::Text(place.into()),
            false => Place::Number(place.parse().ok()?),
        };
        Some(Self { place, shard: shard.parse().ok()?, number: number.parse().ok()? })
    }
}

impl Redis {
    pub(super) async fn lane_page(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        let known = self.current(&query.queue).await?;
        let mut entries = Vec::new();
        for shard in known.shards() {
            let mut index = self.index(shard, "lanes").await?;
            while !index.is_empty() {
                entries.extend(lane_entry(index.list()?, shard, &query)?);
            }
        }
        let by_text = query.order == LaneOrder::Key;
        let (page, next) = choose(entries, query.after.as_deref(), by_text, query.rows_max)?;
        let mut rows = Vec::new();
        for (shard, numbers) in runs(&known, &page) {
            rows.extend(self.lane_views(shard, &numbers).await?);
        }
        Ok(Page { rows, next })
    }

    pub(super) async fn job_page(&self, query: JobQuery) -> Result<Page<JobView>> {
        let known = self.current(&query.queue).await?;
        let what = match query.state {
            JobState::Queued | JobState::Running => "live",
            JobState::Failed => "dead",
            JobState::Succeeded | JobState::Canceled => "done",
        };
        let mut entries = Vec::new();
        for shard in known.shards() {
            let mut index = self.index(shard, what).await?;
            while !index.is_empty() {
                entries.extend(job_entry(index.list()?, shard, &query)?);
            }
        }
        let by_text = query.order == JobOrder::Key;
        let (page, next) = choose(entries, query.after.as_deref(), by_text, query.rows_max)?;
        let mut rows = Vec::new();
        for (shard, numbers) in runs(&known, &page) {
            rows.extend(self.job_views(shard, &known.name, &numbers).await?);
        }
        Ok(Page { rows, next })
    }

    async fn index(&self, shard: Shard, what: &str) -> Result<Fields> {
        let mut args = Args::default();
        args.text(what).int(LISTED_MAX);
        match self.link.run(&INDEX, &self.key(shard, ""), &args).await? {
            redis::Value::Int(_) => {
                let message = format!(
                    "this store lists a queue of at most {LISTED_MAX} lanes or jobs; this one has more"
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            index => Fields::of(index),
        }
    }
}

fn lane_entry(mut fields: Fields, shard: Shard, query: &LaneQuery) -> Result<Option<Entry>> {
    let (number, key, due) = (fields.int()?, fields.text()?, fields.opt_int()?);
    let (retry_count, claimed) = (fields.int()?, fields.flag()?);
    let wanted = query.key.as_deref().is_none_or(|wanted| *wanted == *key && !key.is_empty())
        && (claimed || !query.running)
        && (query.order != LaneOrder::RetryCount || retry_count >= 0);
    let place = match query.order {
        LaneOrder::Age => Place::Number(0),
        LaneOrder::Key => Place::Text(key),
        LaneOrder::Due => Place::Number(due.unwrap_or(i64::MIN)),
        LaneOrder::RetryCount => Place::Number(-retry_count),
    };
    Ok(wanted.then_some(Entry { place, shard: shard.shard, number }))
}

fn job_entry(mut fields: Fields, shard: Shard, query: &JobQuery) -> Result<Option<Entry>> {
    let (number, key, state) = (fields.int()?, fields.text()?, fields.text()?);
    let (ended, created) = (fields.int()?, fields.int()?);
    let is_wanted_state = match query.state {
        JobState::Succeeded => &*state == "done",
        JobState::Canceled => &*state == "canceled",
        _ => true,
    };
    let is_wanted_key =
        query.key.as_deref().is_none_or(|wanted| *wanted == *key && !key.is_empty());
    let place = match query.order {
        // As ids order: by millisecond, then number.
        JobOrder::Arrival => Place::Number(created / 1_000),
        JobOrder::Key => Place::Text(key),
        JobOrder::UpdatedAt => Place::Number(-ended),
    };
    let entry = Entry { place, shard: shard.shard, number };
    Ok((is_wanted_state && is_wanted_key).then_some(entry))
}

/// The page behind a cursor, and the cursor of the next one.
fn choose(
    mut entries: Vec<Entry>,
    after: Option<&str>,
    by_text: bool,
    rows_max: usize,
) -> Result<(Vec<Entry>, Option<String>)> {
    let wrong = || Error::invalid("after", "a page begins where `next` of the page before says");
    if let Some(after) = after {
        let last = Entry::of_cursor(after, by_text).ok_or_else(wrong)?;
        entries.retain(|entry| *entry > last);
    }
    entries.sort_unstable();
    let most = rows_max.clamp(1, PAGE_ROWS_MAX);
    let more = entries.len() > most;
    entries.truncate(most);
    let next = entries.last().filter(|_| more).map(Entry::cursor);
    Ok((entries, next))
}

/// Entries that follow each other in one shard, so that each run is one call.
fn runs(known: &Known, page: &[Entry]) -> Vec<(Shard, Vec<i64>)> {
    let mut runs: Vec<(Shard, Vec<i64>)> = Vec::new();
    for entry in page {
        let shard = Shard { queue: known.number, shard: entry.shard };
        match runs.last_mut().filter(|(last, _)| *last == shard) {
            Some((_, numbers)) => numbers.push(entry.number),
            None => runs.push((shard, vec![entry.number])),
        }
    }
    runs
}
