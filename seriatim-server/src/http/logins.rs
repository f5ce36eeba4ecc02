//! Log-ins that failed: counted, and limited by address.
//!
//! A token that cannot be guessed is always heard: who shares an address with a guesser, or comes by the same proxy, works
//! on. A shorter one is not, while its address guesses: if a right guess were answered differently, guessing would go on
//! at any rate.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::auth::KnownToken;
use super::limits::{LOGINS_ADDRESSES_MAX, LOGINS_FAILED_MAX, LOGINS_WINDOW};

use crate::base::lock::lock;

/// What addresses tried.
#[derive(Default)]
pub(super) struct Logins(Mutex<HashMap<IpAddr, Tried>>);

struct Tried {
    /// When the window began in which failures are counted.
    since: Instant,
    failed: u32,
    /// Tokens that were used from here, by name.
    known: BTreeSet<String>,
    last: Instant,
}

impl Logins {
    /// Whether the token that was sent from there may be used. `token` is the one that it is, if it is any. What is left of
    /// the window, if it may not.
    ///
    /// An address beyond its limit may still use tokens that it has used before.
    pub(super) fn admit(&self, from: IpAddr, token: Option<&KnownToken>) -> Result<(), Duration> {
        if token.is_some_and(KnownToken::is_long) {
            return Ok(());
        }
        let (mut all, now) = (lock(&self.0), Instant::now());
        let token = token.map(|token| token.name.as_str());
        if token.is_none() && !all.contains_key(&from) && all.len() >= LOGINS_ADDRESSES_MAX {
            let silent = all.iter().min_by_key(|(_, tried)| tried.last).map(|(from, _)| *from);
            silent.and_then(|from| all.remove(&from));
        }
        let Some(token) = token else {
            let tried = all.entry(from).or_insert_with(|| Tried::new(now));
            tried.look(now)?;
            tried.failed += 1;
            return Ok(());
        };
        let room = all.len() < LOGINS_ADDRESSES_MAX;
        let Some(tried) = all.get_mut(&from) else {
            if room {
                all.entry(from).or_insert_with(|| Tried::new(now)).known.insert(token.to_owned());
            }
            return Ok(());
        };
        if !tried.known.contains(token) {
            tried.look(now)?;
            tried.known.insert(token.to_owned());
        }
        tried.last = now;
        Ok(())
    }
}

impl Tried {
    fn new(now: Instant) -> Self {
        Self { since: now, failed: 0, known: BTreeSet::new(), last: now }
    }

    fn look(&mut self, now: Instant) -> Result<(), Duration> {
        self.last = now;
        let age = now - self.since;
        if age >= LOGINS_WINDOW {
            (self.since, self.failed) = (now, 0);
        } else if self.failed >= LOGINS_FAILED_MAX {
            return Err(LOGINS_WINDOW - age);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::Scope;
    use super::*;
    use crate::config::Role;

    #[tokio::test(start_paused = true)]
    async fn who_guesses_is_stopped_and_who_shares_its_address_works_on() {
        let logins = Logins::default();
        let here = IpAddr::from([10, 0, 0, 1]);
        let token = |name: &str, secret: &str| {
            KnownToken::new(name.to_owned(), secret, Role::Reader, Scope::default())
        };
        let (ci, other) = (token("ci", "sixteen-letters-"), token("other", "sixteen-letters+"));
        let long = token("long", &"0123456789abcdef".repeat(2));
        assert_eq!(logins.admit(here, Some(&ci)), Ok(()));
        for _ in 0..LOGINS_FAILED_MAX {
            assert_eq!(logins.admit(here, None), Ok(()));
        }
        assert!(logins.admit(here, None).is_err());
        assert_eq!(logins.admit(here, Some(&ci)), Ok(()));
        assert!(logins.admit(here, Some(&other)).is_err(), "a right guess comes too late");
        assert_eq!(logins.admit(here, Some(&long)), Ok(()), "it was not guessed");
        assert_eq!(logins.admit(IpAddr::from([10, 0, 0, 2]), Some(&other)), Ok(()));
        tokio::time::advance(LOGINS_WINDOW).await;
        assert_eq!(logins.admit(here, Some(&other)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_addresses_are_remembered_than_the_limit_says() {
        let logins = Logins::default();
        for i in 0..LOGINS_ADDRESSES_MAX as u32 + 10 {
            let _ = logins.admit(IpAddr::from(i.to_be_bytes()), None);
        }
        assert_eq!(lock(&logins.0).len(), LOGINS_ADDRESSES_MAX);
    }
}
