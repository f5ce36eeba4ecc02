//! The dashboard, as a browser without scripts has it.

use std::time::Instant;

use serde_json::{Value, json};

use super::Api;
use super::client::{Answer, Request, held};
use crate::site::{PATIENCE, Site, eventually, secret};

const TOKENS: &str = "[http]\naudit_file = \"audit.ndjson\"\ntokens = [\
    { name = \"eyes\", token_env = \"T_eyes\", role = \"reader\" }, \
    { name = \"hands\", token_env = \"T_hands\", role = \"operator\" }, \
    { name = \"boss\", token_env = \"T_boss\", role = \"admin\" }, \
    { name = \"shop\", token_env = \"T_shop\", role = \"producer\" }, \
    { name = \"part\", token_env = \"T_part\", role = \"admin\", queues = [\"mails\"] }]\n\
    [[cron]]\nname = \"night <b>\"\nschedule = \"0 3 * * *\"\nqueue = \"orders\"\nkey = \"c\"\n\
    [queues.orders]\nmode = \"accumulate\"\n[queues.mails]\nmode = \"fifo\"\n";

/// A dashboard whose visitors must log in.
pub(super) fn guarded() -> Api {
    guarded_with("")
}

/// The same with more in its configuration.
pub(super) fn guarded_with(more: &str) -> Api {
    Api::with(Site::new(&format!("{TOKENS}{more}")), |command| {
        // Nobody listens there.
        command.env("SIDEKIQ_REDIS", "redis://127.0.0.1:1/");
        for name in ["eyes", "hands", "boss", "shop", "part"] {
            command.env(format!("T_{name}"), secret(name));
        }
    })
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Somebody with a browser.
pub(super) struct Visitor<'a> {
    pub(super) api: &'a Api,
    pub(super) cookie: String,
}

impl<'a> Visitor<'a> {
    pub(super) fn log_in(api: &'a Api, name: &str) -> Self {
        let answer =
            Self { api, cookie: String::new() }.submit("/login", &[("token", &secret(name))]);
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, Some("/")),
            "{}",
            answer.text()
        );
        let cookie = answer.header("set-cookie").unwrap();
        for part in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        Self { api, cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        Request::new("GET", path).header("Cookie", &self.cookie).send(&self.api.address)
    }

    /// The text of a page that is there.
    #[track_caller]
    pub(super) fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    pub(super) fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let request = Request::new("POST", path).body("application/x-www-form-urlencoded", body);
        let request =
            request.header("Sec-Fetch-Site", "same-origin").header("Cookie", &self.cookie);
        request.send(&self.api.address)
    }

    /// Sends the form of a deed, with the mark of this visitor's pages.
    pub(super) fn does(&self, deed: &str, fields: &[(&str, &str)]) -> Answer {
        let mark = self.mark();
        let all: Vec<(&str, &str)> = [("deed", deed), ("mark", &mark), ("back", "/queues")]
            .into_iter()
            .chain(fields.iter().copied())
            .collect();
        self.submit("/do", &all)
    }

    /// The mark of its forms.
    pub(super) fn mark(&self) -> String {
        field(&self.page("/about"), "mark").unwrap()
    }
}

/// The value of a hidden field.
pub(super) fn field(page: &str, name: &str) -> Option<String> {
    let rest = page.split_once(&format!("name=\"{name}\" value=\""))?.1;
    Some(rest.split('"').next()?.to_owned())
}

/// A dead job of each key, which failed with this error.
pub(super) fn bury(api: &Api, queue: &str, error: &str) {
    end(api, queue, "bury", Some(error));
}

/// Ends what is due.
pub(super) fn end(api: &Api, queue: &str, outcome: &str, error: Option<&str>) {
    let claim = json!({ "worker": "w", "queues": [queue], "limit": 100 });
    let claimed = Request::new("POST", "/api/v1/work/claim").json(&claim);
    let claimed = claimed.token(&secret("boss")).send(&api.address).done();
    let result = |lane: &Value| held(lane, json!({ "outcome": outcome, "error": error }));
    let results: Vec<Value> = claimed["lanes"].as_array().unwrap().iter().map(result).collect();
    let settle = json!({ "worker": "w", "results": results });
    let settle = Request::new("POST", "/api/v1/work/settle").json(&settle);
    settle.token(&secret("boss")).send(&api.address).done();
}

pub(super) fn push(api: &Api, queue: &str, body: &Value) {
    let request = Request::new("POST", &format!("/api/v1/queues/{queue}/jobs")).json(body);
    request.token(&secret("shop")).send(&api.address).done();
}

#[test]
fn who_has_not_logged_in_is_led_to_the_login_and_back() {
    let api = guarded();
    let stranger = Visitor { api: &api, cookie: String::new() };
    let answer = stranger.get("/queues/orders?by=key");
    let login = "/login?next=%2Fqueues%2Forders%3Fby%3Dkey";
    assert_eq!((answer.status, answer.header("location")), (303, Some(login)));
    let form = stranger.page(login);
    assert_eq!(field(&form, "next").as_deref(), Some("/queues/orders?by=key"));
    let entered =
        stranger.submit("/login", &[("token", &secret("eyes")), ("next", "/queues/orders?by=key")]);
    assert_eq!(entered.header("location"), Some("/queues/orders?by=key"));
    let elsewhere =
        stranger.submit("/login", &[("token", &secret("eyes")), ("next", "//evil.example/")]);
    assert_eq!(elsewhere.header("location"), Some("/"));
    for (token, why) in
        [("not-a-token-of-anybody", "not known"), (&*secret("shop"), "role producer")]
    {
        let answer = stranger.submit("/login", &[("token", token)]);
        assert!(answer.status == 403 && answer.text().contains(why), "{}", answer.text());
        assert!(answer.header("set-cookie").is_none());
    }
    let script = Request::new("GET", "/queues").header("X-Parts", "1").send(&api.address);
    assert_eq!(script.status, 401, "a script gets the status, not a redirect");
    assert_eq!(
        Request::new("GET", "/api/v1/queues")
            .header("Cookie", &Visitor::log_in(&api, "boss").cookie)
            .send(&api.address)
            .status,
        401,
        "the cookie opens pages alone"
    );
    let log = std::fs::read_to_string(api.site.path("audit.ndjson")).unwrap() + &api.log();
    assert!(!log.contains("the-long-secret") && !log.contains("not-a-token"), "{log}");
}

#[test]
fn who_has_one_queue_sees_and_changes_nothing_of_others() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k", "payload": 1 }));
    let narrow = Visitor::log_in(&api, "part");
    for path in ["/queues/orders", "/queues/orders/lanes", "/morgue?queue=orders", "/nodes"] {
        assert_eq!(narrow.get(path).status, 403, "{path}");
    }
    assert!(!narrow.page("/queues").contains("orders") && !narrow.page("/").contains("orders"));
    assert!(!narrow.page("/key?k=k").contains("orders"));
    let deed = [
        ("deed", "queue.pause"),
        ("queue", "orders"),
        ("mark", &*field(&narrow.page("/queues/mails"), "mark").unwrap()),
    ];
    assert_eq!(narrow.submit("/do", &deed).status, 403);
}

/// Every deed that the server knows.
pub(super) fn deeds() -> Vec<&'static str> {
    let table = include_str!("../../../src/http/pages/deed.rs");
    table.split("\n    kind(\"").skip(1).map(|line| line.split('"').next().unwrap()).collect()
}

#[test]
fn a_reader_is_refused_every_deed_and_so_is_a_forged_form_of_an_admin() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k", "payload": 1 }));
    let (eyes, boss) = (Visitor::log_in(&api, "eyes"), Visitor::log_in(&api, "boss"));
    let page = boss.page("/key?k=k");
    let job = page.split("href=\"/jobs/").nth(1).unwrap().split('"').next().unwrap();
    let fields = [
        ("queue", "orders"),
        ("key", "k"),
        ("job", job),
        ("node", "n"),
        ("cron", "night <b>"),
        ("bridge", "b"),
        ("batch", "b"),
        ("operation", "0-1"),
        ("at", "1h"),
        ("weight", "3"),
        ("limits", "{}"),
        ("was", "{}"),
    ];
    let all = deeds();
    assert!(all.len() >= 25, "{all:?}");
    for deed in all {
        let refused = eyes.does(deed, &fields);
        assert!(
            refused.status == 403 && refused.text().contains("needs a token with role"),
            "{deed}: {}",
            refused.text()
        );
        let forged: Vec<_> = [("deed", deed)].into_iter().chain(fields).collect();
        assert_eq!(boss.submit("/do", &forged).status, 403, "{deed}");
        let query = forged.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let asks = format!("/confirm?{}", query.collect::<Vec<_>>().join("&"));
        assert_eq!(eyes.get(&asks).status, 403, "{deed}");
    }
    let shown = |path: &str| Request::new("GET", path).token(&secret("boss")).send(&api.address);
    assert_eq!(shown("/api/v1/queues/orders").done()["paused"], false);
    assert_eq!(shown("/api/v1/queues/orders/lane?key=k").done()["state"], "waiting");
}

#[test]
fn a_login_over_tls_is_sent_over_tls_only() {
    let api = guarded();
    let login = |proto: &str| {
        let body = format!("token={}", secret("eyes"));
        let request =
            Request::new("POST", "/login").body("application/x-www-form-urlencoded", body);
        let request = request.header("Sec-Fetch-Site", "same-origin");
        request.header("X-Forwarded-Proto", proto).send(&api.address)
    };
    for (proto, is_secure) in [("https", true), ("https, http", true), ("http", false)] {
        let answer = login(proto);
        let cookie = answer.header("set-cookie").unwrap();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{proto}: {cookie}");
    }
}

#[test]
fn a_finding_leads_to_the_key_or_the_list_that_it_is_about() {
    let api = guarded();
    let boss = Visitor::log_in(&api, "boss");
    push(&api, "mails", &json!({ "key": "dead" }));
    bury(&api, "mails", "no stamps");
    for (queue, key) in [("orders", "a <b>"), ("mails", "one"), ("mails", "two")] {
        push(&api, queue, &json!({ "key": key }));
        assert_eq!(boss.does("lane.pause", &[("queue", queue), ("key", key)]).status, 303);
    }
    let page = boss.page("/");
    for wanted in [
        "<a href=\"/key?k=a%20%3Cb%3E\">orders: a &#60;b&#62;</a>",
        "<code>seriatim lanes resume orders &#39;a &#60;b&#62;&#39;</code>",
        "<a href=\"/queues/mails/lanes?state=paused\">queue mails</a>",
        "<a href=\"/morgue?view=causes",
        "<a href=\"/queues/mails/lanes\">2</a>",
        "<a href=\"/queues?by=jobs\">3</a>",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let told = Request::new("GET", "/api/v1/doctor").token(&secret("boss"));
    let told = told.send(&api.address).done();
    let of_key = told["findings"].as_array().unwrap().iter().find(|one| one["key"] == "a <b>");
    assert_eq!(of_key.unwrap()["queue"], "orders", "{told}");
}

#[test]
fn an_admin_of_one_queue_cannot_take_a_lane_of_another_from_its_holder() {
    let api = guarded();
    let boss = |path: &str, body: &Value| {
        let request = Request::new("POST", path).token(&secret("boss")).json(body);
        request.send(&api.address)
    };
    let pushed = boss("/api/v1/queues/orders/jobs", &json!({ "key": "k", "payload": 1 }));
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let claim = json!({ "worker": "w", "queues": ["orders"] });
    let lane = boss("/api/v1/work/claim", &claim).done()["lanes"][0].clone();
    let narrow = Visitor::log_in(&api, "part");
    let named = lane["lane"].as_str().unwrap();
    let mark = field(&narrow.page("/queues/mails"), "mark").unwrap();
    let deed = [("deed", "lane.release"), ("queue", "mails"), ("lane", named), ("mark", &mark)];
    let answer = narrow.submit("/do", &deed);
    assert_ne!(answer.header("location"), Some("/queues"), "{}", answer.text());
    let result = held(&lane, json!({ "outcome": "done" }));
    let settled =
        boss("/api/v1/work/settle", &json!({ "worker": "w", "results": [result] })).done();
    assert_eq!(settled["results"][0]["status"], "ok", "its holder keeps it: {settled}");
}

#[test]
fn an_admin_sets_the_limit_of_a_queue_by_its_page() {
    let api = guarded();
    let set = [("queue", "mails"), ("running", "5"), ("rate", "30/m")];
    assert_eq!(Visitor::log_in(&api, "hands").does("queue.limits", &set).status, 403);
    let boss = Visitor::log_in(&api, "boss");
    assert_eq!(boss.does("queue.limits", &set).status, 303);
    let page = boss.page("/queues/mails");
    assert!(
        page.contains("limit = { rate = &quot;30/m&quot;, running = 5 }")
            || page.contains("limit = { rate = &#34;30/m&#34;, running = 5 }"),
        "{page}"
    );
    assert_eq!(field(&page, "running").as_deref(), Some("5"));
    let wrong = boss.does("queue.limits", &[("queue", "mails"), ("running", "many")]);
    assert!(wrong.status == 400 && wrong.text().contains("running"), "{}", wrong.text());
    assert_eq!(boss.does("queue.limits", &[("queue", "mails"), ("running", "")]).status, 303);
    assert!(!boss.page("/queues/mails").contains("limit = {"));
}

#[test]
fn a_form_that_another_page_made_does_nothing_and_is_written_down() {
    let api = guarded();
    let boss = Visitor::log_in(&api, "boss");
    let mark = boss.mark();
    let deed = [("deed", "queue.pause"), ("queue", "orders")];
    let body = "deed=queue.pause&queue=orders";
    let without = || {
        Request::new("POST", "/do")
            .body("application/x-www-form-urlencoded", format!("{body}&mark={mark}"))
            .header("Cookie", &boss.cookie)
    };
    let refused = |request: Request| assert_eq!(request.send(&api.address).status, 403);
    refused(without());
    refused(without().header("Sec-Fetch-Site", "cross-site"));
    refused(without().header("Sec-Fetch-Site", "none"));
    refused(without().header("Origin", "http://evil.example"));
    for wrong in ["", "0123456789abcdef0123456789abcdef", &Visitor::log_in(&api, "hands").mark()] {
        let fields: Vec<(&str, &str)> = deed.into_iter().chain([("mark", wrong)]).collect();
        assert_eq!(boss.submit("/do", &fields).status, 403, "{wrong}");
    }
    let shown = Request::new("GET", "/api/v1/queues/orders")
        .token(&secret("boss"))
        .send(&api.address)
        .done();
    assert_eq!(shown["paused"], false);
    let own = without().header("Origin", &format!("http://{}", api.address)).send(&api.address);
    assert_eq!(own.status, 303, "a browser that sends Origin alone: {}", own.text());
    let log = std::fs::read_to_string(api.site.path("audit.ndjson")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Value| (line["status"].as_u64().unwrap(), line["action"].clone());
    assert_eq!(lines.iter().filter(|line| told(line).0 == 403).count(), 7, "{log}");
    let last = lines.last().unwrap();
    assert_eq!(told(last), (303, json!("queue pause")));
    assert_eq!((&last["who"], &last["on"]), (&json!("boss"), &json!({ "queue": "orders" })));
}

#[test]
fn every_form_needs_the_mark_of_a_page_also_where_nobody_logs_in() {
    let open = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let anybody = Visitor { api: &open, cookie: String::new() };
    let guarded = guarded();
    let boss = Visitor::log_in(&guarded, "boss");
    let forms = [
        ("/do", &[("deed", "queue.pause"), ("queue", "orders")][..]),
        ("/operations/start", &[("action", "pause"), ("queue", "orders")]),
        ("/operations/new", &[("action", "pause"), ("queue", "orders"), ("lanes", "1-0-1")]),
        ("/logout", &[]),
    ];
    for (visitor, other) in [(&anybody, &boss), (&boss, &anybody)] {
        for (path, fields) in forms {
            if path == "/logout" && visitor.cookie.is_empty() {
                continue;
            }
            let sends = |mark: &str| visitor.submit(path, &[fields, &[("mark", mark)]].concat());
            for forged in [visitor.submit(path, fields), sends(""), sends(&other.mark())] {
                assert_eq!(forged.status, 403, "{path}: {}", forged.text());
            }
            let own = sends(&visitor.mark());
            assert!(matches!(own.status, 200 | 303), "{path}: {}", own.text());
        }
    }
}

#[test]
fn n12_a_deed_is_told_on_the_next_page_and_undone_from_there() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let visitor = Visitor { api: &api, cookie: String::new() };
    let paused = visitor.does("queue.pause", &[("queue", "orders"), ("back", "/queues/orders")]);
    assert_eq!((paused.status, paused.header("location")), (303, Some("/queues/orders")));
    let said = paused.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let after = Visitor { api: &api, cookie: said };
    let page = after.get("/queues/orders");
    let text = page.text();
    assert!(text.contains("queue orders: paused") && text.contains("Undo"), "{text}");
    assert!(page.header("set-cookie").unwrap().contains("Max-Age=0"), "it is told once");
    assert_eq!(field(&text, "deed").as_deref(), Some("queue.resume"));
    let undone = visitor.does("queue.resume", &[("queue", "orders"), ("back", "")]);
    assert_eq!((undone.status, undone.header("location")), (303, Some("/")));
    assert_eq!(api.get("/api/v1/queues/orders").done()["paused"], false);
    let unknown = visitor.does("queue.explode", &[("queue", "orders")]);
    assert!(
        unknown.status == 400 && unknown.text().contains("queue.explode"),
        "{}",
        unknown.text()
    );
}

#[test]
fn what_another_site_plants_as_told_is_not_shown() {
    let api = guarded();
    let boss = Visitor::log_in(&api, "boss");
    let with = |said: &str| {
        let cookie = format!("{}; {said}", boss.cookie);
        Visitor { api: &api, cookie }.page("/about")
    };
    let told = "text=Click%20here&deed=node.stop&node=node";
    let fake = "0".repeat(64);
    for planted in [told.to_owned(), format!("{fake}~{told}")] {
        let page = with(&format!("seriatim_said={planted}"));
        assert!(!page.contains("Click here") && !page.contains("node.stop"), "{page}");
    }
    let paused = boss.does("queue.pause", &[("queue", "orders")]);
    let own = paused.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert!(with(&own).contains("Undo"));
    // It is for this login alone.
    let hands = Visitor::log_in(&api, "hands");
    let other = Visitor { api: &api, cookie: format!("{}; {own}", hands.cookie) };
    assert!(!other.page("/about").contains("Undo"));
}

#[test]
fn what_is_exported_is_kept_by_nobody_on_the_way() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k" }));
    let eyes = Visitor::log_in(&api, "eyes");
    for path in ["/export/jobs?queue=orders", "/export/lanes/orders"] {
        let file = eyes.get(path);
        assert_eq!((file.status, file.header("cache-control")), (200, Some("no-store")), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        assert!(file.header("content-security-policy").is_some());
    }
}

#[test]
fn an_admin_of_one_queue_does_not_learn_of_which_queue_another_job_is() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k" }));
    bury(&api, "orders", "broken");
    let jobs = Request::new("GET", "/api/v1/jobs?queue=orders&state=dead").token(&secret("boss"));
    let jobs = jobs.send(&api.address).done();
    let id = jobs["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    let edit = |id: &str| {
        let request = Request::new("POST", "/api/v1/queues/mails/morgue/edit");
        let request = request.json(&json!({ "job_id": id, "payload": 1 })).token(&secret("part"));
        request.send(&api.address).refused(404).1.replace(id, "ID")
    };
    let unknown = format!("{}9", &id[..id.len() - 1]);
    assert_eq!(edit(&id), edit(&unknown));
    assert!(!edit(&id).contains("orders"), "{}", edit(&id));
    let part = Visitor::log_in(&api, "part");
    let form = [("queue", "mails"), ("job", &*id), ("payload", "1")];
    let told = part.does("dead.edit", &form);
    assert!(told.status == 404 && !told.text().contains("orders"), "{}", told.text());
}

/// The text of a page: what forms and scripts have in attributes may be what it was.
pub(super) fn between_tags(page: &str) -> String {
    page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect()
}

#[test]
fn what_jobs_carry_is_shown_and_never_run() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let key = "<script>alert(1)</script>\"'&\u{202e}x";
    let payload =
        json!({ "html": "<img src=x onerror=alert(1)>", "big": "</pre><script>", "n": 1.5 });
    let body = json!({ "key": key, "task": "t<b>", "payload": payload });
    let pushed = Request::new("POST", "/api/v1/queues/orders/jobs").json(&body).send(&api.address);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let job = pushed.json()["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    let paths = [
        "/queues/orders/lanes".to_owned(),
        format!("/key?k={}", encoded(key)),
        format!("/jobs/{job}"),
        format!("/search?q={}", encoded("<script>")),
        "/nothing/<script>".to_owned(),
    ];
    for path in &paths {
        let answer = api.get(path);
        let text = answer.text();
        assert!(
            !text.contains("<script>") && !text.contains("<img") && !text.contains("<b>"),
            "{path}: {text}"
        );
        assert!(!between_tags(&text).contains('\u{202e}'), "{path}: {text}");
    }
    let page = api.get(&paths[2]);
    assert!(
        page.text().contains("&#34;n&#34;: 1.5") || page.text().contains("&quot;n&quot;: 1.5"),
        "{}",
        page.text()
    );
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
        form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    assert_eq!(page.header("content-security-policy"), Some(policy));
    let rest = ["cache-control", "x-content-type-options", "referrer-policy"]
        .map(|name| page.header(name));
    assert_eq!(rest, [Some("no-store"), Some("nosniff"), Some("same-origin")]);
    let key_page = api.get(&paths[1]).text();
    assert!(key_page.contains(&job), "the key leads to its job: {key_page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_gets_its_live_part_only_if_that_has_changed() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    let parts = |etag: &str| {
        Request::new("GET", "/queues")
            .header("X-Parts", "1")
            .header("If-None-Match", etag)
            .send(&api.address)
    };
    let first = parts("");
    let etag = first.header("etag").unwrap().to_owned();
    assert!(first.text().contains("orders") && !first.text().contains("<html"), "{}", first.text());
    let same = parts(&etag);
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert!(same.header("x-as-of").is_some());
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": "k" })).done();
    // The same part is shown to all who ask within a second.
    let has_changed = async || {
        let changed = parts(&etag);
        changed.status == 200 && changed.header("etag") != Some(&etag)
    };
    eventually("the part has changed", has_changed).await;
}

#[test]
fn pages_and_the_api_work_below_any_prefix() {
    let api = Api::start("[http]\nbase_path = \"/of/jobs/\"\n[queues.orders]\nmode = \"fifo\"\n");
    for path in ["/of/jobs", "/of/jobs/", "/of/jobs/queues"] {
        let page = api.get(path);
        assert_eq!(page.status, 200, "{path}");
        let text = page.text();
        for link in text
            .split("href=\"")
            .skip(1)
            .chain(text.split("action=\"").skip(1))
            .chain(text.split("src=\"").skip(1))
        {
            let link = link.split('"').next().unwrap();
            assert!(link.starts_with("/of/jobs/") || link.starts_with('#'), "{path}: {link}");
        }
        let style = text.split("href=\"").find(|link| link.contains("/assets/")).unwrap();
        let style = api.get(style.split('"').next().unwrap());
        assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
        assert!(style.header("cache-control").unwrap().contains("immutable"));
    }
    assert_eq!(api.get("/of/jobs/api/v1/stats").status, 200);
    assert_eq!(api.get("/of/jobs/openapi.json").done()["servers"][0]["url"], "/of/jobs");
    for path in ["/", "/health"] {
        api.get(path).refused(404);
    }
}

#[test]
fn who_paused_a_queue_or_key_and_why_is_told_wherever_it_waits() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "k", "payload": 1 }));
    let hands = Visitor::log_in(&api, "hands");
    let key = [("queue", "orders"), ("key", "k"), ("reason", "a <b> wrong price")];
    assert_eq!(hands.does("lane.pause", &key).status, 303);
    let why = || hands.page("/key?k=k");
    assert!(why().contains("ago by hands"), "{}", why());
    assert!(why().contains(": a &#60;b&#62; wrong price</p>"), "{}", why());
    let rows = hands.page("/queues/orders/lanes?state=paused");
    assert!(rows.contains("ago by hands: a &#60;b&#62; wrong price</td>"), "{rows}");
    let needs = hands.page("/");
    assert!(needs.contains("ago by hands: a &#60;b&#62; wrong price)"), "{needs}");
    let pause = "/api/v1/queues/orders/pause?reason=the+shop+is+down";
    Request::new("POST", pause).token(&secret("boss")).send(&api.address).done();
    assert!(why().contains("the queue is paused "), "{}", why());
    let page = hands.page("/queues/orders");
    assert!(page.contains("ago by boss: the shop is down."), "{page}");
    let resume = "/api/v1/queues/orders/resume";
    Request::new("POST", resume).token(&secret("boss")).send(&api.address).done();
    assert!(why().contains("ago by hands"), "{}", why());
    let long = format!("/api/v1/queues/orders/pause?reason={}", "x".repeat(1_000));
    let long = Request::new("POST", &long).token(&secret("boss")).send(&api.address);
    assert_eq!(long.refused(400).0, "reason");
}

#[test]
fn what_people_do_is_listed_with_the_key_it_was_done_to() {
    let api = guarded();
    push(&api, "orders", &json!({ "key": "a <b>", "payload": 1 }));
    let hands = Visitor::log_in(&api, "hands");
    assert_eq!(hands.does("lane.pause", &[("queue", "orders"), ("key", "a <b>")]).status, 303);
    assert_eq!(hands.does("lane.delete", &[("queue", "orders"), ("key", "a <b>")]).status, 403);
    let act = "/api/v1/queues/orders/lane/resume?key=a+%3Cb%3E";
    Request::new("POST", act).token(&secret("boss")).send(&api.address).done();
    let boss = Visitor::log_in(&api, "boss");
    let page = boss.page("/audit");
    for told in ["lane pause", "lane resume", "lane delete", "refused (403)", "hands", "boss"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    assert!(!page.contains("<b>") && !page.contains("job push"), "{page}");
    let of_key = boss.page("/key?k=a+%3Cb%3E");
    assert!(of_key.contains("lane pause") && of_key.contains("lane resume"), "{of_key}");
    let job = of_key.split("href=\"/jobs/").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(boss.does("job.retry", &[("job", job)]).status, 303);
    let of_job = format!("/jobs/{job}");
    let of_key = "/key?k=a+%3Cb%3E";
    for (path, did) in
        [(&*of_job, "job retry"), ("/queues/orders", "lane pause"), (of_key, "lane resume")]
    {
        let page = boss.page(path);
        let link = page.split("href=\"/audit?of=").nth(1).unwrap().split('"').next().unwrap();
        let deeds = boss.page(&format!("/audit?of={link}"));
        assert!(deeds.contains(did), "{path}: {deeds}");
    }
    let listed = Request::new("GET", "/api/v1/audit?of=a+%3Cb%3E&limit=1").token(&secret("boss"));
    let listed = listed.send(&api.address).done();
    assert_eq!(listed["entries"][0]["action"], "lane resume");
    let next = format!("/api/v1/audit?of=a+%3Cb%3E&after={}", listed["next"].as_str().unwrap());
    let rest = Request::new("GET", &next).token(&secret("boss")).send(&api.address).done();
    assert_eq!(rest["entries"][0]["who"], "hands");
    let narrow = Visitor::log_in(&api, "part");
    assert_eq!(narrow.get("/audit").status, 403);
    assert!(!narrow.page("/queues/mails").contains("What people did"), "a way that is closed");
}

#[test]
fn lanes_are_filtered_by_a_form_whose_fields_may_be_empty() {
    let api = guarded();
    for key in ["eu/1", "us/1"] {
        push(&api, "orders", &json!({ "key": key, "payload": 1 }));
    }
    let visitor = Visitor::log_in(&api, "eyes");
    let form = "by=key&from=&node=&due_from=&due_to=&retries_min=";
    let page = visitor.page(&format!("/queues/orders/lanes?{form}&state=ready&prefix=eu/"));
    assert!(page.contains("eu/1") && !page.contains("us/1"), "{page}");
    assert!(page.contains("<option value=\"ready\" selected>"), "{page}");
    let page = visitor.page(&format!("/queues/orders/lanes?{form}&state=held,paused&prefix="));
    assert!(page.contains("No lane matches") && page.contains("value=\"held,paused\" selected"));
    assert_eq!(visitor.get("/queues/orders/lanes?state=odd").status, 400);
    assert_eq!(visitor.get("/queues/orders/lanes?due_to=soon").status, 400);
}

#[test]
fn a_bridge_is_shown_with_the_nodes_and_paused_by_operators() {
    let api = guarded_with(
        "[[bridges]]\nname = \"old\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\nqueues = [\"a<b>\"]\n\
         [[bridges.routes]]\nqueue = \"mails\"\nkey = \"/args/0\"\n",
    );
    api.knows("bridges", "old", Some(&secret("eyes")));
    let eyes = Visitor::log_in(&api, "eyes");
    let (told, began) =
        (["queue:a&#60;b&#62;", "source away", "retry", "schedule"], Instant::now());
    // The node notes each source when it has looked at it.
    let mut pages = std::iter::repeat_with(|| eyes.page("/nodes"));
    let seen = |page: &String| told.iter().all(|told| page.contains(told));
    let page = pages.find(|page| seen(page) || began.elapsed() > PATIENCE).unwrap();
    assert!(seen(&page), "{page}");
    assert!(!page.contains("<b>") && !page.contains("<button>Pause"), "{page}");
    let one = [("bridge", "old"), ("source", "retry")];
    assert_eq!(eyes.does("bridge.pause", &one).status, 403);
    let hands = Visitor::log_in(&api, "hands");
    assert_eq!(hands.does("bridge.pause", &one).status, 303);
    assert!(hands.page("/nodes").contains("by hands"));
    assert_eq!(hands.does("bridge.pause", &one[..1]).status, 303);
    assert_eq!(hands.does("bridge.resume", &one).status, 409, "all of it is paused");
    assert_eq!(hands.does("bridge.resume", &one[..1]).status, 303);
    assert!(hands.page("/nodes").contains("by hands"), "the source stays paused");
    assert_eq!(hands.does("bridge.resume", &one).status, 303);
    assert!(!hands.page("/nodes").contains("by hands"));
    assert_eq!(hands.does("bridge.pause", &[("bridge", "none")]).status, 404);
    let audit = Visitor::log_in(&api, "boss").page("/audit?of=old");
    for told in ["bridge pause", "bridge resume", "source retry"] {
        assert!(audit.contains(told), "{told}: {audit}");
    }
    let metrics = Request::new("GET", "/metrics").token(&secret("eyes")).send(&api.address).text();
    for told in [
        "seriatim_bridge_moving{bridge=\"old\",source=\"queue:a<b>\"} 0",
        "seriatim_bridge_taken_total{bridge=\"old\",source=\"schedule\"} 0",
        "seriatim_bridge_leader{bridge=\"old\",source=\"retry\",node=",
    ] {
        assert!(metrics.contains(told), "{told}: {metrics}");
    }
}

#[test]
fn a_cron_entry_is_shown_with_its_ticks_and_run_and_paused_by_operators() {
    let api = guarded();
    api.knows_cron("night <b>", Some(&secret("eyes")));
    let eyes = Visitor::log_in(&api, "eyes");
    let page = eyes.page("/cron");
    for told in ["night &#60;b&#62;", "at 03:00 UTC", "0 3 * * *"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    assert!(!page.contains("Run now") && !page.contains("<b>"), "{page}");
    let named = [("cron", "night <b>")];
    assert_eq!(eyes.does("cron.run", &named).status, 403);
    let hands = Visitor::log_in(&api, "hands");
    assert!(hands.page("/cron").contains("Run now"));
    assert_eq!(hands.does("cron.pause", &[named[0], ("reason", "new <i>")]).status, 303);
    let page = hands.page("/cron");
    assert!(page.contains("by hands") && page.contains("new &#60;i&#62;"), "{page}");
    assert!(!page.contains(">in "), "no tick comes while it is paused: {page}");
    assert_eq!(hands.does("cron.run", &named).status, 303);
    assert_eq!(hands.does("cron.resume", &named).status, 303);
    let page = hands.page("/cron");
    assert!(page.contains("by hand (hands)") && !page.contains("by hands"), "{page}");
    assert!(page.contains(">in ") && !page.contains("class=\"error\""), "nothing failed: {page}");
    let audit = Visitor::log_in(&api, "boss").page("/audit");
    for told in [
        "cron pause",
        "cron run",
        "cron resume",
        "paused cron entry night &#60;b&#62;: new &#60;i&#62;",
    ] {
        assert!(audit.contains(told), "{told}: {audit}");
    }
    assert_eq!(Visitor::log_in(&api, "part").get("/cron").status, 403);
    assert_eq!(hands.does("cron.run", &[("cron", "none")]).status, 404);
}

#[test]
fn a_browser_is_refused_by_a_page_and_a_program_by_a_document() {
    let api = Api::start("");
    let ask = |path: &str, accept: &str| {
        let answer = Request::new("GET", path).header("Accept", accept).send(&api.address);
        (answer.status, answer.text())
    };
    for (path, status) in [("/nope", 404), ("/batches/x", 404), ("/do", 405)] {
        let (refused, page) = ask(path, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        assert!(page.starts_with("<!doctype html>") && !page.contains("openapi.json"), "{page}");
        let (again, document) = ask(path, "*/*");
        assert_eq!((refused, again), (status, status), "{path}");
        assert!(document.starts_with('{'), "{document}");
    }
    for path in ["/queues/nowhere", "/nodes/nowhere"] {
        let (_, page) = ask(path, "text/html");
        assert!(!page.contains("/api/v1") && page.contains("href=\"/queues\""), "{page}");
    }
}

#[test]
fn without_the_dashboard_there_are_no_pages_and_the_api_stays() {
    let api = Api::start("[dashboard]\nenabled = false\n[queues.orders]\nmode = \"fifo\"\n");
    for page in ["/", "/queues", "/login", "/audit"] {
        let answer = Request::new("GET", page).send(&api.address);
        assert_eq!(answer.status, 404, "{page}: {}", answer.text());
    }
    assert_eq!(Request::new("POST", "/do").status(&api.address), 404);
    assert_eq!(api.get("/api/v1/queues").status, 200);
    assert_eq!(api.get("/docs").status, 200);
}

#[test]
fn pages_show_of_payloads_what_the_configuration_allows() {
    let tokens = TOKENS
        .replace("[[cron]]", "[dashboard]\npayloads = \"admin\"\nredact = [\"pin\"]\n[[cron]]");
    let api = Api::with(Site::new(&tokens), |command| {
        for name in ["eyes", "hands", "boss", "shop", "part"] {
            command.env(format!("T_{name}"), secret(name));
        }
    });
    push(&api, "orders", &json!({ "key": "k", "payload": { "pin": "4711", "sum": "4242" } }));
    let boss = Visitor::log_in(&api, "boss");
    let page = boss.page("/key?k=k");
    assert!(page.contains("4242") && !page.contains("4711"), "{page}");
    let job = page.split("href=\"/jobs/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = boss.page(&format!("/jobs/{job}"));
    assert!(
        page.contains("4242") && !page.contains("4711") && page.contains("(redacted)"),
        "{page}"
    );
    let eyes = Visitor::log_in(&api, "eyes");
    for path in ["/key?k=k".to_owned(), format!("/jobs/{job}")] {
        let page = eyes.page(&path);
        assert!(!page.contains("4242") && page.contains("(shown to admins)"), "{page}");
    }
}

#[test]
fn search_leads_to_a_key_or_job_and_lists_what_begins_so_or_is_of_such_a_task() {
    let api = guarded();
    for key in ["order-1", "order-2", "other"] {
        push(&api, "mails", &json!({ "key": key, "task": "ship" }));
    }
    bury(&api, "mails", "no stamps");
    push(&api, "mails", &json!({ "key": "order-3", "task": "bill" }));
    let eyes = Visitor::log_in(&api, "eyes");
    let leads = |text: &str| {
        let answer = eyes.get(&format!("/search?q={}", encoded(text)));
        answer.header("location").map(str::to_owned)
    };
    assert_eq!(leads("order-3").as_deref(), Some("/key?k=order-3"));
    assert_eq!(leads(" order-1 ").as_deref(), Some("/key?k=order-1"), "of a dead job");
    let id = "0199aa12-77de-7000-8123-abcdefabcdef";
    assert_eq!(leads(id), Some(format!("/jobs/{id}")));
    assert_eq!(leads("").as_deref(), Some("/"));
    let page = eyes.page("/search?q=order-");
    for key in ["order-1", "order-2", "order-3"] {
        assert!(page.contains(&format!(">{key}</a>")), "{key}: {page}");
    }
    assert!(!page.contains(">other</a>") && page.contains("Searched 1 queue with jobs:"), "{page}");
    for (list, key) in [("/jobs?prefix=order-", "order-3"), ("/morgue?prefix=order-", "order-1")] {
        assert!(page.contains(&format!("href=\"{list}\"")), "{list}: {page}");
        let list = eyes.page(list);
        assert!(list.contains(&format!(">{key}</a>")) && list.contains("Export as"), "{list}");
    }
    let tasks = eyes.page("/search?q=ship");
    assert!(tasks.contains("Jobs of this task") && tasks.contains(">other</a>"), "{tasks}");
    push(&api, "mails", &json!({ "key": "bill", "task": "send" }));
    assert_eq!(leads("bill").as_deref(), Some("/key?k=bill"), "a key first");
    assert!(
        eyes.page("/key?k=bill").contains("/search?q=bill&amp;all=true")
            || eyes.page("/key?k=bill").contains("/search?q=bill&#38;all=true")
    );
    let all = eyes.page("/search?q=bill&all=true");
    assert!(all.contains("Jobs of this task") && all.contains(">order-3</a>"), "{all}");
    let nothing = eyes.page("/search?q=nothing%20like%20it");
    assert!(nothing.contains("Nothing found") && nothing.contains("Searched"), "{nothing}");
    let queue = eyes.page("/search?q=orders");
    assert!(queue.contains("The queue <a href=\"/queues/orders\">orders</a>"), "{queue}");
    assert!(!queue.contains("Nothing found"), "{queue}");
}

#[test]
fn a_page_tells_what_happened_to_a_key_in_all_queues_and_who_did_what() {
    let api = guarded_with("[journal]\nenabled = true\nqueues = [\"mails\"]\n");
    push(&api, "mails", &json!({ "key": "a <b>", "payload": 1 }));
    push(&api, "orders", &json!({ "key": "a <b>", "payload": 2 }));
    bury(&api, "mails", "no stamps");
    bury(&api, "orders", "no stock");
    push(&api, "orders", &json!({ "key": "a <b>", "payload": 3 }));
    let hands = Visitor::log_in(&api, "hands");
    let pause = [("queue", "orders"), ("key", "a <b>"), ("reason", "wrong price")];
    assert_eq!(hands.does("lane.pause", &pause).status, 303);
    let page = hands.page("/key/events?k=a+%3Cb%3E");
    for told in
        ["queued", "claimed", "no stamps", "no stock", "lane pause", "done: wrong price", "hands"]
    {
        assert!(page.contains(told), "{told}: {page}");
    }
    assert!(page.contains("Without a journal: orders"), "{page}");
    assert!(!page.contains("<b>") && page.contains("href=\"/key?k=a"), "{page}");
    let part = Visitor::log_in(&api, "part").page("/key/events?k=a+%3Cb%3E");
    assert!(part.contains("no stamps") && !part.contains("lane pause"), "{part}");
    assert!(!part.contains("orders"), "only its queues: {part}");
    assert!(hands.page("/key?k=a+%3Cb%3E").contains("/key/events?k=a"));
    for next in ["/jobs?key=a", "/audit?of=a", "/search?q=a", "/key?k=a"] {
        assert!(page.contains(&format!("href=\"{next}")), "{next}: {page}");
    }
    assert!(!part.contains("/audit?of"), "the audit log concerns all queues: {part}");
}

#[test]
fn jobs_are_searched_by_terms_that_all_hold() {
    let api = guarded();
    for (key, task, note) in [("a", "ship", "by air mail"), ("b", "ship", "by sea")] {
        push(&api, "mails", &json!({ "key": key, "task": task, "payload": { "note": note } }));
    }
    bury(&api, "mails", "no stamps left");
    push(&api, "mails", &json!({ "key": "c", "task": "bill", "payload": { "note": "by air" } }));
    push(&api, "orders", &json!({ "key": "d", "task": "ship", "payload": 1 }));
    let eyes = Visitor::log_in(&api, "eyes");
    for (terms, found) in [
        ("task:ship", &["a", "b", "d"][..]),
        ("task:ship queue:mails", &["a", "b"]),
        ("error:no stamps", &["a", "b"]),
        ("payload:by air", &["a", "c"]),
        ("payload:by air task:bill", &["c"]),
        ("queue:nowhere payload:1", &[]),
    ] {
        let page = eyes.page(&format!("/search?q={}", encoded(terms)));
        for key in ["a", "b", "c", "d"] {
            let is_there = page.contains(&format!("/key?k={key}"));
            assert_eq!(is_there, found.contains(&key), "{terms}: {key}: {page}");
        }
    }
    let both = eyes.page("/search?q=task%3Aship");
    let lists = ["href=\"/jobs?task=ship\"", "href=\"/morgue?task=ship\""];
    assert!(lists.iter().all(|list| both.contains(list)), "{both}");
    let part = Visitor::log_in(&api, "part");
    let its = part.page("/search?q=task%3Aship");
    assert!(!its.contains("/key?k=d") && !its.contains("task=ship\""), "only its queues: {its}");
    let named = part.page("/search?q=task%3Aship+queue%3Amails");
    assert!(named.contains("href=\"/morgue?queue=mails&#38;task=ship\""), "{named}");
}

#[test]
fn the_audit_page_is_filtered_by_queue_person_deed_and_time() {
    let api = guarded();
    let boss = Visitor::log_in(&api, "boss");
    boss.does("queue.pause", &[("queue", "orders")]);
    Visitor::log_in(&api, "hands").does("queue.pause", &[("queue", "mails")]);
    for (path, orders, mails) in [
        ("/audit", true, true),
        ("/audit?queue=orders", true, false),
        ("/audit?who=hands", false, true),
        ("/audit?action=pause&queue=mails", false, true),
        ("/audit?action=resume", false, false),
        ("/audit?since=2200-01-01T00:00:00Z", false, false),
        ("/audit?until=2020-01-01T00:00:00Z", false, false),
        ("/audit?since=1h", true, true),
        ("/audit?until=1h", false, false),
    ] {
        let page = boss.page(path);
        let has = |queue: &str| page.contains(&format!("queue {queue}"));
        assert_eq!((has("orders"), has("mails")), (orders, mails), "{path}: {page}");
    }
    assert_eq!(boss.get("/audit?since=soon").status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_a_job_shows_on_which_node_each_attempt_failed() {
    let api = Api::start(
        "[node]\nid = \"machine\"\n[queues.orders]\nmode = \"fifo\"\nmax_retries = 1\n\
        backoff = { kind = \"constant\", base = \"10ms\" }\n[[workers]]\nqueue = \"orders\"\n\
        command = [\"sh\", \"-c\", \"printf 'it began %02000d\\\\n' 0 >&2; echo no stock >&2; exit 1\"]\n",
    );
    let pushed = api.post("/api/v1/queues/orders/jobs", &json!({ "key": "k" })).done();
    let path = format!("/jobs/{}", pushed["jobs"][0]["job_id"].as_str().unwrap());
    let job = || api.get(&format!("/api/v1{path}")).done();
    eventually("both failures", async || job()["failures"].as_array().unwrap().len() == 2).await;
    let failures = job()["failures"].clone();
    for (failure, attempt) in failures.as_array().unwrap().iter().zip([2, 1]) {
        assert_eq!((&failure["attempt"], &failure["node"]), (&json!(attempt), &json!("machine")));
        let error = failure["error"].as_str().unwrap();
        assert!(error.starts_with("it began") && error.ends_with("no stock"), "{error}");
    }
    // As Sidekiq's fields of these names: the first failure, and that of the last retry.
    let shown = job();
    assert_eq!(
        (&shown["failed_at"], &shown["retried_at"]),
        (&failures[1]["at"], &failures[0]["at"])
    );
    let page = api.get(&path).text();
    assert!(page.contains("Latest failures") && page.contains(">machine</td>"), "{page}");
    assert!(page.contains("first failed") && page.contains("last failed"), "{page}");
    assert!(page.contains("<dt>retry</dt><dd>1 of 1</dd>"), "as the key page counts: {page}");
}

#[test]
fn the_page_of_a_job_leads_to_its_trace() {
    let url = "https://jaeger.example.com/trace/{trace_id}";
    let api = guarded_with(&format!("[dashboard]\ntrace_url = \"{url}\"\n"));
    let id = "0af7651916cd43dd8448eb211c80319c";
    let traceparent = format!("00-{id}-b7ad6b7169203331-01");
    push(&api, "mails", &json!({ "key": "a", "traceparent": traceparent }));
    let eyes = Visitor::log_in(&api, "eyes");
    let key = eyes.page("/key?k=a");
    let job = key.split("href=\"/jobs/").nth(1).unwrap().split('"').next().unwrap();
    let page = eyes.page(&format!("/jobs/{job}"));
    assert!(page.contains(&format!("href=\"https://jaeger.example.com/trace/{id}\"")), "{page}");
    let site = crate::site::Site::new("[dashboard]\ntrace_url = \"jaeger\"\n");
    let refused = crate::site::text(&site.run(&["config", "check"]));
    assert!(refused.contains("dashboard.trace_url") && refused.contains("{trace_id}"), "{refused}");
}
