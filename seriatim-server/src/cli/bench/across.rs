//! How soon a job starts that another process pushes.

use std::process::Stdio;
use std::time::Duration;

use seriatim::{Client, Job, Payload, Queue, SharedStore, Timestamp};
use tokio::process::{Child, Command};

use super::settings::Bench;
use super::starts::Percentiles;
use crate::cli::output::{Failure, Result};

/// Timed starts of jobs.
const STARTS: usize = 100;
/// The pause between two pushes: the job before has ended by then.
const APART: Duration = Duration::from_millis(70);
/// How long the other process may take for all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pushes jobs whose payload is the time of their push, in microseconds of this machine's clock.
pub(super) async fn push(store: &SharedStore, queue: &Queue) -> Result<()> {
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
    /// Milliseconds from the push in another process to the handler's first line in this one.
    pub(super) async fn starts_across(
        &self,
        store: &SharedStore,
        queue: &Queue,
    ) -> Result<Percentiles> {
        let mut engine = self.engine_that_tells(store, queue, |batch| {
            let now = Timestamp::of_this_machine().as_micros();
            let pushed = batch.payloads().filter_map(|payload| payload.decode::<i64>().ok());
            pushed.map(|pushed| (now - pushed) as f64 / 1e3).collect()
        });
        let pusher = self.pusher(queue)?;
        let waits = tokio::time::timeout(PATIENCE, engine.hear(STARTS)).await;
        engine.stop().await?;
        let output = pusher.wait_with_output().await.map_err(Failure::failed)?;
        match waits {
            Ok(waits) if output.status.success() => Ok(Percentiles::of(waits)),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                let message = format!("the pushing process failed ({}): {said}", output.status);
                Err(Failure::failed(message))
            }
        }
    }

    /// This command again, as the pusher. A variable passes the store, since its URL may contain a
    /// password.
    fn pusher(&self, queue: &Queue) -> Result<Child> {
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
