//! Collects the panics of this thread, also those that other code catches: a runtime catches the panics of its tasks.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// The panics so far, while they are collected.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs `work`; the error has the panics in it.
pub(super) fn caught(work: impl FnOnce()) -> Result<(), String> {
    listen();
    HEARD.with_borrow_mut(|heard| *heard = Some(Vec::new()));
    // State that a panic left half done is not used again.
    let _ = panic::catch_unwind(AssertUnwindSafe(work));
    let heard = HEARD.take().unwrap_or_default();
    if heard.is_empty() { Ok(()) } else { Err(heard.join("\n")) }
}

/// Replaces the hook that prints panics, on threads that collect them.
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
