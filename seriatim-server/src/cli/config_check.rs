//! `seriatim config check`: reads what `serve` reads, and says what it understood.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use seriatim::Queue;

use super::args::{Common, without_password};
use super::serve::{self, Checked};
use crate::cli::output::fields::Fields;
use crate::cli::output::{Failure, hint, say};
use crate::config::{Config, WorkerConfig};

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Reads all that `serve` reads, and says what it understood; opens no store and listens nowhere
    Check,
}

impl ConfigArgs {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Action::Check = self.action;
        let config = self.common.store.config()?;
        let queues = config.declared()?;
        let checked = serve::check(&config).await?;
        let file = self.common.store.config_file().map(|file| file.display().to_string());
        let store = without_password(&self.common.store.url_with(&config));
        if self.common.json {
            let queues: Vec<Value> =
                queues.iter().map(|q| json!({ "queue": q.name, "mode": q.mode })).collect();
            let workers: Vec<Value> = config
                .workers
                .iter()
                .map(|w| json!({ "queue": w.queue, "task": w.task, "kind": w.shown() }))
                .collect();
            let cron: Vec<&str> = config.cron.iter().map(|entry| entry.name()).collect();
            say(json!({ "config": file, "store": store, "listen": checked.address,
                        "tokens": checked.tokens, "queues": queues, "workers": workers, "cron": cron,
                        "warnings": checked.warnings }));
            return Ok(());
        }
        say(format!("{} is good", file.as_deref().unwrap_or("the environment, without a file,")));
        say(in_words(&config, &queues, &checked, &store).render());
        checked.warnings.iter().for_each(|warning| hint(format!("warning: {warning}")));
        Ok(())
    }
}

fn in_words(config: &Config, queues: &[Queue], checked: &Checked, store: &str) -> Fields {
    let list = |items: Vec<String>| match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(", "),
    };
    let worker = |worker: &WorkerConfig| match &worker.task {
        Some(task) => format!("{} of task {task} ({})", worker.queue, worker.shown()),
        None => format!("{} ({})", worker.queue, worker.shown()),
    };
    let mut fields = Fields::default();
    fields
        .add("store", store)
        .add("listens on", &*checked.address)
        .add("tokens", list(checked.tokens.clone()))
        .add("queues", list(queues.iter().map(|q| format!("{} ({})", q.name, q.mode)).collect()))
        .add("workers", list(config.workers.iter().map(worker).collect()))
        .add("cron", list(config.cron.iter().map(|entry| entry.name().to_owned()).collect()));
    fields
}
