//! A server, alone or a node of a cluster, and the connections to it.

use std::sync::{Arc, OnceLock};

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
    pub(super) fn new(address: Arc<str>, place: Place, options: &Options) -> Arc<Self> {
        let (line, options) = (Line::new(place), options.clone());
        Arc::new(Self { address, line, confirming: OnceLock::new(), options })
    }

    /// Where writes are confirmed; opened when it is first used.
    pub(super) fn confirming(&self) -> &Arc<Confirming> {
        self.confirming.get_or_init(|| Confirming::new(self.line.place().clone(), &self.options))
    }
}
