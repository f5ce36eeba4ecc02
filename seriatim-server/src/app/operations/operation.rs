//! An operation: what is done, how far it is, and who began it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::Timestamp;
use seriatim::store::NoteQuery;

use super::action::Action;
use super::wish::Wish;
use crate::app::deeds::Deed;
use crate::base::text::{grouped, one_line};
use crate::base::time::absolute;

/// An operation, as every node shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Operation {
    pub(crate) id: String,
    /// What is done; without jobs and lanes that were named one by one
    pub(crate) what: Wish,
    /// The name of the token, or of the user at a command line
    pub(crate) who: String,
    /// When it was begun, in UTC
    pub(crate) created_at: String,
    /// When its first step may begin: deletions from pages wait, so that they can be undone
    pub(crate) starts_at: String,
    pub(crate) state: State,
    /// How many there were when it was begun
    pub(crate) expected: u64,
    /// Whether there were more
    pub(crate) expected_more: bool,
    /// How many were read
    pub(crate) looked_at: u64,
    /// How many were changed
    pub(crate) count: u64,
    /// Why it failed
    pub(crate) error: Option<String>,
    pub(crate) ended_at: Option<String>,
    pub(crate) stopped_by: Option<String>,
}

/// An operation with what only its runner needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) operation: Operation,
    /// The queue of the next step; that of the operation if unset.
    #[serde(default)]
    pub(super) queue: String,
    /// The queues behind it, the last first, and the rows of each to look at.
    #[serde(default)]
    pub(super) rest: Vec<(String, u64)>,
    /// Where the next step begins.
    pub(super) after: Option<String>,
    /// Rows of the queue that are left to look at.
    pub(super) rows_left: u64,
    /// The process that carries it out; empty if none does.
    pub(super) runner: String,
    /// When it wrote last, in microseconds.
    pub(super) beat: i64,
    /// When the rate allows the next step, in microseconds.
    #[serde(default)]
    pub(super) next_at: i64,
    /// How many steps were written down.
    #[serde(default)]
    pub(super) steps: u64,
}

impl Record {
    /// Goes on to the next queue. Whether there is one.
    pub(super) fn next_queue(&mut self) -> bool {
        self.after = None;
        let next = self.rest.pop();
        let is_some = next.is_some();
        (self.queue, self.rows_left) = next.unwrap_or_default();
        is_some
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum State {
    /// Until `starts_at`
    Waiting,
    Running,
    Done,
    Stopped,
    Failed,
}

/// Of one operation: the record, and what stands below it. `0` follows `/`.
pub(super) fn range(prefix: &str, id: &str) -> NoteQuery {
    NoteQuery::new(format!("{prefix}{id}")..format!("{prefix}{id}0"))
}

impl State {
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl Operation {
    /// How it ended, for the audit.
    pub(super) fn deed(&self, now: Timestamp) -> Deed {
        let (place, queues) = self.what.place();
        let key = self.what.key.as_ref();
        let named = [(place, Some(&queues)), ("key", key), ("operation", Some(&self.id))];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, one_line(value?))));
        let by = self.stopped_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        Deed {
            at: absolute(now),
            who: self.who.clone(),
            role: None,
            from: None,
            action: format!("operation {}{by}", self.state.name()),
            on: named.map(|(name, value)| (name.to_owned(), value)).collect(),
            asked: Some(self.what.in_words()),
            status: if self.error.is_some() { 500 } else { 200 },
            count: Some(self.count),
            ..Deed::default()
        }
    }

    /// Whether a caller may see it: one who may use all of its queues.
    pub(crate) fn is_within(&self, may_use: impl Fn(&str) -> bool) -> bool {
        self.what.names().iter().all(|name| may_use(name))
    }

    /// Whether it paused the keys of the queue by a name or beginning that this one has. Others may have been among
    /// those that it paused: what is named one by one is forgotten, and states change.
    pub(crate) fn has_paused(&self, queue: &str, key: &str) -> bool {
        let wish = &self.what;
        let is_key = wish.key.as_deref().map(|named| named == key);
        let begins = wish.prefix.as_deref().map(|prefix| key.starts_with(prefix));
        let is_named = is_key.into_iter().chain(begins).min().unwrap_or_default();
        let is_done = self.count > 0 && wish.lane_filters().next().is_none();
        let is_there = wish.names().iter().any(|name| name == queue);
        wish.action == Action::Pause && is_there && is_done && is_named
    }

    /// How many of how many, in words: `3,000 of 10,240 dead jobs requeued`.
    pub(crate) fn progress(&self) -> String {
        let action = self.what.action;
        let (count, of) = (grouped(self.count), grouped(self.expected));
        let of = if self.expected_more { format!("over {of}") } else { of };
        let objects = match self.expected_more {
            true => action.objects(),
            false => action.objects_of(self.expected),
        };
        format!("{count} of {of} {} {}", objects, action.done())
    }
}
