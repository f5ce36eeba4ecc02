//! An open transaction of a user holds up no remote worker, producer or batch of other keys.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Api;
use super::client::{Answer, Request, held};
use crate::faults::Server;
use crate::site::Site;

/// More than a request takes that waits for nobody, and less than one that waits for the transaction.
const SOON: Duration = Duration::from_secs(20);
/// Of the store: fewer than there are pushes that wait. Those may take all but one.
const CONNECTIONS: usize = 4;

/// A session of the database's own client, with an open transaction.
struct Open {
    client: Child,
    input: ChildStdin,
}

impl Open {
    /// Returns when it has locked the lane.
    fn on(server: &Server, lane: &Value) -> Self {
        let number = lane["lane"].as_str().unwrap().rsplit('-').next().unwrap();
        let mut command = server.client();
        let row = match server {
            Server::Mysql(_) => {
                command.arg("--unbuffered");
                format!("seriatim_lane WHERE id = {number}")
            }
            _ => format!("seriatim.lane WHERE number = {number}"),
        };
        let sql = format!("START TRANSACTION; SELECT 1 FROM {row} FOR UPDATE;");
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        writeln!(input, "{sql}").unwrap();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "1");
        Self { client, input }
    }

    fn commit(mut self) {
        writeln!(self.input, "COMMIT;").unwrap();
        drop(self.input);
        assert!(self.client.wait().unwrap().success());
    }
}

/// Returns when pushes wait for the transaction on all connections that they may take.
fn until_pushes_wait(server: &Server) {
    let waiting = match server {
        // It answers from a copy, which it renews only if nobody asked for 0.1 s.
        Server::Mysql(_) => {
            "DO SLEEP(0.2); SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT';"
        }
        _ => "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock';",
    };
    while server.sql(waiting).trim().parse::<usize>().unwrap() < CONNECTIONS - 1 {
        std::thread::yield_now();
    }
}

#[track_caller]
fn soon(call: impl FnOnce() -> Answer) -> Value {
    let began = Instant::now();
    let answer = call().done();
    assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    answer
}

fn claim(api: &Api) -> Vec<Value> {
    let body = json!({ "worker": "w", "queues": ["orders"], "limit": 10 });
    let lanes = soon(|| api.post("/api/v1/work/claim", &body))["lanes"].clone();
    serde_json::from_value(lanes).unwrap()
}

/// The status of each turn.
fn settle(api: &Api, lanes: &[&Value]) -> Vec<String> {
    let done = |lane: &&Value| held(lane, json!({ "outcome": "done" }));
    let results: Vec<Value> = lanes.iter().map(done).collect();
    let body = json!({ "worker": "w", "results": results });
    let answer = soon(|| api.post("/api/v1/work/settle", &body));
    let status = |result: &Value| result["status"].as_str().unwrap().to_owned();
    answer["results"].as_array().unwrap().iter().map(status).collect()
}

/// Returns when the nodes report so many keys that wait for a transaction; what they say of them.
fn until_told(api: &Api, keys: usize) -> Vec<String> {
    loop {
        let nodes = api.get("/api/v1/nodes").done();
        let troubles = nodes["nodes"].as_array().unwrap().iter();
        let troubles = troubles.flat_map(|node| node["troubles"].as_array().unwrap());
        let told = troubles.filter(|trouble| trouble["kind"] == "settles_locked");
        let told: Vec<_> =
            told.map(|trouble| trouble["text"].as_str().unwrap().to_owned()).collect();
        if told.len() == keys {
            return told;
        }
        std::thread::yield_now();
    }
}

fn holds_up_its_key_alone(server: &Server) {
    let config = format!(
        "[store]\nurl = \"{}?connections={CONNECTIONS}\"\n[queues.orders]\nmode = \"fifo\"\n",
        server.url()
    );
    let api = Api::with(Site::new(&config), |_| {});
    let push = |jobs: Value| api.post("/api/v1/queues/orders/jobs", &jobs);
    let has_batches = matches!(server, Server::Postgres(_));
    if has_batches {
        let batch = json!({ "queue": "orders", "callback": { "key": "after", "payload": 1 } });
        api.put("/api/v1/batches/b", &batch).done();
    }
    push(json!([{ "key": "locked" }, { "key": "free", "batch": has_batches.then_some("b") }]))
        .done();
    if has_batches {
        api.act("/api/v1/batches/b/seal").done();
    }
    let lanes = claim(&api);
    let of = |key: &str| lanes.iter().find(|lane| lane["key"] == key).unwrap();
    let (locked, free) = (of("locked"), of("free"));
    let open = Open::on(server, locked);
    std::thread::scope(|scope| {
        // Arrays, of which each goes by itself, and single jobs, which go together.
        let many = (0..2 * CONNECTIONS).map(|_| json!([{ "key": "locked" }, { "key": "locked" }]));
        let single = (0..2 * CONNECTIONS).map(|_| json!({ "key": "locked" }));
        let address = &api.address;
        let pushes: Vec<_> = many
            .chain(single)
            .map(|jobs| {
                let path = "/api/v1/queues/orders/jobs";
                scope.spawn(move || Request::new("POST", path).json(&jobs).send(address).done())
            })
            .collect();
        until_pushes_wait(server);
        assert_eq!(settle(&api, &[locked, free]), ["busy", "ok"]);
        let beat = json!({ "worker": "w", "claims": [held(locked, json!({}))] });
        let beaten = soon(|| api.post("/api/v1/work/heartbeat", &beat));
        assert_eq!(beaten["lost"], json!([]));
        assert_eq!(until_told(&api, 1), ["an open transaction has locked the key \"locked\""]);
        if has_batches {
            let callback = claim(&api);
            assert_eq!((callback.len(), &callback[0]["key"]), (1, &json!("after")));
            assert_eq!(settle(&api, &[&callback[0]]), ["ok"]);
        }
        open.commit();
        pushes.into_iter().for_each(|push| drop(push.join().unwrap()));
    });
    assert_eq!(settle(&api, &[locked]), ["ok"]);
    until_told(&api, 0);
    let behind = claim(&api);
    assert_eq!(behind.len(), 1, "{behind:?}");
    assert_eq!(behind[0]["key"], "locked");
}

#[test]
fn an_open_transaction_holds_up_remote_workers_of_its_key_alone_with_postgresql() {
    holds_up_its_key_alone(&Server::postgres());
}

#[test]
fn an_open_transaction_holds_up_remote_workers_of_its_key_alone_with_mysql() {
    holds_up_its_key_alone(&Server::mysql());
}
