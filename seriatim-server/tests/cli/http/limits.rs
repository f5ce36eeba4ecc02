//! What is too much is refused, by name.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Api;
use super::client::{Request, send_raw};

/// Of one address: claims that may wait at once, clients that may listen, streams.
const WAITING: usize = 512;
const LISTENING: usize = 256;
const STREAMS: usize = 4;

#[test]
fn bodies_have_a_limit_and_a_type() {
    let api = Api::start("");
    let big = format!("\"{}\"", "x".repeat(2 << 20));
    let trigger =
        Request::new("POST", "/api/v1/jobs/trigger").body("application/json", big.clone());
    let (_, detail) = trigger.send(&api.address).refused(413);
    assert!(detail.contains("1048576 bytes"), "{detail}");
    let path = "/api/v1/queues/q/jobs";
    let form = Request::new("POST", path).body("application/x-www-form-urlencoded", "a=b");
    form.send(&api.address).refused(415);
    let (field, _) = Request::new("POST", path)
        .body("application/json", format!("{{\"payload\":\"{}\"}}", "x".repeat(5 << 20)))
        .send(&api.address)
        .refused(400);
    assert_eq!(field, "payload");
    let many = json!(vec![json!({}); 10_001]);
    let (field, detail) = api.post(path, &many).refused(400);
    assert_eq!(field, "jobs", "{detail}");
}

#[test]
fn a_header_has_a_limit() {
    let api = Api::start("");
    let many = "X: 1\r\n".repeat(200);
    let request = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(send_raw(&api.address, request.as_bytes()).unwrap().status, 431);
    let long = "x".repeat(1_000_000);
    let request = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    assert_eq!(send_raw(&api.address, request.as_bytes()).unwrap().status, 431);
}

/// Streams of jobs that go on until they are dropped.
fn streams(api: &Api, count: usize) -> Vec<TcpStream> {
    let head = format!(
        "POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
        api.address
    );
    let start = |_| {
        let mut stream = TcpStream::connect(&api.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // "Continue" comes when its body is asked for: it is under way.
        let mut word = [0; 21];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"HTTP/1.1 100 Continue");
        stream
    };
    (0..count).map(start).collect()
}

#[test]
fn too_many_streams_claims_or_listeners_are_a_429_that_says_when_to_try_again() {
    let api = Api::start("[queues.q]\nmode = \"parallel\"\n");
    let open = streams(&api, STREAMS);
    let line = Request::new("POST", "/api/v1/queues/q/jobs").body("application/x-ndjson", "{}");
    let refused = line.send(&api.address);
    refused.refused(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(open);

    let body = json!({ "worker": "w", "queues": ["q"], "wait_ms": 60_000 });
    let claim = Request::new("POST", "/api/v1/work/claim").json(&body);
    let waiting: Vec<TcpStream> = (0..WAITING).map(|_| claim.start(&api.address)).collect();
    let listen = Request::new("GET", "/api/v1/events");
    let listening: Vec<TcpStream> = (0..LISTENING).map(|_| listen.start(&api.address)).collect();
    // Those before may not have been read yet; each of these takes a place or is refused.
    let mut more = Vec::new();
    for (request, name) in [(&claim, "claims"), (&listen, "listen")] {
        loop {
            let mut stream = request.start(&api.address);
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let mut answer = [0; 4096];
            let length = stream.read(&mut answer).unwrap_or(0);
            let said = String::from_utf8_lossy(&answer[..length]).into_owned();
            if said.starts_with("HTTP/1.1 429 ") {
                break;
            }
            more.push(stream);
            assert!(more.len() < 20, "{name}: {said}");
        }
    }
    // A thousand waiting clients hold up no others: all this is answered before their time is up.
    let started = Instant::now();
    for i in 0..20 {
        api.post("/api/v1/queues/other/jobs", &json!({ "key": format!("{i}") })).done();
        assert_eq!(api.get("/health").status, 200);
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let work = json!({ "worker": "other", "queues": ["other"], "limit": 5 });
    assert_eq!(api.post("/api/v1/work/claim", &work).done()["lanes"].as_array().unwrap().len(), 5);
    drop((waiting, listening, more));
}
