//! The servers of a cluster: which of them has which slot, and a connection to each. Calls to one master do not wait
//! for another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind as Driver, RedisError, RedisResult,
    ServerErrorKind as Server,
};
use tokio::time::{Instant, timeout};

use super::address::Options;
use super::fault::translate;
use super::line::{ANSWER_SOON, Failure, Place};
use super::server::Node;
use super::slots::Slots;
use crate::lock::lock;
use crate::model::Result;

/// How many servers are asked at once where the slots are.
const ASKED: usize = 5;
const SLOTS_WITHIN: Duration = Duration::from_secs(2);
/// The shortest time between two such questions.
const SLOTS_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    options: Options,
    known: Mutex<Known>,
    /// Locked while the slots are read.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    slots: Slots,
    nodes: HashMap<Arc<str>, Arc<Node>>,
    read_at: Option<Instant>,
    is_outdated: bool,
}

impl Cluster {
    /// Connects to the first of these nodes that answers.
    pub(super) async fn open(seeds: Vec<ConnectionInfo>, options: Options) -> Result<Self> {
        let known = Mutex::default();
        let cluster = Self { seeds, options, known, reading: tokio::sync::Mutex::new(()) };
        let mut failed = None;
        for seed in &cluster.seeds {
            let node = cluster.node(&address_of(seed))?;
            match node.line.open().await {
                Ok(()) => {
                    cluster.read_slots(&node).await.map_err(translate)?;
                    return Ok(cluster);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(translate(failed.unwrap_or_else(no_node)))
    }

    /// The master of a slot.
    pub(super) async fn master(&self, slot: u16) -> RedisResult<Arc<Node>> {
        if lock(&self.known).is_outdated {
            self.refresh().await;
        }
        let master = lock(&self.known).slots.master(slot).ok_or_else(no_node)?;
        self.node(&master).map_err(|_| no_node())
    }

    /// The addresses of the masters of these slots, as far as they are known.
    pub(super) async fn addresses(
        &self,
        slots: impl Iterator<Item = u16>,
    ) -> Vec<Option<Arc<str>>> {
        if lock(&self.known).is_outdated {
            self.refresh().await;
        }
        let known = lock(&self.known);
        slots.map(|slot| known.slots.master(slot)).collect()
    }

    /// All masters.
    pub(super) async fn masters(&self) -> Vec<Arc<Node>> {
        if lock(&self.known).is_outdated {
            self.refresh().await;
        }
        let masters = lock(&self.known).slots.masters();
        masters.iter().filter_map(|address| self.node(address).ok()).collect()
    }

    /// A client for each server that may be subscribed to.
    pub(super) fn clients(&self) -> Vec<Client> {
        let seeds = self.seeds.iter().map(address_of).collect::<Vec<_>>();
        let masters = lock(&self.known).slots.masters();
        let all = masters.into_iter().chain(seeds);
        all.filter_map(|address| self.client(&address).ok()).collect()
    }

    /// Takes into account that a command for this slot was not executed.
    pub(super) fn learn(&self, slot: u16, error: &RedisError) {
        let mut known = lock(&self.known);
        match (error.kind(), error.redirect_node()) {
            (Driver::Server(Server::Moved), Some((address, moved)))
                if !address.starts_with(':') =>
            {
                known.slots.moved(moved, address);
            }
            // The slot is on its way, and its master tells when it has left.
            (Driver::Server(Server::Ask | Server::TryAgain), _) => return,
            _ => {}
        }
        tracing::debug!(slot, %error, "the slots of the cluster are read again");
        known.is_outdated = true;
    }

    /// The slots are read again before the next command.
    pub(super) fn doubt(&self) {
        lock(&self.known).is_outdated = true;
    }

    fn node(&self, address: &Arc<str>) -> Result<Arc<Node>> {
        if let Some(node) = lock(&self.known).nodes.get(address) {
            return Ok(node.clone());
        }
        let place = Place::At(Arc::new(self.client(address)?));
        let node = Node::new(address.clone(), place, &self.options, ANSWER_SOON);
        Ok(lock(&self.known).nodes.entry(address.clone()).or_insert(node).clone())
    }

    fn client(&self, address: &str) -> Result<Client> {
        let of_seed = |seed: &&ConnectionInfo| *address_of(seed) == *address;
        let info = match self.seeds.iter().find(of_seed) {
            Some(seed) => seed.clone(),
            None => self.like_seeds(address).ok_or_else(no_node).map_err(translate)?,
        };
        self.options.client(info)
    }

    /// A node that the cluster names has the user, password and TLS of the nodes in the URL.
    fn like_seeds(&self, address: &str) -> Option<ConnectionInfo> {
        let seed = self.seeds.first()?.clone();
        let (host, port) = address.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        let addr = match seed.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Some(seed.set_addr(addr))
    }

    /// Asks several servers where the slots are, and believes the first answer.
    async fn refresh(&self) {
        let _reading = self.reading.lock().await;
        {
            let known = lock(&self.known);
            let is_new = known.read_at.is_some_and(|at| at.elapsed() < SLOTS_EVERY);
            if !known.is_outdated || is_new {
                return;
            }
        }
        let mut nodes: Vec<Arc<Node>> = lock(&self.known).nodes.values().cloned().collect();
        let seeds = self.seeds.iter().filter_map(|seed| self.node(&address_of(seed)).ok());
        nodes.extend(seeds.collect::<Vec<_>>());
        fastrand::shuffle(&mut nodes);
        nodes.sort_by_key(|node| node.line.is_out());
        let mut answers: FuturesUnordered<_> = nodes
            .iter()
            .take(ASKED)
            .map(|node| timeout(SLOTS_WITHIN, self.read_slots(node)))
            .collect();
        while let Some(answer) = answers.next().await {
            if let Ok(Ok(())) = answer {
                return;
            }
        }
        lock(&self.known).read_at = Some(Instant::now());
    }

    async fn read_slots(&self, node: &Arc<Node>) -> RedisResult<()> {
        let mut cmd = redis::cmd("CLUSTER");
        let answer = match node.line.send(cmd.arg("SLOTS")).await {
            Ok(answer) => answer,
            Err(Failure::Sent(error) | Failure::Unsent(error)) => return Err(error),
            Err(Failure::Unconfirmed { .. }) => return Err(no_node()),
        };
        let host = node.address.rsplit_once(':').map_or("", |(host, _)| host);
        let slots = Slots::read(answer, host).ok_or_else(no_node)?;
        let seeds: Vec<Arc<str>> = self.seeds.iter().map(address_of).collect();
        let mut known = lock(&self.known);
        let masters = slots.masters();
        known.nodes.retain(|address, _| masters.contains(address) || seeds.contains(address));
        known.slots = slots;
        known.is_outdated = false;
        known.read_at = Some(Instant::now());
        Ok(())
    }
}

fn address_of(info: &ConnectionInfo) -> Arc<str> {
    info.addr().to_string().into()
}

fn no_node() -> RedisError {
    (Driver::ClusterConnectionNotFound, "no known node of the cluster has this slot").into()
}
