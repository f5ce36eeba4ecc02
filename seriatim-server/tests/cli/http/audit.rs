//! Who did what.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use crate::site::{Site, eventually};

const TOKENS: &str = "tokens = [{ name = \"ops\", token_env = \"T_OPS\", role = \"admin\" }, \
    { name = \"shop\", token_env = \"T_SHOP\", role = \"producer\" }]\n";

fn audited(more: &str) -> Api {
    let site = Site::new(&format!("[http]\naudit_file = \"audit.ndjson\"\n{more}{TOKENS}"));
    Api::with(site, |command| {
        command.env("T_OPS", "the-secret-of-ops").env("T_SHOP", "the-secret-of-shop");
    })
}

fn send(api: &Api, token: &str, path: &str, body: &Value) -> u16 {
    let request = Request::new("POST", path).json(body).token(token).header("X-Request-Id", "r-1");
    request.header("X-Forwarded-For", "203.0.113.9").send(&api.address).status
}

fn lines(api: &Api) -> Vec<Value> {
    let text = std::fs::read_to_string(api.site.path("audit.ndjson")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn d15_each_action_is_written_down_with_who_where_what_and_how_it_ended() {
    let api = audited("");
    let (ops, shop) = ("the-secret-of-ops", "the-secret-of-shop");
    assert_eq!(send(&api, shop, "/api/v1/queues/orders/jobs", &json!({ "key": "k" })), 200);
    assert_eq!(send(&api, shop, "/api/v1/queues/orders/pause", &json!({})), 403);
    let all = json!({ "all": true });
    assert_eq!(send(&api, ops, "/api/v1/queues/orders/morgue/requeue", &all), 200);
    assert_eq!(send(&api, "nobody-has-this-one", "/api/v1/queues/orders/pause", &json!({})), 401);
    let lines = lines(&api);
    assert_eq!(lines.len(), 2, "no pushes, and nobody unknown: {lines:?}");
    let told = |line: &Value| ["who", "role", "status", "target"].map(|name| line[name].clone());
    let [pause, requeue] =
        ["pause", "morgue/requeue"].map(|what| format!("/api/v1/queues/orders/{what}"));
    assert_eq!(told(&lines[0]), [json!("shop"), json!("producer"), json!(403), json!(pause)]);
    assert_eq!(told(&lines[1]), [json!("ops"), json!("admin"), json!(200), json!(requeue)]);
    let more = ["from", "forwarded_for", "request_id", "method", "body"]
        .map(|name| lines[1][name].clone());
    assert_eq!(
        more,
        ["127.0.0.1", "203.0.113.9", "r-1", "POST", "{\"all\":true}"].map(|text| json!(text))
    );
    assert!(lines[1]["at"].is_string());
}

#[test]
fn all_that_changes_something_is_written_down_where_that_is_wanted() {
    let api = audited("audit = \"all\"\n");
    let push = json!({ "key": "k", "payload": "private" });
    assert_eq!(send(&api, "the-secret-of-shop", "/api/v1/queues/orders/jobs", &push), 200);
    let lines = lines(&api);
    assert_eq!((&lines[0]["who"], &lines[0]["status"]), (&json!("shop"), &json!(200)));
    assert_eq!(lines[0]["body"], Value::Null, "payloads are not for the audit log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_file_actions_stand_in_the_log() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    api.act("/api/v1/queues/orders/pause").done();
    let is_logged = async || {
        let log = api.log();
        log.contains("seriatim::audit") && log.contains("/api/v1/queues/orders/pause")
    };
    eventually("the action is logged", is_logged).await;
}
