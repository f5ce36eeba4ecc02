//! Wake-ups between processes: LISTEN and NOTIFY, on a separate connection.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::tls::Tls;
use crate::contract::Bell;
use crate::lock::lock;

/// At most one NOTIFY in this time: each takes a server-wide lock when it commits.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between attempts to reconnect. Meanwhile nodes poll.
const RECONNECT: Duration = Duration::from_secs(1);

/// Most open transactions of users whose ends are looked for. The jobs of others are found by polling.
const OPEN_MAX: usize = 1_000;
/// Limit for sending pending wake-ups when the store closes. After that, nodes find the jobs by polling.
const LAST_SEND_MAX: Duration = Duration::from_secs(1);

/// Which of these transactions are in progress.
const STILL_OPEN: &str =
    "SELECT n FROM unnest($1::bigint[]) n WHERE txid_status(n) = 'in progress'";

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
    /// The numbers of users' open transactions with pushes: their ends are looked for every [`PAUSE`].
    open: Mutex<BTreeSet<i64>>,
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

    fn open(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        lock(&self.open)
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

    /// Wakes the nodes of all processes when this transaction commits.
    pub(super) fn follow(&self, number: i64) {
        let mut open = self.notices.open();
        // A transaction with many pushes is followed once.
        if self.way.is_some() && open.len() < OPEN_MAX && open.insert(number) {
            self.notices.news.notify_one();
        }
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
        let open = !std::mem::take(&mut *self.notices.open()).is_empty();
        let times = self.notices.unsent();
        times.into_iter().for_each(|times| self.notices.sent(times));
        if open || times.is_some() { self.way.clone() } else { None }
    }

    fn end(&self) {
        let task = lock(&self.task).take();
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
        if end_of_any(&client, notices).await? {
            notices.add();
        }
        if let Some(times) = notices.unsent() {
            client.batch_execute(&send).await?;
            notices.sent(times);
        } else if notices.open().is_empty() {
            notices.news.notified().await;
            continue;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Forgets the users' transactions that have ended, and tells whether there were any. One that was rolled back wakes nodes for
/// nothing.
async fn end_of_any(client: &Client, notices: &Notices) -> Result<bool, tokio_postgres::Error> {
    let open: Vec<i64> = notices.open().iter().copied().collect();
    if open.is_empty() {
        return Ok(false);
    }
    let rows = client.query_typed(STILL_OPEN, &[(&open, Type::INT8_ARRAY)]).await?;
    let still: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    notices.open().retain(|number| still.contains(number) || !open.contains(number));
    Ok(still.len() < open.len())
}
