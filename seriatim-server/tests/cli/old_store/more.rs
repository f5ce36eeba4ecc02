//! What a store may have besides jobs of the four modes, since the layouts of November 2026. Figures of the history are
//! not among it: they are shown for 30 days.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::{Value, json};
use seriatim::store::{
    Act, BatchQuery, BatchView, IdempotencyScope, LaneAction, LaneQuery, LaneSelection, LaneState,
    OpenBatch, Past, PushStatus, SealBatch, schedules,
};
use seriatim::{
    Client, Exhaustion, Groups, Job, JobId, Outcome, Queue, Share, SharedStore, Timestamp, Window,
};
use seriatim_testkit::Redis;

use super::{LATER, LONG};
use crate::faults::Server;
use crate::hand::Hand;
use crate::site::{Serving, Site, eventually, text};

const BATCH: &str = "import-7";
/// The arguments of a push that is answered with the result of the first such push.
const SUM: [&str; 6] = ["push", "sums", "[1,2,3]", "--idempotency-key", "once", "--wait=20s"];

/// Besides those of the configuration below.
pub(super) fn queues(store: &SharedStore) -> Vec<Queue> {
    let mut throttled = Queue::exclusive("throttled");
    throttled.throttle = Some(LONG);
    let mut window = Queue::accumulate("window");
    window.window = Some(Window::new(LONG, LONG));
    let mut held = Queue::fifo("held").max_retries(0);
    held.exhausted = Exhaustion::Hold;
    let mut bound = Queue::parallel("bound");
    bound.idempotency_ttl = LONG;
    let each = Groups::each(Share::default().running(1));
    let limited = Queue::fifo("limited").groups(each).running(3);
    let mut batched = Queue::fifo("batched");
    batched.retain_completed = Some(LONG);
    let batched = store.capabilities().batches.then_some(batched);
    let mut moved = Queue::fifo("moved");
    moved.retain_dead = LONG;
    [throttled, window, held, bound, limited, moved].into_iter().chain(batched).collect()
}

/// How many jobs of a queue can never run, or not before long.
pub(super) fn jobs_left(queue: &str) -> u64 {
    match queue {
        "held" | "window" => 2,
        "bound" => 3,
        "throttled" | "paused" => 1,
        _ => 0,
    }
}

fn job(queue: &str, key: &str, n: u32) -> Job {
    let job = Job::new(queue, &json!({ "key": key, "n": n })).unwrap().score(f64::from(n));
    if queue == "bound" { job } else { job.key(key) }
}

/// The store knows it by its idempotency key, from any queue.
fn known_everywhere(queue: &str) -> Job {
    let job = job(queue, "anywhere", 1).node("blue").idempotency_key("once for all");
    job.idempotency_scope(IdempotencyScope::Store)
}

/// The job of the inbox runs in a queue that all stores have.
fn insert(server: &Server) -> Option<String> {
    let (table, key) = match server {
        Server::Postgres(_) => ("seriatim.inbox", "key"),
        Server::Mysql(_) => ("seriatim_inbox", "`key`"),
        Server::Sqlite(_) => ("seriatim_inbox", "key"),
        Server::Redis(_) => return None,
    };
    let payload = json!({ "key": "by sql", "n": 1 });
    Some(format!(
        "INSERT INTO {table} (queue, {key}, payload) VALUES ('fifo', 'by sql', '{payload}')"
    ))
}

/// A program on this store, with a cron entry and a journal.
fn site(url: &str) -> Site {
    Site::new(&format!(
        "[store]\nurl = \"{url}\"\n[journal]\nenabled = true\n\
         [queues.paused]\nmode = \"fifo\"\n[queues.told]\nmode = \"fifo\"\n\
         [queues.sums]\nmode = \"parallel\"\nretain_completed = \"3285d\"\nidempotency_ttl = \"3285d\"\n\
         [[workers]]\nqueue = \"told\"\ncommand = [\"true\"]\n\
         [[workers]]\nqueue = \"sums\"\ncommand = [\"echo\", '{{\"type\":\"done\",\"result\":{{\"sum\":6}}}}']\n\
         [queues.shop]\nmode = \"parallel\"\n\
         [[bridges]]\nname = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\nqueues = [\"critical\"]\n\
         [[bridges.routes]]\nqueue = \"shop\"\npayload = \"/args\"\n\
         [[cron]]\nname = \"nightly\"\nschedule = \"0 3 1 1 *\"\nqueue = \"paused\"\nkey = \"k\"\n"
    ))
}

fn run(site: &Site, arguments: &[&str]) -> String {
    let output = site.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// What nodes and people leave: a journal, an audit log, pauses, a result, what is known of a bridge. Before anything is
/// claimed by hand, as this node would take it over.
pub(super) async fn fill_by_program(server: &Server, store: &SharedStore) {
    let (site, sidekiq) = (site(&server.url()), Redis::start().unwrap());
    let node = site
        .command(&["serve", "--no-http"])
        .env("SIDEKIQ_REDIS", sidekiq.url())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let node = Serving(node.unwrap());
    eventually("the store knows the cron entry", async || {
        !schedules(&**store).await.unwrap().is_empty()
    })
    .await;
    run(&site, &["push", "told", r#"{"key":"k","n":1}"#, "--key", "k"]);
    eventually("it has run", async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "told" && stats.processed == 1)
    })
    .await;
    assert!(run(&site, &SUM).contains("{\"sum\":6}"));
    eventually("the bridge has told how it is", async || {
        run(&site, &["bridge", "status"]).contains("critical")
    })
    .await;
    node.stop();
    run(&site, &["bridge", "pause", "shop", "--reason", "relocation"]);
    run(&site, &["queues", "pause", "paused", "--reason", "stocktaking"]);
    run(&site, &["cron", "pause", "nightly", "--reason", "holidays"]);
    run(&site, &["push", "paused", r#"{"key":"k","n":1}"#, "--key", "k"]);
}

/// Returns the ids of the jobs.
pub(super) async fn fill_by_hand(server: &Server, hand: &Hand) -> Vec<JobId> {
    let mut ids = vec![
        hand.push(job("throttled", "k", 1).run_at(Timestamp::from_micros(LATER))).await,
        hand.push(job("window", "k", 1)).await,
        hand.push(job("window", "k", 2)).await,
        hand.push(job("bound", "blue", 1).node("blue")).await,
        hand.push(job("bound", "reports", 1).consumer_group("reports")).await,
        hand.push(known_everywhere("bound")).await,
        hand.push(job("held", "failed", 1)).await,
        hand.push(job("moved", "tried", 1).past(past(hand, false))).await,
        hand.push(job("moved", "dead", 1).past(past(hand, true))).await,
    ];
    hand.fail_all("held", "no paper").await;
    ids.push(hand.push(job("held", "paused", 1)).await);
    let lanes = LaneSelection::Key("paused".into());
    let pause = Act { now: None, queue: "held".into(), lanes, action: LaneAction::Pause };
    assert_eq!(hand.store.act(pause).await.unwrap().count, 1);
    ids.extend(fill_groups(hand).await);
    if hand.store.capabilities().batches {
        ids.extend(fill_batch(hand).await);
    }
    if let Some(insert) = insert(server) {
        server.sql(&insert);
    }
    ids
}

/// Of a job that failed three times in another engine.
fn past(hand: &Hand, is_dead: bool) -> Past {
    Past {
        failures: 3,
        error: Some("no ink".into()),
        created_at: Some(hand.now),
        started_at: Some(hand.now),
        dead_at: is_dead.then_some(hand.now),
    }
}

/// One turn of each group runs; another key is parked.
async fn fill_groups(hand: &Hand) -> Vec<JobId> {
    let mut ids = Vec::new();
    for (group, key) in [("a", "a-1"), ("a", "a-2"), ("b", "b-1")] {
        ids.push(hand.push(job("limited", key, 1).group(group)).await);
    }
    let turns = hand.claim("limited").await;
    let keys: Vec<_> = turns.iter().map(|turn| turn.key.as_deref().unwrap()).collect();
    assert_eq!(keys, ["a-1", "b-1"], "one of each group");
    ids
}

/// A sealed batch of three jobs, of which one is done.
async fn fill_batch(hand: &Hand) -> Vec<JobId> {
    let (now, id) = (Some(hand.now), BATCH.into());
    let callback = job("batched", "callback", 1);
    hand.store.open_batch(OpenBatch { now, id, callback }).await.unwrap();
    let mut ids = vec![hand.push(job("batched", "k-0", 1).batch(BATCH)).await];
    for turn in hand.claim("batched").await {
        hand.end(&turn, Outcome::Done).await;
    }
    for key in ["k-1", "k-2"] {
        ids.push(hand.push(job("batched", key, 1).batch(BATCH)).await);
    }
    hand.store.seal_batch(SealBatch { now, id: BATCH.into() }).await.unwrap();
    ids
}

async fn batch(store: &SharedStore) -> BatchView {
    let mut all = store.batches(BatchQuery::default()).await.unwrap().rows;
    assert_eq!(all.len(), 1);
    all.pop().unwrap()
}

async fn state_of(store: &SharedStore, queue: &str, key: &str) -> (LaneState, u64, bool) {
    let query = LaneQuery { key: Some(key.into()), ..LaneQuery::new(queue) };
    let lane = store.lanes(query).await.unwrap().rows.remove(0);
    (lane.state, lane.jobs, lane.collects_until.is_some())
}

/// All of it is known, before anything of it goes on. `known` has the ids of its jobs.
pub(super) async fn is_known(
    url: &str,
    store: &SharedStore,
    known: &serde_json::Map<String, Value>,
) {
    for (queue, key, expected) in [
        ("held", "failed", (LaneState::Held, 1, false)),
        ("held", "paused", (LaneState::Paused, 1, false)),
        ("window", "k", (LaneState::Waiting, 2, true)),
        ("limited", "a-1", (LaneState::Claimed, 1, false)),
        ("limited", "a-2", (LaneState::Waiting, 1, false)),
    ] {
        assert_eq!(state_of(store, queue, key).await, expected, "{queue} {key}");
    }
    let client = Client::new(store.clone());
    for (job, expected) in [
        (job("throttled", "k", 2), PushStatus::Merged),
        (known_everywhere("exclusive"), PushStatus::Duplicate),
    ] {
        let pushed = client.push(job).await.unwrap();
        assert_eq!(pushed.status, expected);
        assert!(known.contains_key(&pushed.job_id.to_string()), "{pushed:?}");
    }
    let queues = store.queues().await.unwrap();
    assert!(queues.iter().any(|view| view.queue.name == "paused" && view.paused));
    let cron = schedules(&**store).await.unwrap();
    assert!(cron.iter().any(|entry| entry.name == "nightly" && entry.is_paused()), "{cron:?}");
    if store.capabilities().inbox {
        assert!(store.inbox().await.unwrap().waits_since.is_some(), "a row waits");
    }
    if store.capabilities().batches {
        let batch = batch(store).await;
        assert_eq!((&*batch.id, batch.sealed, batch.pending, batch.done), (BATCH, true, 2, 1));
    }
    let site = site(url);
    let audit = run(&site, &["audit"]);
    assert!(audit.contains("stocktaking") && audit.contains("holidays"), "{audit}");
    let sum = run(&site, &SUM);
    assert!(sum.contains("{\"sum\":6}"), "no worker is there to make it again: {sum}");
    let bridge = run(&site, &["bridge", "status", "--json"]);
    assert!(bridge.contains("critical") && bridge.contains("relocation"), "{bridge}");
    let events = run(&site, &["jobs", "events", "--queue", "told"]);
    assert!(events.contains("succeeded"), "{events}");
}

/// What could run has run once, and what could not is still there.
pub(super) async fn has_gone_on(store: &SharedStore, ran: &BTreeMap<String, Vec<u64>>) {
    let mut expected = vec!["limited a-1", "limited a-2", "limited b-1", "moved tried"];
    if store.capabilities().inbox {
        expected.push("fifo by sql");
    }
    if store.capabilities().batches {
        expected.extend(["batched k-1", "batched k-2", "batched callback"]);
        let batch = batch(store).await;
        assert_eq!((batch.pending, batch.done, batch.dead), (0, 3, 0));
        assert!(batch.ended_at.is_some() && batch.callback.is_some(), "{batch:?}");
    }
    for of in expected {
        assert_eq!(ran.get(of), Some(&vec![1]), "{of}");
    }
    for kept in ["held ", "window ", "bound ", "throttled ", "paused ", "moved dead"] {
        assert!(!ran.keys().any(|of| of.starts_with(kept)), "{kept}: {ran:?}");
    }
}
