//! The life cycle of a private Redis.

use std::io::{Read, Write};
use std::net::TcpStream;

use seriatim_testkit::{Redis, redis_url};

/// Sends one command and returns the answer, both in wire format.
fn call(redis: &Redis, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port()))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.trim_end_matches("+OK\r\n").to_owned())
}

#[test]
fn a_stopped_redis_restarts_on_its_port_with_its_data() {
    let mut redis = Redis::start().unwrap();
    let url = redis.url();
    call(&redis, "SET kept 7").unwrap();

    redis.stop().unwrap();
    redis.stop().unwrap();
    assert!(call(&redis, "PING").is_err());
    redis.restart().unwrap();

    assert_eq!(redis.url(), url);
    assert_eq!(call(&redis, "GET kept").unwrap(), "$1\r\n7\r\n");
}

#[test]
fn a_killed_redis_restarts_at_once() {
    let mut redis = Redis::start().unwrap();
    redis.kill().unwrap();
    assert!(call(&redis, "PING").is_err());
    redis.restart().unwrap();
    assert_eq!(call(&redis, "PING").unwrap(), "+PONG\r\n");
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let redis = std::thread::spawn(|| Redis::start().unwrap()).join().unwrap();
    assert_eq!(call(&redis, "PING").unwrap(), "+PONG\r\n");
}

#[test]
fn the_shared_server_is_one_and_the_same_for_all_who_ask() {
    let url = redis_url().unwrap();
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    TcpStream::connect(address).unwrap();
    assert_eq!(redis_url().unwrap(), url);
}
