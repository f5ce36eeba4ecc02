//! Faktory's protocol, spoken over plain sockets as its public description says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;

use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::Api;
use crate::site::{PATIENCE, Site, eventually, happens};

const QUEUES: &str = "[queues.orders]\nmode = \"fifo\"\nretain_completed = \"1h\"\n\
    [queues.default]\nmode = \"parallel\"\nretain_completed = \"1h\"\n\
    [queues.merged]\nmode = \"accumulate\"\nretain_completed = \"1h\"\n";

/// A server, and where clients of Faktory connect.
struct Plant {
    api: Api,
    port: u16,
}

impl Plant {
    fn new(more: &str) -> Self {
        let port = seriatim_testkit::free_port().unwrap();
        let config = format!("[faktory]\nlisten = \"127.0.0.1:{port}\"\n{QUEUES}{more}");
        Self::of(Site::new(&config), port)
    }

    fn of(site: Site, port: u16) -> Self {
        let api = Api::with(site, |command| {
            for name in ["PRODUCER", "WORKER", "ADMIN"] {
                command.env(name, secret(name));
            }
            command.env("LONG", "0123456789abcdef".repeat(2));
        });
        Self { api, port }
    }

    fn connect(&self) -> (Client, Value) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(stream));
        let greeting = client.answer();
        let greeting = greeting.strip_prefix("+HI ").unwrap();
        let greeting = serde_json::from_str(greeting).unwrap();
        (client, greeting)
    }

    /// A client without a name pushes only.
    fn client(&self, wid: Option<&str>) -> Client {
        let (mut client, greeting) = self.connect();
        assert_eq!(greeting, json!({ "v": 2 }));
        let hello = json!({ "hostname": "app", "wid": wid, "pid": 7, "labels": [], "v": 2 });
        assert_eq!(client.say(&format!("HELLO {hello}")), "+OK");
        client
    }

    /// A worker whose connection holds little of what it does not read.
    async fn hurried(&self, wid: &str) -> Client {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2_048).unwrap();
        let stream = socket.connect(([127, 0, 0, 1], self.port).into()).await.unwrap();
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut client = Client(BufReader::new(stream));
        assert!(client.answer().starts_with("+HI "));
        assert_eq!(client.say(&format!("HELLO {}", json!({ "wid": wid }))), "+OK");
        client
    }

    fn jobs(&self, queue: &str, state: &str) -> Vec<Value> {
        let path = format!("/api/v1/jobs?queue={queue}&state={state}");
        self.api.get(&path).done()["jobs"].as_array().unwrap().clone()
    }
}

fn secret(name: &str) -> String {
    format!("{name}-0123456789abcdef")
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// A line of the answer; of a text the text itself.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        let Some(length) = line.strip_prefix('$').filter(|length| *length != "-1") else {
            return line;
        };
        let mut text = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap().trim_end().to_owned()
    }

    fn say(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    fn push(&mut self, job: &Value) {
        assert_eq!(self.say(&format!("PUSH {job}")), "+OK");
    }

    /// The job; none if there is nothing.
    fn fetch(&mut self, queues: &str) -> Option<Value> {
        let answer = self.say(&format!("FETCH {queues}"));
        if answer == "$-1" { None } else { Some(serde_json::from_str(&answer).expect(&answer)) }
    }

    fn fetched(&mut self, queues: &str) -> Value {
        self.fetch(queues).expect("there is a job")
    }

    fn ack(&mut self, jid: &str) -> String {
        self.say(&format!("ACK {}", json!({ "jid": jid })))
    }

    fn fail(&mut self, jid: &str) -> String {
        let failed =
            json!({ "jid": jid, "errtype": "IOError", "message": "down", "backtrace": ["a:1"] });
        self.say(&format!("FAIL {failed}"))
    }

    fn beat(&mut self, state: &str) -> String {
        self.say(&format!("BEAT {}", json!({ "wid": "w1", "current_state": state, "rss_kb": 1 })))
    }

    /// Whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

fn job(jid: &str, more: &Value) -> Value {
    let mut job = json!({ "jid": jid, "jobtype": "Sync", "args": [1, "two"], "queue": "default", "at": "", "priority": 5,
        "reserve_for": 600 });
    more.as_object().unwrap().iter().for_each(|(name, value)| job[name] = value.clone());
    job
}

#[tokio::test]
async fn b15_a_job_is_pushed_once_fetched_and_acknowledged_on_any_connection() {
    let plant = Plant::new("");
    let (mut producer, mut worker, mut other) =
        (plant.client(None), plant.client(Some("w1")), plant.client(Some("w1")));
    let pushed = job("jid-00000001", &json!({ "custom": { "locale": "fr" } }));
    producer.push(&pushed);
    // No answer came: the client repeats it.
    producer.push(&pushed);
    let fetched = worker.fetched("default");
    assert_eq!(fetched, pushed);
    assert_eq!(other.fetch("orders default"), None);
    assert_eq!(other.ack("jid-00000001"), "+OK");
    let done = plant.jobs("default", "succeeded");
    assert_eq!((done.len(), &done[0]["task"], &done[0]["attempt"]), (1, &json!("Sync"), &json!(1)));
    assert_eq!(other.ack("jid-00000001"), "+OK", "it is not known any more");
    assert!(other.fail("jid-00000001").starts_with("-ERR Job not found"));
    assert_eq!(producer.say("FETCH default"), "-ERR FETCH: only for workers: name a wid in HELLO");
    // What others push has its payload as argument.
    plant
        .api
        .post("/api/v1/queues/orders/jobs", &json!({ "key": "k", "payload": { "n": 1 } }))
        .done();
    let foreign = worker.fetched("default orders");
    assert_eq!((&foreign["args"], &foreign["jobtype"]), (&json!([{ "n": 1 }]), &json!("orders")));
    assert_eq!(worker.ack(foreign["jid"].as_str().unwrap()), "+OK");
    worker.send("END");
    assert!(worker.is_closed());
}

/// As `faktory_worker_go` 1.7.0 and the client 1.9.4 say it.
#[tokio::test]
async fn b15_the_client_for_go_pushes_works_and_asks_in_its_own_words() {
    let plant = Plant::new("");
    let of_go = |wid: &str| {
        let (mut client, _) = plant.connect();
        let hello = format!(
            r#"HELLO {{"hostname":"vm","wid":"{wid}","username":"","pwdhash":"","labels":["golang"],"pid":7,"v":2}}"#
        );
        assert_eq!(client.say(&hello), "+OK");
        client
    };
    // Every client of Go's names a worker; that of one that only pushes is empty.
    let mut producer = of_go("");
    let push = |jid: &str, more: &str| {
        format!(
            r#"PUSH {{"retry":25,{more}"jid":"{jid}","queue":"default","jobtype":"T","created_at":"2026-11-28T18:18:53.869685845Z","args":[1,18446744073709551615]}}"#
        )
    };
    assert_eq!(producer.say(&push("deCrX5ATh-uS3qgy", "")), "+OK");
    let expires = push("sgRleogxcAfpKqRu", r#""custom":{"expires_at":"2026-11-28T19:18:53Z"},"#);
    assert_eq!(producer.say(&expires), "-ERR custom.expires_at is not supported");
    for (line, why) in [
        ("FETCH default", "FETCH: only for workers: name a wid in HELLO"),
        (r#"BEAT {"rss_kb":0,"wid":""}"#, "Unknown worker"),
        (r#"BATCH NEW {"success":{"retry":25,"jid":"bAAZOc_FvDkAgtF5"},"bid":""}"#, "BATCH is not"),
    ] {
        let refused = producer.say(line);
        assert!(refused.starts_with(&format!("-ERR {why}")), "{refused}");
    }
    let info: Value = serde_json::from_str(&producer.say("INFO")).unwrap();
    assert_eq!(info["faktory"]["sets"], json!({ "working": 0, "retries": 0, "dead": 0 }));
    let mut worker = of_go("1nlm6mkb6d8gp");
    assert_eq!(worker.fetched("ordered default")["args"], json!([1, u64::MAX]));
    let failed = r#"FAIL {"backtrace":["main.misc()","\t/app/main.go:81 +0xd4d",""],"errtype":"unknown","jid":"deCrX5ATh-uS3qgy","message":"boom: \u0000\n two lines"}"#;
    assert_eq!(worker.say(failed), "+OK");
    assert_eq!(worker.say(r#"BEAT {"rss_kb":5512,"wid":"1nlm6mkb6d8gp"}"#), "+OK");
    assert_eq!(plant.jobs("default", "queued")[0]["error"], "unknown: boom: \0\n two lines");
    let everything = r#"MUTATE {"filter":{"regexp":"*"},"cmd":"discard","target":"retries"}"#;
    assert_eq!(producer.say(everything), "+OK");
    eventually("it is discarded", async || plant.jobs("default", "queued").is_empty()).await;
    worker.send("END");
    assert!(worker.is_closed());
}

#[tokio::test]
async fn b15_a_failure_is_retried_forgotten_or_buried_as_the_job_says() {
    let plant = Plant::new("");
    let mut worker = plant.client(Some("w1"));
    for (jid, more, status) in [
        ("jid-00000001", json!({}), "queued"),
        ("jid-00000002", json!({ "retry": 0 }), "canceled"),
        ("jid-00000003", json!({ "retry": -1 }), "dead"),
    ] {
        worker.push(&job(jid, &more));
        let fetched = worker.fetched("default");
        assert_eq!(fetched["jid"], jid);
        assert_eq!(worker.fail(jid), "+OK");
        let jobs = plant.jobs("default", status);
        let error = jobs.iter().find(|job| job["error"] == "IOError: down");
        assert!(error.is_some(), "{status}: {jobs:?}");
    }
    let waiting = &plant.jobs("default", "queued")[0];
    assert_eq!(waiting["retry_count"], 0);
    plant.api.post("/api/v1/queues/default/perform-all-now", &json!({})).done();
    let failure = worker.fetched("default")["failure"].clone();
    assert_eq!((&failure["retry_count"], &failure["remaining"]), (&json!(0), &json!(25)));
    assert!(failure["failed_at"].as_str().unwrap().starts_with("20"), "{failure}");
}

#[tokio::test]
async fn b15_jobs_of_a_key_are_fetched_in_order_one_at_a_time() {
    let plant = Plant::new("");
    let (mut one, mut two) = (plant.client(Some("w1")), plant.client(Some("w2")));
    let keyed = |jid: &str, key: &str, score: u32| {
        let ours =
            json!({ "queue": "orders", "custom": { "seriatim": { "key": key, "score": score } } });
        job(jid, &ours)
    };
    let list = json!([
        keyed("jid-00000002", "a", 2),
        keyed("jid-00000001", "a", 1),
        keyed("jid-0000000b", "b", 1)
    ]);
    assert_eq!(one.say(&format!("PUSHB {list}")), "{}");
    let mut first =
        [one.fetched("orders"), two.fetched("orders")].map(|job| job["jid"].to_string());
    first.sort();
    assert_eq!(first, ["\"jid-00000001\"", "\"jid-0000000b\""]);
    assert_eq!(one.fetch("orders"), None, "the key a is held");
    // Who names no worker may end the jobs of all.
    assert_eq!(plant.client(None).ack("jid-00000001"), "+OK");
    assert_eq!(two.fetched("orders")["jid"], "jid-00000002");
    // Where a turn has several jobs, they come one after the other.
    let merged = |jid: &str, score: u32| {
        job(
            jid,
            &json!({ "queue": "merged", "custom": { "seriatim": { "key": "m", "score": score } } }),
        )
    };
    one.push(&merged("jid-0000000y", 2));
    one.push(&merged("jid-0000000x", 1));
    for jid in ["jid-0000000x", "jid-0000000y"] {
        assert_eq!(one.fetched("merged")["jid"], jid);
        assert_eq!(one.ack(jid), "+OK");
    }
    assert_eq!(plant.jobs("merged", "succeeded").len(), 2);
}

#[tokio::test]
async fn b15_a_worker_that_ends_a_job_late_does_not_end_it_for_who_has_it_now() {
    let plant = Plant::new("");
    let [mut late, mut beside, mut next] = ["w1", "w1", "w2"].map(|wid| plant.client(Some(wid)));
    let keyed = |jid: &str, score: u32| {
        let custom = json!({ "seriatim": { "key": "a", "score": score } });
        job(jid, &json!({ "queue": "orders", "custom": custom }))
    };
    late.push(&keyed("jid-00000001", 1));
    late.push(&keyed("jid-00000002", 2));
    assert_eq!(late.fetched("orders")["jid"], "jid-00000001");
    // The claim ends, as it does when it lapses, and another worker gets the job.
    assert_eq!(beside.fail("jid-00000001"), "+OK");
    plant.api.act("/api/v1/queues/orders/perform-all-now").done();
    assert_eq!(next.fetched("orders")["jid"], "jid-00000001");
    let (lost, half) =
        ("-ERR Job not found jid-00000001", r#"TRACK SET {"jid":"jid-00000001","percent":50}"#);
    assert_eq!(late.ack("jid-00000001"), "+OK", "the client has nothing to repeat");
    assert_eq!(late.fail("jid-00000001"), lost);
    assert_eq!(late.say(half), lost);
    assert_eq!(late.fetch("orders"), None, "the key is held");
    assert_eq!(plant.jobs("orders", "succeeded").len(), 0);
    assert_eq!(next.say(half), "+OK");
    assert_eq!(next.ack("jid-00000001"), "+OK");
    assert_eq!(plant.jobs("orders", "succeeded").len(), 1);
    assert_eq!(late.fetched("orders")["jid"], "jid-00000002");
}

#[tokio::test]
async fn a_push_of_a_throttled_key_that_its_queue_refuses_is_an_error_with_the_time() {
    let plant =
        Plant::new("[queues.slow]\nmode = \"fifo\"\nthrottle = \"1h\"\nthrottled = \"refuse\"\n");
    let mut client = plant.client(None);
    let keyed = |jid: &str, key: &str| {
        job(jid, &json!({ "queue": "slow", "custom": { "seriatim": { "key": key } } }))
    };
    client.push(&keyed("jid-00000001", "a"));
    client.push(&keyed("jid-00000001", "a"));
    let said = "refused: its key may be pushed again at 20";
    let refused = client.say(&format!("PUSH {}", keyed("jid-00000002", "a")));
    assert!(refused.starts_with(&format!("-ERR {said}")), "{refused}");
    let list = json!([
        keyed("jid-00000003", "a"),
        keyed("jid-00000004", "b"),
        job("jid-00000005", &json!({})),
    ]);
    let wrong: Value = serde_json::from_str(&client.say(&format!("PUSHB {list}"))).unwrap();
    assert_eq!(wrong.as_object().unwrap().len(), 1, "{wrong}");
    assert!(wrong["jid-00000003"].as_str().unwrap().starts_with(said), "{wrong}");
    assert_eq!(plant.jobs("slow", "queued").len(), 2);
    assert_eq!(plant.jobs("default", "queued").len(), 1);
}

#[tokio::test]
async fn b15_the_password_is_a_token_and_gives_its_role() {
    let tokens: String = ["producer", "worker", "admin", "long"]
        .map(|role| {
            let variable = role.to_uppercase();
            format!(
                "[[http.tokens]]\nname = \"{role}\"\ntoken_env = \"{variable}\"\nrole = \"{}\"\n",
                if role == "long" { "worker" } else { role }
            )
        })
        .concat();
    let plant = Plant::new(&tokens);
    let log_in = |plant: &Plant, password: &str, wid: &str| {
        let (mut client, greeting) = plant.connect();
        assert_eq!((&greeting["v"], &greeting["i"]), (&json!(2), &json!(1)));
        let salt = greeting["s"].as_str().unwrap();
        let hash = Sha256::digest(format!("{password}{salt}"));
        let hash = hash.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let answer = client.say(&format!("HELLO {}", json!({ "pwdhash": hash, "wid": wid })));
        (client, answer)
    };
    let login = |password: &str, wid: &str| log_in(&plant, password, wid);
    let (mut nobody, answer) = login("guessed", "w1");
    assert_eq!(answer, "-ERR Invalid password");
    assert!(nobody.is_closed());
    for _ in 0..9 {
        assert_eq!(login("guessed", "w1").1, "-ERR Invalid password");
    }
    for late in ["guessed", &secret("PRODUCER")] {
        let answer = login(late, "w1").1;
        assert_eq!(answer, "-ERR too many wrong passwords from this address");
    }
    // As for the API: one that nobody can guess is heard.
    assert_eq!(login(&"0123456789abcdef".repeat(2), "w1").1, "+OK");
    let plant = Plant::new(&tokens);
    let login = |password: &str, wid: &str| log_in(&plant, password, wid);
    let [mut producer, mut worker, mut admin] =
        ["PRODUCER", "WORKER", "ADMIN"].map(|name| login(&secret(name), "w1").0);
    producer.push(&job("jid-00000001", &json!({})));
    assert!(worker.say(&format!("PUSH {}", job("jid-00000002", &json!({})))).starts_with("-ERR "));
    assert!(producer.say("FETCH default").starts_with("-ERR "));
    assert!(worker.say("QUEUE PAUSE default").starts_with("-ERR "));
    assert_eq!(worker.fetched("default")["jid"], "jid-00000001");
    assert!(admin.fail("jid-00000001").starts_with("-ERR"), "it is not the claim of this token");
    assert_eq!(worker.ack("jid-00000001"), "+OK");
    assert_eq!(admin.say("QUEUE PAUSE default"), "+OK");
    admin.push(&job("jid-00000003", &json!({})));
    assert_eq!(worker.fetch("default"), None);
    assert_eq!(admin.say("QUEUE RESUME *"), "+OK");
    assert_eq!(worker.fetched("default")["jid"], "jid-00000003");
    let info: Value = serde_json::from_str(&admin.say("INFO")).unwrap();
    let of_server = ["faktory_version", "uptime", "command_count", "used_memory_mb"];
    assert!(of_server.iter().all(|field| !info["server"][field].is_null()), "{info}");
    assert_eq!(
        (&info["faktory"]["queues"]["default"], &info["server"]["connections"]),
        (&json!(1), &json!(3))
    );
    let track = format!("TRACK GET {}", "jid-00000003");
    assert!(admin.say(&track).contains("\"working\""), "with the token that pushed it");
    assert!(worker.say(&track).starts_with("-ERR "), "it may not read jobs");
    assert!(producer.say(&track).contains("\"unknown\""), "another token pushed it");
    let clear = r#"MUTATE {"cmd":"clear","target":"retries"}"#;
    assert!(producer.say(clear).starts_with("-ERR MUTATE: "));
    assert_eq!(worker.fail("jid-00000003"), "+OK");
    assert_eq!(admin.say(clear), "+OK");
    let deeds = plant.api.log();
    assert!(
        deeds.contains("pause") && deeds.contains("admin"),
        "the audit log tells of it: {deeds}"
    );
}

/// Until when the only claim holds.
fn lease(plant: &Plant) -> String {
    let lanes = plant.api.get("/api/v1/queues/default/running").done();
    lanes["lanes"][0]["lease_until"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn b15_a_worker_is_known_by_its_heartbeat() {
    let plant = Plant::new("");
    let mut worker = plant.client(Some("w1"));
    worker.push(&job("jid-00000001", &json!({})));
    worker.fetched("default");
    let lease = || lease(&plant);
    let before = lease();
    assert_eq!(worker.say(r#"BEAT {"wid":"w1","current_state":"","rss_kb":1}"#), "+OK");
    assert!(lease() > before, "the claim is extended");
    assert_eq!(worker.say(r#"BEAT {"wid":"w2"}"#), "-ERR Unknown worker w2");
    assert_eq!(worker.ack("jid-00000001"), "+OK");
}

#[tokio::test]
async fn b15_an_operator_quiets_a_worker_or_ends_it_and_its_heartbeat_says_so() {
    let plant = Plant::new("");
    let (mut worker, mut other) = (plant.client(Some("w1")), plant.client(Some("w2")));
    worker.push(&job("jid-00000001", &json!({})));
    worker.fetched("default");
    let tell = |command: &str| plant.api.act(&format!("/api/v1/nodes/remote:w1/{command}")).done();
    tell("quiet");
    assert_eq!(worker.beat(""), r#"{"state":"quiet"}"#);
    assert_eq!(worker.beat("quiet"), "+OK", "it knows");
    worker.push(&job("jid-00000002", &json!({})));
    assert_eq!(worker.fetch("default"), None, "even if it asks");
    assert_eq!(worker.ack("jid-00000001"), "+OK", "it ends what it has");
    assert_eq!(other.fetched("default")["jid"], "jid-00000002");
    tell("stop");
    assert_eq!(worker.beat("quiet"), r#"{"state":"terminate"}"#);
    assert_eq!(worker.beat("terminate"), "+OK");
    tell("resume");
    assert_eq!(worker.beat(""), "+OK");
    worker.push(&job("jid-00000003", &json!({})));
    assert_eq!(worker.fetched("default")["jid"], "jid-00000003");
}

#[tokio::test]
async fn b15_while_the_server_drains_workers_end_what_they_have_and_are_not_quieted() {
    let mut plant = Plant::new(
        "[queues.gated]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"gated\"\ncommand = [\"sh\", \"-c\", \"echo up > up; read x < gate\"]\n",
    );
    for pipe in ["gate", "up"] {
        let made = Command::new("mkfifo").arg(plant.api.site.path(pipe)).status();
        assert!(made.unwrap().success());
    }
    let mut worker = plant.client(Some("w1"));
    for jid in ["jid-00000001", "jid-00000002"] {
        worker.push(&job(jid, &json!({})));
    }
    worker.fetched("default");
    plant.api.post("/api/v1/queues/gated/jobs", &json!({ "key": "k" })).done();
    // Comes back when the command runs: it holds up the end of the server.
    std::fs::read_to_string(plant.api.site.path("up")).unwrap();
    plant.api.serving.signal(Signal::TERM);
    while plant.api.get("/ready").status == 200 {
        std::thread::yield_now();
    }
    assert_eq!(worker.fetch("default"), None);
    assert_eq!(worker.beat(""), "+OK", "one that is quiet would stay so at the next server");
    assert_eq!(worker.ack("jid-00000001"), "+OK");
    let refused = worker.say(&format!("PUSH {}", job("jid-00000003", &json!({}))));
    assert!(refused.starts_with("-ERR ") && refused.contains("draining"), "{refused}");
    std::fs::write(plant.api.site.path("gate"), "go\n").unwrap();
    assert!(worker.is_closed());
    assert!(plant.api.serving.0.wait().unwrap().success(), "{}", plant.api.log());
}

#[tokio::test]
async fn b15_how_far_a_job_is_can_be_asked_from_its_push_to_its_end() {
    let plant = Plant::new("");
    let (mut client, mut worker) = (plant.client(None), plant.client(Some("w1")));
    let jid = "jid-00000001";
    let mut track = |jid: &str| -> Value {
        serde_json::from_str(&client.say(&format!("TRACK GET {jid}"))).unwrap()
    };
    let unknown = json!({ "jid": jid, "state": "unknown", "updated_at": "" });
    assert_eq!(track(jid), unknown);
    worker.push(&job(jid, &json!({ "retry": 1, "custom": { "track": 1 } })));
    assert_eq!(track(jid)["state"], "enqueued");
    worker.fetched("default");
    assert_eq!((&track(jid)["state"], &track(jid)["percent"]), (&json!("working"), &Value::Null));
    let set = |worker: &mut Client, more: &Value| {
        let mut said = json!({ "jid": jid, "percent": 65, "desc": "Thinking..." });
        more.as_object().unwrap().iter().for_each(|(name, value)| said[name] = value.clone());
        worker.say(&format!("TRACK SET {said}"))
    };
    let before = lease(&plant);
    assert_eq!(set(&mut worker, &json!({ "reserve_until": "2100-01-02T03:04:05Z" })), "+OK");
    assert!(lease(&plant) > before, "it is a heartbeat as well");
    let told = track(jid);
    assert_eq!((&told["percent"], &told["desc"]), (&json!(65), &json!("Thinking...")));
    assert!(told["updated_at"].as_str().unwrap().starts_with("20"), "{told}");
    assert!(set(&mut worker, &json!({ "percent": 101 })).starts_with("-ERR TRACK: percent"));
    assert_eq!(worker.fail(jid), "+OK");
    assert_eq!(track(jid)["state"], "failed");
    assert_eq!(set(&mut worker, &json!({})), format!("-ERR Job not found {jid}"));
    plant.api.act("/api/v1/queues/default/perform-all-now").done();
    worker.fetched("default");
    assert_eq!(worker.ack(jid), "+OK");
    assert_eq!(track(jid)["state"], "success");
    let list = json!([job("jid-00000002", &json!({})), job("jid-00000003", &json!({}))]);
    assert_eq!(worker.say(&format!("PUSHB {list}")), "{}");
    assert_eq!(track("jid-00000003")["state"], "enqueued");
}

/// Jobs of two types in three states: `Sync` and `Mail`, each scheduled, after a failure, and dead.
fn in_all_states(plant: &Plant) {
    let mut worker = plant.client(Some("w0"));
    for kind in ["Sync", "Mail"] {
        for (state, more) in [
            ("retries", json!({})),
            ("dead", json!({ "retry": -1 })),
            ("scheduled", json!({ "at": "2100-01-02T03:04:05Z" })),
        ] {
            let jid = format!("jid-{kind}-{state}");
            let mut job = job(&jid, &more);
            job["jobtype"] = kind.into();
            worker.push(&job);
            if state != "scheduled" {
                assert_eq!(worker.fetched("default")["jid"], *jid);
                assert_eq!(worker.fail(&jid), "+OK");
            }
        }
    }
}

/// The jids of all that waits or is dead: those that are due now first, behind a bar the others, behind another the dead.
fn left(plant: &Plant) -> String {
    let short = |job: &Value| job["payload"]["jid"].as_str().unwrap()[4..].to_owned();
    let now = jiff::Timestamp::now().to_string();
    let (mut due, mut later) = (Vec::new(), Vec::new());
    for job in plant.jobs("default", "queued") {
        let is_due = job["run_at"].as_str().unwrap() <= &*now;
        if is_due { due.push(short(&job)) } else { later.push(short(&job)) }
    }
    let dead: Vec<String> = plant.jobs("default", "dead").iter().map(short).collect();
    [due, later, dead]
        .map(|mut of| {
            of.sort();
            of.join(" ")
        })
        .join(" | ")
}

#[tokio::test]
async fn b15_an_operator_discards_kills_and_requeues_many_jobs_at_once() {
    let plant = Plant::new("");
    in_all_states(&plant);
    let all = " | Mail-retries Mail-scheduled Sync-retries Sync-scheduled | Mail-dead Sync-dead";
    assert_eq!(left(&plant), all);
    let mut client = plant.client(None);
    for (command, expected) in [
        (
            r#"{"cmd":"kill","target":"retries","filter":{"jobtype":"Sync"}}"#,
            " | Mail-retries Mail-scheduled Sync-scheduled | Mail-dead Sync-dead Sync-retries",
        ),
        (
            r#"{"cmd":"requeue","target":"dead","filter":{"jobtype":"Sync"}}"#,
            "Sync-dead Sync-retries | Mail-retries Mail-scheduled Sync-scheduled | Mail-dead",
        ),
        (
            r#"{"cmd":"discard","target":"dead","filter":{"jids":["jid-Mail-dead","jid-Sync-dead"]}}"#,
            "Sync-dead Sync-retries | Mail-retries Mail-scheduled Sync-scheduled | ",
        ),
        (
            r#"{"cmd":"discard","target":"scheduled","filter":{"jobtype":"Mail"}}"#,
            "Sync-dead Sync-retries | Mail-retries Sync-scheduled | ",
        ),
        (
            r#"{"cmd":"requeue","target":"scheduled","filter":{"jids":["jid-Sync-scheduled"]}}"#,
            "Sync-dead Sync-retries Sync-scheduled | Mail-retries | ",
        ),
        (
            r#"{"cmd":"requeue","target":"retries","filter":{}}"#,
            "Mail-retries Sync-dead Sync-retries Sync-scheduled |  | ",
        ),
        (
            r#"{"cmd":"clear","target":"dead"}"#,
            "Mail-retries Sync-dead Sync-retries Sync-scheduled |  | ",
        ),
        (r#"{"cmd":"clear","target":"retries"}"#, "Sync-dead Sync-retries Sync-scheduled |  | "),
    ] {
        assert_eq!(client.say(&format!("MUTATE {command}")), "+OK", "{command}");
        // The operation goes on behind the answer.
        let is_so = happens(async || left(&plant) == expected).await;
        assert!(is_so, "{command}: {} is not {expected}", left(&plant));
    }
    let begun = plant.api.get("/api/v1/operations").done();
    assert_eq!(begun["operations"].as_array().unwrap().len(), 7, "none for nothing: {begun}");
}

#[tokio::test]
async fn b15_a_job_can_be_acknowledged_after_the_server_was_killed() {
    let plant = Plant::new("");
    let port = plant.port;
    let mut worker = plant.client(Some("w1"));
    for jid in ["jid-00000001", "jid-00000002"] {
        worker.push(&job(jid, &json!({})));
        worker.fetched("default");
    }
    let plant = Plant::of(plant.api.killed(), port);
    let mut worker = plant.client(Some("w1"));
    assert_eq!(worker.ack("jid-00000001"), "+OK");
    let before = lease(&plant);
    assert_eq!(worker.say(r#"BEAT {"wid":"w1"}"#), "+OK");
    assert!(lease(&plant) > before, "a heartbeat extends it");
    assert_eq!(worker.fail("jid-00000002"), "+OK");
    let done = plant.jobs("default", "succeeded");
    assert_eq!((done.len(), &done[0]["attempt"], &done[0]["crashes"]), (1, &json!(1), &json!(0)));
    assert_eq!(plant.jobs("default", "queued")[0]["retry_count"], 0);
}

#[tokio::test]
async fn b15_of_any_number_of_claims_each_can_be_acknowledged_after_a_restart() {
    let plant = Plant::new("");
    let port = plant.port;
    let jobs = vec![json!({}); 1_001];
    plant.api.post("/api/v1/queues/default/jobs", &json!(jobs)).done();
    for (limit, claimed) in [(1_000, 1_000), (1_000, 1)] {
        let claim = json!({ "worker": "other", "queues": ["default"], "limit": limit });
        let lanes = plant.api.post("/api/v1/work/claim", &claim).done()["lanes"].clone();
        assert_eq!(lanes.as_array().unwrap().len(), claimed);
    }
    let mut worker = plant.client(Some("w1"));
    worker.push(&job("jid-00000001", &json!({})));
    assert_eq!(worker.fetched("default")["jid"], "jid-00000001");
    let plant = Plant::of(plant.api.killed(), port);
    assert_eq!(plant.client(Some("w1")).ack("jid-00000001"), "+OK");
    assert_eq!(plant.jobs("default", "succeeded").len(), 1);
}

#[tokio::test]
async fn b15_a_job_for_a_client_that_is_gone_goes_back_uncounted() {
    let plant = Plant::new("");
    let (mut producer, mut gone) = (plant.client(None), plant.client(Some("w1")));
    gone.send("FETCH default");
    drop(gone);
    producer.push(&job("jid-00000001", &json!({})));
    eventually("the job comes back", async || plant.client(Some("w2")).fetch("default").is_some())
        .await;
    assert_eq!(plant.client(Some("w2")).ack("jid-00000001"), "+OK");
    let done = &plant.jobs("default", "succeeded")[0];
    assert_eq!((&done["attempt"], &done["crashes"]), (&json!(1), &json!(0)), "{done}");
}

#[tokio::test]
async fn b15_what_cannot_be_understood_is_refused_with_the_reason() {
    let plant = Plant::new("");
    let mut client = plant.client(Some("w1"));
    for (line, why) in [
        ("PULL default", "-ERR Unknown command \"PULL\""),
        ("PUSH {", "-ERR EOF"),
        (
            r#"PUSH {"jid":"jid-00000001","jobtype":"a","args":[],"queue":"a b"}"#,
            "-ERR queue \"a b\"",
        ),
        (r#"PUSH {"jid":"jid-00000001","jobtype":"a","args":[],"at":"soon"}"#, "-ERR run_at: "),
        (
            r#"PUSH {"jid":"jid-00000001","jobtype":"a","args":[],"custom":{"unique_for":9}}"#,
            "-ERR custom.unique_for",
        ),
        (
            r#"PUSH {"jid":"jid-00000001","jobtype":"a","args":[],"reserve_for":1.5}"#,
            "-ERR invalid type: floating point",
        ),
        (r#"PUSH {"jid":"jid-00000001","jobtype":"a","args":[],"queue":"orders"}"#, "-ERR "),
        ("MUTATE {}", "-ERR MUTATE: missing field"),
        (
            r#"MUTATE {"cmd":"kill","target":"retries","filter":{"regexp":"*a*"}}"#,
            "-ERR MUTATE: regexp is not supported",
        ),
        ("TRACK", "-ERR TRACK: write GET"),
        ("FLUSH", "-ERR FLUSH is not supported"),
    ] {
        let answer = client.say(line);
        assert!(answer.starts_with(why), "{line}: {answer}");
    }
    let list = json!([
        job("jid-00000001", &json!({})),
        job("jid-00000002", &json!({ "at": "soon" })),
        job("short", &json!({}))
    ]);
    let wrong: BTreeMap<String, String> =
        serde_json::from_str(&client.say(&format!("PUSHB {list}"))).unwrap();
    assert_eq!(wrong.keys().collect::<Vec<_>>(), ["jid-00000002", "short"]);
    assert_eq!(client.fetched("default")["jid"], "jid-00000001");
    assert_eq!(client.ack("jid-00000001"), "+OK");
    client.push(&job("jid-00000003", &json!({ "args": ["x".repeat(100_000)] })));
    assert_eq!(client.fetched("default")["jid"], "jid-00000003");
    let mut endless = plant.client(None);
    let _ = endless.0.get_mut().write_all(&vec![b'x'; (4 << 20) + 1]);
    assert!(endless.answer().contains("more than 4194304 bytes"));
    let (mut silent, _) = plant.connect();
    assert_eq!(silent.say("PUSH {}"), "-ERR write HELLO first");
    assert!(silent.is_closed());
    let (mut long, _) = plant.connect();
    let _ = long.0.get_mut().write_all(&vec![b'x'; 5_000]);
    assert!(long.answer().contains("more than 4096 bytes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b15_four_workers_do_each_job_once() {
    const JOBS: usize = 800;
    let plant = Plant::new("");
    let list: Vec<Value> =
        (0..JOBS).map(|n| job(&format!("jid-{n:08}"), &json!({ "args": [n] }))).collect();
    let answer = plant.client(None).say(&format!("PUSHB {}", json!(list)));
    assert_eq!(answer, "{}");
    let seen = Mutex::new(vec![0_u32; JOBS]);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (plant, seen) = (&plant, &seen);
            scope.spawn(move || {
                let mut worker = plant.client(Some(&format!("w{number}")));
                while let Some(job) = worker.fetch("default") {
                    let place = job["args"][0].as_u64().unwrap();
                    seen.lock().unwrap()[usize::try_from(place).unwrap()] += 1;
                    assert_eq!(worker.ack(job["jid"].as_str().unwrap()), "+OK");
                }
            });
        }
    });
    assert!(seen.lock().unwrap().iter().all(|times| *times == 1));
    let all_done = async || plant.api.get("/api/v1/stats").done()["total"]["processed"] == JOBS;
    assert!(happens(all_done).await, "{:?}", plant.api.get("/api/v1/stats").done());
}

#[tokio::test]
async fn b15_a_job_that_fails_ends_none_of_the_others_of_its_turn() {
    let plant = Plant::new("");
    let mut one = plant.client(Some("one"));
    let of_key = |key: &str, jid: &str, retry: i32, score: u32| {
        let custom = json!({ "seriatim": { "key": key, "score": score } });
        job(jid, &json!({ "queue": "merged", "retry": retry, "custom": custom }))
    };
    for (key, first, retry) in [("forget", "jid-forgets1", 0), ("bury", "jid-buries01", -1)] {
        one.push(&of_key(key, first, retry, 1));
        one.push(&of_key(key, &format!("jid-{key}-2"), 25, 2));
        one.push(&of_key(key, &format!("jid-{key}-3"), 25, 3));
        assert_eq!(one.fetched("merged")["jid"], first);
        assert_eq!(one.fail(first), "+OK");
        // What was not to be tried again is gone.
        for jid in ["jid-forget-2", "jid-forget-3"].iter().filter(|_| retry == 0) {
            assert_eq!(one.fetched("merged")["jid"], **jid);
            assert_eq!(one.ack(jid), "+OK");
        }
    }
    // Of the other turn only the one that failed is dead.
    assert_eq!(plant.jobs("merged", "queued").len(), 2);
    let dead = plant.jobs("merged", "dead");
    assert_eq!((dead.len(), &dead[0]["payload"]["jid"]), (1, &json!("jid-buries01")));
    let canceled = plant.jobs("merged", "canceled");
    assert_eq!((canceled.len(), &canceled[0]["payload"]["jid"]), (1, &json!("jid-forgets1")));
    assert_eq!(plant.jobs("merged", "succeeded").len(), 2);
}

fn memory(plant: &Plant, field: &str) -> u64 {
    let status = format!("/proc/{}/status", plant.api.serving.0.id());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn jobs_that_nobody_reads_take_no_more_memory_than_claims_may() {
    let plant = Plant::new("");
    let large = json!({ "payload": "x".repeat(4_100_000) });
    for _ in 0..40 {
        plant.api.post("/api/v1/queues/default/jobs", &large).done();
    }
    let before = memory(&plant, "VmRSS");
    let mut unread = Vec::new();
    for i in 0..40 {
        let mut client = plant.hurried(&format!("w{i}")).await;
        client.send("FETCH default");
        unread.push(client);
    }
    // By now all wait for those who read slowly; who waits too long is refused.
    let answers: Vec<usize> = unread.iter_mut().map(|client| client.answer().len()).collect();
    assert!(answers.iter().any(|bytes| *bytes > 4_000_000), "{answers:?}");
    let most = memory(&plant, "VmHWM");
    assert!(most < before + 128, "from {before} to {most} MiB");
}

#[tokio::test]
async fn a_job_is_told_whatever_its_size_and_depth() {
    let plant = Plant::new("");
    let mut producer = plant.client(None);
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let (deep, wide) = (nested(80), "{\"\":0},".repeat(590_000));
    for (jid, args) in [("jid-deep-001", deep), ("jid-wide-001", format!("[{wide}{{}}]"))] {
        let pushed = format!("{{\"jid\":\"{jid}\",\"jobtype\":\"x\",\"args\":{args}}}");
        assert_eq!(producer.say(&format!("PUSH {pushed}")), "+OK");
        let told = producer.say(&format!("TRACK GET {jid}"));
        assert!(told.contains("\"enqueued\""), "{told}");
    }
    let deeper = format!("{{\"jid\":\"jid-deep-002\",\"jobtype\":\"x\",\"args\":{}}}", nested(200));
    let refused = producer.say(&format!("PUSH {deeper}"));
    assert!(refused.starts_with("-ERR payload: is nested more than 90 deep"), "{refused}");
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: most.maximum, maximum: most.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let plant = Plant::new("");
    let address = ("127.0.0.1", plant.port);
    let mut silent: Vec<TcpStream> =
        (0..801).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut client = plant.client(Some("w1"));
    assert_eq!(client.fetch("default"), None);
    let mut oldest = Client(BufReader::new(silent.remove(0)));
    assert!(oldest.answer().starts_with("+HI ") && oldest.is_closed());
}

#[tokio::test]
async fn b15_of_two_jobs_with_one_id_none_is_ended_for_the_other_after_a_restart() {
    let plant = Plant::new("");
    let port = plant.port;
    let mut one = plant.client(Some("one"));
    for queue in ["default", "orders"] {
        let custom = json!({ "seriatim": { "key": "k" } });
        let custom = if queue == "orders" { custom } else { json!({}) };
        one.push(&job("jid-of-both", &json!({ "queue": queue, "custom": custom })));
    }
    assert_eq!(one.fetched("default")["jid"], "jid-of-both");
    let other = one.fetched("orders")["jid"].as_str().unwrap().to_owned();
    assert_ne!(other, "jid-of-both");
    let plant = Plant::of(plant.api.killed(), port);
    let mut one = plant.client(Some("one"));
    // Which of them it was is not known any more: it runs again.
    assert_eq!(one.ack("jid-of-both"), "+OK");
    assert_eq!(one.ack(&other), "+OK");
    assert_eq!(plant.jobs("orders", "succeeded").len(), 1);
    assert_eq!(plant.jobs("default", "succeeded").len(), 0);
    // Now only one has it.
    assert_eq!(one.ack("jid-of-both"), "+OK");
    assert_eq!(plant.jobs("default", "succeeded").len(), 1);
}
