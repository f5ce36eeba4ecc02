//! `seriatim migrate`: creates or upgrades the schema of a store.

use clap::Args;
use serde::Serialize;

use super::args::Common;
use crate::cli::output::{Result, tell};

#[derive(Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Migrated<'a> {
    store: &'a str,
    kind: &'a str,
    version: &'a str,
}

impl Migrate {
    /// Opening a store migrates it too; this command does it at a chosen time.
    pub(crate) async fn run(self) -> Result<()> {
        let shown = self.common.store.shown()?;
        let kind = self.common.store.creating(async |store| Ok(store.capabilities().name)).await?;
        let version = env!("CARGO_PKG_VERSION");
        let told = format!("{shown} is ready for seriatim {version}");
        tell(self.common.json, &Migrated { store: &shown, kind, version }, told);
        Ok(())
    }
}
