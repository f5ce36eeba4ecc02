//! What people see of a bridge, and what they decide.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use seriatim::{Client, Job, Timestamp};

use super::{CONFIG, Shop};
use crate::site::eventually;

/// Commands that Redis carries out, until a mark is echoed.
pub(super) fn monitored(shop: &Shop, body: impl FnOnce()) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", shop.redis.port())).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "+OK");
    body();
    shop.redis.send(&["ECHO", "the-end"]).unwrap();
    lines.take_while(|line| !line.contains("the-end")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_a_check_tells_what_would_move_and_writes_nothing() {
    let shop = Shop::new(CONFIG);
    let mut producer = shop.producer();
    producer.does("orders 700 7");
    producer.does("mails 3");
    producer.does("later 60 1");
    let (is_ready, told) = shop.run(&["bridge", "check"]);
    assert!(is_ready, "{told}");
    producer.does("keyless");
    let batch = r#"{"class":"Step","args":[1],"queue":"default","jid":"b","bid":"B"}"#;
    shop.redis.send(&["LPUSH", "queue:default", batch]).unwrap();
    shop.redis.send(&["LPUSH", "queue:default", "no job"]).unwrap();
    shop.redis.send(&["ZADD", "dead", "1", batch]).unwrap();
    shop.redis.send(&["LPUSH", "queue:sq|host:1|default", batch]).unwrap();
    let elsewhere = r#"{"class":"Mail","args":[1],"queue":"low","retry_queue":"low"}"#;
    let for_a_while = r#"{"class":"Mail","args":[1],"queue":"default","retry_for":3600}"#;
    shop.redis.send(&["ZADD", "retry", "1", elsewhere, "2", for_a_while]).unwrap();
    let mut told = String::new();
    let seen = monitored(&shop, || {
        let (is_ready, text) = shop.run(&["bridge", "check", "--json"]);
        assert!(!is_ready, "{text}");
        told = text;
    });
    let reads = [
        "INFO", "SMEMBERS", "HGET", "HGETALL", "LLEN", "ZCARD", "SCARD", "LRANGE", "ZRANGE",
        "SCAN", "CLIENT", "SELECT", "HELLO", "ECHO",
    ];
    for line in &seen {
        let command = line.split('"').nth(1).unwrap().to_uppercase();
        assert!(reads.contains(&command.as_str()), "{line}");
    }
    assert!(seen.len() > 10, "{seen:?}");
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    let bridge = &report["bridges"][0];
    let critical = &bridge["sources"][0];
    assert_eq!(
        (critical["source"].as_str(), critical["length"].as_u64()),
        (Some("queue:critical"), Some(701))
    );
    let orders = &critical["classes"]["OrderSync"];
    assert_eq!((orders["with_key"].as_u64(), orders["refused"].as_u64()), (Some(700), Some(1)));
    assert_eq!(orders["why"], "key: has nothing at /args/0");
    assert_eq!(bridge["sources"][1]["malformed"], 1);
    let notes = bridge["notes"].to_string();
    for part in [
        "1 job with `bid` belong",
        "1 job with `retry_for` are retried for a limited time",
        "left in the sets above: 1 job of queue \\\"low\\\"",
        "`dead` keeps 1 job",
        "queue:sq|host:1|default has jobs",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
    let (_, told) = shop.run(&["bridge", "check", "shop"]);
    assert!(told.contains("OrderSync") && told.contains("no Sidekiq process is alive"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_is_paused_and_resumed_as_a_whole_and_by_queue_also_before_it_ever_ran() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let (done, told) = shop.run(&["bridge", "pause", "shop", "--reason", "cut-over"]);
    assert!(done && told.contains("bridge shop is paused"), "{told}");
    let (done, told) = shop.run(&["bridge", "pause", "shpo"]);
    assert!(!done && told.contains("no bridge \"shpo\" (did you mean \"shop\"?)"), "{told}");
    let (done, told) = shop.run(&["bridge", "pause", "shop", "critcal"]);
    assert!(
        !done && told.contains("has no queue \"critcal\" (did you mean \"critical\"?)"),
        "{told}"
    );
    let mut producer = shop.producer();
    producer.does("mails 5");
    producer.does("orders 5 5");
    let node = shop.serve("node");
    let status = async |text: &str| {
        let what = format!("status shows {text:?}");
        eventually(&what, async || shop.run(&["bridge", "status"]).1.contains(text)).await;
    };
    status("cut-over").await;
    assert_eq!(shop.number(&["LLEN", "queue:default"]), 5);
    let (done, told) = shop.run(&["bridge", "resume", "shop", "default"]);
    assert!(!done && told.contains("all of bridge \"shop\" is paused"), "{told}");
    assert!(shop.run(&["bridge", "pause", "shop", "critical"]).0);
    // A queue that was paused by itself stays so.
    let (done, told) = shop.run(&["bridge", "resume", "shop"]);
    assert!(done && told.contains("is resumed; still paused: queue:critical"), "{told}");
    eventually("the mails moved", async || shop.number(&["LLEN", "queue:default"]) == 0).await;
    assert_eq!(shop.number(&["LLEN", "queue:critical"]), 5);
    assert!(shop.run(&["bridge", "resume", "shop", "critical"]).0);
    eventually("the orders moved", async || shop.number(&["LLEN", "queue:critical"]) == 0).await;
    assert!(shop.run(&["bridge", "pause", "shop", "critical"]).0);
    status("paused: by cli:").await;
    // A job that came while it waited for one is put back.
    let woken = "seriatim:shop:woken:queue:critical";
    producer.does("orders 5 5");
    eventually("it is back", async || {
        shop.number(&["LLEN", "queue:critical"]) == 5 && shop.number(&["EXISTS", woken]) == 0
    })
    .await;
    // Pro's own pause counts too.
    shop.redis.send(&["SADD", "paused", "default"]).unwrap();
    producer.does("mails 1");
    status("in Sidekiq").await;
    eventually("it is back", async || shop.number(&["LLEN", "queue:default"]) == 1).await;
    node.stop();
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_jobs_are_kept_beside_their_queue_and_come_back_when_the_routes_are_right() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mut producer = shop.producer();
    producer.does("orders 3 3");
    producer.does("keyless");
    producer.does("keyless");
    let node = shop.serve("node");
    eventually("two are refused", async || shop.number(&["LLEN", "rejected:critical"]) == 2).await;
    let doctor =
        async || shop.run(&["doctor"]).1.contains("2 jobs refused, and kept beside the source");
    eventually("the doctor knows", doctor).await;
    node.stop();
    let right = CONFIG.replace("key = \"/args/0\"", "key = \"/args/0\"\nmissing_key = \"none\"");
    std::fs::write(shop.site.path("seriatim.toml"), right).unwrap();
    let (done, told) = shop.run(&["bridge", "return", "shop", "critical"]);
    assert!(done && told.contains("2 refused jobs went back to critical"), "{told}");
    let node = shop.serve("again");
    eventually("all are here", async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "orders" && stats.jobs == 5)
    })
    .await;
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_throttled_keys_that_the_queue_refuses_are_kept_beside_their_source() {
    let throttled = "mode = \"fifo\"\nthrottle = \"1h\"\nthrottled = \"refuse\"";
    let shop = Shop::new(&CONFIG.replacen("mode = \"fifo\"", throttled, 1));
    let store = shop.site.store().await;
    shop.producer().does("orders 5 2");
    let jobs = async |count| {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "orders" && stats.jobs == count)
    };
    let node = shop.serve("node");
    eventually("three are kept", async || shop.number(&["LLEN", "rejected:critical"]) == 3).await;
    assert!(jobs(2).await, "one of each key was taken");
    let status = async || shop.run(&["bridge", "status", "--json"]).1.contains("\"throttled\":3");
    eventually("they are told", status).await;
    node.stop();
    let log = std::fs::read_to_string(shop.site.path("node.log")).unwrap();
    assert!(
        log.contains("throttled: refused: key") && log.contains("may be pushed again at"),
        "{log}"
    );
    std::fs::write(shop.site.path("seriatim.toml"), CONFIG).unwrap();
    let (done, told) = shop.run(&["bridge", "return", "shop", "critical"]);
    assert!(done && told.contains("3 refused jobs went back to critical"), "{told}");
    let node = shop.serve("again");
    eventually("all are here", async || jobs(5).await).await;
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_key_is_bound_to_another_place_is_kept_and_the_others_move_on() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let node = shop.serve("node");
    eventually("the store has queues", async || store.queues().await.unwrap().len() == 2).await;
    let bound = Job::new("orders", &1).unwrap().key("k1").consumer_group("eu");
    Client::new(store.clone()).push(bound).await.unwrap();
    let order = |key: &str| {
        format!(r#"{{"class":"OrderSync","args":["{key}",1],"queue":"critical","jid":"{key}"}}"#)
    };
    shop.redis.send(&["LPUSH", "queue:critical", &order("k1"), &order("k2")]).unwrap();
    eventually("one is kept", async || shop.number(&["LLEN", "rejected:critical"]) == 1).await;
    eventually("the other is here", async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "orders" && stats.jobs == 2)
    })
    .await;
    node.stop();
    let log = std::fs::read_to_string(shop.site.path("node.log")).unwrap();
    assert!(log.contains("job: ") && log.contains("key \"k1\" is bound to another"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_jobs_of_a_set_are_counted_and_come_back_into_it() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    // The text is no task: only the store refuses it, when it has left the set.
    let class = "x".repeat(300);
    let job = format!(r#"{{"class":"{class}","args":[1],"queue":"default","jid":"a"}}"#);
    shop.redis.send(&["ZADD", "rejected:set:schedule", "1.5", &job]).unwrap();
    let node = shop.serve("node");
    let doctor = async || {
        let told = shop.run(&["doctor"]).1;
        told.contains("bridge shop, schedule") && told.contains("1 job refused, and kept beside")
    };
    eventually("the doctor knows", doctor).await;
    let (done, told) = shop.run(&["bridge", "return", "shop", "schedule"]);
    assert!(!done && told.contains("bridge pause shop schedule"), "{told}");
    assert!(shop.run(&["bridge", "pause", "shop", "schedule"]).0);
    let (done, told) = shop.run(&["bridge", "return", "shop", "schedule"]);
    assert!(done && told.contains("1 refused job went back to schedule"), "{told}");
    let back = shop.texts(&["ZRANGE", "schedule", "0", "-1", "WITHSCORES"]);
    assert_eq!(back, [job, "1.5".to_owned()]);
    node.stop();
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_named_with_what_to_do() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    shop.redis.send(&["SET", "queue:default", "no list"]).unwrap();
    let node = shop.serve("node");
    let said = "look at the types of queue:default";
    eventually("the status says so", async || shop.run(&["bridge", "status"]).1.contains(said))
        .await;
    node.stop();
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_in_doubt_or_of_other_routes_wait_for_a_decision_and_hold_their_queue() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let in_flight = "seriatim:shop:inflight:queue:default";
    let element = |jid: &str| format!(r#"{{"class":"Mail","args":[1],"jid":"{jid}"}}"#);
    let leave = |at: &str, routes: &str| {
        let words = ["HSET", in_flight, "batch", "1", "run", "r", "at", at, "routes", routes, "1"];
        shop.redis.send(&[&words[..], &[&element("old")]].concat()).unwrap();
    };
    leave("1000", "of another configuration");
    shop.redis.send(&["LPUSH", "queue:default", &element("new")]).unwrap();
    let node = shop.serve("node");
    let status = async |text: &str| {
        let what = format!("status shows {text:?}");
        eventually(&what, async || shop.run(&["bridge", "status"]).1.contains(text)).await;
    };
    status("1 job in doubt").await;
    let (is_well, told) = shop.run(&["doctor"]);
    assert!(!is_well && told.contains("seriatim bridge decide shop default --again"), "{told}");
    let (done, told) = shop.run(&["bridge", "decide", "shop", "critical", "--drop"]);
    assert!(!done && told.contains("no job of \"critical\" is in doubt"), "{told}");
    assert!(!shop.run(&["bridge", "decide", "shop", "default"]).0);
    assert!(shop.run(&["bridge", "decide", "shop", "default", "--drop"]).0);
    let (_, told) = shop.run(&["audit", "--action", "decide"]);
    assert!(told.contains("bridge decide") && told.contains("name shop"), "{told}");
    let mails = async |count: u64| {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "mails" && stats.jobs == count)
    };
    eventually("the new one moved", async || mails(1).await).await;
    // Whoever decides to push again means the routes as they are.
    let now = Timestamp::of_this_machine().as_micros() / 1_000;
    leave(&now.to_string(), "of another configuration");
    shop.redis.send(&["LPUSH", "queue:default", &element("newer")]).unwrap();
    status("taken by other routes").await;
    assert!(shop.run(&["bridge", "decide", "shop", "default", "--again"]).0);
    eventually("both moved", async || mails(3).await).await;
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_was_dropped_is_no_longer_told_as_in_flight_or_in_doubt() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let (in_flight, old) =
        ("seriatim:shop:inflight:queue:default", r#"{"class":"Mail","args":[1],"jid":"old"}"#);
    let words = ["HSET", in_flight, "batch", "1", "run", "r", "at", "1000", "1", old];
    shop.redis.send(&words).unwrap();
    let node = shop.serve("node");
    let told = |text: &str| shop.run(&["bridge", "status", "--json"]).1.contains(text);
    eventually("both are told", async || told("\"in_flight\":1") && told("\"in_doubt\":1")).await;
    assert!(shop.run(&["bridge", "decide", "shop", "default", "--drop"]).0);
    eventually("nothing is in flight", async || !told("\"in_flight\":1")).await;
    assert!(told("queue:default") && !told("\"in_doubt\":1"));
    node.stop();
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_without_its_url_is_refused_before_anything_starts() {
    let shop = Shop::new(CONFIG);
    let output =
        shop.site.command(&["serve", "--no-http"]).env_remove("SIDEKIQ_REDIS").output().unwrap();
    let told = crate::site::text(&output);
    assert!(told.contains("variable SIDEKIQ_REDIS is not set"), "{told}");
    assert!(!shop.site.path("seriatim.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_to_be_a_job_goes_beside_its_queue_and_the_others_move_on() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let long = "for i = 1, 3 do redis.call('LPUSH', KEYS[1], '{\"args\":[\"' .. string.rep('x', 5000000) .. '\"]}') end";
    for part in
        [long, "return redis.call('LPUSH', KEYS[1], '{\"class\":\"A\",\"args\":[1]}')", long]
    {
        shop.redis.send(&["EVAL", part, "1", "queue:default"]).unwrap();
    }
    let peak = || -> u64 {
        let info = shop.redis.send(&["INFO", "memory"]).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory_peak:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = peak();
    let node = shop.serve("node");
    eventually("the long ones are kept", async || {
        shop.number(&["LLEN", "rejected:default"]) == 6
            && shop.number(&["LLEN", "queue:default"]) == 0
    })
    .await;
    eventually("the other one is here", async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "mails" && stats.jobs == 1)
    })
    .await;
    let grown = (peak() - before) >> 20;
    assert!(grown < 15, "by {grown} MiB: less than three of them");
    let doctor =
        async || shop.run(&["doctor"]).1.contains("6 jobs refused, and kept beside the source");
    eventually("the doctor knows", doctor).await;
    node.stop();
}
