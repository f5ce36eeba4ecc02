//! The command `import`: turns the settings of another system into a configuration, on stdout.

mod dataloader;
mod described;
mod dotenv;
mod ruby;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::output::{Failure, Result, hint, say};
use crate::base::text::MARK;

#[derive(Args)]
#[command(subcommand_value_name = "SYSTEM", subcommand_help_heading = "Systems")]
pub(crate) struct Import {
    #[command(subcommand)]
    system: System,
}

#[derive(Subcommand)]
enum System {
    /// Dataloader: its variables `APP_*`, `PG_*`, `DL_*`, `LOG_*`, `WORKERS_JSON` and the like
    Dataloader {
        /// File with one NAME=value per line
        file: PathBuf,
    },
    /// Sidekiq: what `ruby seriatim_worker.rb --describe` prints
    Sidekiq {
        /// A file with it
        file: PathBuf,
    },
    /// Lowkiq: the same
    Lowkiq {
        /// A file with it
        file: PathBuf,
    },
}

impl Import {
    pub(crate) fn run(self) -> Result<()> {
        let (System::Dataloader { file } | System::Sidekiq { file } | System::Lowkiq { file }) =
            &self.system;
        let name = file.display();
        let wrong = |what: String| Failure::usage(format!("{name}: {what}"));
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
        let text = text.strip_prefix(MARK).unwrap_or(&text);
        let (made, left) = match &self.system {
            System::Dataloader { .. } => {
                let variables = dotenv::read(text).map_err(wrong)?;
                let made = dataloader::configuration(variables).map_err(wrong)?;
                (made.text, made.left)
            }
            System::Sidekiq { .. } => (ruby::of_sidekiq(text).map_err(wrong)?, Vec::new()),
            System::Lowkiq { .. } => (ruby::of_lowkiq(text).map_err(wrong)?, Vec::new()),
        };
        say(made.trim_end());
        left.iter().for_each(hint);
        Ok(())
    }
}
