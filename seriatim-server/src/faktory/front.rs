//! What the conversations of a server share, and the look for claims that this process does not know.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::held::{Claim, Held, Worker};
use super::job::{Claimed, Fetched};
use super::places::Places;
use super::recent::Recent;
use crate::base::lock::lock;
use crate::http::{Inside, Visitor};

/// How often claims are looked for that this process does not know.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What conversations share.
pub(super) struct Front {
    pub(super) api: Inside,
    pub(super) tokens: Vec<Arc<str>>,
    pub(super) held: Held,
    pub(super) recent: Recent,
    pub(super) started_at: Instant,
    /// How many were read.
    pub(super) commands: AtomicU64,
    pub(super) places: Arc<Places>,
    looks: Looks,
}

/// When the claims of each token were last looked for. Those of one token wait for each other, and for nobody else.
type Looks = Mutex<HashMap<Option<Arc<str>>, Arc<tokio::sync::Mutex<Option<Instant>>>>>;

impl Front {
    pub(super) fn new(api: Inside, tokens: Vec<Arc<str>>) -> Self {
        Self {
            api,
            tokens,
            held: Held::default(),
            recent: Recent::default(),
            started_at: Instant::now(),
            commands: AtomicU64::new(0),
            places: Arc::default(),
            looks: Mutex::default(),
        }
    }

    /// Learns of the claims of this token that another process has handed out, or this one before a restart. One look, begun
    /// after they were asked for, is enough for all who wait for it.
    pub(super) async fn find_claims(&self, visitor: &Visitor) -> Result<(), String> {
        let asked_at = Instant::now();
        let look = lock(&self.looks).entry(visitor.token.clone()).or_default().clone();
        let mut last = look.lock().await;
        if last.is_some_and(|at| at >= asked_at) {
            return Ok(());
        }
        if let Some(last) = *last {
            tokio::time::sleep_until(last + LOOK_INTERVAL).await;
        }
        let began = Instant::now();
        let known = self.held.known(visitor.token.as_ref());
        let (mut claims, mut jids) = (Vec::new(), HashMap::<String, usize>::new());
        let found = |wid: &str, lane: &str| {
            let Ok(lane) = serde_json::from_str::<Claimed>(lane) else { return };
            let worker = Worker { token: visitor.token.clone(), wid: wid.into() };
            // Of its payload only what names it is kept.
            if let Some(fetched) = Fetched::of(&lane, |_| false) {
                *jids.entry(fetched.jid.clone()).or_default() += 1;
                claims.push((fetched.jid.clone(), Claim::new(worker, lane, &fetched)));
            }
        };
        let is_known = |lane: &str, token| known.contains(&(lane.to_owned(), token));
        let looked = self.api.claims(visitor, is_known, found).await;
        looked.map_err(|refusal| refusal.text)?;
        for (jid, claim) in claims {
            // Which of several was handed out as this jid is not known: none is ended for another.
            let is_one = jids.get(&jid) == Some(&1);
            self.held.learn(is_one.then_some(jid), &claim);
        }
        *last = Some(began);
        Ok(())
    }
}
