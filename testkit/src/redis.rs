//! A private Redis.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::directory::Directory;
use crate::process;
use crate::program::find_program;
use crate::server::{Kind, Server, life_cycle};

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a command may take on a loaded machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How a server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// It is killed, and started again.
    Killed,
    /// It stops where it is, and goes on as what it was.
    Hung,
}

/// A private Redis server, stopped and removed on drop.
///
/// It listens on 127.0.0.1 only and keeps an append-only file, synced every second: the setting that Seriatim
/// recommends. It writes no snapshots.
#[derive(Debug)]
pub struct Redis {
    server: Server<RedisKind>,
}

impl Redis {
    /// Starts a server.
    ///
    /// Fails if Redis is not installed (the message names the package), or if the server does not serve within a
    /// minute (the message has the end of its log).
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// Starts a server with more command-line arguments, for example `["--appendonly", "no"]`.
    pub fn start_with(words: &[&str]) -> Result<Self, String> {
        let program = find_program("redis-server", "redis-server")?;
        let directory = Directory::with_data(None)?;
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self { server: Server::start(RedisKind { program, words }, directory)? })
    }

    /// Stops the process where it is: connections stay open, and nothing is answered until it goes on.
    pub fn hang(&self) -> Result<(), String> {
        self.server.signal(Signal::STOP)
    }

    /// Ends [`hang`](Self::hang).
    pub fn go_on(&self) -> Result<(), String> {
        self.server.signal(Signal::CONT)
    }

    pub(crate) fn go(&mut self, away: Away) -> Result<(), String> {
        match away {
            Away::Killed => self.kill(),
            Away::Hung => self.hang(),
        }
    }

    pub(crate) fn come_back(&mut self, away: Away) -> Result<(), String> {
        match away {
            Away::Killed => self.restart(),
            Away::Hung => self.go_on(),
        }
    }

    /// Sends one command and returns the answer as on the wire.
    pub fn send(&self, words: &[&str]) -> Result<String, String> {
        send(self.port(), words)
    }

    /// The URL: `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.server.port())
    }
}

life_cycle!(Redis);

#[derive(Debug)]
struct RedisKind {
    program: PathBuf,
    words: Vec<String>,
}

impl Kind for RedisKind {
    const NAME: &'static str = "Redis";
    const STOP_SIGNAL: Signal = Signal::TERM;

    fn command(&self, data: &Path, port: u16) -> Command {
        let mut command = process::command(&self.program, None);
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
            .args(["--appendonly", "yes", "--appendfsync", "everysec", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(data)
            .args(&self.words)
            .current_dir(data);
        command
    }

    fn is_ready(&self, _data: &Path, port: u16, pid: u32) -> bool {
        info(port).is_ok_and(|info| {
            let says = |line: &str| info.lines().any(|l| l == line);
            says(&format!("process_id:{pid}")) && says("loading:0")
        })
    }
}

/// The server's answer to `INFO`, which it gives even while it loads its data.
fn info(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(b"INFO\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Sends one command and reads the whole answer. The connection stays whole until then: a server that lets a command wait,
/// as Valkey does with `CLUSTER SETSLOT` until the replicas have it, drops the command if the client closes its side.
pub(crate) fn send(port: u16, words: &[&str]) -> Result<String, String> {
    let wrong = |error: io::Error| format!("Redis on port {port} does not answer: {error}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(wrong)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(wrong)?;
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(text.as_bytes()).map_err(wrong)?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while length_of_answer(&answer).is_none() {
        match stream.read(&mut part).map_err(wrong)? {
            0 => return Err(wrong(io::ErrorKind::UnexpectedEof.into())),
            read => answer.extend_from_slice(&part[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.strip_prefix('-') {
        Some(error) => Err(format!("Redis refuses {words:?}: {}", error.trim())),
        None => Ok(answer),
    }
}

/// The length of the answer that these bytes begin with, if it is whole.
fn length_of_answer(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (kind, end) = (bytes[0], line + 2);
    let count = || str::from_utf8(&bytes[1..line]).ok()?.parse::<usize>().ok();
    match kind {
        b'$' => {
            // -1 is no text.
            let end = count().map_or(end, |length| end + length + 2);
            (bytes.len() >= end).then_some(end)
        }
        b'*' => (0..count().unwrap_or(0))
            .try_fold(end, |at, _| Some(at + length_of_answer(&bytes[at..])?)),
        _ => Some(end),
    }
}

#[cfg(test)]
mod tests {
    use super::length_of_answer;

    #[test]
    fn an_answer_is_whole_with_its_last_part() {
        let answers =
            ["+OK\r\n", ":7\r\n", "$-1\r\n", "$2\r\n\r\n\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n"];
        for answer in answers.map(str::as_bytes) {
            for end in 0..answer.len() {
                assert_eq!(length_of_answer(&answer[..end]), None, "{answer:?} up to {end}");
            }
            assert_eq!(length_of_answer(answer), Some(answer.len()), "{answer:?}");
        }
    }
}
