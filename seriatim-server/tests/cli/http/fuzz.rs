//! Whatever comes in, nothing breaks.

use super::Api;
use super::client::send_raw;

const REQUESTS: usize = 10_000;
/// Senders at once.
const SENDERS: usize = 4;
/// What the process may have grown by, in bytes, when it has seen all of them.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
const SEED: u64 = 20_260;

const PATHS: [&str; 18] = [
    "/api/v1/jobs/01a1fd84-a548-7000-8001-00000000ffff/events",
    "/api/v1/cron?x=%00",
    "/api/v1/jobs/trigger",
    "/api/v1/queues/orders/jobs",
    "/api/v1/queues/%ff%00/jobs",
    "/api/v1/queues/orders",
    "/api/v1/queues",
    "/api/v1/work/claim",
    "/api/v1/work/heartbeat",
    "/api/v1/work/settle",
    "/api/v1/jobs/01a1fd84-a548-7000-8001-00000000ffff/reschedule",
    "/api/v1/queues/orders/morgue/requeue",
    "/api/v1/queues/orders/lanes?order=key&from=%00&limit=2",
    "/api/v1/queues/orders/lane?key=%F0%9F%92%A9%0d%0a",
    "/api/v1/jobs?after=orders/x&state=running",
    "/api/v1/queues/orders/lanes?after=zzz&order=due",
    "/api/v1/queues/orders/morgue?order=key&after=%00",
    "/api/v1/nodes/%20/stop",
];
const BODIES: [&str; 16] = [
    "",
    "{}",
    "[]",
    "[[]]",
    "null",
    "{\"queue\":\"q\",\"task\":\"t\",\"lock_key\":\"k\",\"args\":{}}",
    "{\"key\":\"k\",\"payload\":1e999,\"score\":1e308,\"run_at\":1e300}",
    "[{\"key\":\"\\u0000\"},{\"key\":\"\\ud800\"}]",
    "{\"key\":9223372036854775808,\"delay\":1e300,\"priority\":65536}",
    "{\"worker\":\"w\",\"queues\":[\"orders\"],\"limit\":3}",
    "{\"worker\":\"w\",\"claims\":[{\"lane\":\"1-0-1\",\"token\":-9223372036854775808,\"secret\":\"\"}]}",
    "{\"worker\":\"w\",\"results\":[{\"lane\":\"16383-65535-18446744073709551615\",\"token\":1,\"secret\":\"0f\",\"outcome\":\"done\",\"done\":18446744073709551615}]}",
    "{\"worker\":\"w\",\"results\":[{\"lane\":\"1-0-1\",\"token\":1,\"secret\":\"0f\",\"outcome\":\"retry\",\"retry_in\":1e18}]}",
    "{\"jobs\":[\"01a1fd84-a548-7000-8001-00000000ffff\"]}",
    "{\"run_at\":\"9999-12-31T23:59:59Z\"}",
    "{\"mode\":\"fifo\",\"take\":4294967295,\"backoff\":{\"kind\":\"linear\",\"base\":\"9e99d\"}}",
];
const TYPES: [&str; 5] = [
    "application/json",
    "application/x-ndjson",
    "application/json; charset=x",
    "text/plain",
    "\u{7f}",
];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "P\u{0}T"];

/// A request that was well-formed once.
fn request(random: &mut fastrand::Rng) -> Vec<u8> {
    let deep = "[".repeat(random.usize(..100_000));
    let body = match random.u8(..12) {
        0 => deep.as_str(),
        _ => random.choice(BODIES).unwrap_or_default(),
    };
    let mut body = body.as_bytes().to_vec();
    if random.u8(..3) == 0 {
        mutate(&mut body, random);
    }
    let said = if random.u8(..10) == 0 { random.usize(..1 << 40) } else { body.len() };
    let method = if random.bool() { "POST" } else { random.choice(METHODS).unwrap_or_default() };
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {}\r\nContent-Length: {said}\r\n\r\n",
        random.choice(PATHS).unwrap_or_default(),
        random.choice(TYPES).unwrap_or_default(),
    )
    .into_bytes();
    if random.u8(..4) == 0 {
        mutate(&mut head, random);
    }
    head.extend(body);
    head
}

fn mutate(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..3) {
            0 => bytes.insert(at, random.u8(..)),
            1 => bytes.truncate(at.max(1)),
            _ if at < bytes.len() => bytes[at] = random.u8(..),
            _ => {}
        }
    }
}

/// Sends its part; how many were answered.
fn send_some(api: &Api, sender: usize) -> usize {
    let seed = SEED + sender as u64;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut answered = 0;
    for i in 0..REQUESTS / SENDERS {
        let bytes = request(&mut random);
        // Some are not answered: their connection just ends.
        let Some(answer) = send_raw(&api.address, &bytes) else { continue };
        let sent = String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned();
        assert!(answer.status < 500, "seed {seed}, request {i}: {sent}\n{answer:?}");
        answered += 1;
    }
    answered
}

#[test]
fn ten_thousand_malformed_requests_do_no_harm() {
    let api = Api::start("[queues.orders]\nmode = \"accumulate\"\n");
    api.get("/health").done();
    let before = resident_bytes(&api);
    let answered: usize = std::thread::scope(|scope| {
        let api = &api;
        let senders: Vec<_> =
            (0..SENDERS).map(|sender| scope.spawn(move || send_some(api, sender))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    assert!(answered > REQUESTS / 2, "{answered} answers");
    assert_eq!(api.get("/health").status, 200);
    assert!(!api.log().contains("panicked"), "{}", api.log());
    let after = resident_bytes(&api);
    assert!(after < before + GROWTH_BYTES_MAX, "from {before} to {after} bytes");
}

/// What the process has in memory.
fn resident_bytes(api: &Api) -> u64 {
    let path = format!("/proc/{}/status", api.serving.0.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
