//! A case of the suite.

use std::future::Future;
use std::pin::Pin;

use seriatim::SharedStore;

use super::bench::Bench;
use super::witness::Witness;

/// Creates an empty store.
pub type Factory<'a> = &'a (dyn Fn() -> Pin<Box<dyn Future<Output = SharedStore>>> + Sync);

type Body = fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule that it tests, as a sentence.
    pub name: &'static str,
    pub(super) body: Body,
}

impl Case {
    /// Runs it on a new store; panics if the store violates the rule.
    pub fn run(&self, fresh: Factory<'_>) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be started");
        runtime.block_on(async {
            let store = Witness::of(fresh().await);
            let bench = Bench::new(store.clone()).await;
            (self.body)(bench).await;
            store.close().await.expect("the store closes");
        });
    }
}

/// Names each listed function's case after the function. With `if HAS;`, a case runs only on stores of which that is true.
macro_rules! listed {
    (if $has:ident; $($case:ident),* $(,)?) => {
        vec![$($crate::conformance::case::Case {
            name: stringify!($case),
            body: |mut bench| Box::pin(async move {
                if $has(&mut bench).await {
                    $case(bench).await;
                }
            }),
        }),*]
    };
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::case::Case {
            name: stringify!($case),
            body: |bench| Box::pin($case(bench)),
        }),*]
    };
}
pub(super) use listed;
