//! The lanes of a queue: an order, filters, a range.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{LaneStage, LaneState, LaneView};

use super::super::input::given;
use super::super::{Part, Problem, Query, Result, Shared};
use super::ways::Ways;
use super::{Button, Frame, LaneRow, ROWS_SHOWN, Visit, Wrong, button, link, page};
use crate::app::error::Error;
use crate::app::find;
use crate::app::lane_filters::{self, Filters};
use crate::app::lane_pages::{self, SCAN_DEFAULT, Wanted};
use crate::app::limits::Usage;
use crate::app::operations::{self, Action};
use crate::app::pauses;
use crate::app::range::By;
use crate::app::why::Around;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    #[serde(default = "next_first")]
    by: By,
    state: String,
    lane: String,
    prefix: String,
    node: String,
    due_from: String,
    due_to: String,
    retries_min: String,
    lag_min: String,
    /// The first place in the order: a key, a time, a retry count
    from: String,
    pub(super) after: String,
}

/// The order of a page that names none: stores read it without passing by what they do not show.
fn next_first() -> By {
    By::Due
}

#[derive(Template)]
#[template(path = "lanes.html", blocks = ["live"])]
struct Lanes<'a> {
    frame: &'a Frame,
    queue: &'a str,
    queue_href: String,
    rows: Vec<LaneRow>,
    by: &'static str,
    orders: Vec<(&'static str, &'static str, bool)>,
    states: Vec<(&'a str, &'a str, bool)>,
    wish: &'a Wish,
    wrong: &'a Wrong,
    /// Whether one of the rare filters is set.
    has_more: bool,
    /// Lanes that were read, if the page ended at that limit.
    looked_at: Option<usize>,
    export: String,
    /// None for one lane by its name, which the command does not list.
    ways: Option<Ways>,
    next: Option<String>,
    is_first: bool,
    buttons: Vec<Button>,
    ticked: Vec<Action>,
}

page!(Lanes);

impl Wish {
    fn has_more(&self) -> bool {
        let due = [&self.due_from, &self.due_to, &self.lag_min];
        let rare = [&self.from, &self.node, &self.retries_min].into_iter().chain(due);
        rare.into_iter().any(|filter| !filter.is_empty())
    }

    fn order_name(&self) -> &'static str {
        ORDERS.iter().find(|(.., by)| *by == self.by).map_or("", |(value, ..)| value)
    }

    /// As a query.
    fn pairs(&self) -> Vec<(&str, &str)> {
        [("by", self.order_name())].into_iter().chain(self.filters()).collect()
    }

    fn filters(&self) -> [(&str, &str); 9] {
        [
            ("state", &self.state),
            ("lane", &self.lane),
            ("prefix", &self.prefix),
            ("node", &self.node),
            ("due_from", &self.due_from),
            ("due_to", &self.due_to),
            ("retries_min", &self.retries_min),
            ("lag_min", &self.lag_min),
            ("from", &self.from),
        ]
    }

    /// The same list by other ways.
    fn ways(&self, queue: &str) -> Option<Ways> {
        let order = ORDERS.iter().find(|(.., by)| *by == self.by).map(|(_, says, _)| *says);
        let path = format!("queues/{}/lanes", link::encoded(queue));
        let ways = || Ways::of_list(&path, &format!("lanes {queue}"), order, &self.filters());
        self.lane.is_empty().then(ways)
    }

    /// The page behind this lane.
    pub(super) fn wanted<'a>(
        &'a self,
        queue: &'a str,
        after: Option<&'a str>,
        rows_max: usize,
    ) -> Wanted<'a> {
        Wanted {
            queue,
            by: self.by,
            filters: Filters {
                state: &self.state,
                lane: &self.lane,
                prefix: &self.prefix,
                node: &self.node,
                due_from: &self.due_from,
                due_to: &self.due_to,
                retries_min: &self.retries_min,
                lag_min: &self.lag_min,
            },
            from: given(&self.from),
            to: None,
            after,
            rows_max,
            scan_max: SCAN_DEFAULT,
            now: None,
        }
    }
}

/// The fields in which a person may write what cannot be read.
const FIELDS: [&str; 6] = ["from", "node", "due_from", "due_to", "retries_min", "lag_min"];
/// What is done to rows that are ticked.
const TICKED: [Action; 5] =
    [Action::Retry, Action::Pause, Action::Resume, Action::Bury, Action::DeleteWaiting];
const ORDERS: [(&str, &str, By); 4] = [
    ("age", "age", By::Age),
    ("key", "key", By::Key),
    ("run_at", "due", By::Due),
    ("retry_count", "retries", By::Retries),
];
pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Part(queue): Part<String>,
    Query(wish): Query<Wish>,
) -> Result<Response> {
    visit.scope.check_queue(&queue)?;
    let store = &*app.store;
    let view = find::queue(store, &queue).await?;
    let wanted = wish.wanted(&queue, given(&wish.after), ROWS_SHOWN);
    let found = lane_pages::page(store, wanted).await.map_err(named);
    let (page, wrong) = Wrong::of(found, &FIELDS)?;
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    let usage = Usage::of_queue(store, &view.queue).await?;
    let around = Around { queue: &view, usage: &usage, nodes: &nodes, now };
    let paused = page.rows.iter().filter(|lane| lane.state == LaneState::Paused);
    let paused: Vec<&str> = paused.filter_map(|lane| lane.key.as_deref()).collect();
    let pauses = pauses::of_keys(store, &queue, &paused, now).await?;
    let row = |lane: &LaneView| {
        let pause = lane.key.as_deref().and_then(|key| pauses.get(key));
        LaneRow::with_pause(&visit, lane, pause, around)
    };
    let base = &visit.frame.base;
    let next = page.next.map(|next| {
        let also = [("after", next.as_str())];
        let pairs: Vec<(&str, &str)> = wish.pairs().into_iter().chain(also).collect();
        link::lanes(base, &queue, &pairs)
    });
    let buttons = if wrong.is_none() { buttons(&visit, &queue, &wish) } else { Vec::new() };
    let page = Lanes {
        frame: &visit.frame,
        wrong: &wrong,
        queue: &queue,
        queue_href: link::queue(base, &queue),
        rows: page.rows.iter().map(row).collect(),
        by: wish.order_name(),
        export: link::with(
            &format!("{base}/export/lanes/{}", link::encoded(&queue)),
            &wish.pairs(),
        ),
        ways: wish.ways(&queue),
        orders: ORDERS.map(|(value, says, by)| (value, says, by == wish.by)).to_vec(),
        buttons,
        ticked: if wrong.is_none() { button::on_ticked(&visit, &TICKED) } else { Vec::new() },
        states: states(&wish.state),
        has_more: wish.has_more(),
        wish: &wish,
        looked_at: page.cut.then_some(SCAN_DEFAULT),
        next,
        is_first: wish.after.is_empty(),
    };
    Ok(wrong.shown(visit.show(&page)?))
}

/// A node that is not known, or not by this name alone, is named by a field of the form.
fn named(error: Error) -> Problem {
    match error {
        Error::NoNode(_) | Error::SeveralNodes { .. } => Problem::from(error).about("node"),
        error => error.into(),
    }
}

/// For all lanes that the filters name; none for one lane or a part of the order, which no operation has as a filter.
fn buttons(visit: &Visit, queue: &str, wish: &Wish) -> Vec<Button> {
    if !wish.lane.is_empty() || !wish.from.is_empty() {
        return Vec::new();
    }
    let stages = lane_filters::stages(&wish.state).unwrap_or_default();
    let are =
        |some: &[LaneStage]| !stages.is_empty() && stages.iter().all(|stage| some.contains(stage));
    let actions = match () {
        () if are(&[LaneStage::Running]) || !wish.node.is_empty() => &[Action::Pause][..],
        () if are(&[LaneStage::Held, LaneStage::Paused]) => {
            &[Action::Resume, Action::DeleteWaiting]
        }
        () => &[Action::Retry, Action::Pause, Action::Bury, Action::DeleteWaiting],
    };
    // This order lists only lanes that have failed.
    let is_of_failed = wish.retries_min.parse::<i32>().is_ok_and(|least| least >= 0);
    let retries_min = match wish.by {
        By::Retries if !is_of_failed => "0",
        _ => &wish.retries_min,
    };
    let all = |action: &Action| operations::Wish {
        state: wish.state.clone(),
        prefix: given(&wish.prefix).map(str::to_owned),
        node: wish.node.clone(),
        due_from: wish.due_from.clone(),
        due_to: wish.due_to.clone(),
        retries_min: retries_min.to_owned(),
        lag_min: wish.lag_min.clone(),
        ..operations::Wish::new(*action, queue)
    };
    button::operations(visit, actions.iter().map(all))
}

/// The choices: one state, any, or the several that the address names.
fn states(wanted: &str) -> Vec<(&str, &str, bool)> {
    let stage = |stage: LaneStage| (stage.as_str(), stage.as_str(), stage.as_str() == wanted);
    let any = [("", "any", wanted.is_empty())];
    let mut choices: Vec<(&str, &str, bool)> =
        any.into_iter().chain(LaneStage::ALL.map(stage)).collect();
    if !choices.iter().any(|(.., is)| *is) {
        choices.push((wanted, wanted, true));
    }
    choices
}
