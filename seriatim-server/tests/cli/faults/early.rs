//! Nodes that start before their database does.

use std::fs;

use super::Server;
use crate::site::{Serving, Site, eventually};

/// A node whose server is not there, when it has said so.
async fn waiting() -> (Server, Site, Serving) {
    let mut server = Server::redis();
    server.stop();
    let site = Site::new(&format!("[store]\nurl = \"{}\"\n", server.url()));
    let node = site.serve("node");
    let says = "the store does not answer: trying until it does";
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
async fn a_node_that_waits_for_its_database_can_be_stopped() {
    let (_server, site, node) = waiting().await;
    node.stop();
    assert!(log(&site).contains("stopped: the store never answered"), "{}", log(&site));
}
