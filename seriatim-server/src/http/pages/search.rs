//! Search: a job by its id, a key, keys by their beginning, a task; jobs by terms.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::JobId;
use seriatim::store::{JobState, JobView};

use super::super::{Query, Result, Shared};
use super::visit::see_other;
use super::{Frame, JobRow, LaneRow, Visit, link, page};
use crate::app::find;
use crate::app::limits::Usage;
use crate::app::queues;
use crate::app::search::{self, Cut, Found};
use crate::app::search_terms::Terms;
use crate::app::why::Around;
use crate::base::text::one_line;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    q: String,
    /// Whether to search on if a key is the text.
    #[serde(default)]
    all: bool,
    /// The queue behind which this page begins
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "search.html", blocks = ["live"])]
struct Search<'a> {
    frame: &'a Frame,
    text: &'a str,
    key_href: String,
    /// The queue of this name.
    queue_href: Option<String>,
    /// The same search, for tasks too.
    all_href: String,
    found: &'a Found,
    lanes: Vec<LaneRow>,
    dead: Vec<JobRow>,
    tasks: Vec<JobRow>,
    /// Queues that were not searched to their end, each with where to look on.
    cut: Vec<CutRow>,
    /// Where all of them are listed, to export them and to act on them.
    lists: Vec<(&'static str, String)>,
    /// The same search of the queues that were left out.
    next: Option<String>,
    /// Whether the text is terms, of which jobs are found.
    by_terms: bool,
    /// Whether the visitor does not see all of them.
    hides_payloads: bool,
}

page!(Search);

/// A queue that was not searched to its end.
struct CutRow {
    queue: String,
    /// What waits or runs: what it is called, and where.
    live: Option<(&'static str, String)>,
    dead: Option<String>,
}

/// Leads to the page of a job or key; else shows what begins so, or is of such a task.
pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { q, all, after }): Query<Wish>,
) -> Result<Response> {
    let (base, store) = (&visit.frame.base, &*app.store);
    let text = q.trim();
    match (text, text.parse::<JobId>()) {
        ("", _) => return Ok(see_other(&visit.frame.home)),
        (_, Ok(id)) => return Ok(see_other(&link::job(base, id))),
        (_, Err(_)) => {}
    }
    let terms = Terms::read(text);
    let may_see = |queue: &str| visit.scope.has_queue(queue);
    let asked = search::asked(store, terms.as_ref(), &after, may_see).await?;
    if !all && after.is_empty() && search::is_key(store, &asked, text).await? {
        return Ok(see_other(&link::key(base, text)));
    }
    let is_queue = may_see(text) && find::queue(store, text).await.is_ok();
    let hides_payloads = !visit.discreet.shows_all();
    let terms = terms.map(|terms| if hides_payloads { terms.in_errors() } else { terms });
    let found = search::of_text(store, &asked, (text, terms.as_ref()), all).await?;
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
    let jobs =
        |jobs: &[JobView]| jobs.iter().map(|job| JobRow::without_payload(&visit, job)).collect();
    let next = asked.next().map(|after| {
        let all = if all { "true" } else { "" };
        link::with(&format!("{base}/search"), &[("q", text), ("all", all), ("after", &*after)])
    });
    let cut = found.cut.iter().map(|cut| CutRow::new(base, text, terms.as_ref(), cut));
    visit.show(&Search {
        frame: &visit.frame,
        text: &one_line(text),
        key_href: link::key(base, text),
        queue_href: is_queue.then(|| link::queue(base, text)),
        all_href: link::search_all(base, text),
        lanes: found.lanes.iter().filter_map(lane).collect(),
        dead: jobs(&found.dead),
        tasks: jobs(&found.tasks),
        cut: cut.collect(),
        lists: lists(&visit, text, terms.as_ref(), &found),
        next,
        by_terms: terms.is_some(),
        hides_payloads,
        found: &found,
    })
}

/// What jobs are searched for, as filters of their list: terms, or a task of this name.
fn filters<'a>(text: &'a str, terms: Option<&'a Terms>) -> [(&'static str, &'a str); 3] {
    let of = |term: fn(&Terms) -> &Option<String>| {
        terms.and_then(|terms| term(terms).as_deref()).unwrap_or_default()
    };
    let task = terms.map_or(text, |_| of(|terms| &terms.task));
    [("task", task), ("error", of(|terms| &terms.error)), ("text", of(|terms| &terms.payload))]
}

/// The lists that have all of what is found.
fn lists(
    visit: &Visit,
    text: &str,
    terms: Option<&Terms>,
    found: &Found,
) -> Vec<(&'static str, String)> {
    let queue = terms.and_then(|terms| terms.queue.as_deref());
    // Who may not see all queues has no list of several.
    if visit.scope.check_named(queue).is_err() {
        return Vec::new();
    }
    let place = [("queue", queue.unwrap_or_default())];
    let of_jobs: Vec<_> = place.into_iter().chain(filters(text, terms)).collect();
    let of_keys = [("prefix", text)];
    let (live, dead) = match terms {
        Some(_) => ("jobs that wait or run", "dead jobs"),
        None => ("jobs of this task that wait or run", "dead jobs of this task"),
    };
    let has = |dead: bool| found.tasks.iter().any(|job| (job.state == JobState::Dead) == dead);
    [
        ("jobs of these keys that wait or run", "/jobs", &of_keys[..], !found.lanes.is_empty()),
        ("dead jobs of these keys", "/morgue", &of_keys[..], !found.dead.is_empty()),
        (live, "/jobs", &of_jobs[..], has(false)),
        (dead, "/morgue", &of_jobs[..], has(true)),
    ]
    .into_iter()
    .filter(|(.., is_found)| *is_found)
    .map(|(what, path, pairs, _)| (what, link::with(&format!("{}{path}", visit.frame.base), pairs)))
    .collect()
}

impl CutRow {
    fn new(base: &str, text: &str, terms: Option<&Terms>, cut: &Cut) -> Self {
        let queue = &*cut.queue;
        let jobs = |state| {
            let place = [("state", state), ("queue", queue)];
            let pairs: Vec<_> = place.into_iter().chain(filters(text, terms)).collect();
            link::with(&format!("{base}/jobs"), &pairs)
        };
        let (live, dead) = match cut.by_jobs {
            true => (("jobs", jobs("live")), jobs("dead")),
            false => {
                let lanes = link::lanes(base, queue, &[("by", "key"), ("prefix", text)]);
                let dead = [("queue", queue), ("prefix", text)];
                (("keys", lanes), link::with(&format!("{base}/morgue"), &dead))
            }
        };
        Self {
            queue: queue.to_owned(),
            live: cut.is_live.then_some(live),
            dead: cut.is_dead.then_some(dead),
        }
    }
}
