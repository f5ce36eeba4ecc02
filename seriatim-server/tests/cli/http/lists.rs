//! Lists of jobs and lanes on pages: filters, exports, and what is done to one of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::Request;
use super::pages::{Visitor, bury, field, guarded, guarded_with, push};
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
    assert!(searched.status == 403 && searched.text().contains("search the error"));
    assert_eq!(part.get("/jobs").status, 403);
    assert!(part.page("/jobs?queue=mails").contains(">one</a>"));
    // An operator cancels what the filters show, and nothing else.
    let page = hands.page("/jobs?queue=mails&task=ship");
    assert!(page.contains("action=cancel_jobs") && !page.contains("delete_jobs"), "{page}");
    let ask = hands.page("/operations/new?action=cancel_jobs&queue=mails&task=ship");
    assert!(ask.contains("<strong>1</strong> waiting and running jobs"), "{ask}");
    for page in [
        "/jobs?task=ship",
        "/jobs?queue=mails&state=queued",
        "/jobs?queue=mails&to=2200-01-01T00:00:00Z",
    ] {
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
    let lines = |visitor: &Visitor<'_>, path: &str| -> Vec<Value> {
        let answer = visitor.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        assert!(answer.header("content-disposition").unwrap().contains(".ndjson\""));
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
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
    let settled = json!({ "lane": lane["lane"], "token": lane["token"], "secret": lane["secret"],
        "outcome": "done", "result": { "secret": "sum" } });
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
fn of_a_list_that_grows_while_it_is_paged_no_job_is_lost_or_shown_twice() {
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
