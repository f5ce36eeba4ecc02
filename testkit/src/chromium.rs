//! A private Chromium, driven by WebDriver.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::directory::Directory;
use crate::process;
use crate::program::find_program;
use crate::server::{Kind, Server};

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The driver of a browser without windows, stopped and removed on drop, with the browsers that it started.
#[derive(Debug)]
pub struct Chromium {
    server: Server<DriverKind>,
    program: PathBuf,
}

impl Chromium {
    /// Starts a driver.
    ///
    /// Fails if Chromium or its driver is not installed (the message names the package), or if the driver does not
    /// serve within a minute (the message has the end of its log).
    pub fn start() -> Result<Self, String> {
        let program = find_program("chromium", "chromium")?;
        let driver = find_program("chromedriver", "chromium-driver")?;
        let directory = Directory::with_data(None)?;
        let server = Server::start(DriverKind { driver }, directory)?;
        Ok(Self { server, program })
    }

    /// Where WebDriver listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// The browser's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Arguments for a browser: without windows and sandbox, which root may not use, and with its files in this driver's
    /// folder.
    pub fn arguments(&self) -> Vec<String> {
        let profile = self.server.data().join(format!("profile-{:x}", fastrand::u64(..)));
        let fixed = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ];
        let profile = format!("--user-data-dir={}", profile.display());
        fixed.map(str::to_owned).into_iter().chain([profile]).collect()
    }
}

#[derive(Debug)]
struct DriverKind {
    driver: PathBuf,
}

impl Kind for DriverKind {
    const NAME: &'static str = "chromedriver";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let mut command = process::command(&self.driver, None);
        command
            .arg(format!("--port={port}"))
            .env("HOME", data)
            .env("TMPDIR", data)
            .current_dir(data);
        command
    }

    fn is_ready(&self, _: &Path, port: u16, _: u32) -> bool {
        status(port).is_some_and(|line| line.ends_with("200 OK"))
    }
}

/// The first line of the answer: the driver keeps the connection open behind it.
fn status(port: u16) -> Option<String> {
    let mut stream =
        TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PROBE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    BufReader::new(stream).lines().next()?.ok()
}
