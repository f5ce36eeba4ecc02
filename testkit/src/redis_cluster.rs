//! A private Redis Cluster, and a master with a replica that a sentinel watches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::directory::Directory;
use crate::port::free_port;
use crate::process;
use crate::program::find_program;
use crate::redis::Redis;
use crate::server::{Kind, Server};

const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
/// How long a node must be silent before it counts as failed.
const NODE_TIMEOUT_MS: &str = "2000";
const READY_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Three masters that share all slots, each with a replica if asked for.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three masters without replicas.
    pub fn start() -> Result<Self, String> {
        Self::start_of(MASTERS)
    }

    /// Starts three masters with one replica each, which takes over when its master dies.
    pub fn start_with_replicas() -> Result<Self, String> {
        Self::start_of(2 * MASTERS)
    }

    fn start_of(count: usize) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            let bus = free_port()?.to_string();
            nodes.push(Redis::start_with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                NODE_TIMEOUT_MS,
                "--cluster-port",
                &bus,
                "--repl-diskless-sync-delay",
                "0",
            ])?);
        }
        let cluster = Self { nodes };
        cluster.join()?;
        Ok(cluster)
    }

    fn join(&self) -> Result<(), String> {
        for (i, node) in self.nodes.iter().take(MASTERS).enumerate() {
            let first = (i * SLOTS / MASTERS).to_string();
            let last = ((i + 1) * SLOTS / MASTERS - 1).to_string();
            node.send(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            node.send(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
        }
        let first = &self.nodes[0];
        for node in &self.nodes[1..] {
            let bus = node.send(&["CONFIG", "GET", "cluster-port"])?;
            let bus = bus.lines().nth(4).unwrap_or_default().trim().to_owned();
            first.send(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus])?;
        }
        self.wait(|info| info.contains(&format!("cluster_known_nodes:{}", self.nodes.len())))?;
        for (replica, master) in self.nodes[MASTERS..].iter().zip(&self.nodes) {
            let id = master.send(&["CLUSTER", "MYID"])?;
            let id = id.lines().nth(1).unwrap_or_default().to_owned();
            replica.send(&["CLUSTER", "REPLICATE", &id])?;
        }
        self.wait(|info| info.contains("cluster_state:ok"))?;
        // A replica without data is never elected.
        let is_linked = |info: &str| info.contains("master_link_status:up");
        wait(&self.nodes[MASTERS..], &["INFO", "replication"], is_linked)
    }

    /// Waits until `says` accepts the cluster info of every node.
    fn wait(&self, says: impl Fn(&str) -> bool) -> Result<(), String> {
        wait(&self.nodes, &["CLUSTER", "INFO"], says)
    }
    /// The URL: `redis-cluster://127.0.0.1:PORT,…`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Its nodes: three masters, then their replicas in the same order.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }
}

/// Waits until `says` accepts every node's answer to `ask`.
fn wait(nodes: &[Redis], ask: &[&str], says: impl Fn(&str) -> bool) -> Result<(), String> {
    let deadline = Instant::now() + READY_LIMIT;
    while !nodes.iter().all(|node| node.send(ask).is_ok_and(|info| says(&info))) {
        if Instant::now() > deadline {
            return Err(format!("the Redis Cluster is not ready after {READY_LIMIT:?}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A master, a replica, and a sentinel that promotes the replica when the master dies.
#[derive(Debug)]
pub struct RedisSentinel {
    sentinel: Server<SentinelKind>,
    master: Redis,
    replica: Redis,
}

impl RedisSentinel {
    /// Starts the three, and waits until the sentinel knows both others.
    pub fn start() -> Result<Self, String> {
        let program = find_program("redis-server", "redis-server").map_err(|e| e.to_string())?;
        let master = Redis::start()?;
        let port = master.port().to_string();
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port])?;
        let directory = Directory::create()?;
        directory.create_data(None)?;
        let kind = SentinelKind { program, master: master.port() };
        let sentinel = Server::start(kind, directory)?;
        let started = Self { sentinel, master, replica };
        started.wait_for_replica()?;
        Ok(started)
    }

    fn wait_for_replica(&self) -> Result<(), String> {
        let deadline = Instant::now() + READY_LIMIT;
        let words = ["SENTINEL", "REPLICAS", "main"];
        let linked = || {
            let known = crate::redis::send(self.sentinel.port(), &words);
            known.is_ok_and(|text| text.contains("master-link-status\r\n$2\r\nok"))
        };
        while !linked() {
            if Instant::now() > deadline {
                return Err(format!("the sentinel knows no replica after {READY_LIMIT:?}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits until the replica is a master.
    ///
    /// Fails if that does not happen within a minute.
    pub fn wait_for_promotion(&self) -> Result<(), String> {
        let deadline = Instant::now() + READY_LIMIT;
        while !self.replica.send(&["ROLE"]).is_ok_and(|role| role.contains("master")) {
            if Instant::now() > deadline {
                return Err(format!("the replica is no master after {READY_LIMIT:?}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The URL: `redis-sentinel://127.0.0.1:PORT/main`.
    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/main", self.sentinel.port())
    }

    /// The server that was master at the start.
    pub fn master(&mut self) -> &mut Redis {
        &mut self.master
    }

    /// The server that was its replica at the start.
    pub fn replica(&mut self) -> &mut Redis {
        &mut self.replica
    }
}

#[derive(Debug)]
struct SentinelKind {
    program: PathBuf,
    master: u16,
}

impl Kind for SentinelKind {
    const NAME: &'static str = "Redis Sentinel";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let file = data.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n",
            self.master
        );
        let mut command = process::command(&self.program, None);
        // If the write fails, the server reports it at its start.
        let _ = fs::write(&file, text);
        command.arg(file).arg("--sentinel").current_dir(data);
        command
    }

    fn is_ready(&self, _data: &Path, port: u16, pid: u32) -> bool {
        crate::redis::send(port, &["INFO", "server"])
            .is_ok_and(|info| info.lines().any(|line| line == format!("process_id:{pid}")))
    }
}
