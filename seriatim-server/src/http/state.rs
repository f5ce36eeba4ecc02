//! What all requests share.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use seriatim::{
    Client, Queue, SharedStore,
    engine::{Handle, Observer, Summary, TurnLog},
    store::Ending,
};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

use super::audit::Audit;
use super::auth::Guard;
use super::changes::Changes;
use super::checkup::{Checkup, Checkups};
use super::clock::Clock;
use super::implied::Queues;
use super::limits::{Budgets, IMPLIED_QUEUES_MAX};
use super::logins::Logins;
use super::memo::Memo;
use super::metrics::meter::Meter;
use super::metrics::store::Metered;
use super::page_key::{Key, PageKey};
use super::work::locked::Locked;
use super::work::workers::Workers;
use crate::base::lock::lock;
use crate::config::{DashboardConfig, Zone};
use crate::journal::Journal;
use crate::trace::Traces;

/// The [`App`] as requests hold it, and as handlers take it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<App>);

/// The API over one store.
pub(crate) struct App {
    pub(super) store: SharedStore,
    /// One for all, so that single pushes of many connections go together.
    pub(super) client: Client,
    pub(super) guard: Guard,
    pub(super) environment: String,
    pub(super) zone: Zone,
    pub(super) dashboard: DashboardConfig,
    pub(super) base_path: String,
    pub(super) meter: Arc<Meter>,
    pub(super) workers: Workers,
    pub(super) locked: Locked,
    /// What remote workers did through this process.
    remote: Mutex<Summary>,
    pub(super) turn_log: Arc<TurnLog>,
    pub(super) budgets: Budgets,
    pub(super) logins: Logins,
    pub(super) journal: Arc<Journal>,
    pub(super) traces: Traces,
    pub(super) audit: Audit,
    pub(super) queues: Queues,
    pub(super) changes: Changes,
    pub(super) memo: Memo,
    pub(super) clock: Clock,
    pub(super) page_key: PageKey,
    /// The name under which it carries out operations.
    pub(super) runner: String,
    pub(super) checkups: Checkups,
    /// Held by what goes on although its client may be gone; see [`App::finished`].
    unfinished: Arc<RwLock<()>>,
    /// The OpenAPI document and its page, made at the first request: everyone may ask, at any rate.
    pub(super) described: OnceLock<Described>,
    draining: watch::Sender<bool>,
}

/// The API's description.
pub(super) struct Described {
    pub(super) document: Bytes,
    pub(super) page: Bytes,
}

/// What an [`App`] is made of, besides its store.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) guard: Guard,
    pub(crate) environment: Option<String>,
    /// Of times that clients of Dataloader write without a zone.
    pub(crate) zone: Zone,
    pub(crate) dashboard: DashboardConfig,
    /// Everything is below it: empty, or `/prefix`.
    pub(crate) base_path: String,
    /// Observes every push.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Logs how the turns of remote workers end.
    pub(crate) turn_log: Arc<TurnLog>,
    /// The node of this process, whose troubles include those of remote workers.
    pub(crate) node: Option<Handle>,
    /// The journal of the store's wrapper.
    pub(crate) journal: Arc<Journal>,
    /// Observes every request that pushes.
    pub(crate) traces: Traces,
    pub(crate) audit: Audit,
    /// The queues of the configuration.
    pub(crate) queues: Vec<Queue>,
    /// How many other queues pushes may make; [`IMPLIED_QUEUES_MAX`] if unset.
    pub(crate) implied_max: Option<usize>,
}

impl Deref for Shared {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

impl FromRequestParts<Shared> for Shared {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &Shared) -> Result<Self, Infallible> {
        Ok(state.clone())
    }
}

impl App {
    /// The API over a store whose operations `meter` counts.
    pub(crate) fn over(store: SharedStore, meter: Arc<Meter>, setup: Setup) -> Shared {
        setup.audit.keep_in(store.clone());
        let client = match setup.observer {
            Some(observer) => Client::observed(store.clone(), observer),
            None => Client::new(store.clone()),
        };
        let client = client.queues(setup.queues.clone());
        Shared(Arc::new(Self {
            client,
            store,
            guard: setup.guard,
            environment: setup.environment.unwrap_or_else(|| "production".to_owned()),
            zone: setup.zone,
            dashboard: setup.dashboard,
            base_path: setup.base_path,
            meter,
            workers: Workers::default(),
            locked: Locked::told_by(setup.node),
            remote: Mutex::default(),
            turn_log: setup.turn_log,
            journal: setup.journal,
            traces: setup.traces,
            audit: setup.audit,
            queues: Queues::new(setup.queues, setup.implied_max.unwrap_or(IMPLIED_QUEUES_MAX)),
            changes: Changes::default(),
            memo: Memo::default(),
            clock: Clock::default(),
            page_key: PageKey::default(),
            runner: format!("server-{:016x}", fastrand::u64(..)),
            checkups: Checkups::default(),
            budgets: Budgets::default(),
            logins: Logins::default(),
            unfinished: Arc::default(),
            described: OnceLock::new(),
            draining: watch::Sender::new(false),
        }))
    }

    /// The API over a store, open to everyone who can reach it.
    pub(super) fn open(store: SharedStore) -> Shared {
        Self::mounted(store, Guard::default())
    }

    /// The API over a store in a service, which decides who may reach it, or says who does.
    pub(super) fn mounted(store: SharedStore, guard: Guard) -> Shared {
        let journal = Arc::<Journal>::default();
        let (store, meter) = Metered::wrap(store, journal.clone());
        Self::over(store, meter, Setup { journal, guard, ..Setup::default() })
    }

    /// The key of what pages give to their visitors; none while the store does not answer.
    pub(super) async fn page_key(&self) -> Option<Key> {
        self.page_key.get(&*self.store).await
    }

    /// What the doctor finds, as of a moment ago.
    pub(super) async fn checkup(&self) -> seriatim::Result<Arc<Checkup>> {
        self.checkups.recent(&self.store, self.queues.declared()).await
    }

    /// Counts a turn that a remote worker has settled; none if that was stale.
    pub(super) fn settled(&self, ending: Option<Ending>) {
        lock(&self.remote).count(ending);
    }

    /// What remote workers did through this process.
    pub(crate) fn remote(&self) -> Summary {
        *lock(&self.remote)
    }

    /// From now on only what holders of claims need is answered.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Held by a task that goes on although its client may be gone: lanes are given back, an action is
    /// done and written down.
    pub(super) fn unfinished(&self) -> Option<OwnedRwLockReadGuard<()>> {
        self.unfinished.clone().try_read_owned().ok()
    }

    /// Ready when all such tasks have ended.
    pub(super) async fn finished(&self) {
        drop(self.unfinished.write().await);
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Ready when the node drains.
    pub(super) async fn draining(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = draining.wait_for(|draining| *draining).await;
    }
}
