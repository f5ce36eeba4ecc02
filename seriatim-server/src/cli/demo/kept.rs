//! What `demo --keep` leaves: a store with trouble in it, to look at with the dashboard.

use std::fs::{File, create_dir_all, remove_file};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use seriatim::store::{Act, Declare, LaneAction, LaneSelection, Note, Past, Push, Sqlite};
use seriatim::{Job, JobId, SharedStore, Timestamp};

use crate::app::deeds::{self, Deed};
use crate::app::failures;
use crate::base::text::shell_word;
use crate::base::time::absolute;
use crate::cli::output::{Failure, Result, say};
use crate::config::Config;
use crate::protocol::document::JobFailure;
use crate::protocol::value::Time;

const STORE: &str = "demo.db";
const CONFIG: &str = "seriatim.toml";
const QUEUES: &str = include_str!("kept.toml");
/// Reports that died of one cause, and of another.
const DEAD_BY_TIMEOUT: u32 = 1_200;
const DEAD_BY_TEMPLATE: u32 = 7;
const MINUTE: Duration = Duration::from_secs(60);
/// What failed is tried again after so long: time to look at it.
const RETRY_IN: Duration = Duration::from_secs(6 * 3_600);
/// Why one key fails, from its first attempt on.
const ERRORS: [&str; 6] = [
    "connection refused: 10.0.0.7",
    "the warehouse answered 503",
    "timed out after 30s",
    "no price for item 7731 in EUR",
    "the warehouse answered 409: order is locked by shipment 88",
    "no stock of item 7731",
];

/// A store being filled.
struct Kept {
    store: SharedStore,
    now: Timestamp,
}

/// Fills a folder, and says how to look at it.
pub(super) async fn leave(folder: &Path) -> Result<()> {
    let failed =
        |error| Failure::failed(format!("{} cannot be written: {error}", folder.display()));
    create_dir_all(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let (place, config) = (folder.join(STORE), folder.join(CONFIG));
    for path in [&place, &config] {
        if path.exists() {
            let path = path.display();
            return Err(Failure::failed(format!("{path} already exists: name another folder")));
        }
    }
    let url = toml::Value::from(format!("sqlite:{}", place.display()));
    let mut file = File::create_new(&config).map_err(failed)?;
    write!(file, "[store]\nurl = {url}\n\n{QUEUES}").map_err(failed)?;
    if let Err(error) = fill(&place, &config).await {
        // Half of it would refuse the next try.
        let _ = (remove_file(&config), remove_file(&place));
        return Err(error);
    }
    let config = shell_word(&config.display().to_string());
    say(format!(
        "{} has a store with sample problems. Look at it:\n\n  seriatim serve --config {config}\n\n\
         then open http://127.0.0.1:7117/ and find out why order-17 does not move.",
        folder.display()
    ));
    Ok(())
}

/// Makes the store, with the queues of the configuration.
async fn fill(place: &Path, config: &Path) -> Result<()> {
    let queues = Config::read(Some(config))?.declared()?;
    let kept = Kept { store: Arc::new(Sqlite::open(place)?), now: Timestamp::of_this_machine() };
    kept.store.migrate().await?;
    kept.store.declare(Declare { now: None, queues }).await?;
    kept.fill().await?;
    Ok(kept.store.close().await?)
}

impl Kept {
    async fn fill(&self) -> Result<()> {
        // They wait for long.
        let since = Self { now: self.now - RETRY_IN, store: self.store.clone() };
        since.push((1..=40).map(|n| Job::new("invoices", &json!({ "invoice": n })))).await?;
        self.held_back().await?;
        self.failing().await?;
        self.paused().await?;
        self.dead().await?;
        self.push([Job::new("imports", &json!({ "file": "prices.csv" }))]).await?;
        Ok(())
    }

    async fn push(
        &self,
        jobs: impl IntoIterator<Item = seriatim::Result<Job>>,
    ) -> seriatim::Result<Vec<JobId>> {
        let jobs = jobs.into_iter().collect::<seriatim::Result<_>>()?;
        let pushed = self.store.push(Push { now: Some(self.now), jobs }).await?;
        Ok(pushed.iter().map(|pushed| pushed.job_id).collect())
    }

    /// A job that failed waits long for its retry, and others of its key behind it.
    async fn held_back(&self) -> seriatim::Result<()> {
        let error = "no stock of item 4410: ask the warehouse";
        let past = self.past(1, error, 20);
        let job = |status| order("order-17", status).map(|job| job.task("ship"));
        let ids = self.push([Ok(job("paid")?.past(past).run_in(RETRY_IN))]).await?;
        self.store.write_notes(vec![self.failed(ids[0], 1, error, 20)]).await?;
        self.push(["packed", "shipped", "delivered"].map(job)).await?;
        Ok(())
    }

    /// Each attempt at one key failed differently.
    async fn failing(&self) -> seriatim::Result<()> {
        let past = self.past(ERRORS.len() as u32, ERRORS[ERRORS.len() - 1], 90);
        let job = order("order-42", "paid").map(|job| job.task("ship").past(past));
        let ids = self.push([job.map(|job| job.run_in(RETRY_IN))]).await?;
        let note = |(i, error): (u32, &&str)| self.failed(ids[0], i + 1, error, 90 - 14 * i);
        self.store.write_notes((0..).zip(&ERRORS).map(note).collect()).await
    }

    async fn paused(&self) -> seriatim::Result<()> {
        self.push(["paid", "packed"].map(|status| order("order-58", status))).await?;
        let lanes = LaneSelection::Key("order-58".to_owned());
        let (queue, action) = ("orders".into(), LaneAction::Pause);
        self.store.act(Act { now: Some(self.now), queue, lanes, action }).await?;
        let on = [("queue", "orders"), ("key", "order-58"), ("reason", "the address is wrong")];
        let deed = Deed {
            at: absolute(self.now),
            who: "demo".to_owned(),
            action: "lane pause".to_owned(),
            on: on.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            status: 200,
            ..Deed::default()
        };
        deeds::keep_at(&*self.store, &deed, self.now).await
    }

    async fn dead(&self) -> seriatim::Result<()> {
        let report = |n: u32, error: String| -> seriatim::Result<Job> {
            let past = self.past(1, &error, 55 - n * 50 / DEAD_BY_TIMEOUT);
            let dead_at = past.started_at;
            let job = Job::new("reports", &json!({ "customer": n }))?.task("render");
            Ok(job.past(Past { dead_at, ..past }))
        };
        let timeout =
            |n| report(n, format!("the database did not answer within {} ms", 30_000 + n));
        let template = |n| report(n, format!("template \"invoice-{n}.html\" is missing"));
        self.push((1..=DEAD_BY_TIMEOUT).map(timeout)).await?;
        self.push((1..=DEAD_BY_TEMPLATE).map(template)).await?;
        Ok(())
    }

    /// The note of an attempt that failed this many minutes ago.
    fn failed(&self, job: JobId, attempt: u32, error: &str, minutes: u32) -> Note {
        let at = Time(self.now - MINUTE * minutes);
        let (error, node) = (error.to_owned(), Some("demo".to_owned()));
        failures::note(job, &JobFailure { at, attempt, node, error })
    }

    /// The past of a job that was first tried this many minutes ago.
    fn past(&self, failures: u32, error: &str, minutes: u32) -> Past {
        let started_at = Some(self.now - MINUTE * minutes);
        let error = Some(Arc::from(error));
        Past { failures, error, created_at: started_at, started_at, dead_at: None }
    }
}

fn order(key: &str, status: &str) -> seriatim::Result<Job> {
    Ok(Job::new("orders", &json!({ "status": status }))?.key(key))
}
