//! Where commands go: to one server, to the master named by sentinels, or to the master of a slot of a cluster.
//!
//! No command whose answer was lost is repeated: it is unknown whether the push or claim was executed, and only the
//! caller knows what to do. A command that was not executed (no connection, moved, failing over, loading) is repeated
//! for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, Cmd, ConnectionInfo, PushInfo, RedisError, RedisResult, TlsMode, Value};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::address::{self, Options, Target, sockets};
use super::cluster::Cluster;
use super::fault::translate;
use super::line::{ANSWER_WITHIN, BRIDGE, Failure, Line, Place};
use super::server::Node;
use super::slots::slot_of;
use crate::model::{Error, Result};

/// The interval at which a command is repeated that was not executed.
const AGAIN_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) enum Wire {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// Whether a command's writes must be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safety {
    Written,
    Confirmed,
}

/// A connection of one's own to the server of a URL.
pub(super) async fn dial(url: &str) -> Result<MultiplexedConnection> {
    let (target, options) = address::read(url)?;
    single(target, &options)?.connect(ANSWER_WITHIN).await.map_err(translate)
}

/// The same, and what the server tells without being asked.
pub(super) async fn dial_hearing(
    url: &str,
    heard: UnboundedSender<PushInfo>,
) -> Result<MultiplexedConnection> {
    let (target, options) = address::read(url)?;
    single(target, &options)?.connect_hearing(heard).await.map_err(translate)
}

/// The place of what is no cluster.
fn single(target: Target, options: &Options) -> Result<Place> {
    Ok(match target {
        Target::Server(client) => Place::At(Arc::new(client)),
        Target::Sentinel { sentinels, master, node } => {
            let client = sentinel_client(sentinels, &master, &node, options);
            Place::Sentinel(Arc::new(tokio::sync::Mutex::new(client.map_err(translate)?)))
        }
        Target::Cluster(_) => {
            return Err(Error::invalid("url", "names a cluster: name one server"));
        }
    })
}

impl Wire {
    /// Answers of a server that is alone take at most `within`.
    pub(super) async fn open(place: Target, options: &Options, within: Duration) -> Result<Self> {
        let place = match place {
            Target::Cluster(nodes) => {
                return Ok(Self::Cluster(Arc::new(Cluster::open(nodes, options.clone()).await?)));
            }
            one => single(one, options)?,
        };
        let node = Node::new("the server".into(), place, options, within);
        node.line.open().await.map_err(translate)?;
        Ok(Self::One(node))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Sends a command to the server that has this key, and repeats it while it is not executed.
    pub(super) async fn send(
        &self,
        key: &[u8],
        cmd: &Cmd,
        safety: Safety,
    ) -> Result<Value, Failure> {
        let (slot, until) = (slot_of(key), Instant::now() + BRIDGE);
        loop {
            let error = match self.node(slot).await {
                Err(error) => error,
                Ok(node) => {
                    let (line, answer) = match safety {
                        Safety::Written => (&*node.line, node.line.send(cmd).await),
                        Safety::Confirmed => {
                            let confirming = node.confirming();
                            (confirming.line(), confirming.send(cmd).await)
                        }
                    };
                    match answer {
                        Err(Failure::Unsent(error)) if !gives_up(line) => error,
                        Err(failure) => {
                            // The slot may have another master by now.
                            match &failure {
                                Failure::Unsent(error) => self.learn(slot, error),
                                Failure::Sent(error) if error.is_io_error() => {
                                    self.learn(slot, error);
                                }
                                _ => {}
                            }
                            return Err(failure);
                        }
                        answer => return answer,
                    }
                }
            };
            if Instant::now() >= until {
                return Err(Failure::Unsent(error));
            }
            self.learn(slot, &error);
            tokio::time::sleep(AGAIN_EVERY).await;
        }
    }

    async fn node(&self, slot: u16) -> RedisResult<Arc<Node>> {
        match self {
            Self::One(node) => Ok(node.clone()),
            Self::Cluster(cluster) => cluster.master(slot).await,
        }
    }

    fn learn(&self, slot: u16, error: &RedisError) {
        if let Self::Cluster(cluster) = self {
            cluster.learn(slot, error);
        }
    }

    /// Other servers may be the masters now.
    pub(super) fn doubt_masters(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.doubt();
        }
    }

    /// The server, or all masters.
    async fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// The places of these keys, by the servers that have them.
    pub(super) async fn by_server(&self, keys: &[String]) -> Vec<Vec<usize>> {
        let Self::Cluster(cluster) = self else { return vec![(0..keys.len()).collect()] };
        let slots = keys.iter().map(|key| slot_of(key.as_bytes()));
        let mut parts: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, master) in cluster.addresses(slots).await.into_iter().enumerate() {
            parts.entry(master).or_default().push(place);
        }
        parts.into_values().collect()
    }

    /// Sends a command to each master. Returns the answers with the addresses.
    pub(super) async fn send_each(&self, cmd: &Cmd) -> Vec<(Arc<str>, Result<Value, Failure>)> {
        let masters = self.masters().await;
        let send = async |node: &Arc<Node>| (node.address.clone(), node.line.send(cmd).await);
        join_all(masters.iter().map(send)).await
    }

    /// Servers to subscribe to; one is enough.
    pub(super) async fn listeners(&self) -> RedisResult<Vec<Client>> {
        match self {
            Self::One(node) => Ok(vec![node.line.place().client().await?]),
            Self::Cluster(cluster) => Ok(cluster.clients()),
        }
    }
}

/// Whether calls no longer wait for the server.
fn gives_up(line: &Line) -> bool {
    line.is_out() || line.refuses()
}

fn sentinel_client(
    sentinels: Vec<ConnectionInfo>,
    master: &str,
    node: &ConnectionInfo,
    options: &Options,
) -> RedisResult<SentinelClient> {
    let addresses: Vec<_> = sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(sockets())
        .set_client_to_sentinel_tcp_settings(sockets())
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
