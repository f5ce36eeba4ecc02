//! Wake-ups between processes: scripts publish on one channel, and every store listens to it on a
//! connection of its own. They are hints; what is lost while it is interrupted is found by polling.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinHandle;

use super::link::Ears;
use crate::contract::Bell;

/// How long after a failure the connection is tried again. Meanwhile nodes find work by polling.
const RECONNECT: Duration = Duration::from_secs(1);

/// Where the scripts publish; `shard.lua` makes the same name of its keys' prefix.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:wake")
}

/// The connection that hears wake-ups. It ends with the store.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) fn open(ears: Ears, channel: String, bell: Bell) -> Self {
        Self(tokio::spawn(run(ears, channel, bell)))
    }

    pub(super) fn close(&self) {
        self.0.abort();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(ears: Ears, channel: String, bell: Bell) {
    loop {
        if let Err(error) = listen(&ears, &channel, &bell).await {
            tracing::debug!(%error, "wake-ups from Redis are interrupted");
        }
        // What was missed meanwhile.
        bell.ring();
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(ears: &Ears, channel: &str, bell: &Bell) -> redis::RedisResult<()> {
    let mut link = subscriber(ears).await?;
    link.subscribe(channel).await?;
    // What was published before the subscription stood.
    bell.ring();
    let mut messages = link.on_message();
    while messages.next().await.is_some() {
        bell.ring();
    }
    Ok(())
}

/// A connection to the first server that answers: in a cluster each of them hears what any publishes.
async fn subscriber(ears: &Ears) -> redis::RedisResult<redis::aio::PubSub> {
    let mut failed = None;
    for server in ears.servers().await? {
        match server.get_async_pubsub().await {
            Ok(link) => return Ok(link),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| (redis::ErrorKind::Io, "there is no server").into()))
}
