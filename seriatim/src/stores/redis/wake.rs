//! Wake-ups between processes: scripts publish on one channel, and every store subscribes to it on a separate
//! connection. They are hints: jobs whose wake-up was lost are found by polling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinHandle;

use super::link::WakeServers;
use super::memo::Memo;
use crate::contract::{Bell, Wake};

/// Time between attempts to reconnect. Meanwhile nodes poll.
const RECONNECT: Duration = Duration::from_secs(1);

/// The channel on which scripts publish; `shard.lua` derives the same name from the prefix of its keys.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:wake")
}

/// The connection that receives wake-ups. It ends with the store.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) fn open(servers: WakeServers, channel: String, bell: Bell, memo: Arc<Memo>) -> Self {
        Self(tokio::spawn(run(servers, channel, bell, memo)))
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

async fn run(servers: WakeServers, channel: String, bell: Bell, memo: Arc<Memo>) {
    loop {
        if let Err(error) = listen(&servers, &channel, &bell, &memo).await {
            tracing::debug!(%error, "wake-ups from Redis are interrupted");
        }
        // Wake-ups were missed meanwhile.
        bell.ring(&Wake::All);
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(
    servers: &WakeServers,
    channel: &str,
    bell: &Bell,
    memo: &Memo,
) -> redis::RedisResult<()> {
    let mut link = subscriber(servers).await?;
    link.subscribe(channel).await?;
    // Wake-ups before the subscription were missed.
    bell.ring(&Wake::All);
    let mut messages = link.on_message();
    while let Some(message) = messages.next().await {
        bell.ring(&wake_of(message.get_payload_bytes(), memo));
    }
    Ok(())
}

/// The message is the queue's number.
fn wake_of(message: &[u8], memo: &Memo) -> Wake {
    let number = std::str::from_utf8(message).ok().and_then(|number| number.parse().ok());
    let known = number.and_then(|number| memo.by_number(number));
    known.map_or(Wake::All, |known| Wake::of([&*known.name]))
}

/// Connects to the first server that answers: in a cluster, every server receives the messages published on any.
async fn subscriber(servers: &WakeServers) -> redis::RedisResult<redis::aio::PubSub> {
    let mut failed = None;
    for server in servers.servers().await? {
        match server.get_async_pubsub().await {
            Ok(link) => return Ok(link),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| (redis::ErrorKind::Io, "there is no server").into()))
}
