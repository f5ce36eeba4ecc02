//! A case of the suite.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use seriatim::SharedStore;

use super::bench::Bench;
use super::witness::Witness;

/// Creates an empty store.
pub type Factory<'a> = &'a (dyn Fn() -> Pin<Box<dyn Future<Output = SharedStore>>> + Sync);

type Body = fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>;

/// Random sequences per case. They take long on a server; after a change of its store, run a hundred (`SERIATIM_SEED`).
pub const SEQUENCES: u64 = 3;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule that it tests, as a sentence.
    pub name: &'static str,
    body: Body,
    /// The random sequences that it runs, if it has some: the first one, and the one after the last.
    sequences: (u64, u64),
}

impl Case {
    pub(super) const fn new(name: &'static str, body: Body) -> Self {
        Self { name, body, sequences: (0, SEQUENCES) }
    }

    /// The case with these random sequences: a store that is tested in two ways runs some in each. The default is
    /// `0..SEQUENCES`.
    #[must_use]
    pub fn with_sequences(self, sequences: Range<u64>) -> Self {
        Self { sequences: (sequences.start, sequences.end), ..self }
    }

    /// Runs it on a new store; panics if the store violates the rule.
    pub fn run(&self, fresh: Factory<'_>) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be started");
        runtime.block_on(async {
            let store = Witness::of(fresh().await);
            let mut bench = Bench::new(store.clone()).await;
            bench.sequences = self.sequences.0..self.sequences.1;
            (self.body)(bench).await;
            store.close().await.expect("the store closes");
        });
    }
}

/// Names each listed function's case after the function. With `if HAS;`, a case runs only on stores of which that is true.
macro_rules! listed {
    (if $has:ident; $($case:ident),* $(,)?) => {
        vec![$($crate::conformance::case::Case::new(stringify!($case), |mut bench| Box::pin(async move {
            if $has(&mut bench).await {
                $case(bench).await;
            }
        }))),*]
    };
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::case::Case::new(stringify!($case), |bench| Box::pin($case(bench)))),*]
    };
}
pub(super) use listed;
