//! The key of what pages give to their visitors: one for all nodes of a store, made of its secret. So what a page of one node
//! gave is known to every other one, however its visitors have logged in.

use std::sync::Mutex;
use std::time::Duration;

use seriatim::store::{Secret, Store};
use tokio::time::{Instant, timeout};

use super::work::store_secret;
use crate::base::lock::lock;

/// A key, to derive others from.
pub(super) type Key = [u8; 32];

/// Keeps it apart from other uses of the secret.
const PURPOSE: &str = "seriatim 2026 dashboard pages";
/// How long it is used without a look at the store: one that was emptied may have got another secret from another node.
const FRESH_FOR: Duration = Duration::from_secs(60);
/// How long a request waits for the store.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The key, as far as it is known here.
#[derive(Default)]
pub(super) struct PageKey(Mutex<Option<Known>>);

#[derive(Clone, Copy)]
struct Known {
    secret: Secret,
    looked_at: Instant,
}

impl PageKey {
    /// The key that is known without a look at the store.
    pub(super) fn known(&self) -> Option<Key> {
        lock(&self.0).map(|known| key_of(known.secret))
    }

    /// The key; none while the store does not answer and it is not known here.
    pub(super) async fn get(&self, store: &dyn Store) -> Option<Key> {
        let own = {
            let mut known = lock(&self.0);
            if let Some(known) = known.as_mut() {
                if known.looked_at.elapsed() < FRESH_FOR {
                    return Some(key_of(known.secret));
                }
                // One request looks; the others go on with what is known.
                known.looked_at = Instant::now();
            }
            known.map(|known| known.secret)
        };
        let secret = match timeout(WAIT_MAX, store_secret(store, own)).await {
            Ok(Ok(secret)) => {
                *lock(&self.0) = Some(Known { secret, looked_at: Instant::now() });
                Some(secret)
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read the key of pages");
                own
            }
            Err(_) => own,
        };
        secret.map(key_of)
    }
}

fn key_of(secret: Secret) -> Key {
    blake3::derive_key(PURPOSE, &secret.0)
}

#[cfg(test)]
mod tests {
    use seriatim::store::Memory;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_nodes_of_a_store_have_one_key_also_if_it_was_emptied() {
        let (before, after) = (Memory::new(), Memory::new());
        let (a, b) = (PageKey::default(), PageKey::default());
        let key = a.get(&before).await;
        assert!(key.is_some() && b.get(&before).await == key);
        // Another node is the first that the emptied store hears of.
        let new = PageKey::default().get(&after).await;
        assert!(new.is_some() && new != key, "nobody can guess it");
        tokio::time::advance(FRESH_FOR).await;
        assert_eq!((a.get(&after).await, b.get(&after).await), (new, new));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_was_emptied_gets_the_key_of_its_nodes_back() {
        let (before, after, a) = (Memory::new(), Memory::new(), PageKey::default());
        let key = a.get(&before).await;
        tokio::time::advance(FRESH_FOR).await;
        assert_eq!(a.get(&after).await, key);
        assert_eq!(PageKey::default().get(&after).await, key);
    }
}
