//! The names of the queues whose lanes this process claimed, for the wake-ups of its settles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::contract::Wake;
use crate::lock::lock;
use crate::model::limits::QUEUES_MAX;
use crate::model::{Settlement, Turn};

/// By number. A number may be given to another queue later; then a wake-up is lost, and polling finds the lane.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<u32, Arc<str>>>);

impl Names {
    pub(super) fn learn(&self, turns: &[Turn]) {
        let mut names = lock(&self.0);
        for turn in turns {
            if names.get(&turn.lane.queue) != Some(&turn.queue) {
                if names.len() >= QUEUES_MAX as usize {
                    names.clear();
                }
                names.insert(turn.lane.queue, turn.queue.clone());
            }
        }
    }

    /// A wake-up for the queues of these turns.
    pub(super) fn wake_of(&self, turns: &[Settlement]) -> Wake {
        let names = lock(&self.0);
        let queues: Option<Vec<&str>> =
            turns.iter().map(|turn| names.get(&turn.lane.queue).map(|name| &**name)).collect();
        queues.map_or(Wake::All, Wake::of)
    }
}
