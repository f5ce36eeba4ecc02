//! Payloads that are stored compressed and encrypted. What a store sees of them is text like any other, so one store is
//! enough.

use std::fs;

use serde_json::{Value, json};

use crate::http::Api;
use crate::site::{Site, eventually, text};

const OLD: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222222222222222222222222222";

/// A queue of each kind; the worker of `orders` writes down what it gets.
fn config(keys: &str) -> String {
    format!(
        "[queues.orders]\nmode = \"accumulate\"\nretain_dead = \"1h\"\n[queues.mails]\nmode = \"fifo\"\n\
         [payloads]\ncompress = [\"*\"]\nencrypt = [\"orders\", \"mails\"]\nkeys = [{keys}]\n\
         [[workers]]\nqueue = \"orders\"\ncommand = [\"sh\", \"-c\", \"cat >> got; echo >> got\"]\n"
    )
}

fn site(keys: &str) -> Site {
    let site = Site::new(&config(keys));
    fs::write(site.path("old.key"), OLD).unwrap();
    fs::write(site.path("new.key"), format!("{NEW}\n")).unwrap();
    site
}

fn push(site: &Site, queue: &str, payload: &str, more: &[&str]) {
    let arguments = [&["push", queue, payload, "--key", "k"], more].concat();
    let output = site.run(&arguments);
    assert!(output.status.success(), "{}", text(&output));
}

/// All that is in the store's files.
fn stored(site: &Site) -> String {
    let read = |name: &str| fs::read(site.path(name)).unwrap_or_default();
    let bytes = [read("seriatim.db"), read("seriatim.db-wal")].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The lanes of the calls that the worker got.
fn got(site: &Site) -> Vec<Value> {
    let text = fs::read_to_string(site.path("got")).unwrap_or_default();
    // The last one may still be written.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let calls = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    calls.flat_map(|call| call["lanes"].as_array().unwrap().clone()).collect()
}

const OLD_KEY: &str = "{ file = \"old.key\" }";
const NEXT_KEY: &str = "{ file = \"old.key\" }, { file = \"new.key\" }";
const BOTH_KEYS: &str = "{ file = \"new.key\" }, { file = \"old.key\" }";

#[tokio::test]
async fn l14_payloads_lie_encrypted_in_the_store_and_reach_workers_and_people_as_they_were_pushed()
{
    let site = site(OLD_KEY);
    push(&site, "orders", r#"{"card": "4111-1111", "v": 1}"#, &["--in", "1s"]);
    let listed = text(&site.run(&["jobs", "--queue", "orders", "--json"]));
    assert!(listed.contains("4111-1111"), "{listed}");
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", site.path("seriatim.db").display());
    let mut elsewhere = site.command(&["jobs", "--queue", "orders", "--json", "--store", &url]);
    let without_key = text(&elsewhere.current_dir(folder.path()).output().unwrap());
    assert!(
        !without_key.contains("4111") && without_key.contains("seriatim:1:p:"),
        "{without_key}"
    );
    assert!(!stored(&site).contains("4111-1111"), "the card is in the store");
    // A key that is to follow changes nothing yet: an equal payload still merges, however it is written.
    fs::write(site.path("seriatim.toml"), config(NEXT_KEY)).unwrap();
    push(&site, "orders", r#"{"v":1,"card":"4111-1111"}"#, &["--in", "1s"]);
    push(&site, "orders", r#"{"v":2,"card":"4111-1111"}"#, &["--in", "1s"]);
    fs::write(site.path("seriatim.toml"), config(BOTH_KEYS)).unwrap();
    let api = Api::with(site, |_| {});
    eventually("the worker gets them", async || !got(&api.site).is_empty()).await;
    let lanes = got(&api.site);
    let payloads: Vec<&Value> =
        lanes[0]["jobs"].as_array().unwrap().iter().map(|job| &job["payload"]).collect();
    assert_eq!(
        payloads,
        [&json!({"card": "4111-1111", "v": 1}), &json!({"card": "4111-1111", "v": 2})]
    );
    let long = "very ".repeat(10_000);
    api.post("/api/v1/queues/mails/jobs", &json!([{ "key": "m", "payload": long }])).done();
    let claim = json!({ "worker": "w", "queues": ["mails"] });
    let claimed = api.post("/api/v1/work/claim", &claim).done();
    assert_eq!(claimed["lanes"][0]["jobs"][0]["payload"], long);
    let id = claimed["lanes"][0]["jobs"][0]["job_id"].as_str().unwrap();
    let shown = api.get(&format!("/api/v1/jobs/{id}")).done();
    assert_eq!(
        (&shown["payload"], &shown["payload_bytes"]),
        (&json!(long), &json!(long.len() + 2))
    );
    assert!(!stored(&api.site).contains("very very"));
}

#[tokio::test]
async fn l14_a_payload_without_its_key_goes_to_the_morgue_with_the_reason_and_comes_back_with_it() {
    let site = site(OLD_KEY);
    push(&site, "orders", "\"secret\"", &[]);
    push(&site, "mails", "\"secret\"", &[]);
    fs::write(site.path("seriatim.toml"), config("{ file = \"new.key\" }")).unwrap();
    let api = Api::with(site, |_| {});
    let dead = async |queue: &str| {
        let page = api.get(&format!("/api/v1/queues/{queue}/morgue")).done();
        page["jobs"].as_array().and_then(|jobs| jobs.first().cloned())
    };
    eventually("the engine buries it", async || dead("orders").await.is_some()).await;
    let claim = json!({ "worker": "w", "queues": ["mails"] });
    assert_eq!(api.post("/api/v1/work/claim", &claim).done()["lanes"], json!([]));
    for queue in ["orders", "mails"] {
        let job = dead(queue).await.unwrap();
        let error = job["error"].as_str().unwrap();
        assert!(error.contains("not among payloads.keys"), "{queue}: {error}");
    }
    assert!(got(&api.site).is_empty());
    let site = api.killed();
    fs::write(site.path("seriatim.toml"), config(BOTH_KEYS)).unwrap();
    let api = Api::with(site, |_| {});
    let output = api.site.run(&["morgue", "requeue", "orders", "--all"]);
    assert!(output.status.success(), "{}", text(&output));
    eventually("the worker gets it", async || !got(&api.site).is_empty()).await;
    assert_eq!(got(&api.site)[0]["jobs"][0]["payload"], "secret");
}

#[test]
fn l14_a_command_without_the_key_looks_and_pushes_nothing_in_the_clear() {
    let site = site(OLD_KEY);
    push(&site, "mails", "\"secret\"", &[]);
    fs::rename(site.path("old.key"), site.path("kept.key")).unwrap();
    let listed = text(&site.run(&["jobs", "--queue", "mails", "--json"]));
    assert!(listed.contains("seriatim:1:p:") && !listed.contains("secret"), "{listed}");
    let refused = site.run(&["push", "mails", "\"another\"", "--key", "k"]);
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("cannot read old.key"), "{said}");
    assert!(!stored(&site).contains("another"));
    let said = text(&site.run(&["serve", "--no-http"]));
    assert!(said.contains("payloads.keys[0]: cannot read old.key"), "{said}");
}

#[test]
fn l14_wrong_settings_of_payloads_are_refused_and_no_program_gets_a_key() {
    let site = site("");
    let check = |config: &str| {
        fs::write(site.path("seriatim.toml"), config).unwrap();
        let output = site.command(&["config", "check"]).env("SHORT_KEY", "abc").output().unwrap();
        assert!(!output.status.success(), "{config}");
        text(&output)
    };
    let queue = "[queues.orders]\nmode = \"fifo\"\n";
    for (settings, says) in [
        ("compress = [\"order\"]", "did you mean \"orders\""),
        ("encrypt = [\"orders\"]", "there is no key"),
        ("keys = [{}]", "payloads.keys[0] needs the name of a variable or of a file"),
        ("keys = [{ env = \"a+secret/key=\" }]", "payloads.keys[0] needs the name of a variable"),
        ("keys = [{ env = \"NO_SUCH\" }]", "NO_SUCH is not set"),
        ("keys = [{ env = \"SHORT_KEY\" }]", "64 hexadecimal digits"),
        (
            "keys = [{ file = \"old.key\" }, { file = \"old.key\" }]",
            "is the same key as payloads.keys[0]",
        ),
    ] {
        let said = check(&format!("{queue}[payloads]\n{settings}\n"));
        assert!(said.contains(says) && !said.contains("a+secret"), "{settings}: {said}");
    }
    let worker =
        "[[workers]]\nqueue = \"orders\"\ncommand = [\"true\"]\nenv_pass = [\"SHORT_KEY\"]\n";
    let said = check(&format!("{queue}[payloads]\nkeys = [{{ env = \"SHORT_KEY\" }}]\n{worker}"));
    assert!(said.contains("a key of payloads.keys"), "{said}");
}
