//! Dead jobs: a list, or by cause.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::super::input::Query;
use super::super::limits::PAGE_ROWS_DEFAULT;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::button::{self, Button};
use super::frame::Frame;
use super::link;
use super::overview::CauseRow;
use super::row::JobRow;
use super::visit::{Visit, page};
use crate::app::job_filters::{Filters, TABLE_PAYLOAD_BYTES_MAX};
use crate::app::job_pages::{self, By, Status, Wanted};
use crate::app::lane_pages::SCAN_DEFAULT;
use crate::app::operations::{self, Action};
use crate::app::{causes, find};
use crate::base::time;
use crate::protocol::value::Time;

/// Dead jobs that causes are found among, the latest.
const CAUSES_JOBS_MAX: usize = 1_000;
/// Queues that are asked.
const QUEUES_SHOWN_MAX: usize = 1_000;

/// What the page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum View {
    #[default]
    List,
    Causes,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    view: View,
    queue: String,
    key: String,
    prefix: String,
    task: String,
    error: String,
    from: String,
    to: String,
    after: String,
}

impl Wish {
    fn filters(&self) -> Filters<'_> {
        Filters {
            key: &self.key,
            prefix: &self.prefix,
            task: &self.task,
            error: &self.error,
            from: &self.from,
            to: &self.to,
            text: "",
        }
    }

    /// As a query.
    fn pairs(&self) -> [(&str, &str); 7] {
        [
            ("queue", &self.queue),
            ("key", &self.key),
            ("prefix", &self.prefix),
            ("task", &self.task),
            ("error", &self.error),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }
}

#[derive(Template)]
#[template(path = "morgue.html", blocks = ["live"])]
struct Morgue<'a> {
    frame: &'a Frame,
    queue: &'a str,
    wish: &'a Wish,
    /// Whether a filter is set that is seldom used.
    is_filtered: bool,
    is_list: bool,
    list: String,
    by_cause: String,
    rows: Vec<JobRow>,
    causes: Vec<CauseRow>,
    found: usize,
    /// Whether there may be more behind the jobs that were looked at.
    is_cut: bool,
    /// Queues with dead jobs.
    queues: Vec<(String, u64)>,
    buttons: Vec<Button>,
    ticked: Vec<Action>,
    next: Option<String>,
}

page!(Morgue);

pub(super) async fn show(
    State(app): State<Shared>,
    visit: Visit,
    Query(wish): Query<Wish>,
) -> Result<Response, Problem> {
    let store = &*app.store;
    let named = Some(wish.queue.as_str()).filter(|queue| !queue.is_empty());
    match named {
        Some(queue) => {
            visit.scope.check_queue(queue)?;
            find::queue(store, queue).await?;
        }
        None if visit.scope.is_limited() => {
            return Err(visit.scope.refuse("must name one of its queues here").about("queue"));
        }
        None => {}
    }
    let stats = store.stats(None).await?;
    let has_dead =
        stats.iter().filter(|stats| stats.dead > 0 && visit.scope.has_queue(&stats.queue));
    let queues = has_dead
        .map(|stats| (stats.queue.to_string(), stats.dead))
        .take(QUEUES_SHOWN_MAX)
        .collect();
    let is_list = wish.view == View::List;
    let wanted = Wanted {
        queue: named,
        status: Status::Dead,
        by: By::Time,
        filters: wish.filters(),
        // A cause needs none.
        payload_bytes_max: Some(if is_list { TABLE_PAYLOAD_BYTES_MAX } else { 0 }),
        scan_max: SCAN_DEFAULT,
        after: Some(wish.after.as_str()).filter(|after| !after.is_empty()),
        rows_max: if is_list { PAGE_ROWS_DEFAULT } else { CAUSES_JOBS_MAX },
    };
    let page = job_pages::page(store, wanted).await?;
    let base = &visit.frame.base;
    let path = format!("{base}/morgue");
    let with = |query: &[(&str, &str)]| link::with(&path, query);
    let with_also = |also: (&str, &str)| {
        let pairs: Vec<(&str, &str)> = wish.pairs().into_iter().chain([also]).collect();
        with(&pairs)
    };
    let next = page.next.filter(|_| is_list).map(|next| with_also(("after", &next)));
    let causes = if is_list { Vec::new() } else { causes::of(&page.rows) };
    visit.show(&Morgue {
        frame: &visit.frame,
        queue: &wish.queue,
        wish: &wish,
        is_filtered: wish.filters().looks(),
        is_list,
        list: with(&wish.pairs()),
        by_cause: with_also(("view", "causes")),
        ticked: match named {
            Some(_) if is_list => button::on_ticked(&visit, &[Action::Requeue, Action::DeleteDead]),
            _ => Vec::new(),
        },
        found: page.rows.len(),
        is_cut: page.cut,
        causes: causes.into_iter().map(|cause| CauseRow::new(&visit, cause)).collect(),
        rows: if is_list {
            page.rows.iter().map(|job| JobRow::new(&visit, job)).collect()
        } else {
            Vec::new()
        },
        queues,
        buttons: named.map(|queue| buttons(&visit, queue, &wish)).unwrap_or_default(),
        next,
    })
}

/// For all dead jobs of the queue that fit. The page has refused times that cannot be read.
fn buttons(visit: &Visit, queue: &str, wish: &Wish) -> Vec<Button> {
    let time = |text: &str| time::read(text).ok().map(Time);
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let all = |action| operations::Wish {
        key: given(&wish.key),
        prefix: given(&wish.prefix),
        task: given(&wish.task),
        error: given(&wish.error),
        since: time(&wish.from),
        before: time(&wish.to),
        ..operations::Wish::new(action, queue)
    };
    button::operations(visit, [Action::Requeue, Action::DeleteDead].map(all))
}
