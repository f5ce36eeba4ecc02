//! Wake-ups between processes: scripts publish on one channel, and every store listens to it on a
//! connection of its own. They are hints; what is lost while it is interrupted is found by polling.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinHandle;

use crate::store::wake::Bell;

/// How long after a failure the connection is tried again. Meanwhile nodes find work by polling.
const RECONNECT: Duration = Duration::from_secs(1);

/// Where the scripts publish; `shard.lua` makes the same name of its keys' prefix.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:wake")
}

/// The connection that hears wake-ups. It ends with the store.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) fn open(client: redis::Client, channel: String, bell: Bell) -> Self {
        Self(tokio::spawn(run(client, channel, bell)))
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

async fn run(client: redis::Client, channel: String, bell: Bell) {
    loop {
        if let Err(error) = listen(&client, &channel, &bell).await {
            tracing::debug!(%error, "wake-ups from Redis are interrupted");
        }
        // What was missed meanwhile.
        bell.ring();
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(client: &redis::Client, channel: &str, bell: &Bell) -> redis::RedisResult<()> {
    let mut link = client.get_async_pubsub().await?;
    link.subscribe(channel).await?;
    // What was published before the subscription stood.
    bell.ring();
    let mut messages = link.on_message();
    while messages.next().await.is_some() {
        bell.ring();
    }
    Ok(())
}
