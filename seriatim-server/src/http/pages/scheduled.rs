//! What is due later, over all queues: the next first.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::{LaneView, NodeView, QueueView};
use seriatim::text::one_line;

use super::super::input::given;
use super::super::{Query, Result, Shared};
use super::ways::Ways;
use super::{Button, Frame, LaneRow, Moment, On, Visit, Wrong, button, link, page};
use crate::app::find;
use crate::app::lanes::OneLane;
use crate::app::limits;
use crate::app::queues;
use crate::app::scheduled::{self, Listed, Wanted};
use crate::app::why::Around;
use crate::protocol::made_by::MadeBy;

/// Rows of a page: with their buttons they are long.
const ROWS_MAX: usize = 20;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    queue: String,
    prefix: String,
    /// Only what is due then or later
    from: String,
    to: String,
    pub(super) after: String,
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
    is_by_queue: bool,
    /// Whether not all lanes were looked at for those that fit.
    is_cut: bool,
    export: String,
    ways: Ways,
    next: Option<String>,
}

page!(Scheduled);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    let store = &*app.store;
    wish.admit(&visit)?;
    let named = match given(&wish.queue) {
        Some(queue) => Some(find::queue(store, queue).await?),
        None => None,
    };
    let (all, nodes) = queues::with_figures(store).await?;
    let has_lanes = all.into_iter().filter(|(view, figures)| {
        figures.stats.lanes > 0 && visit.scope.has_queue(&view.queue.name)
    });
    let views: Vec<QueueView> = has_lanes.map(|(view, _)| view).collect();
    let now = store.now().await?;
    let wanted = wish.wanted(given(&wish.after), ROWS_MAX);
    let found = scheduled::page(store, wanted, &views, now).await;
    let (Listed { page, is_by_queue }, wrong) = Wrong::of(found, &["due_from", "due_to"])?;
    let base = &visit.frame.base;
    let with = |path: &str, after: &str| {
        let pairs = wish.pairs().into_iter().chain([("after", after)]);
        link::with(&format!("{base}{path}"), &pairs.collect::<Vec<_>>())
    };
    let row = |(queue, lane): &(Arc<str>, LaneView)| {
        let view = views.iter().chain(&named).find(|view| *view.queue.name == **queue)?;
        Some(row(&visit, view, lane, &nodes, now))
    };
    let page = Scheduled {
        frame: &visit.frame,
        wish: &wish,
        wrong: &wrong,
        queues: views.iter().map(|view| view.queue.name.clone()).collect(),
        rows: page.rows.iter().filter_map(row).collect(),
        is_by_queue,
        is_cut: page.cut,
        export: with("/export/scheduled", ""),
        ways: wish.ways(),
        next: page.next.map(|next| with("/scheduled", &next)),
    };
    Ok(wrong.shown(visit.show(&page)?))
}

impl Wish {
    /// Refuses what the visitor may not see.
    pub(super) fn admit(&self, visit: &Visit) -> Result<()> {
        match given(&self.queue) {
            Some(queue) => visit.scope.check_queue(queue),
            None => Ok(()),
        }
    }

    /// The filters as a query.
    fn pairs(&self) -> [(&str, &str); 4] {
        [("queue", &self.queue), ("prefix", &self.prefix), ("from", &self.from), ("to", &self.to)]
    }

    /// The same list by other ways.
    fn ways(&self) -> Ways {
        let filters = [
            ("queue", self.queue.as_str()),
            ("prefix", &self.prefix),
            ("due_from", &self.from),
            ("due_to", &self.to),
        ];
        Ways::of_list("scheduled", "scheduled", None, &filters)
    }

    /// A page behind this one.
    pub(super) fn wanted<'a>(&'a self, after: Option<&'a str>, rows_max: usize) -> Wanted<'a> {
        Wanted {
            queue: given(&self.queue),
            prefix: &self.prefix,
            due_from: &self.from,
            due_to: &self.to,
            after,
            rows_max,
        }
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
        buttons: button::all(
            visit,
            &["lane.retry", "lane.delete"],
            &On::Lane { queue, lane: named },
        ),
    }
}

/// Why a lane waits, without the time, which has a column.
fn beyond_time(why: &str) -> String {
    let rest =
        why.strip_prefix("due in ").map(|due| due.split_once(' ').map_or("", |(_, rest)| rest));
    rest.unwrap_or(why).to_owned()
}
