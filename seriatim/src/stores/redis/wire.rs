//! Connections: to one server, to a cluster, to the master named by sentinels.
//!
//! No driver here repeats a command whose answer was lost: it is unknown whether the push or claim was executed, and
//! only the caller knows what to do. A command that the server refused *before* executing it (moved, failing over,
//! loading) is repeated for a while.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{
    ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection,
};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind as Driver, RedisError,
    RedisResult, ServerErrorKind as Server, TlsMode, Value,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::address::{Options, Target};
use super::fault::translate;
use crate::model::error::Result;

/// How long to wait for an answer; a push of the largest batch takes a fraction of it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often, and after which delay, a lost connection is reopened before the call fails.
const RECONNECTS: usize = 2;
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// How long, and at which interval, a command refused before execution is repeated.
const REFUSED_FOR: Duration = Duration::from_secs(5);
const REFUSED_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) enum Wire {
    Server(ConnectionManager, Arc<Client>),
    Cluster(ClusterConnection, Arc<[Client]>),
    Sentinel(Arc<Mutex<Master>>),
}

/// The master named by sentinels, if known.
pub(super) struct Master {
    sentinels: SentinelClient,
    link: Option<MultiplexedConnection>,
}

impl Wire {
    pub(super) async fn open(place: Target, options: &Options) -> Result<Self> {
        match place {
            Target::Server(client) => {
                let config = ConnectionManagerConfig::new()
                    .set_response_timeout(Some(ANSWER_WITHIN))
                    .set_connection_timeout(Some(CONNECT_WITHIN))
                    // Callers wait and retry themselves; this only bridges a restart.
                    .set_number_of_retries(RECONNECTS)
                    .set_min_delay(RECONNECT_AFTER);
                let manager = ConnectionManager::new_with_config(client.clone(), config).await;
                Ok(Self::Server(manager.map_err(translate)?, Arc::new(client)))
            }
            Target::Cluster(nodes) => Self::open_cluster(nodes, options).await,
            Target::Sentinel { sentinels, master, node } => {
                let sentinels = sentinel_client(sentinels, &master, &node, options);
                let mut master = Master { sentinels: sentinels.map_err(translate)?, link: None };
                master.link().await.map_err(translate)?;
                Ok(Self::Sentinel(Arc::new(Mutex::new(master))))
            }
        }
    }

    async fn open_cluster(nodes: Vec<ConnectionInfo>, options: &Options) -> Result<Self> {
        let clients: Result<Vec<Client>> =
            nodes.iter().map(|node| options.client(node.clone())).collect();
        let mut builder = redis::cluster::ClusterClientBuilder::new(nodes)
            .retries(0)
            .connection_timeout(CONNECT_WITHIN)
            .response_timeout(ANSWER_WITHIN);
        if options.tls {
            builder = builder.tls(TlsMode::Secure).certs(options.certificates());
        }
        let link = builder.build().map_err(translate)?.get_async_connection().await;
        Ok(Self::Cluster(link.map_err(translate)?, clients?.into()))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Sends a command, and repeats it while it is refused before execution.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        if let Self::Server(manager, _) = self {
            return manager.clone().send_packed_command(cmd).await.and_then(Value::extract_error);
        }
        let until = Instant::now() + REFUSED_FOR;
        loop {
            match self.send_once(cmd).await {
                Err(error) if is_refused(&error) && Instant::now() < until => {
                    tokio::time::sleep(REFUSED_EVERY).await;
                }
                other => return other,
            }
        }
    }

    async fn send_once(&self, cmd: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(manager, _) => manager.clone().send_packed_command(cmd).await,
            Self::Cluster(link, _) => link.clone().req_packed_command(cmd).await,
            Self::Sentinel(master) => {
                let mut link = master.lock().await.link().await?;
                let answer = link.send_packed_command(cmd).await;
                if answer.as_ref().is_err_and(|e| is_refused(e) || e.is_io_error()) {
                    master.lock().await.link = None;
                }
                answer
            }
        }
        .and_then(Value::extract_error)
    }

    /// Sends commands in order on one connection. Not for a cluster.
    pub(super) async fn send_all(&self, commands: &redis::Pipeline) -> RedisResult<Vec<Value>> {
        let count = commands.len();
        match self {
            Self::Server(manager, _) => {
                manager.clone().send_packed_commands(commands, 0, count).await
            }
            Self::Sentinel(master) => {
                let mut link = master.lock().await.link().await?;
                let answer = link.send_packed_commands(commands, 0, count).await;
                // A server that refuses may no longer be the master.
                let refuses = |answers: &Vec<Value>| {
                    answers.iter().any(|answer| matches!(answer, Value::ServerError(_)))
                };
                if answer.as_ref().map_or_else(RedisError::is_io_error, refuses) {
                    master.lock().await.link = None;
                }
                answer
            }
            Self::Cluster(..) => Err((Driver::Client, "not for a cluster").into()),
        }
    }

    /// Servers to subscribe to; one is enough.
    pub(super) async fn listeners(&self) -> RedisResult<Vec<Client>> {
        match self {
            Self::Server(_, client) => Ok(vec![Client::clone(client)]),
            Self::Cluster(_, clients) => Ok(clients.to_vec()),
            Self::Sentinel(master) => {
                Ok(vec![master.lock().await.sentinels.async_get_client().await?])
            }
        }
    }
}

impl Master {
    async fn link(&mut self) -> RedisResult<MultiplexedConnection> {
        if let Some(link) = &self.link {
            return Ok(link.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(CONNECT_WITHIN));
        let link = self.sentinels.get_async_connection_with_config(&config).await?;
        Ok(self.link.insert(link).clone())
    }
}

fn sentinel_client(
    sentinels: Vec<ConnectionInfo>,
    master: &str,
    node: &ConnectionInfo,
    options: &Options,
) -> RedisResult<SentinelClient> {
    let addresses: Vec<_> = sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
        .set_client_to_redis_db(node.redis_settings().db());
    if let Some(name) = node.redis_settings().username() {
        builder = builder.set_client_to_redis_username(name);
    }
    if let Some(password) = node.redis_settings().password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if options.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(options.certificates());
    }
    builder.build()
}

/// Whether the server refused without executing, and may execute it soon, or another server may.
fn is_refused(error: &RedisError) -> bool {
    match error.kind() {
        Driver::Server(kind) => matches!(
            kind,
            Server::Moved
                | Server::Ask
                | Server::TryAgain
                | Server::ClusterDown
                | Server::MasterDown
                | Server::BusyLoading
                | Server::ReadOnly
        ),
        Driver::ClusterConnectionNotFound
        | Driver::MasterNameNotFoundBySentinel
        | Driver::NoValidReplicasFoundBySentinel => true,
        _ => false,
    }
}
