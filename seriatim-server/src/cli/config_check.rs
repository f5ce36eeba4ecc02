//! `seriatim config check`: checks the configuration that `serve` reads, and prints a summary.

use clap::{Args, Subcommand};
use serde::Serialize;
use seriatim::{Mode, Queue};

use super::args::Common;
use super::serve::{self, Checked};
use crate::base::text::without_password;
use crate::cli::output::{Fields, Result, hint, say, say_json};
use crate::config::{Config, PeriodicConfig, WorkerConfig};

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
    /// Checks all that `serve` reads, and prints a summary; opens no store and does not listen
    Check,
}

#[derive(Serialize)]
struct CheckedConfig {
    config: Option<String>,
    store: String,
    listen: String,
    tokens: Vec<String>,
    queues: Vec<CheckedQueue>,
    workers: Vec<CheckedWorker>,
    cron: Vec<String>,
    periodic: Vec<String>,
    bridges: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct CheckedQueue {
    queue: String,
    mode: Mode,
}

#[derive(Serialize)]
struct CheckedWorker {
    queue: String,
    task: Option<String>,
    kind: String,
}

impl ConfigArgs {
    pub(crate) async fn run(self) -> Result<()> {
        let Action::Check = self.action;
        let config = self.common.store.config()?;
        let queues = config.declared()?;
        let checked = serve::check(&config).await?;
        let file = self.common.store.config_file().map(|file| file.display().to_string());
        let url = self.common.store.url_with(&config);
        seriatim::store::check_url(&url)?;
        let store = without_password(&url);
        if self.common.json {
            let queue =
                |queue: &Queue| CheckedQueue { queue: queue.name.clone(), mode: queue.mode };
            let worker = |worker: &WorkerConfig| CheckedWorker {
                queue: worker.queue.clone(),
                task: worker.task.clone(),
                kind: worker.shown(),
            };
            say_json(&CheckedConfig {
                config: file,
                store,
                listen: checked.address,
                tokens: checked.tokens,
                queues: queues.iter().map(queue).collect(),
                workers: config.workers.iter().map(worker).collect(),
                cron: config.cron.iter().map(|entry| entry.name().to_owned()).collect(),
                periodic: config.periodic.iter().map(|entry| entry.name.clone()).collect(),
                bridges: config.bridges.iter().map(|entry| entry.name.clone()).collect(),
                warnings: checked.warnings,
            });
            return Ok(());
        }
        say(format!("{} is valid", file.as_deref().unwrap_or("the environment (no file)")));
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
    let periodic = |entry: &PeriodicConfig| format!("{} ({})", entry.name, entry.launch().name());
    let mut fields = Fields::default();
    fields
        .add("store", store)
        .add("listens on", &*checked.address)
        .add("tokens", list(checked.tokens.clone()))
        .add("queues", list(queues.iter().map(|q| format!("{} ({})", q.name, q.mode)).collect()))
        .add("workers", list(config.workers.iter().map(worker).collect()))
        .add("cron", list(config.cron.iter().map(|entry| entry.name().to_owned()).collect()))
        .add("periodic", list(config.periodic.iter().map(periodic).collect()))
        .add("bridges", list(config.bridges.iter().map(|entry| entry.name.clone()).collect()));
    fields
}
