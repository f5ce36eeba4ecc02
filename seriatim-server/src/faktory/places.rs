//! The places of connections: a limit for all, and a lower one for one address or one token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::base::lock::lock;

/// Most connections.
const ALL_MAX: usize = 1_000;
/// Most of these of one address, and of one token. A token is known after the greeting only.
pub(super) const OF_ONE_MAX: usize = 800;

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Address(IpAddr),
    Token(Arc<str>),
}

#[derive(Default)]
pub(super) struct Places {
    taken: Mutex<HashMap<Party, usize>>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    party: Party,
}

impl Places {
    /// A place for this party. The error says why there is none.
    pub(super) fn take(self: &Arc<Self>, party: Party) -> Result<Place, String> {
        let mut taken = lock(&self.taken);
        if matches!(party, Party::Address(_)) && all(&taken) >= ALL_MAX {
            return Err(format!("too many connections: {ALL_MAX} at most"));
        }
        let of_one = taken.entry(party.clone()).or_default();
        if *of_one >= OF_ONE_MAX {
            let whose = if matches!(party, Party::Token(_)) { "token" } else { "address" };
            return Err(format!("too many connections of this {whose}: {OF_ONE_MAX} at most"));
        }
        *of_one += 1;
        drop(taken);
        Ok(Place { places: self.clone(), party })
    }

    pub(super) fn count(&self) -> usize {
        all(&lock(&self.taken))
    }
}

/// Each connection has an address.
fn all(taken: &HashMap<Party, usize>) -> usize {
    let of_addresses = taken.iter().filter(|(party, _)| matches!(party, Party::Address(_)));
    of_addresses.map(|(_, count)| count).sum()
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        if let Some(of_one) = taken.get_mut(&self.party) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_address_or_token_leaves_places_to_others_and_all_come_back() {
        let places = Arc::new(Places::default());
        let address = |last: u8| Party::Address(Ipv4Addr::new(10, 0, 0, last).into());
        let mut first: Vec<Place> =
            (0..OF_ONE_MAX).map(|_| places.take(address(1)).unwrap()).collect();
        let told = places.take(address(1)).err().unwrap();
        assert_eq!(told, "too many connections of this address: 800 at most");
        let others: Vec<Place> =
            (OF_ONE_MAX..ALL_MAX).map(|_| places.take(address(2)).unwrap()).collect();
        let told = places.take(address(3)).err().unwrap();
        assert_eq!(
            (told.as_str(), places.count()),
            ("too many connections: 1000 at most", ALL_MAX)
        );
        // A token takes no place of a connection, which has one already.
        let token = Party::Token("secret".into());
        let tokens: Vec<Place> =
            (0..OF_ONE_MAX).map(|_| places.take(token.clone()).unwrap()).collect();
        let told = places.take(token).err().unwrap();
        assert_eq!(told, "too many connections of this token: 800 at most");
        first.pop();
        assert!(places.take(address(3)).is_ok());
        drop((first, others, tokens));
        assert!(places.count() == 0 && lock(&places.taken).is_empty());
    }
}
