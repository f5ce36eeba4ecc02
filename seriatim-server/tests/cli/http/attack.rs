//! What one client can do to the others, and to the memory of the server: as little as the limits say. What reaches the
//! store is tried on each store; what the server refuses before, on SQLite alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Request, held};
use super::{Api, on_each_store};
use crate::site::{Site, secret};

/// What a client may make the server grow by, in MiB.
const GROWTH_MIB_MAX: u64 = 128;
const MIB: usize = 1 << 20;
/// What half of the probes may always take, however soon the attack ends.
const PROBE_MAX: Duration = Duration::from_millis(500);
/// Much less than the server waits for the rest of a request. A client that waits behind others would wait as long.
const SOON: Duration = Duration::from_secs(7);

/// A field of the process' status, in MiB.
fn memory(api: &Api, field: &str) -> u64 {
    let path = format!("/proc/{}/status", api.serving.0.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Does something to an idle server, and judges the most memory that it had meanwhile.
fn grows_little(api: &Api, what: &str, attack: impl FnOnce()) {
    api.get("/health").done();
    let before = memory(api, "VmRSS");
    attack();
    let most = memory(api, "VmHWM");
    println!("{what}: from {before} to {most} MiB");
    assert!(most < before + GROWTH_MIB_MAX, "{what}: from {before} to {most} MiB");
}

fn start(site: Site) -> Api {
    Api::with(site, |_| {})
}

fn json_body(method: &str, path: &str, body: String) -> Request {
    Request::new(method, path).body("application/json", body)
}

/// Does something, and sees that probes do not wait for its end: half of them are answered in a small part of the time that it
/// takes. On a busy machine both take longer.
fn with_probes<T: Send>(api: &Api, meanwhile: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let began = Instant::now();
        let doing = scope.spawn(meanwhile);
        let mut times = Vec::new();
        while !doing.is_finished() {
            let started = Instant::now();
            assert_eq!(api.get("/health").status, 200);
            times.push(started.elapsed());
        }
        let took = began.elapsed();
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        assert!(median < PROBE_MAX.max(took / 5), "{median:?} in {took:?}");
        doing.join().unwrap()
    })
}

#[test]
fn millions_of_empty_jobs_are_refused_before_they_are_built() {
    let api = Api::start("");
    let body = format!("[{}{{}}]", "{},".repeat(14 * MIB / 3));
    grows_little(&api, "a push of [{},{},…]", || {
        let push = json_body("POST", "/api/v1/queues/q/jobs", body);
        let answer = with_probes(&api, || push.send(&api.address));
        let (field, detail) = answer.refused(400);
        assert_eq!((&*field, detail.contains("10000")), ("jobs", true), "{detail}");
    });
    assert_eq!(api.get("/api/v1/stats").done()["total"]["length"], 0);
}

#[test]
fn lists_of_workers_are_counted_while_they_are_read() {
    let api = Api::start("");
    grows_little(&api, "a million claims and results", || {
        let claim = "{\"lane\":\"1-0-1\",\"token\":1,\"secret\":\"\"},";
        let claims = claim.repeat(30 * MIB / claim.len());
        let body = format!("{{\"worker\":\"w\",\"claims\":[{}]}}", claims.trim_end_matches(','));
        let answer = json_body("POST", "/api/v1/work/heartbeat", body).send(&api.address);
        assert_eq!(answer.refused(400).0, "claims");
        let result = "{\"lane\":\"1-0-1\",\"token\":1,\"secret\":\"\",\"outcome\":\"done\"},";
        let results = result.repeat(30 * MIB / result.len());
        let body = format!("{{\"worker\":\"w\",\"results\":[{}]}}", results.trim_end_matches(','));
        let answer = json_body("POST", "/api/v1/work/settle", body).send(&api.address);
        assert_eq!(answer.refused(400).0, "results");
    });
}

#[test]
fn a_payload_is_never_a_tree_of_values() {
    on_each_store(|site| {
        let api = start(site("[queues.orders]\nmode = \"accumulate\"\n"));
        grows_little(&api, "a payload of [{\"\":0},…]", || {
            let payload = format!("[{}0]", "{\"\":0},".repeat((4 * MIB - 10) / 7));
            let body = format!("{{\"key\":\"k\",\"payload\":{payload}}}");
            let pushed = json_body("POST", "/api/v1/queues/orders/jobs", body.clone());
            let id = pushed.send(&api.address).done()["jobs"][0]["job_id"].clone();
            let again = json_body("POST", "/api/v1/queues/orders/jobs", body).send(&api.address);
            assert_eq!(again.done()["jobs"][0]["status"], "merged");
            let shown = api.get(&format!("/api/v1/jobs/{}", id.as_str().unwrap()));
            assert!(shown.status == 200 && shown.text().contains(&payload));
            let shown = api.get("/api/v1/queues/orders/lane?key=k");
            assert!(shown.status == 200 && shown.text().contains(&payload));
        });
    });
}

/// Sixteen jobs of 4 MiB, and four who list them: twice what the server may grow by, if nothing were bounded.
fn large_jobs_are_listed_in_pages(api: &Api) {
    let payload = "x".repeat(4 * MIB - 2);
    for _ in 0..16 {
        let body = format!("{{\"payload\":\"{payload}\"}}");
        let answer = json_body("POST", "/api/v1/queues/q/jobs", body).send(&api.address);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    grows_little(api, "GET /jobs of 16 jobs of 4 MiB", || {
        let list = |most: usize| {
            let (mut seen, mut after) = (0, String::new());
            for _ in 0..most {
                let path = format!("/api/v1/jobs?limit=1000{after}");
                let page: Value = Request::new("GET", &path).send(&api.address).done();
                seen += page["jobs"].as_array().unwrap().len();
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={next}");
            }
            seen
        };
        with_probes(api, || {
            std::thread::scope(|scope| {
                let lists: Vec<_> = (0..4).map(|_| scope.spawn(|| list(3))).collect();
                lists.into_iter().for_each(|list| assert!(list.join().unwrap() >= 3));
            });
        });
        assert_eq!(list(100), 16);
    });
}

#[test]
fn a_page_of_large_jobs_is_bounded_in_bytes() {
    on_each_store(|site| large_jobs_are_listed_in_pages(&start(site(""))));
}

// What is measured is of the server alone; PostgreSQL takes a minute to make so many queues.
#[test]
fn listeners_that_do_not_read_cost_little_with_ten_thousand_queues() {
    let api = Api::start("");
    for part in 0..10 {
        let queues: serde_json::Map<String, Value> = (0..1_000)
            .map(|i| (format!("{}-{part}-{i}", "q".repeat(60)), json!({ "mode": "parallel" })))
            .collect();
        let defined = api.put("/api/v1/queues", &json!({ "queues": queues }));
        assert_eq!(defined.status, 200, "{}", defined.text());
    }
    grows_little(&api, "/events unread", || {
        let listen = Request::new("GET", "/api/v1/events").header("Last-Event-ID", "1");
        let mut unread: Vec<TcpStream> = Vec::new();
        let started = Instant::now();
        // A new version of the numbers each second, of which each listener could hold another.
        while started.elapsed() < Duration::from_secs(3) {
            let mut fresh: Vec<TcpStream> = (0..20).map(|_| listen.start(&api.address)).collect();
            let mut start = [0; 12];
            fresh.iter_mut().for_each(|stream| stream.read_exact(&mut start).unwrap());
            unread.extend(fresh);
            unread.drain(..unread.len().saturating_sub(200));
            assert_eq!(api.get("/health").status, 200);
        }
        let metrics = api.get("/metrics");
        assert_eq!(metrics.status, 200);
        assert!(metrics.body.len() < 2 * MIB, "{}", metrics.body.len());
        assert!(metrics.text().contains("seriatim_queue_jobs{queue=\"other\"} 0"));
    });
}

const TOKENS: [(&str, &str); 5] = [
    ("shop", "producer"),
    ("billing", "producer"),
    ("robot", "worker"),
    ("robot2", "worker"),
    ("ops", "admin"),
];

fn guarded(site: &dyn Fn(&str) -> Site) -> Api {
    let tokens = TOKENS.map(|(name, role)| {
        format!("{{ name = \"{name}\", token_env = \"T_{name}\", role = \"{role}\" }}")
    });
    let config =
        format!("[http]\ntokens = [{}]\n[queues.orders]\nmode = \"fifo\"\n", tokens.join(", "));
    Api::with(site(&config), |command| {
        for (name, _) in TOKENS {
            command.env(format!("T_{name}"), secret(name));
        }
    })
}

fn as_who(api: &Api, who: &str, path: &str, body: Value) -> super::Answer {
    Request::new("POST", path).json(&body).token(&secret(who)).send(&api.address)
}

#[test]
fn half_sent_bodies_of_one_producer_keep_nobody_else_from_anything() {
    let api = guarded(&|config| Site::new(config));
    let jobs = "/api/v1/queues/orders/jobs";
    as_who(&api, "billing", jobs, json!([{ "key": "a" }, { "key": "b" }])).done();
    let head = format!(
        "POST {jobs} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n[",
        api.address,
        secret("shop"),
        30 * MIB
    );
    let mut half_sent: Vec<TcpStream> = (0..9)
        .map(|_| {
            let mut stream = TcpStream::connect(&api.address).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            // As much as the server reads: it stops when it refuses the request.
            let _ = stream.write_all(&vec![b' '; 29 * MIB]);
            stream
        })
        .collect();
    let own = json_body("POST", jobs, format!("[{}{{\"key\":\"c\"}}]", " ".repeat(8 * MIB)));
    own.token(&secret("shop")).send(&api.address).refused(429);
    as_who(&api, "billing", jobs, json!({ "key": "c" })).done();
    let claim = json!({ "worker": "w", "queues": ["orders"], "limit": 2 });
    let lanes = as_who(&api, "robot", "/api/v1/work/claim", claim).done()["lanes"].clone();
    let lane = |told: Value| held(&lanes[0], told);
    let beat = json!({ "worker": "w", "claims": [lane(json!({}))] });
    as_who(&api, "robot", "/api/v1/work/heartbeat", beat).done();
    let settle = json!({ "worker": "w", "results": [lane(json!({ "outcome": "done" }))] });
    as_who(&api, "robot", "/api/v1/work/settle", settle).done();
    as_who(&api, "ops", "/api/v1/queues/orders/pause", json!({})).done();
    half_sent.clear();
}

#[test]
fn claims_of_one_token_leave_places_for_those_of_another() {
    let api = guarded(&|config| Site::new(config));
    let body = json!({ "worker": "w", "queues": ["orders"], "wait_ms": 60_000 });
    let claim = Request::new("POST", "/api/v1/work/claim").json(&body).token(&secret("robot"));
    let mut waiting = Vec::new();
    let refused = loop {
        let mut stream = claim.start(&api.address);
        stream
            .set_read_timeout(Some(Duration::from_millis(if waiting.len() < 512 {
                1
            } else {
                300
            })))
            .unwrap();
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).is_ok() {
            break answer;
        }
        waiting.push(stream);
        assert!(waiting.len() < 600, "it was never too much");
    };
    assert_eq!(&refused, b"HTTP/1.1 429");
    let other = json!({ "worker": "v", "queues": ["orders"], "wait_ms": 1 });
    as_who(&api, "robot2", "/api/v1/work/claim", other).done();
    let beat = json!({ "worker": "w", "claims": [] });
    as_who(&api, "robot", "/api/v1/work/heartbeat", beat).done();
}

/// One push waits for the other, and one that a slow disk keeps waiting for too long is asked to come again.
fn push_until_taken(api: &Api, push: &Request) {
    loop {
        match push.send(&api.address).status {
            200 => return,
            status => assert_eq!(status, 429),
        }
    }
}

#[test]
fn pushes_of_the_largest_bodies_over_several_connections_leave_little_memory_behind() {
    on_each_store(|site| {
        let api = start(site("[queues.orders]\nmode = \"parallel\"\n"));
        let job = format!("{{\"payload\":\"{}\"}}", "x".repeat(4 * MIB - 2));
        let body = format!("[{}]", vec![job; 3].join(","));
        grows_little(&api, "bodies of 12 MiB over six connections", || {
            let push = || {
                let push = json_body("POST", "/api/v1/queues/orders/jobs", body.clone());
                (0..2).for_each(|_| push_until_taken(&api, &push));
            };
            std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(push))));
        });
    });
}

/// Turns of 16 MiB, each larger than a step of a claim, and many who claim them and read nothing.
#[test]
fn claims_of_the_largest_turns_take_little_memory_also_when_nobody_reads_them() {
    on_each_store(|site| {
        let api = start(site("[queues.orders]\nmode = \"accumulate\"\n"));
        grows_little(&api, "10 unread claims, and 8 lanes of 16 MiB", || {
            let payload = "x".repeat(4 * MIB - 10);
            for i in 0..32 {
                let body = format!("{{\"key\":\"{}\",\"payload\":\"{payload}{i}\"}}", i / 4);
                let push = json_body("POST", "/api/v1/queues/orders/jobs", body);
                push.send(&api.address).done();
            }
            let body = json!({ "worker": "w", "queues": ["orders"], "limit": 16 });
            let claim = Request::new("POST", "/api/v1/work/claim").json(&body);
            let unread: Vec<_> = (0..10).map(|_| claim.start(&api.address)).collect();
            let mut largest = 0;
            for mut stream in unread {
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                let is_known =
                    answer.starts_with(b"HTTP/1.1 200") || answer.starts_with(b"HTTP/1.1 429");
                assert!(is_known, "{}", String::from_utf8_lossy(&answer[..500]));
                largest = largest.max(answer.len());
            }
            assert!(largest > 16 * MIB - 1_000, "a whole turn was handed over: {largest}");
        });
    });
}

#[test]
fn connections_that_never_send_a_request_keep_no_probe_out() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: most.maximum, maximum: most.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let api = Api::start("");
    grows_little(&api, "4,300 connections", || {
        let silent: Vec<TcpStream> = (0..4_300)
            .map(|_| {
                let mut stream = TcpStream::connect(&api.address).unwrap();
                let _ = stream.write_all(b"GET /health HTTP/1.1\r\nX: ");
                let _ = stream.write_all(&[b'x'; 8_000]);
                stream
            })
            .collect();
        for _ in 0..11 {
            for path in ["/health", "/ready", "/metrics"] {
                let started = Instant::now();
                assert_eq!(api.get(path).status, 200);
                assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            }
        }
        drop(silent);
    });
}

#[test]
fn a_client_that_closes_its_side_gets_its_answer() {
    let api = Api::start("");
    let body = " ".repeat(100_000) + "{\"key\":\"k\"}";
    for (path, body) in [("/api/v1/queues/q/jobs", &*body), ("/api/v1/queues/q/pause", "")] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = super::client::send_raw(&api.address, request.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let listed = b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = super::client::send_raw(&api.address, listed).unwrap();
    assert_eq!(answer.json()["jobs"][0]["key"], "k");
    // Half a body is half a request, and at once.
    let half = b"POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    let started = Instant::now();
    let answer = super::client::send_raw(&api.address, half);
    assert!(answer.is_none_or(|answer| answer.status == 400));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn half_sent_logins_keep_no_admin_from_anything() {
    let api = guarded(&|config| Site::new(config));
    let half = |bytes: usize| {
        let mut stream = TcpStream::connect(&api.address).unwrap();
        let head = format!(
            "POST /login HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {bytes}\r\n\r\na"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut large = half(1_000_000);
    let mut answer = [0; 12];
    large.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let _held: Vec<TcpStream> = (0..40).map(|_| half(16_000)).collect();
    // Whole ones that come after them are answered when these are read.
    for _ in 0..3 {
        let whole = Request::new("POST", "/login").header("Sec-Fetch-Site", "same-origin");
        whole.send(&api.address);
    }
    let body = " ".repeat(900_000) + r#"{"all":true}"#;
    let jobs = json_body("POST", "/api/v1/queues/orders/morgue/requeue", body);
    let began = Instant::now();
    assert_eq!(jobs.token(&secret("ops")).send(&api.address).status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_refusal_does_not_repeat_what_was_sent() {
    let api = start(Site::new(""));
    let long = "x".repeat(900_000);
    let define = |text: &str, value: Value| {
        let body = json!({ "mode": "fifo", text: value });
        Request::new("PUT", "/api/v1/queues/q").json(&body).send(&api.address)
    };
    for answer in [define("timeout", json!(long)), define(&long, json!(1))] {
        assert_eq!(answer.status, 400);
        assert!(answer.text().len() < 6_000, "{} bytes", answer.text().len());
    }
}
