//! Declares the queues of this engine, and declares them again if the store lost them.
//!
//! A claim says whether its queue is declared. So nothing is claimed from a declared queue that the store lost or
//! that a push created: the claim is refused, and the engine declares the queue first.

use std::sync::Arc;

use tokio::time::Instant;

use crate::contract::{QueueView, TroubleKind, Undeclared, declare_each};
use crate::engine::core::Core;
use crate::engine::limits::{DECLARE_EVERY, DECLARE_LOG_EVERY, DECLARE_REST};
use crate::engine::outage::Pauses;
use crate::lock::lock;
use crate::model::names::did_you_mean;
use crate::model::{Error, ErrorKind, Queue, Result};

/// Whether a queue is missing in the store, or only a push created it. A queue that others declared differently is
/// not lost: nodes would otherwise overwrite each other's declarations forever.
fn is_lost(queue: &Queue, views: &[QueueView]) -> bool {
    !views.iter().any(|view| view.declared && view.queue.name == queue.name)
}

impl Core {
    /// Declares the queues when the engine starts. Fails if one was declared in another mode before.
    pub(in crate::engine) async fn declare(&self) -> Result<()> {
        let definitions = &self.definitions;
        if definitions.queues.is_empty() {
            return Ok(());
        }
        for source in &self.sources {
            if let Some(queue) = definitions.get(&source.name) {
                source.declare(queue.clone());
            }
        }
        let undeclared = declare_each(&*self.store, &definitions.queues, false).await?;
        self.declared(&undeclared);
        Ok(())
    }

    /// Records that the store does not have a queue of this engine, or only a push created it. Nothing is claimed
    /// from it until it is declared again.
    pub(in crate::engine) fn lost(&self, source: usize) {
        self.sources[source].stand(false);
        self.definitions.lost.notify_one();
    }

    /// Checks whether the store still has the queues of this engine.
    pub(in crate::engine) fn look_for_lost(&self, views: &[QueueView]) {
        let definitions = &self.definitions;
        let lost = definitions.queues.iter().any(|queue| is_lost(queue, views));
        if lost && !definitions.is_waiting() {
            definitions.lost.notify_one();
        }
    }

    /// Declares lost queues again, and those that could not be declared before.
    async fn declare_lost(&self) -> Result<()> {
        let definitions = &self.definitions;
        let views = match self.store.queues().await {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            views => views?,
        };
        let lost: Vec<&Queue> =
            definitions.queues.iter().filter(|queue| is_lost(queue, &views)).collect();
        let is_gone = |queue: &&&Queue| !views.iter().any(|view| view.queue.name == queue.name);
        let gone: Vec<&str> = lost.iter().filter(is_gone).map(|queue| &*queue.name).collect();
        if !gone.is_empty() {
            tracing::warn!(
                queues = gone.join(", "),
                "these queues are gone from the store (a person deleted them, or it was emptied): this node declares them again, empty"
            );
            self.store.migrate().await?;
        }
        let mut undeclared = Vec::new();
        for queue in lost {
            match declare_each(&*self.store, std::slice::from_ref(queue), false).await {
                Ok(one) => undeclared.extend(one),
                Err(error) if is_refusal(&error) => undeclared.push(Undeclared::of(queue, error)),
                Err(error) => return Err(error),
            }
        }
        self.declared(&undeclared);
        Ok(())
    }

    /// Records the result of a declaration: queues that are not in `undeclared` are in the store as declared.
    fn declared(&self, undeclared: &[Undeclared]) {
        for queue in &self.definitions.queues {
            let refused = undeclared.iter().find(|one| one.queue == queue.name);
            if let Some(refused) = refused {
                self.report_undeclared(refused);
            } else if lock(&self.definitions.waiting).remove(&queue.name).is_some() {
                self.troubles.clear(TroubleKind::QueueNotApplied, &queue.name);
                tracing::info!(queue = queue.name, mode = %queue.mode, "the queue now matches its declaration");
            }
            for source in self.sources.iter().filter(|source| *source.name == *queue.name) {
                source.stand(refused.is_none());
            }
        }
        self.dispatch.room.notify_one();
    }

    fn report_undeclared(&self, refused: &Undeclared) {
        let (queue, text) = (&*refused.queue, refused.error.message());
        self.troubles.set(TroubleKind::QueueNotApplied, Some(queue), queue, text);
        let mut waiting = lock(&self.definitions.waiting);
        let logged = waiting.get(queue);
        if logged.is_none_or(|logged| logged.elapsed() >= DECLARE_LOG_EVERY) {
            waiting.insert(queue.to_owned(), Instant::now());
            tracing::warn!(
                queue,
                "{text}; until then this node claims nothing from it, and tries again every {}",
                crate::model::duration::format(DECLARE_EVERY)
            );
        }
    }

    /// Warns about names that look mistyped.
    pub(in crate::engine) fn warn_of_slips(&self, views: &[QueueView]) {
        self.slips(views).iter().for_each(|slip| tracing::warn!("{slip}"));
    }

    /// Warnings about workers and cron entries whose queue is not declared.
    pub(in crate::engine) fn slips(&self, views: &[QueueView]) -> Vec<String> {
        let own = self.definitions.queues.iter().map(|queue| &*queue.name);
        // Without the engine's internal queues.
        let own: Vec<&str> = own.filter(|name| !name.starts_with("seriatim.")).collect();
        let declared = |name: &str| {
            let stored = views.iter().any(|view| view.declared && view.queue.name == name);
            stored || self.definitions.get(name).is_some()
        };
        let sources = self.sources.iter().map(|source| &*source.name);
        let slip = |queue| {
            let near = did_you_mean(queue, own.iter().copied());
            format!("a worker is for queue {queue:?}, which nothing declares{near}")
        };
        let workers = sources.clone().filter(|queue| !own.is_empty() && !declared(queue)).map(slip);
        #[cfg(feature = "cron")]
        let entries = self.hooks.crons.iter().filter_map(|cron| {
            let queue = cron.queue();
            let is_known = declared(queue) || sources.clone().any(|source| source == queue);
            let near = did_you_mean(queue, own.iter().copied().chain(sources.clone()));
            (!is_known).then(|| {
                format!("{cron} pushes to queue {queue:?}, which nothing declares and no worker is for{near}")
            })
        });
        #[cfg(not(feature = "cron"))]
        let entries = std::iter::empty();
        workers.chain(entries).collect()
    }
}

/// Whether the store refuses a definition for a lasting reason.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid)
}

/// Declares queues again, when they are lost and while one could not be declared, until the engine ends.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let mut pauses = Pauses::default();
    loop {
        let again = async {
            match core.definitions.is_waiting() {
                true => tokio::time::sleep(DECLARE_EVERY).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = core.definitions.lost.notified() => {}
            () = again => {}
        }
        match core.declare_lost().await {
            Ok(()) => pauses.reset(),
            Err(error) => {
                core.outage.failed("declaring the queues", &error);
                core.definitions.lost.notify_one();
                tokio::time::sleep(pauses.next()).await;
            }
        }
        tokio::time::sleep(DECLARE_REST).await;
    }
}
