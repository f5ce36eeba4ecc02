//! People whom a proxy before the server names.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use super::pages::{Visitor, field};
use crate::site::{Site, secret};

const PROXY: &str = "[http]\naudit_file = \"audit.ndjson\"\ntokens = [\
    { name = \"eyes\", token_env = \"T_eyes\", role = \"reader\" }]\n\
    [http.proxy]\nfrom = [\"FROM\"]\nuser = \"X-User\"\ngroups = \"X-Groups\"\nprefix = \"X-Prefix\"\n\
    roles = { ops = \"operator\", \"*\" = \"reader\" }\n[queues.orders]\nmode = \"fifo\"\n";

/// What a proxy adds to a request of this person.
pub(super) fn by_proxy(method: &str, path: &str, user: &str, groups: &str) -> Request {
    let request = Request::new(method, path).header("X-User", user).header("X-Groups", groups);
    request.header("Sec-Fetch-Site", "same-origin")
}

fn behind_a_proxy(from: &str) -> Api {
    Api::with(Site::new(&PROXY.replace("FROM", from)), |command| {
        command.env("T_eyes", secret("eyes"));
    })
}

#[test]
fn a_proxy_names_people_and_the_audit_log_does_too() {
    let api = behind_a_proxy("127.0.0.0/8");
    let page = by_proxy("GET", "/queues", "ann", "dev, ops").header("X-Prefix", "/jobs");
    let page = page.send(&api.address).text();
    assert!(page.contains("sso:ann (operator)") && page.contains("href=\"/jobs/queues"), "{page}");
    assert!(!page.contains("Log out"), "the proxy does that: {page}");
    let pause = |user: &str, groups: &str, mark: &str| {
        let form = format!("deed=queue.pause&queue=orders&mark={mark}&back=/queues");
        by_proxy("POST", "/do", user, groups).body("application/x-www-form-urlencoded", form)
    };
    let mark = field(&page, "mark").unwrap();
    let marks = [
        "",
        &field(&by_proxy("GET", "/about", "eve", "ops").send(&api.address).text(), "mark").unwrap(),
    ];
    for forged in marks {
        assert_eq!(pause("ann", "ops", forged).send(&api.address).status, 403, "{forged:?}");
    }
    assert_eq!(pause("bob", "dev", &mark).send(&api.address).status, 403, "a reader");
    let foreign = Request::new("POST", "/do").header("X-User", "ann").header("X-Groups", "ops");
    let form = format!("deed=queue.pause&queue=orders&mark={mark}");
    let foreign = foreign.header("Sec-Fetch-Site", "cross-site");
    let foreign = foreign.body("application/x-www-form-urlencoded", form);
    assert_eq!(foreign.send(&api.address).status, 403, "of another site");
    assert_eq!(pause("ann", "ops", &mark).send(&api.address).status, 303);
    let deeds = Request::new("GET", "/api/v1/audit").token(&secret("eyes"));
    let deeds = deeds.send(&api.address).done();
    let told = |deed: &Value| (deed["who"].clone(), deed["status"].as_u64().unwrap());
    let told: Vec<_> = deeds["entries"].as_array().unwrap().iter().map(told).collect();
    let of = |who: &str, status| (json!(who), status);
    let ann = of("sso:ann", 403);
    assert_eq!(told, [of("sso:ann", 303), of("sso:bob", 403), ann.clone(), ann], "{deeds}");
    assert_eq!(by_proxy("GET", "/api/v1/queues", "ann", "ops").status(&api.address), 401);
}

#[test]
fn a_form_and_a_message_of_one_node_are_known_to_the_other_nodes_of_the_store_also_without_tokens()
{
    let config = PROXY.replace("FROM", "127.0.0.1");
    let (before, rest) = config.split_once("tokens = ").unwrap();
    let (_, behind) = rest.split_once("[http.proxy]").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("shared.db");
    let store = format!("[store]\nurl = \"sqlite:{}\"\n", store.display());
    let node = || Api::start(&format!("{before}[http.proxy]{behind}{store}"));
    let (api, other) = (node(), node());
    let ask = |method: &str, path: &str, user: &str| by_proxy(method, path, user, "ops");
    let mark = field(&ask("GET", "/queues", "ann").send(&api.address).text(), "mark").unwrap();
    let form = format!("deed=queue.pause&queue=orders&mark={mark}&back=/queues");
    let paused = ask("POST", "/do", "ann").body("application/x-www-form-urlencoded", form);
    let paused = paused.send(&other.address);
    assert_eq!(paused.status, 303, "{}", paused.text());
    let said = paused.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let shown = |user: &str| ask("GET", "/queues", user).header("Cookie", &said).send(&api.address);
    let page = shown("ann").text();
    assert!(page.contains("queue orders: paused") && page.contains("Undo"), "{page}");
    assert!(!shown("bob").text().contains("queue orders: paused"), "it is for one person");
}

#[test]
fn headers_of_others_than_the_proxy_are_not_believed_and_a_token_counts_more() {
    let api = behind_a_proxy("10.9.8.7");
    let answer = by_proxy("GET", "/queues", "ann", "ops").send(&api.address);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login?next=%2Fqueues")));
    let answer = by_proxy("GET", "/queues", "ann", "ops").header("X-Forwarded-For", "10.9.8.7");
    assert_eq!(answer.send(&api.address).status, 303);
    let api = behind_a_proxy("127.0.0.1");
    let eyes = Visitor::log_in(&api, "eyes");
    let both = by_proxy("GET", "/queues", "ann", "ops").header("Cookie", &eyes.cookie);
    let both = both.send(&api.address).text();
    assert!(both.contains("eyes (reader)") && !both.contains("sso:ann"), "{both}");
    let twice = by_proxy("GET", "/queues", "ann", "ops").header("X-User", "root");
    let twice = twice.send(&api.address);
    assert!(twice.status == 403 && twice.text().contains("is given twice"), "{}", twice.text());
}

#[test]
fn behind_a_proxy_without_tokens_the_api_lets_nobody_in() {
    let config = PROXY.replace("FROM", "127.0.0.1");
    let start = config.find("tokens = ").unwrap();
    let end = config.find("[http.proxy]").unwrap();
    let api = Api::start(&format!("{}{}", &config[..start], &config[end..]));
    assert_eq!(by_proxy("GET", "/queues", "ann", "ops").status(&api.address), 200);
    assert_eq!(by_proxy("GET", "/api/v1/queues", "ann", "ops").status(&api.address), 401);
    assert_eq!(Request::new("GET", "/api/v1/queues").status(&api.address), 401);
    let nobody = Request::new("GET", "/queues").send(&api.address);
    assert_eq!(nobody.status, 403, "there is nothing to log in with: {}", nobody.text());
}
