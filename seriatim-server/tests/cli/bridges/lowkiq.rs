//! The bridge to Lowkiq.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use seriatim::store::{
    Declare, JobQuery, JobState, JobView, LaneOrder, LaneQuery, Selected, Selection,
};
use seriatim::{Batch, Engine, Lane, Queue, SharedStore, Timestamp};

use super::people::monitored;
use super::{Producer, Shop, Works, check_all_ran_once_in_order, keeps, rounds};
use crate::site::eventually;

const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/bridges/lowkiq_app.rb");
const CONFIG: &str = r#"
[queues."Shop::Sync"]
mode = "accumulate"
[[bridges]]
name = "shop"
kind = "lowkiq"
url_env = "SIDEKIQ_REDIS"
queues = ["Shop::Sync"]
shards_count = 24
mac_key_env = "LOWKIQ_MAC_KEY"
"#;
const IN_FLIGHT: &str = "seriatim:shop:inflight:queue:Shop::Sync";

fn key(rest: &str) -> String {
    format!("lowkiq:A:v1:Shop::Sync:{rest}")
}

fn plain() -> String {
    CONFIG.replace("mac_key_env = \"LOWKIQ_MAC_KEY\"", "payloads = \"plain\"")
}

impl Shop {
    fn lowkiq(&self) -> Producer {
        self.application(APP)
    }

    fn waiting(&self) -> u64 {
        self.number(&["ZCARD", &key("all_ids_scored_by_perfrom_in")])
    }

    /// Nothing is left of what Lowkiq and the bridge write while they work.
    fn is_clean(&self) -> bool {
        let left = self.texts(&["KEYS", "*"]);
        left.iter().all(|key| key.contains(":sequence:") || key.ends_with(":rejected"))
    }

    fn log(&self, node: &str) -> String {
        std::fs::read_to_string(self.site.path(&format!("{node}.log"))).unwrap()
    }

    async fn is_held_by(&self, why: &str) {
        let what = format!("status shows {why:?}");
        eventually(&what, async || self.run(&["bridge", "status"]).1.contains(why)).await;
    }
}

/// What a worker got: id, payload and score.
type Got = (String, Value, f64);

impl Works<Got> {
    /// On the queue.
    fn on_lowkiq(store: &SharedStore) -> Self {
        let got = Arc::<Mutex<_>>::default();
        let handler = keeps(got.clone(), |batch: &Batch<Value>| {
            let of = |lane: &Lane<Value>| -> Vec<Got> {
                let jobs = lane.jobs();
                jobs.map(|(job, one)| (lane.key().to_owned(), one.clone(), job.score)).collect()
            };
            batch.lanes().iter().flat_map(of).collect::<Vec<_>>()
        });
        let engine = Engine::builder(store.clone()).concurrency(8);
        Self::start(got, engine.worker("Shop::Sync", handler))
    }
}

async fn has_queue(store: &SharedStore) {
    eventually("the store has the queue", async || store.queues().await.unwrap().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_bytes_and_scores_of_all_ids_and_shards_are_the_same_at_the_worker() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    // 10,000 ids with SERIATIM_FAULT_JOBS=250000.
    let ids = rounds() * 40;
    shop.lowkiq().does(&format!("push {ids} 10"));
    let mut link = redis::Client::open(shop.redis.url()).unwrap().get_connection().unwrap();
    let mut wanted: BTreeMap<String, Vec<(Vec<u8>, f64)>> = BTreeMap::new();
    for id in 0..ids {
        let name = format!("id-{id}");
        let payloads = key(&format!("payloads:{name}"));
        let mut command = redis::cmd("ZRANGE");
        command.arg(payloads).arg(0).arg(-1).arg("WITHSCORES");
        wanted.insert(name, command.query(&mut link).unwrap());
    }
    assert_eq!(shop.texts(&["KEYS", &key("ids_scored_by_perform_in:*")]).len(), 24);
    let begun = Instant::now();
    let node = shop.serve("node");
    has_queue(&store).await;
    eventually("all left Lowkiq", async || shop.waiting() == 0 && shop.is_clean()).await;
    let took = begun.elapsed();
    let works = Works::on_lowkiq(&store);
    works.have_got(ids as usize * 10).await;
    node.stop();
    let mut got: BTreeMap<String, Vec<(Vec<u8>, f64)>> = BTreeMap::new();
    for (id, payload, score) in works.end().await {
        let bytes = STANDARD.decode(payload["$marshal"].as_str().unwrap()).unwrap();
        got.entry(id).or_default().push((bytes, score));
    }
    assert!(got == wanted, "not the same bytes, scores or order");
    println!("{ids} ids with 10 payloads each left Lowkiq in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_a_ruby_worker_gets_the_objects_that_lowkiqs_client_pushed() {
    let ruby = seriatim_testkit::find_program("ruby", "ruby").unwrap();
    let place = env!("CARGO_MANIFEST_DIR");
    let worker = format!(
        "{CONFIG}[[workers]]\nqueue = \"Shop::Sync\"\nenv_pass = [\"LOWKIQ_MAC_KEY\"]\nprocess = [{:?}, \"{place}/../clients/ruby/seriatim_worker.rb\", \"--require\", \"{place}/tests/cli/clients/ruby_app/lowkiq.rb\", \"--lowkiq\", \"Shop::Sync\", \"--mac-key-env\", \"LOWKIQ_MAC_KEY\"]\n",
        ruby.display().to_string()
    );
    let shop = Shop::new(&worker);
    let store = shop.site.store().await;
    shop.lowkiq().does("push 2 2");
    // Somebody else's signature, and none at all.
    let forged = r#"{"$marshal":"BAhpBg==","mac":"AAAA"}"#;
    let node = shop.serve("node");
    has_queue(&store).await;
    let push = |payload: &str| {
        let (pushed, told) = shop.run(&["push", "Shop::Sync", payload, "--key", "forged"]);
        assert!(pushed, "{told}");
    };
    push(forged);
    let seen = async || std::fs::read_to_string(shop.site.path("seen")).unwrap_or_default();
    for id in 0..2 {
        let payload = |number: u8| format!("{{:id=>{id}, \"number\"=>{number}, \"text\"=>\"ü\"}}");
        let line = format!("perform id-{id} [{}, {}]", payload(0), payload(1));
        eventually(&line, async || seen().await.contains(&line)).await;
    }
    let dead = async || {
        let query = seriatim::store::JobQuery::new("Shop::Sync", seriatim::store::JobState::Dead);
        store.jobs(query).await.unwrap().rows.into_iter().find_map(|job| job.error)
    };
    eventually("the forged one is dead", async || dead().await.is_some()).await;
    let error = dead().await.unwrap();
    assert!(error.contains("does not match queue, id and key"), "{error}");
    assert!(!seen().await.contains("perform forged"));
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_a_wrong_number_of_shards_is_seen_and_nothing_moves() {
    for wrong in ["25", "12", "{ \"Shop::Sync\" = 48 }"] {
        let shop = Shop::new(&CONFIG.replace("= 24", &format!("= {wrong}")));
        let store = shop.site.store().await;
        shop.lowkiq().does("push 50 2");
        let before = shop.texts(&["KEYS", "*"]);
        let (is_ready, told) = shop.run(&["bridge", "check"]);
        assert!(!is_ready && told.contains("write that of the module"), "{wrong}: {told}");
        let node = shop.serve("node");
        shop.site.said("node", "is not in its shard by `shards_count`", &store).await;
        shop.is_held_by("held: id \"id-").await;
        node.stop();
        let mut after = shop.texts(&["KEYS", "*"]);
        assert_eq!((shop.waiting(), after.len()), (50, before.len()), "{wrong}");
        after.retain(|key| key.contains("processing") || key.contains("seriatim"));
        assert!(after.is_empty(), "{after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_a_queue_that_a_server_of_lowkiq_works_on_is_refused_and_nothing_moves() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    lowkiq.does("push 20 1");
    lowkiq.does("take id-7");
    let (is_ready, told) = shop.run(&["bridge", "check"]);
    assert!(!is_ready && told.contains("are held by a Lowkiq server"), "{told}");
    let node = shop.serve("node");
    shop.is_held_by("are held by a Lowkiq server").await;
    assert_eq!(shop.waiting(), 19);
    let (is_well, told) = shop.run(&["doctor"]);
    assert!(!is_well && told.contains("bridge shop, queue:Shop::Sync: held"), "{told}");
    // It begins again, and puts back what it had.
    lowkiq.does("restore");
    eventually("all left Lowkiq", async || shop.waiting() == 0 && shop.is_clean()).await;
    let works = Works::on_lowkiq(&store);
    works.have_got(20).await;
    node.stop();
    assert_eq!(works.end().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_what_is_no_plain_data_is_kept_beside_the_queue_and_comes_back() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    shop.lowkiq().does("foreign");
    let (is_ready, told) = shop.run(&["bridge", "check", "--json"]);
    assert!(!is_ready, "{told}");
    let report: Value = serde_json::from_str(&told).unwrap();
    let class = &report["bridges"][0]["sources"][0]["classes"]["Shop::Sync"];
    assert_eq!((&class["jobs"], &class["refused"]), (&4.into(), &3.into()), "{class}");
    let node = shop.serve("node");
    let rejected = key("rejected");
    eventually("three are refused", async || shop.number(&["LLEN", &rejected]) == 3).await;
    let works = Works::on_lowkiq(&store);
    works.have_got(1).await;
    // Before version 1.1 all of them are due at one time, and another one is the first.
    let said = "jobs were refused; the first one: payload: ";
    eventually("the log says so", async || shop.log("node").contains(said)).await;
    let doctor =
        async || shop.run(&["doctor"]).1.contains("3 jobs refused, and kept beside the source");
    eventually("the doctor knows", doctor).await;
    node.stop();
    assert_eq!(works.end().await, [("plain".to_owned(), 7.into(), 1.0)]);
    // In an envelope they can move.
    std::fs::write(shop.site.path("seriatim.toml"), CONFIG).unwrap();
    let (done, told) = shop.run(&["bridge", "return", "shop", "Shop::Sync"]);
    assert!(done && told.contains("3 refused jobs went back to Shop::Sync"), "{told}");
    assert_eq!((shop.waiting(), shop.number(&["LLEN", &rejected])), (3, 0));
    let node = shop.serve("again");
    let works = Works::on_lowkiq(&store);
    works.have_got(3).await;
    node.stop();
    let mut ids: Vec<String> = works.end().await.into_iter().map(|(id, _, _)| id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["cut", "order", "time"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_bridge_to_lowkiq_that_is_killed_again_and_again_loses_nothing_and_keeps_the_order() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    let mut node = shop.serve("node-0");
    has_queue(&store).await;
    let works = Works::on_lowkiq(&store);
    for round in 1..=rounds() {
        lowkiq.begins("numbers 1000 100");
        works.have_got(works.count() + 1).await;
        node.kill();
        lowkiq.has_done();
        node = shop.serve(&format!("node-{round}"));
    }
    let all = rounds() * 1_000;
    works.have_got(all as usize).await;
    eventually("nothing is left", async || shop.waiting() == 0 && shop.is_clean()).await;
    // Before that it does not stop well.
    shop.site.said(&format!("node-{}", rounds()), "serving", &store).await;
    node.stop();
    let number = |got: Got| {
        let (id, number): (String, u64) = serde_json::from_value(got.1).unwrap();
        assert_eq!((&id, number as f64), (&got.0, got.2));
        (id, number)
    };
    let ran: Vec<(String, u64)> = works.end().await.into_iter().map(number).collect();
    check_all_ran_once_in_order(&ran, all);
}

/// A batch with one id, as a bridge leaves it that was killed before it pushed.
fn leave(shop: &Shop, lowkiq: &mut Producer) {
    lowkiq.does("push 1 2");
    lowkiq.does("take id-0");
    let shard = shop.texts(&["HKEYS", &key("processing_length_by_shard")]).remove(0);
    shop.redis
        .send(&["HSET", &key("processing_length_by_shard"), &shard, "1 seriatim shop 5"])
        .unwrap();
    let id = format!("{shard} 2 id-0");
    let now = seriatim::Timestamp::of_this_machine().as_micros() / 1_000;
    let now = now.to_string();
    let words = ["batch", "5", "at", &now, "routes", "", "run", "r", "5", &id];
    shop.redis.send(&[&["HSET", IN_FLIGHT][..], &words].concat()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_bridge_held_is_pushed_by_the_next_one_or_taken_back_by_lowkiq_itself() {
    for is_restored in [false, true] {
        let shop = Shop::new(&plain());
        let store = shop.site.store().await;
        let mut lowkiq = shop.lowkiq();
        leave(&shop, &mut lowkiq);
        if is_restored {
            lowkiq.does("restore");
            assert_eq!(shop.waiting(), 1);
        }
        let node = shop.serve("node");
        let works = Works::on_lowkiq(&store);
        works.have_got(2).await;
        eventually("nothing is left", async || shop.waiting() == 0 && shop.is_clean()).await;
        node.stop();
        assert_eq!(works.end().await.len(), 2, "{is_restored}");
        assert_eq!(shop.log("node").contains("took back 1 of the ids in flight"), is_restored);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_beside_which_lowkiq_works_waits_until_it_has_ended() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    leave(&shop, &mut lowkiq);
    // It began to work on another id of the shard: the number is its own now.
    let lengths = key("processing_length_by_shard");
    let shard = shop.texts(&["HKEYS", &lengths]).remove(0);
    let with = key(&format!("processing:ids_with_perform_in:{shard}"));
    shop.redis.send(&["HSET", &lengths, &shard, "1"]).unwrap();
    shop.redis.send(&["HSET", &with, "another", "1"]).unwrap();
    let node = shop.serve("node");
    shop.is_held_by("are held by a Lowkiq server").await;
    assert_eq!(shop.number(&["EXISTS", IN_FLIGHT]), 1);
    shop.redis.send(&["HSET", &lengths, &shard, "1 seriatim other 5"]).unwrap();
    shop.is_held_by("are in flight in bridge \"other\"").await;
    // It ends, which deletes the whole hash; payloads of ids that are not its own stay.
    shop.redis
        .send(&["DEL", &with, &key(&format!("processing:ids_with_retry_count:{shard}"))])
        .unwrap();
    shop.redis.send(&["HDEL", &lengths, &shard]).unwrap();
    let works = Works::on_lowkiq(&store);
    works.have_got(2).await;
    eventually("nothing is left", async || shop.is_clean()).await;
    node.stop();
    assert_eq!(works.end().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_in_doubt_wait_for_a_decision_and_are_forgotten_as_lowkiq_forgets_them() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    leave(&shop, &mut lowkiq);
    shop.redis.send(&["HSET", IN_FLIGHT, "at", "1000"]).unwrap();
    let node = shop.serve("node");
    shop.is_held_by("2 jobs in doubt").await;
    let (done, told) = shop.run(&["bridge", "decide", "shop", "Shop::Sync", "--drop"]);
    assert!(done && told.contains("2 jobs: forgotten"), "{told}");
    eventually("nothing is left", async || shop.is_clean()).await;
    lowkiq.does("push 1 1");
    let works = Works::on_lowkiq(&store);
    works.have_got(1).await;
    node.stop();
    assert_eq!(works.end().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_a_check_of_lowkiq_tells_what_would_move_and_what_stays() {
    let shop = Shop::new(CONFIG);
    let mut lowkiq = shop.lowkiq();
    lowkiq.does("push 60 3");
    lowkiq.does("later 3600 far");
    shop.redis.send(&["ZADD", &key("morgue:all_ids_scored_by_updated_at"), "1", "old"]).unwrap();
    let mut told = String::new();
    let seen = monitored(&shop, || {
        let (is_ready, text) = shop.run(&["bridge", "check"]);
        assert!(is_ready, "{text}");
        told = text;
    });
    for part in [
        "queue:Shop::Sync: 61 jobs",
        "Shop::Sync: its morgue keeps 1 id: `dead = true` moves them",
        "cannot tell whether a Lowkiq server is running",
        "181",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let reads = [
        "INFO", "HGETALL", "LLEN", "ZCARD", "ZCOUNT", "ZRANGE", "ZSCORE", "CLIENT", "SELECT",
        "HELLO", "ECHO", "EVAL", "EVALSHA", "SCRIPT",
    ];
    for line in &seen {
        let command = line.split('"').nth(1).unwrap().to_uppercase();
        assert!(reads.contains(&command.as_str()), "{line}");
    }
}

/// The jobs of the queue in a state.
async fn jobs(store: &SharedStore, state: JobState) -> Vec<JobView> {
    store.jobs(JobQuery::new("Shop::Sync", state)).await.map_or(Vec::new(), |page| page.rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_failed_keeps_its_tries_and_its_error() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    lowkiq.does("failed often 6");
    lowkiq.does("push 1 1");
    let node = shop.serve("node");
    eventually("all left Lowkiq", async || shop.waiting() == 0 && shop.is_clean()).await;
    node.stop();
    store
        .declare(Declare { now: None, queues: vec![Queue::accumulate("Shop::Sync")] })
        .await
        .unwrap();
    let query = LaneQuery { order: LaneOrder::Key, ..LaneQuery::new("Shop::Sync") };
    let lanes = store.lanes(query).await.unwrap().rows;
    let told: Vec<_> = lanes
        .iter()
        .map(|lane| {
            (lane.key.as_deref().unwrap(), lane.jobs, lane.retry_count, lane.error.as_deref())
        })
        .collect();
    assert_eq!(told, [("id-0", 1, -1, None), ("often", 2, 6, Some("boom ü: often"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_morgue_of_lowkiq_moves_into_the_one_here_payload_by_payload() {
    let shop = Shop::new(&plain().replace("queues = [", "dead = true\nqueues = ["));
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    for id in 0..300 {
        lowkiq.does(&format!("died id-{id} 60"));
    }
    // Its name alone has nothing to move.
    let dead_ids = key("morgue:all_ids_scored_by_updated_at");
    shop.redis.send(&["ZADD", &dead_ids, "1", "empty"]).unwrap();
    let (is_ready, told) = shop.run(&["bridge", "check"]);
    assert!(is_ready && told.contains("morgue:Shop::Sync: 301 jobs"), "{told}");
    let node = shop.serve("node");
    eventually("all left Lowkiq", async || shop.is_clean()).await;
    node.stop();
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.dead, stats.jobs, stats.lanes), (600, 0, 0));
    let query = JobQuery { rows_max: 1_000, ..JobQuery::new("Shop::Sync", JobState::Dead) };
    let all = store.jobs(query).await.unwrap().rows;
    let of_one: Vec<&JobView> =
        all.iter().filter(|job| job.key.as_deref() == Some("id-7")).collect();
    let told: Vec<(Value, f64)> =
        of_one.iter().map(|job| (job.payload.to_value(), job.score)).collect();
    let wanted = |what: &str, score| (serde_json::json!([what, "id-7"]), score);
    assert_eq!(told, [wanted("first", 1.5), wanted("second", 2.5)]);
    assert!(of_one.iter().all(|job| job.error.as_deref() == Some("hopeless: id-7")), "{of_one:?}");
    let died = of_one[0].finished_at.unwrap();
    let ago = Timestamp::of_this_machine().since(died).as_secs();
    assert!((60..120).contains(&ago), "{ago}");
    let which = Selection::Keys(vec!["id-7".to_owned()]);
    let request = Selected { now: None, queue: "Shop::Sync".into(), which };
    assert_eq!(store.requeue(request).await.unwrap().count, 2);
    let works = Works::on_lowkiq(&store);
    works.have_got(2).await;
    let got = works.end().await;
    assert_eq!(
        got.iter().map(|(id, _, score)| (id.as_str(), *score)).collect::<Vec<_>>(),
        [("id-7", 1.5), ("id-7", 2.5)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_morgue_refuses_is_kept_beside_it_and_comes_back() {
    let shop = Shop::new(&plain().replace("queues = [", "dead = true\nqueues = ["));
    let store = shop.site.store().await;
    // No plain data: an object.
    let payload = "\u{4}\u{8}o:\u{b}Object\0";
    let (dead_ids, payloads) =
        (key("morgue:all_ids_scored_by_updated_at"), key("morgue:payloads:odd id"));
    let mut link = redis::Client::open(shop.redis.url()).unwrap().get_connection().unwrap();
    let mut write =
        |words: &[&str]| -> u64 { redis::cmd(words[0]).arg(&words[1..]).query(&mut link).unwrap() };
    write(&["ZADD", &key("morgue:all_ids_lex"), "0", "odd id"]);
    write(&["ZADD", &dead_ids, "1769860800.5", "odd id"]);
    write(&["ZADD", &payloads, "3", payload]);
    write(&["HSET", &key("morgue:errors"), "odd id", "why not"]);
    let node = shop.serve("node");
    let rejected = key("morgue:rejected");
    eventually("it is refused", async || shop.number(&["LLEN", &rejected]) == 1).await;
    assert_eq!(shop.number(&["ZCARD", &dead_ids]), 0);
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let (done, told) = shop.run(&["bridge", "return", "shop", "morgue:Shop::Sync"]);
    assert!(done, "{told}");
    node.stop();
    assert_eq!(
        shop.texts(&["ZRANGE", &dead_ids, "0", "-1", "WITHSCORES"]),
        ["odd id", "1769860800.5"]
    );
    assert_eq!(shop.texts(&["ZRANGE", &payloads, "0", "-1", "WITHSCORES"]), [payload, "3"]);
    assert_eq!(shop.texts(&["HGETALL", &key("morgue:errors")]), ["odd id", "why not"]);
    assert!(jobs(&store, JobState::Dead).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_due_later_moves_at_once_and_keeps_its_time() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    lowkiq.does("later 3600 far");
    let answer =
        shop.texts(&["ZRANGE", &key("all_ids_scored_by_perfrom_in"), "0", "-1", "WITHSCORES"]);
    let due: f64 = answer[1].parse().unwrap();
    let node = shop.serve("node");
    eventually("it left Lowkiq", async || shop.waiting() == 0 && shop.is_clean()).await;
    node.stop();
    let query = JobQuery::new("Shop::Sync", JobState::Queued);
    let job = store.jobs(query).await.unwrap().rows.remove(0);
    assert_eq!(job.key.as_deref(), Some("far"));
    assert!((job.run_at.as_secs_f64() - due).abs() < 0.001, "{due} {job:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_a_bridge_to_lowkiq_hears_of_what_is_pushed() {
    let added = b8_latency(&Shop::new(&plain())).await;
    // The figures are in docs/bridges.md. Each is pushed right after the one before was found, so a bridge that only looks every
    // 50 ms would take almost as long for each.
    assert!(added < std::time::Duration::from_millis(40), "{added:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_a_bridge_to_lowkiq_looks_again_and_again_where_redis_cannot_tell() {
    let shop = Shop::new(&plain());
    // As before version 6.
    shop.redis.send(&["ACL", "SETUSER", "default", "-client|tracking"]).unwrap();
    let added = b8_latency(&shop).await;
    assert!(added < std::time::Duration::from_millis(150), "{added:?}");
}

/// The time within which a quarter of 80 payloads come, each pushed when the one before has come. The others may wait for what
/// else runs on the machine.
async fn b8_latency(shop: &Shop) -> std::time::Duration {
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    let node = shop.serve("node");
    has_queue(&store).await;
    let (mut added, mut wakeups) = (Vec::new(), store.wakeups());
    for number in 0..=80_u64 {
        let (begun, at) = (Instant::now(), seriatim::Timestamp::of_this_machine());
        lowkiq.does("numbers 1 1000");
        let waiting = async || -> u64 {
            store.stats(None).await.unwrap().iter().map(|stats| stats.jobs).sum()
        };
        while waiting().await <= number {
            assert!(begun.elapsed() < crate::site::PATIENCE);
            wakeups.wait(std::time::Duration::from_millis(1)).await;
        }
        let query = seriatim::store::JobQuery::new("Shop::Sync", seriatim::store::JobState::Queued);
        let jobs = store.jobs(query).await.unwrap().rows;
        added.push(jobs.iter().map(|job| job.created_at).max().unwrap().since(at));
    }
    node.stop();
    // The first one waited for the start.
    added.remove(0);
    added.sort_unstable();
    let [quick, median, high] = [25, 50, 99].map(|part| added[added.len() * part / 100]);
    println!("added latency: p25 {quick:?}, p50 {median:?}, p99 {high:?}");
    quick
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_an_id_that_are_long_as_json_move_in_several_pushes() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    // 20 MiB there, 120 MiB as JSON.
    shop.lowkiq().does("long 30");
    let node = shop.serve("node");
    eventually("all left Lowkiq", async || shop.waiting() == 0 && shop.is_clean()).await;
    node.stop();
    let stats = store.stats(None).await.unwrap();
    assert_eq!(stats.iter().map(|stats| stats.jobs).sum::<u64>(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_cannot_move_as_a_whole_holds_its_queue_and_is_named() {
    let shop = Shop::new(&plain());
    let store = shop.site.store().await;
    let mut lowkiq = shop.lowkiq();
    lowkiq.does("push 1 10001");
    let (is_ready, told) = shop.run(&["bridge", "check"]);
    assert!(!is_ready && told.contains("id \"id-0\" has 10001 payloads"), "{told}");
    let node = shop.serve("node");
    shop.is_held_by("id \"id-0\" has 10001 payloads").await;
    shop.redis.send(&["DEL", &key("payloads:id-0")]).unwrap();
    shop.is_held_by("id \"id-0\" has no payload").await;
    assert_eq!(shop.waiting(), 1);
    let left = key("processing:payloads:id-0");
    shop.redis.send(&["ZADD", &left, "1", "of a server that died"]).unwrap();
    shop.is_held_by("id \"id-0\" is also held by a Lowkiq server").await;
    shop.redis.send(&["SET", &key("errors"), "of another type"]).unwrap();
    let said = "look at the types of seriatim:shop:inflight:queue:Shop::Sync, seriatim:shop:sequence:queue:Shop::Sync, lowkiq:A:v1:Shop::Sync:*";
    shop.is_held_by(said).await;
    assert_eq!((shop.waiting(), shop.number(&["EXISTS", IN_FLIGHT])), (1, 0));
    node.stop();
    drop(store);
}
