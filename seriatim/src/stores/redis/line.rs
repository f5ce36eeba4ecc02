//! The connection to one server. It is opened again when it is lost, or when the server refuses writes because it is
//! no longer the master.
//!
//! One task connects, and calls wait for it, but only during the first [`BRIDGE`] of an outage. After that they fail
//! at once, so that a dead server does not delay the answers of others; but the call that makes the task begin waits for a
//! moment. A server that has not answered in time is away since the call was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::sentinel::SentinelClient;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind as Driver, Pipeline, ProtocolVersion, PushInfo,
    RedisError, RedisResult, ServerErrorKind as Server, Value,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::lock::lock;

/// How long to wait for an answer of the only server; a push of the largest batch takes a fraction of it.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The same of a node of a cluster, since calls to others wait for it; and for heartbeats, which must come before a lease ends.
pub(super) const ANSWER_SOON: Duration = Duration::from_secs(5);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long calls wait for a server that is away, counted from the first one that failed.
pub(super) const BRIDGE: Duration = Duration::from_secs(5);
/// How long a call waits for a connection before it asks again which server it needs.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);
/// The pauses between attempts to connect.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// A server that has not refused to write for this long is asked as if it never had.
const REFUSED_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Where a server is.
#[derive(Clone)]
pub(super) enum Place {
    At(Arc<Client>),
    /// Wherever the sentinels say.
    Sentinel(Arc<tokio::sync::Mutex<SentinelClient>>),
}

impl Place {
    pub(super) async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::At(client) => Ok(Client::clone(client)),
            Self::Sentinel(sentinels) => sentinels.lock().await.async_get_client().await,
        }
    }

    /// Opens a connection whose answers take at most so long.
    pub(super) async fn connect(&self, within: Duration) -> RedisResult<MultiplexedConnection> {
        self.connect_by(async || self.client().await, config(within)).await
    }

    /// What the server tells without being asked goes to `heard`: Redis 6 and later can do that.
    pub(super) async fn connect_hearing(
        &self,
        heard: UnboundedSender<PushInfo>,
    ) -> RedisResult<MultiplexedConnection> {
        let client = async || {
            let place = self.client().await?.get_connection_info().clone();
            let settings = place.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            Client::open(place.set_redis_settings(settings))
        };
        self.connect_by(client, config(ANSWER_WITHIN).set_push_sender(heard)).await
    }

    async fn connect_by(
        &self,
        client: impl AsyncFnOnce() -> RedisResult<Client>,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let connecting =
            async { client().await?.get_multiplexed_async_connection_with_config(&config).await };
        // Sentinels may not answer either.
        match timeout(2 * CONNECT_WITHIN, connecting).await {
            Ok(link) => link,
            Err(_) => Err((Driver::Io, "no connection in time").into()),
        }
    }
}

fn config(within: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(Some(within))
        .set_connection_timeout(Some(CONNECT_WITHIN))
}

/// Why a command has no result.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It was not executed: there is no connection, or the server refused it.
    Unsent(RedisError),
    /// It failed, or its answer was lost: then it may have been executed.
    Sent(RedisError),
    /// Its writes are not confirmed; see `confirming.rs`.
    Unconfirmed { written: bool },
}

pub(super) struct Line {
    place: Place,
    /// How long an answer may take.
    within: Duration,
    state: watch::Sender<State>,
    is_connecting: AtomicBool,
    /// Whether a call has asked for a connection since the last attempt.
    is_wanted: AtomicBool,
    is_troubled: AtomicBool,
    /// Since when every command fails.
    trouble: Mutex<Option<Instant>>,
    /// Of the times at which the server refused to write, the first and the last.
    refused: Mutex<Option<(Instant, Instant)>>,
}

#[derive(Clone)]
enum State {
    /// The last error, if it was ever open.
    Away(Option<RedisError>),
    Open {
        link: MultiplexedConnection,
        number: u64,
        since: Instant,
    },
}

impl Line {
    pub(super) fn new(place: Place, within: Duration) -> Arc<Self> {
        Arc::new(Self {
            place,
            within,
            state: watch::Sender::new(State::Away(None)),
            is_connecting: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            is_troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Connects, or fails at once.
    pub(super) async fn open(&self) -> RedisResult<()> {
        let link = self.place.connect(self.within).await?;
        self.opened(link);
        Ok(())
    }

    /// Whether the server has been away for so long that calls no longer wait for it.
    pub(super) fn is_out(&self) -> bool {
        self.is_troubled.load(Ordering::Relaxed)
            && lock(&self.trouble).is_some_and(|since| since.elapsed() >= BRIDGE)
    }

    /// Whether the server has refused to write for so long that calls no longer wait for another one.
    pub(super) fn refuses(&self) -> bool {
        let is_over = |(first, last): (Instant, Instant)| {
            first.elapsed() >= BRIDGE && last.elapsed() < REFUSED_FORGOTTEN_AFTER
        };
        lock(&self.refused).is_some_and(is_over)
    }

    /// Sends a command once.
    pub(super) async fn send(self: &Arc<Self>, cmd: &Cmd) -> Result<Value, Failure> {
        let (mut link, number) = self.link().await?;
        let answer = link.send_packed_command(cmd).await.and_then(Value::extract_error);
        self.heed(number, answer)
    }

    /// Sends commands in order, without others in between. Some answers may be errors.
    pub(super) async fn send_all(
        self: &Arc<Self>,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let (mut link, number) = self.link().await?;
        let answers = link.send_packed_commands(commands, 0, commands.len()).await;
        let answers = self.heed(number, answers)?;
        for answer in &answers {
            // A server that refuses one may no longer be the master.
            if let Value::ServerError(error) = answer {
                let _ = self.heed::<()>(number, Err(error.clone().into()));
            }
        }
        Ok(answers)
    }

    async fn link(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), Failure> {
        let mut seen = self.state.subscribe();
        if let State::Open { link, number, .. } = seen.borrow_and_update().clone() {
            return Ok((link, number));
        }
        // The first attempt may find that the outage is over: calls that come too late for it do not wait.
        if self.connect() || !self.is_out() {
            let _ = timeout(CONNECTED_WITHIN, seen.changed()).await;
        }
        let error = match seen.borrow().clone() {
            State::Open { link, number, .. } => return Ok((link, number)),
            State::Away(error) => error,
        };
        self.failed();
        let missing = || (Driver::Io, "there is no connection to the server").into();
        Err(Failure::Unsent(error.unwrap_or_else(missing)))
    }

    fn opened(&self, link: MultiplexedConnection) {
        static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.state.send_replace(State::Open { link, number, since: Instant::now() });
    }

    /// Takes the answer of a connection into account.
    fn heed<T>(self: &Arc<Self>, number: u64, answer: RedisResult<T>) -> Result<T, Failure> {
        let error = match answer {
            Ok(answer) => {
                self.works();
                return Ok(answer);
            }
            Err(error) => error,
        };
        match refusal(&error) {
            Some(Refusal::Elsewhere) => Err(Failure::Unsent(error)),
            Some(Refusal::NotNow) => {
                self.failed();
                Err(Failure::Unsent(error))
            }
            Some(Refusal::NoMaster) => {
                self.refused(number);
                Err(Failure::Unsent(error))
            }
            None if error.is_io_error() => {
                self.lost(number, &error);
                Err(Failure::Sent(error))
            }
            None => {
                self.works();
                Err(Failure::Sent(error))
            }
        }
    }

    fn works(&self) {
        if self.is_troubled.swap(false, Ordering::Relaxed) {
            *lock(&self.trouble) = None;
        }
    }

    fn failed(&self) {
        self.failed_since(Instant::now());
    }

    fn failed_since(&self, since: Instant) {
        let mut trouble = lock(&self.trouble);
        *trouble = Some(trouble.map_or(since, |known| known.min(since)));
        self.is_troubled.store(true, Ordering::Relaxed);
    }

    /// Opens another connection: the address may lead to another server now. Until then the old one can be read.
    fn refused(self: &Arc<Self>, by: u64) {
        let now = Instant::now();
        {
            let mut refused = lock(&self.refused);
            let begun = refused.filter(|(_, last)| last.elapsed() < REFUSED_FORGOTTEN_AFTER);
            *refused = Some((begun.map_or(now, |(first, _)| first), now));
        }
        let is_old = |state: &State| matches!(state, State::Open { number, since, .. } if *number == by && since.elapsed() >= RECONNECT_MAX);
        if is_old(&self.state.borrow()) {
            self.connect();
        }
    }

    fn lost(self: &Arc<Self>, lost: u64, error: &RedisError) {
        let (now, waited) =
            (Instant::now(), if error.is_timeout() { self.within } else { Duration::ZERO });
        self.failed_since(now.checked_sub(waited).unwrap_or(now));
        let was_open = self.state.send_if_modified(|state| match state {
            State::Open { number, .. } if *number == lost => {
                *state = State::Away(Some(error.clone()));
                true
            }
            _ => false,
        });
        if was_open {
            self.connect();
        }
    }

    /// Connects in the background, unless a task already does. Whether this call begins it.
    fn connect(self: &Arc<Self>) -> bool {
        self.is_wanted.store(true, Ordering::Relaxed);
        if self.is_connecting.swap(true, Ordering::AcqRel) {
            return false;
        }
        let connecting = Connecting(Arc::downgrade(self));
        tokio::spawn(async move {
            let mut pause = RECONNECT_MIN;
            while connecting.attempt().await {
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(RECONNECT_MAX);
            }
        });
        true
    }
}

/// The task that connects. It ends with the line.
struct Connecting(Weak<Line>);

impl Connecting {
    /// Whether to try again.
    async fn attempt(&self) -> bool {
        let Some((place, within)) = self.0.upgrade().map(|line| (line.place.clone(), line.within))
        else {
            return false;
        };
        let link = match place.connect(within).await {
            Ok(link) => runs_scripts(link).await,
            failed => failed,
        };
        let Some(line) = self.0.upgrade() else { return false };
        match link {
            Ok(link) => {
                line.opened(link);
                false
            }
            Err(error) => {
                line.state.send_if_modified(|state| match state {
                    State::Away(last) => {
                        *last = Some(error);
                        true
                    }
                    State::Open { .. } => false,
                });
                line.is_wanted.swap(false, Ordering::Relaxed)
            }
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(line) = self.0.upgrade() {
            line.is_connecting.store(false, Ordering::Release);
        }
    }
}

/// The connection, if the server answers a script over it. One that hangs may still take connections, and answer what is only
/// read: then each call would wait in vain.
async fn runs_scripts(mut link: MultiplexedConnection) -> RedisResult<MultiplexedConnection> {
    let answer = link.send_packed_command(redis::cmd("EVAL").arg("return 1").arg(0)).await;
    match answer {
        Err(error) if error.is_io_error() => Err(error),
        _ => Ok(link),
    }
}

/// Why a server refused a command without executing it, though it or another server may execute it soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The keys are, or will be, on another server.
    Elsewhere,
    NotNow,
    /// The server may be a replica now, and the address may lead to another one.
    NoMaster,
}

fn refusal(error: &RedisError) -> Option<Refusal> {
    if is_replica_now(error) {
        return Some(Refusal::NoMaster);
    }
    match error.kind() {
        Driver::Server(kind) => match kind {
            Server::Moved | Server::Ask | Server::TryAgain => Some(Refusal::Elsewhere),
            Server::ClusterDown => Some(Refusal::NotNow),
            Server::MasterDown | Server::BusyLoading | Server::ReadOnly => Some(Refusal::NoMaster),
            // Redis 6 says so of the first write of a script, as an error of the script.
            Server::ResponseError if error.to_string().contains(" -READONLY ") => {
                Some(Refusal::NoMaster)
            }
            _ => None,
        },
        Driver::ClusterConnectionNotFound
        | Driver::MasterNameNotFoundBySentinel
        | Driver::NoValidReplicasFoundBySentinel => Some(Refusal::NotNow),
        _ => None,
    }
}

/// Whether a server that became a replica refuses to wait for replicas, or ends such a wait.
pub(super) fn is_replica_now(error: &RedisError) -> bool {
    error.code() == Some("UNBLOCKED") || error.to_string().contains("replica instances")
}

/// Whether the server refused a command without executing it.
pub(super) fn is_refused(error: &RedisError) -> bool {
    refusal(error).is_some()
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::is_refused;

    #[test]
    fn a_replica_refuses_a_script_in_the_words_of_each_version() {
        let error = |text: &str| {
            let answer = parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            answer.extract_error().unwrap_err()
        };
        let why = "READONLY You can't write against a read only replica.";
        let in_script = "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: ";
        assert!(is_refused(&error(&format!("{why} script: 0, on @user_script:1."))));
        assert!(is_refused(&error(&format!("{in_script}-{why} "))));
        assert!(!is_refused(&error(&format!("{in_script}Attempt to call a nil value"))));
    }
}
