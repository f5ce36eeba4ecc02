//! The definitions of queues and routes, cached with their version.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::error::Try;
use super::pool::Answer;
use super::sql::Columns;
use crate::lock::lock;
use crate::stores::state::queues::Queues;
use crate::stores::state::{QueueRow, State};

/// The value of `paused` for a queue that is being deleted; 1 is a paused one.
pub(super) const CLOSING: i64 = 2;

/// Reads the version of the definitions.
pub(super) const STAMP: &str = "SELECT definitions FROM seriatim_meta WHERE id = 1";

pub(super) type Routes = Vec<(Option<String>, Option<String>)>;

/// The queues and routes as last read. They change rarely, and each change raises a version.
#[derive(Default)]
pub(super) struct Definitions(Mutex<Arc<Known>>);

#[derive(Default)]
pub(super) struct Known {
    pub stamp: i64,
    pub queues: Queues,
    pub routes: Arc<Routes>,
    /// The queues that have groups, or once had: lanes and dead jobs of some may be left.
    pub grouped: BTreeSet<u32>,
}

impl Definitions {
    /// The definitions as last read.
    pub(super) fn known(&self) -> Arc<Known> {
        lock(&self.0).clone()
    }

    pub(super) fn keep(&self, read: &Arc<Known>) {
        // A lower version is that of a replica that took over without the last changes.
        *lock(&self.0) = read.clone();
    }
}

impl Known {
    /// Reads them after their version: they may be newer, and are then read again by the next operation.
    pub(super) const SQL: &str = "SELECT definitions FROM seriatim_meta WHERE id = 1; \
         SELECT number, name, definition, declared, paused FROM seriatim_queue ORDER BY number; \
         SELECT node, grp FROM seriatim_route ORDER BY number; SELECT q FROM seriatim_grouped";

    /// The answers to [`Self::SQL`].
    pub(super) fn read(answers: Vec<Answer>) -> Try<Self> {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().map(|answer| answer.rows).unwrap_or_default();
        let stamp = next().into_iter().next().ok_or_else(super::sql::corrupt)?;
        let queue = |row| {
            let mut row = Columns::of(row);
            let (number, name) = (row.int()? as u32, row.text()?);
            let queue = row.json()?.ok_or_else(super::sql::corrupt)?;
            let (declared, paused) = (row.int()? != 0, row.int()?);
            let (paused, closing) = (paused != 0, paused == CLOSING);
            Ok(QueueRow { number, name, queue, declared, paused, closing })
        };
        let queues: Try<Queues> = next().into_iter().map(queue).collect();
        let owned = |text: Option<Arc<str>>| text.map(|text| text.to_string());
        let route = |row| {
            let mut row = Columns::of(row);
            Ok((owned(row.maybe_text()?), owned(row.maybe_text()?)))
        };
        let routes: Try<Routes> = next().into_iter().map(route).collect();
        let grouped = next().into_iter().map(|row| Ok(Columns::of(row).int()? as u32));
        let grouped: Try<BTreeSet<u32>> = grouped.collect();
        let stamp = Columns::of(stamp).int()?;
        Ok(Self { stamp, queues: queues?, routes: Arc::new(routes?), grouped: grouped? })
    }

    /// The definitions in a model that began with these.
    pub(super) fn changed(&self, state: &State) -> Self {
        let (queues, routes) = (state.queues.clone(), state.routes.clone());
        let is_grouped = |(number, row): &(&u32, &QueueRow)| {
            row.queue.groups.is_some() || self.grouped.contains(number)
        };
        let grouped = queues.iter().filter(is_grouped).map(|(number, _)| *number).collect();
        Self { stamp: self.stamp, queues, routes, grouped }
    }
}
