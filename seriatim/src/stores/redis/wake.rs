//! Wake-ups between processes. A process whose last claim found too little is woken on a channel of its own; changes that
//! concern all are published on another one. Every store subscribes to both on a separate connection. They are hints:
//! jobs whose wake-up was lost are found by polling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use redis::ErrorKind as Driver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::args::Args;
use super::link::{Link, PASS_ON, WakeServers};
use super::memo::Memo;
use crate::contract::{Bell, Wake};

/// Time between attempts to reconnect. Meanwhile nodes poll.
const RECONNECT: Duration = Duration::from_secs(1);
/// How often the server is asked whether it is still there, and how long it may take to answer. A connection without
/// messages does not show that it has ended.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The channels on which scripts publish, for all and for one; `lane.lua` derives the same names from the prefix of its
/// keys.
pub(super) fn channels(prefix: &str, listener: &str) -> [String; 2] {
    [format!("{prefix}:wake"), format!("{prefix}:wake:{listener}")]
}

/// Wakes other processes for what waits in these shards.
pub(super) fn pass_on(link: Arc<Link>, shards: Vec<String>) {
    tokio::spawn(async move {
        let nothing = Args::default();
        let calls = shards.iter().map(|shard| link.run(&PASS_ON, shard, &nothing));
        // Whoever was to be woken finds it when it polls.
        join_all(calls).await;
    });
}

/// The connection that receives wake-ups. It ends with the store.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    pub(super) fn open(
        servers: WakeServers,
        channels: [String; 2],
        bell: Bell,
        memo: Arc<Memo>,
    ) -> Self {
        Self(tokio::spawn(run(servers, channels, bell, memo)))
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

async fn run(servers: WakeServers, channels: [String; 2], bell: Bell, memo: Arc<Memo>) {
    loop {
        if let Err(error) = listen(&servers, &channels, &bell, &memo).await {
            tracing::debug!(%error, "wake-ups from Redis are interrupted");
        }
        // Wake-ups were missed meanwhile.
        bell.ring(&Wake::All);
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(
    servers: &WakeServers,
    channels: &[String],
    bell: &Bell,
    memo: &Memo,
) -> redis::RedisResult<()> {
    let (mut sink, mut messages) = subscriber(servers).await?.split();
    let within = |patience| Instant::now() + patience;
    timed(within(PONG_WITHIN), sink.subscribe(channels)).await?;
    // Wake-ups before the subscription were missed.
    bell.ring(&Wake::All);
    let mut ping_at = within(PING_EVERY);
    loop {
        match timeout_at(ping_at, messages.next()).await {
            Ok(Some(message)) => bell.ring(&wake_of(message.get_payload_bytes(), memo)),
            Ok(None) => return Err((Driver::Io, "the connection has ended").into()),
            Err(_) => {
                timed(within(PONG_WITHIN), sink.ping::<redis::Value>()).await?;
                ping_at = within(PING_EVERY);
            }
        }
    }
}

async fn timed<T>(
    until: Instant,
    call: impl Future<Output = redis::RedisResult<T>>,
) -> redis::RedisResult<T> {
    let late = |_| Err((Driver::Io, "no answer in time").into());
    timeout_at(until, call).await.unwrap_or_else(late)
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
        match timeout(CONNECT_WITHIN, server.get_async_pubsub()).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(error)) => failed = Some(error),
            Err(_) => failed = Some((Driver::Io, "no connection in time").into()),
        }
    }
    Err(failed.unwrap_or_else(|| (redis::ErrorKind::Io, "there is no server").into()))
}
