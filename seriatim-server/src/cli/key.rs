//! `seriatim key`: one key in all queues.

use clap::{Arg, Args};
use seriatim::Timestamp;
use seriatim::store::Store;

use super::args::{Common, PageArgs, TimesArgs};
use super::{jobs, lane_text};
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::key::{self, InQueue};
use crate::base::text::one_line;
use crate::base::time::relative;
use crate::cli::output::{Failure, Result, Table, Terminal, hint, say, say_json};
use crate::journal::{self, OfKey, Told};

// The command and its argument have one name.
#[allow(clippy::struct_field_names)]
#[derive(Args)]
#[command(mut_args(only_of_events))]
pub(crate) struct Key {
    /// The key
    key: String,
    #[command(flatten)]
    common: Common,
    /// Show what happened to it instead, latest first: events of its jobs, and what people did
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    times: TimesArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// The options of a list.
fn only_of_events(argument: Arg) -> Arg {
    let of_list = ["since", "until", "limit", "after"];
    let is_one = of_list.contains(&argument.get_id().as_str());
    if is_one { argument.requires("events") } else { argument }
}

impl Key {
    pub(crate) async fn run(self) -> Result<()> {
        if self.events {
            let show = async |store: seriatim::SharedStore| self.show_events(&*store).await;
            return self.common.store.using(show).await;
        }
        let Self { key, common, .. } = self;
        let payload_bytes_max = (!common.json).then_some(TABLE_PAYLOAD_BYTES_MAX);
        let read = async |store: seriatim::SharedStore| {
            let wanted = key::Wanted::of(&key, payload_bytes_max);
            Ok::<_, Failure>(key::read(&*store, wanted, |_| true).await?)
        };
        let found = common.store.using(read).await?;
        if common.json {
            say_json(&found.document(key));
            return Ok(());
        }
        if found.queues.is_empty() {
            say(format!("no queue knows the key {:?}", one_line(&key)));
        }
        for (place, queue) in found.queues.iter().enumerate() {
            let space = if place == 0 { "" } else { "\n" };
            say(format!("{space}{}", in_words(queue, &found)));
        }
        if found.left_out > 0 {
            hint(format!(
                "{} queues were not searched: `seriatim lanes show QUEUE KEY`",
                found.left_out
            ));
        }
        Ok(())
    }

    async fn show_events(&self, store: &dyn Store) -> Result<()> {
        let now = store.now().await?;
        let (since, until) = self.times.bounds(now);
        let wanted = OfKey {
            key: &self.key,
            since,
            until,
            after: self.page.after.as_deref(),
            rows_max: self.page.rows_max(),
            deeds: true,
        };
        // A command keeps no journal itself.
        let story = journal::of_key(store, wanted, |_| false, |_| true).await?;
        if self.common.json {
            say_json(&story.document());
            return Ok(());
        }
        let none = match story.next {
            Some(_) => "nothing in the part that was read",
            None => "nothing is remembered",
        };
        say(table(&story.rows, now).or(none));
        if !story.without_journal.is_empty() {
            let queues = story.without_journal.join(", ");
            hint(format!(
                "no journal of {queues}: only what the store knows of jobs that it still has"
            ));
        }
        if story.not_asked > 0 {
            let advice = "`seriatim jobs events --queue QUEUE --key KEY` searches one";
            hint(format!("the journals of {} queues were not searched: {advice}", story.not_asked));
        }
        if let Some(next) = story.next {
            hint(format!("more: --after {next}"));
        }
        Ok(())
    }
}

fn table(rows: &[(Timestamp, Told)], now: Timestamp) -> Table<'_, (Timestamp, Told)> {
    fn text<'a>(told: &'a Told, of_event: &str, of_deed: &str) -> &'a str {
        match told {
            Told::Event(event) => event[of_event].as_str().unwrap_or_default(),
            Told::Deed(deed) => deed.on.get(of_deed).map(String::as_str).unwrap_or_default(),
        }
    }
    Table::of(rows)
        .name("when", |(at, _)| relative(now, *at))
        .name("queue", |(_, told)| text(told, "queue", "queue"))
        .name("event", |(_, told)| match told {
            Told::Event(_) => text(told, "event", ""),
            Told::Deed(deed) => &deed.action,
        })
        .name("job", |(_, told)| text(told, "job_id", "job"))
        .number("attempt", |(_, told)| match told {
            Told::Event(event) => {
                event["attempt"].as_u64().map_or_else(String::new, |n| n.to_string())
            }
            Told::Deed(_) => String::new(),
        })
        .text("by", |(_, told)| match told {
            Told::Event(_) => text(told, "node", ""),
            Told::Deed(deed) => &deed.who,
        })
        .text("reason", |(_, told)| text(told, "", "reason"))
        .error("error", |(_, told)| match told {
            Told::Event(event) => event["error"].as_str().map(str::to_owned),
            Told::Deed(deed) => deed.is_refused().then(|| deed.result()),
        })
}

fn in_words(found: &InQueue, all: &key::OfKey) -> String {
    let (name, terminal) = (&found.queue.queue.name, Terminal::of_stdout());
    let mut text = match &found.entity {
        Some(entity) => lane_text::in_full(name, entity, terminal),
        None => format!("nothing of {name} waits or runs"),
    };
    if !found.ended.is_empty() {
        let table = jobs::table(&found.ended, all.now);
        text += &format!("\n\nlast ended:\n{}", table.render(terminal));
    }
    text
}
