//! The commands, one file each.

mod bench;
mod check;
mod demo;
mod push;
mod serve;
mod stats;

use clap::{Args, Subcommand};
use seriatim::SharedStore;

use crate::output::Failure;

/// Which store.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArg {
    /// The store: sqlite:PATH, memory:, postgres://…, redis://…
    #[arg(long, env = "SERIATIM_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,
}

/// What is used when nobody says.
pub(crate) const DEFAULT_STORE: &str = "sqlite:seriatim.db";

impl StoreArg {
    pub(crate) fn url(&self) -> &str {
        self.store.as_deref().unwrap_or(DEFAULT_STORE)
    }

    /// Opens the store for `body`, and closes it whatever comes of that.
    pub(crate) async fn using<T>(
        &self,
        body: impl AsyncFnOnce(SharedStore) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = seriatim::connect(self.url()).await?;
        let result = body(store.clone()).await;
        let closed = store.close().await;
        let value = result?;
        closed?;
        Ok(value)
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs order updates, out of order and in duplicate, through a real engine; ends with a proof
    Demo(demo::Demo),
    /// Runs workers on the queues of a store
    Serve(serve::Serve),
    /// Pushes jobs
    Push(push::Push),
    /// Shows the numbers of all queues
    Stats(stats::Stats),
    /// Measures a store: how fast jobs are pushed and drained
    Bench(bench::Bench),
    /// Judges recorded histories: overlaps, order, losses, duplicates
    Check(check::Check),
}

impl Command {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Serve(serve) => serve.run().await,
            Self::Push(push) => push.run().await,
            Self::Stats(stats) => stats.run().await,
            Self::Bench(bench) => bench.run().await,
            Self::Check(check) => check.run(),
        }
    }
}

/// Reads a duration from the command line.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    seriatim::duration::parse(text).map_err(|e| e.message().to_owned())
}
