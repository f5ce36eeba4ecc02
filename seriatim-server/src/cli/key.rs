//! `seriatim key`: one key in all queues.

use clap::Args;

use super::args::Common;
use super::{jobs, lane_text};
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::key::{self, InQueue};
use crate::base::text::one_line;
use crate::cli::output::{Failure, Result, Terminal, hint, say, say_json};

#[derive(Args)]
pub(crate) struct Key {
    /// The key
    key: String,
    #[command(flatten)]
    common: Common,
}

impl Key {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { key, common } = self;
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
                "{} queues were not asked: `seriatim lanes show QUEUE KEY`",
                found.left_out
            ));
        }
        Ok(())
    }
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
