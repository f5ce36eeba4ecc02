//! What is too much is refused, by name.

use std::io::Write;

use serde_json::json;

use super::Api;
use super::client::{Request, send_raw};

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

#[test]
fn a_client_that_stalls_keeps_nobody_else_waiting() {
    let api = Api::start("");
    let stalled: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&api.address).unwrap();
            stream.write_all(b"POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: loc").unwrap();
            stream
        })
        .collect();
    assert_eq!(api.get("/health").status, 200);
    drop(stalled);
}
