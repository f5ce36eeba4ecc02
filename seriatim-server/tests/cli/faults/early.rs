//! Nodes that start before their database does.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::Signal;

use super::Server;
use crate::site::{Serving, Site, eventually};

/// A node whose server is not there, when it has said so.
async fn waiting() -> (Server, Site, Serving) {
    let mut server = Server::redis();
    server.stop();
    let site = Site::new(&format!("[store]\nurl = \"{}\"\n", server.url()));
    let node = site.serve("node");
    let says = "the store does not answer: retrying";
    eventually("it says what it waits for", async || log(&site).contains(says)).await;
    assert!(log(&site).contains(&format!("error={}", server.url())), "where: {}", log(&site));
    (server, site, node)
}

fn log(site: &Site) -> String {
    fs::read_to_string(site.path("node.log")).unwrap()
}

#[tokio::test]
async fn a_node_that_starts_before_its_database_waits_for_it() {
    let (mut server, site, node) = waiting().await;
    server.break_down();
    eventually("it serves", async || log(&site).contains("serving store=\"redis://")).await;
    node.stop();
    let warnings = log(&site).lines().filter(|line| line.contains("does not answer")).count();
    assert_eq!(warnings, 1, "it is said once: {}", log(&site));
}

#[tokio::test]
async fn a_node_that_waits_for_its_database_lives_and_is_not_ready() {
    let mut server = Server::redis();
    server.stop();
    let site = Site::new(&format!("[store]\nurl = \"{}\"\n", server.url()));
    let address = format!("127.0.0.1:{}", seriatim_testkit::free_port().unwrap());
    let mut command = site.command(&["serve", "--listen", &address]);
    let node = Serving(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    eventually("it lives", async || get("/health").is_ok_and(|said| said.contains("healthy")))
        .await;
    for path in ["/ready", "/api/v1/queues"] {
        let said = get(path).unwrap();
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("not answered yet"), "{said}");
    }
    server.break_down();
    eventually("it is ready", async || get("/ready").is_ok_and(|said| said.contains("ready\"}")))
        .await;
    node.stop();
}

#[tokio::test]
async fn a_reload_does_not_end_a_node_that_waits_for_its_database() {
    let (mut server, site, node) = waiting().await;
    node.signal(Signal::HUP);
    node.signal(Signal::TTIN);
    server.break_down();
    let serves = || log(&site).contains("serving store=\"redis://");
    eventually("it serves", async || serves()).await;
    let replaced = || log(&site).contains("SIGHUP: replacing all worker processes");
    eventually("it reloads", async || replaced()).await;
    node.stop();
}

#[tokio::test]
async fn a_node_that_waits_for_its_database_can_be_stopped() {
    let (_server, site, node) = waiting().await;
    node.stop();
    assert!(log(&site).contains("stopped before the store answered"), "{}", log(&site));
}
