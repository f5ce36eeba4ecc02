//! One key, in all queues: what holds it, what waits, what failed.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{JobState, JobView, LaneState, LaneView, NodeView, QueueView};
use seriatim::{Mode, Timestamp};

use super::super::{Query, Result, Shared};
use super::audit::DeedRow;
use super::ways::attribute;
use super::{Button, Frame, JobRow, Moment, On, Visit, button, link, page};
use crate::app::deeds::{self, Wanted};
use crate::app::entity;
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::key::{self, InQueue, OfKey};
use crate::app::lane_jobs::{ENDED_SHOWN, LaneJobs};
use crate::app::lanes::OneLane;
use crate::app::operations::{self, Action, List};
use crate::app::reported::Reported;
use crate::app::why::Why;

/// Jobs of a key in a queue that wait, and that run, on a page.
const JOBS_SHOWN: usize = 20;
/// Deeds shown of a key.
const DEEDS_SHOWN: usize = 8;

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
    /// Whether the scores of its jobs give their order.
    has_scores: bool,
    lane: Option<Lane>,
    claimed: Vec<JobRow>,
    waiting: Vec<JobRow>,
    /// More waiting ones.
    next: Option<String>,
    ended: Vec<JobRow>,
    /// Those that died, if there may be more than are shown.
    all_ended: Option<String>,
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
struct OneKey<'a> {
    frame: &'a Frame,
    /// As an attribute.
    key: String,
    /// The field of its forms that says which key.
    key_field: (&'static str, String),
    /// The key on one line.
    name: String,
    entities: Vec<Entity>,
    left_out: usize,
    /// What happened to it.
    events: String,
    jobs: String,
    /// A search for the same text.
    search: String,
    /// All that people did to it.
    audit: Option<String>,
    deeds: Vec<DeedRow>,
}

page!(OneKey);

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { k, queue, after }): Query<Wish>,
) -> Result<Response> {
    let store = &*app.store;
    let wanted = key::Wanted {
        key: &k,
        queue: Some(&*queue).filter(|queue| !queue.is_empty()),
        after: Some(after).filter(|after| !after.is_empty()),
        jobs_max: JOBS_SHOWN,
        payload_bytes_max: Some(TABLE_PAYLOAD_BYTES_MAX),
    };
    let OfKey { queues, left_out, nodes, now } =
        key::read(store, wanted, |queue| visit.scope.has_queue(queue)).await?;
    let around = (&*nodes, now);
    let entities = queues.into_iter().map(|found| Entity::new(&visit, &k, found, around));
    let entities = entities.collect();
    let deeds = match visit.scope.is_limited() {
        true => Vec::new(),
        false => {
            deeds::latest(
                store,
                Wanted { of: Some(&seriatim::text::one_line(&k)), ..Wanted::default() },
                DEEDS_SHOWN,
            )
            .await?
            .entries
        }
    };
    let deeds = deeds.into_iter().map(|deed| DeedRow::new(&visit, deed)).collect();
    let search = link::search_all(&visit.frame.base, &k);
    let events = link::with(&format!("{}/key/events", visit.frame.base), &[("k", &k)]);
    let jobs = link::with(&format!("{}/jobs", visit.frame.base), &[("key", &k)]);
    let (frame, name) = (&visit.frame, seriatim::text::one_line(&k));
    let fields = link::carried(vec![("key", k.clone())]);
    let key_field = fields.into_iter().next().unwrap_or_default();
    visit.show(&OneKey {
        frame,
        key: attribute(&k),
        key_field,
        audit: visit.audit(&name),
        name,
        entities,
        left_out,
        events,
        jobs,
        search,
        deeds,
    })
}

/// The nodes of the fleet, and the time.
type Fleet<'a> = (&'a [NodeView], Timestamp);

impl Entity {
    fn new(visit: &Visit, key: &str, found: InQueue, fleet: Fleet<'_>) -> Self {
        let InQueue { queue: view, entity, ended } = found;
        let (name, base) = (view.queue.name.as_str(), &visit.frame.base);
        let rows = |jobs: &[JobView]| jobs.iter().map(|job| JobRow::new(visit, job)).collect();
        let dead = |action| operations::Wish {
            key: Some(key.to_owned()),
            ..operations::Wish::new(action, name)
        };
        let is_dead = ended.iter().any(|job| job.state == JobState::Dead);
        let next = entity.as_ref().and_then(|entity| entity.jobs.next.as_deref()).map(|next| {
            link::with(&format!("{base}/key"), &[("k", key), ("queue", name), ("after", next)])
        });
        let jobs = |of: fn(&LaneJobs) -> &[JobView]| {
            entity.as_ref().map(|entity| rows(of(&entity.jobs))).unwrap_or_default()
        };
        Self {
            queue: name.to_owned(),
            queue_href: link::queue(base, name),
            has_scores: view.queue.mode != Mode::Parallel,
            buttons: entity
                .as_ref()
                .map(|entity| buttons(visit, &view, key, entity))
                .unwrap_or_default(),
            dead_buttons: match is_dead {
                true => button::operations(visit, [Action::Requeue, Action::DeleteDead].map(dead)),
                false => Vec::new(),
            },
            lane: entity.as_ref().map(|entity| Lane::new(visit, &entity.lane, &entity.why, fleet)),
            claimed: jobs(|jobs| &jobs.claimed),
            waiting: jobs(|jobs| &jobs.waiting),
            next,
            all_ended: (is_dead && ended.len() >= ENDED_SHOWN).then(|| {
                let dead = [("state", "dead"), ("queue", name), ("key", key)];
                link::with(&format!("{base}/jobs"), &dead)
            }),
            ended: rows(&ended),
        }
    }
}

fn buttons(visit: &Visit, view: &QueueView, key: &str, entity: &entity::Entity) -> Vec<Button> {
    let lane = &entity.lane;
    let mut deeds = match lane.state {
        LaneState::Claimed => vec!["lane.pause", "lane.release"],
        LaneState::Paused => vec!["lane.resume", "lane.bury", "lane.delete"],
        LaneState::Held => vec!["lane.retry", "lane.resume", "lane.bury", "lane.delete"],
        LaneState::Waiting => vec!["lane.retry", "lane.pause", "lane.bury", "lane.delete"],
    };
    let has_failed =
        lane.retry_count >= 0 || entity.jobs.waiting.iter().any(|job| job.retry_count >= 0);
    deeds.retain(|deed| *deed != "lane.bury" || has_failed);
    let lane = OneLane::Key(key.to_owned());
    let on = On::Lane { queue: view.queue.name.clone(), lane };
    let mut all = button::all(visit, &deeds, &on);
    let claimed = &*entity.jobs.claimed;
    if let [one] = claimed {
        all.extend(button::all(visit, &["job.cancel"], &On::Job(one.id)));
    } else if (2..JOBS_SHOWN).contains(&claimed.len()) {
        // Of a longer turn not all are known here.
        let jobs = Some(List(claimed.iter().map(|job| job.id).collect()));
        let wish = operations::Wish::new(Action::CancelJobs, view.queue.name.as_str());
        all.extend(button::operations(visit, [operations::Wish { jobs, ..wish }]));
    }
    all
}

impl Lane {
    fn new(visit: &Visit, lane: &LaneView, why: &Why, (nodes, now): Fleet<'_>) -> Self {
        let holder = lane.node.as_ref().map(|id| {
            let node = nodes.iter().find(|node| node.info.id == *id);
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
            state: why.state(lane, now),
            why: why.beside(why.state(lane, now)),
            jobs: lane.jobs,
            holder,
            error: lane.error.as_deref().map(crate::base::text::lines),
            reported: Reported::of(lane.progress.as_deref()).short(),
            crashes: lane.crashes,
        }
    }
}
