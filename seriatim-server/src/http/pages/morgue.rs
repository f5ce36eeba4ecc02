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
use crate::app::job_pages::{self, Status, Wanted};
use crate::app::operations::{self, Action};
use crate::app::{causes, find};

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
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    view: View,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "morgue.html", blocks = ["live"])]
struct Morgue<'a> {
    frame: &'a Frame,
    queue: &'a str,
    key: &'a str,
    is_list: bool,
    list: String,
    by_cause: String,
    rows: Vec<JobRow>,
    causes: Vec<CauseRow>,
    looked_at: usize,
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
        key: Some(wish.key.as_str()).filter(|key| !key.is_empty()),
        after: Some(wish.after.as_str()).filter(|after| !after.is_empty()),
        rows_max: if is_list { PAGE_ROWS_DEFAULT } else { CAUSES_JOBS_MAX },
    };
    let page = job_pages::page(store, wanted).await?;
    let base = &visit.frame.base;
    let path = format!("{base}/morgue");
    let with = |query: &[(&str, &str)]| link::with(&path, query);
    let next = page.next.filter(|_| is_list);
    let next =
        next.map(|next| with(&[("queue", &wish.queue), ("key", &wish.key), ("after", &next)]));
    let causes = if is_list { Vec::new() } else { causes::of(&page.rows) };
    visit.show(&Morgue {
        frame: &visit.frame,
        queue: &wish.queue,
        key: &wish.key,
        is_list,
        list: with(&[("queue", &wish.queue), ("key", &wish.key)]),
        by_cause: with(&[("view", "causes"), ("queue", &wish.queue), ("key", &wish.key)]),
        ticked: match named {
            Some(_) if is_list => button::on_ticked(&visit, &[Action::Requeue, Action::DeleteDead]),
            _ => Vec::new(),
        },
        looked_at: page.rows.len(),
        causes: causes.into_iter().map(|cause| CauseRow::new(&visit, cause)).collect(),
        rows: if is_list {
            page.rows.iter().map(|job| JobRow::new(&visit, job)).collect()
        } else {
            Vec::new()
        },
        queues,
        buttons: named.map(|queue| buttons(&visit, queue, &wish.key)).unwrap_or_default(),
        next,
    })
}

/// For all dead jobs of the queue, or of the key in it.
fn buttons(visit: &Visit, queue: &str, key: &str) -> Vec<Button> {
    let key = Some(key.to_owned()).filter(|key| !key.is_empty());
    let all =
        |action| operations::Wish { key: key.clone(), ..operations::Wish::new(action, queue) };
    button::operations(visit, [Action::Requeue, Action::DeleteDead].map(all))
}
