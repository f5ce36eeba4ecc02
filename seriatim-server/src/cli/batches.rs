//! `seriatim batches`: lists batches of jobs, and opens, seals and shows one.

use clap::{Args, Subcommand};
use seriatim::store::Store;
use seriatim::{Client, Job, Payload, Queue, SharedStore, Timestamp};

use super::args::{Common, PageArgs};
use crate::app::batches;
use crate::base::text::{one_line, shell_word};
use crate::base::time::relative;
use crate::cli::output::{Cell, Failure, Result, Table, Tone, hint, say, say_json, tell};
use crate::protocol::document::Batch;

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(crate) struct Batches {
    #[command(flatten)]
    common: Common,
    /// Only those that have not ended
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Opens a batch; names the job to push when it ends
    Open {
        /// Id of the batch, of your choice
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
    pub(crate) async fn run(self) -> Result<()> {
        let Some(action) = &self.action else {
            return self.common.store.using(async |store| self.list(&*store).await).await;
        };
        // As the first push does: makes the callback's queue as the configuration declares it, and the store.
        let declared = match action {
            Action::Open { queue, .. } => {
                let config = self.common.store.config()?;
                self.common.store.declared(&config, queue)?
            }
            Action::Seal { .. } | Action::Show { .. } => None,
        };
        let act = async |store: SharedStore| {
            let now = store.now().await?;
            let batch = action.carry_out(store, declared).await?;
            tell(self.common.json, &batch, told(&batch, now));
            Ok::<(), Failure>(())
        };
        match action {
            Action::Open { .. } => self.common.store.creating(act).await,
            Action::Seal { .. } | Action::Show { .. } => self.common.store.using(act).await,
        }
    }

    async fn list(&self, store: &dyn Store) -> Result<()> {
        let after = self.page.after.clone();
        let page = batches::page(store, self.live, after, self.page.rows_max()).await?;
        if self.common.json {
            say_json(&page);
            return Ok(());
        }
        let none = match (&self.page.after, self.live) {
            (Some(_), _) => "no more batches",
            (None, true) => "no batches that have not ended",
            (None, false) => "no batches: `seriatim batches open` opens one",
        };
        say(table(&page.batches, store.now().await?).or(none));
        if let Some(next) = page.next {
            hint(format!("more: --after {}", shell_word(&one_line(&next))));
        }
        Ok(())
    }
}

fn table(batches: &[Batch], now: Timestamp) -> Table<'_, Batch> {
    Table::of(batches)
        .name("batch", |batch| one_line(&batch.batch))
        .name("state", Batch::state)
        .number("pending", |batch| batch.pending)
        .number("done", |batch| batch.done)
        .number("dead", |batch| batch.dead)
        .number("cancelled", |batch| batch.cancelled)
        .name("opened", |batch| relative(now, batch.opened_at.0))
        .name("ended", |batch| batch.ended_at.map_or_else(String::new, |at| relative(now, at.0)))
        .text("callback", |batch| match (&batch.callback, &batch.refused) {
            (Some(job), _) => Cell::from(job.to_string()),
            (None, Some(why)) => Cell::toned(format!("not pushed: {}", one_line(why)), Tone::Bad),
            (None, None) => Cell::from(""),
        })
}

impl Action {
    async fn carry_out(&self, store: SharedStore, declared: Option<Queue>) -> Result<Batch> {
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
fn told(batch: &Batch, now: Timestamp) -> String {
    let state = match &batch.ended_at {
        Some(at) => format!("ended {}", relative(now, at.0)),
        None => batch.state().to_owned(),
    };
    let after = match (&batch.callback, &batch.refused) {
        (Some(job), _) => format!("; callback: job {job}"),
        (None, Some(why)) => format!("; its callback was not pushed: {why}"),
        (None, None) => String::new(),
    };
    format!("{state}: {}{after}", batch.counts())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::value::Time;

    #[test]
    fn a_batch_is_as_old_as_the_clock_of_its_store_says() {
        let store_now = Timestamp::of_this_machine() - Duration::from_secs(86_400);
        let ago = |seconds| Time(store_now - Duration::from_secs(seconds));
        let batch = Batch {
            batch: "b".into(),
            opened_at: ago(7_500),
            sealed: true,
            pending: 0,
            done: 1,
            dead: 0,
            cancelled: 0,
            ended_at: Some(ago(200)),
            callback: None,
            refused: None,
        };
        assert!(told(&batch, store_now).starts_with("ended 3m20s ago: "));
        let listed = table(&[batch], store_now).to_string();
        assert!(listed.contains("2h05m ago") && listed.contains("3m20s ago"), "{listed}");
    }
}
