//! The lanes of a queue: an order, a state, a range.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{LaneQuery, LaneState};

use super::super::input::{Part, Query};
use super::super::limits::PAGE_ROWS_DEFAULT;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::button::{self, Button};
use super::frame::Frame;
use super::link;
use super::row::LaneRow;
use super::visit::{Visit, page};
use crate::app::find;
use crate::app::operations::{self, Action};
use crate::app::range::By;
use crate::app::why::Around;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    by: By,
    #[serde(default, deserialize_with = "state")]
    state: Option<LaneState>,
    /// The first place in the order: a key, a time, a retry count
    #[serde(default)]
    from: String,
    #[serde(default)]
    after: String,
}

/// A field of a form may be empty.
fn state<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<LaneState>, D::Error> {
    use serde::de::IntoDeserializer;
    let text = String::deserialize(from)?;
    if text.is_empty() {
        Ok(None)
    } else {
        LaneState::deserialize(text.into_deserializer()).map(Some)
    }
}

#[derive(Template)]
#[template(path = "lanes.html", blocks = ["live"])]
struct Lanes<'a> {
    frame: &'a Frame,
    queue: &'a str,
    queue_href: String,
    rows: Vec<LaneRow>,
    orders: Vec<(&'static str, &'static str, bool)>,
    states: Vec<(&'static str, &'static str, bool)>,
    from: &'a str,
    next: Option<String>,
    is_first: bool,
    buttons: Vec<Button>,
    ticked: Vec<Action>,
}

page!(Lanes);

/// What is done to rows that are ticked.
const TICKED: [Action; 5] =
    [Action::Retry, Action::Pause, Action::Resume, Action::Bury, Action::DeleteWaiting];
const ORDERS: [(&str, &str, By); 4] = [
    ("age", "age", By::Age),
    ("key", "key", By::Key),
    ("run_at", "due", By::Due),
    ("retry_count", "retries", By::Retries),
];
const STATES: [(&str, &str, Option<LaneState>); 5] = [
    ("", "any", None),
    ("waiting", "waiting", Some(LaneState::Waiting)),
    ("claimed", "running", Some(LaneState::Claimed)),
    ("held", "held", Some(LaneState::Held)),
    ("paused", "paused", Some(LaneState::Paused)),
];

pub(super) async fn show(
    State(app): State<Shared>,
    visit: Visit,
    Part(queue): Part<String>,
    Query(wish): Query<Wish>,
) -> Result<Response, Problem> {
    visit.scope.check_queue(&queue)?;
    let store = &*app.store;
    let view = find::queue(store, &queue).await?;
    let from = Some(wish.from.as_str()).filter(|from| !from.is_empty());
    let query = LaneQuery {
        state: wish.state,
        order: wish.by.order(),
        from: wish.by.place("from", from)?,
        after: Some(wish.after.clone()).filter(|after| !after.is_empty()),
        rows_max: PAGE_ROWS_DEFAULT,
        ..LaneQuery::new(queue.as_str())
    };
    let page = store.lanes(query).await?;
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    let around = Around { queue: &view, nodes: &nodes, now };
    let word = |list: &[(&'static str, bool)]| {
        list.iter().find(|(_, is)| *is).map_or("", |(value, _)| value)
    };
    let by = word(&ORDERS.map(|(value, _, by)| (value, by == wish.by)));
    let state = word(&STATES.map(|(value, _, state)| (value, state == wish.state)));
    let base = &visit.frame.base;
    let next = page.next.map(|next| {
        link::lanes(
            base,
            &queue,
            &[("by", by), ("state", state), ("from", &wish.from), ("after", &next)],
        )
    });
    visit.show(&Lanes {
        frame: &visit.frame,
        queue: &queue,
        queue_href: link::queue(base, &queue),
        rows: page.rows.iter().map(|lane| LaneRow::new(&visit, lane, around)).collect(),
        orders: ORDERS.map(|(value, says, by)| (value, says, by == wish.by)).to_vec(),
        states: STATES.map(|(value, says, state)| (value, says, state == wish.state)).to_vec(),
        buttons: buttons(&visit, &queue, wish.state),
        ticked: if page.rows.is_empty() { Vec::new() } else { button::on_ticked(&visit, &TICKED) },
        from: &wish.from,
        next,
        is_first: wish.after.is_empty(),
    })
}

/// For all lanes in the state.
fn buttons(visit: &Visit, queue: &str, state: Option<LaneState>) -> Vec<Button> {
    let actions = match state {
        Some(LaneState::Claimed) => &[Action::Pause][..],
        Some(LaneState::Held | LaneState::Paused) => &[Action::Resume, Action::DeleteWaiting],
        _ => &[Action::Retry, Action::Pause, Action::Bury, Action::DeleteWaiting],
    };
    let all = |action: &Action| operations::Wish { state, ..operations::Wish::new(*action, queue) };
    button::operations(visit, actions.iter().map(all))
}
