//! Listings, a page at a time. Scripts return rows of a shard in short steps, this code selects the page, and another
//! script returns its rows; rows that disappeared in between are left out.
//!
//! If an index has the wanted order, a page takes as many steps as its rows need, and so do the jobs of a key in the order of
//! turns, and lanes by due time (`by_due.rs`). Other listings of a key read all its jobs. Lanes by age or key, waiting jobs and
//! finished ones have no such index: their steps scan the whole shard; for the beginning of a key, only its names. The store
//! does other work between the steps (decision 53).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use redis::Value;

use super::Redis;
use super::args::Args;
use super::entry::{By, Entry, SortKey, turn};
use super::link::INDEX;
use super::memo::Known;
use super::reply::{Fields, Shard, score_of};
use crate::contract::{
    JobFilter, JobOrder, JobQuery, JobState, LaneOrder, LaneQuery, LaneSource, LaneState, LaneView,
};
use crate::model::{Cursor, Mode, NodeId, Result, Timestamp};
use crate::stores::handover::Handover;

impl Redis {
    /// Reads rows of a shard, step by step.
    pub(super) async fn each_row(
        &self,
        shard: Shard,
        rows: &Rows,
        mut look: impl FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        let mut from = String::new();
        loop {
            let (next, step) = self.rows_of_step(shard, rows, &from).await?;
            step.rest().try_for_each(&mut look)?;
            if next.is_empty() {
                return Ok(());
            }
            from = next;
        }
    }

    /// Reads one step: where the next one begins, and the rows.
    pub(super) async fn rows_of_step(
        &self,
        shard: Shard,
        rows: &Rows,
        from: &str,
    ) -> Result<(String, Fields)> {
        let mut args = Args::default();
        args.text(rows.what).text(from).int(rows.most);
        args.0.extend(rows.args.0.iter().cloned());
        let mut answer = self.link.call(&INDEX, &self.key(shard, ""), &args).await?;
        Ok((answer.text()?.to_string(), answer.list()?))
    }
}

pub(super) fn lane_state(text: &str) -> LaneState {
    match text {
        "claimed" => LaneState::Claimed,
        "paused" => LaneState::Paused,
        "held" => LaneState::Held,
        _ => LaneState::Waiting,
    }
}

pub(super) fn lane_entry(
    mut fields: Fields,
    shard: Shard,
    query: &LaneQuery,
    now: Timestamp,
) -> Result<Option<Entry>> {
    let (number, key, due) = (fields.int()?, fields.text()?, fields.opt_time()?);
    let (retry_count, crashes) = (fields.int()?, fields.int()? as u32);
    let (state, node) = (lane_state(&fields.text()?), fields.text()?);
    let (retry_count, lane) = (retry_count as i32, shard.lane(number));
    let node = Some(NodeId(node)).filter(|node| !node.0.is_empty());
    let named = Some(key.clone()).filter(|key| !key.is_empty());
    let view =
        LaneView { key: named, due, retry_count, crashes, node, ..LaneView::new(lane, state) };
    let place = match query.order {
        LaneOrder::Age => SortKey::Number(0),
        LaneOrder::Key => SortKey::Text(key),
        LaneOrder::Due => SortKey::Number(due.map_or(i64::MIN, Timestamp::as_micros)),
        LaneOrder::RetryCount => SortKey::Number(i64::from(-retry_count)),
    };
    let entry = Entry { place, shard: shard.shard, number };
    Ok(query.shows(&view, now).then_some(entry))
}

pub(super) fn job_entry(
    mut fields: Fields,
    shard: Shard,
    query: &JobQuery,
    (mode, now): (Mode, Timestamp),
) -> Result<Option<Entry>> {
    let (number, key, state) = (fields.int()?, fields.text()?, fields.text()?);
    let (ended, created) = (fields.int()?, fields.int()?);
    let is_wanted_state = match query.filter {
        JobFilter::In(JobState::Succeeded) => &*state == "done",
        JobFilter::In(JobState::Canceled) => &*state == "canceled",
        JobFilter::In(JobState::Queued) => &*state == "live",
        _ => true,
    };
    let is_wanted_key =
        query.key.as_deref().is_none_or(|wanted| *wanted == *key && !key.is_empty());
    let place = match query.order {
        // The order of ids: by millisecond, then number.
        JobOrder::Arrival => SortKey::Number(created / 1_000),
        JobOrder::Key => SortKey::Text(key),
        JobOrder::UpdatedAt => SortKey::Number(-ended),
        JobOrder::Turn => {
            let score = score_of(&fields.text()?)?;
            let (priority, run_at) = (fields.int()? as u16, fields.time()?);
            turn(Handover { score, priority, run_at }, mode, now)
        }
    };
    let entry = Entry { place, shard: shard.shard, number };
    Ok((is_wanted_state && is_wanted_key).then_some(entry))
}

/// The first entries after a cursor, among all that are added.
pub(super) struct Chosen {
    pub(super) after: Option<Entry>,
    /// The last sort key to list.
    end: Option<SortKey>,
    /// The place up to which lanes were looked at, if not all are.
    cut: Option<Entry>,
    rows_max: usize,
    first: BTreeSet<Entry>,
}

impl Chosen {
    fn new(after: Option<&str>, by: By, rows_max: usize) -> Result<Self> {
        let read = |after| Entry::of_cursor(after, by).ok_or_else(Cursor::wrong);
        let after = after.map(read).transpose()?;
        Ok(Self { after, end: None, cut: None, rows_max, first: BTreeSet::new() })
    }

    pub(super) fn of_jobs(
        query: &JobQuery,
        (mode, now): (Mode, Timestamp),
        rows_max: usize,
    ) -> Result<Self> {
        let by = match query.order {
            JobOrder::Arrival | JobOrder::UpdatedAt => By::Number,
            JobOrder::Key => By::Text,
            JobOrder::Turn => By::Turn(mode, now),
        };
        Self::new(query.after.as_deref(), by, rows_max)
    }

    pub(super) fn of_lanes(query: &LaneQuery) -> Result<Self> {
        let by = if query.order == LaneOrder::Key { By::Text } else { By::Number };
        let read = |cursor: Cursor| by.read(&cursor.place).ok_or_else(Cursor::wrong);
        let mut chosen = Self::new(query.after.as_deref(), by, query.most())?;
        let begin = if query.after.is_none() { query.begin()? } else { None };
        if let Some(begin) = begin {
            let lane = query.behind.map(|(_, lane)| lane);
            let (shard, number) = lane.map_or((0, 0), |lane| (lane.shard, lane.number as i64));
            chosen.after = Some(Entry { place: read(begin)?, shard, number });
        }
        chosen.end = query.end()?.map(read).transpose()?;
        Ok(chosen)
    }

    /// How many rows of each shard are needed: one more than a page shows that there is a next page.
    pub(super) fn enough(&self) -> i64 {
        self.rows_max as i64 + 1
    }

    /// The place of the cursor, as the index of the order has it.
    fn score(&self) -> Option<String> {
        self.after.as_ref().map(|after| after.place.to_string())
    }

    pub(super) fn add(&mut self, entry: Option<Entry>) {
        let Some(entry) = entry else { return };
        if self.end.as_ref().is_some_and(|end| entry.place > *end) {
            return;
        }
        if self.after.as_ref().is_none_or(|after| entry > *after) {
            self.first.insert(entry);
        }
        if self.first.len() > self.rows_max + 1 {
            self.first.pop_last();
        }
    }

    /// Whether nothing behind this place comes on the page.
    pub(super) fn ends_at(&self, place: &Entry) -> bool {
        self.first.len() > self.rows_max && self.first.last().is_some_and(|last| last <= place)
            || self.end.as_ref().is_some_and(|end| place.place > *end)
            || self.cut.as_ref().is_some_and(|cut| cut <= place)
    }

    /// Nothing behind this place was looked at.
    pub(super) fn cut_at(&mut self, place: Entry) {
        self.cut = self.cut.take().into_iter().chain([place]).min();
    }

    /// The entries, and whether these are all.
    pub(super) fn entries(self) -> (Vec<Entry>, bool) {
        let is_all = self.first.len() <= self.rows_max;
        (self.first.into_iter().take(self.rows_max).collect(), is_all)
    }

    /// The page, the cursor of the next one, and whether the page is cut.
    pub(super) fn page(mut self) -> (Vec<Entry>, Option<String>, bool) {
        let (cut, rows_max) = (self.cut.take(), self.rows_max);
        if let Some(cut) = &cut {
            self.first.retain(|entry| entry <= cut);
        }
        let (page, is_all) = self.entries();
        let is_cut = cut.is_some() && page.len() < rows_max;
        let end = if is_all { cut.as_ref() } else { page.last() };
        let next = end.map(|end| end.cursor(None));
        (page, next, is_cut)
    }
}

/// The rows to read of a shard, as arguments for `index.lua`.
pub(super) struct Rows {
    what: &'static str,
    /// Most of all steps together, if an index has the order.
    most: i64,
    args: Args,
}

impl Rows {
    pub(super) fn all(what: &'static str) -> Self {
        Self { what, most: i64::MAX, args: Args::default() }
    }

    fn of_key(what: &'static str, key: &str) -> Self {
        let mut rows = Self::all(what);
        rows.args.text(key);
        rows
    }

    /// The jobs of turns, of one key or all.
    pub(super) fn running(key: Option<&str>) -> Self {
        key.map_or_else(|| Self::all("running"), |key| Self::of_key("running", key))
    }

    /// Unclaimed lanes by due time, so many in a step.
    pub(super) fn by_due(chosen: &Chosen, shard: u16, most: i64, which: &str) -> Self {
        let mut rows = Self { most, ..Self::behind("due", chosen, shard, chosen.score()) };
        rows.args.text(which);
        rows
    }

    /// The claimed lanes.
    pub(super) fn claimed() -> Self {
        Self::all("held")
    }

    pub(super) fn of_lanes(query: &LaneQuery, chosen: &Chosen, shard: u16) -> Self {
        match (query.source(), query.order) {
            (LaneSource::Lane(lane), _) => Self::of_key("one", &lane.number.to_string()),
            (LaneSource::Key(key), _) => Self::of_key("lane", key),
            (LaneSource::Claimed(Some(node)), _) => Self::of_key("holder", &node.0),
            (LaneSource::Claimed(None), _) => Self::claimed(),
            (LaneSource::Parked, _) => Self::all("parked"),
            (_, LaneOrder::RetryCount) if query.stages.is_empty() && query.is_range() => {
                Self::behind("trouble", chosen, shard, chosen.score())
            }
            _ if query.needs_failure() => Self::all("failed"),
            _ => match query.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
                Some(prefix) => Self::of_key("prefixed", &pattern(prefix)),
                None => Self::all("lanes"),
            },
        }
    }

    /// The rows of an index by score behind this place.
    fn behind(what: &'static str, chosen: &Chosen, shard: u16, score: Option<String>) -> Self {
        let mut rows = Self { most: chosen.enough(), ..Self::all(what) };
        // Of those with the score, all in later shards follow, and none in earlier ones.
        let number = chosen.after.as_ref().map_or(0, |after| match after.shard.cmp(&shard) {
            Ordering::Less => 0,
            Ordering::Equal => after.number,
            Ordering::Greater => i64::MAX,
        });
        rows.args.name(score.as_deref()).int(number);
        rows
    }

    pub(super) fn of_jobs(query: &JobQuery, chosen: &Chosen, shard: u16) -> Self {
        let after = chosen.after.as_ref();
        let state = match query.filter {
            JobFilter::In(JobState::Running) => return Self::running(query.key.as_deref()),
            JobFilter::Live | JobFilter::In(JobState::Queued) => JobState::Queued,
            JobFilter::In(ended) => ended,
        };
        match (state, query.key.as_deref(), query.order) {
            (JobState::Queued | JobState::Running, Some(key), JobOrder::Turn) => {
                let mut rows = Self { most: chosen.enough(), ..Self::of_key("turns", key) };
                let here = after.filter(|after| after.shard == shard);
                rows.args.int(here.map_or(0, |after| after.number));
                rows.args.flag(query.filter == JobFilter::In(JobState::Queued));
                rows
            }
            (JobState::Queued | JobState::Running, Some(key), _) => Self::of_key("jobs", key),
            (JobState::Queued | JobState::Running, None, _) => Self::all("live"),
            (JobState::Dead, Some(key), _) => Self::of_key("deadkey", key),
            (JobState::Dead, None, JobOrder::Arrival | JobOrder::Turn) => Self::all("dead"),
            (JobState::Dead, None, JobOrder::Key) => {
                let begin = after.map(|after| match after.shard.cmp(&shard) {
                    Ordering::Equal => format!("{}\0{:016}", after.place, after.number),
                    Ordering::Greater => format!("{}\0~", after.place),
                    Ordering::Less => format!("{}\0", after.place),
                });
                let rows = Self::of_key("bykey", begin.as_deref().unwrap_or(""));
                Self { most: chosen.enough(), ..rows }
            }
            (JobState::Dead, None, JobOrder::UpdatedAt) => {
                let ended = after.and_then(|after| match after.place {
                    SortKey::Number(number) => Some((-number).to_string()),
                    SortKey::Text(_) | SortKey::Turn(_) => None,
                });
                Self::behind("newest", chosen, shard, ended)
            }
            (JobState::Succeeded | JobState::Canceled, ..) => Self::all("done"),
        }
    }
}

/// The server's pattern of all texts that begin so.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "*"
}

/// Groups adjacent entries of one shard, so that each group takes one call.
pub(super) fn runs(known: &Known, page: &[Entry]) -> Vec<(Shard, Vec<i64>)> {
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
