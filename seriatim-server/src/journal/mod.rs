//! Events of jobs: noted in the store for all its users, and sent to listeners of this process (`GET /events`).
//!
//! It sees what goes through the process' store.

mod book;
mod event;
mod feed;
mod marks;
mod search;
mod shelf;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use seriatim::store::{Cancelled, Change, Pushed, QueueView};
use seriatim::{
    Job, JobId,
    store::{EndKind, Fate, LaneId, NodeId, Settlement, Token, Turn},
};

use crate::app::words::push_status;
use crate::base::lock::lock;
use crate::protocol::document::Event;

pub(crate) use book::Book;
pub(crate) use feed::{Feed, Hearing, News};
pub(crate) use search::{Wanted, of_job, page};
pub(crate) use shelf::{Limits, trim};
pub(crate) use timeline::{KeyEvents, Story, Told, Wanted as OfKey, known, page as of_key};

/// Most running turns whose jobs are remembered until they are settled. Those of the oldest
/// claims are forgotten first: they are lost ones.
const HELD_TURNS_MAX: usize = 100_000;

/// Records what happens to jobs.
#[derive(Default)]
pub(crate) struct Journal {
    book: Option<Book>,
    /// The recorded queues; none means all.
    queues: Option<BTreeSet<String>>,
    pub(crate) feed: Feed,
    held: Mutex<BTreeMap<(Token, LaneId), Held>>,
}

/// A running turn.
struct Held {
    queue: Arc<str>,
    key: Option<Arc<str>>,
    jobs: Vec<(JobId, u32)>,
}

impl Journal {
    /// A journal that writes into a book.
    pub(crate) fn new(book: Option<Book>, queues: Option<BTreeSet<String>>) -> Self {
        Self { book, queues, ..Self::default() }
    }

    /// How much is kept of what other processes wrote too.
    pub(crate) fn limits(&self) -> Limits {
        self.book.as_ref().map_or_else(Limits::default, |book| book.limits().clone())
    }

    pub(crate) fn book(&self) -> Option<&Book> {
        self.book.as_ref()
    }

    /// Whether the events of this queue are recorded.
    pub(crate) fn keeps(&self, queue: &str) -> bool {
        let named = |queues: &BTreeSet<String>| queues.contains(queue);
        self.book.is_some() && self.queues.as_ref().is_none_or(named)
    }

    fn is_idle(&self) -> bool {
        self.book.is_none() && !self.feed.is_awaited()
    }

    fn write(&self, event: &Event<'_>) {
        if let Some(book) = self.book.as_ref().filter(|_| self.keeps(event.queue)) {
            book.write(event.queue, event.at.0, event.line());
        }
    }

    /// What to record of a push once the store has answered; usually nothing.
    pub(crate) fn about(&self, jobs: &[Job]) -> Vec<(String, Option<String>)> {
        let kept = jobs.iter().any(|job| self.keeps(&job.queue));
        let jobs = jobs.iter().filter(|_| kept);
        jobs.map(|job| (job.queue.clone(), job.key.clone())).collect()
    }

    pub(crate) fn pushed(&self, about: &[(String, Option<String>)], pushed: &[Pushed]) {
        for ((queue, key), pushed) in about.iter().zip(pushed) {
            let what = push_status(pushed.status);
            self.write(&Event {
                key: key.as_deref().map(Some),
                ..Event::new(what, pushed.job_id, queue)
            });
        }
    }

    /// Lanes were claimed for a node.
    pub(crate) fn claimed(&self, turns: &[Turn], node: &NodeId) {
        if self.is_idle() {
            return;
        }
        for turn in turns {
            self.hold(turn);
            self.feed.turn(turn.into(), "claimed", None);
            for job in &turn.jobs {
                let node = node.to_string();
                let claim = Event { node: Some(&node), ..Event::of_turn("claimed", job.id, turn) };
                self.write(&Event { attempt: Some(job.attempt), ..claim });
            }
        }
    }

    /// The turns of expired claims were taken over.
    pub(crate) fn rescued(&self, turns: &[Turn]) {
        if self.is_idle() {
            return;
        }
        for turn in turns {
            self.hold(turn);
            turn.jobs.iter().for_each(|job| self.write(&Event::of_turn("lost", job.id, turn)));
        }
    }

    /// Remembers whose jobs a claim holds.
    pub(crate) fn hold(&self, turn: &Turn) {
        if self.is_idle() {
            return;
        }
        let jobs = turn.jobs.iter().map(|job| (job.id, job.attempt)).collect();
        let held = Held { queue: turn.queue.clone(), key: turn.key.clone(), jobs };
        let mut all = lock(&self.held);
        all.insert((turn.token, turn.lane), held);
        if all.len() > HELD_TURNS_MAX {
            all.pop_first();
        }
    }

    /// The settlements to record, or none.
    pub(crate) fn wanted(&self, settlements: &[Settlement]) -> Vec<Settlement> {
        if self.is_idle() { Vec::new() } else { settlements.to_vec() }
    }

    /// The store has applied a settlement and cancelled these of its jobs.
    pub(crate) fn settled(&self, settlement: &Settlement, cancelled: &[JobId]) {
        let Some(turn) = lock(&self.held).remove(&(settlement.token, settlement.lane)) else {
            return;
        };
        let keep = &settlement.keep;
        let error = keep.error.as_deref();
        let kept = match (keep.counted, keep.hold) {
            (true, true) => "held",
            (true, false) => "retry",
            (false, _) => "put_off",
        };
        for (job, attempt) in &turn.jobs {
            let (what, why) = match settlement.fate_of(*job) {
                _ if cancelled.contains(job) => ("canceled", None),
                Fate::Done => ("succeeded", None),
                Fate::Bury => ("dead", error),
                Fate::Cancel => ("canceled", error),
                Fate::Expire => ("canceled", Some("expired")),
                Fate::Drop => ("dropped", error),
                Fate::Keep => (kept, error),
            };
            let event = Event::new(what, *job, &turn.queue);
            let event = Event { key: turn.key.as_deref().map(Some), error: why.map(Some), ..event };
            let token = Some(settlement.token);
            self.write(&Event { token, attempt: Some(*attempt), ..event });
        }
        let what = match settlement.ending(turn.jobs.iter().map(|(job, _)| *job), cancelled).kind {
            EndKind::Done => "done",
            EndKind::Failed => "failed",
            EndKind::PutOff => "put_off",
            EndKind::Cancelled => "canceled",
        };
        let place = feed::Place {
            queue: turn.queue.clone(),
            key: turn.key.clone(),
            lane: settlement.lane,
            token: settlement.token,
            jobs: turn.jobs.len(),
        };
        self.feed.turn(place, what, error.filter(|_| what != "done"));
    }

    /// Jobs were cancelled, or flagged for cancellation.
    pub(crate) fn cancelled(&self, jobs: &[JobId], done: &[Cancelled], queues: &[QueueView]) {
        for (job, done) in jobs.iter().zip(done) {
            match done {
                Cancelled::Now => self.acted("canceled", &[*job], queues),
                Cancelled::Flagged => self.acted("cancel_requested", &[*job], queues),
                _ => {}
            }
        }
    }

    pub(crate) fn amended(&self, job: JobId, change: &Change, queues: &[QueueView]) {
        let what = match change {
            Change::RunAt(_) => "rescheduled",
            Change::Node(_) => "reassigned",
            Change::Delete => "deleted",
        };
        self.acted(what, &[job], queues);
    }

    /// An action on jobs.
    pub(crate) fn acted(&self, what: &'static str, jobs: &[JobId], queues: &[QueueView]) {
        for job in jobs {
            if let Some(view) = queues.iter().find(|view| view.number == job.queue()) {
                self.write(&Event::new(what, *job, &view.queue.name));
            }
        }
    }
}
