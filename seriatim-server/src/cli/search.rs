//! `seriatim search`: keys and jobs in all queues.

use std::sync::Arc;

use clap::Args;
use seriatim::Timestamp;
use seriatim::store::{LaneView, Store};
use seriatim::text::one_line;

use super::args::Common;
use super::jobs;
use super::tones::lane_state;
use crate::app::search::{self, Asked, Found};
use crate::app::search_terms::Terms;
use crate::base::text::{KEY_COLUMNS, cut, failures, shell_word};
use crate::cli::output::{Failure, Result, Table, hint, say, say_json};

#[derive(Args)]
pub(crate) struct Search {
    /// A key or its beginning; a task; or terms that must all match: `queue:orders task:ship error:time out
    /// payload:order-7`
    text: String,
    /// Also find jobs of this task if a key is found, and in queues with more than 10,000 jobs
    #[arg(long)]
    all: bool,
    /// Continue after this queue, which the previous search printed
    #[arg(long, value_name = "QUEUE", default_value = "")]
    after: String,
    #[command(flatten)]
    common: Common,
}

impl Search {
    pub(crate) async fn run(self) -> Result<()> {
        self.common.store.using(async |store| self.search(&*store).await).await
    }

    async fn search(&self, store: &dyn Store) -> Result<()> {
        let text = self.text.trim();
        if text.is_empty() {
            return Err(Failure::usage(
                "TEXT is empty: write a key, its beginning, a task, or terms",
            ));
        }
        let terms = Terms::read(text);
        let asked = search::asked(store, terms.as_ref(), &self.after, |_| true).await?;
        let found = search::of_text(store, &asked, (text, terms.as_ref()), self.all).await?;
        if self.common.json {
            say_json(&found.document(&asked));
            return Ok(());
        }
        self.say(store, &found).await?;
        self.hint(&found, &asked);
        Ok(())
    }

    async fn say(&self, store: &dyn Store, found: &Found) -> Result<()> {
        let now = store.now().await?;
        if found.is_empty() {
            say(format!("nothing found in {} queues", found.queues));
        }
        if !found.lanes.is_empty() {
            say(table(&found.lanes, now));
        }
        for (title, rows) in [("dead:", &found.dead), ("jobs:", &found.tasks)] {
            if !rows.is_empty() {
                say(format!("{title}\n{}", jobs::table(rows, now)));
            }
        }
        Ok(())
    }

    fn hint(&self, found: &Found, asked: &Asked) {
        if !found.exact.is_empty() {
            let key = shell_word(self.text.trim());
            hint(format!("`seriatim key {key}` shows this key in all queues"));
        }
        if !found.cut.is_empty() {
            let mut queues: Vec<&str> = found.cut.iter().map(|cut| &*cut.queue).collect();
            queues.dedup();
            hint(format!("there may be more in {}", queues.join(", ")));
        }
        if found.large > 0 {
            hint("`--all` looks for the task in large queues too");
        }
        if let Some(next) = asked.next() {
            hint(format!("{} more queues: --after {next}", found.left_out));
        }
    }
}

fn table(lanes: &[(Arc<str>, LaneView)], now: Timestamp) -> Table<'_, (Arc<str>, LaneView)> {
    let key = |lane: &LaneView| one_line(lane.key.as_deref().unwrap_or_default());
    Table::of(lanes)
        .name("queue", |(queue, _)| queue)
        .text("key", |(_, lane)| cut(&key(lane), KEY_COLUMNS))
        .name("state", |(_, lane)| lane_state(lane, now))
        .number("jobs", |(_, lane)| lane.jobs)
        .number("failed", |(_, lane)| failures(lane.retry_count))
        .error("error", |(_, lane)| lane.error.as_deref())
}
