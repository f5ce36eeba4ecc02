//! How fast a serving node takes pushes by HTTP: single ones on one connection and on many, and bulk.
//!
//! ```text
//! seriatim serve --store sqlite:bench.db &
//! cargo run --release -p seriatim-server --example http_push -- 127.0.0.1:7117
//! ```
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections of the second measurement.
const CONNECTIONS: usize = 32;
/// How long each measurement takes.
const LENGTH: Duration = Duration::from_secs(5);
/// Jobs of a bulk request.
const BULK: usize = 1_000;

fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7117".to_owned());
    let single = |connection: usize, i: usize| format!("{{\"payload\":[{connection},{i}]}}");
    let bulk = |_: usize, i: usize| {
        let jobs: Vec<String> = (0..BULK).map(|n| format!("{{\"payload\":[{i},{n}]}}")).collect();
        format!("[{}]", jobs.join(","))
    };
    let one = measure(&address, 1, single);
    let many = measure(&address, CONNECTIONS, single);
    let in_bulk = measure(&address, 1, bulk) * BULK as f64;
    println!(
        "{{\"one_per_s\":{one:.0},\"connections_{CONNECTIONS}_per_s\":{many:.0},\"ratio\":{:.1},\"bulk_{BULK}_jobs_per_s\":{in_bulk:.0}}}",
        many / one
    );
}

/// Requests in a second.
fn measure(
    address: &str,
    connections: usize,
    body: impl Fn(usize, usize) -> String + Copy + Send + Sync,
) -> f64 {
    let started = Instant::now();
    let requests: usize = std::thread::scope(|scope| {
        let send = |connection| {
            scope.spawn(move || {
                let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
                stream.get_ref().set_nodelay(true).unwrap();
                let mut count = 0;
                while started.elapsed() < LENGTH {
                    exchange(&mut stream, address, &body(connection, count));
                    count += 1;
                }
                count
            })
        };
        let threads: Vec<_> = (0..connections).map(send).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    requests as f64 / started.elapsed().as_secs_f64()
}

fn exchange(stream: &mut BufReader<TcpStream>, address: &str, body: &str) {
    let request = format!(
        "POST /api/v1/queues/bench/jobs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            Some(_) => {}
            None => break,
        }
    }
    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).unwrap();
}
