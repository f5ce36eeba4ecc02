//! What waits for a time, of one queue or all: the next first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::store::{
    LaneId, LaneOrder, LanePlace, LaneQuery, LaneStage, LaneView, Page, QueueView, Store,
};

use super::error::{Error, Result};
use super::lane_pages::SCAN_DEFAULT;
use super::merged::{self, Place, QUEUES_MERGED_MAX, Rows, Source, Start};
use crate::base::time;

/// Queues that a page queue by queue asks; the next page asks the others.
const QUEUES_ASKED_MAX: usize = 50;
/// What waits for a time.
const STAGES: [LaneStage; 2] = [LaneStage::Scheduled, LaneStage::Retrying];
/// Comes before all lanes of a time.
const BEFORE_ALL: LaneId = LaneId { queue: 0, shard: 0, number: 0 };

/// Which lanes. An empty text is no filter.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) queue: Option<&'a str>,
    pub(crate) prefix: &'a str,
    pub(crate) due_from: &'a str,
    pub(crate) due_to: &'a str,
    pub(crate) after: Option<&'a str>,
    pub(crate) rows_max: usize,
}

/// Lanes and the queues that they are in.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) page: Page<(Arc<str>, LaneView)>,
    /// Whether lanes of several queues come queue by queue, in the order of their names.
    pub(crate) is_by_queue: bool,
}

/// The lanes of several queues, the next due first.
struct Later<'a> {
    store: &'a dyn Store,
    of_queue: LaneQuery,
    /// No lane that is listed is due before.
    from: Timestamp,
}

/// The queues that have lanes, of those that are seen.
pub(crate) async fn queues(
    store: &dyn Store,
    sees: impl Fn(&str) -> bool,
) -> Result<Vec<QueueView>> {
    let (views, stats) = tokio::try_join!(store.queues(), store.stats(None))?;
    let busy: HashSet<Arc<str>> =
        stats.into_iter().filter(|of| of.lanes > 0).map(|of| of.queue).collect();
    let is_shown =
        |view: &QueueView| busy.contains(view.queue.name.as_str()) && sees(&view.queue.name);
    Ok(views.into_iter().filter(is_shown).collect())
}

/// A page: of the queue that is wanted, or of all these. Those of several are by time, unless a prefix is sought, or too many queues
/// may have the next.
pub(crate) async fn page(
    store: &dyn Store,
    wanted: Wanted<'_>,
    queues: &[QueueView],
    now: Timestamp,
) -> Result<Listed> {
    let later = Later::of(store, &wanted, now)?;
    if let Some(queue) = wanted.queue {
        let start = wanted.after.map_or(Start::First, |after| Start::After(after.to_owned()));
        let queue: Arc<str> = queue.into();
        let Page { rows, next, cut } = later.read(&queue, start, wanted.rows_max).await?;
        let rows = rows.into_iter().map(|lane| (queue.clone(), lane)).collect();
        return Ok(Listed { page: Page { rows, next, cut }, is_by_queue: false });
    }
    if queues.is_empty() {
        return Ok(Listed::default());
    }
    let place = wanted.after.filter(|after| Place::<LaneId>::is_in(after));
    let place = place.map(Place::read).transpose()?;
    if wanted.prefix.is_empty() {
        let bounds = later.bounds(queues).await?;
        let unknown = bounds.iter().filter(|(_, bound)| *bound <= later.from).count();
        // Who has begun so goes on so.
        if place.is_some() || wanted.after.is_none() && unknown <= QUEUES_MERGED_MAX {
            let source = |(queue, bound): (Arc<str>, Timestamp)| {
                Source::new(queue, bound.as_micros(), place.as_ref())
            };
            let sources = bounds.into_iter().map(source).collect();
            let page = merged::page(&later, sources, wanted.rows_max).await?;
            return Ok(Listed { page, is_by_queue: false });
        }
    } else if place.is_some() {
        return Err(Error::Cursor);
    }
    Ok(Listed { page: later.by_queue(queues, &wanted).await?, is_by_queue: true })
}

impl<'a> Later<'a> {
    fn of(store: &'a dyn Store, wanted: &Wanted<'_>, now: Timestamp) -> Result<Self> {
        let bound = |field, text: &str| {
            let read = |text| time::read(text).map_err(|why| Error::Bound { field, why });
            Some(text).filter(|text| !text.is_empty()).map(read).transpose()
        };
        let (due_from, due_to) =
            (bound("due_from", wanted.due_from)?, bound("due_to", wanted.due_to)?);
        let later = now + Duration::from_micros(1);
        let from = due_from.map_or(later, |from| from.max(later));
        let of_queue = LaneQuery {
            stages: STAGES.to_vec(),
            prefix: Some(wanted.prefix.to_owned()).filter(|prefix| !prefix.is_empty()),
            order: LaneOrder::Due,
            from: Some(LanePlace::Due(from)),
            due_to,
            scan_max: Some(SCAN_DEFAULT),
            now: Some(now),
            ..LaneQuery::new("")
        };
        Ok(Self { store, of_queue, from })
    }

    /// The times before which these queues list nothing. Those that list nothing at all are left out.
    async fn bounds(&self, queues: &[QueueView]) -> Result<Vec<(Arc<str>, Timestamp)>> {
        let due = self.store.due(queues.iter().map(name_of).collect()).await?;
        let due: HashMap<_, _> =
            due.iter().map(|of| (&of.queue, of.may_have_at(self.from))).collect();
        // A queue with lanes that are due already may have others at any time from now on. Where nothing waits nothing comes,
        // but of a paused queue the store does not say.
        let bound = |view: &QueueView| {
            let queue = name_of(view);
            match due.get(&queue).copied().flatten() {
                Some(due) => Some((queue, due.max(self.from))),
                None => view.paused.then_some((queue, self.from)),
            }
        };
        Ok(queues.iter().filter_map(bound).collect())
    }

    async fn by_queue(
        &self,
        queues: &[QueueView],
        wanted: &Wanted<'_>,
    ) -> Result<Page<(Arc<str>, LaneView)>> {
        let (first, mut after) = merged::in_queue(wanted.after)?;
        let queues = queues.iter().map(name_of).filter(|name| **name >= *first);
        let queues: Vec<Arc<str>> = queues.collect();
        let mut rows = Vec::new();
        for (i, queue) in queues.iter().enumerate() {
            if rows.len() >= wanted.rows_max || i >= QUEUES_ASKED_MAX {
                let cut = rows.len() < wanted.rows_max;
                return Ok(Page { rows, next: Some(format!("{queue}/")), cut });
            }
            // The cursor belongs to the queue that it names, which may be gone.
            let after = after.take().filter(|_| **queue == *first);
            let start = after.map_or(Start::First, Start::After);
            let page = self.read(queue, start, wanted.rows_max - rows.len()).await;
            let page = merged::or_gone(page)?;
            rows.extend(page.rows.into_iter().map(|lane| (queue.clone(), lane)));
            if let Some(next) = page.next {
                return Ok(Page { rows, next: Some(format!("{queue}/{next}")), cut: page.cut });
            }
        }
        Ok(Page { rows, next: None, cut: false })
    }
}

fn name_of(view: &QueueView) -> Arc<str> {
    view.queue.name.as_str().into()
}

impl Rows for Later<'_> {
    type Row = LaneView;
    type Id = LaneId;

    fn at(&self, lane: &LaneView) -> i64 {
        lane.due.map_or(i64::MIN, Timestamp::as_micros)
    }

    fn id(&self, lane: &LaneView) -> LaneId {
        lane.lane
    }

    async fn read(
        &self,
        queue: &Arc<str>,
        start: Start<LaneId>,
        rows_max: usize,
    ) -> Result<Page<LaneView>> {
        let (after, behind) = start.of_query(Timestamp::from_micros, BEFORE_ALL);
        let queue = queue.clone();
        let query = LaneQuery { queue, after, behind, rows_max, ..self.of_queue.clone() };
        Ok(self.store.lanes(query).await?)
    }
}
