//! The tokens of each key, and when and how they were drawn.

use std::collections::{BTreeMap, HashMap};

use seriatim::store::Token;

use super::facts::{Entity, Facts};

/// What drew a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Claim,
    /// An expired claim was taken over.
    Rescue,
    /// A person released the claim.
    Person,
}

const BY: usize = By::Person as usize + 1;

/// A token of a key.
#[derive(Clone, Copy)]
pub(super) struct Draw {
    pub token: Token,
    pub at: i64,
    pub by: By,
    /// When this one or a higher one was drawn first, in each way.
    first: [i64; BY],
}

impl Draw {
    /// When this token or a higher one was drawn first in this way.
    pub(super) fn first_by(&self, by: By) -> i64 {
        self.first[by as usize]
    }

    /// When this token or a higher one was drawn first.
    pub(super) fn first(&self) -> i64 {
        self.first.into_iter().min().unwrap_or(i64::MAX)
    }
}

/// The tokens of all keys.
pub(super) struct Draws<'f>(HashMap<&'f Entity, Vec<Draw>>);

impl<'f> Draws<'f> {
    pub(super) fn of(facts: &'f Facts<'_>) -> Self {
        let mut all: HashMap<&Entity, BTreeMap<Token, (i64, By)>> = HashMap::new();
        let claims = facts.turns.iter().map(|t| (&t.entity, t.token, t.claimed_at, By::Claim));
        let taken = facts.taken.iter().map(|(entity, token, at, by)| (entity, *token, *at, *by));
        for (entity, token, at, by) in claims.chain(taken) {
            let known = all.entry(entity).or_default().entry(token).or_insert((at, by));
            *known = (known.0.min(at), known.1.max(by));
        }
        Self(all.into_iter().map(|(entity, draws)| (entity, with_first(&draws))).collect())
    }

    /// The next higher token of the key.
    pub(super) fn above(&self, entity: &Entity, token: Token) -> Option<&Draw> {
        let draws = self.0.get(entity)?;
        draws.get(draws.partition_point(|draw| draw.token <= token))
    }
}

/// The tokens of a key, in ascending order.
fn with_first(draws: &BTreeMap<Token, (i64, By)>) -> Vec<Draw> {
    let mut first = [i64::MAX; BY];
    let descending = draws.iter().rev().map(|(&token, &(at, by))| {
        let earliest = &mut first[by as usize];
        *earliest = at.min(*earliest);
        Draw { token, at, by, first }
    });
    let mut all: Vec<Draw> = descending.collect();
    all.reverse();
    all
}
