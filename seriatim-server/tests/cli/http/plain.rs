//! Pages say plainly what is the matter: to people who see them for the first time.

use serde_json::json;

use super::client::Request;
use super::pages::{Visitor, bury, end, guarded, guarded_with, push};

/// As the store knows the worker `w` of a program.
const WORKER: &str = "remote:boss/w";

#[test]
fn a_quiet_node_is_seen_and_a_fleet_that_takes_no_work_is_a_finding() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k", "payload": 1 }));
    end(&api, "orders", "done", None);
    let boss = Visitor::log_in(&api, "boss");
    assert!(!boss.page("/").contains("takes no work"), "it works");
    let asks = "/confirm?deed=node.stop&node=remote%3Aboss%2Fw";
    assert!(boss.page(asks).contains("No other node takes work"), "{}", boss.page(asks));
    assert!(!boss.page(asks).contains("It serves this page"), "it is a program elsewhere");
    assert_eq!(boss.does("node.quiet", &[("node", WORKER)]).status, 303);
    let page = boss.page("/nodes/remote%3Aboss%2Fw");
    assert!(page.contains("<span class=\"state quiet\">quiet</span>"), "{page}");
    let style = page.split("rel=\"stylesheet\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let style = boss.page(style);
    assert!(!style.contains("\n.quiet {") && style.contains(", .quiet,"), "it is drawn");
    let overview = boss.page("/");
    assert!(overview.contains("is the only one, and takes no work"), "{overview}");
    assert!(overview.contains("seriatim nodes resume remote:boss/w"), "{overview}");
}

#[test]
fn the_dead_lead_to_all_that_died_of_the_same_and_what_never_failed_is_not_buried() {
    let api = guarded();
    for key in ["a", "b"] {
        push(&api, "mails", &json!({ "key": key }));
    }
    bury(&api, "mails", "no stamps after 17 ms");
    let boss = Visitor::log_in(&api, "boss");
    let causes = boss.page("/morgue?view=causes");
    let list = "/morgue?queue=mails&#38;error=no%20stamps%20after";
    assert!(causes.contains(list) && causes.contains(">no stamps after N ms</a>"), "{causes}");
    assert!(causes.contains("N stands for any number"), "{causes}");
    let listed = boss.page("/morgue?queue=mails&error=no%20stamps%20after");
    assert!(listed.contains(">a</a>") && listed.contains(">b</a>"), "{listed}");
    push(&api, "orders", &json!({ "key": "k" }));
    let queue = boss.page("/queues/orders");
    assert!(queue.contains("Delete waiting…") && !queue.contains("Bury failed…"), "{queue}");
    assert!(!queue.contains("Delete failed…"), "{queue}");
    end(&api, "orders", "retry", Some("no stock"));
    let queue = boss.page("/queues/orders");
    assert!(queue.contains("Bury failed…") && queue.contains("Delete failed…"), "{queue}");
}

#[test]
fn the_overview_begins_with_what_died_last_and_the_morgue_with_what_most_died_of() {
    let api = guarded();
    for (keys, error) in [(&["a", "b"][..], "no stamps"), (&["c"], "no address")] {
        for key in keys {
            push(&api, "mails", &json!({ "key": key }));
        }
        bury(&api, "mails", error);
    }
    let boss = Visitor::log_in(&api, "boss");
    for (path, heading, is_newest) in
        [("/", "Newest causes of death", true), ("/morgue?view=causes", "Causes of death", false)]
    {
        let page = boss.page(path);
        let (_, table) = page.split_once(heading).unwrap_or_else(|| panic!("{path}: {page}"));
        let place = |error: &str| table.find(&format!(">{error}</a>")).unwrap();
        assert_eq!(place("no address") < place("no stamps"), is_newest, "{path}: {table}");
    }
}

#[test]
fn what_is_asked_about_many_counts_their_jobs_and_names_those_without_a_key() {
    let api = guarded_with("[queues.free]\nmode = \"parallel\"\n");
    for payload in 1..=2 {
        push(&api, "free", &json!({ "payload": payload }));
        push(&api, "mails", &json!({ "key": "k", "payload": payload }));
    }
    let boss = Visitor::log_in(&api, "boss");
    let page = boss.page("/operations/new?action=delete_waiting&queue=free");
    assert!(page.contains("<strong>2</strong> lanes with <strong>2 jobs</strong>"), "{page}");
    assert!(page.contains("<td>no key</td>") && page.contains("All of them"), "{page}");
    assert!(!page.contains(">Error</th>"), "an empty column: {page}");
    let one = boss.page("/operations/new?action=delete_waiting&queue=mails&key=k");
    assert!(one.contains("<strong>1</strong> lane"), "{one}");
    let all = boss.page("/operations/new?action=delete_waiting&queue=mails");
    assert!(all.contains("<strong>1</strong> lane with <strong>2 jobs</strong>"), "{all}");
    let of_key = boss.page("/confirm?deed=lane.delete&queue=mails&key=k");
    assert!(of_key.contains("It has 2 jobs now."), "{of_key}");
    let lanes = boss.page("/queues/free/lanes");
    assert!(lanes.contains(">no key</a>"), "{lanes}");
    let about = boss.page("/about");
    assert!(about.contains("<dt>batches of jobs</dt><dd>yes</dd>"), "{about}");
    let docs = Request::new("GET", "/docs").send(&api.address).text();
    assert!(docs.contains("<nav aria-label=\"Groups\">") && docs.contains(">queues</a>"), "{docs}");
    assert!(docs.contains("<a href=\"/\">To the pages of this server</a>"), "{docs}");
    assert!(docs.contains(". <small>For "), "{docs}");
}
