//! All that one client can do to others, at once and for long, beside a worker that holds lanes and an admin who
//! works. A few seconds in each run of the tests; `SERIATIM_SIEGE_SECONDS` makes it last.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Request, held};
use super::{Answer, Api};
use crate::faults::Server;
use crate::site::{Site, secret};

const MIB: usize = 1 << 20;
/// How long it lasts in each run of the tests.
const SECONDS: u64 = 3;
/// The lease of the worker's lanes: they are lost where its heartbeats do not get through for so long.
const LEASE_S: u64 = 5;
/// How long an action of the admin may take.
const ACTION_MAX: Duration = Duration::from_secs(1);
const JOBS: &str = "/api/v1/queues/orders/jobs";
const TOKENS: [(&str, &str); 6] = [
    ("flood", "producer"),
    ("idle", "producer"),
    ("spy", "reader"),
    ("hoard", "worker"),
    ("robot", "worker"),
    ("ops", "admin"),
];

fn serve(store: &str) -> Api {
    let tokens = TOKENS.map(|(name, role)| {
        format!("{{ name = \"{name}\", token_env = \"T_{name}\", role = \"{role}\" }}")
    });
    let config = format!(
        "{store}[http]\ntokens = [{}]\n[queues.orders]\nmode = \"fifo\"\n[queues.large]\nmode = \"parallel\"\n[queues.empty]\nmode = \"fifo\"\n",
        tokens.join(", ")
    );
    Api::with(Site::new(&config), |command| {
        for (name, _) in TOKENS {
            command.env(format!("T_{name}"), secret(name));
        }
    })
}

fn ask(who: &str, method: &str, path: &str) -> Request {
    Request::new(method, path).token(&secret(who))
}

/// One place that is attacked, and when that ends.
struct Siege<'a> {
    api: &'a Api,
    lasts: Duration,
    began: Instant,
    is_over: AtomicBool,
}

impl<'a> Siege<'a> {
    fn new(api: &'a Api, lasts: Duration) -> Self {
        Self { api, lasts, began: Instant::now(), is_over: AtomicBool::new(false) }
    }

    fn goes_on(&self) -> bool {
        self.began.elapsed() < self.lasts && !self.is_over.load(Ordering::Relaxed)
    }

    fn post(&self, who: &str, path: &str, body: &Value) -> Answer {
        ask(who, "POST", path).json(body).send(&self.api.address)
    }

    /// Connections that do what keeps the server busy, a few of them new each time.
    fn besiege(&self, most: usize, fresh: usize, start: impl Fn() -> TcpStream) {
        let mut open: Vec<TcpStream> = Vec::new();
        while self.goes_on() {
            open.extend((0..fresh).map(|_| start()));
            open.drain(..open.len().saturating_sub(most));
            // Answers come, are refusals mostly, and are not read but for their beginning.
            let _ = open[0].set_read_timeout(Some(Duration::from_millis(20)));
            let _ = open[0].read(&mut [0; 64]);
        }
    }

    fn millions_of_jobs(&self) {
        let body = format!("[{}{{}}]", "{},".repeat(14 * MIB / 3));
        while self.goes_on() {
            let push = ask("flood", "POST", JOBS).body("application/json", body.clone());
            let status = push.send(&self.api.address).status;
            assert!([400, 429].contains(&status), "{status}");
        }
    }

    fn pages_of_large_jobs(&self) {
        while self.goes_on() {
            let page = ask("spy", "GET", "/api/v1/jobs?queue=large&limit=1000");
            let status = page.send(&self.api.address).status;
            assert!([200, 429].contains(&status), "{status}");
        }
    }

    fn unread_events(&self) {
        let listen = ask("spy", "GET", "/api/v1/events").header("Last-Event-ID", "1");
        self.besiege(300, 10, || listen.start(&self.api.address));
    }

    fn half_sent_bodies(&self) {
        let head = format!(
            "POST {JOBS} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n[",
            self.api.address,
            secret("idle"),
            30 * MIB
        );
        let most = vec![b' '; 8 * MIB];
        self.besiege(20, 1, || {
            let mut stream = TcpStream::connect(&self.api.address).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&most));
            stream
        });
    }

    fn waiting_claims(&self) {
        let body = json!({ "worker": "h", "queues": ["empty"], "wait_ms": 60_000 });
        let claim = ask("hoard", "POST", "/api/v1/work/claim").json(&body);
        self.besiege(700, 10, || claim.start(&self.api.address));
    }

    fn silent_connections(&self) {
        self.besiege(2_300, 50, || {
            let mut stream = TcpStream::connect(&self.api.address).unwrap();
            let _ = stream.write_all(b"GET /health HTTP/1.1\r\nX: half a hea");
            stream
        });
    }

    /// Holds lanes for all the time, by its heartbeats alone, and settles them at the end.
    fn holds_its_lanes(&self) -> Duration {
        let keys: Vec<Value> = (0..20).map(|i| json!({ "key": i.to_string() })).collect();
        self.post("ops", JOBS, &keys.into()).done();
        let wish =
            json!({ "worker": "w", "queues": ["orders"], "limit": 20, "lease_ttl_sec": LEASE_S });
        let lanes = self.post("robot", "/api/v1/work/claim", &wish).done()["lanes"].clone();
        let lanes = lanes.as_array().unwrap();
        assert_eq!(lanes.len(), 20);
        let claims: Vec<Value> = lanes.iter().map(|lane| held(lane, json!({}))).collect();
        let mut slowest = Duration::ZERO;
        while self.goes_on() {
            let beat = json!({ "worker": "w", "claims": claims });
            let started = Instant::now();
            let answer = self.post("robot", "/api/v1/work/heartbeat", &beat).done();
            slowest = slowest.max(started.elapsed());
            assert_eq!(answer["lost"], json!([]), "{answer}");
            std::thread::park_timeout(Duration::from_millis(200));
        }
        let results = claims.into_iter().map(|mut claim| {
            claim["outcome"] = "done".into();
            claim
        });
        let results: Vec<Value> = results.collect();
        let settle = json!({ "worker": "w", "results": results });
        let settled = self.post("robot", "/api/v1/work/settle", &settle).done();
        let is_ok = |result: &Value| result["status"] == "ok";
        assert!(settled["results"].as_array().unwrap().iter().all(is_ok), "{settled}");
        slowest
    }

    /// What an admin does when a queue is in trouble. The longest time that anything took.
    fn administers(&self) -> Duration {
        let mut slowest = Duration::ZERO;
        let mut did = 0;
        while self.goes_on() {
            for path in ["/api/v1/queues/large/pause", "/api/v1/queues/large/resume"] {
                let started = Instant::now();
                self.post("ops", path, &json!({})).done();
                slowest = slowest.max(started.elapsed());
                did += 1;
            }
            let started = Instant::now();
            assert_eq!(ask("ops", "GET", "/api/v1/queues").send(&self.api.address).status, 200);
            slowest = slowest.max(started.elapsed());
            std::thread::park_timeout(Duration::from_millis(100));
        }
        assert!(did > 0);
        slowest
    }
}

/// Ends the siege also where an assertion fails: the others would go on.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn memory(api: &Api) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", api.serving.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

fn all_at_once(store: &str) {
    let asked = std::env::var("SERIATIM_SIEGE_SECONDS").ok().map(|text| text.parse().unwrap());
    let lasts = Duration::from_secs(asked.unwrap_or(SECONDS));
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: most.maximum, maximum: most.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let api = serve(store);
    let payload = "x".repeat(4 * MIB - 2);
    for _ in 0..30 {
        let body = format!("{{\"payload\":\"{payload}\"}}");
        let push = ask("ops", "POST", "/api/v1/queues/large/jobs");
        push.body("application/json", body).send(&api.address).done();
    }
    let siege = Siege::new(&api, lasts);
    let (beat, action) = std::thread::scope(|scope| {
        let holds = scope.spawn(|| {
            let _ends = Ends(&siege.is_over);
            siege.holds_its_lanes()
        });
        let administers = scope.spawn(|| {
            let _ends = Ends(&siege.is_over);
            siege.administers()
        });
        scope.spawn(|| siege.millions_of_jobs());
        scope.spawn(|| siege.pages_of_large_jobs());
        scope.spawn(|| siege.unread_events());
        scope.spawn(|| siege.half_sent_bodies());
        scope.spawn(|| siege.waiting_claims());
        scope.spawn(|| siege.silent_connections());
        (holds.join().unwrap(), administers.join().unwrap())
    });
    println!(
        "{lasts:?}: slowest heartbeat {beat:?}, slowest action {action:?}, at most {} MiB",
        memory(&api)
    );
    // In a run of all tests others use the machine.
    assert!(asked.is_none() || action < ACTION_MAX, "{action:?}");
}

#[test]
fn under_all_attacks_at_once_no_lane_is_lost_and_an_admin_can_act_on_sqlite() {
    all_at_once("");
}

#[test]
fn under_all_attacks_at_once_no_lane_is_lost_and_an_admin_can_act_on_each_server() {
    for server in Server::each() {
        all_at_once(&format!("[store]\nurl = \"{}\"\n", server.url()));
    }
}
