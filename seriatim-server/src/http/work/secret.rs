//! The secrets by which holders of claims are known.
//!
//! The secret of a claim is a keyed hash of what names it (lane, fencing token, bearer). The key is the
//! store's: so every server of the store knows the claims that any of them handed out, after a restart too,
//! and none of them keeps anything. The secret of the engine's own claims is never disclosed.

use std::sync::{PoisonError, RwLock};

use seriatim::store::{LaneId, Secret, Store, Token};
use seriatim::{Error, ErrorKind};

use super::super::problem::{Problem, Result};
use crate::base::random::random;

/// Keeps these hashes apart from whatever else the key may come to be used for.
const DOMAIN: &[u8] = b"seriatim claim 1";

/// What this process knows of the key.
#[derive(Default)]
pub(super) struct Secrets(RwLock<Option<Secret>>);

/// A claim, as a request names it.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) lane: LaneId,
    pub(super) token: Token,
    pub(super) secret: &'a str,
}

impl Secrets {
    /// The key, from the store if it is not known.
    pub(super) async fn key(&self, store: &dyn Store) -> Result<Secret> {
        match self.known() {
            Some(key) => Ok(key),
            None => self.learn(store).await,
        }
    }

    /// Asks the store. If it was emptied, earlier claims are reported as lost, not refused.
    pub(super) async fn learn(&self, store: &dyn Store) -> Result<Secret> {
        let key = store_secret(store, self.known()).await?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(key)
    }

    fn known(&self) -> Option<Secret> {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of the claims that was not handed out to this bearer with this secret. It does not ask
    /// whether the claim still stands, so that the answer reveals nothing about the claims of others.
    pub(super) async fn first_wrong<'a>(
        &self,
        store: &dyn Store,
        bearer: Option<&str>,
        claims: impl Iterator<Item = Named<'a>> + Clone,
    ) -> Result<Option<usize>> {
        let wrong = |key: Secret| claims.clone().position(|claim| !claim.is_right(key, bearer));
        if let Some(key) = self.known()
            && wrong(key).is_none()
        {
            return Ok(None);
        }
        // Another server may have handed it out after the store was emptied.
        self.learn(store).await.map(wrong)
    }
}

/// The secret of the store. One that was emptied has another one, or takes the one that was known here.
pub(in crate::http) async fn store_secret(
    store: &dyn Store,
    known: Option<Secret>,
) -> seriatim::Result<Secret> {
    let offered = match known {
        Some(secret) => secret,
        None => Secret(random().map_err(|why| Error::new(ErrorKind::Unavailable, why))?),
    };
    store.secret(offered).await
}

impl Named<'_> {
    /// Compares in constant time.
    fn is_right(&self, key: Secret, bearer: Option<&str>) -> bool {
        let right = seal(key, bearer, self.lane, self.token);
        blake3::Hash::from_hex(self.secret).is_ok_and(|said| said == right)
    }
}

/// The secret of a claim, as its holder gets it: 256 bits in hexadecimal digits.
pub(super) fn secret_of(key: Secret, bearer: Option<&str>, lane: LaneId, token: Token) -> String {
    seal(key, bearer, lane, token).to_hex().to_string()
}

fn seal(key: Secret, bearer: Option<&str>, lane: LaneId, token: Token) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    // All but the last part have one length, so that no two claims are the same text.
    hasher.update(DOMAIN);
    hasher.update(&lane.queue.to_le_bytes());
    hasher.update(&lane.shard.to_le_bytes());
    hasher.update(&lane.number.to_le_bytes());
    hasher.update(&token.0.to_le_bytes());
    hasher.update(&[u8::from(bearer.is_some())]);
    hasher.update(bearer.unwrap_or_default().as_bytes());
    hasher.finalize()
}

/// A refusal of a claim that was not handed out so; `field` names its secret.
pub(super) fn refused(field: String) -> Problem {
    let detail =
        "is not the secret that work/claim returned to this token for this lane and fencing token";
    Problem::new(axum::http::StatusCode::FORBIDDEN, detail).about(&field)
}

#[cfg(test)]
mod tests {
    use seriatim::store::Memory;

    use super::*;

    const LANE: LaneId = LaneId { queue: 1, shard: 0, number: 2 };

    #[test]
    fn every_part_of_a_claim_makes_another_secret() {
        let key = Secret([7; 32]);
        let one = |bearer, lane, token| secret_of(key, bearer, lane, Token(token));
        let base = one(Some("a"), LANE, 5);
        assert_eq!(base.len(), 64);
        for other in [
            one(None, LANE, 5),
            one(Some(""), LANE, 5),
            one(Some("b"), LANE, 5),
            one(Some("a"), LANE, 6),
            one(Some("a"), LaneId { queue: 2, ..LANE }, 5),
            one(Some("a"), LaneId { shard: 1, ..LANE }, 5),
            one(Some("a"), LaneId { number: 3, ..LANE }, 5),
            secret_of(Secret([8; 32]), Some("a"), LANE, Token(5)),
        ] {
            assert_ne!(base, other);
        }
        assert_ne!(one(None, LANE, 5), one(Some(""), LANE, 5));
    }

    #[tokio::test]
    async fn servers_of_one_store_know_each_others_claims_also_after_it_was_emptied() {
        let (before, after) = (Memory::new(), Memory::new());
        let (one, other) = (Secrets::default(), Secrets::default());
        let key = one.key(&before).await.unwrap();
        let text = secret_of(key, Some("w"), LANE, Token(5));
        let claim = || std::iter::once(Named { lane: LANE, token: Token(5), secret: &text });
        for secrets in [&one, &other] {
            assert_eq!(secrets.first_wrong(&before, Some("w"), claim()).await.unwrap(), None);
            assert_eq!(secrets.first_wrong(&before, Some("v"), claim()).await.unwrap(), Some(0));
        }
        // A new server is the first that the emptied store hears of.
        let newcomer = Secrets::default();
        let key = newcomer.learn(&after).await.unwrap();
        let text = secret_of(key, Some("w"), LANE, Token(6));
        let claim = || std::iter::once(Named { lane: LANE, token: Token(6), secret: &text });
        assert_eq!(one.first_wrong(&after, Some("w"), claim()).await.unwrap(), None);
    }
}
