//! `seriatim migrate`: creates or upgrades what a store keeps.

use clap::Args;
use serde_json::json;

use super::args::Common;
use crate::cli::output::{Failure, say};

#[derive(Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    common: Common,
}

impl Migrate {
    /// Opening a store migrates it, so that a forgotten `migrate` stops nobody; this is for those who
    /// want it to happen at a time of their own.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let shown = self.common.store.shown()?;
        let kind = self.common.store.creating(async |store| Ok(store.capabilities().name)).await?;
        let version = env!("CARGO_PKG_VERSION");
        if self.common.json {
            say(json!({ "store": shown, "kind": kind, "version": version }));
        } else {
            say(format!("{shown} is ready for seriatim {version}"));
        }
        Ok(())
    }
}
