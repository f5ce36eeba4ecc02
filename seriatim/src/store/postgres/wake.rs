//! Wake-ups between processes: LISTEN and NOTIFY, on a connection of their own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::tls::Tls;
use crate::store::wake::Bell;

/// At most one NOTIFY in this time, whatever is pushed: each takes a lock of the whole server when
/// it commits.
const PAUSE: Duration = Duration::from_millis(50);
/// How long after a failure the connection is tried again. Meanwhile nodes find work by polling.
const RECONNECT: Duration = Duration::from_secs(1);

/// The connection that carries wake-ups. It ends with the store.
pub(super) struct Link {
    told: Arc<Notify>,
    /// None: nobody listens, and nodes find what others pushed by polling.
    task: Option<JoinHandle<()>>,
}

impl Link {
    pub(super) fn open(config: Option<Config>, tls: Tls, schema: &str, bell: Bell) -> Self {
        let told = Arc::new(Notify::new());
        let run = |config| run(config, tls, channel(schema), bell, told.clone());
        let task = config.map(|config| tokio::spawn(run(config)));
        Self { told, task }
    }

    /// Neither tells nor hears.
    pub(super) fn none() -> Self {
        Self { told: Arc::default(), task: None }
    }

    /// Wakes the nodes in other processes, soon.
    pub(super) fn tell_others(&self) {
        self.told.notify_one();
    }

    pub(super) fn close(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// The channel of a schema's wake-ups.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_due")
}

async fn run(config: Config, tls: Tls, channel: String, bell: Bell, told: Arc<Notify>) {
    loop {
        if let Err(error) = listen(&config, &tls, &channel, &bell, &told).await {
            tracing::debug!(%error, "wake-ups from PostgreSQL are interrupted");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Carries wake-ups in both directions until the connection breaks.
async fn listen(
    config: &Config,
    tls: &Tls,
    channel: &str,
    bell: &Bell,
    told: &Notify,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut driver) = config.connect(tls.clone()).await?;
    let mut messages = poll_fn(move |context| driver.poll_message(context));
    let hear = async {
        while let Some(message) = messages.next().await {
            if matches!(message?, AsyncMessage::Notification(_)) {
                bell.ring();
            }
        }
        Ok(())
    };
    tokio::select! {
        biased;
        result = hear => result,
        result = tell(client, channel, bell, told) => result,
    }
}

async fn tell(
    client: Client,
    channel: &str,
    bell: &Bell,
    told: &Notify,
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    // What is told is on the disk already: to wait for the disk before it is told would help nobody. Both
    // are one transaction, as the session may be a pooler's, and the next in it a push.
    let tell = format!("SET LOCAL synchronous_commit = off; NOTIFY {channel}");
    // What was missed before.
    bell.ring();
    loop {
        told.notified().await;
        client.batch_execute(&tell).await?;
        tokio::time::sleep(PAUSE).await;
    }
}
