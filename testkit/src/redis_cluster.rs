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
use crate::redis::{Away, Redis};
use crate::server::{Kind, Server};

const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
/// How long a node must be silent before it counts as failed.
const NODE_TIMEOUT_MS: &str = "2000";
const READY_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a slot is moved until it is: an election or a full buffer ends a move.
const MOVES_MAX: usize = 3;
/// The states in which a move of Valkey 9 is over.
const ENDS: [&str; 3] = [MOVED, "failed", "cancelled"];
const MOVED: &str = "success";

/// Three masters that share all slots, each with a replica if asked for.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

/// A slot that moves from one master to another, and a key in it.
#[derive(Debug)]
pub struct SlotMove {
    key: String,
    slot: String,
    from: usize,
    to: usize,
}

impl RedisCluster {
    /// Starts three masters without replicas.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// Starts three masters with more command-line arguments, which count after a restart too.
    pub fn start_with(words: &[&str]) -> Result<Self, String> {
        Self::start_of(MASTERS, words)
    }

    /// Starts three masters with one replica each, which takes over when its master dies.
    pub fn start_with_replicas() -> Result<Self, String> {
        Self::start_of(2 * MASTERS, &[])
    }

    fn start_of(count: usize, words: &[&str]) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            let bus = free_port()?.to_string();
            let of_cluster = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                NODE_TIMEOUT_MS,
                "--cluster-port",
                &bus,
                "--repl-diskless-sync-delay",
                "0",
            ];
            nodes.push(Redis::start_with(&[&of_cluster[..], words].concat())?);
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
        for (master, replica) in self.nodes[MASTERS..].iter().enumerate() {
            replica.send(&["CLUSTER", "REPLICATE", &self.id(master)?])?;
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

    /// The places of the nodes that are masters now.
    pub fn masters(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|place| is_master(&self.nodes[*place])).collect()
    }

    /// Lets a master go away, waits until its replica has taken over, and lets it come back: it becomes a replica of that
    /// one.
    ///
    /// Fails if one of these steps takes longer than a minute.
    pub fn fail_over(&mut self, master: usize, away: Away) -> Result<(), String> {
        self.nodes[master].go(away)?;
        let others: Vec<&Redis> = self.others(master);
        until("the replica takes over", || {
            let masters = others.iter().filter(|node| is_master(node)).count();
            masters == MASTERS
                && others.iter().all(|node| says(node, "CLUSTER", "cluster_state:ok"))
        })?;
        self.nodes[master].come_back(away)?;
        until("the old master follows the new one", || {
            says(&self.nodes[master], "replication", "master_link_status:up")
        })
    }

    fn others(&self, place: usize) -> Vec<&Redis> {
        let others = self.nodes.iter().enumerate().filter(|(i, _)| *i != place);
        others.map(|(_, node)| node).collect()
    }

    /// Moves the slot of a key to another master, and waits until all know it and the replicas have what was moved: a
    /// failover would lose it otherwise.
    pub fn move_slot(&mut self, key: &str) -> Result<(), String> {
        let this = self.move_of(key)?;
        if self.move_whole(&this)? {
            return self.wait_until_known(&this);
        }
        self.announce(&this)?;
        self.end_move(&this)
    }

    /// Begins to move the slot of a key to another master, and moves this key alone.
    pub fn begin_move(&self, key: &str) -> Result<SlotMove, String> {
        let this = self.move_of(key)?;
        self.announce(&this)?;
        match self.move_key(&this, key)? {
            true => Ok(this),
            false => Err(format!("there is no key {key}")),
        }
    }

    /// Moves the other keys, and waits as [`Self::move_slot`] does.
    pub fn end_move(&self, this: &SlotMove) -> Result<(), String> {
        self.move_keys(this)?;
        self.wait_until_known(this)
    }

    /// Where the slot of a key is, and where it may go.
    fn move_of(&self, key: &str) -> Result<SlotMove, String> {
        let masters = self.masters();
        let slot = self.nodes[masters[0]].send(&["CLUSTER", "KEYSLOT", key])?;
        let slot = slot.trim_start_matches(':').trim_end().to_owned();
        let has_it = |place: &usize| self.nodes[*place].send(&["EXISTS", key]).is_ok();
        let source = || masters.iter().copied().find(has_it);
        // None answers while the others seem to be down, as on a busy machine.
        until("a master has the slot", || source().is_some())?;
        let from = source().ok_or("no master has the slot any more")?;
        let to = *masters.iter().find(|place| **place != from).ok_or("there is one master")?;
        Ok(SlotMove { key: key.to_owned(), slot, from, to })
    }

    fn wait_until_known(&self, SlotMove { key, to, .. }: &SlotMove) -> Result<(), String> {
        // Who does not know it yet would not stand in for the other master.
        let port = format!(":{}", self.nodes[*to].port());
        let knows = |(place, node): (usize, &Redis)| match node.send(&["EXISTS", key]) {
            Ok(_) => place == *to,
            Err(error) => error.contains("MOVED") && error.ends_with(&port),
        };
        until("all know where the slot is", || self.nodes.iter().enumerate().all(knows))?;
        self.wait_for_replicas()
    }

    /// Lets the server move a slot, as Valkey 9 does in the background. False if it cannot.
    fn move_whole(&self, SlotMove { slot, from, to, .. }: &SlotMove) -> Result<bool, String> {
        let (source, id) = (&self.nodes[*from], self.id(*to)?);
        let mut failed = String::new();
        for _ in 0..MOVES_MAX {
            let before = moves(source).unwrap_or_default();
            let is_new =
                |one: &String| !before.iter().any(|old| field(old, "name") == field(one, "name"));
            match source.send(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", &id]) {
                Err(error) if error.to_lowercase().contains("unknown subcommand") => {
                    return Ok(false);
                }
                answer => drop(answer?),
            }
            let this = || moves(source).ok()?.into_iter().find(is_new);
            let state = |one: &String| field(one, "state").to_owned();
            let is_over = |state: &String| ENDS.contains(&state.as_str());
            until("the slot is moved", || {
                this().as_ref().map(state).is_some_and(|at| is_over(&at))
            })?;
            let this = this().unwrap_or_default();
            if state(&this) == MOVED {
                return Ok(true);
            }
            failed = format!("{}: {}", state(&this), field(&this, "message"));
        }
        Err(format!("slot {slot} did not move, {MOVES_MAX} times; the last time it {failed}"))
    }

    /// Lets both masters know what moves: Redis, and Valkey before version 9, have no other way than key by key.
    fn announce(&self, SlotMove { slot, from, to, .. }: &SlotMove) -> Result<(), String> {
        let (source, target) = (&self.nodes[*from], &self.nodes[*to]);
        target.send(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &self.id(*from)?])?;
        source.send(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &self.id(*to)?])?;
        Ok(())
    }

    /// Whether there was such a key.
    fn move_key(&self, SlotMove { from, to, .. }: &SlotMove, key: &str) -> Result<bool, String> {
        let port = self.nodes[*to].port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        Ok(self.nodes[*from].send(&words)?.starts_with("+OK"))
    }

    fn move_keys(&self, this: &SlotMove) -> Result<(), String> {
        let SlotMove { slot, from, to, .. } = this;
        loop {
            let keys = self.nodes[*from].send(&["CLUSTER", "GETKEYSINSLOT", slot, "100"])?;
            let keys: Vec<&str> = keys.lines().filter(|line| line.contains('{')).collect();
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.move_key(this, key)?;
            }
        }
        for place in [*to, *from].into_iter().chain(self.masters()) {
            self.nodes[place].send(&["CLUSTER", "SETSLOT", slot, "NODE", &self.id(*to)?])?;
        }
        Ok(())
    }

    /// How the cluster names this node.
    fn id(&self, place: usize) -> Result<String, String> {
        let id = self.nodes[place].send(&["CLUSTER", "MYID"])?;
        Ok(id.lines().nth(1).unwrap_or_default().to_owned())
    }

    /// Waits until each replica has what its master has written so far.
    pub fn wait_for_replicas(&self) -> Result<(), String> {
        if self.nodes.len() == MASTERS {
            return Ok(());
        }
        for place in self.masters() {
            let info = self.nodes[place].send(&["INFO", "replication"])?;
            let written = number_in(&info, "master_repl_offset:");
            until("a replica has it all", || {
                let info = self.nodes[place].send(&["INFO", "replication"]).unwrap_or_default();
                info.lines().any(|line| {
                    line.starts_with("slave0:") && number_in(line, "offset=") >= written
                })
            })?;
        }
        Ok(())
    }

    /// Its nodes: three masters, then their replicas in the same order.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }
}

/// The moves of slots that a server of Valkey 9 knows, as on the wire: pairs of a field and its value.
fn moves(server: &Redis) -> Result<Vec<String>, String> {
    let answer = server.send(&["CLUSTER", "GETSLOTMIGRATIONS"])?;
    // The first field of each is its name.
    let name = "$4\r\nname\r\n";
    Ok(answer.split(name).skip(1).map(|rest| format!("{name}{rest}")).collect())
}

/// The value of a field: two lines below it, behind its length.
fn field<'a>(one: &'a str, name: &str) -> &'a str {
    let mut lines = one.lines().skip_while(|line| *line != name);
    lines.nth(2).unwrap_or_default()
}

fn is_master(node: &Redis) -> bool {
    node.send(&["ROLE"]).is_ok_and(|role| role.contains("\r\nmaster\r\n"))
}

/// Whether a master's answer to `ROLE` says that its only replica has all that it has.
fn is_copied(role: &str) -> bool {
    let lines: Vec<&str> = role.lines().collect();
    match lines[..] {
        ["*3", _, "master", offset, "*1", .., copied] => offset.strip_prefix(':') == Some(copied),
        _ => false,
    }
}

/// Whether `CLUSTER INFO`, or this part of `INFO`, has a text.
fn says(node: &Redis, what: &str, text: &str) -> bool {
    let words = if what == "CLUSTER" { ["CLUSTER", "INFO"] } else { ["INFO", what] };
    node.send(&words).is_ok_and(|info| info.contains(text))
}

fn number_in(text: &str, name: &str) -> Option<u64> {
    let at = text.find(name)? + name.len();
    text[at..].split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + READY_LIMIT;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("not within {READY_LIMIT:?}: {what}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
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

/// How long a server must be silent before the sentinel counts it as down. A sentinel opens a connection to a server at
/// most once a second: with less than that it may find the master down that it has just made, and promote the other again.
const DOWN_AFTER_MS: u32 = 2_000;

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
        let program = find_program("redis-server", "redis-server")?;
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let master = Redis::start_with(&at_once)?;
        let port = master.port().to_string();
        let replica =
            Redis::start_with(&[&at_once[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        let directory = Directory::with_data(None)?;
        let kind = SentinelKind { program, master: master.port() };
        let sentinel = Server::start(kind, directory)?;
        let started = Self { sentinel, master, replica };
        started.wait_for_replica()?;
        Ok(started)
    }

    /// Waits until the sentinel could promote a replica, which has all that the master was told.
    fn wait_for_replica(&self) -> Result<(), String> {
        until("the sentinel knows a replica that follows", || {
            self.says("REPLICAS").contains("master-link-status\r\n$2\r\nok")
        })?;
        let master = if self.names(&self.master) { &self.master } else { &self.replica };
        // A replica that follows may get what comes next a second later. What is published goes to replicas too.
        master.send(&["PUBLISH", "testkit", "copied"])?;
        until("the replica has what was published", || {
            master.send(&["ROLE"]).is_ok_and(|role| is_copied(&role))
        })
    }

    /// The sentinel's answer about the master.
    fn says(&self, what: &str) -> String {
        crate::redis::send(self.sentinel.port(), &["SENTINEL", what, "main"]).unwrap_or_default()
    }

    /// Whether the sentinel names this server as the master.
    fn names(&self, server: &Redis) -> bool {
        self.says("GET-MASTER-ADDR-BY-NAME").contains(&format!("\r\n{}\r\n", server.port()))
    }

    /// Waits until the replica is a master.
    ///
    /// Fails if that does not happen within a minute.
    pub fn wait_for_promotion(&self) -> Result<(), String> {
        until("the replica is a master", || is_master(&self.replica))
    }

    /// Lets the master go away, waits until the other server has taken over, and lets it come back. It is a master then, until the
    /// sentinel makes it a replica after some ten seconds; with `hurries`, at once. It ends when the sentinel
    /// could do the same again.
    ///
    /// Fails if one of these steps takes longer than a minute.
    pub fn fail_over(&mut self, away: Away, hurries: bool) -> Result<(), String> {
        let is_first = self.names(&self.master);
        self.pair(is_first).0.go(away)?;
        until("the replica takes over", || {
            let new = if is_first { &self.replica } else { &self.master };
            is_master(new) && self.names(new)
        })?;
        let (old, new) = self.pair(is_first);
        old.come_back(away)?;
        if hurries {
            old.send(&["REPLICAOF", "127.0.0.1", &new.port().to_string()])?;
        }
        until("the old master follows the new one", || {
            says(old, "replication", "master_link_status:up")
        })?;
        self.wait_for_replica()
    }

    /// The master and its replica, as they are now or as they are at the start.
    fn pair(&mut self, is_first: bool) -> (&mut Redis, &mut Redis) {
        match is_first {
            true => (&mut self.master, &mut self.replica),
            false => (&mut self.replica, &mut self.master),
        }
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
             sentinel down-after-milliseconds main {DOWN_AFTER_MS}\nsentinel failover-timeout main 5000\n",
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

#[cfg(test)]
mod tests {
    use super::{field, is_copied};

    #[test]
    fn a_master_is_copied_if_its_only_replica_has_as_much_as_itself() {
        let role = |replicas: &str| format!("*3\r\n$6\r\nmaster\r\n:30\r\n{replicas}");
        let replica = |at: &str| format!("*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$2\r\n{at}\r\n");
        assert!(is_copied(&role(&format!("*1\r\n{}", replica("30")))));
        assert!(!is_copied(&role(&format!("*1\r\n{}", replica("29")))));
        assert!(!is_copied(&role("*0\r\n")));
        assert!(!is_copied("*5\r\n$5\r\nslave\r\n"));
    }

    #[test]
    fn a_field_of_a_move_is_found_by_its_name() {
        let one =
            "$4\r\nname\r\n$2\r\nab\r\n$5\r\nstate\r\n$6\r\nfailed\r\n$7\r\nmessage\r\n$0\r\n\r\n";
        assert_eq!((field(one, "name"), field(one, "state")), ("ab", "failed"));
        assert_eq!((field(one, "message"), field(one, "cow_size")), ("", ""));
    }
}
