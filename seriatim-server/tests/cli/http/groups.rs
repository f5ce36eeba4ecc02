//! Queues with limits and groups, over HTTP.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;
use super::operations::{submit, undo_of, undoes};
use super::pages::{Visitor, guarded};
use crate::site::secret;

const JOBS: &str = "/api/v1/queues/mails/jobs";

#[test]
fn groups_take_turns_within_limits_that_are_changed_while_jobs_wait() {
    let limit = "limit = { running = 3 }";
    let api = Api::start(&format!("[queues.mails]\nmode = \"fifo\"\n{limit}\ngroups = {{}}\n"));
    let many = (0..5).map(|i| json!({ "key": format!("a{i}"), "group": "acme" }));
    let other = json!({ "key": "b", "group": "bolt", "payload": 1 });
    let jobs: Vec<Value> = many.chain([other]).collect();
    let pushed = api.post(JOBS, &json!(jobs)).done();
    let id = pushed["jobs"][0]["job_id"].as_str().unwrap();
    assert_eq!(api.get(&format!("/api/v1/jobs/{id}")).done()["group"], "acme");

    let lanes = api.claim("mails");
    assert_eq!(lanes.len(), 3, "{lanes:?}");
    let groups: Vec<&Value> = lanes.iter().map(|lane| &lane["jobs"][0]["group"]).collect();
    assert!(groups.contains(&&json!("bolt")), "{groups:?}");
    let why = || api.get("/api/v1/queues/mails/lane?key=a4").done()["why"].clone();
    assert_eq!(why(), "3 turns of the queue run, and at most 3 may");

    let limits = json!({ "limit": { "running": 9 }, "groups": { "running": 2, "named": { "bolt": { "weight": 3 } } } });
    let queue = api.put("/api/v1/queues/mails/limits", &limits).done();
    assert_eq!(queue["settings"]["limit"], limits["limit"]);
    assert_eq!(queue["settings"]["groups"], limits["groups"]);
    assert_eq!(queue["mode"], "fifo");
    assert_eq!(why(), "2 turns of group acme run, and at most 2 may");
    assert_eq!(api.claim("mails"), [] as [Value; 0]);
    let page = String::from_utf8(api.get("/queues/mails").body).unwrap();
    assert!(page.contains("group bolt") && page.contains("At once"), "{page}");
    let page = String::from_utf8(api.get("/key?k=a4").body).unwrap();
    assert!(page.contains("2 turns of group acme run, and at most 2 may"), "{page}");

    let none = api.put("/api/v1/queues/mails/limits", &json!({ "groups": {} })).done();
    assert_eq!((&none["settings"]["limit"], &none["settings"]["groups"]), (&json!({}), &json!({})));
    assert_eq!(api.claim("mails").len(), 3);
}

#[test]
fn what_limits_and_groups_cannot_be_is_refused() {
    let api = Api::start("[queues.mails]\nmode = \"fifo\"\n");
    let (field, detail) = api.post(JOBS, &json!({ "key": "k", "group": "acme" })).refused(400);
    assert_eq!(field, "group");
    assert!(detail.contains("has no `groups`"), "{detail}");
    for (limits, field) in [
        (json!({ "limit": { "running": 0 } }), "limit.running"),
        (json!({ "limit": { "burst": 3 } }), "limit.burst"),
        (json!({ "limit": { "rate": "often" } }), "limit.rate"),
        (json!({ "groups": { "named": { "a": { "weight": 0 } } } }), "groups.named.a.weight"),
        (json!({ "limits": {} }), "limits"),
    ] {
        assert_eq!(api.put("/api/v1/queues/mails/limits", &limits).refused(400).0, field);
    }
    api.put("/api/v1/queues/nothing/limits", &json!({})).refused(404);
    api.post("/api/v1/queues/pushed/jobs", &json!({})).done();
    let (_, detail) = api.put("/api/v1/queues/pushed/limits", &json!({})).refused(409);
    assert!(detail.contains("define it first"), "{detail}");
    let trigger = json!({ "queue": "mails", "task": "t", "lock_key": "k", "group": "acme" });
    assert_eq!(api.post("/api/v1/jobs/trigger", &trigger).refused(400).0, "group");
    api.put("/api/v1/queues/mails/limits", &json!({ "groups": {} })).done();
    let id = api.post("/api/v1/jobs/trigger", &trigger).done()["job_id"].clone();
    let job = api.get(&format!("/api/v1/jobs/{}", id.as_str().unwrap())).done();
    assert_eq!(job["group"], "acme");
}

#[test]
fn an_admin_sets_what_groups_get_by_the_page_of_the_queue_and_the_log_tells_it() {
    let api = guarded();
    let acme = [("queue", "mails"), ("group", "acme <b>"), ("weight", "3"), ("running", "")];
    assert_eq!(Visitor::log_in(&api, "hands").does("queue.group", &acme).status, 403);
    let boss = Visitor::log_in(&api, "boss");
    let settings = || {
        let page = Request::new("GET", "/api/v1/queues/mails").token(&secret("boss"));
        page.send(&api.address).done()["settings"]["groups"].clone()
    };
    assert_eq!(boss.does("queue.group", &acme).status, 303);
    let each = [("queue", "mails"), ("group", ""), ("running", "2"), ("rate", "30/m")];
    assert_eq!(boss.does("queue.group", &each).status, 303);
    // What is left empty stays.
    let more = [("queue", "mails"), ("group", "acme <b>"), ("running", "5")];
    assert_eq!(boss.does("queue.group", &more).status, 303);
    let named = json!({ "acme <b>": { "weight": 3, "running": 5 } });
    assert_eq!(settings(), json!({ "running": 2, "rate": "30/m", "named": named }));
    let page = boss.page("/queues/mails");
    assert!(page.contains("group acme &#60;b&#62;</th>"), "{page}");
    for (fields, why) in [
        (&[("queue", "mails"), ("group", "acme <b>")][..], "fill in what to change"),
        (&[("queue", "mails"), ("weight", "0")], "weight"),
        (&[("queue", "mails"), ("rate", "many")], "rate"),
    ] {
        let wrong = boss.does("queue.group", fields);
        assert!(wrong.status == 400 && wrong.text().contains(why), "{}", wrong.text());
    }
    let audit = boss.page("/audit?queue=mails");
    let told = "set the groups of queue mails (group acme &#60;b&#62;, running 5)";
    assert!(audit.contains(told), "{audit}");
    assert!(
        page.contains("value=\"queue.ungroup\"") && page.contains("action=\"/confirm\""),
        "{page}"
    );
    let asks = boss.page("/confirm?deed=queue.ungroup&queue=mails&group=&back=%2Fqueues%2Fmails");
    assert!(asks.contains("all groups of queue mails") && asks.contains("has no groups"), "{asks}");
    let command = "<pre>seriatim queues limits mails --groups --none</pre>";
    assert!(asks.contains(command) && asks.contains("-d &#39;{}&#39;"), "{asks}");
    let asks = boss.page("/confirm?deed=queue.ungroup&queue=mails&group=acme+%3Cb%3E");
    for told in [
        "--group=&#39;acme &#60;b&#62;&#39; --none",
        "curl -X PUT &#34;$SERIATIM_URL/api/v1/queues/mails/limits&#34;",
        "-d &#39;{&#34;groups&#34;:{&#34;running&#34;:2,&#34;rate&#34;:&#34;30/m&#34;}}&#39;",
    ] {
        assert!(asks.contains(told), "{told}: {asks}");
    }
    let gone = [("queue", "mails"), ("group", "acme <b>")];
    assert_eq!(boss.does("queue.ungroup", &gone).status, 303);
    assert_eq!(boss.does("queue.ungroup", &gone).status, 400);
    assert_eq!(settings(), json!({ "running": 2, "rate": "30/m" }));
    assert_eq!(boss.does("queue.ungroup", &[("queue", "mails")]).status, 303);
    assert_eq!(settings(), Value::Null);
}

#[test]
fn undo_gives_a_queue_its_limits_back_unless_they_were_changed_since() {
    let limits = "limit = { running = 3, rate = \"9/s\", burst = 7 }\n\
        groups = { running = 2, named = { acme = { weight = 4 } } }";
    let api = Api::start(&format!("[queues.mails]\nmode = \"fifo\"\n{limits}\n"));
    let settings = || {
        let settings = api.get("/api/v1/queues/mails").done()["settings"].clone();
        json!([settings["limit"], settings["groups"]])
    };
    let before = settings();
    let of_all = [("queue", "mails"), ("group", "")];
    let of_acme = [("queue", "mails"), ("group", "acme"), ("running", "5")];
    for (deed, fields) in [
        ("queue.limits", &[("queue", "mails"), ("running", "8"), ("rate", "")][..]),
        ("queue.group", &of_acme),
        ("queue.ungroup", &of_acme[..2]),
        ("queue.ungroup", &of_all),
    ] {
        let form = [&[("deed", deed)][..], fields].concat();
        let done = submit(&api, "/do", &form);
        let after = settings();
        assert_ne!(after, before, "{deed}");
        let undo = undo_of(&api, &done).unwrap();
        let undone = undoes(&api, &undo);
        assert_eq!((settings(), undone.status), (before.clone(), 303), "{deed}");
        // That is taken back too; and what it takes back is gone then.
        let again = undo_of(&api, &undone).unwrap();
        assert_eq!(undoes(&api, &again).status, 303);
        assert_eq!(settings(), after, "{deed}");
        assert_eq!(undoes(&api, &undo).status, 303);
        let late = undoes(&api, &undo);
        assert!(late.status == 409 && late.text().contains("changed since"), "{}", late.text());
        assert_eq!(settings(), before, "{deed}");
    }
    let same = [("deed", "queue.limits"), ("queue", "mails"), ("running", "3"), ("rate", "9/s")];
    assert!(undo_of(&api, &submit(&api, "/do", &same)).is_none(), "it changed nothing");
}

#[test]
fn what_was_done_to_the_limits_of_many_groups_is_told_without_an_undo() {
    let groups: Vec<String> = (0..200).map(|i| format!("tenant-{i} = {{ weight = 2 }}")).collect();
    let groups = format!("groups = {{ named = {{ {} }} }}", groups.join(", "));
    let api = Api::start(&format!("[queues.mails]\nmode = \"fifo\"\n{groups}\n"));
    let form = [("deed", "queue.limits"), ("queue", "mails"), ("running", "8"), ("rate", "")];
    let done = submit(&api, "/do", &form);
    assert!(undo_of(&api, &done).is_none());
    let said = done.header("set-cookie").unwrap().split(';').next().unwrap();
    let page = Request::new("GET", "/about").header("Cookie", said).send(&api.address).text();
    assert!(page.contains("queue mails: its limit is set"), "{page}");
}
