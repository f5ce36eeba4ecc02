//! `seriatim cron`: the cron entries of the configuration, with their next times.

use clap::Args;
use seriatim::Timestamp;

use super::args::Common;
use crate::app::cron::{document, ticks};
use crate::cli::output::{Failure, say, say_json};

#[derive(Args)]
pub(crate) struct CronArgs {
    #[command(flatten)]
    common: Common,
}

impl CronArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let config = self.common.store.config()?;
        let entries = config.cron_entries()?;
        let now = Timestamp::of_this_machine();
        if self.common.json {
            say_json(&document(&entries, now));
        } else if entries.is_empty() {
            say("no [[cron]] entries in the configuration");
        } else {
            for entry in &entries {
                say(format!("{entry} -> {}: next {}", entry.queue(), ticks(entry, now).join(", ")));
            }
        }
        Ok(())
    }
}
