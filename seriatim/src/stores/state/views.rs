//! Statistics and listings of the model.

use std::fmt;
use std::sync::Arc;

use super::lane::{Entry, Hold, Lane};
use super::{Ended, Location, State};
use crate::contract::{
    JobFilter, JobOrder, JobQuery, JobState, JobView, LaneJob, LaneOrder, LaneQuery, LaneState,
    LaneView, Lease, Page, QueueStats, QueueView, rows_of_page,
};
use crate::model::{Cursor, JobId, Mode, Result, Timestamp, result};
use crate::stores::gone;
use crate::stores::handover::{Handover, Place};
use crate::stores::job_look::{Step, place_of};
use crate::stores::look::Look;

impl State {
    pub(in crate::stores) fn queue_views(&self) -> Vec<QueueView> {
        let mut views: Vec<QueueView> = self
            .queues
            .values()
            .map(|row| QueueView {
                number: row.number,
                queue: row.queue.clone(),
                declared: row.declared,
                paused: row.paused,
            })
            .collect();
        views.sort_unstable_by(|a, b| a.queue.name.cmp(&b.queue.name));
        views
    }

    pub(in crate::stores) fn stats(&self, now: Timestamp) -> Vec<QueueStats> {
        let mut stats: Vec<QueueStats> =
            self.queues.values().map(|row| self.queue_stats(row, now)).collect();
        stats.sort_unstable_by(|a, b| a.queue.cmp(&b.queue));
        stats
    }

    fn queue_stats(&self, row: &super::QueueRow, now: Timestamp) -> QueueStats {
        let (processed, failed) = self.ended.get(&row.number).copied().unwrap_or_default();
        let mut stats = QueueStats {
            queue: row.name.clone(),
            mode: Some(row.queue.mode),
            paused: row.paused,
            dead: self.dead.values().filter(|dead| dead.queue == row.number).count() as u64,
            processed,
            failed,
            lag: self.first_due(row.number).map(|due| now.since(due)).unwrap_or_default(),
            ..QueueStats::default()
        };
        for lane in self.lanes.values().filter(|lane| lane.id.queue == row.number) {
            stats.lanes += 1;
            stats.jobs += job_count(lane);
            stats.claimed += u64::from(lane.hold.is_some());
            stats.retrying += u64::from(lane.trouble().0 >= 0);
        }
        stats
    }

    pub(in crate::stores) fn lane_page(
        &self,
        now: Timestamp,
        query: &LaneQuery,
    ) -> Result<Page<LaneView>> {
        let queue = self.queue(&query.queue)?.number;
        let (begin, end) = (query.begin()?, query.end()?);
        let place = |lane: &Lane| match query.order {
            LaneOrder::Age => SortKey::default(),
            LaneOrder::Key => SortKey::Text(lane.key.clone()),
            LaneOrder::Due => SortKey::time(lane_due(lane)),
            LaneOrder::RetryCount => SortKey::Number(-i64::from(lane.trouble().0)),
        };
        let lanes = self.lanes.values().filter(|lane| lane.id.queue == queue);
        let mut lanes: Vec<((SortKey, u64), &Lane)> =
            lanes.map(|lane| ((place(lane), lane.id.number), lane)).collect();
        let Some((like, _)) = lanes.first().map(|(at, _)| at.clone()) else {
            return Ok(Page::default());
        };
        let at = |cursor: &Cursor| -> Result<(SortKey, u64)> {
            Ok((SortKey::of(cursor, &like)?, cursor.number as u64))
        };
        let after = begin.as_ref().map(at).transpose()?;
        let end = end.as_ref().map(at).transpose()?;
        lanes.retain(|(at, _)| {
            after.as_ref().is_none_or(|after| at > after)
                && end.as_ref().is_none_or(|end| at <= end)
        });
        lanes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut look = Look::of_lanes(query);
        for ((place, number), lane) in lanes {
            let view = self.lane_view(lane);
            if !look.at(number, place, query.shows(&view, now).then_some(view)) {
                break;
            }
        }
        let (rows, next, cut) = look.page();
        Ok(Page { rows, next, cut })
    }

    pub(in crate::stores) fn job_rows(
        &self,
        now: Timestamp,
        query: &JobQuery,
        looks_max: usize,
    ) -> Result<Step> {
        let row = self.queue(&query.queue)?;
        let (queue, mode) = (row.number, row.queue.mode);
        let mut views: Vec<JobView> = match query.filter {
            JobFilter::Live | JobFilter::In(JobState::Queued | JobState::Running) => {
                self.live_jobs(queue)
            }
            JobFilter::In(JobState::Dead) => self.ended_jobs(queue, &self.dead),
            JobFilter::In(JobState::Succeeded | JobState::Canceled) => {
                self.ended_jobs(queue, &self.done)
            }
        };
        let keyed =
            |view: &JobView| query.key.is_none() || view.key.as_deref() == query.key.as_deref();
        views.retain(|view| query.filter.shows(view.state) && keyed(view));
        let now = query.now.unwrap_or(now);
        let place = |view: &JobView| match query.order {
            JobOrder::Arrival => SortKey::default(),
            JobOrder::Key => SortKey::Text(view.key.clone()),
            JobOrder::UpdatedAt => {
                SortKey::Number(view.finished_at.map_or(0, |time| -time.as_micros()))
            }
            JobOrder::Turn => SortKey::Turn(Handover::of(view).place(mode, now)),
        };
        let last = |after: &Cursor| -> Result<_> {
            let place = match query.order {
                JobOrder::Turn => SortKey::Turn(Handover::read(after)?.place(mode, now)),
                JobOrder::Key => SortKey::of(after, &SortKey::Text(None))?,
                JobOrder::Arrival | JobOrder::UpdatedAt => SortKey::of(after, &SortKey::default())?,
            };
            Ok((place, after.number as u64))
        };
        let last = query.begin()?.as_ref().map(last).transpose()?;
        let standing = |view: &JobView| (place(view), view.id.seq());
        views.retain(|view| last.as_ref().is_none_or(|last| standing(view) > *last));
        views.sort_by_key(standing);
        let found = views.len();
        views.truncate(looks_max);
        views.iter_mut().for_each(|view| query.trim(view));
        views.truncate(rows_of_page(views.iter().map(JobView::bytes)));
        let last = views.last().filter(|_| views.len() < found);
        let next = last.map(|view| Cursor::behind(view.id.seq(), place_of(query.order, view)));
        Ok(Step::of(views, next))
    }

    fn live_jobs(&self, queue: u32) -> Vec<JobView> {
        let lanes = self.lanes.values().filter(|lane| lane.id.queue == queue);
        lanes.flat_map(|lane| all_jobs(lane).filter_map(|job| self.live_view(lane, job))).collect()
    }

    fn ended_jobs(
        &self,
        queue: u32,
        from: &std::collections::BTreeMap<JobId, Ended>,
    ) -> Vec<JobView> {
        let of_queue = from.values().filter(|ended| ended.queue == queue);
        of_queue.filter_map(|ended| self.ended_view(ended)).collect()
    }

    pub(in crate::stores) fn job_view(&self, id: JobId) -> Option<JobView> {
        let known = self.resolve(id);
        let view = match self.jobs.get(&known)? {
            Location::Lane(number) => {
                let lane = self.lanes.get(number)?;
                let closed = lane.hold.iter().flat_map(|hold| &hold.closed);
                let job = closed.chain(lane.loaded_jobs()).find(|job| job.id == known)?;
                self.live_view(lane, job)
            }
            Location::Done => self.ended_view(self.done.get(&known)?),
            Location::Dead => self.ended_view(self.dead.get(&known)?),
            Location::Alias(_) => None,
        };
        view.map(|view| JobView { id, ..view })
    }

    pub(in crate::stores) fn live_view(&self, lane: &Lane, job: &Entry) -> Option<JobView> {
        let hold = lane.hold.as_ref().filter(|hold| hold.closed.iter().any(|j| j.id == job.id));
        let mut view = self.view(lane.id.queue, lane.key.clone(), job)?;
        if lane.mode == Mode::Accumulate {
            let (retry_count, crashes, error) = lane.trouble();
            (view.retry_count, view.crashes, view.error) = (retry_count, crashes, error.cloned());
        }
        if let Some(hold) = hold {
            view.state = JobState::Running;
            view.attempt += 1;
            view.started_at = job.started_at.or(Some(hold.claimed_at));
            view.heartbeat_at = Some(match hold.lease {
                Lease::Own { .. } => hold.beat_at,
                Lease::Node { .. } => {
                    self.nodes.get(&hold.node).map_or(hold.beat_at, |n| n.beat_at.max(hold.beat_at))
                }
            });
            view.progress.clone_from(&lane.progress);
            (view.token, view.node) = (Some(lane.token), Some(hold.node.clone()));
        }
        view.lane = Some(lane.id);
        Some(view)
    }

    pub(in crate::stores) fn lane_view(&self, lane: &Lane) -> LaneView {
        let (retry_count, crashes, error) = lane.trouble();
        let hold = lane.hold.as_ref();
        LaneView {
            lane: lane.id,
            key: lane.key.clone(),
            state: lane_state(lane),
            due: lane_due(lane),
            collects_until: self.collects_until(lane),
            priority: lane_priority(lane),
            jobs: job_count(lane),
            retry_count,
            crashes,
            error: error.cloned(),
            token: hold.map(|_| lane.token),
            node: hold.map(|hold| hold.node.clone()),
            claimed_at: hold.map(|hold| hold.claimed_at),
            lease_until: hold.and_then(|hold| self.lease_until(hold)),
            progress: hold.and_then(|_| lane.progress.clone()),
            only: only_job(lane),
        }
    }

    fn collects_until(&self, lane: &Lane) -> Option<Timestamp> {
        let has_window = self.queues.get(&lane.id.queue)?.queue.window.is_some();
        lane.next_due.filter(|_| has_window && lane.position.wake.is_some())
    }

    fn lease_until(&self, hold: &Hold) -> Option<Timestamp> {
        match hold.lease {
            Lease::Own { .. } => Some(hold.until),
            Lease::Node { ttl } => {
                self.nodes.get(&hold.node).map(|node| gone::lease_end(node.beat_at, ttl))
            }
        }
    }

    pub(in crate::stores) fn ended_view(&self, ended: &Ended) -> Option<JobView> {
        let mut view = self.view(ended.queue, ended.key.clone(), &ended.entry)?;
        view.state = ended.state;
        view.finished_at = Some(ended.at);
        Some(view)
    }

    fn view(&self, queue: u32, key: Option<Arc<str>>, job: &Entry) -> Option<JobView> {
        let (error, result) = result::read(job.error.clone());
        Some(JobView {
            id: job.id,
            queue: self.queue_row(queue)?.name.clone(),
            key,
            task: job.task.clone(),
            state: JobState::Queued,
            payload: job.payload.clone(),
            payload_bytes: job.payload.as_bytes().len(),
            score: job.score,
            priority: job.priority,
            run_at: job.run_at,
            attempt: job.attempts,
            retry_count: job.retry_count,
            crashes: job.crashes,
            error,
            result,
            cancel_requested: job.flagged,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: None,
            lane: None,
            token: None,
            node: None,
            heartbeat_at: None,
            progress: None,
            options: job.options.clone(),
        })
    }
}

fn all_jobs(lane: &Lane) -> impl Iterator<Item = &Entry> {
    lane.hold.iter().flat_map(|hold| &hold.closed).chain(lane.open_jobs())
}

fn job_count(lane: &Lane) -> u64 {
    (lane.open_count() + lane.hold.as_ref().map_or(0, |hold| hold.closed.len())) as u64
}

fn only_job(lane: &Lane) -> Option<LaneJob> {
    let closed = lane.hold.iter().flat_map(|hold| &hold.closed);
    let job = closed.chain(lane.loaded_jobs()).next().filter(|_| job_count(lane) == 1)?;
    Some(LaneJob { id: job.id, task: job.task.clone(), options: job.options.clone() })
}

/// When a lane is due; for a claimed lane, when it was due.
fn lane_due(lane: &Lane) -> Option<Timestamp> {
    match (&lane.hold, lane.mode) {
        (_, Mode::Accumulate) => Some(lane.due),
        (Some(_), _) => lane.closed().first().map(|job| job.run_at),
        (None, _) => lane.head().map(|job| job.run_at),
    }
}

fn lane_state(lane: &Lane) -> LaneState {
    match &lane.hold {
        Some(_) => LaneState::Claimed,
        None if lane.paused => LaneState::Paused,
        None if lane.held => LaneState::Held,
        None => LaneState::Waiting,
    }
}

/// The best priority of the jobs in `accumulate`, else that of the head.
fn lane_priority(lane: &Lane) -> u16 {
    let closed = lane.closed().iter().map(|job| job.priority);
    let priority = match lane.mode {
        Mode::Accumulate => closed.chain(lane.soonest()).min(),
        _ => closed.chain(lane.head().map(|job| job.priority)).next(),
    };
    priority.unwrap_or_default()
}

/// The sort key of rows; the row's number breaks ties.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Number(i64),
    Text(Option<Arc<str>>),
    Turn(Place),
}

impl SortKey {
    fn time(time: Option<Timestamp>) -> Self {
        Self::Number(time.map_or(i64::MIN, Timestamp::as_micros))
    }

    /// The sort key in a cursor, read as the same type as `like`.
    fn of(cursor: &Cursor, like: &Self) -> Result<Self> {
        Ok(match like {
            Self::Number(_) => Self::Number(cursor.place_number()?),
            Self::Text(_) => {
                Self::Text((!cursor.place.is_empty()).then(|| cursor.place.as_str().into()))
            }
            Self::Turn(_) => return Err(Cursor::wrong()),
        })
    }
}

impl Default for SortKey {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text.as_deref().unwrap_or_default()),
            // Cursors hold what it is made of.
            Self::Turn(_) => Ok(()),
        }
    }
}
