//! The places of connections: a limit for all, and a lower one for one address or one token. Who has not yet said who they
//! are gives way to others.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::base::lock::lock;

/// Most connections.
const ALL_MAX: usize = 1_000;
/// Most of these of one address, and of one token. A token is known after the greeting only.
pub(super) const OF_ONE_MAX: usize = 800;

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    /// See [`crate::http::site`].
    Address(IpAddr),
    Token(Arc<str>),
}

#[derive(Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    of: HashMap<Party, usize>,
    /// Connections whose client has not answered the greeting, the oldest first.
    silent: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    next: u64,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    party: Party,
    /// Its number among the silent ones, and its sign to close.
    silent: Option<(u64, Arc<Notify>)>,
}

impl Places {
    /// A place for a connection of this address, whose client is silent yet. If there is none, the silent client that waits
    /// longest loses its own: one of this address if that has too many, else one of the address with most of them. The error
    /// says why there is none.
    pub(super) fn connect(self: &Arc<Self>, address: IpAddr) -> Result<Place, String> {
        let mut taken = lock(&self.0);
        let party = Party::Address(address);
        if taken.count(&party) >= OF_ONE_MAX && !taken.close_one(address) {
            return Err(format!("too many connections of this address: {OF_ONE_MAX} at most"));
        }
        if taken.all() >= ALL_MAX {
            let most = taken.silent.iter().max_by_key(|(_, silent)| silent.len());
            let most = most.map(|(address, _)| *address);
            if !most.is_some_and(|address| taken.close_one(address)) {
                return Err(format!("too many connections: {ALL_MAX} at most"));
            }
        }
        let (number, sign) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        taken.silent.entry(address).or_default().insert(number, sign.clone());
        *taken.of.entry(party.clone()).or_default() += 1;
        drop(taken);
        Ok(Place { places: self.clone(), party, silent: Some((number, sign)) })
    }

    /// One more place for a connection with this token. The error says why there is none.
    pub(super) fn greet(self: &Arc<Self>, token: Arc<str>) -> Result<Place, String> {
        let (mut taken, party) = (lock(&self.0), Party::Token(token));
        if taken.count(&party) >= OF_ONE_MAX {
            return Err(format!("too many connections of this token: {OF_ONE_MAX} at most"));
        }
        *taken.of.entry(party.clone()).or_default() += 1;
        drop(taken);
        Ok(Place { places: self.clone(), party, silent: None })
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).all()
    }
}

impl Taken {
    fn count(&self, party: &Party) -> usize {
        self.of.get(party).copied().unwrap_or_default()
    }

    /// Each connection has an address.
    fn all(&self) -> usize {
        let of_addresses = self.of.iter().filter(|(party, _)| matches!(party, Party::Address(_)));
        of_addresses.map(|(_, count)| count).sum()
    }

    fn leave(&mut self, party: &Party) {
        if let Some(of_one) = self.of.get_mut(party) {
            *of_one -= 1;
            if *of_one == 0 {
                self.of.remove(party);
            }
        }
    }

    /// Closes the silent connection of this address that waits longest, whose place is free then. Whether there is one.
    fn close_one(&mut self, address: IpAddr) -> bool {
        let Some(silent) = self.silent.get_mut(&address) else { return false };
        let Some((_, sign)) = silent.pop_first() else { return false };
        if silent.is_empty() {
            self.silent.remove(&address);
        }
        self.leave(&Party::Address(address));
        sign.notify_one();
        true
    }

    /// It is no longer silent; false if it was closed as such.
    fn speaks(&mut self, party: &Party, number: u64) -> bool {
        let Party::Address(address) = party else { return true };
        let Some(silent) = self.silent.get_mut(address) else { return false };
        let was_silent = silent.remove(&number).is_some();
        if silent.is_empty() {
            self.silent.remove(address);
        }
        was_silent
    }
}

impl Place {
    /// Keeps the place once the client has said who it is. False if the connection was closed for another one before.
    pub(super) fn keep(&mut self) -> bool {
        let Some((number, sign)) = self.silent.take() else { return true };
        let is_kept = lock(&self.places.0).speaks(&self.party, number);
        if !is_kept {
            // So that it is not given back twice.
            self.silent = Some((number, sign));
        }
        is_kept
    }

    /// Ready when another connection got its place.
    pub(super) fn closed(&self) -> Arc<Notify> {
        self.silent.as_ref().map_or_else(Arc::default, |(_, sign)| sign.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.0);
        let silent = self.silent.take();
        if silent.is_none_or(|(number, _)| taken.speaks(&self.party, number)) {
            taken.leave(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// So many connections that have said who they are.
    fn greeted(places: &Arc<Places>, of: IpAddr, count: usize) -> Vec<Place> {
        let connect = |_| {
            let mut place = places.connect(of).unwrap();
            assert!(place.keep());
            place
        };
        (0..count).map(connect).collect()
    }

    #[test]
    fn one_address_or_token_leaves_places_to_others_and_all_come_back() {
        let places = Arc::new(Places::default());
        let mut first = greeted(&places, address(1), OF_ONE_MAX);
        let told = places.connect(address(1)).err().unwrap();
        assert_eq!(told, "too many connections of this address: 800 at most");
        let others = greeted(&places, address(2), ALL_MAX - OF_ONE_MAX);
        let told = places.connect(address(3)).err().unwrap();
        assert_eq!(
            (told.as_str(), places.count()),
            ("too many connections: 1000 at most", ALL_MAX)
        );
        // A token takes no place of a connection, which has one already.
        let token: Arc<str> = "secret".into();
        let tokens: Vec<Place> =
            (0..OF_ONE_MAX).map(|_| places.greet(token.clone()).unwrap()).collect();
        let told = places.greet(token).err().unwrap();
        assert_eq!(told, "too many connections of this token: 800 at most");
        first.pop();
        assert!(places.connect(address(3)).is_ok());
        drop((first, others, tokens));
        let taken = lock(&places.0);
        assert!(taken.all() == 0 && taken.of.is_empty() && taken.silent.is_empty());
    }

    #[tokio::test]
    async fn who_says_nothing_gives_way_the_oldest_of_the_address_with_most_first() {
        let places = Arc::new(Places::default());
        let silent = |of: u8, count: usize| -> Vec<Place> {
            (0..count).map(|_| places.connect(address(of)).unwrap()).collect()
        };
        let mut first = silent(1, OF_ONE_MAX);
        let own = silent(1, 1);
        first[0].closed().notified().await;
        assert!(!first[0].keep(), "its place is gone");
        let (second, third) = (silent(2, ALL_MAX - OF_ONE_MAX), silent(3, 2));
        for place in &first[1..3] {
            place.closed().notified().await;
        }
        assert!(first[3].keep());
        assert_eq!(places.count(), ALL_MAX);
        drop((first, own, second, third));
        let taken = lock(&places.0);
        assert!(taken.all() == 0 && taken.of.is_empty() && taken.silent.is_empty());
    }
}
