//! The key of what pages give to their visitors: one for all nodes of a store, in a note there. So what a page of one node
//! gave is known to every other one, however its visitors have logged in.

use std::sync::Mutex;
use std::time::Duration;

use seriatim::store::{Lead, NodeId, Note, NoteQuery, Store};
use seriatim::{Error, ErrorKind};
use tokio::time::{Instant, sleep, timeout};

use crate::base::lock::lock;
use crate::base::random::random;

/// A key, to derive others from.
pub(super) type Key = [u8; 32];

/// The note, with the key in hexadecimal digits.
const NOTE: &str = "page-key";
/// How long it is used without a look at the store: one that was emptied may have got another key from another node.
const FRESH_FOR: Duration = Duration::from_secs(60);
/// How long a request waits for the store.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a node may take to make a key, and how often others look whether it has.
const LEADS_FOR: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The key, as far as it is known here.
#[derive(Default)]
pub(super) struct PageKey {
    known: Mutex<Option<Known>>,
    making: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct Known {
    key: Key,
    looked_at: Instant,
}

impl PageKey {
    /// The key that is known without a look at the store.
    pub(super) fn known(&self) -> Option<Key> {
        lock(&self.known).map(|known| known.key)
    }

    /// The key; none while the store does not answer and it is not known here.
    pub(super) async fn get(&self, store: &dyn Store, node: &str) -> Option<Key> {
        let own = {
            let mut known = lock(&self.known);
            if let Some(known) = known.as_mut() {
                if known.looked_at.elapsed() < FRESH_FOR {
                    return Some(known.key);
                }
                // One request looks; the others go on with what is known.
                known.looked_at = Instant::now();
            }
            known.map(|known| known.key)
        };
        let looked = timeout(WAIT_MAX, self.look(store, node, own)).await;
        match looked {
            Ok(Ok(key)) => {
                *lock(&self.known) = Some(Known { key, looked_at: Instant::now() });
                Some(key)
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read the key of pages");
                own
            }
            Err(_) => own,
        }
    }

    /// The key of the store. The first node makes it: of `own`, if it has one, so that pages that are open stay good.
    async fn look(&self, store: &dyn Store, node: &str, own: Option<Key>) -> seriatim::Result<Key> {
        let _one = self.making.lock().await;
        loop {
            if let Some(key) = read(store).await? {
                return Ok(key);
            }
            let (role, node) = ("page-key".into(), NodeId::from(node));
            if store.lead(Lead { now: None, role, node, ttl: LEADS_FOR }).await? {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        // The leader before may have made it.
        if let Some(key) = read(store).await? {
            return Ok(key);
        }
        let key = match own {
            Some(key) => key,
            None => random().map_err(|why| Error::new(ErrorKind::Unavailable, why))?,
        };
        store
            .write_notes(vec![Note::new(NOTE, blake3::Hash::from_bytes(key).to_hex().as_str())])
            .await?;
        Ok(key)
    }
}

async fn read(store: &dyn Store) -> seriatim::Result<Option<Key>> {
    let note = store.read_notes(NoteQuery::only(NOTE)).await?.pop();
    let key = note.and_then(|note| blake3::Hash::from_hex(note.value).ok());
    Ok(key.map(Key::from))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seriatim::SharedStore;
    use seriatim::store::{Memory, Notebook};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_nodes_of_a_store_have_one_key_also_if_it_was_emptied() {
        let store: SharedStore = Arc::new(Memory::new());
        let (a, b) = (PageKey::default(), PageKey::default());
        let both = async || tokio::join!(a.get(&*store, "a"), b.get(&*store, "b"));
        let (of_a, of_b) = both().await;
        assert!(of_a.is_some() && of_a == of_b);
        store.delete_notes(NoteQuery::only(NOTE)).await.unwrap();
        let other = PageKey::default();
        let new = other.get(&*store, "a").await;
        assert!(new.is_some() && new != of_a, "nobody can guess it");
        tokio::time::advance(FRESH_FOR).await;
        assert_eq!(both().await, (new, new));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_was_emptied_gets_the_key_of_its_nodes_back() {
        let (store, a) = (Memory::new(), PageKey::default());
        let key = a.get(&store, "a").await;
        store.delete_notes(NoteQuery::only(NOTE)).await.unwrap();
        tokio::time::advance(FRESH_FOR).await;
        assert_eq!(a.get(&store, "a").await, key);
        assert_eq!(PageKey::default().get(&store, "b").await, key);
    }
}
