//! Wake-ups between processes: LISTEN and NOTIFY, on a connection of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::tls::Tls;
use crate::contract::Bell;

/// At most one NOTIFY in this time, whatever is pushed: each takes a lock of the whole server when
/// it commits.
const PAUSE: Duration = Duration::from_millis(50);
/// How long after a failure the connection is tried again. Meanwhile nodes find work by polling.
const RECONNECT: Duration = Duration::from_secs(1);

/// How long a store that ends tries to tell what it has not told yet. Later nodes find it by polling.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// The connection that carries wake-ups. It ends with the store.
pub(super) struct Link {
    /// None: nobody listens, and nodes find what others pushed by polling.
    way: Option<Way>,
    told: Arc<Notices>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Where wake-ups go.
#[derive(Clone)]
struct Way {
    config: Config,
    tls: Tls,
    channel: String,
}

/// How often something was to be told, and how much of it has been.
#[derive(Default)]
struct Notices {
    times: AtomicU64,
    sent: AtomicU64,
    news: Notify,
}

impl Notices {
    fn add(&self) {
        self.times.fetch_add(1, Ordering::AcqRel);
        self.news.notify_one();
    }

    /// What a wake-up that is sent now tells; none: all has been told.
    fn untold(&self) -> Option<u64> {
        let times = self.times.load(Ordering::Acquire);
        (times > self.sent.load(Ordering::Acquire)).then_some(times)
    }

    fn sent(&self, times: u64) {
        self.sent.fetch_max(times, Ordering::AcqRel);
    }
}

impl Link {
    pub(super) fn open(config: Option<Config>, tls: Tls, schema: &str, bell: Bell) -> Self {
        let told = Arc::new(Notices::default());
        let way = config.map(|config| Way { config, tls, channel: channel(schema) });
        let task = way.clone().map(|way| tokio::spawn(run(way, bell, told.clone())));
        Self { way, told, task: Mutex::new(task) }
    }

    /// Neither tells nor hears.
    pub(super) fn none() -> Self {
        Self { way: None, told: Arc::default(), task: Mutex::default() }
    }

    /// Wakes the nodes in other processes, soon.
    pub(super) fn tell_others(&self) {
        self.told.add();
    }

    /// Tells what has not been told yet, and ends. A process that pushes and exits would else be heard
    /// by polling only.
    pub(super) async fn close(&self) {
        self.end();
        if let Some(way) = self.has_untold() {
            last_words(&way).await;
        }
    }

    fn has_untold(&self) -> Option<Way> {
        let times = self.told.untold()?;
        self.told.sent(times);
        self.way.clone()
    }

    fn end(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
        let Some(way) = self.has_untold() else { return };
        // The runtime may end with the store, so this has one of its own.
        let tell = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(last_words(&way)))
        };
        let thread = thread::Builder::new().name("seriatim-wake".to_owned()).spawn(tell);
        if let Ok(thread) = thread {
            let _ = thread.join();
        }
    }
}

async fn last_words(way: &Way) {
    let tell = async {
        let (client, driver) = way.config.connect(way.tls.clone()).await?;
        let ended = tokio::spawn(driver);
        client.batch_execute(&notify(&way.channel)).await?;
        drop(client);
        // It says goodbye to the server.
        let _ = ended.await;
        Ok::<(), tokio_postgres::Error>(())
    };
    match timeout(LAST_WORDS_MAX, tell).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the last pushes are found by polling"),
        Err(_) => tracing::debug!("the last pushes are found by polling: the server is slow"),
    }
}

/// The channel of a schema's wake-ups.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_due")
}

/// What is told is on the disk already: to wait for the disk before it is told would help nobody. Both are
/// one transaction, as the session may be a pooler's, and the next in it a push.
fn notify(channel: &str) -> String {
    format!("SET LOCAL synchronous_commit = off; NOTIFY {channel}")
}

async fn run(way: Way, bell: Bell, told: Arc<Notices>) {
    loop {
        if let Err(error) = listen(&way, &bell, &told).await {
            tracing::debug!(%error, "wake-ups from PostgreSQL are interrupted");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Carries wake-ups in both directions until the connection breaks.
async fn listen(way: &Way, bell: &Bell, told: &Notices) -> Result<(), tokio_postgres::Error> {
    let (client, mut driver) = way.config.connect(way.tls.clone()).await?;
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
        result = tell(client, &way.channel, bell, told) => result,
    }
}

async fn tell(
    client: Client,
    channel: &str,
    bell: &Bell,
    told: &Notices,
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    let tell = notify(channel);
    // What was missed before.
    bell.ring();
    loop {
        let Some(times) = told.untold() else {
            told.news.notified().await;
            continue;
        };
        client.batch_execute(&tell).await?;
        told.sent(times);
        tokio::time::sleep(PAUSE).await;
    }
}
