//! How soon a job starts.

use std::time::{Duration, Instant};

use seriatim::{
    Batch, Client, Engine, Lane, Payload, Queue, SharedStore, Timestamp, engine::Summary,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::settings::Bench;
use crate::cli::output::{Failure, Result};

/// Timed starts of jobs.
const STARTS: usize = 200;
/// The pause between two pushes: the job before has ended by then.
const PUSHED_APART: Duration = Duration::from_millis(5);
/// When the first of the scheduled jobs is due, and how far they are apart.
const SCHEDULED_IN: Duration = Duration::from_millis(300);
const SCHEDULED_APART: Duration = Duration::from_millis(7);

impl Bench {
    /// Milliseconds from push to the handler's first line, one job at a time.
    pub(super) async fn starts(&self, store: &SharedStore, queue: &Queue) -> Result<Percentiles> {
        let mut engine = self.engine_that_tells(store, queue, |_| vec![Instant::now()]);
        let client = Client::new(store.clone());
        let mut waits = Vec::with_capacity(STARTS);
        for number in 0..STARTS as u64 {
            tokio::time::sleep(PUSHED_APART).await;
            let pushed = Instant::now();
            client.push(self.job(queue, number)).await?;
            let Some(started) = engine.told.recv().await else { break };
            waits.push(started.duration_since(pushed).as_secs_f64() * 1e3);
        }
        engine.stop().await?;
        Ok(Percentiles::of(waits))
    }

    /// Milliseconds from the time for which jobs were scheduled to the handler's first line.
    pub(super) async fn lateness(&self, store: &SharedStore, queue: &Queue) -> Result<Percentiles> {
        let mut engine = self.engine_that_tells(store, queue, |batch| {
            let now = Timestamp::of_this_machine();
            let jobs = batch.lanes().iter().flat_map(Lane::jobs);
            jobs.map(|(job, _)| now.since(job.run_at).as_secs_f64() * 1e3).collect()
        });
        let first = store.now().await? + SCHEDULED_IN;
        let job =
            |number: u64| self.job(queue, number).run_at(first + SCHEDULED_APART * number as u32);
        Client::new(store.clone()).push_all((0..STARTS as u64).map(job).collect()).await?;
        let late = engine.hear(STARTS).await;
        engine.stop().await?;
        Ok(Percentiles::of(late))
    }

    /// An engine whose handler only sends the result of `observe` for each batch.
    pub(super) fn engine_that_tells<T: Send + 'static>(
        &self,
        store: &SharedStore,
        queue: &Queue,
        observe: impl Fn(&Batch<Payload>) -> Vec<T> + Send + Sync + 'static,
    ) -> Telling<T> {
        let (tell, told) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = Engine::builder(store.clone())
            .concurrency(self.concurrency)
            .queue(queue.clone())
            .worker(queue.name.as_str(), move |batch: Batch<Payload>| {
                for seen in observe(&batch) {
                    // After the measurement there is no receiver.
                    let _ = tell.send(seen);
                }
                std::future::ready(())
            });
        let engine = tokio::spawn(engine.run_until(async { stopped.await.unwrap_or_default() }));
        Telling { told, stop, engine }
    }
}

/// See [`Bench::engine_that_tells`].
pub(super) struct Telling<T> {
    told: mpsc::UnboundedReceiver<T>,
    stop: oneshot::Sender<()>,
    engine: JoinHandle<seriatim::Result<Summary>>,
}

impl<T> Telling<T> {
    /// This many results, or fewer if the engine ends first.
    pub(super) async fn hear(&mut self, number: usize) -> Vec<T> {
        let mut heard = Vec::with_capacity(number);
        while heard.len() < number {
            let Some(next) = self.told.recv().await else { break };
            heard.push(next);
        }
        heard
    }

    pub(super) async fn stop(self) -> Result<()> {
        // An engine that has ended needs no signal; its result comes next.
        let _ = self.stop.send(());
        self.engine.await.map_err(Failure::failed)??;
        Ok(())
    }
}

pub(super) struct Percentiles {
    pub median: f64,
    pub p99: f64,
}

impl Percentiles {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (values.len() as f64 - 1.0) * share;
            values.get(place as usize).copied().unwrap_or(f64::NAN)
        };
        Self { median: at(0.5), p99: at(0.99) }
    }
}
