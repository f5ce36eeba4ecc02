//! When each claim may have been settled first.

use std::collections::{BTreeMap, HashMap};

use seriatim::store::Token;

use super::facts::{Entity, Facts};

/// A token, when it may have been settled first, and when it or a higher one may have been.
type Ended = (Token, i64, i64);

/// The settles that were executed, or may have been.
pub(super) struct Settles<'f>(HashMap<&'f Entity, Vec<Ended>>);

impl<'f> Settles<'f> {
    pub(super) fn of(facts: &'f Facts<'_>) -> Self {
        let accepted = facts.settles.iter().filter(|settled| settled.accepted);
        let answered = accepted.map(|settled| (&settled.entity, settled.token, settled.sent_at));
        let maybe = facts.maybes.iter().map(|(at, entity, token, _)| (entity, *token, *at));
        let mut all: HashMap<&Entity, BTreeMap<Token, i64>> = HashMap::new();
        for (entity, token, at) in answered.chain(maybe) {
            let known = all.entry(entity).or_default().entry(token).or_insert(at);
            *known = at.min(*known);
        }
        Self(all.into_iter().map(|(entity, times)| (entity, with_first(&times))).collect())
    }

    /// When this claim may have been settled first.
    pub(super) fn own(&self, entity: &Entity, token: Token) -> Option<i64> {
        let settles = self.0.get(entity)?;
        let place = settles.binary_search_by_key(&token, |(token, ..)| *token).ok()?;
        Some(settles[place].1)
    }

    /// When this claim or a later one of the key may have been settled first.
    pub(super) fn own_or_later(&self, entity: &Entity, token: Token) -> Option<i64> {
        let settles = self.0.get(entity)?;
        let place = settles.partition_point(|(other, ..)| *other < token);
        settles.get(place).map(|(_, _, first)| *first)
    }
}

fn with_first(times: &BTreeMap<Token, i64>) -> Vec<Ended> {
    let mut first = i64::MAX;
    let descending = times.iter().rev().map(|(&token, &at)| {
        first = first.min(at);
        (token, at, first)
    });
    let mut all: Vec<Ended> = descending.collect();
    all.reverse();
    all
}
