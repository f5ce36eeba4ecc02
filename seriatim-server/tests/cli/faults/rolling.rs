//! A rolling upgrade: nodes of an earlier build and of this one work side by side, until the last old one is replaced.

use std::process::Command;
use std::sync::Arc;

use seriatim::store::{Mysql, Postgres, Redis, Sqlite};
use seriatim::{Queue, SharedStore};

use super::Server;
use super::fleet::{Fleet, PUSH_JOBS};
use crate::site::QUEUE;

/// Names the program of the earlier build; if unset, it is this one, and what is tested is a rolling restart: see
/// docs/testing.md.
const OLD_VARIABLE: &str = "SERIATIM_OLD_PROGRAM";
/// Old nodes, which are replaced one after the other.
const NODES: usize = 3;
/// Turns that a node settles before the next step.
const TURNS: usize = 20;

/// Open jobs, of which each node gets some.
const ENOUGH: u64 = 300;

/// At most this many times the jobs of other runs: the load ends when the last old node has been replaced.
const UNTIL_ALL_HAVE_WORKED: u64 = 20;

/// The old build has made the store. The first new node migrates it, while old ones work.
async fn old_nodes_are_replaced_under_load(server: fn() -> Server) {
    let this = || env!("CARGO_BIN_EXE_seriatim").to_owned();
    let old = std::env::var(OLD_VARIABLE).unwrap_or_else(|_| this());
    let server = server();
    let migrated = Command::new(&old).args(["migrate", "--store", &server.url()]).status().unwrap();
    assert!(migrated.success(), "{old} migrate: {migrated}");
    // `connect` would migrate it.
    let url = server.url();
    let store: SharedStore = match url.split(':').next().unwrap() {
        "postgres" => Arc::new(Postgres::connect(&url).await.unwrap()),
        "mysql" => Arc::new(Mysql::connect(&url).await.unwrap()),
        "redis" => Arc::new(Redis::connect(&url).await.unwrap()),
        _ => Arc::new(Sqlite::open(url.trim_start_matches("sqlite:")).unwrap()),
    };
    let mut fleet = Fleet::undeclared(store, &server.url(), Queue::fifo(QUEUE));
    fleet.works_slowly();
    for _ in 0..NODES {
        fleet.start_node_of(&old);
    }
    fleet.is_up().await;
    fleet.jobs *= UNTIL_ALL_HAVE_WORKED;
    let (pushing, allowed) = fleet.push();
    // Which node is woken is chance: the load goes on until both have had some.
    let more = async |fleet: &Fleet| {
        if fleet.open().await.is_some_and(|open| open < ENOUGH) {
            allowed.add_permits(PUSH_JOBS as usize);
        }
    };
    for place in 0..NODES {
        fleet.start_node();
        fleet.is_up().await;
        let settled = [place, NODES + place].map(|number| fleet.settled_by(number) + TURNS);
        fleet
            .eventually("an old node and the new one work side by side", async || {
                more(&fleet).await;
                fleet.settled_by(place) >= settled[0]
                    && fleet.settled_by(NODES + place) >= settled[1]
            })
            .await;
        match place % 2 {
            0 => fleet.stop_oldest(),
            _ => fleet.kill_oldest(),
        }
    }
    allowed.close();
    fleet.jobs = pushing.await.unwrap();
    fleet.judge().await;
}

macro_rules! on_each_server {
    ($($name:ident: $server:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            old_nodes_are_replaced_under_load(Server::$server).await;
        }
    )*};
}

on_each_server! {
    postgres_old_nodes_are_replaced_under_load: postgres;
    mysql_old_nodes_are_replaced_under_load: mysql;
    redis_old_nodes_are_replaced_under_load: redis;
    sqlite_old_nodes_are_replaced_under_load: sqlite;
}
