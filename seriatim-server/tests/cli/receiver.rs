//! A server that writes down what it gets and answers what the test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The same, of what is no text.
    pub(crate) bytes: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Listens until the test ends.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// `answer` gets the request and how many came before it, and says what follows `HTTP/1.1 `.
    pub(crate) fn start(answer: impl Fn(&Received, usize) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let written = received.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some(request) = read(&stream) else { continue };
                let before = written.lock().unwrap().len();
                let answer = answer(&request, before);
                written.lock().unwrap().push(request);
                // The client may have read enough.
                let _ = write!(stream, "HTTP/1.1 {answer}");
            }
        });
        Self { url, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

pub(crate) fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    // Nothing if the connection was only a look whether there is a server.
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let (line, body) = (line.trim_end().to_owned(), String::new());
    let mut received = Received { line, headers, body, bytes: Vec::new() };
    let length = received.header("content-length").parse().unwrap_or(0);
    reader.take(length).read_to_end(&mut received.bytes).ok()?;
    received.body = String::from_utf8_lossy(&received.bytes).into_owned();
    Some(received)
}

/// An answer with a text, after which the connection is closed.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}")
}
