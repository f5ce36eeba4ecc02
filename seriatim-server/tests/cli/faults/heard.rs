//! What a process pushes that exits at once is heard, though nobody polls for it.

use std::process::Command;
use std::time::{Duration, Instant};

use seriatim::{Client, Job};

use super::Server;
use crate::site::{QUEUE, Site, eventually};

/// Much less than the engine's poll interval.
const SOON: Duration = Duration::from_secs(15);
/// How often each kind of process pushes.
const ROUNDS: usize = 8;
/// Names the store for the program below.
const STORE_OF_PROGRAM: &str = "HEARD_STORE";
/// Says how that ends.
const END_OF_PROGRAM: &str = "HEARD_END";

/// The program of a user: it pushes one job, and ends. (The test binary starts itself as that.)
#[test]
fn a_program_that_pushes_and_ends() {
    let Ok(url) = std::env::var(STORE_OF_PROGRAM) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = seriatim::connect(&url).await.unwrap();
        Client::new(store.clone()).push(Job::new(QUEUE, &1).unwrap()).await.unwrap();
        if std::env::var(END_OF_PROGRAM).unwrap() == "close" {
            store.close().await.unwrap();
        }
    });
}

fn program(url: &str, end: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let name = "faults::heard::a_program_that_pushes_and_ends";
    program.args(["--exact", name]).env(STORE_OF_PROGRAM, url).env(END_OF_PROGRAM, end);
    program
}

async fn pushes_of_short_processes_are_heard(url: &str) {
    let site = Site::new(&format!(
        "[store]\nurl = \"{url}\"\n[node]\npoll_interval = \"50s\"\n[queues.{QUEUE}]\nmode = \"parallel\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; echo >> seen\"]\n"
    ));
    let node = site.serve("node");
    let log = || std::fs::read_to_string(site.path("node.log")).unwrap();
    eventually("it serves", async || log().contains("serving store=")).await;
    let seen = || std::fs::read(site.path("seen")).map_or(0, |lines| lines.len());
    let mut pushed = 0;
    let mut late = Vec::new();
    for round in 0..ROUNDS {
        let ways = [
            ("the command", site.command(&["push", QUEUE, "1", "--store", url])),
            ("a program that closes its store", program(url, "close")),
            ("a program that drops its store", program(url, "drop")),
        ];
        for (way, mut command) in ways {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{way}: {output:?}");
            pushed += 1;
            let began = Instant::now();
            while seen() < pushed && began.elapsed() < SOON {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            if seen() < pushed {
                late.push(format!("{way} in round {round}"));
                eventually("it is found by polling", async || seen() >= pushed).await;
            }
        }
    }
    assert!(late.is_empty(), "not heard within {SOON:?}: {late:?}");
    node.stop();
}

#[tokio::test]
async fn d10_on_sqlite_a_push_of_a_short_process_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("jobs.db").display());
    pushes_of_short_processes_are_heard(&url).await;
}

#[tokio::test]
async fn d10_on_postgresql_a_push_of_a_short_process_is_heard() {
    let server = Server::postgres();
    pushes_of_short_processes_are_heard(&server.url()).await;
}

#[tokio::test]
async fn d10_on_mysql_a_push_of_a_short_process_is_heard() {
    let server = Server::mysql();
    pushes_of_short_processes_are_heard(&server.url()).await;
}

#[tokio::test]
async fn d10_on_redis_a_push_of_a_short_process_is_heard() {
    let server = Server::redis();
    pushes_of_short_processes_are_heard(&server.url()).await;
}
