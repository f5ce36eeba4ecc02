//! What a page weighs: its bytes, and its calls of the store, with lists as full and rows as wide as they get.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use seriatim::store::{Heartbeat, LaneQuery, Memory, NodeId, NodeInfo, OpenBatch, Views, Wrapper};
use seriatim::{Cron, Engine, Job, JobId, Queue, Result, SharedStore};

use crate::hand::Hand;
use crate::site::eventually;

/// Of a page whose style and script the browser has.
const BYTES_MAX: usize = 30_000;
const CALLS_MAX: usize = 12;
/// Of a page that looks for a key or a text in each queue that may have it: three here, besides the page's own.
const CALLS_IN_QUEUES_MAX: usize = 16;
/// Of what happened to a key: besides, the journals of these queues, and what people did.
const CALLS_OF_EVENTS_MAX: usize = 20;
/// Of cron entries: besides, each has a last job, which is looked for.
const CALLS_OF_CRON_MAX: usize = 24;
/// More than the rows of any page.
const MANY: usize = 60;

/// A store that writes down its calls.
struct Counting {
    inner: SharedStore,
    calls: Mutex<Vec<&'static str>>,
}

impl Wrapper for Counting {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        self.calls.lock().unwrap().push(operation);
        call
    }
}

fn key(i: usize) -> String {
    format!("0199aa12-77de-7000-8123-{i:012x}")
}

/// Five queues that have everything, among many that are idle. A job of the busiest key.
async fn fill(store: SharedStore) -> JobId {
    let idle = (0..MANY).map(|i| Queue::fifo(format!("customer-{i}-imports")));
    let busy = [
        Queue::fifo("orders"),
        Queue::accumulate("changes"),
        Queue::parallel("later"),
        Queue::fifo("exports").max_retries(0),
        Queue::parallel("imports").max_retries(0),
    ];
    let hand = Hand::new(store.clone(), idle.chain(busy).collect()).await;
    let wide = json!({ "order": 1_795_256, "status": "paid", "by": "the clerk at the counter", "of": "shop" });
    let job = |queue: &str, i: usize| {
        Job::new(queue, &(&wide, i)).unwrap().key(key(i)).task("send_the_invoice")
    };
    let error = "the warehouse answered 503 to a request for the stock of an item: ".repeat(3);
    for i in 0..MANY {
        hand.push(job("orders", i)).await;
        hand.push(job("exports", 0)).await;
        hand.push(Job::new("imports", &(&wide, i)).unwrap().task("read_a_file")).await;
    }
    hand.fail_all("orders", &error).await;
    hand.fail_all("imports", &error).await;
    for i in 0..MANY {
        hand.fail_all("exports", &error).await;
        hand.push(job("orders", 0)).await;
        hand.push(job("exports", i)).await;
        let later = Job::new("later", &(&wide, i)).unwrap().task("send_a_reminder");
        hand.push(later.run_in(std::time::Duration::from_secs(86_400))).await;
        // Equal payloads would be one.
        hand.push(job("changes", 0).score(i as f64)).await;
    }
    hand.claim("changes").await;
    for i in 0..MANY {
        let callback = Job::new("imports", &i).unwrap();
        let open = OpenBatch { now: None, id: format!("import-{i}").into(), callback };
        store.open_batch(open).await.unwrap();
        hand.push(job("changes", i + 1)).await;
    }
    for queue in ["orders", "changes", "later", "exports", "imports"].map(str::to_owned) {
        hand.history(&queue, |minute| [1_000_000 + minute as u64; 7]).await;
    }
    for i in 0..MANY {
        let queue = format!("customer-{i}-imports");
        hand.history(&queue, |minute| [1_000_000 + minute as u64; 7]).await;
    }
    hand.push(job("orders", 0)).await
}

/// Pages over a store that counts.
struct Pages {
    store: Arc<Counting>,
    service: TowerToHyperService<axum::Router>,
}

impl Pages {
    fn new() -> Self {
        let store = Arc::new(Counting { inner: Arc::new(Memory::new()), calls: Mutex::default() });
        let service = TowerToHyperService::new(seriatim_server::router(store.clone()));
        Self { store, service }
    }

    async fn ask(&self, method: &str, path: &str, media: &str, body: String) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        let request = request.header("sec-fetch-site", "same-origin").header("content-type", media);
        let answer = self.service.call(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> String {
        let (status, text) = self.ask("GET", path, "text/plain", String::new()).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    async fn does(&self, path: &str, fields: &str) {
        let form = "application/x-www-form-urlencoded";
        let mark = super::pages::field(&self.get("/about").await, "mark").unwrap();
        let (status, text) = self.ask("POST", path, form, format!("{fields}&mark={mark}")).await;
        assert_eq!(status, 303, "{path}: {fields}: {text}");
    }

    /// The page, and what is wrong with its weight.
    async fn weighed(&self, path: &str, calls_max: usize) -> (String, Option<String>) {
        self.store.calls.lock().unwrap().clear();
        let text = self.get(path).await;
        let calls = std::mem::take(&mut *self.store.calls.lock().unwrap());
        let told = format!("{path}: {} bytes, {} calls", text.len(), calls.len());
        println!("{told}");
        let is_wrong = text.len() > BYTES_MAX || calls.len() > calls_max;
        (text, is_wrong.then(|| format!("{told}: {calls:?}")))
    }

    /// The heads of the rows of a list and of all pages behind it.
    async fn walk(&self, path: &str, calls_max: usize) -> Vec<String> {
        let (mut path, mut heads) = (path.to_owned(), Vec::new());
        loop {
            let (page, wrong) = self.weighed(&path, calls_max).await;
            assert_eq!(wrong, None);
            let rows = page.split("<tr id=\"").skip(1);
            heads.extend(rows.map(|row| row.split('"').next().unwrap().to_owned()));
            let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { return heads };
            path = next.split('"').next().unwrap().replace("&#38;", "&");
        }
    }
}

#[tokio::test]
async fn every_page_is_small_and_asks_the_store_little() {
    let site = Pages::new();
    let job = fill(site.store.clone()).await;
    for _ in 0..MANY {
        site.does("/do", &format!("deed=lane.resume&queue=orders&key={}", key(0))).await;
    }
    let (node, key) = ("hand-1", key(0));
    let lanes = Views::lanes(&*site.store, LaneQuery::new("orders"));
    let lane = lanes.await.unwrap().rows.remove(0);
    let pages = [
        "/".to_owned(),
        "/queues".to_owned(),
        "/queues/orders".to_owned(),
        "/queues/orders/lanes".to_owned(),
        "/queues/orders/lanes?by=key&prefix=0199&state=retrying".to_owned(),
        "/queues/later/lanes?by=run_at".to_owned(),
        format!("/key?k={key}"),
        format!("/key/events?k={key}"),
        "/key?k=unknown".to_owned(),
        "/jobs".to_owned(),
        "/jobs?queue=orders&state=queued".to_owned(),
        format!("/jobs/{job}"),
        format!("/jobs/{job}/events"),
        "/morgue".to_owned(),
        "/morgue?view=causes".to_owned(),
        "/morgue?queue=imports&error=503".to_owned(),
        "/scheduled".to_owned(),
        "/scheduled?queue=orders".to_owned(),
        "/scheduled?queue=later".to_owned(),
        format!("/reschedule?lane={}", lane.lane),
        "/cron".to_owned(),
        "/batches".to_owned(),
        "/nodes".to_owned(),
        format!("/nodes/{node}"),
        "/operations".to_owned(),
        "/operations/new?action=requeue&queue=imports".to_owned(),
        "/audit".to_owned(),
        "/search?q=0199aa".to_owned(),
        "/search?q=task%3Aread_a_file".to_owned(),
        format!("/confirm?deed=lane.delete&queue=orders&key={key}"),
        "/about".to_owned(),
    ];
    // Its findings are looked for once in a while, for all who ask.
    site.get("/").await;
    let mut all_wrong = Vec::new();
    for path in &pages {
        let calls_max = match path.split('?').next() {
            Some("/key/events") => CALLS_OF_EVENTS_MAX,
            Some("/key" | "/search") => CALLS_IN_QUEUES_MAX,
            _ => CALLS_MAX,
        };
        all_wrong.extend(site.weighed(path, calls_max).await.1);
    }
    assert_eq!(all_wrong, Vec::<String>::new());
}

/// Ten people look at each of twenty views while queues change all the time. Each open page hears of each change.
#[tokio::test(start_paused = true)]
async fn two_hundred_open_pages_of_twenty_views_ask_the_store_less_than_forty_times_a_second() {
    const PEOPLE: usize = 10;
    const SECONDS: usize = 60;
    let site = Pages::new();
    let job = fill(site.store.clone()).await;
    let mut views: Vec<String> = ["orders", "changes", "later", "exports", "imports"]
        .iter()
        .flat_map(|queue| [format!("/queues/{queue}"), format!("/queues/{queue}/lanes")])
        .collect();
    views.extend([format!("/key?k={}", key(0)), format!("/key?k={}", key(1))]);
    let others = ["/", "/queues", "/jobs?queue=orders", "/morgue", "/scheduled?queue=later"];
    views.extend(others.into_iter().chain(["/cron", "/nodes"]).map(str::to_owned));
    views.push(format!("/jobs/{job}"));
    assert_eq!(views.len(), 20);
    let listener = Request::get("/live").body(Body::empty()).unwrap();
    let _listens = site.service.call(listener).await.unwrap();
    site.store.calls.lock().unwrap().clear();
    for second in 0..SECONDS {
        let jobs = vec![Job::new("orders", &second).unwrap().key("other")];
        let push = seriatim::store::Push { now: None, jobs };
        site.store.inner.push(push).await.unwrap();
        for view in views.iter().flat_map(|view| std::iter::repeat_n(view, PEOPLE)) {
            let request = Request::get(view).header("x-parts", "1").body(Body::empty()).unwrap();
            let answer = site.service.call(request).await.unwrap();
            assert_eq!(answer.status(), 200, "{view}");
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
    let calls = site.store.calls.lock().unwrap().len() / SECONDS;
    println!("{calls} calls a second");
    assert!(calls < 40, "{calls} calls a second");
}

/// Cron entries with long names, each of which was run and is paused.
async fn with_cron(site: &Pages) {
    let entry = |i: usize| {
        let job = Job::new("imports", &i).unwrap().key(key(i));
        let name = format!("the report that customer {i:03} of the north gets each morning");
        let cron = Cron::new(name, "*/5 8-18 1,15 * 1-5", job).unwrap();
        cron.time_zone("America/Argentina/Buenos_Aires").unwrap()
    };
    let store: SharedStore = site.store.clone();
    let engine = (0..MANY).fold(Engine::builder(store.clone()), |engine, i| engine.cron(entry(i)));
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(engine.run_until(async { drop(stopping.await) }));
    let known = async || seriatim::store::schedules(&*store).await.unwrap().len() == MANY;
    eventually("all are known", known).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    for i in 0..MANY {
        let name = entry(i).name().to_owned();
        site.does("/do", &format!("deed=cron.run&cron={name}")).await;
        let reason = "the+north+is+closed+".repeat(5);
        site.does("/do", &format!("deed=cron.pause&cron={name}&reason={reason}")).await;
    }
}

/// Operations with long filters, which have ended.
async fn with_operations(site: &Pages) {
    for i in 0..MANY {
        let filter = format!("{i}: {}", "the warehouse answered 503 & ".repeat(20));
        let wish = json!({ "action": "requeue", "queue": "imports", "error": filter });
        let path = "/api/v1/operations";
        let (status, begun) = site.ask("POST", path, "application/json", wish.to_string()).await;
        assert_eq!(status, 200, "{begun}");
        let begun: serde_json::Value = serde_json::from_str(&begun).unwrap();
        let path = format!("{path}/{}", begun["id"].as_str().unwrap());
        eventually("it has ended", async || site.get(&path).await.contains("\"done\"")).await;
    }
}

async fn with_nodes(site: &Pages) {
    let lease = std::time::Duration::from_secs(60);
    for i in 0..MANY {
        let name = format!("worker-{i:03}.of.the.north.example.org");
        let mut node = NodeInfo::new(NodeId::from(&*format!("{name}-{i:016x}")), lease);
        (node.name, node.host) = (name.as_str().into(), name);
        let beat = Heartbeat { now: None, node, beats: Vec::new() };
        site.store.heartbeat(beat).await.unwrap();
    }
}

#[tokio::test]
async fn full_lists_of_cron_entries_nodes_and_operations_come_in_small_pages() {
    let site = Pages::new();
    with_cron(&site).await;
    with_operations(&site).await;
    with_nodes(&site).await;
    // One node ran the cron entries.
    for (path, calls_max, rows) in [
        ("/cron", CALLS_OF_CRON_MAX, MANY),
        ("/operations", CALLS_MAX, MANY),
        ("/nodes", CALLS_MAX, MANY + 1),
    ] {
        let heads = site.walk(path, calls_max).await;
        let different: BTreeSet<&String> = heads.iter().collect();
        assert_eq!((heads.len(), different.len()), (rows, rows), "{path}: {heads:?}");
    }
}

#[tokio::test]
async fn of_a_hundred_queues_a_page_of_what_is_scheduled_asks_those_that_are_due_first() {
    const QUEUES: usize = 100;
    let site = Pages::new();
    let name = |i: usize| format!("customer-{i:03}-imports");
    let queues = (0..QUEUES).map(|i| Queue::fifo(name(i))).collect();
    let hand = Hand::new(site.store.clone(), queues).await;
    for i in 0..QUEUES {
        // Of the last name first.
        let wait = std::time::Duration::from_secs(3_600 + 60 * (QUEUES - i) as u64);
        hand.push(Job::new(name(i), &i).unwrap().key(key(i)).run_in(wait)).await;
    }
    let first = site.get("/scheduled").await;
    let keys = |page: &str| -> Vec<String> {
        let links = page.split("href=\"/key?k=").skip(1);
        links.map(|link| link.split('"').next().unwrap().to_owned()).collect()
    };
    let (mut latest, shown) = ((0..QUEUES).rev().map(key).collect::<Vec<_>>(), keys(&first).len());
    assert_eq!(keys(&first), latest[..shown]);
    let (_, wrong) = site.weighed("/scheduled", CALLS_MAX + 30).await;
    assert_eq!(wrong, None, "queues that are due later than the last row are not asked");
    let rows = site.walk("/scheduled", CALLS_MAX + QUEUES).await;
    let different: BTreeSet<&String> = rows.iter().collect();
    assert_eq!((rows.len(), different.len()), (QUEUES, QUEUES));
    // Where more is due already, it is not known what comes next: such a queue is asked too.
    let soon = std::time::Duration::from_secs(1_800);
    hand.push(Job::new(name(3), &0).unwrap().key("due")).await;
    hand.push(Job::new(name(3), &1).unwrap().key("soon").run_in(soon)).await;
    latest.insert(0, "soon".to_owned());
    assert_eq!(keys(&site.get("/scheduled").await), latest[..shown]);
}

#[tokio::test]
async fn a_search_goes_on_in_the_queues_that_the_page_before_left_out() {
    let site = Pages::new();
    let queues = (0..MANY).map(|i| Queue::fifo(format!("q-{i:02}"))).collect();
    let hand = Hand::new(site.store.clone(), queues).await;
    for i in 0..MANY {
        hand.push(Job::new(format!("q-{i:02}"), &i).unwrap().key(key(i))).await;
    }
    hand.push(Job::new("q-59", &"zebra").unwrap().key("only here")).await;
    let (status, _) = site.ask("GET", "/search?q=only+here", "text/plain", String::new()).await;
    assert_eq!(status, 303, "a key is found wherever it is");
    let first = site.get("/search?q=payload%3Azebra").await;
    assert!(first.contains("Nothing found in 50 queues."), "{first}");
    let next = first.split("href=\"/search?q=").nth(1).unwrap().split('"').next().unwrap();
    let next = site.get(&format!("/search?q={}", next.replace("&#38;", "&"))).await;
    assert!(next.contains(">only here</a>") && next.contains("of 10 queues"), "{next}");
}

#[tokio::test]
async fn of_many_findings_of_one_kind_one_is_told_and_others_are_named() {
    let site = Pages::new();
    let hold = Queue::fifo("held").max_retries(0).exhausted(seriatim::Exhaustion::Hold);
    let queues = (0..MANY).map(|i| Queue::fifo(format!("q-{i:02}"))).chain([hold]).collect();
    let hand = Hand::new(site.store.clone(), queues).await;
    hand.push(Job::new("held", &1).unwrap().key("a")).await;
    hand.fail_all("held", "no stock").await;
    for i in 0..MANY {
        let job = Job::new(format!("q-{i:02}"), &i).unwrap().key("k").node("nobody");
        hand.push(job).await;
    }
    let page = site.get("/").await;
    let needs = page.split("<ul class=\"needs\">").nth(1).unwrap().split("</ul>").next().unwrap();
    assert!(needs.matches("<li>").count() <= 3, "{needs}");
    assert!(needs.contains(">held: a</a><bdi> is held") && needs.contains("The same: "), "{needs}");
    assert!(needs.contains("and 54 more"), "{needs}");
    let held = "<dt>held</dt><dd><a href=\"/queues/held/lanes?state=held\">1</a></dd>";
    assert!(page.contains(held), "{page}");
    assert!(site.get("/queues/held").await.contains(held), "the queue says the same");
    let retrying = "href=\"/queues/held/lanes?by=retry_count\">1</a>";
    assert!(site.get("/queues").await.contains(retrying), "a figure leads to what it counts");
}

#[tokio::test]
async fn held_keys_of_several_queues_are_counted_and_the_link_says_where_most_of_them_are() {
    let site = Pages::new();
    let hold = |name| Queue::fifo(name).max_retries(0).exhausted(seriatim::Exhaustion::Hold);
    let hand = Hand::new(site.store.clone(), vec![hold("bills"), hold("mails")]).await;
    for (queue, key) in [("bills", "a"), ("mails", "b"), ("mails", "c")] {
        hand.push(Job::new(queue, &1).unwrap().key(key)).await;
    }
    hand.fail_all("bills", "no stock").await;
    hand.fail_all("mails", "no stock").await;
    let page = site.get("/").await;
    let held = "<dt>held</dt><dd>3 <a href=\"/queues/mails/lanes?state=held\">2 in mails</a></dd>";
    assert!(page.contains(held), "{page}");
}
