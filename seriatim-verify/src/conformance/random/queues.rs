//! The queues of random sequences, and what people do with a queue.

use std::time::Duration;

use fastrand::Rng;
use seriatim::store::*;
use seriatim::{ErrorKind, Groups, Merge, Queue, Rate, Share, Window};

use super::{Pair, refusal};
use crate::conformance::bench::Bench;

/// Of any mode with keys.
pub(super) fn keyed(rng: &mut Rng) -> Queue {
    match rng.u8(0..4) {
        0 => Queue::exclusive(""),
        1 => Queue::fifo("").take(rng.u32(1..4)),
        2 => Queue::accumulate(""),
        _ => with_window(rng),
    }
}

/// Short windows, which fill often.
pub(super) fn with_window(rng: &mut Rng) -> Queue {
    let quiet = Duration::from_micros(rng.u64(8..10_000_000));
    let mut window = Window::new(quiet, quiet + Duration::from_secs(rng.u64(0..20)));
    if rng.bool() {
        window = window.max_jobs(rng.u32(2..7));
    }
    if rng.bool() {
        window = window.max_bytes(rng.u64(5..80));
    }
    let merge = *rng.choice(&[Merge::Min, Merge::Max, Merge::None]).unwrap_or(&Merge::Min);
    Queue::accumulate("").merge(merge).window(window)
}

/// Its keys are throttled for a few pushes.
pub(super) fn with_throttle(queue: Queue, rng: &mut Rng) -> Queue {
    let mut queue = queue.throttle(Duration::from_micros(rng.u64(1..15_000_000)));
    queue.throttled = if rng.bool() { Throttled::Merge } else { Throttled::Refuse };
    queue
}

/// With groups and limits, some of which few turns reach.
pub(super) fn shared_out(queue: Queue, rng: &mut Rng) -> Queue {
    let share = |rng: &mut Rng| {
        let mut share = Share::default().weight(rng.u32(1..4));
        if rng.bool() {
            share = share.running(rng.u32(1..4));
        }
        if rng.u8(0..3) == 0 {
            share = share.rate(Rate::per_minute(rng.u32(1..40))).burst(rng.u32(1..4));
        }
        share
    };
    let mut queue = queue.groups(Groups::each(share(rng)).named("a", share(rng)));
    if rng.bool() {
        queue = queue.running(rng.u32(1..6));
    }
    if rng.u8(0..3) == 0 {
        queue = queue.rate(Rate::per_second(rng.u32(1..5)));
    }
    queue
}

impl Pair {
    async fn declare(&mut self, queue: &Queue) {
        self.model.declare(queue.clone()).await;
        self.real.declare(queue.clone()).await;
    }

    /// The limits change, also while turns run.
    pub(super) async fn redeclare(&mut self, rng: &mut Rng) {
        let Queue { limit, groups, .. } = shared_out(self.queue.clone(), rng);
        (self.queue.limit, self.queue.groups) = (limit, groups);
        self.declare(&self.queue.clone()).await;
    }

    /// Keys are throttled for another time, or for none, and further pushes otherwise.
    pub(super) async fn throttle(&mut self, rng: &mut Rng) {
        self.queue = with_throttle(self.queue.clone(), rng);
        let mut queue = self.queue.clone();
        if rng.u8(0..4) == 0 {
            (queue.throttle, queue.throttled) = (None, Throttled::default());
        }
        self.declare(&queue).await;
    }

    /// Pauses the queue, or resumes it.
    pub(super) async fn pause(&mut self) {
        self.paused = !self.paused;
        for bench in [&self.model, &self.real] {
            let queue = self.queue.name.as_str().into();
            let answer = bench.store.pause_queue(queue, self.paused).await;
            answer.expect("the store answers");
        }
    }

    /// Declares another mode, which only a queue without lanes takes, or one that a push made.
    pub(super) async fn change_mode(&mut self, rng: &mut Rng) {
        let is_keyed = self.queue.mode.is_keyed();
        let mut queue = if is_keyed { keyed(rng) } else { Queue::parallel("") };
        if self.queue.groups.is_some() {
            queue = shared_out(queue, rng);
        }
        if self.queue.throttle.is_some() {
            queue = with_throttle(queue, rng);
        }
        let queue = super::defined(self.seed, queue);
        if rng.bool() {
            self.act_on(&LaneSelection::All, LaneAction::Delete).await;
        }
        let model = self.model.try_declare(queue.clone()).await;
        let real = self.real.try_declare(queue.clone()).await;
        self.same("the refusal of another mode", refusal(&model), refusal(&real));
        if model.is_ok() {
            self.queue = queue;
        }
    }

    /// Deletes the queue, mostly after its claims were taken from their holders. Then it is declared again, or a push makes it.
    pub(super) async fn delete(&mut self, rng: &mut Rng) {
        if rng.u8(0..4) > 0 {
            let claims = ClaimSelection::Queue(self.queue.name.as_str().into());
            self.release_all(&claims, rng.usize(1..4)).await;
        }
        let (name, rows_max) = (self.queue.name.clone(), rng.usize(1..20));
        let model = deleted(&self.model, &name, rows_max).await;
        let real = deleted(&self.real, &name, rows_max).await;
        self.same("the answer to a deletion", model, real);
        if model.is_err() {
            return;
        }
        self.paused = false;
        // Those of deleted jobs ended by the clocks of the stores, which differ.
        self.batches.clear();
        if rng.bool() || self.queue.groups.is_some() || self.queue.throttle.is_some() {
            self.declare(&self.queue.clone()).await;
            return;
        }
        self.queue = Queue::implied(&name, self.queue.mode.is_keyed());
        self.model.plan_by(self.queue.clone());
        self.real.plan_by(self.queue.clone());
        self.push(rng).await;
    }
}

/// How many jobs the queue had.
async fn deleted(bench: &Bench, queue: &str, rows_max: usize) -> Result<u64, ErrorKind> {
    let mut count = 0;
    loop {
        let request = DeleteQueue { queue: queue.into(), rows_max };
        let step = bench.store.delete_queue(request).await.map_err(|error| error.kind())?;
        count += step.count;
        if !step.more {
            return Ok(count);
        }
    }
}
