//! How soon a job starts that another process pushes.

use std::process::Stdio;
use std::time::Duration;

use seriatim::{Batch, Client, Context, Engine, Job, Payload, Queue, SharedStore, Timestamp};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use super::{Bench, percentiles};
use crate::output::Failure;

/// Jobs whose start is timed.
const STARTS: u64 = 100;
/// The time between two pushes: so long that nobody is busy with the one before.
const APART: Duration = Duration::from_millis(70);
/// How long the other process may take for all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pushes jobs that hold the time of their push, in microseconds by this machine's clock.
pub(super) async fn push(store: &SharedStore, queue: &Queue) -> Result<(), Failure> {
    let client = Client::new(store.clone());
    for number in 0..STARTS {
        tokio::time::sleep(APART).await;
        let now = Timestamp::of_this_machine().as_micros();
        let job = Job::with_payload(queue.name.as_str(), Payload::from_bytes(now.to_string()));
        let job = if queue.mode.is_keyed() { job.key(format!("start-{number}")) } else { job };
        client.push(job).await?;
    }
    Ok(())
}

impl Bench {
    /// Milliseconds from the push in another process to the handler's first line in this one, median
    /// and 99th percentile.
    pub(super) async fn starts_across(
        &self,
        store: &SharedStore,
        queue: &Queue,
    ) -> Result<(f64, f64), Failure> {
        let (started, mut starts) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = Engine::builder(store.clone())
            .concurrency(self.concurrency)
            .queue(queue.clone())
            .raw_worker(queue.name.as_str(), move |batch: Batch<Payload>, _: Context| {
                let now = Timestamp::of_this_machine().as_micros();
                for pushed in batch.payloads().filter_map(|payload| payload.decode::<i64>().ok()) {
                    // Nobody listens any more when the measuring is over.
                    let _ = started.send((now - pushed) as f64 / 1e3);
                }
                std::future::ready(Ok(()))
            });
        let engine = tokio::spawn(engine.run_until(async { stopped.await.unwrap_or_default() }));
        let pusher = self.pusher(queue)?;
        let mut waits = Vec::new();
        let all = async {
            while (waits.len() as u64) < STARTS {
                let Some(wait) = starts.recv().await else { break };
                waits.push(wait);
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, all).await;
        let _ = stop.send(());
        engine.await.map_err(Failure::failed)??;
        let output = pusher.wait_with_output().await.map_err(Failure::failed)?;
        if in_time.is_err() || !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let message = format!("the process that pushes failed ({}): {said}", output.status);
            return Err(Failure::failed(message));
        }
        Ok(percentiles(waits))
    }

    /// This command once more, as the one that pushes. The store is told by a variable, for its URL may
    /// hold a password.
    fn pusher(&self, queue: &Queue) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut command = Command::new(program);
        command
            .args(["bench", "--as-pusher", "--mode", queue.mode.as_str()])
            .env("SERIATIM_STORE", self.store.url()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().map_err(Failure::failed)
    }
}
