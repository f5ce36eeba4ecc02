//! A small blocking HTTP client that sends exactly what it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::site::PATIENCE;

pub(crate) struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", media_type)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    fn bytes(&self, address: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", self.method, self.path);
        let has =
            |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !has("Host") {
            head += &format!("Host: {address}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        [head.into_bytes(), self.body.clone()].concat()
    }

    /// Sends it, and leaves the connection open.
    pub(crate) fn start(&self, address: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that refuses a body need not read all of it.
        let _ = stream.write_all(&self.bytes(address));
        stream
    }

    pub(crate) fn send(&self, address: &str) -> Answer {
        let answer = read(self.start(address));
        answer.unwrap_or_else(|| panic!("no answer to {} {}", self.method, self.path))
    }
}

impl Request {
    /// Sends it and waits for no more than the status: the answer may have no end.
    pub(crate) fn status(&self, address: &str) -> u16 {
        let mut start = [0; 12];
        self.start(address).read_exact(&mut start).unwrap();
        let status = std::str::from_utf8(&start).unwrap().rsplit(' ').next().unwrap();
        status.parse().unwrap()
    }
}

/// What a worker tells of a lane that it holds.
pub(crate) fn held(lane: &Value, told: Value) -> Value {
    let mut told = told;
    for name in ["lane", "token", "secret"] {
        told[name] = lane[name].clone();
    }
    told
}

/// Sends these bytes and nothing more; the answer, if there is one.
pub(crate) fn send_raw(address: &str, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read(stream)
}

fn read(mut stream: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // What came before a reset is still an answer.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, head, body: bytes.split_off(end + 4) };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = joined(&answer.body);
    }
    Some(answer)
}

/// The pieces of a body, of which each is led by its length.
fn joined(mut pieces: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = pieces.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&pieces[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        // A reset may have cut the last piece off.
        let Some((piece, rest)) = pieces[end + 2..].split_at_checked(length) else { break };
        body.extend_from_slice(piece);
        pieces = rest.get(2..).unwrap_or_default();
    }
    body
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The document of a request that was carried out.
    #[track_caller]
    pub(crate) fn done(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// The problem document of one that was not: its field and detail.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> (String, String) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status);
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("title").is_empty() && !text("detail").is_empty(), "{problem}");
        (text("field"), text("detail"))
    }
}
