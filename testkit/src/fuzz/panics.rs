//! Panics of this thread, also those that somebody on the way catches: a runtime catches those of its tasks.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// What panicked while somebody listens.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Does the work; what panicked in it, if anything did.
pub(super) fn caught(work: impl FnOnce()) -> Result<(), String> {
    listen();
    HEARD.with_borrow_mut(|heard| *heard = Some(Vec::new()));
    // What it has left half done is not looked at any more when it panics.
    let _ = panic::catch_unwind(AssertUnwindSafe(work));
    let heard = HEARD.take().unwrap_or_default();
    if heard.is_empty() { Ok(()) } else { Err(heard.join("\n")) }
}

/// Takes the place of what prints panics, on threads where somebody listens.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let is_heard = HEARD.try_with(|heard| {
                let Ok(mut heard) = heard.try_borrow_mut() else { return false };
                let Some(heard) = heard.as_mut() else { return false };
                heard.push(panic.to_string());
                true
            });
            if !is_heard.unwrap_or(false) {
                print(panic);
            }
        }));
    });
}
