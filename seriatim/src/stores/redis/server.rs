//! A server, alone or a node of a cluster, and the connections to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::address::Options;
use super::confirming::Confirming;
use super::line::{Line, Place};

pub(super) struct Node {
    pub(super) address: Arc<str>,
    pub(super) line: Arc<Line>,
    confirming: OnceLock<Arc<Confirming>>,
    options: Options,
}

impl Node {
    /// Its answers take at most so long.
    pub(super) fn new(
        address: Arc<str>,
        place: Place,
        options: &Options,
        within: Duration,
    ) -> Arc<Self> {
        let (line, options) = (Line::new(place, within), options.clone());
        Arc::new(Self { address, line, confirming: OnceLock::new(), options })
    }

    /// Where writes are confirmed; opened when it is first used.
    pub(super) fn confirming(&self) -> &Arc<Confirming> {
        self.confirming.get_or_init(|| Confirming::new(&self.line, &self.options))
    }
}
