//! One list by time over several queues: the first rows of each queue, merged. A queue is asked only when one of its rows may be
//! the next.

use std::collections::VecDeque;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use seriatim::store::Page;
use seriatim::{ErrorKind, Timestamp};

use super::error::{Error, Result};

/// Most queues whose rows are merged: each is asked for its first rows. Rows of more queues are listed queue by queue.
pub(crate) const QUEUES_MERGED_MAX: usize = 100;
/// Queues that are asked at once.
const ASKED_AT_ONCE: usize = 10;
/// Fewest rows that a queue is asked for first. Who has shown them all is asked for the rest of the page.
const FIRST_ROWS_MIN: usize = 5;

/// A place in the list: behind this row. Rows of one time come in the order of the names of their queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place<I> {
    pub(crate) at: i64,
    pub(crate) queue: Arc<str>,
    pub(crate) row: I,
}

impl<I: Display + FromStr> Place<I> {
    /// Whether a cursor is of such a list. Those of lists queue by queue begin with the name of a queue.
    pub(crate) fn is_in(cursor: &str) -> bool {
        cursor.starts_with('/')
    }

    pub(crate) fn read(cursor: &str) -> Result<Self> {
        let read = |cursor: &str| {
            let mut parts = cursor.strip_prefix('/')?.splitn(3, '/');
            let (at, queue) = (parts.next()?.parse().ok()?, parts.next()?.into());
            Some(Self { at, queue, row: parts.next()?.parse().ok()? })
        };
        read(cursor).ok_or(Error::Cursor)
    }

    pub(crate) fn text(&self) -> String {
        format!("/{}/{}/{}", self.at, self.queue, self.row)
    }
}

/// Where a list queue by queue goes on: the queue, and the cursor in it. No name of a queue has a slash.
pub(crate) fn in_queue(cursor: Option<&str>) -> Result<(&str, Option<String>)> {
    let Some(cursor) = cursor else { return Ok(("", None)) };
    let (queue, after) =
        cursor.split_once('/').filter(|(queue, _)| !queue.is_empty()).ok_or(Error::Cursor)?;
    Ok((queue, Some(after.to_owned()).filter(|after| !after.is_empty())))
}

/// What a queue of several has. One that was deleted since they were listed has nothing.
pub(crate) fn or_gone<T>(found: Result<Page<T>>) -> Result<Page<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Page::default()),
        found => found,
    }
}

/// Where a queue's rows are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start<I> {
    First,
    /// Before all of this time.
    From(i64),
    /// Behind this row of this time.
    Behind(i64, I),
    /// At this cursor of the store.
    After(String),
}

impl<I> Start<I> {
    /// As queries say it: a cursor, or a row to begin behind. `first` comes before all rows of a time.
    pub(crate) fn of_query(
        self,
        time: impl Fn(i64) -> Timestamp,
        first: I,
    ) -> (Option<String>, Option<(Timestamp, I)>) {
        match self {
            Self::First => (None, None),
            Self::From(at) => (None, Some((time(at), first))),
            Self::Behind(at, row) => (None, Some((time(at), row))),
            Self::After(cursor) => (Some(cursor), None),
        }
    }
}

/// A queue whose rows are merged.
pub(crate) struct Source<I, R> {
    queue: Arc<str>,
    /// No row of it comes before this time.
    bound: i64,
    rows: VecDeque<R>,
    /// Where the rows behind these are; none if there are no more.
    start: Option<Start<I>>,
    was_asked: bool,
}

impl<I: Clone, R> Source<I, R> {
    /// `bound`: before this time it has no row; `after`: the place where the page begins.
    pub(crate) fn new(queue: Arc<str>, bound: i64, after: Option<&Place<I>>) -> Self {
        let start = after.map_or(Start::First, |after| match queue.cmp(&after.queue) {
            std::cmp::Ordering::Less => Start::From(after.at.saturating_add(1)),
            std::cmp::Ordering::Equal => Start::Behind(after.at, after.row.clone()),
            std::cmp::Ordering::Greater => Start::From(after.at),
        });
        let bound = match &start {
            Start::From(at) | Start::Behind(at, _) => bound.max(*at),
            Start::First | Start::After(_) => bound,
        };
        Self { queue, bound, rows: VecDeque::new(), start: Some(start), was_asked: false }
    }

    fn may_come_before(&self, best: Option<(i64, &Arc<str>)>) -> bool {
        let is_unknown = self.rows.is_empty() && self.start.is_some();
        is_unknown && best.is_none_or(|best| (self.bound, &self.queue) < best)
    }
}

/// What the list needs to know of its rows.
pub(crate) trait Rows: Sync {
    type Row: Send;
    type Id: Clone + Display + FromStr + Send;

    fn at(&self, row: &Self::Row) -> i64;
    fn id(&self, row: &Self::Row) -> Self::Id;

    /// Rows of a queue by time. A page that is cut has not all: the queue has no more in this list.
    fn read(
        &self,
        queue: &Arc<str>,
        start: Start<Self::Id>,
        rows_max: usize,
    ) -> impl Future<Output = Result<Page<Self::Row>>> + Send;
}

/// The first rows of all queues by time, with the names of their queues.
pub(crate) async fn page<L: Rows>(
    list: &L,
    mut sources: Vec<Source<L::Id, L::Row>>,
    rows_max: usize,
) -> Result<Page<(Arc<str>, L::Row)>> {
    let first_rows = rows_max.div_ceil(sources.len().max(1)).max(FIRST_ROWS_MIN);
    let mut page = Page::default();
    loop {
        let known = sources
            .iter()
            .enumerate()
            .filter_map(|(i, source)| Some((list.at(source.rows.front()?), &source.queue, i)));
        let best = known.min();
        let before = best.map(|(at, queue, _)| (at, queue));
        let mut unknown: Vec<usize> =
            (0..sources.len()).filter(|i| sources[*i].may_come_before(before)).collect();
        let best = best.map(|(at, _, i)| (at, i));
        if !unknown.is_empty() {
            unknown.sort_by_key(|i| sources[*i].bound);
            unknown.truncate(ASKED_AT_ONCE);
            let rest = rows_max - page.rows.len();
            page.cut |= ask(list, &mut sources, &unknown, (first_rows, rest)).await?;
            continue;
        }
        let Some((at, i)) = best else { return Ok(page) };
        let source = &mut sources[i];
        source.bound = at;
        let Some(row) = source.rows.pop_front() else { return Ok(page) };
        let place = Place { at, queue: source.queue.clone(), row: list.id(&row) };
        page.rows.push((source.queue.clone(), row));
        if page.rows.len() >= rows_max {
            let has_more = |one: &Source<_, _>| !one.rows.is_empty() || one.start.is_some();
            page.next = sources.iter().any(has_more).then(|| place.text());
            return Ok(page);
        }
    }
}

/// Reads the next rows of these sources; answers whether a page was cut.
async fn ask<L: Rows>(
    list: &L,
    sources: &mut [Source<L::Id, L::Row>],
    unknown: &[usize],
    (first_rows, rest): (usize, usize),
) -> Result<bool> {
    let pages = unknown.iter().map(|i| {
        let source = &sources[*i];
        let rows_max = if source.was_asked { rest } else { first_rows.min(rest) };
        let start = source.start.clone().unwrap_or(Start::First);
        list.read(&source.queue, start, rows_max).map(or_gone)
    });
    let pages: Vec<Page<L::Row>> = try_join_all(pages).await?;
    let mut is_cut = false;
    for (i, page) in unknown.iter().zip(pages) {
        let source = &mut sources[*i];
        source.rows.extend(page.rows);
        source.start = page.next.filter(|_| !page.cut).map(Start::After);
        (source.was_asked, is_cut) = (true, is_cut || page.cut);
    }
    Ok(is_cut)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    /// Numbers of queues, sorted.
    struct Numbers {
        queues: BTreeMap<&'static str, Vec<(i64, u32)>>,
        asked: Mutex<usize>,
    }

    impl Rows for Numbers {
        type Row = (i64, u32);
        type Id = u32;

        fn at(&self, row: &Self::Row) -> i64 {
            row.0
        }

        fn id(&self, row: &Self::Row) -> u32 {
            row.1
        }

        async fn read(
            &self,
            queue: &Arc<str>,
            start: Start<u32>,
            rows_max: usize,
        ) -> Result<Page<Self::Row>> {
            *self.asked.lock().unwrap() += 1;
            let begin = match start {
                Start::First => (i64::MIN, 0),
                Start::From(at) => (at, 0),
                Start::Behind(at, row) => (at, row + 1),
                Start::After(text) => {
                    let (at, row) = text.split_once(' ').unwrap();
                    (at.parse().unwrap(), row.parse::<u32>().unwrap() + 1)
                }
            };
            let Some(all) = self.queues.get(&**queue) else {
                return Err(Error::NoQueue { name: queue.to_string(), near: String::new() });
            };
            let mut rows: Vec<_> = all.iter().copied().filter(|row| *row >= begin).collect();
            let has_more = rows.len() > rows_max;
            rows.truncate(rows_max);
            let next = rows.last().filter(|_| has_more).map(|(at, row)| format!("{at} {row}"));
            Ok(Page { rows, next, cut: false })
        }
    }

    impl Numbers {
        fn new(queues: impl IntoIterator<Item = (&'static str, Vec<(i64, u32)>)>) -> Self {
            Self { queues: queues.into_iter().collect(), asked: Mutex::new(0) }
        }

        /// All rows, page by page.
        async fn all(&self, rows_max: usize) -> Vec<(Arc<str>, (i64, u32))> {
            let (mut rows, mut after) = (Vec::new(), None::<Place<u32>>);
            loop {
                let source = |queue: &str| Source::new(queue.into(), i64::MIN, after.as_ref());
                // One was deleted since they were listed.
                let queues = self.queues.keys().copied().chain(["bygone"]);
                let sources = queues.map(source).collect();
                let page = page(self, sources, rows_max).await.unwrap();
                assert!(page.rows.len() <= rows_max);
                rows.extend(page.rows);
                let Some(next) = page.next else { return rows };
                assert!(Place::<u32>::is_in(&next));
                after = Some(Place::read(&next).unwrap());
            }
        }
    }

    #[tokio::test]
    async fn rows_of_several_queues_come_by_time_each_once_whatever_the_pages() {
        let rows = |step: i64, count: u32| (0..count).map(|i| (i64::from(i) / step, i)).collect();
        let list = Numbers::new([
            ("a", rows(3, 40)),
            ("b", rows(1, 7)),
            ("c", vec![]),
            ("d", rows(9, 90)),
        ]);
        let mut wanted: Vec<_> = (list.queues.iter())
            .flat_map(|(queue, rows)| rows.iter().map(|row| (row.0, *queue, row.1)))
            .collect();
        wanted.sort_unstable();
        for rows_max in [1, 2, 7, 25, 1_000] {
            let all = list.all(rows_max).await;
            let all: Vec<_> = all.iter().map(|(queue, row)| (row.0, &**queue, row.1)).collect();
            assert_eq!(all, wanted, "{rows_max}");
        }
    }

    #[tokio::test]
    async fn a_queue_that_has_nothing_before_the_end_of_the_page_is_not_asked() {
        let names: Vec<&'static str> = (0..50).map(|i| &*format!("q{i:02}").leak()).collect();
        let list = Numbers::new(
            names
                .iter()
                .enumerate()
                .map(|(i, name)| (*name, (0..10).map(|row| (i as i64 * 100, row)).collect())),
        );
        let source = |(i, name): (usize, &&str)| Source::new((*name).into(), i as i64 * 100, None);
        let sources = names.iter().enumerate().map(source).collect();
        let page = page(&list, sources, 25).await.unwrap();
        assert_eq!(page.rows.len(), 25);
        assert!(*list.asked.lock().unwrap() <= 15, "{:?}", list.asked);
    }

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is() {
        let place = Place { at: -5, queue: "a.b".into(), row: 7_u32 };
        assert_eq!(Place::read(&place.text()).unwrap(), place);
        for wrong in ["", "/", "a/1", "/x/a/1", "/1/a", "/1/a/x"] {
            assert!(Place::<u32>::read(wrong).is_err(), "{wrong}");
        }
    }
}
