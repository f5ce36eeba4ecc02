//! Assigns calls to the processes of one worker.

use std::sync::{Arc, Mutex};

use seriatim::engine::Unstartable;
use tokio::sync::Notify;

use super::process::Process;

use crate::base::lock::lock;

/// The places of all processes of one worker.
pub(crate) struct Seats {
    /// Concurrent calls in each process.
    pub(crate) per_process: usize,
    state: Mutex<State>,
    changed: Notify,
    /// Signaled when a call waits and there is no process.
    pub(crate) wanted: Notify,
}

#[derive(Default)]
struct State {
    places: Vec<Place>,
    tickets: u64,
    /// Starts that failed so far, and why the last one did.
    failures: u64,
    trouble: String,
}

struct Place {
    process: Arc<Process>,
    used: usize,
    is_closed: bool,
    /// It is being emptied for a call that must run alone: the ticket of that call.
    kept_for: Option<u64>,
}

/// A place that is taken; dropping it gives it back.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    process: Arc<Process>,
    used: usize,
}

/// A place in the waiting room; dropping it gives up what was kept.
struct Ticket<'a> {
    seats: &'a Seats,
    number: u64,
    failures_before: u64,
}

impl Seats {
    pub(crate) fn new(per_process: usize) -> Arc<Self> {
        Arc::new(Self {
            per_process,
            state: Mutex::default(),
            changed: Notify::new(),
            wanted: Notify::new(),
        })
    }

    /// Waits for a place; `alone`, for a process without any other call. Fails when no process
    /// can be started.
    pub(crate) async fn take(self: &Arc<Self>, alone: bool) -> Result<Seat, Unstartable> {
        let ticket = self.ticket();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listens before it looks: what changes in between is not missed.
            changed.as_mut().enable();
            if let Some(answer) = self.try_take(&ticket, alone) {
                return answer;
            }
            changed.await;
        }
    }

    fn ticket(&self) -> Ticket<'_> {
        let mut state = lock(&self.state);
        state.tickets += 1;
        Ticket { seats: self, number: state.tickets, failures_before: state.failures }
    }

    fn try_take(
        self: &Arc<Self>,
        ticket: &Ticket<'_>,
        alone: bool,
    ) -> Option<Result<Seat, Unstartable>> {
        let mut state = lock(&self.state);
        let per_process = self.per_process;
        let found = if alone { state.alone(ticket.number) } else { state.shared(per_process) };
        if let Some(place) = found {
            let used = if alone { per_process } else { 1 };
            place.used += used;
            let process = place.process.clone();
            return Some(Ok(Seat { seats: self.clone(), process, used }));
        }
        if state.open().next().is_some() {
            return None;
        }
        self.wanted.notify_waiters();
        (state.failures > ticket.failures_before).then(|| Err(Unstartable(state.trouble.clone())))
    }

    /// A process is ready for calls.
    pub(crate) fn add(&self, process: Arc<Process>) {
        let place = Place { process, used: 0, is_closed: false, kept_for: None };
        lock(&self.state).places.push(place);
        self.changed.notify_waiters();
    }

    /// No new calls for a process.
    pub(crate) fn close(&self, process: &Arc<Process>) {
        for place in lock(&self.state).places.iter_mut().filter(|place| place.is_of(process)) {
            place.is_closed = true;
        }
        self.changed.notify_waiters();
    }

    /// Waits until a closed process holds no call.
    pub(crate) async fn emptied(&self, process: &Arc<Process>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !lock(&self.state).places.iter().any(|place| place.is_of(process) && place.used > 0)
            {
                return;
            }
            changed.await;
        }
    }

    /// A process has ended.
    pub(crate) fn remove(&self, process: &Arc<Process>) {
        lock(&self.state).places.retain(|place| !place.is_of(process));
        self.changed.notify_waiters();
    }

    /// No process could be started: fails the waiting calls, unless another process runs.
    pub(crate) fn failed(&self, why: &str) {
        let mut state = lock(&self.state);
        state.failures += 1;
        why.clone_into(&mut state.trouble);
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    fn open(&mut self) -> impl Iterator<Item = &mut Place> {
        self.places.iter_mut().filter(|place| !place.is_closed && place.process.is_open())
    }

    /// The least used process that has a place.
    fn shared(&mut self, per_process: usize) -> Option<&mut Place> {
        let free = self.open().filter(|place| place.kept_for.is_none() && place.used < per_process);
        free.min_by_key(|place| place.used)
    }

    /// An empty process; when there is none, one is kept from others until it is empty.
    fn alone(&mut self, ticket: u64) -> Option<&mut Place> {
        let mine = self.open().any(|place| place.kept_for == Some(ticket));
        if !mine {
            let free = self.open().filter(|place| place.kept_for.is_none());
            free.min_by_key(|place| place.used)?.kept_for = Some(ticket);
        }
        let mut mine = self.open().filter(|place| place.kept_for == Some(ticket));
        mine.find(|place| place.used == 0)
    }
}

impl Place {
    fn is_of(&self, process: &Arc<Process>) -> bool {
        Arc::ptr_eq(&self.process, process)
    }
}

impl Seat {
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&self.seats.state);
        if let Some(place) = state.places.iter_mut().find(|place| place.is_of(&self.process)) {
            place.used -= self.used;
        }
        drop(state);
        self.seats.changed.notify_waiters();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        for place in &mut lock(&self.seats.state).places {
            if place.kept_for == Some(self.number) {
                place.kept_for = None;
            }
        }
        self.seats.changed.notify_waiters();
    }
}
