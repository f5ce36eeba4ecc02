//! Wake-ups between processes: LISTEN and NOTIFY, on a separate connection.

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

/// At most one NOTIFY in this time: each takes a server-wide lock when it commits.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between attempts to reconnect. Meanwhile nodes poll.
const RECONNECT: Duration = Duration::from_secs(1);

/// Limit for sending pending wake-ups when the store closes. After that, nodes find the jobs by polling.
const LAST_SEND_MAX: Duration = Duration::from_secs(1);

/// The connection for wake-ups. It ends with the store.
pub(super) struct Link {
    /// `None`: this store does not listen, and nodes find jobs of other processes by polling.
    way: Option<Way>,
    notices: Arc<Notices>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Where wake-ups are sent.
#[derive(Clone)]
struct Way {
    config: Config,
    tls: Tls,
    channel: String,
}

/// Counts wake-ups requested and sent.
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

    /// The count that a wake-up sent now would cover. `None`: nothing is pending.
    fn unsent(&self) -> Option<u64> {
        let times = self.times.load(Ordering::Acquire);
        (times > self.sent.load(Ordering::Acquire)).then_some(times)
    }

    fn sent(&self, times: u64) {
        self.sent.fetch_max(times, Ordering::AcqRel);
    }
}

impl Link {
    pub(super) fn open(config: Option<Config>, tls: Tls, schema: &str, bell: Bell) -> Self {
        let notices = Arc::new(Notices::default());
        let way = config.map(|config| Way { config, tls, channel: channel(schema) });
        let task = way.clone().map(|way| tokio::spawn(run(way, bell, notices.clone())));
        Self { way, notices, task: Mutex::new(task) }
    }

    /// Neither sends nor receives.
    pub(super) fn none() -> Self {
        Self { way: None, notices: Arc::default(), task: Mutex::default() }
    }

    /// Wakes the nodes of other processes, within [`PAUSE`].
    pub(super) fn notify_others(&self) {
        self.notices.add();
    }

    /// Sends pending wake-ups and ends. Otherwise the jobs of a process that pushes and exits would be found only by
    /// polling.
    pub(super) async fn close(&self) {
        self.end();
        if let Some(way) = self.has_unsent() {
            send_last(&way).await;
        }
    }

    fn has_unsent(&self) -> Option<Way> {
        let times = self.notices.unsent()?;
        self.notices.sent(times);
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
        let Some(way) = self.has_unsent() else { return };
        // The runtime may end with the store, so the thread has its own.
        let send = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(send_last(&way)))
        };
        let thread = thread::Builder::new().name("seriatim-wake".to_owned()).spawn(send);
        if let Ok(thread) = thread {
            let _ = thread.join();
        }
    }
}

async fn send_last(way: &Way) {
    let send = async {
        let (client, driver) = way.config.connect(way.tls.clone()).await?;
        let ended = tokio::spawn(driver);
        client.batch_execute(&notify(&way.channel)).await?;
        drop(client);
        // The driver closes the session properly.
        let _ = ended.await;
        Ok::<(), tokio_postgres::Error>(())
    };
    match timeout(LAST_SEND_MAX, send).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the last pushes are found by polling"),
        Err(_) => tracing::debug!("the last pushes are found by polling: the server is slow"),
    }
}

/// The channel of a schema's wake-ups.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_due")
}

/// The jobs are already on disk, so NOTIFY need not wait for the disk. Both statements are in one transaction: the
/// session may be a pooler's, and its next transaction a push.
fn notify(channel: &str) -> String {
    format!("SET LOCAL synchronous_commit = off; NOTIFY {channel}")
}

async fn run(way: Way, bell: Bell, notices: Arc<Notices>) {
    loop {
        if let Err(error) = listen(&way, &bell, &notices).await {
            tracing::debug!(%error, "wake-ups from PostgreSQL are interrupted");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Sends and receives wake-ups until the connection breaks.
async fn listen(way: &Way, bell: &Bell, notices: &Notices) -> Result<(), tokio_postgres::Error> {
    let (client, mut driver) = way.config.connect(way.tls.clone()).await?;
    let mut messages = poll_fn(move |context| driver.poll_message(context));
    let receive = async {
        while let Some(message) = messages.next().await {
            if matches!(message?, AsyncMessage::Notification(_)) {
                bell.ring();
            }
        }
        Ok(())
    };
    tokio::select! {
        biased;
        result = receive => result,
        result = send(client, &way.channel, bell, notices) => result,
    }
}

async fn send(
    client: Client,
    channel: &str,
    bell: &Bell,
    notices: &Notices,
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    let send = notify(channel);
    // Wake-ups before this one were missed.
    bell.ring();
    loop {
        let Some(times) = notices.unsent() else {
            notices.news.notified().await;
            continue;
        };
        client.batch_execute(&send).await?;
        notices.sent(times);
        tokio::time::sleep(PAUSE).await;
    }
}
