//! The state of the dashboard between frames, and the effect of keys.

use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use seriatim::store::LaneId;
use seriatim::store::{LaneAction, LaneState};

use super::actions::Action;
use super::sample::Sample;

/// The list that has the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Queues,
    Lanes,
}

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Quit,
    Do(Action),
}

/// The dashboard.
pub(super) struct State {
    /// The store, for display.
    pub(super) store: String,
    pub(super) colour: bool,
    pub(super) pane: Pane,
    pub(super) sample: Option<Sample>,
    pub(super) before: Option<Sample>,
    /// The last message: the result of an action, or why there is no sample.
    pub(super) said: Option<String>,
    /// Shows the keys instead of the tables.
    pub(super) shows_keys: bool,
    /// Waits for a yes.
    pub(super) asked: Option<Action>,
    /// The chosen rows, by name: a row may move before a key is pressed.
    queue: Option<Arc<str>>,
    lane: Option<LaneId>,
}

impl State {
    pub(super) fn new(store: String, colour: bool) -> Self {
        Self {
            store,
            colour,
            pane: Pane::Queues,
            sample: None,
            before: None,
            said: None,
            shows_keys: false,
            asked: None,
            queue: None,
            lane: None,
        }
    }

    pub(super) fn show(&mut self, sample: Sample) {
        self.before = self.sample.replace(sample);
        if self.queue_row().is_none() {
            self.queue = self
                .sample
                .as_ref()
                .and_then(|s| s.queues.first())
                .map(|of| of.stats.queue.clone());
        }
    }

    pub(super) fn queue_row(&self) -> Option<usize> {
        let (sample, chosen) = (self.sample.as_ref()?, self.queue.as_ref()?);
        sample.queues.iter().position(|of| of.stats.queue == *chosen)
    }

    pub(super) fn lane_row(&self) -> Option<usize> {
        let (sample, chosen) = (self.sample.as_ref()?, self.lane?);
        sample.lanes.iter().position(|shown| shown.one.lane.lane == chosen)
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Nothing;
        }
        let interrupt =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if let Some(action) = self.asked.take() {
            let yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
            self.said = (!yes).then(|| "nothing was done".to_owned());
            return if yes { Step::Do(action) } else { Step::Nothing };
        }
        if std::mem::take(&mut self.shows_keys) && !interrupt {
            return Step::Nothing;
        }
        match key.code {
            _ if interrupt => Step::Quit,
            KeyCode::Char('?') => {
                self.shows_keys = true;
                Step::Nothing
            }
            KeyCode::Char('q') | KeyCode::Esc => Step::Quit,
            KeyCode::Tab | KeyCode::BackTab => self.other_pane(),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Char('p') => self.pause(),
            KeyCode::Char('r') => self.retry(),
            KeyCode::Char('m') => self.requeue(),
            _ => Step::Nothing,
        }
    }

    fn other_pane(&mut self) -> Step {
        self.pane = match self.pane {
            Pane::Queues => Pane::Lanes,
            Pane::Lanes => Pane::Queues,
        };
        if self.pane == Pane::Lanes && self.lane_row().is_none() {
            self.choose(0);
        }
        Step::Nothing
    }

    /// Moves the choice by so many rows; to the first if nothing is chosen.
    fn choose(&mut self, rows: isize) -> Step {
        let Some(sample) = &self.sample else { return Step::Nothing };
        let moved = |row: Option<usize>, count: usize| {
            row.map_or(0, |row| row.saturating_add_signed(rows)).min(count.saturating_sub(1))
        };
        match self.pane {
            Pane::Queues => {
                let row = moved(self.queue_row(), sample.queues.len());
                self.queue = sample.queues.get(row).map(|of| of.stats.queue.clone());
            }
            Pane::Lanes => {
                let row = moved(self.lane_row(), sample.lanes.len());
                self.lane = sample.lanes.get(row).map(|shown| shown.one.lane.lane);
            }
        }
        Step::Nothing
    }

    fn pause(&mut self) -> Step {
        let Some(sample) = &self.sample else { return Step::Nothing };
        match self.pane {
            Pane::Queues => {
                let queue = self.queue_row().and_then(|row| sample.queues.get(row));
                queue.map_or(Step::Nothing, |of| {
                    Step::Do(Action::PauseQueue(of.stats.queue.clone(), !of.stats.paused))
                })
            }
            Pane::Lanes => {
                let lane = self.lane_row().and_then(|row| sample.lanes.get(row));
                lane.map_or(Step::Nothing, |shown| {
                    let paused = shown.one.lane.state == LaneState::Paused;
                    let action = if paused { LaneAction::Resume } else { LaneAction::Pause };
                    Step::Do(Action::on_lane(&shown.one, action))
                })
            }
        }
    }

    fn retry(&mut self) -> Step {
        let Some(sample) = &self.sample else { return Step::Nothing };
        match self.pane {
            Pane::Queues => match (self.queue_row(), &self.queue) {
                (Some(_), Some(queue)) => self.ask(Action::PerformAllNow(queue.clone())),
                _ => Step::Nothing,
            },
            Pane::Lanes => {
                let lane = self.lane_row().and_then(|row| sample.lanes.get(row));
                lane.map_or(Step::Nothing, |shown| {
                    Step::Do(Action::on_lane(&shown.one, LaneAction::RunNow))
                })
            }
        }
    }

    /// Requeues the morgue of the chosen queue, or of the chosen lane's.
    fn requeue(&mut self) -> Step {
        let Some(sample) = &self.sample else { return Step::Nothing };
        let queue = match self.pane {
            Pane::Queues => self.queue.clone().filter(|_| self.queue_row().is_some()),
            Pane::Lanes => {
                let lane = self.lane_row().and_then(|row| sample.lanes.get(row));
                lane.map(|shown| shown.one.queue.clone())
            }
        };
        queue.map_or(Step::Nothing, |queue| self.ask(Action::RequeueAll(queue)))
    }

    fn ask(&mut self, action: Action) -> Step {
        self.asked = Some(action);
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    use crate::app::figures::Figures;
    use seriatim::store::{Claim, Heartbeat, Lease, NodeInfo, QueueStats};
    use seriatim::{Client, Job, SharedStore, Timestamp, store::Memory};

    fn sample(names: &[&str]) -> Sample {
        let queue = |name: &&str| Figures {
            stats: QueueStats { queue: (*name).into(), ..QueueStats::default() },
            prefetched: 0,
        };
        Sample {
            now: Timestamp::default(),
            queues: names.iter().map(queue).collect(),
            lanes: Vec::new(),
            nodes: Vec::new(),
        }
    }

    fn press(state: &mut State, key: char) -> Step {
        state.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
    }

    #[test]
    fn the_choice_follows_its_queue_and_not_its_row() {
        let mut state = State::new("memory:".to_owned(), false);
        state.show(sample(&["b", "c"]));
        press(&mut state, 'j');
        state.show(sample(&["a", "b", "c"]));
        assert_eq!(press(&mut state, 'p'), Step::Do(Action::PauseQueue("c".into(), true)));
        state.show(sample(&["a"]));
        assert_eq!(press(&mut state, 'p'), Step::Do(Action::PauseQueue("a".into(), true)));
    }

    #[tokio::test]
    async fn what_is_done_to_a_lane_is_told_by_its_key() {
        let store: SharedStore = Arc::new(Memory::new());
        let node = NodeInfo::new("n".into(), Duration::from_secs(60));
        let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        let job = Job::new("orders", &1).unwrap().key("order-7");
        Client::new(store.clone()).push(job).await.unwrap();
        let claim = Claim::new("orders", node.id, 1, Lease::Node { ttl: Duration::from_secs(60) });
        store.claim(claim).await.unwrap();
        let mut state = State::new("memory:".to_owned(), false);
        state.show(Sample::take(&*store).await.unwrap());
        state.other_pane();
        let Step::Do(action) = press(&mut state, 'p') else { panic!("nothing was done") };
        assert_eq!(
            action.carry_out(&store, &crate::cli::deed::Book::default()).await.unwrap(),
            "key \"order-7\" of orders: paused"
        );
    }

    #[test]
    fn what_touches_a_whole_queue_is_asked_first() {
        let mut state = State::new("memory:".to_owned(), false);
        state.show(sample(&["a"]));
        assert_eq!(press(&mut state, 'm'), Step::Nothing);
        assert_eq!(press(&mut state, 'n'), Step::Nothing);
        assert_eq!(press(&mut state, 'r'), Step::Nothing);
        assert_eq!(press(&mut state, 'y'), Step::Do(Action::PerformAllNow("a".into())));
        assert_eq!(press(&mut state, '?'), Step::Nothing);
        assert!(state.shows_keys);
        assert_eq!(press(&mut state, 'q'), Step::Nothing, "it closes the keys");
        assert_eq!(press(&mut state, 'q'), Step::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(interrupt), Step::Quit);
    }
}
