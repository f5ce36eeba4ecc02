//! The HTTP API under fuzz: raw bytes on connections to a server of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use seriatim::store::Memory;
use seriatim_testkit::fuzz::Surface;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::auth::{Guard, KnownToken};
use super::limits::{HEADER_READ_MAX, WAIT_MS_MAX};
use super::line::Line;
use super::router::{build, routes};
use super::schema::Schemas;
use super::server::connection;
use super::{App, Metered, Setup, openapi};
use super::{Route, Scope};
use crate::config::Role;

const TOKEN: &str = "0123456789abcdef";
/// Inputs that one server is given: what some of them leave behind is there for others.
const INPUTS_OF_A_SERVER: usize = 64;
/// Lanes that are claimed on a server.
const CLAIMS: usize = 16;
/// What stands for lane, token and secret of one of them.
const LANE: &str = "L-A-NE";
const FENCE: &str = "777777777";
const SECRET: &str = "SECRET";
/// How long a client listens: longer than any answer takes, but those without end.
const LISTEN_MAX: Duration = Duration::from_millis(WAIT_MS_MAX + 20_000);
/// How long a connection may go on without its client.
const END_MAX: Duration = Duration::from_secs(2 * HEADER_READ_MAX.as_secs());

/// A server in virtual time, on this thread.
struct Server {
    runtime: Runtime,
    router: Router,
    /// What corpus and inputs write for lane, token and secret of a claim, and those of one that stands.
    claims: Vec<[(&'static str, String); 3]>,
}

impl Server {
    fn start(asks_for_tokens: bool) -> Self {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let token = KnownToken::new("own".to_owned(), TOKEN, Role::Admin, Scope::default());
        let tokens = if asks_for_tokens { vec![token] } else { Vec::new() };
        let guard = Guard { refuses_sites: tokens.is_empty(), tokens, ..Guard::default() };
        let (store, meter) = Metered::wrap(Arc::new(Memory::new()), Arc::default());
        let router = runtime.block_on(async {
            build(&App::over(store, meter, Setup { guard, ..Setup::default() }))
        });
        let mut server = Self { runtime, router, claims: Vec::new() };
        server.claim();
        server
    }

    /// Claims some lanes: settles and heartbeats of others are refused before much of them is read.
    fn claim(&mut self) {
        let jobs: Vec<_> = (0..CLAIMS).map(|key| json!({ "key": key, "payload": key })).collect();
        let jobs = serde_json::to_string(&jobs).unwrap();
        let wish = format!("{{\"worker\":\"w\",\"queues\":[\"held\"],\"limit\":{CLAIMS}}}");
        let post = |path, body: &str| {
            Request { method: "POST", path, media: "application/json", body }.plain()
        };
        self.answer(post("/api/v1/queues/held/jobs", &jobs).as_bytes());
        let answer = self.answer(post("/api/v1/work/claim", &wish).as_bytes());
        let answer = String::from_utf8(answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let claimed: Value = serde_json::from_str(body).unwrap();
        let lanes = claimed["lanes"].as_array().unwrap();
        assert_eq!(lanes.len(), CLAIMS, "{answer}");
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let named = lanes.iter().map(|lane| {
            [
                (LANE, text(&lane["lane"])),
                (FENCE, text(&lane["token"])),
                (SECRET, text(&lane["secret"])),
            ]
        });
        self.claims = named.collect();
    }

    /// The input with a claim that stands, wherever it names one.
    fn filled(&self, input: &[u8], number: usize) -> Vec<u8> {
        let mut filled = input.to_vec();
        for (name, value) in &self.claims[number % CLAIMS] {
            while let Some(at) = find(&filled, name.as_bytes()) {
                filled.splice(at..at + name.len(), value.bytes());
            }
        }
        filled
    }

    /// What is answered to these bytes.
    fn answer(&self, input: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            // Larger than any answer: hyper stops reading when an answer fills the buffer while a chunked
            // body is unread and another request waits behind it.
            let (client, server) = tokio::io::duplex(1 << 20);
            let (peer, router) = (SocketAddr::from(([127, 0, 0, 1], 1)), self.router.clone());
            let serving = tokio::spawn(async move {
                let (_open, closing) = watch::channel(false);
                let line = Line::new(Arc::default(), peer.ip());
                connection(server, peer, router, closing, line.clone()).await;
                line.end();
            });
            let answer = talk(client, input).await;
            timeout(END_MAX, serving).await.expect("the connection ends").unwrap();
            answer
        })
    }
}

/// Sends all of it, and listens.
async fn talk(client: DuplexStream, input: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let (end, mut answer) = (Instant::now() + LISTEN_MAX, Vec::new());
    let sending = async {
        // It may be cut off in the middle.
        let _ = writer.write_all(input).await;
        std::future::pending::<()>().await;
    };
    let listening =
        async { while let Ok(Ok(1..)) = timeout_at(end, reader.read_buf(&mut answer)).await {} };
    tokio::select! {
        () = sending => {}
        () = listening => {}
    }
    answer
}

/// A request, and how its body is sent.
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    media: &'a str,
    body: &'a str,
}

impl Request<'_> {
    fn head(&self, more: &str) -> String {
        let Self { method, path, media, .. } = self;
        let media = match media.is_empty() {
            true => String::new(),
            false => format!("Content-Type: {media}\r\n"),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{media}{more}\r\n"
        )
    }

    fn plain(&self) -> String {
        let length = match self.body.len() {
            0 => String::new(),
            bytes => format!("Content-Length: {bytes}\r\n"),
        };
        self.head(&length) + self.body
    }

    fn asking(&self) -> String {
        let length = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", self.body.len());
        self.head(&length) + self.body
    }

    fn chunked(&self) -> String {
        let mut text = self.head("Transfer-Encoding: chunked\r\n");
        for piece in self.body.as_bytes().chunks(40) {
            text += &format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece));
        }
        text + "0\r\n\r\n"
    }
}

/// The requests of a line of the corpus: `METHOD PATH TYPE BODY`, several with ` THEN ` between them. `¶` is
/// an end of line.
fn requests(line: &str) -> Vec<Vec<u8>> {
    let line = line.replace('¶', "\n");
    let requests: Vec<Request<'_>> = line
        .split(" THEN ")
        .map(|one| {
            let mut parts = one.splitn(4, ' ');
            let mut next = || parts.next().unwrap_or_default();
            let (method, path, media) = (next(), next(), next());
            let media = match media {
                "json" => "application/json",
                "ndjson" => "application/x-ndjson",
                media => media,
            };
            Request { method, path, media, body: next() }
        })
        .collect();
    let sent = |how: fn(&Request<'_>) -> String| requests.iter().map(how).collect::<String>();
    let mut all = vec![sent(|request| request.plain())];
    if requests.iter().any(|request| !request.body.is_empty()) {
        all.extend([sent(|request| request.chunked()), sent(|request| request.asking())]);
    }
    all.into_iter().map(String::into_bytes).collect()
}

/// A request to an endpoint, with all parameters that there are.
fn request_of(route: &Route) -> Vec<u8> {
    let path = route.path.replace("{queue}", "orders").replace("{job_id}", JOB);
    let query: Vec<String> = openapi::parameters(route, &mut Schemas::new())
        .as_array()
        .into_iter()
        .flatten()
        .filter(|parameter| parameter["in"] == "query")
        .map(|parameter| format!("{}=1", parameter["name"].as_str().unwrap()))
        .collect();
    let path = format!("{path}?{}", query.join("&"));
    let (media, body) = match route.signature.body {
        Some(_) => ("application/json", "{\"limit\":1}"),
        None => ("", ""),
    };
    Request { method: route.method.as_str(), path: &path, media, body }.plain().into_bytes()
}

const JOB: &str = "01a1fd84-a548-7000-8001-00000000ffff";
const LENGTH: &[u8] = b"Content-Length: ";

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|here| here == what)
}

/// The same with the length of its body in the head: otherwise most changes of a body would be no more than
/// a wrong length.
fn with_length(input: &[u8]) -> Option<Vec<u8>> {
    let (place, body) = (find(input, LENGTH)? + LENGTH.len(), find(input, b"\r\n\r\n")? + 4);
    let requests = input.windows(9).filter(|here| here == b"HTTP/1.1\r").count();
    let digits = input[place..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (requests == 1 && place < body).then(|| {
        let length = (input.len() - body).to_string();
        [&input[..place], length.as_bytes(), &input[place + digits..]].concat()
    })
}

/// The status codes of what a connection answered.
fn statuses(answer: &str) -> impl Iterator<Item = &str> {
    answer
        .match_indices("HTTP/1.1 ")
        .filter_map(|(at, start)| answer.get(at + start.len()..)?.get(..4))
}

#[test]
fn whatever_a_connection_sends_is_answered_in_time_and_never_with_our_own_failure() {
    let corpus = Surface::made("http", requests).and(routes().iter().map(request_of));
    let (mut server, mut number, mut done) = (Server::start(false), 0, 0);
    corpus.bytes_max(32 << 10).inputs(1_500).attack(|input| {
        number += 1;
        if number % INPUTS_OF_A_SERVER == 0 {
            server = Server::start(number % (2 * INPUTS_OF_A_SERVER) == 0);
        }
        let input = server.filled(input, number);
        let repaired = with_length(&input).filter(|_| number % 4 != 0);
        let answer = server.answer(repaired.as_deref().unwrap_or(&input));
        let answer = String::from_utf8_lossy(&answer);
        let failed = statuses(&answer).find(|status| status.starts_with('5'));
        assert!(failed.is_none(), "{answer}");
        done += statuses(&answer).filter(|status| status.starts_with('2')).count();
    });
    assert!(done > 100, "{done}: the corpus is no longer one of requests");
}
