//! Pushes what SQL sessions inserted into the store's inbox. One node at a time does it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{
    Amend, Cancel, Cancelled, Change, DrainInbox, Drained, EndedDeed, INBOX_BELL, InboxAsk,
    InboxDeed, Lead, TroubleKind,
};
use crate::engine::core::Core;
use crate::engine::limits::{
    INBOX_AWAY, INBOX_LEAD, INBOX_LOOK_MIN, INBOX_ROWS_AFTER_REFUSAL, LOG_LINES_MAX,
};
use crate::engine::outage::{Pauses, will_pass};
use crate::model::limits::INBOX_ROWS_MAX;
use crate::model::{ErrorKind, Result};

/// The subject of its troubles.
const ABOUT: &str = "inbox";

/// Drains the inbox until the engine ends.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let mut wakeups = core.store.wakeups().only([INBOX_BELL.into()]);
    let patience = core.settings.patience(&wakeups);
    let mut drainer = Drainer::new(core, patience);
    while !drainer.core.phases.is_draining() {
        let pause = drainer.round().await;
        tokio::select! {
            _ = wakeups.wait(pause) => {}
            () = drainer.core.phases.draining() => return,
        }
    }
}

struct Drainer {
    core: Arc<Core>,
    /// Until when this node drains without asking.
    leads_until: Option<Instant>,
    /// Another node drains: until when this one does not look.
    away_until: Option<Instant>,
    /// Whether the last round found rows, or was the first. Then the next round that finds none tells the store.
    is_active: bool,
    /// Until the next look, unless a wake-up comes. Grows while nothing is found: a transaction may commit after the store
    /// was asked for wake-ups.
    pause: Duration,
    /// The longest such pause.
    patience: Duration,
    /// Most rows of the next step, reduced after a refusal: such a step is repeated in part.
    rows_max: usize,
    /// Deeds that were carried out, and of which the store has not been told.
    ended: Vec<EndedDeed>,
    pauses: Pauses,
}

impl Drainer {
    fn new(core: Arc<Core>, patience: Duration) -> Self {
        Self {
            core,
            patience: patience.max(INBOX_LOOK_MIN),
            leads_until: None,
            away_until: None,
            is_active: true,
            pause: INBOX_LOOK_MIN,
            rows_max: INBOX_ROWS_MAX,
            ended: Vec::new(),
            pauses: Pauses::default(),
        }
    }

    /// Drains what there is. Returns the time to the next look.
    async fn round(&mut self) -> Duration {
        let found = match self.drain().await {
            Ok(found) => found,
            Err(error) => {
                if will_pass(&error) {
                    self.core.outage.failed("draining the inbox", &error);
                } else if error.kind() != ErrorKind::NodeGone {
                    let text = format!("the inbox cannot be drained: {error}");
                    tracing::warn!("{text}");
                    self.core.troubles.set(TroubleKind::InboxNotDrained, None, ABOUT, &text);
                }
                self.is_active = true;
                return self.pauses.next();
            }
        };
        self.pauses.reset();
        self.core.troubles.clear(TroubleKind::InboxNotDrained, ABOUT);
        self.pause = if found { INBOX_LOOK_MIN } else { (self.pause * 2).min(self.patience) };
        let away = self.away_until.map(|until| until.saturating_duration_since(Instant::now()));
        // Randomized, because the nodes of a fleet should not look together.
        away.unwrap_or_default().max(self.pause).mul_f64(0.75 + fastrand::f64() / 4.0)
    }

    /// Whether it found rows.
    async fn drain(&mut self) -> Result<bool> {
        if self.away_until.is_some_and(|until| Instant::now() < until) {
            return Ok(false);
        }
        self.away_until = None;
        if !self.is_active && !self.look().await? {
            return Ok(false);
        }
        let mut found = false;
        while self.leads().await? {
            let drained = self.step().await?;
            // Rows that another transaction has locked are left, too: no reason to ask again at once.
            self.is_active = !(drained.pushed.is_empty()
                && drained.refused.is_empty()
                && drained.deeds.is_empty());
            found |= self.is_active;
            let more = drained.more && self.is_active && !self.core.phases.is_draining();
            if !more && self.ended.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Whether rows wait.
    async fn look(&self) -> Result<bool> {
        Ok(self.core.store.drain_inbox(DrainInbox::default()).await?.more)
    }

    /// Whether this node is the one that drains.
    async fn leads(&mut self) -> Result<bool> {
        let now = Instant::now();
        if self.leads_until.is_some_and(|until| now < until) {
            return Ok(true);
        }
        let (role, node) = (ABOUT.into(), self.core.node());
        let lead = Lead { now: None, role, node, ttl: INBOX_LEAD };
        let leads = self.core.store.lead(lead).await?;
        self.leads_until = leads.then_some(now + INBOX_LEAD / 2);
        self.away_until = (!leads).then_some(now + INBOX_AWAY);
        // What the store must be told is for the one that leads.
        self.is_active &= leads;
        Ok(leads)
    }

    async fn step(&mut self) -> Result<Drained> {
        let (now, rows_max, ended) = (None, self.rows_max, self.ended.clone());
        let drained = self.core.store.drain_inbox(DrainInbox { now, rows_max, ended }).await?;
        self.ended.clear();
        for (place, row) in drained.refused.iter().enumerate() {
            if place < LOG_LINES_MAX as usize {
                let queue = row.queue.as_deref();
                tracing::warn!(row = row.row, queue, "the inbox has refused a row: {}", row.why);
            }
        }
        self.rows_max = match drained.refused.is_empty() {
            true => (self.rows_max * 2).min(INBOX_ROWS_MAX),
            false => INBOX_ROWS_AFTER_REFUSAL,
        };
        for deed in &drained.deeds {
            // The next node would begin with the same rows.
            if !self.leads().await? {
                break;
            }
            let refused = self.carry_out(deed).await?;
            self.core.hooks.inbox_deed(deed, refused.as_deref()).await;
            self.ended.push(EndedDeed { row: deed.row, refused });
        }
        Ok(drained)
    }

    /// Does what a row asks for. Returns why it cannot be done.
    async fn carry_out(&self, deed: &InboxDeed) -> Result<Option<String>> {
        let (store, job) = (&self.core.store, deed.job);
        let done = match &deed.ask {
            InboxAsk::Cancel => {
                store.cancel(Cancel { now: None, jobs: vec![job] }).await.map(|of| {
                    match of.first() {
                        Some(Cancelled::Now | Cancelled::Flagged) => None,
                        Some(Cancelled::Ended) => {
                            Some("nothing changed: the job has ended".to_owned())
                        }
                        Some(Cancelled::Unknown) | None => Some("no job has this id".to_owned()),
                    }
                })
            }
            InboxAsk::Reassign(node) => {
                let change = Change::Node(node.clone());
                store.amend(Amend { now: None, job, change }).await.map(|()| None)
            }
        };
        match done {
            Err(error) if will_pass(&error) => Err(error),
            Err(error) => Ok(Some(error.to_string())),
            done => done,
        }
    }
}
