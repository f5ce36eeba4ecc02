//! Jobs in a state, of one queue or all, with filters. The morgue is those that are dead, as a list or by cause.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use seriatim::Mode;
use seriatim::store::{QueueStats, Store};

use super::super::input::given;
use super::super::{Problem, Query, Result, Shared};
use super::overview::CauseRow;
use super::ways::Ways;
use super::{Button, Frame, JobRow, ROWS_SHOWN, Visit, Wrong, button, link, page};
use crate::app::error::Error;
use crate::app::job_filters::{Filters, TABLE_PAYLOAD_BYTES_MAX};
use crate::app::job_pages::{self, By, Latest, Listed, Status, Wanted};
use crate::app::lane_pages::SCAN_DEFAULT;
use crate::app::operations::{self, Action, QUEUES_MAX};
use crate::app::{causes, find};
use crate::base::time::Moment;
use crate::protocol::document::Cause;
use crate::protocol::value::Time;

/// Queues in the list to choose from.
const QUEUES_SHOWN_MAX: usize = 1_000;
/// The states, as the address names them and as people read them.
const STATES: [(&str, &str, Status); 6] = [
    ("live", "queued or running", Status::Live),
    ("queued", "queued", Status::Queued),
    ("running", "running", Status::Claimed),
    ("succeeded", "succeeded", Status::Succeeded),
    ("canceled", "canceled", Status::Canceled),
    ("dead", "dead", Status::Dead),
];

/// What is shown of dead jobs.
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
    state: Status,
    queue: String,
    key: String,
    prefix: String,
    task: String,
    error: String,
    text: String,
    from: String,
    to: String,
    pub(super) after: String,
}

impl Wish {
    fn filters(&self) -> Filters<'_> {
        Filters {
            key: &self.key,
            prefix: &self.prefix,
            task: &self.task,
            error: &self.error,
            text: &self.text,
            from: &self.from,
            to: &self.to,
        }
    }

    fn state_name(&self) -> &'static str {
        STATES.iter().find(|(.., state)| *state == self.state).map_or("", |(name, ..)| name)
    }

    /// The filters as a query.
    fn pairs(&self) -> [(&str, &str); 9] {
        [
            ("state", self.state_name()),
            ("queue", &self.queue),
            ("key", &self.key),
            ("prefix", &self.prefix),
            ("task", &self.task),
            ("error", &self.error),
            ("text", &self.text),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    /// The filters that a list of one cause keeps.
    fn beside_cause(&self) -> [(&str, &str); 5] {
        [
            ("key", &self.key),
            ("prefix", &self.prefix),
            ("text", &self.text),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    /// Refuses what the visitor may not see.
    pub(super) fn admit(&self, visit: &Visit) -> Result<()> {
        visit.scope.check_named(given(&self.queue))?;
        if !self.text.is_empty() && !visit.discreet.shows_all() {
            let why = "you may not see payloads in full, so you cannot search them: search errors";
            return Err(Problem::new(StatusCode::FORBIDDEN, why).about("text"));
        }
        Ok(())
    }

    /// A page behind this one.
    pub(super) fn wanted<'a>(
        &'a self,
        after: Option<&'a str>,
        rows_max: usize,
        payload_bytes_max: Option<usize>,
    ) -> Wanted<'a> {
        Wanted {
            queue: given(&self.queue),
            status: self.state,
            by: By::Time,
            filters: self.filters(),
            payload_bytes_max,
            scan_max: SCAN_DEFAULT,
            after,
            rows_max,
        }
    }

    /// Whether they are waiting or running.
    fn is_live(&self) -> bool {
        matches!(self.state, Status::Live | Status::Queued | Status::Claimed)
    }

    /// Whether they are shown one by one.
    fn is_list(&self) -> bool {
        self.view == View::List || self.state != Status::Dead
    }

    /// What operations can do to all that fit.
    fn actions(&self) -> &'static [Action] {
        let has_times = !self.from.is_empty() || !self.to.is_empty();
        match self.state {
            // They do not search payloads.
            _ if !self.text.is_empty() => &[],
            Status::Dead => &OF_DEAD,
            Status::Live if !has_times => &[Action::CancelJobs],
            _ => &[],
        }
    }
}

/// The fields in which a person may write what cannot be read.
const FIELDS: [&str; 4] = ["from", "to", "error", "text"];
const OF_DEAD: [Action; 2] = [Action::Requeue, Action::DeleteDead];

#[derive(Template)]
#[template(path = "jobs.html", blocks = ["live"])]
struct Jobs<'a> {
    frame: &'a Frame,
    title: &'static str,
    wish: &'a Wish,
    wrong: &'a Wrong,
    is_morgue: bool,
    is_dead: bool,
    is_list: bool,
    /// The two views of dead jobs.
    list: String,
    by_cause: String,
    states: Vec<(&'static str, &'static str, bool)>,
    /// Queues, of dead jobs with their number.
    queues: Vec<(String, u64)>,
    /// Whether a rarely used filter is set.
    is_filtered: bool,
    may_search: bool,
    rows: Vec<JobRow>,
    causes: Vec<CauseRow>,
    found: usize,
    /// All dead jobs, if only the latest were looked at.
    of: Option<u64>,
    /// Those of them that were not.
    older: u64,
    /// Queues with dead jobs of which none were looked at.
    left_out: usize,
    /// Whether they have ended.
    has_ended: bool,
    /// Whether those of several queues come queue by queue.
    is_by_queue: bool,
    /// The column that they are ordered by.
    by: &'static str,
    /// Whether their scores give their order: those of one queue that has one.
    has_scores: bool,
    /// Whether they are in different states.
    is_mixed: bool,
    /// Whether there may be more behind the jobs that were looked at.
    is_cut: bool,
    buttons: Vec<Button>,
    /// Queues with something to do, if they are too many for one operation.
    too_many: Option<usize>,
    ticked: Vec<Action>,
    export: String,
    ways: Ways,
    next: Option<String>,
}

page!(Jobs);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    list(&app, &visit, &wish, "/jobs").await
}

pub(super) async fn morgue(
    app: Shared,
    visit: Visit,
    Query(wish): Query<Wish>,
) -> Result<Response> {
    list(&app, &visit, &Wish { state: Status::Dead, ..wish }, MORGUE).await
}

const MORGUE: &str = "/morgue";

async fn list(app: &Shared, visit: &Visit, wish: &Wish, path: &str) -> Result<Response> {
    let store = &*app.store;
    wish.admit(visit)?;
    let named = given(&wish.queue);
    let has_scores = match named {
        Some(queue) => find::queue(store, queue).await?.queue.mode != Mode::Parallel,
        None => false,
    };
    let (is_list, is_dead) = (wish.is_list(), wish.state == Status::Dead);
    let ((listed, latest), wrong) = Wrong::of(read(store, visit, wish).await, &FIELDS)?;
    let Listed { page, is_by_queue } = listed;
    let stats = store.stats(None).await?;
    let is_choice = |queue: &str, dead: u64| {
        visit.scope.has_queue(queue) && (!is_dead || dead > 0 || wish.queue == queue)
    };
    let queues = stats.iter().filter(|stats| is_choice(&stats.queue, stats.dead));
    let queues: Vec<(String, u64)> =
        queues.map(|stats| (stats.queue.to_string(), stats.dead)).collect();
    let of_wish = |queue: &str| wish.queue.is_empty() || wish.queue == queue;
    let all = queues.iter().filter(|(queue, _)| of_wish(queue)).map(|(_, dead)| dead).sum();
    let is_filtered = wish.filters().is_any();
    let base = &visit.frame.base;
    let with = |path: &str, more: &[(&str, &str)]| {
        let pairs: Vec<(&str, &str)> =
            wish.pairs().into_iter().chain(more.iter().copied()).collect();
        link::with(&format!("{base}{path}"), &pairs)
    };
    let ticked: &[Action] = match wish.state {
        _ if named.is_none() || !is_list || !wrong.is_none() => &[],
        Status::Dead => &OF_DEAD,
        _ if wish.is_live() => &[Action::CancelJobs, Action::DeleteJobs],
        _ => &[],
    };
    let filters = filters(visit, wish);
    let (buttons, too_many) = match wrong.is_none() {
        true => buttons(visit, wish, &filters, &stats),
        false => Default::default(),
    };
    let kept = Some(&filters).filter(|_| !wish.actions().is_empty());
    let cause = |cause: causes::Cause| {
        let is_cut = latest.more.contains(&cause.queue);
        CauseRow::new(visit, is_cut, cause, kept, &wish.beside_cause())
    };
    let is_partial = !latest.more.is_empty() || latest.left_out > 0;
    let page = Jobs {
        frame: &visit.frame,
        wrong: &wrong,
        title: if path == MORGUE { "Morgue" } else { "Jobs" },
        is_morgue: path == MORGUE,
        is_dead,
        is_list,
        list: with(path, &[]),
        by_cause: with(path, &[("view", "causes")]),
        states: STATES.map(|(name, says, state)| (name, says, state == wish.state)).to_vec(),
        queues: queues.into_iter().take(QUEUES_SHOWN_MAX).collect(),
        is_filtered: wish.filters().looks(),
        may_search: visit.discreet.shows_all(),
        rows: page.rows.iter().map(|job| JobRow::new(visit, job)).collect(),
        causes: causes::of(&latest.rows).into_iter().map(cause).collect(),
        found: page.rows.len() + latest.rows.len(),
        older: u64::saturating_sub(all, latest.rows.len() as u64),
        of: (is_partial && !is_filtered).then_some(all),
        left_out: latest.left_out,
        has_ended: !wish.is_live(),
        is_by_queue,
        by: if wish.is_live() || is_by_queue { "" } else { "time" },
        has_scores,
        is_mixed: wish.state == Status::Live,
        is_cut: page.cut || latest.cut,
        buttons,
        too_many,
        ticked: button::on_ticked(visit, ticked),
        export: with(if is_list { "/export/jobs" } else { "/export/causes" }, &[]),
        ways: Ways::of_list("jobs", "jobs", None, &wish.pairs()),
        next: page.next.map(|next| with(path, &[("after", &next)])),
        wish,
    };
    Ok(wrong.shown(visit.show(&page)?))
}

/// A page of jobs, or the latest, among which causes are found.
async fn read(store: &dyn Store, visit: &Visit, wish: &Wish) -> Result<(Listed, Latest), Error> {
    if wish.is_list() {
        let wanted = wish.wanted(given(&wish.after), ROWS_SHOWN, Some(TABLE_PAYLOAD_BYTES_MAX));
        return Ok((job_pages::page(store, wanted).await?, Latest::default()));
    }
    Ok((Listed::default(), latest(store, visit, wish).await?))
}

/// The latest dead jobs, among which causes are found.
async fn latest(store: &dyn Store, visit: &Visit, wish: &Wish) -> Result<Latest, Error> {
    let sees = |queue: &str| visit.scope.has_queue(queue);
    causes::latest(store, given(&wish.queue), wish.filters(), sees).await
}

/// What the latest dead jobs died of.
pub(super) async fn causes(store: &dyn Store, visit: &Visit, wish: &Wish) -> Result<Vec<Cause>> {
    wish.admit(visit)?;
    Ok(causes::document(&latest(store, visit, wish).await?).causes)
}

/// The filters, as operations have them.
fn filters(visit: &Visit, wish: &Wish) -> operations::Wish {
    let text = |text: &str| given(text).map(str::to_owned);
    let time = |text: &str| {
        let moment = Moment::read(text).ok()?;
        Some(Time(moment.before(visit.clock.now)))
    };
    let own = operations::Wish::new(Action::Requeue, &*wish.queue);
    operations::Wish {
        key: text(&wish.key),
        prefix: text(&wish.prefix),
        task: text(&wish.task),
        error: text(&wish.error),
        since: time(&wish.from),
        before: time(&wish.to),
        ..if wish.queue.is_empty() { own.in_all_queues() } else { own }
    }
}

/// For all jobs that fit, of the queue or of all. If more queues have some than an operation can be about, their number
/// instead.
fn buttons(
    visit: &Visit,
    wish: &Wish,
    filters: &operations::Wish,
    stats: &[QueueStats],
) -> (Vec<Button>, Option<usize>) {
    let all = |action: &Action| operations::Wish { action: *action, ..filters.clone() };
    let buttons = button::operations(visit, wish.actions().iter().map(all));
    let has_some = |of: &&QueueStats| {
        let finds_some = wish.actions().iter().any(|action| action.finds_some(of));
        finds_some && visit.scope.has_queue(&of.queue)
    };
    let busy = stats.iter().filter(has_some).count();
    match wish.queue.is_empty() && busy > QUEUES_MAX && !buttons.is_empty() {
        true => (Vec::new(), Some(busy)),
        false => (buttons, None),
    }
}
