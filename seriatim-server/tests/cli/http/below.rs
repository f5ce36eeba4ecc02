//! Every page for every role, at the root and below the path of a proxy.

use serde_json::json;

use super::Api;
use super::client::Request;
use super::pages::{bury, guarded_with, push};
use super::proxy::by_proxy;
use crate::site::secret;

const PROXY: &str = "[http.proxy]\nfrom = [\"127.0.0.0/8\"]\nuser = \"X-User\"\ngroups = \"X-Groups\"\nprefix = \"X-Prefix\"\n\
    roles = { ops = \"operator\", chiefs = \"admin\", \"*\" = \"reader\" }\n";

/// The addresses of all pages that the server knows.
fn pages(api: &Api) -> Vec<String> {
    let table = include_str!("../../../src/http/pages/mod.rs");
    let get =
        |path: &str| Request::new("GET", path).token(&secret("boss")).send(&api.address).done();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let job = text(&get("/api/v1/queues/mails/morgue")["jobs"][0]["job_id"]);
    let lane = text(&get("/api/v1/queues/orders/lanes")["lanes"][0]["lane"]);
    let node = text(&get("/api/v1/nodes")["nodes"][0]["node"]);
    let operation = text(&get("/api/v1/operations")["operations"][0]["id"]);
    let patterns =
        table.split("Route::page(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let pages = patterns.filter(|pattern| !["/login", "/assets/{name}"].contains(pattern));
    let filled = pages.map(|pattern| match pattern {
        "/key" | "/key/events" | "/export/key" => format!("{pattern}?k=k%3Cb%3E"),
        "/operations/new" => format!("{pattern}?action=requeue&queue=mails"),
        "/confirm" => format!("{pattern}?deed=lane.bury&queue=orders&key=k%3Cb%3E"),
        "/reschedule" => format!("{pattern}?lane={lane}"),
        "/search" => format!("{pattern}?q=k"),
        pattern => pattern
            .replace("{queue}", "orders")
            .replace("{job_id}", &job)
            .replace("{node}", &node)
            .replace("{operation}", &operation),
    });
    let more = ["/jobs?queue=orders", "/morgue?queue=mails", "/morgue?view=causes"];
    let all: Vec<String> = filled.chain(more.map(str::to_owned)).collect();
    assert!(all.len() >= 28 && all.iter().all(|page| !page.contains('{')), "{all:?}");
    all
}

fn house() -> Api {
    let api = guarded_with(PROXY);
    api.knows_cron("night <b>", Some(&secret("eyes")));
    push(&api, "mails", &json!({ "key": "k<b>", "payload": 1 }));
    bury(&api, "mails", "no stamps");
    push(&api, "mails", &json!({ "key": "later", "delay": "1h" }));
    push(&api, "orders", &json!({ "key": "k<b>", "payload": 1 }));
    let boss = |path: &str, body: serde_json::Value| {
        Request::new("POST", path).token(&secret("boss")).json(&body).send(&api.address).done()
    };
    boss("/api/v1/operations", json!({ "action": "pause", "queue": "orders" }));
    api
}

/// The addresses to which a page leads, sends, or from which it loads.
fn links(page: &str) -> Vec<&str> {
    let of = |mark: &str| {
        let parts: Vec<&str> = page.split(mark).skip(1).collect();
        parts.into_iter().map(|rest| rest.split('"').next().unwrap())
    };
    [" href=\"", " action=\"", " src=\"", "data-base=\""].iter().flat_map(|mark| of(mark)).collect()
}

/// What changes something, or asks before it does.
const DOES: [&str; 5] =
    ["method=\"post\"", "form=\"act\"", "/confirm?", "/operations/new", "form=\"move\""];

#[test]
fn every_role_opens_every_page_also_below_a_proxys_path_and_readers_see_no_button() {
    let api = house();
    let pages = pages(&api);
    for (group, role) in [("dev", "reader"), ("ops", "operator"), ("chiefs", "admin")] {
        let mut acting = 0;
        for prefix in ["", "/of/jobs"] {
            for path in &pages {
                let request = by_proxy("GET", path, "ann", group);
                let request =
                    if prefix.is_empty() { request } else { request.header("X-Prefix", prefix) };
                let answer = request.send(&api.address);
                let text = answer.text();
                let asks = ["/operations/new", "/confirm", "/reschedule"]
                    .iter()
                    .any(|page| path.starts_with(page));
                let may = match role {
                    "reader" => !asks,
                    // To bury is for admins.
                    "operator" => !path.starts_with("/confirm"),
                    _ => true,
                };
                assert_eq!(
                    answer.status,
                    if may { 200 } else { 403 },
                    "{role}: {prefix}{path}: {text}"
                );
                if path.starts_with("/export") || path.ends_with("/payload") {
                    continue;
                }
                assert!(text.contains(&format!("sso:ann ({role})")), "{role}: {path}: {text}");
                for link in links(&text) {
                    let is_below = link == prefix || link.starts_with(&format!("{prefix}/"));
                    assert!(is_below || link.starts_with('#'), "{role}: {prefix}{path}: {link}");
                }
                let does = DOES.iter().any(|mark| text.contains(mark));
                assert!(!does || role != "reader", "{path}: {text}");
                acting += usize::from(does);
            }
        }
        println!("{role}: {acting} pages with buttons");
        assert_eq!(acting > 20, role != "reader", "{role}: {acting}");
    }
}
