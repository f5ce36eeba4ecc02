//! Actions of the dashboard.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim::store::{LaneAction, Selected, Selection};
use seriatim::{SharedStore, store::LaneId};

use crate::app::act::{self, Bulk};
use crate::app::lanes::{self, OneLane};
use crate::app::running::Running;
use crate::base::text::{count, cut_middle};
use crate::cli::deed::Book;
use crate::cli::output::Result;

/// Columns that a message has for the name of a lane.
const NAME_COLUMNS: usize = 40;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    PauseQueue(Arc<str>, bool),
    PerformAllNow(Arc<str>),
    RequeueAll(Arc<str>),
    /// The queue, the lane, and its displayed name.
    Lane(Arc<str>, LaneId, String, LaneAction),
}

impl Action {
    pub(super) fn on_lane(one: &Running, action: LaneAction) -> Self {
        Self::Lane(one.queue.clone(), one.lane.lane, one.name(), action)
    }

    /// The confirmation question.
    pub(super) fn question(&self) -> String {
        match self {
            Self::PauseQueue(queue, _) | Self::Lane(queue, ..) => format!("change {queue}?"),
            Self::PerformAllNow(queue) => format!("make all waiting lanes of {queue} due now?"),
            Self::RequeueAll(queue) => format!("requeue the whole morgue of {queue}?"),
        }
    }

    /// What it is called, what it is done to, and that in words.
    fn deed(&self) -> (&'static str, BTreeMap<String, String>, String) {
        let (action, queue, lane) = match self {
            Self::PauseQueue(queue, true) => ("queue pause", queue, None),
            Self::PauseQueue(queue, false) => ("queue resume", queue, None),
            Self::PerformAllNow(queue) => ("queue perform-all-now", queue, None),
            Self::RequeueAll(queue) => ("morgue requeue", queue, None),
            Self::Lane(queue, lane, name, LaneAction::Pause) => {
                ("lane pause", queue, Some((lane, name)))
            }
            Self::Lane(queue, lane, name, LaneAction::Resume) => {
                ("lane resume", queue, Some((lane, name)))
            }
            Self::Lane(queue, lane, name, _) => ("lane retry", queue, Some((lane, name))),
        };
        let mut on = BTreeMap::from([("queue".to_owned(), queue.to_string())]);
        on.extend(lane.map(|(lane, _)| ("lane".to_owned(), lane.to_string())));
        let words = lane.map_or_else(|| queue.to_string(), |(_, name)| name.clone());
        (action, on, format!("top: {words}"))
    }

    /// Does it, and returns a message. If the audit log cannot be written, nothing is done.
    pub(super) async fn carry_out(self, store: &SharedStore, book: &Book) -> Result<String> {
        book.audited(&**store, self.deed(), self.done(store)).await
    }

    async fn done(&self, store: &SharedStore) -> Result<String> {
        match self {
            Self::PauseQueue(queue, paused) => {
                store.pause_queue(queue.clone(), *paused).await?;
                Ok(format!("{}: {queue}", if *paused { "paused" } else { "resumed" }))
            }
            Self::PerformAllNow(queue) => {
                let lanes = act::on_all(&**store, queue, LaneAction::RunNow).await?;
                Ok(format!("{} due now: {queue}", count(lanes, "lane")))
            }
            Self::RequeueAll(queue) => {
                let which = Selection::All;
                let selected = Selected { now: None, queue: queue.clone(), which };
                let jobs = act::repeat(&**store, Bulk::Requeue(selected)).await?;
                Ok(format!("{} requeued: {queue}", count(jobs, "job")))
            }
            Self::Lane(queue, lane, name, action) => {
                lanes::act(&**store, queue, OneLane::Lane(*lane), *action).await?;
                let done = match action {
                    LaneAction::Pause => "paused",
                    LaneAction::Resume => "resumed",
                    _ => "due now",
                };
                // What was done first: the line may be too short for a long key.
                Ok(format!("{done}: {}", cut_middle(name, NAME_COLUMNS)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim::store::LaneQuery;
    use seriatim::{Client, Job, store::Memory};

    #[tokio::test]
    async fn what_was_done_to_a_lane_is_told_of_its_key() {
        let store: SharedStore = Arc::new(Memory::new());
        let job = Job::new("orders", &1).unwrap().key("order-42");
        Client::new(store.clone()).push(job).await.unwrap();
        let lane = store.lanes(LaneQuery::new("orders")).await.unwrap().rows.remove(0);
        let one = Running { queue: "orders".into(), lane };
        let action = Action::on_lane(&one, LaneAction::Pause);
        let said = action.carry_out(&store, &Book::default()).await.unwrap();
        assert_eq!(said, "paused: key \"order-42\" of orders");
    }

    #[tokio::test]
    async fn what_is_done_here_is_audited_as_the_command_that_does_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = crate::config::Config::default();
        config.http.audit_file = Some(folder.path().join("audit.ndjson"));
        let store: SharedStore = Arc::new(Memory::new());
        Client::new(store.clone()).push(Job::new("orders", &1).unwrap().key("a")).await.unwrap();
        let pause = || Action::PauseQueue("orders".into(), true);
        pause().carry_out(&store, &Book::of(&config)).await.unwrap();
        let written = std::fs::read_to_string(folder.path().join("audit.ndjson")).unwrap();
        assert!(written.contains(r#""action":"queue pause""#), "{written}");
        let wanted = crate::app::deeds::Wanted { of: Some("orders"), ..Default::default() };
        let kept = crate::app::deeds::latest(&*store, wanted, 5).await.unwrap().entries;
        assert_eq!((kept.len(), &*kept[0].action), (1, "queue pause"));
        assert!(kept[0].who.starts_with("cli:"), "{}", kept[0].who);
        store.pause_queue("orders".into(), false).await.unwrap();
        config.http.audit_file = Some(folder.path().to_owned());
        let refused = pause().carry_out(&store, &Book::of(&config)).await.unwrap_err();
        assert!(refused.to_string().contains("nothing was done"), "{refused}");
        assert!(!store.queues().await.unwrap()[0].paused);
    }
}
