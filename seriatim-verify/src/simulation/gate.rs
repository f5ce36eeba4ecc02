//! A node's tasks, which can all be stopped and resumed together, like a stopped process.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use seriatim::stand_in::Task;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::alarm::Alarm;
use crate::lock::lock;

/// Most polls of one node's tasks while no time passes.
const POLLS_AT_ONCE_MAX: u64 = 200_000;

thread_local! {
    /// The node whose task is running on this thread.
    static CURRENT: RefCell<Option<Arc<Gate>>> = const { RefCell::new(None) };
}

/// Controls all tasks of one start of a node.
#[derive(Debug)]
pub(super) struct Gate {
    /// Node and start, as the history names them.
    pub(super) actor: String,
    /// The error of the machine's clock, in microseconds.
    pub(super) skew_us: AtomicI64,
    alarm: Arc<Alarm>,
    state: Mutex<State>,
    tasks: AtomicUsize,
    empty: Notify,
}

#[derive(Debug)]
struct State {
    shut: bool,
    waiting: Vec<Waker>,
    polls: u64,
    polled_at: Instant,
}

impl Gate {
    pub(super) fn new(actor: String, alarm: Arc<Alarm>, skew_us: i64) -> Arc<Self> {
        let polled_at = Instant::now();
        let state = State { shut: false, waiting: Vec::new(), polls: 0, polled_at };
        Arc::new(Self {
            actor,
            skew_us: AtomicI64::new(skew_us),
            alarm,
            state: Mutex::new(state),
            tasks: AtomicUsize::new(0),
            empty: Notify::new(),
        })
    }

    /// The gate of the current task.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Puts a task behind the gate.
    pub(super) fn guard<F: Future + Send + 'static>(self: &Arc<Self>, task: F) -> Gated<F::Output> {
        self.tasks.fetch_add(1, Ordering::SeqCst);
        Gated { task: Box::pin(task), gate: self.clone() }
    }

    /// Stops all its tasks at their next poll.
    pub(super) fn shut(&self) {
        lock(&self.state).shut = true;
    }

    /// Resumes them.
    pub(super) fn open(&self) {
        let mut state = lock(&self.state);
        state.shut = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The number of its tasks that have not ended.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }

    /// Waits until all have ended.
    pub(super) async fn emptied(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            empty.as_mut().enable();
            if self.tasks() == 0 {
                return;
            }
            empty.await;
        }
    }

    /// Whether a task may be polled now. If not, it is woken later.
    fn admits(&self, waker: &Waker) -> bool {
        if self.alarm.is_raised() {
            return false;
        }
        let mut state = lock(&self.state);
        if state.shut {
            if !state.waiting.iter().any(|known| known.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return false;
        }
        let now = Instant::now();
        state.polls = if now == state.polled_at { state.polls + 1 } else { 0 };
        state.polled_at = now;
        if state.polls > POLLS_AT_ONCE_MAX {
            let actor = &self.actor;
            self.alarm.raise(format!(
                "hot loop: {actor} was polled {POLLS_AT_ONCE_MAX} times while no time passed"
            ));
            return false;
        }
        true
    }
}

/// A task behind a gate.
pub(super) struct Gated<T> {
    task: Pin<Box<dyn Future<Output = T> + Send>>,
    gate: Arc<Gate>,
}

impl<T> Future for Gated<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !self.gate.admits(context.waker()) {
            return Poll::Pending;
        }
        let before = CURRENT.replace(Some(self.gate.clone()));
        let polled = catch_unwind(AssertUnwindSafe(|| self.task.as_mut().poll(context)));
        CURRENT.set(before);
        polled.unwrap_or_else(|panic| {
            let (actor, text) = (&self.gate.actor, text_of(&*panic));
            self.gate.alarm.raise(format!("panic: a task of {actor}: {text}"));
            resume_unwind(panic)
        })
    }
}

impl<T> Drop for Gated<T> {
    fn drop(&mut self) {
        if self.gate.tasks.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.gate.empty.notify_waiters();
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Puts a task that the current node starts behind the node's gate. Outside of a simulation, returns it unchanged.
pub(super) fn of_this_node(task: Task) -> Task {
    match Gate::current() {
        Some(gate) => Box::pin(gate.guard(task)),
        None => task,
    }
}
