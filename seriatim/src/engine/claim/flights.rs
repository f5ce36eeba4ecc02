//! The claims on their way to the store.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::contract::Claimed;
use crate::engine::claim::buffer::Want;
use crate::model::{NodeId, Result};

/// An answered claim.
pub(super) struct Landed {
    pub(super) place: usize,
    pub(super) want: Want,
    /// The node that claimed.
    pub(super) node: NodeId,
    pub(super) answer: Result<Claimed>,
}

/// Claims whose answers the fetcher has not handled yet.
#[derive(Default)]
pub(super) struct Flights {
    on_their_way: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// Those that were answered while the fetcher waited for another call.
    answered: VecDeque<Landed>,
}

impl Flights {
    pub(super) fn push(&mut self, flight: BoxFuture<'static, Landed>) {
        self.on_their_way.push(flight);
    }

    pub(super) fn len(&self) -> usize {
        self.on_their_way.len() + self.answered.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is an answer to handle.
    pub(super) fn has_answer(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The next answer; `None` if there is no claim. May be dropped: no answer is lost.
    pub(super) async fn next(&mut self) -> Option<Landed> {
        match self.answered.pop_front() {
            Some(landed) => Some(landed),
            None => self.on_their_way.next().await,
        }
    }

    /// Waits for another call of the store's, while the claims go on: one of them may hold the only connection, and is
    /// carried out only while it is polled.
    pub(super) async fn beside<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            tokio::select! {
                biased;
                answer = &mut call => return answer,
                Some(landed) = self.on_their_way.next() => self.answered.push_back(landed),
            }
        }
    }
}
