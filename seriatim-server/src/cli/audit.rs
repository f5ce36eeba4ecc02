//! `seriatim audit`: lists who changed what, as the store remembers it; checks that an audit log is complete.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use seriatim::store::Store;

use super::args::{Common, PageArgs, TimesArgs};
use crate::app::chain::verify;
use crate::app::deeds::{self, Deed, Wanted};
use crate::base::text::count;
use crate::cli::output::{Failure, Result, Table, hint, say, say_json, tell};

#[derive(Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    common: Common,
    /// Only what names this key, job id, node or cron entry
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Only what names this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only what this token or person did
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only actions whose name has this text
    #[arg(long = "action", value_name = "TEXT")]
    named: Option<String>,
    #[command(flatten)]
    times: TimesArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Checks that no line of an audit log was changed, removed or inserted
    Verify {
        /// Audit logs, oldest first: each must continue the one before
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The hash of the last line before the first file, as printed by an earlier check
        #[arg(long, value_name = "HASH", id = "behind")]
        after: Option<String>,
    },
}

#[derive(Serialize)]
struct Whole {
    lines: u64,
    first: Option<String>,
    last: Option<String>,
}

impl Audit {
    pub(crate) async fn run(self) -> Result<()> {
        match self.action {
            Some(Action::Verify { files, after }) => check(files, after, self.common.json),
            None => self.list().await,
        }
    }

    async fn read(&self, store: &dyn Store) -> Result<deeds::Page> {
        let now = store.now().await?;
        let (since, until) = self.times.bounds(now);
        let wanted = Wanted {
            of: self.key.as_deref(),
            queue: self.queue.as_deref(),
            who: self.who.as_deref(),
            action: self.named.as_deref(),
            since,
            until,
            after: self.page.after.as_deref(),
        };
        Ok(deeds::latest(store, wanted, self.page.rows_max()).await?)
    }

    async fn list(&self) -> Result<()> {
        let page = self.common.store.using(async |store| self.read(&*store).await).await?;
        let none = "nothing: changes by the HTTP API, its pages and this command line are listed for a year";
        tell(self.common.json, &page, table(&page.entries).or(none));
        if let Some(next) = page.next.filter(|_| !self.common.json) {
            hint(format!("more: --after {next}"));
        }
        Ok(())
    }
}

fn table(deeds: &[Deed]) -> Table<'_, Deed> {
    let on = |deed: &Deed| {
        let on = deed.on.iter().map(|(name, value)| format!("{name} {value}"));
        on.collect::<Vec<_>>().join(", ")
    };
    Table::of(deeds)
        .name("when", |deed| &deed.at)
        .name("who", |deed| &deed.who)
        .name("action", |deed| &deed.action)
        .text("on", on)
        .number("count", |deed| deed.count.map(|count| count.to_string()).unwrap_or_default())
        .name("result", Deed::result)
}

/// Checks that logs are whole.
fn check(files: Vec<PathBuf>, after: Option<String>, json: bool) -> Result<()> {
    let (mut lines, mut first, mut last) = (0, None, after);
    for path in files {
        let unreadable =
            |error| Failure::failed(format!("cannot read {}: {error}", path.display()));
        let file = File::open(&path).map_err(unreadable)?;
        let seen = verify(BufReader::new(file), last).map_err(unreadable)?;
        if let Some((line, what)) = seen.broken {
            let path = path.display();
            return Err(Failure::failed(format!("{path}, line {line}: it {what}")));
        }
        lines += seen.lines;
        first = first.or(seen.first);
        last = seen.last;
    }
    if json {
        say_json(&Whole { lines, first, last });
        return Ok(());
    }
    say(format!("{}: each follows the one before", count(lines, "line")));
    if let (Some(first), Some(last)) = (first, last) {
        say(format!("the first follows {first}\nthe last is {last}"));
    }
    Ok(())
}
