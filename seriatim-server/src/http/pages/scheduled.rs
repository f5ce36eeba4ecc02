//! What is due later, over all queues: the next first.

use std::collections::HashMap;

use askama::Template;
use axum::response::Response;
use futures_util::future::try_join_all;
use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::{LaneStage, LaneView, NodeView, QueueView, Store};
use seriatim::text::one_line;

use super::super::input::given;
use super::super::{Query, Result, Shared};
use super::{Button, Frame, LaneRow, Moment, On, ROWS_SHOWN, Visit, Wrong, button, link, page};
use crate::app::error::Error;
use crate::app::find;
use crate::app::lane_pages::{self, Filters, SCAN_DEFAULT, Wanted};
use crate::app::lanes::OneLane;
use crate::app::limits;
use crate::app::queues;
use crate::app::range::By;
use crate::app::why::Around;
use crate::base::time;
use crate::protocol::made_by::MadeBy;

/// Queues that one page asks: those with the next due times. Each takes a call, of twelve that a page may make.
const QUEUES_ASKED_MAX: usize = 7;
/// What waits for a time.
const STAGES: [LaneStage; 2] = [LaneStage::Scheduled, LaneStage::Retrying];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    queue: String,
    prefix: String,
    /// Only what is due then or later
    from: String,
    to: String,
    /// In one queue
    after: String,
    /// Queues that the pages before asked
    skip: usize,
}

/// What is due at a time.
struct Row {
    due: Option<Moment>,
    queue_href: String,
    /// Of its only job.
    task: String,
    made_by: String,
    /// What its time does not say.
    why: String,
    lane: LaneRow,
    buttons: Vec<Button>,
}

#[derive(Template)]
#[template(path = "scheduled.html", blocks = ["live"])]
struct Scheduled<'a> {
    frame: &'a Frame,
    wish: &'a Wish,
    wrong: &'a Wrong,
    /// Queues with lanes.
    queues: Vec<String>,
    rows: Vec<Row>,
    /// Queues that were not asked.
    left_out: usize,
    /// Whether more is due in several queues.
    is_more: bool,
    is_cut: bool,
    /// The field that says where a page begins.
    place: &'static str,
    next: Option<String>,
}

page!(Scheduled);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    let store = &*app.store;
    if !wish.queue.is_empty() {
        visit.scope.check_queue(&wish.queue)?;
        find::queue(store, &wish.queue).await?;
    }
    let (all, nodes) = queues::with_figures(store).await?;
    let has_lanes = all.into_iter().filter(|(view, figures)| {
        figures.stats.lanes > 0 && visit.scope.has_queue(&view.queue.name)
    });
    let views: Vec<QueueView> = has_lanes.map(|(view, _)| view).collect();
    let now = store.now().await?;
    let is_one = !wish.queue.is_empty();
    let ((), wrong) = Wrong::of(wish.check(), &["due_from", "due_to"])?;
    let (asked, left_out) = match is_one {
        _ if !wrong.is_none() => (Vec::new(), 0),
        true => (views.iter().filter(|view| view.queue.name == wish.queue).collect(), 0),
        false => next_due(store, &wish, &views, now).await?,
    };
    let mut found: Vec<(&QueueView, LaneView)> = Vec::new();
    let (mut next, mut is_more, mut is_cut) = (None, false, false);
    let pages =
        asked.iter().map(|view| lane_pages::page(store, wanted(&wish, &view.queue.name, now)));
    for (view, page) in asked.iter().copied().zip(try_join_all(pages).await?) {
        is_more |= page.next.is_some();
        is_cut |= page.cut;
        next = page.next;
        found.extend(page.rows.into_iter().map(|lane| (view, lane)));
    }
    found.sort_by_key(|(_, lane)| lane.due);
    is_more |= found.len() > ROWS_SHOWN;
    found.truncate(ROWS_SHOWN);
    let next = match is_one {
        true => next.map(|next| further(&visit, &wish, &[("after", &next)])),
        false => (left_out > 0).then(|| {
            let skip = (wish.skip + QUEUES_ASKED_MAX).to_string();
            further(&visit, &wish, &[("skip", &skip)])
        }),
    };
    let row = |(view, lane): &(&QueueView, LaneView)| row(&visit, view, lane, &nodes, now);
    let page = Scheduled {
        frame: &visit.frame,
        wish: &wish,
        wrong: &wrong,
        queues: views.iter().map(|view| view.queue.name.clone()).collect(),
        rows: found.iter().map(row).collect(),
        left_out,
        is_more: is_more && !is_one,
        is_cut,
        place: if is_one { "after" } else { "skip" },
        next,
    };
    Ok(wrong.shown(visit.show(&page)?))
}

impl Wish {
    /// Refuses times that cannot be read, also where no queue is asked.
    fn check(&self) -> Result<(), Error> {
        for (field, text) in [("due_from", &self.from), ("due_to", &self.to)] {
            let read = given(text).map(time::read).transpose();
            read.map_err(|why| Error::Bound { field, why })?;
        }
        Ok(())
    }
}

/// The queues of a page among those that have lanes, the next due first, and how many are left for the pages behind it.
async fn next_due<'a>(
    store: &dyn Store,
    wish: &Wish,
    views: &'a [QueueView],
    now: Timestamp,
) -> Result<(Vec<&'a QueueView>, usize)> {
    if views.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let names = views.iter().map(|view| view.queue.name.as_str().into()).collect();
    let due = store.due(names).await?.into_iter().map(|of| (of.queue, of.due));
    let due: HashMap<_, _> = due.collect();
    // A queue with lanes that are due already may have others at any time from now on. Where nothing waits nothing comes,
    // but of a paused queue the store does not say.
    let from = time::read(&wish.from).map_or(now, |from| from.max(now));
    let mut waiting: Vec<(Timestamp, &QueueView)> = (views.iter())
        .filter_map(|view| match due.get(view.queue.name.as_str()).copied().flatten() {
            Some(due) => Some((due.max(from), view)),
            None => view.paused.then_some((from, view)),
        })
        .collect();
    waiting.sort_by_key(|(due, _)| *due);
    let behind = waiting.into_iter().skip(wish.skip).map(|(_, view)| view);
    let mut asked: Vec<&QueueView> = behind.collect();
    let left_out = asked.len().saturating_sub(QUEUES_ASKED_MAX);
    asked.truncate(QUEUES_ASKED_MAX);
    Ok((asked, left_out))
}

/// The page behind this one.
fn further(visit: &Visit, wish: &Wish, place: &[(&str, &str)]) -> String {
    let filters = [
        ("queue", wish.queue.as_str()),
        ("prefix", &wish.prefix),
        ("from", &wish.from),
        ("to", &wish.to),
    ];
    let query: Vec<(&str, &str)> = filters.into_iter().chain(place.iter().copied()).collect();
    link::with(&format!("{}/scheduled", visit.frame.base), &query)
}

/// The first of a queue by their time.
fn wanted<'a>(wish: &'a Wish, queue: &'a str, now: Timestamp) -> Wanted<'a> {
    static STATES: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| STAGES.map(LaneStage::as_str).join(","));
    // A place is one in one queue.
    let after = wish.after.as_str();
    let after = Some(after).filter(|after| !after.is_empty() && !wish.queue.is_empty());
    Wanted {
        queue,
        by: By::Due,
        filters: Filters {
            state: &STATES,
            prefix: &wish.prefix,
            due_from: &wish.from,
            due_to: &wish.to,
            ..Filters::default()
        },
        from: None,
        to: None,
        after,
        rows_max: ROWS_SHOWN,
        scan_max: SCAN_DEFAULT,
        now: Some(now),
    }
}

fn row(
    visit: &Visit,
    view: &QueueView,
    lane: &LaneView,
    nodes: &[NodeView],
    now: Timestamp,
) -> Row {
    let queue = view.queue.name.clone();
    let named = match &lane.key {
        Some(key) => OneLane::Key(key.to_string()),
        None => OneLane::Lane(lane.lane),
    };
    let base = &visit.frame.base;
    let only = lane.only.as_ref();
    let made_by = only.map(|job| MadeBy::of(job.options.as_deref()).to_string());
    let around = Around { queue: view, usage: &limits::UNKNOWN, nodes, now };
    let shown = LaneRow::new(visit, lane, around);
    Row {
        due: lane.due.map(|due| visit.clock.of(due)),
        queue_href: link::with(&format!("{base}/scheduled"), &[("queue", &queue)]),
        why: beyond_time(&shown.why),
        lane: shown,
        task: only.and_then(|job| job.task.as_deref()).map(one_line).unwrap_or_default(),
        made_by: match (made_by, lane.retry_count >= 0) {
            (Some(made_by), true) => format!("{made_by}, retry"),
            (Some(made_by), false) => made_by,
            (None, true) => "retry".to_owned(),
            (None, false) => String::new(),
        },
        buttons: button::on_lane(
            visit,
            &["lane.retry", "lane.delete"],
            &On::Lane { queue, lane: named },
            lane.retry_count >= 0,
        ),
    }
}

/// Why a lane waits, without the time, which has a column.
fn beyond_time(why: &str) -> String {
    let rest =
        why.strip_prefix("due in ").map(|due| due.split_once(' ').map_or("", |(_, rest)| rest));
    rest.unwrap_or(why).to_owned()
}
