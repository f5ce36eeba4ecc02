//! Wake-ups between processes: LISTEN and NOTIFY, on a separate connection.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::channel as news_channel;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::error;
use super::servers::{Servers, Session};
use crate::contract::{Bell, Wake};
use crate::lock::lock;
use crate::model::Result;

/// Longest payload of a NOTIFY, in bytes; the server refuses 8,000. A wake-up for more queues is for all.
const PAYLOAD_MAX: usize = 7_900;
/// At most one NOTIFY in this time: each takes a server-wide lock when it commits.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Time between attempts to reconnect. Meanwhile nodes poll.
const RECONNECT: Duration = Duration::from_secs(1);

/// Most wake-ups that were received and not handled. With more, the connection is not read for a moment.
const UNREAD_MAX: usize = 1_000;
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
    servers: Arc<Servers>,
    channel: String,
}

/// What is to be sent.
#[derive(Default)]
struct Notices {
    unsent: Mutex<Option<Wake>>,
    /// The wake-up that is being sent. If that fails, it is sent again.
    sending: Mutex<Option<Wake>>,
    news: Notify,
    /// Users' open transactions with pushes, by number: their ends are looked for every [`PAUSE`].
    open: Mutex<BTreeMap<i64, Wake>>,
}

impl Notices {
    fn add(&self, wake: &Wake) {
        match &mut *lock(&self.unsent) {
            Some(unsent) => unsent.merge(wake),
            unsent => *unsent = Some(wake.clone()),
        }
        self.news.notify_one();
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<i64, Wake>> {
        lock(&self.open)
    }
}

impl Link {
    pub(super) fn open(servers: Option<Arc<Servers>>, schema: &str, bell: Bell) -> Self {
        let notices = Arc::new(Notices::default());
        let way = servers.map(|servers| Way { servers, channel: channel(schema) });
        let task = way.clone().map(|way| tokio::spawn(run(way, bell, notices.clone())));
        Self { way, notices, task: Mutex::new(task) }
    }

    /// Neither sends nor receives.
    pub(super) fn none() -> Self {
        Self { way: None, notices: Arc::default(), task: Mutex::default() }
    }

    /// Wakes the nodes of other processes, within [`PAUSE`].
    pub(super) fn notify_others(&self, wake: &Wake) {
        if self.way.is_some() && !wake.is_empty() {
            self.notices.add(wake);
        }
    }

    /// Wakes the nodes of all processes when this transaction commits.
    pub(super) fn follow(&self, number: i64, wake: &Wake) {
        let mut open = self.notices.open();
        if self.way.is_none() || (open.len() >= OPEN_MAX && !open.contains_key(&number)) {
            return;
        }
        // A transaction with many pushes is followed once.
        open.entry(number).and_modify(|all| all.merge(wake)).or_insert_with(|| wake.clone());
        self.notices.news.notify_one();
    }

    /// Sends pending wake-ups and ends. Otherwise the jobs of a process that pushes and exits would be found only by
    /// polling.
    pub(super) async fn close(&self) {
        self.end();
        if let Some((way, wake)) = self.unsent() {
            send_last(&way, &wake).await;
        }
    }

    /// Takes what must be sent before the process ends.
    fn unsent(&self) -> Option<(Way, Wake)> {
        let open = std::mem::take(&mut *self.notices.open());
        let unsent = [&self.notices.unsent, &self.notices.sending].map(|wake| lock(wake).take());
        let wake =
            unsent.into_iter().flatten().chain(open.into_values()).reduce(|mut all, wake| {
                all.merge(&wake);
                all
            });
        self.way.clone().zip(wake)
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
        let Some((way, wake)) = self.unsent() else { return };
        // The runtime may end with the store, so the thread has its own.
        let send = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(send_last(&way, &wake)))
        };
        let thread = thread::Builder::new().name("seriatim-wake".to_owned()).spawn(send);
        if let Ok(thread) = thread {
            let _ = thread.join();
        }
    }
}

async fn send_last(way: &Way, wake: &Wake) {
    let send = async {
        let Session { client, driver, .. } = way.servers.open(None).await?;
        let sent = client.batch_execute(&notify(&way.channel, wake)).await;
        drop(client);
        // The driver closes the session properly.
        let _ = driver.await;
        sent.map_err(error::of_driver)
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
fn notify(channel: &str, wake: &Wake) -> String {
    // Names of queues need no quoting.
    format!("SET LOCAL synchronous_commit = off; NOTIFY {channel}, '{}'", payload(wake))
}

/// The names of the queues, separated by commas; nothing for all queues.
fn payload(wake: &Wake) -> String {
    let Wake::Queues(queues) = wake else { return String::new() };
    let names = queues.iter().map(|name| &**name).collect::<Vec<_>>().join(",");
    if names.len() > PAYLOAD_MAX { String::new() } else { names }
}

fn wake_of(payload: &str) -> Wake {
    if payload.is_empty() { Wake::All } else { Wake::of(payload.split(',')) }
}

/// Connects once there is something to send or a listener.
async fn run(way: Way, bell: Bell, notices: Arc<Notices>) {
    tokio::select! {
        () = bell.listened() => {}
        // The permit is kept for `send`.
        () = notices.news.notified() => notices.news.notify_one(),
    }
    loop {
        if let Err(error) = talk(&way, &bell, &notices).await {
            tracing::debug!(%error, "wake-ups from PostgreSQL are interrupted");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Sends and receives wake-ups until the connection breaks.
async fn talk(way: &Way, bell: &Bell, notices: &Notices) -> Result<()> {
    let (news, mut heard) = news_channel(UNREAD_MAX);
    let session = way.servers.open(Some(news)).await?;
    let own = AtomicI32::new(0);
    let receive = async {
        while let Some(news) = heard.recv().await {
            if news.process_id() != own.load(Ordering::Relaxed) {
                bell.ring(&wake_of(news.payload()));
            }
        }
        Ok(())
    };
    let send = async {
        // This process rings its bell itself.
        let rows = session.client.query_typed("SELECT pg_backend_pid()", &[]).await?;
        own.store(rows[0].get(0), Ordering::Relaxed);
        send(way, &session, bell, notices).await
    };
    let send = async { send.await.map_err(error::of_driver) };
    tokio::select! {
        biased;
        result = receive => result,
        result = send => result,
    }
}

async fn send(
    way: &Way,
    session: &Session,
    bell: &Bell,
    notices: &Notices,
) -> std::result::Result<(), tokio_postgres::Error> {
    let (client, channel) = (&session.client, &*way.channel);
    let mut listens = false;
    let failed = lock(&notices.sending).take();
    failed.iter().for_each(|wake| notices.add(wake));
    while way.servers.is_current(session) {
        if !listens && bell.has_listeners() {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
            listens = true;
            // Wake-ups before this one were missed.
            bell.ring(&Wake::All);
        }
        end_of_any(client, bell, notices).await?;
        let unsent = lock(&notices.unsent).take();
        if let Some(wake) = unsent {
            let text = notify(channel, &wake);
            *lock(&notices.sending) = Some(wake);
            client.batch_execute(&text).await?;
            *lock(&notices.sending) = None;
        } else if notices.open().is_empty() {
            tokio::select! {
                () = notices.news.notified() => {}
                () = bell.listened(), if !listens => {}
            }
            continue;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Forgets the users' transactions that have ended, and sends their wake-ups. One that was rolled back wakes nodes for
/// nothing.
async fn end_of_any(
    client: &Client,
    bell: &Bell,
    notices: &Notices,
) -> std::result::Result<(), tokio_postgres::Error> {
    let open: Vec<i64> = notices.open().keys().copied().collect();
    let Some(highest) = open.last().copied() else { return Ok(()) };
    let ended = match client.query_typed(STILL_OPEN, &[(&open, Type::INT8_ARRAY)]).await {
        // A number to come: it was given by a server whose last writes the one that took over lacks.
        Err(e) if e.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => vec![highest],
        rows => {
            let still: Vec<i64> = rows?.iter().map(|row| row.get(0)).collect();
            open.into_iter().filter(|number| !still.contains(number)).collect()
        }
    };
    for number in ended {
        let wake = notices.open().remove(&number);
        if let Some(wake) = wake {
            bell.ring(&wake);
            notices.add(&wake);
        }
    }
    Ok(())
}
