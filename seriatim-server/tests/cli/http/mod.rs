//! The HTTP API as its users have it: a real `serve` on a free port.

mod attack;
mod audit;
mod auth;
mod back;
mod batches;
mod below;
mod claims;
pub(crate) mod client;
mod dataloader;
mod deeds;
mod deploy;
mod documented;
mod drain;
mod events;
mod figures;
mod fuzz;
mod groups;
mod health;
mod limits;
mod lists;
mod matrix;
mod open;
mod openapi;
pub(crate) mod operations;
mod pages;
mod people;
mod plain;
mod proxy;
mod push;
mod reasons;
mod repair;
mod results;
mod siege;
mod silent;
#[cfg(feature = "otlp")]
mod spans;
mod stores;
mod throttle;
mod trace;
mod turns;
mod weights;
mod work;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::faults::Server;
use crate::site::{PATIENCE, Serving, Site};
use client::{Answer, Request, held};

/// A serving process, and where it listens.
pub(crate) struct Api {
    pub(crate) site: Site,
    pub(crate) serving: Serving,
    pub(crate) address: String,
    log: Arc<Log>,
}

/// Runs a test on each store. Its argument makes a site from a configuration without a store.
fn on_each_store(test: impl Fn(&dyn Fn(&str) -> Site)) {
    test(&|config| Site::new(config));
    for server in Server::each() {
        test(&|config| Site::new(&format!("[store]\nurl = \"{}\"\n{config}", server.url())));
    }
}

/// What a process has said. It comes through a pipe, behind what the process has done.
#[derive(Default)]
struct Log {
    text: Mutex<String>,
    grown: Condvar,
}

impl Log {
    fn add(&self, line: &str) {
        self.text.lock().unwrap().push_str(&format!("{line}\n"));
        self.grown.notify_all();
    }

    /// Waits until it says this; returns all of it.
    fn says(&self, text: &str) -> String {
        let log = self.text.lock().unwrap();
        let is_missing = |log: &mut String| !log.contains(text);
        let (log, waited) = self.grown.wait_timeout_while(log, PATIENCE, is_missing).unwrap();
        assert!(!waited.timed_out(), "no {text:?}: {log}");
        log.clone()
    }
}

impl Api {
    pub(crate) fn start(config: &str) -> Self {
        Self::with(Site::new(config), |_| {})
    }

    pub(crate) fn with(site: Site, prepare: impl FnOnce(&mut Command)) -> Self {
        Self::at("127.0.0.1:0", site, prepare)
    }

    pub(crate) fn at(address: &str, site: Site, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = site.command(&["serve", "--listen", address]);
        prepare(&mut command);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::<Log>::default();
        let address = listening(&mut child, log.clone());
        Self { site, serving: Serving(child), address, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.text.lock().unwrap().clone()
    }

    /// Waits until the log says this; returns all of it.
    pub(crate) fn logs(&self, text: &str) -> String {
        self.log.says(text)
    }

    pub(crate) fn killed(self) -> Site {
        self.serving.kill();
        self.site
    }

    /// Ends the process in order.
    pub(crate) fn stopped(mut self) -> Site {
        self.serving.signal(Signal::TERM);
        assert!(self.serving.0.wait().unwrap().success(), "{}", self.log());
        self.site
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Request::new("GET", path).send(&self.address)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        Request::new("POST", path).json(body).send(&self.address)
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        Request::new("PUT", path).json(body).send(&self.address)
    }

    /// Waits until a node has noted this cron entry in the store.
    pub(crate) fn knows_cron(&self, name: &str, token: Option<&str>) {
        self.knows("cron", name, token);
    }

    /// Waits until a node has noted something of this name in the store, which the listing `list` shows.
    pub(crate) fn knows(&self, list: &str, name: &str, token: Option<&str>) {
        let began = std::time::Instant::now();
        loop {
            let request = client::Request::new("GET", &format!("/api/v1/{list}"));
            let request = token.into_iter().fold(request, |request, token| request.token(token));
            let known = request.send(&self.address).done()[list].clone();
            if known.as_array().unwrap().iter().any(|entry| entry["name"] == name) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no node noted {name}: {known}");
            std::thread::yield_now();
        }
    }

    /// The lanes of a queue that are due; the worker `w` has them now.
    pub(crate) fn claim(&self, queue: &str) -> Vec<Value> {
        let body = json!({ "worker": "w", "queues": [queue], "limit": 10 });
        self.post("/api/v1/work/claim", &body).done()["lanes"].as_array().unwrap().clone()
    }

    /// Ends a claim of the worker `w`.
    pub(crate) fn settle(&self, lane: &Value, result: Value) -> Answer {
        let body = json!({ "worker": "w", "results": [held(lane, result)] });
        self.post("/api/v1/work/settle", &body)
    }

    /// The same; whether it was `ok`, or `stale`.
    pub(crate) fn settled(&self, lane: &Value, result: Value) -> String {
        let answer = self.settle(lane, result).done();
        answer["results"][0]["status"].as_str().unwrap().to_owned()
    }

    /// A heartbeat of the worker `w` for one lane.
    pub(crate) fn beat(&self, lane: &Value, told: Value) -> Value {
        let body = json!({ "worker": "w", "claims": [held(lane, told)] });
        self.post("/api/v1/work/heartbeat", &body).done()
    }

    /// Posts without a body.
    pub(crate) fn act(&self, path: &str) -> Answer {
        Request::new("POST", path).send(&self.address)
    }
}

/// Reads the log until it says where the process listens, and goes on reading behind.
fn listening(child: &mut Child, log: Arc<Log>) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = String::new();
    let address = lines.by_ref().find_map(|line| {
        log.add(&line);
        said.push_str(&line);
        let rest = line.split_once("listening on http://")?.1;
        Some(rest.split('/').next()?.to_owned())
    });
    let address = address.unwrap_or_else(|| panic!("it does not listen: {said}"));
    std::thread::spawn(move || lines.for_each(|line| log.add(&line)));
    address
}
