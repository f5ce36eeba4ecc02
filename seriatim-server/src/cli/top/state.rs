//! The state of the dashboard between frames, and the effect of keys.

use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use seriatim::store::LaneId;
use seriatim::store::{LaneAction, LaneState};

use super::actions::Action;
use super::detail::{Detail, Target};
use super::filter::Filter;
use super::sample::{Sample, Shown};
use crate::app::figures::Figures;

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
    /// The details are of something else now.
    Look,
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
    pub(super) filter: Filter,
    /// Shows one row in full instead of the tables.
    pub(super) detail: Option<Detail>,
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
            filter: Filter::default(),
            detail: None,
            queue: None,
            lane: None,
        }
    }

    pub(super) fn show(&mut self, mut sample: Sample, detail: Option<(Target, String)>) {
        // Those of a name stay in their order: rows move only if something begins or ends.
        let mut queues = std::mem::take(&mut sample.queues);
        let nodes = |of: &Figures| sample.working_on(&of.stats.queue).count();
        queues.sort_by_cached_key(|of| trouble(of, nodes(of)));
        sample.queues = queues;
        self.before = self.sample.replace(sample);
        if let (Some(shown), Some((target, text))) = (&mut self.detail, detail) {
            shown.show(&target, text);
        }
        if self.queue_row().is_none() {
            let first = self.queues().next().map(|of| of.stats.queue.clone());
            self.queue = first;
        }
    }

    /// The rows that pass the filter.
    pub(super) fn queues(&self) -> impl Iterator<Item = &Figures> {
        let all = self.sample.iter().flat_map(|sample| &sample.queues);
        all.filter(|of| self.filter.queue(of))
    }

    /// The rows that pass the filter.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Shown> {
        let all = self.sample.iter().flat_map(|sample| &sample.lanes);
        all.filter(|shown| self.filter.lane(shown))
    }

    pub(super) fn queue_row(&self) -> Option<usize> {
        let chosen = self.queue.as_ref()?;
        self.queues().position(|of| of.stats.queue == *chosen)
    }

    pub(super) fn lane_row(&self) -> Option<usize> {
        let chosen = self.lane?;
        self.lanes().position(|shown| shown.one.lane.lane == chosen)
    }

    fn chosen_queue(&self) -> Option<&Figures> {
        self.queues().nth(self.queue_row()?)
    }

    fn chosen_lane(&self) -> Option<&Shown> {
        self.lanes().nth(self.lane_row()?)
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
        if self.filter.is_typed && !interrupt {
            self.filter.key(key.code);
            return Step::Nothing;
        }
        match key.code {
            _ if interrupt => Step::Quit,
            KeyCode::Char('?') => {
                self.shows_keys = true;
                Step::Nothing
            }
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter if self.detail.is_some() => {
                self.detail = None;
                Step::Look
            }
            KeyCode::Esc if self.filter.is_set() => {
                self.filter = Filter::default();
                Step::Nothing
            }
            KeyCode::Char('q') | KeyCode::Esc => Step::Quit,
            KeyCode::Enter => self.look(),
            KeyCode::Char('/') if self.detail.is_none() => {
                self.filter.is_typed = true;
                Step::Nothing
            }
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

    /// Opens the chosen row.
    fn look(&mut self) -> Step {
        let target = match self.pane {
            Pane::Queues => self.chosen_queue().map(|of| Target::Queue(of.stats.queue.clone())),
            Pane::Lanes => self.chosen_lane().map(|shown| {
                let (queue, lane) = (shown.one.queue.clone(), shown.one.lane.lane);
                Target::Lane(queue, lane, shown.one.name())
            }),
        };
        let Some(target) = target else { return Step::Nothing };
        self.detail = Some(Detail::of(target));
        Step::Look
    }

    /// Moves the choice by this many rows, to the first if nothing is chosen; or the details by lines.
    fn choose(&mut self, rows: isize) -> Step {
        if let Some(detail) = &mut self.detail {
            detail.scroll(rows);
            return Step::Nothing;
        }
        let moved = |row: Option<usize>, count: usize| {
            row.map_or(0, |row| row.saturating_add_signed(rows)).min(count.saturating_sub(1))
        };
        match self.pane {
            Pane::Queues => {
                let row = moved(self.queue_row(), self.queues().count());
                let queue = self.queues().nth(row).map(|of| of.stats.queue.clone());
                self.queue = queue;
            }
            Pane::Lanes => {
                let row = moved(self.lane_row(), self.lanes().count());
                let lane = self.lanes().nth(row).map(|shown| shown.one.lane.lane);
                self.lane = lane;
            }
        }
        Step::Nothing
    }

    fn pause(&self) -> Step {
        let action = match self.pane {
            Pane::Queues => self
                .chosen_queue()
                .map(|of| Action::PauseQueue(of.stats.queue.clone(), !of.stats.paused)),
            Pane::Lanes => self.chosen_lane().map(|shown| {
                let paused = shown.one.lane.state == LaneState::Paused;
                let action = if paused { LaneAction::Resume } else { LaneAction::Pause };
                Action::on_lane(&shown.one, action)
            }),
        };
        action.map_or(Step::Nothing, Step::Do)
    }

    fn retry(&mut self) -> Step {
        match self.pane {
            Pane::Queues => {
                let queue = self.chosen_queue().map(|of| of.stats.queue.clone());
                queue.map_or(Step::Nothing, |queue| self.ask(Action::PerformAllNow(queue)))
            }
            Pane::Lanes => self.chosen_lane().map_or(Step::Nothing, |shown| {
                Step::Do(Action::on_lane(&shown.one, LaneAction::RunNow))
            }),
        }
    }

    /// Requeues the morgue of the chosen queue, or of the chosen lane's.
    fn requeue(&mut self) -> Step {
        let queue = match self.pane {
            Pane::Queues => self.chosen_queue().map(|of| of.stats.queue.clone()),
            Pane::Lanes => self.chosen_lane().map(|shown| shown.one.queue.clone()),
        };
        queue.map_or(Step::Nothing, |queue| self.ask(Action::RequeueAll(queue)))
    }

    fn ask(&mut self, action: Action) -> Step {
        self.asked = Some(action);
        Step::Nothing
    }
}

/// The worst comes first: late without a node, retrying, dead jobs, late, paused, at work, idle.
fn trouble(of: &Figures, nodes: usize) -> u8 {
    let stats = &of.stats;
    match () {
        () if nodes == 0 && of.is_late() && !stats.paused => 0,
        () if stats.retrying > 0 => 1,
        () if stats.dead > 0 => 2,
        () if of.is_late() => 3,
        () if stats.paused => 4,
        () if stats.jobs > 0 => 5,
        () => 6,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
        state.show(sample(&["b", "c"]), None);
        press(&mut state, 'j');
        state.show(sample(&["a", "b", "c"]), None);
        assert_eq!(press(&mut state, 'p'), Step::Do(Action::PauseQueue("c".into(), true)));
        state.show(sample(&["a"]), None);
        assert_eq!(press(&mut state, 'p'), Step::Do(Action::PauseQueue("a".into(), true)));
    }

    #[test]
    fn queues_in_trouble_come_first_and_others_by_name() {
        let mut state = State::new("memory:".to_owned(), false);
        let mut sample = sample(&["a", "b", "c", "d", "e"]);
        (sample.queues[2].stats.dead, sample.queues[3].stats.retrying) = (1, 1);
        sample.queues[4].stats.lag = Duration::from_secs(60);
        state.show(sample, None);
        let names: Vec<&str> = state.queues().map(|of| &*of.stats.queue).collect();
        assert_eq!(names, ["e", "d", "c", "a", "b"], "of e nobody takes care");
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
        state.show(Sample::take(&*store).await.unwrap(), None);
        state.other_pane();
        let Step::Do(action) = press(&mut state, 'p') else { panic!("nothing was done") };
        assert_eq!(
            action.carry_out(&store, &crate::cli::deed::Book::default()).await.unwrap(),
            "paused: key \"order-7\" of orders"
        );
    }

    #[test]
    fn what_touches_a_whole_queue_is_asked_first() {
        let mut state = State::new("memory:".to_owned(), false);
        state.show(sample(&["a"]), None);
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

    async fn store_of_two_keys() -> SharedStore {
        let store: SharedStore = Arc::new(Memory::new());
        let node = NodeInfo::new("n".into(), Duration::from_secs(60));
        let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        for key in ["order-7", "Order-8"] {
            let job = Job::new("orders", &1).unwrap().key(key);
            Client::new(store.clone()).push(job).await.unwrap();
        }
        let claim = Claim::new("orders", node.id, 2, Lease::Node { ttl: Duration::from_secs(60) });
        store.claim(claim).await.unwrap();
        store
    }

    fn enter(state: &mut State) -> Step {
        state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE))
    }

    #[tokio::test]
    async fn enter_shows_the_chosen_lane_in_full_and_again_goes_back() {
        let store = store_of_two_keys().await;
        let mut state = State::new("memory:".to_owned(), false);
        state.show(Sample::take(&*store).await.unwrap(), None);
        state.other_pane();
        assert_eq!(enter(&mut state), Step::Look);
        let target = state.detail.as_ref().unwrap().target.clone();
        let text = target.read(&*store).await.unwrap();
        state.show(Sample::take(&*store).await.unwrap(), Some((target, text)));
        let shown = state.detail.as_ref().unwrap();
        assert!(shown.target.title().contains("order-7"), "{}", shown.target.title());
        let said = ["why", "runs on n", "token", "claimed:"];
        assert!(said.iter().all(|what| shown.text().contains(what)), "{}", shown.text());
        press(&mut state, 'j');
        assert_eq!(state.detail.as_ref().unwrap().above, 1);
        assert!(matches!(press(&mut state, 'p'), Step::Do(_)), "keys act on what is shown");
        assert_eq!(enter(&mut state), Step::Look);
        assert!(state.detail.is_none());
    }

    #[tokio::test]
    async fn a_filter_leaves_rows_that_contain_its_text() {
        let store = store_of_two_keys().await;
        let mut state = State::new("memory:".to_owned(), false);
        state.show(Sample::take(&*store).await.unwrap(), None);
        for letter in "/order-8".chars() {
            assert_eq!(press(&mut state, letter), Step::Nothing);
        }
        let keys = |state: &State| -> Vec<Arc<str>> {
            state.lanes().map(|shown| shown.one.lane.key.clone().unwrap()).collect()
        };
        assert!(matches!(keys(&state).as_slice(), [key] if **key == *"Order-8"));
        assert_eq!(state.queues().count(), 0, "no queue is called so");
        enter(&mut state);
        assert!(!state.filter.is_typed && state.filter.text() == "order-8");
        let escape = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!(state.key(escape), Step::Nothing, "it removes the filter");
        assert_eq!((keys(&state).len(), state.queues().count()), (2, 1));
        press(&mut state, '/');
        state.key(escape);
        assert!(!state.filter.is_typed);
        assert_eq!(state.key(escape), Step::Quit);
    }
}
