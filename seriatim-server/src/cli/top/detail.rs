//! One queue or lane in full, over the tables.

use std::sync::Arc;

use seriatim::store::{LaneId, LaneQuery, Store};

use crate::app::entity::Entity;
use crate::app::find;
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::base::text::one_line;
use crate::cli::output::{Result, Terminal};
use crate::cli::{lane_text, queue_text};

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Queue(Arc<str>),
    /// Of a queue; with its name for people.
    Lane(Arc<str>, LaneId, String),
}

/// What is shown of it.
pub(super) struct Detail {
    pub(super) target: Target,
    /// None before it is read.
    text: Option<String>,
    /// Lines above the first one on the screen.
    pub(super) above: usize,
}

impl Target {
    pub(super) fn title(&self) -> String {
        match self {
            Self::Queue(queue) => format!(" queue {} ", one_line(queue)),
            Self::Lane(_, _, name) => format!(" {name} "),
        }
    }

    /// Its text now.
    pub(super) async fn read(&self, store: &dyn Store) -> Result<String> {
        match self {
            Self::Queue(queue) => queue_text::in_full(store, queue).await,
            Self::Lane(queue, lane, _) => {
                let view = find::queue(store, queue).await?;
                let one = LaneQuery { lane: Some(*lane), rows_max: 1, ..LaneQuery::new(&**queue) };
                let Some(lane) = store.lanes(one).await?.rows.pop() else {
                    return Ok("none of its jobs waits or runs now".to_owned());
                };
                let payloads = Some(TABLE_PAYLOAD_BYTES_MAX);
                let entity = Entity::read(store, &view, lane, payloads).await?;
                let terminal = Terminal { colour: false, ..Terminal::of_stdout() };
                Ok(lane_text::in_full(queue, &entity, terminal))
            }
        }
    }
}

impl Detail {
    pub(super) fn of(target: Target) -> Self {
        Self { target, text: None, above: 0 }
    }

    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("looking at the store …")
    }

    /// Takes a new text, if it is of what is shown.
    pub(super) fn show(&mut self, target: &Target, text: String) {
        if self.target == *target {
            self.text = Some(text);
            self.scroll(0);
        }
    }

    /// Scrolls by this many lines; the last one stays on the screen.
    pub(super) fn scroll(&mut self, lines: isize) {
        let last = self.text().lines().count().saturating_sub(1);
        self.above = self.above.saturating_add_signed(lines).min(last);
    }
}
