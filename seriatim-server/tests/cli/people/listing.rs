//! What is listed and shown.

use std::time::Duration;

use serde_json::Value;
use seriatim::{Job, Outcome, Timestamp};

use super::{House, all, mail, order};
use crate::site::{Site, text};

#[tokio::test]
async fn l16_queues_are_listed_and_shown() {
    let house = House::new().await;
    for version in 1..=3 {
        house.hand.push(order(1, version)).await;
    }
    house.hand.push(mail("ann")).await;
    house.hand.fail_all("mails", "smtp is down").await;
    let listed = house.json(&["queues"]);
    assert_eq!(all(&listed["queues"], "queue"), ["mails", "orders", "reports"]);
    assert_eq!(all(&listed["queues"], "jobs"), [0, 3, 0]);
    assert_eq!(all(&listed["queues"], "dead"), [1, 0, 0]);
    let shown = house.json(&["queues", "show", "orders"]);
    assert_eq!(
        (&shown["mode"], &shown["settings"]["max_retries"]),
        (&"accumulate".into(), &2.into())
    );
    assert_eq!(shown["nodes"][0], "hand-1");
    let table = house.text(&["queues"]);
    let heads = "queue    mode        jobs  waiting  running  prefetched  retrying  dead";
    assert!(table.starts_with(heads), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour where there is no terminal: {table:?}");
    assert!(house.text(&["queues", "show", "orders"]).contains("max_retries = 2"));
    let nothing = Site::new("");
    assert!(nothing.run(&["migrate"]).status.success());
    assert!(text(&nothing.run(&["queues"])).contains("a push or a [queues] entry"));
}

#[tokio::test]
async fn one_long_key_does_not_widen_the_list_of_lanes() {
    let house = House::new().await;
    let key = "k".repeat(500);
    for key in [key.as_str(), "short"] {
        house.hand.push(Job::new("orders", &1).unwrap().key(key)).await;
    }
    let table = house.text(&["lanes", "orders"]);
    assert!(table.lines().all(|line| line.chars().count() < 160), "{table}");
    assert_eq!(all(&house.json(&["lanes", "orders"])["lanes"], "key"), [key.as_str(), "short"]);
}

#[tokio::test]
async fn l16_lanes_are_listed_by_key_due_and_retries_in_ranges_and_pages() {
    let house = House::new().await;
    for number in [3, 1, 2, 4] {
        let wait = Duration::from_secs(60) * (10 - number);
        house.hand.push(order(number, 1).run_in(wait)).await;
    }
    let keys = |listed: &Value| {
        let keys = all(&listed["lanes"], "key");
        keys.iter().map(|key| key.as_str().unwrap().replace("order-", "")).collect::<String>()
    };
    assert_eq!(keys(&house.json(&["lanes", "orders"])), "3124");
    assert_eq!(keys(&house.json(&["lanes", "orders", "--by", "key"])), "1234");
    assert_eq!(keys(&house.json(&["lanes", "orders", "--by", "due"])), "4321");
    let range = ["lanes", "orders", "--by", "key", "--from", "order-2", "--to", "order-3"];
    assert_eq!(keys(&house.json(&range)), "23");
    let (mut pages, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["lanes", "orders", "--by", "key", "--limit", "3"];
        if let Some(cursor) = &after {
            arguments.extend(["--after", cursor]);
        }
        let page = house.json(&arguments);
        pages.push(keys(&page));
        let Some(next) = page["next"].as_str() else { break };
        after = Some(next.to_owned());
    }
    assert_eq!(pages, ["123", "4"]);
    assert!(house.text(&["lanes", "orders", "--limit", "2"]).contains("more: --after "));
    assert_eq!(house.json(&["lanes", "orders", "--by", "retries"])["lanes"], serde_json::json!([]));
    assert!(house.refused(&["lanes", "orders", "--from", "x"], 2).contains("--by key"));
    let some =
        ["lanes", "orders", "--by", "key", "--prefix", "order-", "--state", "scheduled,ready"];
    assert_eq!(keys(&house.json(&some)), "1234");
    assert_eq!(house.json(&["lanes", "orders", "--prefix", "x"])["lanes"], serde_json::json!([]));
    let look = ["lanes", "orders", "--state", "crashed", "--scan-max", "2"];
    assert!(house.text(&look).contains("none among the 2 lanes that were read"));
    assert!(
        house.refused(&["lanes", "orders", "--state", "x"], 2).contains("use ready, scheduled")
    );
}

#[tokio::test]
async fn what_is_due_later_or_has_died_is_listed_over_all_queues_by_time() {
    let mut house = House::new().await;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (job, wait) in [(order(1, 1), 30), (mail("ann"), 20), (order(2, 1), 10), (mail("bob"), 40)]
    {
        house.hand.push(job.run_in(minutes(wait))).await;
    }
    house.hand.push(order(3, 1).run_at(Timestamp::from_secs_f64(1.6e9))).await;
    let listed = house.json(&["scheduled"]);
    assert_eq!(all(&listed["lanes"], "key"), ["order-2", "ann", "order-1", "bob"]);
    assert_eq!(all(&listed["lanes"], "queue"), ["orders", "mails", "orders", "mails"]);
    let first = house.json(&["scheduled", "--limit", "3"]);
    let next = first["next"].as_str().unwrap();
    let rest = house.json(&["scheduled", "--after", next]);
    assert_eq!(all(&rest["lanes"], "key"), ["bob"]);
    let table = house.text(&["scheduled", "--queue", "mails", "--limit", "1"]);
    assert!(table.contains("due in 19m") || table.contains("due in 20m"), "{table}");
    assert!(table.contains("ann") && table.contains("more: --after "), "{table}");
    assert!(house.text(&["scheduled", "--prefix", "order"]).contains("queue by queue"));
    let past = house.text(&["scheduled", "--due-to", "1600000000"]);
    assert!(past.contains("nothing that matches is due later"), "{past}");
    assert!(house.refused(&["scheduled", "--due-to", "soon"], 2).contains("write a time such as"));
    let lagging = house.json(&["lanes", "orders", "--lag-min", "1h"]);
    assert_eq!(all(&lagging["lanes"], "key"), ["order-3"]);
    let table = house.text(&["lanes", "orders"]);
    assert!(table.lines().next().unwrap().contains("  lag  "), "{table}");
    for queue in ["mails", "orders", "mails"] {
        house.hand.now = house.hand.now + Duration::from_secs(1);
        house
            .hand
            .push(Job::new(queue, &1).unwrap().key(format!("{queue}-dead")).priority(1))
            .await;
        let turn = house.hand.claim(queue).await.remove(0);
        house.hand.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
    }
    let dead = house.json(&["jobs", "--state", "dead"]);
    assert_eq!(all(&dead["jobs"], "queue"), ["mails", "orders", "mails"]);
}

#[tokio::test]
async fn l16_a_lane_is_shown_with_its_holder_and_what_waits() {
    let house = House::new().await;
    house.hand.push(order(1, 2)).await;
    house.hand.push(order(1, 1)).await;
    let turn = house.hand.claim("orders").await.remove(0);
    house.hand.push(order(1, 3)).await;
    let lane = house.json(&["lanes", "orders", "show", "order-1"]);
    assert_eq!(lane["token"], turn.token.0);
    assert_eq!((&lane["node"], &lane["state"]), (&"hand-1".into(), &"claimed".into()));
    assert_eq!(all(&lane["claimed"], "score"), [1.0, 2.0]);
    assert_eq!(all(&lane["waiting"], "payload"), [&serde_json::json!({ "version": 3 })]);
    let shown = house.text(&["lanes", "orders", "show", "order-1"]);
    for part in [
        "why          runs on hand",
        "runs on      hand-1",
        "claimed:",
        "waiting:",
        r#"{"version":3}"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn a_key_of_which_all_is_done_is_shown_with_what_became_of_it_and_is_no_error() {
    let house = House::new().await;
    house.hand.push(order(1, 1)).await;
    let turn = house.hand.claim("orders").await.remove(0);
    house.hand.end(&turn, Outcome::Done).await;
    let shown = house.text(&["lanes", "orders", "show", "order-1"]);
    assert!(
        shown.starts_with("queue orders has no waiting or claimed jobs with key \"order-1\"\n"),
        "{shown}"
    );
    assert!(shown.contains("the key had no jobs, or all are done or cancelled"), "{shown}");
    let nothing =
        serde_json::json!({ "queue": "orders", "key": "order-1", "lane": null, "ended": [] });
    assert_eq!(house.json(&["lanes", "orders", "show", "order-1"]), nothing);
    let report = house.hand.push(Job::new("reports", &1).unwrap().key("k")).await;
    let turn = house.hand.claim("reports").await.remove(0);
    house.hand.end(&turn, Outcome::Done).await;
    let ended = house.json(&["lanes", "reports", "show", "k"])["ended"].clone();
    assert_eq!(
        (all(&ended, "job_id"), all(&ended, "status")),
        (vec![&report.to_string().into()], vec![&"succeeded".into()])
    );
    let dead = house.hand.push(mail("ann")).await;
    house.hand.fail_all("mails", "smtp is down").await;
    let shown = house.text(&["lanes", "mails", "show", "ann"]);
    assert!(shown.contains(&dead.to_string()) && shown.contains("smtp is down"), "{shown}");
    assert!(house.refused(&["lanes", "ordres", "show", "order-1"], 1).contains("did you mean"));
}

#[tokio::test]
async fn n7_jobs_in_every_state_are_listed_page_by_page() {
    let house = House::new().await;
    let report = |name: &str| Job::new("reports", name).unwrap().key(name).priority(7);
    let (done, cancelled) =
        (house.hand.push(report("done")).await, house.hand.push(report("cancelled")).await);
    for turn in house.hand.claim("reports").await {
        let done = turn.key.as_deref() == Some("done");
        let cancel = Outcome::Cancel { reason: "not needed".into() };
        house.hand.end(&turn, if done { Outcome::Done } else { cancel }).await;
    }
    let running = house.hand.push(report("running")).await;
    assert_eq!(house.hand.claim("reports").await.len(), 1);
    let queued = house.hand.push(report("queued")).await;
    let dead = house.hand.push(mail("ann")).await;
    house.hand.fail_all("mails", "smtp is down").await;
    let states = [
        ("queued", queued, "queued"),
        ("claimed", running, "running"),
        ("succeeded", done, "succeeded"),
        ("canceled", cancelled, "canceled"),
        ("dead", dead, "dead"),
    ];
    for (state, id, status) in states {
        let listed = house.json(&["jobs", "--state", state]);
        assert_eq!(all(&listed["jobs"], "job_id"), [&id.to_string()], "{state}: {listed}");
        assert_eq!(listed["jobs"][0]["status"], status);
    }
    let first = house.json(&["jobs", "--limit", "1"]);
    let second = house.json(&["jobs", "--limit", "1", "--after", first["next"].as_str().unwrap()]);
    let ids = [&first["jobs"][0]["job_id"], &second["jobs"][0]["job_id"]];
    assert_eq!(ids, [&running.to_string(), &queued.to_string()]);
    assert_eq!(house.json(&["jobs", "--queue", "orders"])["jobs"], serde_json::json!([]));
}

#[tokio::test]
async fn d3_a_job_is_shown_with_its_times_attempt_and_error() {
    let house = House::new().await;
    let id = house.hand.push(order(7, 1).max_retries(9).node("a")).await.to_string();
    let waiting = house.json(&["jobs", "show", &id]);
    for name in ["started_at", "finished_at", "heartbeat_at", "error", "progress"] {
        assert!(waiting[name].is_null() && waiting.get(name).is_some(), "{name}: {waiting}");
    }
    assert_eq!((&waiting["status"], &waiting["attempt"]), (&"queued".into(), &0.into()));
    assert_eq!((&waiting["max_retries"], &waiting["node"]), (&9.into(), &"a".into()));
    let dead = house.hand.push(mail("a\u{1b}[2J")).await.to_string();
    house.hand.fail_all("mails", "first line\nsecond \u{7}line").await;
    let failed = house.json(&["jobs", "show", &dead]);
    assert_eq!(failed["error"], "first line\nsecond \u{7}line");
    assert_eq!((&failed["status"], &failed["attempt"]), (&"dead".into(), &1.into()));
    assert!(failed["finished_at"].as_str().unwrap().ends_with('Z'), "{failed}");
    let shown = house.text(&["jobs", "show", &dead]);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    let lines: Vec<&str> = shown.lines().collect();
    let first = lines.iter().position(|line| line.ends_with("first line")).unwrap();
    assert_eq!(lines[first + 1].trim_start(), "second \\u{7}line", "{shown}");
    assert_eq!(lines[first].find("first line"), lines[first + 1].find("second"), "{shown}");
}

#[tokio::test]
async fn jobs_are_found_by_task_and_text_and_show_where_they_run_and_how_they_failed() {
    let house = House::new().await;
    for (key, task) in [("ann", "greet"), ("bob", "remind")] {
        let job = Job::new("mails", &"hello").unwrap().key(key).task(task);
        house.hand.push(job).await;
    }
    let keys = |arguments: &[&str]| {
        let listed = house.json(arguments);
        let keys = all(&listed["jobs"], "key").into_iter();
        keys.map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&["jobs", "--queue", "mails", "--task", "remind"]), ["bob"]);
    assert_eq!(keys(&["jobs", "--text", "hello", "--prefix", "a"]), ["ann"]);
    assert_eq!(keys(&["jobs", "--from", "2200-01-01T00:00:00Z"]), [""; 0]);
    let turn = ["jobs", "--queue", "mails", "--key", "ann", "--state", "queued", "--by", "turn"];
    assert_eq!(keys(&turn), ["ann"]);
    assert!(house.refused(&["jobs", "--by", "turn"], 2).contains("name the queue"));
    assert_eq!(keys(&["jobs", "mails", "--since", "1h", "--task", "remind"]), ["bob"]);
    assert_eq!(keys(&["jobs", "mails", "--until", "1h"]), [""; 0]);
    let refused = house.refused(&["jobs", "--from", "soon"], 2);
    assert!(refused.contains("--from") && refused.contains("2h for two hours ago"), "{refused}");
    let cut = ["jobs", "--queue", "mails", "--task", "remind", "--scan-max", "1"];
    assert!(house.text(&cut).contains("no such jobs"));
    let short = house.json(&["jobs", "--queue", "mails", "--payload-bytes-max", "1"]);
    assert_eq!(all(&short["jobs"], "payload_bytes"), [7, 7]);
    let turn = house.hand.claim("mails").await.remove(0);
    let shown = house.text(&["lanes", "show", "mails", "ann"]);
    assert!(shown.contains("lease until"), "{shown}");
    let shown = house.text(&["jobs", "show", &turn.jobs[0].id.to_string()]);
    assert!(shown.contains("runs on") && shown.contains("token"), "{shown}");
    house.hand.end(&turn, Outcome::Bury { error: "no stamps".into() }).await;
    assert_eq!(keys(&["morgue", "mails", "--error", "stamps", "--task", "greet"]), ["ann"]);
    assert_eq!(keys(&["morgue", "mails", "--error", "stumps"]), [""; 0]);
}

#[tokio::test]
async fn the_audit_log_is_listed_by_person_and_deed() {
    let house = House::new().await;
    house.text(&["queues", "pause", "orders"]);
    house.text(&["queues", "resume", "orders"]);
    let deeds = |arguments: &[&str]| {
        let listed = house.json(arguments);
        listed["entries"].as_array().unwrap().len()
    };
    assert_eq!(deeds(&["audit"]), 2);
    assert_eq!(deeds(&["audit", "--action", "pause"]), 1);
    assert_eq!(deeds(&["audit", "--who", "nobody"]), 0);
    assert_eq!(deeds(&["audit", "--until", "1h"]), 0);
}

#[tokio::test]
async fn what_jobs_died_of_is_counted_by_cause() {
    let house = House::new().await;
    for (to, error) in
        [("ann", "timeout after 3s"), ("bob", "timeout after 7s"), ("cat", "no stamps")]
    {
        house.hand.push(mail(to)).await;
        house.hand.fail_all("mails", error).await;
    }
    let found = house.json(&["morgue", "mails", "causes"]);
    assert_eq!(all(&found["causes"], "error"), ["timeout after Ns", "no stamps"]);
    assert_eq!(all(&found["causes"], "count"), [2, 1]);
    assert_eq!((&found["looked_at"], &found["more"]), (&3.into(), &false.into()));
    assert!(house.text(&["morgue", "causes", "mails"]).contains("timeout after Ns"));
    assert!(house.text(&["morgue", "causes", "orders"]).contains("no dead jobs of orders"));
    house.hand.push(order(17, 1)).await;
    let turn = house.hand.claim("orders").await.remove(0);
    house.hand.end(&turn, Outcome::Bury { error: "timeout after 1s".into() }).await;
    let found = house.json(&["causes"]);
    assert_eq!(all(&found["causes"], "queue"), ["mails", "mails", "orders"]);
    assert_eq!(all(&found["causes"], "count"), [2, 1, 1]);
    let some = house.json(&["causes", "--error", "timeout", "--prefix", "order-", "--since", "1h"]);
    assert_eq!(all(&some["causes"], "queue"), ["orders"]);
    assert_eq!(some["looked_at"], 1);
    let table = house.text(&["causes", "--queue", "mails"]);
    assert!(table.contains("no stamps") && !table.contains("orders"), "{table}");
    assert!(house.text(&["causes", "--task", "none"]).contains("no dead jobs match"));
    assert!(house.refused(&["causes", "--queue", "mail"], 1).contains("mails"));
}

#[tokio::test]
async fn what_happened_to_a_key_is_told_over_all_queues() {
    let house = House::new().await;
    house.hand.push(order(17, 1)).await;
    house.hand.push(mail("order-17")).await;
    house.hand.fail_all("mails", "no stamps").await;
    house.text(&["lanes", "pause", "orders", "order-17", "--reason", "wrong price"]);
    let told = house.json(&["key", "order-17", "--events"]);
    let events = told["events"].as_array().unwrap();
    let names: Vec<&str> = events
        .iter()
        .map(|one| one["event"].as_str().or(one["action"].as_str()).unwrap())
        .collect();
    assert_eq!(names[0], "lane pause", "{told}");
    assert_eq!(events[0]["on"]["reason"], "wrong price");
    for event in ["queued", "claimed", "dead"] {
        assert!(names.contains(&event), "{event}: {told}");
    }
    assert_eq!(told["without_journal"], serde_json::json!(["mails", "orders"]));
    let first = house.json(&["key", "order-17", "--events", "--limit", "2"]);
    let next = first["next"].as_str().unwrap();
    let rest = house.json(&["key", "order-17", "--events", "--after", next]);
    let both: Vec<_> =
        [&first, &rest].iter().flat_map(|page| page["events"].as_array().unwrap()).collect();
    assert_eq!(both, events.iter().collect::<Vec<_>>());
    let table = house.text(&["key", "order-17", "--events"]);
    for text in ["wrong price", "no stamps", "no journal of mails, orders"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(house.text(&["key", "zebra", "--events"]).contains("nothing is remembered"));
    assert!(house.refused(&["key", "order-17", "--limit", "2"], 2).contains("--events"));
}

#[tokio::test]
async fn keys_and_jobs_are_found_in_all_queues() {
    let house = House::new().await;
    house.hand.push(order(17, 1)).await;
    house.hand.push(mail("order-17")).await;
    house.hand.fail_all("mails", "no stamps").await;
    let found = house.json(&["search", "order-1"]);
    assert_eq!(
        (&found["lanes"][0]["queue"], &found["dead"][0]["queue"]),
        (&"orders".into(), &"mails".into())
    );
    let found = house.json(&["search", "error:stamps"]);
    assert_eq!(found["jobs"][0]["key"], "order-17");
    let told = house.text(&["search", "order-17"]);
    assert!(told.contains("orders") && told.contains("no stamps"), "{told}");
    assert!(house.text(&["search", "zebra"]).contains("nothing found in 2 queues"));
}
