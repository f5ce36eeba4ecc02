//! A store before another one: a layer says what it changes of the calls, all others go through.
//!
//! This is the one list of the contract's operations here; a layer overrides what it is about.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use seriatim::store::*;
use seriatim::{JobId, LaneId, NodeId, Result, SharedStore, Store, Timestamp, Token, Turn};

/// Makes [`Layer`], which sends each operation on, and the store that [`Over`] makes of one.
macro_rules! operations {
    (
        timed { $($timed:ident($Timed:ident) -> $TimedAnswer:ty;)* }
        plain { $($plain:ident($($arg:ident: $Arg:ty),*) -> $Answer:ty;)* }
        setup { $($setup:ident($($given:ident: $Given:ty),*) -> $SetUp:ty;)* }
    ) => {
        /// What stands before a store.
        pub(crate) trait Layer: Send + Sync + 'static {
            /// The store behind it.
            fn below(&self) -> &SharedStore;

            /// The time of all requests; none: each brings its own.
            fn time(&self) -> Option<Timestamp> {
                None
            }

            /// What becomes of a call on its way.
            fn carry<T: Send + 'static>(
                &self,
                _operation: &'static str,
                call: impl Future<Output = Result<T>> + Send + 'static,
            ) -> impl Future<Output = Result<T>> + Send {
                call
            }

            fn capabilities(&self) -> Capabilities {
                self.below().capabilities()
            }

            fn now(&self) -> impl Future<Output = Result<Timestamp>> + Send {
                let (below, time) = (self.below().clone(), self.time());
                let now = async move {
                    match time {
                        Some(time) => Ok(time),
                        None => below.now().await,
                    }
                };
                self.carry("now", now)
            }

            fn stats(
                &self,
                now: Option<Timestamp>,
            ) -> impl Future<Output = Result<Vec<QueueStats>>> + Send {
                let (below, now) = (self.below().clone(), self.time().or(now));
                self.carry("stats", async move { below.stats(now).await })
            }

            $(fn $timed(
                &self,
                request: $Timed,
            ) -> impl Future<Output = Result<$TimedAnswer>> + Send {
                let below = self.below().clone();
                let request = $Timed { now: self.time().or(request.now), ..request };
                self.carry(stringify!($timed), async move { below.$timed(request).await })
            })*

            $(fn $plain(
                &self,
                $($arg: $Arg),*
            ) -> impl Future<Output = Result<$Answer>> + Send {
                let below = self.below().clone();
                self.carry(stringify!($plain), async move { below.$plain($($arg),*).await })
            })*

            fn pause_queue(
                &self,
                queue: &str,
                paused: bool,
            ) -> impl Future<Output = Result<()>> + Send {
                let (below, queue) = (self.below().clone(), queue.to_owned());
                self.carry("pause_queue", async move { below.pause_queue(&queue, paused).await })
            }

            fn reshard(
                &self,
                queue: &str,
                shards: u16,
            ) -> impl Future<Output = Result<Resharded>> + Send {
                let (below, queue) = (self.below().clone(), queue.to_owned());
                self.carry("reshard", async move { below.reshard(&queue, shards).await })
            }

            fn command_node(
                &self,
                node: &NodeId,
                command: Command,
            ) -> impl Future<Output = Result<()>> + Send {
                let (below, node) = (self.below().clone(), node.clone());
                self.carry("command_node", async move { below.command_node(&node, command).await })
            }

            $(fn $setup(
                &self,
                $($given: $Given),*
            ) -> impl Future<Output = Result<$SetUp>> + Send {
                let below = self.below().clone();
                async move { below.$setup($($given),*).await }
            })*
        }

        #[async_trait]
        impl<L: Layer> Store for Over<L> {
            fn capabilities(&self) -> Capabilities {
                self.0.capabilities()
            }
            async fn now(&self) -> Result<Timestamp> {
                self.0.now().await
            }
            async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
                self.0.stats(now).await
            }
            async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
                self.0.pause_queue(queue, paused).await
            }
            async fn reshard(&self, queue: &str, shards: u16) -> Result<Resharded> {
                self.0.reshard(queue, shards).await
            }
            async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
                self.0.command_node(node, command).await
            }
            fn wakeups(&self) -> Wakeups {
                self.0.below().wakeups()
            }
            $(async fn $timed(&self, request: $Timed) -> Result<$TimedAnswer> {
                self.0.$timed(request).await
            })*
            $(async fn $plain(&self, $($arg: $Arg),*) -> Result<$Answer> {
                self.0.$plain($($arg),*).await
            })*
            $(async fn $setup(&self, $($given: $Given),*) -> Result<$SetUp> {
                self.0.$setup($($given),*).await
            })*
        }
    };
}

/// The store that a layer makes of the one behind it. Heartbeats take the same way as all else.
pub(crate) struct Over<L>(Arc<L>);

impl<L: Layer> Over<L> {
    pub(crate) fn store(layer: Arc<L>) -> SharedStore {
        Arc::new(Self(layer))
    }
}

operations! {
    // Their requests bring the time.
    timed {
        declare(Declare) -> ();
        push(Push) -> Vec<Pushed>;
        claim(Claim) -> Claimed;
        settle(Settle) -> Vec<Settled>;
        heartbeat(Heartbeat) -> Pulse;
        rescue(Rescue) -> Vec<Turn>;
        release(Release) -> Vec<Turn>;
        sweep(Sweep) -> Swept;
        cancel(Cancel) -> Vec<Cancelled>;
        requeue(Selected) -> Acted;
        delete_dead(Selected) -> Acted;
        act(Act) -> Acted;
        amend(Amend) -> ();
        declare_dead(DeclareDead) -> bool;
        lead(Lead) -> bool;
        due(DueQuery) -> Vec<SourceDue>;
    }
    plain {
        give_up(request: GiveUp) -> ();
        delete_queue(request: DeleteQueue) -> Acted;
        queues() -> Vec<QueueView>;
        lanes(query: LaneQuery) -> Page<LaneView>;
        jobs(query: JobQuery) -> Page<JobView>;
        job(id: JobId) -> Option<JobView>;
        turn(lane: LaneId, token: Token) -> Option<Turn>;
        nodes() -> Vec<NodeView>;
    }
    // Nothing is carried by them.
    setup {
        migrate() -> ();
        check() -> ();
        secret(offered: Secret) -> Secret;
        close() -> ();
    }
}
