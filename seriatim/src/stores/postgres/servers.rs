//! The servers of a URL. A session is opened on the one that takes writes. After a failover the old primary may return
//! and take writes too: then the timeline tells which of them is newer, and a process does not go back to an older one.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::config::Host;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification};

use super::convert::column;
use super::error;
use super::tls::Tls;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Result, duration};
use crate::stores::url::CONNECT_TIMEOUT;

/// How long to wait for the other servers of a URL when one has answered. One of them may be a newer primary.
const OTHERS_MAX: Duration = Duration::from_millis(500);
/// How many times `connect_timeout` opening a session may take. For the driver, that is how long each address of a name
/// may take to accept a connection, and not how long the server then takes to answer.
const OPENING_MAX: u32 = 3;

const LOOK: &str = "SELECT current_setting('default_transaction_isolation') = 'read committed' AS usual, \
    current_setting('transaction_read_only') = 'off' AS writes, pg_postmaster_start_time()::text AS started, \
    (SELECT system_identifier FROM pg_control_system()) AS system, \
    CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END AS timeline";

/// The servers of a URL.
pub(super) struct Servers {
    each: Vec<Config>,
    tls: Tls,
    /// The newest primary that this process has used.
    newest: Mutex<Option<Primary>>,
}

/// An open session. Its driver ends when the client is dropped.
pub(super) struct Session {
    pub client: Client,
    pub driver: JoinHandle<()>,
    /// `None`: a standby.
    primary: Option<Primary>,
    writes: bool,
    /// For errors.
    server: String,
}

/// A server that is no standby.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Primary {
    /// The same for all copies of a cluster.
    system: i64,
    /// Each promotion begins another one. Hexadecimal, of a fixed length.
    timeline: String,
    /// When it started. Several addresses may lead to one server.
    started: String,
}

impl Primary {
    fn is_older_than(&self, other: &Self) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }
}

impl Servers {
    pub(super) fn new(config: &Config, tls: Tls) -> Self {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let each = (0..count).map(|place| one_of(config, place)).collect();
        Self { each, tls, newest: Mutex::default() }
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Opens a session. Its notifications are sent to `news`.
    pub(super) async fn open(&self, news: Option<Sender<Notification>>) -> Result<Session> {
        let session = match &self.each[..] {
            [only] => self.session(only, news).await?,
            _ => self.newest_of_all(news).await?,
        };
        self.accept(&session)?;
        Ok(session)
    }

    /// Whether no newer primary was used since this session was opened.
    pub(super) fn is_current(&self, session: &Session) -> bool {
        match (&session.primary, &*self.newest()) {
            (Some(primary), Some(newest)) => !primary.is_older_than(newest),
            _ => true,
        }
    }

    fn accept(&self, session: &Session) -> Result<()> {
        let Some(primary) = &session.primary else { return Ok(()) };
        let mut newest = self.newest();
        if let Some(newest) = newest.as_ref().filter(|newest| primary.is_older_than(newest)) {
            let message = format!(
                "{} is on timeline {} of PostgreSQL, and this process has used timeline {}: it is an old primary that \
                 takes writes again. Stop it, and make it a standby",
                session.server, primary.timeline, newest.timeline
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        *newest = Some(primary.clone());
        Ok(())
    }

    fn newest(&self) -> MutexGuard<'_, Option<Primary>> {
        lock(&self.newest)
    }

    /// Asks all servers at once.
    async fn newest_of_all(&self, news: Option<Sender<Notification>>) -> Result<Session> {
        let one = async |config: &Config| {
            let session = self.session(config, news.clone()).await;
            session.map_err(|error| (name(config), error))
        };
        let mut tries: FuturesUnordered<_> = self.each.iter().map(one).collect();
        let (mut found, mut errors, mut until) = (Vec::new(), Vec::new(), None);
        loop {
            let next = match until {
                None => tries.next().await,
                Some(until) => timeout_at(until, tries.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some(Err(error)) => errors.push(error),
                Some(Ok(session)) if session.writes => {
                    until.get_or_insert_with(|| Instant::now() + OTHERS_MAX);
                    found.push(session);
                }
                Some(Ok(session)) => {
                    let error = Error::new(ErrorKind::Unavailable, "can only be read");
                    errors.push((session.server, error));
                }
            }
        }
        newest(found)?.ok_or_else(|| none(&errors))
    }

    async fn session(
        &self,
        config: &Config,
        news: Option<Sender<Notification>>,
    ) -> Result<Session> {
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let limit = limit.saturating_mul(OPENING_MAX);
        timeout(limit, self.begin(config, news)).await.unwrap_or_else(|_| {
            let (server, limit) = (name(config), duration::format(limit));
            let message = format!("{server} has not answered within {limit} (connect_timeout)");
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    async fn begin(&self, config: &Config, news: Option<Sender<Notification>>) -> Result<Session> {
        let (client, connection) =
            config.connect(self.tls.clone()).await.map_err(error::of_driver)?;
        let driver = tokio::spawn(drive(connection, news));
        let rows = client.query_typed(LOOK, &[]).await.map_err(error::of_driver)?;
        let missing = || Error::new(ErrorKind::Internal, "PostgreSQL returned no row");
        let row = rows.first().ok_or_else(missing)?;
        if !column::<_, bool>(row, "usual")? {
            // The store's functions rely on each statement seeing what was committed before it.
            let usual = "SET default_transaction_isolation = 'read committed'";
            client.batch_execute(usual).await.map_err(error::of_driver)?;
        }
        let (system, started) = (column(row, "system")?, column(row, "started")?);
        let timeline: Option<String> = column(row, "timeline")?;
        let primary = timeline.map(|timeline| Primary { system, timeline, started });
        Ok(Session {
            client,
            driver,
            primary,
            writes: column(row, "writes")?,
            server: name(config),
        })
    }
}

/// The session on the newest primary. An error if it cannot be told which one that is.
fn newest(mut found: Vec<Session>) -> Result<Option<Session>> {
    let timeline = |session: &Session| session.primary.as_ref().map(|p| p.timeline.clone());
    found.sort_by_key(|session| std::cmp::Reverse(timeline(session)));
    let mut found = found.into_iter();
    let Some(best) = found.next() else { return Ok(None) };
    for other in found {
        let (Some(one), Some(two)) = (&best.primary, &other.primary) else { continue };
        if two.is_older_than(one) {
            tracing::warn!(
                server = other.server,
                timeline = two.timeline,
                newest = best.server,
                "an old primary takes writes: stop it, and make it a standby"
            );
        } else if one.started != two.started {
            let message = format!(
                "{} and {} both take writes, and neither is newer: stop one of them",
                best.server, other.server
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
    Ok(Some(best))
}

/// No server takes writes.
fn none(errors: &[(String, Error)]) -> Error {
    let kind = errors.first().map_or(ErrorKind::Unavailable, |(_, error)| error.kind());
    let same = errors.iter().all(|(_, error)| error.kind() == kind);
    let all: Vec<String> = errors.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    let message = format!("no server of the URL takes writes: {}", all.join("; "));
    Error::new(if same { kind } else { ErrorKind::Unavailable }, message)
}

/// Drives a connection until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, news: Option<Sender<Notification>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = poll_fn(move |context| connection.poll_message(context));
    while let Some(message) = messages.next().await {
        match (message, &news) {
            (Ok(AsyncMessage::Notification(notification)), Some(news)) => {
                // The receiver may be gone.
                let _ = news.send(notification).await;
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
                return;
            }
        }
    }
}

/// The server's address.
fn name(config: &Config) -> String {
    let port = config.get_ports().first().copied().unwrap_or(PORT);
    match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(host)), _) => format!("{host}:{port}"),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => format!("{address}:{port}"),
        (None, None) => String::new(),
    }
}

/// PostgreSQL's.
const PORT: u16 = 5432;

/// The settings for the server at this place of the list.
fn one_of(config: &Config, place: usize) -> Config {
    let mut one = without_servers(config);
    match config.get_hosts().get(place) {
        Some(Host::Tcp(host)) => drop(one.host(host)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(place) {
        one.hostaddr(*address);
    }
    // One port is for all.
    if let Some(port) = config.get_ports().get(place).or(config.get_ports().first()) {
        one.port(*port);
    }
    one
}

/// The same settings for another server.
pub(super) fn at(config: &Config, host: &str, port: u16) -> Config {
    let mut other = without_servers(config);
    other.host(host).port(port);
    other
}

fn without_servers(config: &Config) -> Config {
    let mut other = Config::new();
    other
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    if let Some(user) = config.get_user() {
        other.user(user);
    }
    if let Some(password) = config.get_password() {
        other.password(password);
    }
    if let Some(name) = config.get_dbname() {
        other.dbname(name);
    }
    if let Some(options) = config.get_options() {
        other.options(options);
    }
    if let Some(name) = config.get_application_name() {
        other.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        other.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        other.tcp_user_timeout(*limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        other.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        other.keepalives_retries(retries);
    }
    other
}
