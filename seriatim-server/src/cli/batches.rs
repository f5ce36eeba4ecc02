//! `batches`: opens, seals and shows a batch of jobs.

use clap::{Args, Subcommand};
use seriatim::{Client, Job, Payload, Queue, SharedStore, Timestamp};

use super::args::Common;
use crate::app::batches;
use crate::base::text::count;
use crate::base::time::relative;
use crate::cli::output::{Failure, say, say_json};
use crate::protocol::document::Batch;

#[derive(Args)]
pub(crate) struct Batches {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Opens a batch, with the job that is pushed when it ends
    Open {
        /// The batch: a name of your choice
        batch: String,
        /// The queue of that job
        queue: String,
        /// Its payload, a JSON document. Default: null
        payload: Option<String>,
        /// Its key
        #[arg(long)]
        key: Option<String>,
        /// Its task
        #[arg(long)]
        task: Option<String>,
    },
    /// Seals a batch: it ends with the last of its jobs, or now if none is left
    Seal {
        /// The batch
        batch: String,
    },
    /// Shows how many jobs of a batch have ended, and how
    Show {
        /// The batch
        batch: String,
    },
}

impl Batches {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let json = self.common.json;
        // As the first push does: makes the callback's queue as the configuration declares it, and the store.
        let declared = match &self.action {
            Action::Open { queue, .. } => {
                let config = self.common.store.config()?;
                self.common.store.declared(&config, queue)?
            }
            Action::Seal { .. } | Action::Show { .. } => None,
        };
        let act = async |store: SharedStore| {
            let batch = self.action.carry_out(store, declared).await?;
            match json {
                true => say_json(&batch),
                false => say(told(&batch)),
            }
            Ok::<(), Failure>(())
        };
        match self.action {
            Action::Open { .. } => self.common.store.creating(act).await,
            Action::Seal { .. } | Action::Show { .. } => self.common.store.using(act).await,
        }
    }
}

impl Action {
    async fn carry_out(
        &self,
        store: SharedStore,
        declared: Option<Queue>,
    ) -> Result<Batch, Failure> {
        let client = Client::new(store.clone()).queues(declared);
        Ok(match self {
            Self::Open { batch, queue, payload, key, task } => {
                let text = payload.as_deref().unwrap_or("null");
                let mut job = Job::with_payload(queue, Payload::from_json_text(text)?);
                (job.key, job.task) = (key.clone(), task.clone());
                client.open_batch(&**batch, job).await?.into()
            }
            Self::Seal { batch } => client.seal_batch(&**batch).await?.into(),
            Self::Show { batch } => batches::one(&*store, batch).await?,
        })
    }
}

/// A batch in words.
fn told(batch: &Batch) -> String {
    let now = Timestamp::of_this_machine();
    let state = match (&batch.ended_at, batch.sealed) {
        (Some(at), _) => format!("ended {}", relative(now, at.0)),
        (None, true) => format!("sealed, {} left", count(batch.pending, "job")),
        (None, false) => format!("open, {} left", count(batch.pending, "job")),
    };
    let Batch { done, dead, cancelled, .. } = batch;
    let after = match (&batch.callback, &batch.refused) {
        (Some(job), _) => format!("; callback: job {job}"),
        (None, Some(why)) => format!("; its callback was not pushed: {why}"),
        (None, None) => String::new(),
    };
    format!("{state}: {done} done, {dead} dead, {cancelled} cancelled{after}")
}
