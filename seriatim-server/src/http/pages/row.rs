//! Rows of tables.

use seriatim::Timestamp;
use seriatim::store::{JobView, LaneView, NodeView, QueueView, Store};

use super::Recent;
use super::{Moment, Visit, link};
use crate::app::figures::Figures;
use crate::app::history;
use crate::app::nodes::{name_of, state_name as node_state, works_on};
use crate::app::operations::{Sample, Wish};
use crate::app::pauses::Pause;
use crate::app::reported::Reported;
use crate::app::why::{Around, Why};
use crate::app::words::state_name;
use crate::base::text::{KEY_COLUMNS, cut};
use crate::base::time::length;

/// Rows of a page of a list: with long keys, payloads and errors it stays within 30 KB.
pub(super) const ROWS_SHOWN: usize = 25;
const ERROR_COLUMNS: usize = 120;
/// Columns of an error in lists of events. The page of the job shows its last error whole.
const TOLD_COLUMNS: usize = 200;
/// Columns shown of the progress of a turn.
const PROGRESS_COLUMNS: usize = 60;

/// In place of the key of what has none.
const NO_KEY: &str = "no key";

/// A foreign text in a row of what happened.
pub(super) fn told(text: &str) -> String {
    cut(&seriatim::text::one_line(text), TOLD_COLUMNS)
}

pub(super) struct QueueRow {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) morgue: String,
    pub(super) mode: String,
    pub(super) state: &'static str,
    pub(super) jobs: u64,
    pub(super) lanes: u64,
    pub(super) running: u64,
    pub(super) retrying: u64,
    pub(super) dead: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) lag: String,
    pub(super) nodes: usize,
    /// Where rows of several queues are shown: see [`QueueRow::add_recent`].
    pub(super) recent: Recent,
}

impl QueueRow {
    pub(super) fn new(
        base: &str,
        view: &QueueView,
        figures: &Figures,
        (nodes, now): (&[NodeView], Timestamp),
    ) -> Self {
        let (name, stats) = (view.queue.name.clone(), &figures.stats);
        let nodes = nodes.iter().filter(|node| works_on(node, &name, now)).count();
        Self {
            href: link::queue(base, &name),
            morgue: link::with(&format!("{base}/morgue"), &[("queue", &name)]),
            mode: view.queue.mode.to_string(),
            state: figures.state(nodes),
            jobs: stats.jobs,
            lanes: stats.lanes,
            running: figures.running(),
            retrying: stats.retrying,
            dead: stats.dead,
            done: stats.processed,
            failed: stats.failed,
            lag: if stats.lag.as_secs() == 0 { String::new() } else { length(stats.lag) },
            nodes,
            name,
            recent: Recent::default(),
        }
    }

    /// Adds the last hour to the rows: one read for all.
    pub(super) async fn add_recent(
        store: &dyn Store,
        rows: &mut [Self],
        now: Timestamp,
    ) -> seriatim::Result<()> {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let points = history::last_hour(store, &names, now).await?;
        let now = now.as_micros() / 1_000_000;
        for row in rows {
            if let Some(points) = points.get(&row.name) {
                row.recent = Recent::of(points, now);
            }
        }
        Ok(())
    }
}

pub(super) struct LaneRow {
    /// Of its row in the page.
    pub(super) id: String,
    pub(super) lane: String,
    pub(super) queue: String,
    pub(super) name: String,
    pub(super) href: String,
    pub(super) state: &'static str,
    pub(super) why: String,
    pub(super) jobs: u64,
    pub(super) since: Option<Moment>,
    /// How long it has been due, if it waits.
    pub(super) lag: String,
    /// How often it failed.
    pub(super) failed: u64,
    pub(super) crashes: u32,
    pub(super) node: Option<(String, String)>,
    pub(super) error: String,
}

impl LaneRow {
    pub(super) fn new(visit: &Visit, lane: &LaneView, around: Around<'_>) -> Self {
        Self::with_pause(visit, lane, None, around)
    }

    /// With who paused it, if that is known.
    pub(super) fn with_pause(
        visit: &Visit,
        lane: &LaneView,
        pause: Option<&Pause>,
        around: Around<'_>,
    ) -> Self {
        let why = Why::of(lane, None, around).by(pause);
        let queue = &around.queue.queue.name;
        let base = &visit.frame.base;
        let (name, href) = match lane.key.as_deref() {
            Some(key) => (cut(&seriatim::text::one_line(key), KEY_COLUMNS), link::key(base, key)),
            // Without a key the lane is its job.
            None => {
                let href = match &lane.only {
                    Some(job) => link::job(base, job.id),
                    None => link::lanes(base, queue, &[("lane", &lane.lane.to_string())]),
                };
                (NO_KEY.to_owned(), href)
            }
        };
        let named = |id| name_of(around.nodes, id).to_owned();
        let node = lane.node.as_ref().map(|id| (named(id), link::node(base, &id.0)));
        Self {
            id: format!("lane-{}", lane.lane),
            lane: lane.lane.to_string(),
            queue: queue.clone(),
            name,
            href,
            state: why.state(lane, around.now),
            why: with_progress(why.beside(why.state(lane, around.now)), lane),
            jobs: lane.jobs,
            since: lane.claimed_at.or(lane.due).map(|at| visit.clock.of(at)),
            lag: lane.lag(around.now).map(length).unwrap_or_default(),
            failed: (i64::from(lane.retry_count) + 1).max(0).unsigned_abs(),
            crashes: lane.crashes,
            node,
            error: lane.error.as_deref().map_or_else(String::new, |error| {
                cut(&seriatim::text::one_line(error), ERROR_COLUMNS)
            }),
        }
    }
}

/// Why it waits or that it runs, and what its holder has reported.
fn with_progress(why: String, lane: &LaneView) -> String {
    let reported = Reported::of(lane.progress.as_deref()).line();
    match reported.is_empty() {
        true => why,
        false => format!("{why}; {}", cut(&seriatim::text::one_line(&reported), PROGRESS_COLUMNS)),
    }
}

pub(super) struct JobRow {
    pub(super) id: String,
    pub(super) href: String,
    pub(super) queue: String,
    pub(super) queue_href: String,
    pub(super) key: Option<(String, String)>,
    pub(super) task: String,
    pub(super) state: &'static str,
    pub(super) at: Moment,
    pub(super) attempt: u32,
    pub(super) score: String,
    pub(super) error: String,
    pub(super) payload: String,
}

/// Columns shown of a payload.
const PAYLOAD_COLUMNS: usize = 80;

impl JobRow {
    /// For a job whose payload was not read.
    pub(super) fn without_payload(visit: &Visit, job: &JobView) -> Self {
        Self { payload: String::new(), ..Self::new(visit, job) }
    }

    pub(super) fn new(visit: &Visit, job: &JobView) -> Self {
        let base = &visit.frame.base;
        let short = |text: &str, columns| cut(&seriatim::text::one_line(text), columns);
        Self {
            id: job.id.to_string(),
            href: link::job(base, job.id),
            queue: job.queue.to_string(),
            queue_href: link::queue(base, &job.queue),
            key: job.key.as_deref().map(|key| (short(key, KEY_COLUMNS), link::key(base, key))),
            task: job.task.as_deref().map(seriatim::text::one_line).unwrap_or_default(),
            state: state_name(job.state),
            at: visit.clock.of(job.at()),
            attempt: job.attempt,
            score: job.score.to_string(),
            error: job
                .error
                .as_deref()
                .map_or_else(String::new, |error| short(error, ERROR_COLUMNS)),
            payload: match job.lacks_payload() {
                true => format!("({} bytes)", job.payload_bytes),
                false => visit.discreet.begin(&job.payload, PAYLOAD_COLUMNS),
            },
        }
    }
}

/// One of many that an operation is about.
pub(super) struct SampleRow {
    pub(super) id: String,
    pub(super) queue: String,
    pub(super) href: Option<String>,
    /// Without an address if it has none.
    pub(super) key: (String, Option<String>),
    pub(super) error: String,
}

impl SampleRow {
    pub(super) fn new(visit: &Visit, wish: &Wish, sample: &Sample) -> Self {
        let base = &visit.frame.base;
        let job = sample.id.parse().ok().filter(|_| wish.action.on_lanes().is_none());
        Self {
            id: sample.id.clone(),
            queue: sample.queue.clone(),
            href: job.map(|job| link::job(base, job)),
            key: match &sample.key {
                Some(key) => (key.clone(), Some(link::key(base, key))),
                None => (NO_KEY.to_owned(), None),
            },
            error: sample.error.clone().unwrap_or_default(),
        }
    }
}

pub(super) struct NodeRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) href: String,
    pub(super) state: &'static str,
    pub(super) host: String,
    /// Of a remote worker none is known.
    pub(super) pid: String,
    pub(super) version: String,
    pub(super) busy: u32,
    pub(super) concurrency: u32,
    pub(super) queues: usize,
    pub(super) beat: Moment,
    pub(super) troubles: usize,
}

impl NodeRow {
    pub(super) fn new(visit: &Visit, node: &NodeView, now: Timestamp) -> Self {
        let info = &node.info;
        Self {
            id: info.id.to_string(),
            name: info.name.to_string(),
            href: link::node(&visit.frame.base, &info.id.0),
            state: node_state(node, now),
            host: info.host.clone(),
            pid: Some(info.pid)
                .filter(|pid| *pid > 0)
                .map(|pid| pid.to_string())
                .unwrap_or_default(),
            version: info.version.clone(),
            busy: info.busy,
            concurrency: info.concurrency,
            queues: info.queues.len(),
            beat: visit.clock.of(node.heartbeat_at),
            troubles: info.troubles.len(),
        }
    }
}
