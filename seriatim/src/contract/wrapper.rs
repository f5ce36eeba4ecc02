//! A store that wraps another one.

use std::any::Any;
use std::future::Future;

use async_trait::async_trait;

use super::*;
use crate::model::{JobId, LaneId, NodeId, Result, Timestamp, Token, Turn};

/// Generates [`Wrapper`] and its roles from one list of the store's operations.
macro_rules! wrapper {
    ($($role:ident { $($operation:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        /// A store that wraps another one, to count, record, delay or break calls. Every operation goes to
        /// [`inner`](Self::inner), within [`around`](Self::around); a wrapper overrides only the operations that it
        /// changes. Each `Wrapper` is a [`Store`].
        pub trait Wrapper: Send + Sync + 'static {
            /// The wrapped store.
            fn inner(&self) -> &SharedStore;

            /// Carries out a call to the wrapped store; `operation` is the method's name.
            fn around<T: Send + 'static>(
                &self,
                operation: &'static str,
                call: impl Future<Output = Result<T>> + Send + 'static,
            ) -> impl Future<Output = Result<T>> + Send {
                let _ = operation;
                call
            }

            /// See [`Store::capabilities`].
            fn capabilities(&self) -> Capabilities {
                self.inner().capabilities()
            }

            /// See [`Store::wakeups`].
            fn wakeups(&self) -> Wakeups {
                self.inner().wakeups()
            }

            /// See [`Store::pass_on`].
            fn pass_on(&self, queue: &str) {
                self.inner().pass_on(queue);
            }

            /// See [`Store::heartbeat_line`]. A wrapper that must see heartbeats wraps this store too.
            fn heartbeat_line(&self) -> Option<Opening> {
                self.inner().heartbeat_line()
            }

            /// See [`Store::native`].
            fn native(&self) -> Option<&(dyn Any + Send + Sync)> {
                self.inner().native()
            }

            $($(
                #[doc = concat!("See [`", stringify!($role), "::", stringify!($operation), "`].")]
                fn $operation(
                    &self,
                    $($name: $type),*
                ) -> impl Future<Output = Result<$answer>> + Send {
                    let inner = self.inner().clone();
                    self.around(
                        stringify!($operation),
                        async move { inner.$operation($($name),*).await },
                    )
                }
            )*)*
        }

        $(wrapper! { @role $role { $($operation($($name: $type),*) -> $answer;)* } })*
    };
    (@role Store { $($operation:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl<W: Wrapper> Store for W {
            fn capabilities(&self) -> Capabilities {
                Wrapper::capabilities(self)
            }

            fn wakeups(&self) -> Wakeups {
                Wrapper::wakeups(self)
            }

            fn pass_on(&self, queue: &str) {
                Wrapper::pass_on(self, queue);
            }

            fn heartbeat_line(&self) -> Option<Opening> {
                Wrapper::heartbeat_line(self)
            }

            fn native(&self) -> Option<&(dyn Any + Send + Sync)> {
                Wrapper::native(self)
            }

            $(async fn $operation(&self, $($name: $type),*) -> Result<$answer> {
                Wrapper::$operation(self, $($name),*).await
            })*
        }
    };
    (@role $role:ident { $($operation:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl<W: Wrapper> $role for W {
            $(async fn $operation(&self, $($name: $type),*) -> Result<$answer> {
                Wrapper::$operation(self, $($name),*).await
            })*
        }
    };
}

wrapper! {
    Store {
        now() -> Timestamp;
        migrate() -> ();
        check() -> ();
        secret(offered: Secret) -> Secret;
        close() -> ();
    }
    Queues {
        declare(request: Declare) -> ();
        declare_new(request: Declare) -> ();
        pause_queue(queue: Arc<str>, paused: bool) -> ();
        delete_queue(request: DeleteQueue) -> Acted;
        reshard(queue: Arc<str>, shards: u16) -> Resharded;
    }
    Producer {
        push(request: Push) -> Vec<Pushed>;
    }
    Batches {
        open_batch(request: OpenBatch) -> BatchView;
        seal_batch(request: SealBatch) -> BatchView;
        batch(id: Arc<str>) -> Option<BatchView>;
        batches(query: BatchQuery) -> Page<BatchView>;
    }
    Consumer {
        claim(request: Claim) -> Claimed;
        settle(request: Settle) -> Vec<Settled>;
        give_up(request: GiveUp) -> ();
    }
    Fleet {
        heartbeat(request: Heartbeat) -> Pulse;
        rescue(request: Rescue) -> Vec<Turn>;
        release(request: Release) -> Vec<Turn>;
        declare_dead(request: DeclareDead) -> bool;
        command_node(node: NodeId, command: Command) -> ();
        lead(request: Lead) -> bool;
        sweep(request: Sweep) -> Swept;
    }
    Actions {
        cancel(request: Cancel) -> Vec<Cancelled>;
        requeue(request: Selected) -> Acted;
        delete_dead(request: Selected) -> Acted;
        act(request: Act) -> Acted;
        amend(request: Amend) -> ();
    }
    Views {
        queues() -> Vec<QueueView>;
        stats(now: Option<Timestamp>) -> Vec<QueueStats>;
        due(queues: Vec<Arc<str>>) -> Vec<QueueDue>;
        lanes(query: LaneQuery) -> Page<LaneView>;
        jobs(query: JobQuery) -> Page<JobView>;
        job(id: JobId) -> Option<JobView>;
        turn(lane: LaneId, token: Token) -> Option<Turn>;
        nodes() -> Vec<NodeView>;
        vitals() -> Vitals;
    }
    Notebook {
        write_notes(notes: Vec<Note>) -> ();
        read_notes(query: NoteQuery) -> Vec<Note>;
        named_notes(names: Vec<String>) -> Vec<Note>;
        delete_notes(query: NoteQuery) -> u64;
    }
    Inbox {
        drain_inbox(request: DrainInbox) -> Drained;
        inbox() -> InboxView;
    }
}
