//! Each deed that people can do by a form, done by the least role that may; and what pages say of a turn that runs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Api;
use super::client::{Request, held};
use super::operations::{submit, undo_of, undoes};
use super::pages::{Visitor, deeds, end, guarded_with};
use crate::site::{Site, secret};

pub(super) const BRIDGE: &str = "[[bridges]]\nname = \"old\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\n\
    queues = [\"a\"]\n[[bridges.routes]]\nqueue = \"mails\"\nkey = \"/args/0\"\n";
/// As the store knows the worker `w` of a program.
const WORKER: &str = "remote:boss/w";
const MAILS: &str = "/api/v1/queues/mails";

/// As a program with all rights.
struct Boss<'a>(&'a Api);

impl Boss<'_> {
    fn get(&self, path: &str) -> Value {
        Request::new("GET", path).token(&secret("boss")).send(&self.0.address).done()
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::new(method, path).json(body).token(&secret("boss"));
        request.send(&self.0.address).done()
    }

    /// Pushes a job with this key; its id.
    fn push(&self, key: &str, delay: &str) -> String {
        let job = json!({ "key": key, "payload": 1, "delay": delay });
        let pushed = self.send("POST", &format!("{MAILS}/jobs"), &job);
        pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned()
    }

    fn claim(&self) -> Vec<Value> {
        let claim = json!({ "worker": "w", "queues": ["mails"], "limit": 10 });
        let claimed = self.send("POST", "/api/v1/work/claim", &claim);
        claimed["lanes"].as_array().unwrap().clone()
    }

    /// Ends a claim so.
    fn settle(&self, lane: &Value, outcome: &str) {
        let mut result = held(lane, json!({ "outcome": outcome, "error": "no stamps" }));
        if outcome == "retry" {
            result["retry_in"] = "1h".into();
        }
        self.send("POST", "/api/v1/work/settle", &json!({ "worker": "w", "results": [result] }));
    }

    fn beat(&self, lane: &Value, progress: &str, step: &Value) {
        let claim = held(lane, json!({ "progress": progress, "step": step }));
        self.send("POST", "/api/v1/work/heartbeat", &json!({ "worker": "w", "claims": [claim] }));
    }
}

/// A deed: who sends it, what to, and where one sees then that this is so.
type Row<'a> = (&'static str, &'static str, Fields<'a>, String, fn(&Value) -> bool);
type Fields<'a> = Vec<(&'a str, &'a str)>;

const QUEUE: (&str, &str) = ("queue", "mails");
const OPERATIONS: &str = "/api/v1/operations";

fn of_queue() -> [Row<'static>; 6] {
    let at = || MAILS.to_owned();
    let group = vec![QUEUE, ("group", "acme")];
    let weighs = [&*group, &[("weight", "3")]].concat();
    let was = ("was", r#"{"limit":{"running":5},"groups":{}}"#);
    let limits = ("limits", r#"{"limit":{"running":4}}"#);
    [
        ("queue.pause", "hands", vec![QUEUE], at(), |queue| queue["paused"] == true),
        ("queue.resume", "hands", vec![QUEUE], at(), |queue| queue["paused"] == false),
        ("queue.limits", "boss", vec![QUEUE, ("running", "5")], at(), |queue| {
            queue["settings"]["limit"]["running"] == 5
        }),
        ("queue.group", "boss", weighs, at(), |queue| {
            queue["settings"]["groups"]["named"]["acme"]["weight"] == 3
        }),
        ("queue.ungroup", "boss", group, at(), |queue| {
            queue["settings"]["groups"]["named"]["acme"].is_null()
        }),
        ("queue.restore", "boss", vec![QUEUE, limits, was], at(), |queue| {
            let settings = &queue["settings"];
            settings["limit"]["running"] == 4 && settings["groups"].is_null()
        }),
    ]
}

fn lane(key: &str) -> String {
    format!("{MAILS}/lane?key={key}")
}

fn is_due(lane: &Value) -> bool {
    lane["state"] == "waiting" && !lane["why"].as_str().unwrap().contains("due in")
}

fn is_last_operation(all: &Value, action: &str) -> bool {
    all["operations"][0]["what"]["action"] == action
}

fn of_keys() -> [Row<'static>; 7] {
    let of = |key| vec![QUEUE, ("key", key)];
    let operations = || OPERATIONS.to_owned();
    [
        ("lane.pause", "hands", of("p"), lane("p"), |lane| lane["state"] == "paused"),
        ("lane.resume", "hands", of("p"), lane("p"), |lane| lane["state"] == "waiting"),
        ("lane.retry", "hands", of("f"), lane("f"), is_due),
        ("lane.bury", "boss", of("g"), format!("{MAILS}/morgue?key=g"), |dead| {
            dead["jobs"][0]["error"] == "no stamps"
        }),
        ("lane.release", "boss", of("h"), lane("h"), |lane| {
            lane["state"] == "waiting" && lane["crashes"] == 1
        }),
        ("lane.delete", "boss", of("p"), operations(), |all| {
            is_last_operation(all, "delete_waiting")
        }),
        // That one.
        ("operation.stop", "hands", vec![("operation", "")], operations(), |all| {
            all["operations"][0]["state"] == "stopped"
        }),
    ]
}

/// Those of the keys `d1` to `d3` are dead, those of `l1` to `l3` wait for an hour.
struct Jobs {
    dead: [String; 3],
    later: [String; 3],
}

fn of_jobs(jobs: &Jobs) -> [Row<'_>; 8] {
    let [d1, d2, d3] = &jobs.dead;
    let [due, moved, gone] = jobs.later.each_ref().map(|id| vec![("job", &**id)]);
    let dead = |id| vec![QUEUE, ("job", id)];
    let job = |id: &str| format!("/api/v1/jobs/{id}");
    let operations = || OPERATIONS.to_owned();
    let live = "/api/v1/jobs?queue=mails&state=live&key=l2".to_owned();
    [
        ("job.retry", "hands", due, lane("l1"), is_due),
        ("job.reschedule", "hands", [&*moved, &[("at", "7d")]].concat(), lane("l2"), |lane| {
            lane["why"].as_str().unwrap().starts_with("due in 6d")
        }),
        ("job.bind", "hands", [&*moved, &[("node", "n")]].concat(), job(&jobs.later[1]), |job| {
            job["node"] == "n"
        }),
        ("job.cancel", "hands", moved, live, |all| all["jobs"] == json!([])),
        ("job.delete", "boss", gone, operations(), |all| is_last_operation(all, "delete_jobs")),
        ("dead.requeue", "hands", dead(d1), job(d1), |job| job["status"] == "queued"),
        (
            "dead.edit",
            "boss",
            [dead(d2), vec![("payload", "{\"n\":2}")]].concat(),
            lane("d2"),
            |lane| lane["waiting"][0]["payload"] == json!({ "n": 2 }),
        ),
        ("dead.delete", "boss", dead(d3), operations(), |all| {
            is_last_operation(all, "delete_dead")
        }),
    ]
}

fn worker_is(nodes: &Value, state: &str) -> bool {
    let mut all = nodes["nodes"].as_array().unwrap().iter();
    all.any(|node| node["name"] == WORKER && node["state"] == state)
}

fn of_others() -> [Row<'static>; 10] {
    let night = || vec![("cron", "night <b>")];
    let old = || vec![("bridge", "old")];
    let worker = || vec![("node", WORKER)];
    let cron = || "/api/v1/cron".to_owned();
    let bridges = || "/api/v1/bridges".to_owned();
    let nodes = || "/api/v1/nodes".to_owned();
    [
        ("cron.run", "hands", night(), cron(), |all| all["cron"][0]["last"]["by"] == "hands"),
        ("cron.pause", "hands", night(), cron(), |all| all["cron"][0]["paused"]["by"] == "hands"),
        ("cron.resume", "hands", night(), cron(), |all| all["cron"][0]["paused"].is_null()),
        ("bridge.pause", "hands", old(), bridges(), |all| {
            all["bridges"][0]["paused"]["by"] == "hands"
        }),
        ("bridge.resume", "hands", old(), bridges(), |all| all["bridges"][0]["paused"].is_null()),
        ("node.release", "boss", worker(), nodes(), |all| worker_is(all, "alive")),
        ("node.quiet", "hands", worker(), nodes(), |all| worker_is(all, "quiet")),
        ("node.resume", "hands", worker(), nodes(), |all| worker_is(all, "alive")),
        ("node.stop", "boss", worker(), nodes(), |all| worker_is(all, "stopping")),
        ("batch.seal", "hands", vec![("batch", "b")], "/api/v1/batches/b".to_owned(), |batch| {
            batch["sealed"] == true
        }),
    ]
}

/// Of the keys `f` and `g` a job failed, that of `h` is claimed, that of `p` waits.
fn prepared(boss: &Boss) -> Jobs {
    let [f, g, dead @ ..] = ["f", "g", "d1", "d2", "d3"].map(|key| boss.push(key, "0s"));
    let lanes = boss.claim();
    assert_eq!(lanes.len(), 5, "{f}, {g}: {lanes:?}");
    for lane in &lanes {
        let is_dead = lane["key"].as_str().unwrap().starts_with('d');
        boss.settle(lane, if is_dead { "bury" } else { "retry" });
    }
    boss.push("h", "0s");
    assert_eq!(boss.claim().len(), 1);
    boss.push("p", "0s");
    let later = ["l1", "l2", "l3"].map(|key| boss.push(key, "1h"));
    let batch = json!({ "queue": "mails", "callback": { "key": "c", "payload": 1 } });
    boss.send("PUT", "/api/v1/batches/b", &batch);
    boss.0.knows_cron("night <b>", Some(&secret("boss")));
    boss.0.knows("bridges", "old", Some(&secret("boss")));
    Jobs { dead, later }
}

#[test]
fn each_deed_is_done_by_the_form_of_the_least_role_that_may() {
    let api = guarded_with(BRIDGE);
    let boss = Boss(&api);
    let jobs = prepared(&boss);
    let rows: Vec<Row> =
        of_queue().into_iter().chain(of_keys()).chain(of_jobs(&jobs)).chain(of_others()).collect();
    let told: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
    assert_eq!(told, deeds().into_iter().collect(), "each deed has a row");
    let hands = Visitor::log_in(&api, "hands");
    let admin = Visitor::log_in(&api, "boss");
    for (deed, by, mut fields, at, is_so) in rows {
        let last = boss.get(OPERATIONS)["operations"][0]["id"].clone();
        for field in fields.iter_mut().filter(|(_, value)| value.is_empty()) {
            field.1 = last.as_str().unwrap();
        }
        let person = if by == "hands" { &hands } else { &admin };
        if by == "boss" {
            assert_eq!(hands.does(deed, &fields).status, 403, "{deed}: an operator may not");
        }
        let done = person.does(deed, &fields);
        assert_eq!(done.status, 303, "{deed}: {}", done.text());
        let now = boss.get(&at);
        assert!(is_so(&now), "{deed}: {now}");
        let action = deed.replace('.', " ");
        let audit = format!("/api/v1/audit?limit=1&action={}", action.replace(' ', "+"));
        let entry = boss.get(&audit)["entries"][0].clone();
        assert_eq!((&entry["action"], &entry["who"]), (&json!(action), &json!(by)), "{entry}");
    }
    // What is not dead any more is not requeued once more.
    let again = hands.does("dead.requeue", &[QUEUE, ("job", &jobs.dead[0])]);
    assert!(again.status == 409 && again.text().contains("not dead any more"), "{}", again.text());
}

/// A server without logins that has a cron entry, a bridge, a remote worker and a key that waits.
fn open() -> Api {
    let config = "[[cron]]\nname = \"night\"\nschedule = \"0 3 * * *\"\nqueue = \"mails\"\n\
        key = \"c\"\n[queues.mails]\nmode = \"fifo\"\n";
    let api = Api::with(Site::new(&format!("{config}{BRIDGE}")), |command| {
        // Nobody listens there.
        command.env("SIDEKIQ_REDIS", "redis://127.0.0.1:1/");
    });
    api.knows_cron("night", None);
    api.knows("bridges", "old", None);
    assert!(api.claim("mails").is_empty());
    api.post("/api/v1/queues/mails/jobs", &json!({ "key": "k" })).done();
    api
}

#[test]
fn an_undo_is_offered_of_what_changed_something_and_that_of_a_resume_has_the_reason_of_the_pause() {
    let api = open();
    let does = |deed: &str, on: &[(&str, &str)]| {
        submit(&api, "/do", &[&[("deed", deed)][..], on].concat())
    };
    let audited = |action: &str| format!("/api/v1/audit?limit=1&action={action}");
    for (noun, on, at, reason) in [
        ("cron", &[("cron", "night")][..], "/api/v1/cron".to_owned(), "/cron/0/paused/reason"),
        ("bridge", &[("bridge", "old")], "/api/v1/bridges".to_owned(), "/bridges/0/paused/reason"),
        ("queue", &[QUEUE], audited("queue+pause"), "/entries/0/on/reason"),
        ("lane", &[QUEUE, ("key", "k")], audited("lane+pause"), "/entries/0/on/reason"),
    ] {
        let (pause, resume) = (format!("{noun}.pause"), format!("{noun}.resume"));
        let paused = does(&pause, &[on, &[("reason", "new keys")]].concat());
        assert!(undo_of(&api, &paused).is_some(), "{noun}");
        let back = undo_of(&api, &does(&resume, on)).unwrap();
        let undone = undoes(&api, &back);
        assert_eq!(undone.status, 303, "{noun}: {}", undone.text());
        let now = api.get(&at).done();
        assert_eq!(now.pointer(reason), Some(&json!("new keys")), "{noun}: {now}");
        assert!(undo_of(&api, &does(&pause, on)).is_none(), "{noun} was paused before");
        assert!(undo_of(&api, &does(&resume, on)).is_some(), "{noun}");
        assert!(undo_of(&api, &does(&resume, on)).is_none(), "{noun} was resumed before");
    }
    let worker = [("node", "remote:w")];
    for deed in ["node.quiet", "node.resume"] {
        assert!(undo_of(&api, &does(deed, &worker)).is_some(), "{deed}");
        assert!(undo_of(&api, &does(deed, &worker)).is_none(), "{deed} changes nothing");
    }
    assert_eq!(does("node.stop", &worker).status, 303);
    assert!(undo_of(&api, &does("node.resume", &worker)).is_none(), "it was not quiet");
}

#[test]
fn pages_of_a_key_and_a_job_say_who_runs_it_and_how_far_it_is() {
    let api = guarded_with("");
    let boss = Boss(&api);
    let job = boss.push("k", "0s");
    let visitor = Visitor::log_in(&api, "boss");
    // The first claim is lost.
    assert_eq!(boss.claim().len(), 1);
    assert_eq!(visitor.does("lane.release", &[("queue", "mails"), ("key", "k")]).status, 303);
    let lane = boss.claim().remove(0);
    let long = format!("half of it is sent \u{202e}{}", "and more ".repeat(1_000));
    for step in [json!({ "name": "pick", "done": true }), json!({ "name": "pack" })] {
        boss.beat(&lane, &long, &step);
    }
    let token = format!("token <code>{}</code>", lane["token"]);
    for (path, told) in [
        (
            "/key?k=k".to_owned(),
            &[
                "Its claims were lost 1 time.",
                "Runs on <a href=\"/nodes/",
                ", claimed <time",
                ", last heartbeat <time",
                ", lease ends <time",
            ][..],
        ),
        (
            format!("/jobs/{job}"),
            &[
                "runs on <a href=\"/nodes/",
                "<dt>last heartbeat</dt>",
                "<dt>first started</dt>",
                "<dt>crashes</dt><dd>1</dd>",
            ],
        ),
    ] {
        let page = visitor.page(&path);
        let both = [
            ">remote:boss/w</a>",
            &token,
            "half of it is sent",
            "Steps: ended: pick; under way: pack.",
        ];
        for told in told.iter().chain(&both) {
            assert!(page.contains(told), "{path}: {told}: {page}");
        }
        assert!(page.len() < 30_000 && !page.contains('\u{202e}'), "{path}: {}", page.len());
    }
}

#[test]
fn what_runs_without_a_key_is_taken_from_its_holder_on_the_page_of_its_job_or_of_the_node() {
    let api = guarded_with("[queues.free]\nmode = \"parallel\"\n");
    let boss = Boss(&api);
    let pushed = boss.send("POST", "/api/v1/queues/free/jobs", &json!({ "payload": 1 }));
    let job = pushed["jobs"][0]["job_id"].as_str().unwrap();
    let claim = || {
        let claim = json!({ "worker": "w", "queues": ["free"] });
        boss.send("POST", "/api/v1/work/claim", &claim)["lanes"][0].clone()
    };
    let claimed = claim();
    let lane = claimed["lane"].as_str().unwrap();
    let path = format!("/jobs/{job}");
    let [admin, hands] = ["boss", "hands"].map(|name| Visitor::log_in(&api, name));
    let asks = format!("/confirm?deed=lane.release&#38;queue=free&#38;lane={lane}");
    let page = admin.page(&path);
    assert!(page.contains(&asks), "{page}");
    assert!(!hands.page(&path).contains("lane.release"), "an operator may not");
    assert_eq!(admin.does("lane.release", &[("queue", "free"), ("lane", lane)]).status, 303);
    let now = boss.get(&format!("/api/v1{path}"));
    assert_eq!((&now["status"], &now["crashes"]), (&json!("queued"), &json!(1)), "{now}");
    assert!(!admin.page(&path).contains("lane.release"), "nobody holds it");
    let node = "/nodes/remote%3Aboss%2Fw";
    assert!(!admin.page(node).contains("node.release"), "it holds nothing");
    assert_eq!(claim()["lane"], lane);
    assert!(admin.page(node).contains("/confirm?deed=node.release"), "{}", admin.page(node));
    assert_eq!(admin.does("node.release", &[("node", WORKER)]).status, 303);
    assert_eq!(boss.get(&format!("/api/v1{path}"))["crashes"], 2);
}

#[test]
fn a_node_is_shown_with_what_it_holds_of_queues_that_it_has_left_and_that_can_be_taken() {
    let names: Vec<String> = (0..9).map(|i| format!("q{i}")).collect();
    let config: Vec<String> =
        names.iter().map(|name| format!("[queues.{name}]\nmode = \"fifo\"\n")).collect();
    let api = guarded_with(&config.concat());
    let boss = Boss(&api);
    for queue in &names {
        boss.send("POST", &format!("/api/v1/queues/{queue}/jobs"), &json!({ "key": queue }));
    }
    let claim = |worker: &str, queue: &str| {
        let claim = json!({ "worker": worker, "queues": [queue] });
        boss.send("POST", "/api/v1/work/claim", &claim)["lanes"].as_array().unwrap().clone()
    };
    let lane = claim("w", "q8").remove(0);
    // It works on what it claimed from last, and the store hears of that with a heartbeat.
    assert!(claim("w", "mails").is_empty());
    boss.beat(&lane, "half of it", &json!({ "name": "pick", "done": true }));
    let node = "/nodes/remote%3Aboss%2Fw";
    assert_eq!(boss.get(&format!("/api/v1{node}"))["queues"], json!(["mails"]));
    let admin = Visitor::log_in(&api, "boss");
    let page = admin.page(node);
    assert!(page.contains("href=\"/key?k=q8\"") && page.contains("deed=node.release"), "{page}");
    // Of more queues than the page looks at, any may have some.
    for queue in &names[..8] {
        assert_eq!(claim("v", queue).len(), 1);
    }
    let page = admin.page(node);
    assert!(page.contains("There may be more") && page.contains("deed=node.release"), "{page}");
    assert_eq!(admin.does("node.release", &[("node", WORKER)]).status, 303);
    assert_eq!(boss.get("/api/v1/queues/q8/lane?key=q8")["crashes"], 1);
}

#[test]
fn a_job_without_a_key_whose_lane_is_held_or_paused_is_not_said_to_run_now() {
    let api =
        guarded_with("[queues.free]\nmode = \"parallel\"\nmax_retries = 0\nexhausted = \"hold\"\n");
    let (boss, hands) = (Boss(&api), Visitor::log_in(&api, "hands"));
    let push = || {
        let pushed = boss.send("POST", "/api/v1/queues/free/jobs", &json!({ "payload": 1 }));
        pushed["jobs"][0]["job_id"].as_str().unwrap().to_owned()
    };
    let lane_of = |job: &str| {
        let lanes = boss.get("/api/v1/queues/free/lanes")["lanes"].clone();
        let lane = lanes.as_array().unwrap().iter().find(|lane| lane["job_id"] == job).unwrap();
        lane["lane"].as_str().unwrap().to_owned()
    };
    let exhausted = push();
    end(&api, "free", "retry", Some("no stock"));
    let paused = push();
    let lane = lane_of(&paused);
    assert_eq!(hands.does("lane.pause", &[("queue", "free"), ("lane", &lane)]).status, 303);
    for (job, is, action) in [(&exhausted, "held", "retry"), (&paused, "paused", "resume")] {
        let lane = lane_of(job);
        let post = |path: &str| {
            let request = Request::new("POST", path).token(&secret("boss"));
            request.send(&api.address)
        };
        let run_now = || post(&format!("/api/v1/jobs/{job}/retry"));
        let (_, told) = run_now().refused(409);
        let path = format!("/api/v1/queues/free/lane/{action}?lane={lane}");
        assert!(told.ends_with(&format!("POST {path}")), "{told}");
        let said = hands.does("job.retry", &[("job", job)]);
        let why = format!("the lane {lane} is {is}");
        assert!(said.status == 409 && said.text().contains(&why), "{}", said.text());
        assert_eq!(post(&path).done()["count"], 1);
        assert_eq!(run_now().done()["status"], "queued");
    }
}

#[test]
fn a_turn_of_several_jobs_is_canceled_from_the_page_of_its_key_and_what_waits_is_not() {
    let api = guarded_with("");
    let boss = Boss(&api);
    let push = |payload: u32| {
        let job = json!({ "key": "k", "payload": payload });
        boss.send("POST", "/api/v1/queues/orders/jobs", &job);
    };
    push(1);
    push(2);
    let claim = json!({ "worker": "w", "queues": ["orders"] });
    let claimed = boss.send("POST", "/api/v1/work/claim", &claim);
    assert_eq!(claimed["lanes"][0]["jobs"].as_array().unwrap().len(), 2, "{claimed}");
    push(3);
    let hands = Visitor::log_in(&api, "hands");
    let page = hands.page("/key?k=k");
    let mut links = page.split("href=\"");
    let link = links.find(|link| link.starts_with("/operations/new?action=cancel_jobs"));
    let link = link.unwrap().split('"').next().unwrap().replace("&#38;", "&");
    let asks = hands.page(&link);
    assert!(asks.contains("2 chosen waiting and running jobs of orders"), "{asks}");
    assert!(asks.contains("<strong>2</strong> waiting and running jobs."), "{asks}");
}
