//! Every store against the one suite. Each case is a test of its own: `memory::a_busy_key_…`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use seriatim::conformance::cases;
use seriatim::{Memory, SharedStore};

type Fresh = Pin<Box<dyn Future<Output = SharedStore>>>;

fn suite(store: &'static str, fresh: fn() -> Fresh) -> Vec<Trial> {
    let trial = |case: seriatim::conformance::Case| {
        Trial::test(format!("{store}::{}", case.name), move || {
            case.run(&fresh);
            Ok(())
        })
    };
    cases().into_iter().map(trial).collect()
}

fn memory() -> Fresh {
    Box::pin(async { Arc::new(Memory::new()) as SharedStore })
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Fresh {
    Box::pin(async {
        // Below the target folder, so that nothing is left in the system's.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder").keep();
        let store = seriatim::Sqlite::open(folder.join("test.db")).expect("it opens");
        Arc::new(store) as SharedStore
    })
}

fn main() {
    let mut trials = Vec::new();
    trials.extend(suite("memory", memory));
    #[cfg(feature = "sqlite")]
    trials.extend(suite("sqlite", sqlite));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
