//! Lists of jobs and lanes on pages: filters, exports, and what is done to one of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use seriatim::limits::PAYLOAD_BYTES_MAX;

use super::Api;
use super::client::{Request, held};
use super::deeds::BRIDGE;
use super::pages::{Visitor, bury, end, field, guarded, guarded_with, push};
use crate::site::secret;

#[test]
fn the_morgue_is_filtered_by_task_error_and_time() {
    let api = guarded();
    let boss = Visitor::log_in(&api, "boss");
    for (key, task) in [("one", "ship"), ("two", "bill")] {
        push(&api, "mails", &json!({ "key": key, "task": task }));
    }
    bury(&api, "mails", "no stamps");
    for (path, one, two) in [
        ("/morgue?queue=mails", true, true),
        ("/morgue?task=ship", true, false),
        ("/morgue?queue=mails&error=stamps&prefix=t", false, true),
        ("/morgue?error=nothing", false, false),
        ("/morgue?from=2200-01-01T00:00:00Z", false, false),
        ("/morgue?to=2200-01-01T00:00:00Z", true, true),
        ("/morgue?view=causes&task=bill", false, false),
    ] {
        let page = boss.page(path);
        assert_eq!(
            (page.contains(">one</a>"), page.contains(">two</a>")),
            (one, two),
            "{path}: {page}"
        );
    }
    let filtered = boss.page("/morgue?queue=mails&task=ship");
    assert!(filtered.contains("<details open>") && filtered.contains("task=ship"), "{filtered}");
    assert_eq!(boss.get("/morgue?from=soon").status, 400);
}

#[test]
fn jobs_are_listed_by_state_and_filters_and_canceled_together() {
    let api = guarded_with("[dashboard]\nredact = [\"password\"]\n");
    let (boss, hands) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "hands"));
    let part = Visitor::log_in(&api, "part");
    for (queue, key, task) in
        [("mails", "one", "ship"), ("mails", "two", "bill"), ("orders", "three", "ship")]
    {
        push(&api, queue, &json!({ "key": key, "task": task, "payload": { "of": key } }));
    }
    bury(&api, "orders", "no stock");
    for (path, shown) in [
        ("/jobs", vec!["one", "two"]),
        ("/jobs?queue=mails&task=ship", vec!["one"]),
        ("/jobs?prefix=t", vec!["two"]),
        ("/jobs?state=dead", vec!["three"]),
        ("/jobs?state=running", vec![]),
        ("/jobs?state=succeeded", vec![]),
        ("/jobs?from=2200-01-01T00:00:00Z", vec![]),
    ] {
        let page = boss.page(path);
        let found: Vec<_> = ["one", "two", "three"]
            .into_iter()
            .filter(|key| page.contains(&format!(">{key}</a>")))
            .collect();
        assert_eq!(found, shown, "{path}: {page}");
    }
    let searched = boss.get("/jobs?text=one");
    assert!(searched.status == 403 && searched.text().contains("search errors"));
    assert_eq!(part.get("/jobs").status, 403);
    assert!(part.page("/jobs?queue=mails").contains(">one</a>"));
    // An operator cancels what the filters show, and nothing else.
    let page = hands.page("/jobs?queue=mails&task=ship");
    assert!(page.contains("action=cancel_jobs") && !page.contains("delete_jobs"), "{page}");
    let ask = hands.page("/operations/new?action=cancel_jobs&queue=mails&task=ship");
    assert!(ask.contains("<strong>1</strong> waiting and running job."), "{ask}");
    let page = hands.page("/jobs?task=ship");
    assert!(page.contains("action=cancel_jobs&#38;queues=*&#38;task=ship"), "{page}");
    for page in ["/jobs?queue=mails&state=queued", "/jobs?queue=mails&to=2200-01-01T00:00:00Z"] {
        assert!(
            !hands.page(page).contains("operations/new?"),
            "an operation would mean others: {page}"
        );
    }
    let wish = [
        ("deed", "operation.start"),
        ("action", "cancel_jobs"),
        ("queue", "mails"),
        ("task", "ship"),
    ];
    let mark = hands.mark();
    let begun = hands.submit("/operations/start", &[&wish[..], &[("mark", &mark)]].concat());
    assert_eq!(begun.status, 303, "{}", begun.text());
    let page = hands.page(begun.header("location").unwrap());
    assert!(page.contains("waiting and running jobs"), "{page}");
}

#[test]
fn a_list_is_exported_as_lines_of_json_without_what_its_visitor_may_not_see() {
    let api = guarded_with("retain_completed = \"1h\"\n[dashboard]\npayloads = \"admin\"\n");
    for n in 0..1_203 {
        push(&api, "mails", &json!({ "key": format!("k{n:04}"), "payload": { "secret": n } }));
    }
    let (boss, eyes) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "eyes"));
    let lines = exported;
    let page = boss.page("/jobs?queue=mails&prefix=k");
    let href = page.split_once("href=\"/export/jobs").unwrap().1.split('"').next().unwrap();
    let jobs =
        lines(&boss, &format!("/export/jobs{}", href.replace("&#38;", "&").replace("&amp;", "&")));
    assert_eq!(jobs.len(), 1_203);
    assert!(jobs.iter().enumerate().all(|(n, job)| job["payload"]["secret"] == n), "{}", jobs[0]);
    let jobs = lines(&eyes, "/export/jobs?queue=mails");
    assert!(
        jobs.len() == 1_203 && !jobs.iter().any(|job| job.to_string().contains("secret")),
        "{}",
        jobs[0]
    );
    // A result is of the same kind.
    let claim = json!({ "worker": "w", "queues": ["mails"], "limit": 1 });
    let work = |path: &str, body: &Value| {
        let request = Request::new("POST", &format!("/api/v1/work/{path}")).json(body);
        request.token(&secret("boss")).send(&api.address).done()
    };
    let lane = work("claim", &claim)["lanes"][0].take();
    let settled = held(&lane, json!({ "outcome": "done", "result": { "secret": "sum" } }));
    work("settle", &json!({ "worker": "w", "results": [settled] }));
    let done = "/export/jobs?queue=mails&state=succeeded";
    assert_eq!(lines(&boss, done)[0]["result"]["secret"], "sum");
    let seen = lines(&eyes, done);
    assert!(seen.len() == 1 && seen[0]["result"].is_null(), "{}", seen[0]);
    let lanes = lines(&eyes, "/export/lanes/mails?by=key&prefix=k12");
    let keys: Vec<_> = lanes.iter().map(|lane| lane["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["k1200", "k1201", "k1202"]);
    let part = Visitor::log_in(&api, "part");
    assert_eq!(part.get("/export/jobs").status, 403);
    assert_eq!(part.get("/export/lanes/orders").status, 403);
    assert_eq!(boss.get("/export/jobs?from=soon").status, 400);
}

/// The keys that a list shows, over all its pages, in their order.
fn keys_of_all_pages(visitor: &Visitor<'_>, first: &str) -> Vec<String> {
    let (mut path, mut keys) = (first.to_owned(), Vec::new());
    loop {
        let page = visitor.page(&path);
        let links = page.split("href=\"/key?k=").skip(1);
        keys.extend(links.map(|rest| rest.split('"').next().unwrap().to_owned()));
        let Some((_, rest)) = page.split_once("rel=\"next\" href=\"") else { return keys };
        path = rest.split('"').next().unwrap().replace("&#38;", "&");
    }
}

/// The keys of all pages of a list of the API.
fn keys_by_api(api: &Api, list: &str, rows: &str) -> Vec<String> {
    let (mut after, mut keys) = (String::new(), Vec::new());
    loop {
        let request = Request::new("GET", &format!("/api/v1/{list}{after}"));
        let page = request.token(&secret("boss")).send(&api.address).done();
        let rows = page[rows].as_array().unwrap().iter();
        keys.extend(rows.map(|row| row["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { return keys };
        after = format!("&after={next}");
    }
}

/// The lines of an export.
fn exported(visitor: &Visitor<'_>, path: &str) -> Vec<Value> {
    let answer = visitor.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    assert!(answer.header("content-disposition").unwrap().contains(".ndjson\""));
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn dead_jobs_of_several_queues_come_by_the_time_of_their_death() {
    let api = guarded();
    let eyes = Visitor::log_in(&api, "eyes");
    let mut died = Vec::new();
    for i in 0..40 {
        let (queue, key) = (["mails", "orders", "bills"][i % 3], format!("k{i}"));
        push(&api, queue, &json!({ "key": key, "payload": "x".repeat(i * 1_000) }));
        bury(&api, queue, "no stock");
        died.insert(0, key);
    }
    assert_eq!(keys_of_all_pages(&eyes, "/morgue"), died);
    assert_eq!(keys_of_all_pages(&eyes, "/jobs?state=dead"), died);
    assert!(!eyes.page("/morgue").contains("Queue by queue"));
    let jobs = "jobs?state=dead&limit=7";
    assert_eq!(keys_by_api(&api, jobs, "jobs"), died);
    let whole = exported(&Visitor::log_in(&api, "boss"), "/export/jobs?state=dead");
    assert!(whole.iter().zip(&died).all(|(job, key)| job["key"] == **key), "{whole:?}");
    let lengths: Vec<_> = whole.iter().map(|job| job["payload"].as_str().unwrap().len()).collect();
    assert!(lengths.is_sorted_by(|one, next| *one == next + 1_000), "{lengths:?}");
    // Who seeks an error reads job by job: such a list is queue by queue.
    let sought = eyes.page("/morgue?error=stock");
    assert!(sought.contains("Queue by queue") && sought.contains("at most 100 queues"), "{sought}");
    assert_eq!(keys_of_all_pages(&eyes, "/morgue?error=stock").len(), 40);
    for wrong in ["/jobs?state=dead&after=/x/mails/y", "/jobs?after=/-1/mails/y", "/jobs?after=x"] {
        assert_eq!(eyes.get(wrong).status, 400, "{wrong}");
    }
}

#[test]
fn finished_jobs_of_several_queues_come_by_the_time_of_their_end_and_within_a_time() {
    let api =
        guarded_with("[queues.bills]\nmode = \"fifo\"\n[defaults]\nretain_completed = \"1h\"\n");
    let eyes = Visitor::log_in(&api, "eyes");
    let mut ended = Vec::new();
    for i in 0..40 {
        let (queue, key) = (["mails", "orders", "bills"][i % 3], format!("k{i}"));
        push(&api, queue, &json!({ "key": key, "payload": i }));
        end(&api, queue, "done", None);
        ended.insert(0, key);
    }
    assert_eq!(keys_of_all_pages(&eyes, "/jobs?state=succeeded"), ended);
    assert!(!eyes.page("/jobs?state=succeeded").contains("Queue by queue"));
    assert_eq!(keys_by_api(&api, "jobs?state=succeeded&limit=7", "jobs"), ended);
    let page = Request::new("GET", "/api/v1/jobs?state=succeeded&limit=30").token(&secret("boss"));
    let page = page.send(&api.address).done();
    let at = |place: usize| page["jobs"][place]["finished_at"].as_str().unwrap();
    let within = format!("jobs?state=succeeded&limit=4&from={}&to={}", at(19), at(10));
    assert_eq!(keys_by_api(&api, &within, "jobs"), ended[10..20]);
    let one = format!("{within}&queue=mails");
    let mails: Vec<_> =
        ended[10..20].iter().filter(|key| key[1..].parse::<usize>().unwrap() % 3 == 0).collect();
    assert_eq!(keys_by_api(&api, &one, "jobs").iter().collect::<Vec<_>>(), mails);
    assert_eq!(keys_by_api(&api, "jobs?state=canceled&limit=4", "jobs").len(), 0);
}

#[test]
fn dead_jobs_of_very_many_queues_come_queue_by_queue() {
    let declared = (0..101).map(|i| format!("[queues.q{i:03}]\nmode = \"fifo\"\n"));
    let api = guarded_with(&declared.collect::<String>());
    let eyes = Visitor::log_in(&api, "eyes");
    for i in 0..101 {
        let queue = format!("q{i:03}");
        push(&api, &queue, &json!({ "key": format!("k{i:03}") }));
        bury(&api, &queue, "no stock");
    }
    let page = eyes.page("/morgue");
    assert!(page.contains("Queue by queue") && page.contains("at most 100 queues"), "{page}");
    let keys = keys_of_all_pages(&eyes, "/morgue");
    assert!(keys.len() == 101 && keys.is_sorted(), "{keys:?}");
}

#[test]
fn what_is_due_later_in_several_queues_comes_by_time_from_page_to_page() {
    let api = guarded();
    let (boss, eyes) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "eyes"));
    let mut due = Vec::new();
    for i in 0..60 {
        // Several are due at one time, in one queue and in several.
        let (queue, at) = (["mails", "orders", "bills", "rare"][i % 4], i / 5);
        let run_at = format!("2200-01-01T00:{at:02}:00Z");
        push(&api, queue, &json!({ "key": format!("k{i}"), "run_at": run_at }));
        due.push((run_at, queue, i));
    }
    // A queue with a backlog, of which it is not known what is next.
    push(&api, "orders", &json!({ "key": "now" }));
    due.sort();
    let wanted: Vec<String> = due.iter().map(|(.., i)| format!("k{i}")).collect();
    assert_eq!(keys_of_all_pages(&eyes, "/scheduled"), wanted);
    assert_eq!(keys_by_api(&api, "scheduled?limit=7", "lanes"), wanted);
    let file = exported(&eyes, "/export/scheduled");
    assert!(file.iter().zip(&wanted).all(|(lane, key)| lane["key"] == **key), "{file:?}");
    let some = "scheduled?due_from=2200-01-01T00:02:00Z&due_to=2200-01-01T00:03:00Z";
    assert_eq!(keys_by_api(&api, some, "lanes"), wanted[10..20]);
    let one = due.iter().filter(|(_, queue, _)| *queue == "mails");
    let one: Vec<String> = one.map(|(.., i)| format!("k{i}")).collect();
    assert_eq!(keys_of_all_pages(&eyes, "/scheduled?queue=mails"), one);
    assert_eq!(keys_by_api(&api, "scheduled?limit=4&queue=mails", "lanes"), one);
    let sought = boss.page("/scheduled?prefix=k1");
    assert!(sought.contains("Queue by queue"), "{sought}");
    assert_eq!(keys_by_api(&api, "scheduled?limit=2&prefix=k1", "lanes").len(), 11);
    let part = Visitor::log_in(&api, "part");
    assert_eq!(exported(&part, "/export/scheduled").len(), one.len());
    assert_eq!(part.get("/export/scheduled?queue=orders").status, 403);
}

#[test]
fn lanes_show_how_long_they_have_been_due_and_are_filtered_by_it() {
    let api = guarded();
    let eyes = Visitor::log_in(&api, "eyes");
    for (key, run_at) in [("old", "2020-01-01T00:00:00Z"), ("later", "2200-01-01T00:00:00Z")] {
        push(&api, "orders", &json!({ "key": key, "run_at": run_at }));
    }
    push(&api, "orders", &json!({ "key": "new" }));
    let page = eyes.page("/queues/orders/lanes");
    assert!(page.contains(">Lag</th>"), "{page}");
    for (filter, keys) in [
        ("lag_min=1h", vec!["old"]),
        ("lag_min=0", vec!["old", "new"]),
        ("lag_min=1h&by=key", vec!["old"]),
        ("lag_min=1h&state=ready", vec!["old"]),
        ("lag_min=1h&state=retrying", vec![]),
        ("lag_min=9000d", vec![]),
    ] {
        let path = format!("/queues/orders/lanes?{filter}");
        assert_eq!(keys_of_all_pages(&eyes, &path), keys, "{filter}");
        let order = filter.replace("by=", "order=");
        assert_eq!(keys_by_api(&api, &format!("queues/orders/lanes?{order}"), "lanes"), keys);
    }
    let hands = Visitor::log_in(&api, "hands");
    let hint = "No action on all that match has these filters: select rows.";
    for (path, is_told) in [("?lag_min=1h", false), ("?prefix=o", false), ("?by=key&from=o", true)]
    {
        let page = hands.page(&format!("/queues/orders/lanes{path}"));
        let has_actions = page.contains("operations/new?");
        assert_eq!((page.contains(hint), has_actions), (is_told, !is_told), "{path}: {page}");
    }
    let file = exported(&eyes, "/export/lanes/orders?lag_min=1h");
    assert_eq!((file.len(), &file[0]["key"]), (1, &json!("old")));
    for wrong in ["lag_min=soon", "lag_min=1h&state=running", "lag_min=1h&state=ready,held"] {
        let answer = eyes.get(&format!("/queues/orders/lanes?{wrong}"));
        let page = answer.text();
        assert!(answer.status == 400 && page.contains("wrong-lag_min"), "{wrong}: {page}");
    }
}

#[test]
fn a_lane_that_waits_for_a_retry_is_listed_though_its_time_has_come() {
    let api = guarded();
    let eyes = Visitor::log_in(&api, "eyes");
    push(&api, "mails", &json!({ "key": "failed" }));
    end(&api, "mails", "retry", Some("down"));
    let now = Request::new("POST", "/api/v1/queues/mails/lane/retry?key=failed");
    now.token(&secret("boss")).send(&api.address).done();
    for path in ["?state=retrying", "?state=retrying,scheduled", "?state=retrying&by=key"] {
        let keys = keys_of_all_pages(&eyes, &format!("/queues/mails/lanes{path}"));
        assert_eq!(keys, ["failed"], "{path}");
    }
    assert_eq!(keys_of_all_pages(&eyes, "/scheduled").len(), 0);
}

#[test]
fn every_list_is_exported_to_those_who_may_see_it() {
    let api = guarded_with(BRIDGE);
    api.knows("bridges", "old", Some(&secret("boss")));
    let (boss, part) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "part"));
    for queue in ["mails", "orders"] {
        push(&api, queue, &json!({ "key": "k", "task": "ship" }));
        bury(&api, queue, "order-17 has no stock");
    }
    assert_eq!(boss.does("queue.pause", &[("queue", "orders")]).status, 303);
    for (list, page, field, whole, narrow) in [
        ("queues?by=dead", "/queues", "queue", 2, Some(1)),
        ("causes", "/morgue?view=causes", "error", 2, None),
        ("causes?queue=mails", "/morgue?view=causes&queue=mails", "error", 1, Some(1)),
        ("nodes", "/nodes", "node", 1, None),
        ("cron", "/cron", "name", 1, None),
        ("bridges", "/nodes", "sources", 1, None),
        ("batches", "/batches", "batch", 0, None),
        ("operations", "/operations", "id", 0, Some(0)),
        ("audit?action=pause", "/audit?action=pause", "who", 1, None),
        ("key?k=k", "/key/events?k=k", "at", 6, Some(3)),
    ] {
        let link = format!("href=\"/export/{}", list.split('?').next().unwrap());
        let shown = boss.page(page);
        assert!(shown.contains(&link), "{link}: {shown}");
        let path = format!("/export/{list}");
        let rows = exported(&boss, &path);
        // The server may be a node too.
        let has_all = rows.len() == whole || list == "nodes" && rows.len() > whole;
        assert!(has_all, "{path}: {rows:?}");
        assert!(rows.iter().all(|row| !row[field].is_null()), "{path}: {rows:?}");
        match narrow {
            Some(rows) => assert_eq!(exported(&part, &path).len(), rows, "{path}"),
            None => assert_eq!(part.get(&path).status, 403, "{path}"),
        }
    }
    let dead = exported(&boss, "/export/jobs?state=dead&queue=orders");
    let of_job = format!("/jobs/{}/events", dead[0]["job_id"].as_str().unwrap());
    assert!(boss.page(&of_job).contains(&format!("href=\"/export{of_job}\"")));
    assert_eq!(exported(&boss, &format!("/export{of_job}"))[0]["event"], "queued");
    assert_eq!(part.get(&format!("/export{of_job}")).status, 404);
    let causes = exported(&boss, "/export/causes");
    let of: BTreeSet<_> = causes.iter().map(|cause| cause["queue"].as_str().unwrap()).collect();
    assert_eq!(of, BTreeSet::from(["mails", "orders"]));
    assert_eq!(causes[0]["error"], "order-N has no stock");
}

#[test]
fn queues_and_nodes_are_paged_by_a_place_that_does_not_move() {
    let api = guarded();
    let eyes = Visitor::log_in(&api, "eyes");
    for i in 0..60 {
        push(&api, &format!("q{i:02}"), &json!({ "key": "k" }));
    }
    let next = |page: &str| {
        let rest = page.split_once("rel=\"next\" href=\"")?.1;
        Some(rest.split('"').next().unwrap().replace("&#38;", "&"))
    };
    let all = |first: &str, row: &str, between: &dyn Fn(usize)| {
        let (mut path, mut rows, mut pages) = (first.to_owned(), Vec::new(), 0);
        loop {
            let page = eyes.page(&path);
            let names = page.split(row).skip(1);
            rows.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
            pages += 1;
            between(pages);
            let Some(further) = next(&page) else { return rows };
            path = further;
        }
    };
    // Queues appear before the first page while the others are read.
    let appear = |page: usize| push(&api, &format!("a{page}"), &json!({ "key": "k" }));
    let names = all("/queues?name=q", "<tr id=\"queue-", &appear);
    assert_eq!(names, (0..60).map(|i| format!("q{i:02}")).collect::<Vec<_>>());
    assert!(all("/queues?by=lag", "<tr id=\"queue-", &|_| ()).len() >= 60);
    for i in 0..30 {
        let claim = json!({ "worker": format!("w{i:02}"), "queues": ["mails"], "wait_ms": 0 });
        let request = Request::new("POST", "/api/v1/work/claim").json(&claim);
        request.token(&secret("boss")).send(&api.address).done();
    }
    let page = eyes.page("/queues/mails");
    assert_eq!(page.matches("<tr id=\"node-").count(), 25, "a page stays small: {page}");
    assert!(page.contains(" more.</p>"), "{page}");
    let stop = |page: usize| {
        let stop = Request::new("POST", &format!("/api/v1/nodes/remote:boss%2Fw0{page}/stop"));
        stop.token(&secret("boss")).send(&api.address).done();
    };
    let nodes = all("/nodes", "<tr id=\"node-", &stop);
    let once: BTreeSet<_> = nodes.iter().collect();
    assert!(nodes.len() == once.len() && nodes.len() >= 30, "{nodes:?}");
    assert_eq!(eyes.get("/nodes?after=x").status, 400);
}

#[test]
fn a_waiting_job_is_rescheduled_and_bound_on_its_page_and_both_are_undone() {
    let api = guarded();
    push(&api, "mails", &json!({ "key": "one" }));
    let (boss, hands) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "hands"));
    let eyes = Visitor::log_in(&api, "eyes");
    let list = hands.page("/jobs?queue=mails");
    let id = list.split_once("href=\"/jobs/").unwrap().1.split('"').next().unwrap().to_owned();
    let path = format!("/jobs/{id}");
    assert!(!eyes.page(&path).contains("job.reschedule"), "a reader has no forms");
    let due = field(&hands.page(&path), "was").unwrap();
    let state = || {
        let api = Request::new("GET", &format!("/api/v1/jobs/{id}")).token(&secret("boss"));
        api.send(&boss.api.address).done()
    };
    let fields = [("job", &*id), ("at", "2200-01-01T00:00:00Z"), ("was", &due)];
    let done = hands.does("job.reschedule", &fields);
    assert_eq!(done.status, 303, "{}", done.text());
    assert_eq!(state()["run_at"], "2200-01-01T00:00:00Z");
    let said = done.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Request::new("GET", &path).header("Cookie", &format!("{}; {said}", hands.cookie));
    let page = page.send(&api.address).text();
    assert!(page.contains("due at another time") && page.contains("Undo"), "{page}");
    let undo = [("job", &*id), ("at", &due), ("was", "2200-01-01T00:00:00Z")];
    assert_eq!(hands.does("job.reschedule", &undo).status, 303);
    assert_eq!(state()["run_at"].as_str(), Some(&*due));
    // The form of a page that is older than the change before: its undo is what this one replaces.
    let later = [("job", &*id), ("at", "2201-01-01T00:00:00Z"), ("was", &due)];
    assert_eq!(hands.does("job.reschedule", &later).status, 303);
    let stale = [("job", &*id), ("at", "2202-01-01T00:00:00Z"), ("was", &due)];
    let said = hands.does("job.reschedule", &stale);
    let said = said.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Request::new("GET", &path).header("Cookie", &format!("{}; {said}", hands.cookie));
    let page = page.send(&api.address).text();
    assert!(page.contains("name=\"at\" value=\"2201-01-01T00:00:00Z\""), "{page}");
    for wrong in ["soon", "10", "1e30", "2400-01-01T00:00:00Z"] {
        let fields = [("job", &*id), ("at", wrong)];
        assert_eq!(hands.does("job.reschedule", &fields).status, 400, "{wrong}");
    }
    let long = "n".repeat(2_000);
    assert_eq!(hands.does("job.bind", &[("job", &*id), ("node", &*long)]).status, 400);
    let log = boss.page("/audit?action=reschedule");
    assert!(log.contains("2200-01-01T00:00:00Z"), "{log}");
    assert_eq!(hands.does("job.bind", &[("job", &id), ("node", "b")]).status, 303);
    assert_eq!(state()["node"], "b", "{}", state());
    assert_eq!(hands.does("job.bind", &[("job", &id), ("was", "b")]).status, 303);
    assert!(state()["node"].is_null(), "{}", state());
    assert_eq!(eyes.does("job.bind", &[("job", &id)]).status, 403);
    let part = Visitor::log_in(&api, "part");
    push(&api, "orders", &json!({ "key": "other" }));
    let other = boss.page("/jobs?queue=orders");
    let other = other.split_once("href=\"/jobs/").unwrap().1.split('"').next().unwrap().to_owned();
    assert_eq!(part.does("job.reschedule", &[("job", &other), ("at", "1m")]).status, 404);
}

#[test]
fn in_accumulate_a_job_is_due_when_its_lane_is_and_while_that_runs_no_new_time_is_undone() {
    let api = guarded();
    let hands = Visitor::log_in(&api, "hands");
    let send = |path: &str, body: &Value| {
        let request = Request::new("POST", path).json(body).token(&secret("boss"));
        request.send(&api.address).done()
    };
    let pushed = |n: u32| {
        let job = json!({ "key": "one", "payload": n });
        let pushed = send("/api/v1/queues/orders/jobs", &job);
        pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned()
    };
    let moved = |id: &str, at: &str, was: &str| {
        let done = hands.does("job.reschedule", &[("job", id), ("at", at), ("was", was)]);
        assert_eq!(done.status, 303, "{}", done.text());
        let said = done.header("set-cookie").unwrap().split(';').next().unwrap();
        let cookie = format!("{}; {said}", hands.cookie);
        Visitor { api: &api, cookie }.page("/about")
    };
    let id = pushed(1);
    let (path, asks) = (format!("/jobs/{id}"), format!("/reschedule?job={id}"));
    let pushed_at = field(&hands.page(&path), "was").unwrap();
    let (first, second) = ("2200-01-01T00:00:00Z", "2201-01-01T00:00:00Z");
    moved(&id, first, &pushed_at);
    for path in [&path, &asks] {
        let page = hands.page(path);
        assert_eq!(field(&page, "was").as_deref(), Some(first), "{path}: {page}");
        assert!(page.contains(&format!("<time datetime=\"{first}\"")), "{path}: {page}");
    }
    // The form is of the page before, which does not know the first time.
    let next = moved(&id, second, &pushed_at);
    assert_eq!(field(&next, "at").as_deref(), Some(first), "{next}");
    moved(&id, first, second);
    assert_eq!(field(&hands.page(&path), "was").as_deref(), Some(first));
    moved(&id, "0s", first);
    let claim = json!({ "worker": "w", "queues": ["orders"] });
    let claimed = send("/api/v1/work/claim", &claim);
    assert_eq!(claimed["lanes"].as_array().unwrap().len(), 1, "{claimed}");
    let behind = pushed(2);
    let asks = hands.page(&format!("/reschedule?job={behind}"));
    assert_eq!(field(&asks, "was").as_deref(), Some(""), "{asks}");
    assert!(asks.contains("a turn of the key runs"), "{asks}");
    let next = moved(&behind, second, first);
    assert!(next.contains("due at another time") && !next.contains("<button>Undo"), "{next}");
}

#[test]
fn an_admin_edits_a_dead_job_on_its_page_and_others_do_not() {
    let api = guarded();
    push(&api, "mails", &json!({ "key": "one", "payload": { "n": 1 } }));
    bury(&api, "mails", "no stamps");
    let (boss, hands) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "hands"));
    let morgue = boss.page("/morgue?queue=mails");
    let id = morgue.split_once("href=\"/jobs/").unwrap().1.split('"').next().unwrap().to_owned();
    let path = format!("/jobs/{id}");
    let page = boss.page(&path);
    assert!(page.contains("Edit and requeue") && page.contains("<textarea"), "{page}");
    assert!(page.contains("Latest failures") && page.contains("no stamps"), "{page}");
    assert!(!hands.page(&path).contains("<textarea"), "an operator does not edit");
    let fields = |payload: &'static str| [("queue", "mails"), ("job", &*id), ("payload", payload)];
    assert_eq!(hands.does("dead.edit", &fields("{}")).status, 403);
    // What was written is not lost, also if the form is of an old login.
    let wrong = boss.does("dead.edit", &fields("{no json <b>"));
    let edited = fields("{\"n\":\"</textarea>\"}");
    let old = [&[("deed", "dead.edit"), ("mark", "old")][..], &edited[..]].concat();
    let old = boss.submit("/do", &old);
    for (answer, status, text, why) in [
        (wrong, 400, "\n{no json &#60;b&#62;</textarea>", "role=\"alert\""),
        (old, 403, "\n{&#34;n&#34;:&#34;&#60;/textarea&#62;&#34;}</textarea>", "another login"),
    ] {
        let page = answer.text();
        assert_eq!(answer.status, status, "{page}");
        assert!(page.contains(text) && page.contains(why), "{page}");
        assert_eq!(field(&page, "job").as_deref(), Some(&*id));
        assert_eq!(field(&page, "mark").as_deref(), Some(&*boss.mark()));
    }
    assert_eq!(boss.does("dead.edit", &fields("{\"n\":2}")).status, 303);
    assert_eq!(boss.get(&path).status, 404, "the dead one is gone");
    let key = boss.page("/key?k=one");
    assert!(key.contains("&#34;n&#34;:2") || key.contains("&quot;n&quot;:2"), "{key}");
    let log = boss.page("/audit?action=edit");
    assert!(log.contains("dead edit") && !log.contains("&#34;n&#34;"), "{log}");
}

#[test]
fn what_is_due_later_is_listed_over_all_queues_and_run_now() {
    let api = guarded();
    push(&api, "mails", &json!({ "key": "second", "delay": "2h" }));
    push(&api, "orders", &json!({ "key": "first", "delay": "1h" }));
    push(&api, "orders", &json!({ "key": "now" }));
    let (boss, eyes) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "eyes"));
    let page = boss.page("/scheduled");
    let at = |key: &str| page.find(&format!(">{key}</a>"));
    assert!(at("first") < at("second") && at("first").is_some(), "{page}");
    assert_eq!(at("now"), None, "it is due: {page}");
    assert!(!eyes.page("/scheduled").contains("lane.retry"), "a reader has no buttons");
    let mails = boss.page("/scheduled?queue=mails");
    assert!(mails.contains(">second</a>") && !mails.contains(">first</a>"), "{mails}");
    assert!(!boss.page("/scheduled?from=2200-01-01T00:00:00Z").contains(">first</a>"));
    assert_eq!(boss.does("lane.retry", &[("queue", "orders"), ("key", "first")]).status, 303);
    assert!(!boss.page("/scheduled").contains(">first</a>"), "it is due now");
    let part = Visitor::log_in(&api, "part");
    assert!(!part.page("/scheduled").contains("orders"));
    assert_eq!(part.get("/scheduled?queue=orders").status, 403);
}

#[test]
fn what_is_scheduled_tells_its_task_and_who_made_it_and_is_moved_to_another_time() {
    let api = guarded();
    let (boss, eyes) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "eyes"));
    let open = Request::new("PUT", "/api/v1/batches/import%20%3C7%3E").token(&secret("boss"));
    let batch = json!({ "queue": "mails", "callback": { "key": "end", "payload": 1 } });
    open.json(&batch).send(&api.address).done();
    for job in [
        json!({ "key": "plain", "task": "ship <b>", "delay": "1h" }),
        json!({ "key": "row", "batch": "import <7>", "delay": "2h" }),
        json!({ "key": "two", "payload": 1, "delay": "3h" }),
        json!({ "key": "two", "payload": 2, "delay": "3h" }),
        json!({ "key": "mine", "producer": "shop", "delay": "4h" }),
        json!({ "key": "tick", "idempotency_key": "cron/night/1700000000", "delay": "5h" }),
    ] {
        push(&api, "mails", &job);
    }
    let page = boss.page("/scheduled");
    for told in [
        "ship &#60;b&#62;</td><td>push</td>",
        "<td>batch import &#60;7&#62;</td>",
        "<td>push by shop</td>",
        "<td>cron night</td>",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let links = |page: &str| -> Vec<String> {
        let buttons = page.split("form=\"move\" name=\"lane\" value=\"").skip(1);
        buttons
            .map(|rest| format!("/reschedule?lane={}", rest.split('"').next().unwrap()))
            .collect()
    };
    let all = links(&page);
    assert_eq!(all.len(), 5, "{page}");
    assert!(links(&eyes.page("/scheduled")).is_empty());
    assert_eq!(eyes.get(&all[0]).status, 403);
    // A key with several jobs moves by the first of them.
    let asks = boss.page(&all[2]);
    assert!(asks.contains(">two</a>") && asks.contains("jobs reschedule"), "{asks}");
    let (job, was) = (field(&asks, "job").unwrap(), field(&asks, "was").unwrap());
    let moved = [("job", &*job), ("was", &*was), ("at", "10m")];
    let answer = boss.does("job.reschedule", &moved);
    assert_eq!(answer.status, 303);
    let page = boss.page("/scheduled");
    let place = |key: &str| page.find(&format!(">{key}</a>")).unwrap();
    assert!(place("two") < place("plain"), "{page}");
    let lanes = Request::new("GET", "/api/v1/queues/mails/lanes").token(&secret("boss"));
    let lanes = lanes.send(&api.address).done();
    let lane = |key: &str| {
        lanes["lanes"].as_array().unwrap().iter().find(|lane| lane["key"] == key).unwrap().clone()
    };
    let plain = lane("plain");
    assert_eq!((&plain["task"], &plain["made_by"]), (&json!("ship <b>"), &json!("push")));
    assert!(plain["job_id"].is_string() && lane("two")["job_id"].is_null(), "{lanes}");
    assert_eq!(lane("tick")["made_by"], "cron night");
}

#[test]
fn while_ten_thousand_jobs_arrive_each_row_is_seen_once_from_page_to_page() {
    const MANY: usize = 10_000;
    let api = guarded();
    let eyes = Visitor::log_in(&api, "eyes");
    let push_all = |from: usize, until: usize| {
        let jobs: Vec<Value> = (from..until).map(|i| json!({ "key": format!("k{i}") })).collect();
        let request = Request::new("POST", "/api/v1/queues/mails/jobs").json(&json!(jobs));
        request.token(&secret("shop")).send(&api.address).done();
    };
    push_all(0, 200);
    let (mut path, mut shown, mut pushed) = ("/jobs?queue=mails".to_owned(), Vec::new(), 200);
    loop {
        let page = eyes.page(&path);
        let keys = page.split("href=\"/key?k=").skip(1);
        shown.extend(keys.map(|rest| rest.split('"').next().unwrap().to_owned()));
        if pushed < MANY {
            push_all(pushed, pushed + 700);
            pushed += 700;
        }
        let Some((_, rest)) = page.split_once("rel=\"next\" href=\"") else { break };
        path = rest.split('"').next().unwrap().replace("&#38;", "&");
    }
    let wanted: Vec<String> = (0..pushed).map(|i| format!("k{i}")).collect();
    assert_eq!(shown, wanted);
}

#[test]
fn a_filter_that_is_not_understood_keeps_the_others_and_says_what_is_wrong_beside_its_field() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k", "payload": 1 }));
    let boss = Visitor::log_in(&api, "boss");
    for (path, field, others) in [
        ("/jobs?queue=orders&key=k1&from=soon", "from", &["value=\"k1\"", "orders\" selected"][..]),
        ("/morgue?task=ship&error=timeout&to=soon", "to", &["value=\"ship\"", "value=\"timeout\""]),
        ("/queues/orders/lanes?prefix=k2&due_to=soon", "due_to", &["value=\"k2\""]),
        ("/queues/orders/lanes?prefix=k3&retries_min=many", "retries_min", &["value=\"k3\""]),
        ("/queues/orders/lanes?state=ready&node=nobody", "node", &["ready\" selected"]),
        ("/scheduled?queue=orders&prefix=k4&from=soon", "due_from", &["value=\"k4\"", "selected"]),
        ("/scheduled?to=soon", "due_to", &[]),
        (
            "/audit?who=boss&action=pause&since=soon",
            "since",
            &["value=\"boss\"", "value=\"pause\""],
        ),
    ] {
        let answer = boss.get(path);
        let page = answer.text();
        assert!((400..500).contains(&answer.status), "{path}: {page}");
        let beside = format!("aria-describedby=\"wrong-{field}\"");
        let said = page.split(&format!("id=\"wrong-{field}\">")).nth(1).unwrap_or_default();
        let said = said.split('<').next().unwrap();
        assert!(page.contains(&beside) && said.len() > 10, "{path}: {page}");
        let typed = path.rsplit('=').next().unwrap();
        assert!(page.contains(&format!("value=\"{typed}\"")), "what was typed stays: {page}");
        for other in others {
            assert!(page.contains(other), "{path}: {other}: {page}");
        }
        assert!(!page.contains("data-live"), "it does not ask again and again: {page}");
        assert!(!page.contains("All that match"), "{path}: {page}");
    }
}

#[test]
fn what_happened_to_a_key_goes_on_from_page_to_page_until_its_first_event() {
    let api = guarded_with("[journal]\nenabled = true\nqueues = [\"mails\"]\n");
    for i in 0..40 {
        push(&api, "mails", &json!({ "key": "k", "payload": i }));
        bury(&api, "mails", "no stamps");
    }
    let eyes = Visitor::log_in(&api, "eyes");
    let (mut path, mut seen, mut pages) = ("/key/events?k=k".to_owned(), BTreeSet::new(), 0);
    loop {
        let page = eyes.page(&path);
        let rows = page.split("<tr><th scope=\"row\"><time datetime=\"").skip(1);
        seen.extend(rows.map(|row| row.split("</tr>").next().unwrap().to_owned()).map(|row| {
            // What stands before it changes with the clock.
            let (at, rest) = row.split_once('"').unwrap();
            format!("{at} {}", rest.split_once("</time>").unwrap().1)
        }));
        pages += 1;
        let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { break };
        path = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    let queued = seen.iter().filter(|row| row.contains("<td>queued</td>")).count();
    assert_eq!(queued, 40, "{seen:?}");
    assert!((3..=4).contains(&pages), "{pages}");
    assert!(eyes.page("/key/events?k=k&until=2020-01-01T00:00:00Z").contains("Nothing more is"));
}

/// Of the page of the largest job; of others, which show a line of it.
const PAGE_BYTES_MAX: usize = 100_000;
const LIST_BYTES_MAX: usize = 30_000;

#[test]
fn a_payload_of_4_mib_leaves_its_page_small_and_is_fetched_whole() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    // Marks that take five times the room where they are shown.
    let piece = r#"<b>\"é\\"#;
    let room = PAYLOAD_BYTES_MAX - 2;
    let inner = piece.repeat(room / piece.len());
    let payload = format!("\"{inner}{}\"", "x".repeat(room - inner.len()));
    let body = format!("{{\"key\":\"large\",\"payload\":{payload}}}");
    let push = Request::new("POST", "/api/v1/queues/orders/jobs").body("application/json", body);
    let pushed = push.send(&api.address).done();
    let path = format!("/jobs/{}", pushed["jobs"][0]["job_id"].as_str().unwrap());
    let page = api.get(&path);
    assert!(page.status == 200 && page.body.len() <= PAGE_BYTES_MAX, "{}", page.body.len());
    let text = page.text();
    assert!(text.contains("4,194,304 bytes; the page shows the beginning"), "{text}");
    let link = format!("href=\"{path}/payload\" download");
    assert!(text.contains(&link), "{link}: {text}");
    for list in ["/jobs?queue=orders", "/key?k=large", "/search?q=payload%3Axxxx", "/"] {
        let list_page = api.get(list);
        assert!(list_page.body.len() <= LIST_BYTES_MAX, "{list}: {}", list_page.body.len());
    }
    let file = api.get(&format!("{path}/payload"));
    assert!(file.body == payload.as_bytes(), "it is another one");
    assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
}
