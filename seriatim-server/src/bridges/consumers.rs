//! The processes of Sidekiq that are alive.

use super::{Fault, Keys, Link};

/// A living process.
pub(super) struct Consumer {
    /// `HOST:PID:NONCE`.
    pub(super) identity: String,
    /// The queues that it takes from; `None` if it does not say so in a way that is known.
    queues: Option<Vec<String>>,
}

impl Consumer {
    /// Whether it takes from a queue, or may.
    pub(super) fn takes(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.iter().any(|one| one == queue))
    }
}

/// Those that reported within the last minute: what they wrote lasts no longer.
pub(super) async fn living(link: &mut Link, keys: &Keys) -> Result<Vec<Consumer>, Fault> {
    let known: Vec<String> = link.ask(redis::cmd("SMEMBERS").arg(keys.theirs("processes"))).await?;
    let mut living = Vec::new();
    for identity in known {
        let info: Option<Vec<u8>> =
            link.ask(redis::cmd("HGET").arg(keys.theirs(&identity)).arg("info")).await?;
        let Some(info) = info else { continue };
        living.push(Consumer { identity, queues: queues(&info) });
    }
    Ok(living)
}

/// The queues of a process: a list, which repeats a name as often as its weight says.
fn queues(info: &[u8]) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Info {
        queues: Vec<String>,
    }
    serde_json::from_slice::<Info>(info).ok().map(|info| info.queues)
}
