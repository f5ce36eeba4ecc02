//! One key, in all queues: what holds it, what waits, what failed.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{JobState, LaneState, QueueView};

use super::super::input::Query;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::audit::DeedRow;
use super::button::{self, Button};
use super::deed::On;
use super::frame::Frame;
use super::link;
use super::moment::Moment;
use super::row::JobRow;
use super::visit::{Visit, page};
use crate::app::deeds::{self, Wanted};
use crate::app::figures::Figures;
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::lane_jobs::{self, LaneJobs};
use crate::app::lanes::OneLane;
use crate::app::limits::{self, Usage};
use crate::app::operations::{self, Action};
use crate::app::reported::Reported;
use crate::app::why::{Around, Why};
use crate::app::{find, queues};

/// Queues that are asked for a key.
const QUEUES_ASKED_MAX: usize = 200;
/// Longest payload that is read for a table.
const PAYLOADS: Option<usize> = Some(TABLE_PAYLOAD_BYTES_MAX);
/// Deeds shown of a key.
const DEEDS_SHOWN: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    k: String,
    /// Only in this queue
    #[serde(default)]
    queue: String,
    /// The waiting jobs behind this place
    #[serde(default)]
    after: String,
}

/// The key in one queue.
struct Entity {
    queue: String,
    queue_href: String,
    lane: Option<Lane>,
    claimed: Vec<JobRow>,
    waiting: Vec<JobRow>,
    /// More waiting ones.
    next: Option<String>,
    ended: Vec<JobRow>,
    buttons: Vec<Button>,
    dead_buttons: Vec<Button>,
}

/// Its lane there.
struct Lane {
    state: &'static str,
    why: String,
    jobs: u64,
    holder: Option<Holder>,
    error: Option<String>,
    reported: Reported,
    crashes: u32,
}

/// Who holds it.
struct Holder {
    node: String,
    href: String,
    token: String,
    since: Option<Moment>,
    beat: Option<Moment>,
    until: Option<Moment>,
}

#[derive(Template)]
#[template(path = "key.html", blocks = ["live"])]
struct OfKey<'a> {
    frame: &'a Frame,
    key: &'a str,
    /// The key on one line.
    name: String,
    entities: Vec<Entity>,
    left_out: usize,
    /// A search for the same text.
    search: String,
    deeds: Vec<DeedRow>,
}

page!(OfKey);

pub(super) async fn show(
    State(app): State<Shared>,
    visit: Visit,
    Query(Wish { k: key, queue, after }): Query<Wish>,
) -> Result<Response, Problem> {
    let store = &*app.store;
    let (mut queues, nodes) = queues::with_figures(store).await?;
    let is_asked = |name: &str| queue.is_empty() || queue == name;
    queues.retain(|(view, figures)| {
        let name = view.queue.name.as_str();
        is_asked(name) && may_have(view, figures) && visit.scope.has_queue(name)
    });
    let left_out = queues.len().saturating_sub(QUEUES_ASKED_MAX);
    let now = store.now().await?;
    let mut entities = Vec::new();
    for (view, figures) in queues.iter().take(QUEUES_ASKED_MAX) {
        let around = Around { queue: view, usage: &limits::UNKNOWN, nodes: &nodes, now };
        // A place is one in one queue.
        let after = Some(after.clone()).filter(|after| !after.is_empty() && !queue.is_empty());
        entities.extend(entity(&app, &visit, &key, after, around, figures).await?);
    }
    let deeds = match visit.scope.is_limited() {
        true => Vec::new(),
        false => {
            deeds::latest(
                store,
                Wanted { of: Some(&seriatim::text::one_line(&key)), ..Wanted::default() },
                DEEDS_SHOWN,
            )
            .await?
            .entries
        }
    };
    let deeds = deeds.into_iter().map(|deed| DeedRow::new(&visit, deed)).collect();
    let search = link::search_all(&visit.frame.base, &key);
    let (frame, name) = (&visit.frame, seriatim::text::one_line(&key));
    visit.show(&OfKey { frame, key: &key, name, entities, left_out, search, deeds })
}

/// Whether a queue may know a key: most of many are empty.
fn may_have(view: &QueueView, figures: &Figures) -> bool {
    view.queue.mode.is_keyed() && (figures.stats.lanes > 0 || may_have_ended(view, figures))
}

fn may_have_ended(view: &QueueView, figures: &Figures) -> bool {
    figures.stats.dead > 0 || !view.queue.retention().is_zero()
}

/// The key in one queue, if that knows it.
async fn entity(
    app: &Shared,
    visit: &Visit,
    key: &str,
    after: Option<String>,
    around: Around<'_>,
    figures: &Figures,
) -> Result<Option<Entity>, Problem> {
    let (store, view) = (&*app.store, around.queue);
    let name = view.queue.name.as_str();
    let lane = match figures.stats.lanes {
        0 => None,
        _ => find::known_lane(store, name, key).await?,
    };
    let ended = match may_have_ended(view, figures) {
        true => lane_jobs::ended(store, name, key, PAYLOADS).await?,
        false => Vec::new(),
    };
    if lane.is_none() && ended.is_empty() {
        return Ok(None);
    }
    let is_first = after.is_none();
    let LaneJobs { claimed, waiting, next } = match &lane {
        Some(_) => lane_jobs::of(store, name, key, after, PAYLOADS).await?,
        None => LaneJobs::default(),
    };
    let head = claimed.first().or(waiting.first().filter(|_| is_first));
    let next = next.map(|next| {
        let query = [("k", key), ("queue", name), ("after", &next)];
        link::with(&format!("{}/key", visit.frame.base), &query)
    });
    let usage = match &lane {
        Some(_) => Usage::read(store, &view.queue).await?,
        None => Usage::default(),
    };
    let why = lane.as_ref().map(|lane| Why::of(lane, head, Around { usage: &usage, ..around }));
    let is_dead = ended.iter().any(|job| job.state == JobState::Dead);
    let rows = |jobs: &[seriatim::store::JobView]| {
        jobs.iter().map(|job| JobRow::new(visit, job)).collect()
    };
    let dead = |action| operations::Wish {
        key: Some(key.to_owned()),
        ..operations::Wish::new(action, name)
    };
    Ok(Some(Entity {
        queue: name.to_owned(),
        queue_href: link::queue(&visit.frame.base, name),
        buttons: lane
            .as_ref()
            .map(|lane| buttons(visit, view, key, lane.state))
            .unwrap_or_default(),
        dead_buttons: match is_dead {
            true => button::operations(visit, [Action::Requeue, Action::DeleteDead].map(dead)),
            false => Vec::new(),
        },
        lane: lane.zip(why).map(|(lane, why)| Lane::new(visit, &lane, &why, around)),
        claimed: rows(&claimed),
        waiting: rows(&waiting),
        next,
        ended: rows(&ended),
    }))
}

fn buttons(visit: &Visit, view: &QueueView, key: &str, state: LaneState) -> Vec<Button> {
    let deeds: &[&str] = match state {
        LaneState::Claimed => &["lane.pause", "lane.release"],
        LaneState::Paused => &["lane.resume", "lane.bury", "lane.delete"],
        LaneState::Held => &["lane.retry", "lane.bury", "lane.delete"],
        LaneState::Waiting => &["lane.retry", "lane.pause", "lane.bury", "lane.delete"],
    };
    let lane = OneLane::Key(key.to_owned());
    button::all(visit, deeds, &On::Lane { queue: view.queue.name.clone(), lane })
}

impl Lane {
    fn new(visit: &Visit, lane: &seriatim::store::LaneView, why: &Why, around: Around<'_>) -> Self {
        let holder = lane.node.as_ref().map(|id| {
            let node = around.nodes.iter().find(|node| node.info.id == *id);
            Holder {
                node: node.map_or_else(|| id.0.to_string(), |node| node.info.name.to_string()),
                href: link::node(&visit.frame.base, &id.0),
                token: lane.token.map(|token| token.to_string()).unwrap_or_default(),
                since: lane.claimed_at.map(|at| visit.clock.of(at)),
                until: lane.lease_until.map(|at| visit.clock.of(at)),
                beat: node.map(|node| visit.clock.of(node.heartbeat_at)),
            }
        });
        Self {
            state: why.state(lane, around.now),
            why: why.to_string(),
            jobs: lane.jobs,
            holder,
            error: lane.error.as_deref().map(str::to_owned),
            reported: Reported::of(lane.progress.as_deref()),
            crashes: lane.crashes,
        }
    }
}
