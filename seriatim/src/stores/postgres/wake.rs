//! Wake-ups between processes: LISTEN and NOTIFY, on a separate connection. A push wakes two processes of those that wait, so
//! that it costs no more with a hundred of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::channel as news_channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::error;
use super::pool::in_schema;
use super::servers::{Servers, Session};
use super::summons::{Me, Summons, Unsent, channel, own_channel, wake_of};
use crate::contract::{Bell, Wake};
use crate::lock::lock;
use crate::model::Result;
use crate::stores::asleep::{Asleep, News};

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

/// Deletes what processes that are gone have left.
const FORGET: &str = "DELETE FROM seriatim.sleeper WHERE ctid = ANY (ARRAY( \
    SELECT s.ctid FROM seriatim.sleeper s WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a \
        WHERE a.pid = s.process AND coalesce(a.backend_start = s.began, true)) FOR UPDATE SKIP LOCKED))";
/// Which of these transactions are in progress.
const STILL_OPEN: &str =
    "SELECT n FROM unnest($1::bigint[]) n WHERE txid_status(n) = 'in progress'";

/// The connection for wake-ups. It ends with the store.
pub(super) struct Link {
    /// `None`: this store does not listen, and nodes find jobs of other processes by polling.
    way: Option<Way>,
    notices: Arc<Notices>,
    bell: Bell,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Where wake-ups are sent.
#[derive(Clone)]
struct Way {
    servers: Arc<Servers>,
    schema: String,
}

/// What is to be sent, and what the others know of this process.
struct Notices {
    unsent: Mutex<Summons>,
    /// What is being sent. If that fails, it is sent again.
    sending: Mutex<Option<Unsent>>,
    news: Notify,
    /// Users' open transactions with pushes, by number: their ends are looked for every [`PAUSE`].
    open: Mutex<BTreeMap<i64, Summons>>,
    asleep: Mutex<Asleep>,
    place: i32,
    /// The session that listens, as the server numbers it.
    process: AtomicI32,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            unsent: Mutex::default(),
            sending: Mutex::default(),
            news: Notify::default(),
            open: Mutex::default(),
            asleep: Mutex::default(),
            place: fastrand::i32(0..),
            process: AtomicI32::default(),
        }
    }
}

impl Notices {
    fn add(&self, summons: &Summons) {
        lock(&self.unsent).merge(summons);
        self.news.notify_one();
    }

    /// Takes what can be sent: of where this process waits, only while it listens.
    fn take(&self, bell: &Bell, listens: bool) -> Option<Unsent> {
        let summons = std::mem::take(&mut *lock(&self.unsent));
        let is_awaited = |queue: &str| bell.is_awaited(queue);
        let news = if listens { lock(&self.asleep).news(is_awaited) } else { News::default() };
        let unsent = Unsent { summons, news };
        (!unsent.is_empty()).then_some(unsent)
    }

    /// What was not sent is sent again.
    fn put_back(&self, unsent: Unsent) {
        lock(&self.unsent).merge(&unsent.summons);
        lock(&self.asleep).put_back(unsent.news);
    }

    fn me(&self) -> Me {
        Me { place: self.place, process: self.process.load(Ordering::Relaxed) }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<i64, Summons>> {
        lock(&self.open)
    }
}

impl Link {
    pub(super) fn open(servers: Option<Arc<Servers>>, schema: &str, bell: Bell) -> Self {
        let notices = Arc::new(Notices::default());
        let way = servers.map(|servers| Way { servers, schema: schema.to_owned() });
        let task = way.clone().map(|way| tokio::spawn(run(way, bell.clone(), notices.clone())));
        Self { way, notices, bell, task: Mutex::new(task) }
    }

    /// Neither sends nor receives.
    pub(super) fn none() -> Self {
        Self { way: None, notices: Arc::default(), bell: Bell::default(), task: Mutex::default() }
    }

    /// Wakes nodes of other processes, within [`PAUSE`].
    pub(super) fn notify_others(&self, summons: &Summons) {
        if self.way.is_some() && !summons.is_empty() {
            self.notices.add(summons);
        }
    }

    /// The same when this transaction commits, also for this process.
    pub(super) fn follow(&self, number: i64, summons: &Summons) {
        let mut open = self.notices.open();
        if self.way.is_none()
            || summons.is_empty()
            || (open.len() >= OPEN_MAX && !open.contains_key(&number))
        {
            return;
        }
        // A transaction with many pushes is followed once.
        open.entry(number).and_modify(|all| all.merge(summons)).or_insert_with(|| summons.clone());
        self.notices.news.notify_one();
    }

    /// Nothing is due in the queue. If this process claims from it, it waits now.
    pub(super) fn falls_asleep(&self, queue: &Arc<str>) {
        if self.way.is_some() && self.bell.is_awaited(queue) {
            self.tell(|asleep| asleep.falls_asleep(queue));
        }
    }

    /// A claim is sent.
    pub(super) fn claims(&self, queue: &str) {
        lock(&self.notices.asleep).claims(queue);
    }

    /// More is due in the queue than this process takes now.
    pub(super) fn leaves_some(&self, queue: &str) {
        // A process that does not listen connects for pushes alone.
        if self.way.is_some() && self.bell.has_listeners() {
            self.tell(|asleep| asleep.leaves_some(queue, Instant::now()));
        }
    }

    /// This process does not claim, though it was woken.
    pub(super) fn pass_on(&self, queue: &str) {
        self.tell(|asleep| asleep.pass_on(queue));
    }

    fn tell(&self, is_news: impl FnOnce(&mut Asleep) -> bool) {
        if is_news(&mut lock(&self.notices.asleep)) {
            self.notices.news.notify_one();
        }
    }

    /// The queues of users' transactions that may have ended.
    pub(super) fn followed(&self) -> Wake {
        let open = self.notices.open();
        if self.way.is_none() || open.len() >= OPEN_MAX {
            return Wake::All;
        }
        let mut wake = Wake::of([]);
        open.values().for_each(|summons| wake.merge(&summons.wake()));
        wake
    }

    /// Sends pending wake-ups and ends. Otherwise the jobs of a process that pushes and exits would be found only by
    /// polling.
    pub(super) async fn close(&self) {
        self.end();
        if let Some((way, unsent)) = self.unsent() {
            send_last(&way, &unsent, self.notices.me()).await;
        }
    }

    /// Takes what must be sent before the process ends. If that is nothing, the others find out that it waits no more.
    fn unsent(&self) -> Option<(Way, Unsent)> {
        let way = self.way.clone()?;
        let sending = lock(&self.notices.sending).take();
        sending.into_iter().for_each(|unsent| self.notices.put_back(unsent));
        let mut summons = std::mem::take(&mut *lock(&self.notices.unsent));
        let open = std::mem::take(&mut *self.notices.open());
        open.values().for_each(|one| summons.merge(one));
        let mut asleep = lock(&self.notices.asleep);
        asleep.ends();
        let news = asleep.news(|_| true);
        let says = !summons.is_empty() || !news.next.is_empty() || !news.passed_on.is_empty();
        says.then_some((way, Unsent { summons, news }))
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
        let Some((way, unsent)) = self.unsent() else { return };
        // The runtime may end with the store, so the thread has its own.
        let me = self.notices.me();
        let send = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(send_last(&way, &unsent, me)))
        };
        let thread = thread::Builder::new().name("seriatim-wake".to_owned()).spawn(send);
        if let Ok(thread) = thread {
            let _ = thread.join();
        }
    }
}

async fn send_last(way: &Way, unsent: &Unsent, me: Me) {
    let send = async {
        let Session { client, driver, .. } = way.servers.open(None).await?;
        let sent = client.batch_execute(&unsent.statement(&way.schema, me)).await;
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
    let receive = async {
        while let Some(news) = heard.recv().await {
            if news.process_id() != notices.me().process {
                let wake = wake_of(news.payload());
                if news.channel() != channel(&way.schema) {
                    named(bell, notices, &wake);
                }
                bell.ring(&wake);
            }
        }
        Ok(())
    };
    let send = async {
        // This process rings its bell itself.
        let rows = session.client.query_typed("SELECT pg_backend_pid()", &[]).await?;
        notices.process.store(rows[0].get(0), Ordering::Relaxed);
        send(way, &session, bell, notices).await
    };
    let send = async { send.await.map_err(error::of_driver) };
    tokio::select! {
        biased;
        result = receive => result,
        result = send => result,
    }
}

/// This process is one of two that were woken.
fn named(bell: &Bell, notices: &Notices, wake: &Wake) {
    let Wake::Queues(queues) = wake else { return };
    let mut asleep = lock(&notices.asleep);
    queues.iter().for_each(|queue| asleep.is_named(queue, bell.is_awaited(queue)));
    notices.news.notify_one();
}

async fn send(
    way: &Way,
    session: &Session,
    bell: &Bell,
    notices: &Notices,
) -> std::result::Result<(), tokio_postgres::Error> {
    let (client, me) = (&session.client, notices.me());
    let mut listens = false;
    let failed = lock(&notices.sending).take();
    failed.into_iter().for_each(|unsent| notices.put_back(unsent));
    // The others know an earlier session.
    lock(&notices.asleep).repeat();
    while way.servers.is_current(session) {
        if !listens && bell.has_listeners() {
            let (all, own) = (channel(&way.schema), own_channel(&way.schema, me.process));
            // It is left to others where this session may only read.
            if let Err(error) = client.batch_execute(&in_schema(FORGET, &way.schema)).await {
                tracing::debug!(%error, "processes that are gone stay entered");
            }
            client.batch_execute(&format!("LISTEN {all}; LISTEN {own}")).await?;
            listens = true;
            // Wake-ups before this one were missed.
            bell.ring(&Wake::All);
        }
        end_of_any(client, bell, notices).await?;
        if let Some(unsent) = notices.take(bell, listens) {
            let text = unsent.statement(&way.schema, me);
            *lock(&notices.sending) = Some(unsent);
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
        let summons = notices.open().remove(&number);
        if let Some(summons) = summons {
            summons.ring(bell);
            notices.add(&summons);
        }
    }
    Ok(())
}
