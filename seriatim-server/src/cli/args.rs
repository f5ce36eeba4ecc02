//! Flags that many commands share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::{Error, ErrorKind, Queue, SharedStore, Timestamp};

use crate::app::pauses;
use crate::app::payloads::{self, Forms};
use crate::base::text::without_password;
use crate::base::time::Moment;
use crate::cli::output::{Failure, Result};
use crate::config::{Config, STORE_DEFAULT};

/// Why `memory:` is useless to a command that ends.
pub(crate) const FORGETS: &str = "memory: is lost when a process ends, so this command would have no effect: use a permanent store, as in --store sqlite:seriatim.db, or push to the HTTP API of a running `serve`";

/// Configuration and store: the same flags for every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArg {
    /// The configuration file. Default: seriatim.toml in the current folder, if present
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Store URL: sqlite:PATH, memory:, postgres://…, mysql://…, redis://… Default: from the configuration, else sqlite:seriatim.db
    #[arg(long, env = "SERIATIM_STORE", value_name = "URL", hide_env_values = true, global = true)]
    store: Option<String>,
}

impl StoreArg {
    /// The configuration.
    pub(crate) fn config(&self) -> Result<Config> {
        Ok(Config::read(self.config.as_deref())?)
    }

    /// The name of its file, if there is one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        Config::file(self.config.as_deref())
    }

    /// The flag or variable, else the configuration, else the default.
    pub(crate) fn url_with(&self, config: &Config) -> String {
        let url = self.store.clone().or_else(|| config.store.url.clone());
        url.unwrap_or_else(|| STORE_DEFAULT.to_owned())
    }

    /// The queue as the configuration declares it, if that is for this store.
    pub(crate) fn declared(&self, config: &Config, queue: &str) -> Result<Option<Queue>> {
        let is_of_other = |url: &String| *url != self.url_with(config);
        if config.store.url.as_ref().is_some_and(is_of_other) {
            return Ok(None);
        }
        Ok(config.declared()?.into_iter().find(|known| known.name == queue))
    }

    /// The URL, with the configuration read only if it is named or needed.
    pub(crate) fn url(&self) -> Result<String> {
        match (&self.store, &self.config) {
            (Some(url), None) => Ok(url.clone()),
            _ => Ok(self.url_with(&self.config()?)),
        }
    }

    /// The URL for display: without user and password.
    pub(crate) fn shown(&self) -> Result<String> {
        Ok(without_password(&self.url()?))
    }

    /// Opens an existing store for `body`: reading and repairing must not create a store at a mistyped
    /// place. Always closes it.
    pub(crate) async fn using<T>(
        &self,
        body: impl AsyncFnOnce(SharedStore) -> Result<T>,
    ) -> Result<T> {
        let url = self.url()?;
        if url.starts_with("memory:") {
            return Err(Failure::usage(FORGETS));
        }
        let forms = self.forms()?;
        let store = seriatim::connect_existing(&url).await;
        let store = store.map_err(|error| not_open(&url, error))?;
        closing(payloads::wrap(store, &forms), body).await
    }

    /// The same; creates a missing store.
    pub(crate) async fn creating<T>(
        &self,
        body: impl AsyncFnOnce(SharedStore) -> Result<T>,
    ) -> Result<T> {
        let forms = self.forms()?;
        closing(connect(&self.url()?, &forms).await?, body).await
    }

    /// How payloads are stored. With `--store` alone, a file in the current folder may be of another store: what it
    /// says is used if it can be read.
    fn forms(&self) -> Result<Arc<Forms>> {
        let config = match (&self.store, &self.config) {
            (Some(_), None) => self.config().unwrap_or_default(),
            _ => self.config()?,
        };
        Ok(payloads::forms_of_command(&config.payloads))
    }
}

async fn closing<T>(
    store: SharedStore,
    body: impl AsyncFnOnce(SharedStore) -> Result<T>,
) -> Result<T> {
    let result = body(store.clone()).await;
    super::deed::keep(&*store, &result).await;
    let closed = store.close().await;
    let value = result?;
    closed?;
    Ok(value)
}

/// The store, and the output format.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) store: StoreArg,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Which page of a listing.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageArgs {
    /// Maximum number of rows, up to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=PAGE_ROWS_MAX as i64))]
    limit: u32,
    /// Continue after this cursor, which the previous page printed
    #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
    pub(crate) after: Option<String>,
}

impl PageArgs {
    pub(crate) fn rows_max(&self) -> usize {
        self.limit as usize
    }
}

/// For irreversible commands.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Yes {
    /// Confirm: this cannot be undone
    #[arg(long)]
    yes: bool,
}

impl Yes {
    /// Refuses unless confirmed; `what` describes the effect.
    pub(crate) fn confirm(self, what: &str) -> Result<()> {
        match self.yes {
            true => Ok(()),
            false => Err(Failure::usage(format!(
                "this permanently {what}; nothing was done: confirm with --yes"
            ))),
        }
    }
}

/// Of commands that stop something.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reason {
    /// Reason, shown to others in the audit log and the dashboard
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Reason {
    /// Refuses one that is too long. The audit log takes it from the command line.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(pauses::check_reason(self.reason.as_deref())?)
    }
}

/// Reads a duration from the command line.
pub(super) fn duration(text: &str) -> Result<std::time::Duration, String> {
    seriatim::duration::parse(text).map_err(|e| e.message().to_owned())
}

/// Opens the store, and makes it where it is not there yet.
pub(super) async fn connect(url: &str, forms: &Arc<Forms>) -> seriatim::Result<SharedStore> {
    let store = seriatim::connect(url).await.map_err(|error| with_place(url, error))?;
    Ok(payloads::wrap(store, forms))
}

/// Drivers report that a server does not answer, but not which: it may come from the configuration of this
/// folder, or from a forgotten variable.
fn with_place(url: &str, error: Error) -> Error {
    let at_a_server = url.contains("://") && !url.starts_with("sqlite:");
    match error.kind() {
        ErrorKind::Unavailable if at_a_server => error.while_doing(&without_password(url)),
        _ => error,
    }
}

/// Why an existing store was not opened.
fn not_open(url: &str, error: Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::missing(format!(
            "no Seriatim store at {}: create one with `seriatim serve` or `seriatim migrate`, or name another with --store URL or SERIATIM_STORE",
            without_password(url)
        )),
        _ => with_place(url, error).into(),
    }
}

/// The time of what is listed.
#[derive(Args)]
pub(crate) struct TimesArgs {
    /// Only entries from this time on: a time, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = Moment::read)]
    since: Option<Moment>,
    /// Only entries up to this time
    #[arg(long, value_name = "TIME", value_parser = Moment::read)]
    until: Option<Moment>,
}

impl TimesArgs {
    /// From when on, and up to when.
    pub(crate) fn bounds(&self, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        (self.since.map(|since| since.before(now)), self.until.map(|until| until.before(now)))
    }
}
