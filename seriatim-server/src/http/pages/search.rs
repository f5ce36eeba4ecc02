//! Search: a job by its id, a key, keys by their beginning, a task; jobs by terms.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use seriatim::JobId;

use super::super::input::Query;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::frame::Frame;
use super::link;
use super::row::{JobRow, LaneRow};
use super::visit::{Visit, page, see_other};
use crate::app::limits::Usage;
use crate::app::queues;
use crate::app::search::{self, Found};
use crate::app::search_terms::Terms;
use crate::app::why::Around;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    q: String,
    /// Whether to search on if a key is the text.
    #[serde(default)]
    all: bool,
}

#[derive(Template)]
#[template(path = "search.html", blocks = ["live"])]
struct Search<'a> {
    frame: &'a Frame,
    text: &'a str,
    key_href: String,
    /// The same search, for tasks too.
    all_href: String,
    found: &'a Found,
    lanes: Vec<LaneRow>,
    dead: Vec<JobRow>,
    tasks: Vec<JobRow>,
    /// Queues that were not searched to their end, each with where to look on.
    cut: Vec<(String, Option<String>, String)>,
    /// Whether the text is terms, of which jobs are found.
    by_terms: bool,
    /// Whether the visitor does not see all of them.
    hides_payloads: bool,
}

page!(Search);

/// Leads to the page of a job or key; else shows what begins so, or is of such a task.
pub(super) async fn show(
    State(app): State<Shared>,
    visit: Visit,
    Query(Wish { q, all }): Query<Wish>,
) -> Result<Response, Problem> {
    let (base, store) = (&visit.frame.base, &*app.store);
    let text = q.trim();
    match (text, text.parse::<JobId>()) {
        ("", _) => return Ok(see_other(&format!("{base}/"))),
        (_, Ok(id)) => return Ok(see_other(&link::job(base, id))),
        (_, Err(_)) => {}
    }
    let terms = Terms::read(text);
    let only = terms.as_ref().and_then(|terms| terms.queue.as_deref());
    let is_asked =
        |queue: &str| only.is_none_or(|only| only == queue) && visit.scope.has_queue(queue);
    let asked = search::asked(store, is_asked).await?;
    if !all && search::is_key(store, &asked, text).await? {
        return Ok(see_other(&link::key(base, text)));
    }
    let hides_payloads = !visit.discreet.shows_all();
    let terms = terms.map(|terms| if hides_payloads { terms.in_errors() } else { terms });
    let found = match &terms {
        Some(terms) => search::by_terms(store, &asked, terms).await?,
        None => search::search(store, &asked, text, all).await?,
    };
    let (views, nodes) = match found.lanes.is_empty() {
        true => Default::default(),
        false => queues::with_figures(store).await?,
    };
    let now = visit.clock.now;
    let lane = |(queue, lane): &(std::sync::Arc<str>, seriatim::store::LaneView)| {
        let (view, figures) = views.iter().find(|(view, _)| *view.queue.name == **queue)?;
        let usage = &Usage::of_turns(figures.stats.claimed);
        Some(LaneRow::new(&visit, lane, Around { queue: view, usage, nodes: &nodes, now }))
    };
    let jobs = |jobs: &[seriatim::store::JobView]| {
        jobs.iter().map(|job| JobRow::without_payload(&visit, job)).collect()
    };
    let morgue = format!("{base}/morgue");
    let of = terms.as_ref();
    let task = of.map_or(Some(text), |terms| terms.task.as_deref()).unwrap_or_default();
    let error = of.and_then(|terms| terms.error.as_deref()).unwrap_or_default();
    let cut = found.cut.iter().map(|queue| {
        let lanes = link::lanes(base, queue, &[("by", "key"), ("prefix", text)]);
        let dead = [("queue", &**queue), ("task", task), ("error", error)];
        let dead = dead.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>();
        (queue.to_string(), terms.is_none().then_some(lanes), link::with(&morgue, &dead))
    });
    visit.show(&Search {
        frame: &visit.frame,
        text,
        key_href: link::key(base, text),
        all_href: link::search_all(base, text),
        lanes: found.lanes.iter().filter_map(lane).collect(),
        dead: jobs(&found.dead),
        tasks: jobs(&found.tasks),
        cut: cut.collect(),
        by_terms: terms.is_some(),
        hides_payloads,
        found: &found,
    })
}
