//! Jobs that go back to Sidekiq.

use std::process::Stdio;

use seriatim::store::{JobQuery, JobState};
use seriatim::{Batch, Engine, Failure};

use super::{ROUND, Shop, rounds};
use crate::site::{Serving, eventually};

/// The whole job is the payload, so that it can go back.
const CONFIG: &str = r#"
[queues.critical]
mode = "fifo"
[queues.default]
mode = "parallel"
backoff = { kind = "constant", base = "1h" }
[[bridges]]
name = "shop"
kind = "sidekiq"
url_env = "SIDEKIQ_REDIS"
queues = ["critical", "default"]
sets = "all"
[[bridges.routes]]
from = "critical"
key = "/args/0"
"#;

/// The second arguments of jobs in a list, the next one first.
fn numbers(shop: &Shop, list: &str) -> Vec<u64> {
    let number = |job: &str| {
        let job: serde_json::Value = serde_json::from_str(job).unwrap();
        job["args"][1].as_u64().unwrap()
    };
    let jobs = shop.texts(&["LRANGE", list, "0", "-1"]);
    let mut all: Vec<u64> = jobs.iter().map(|job| number(job)).collect();
    all.reverse();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_what_came_goes_back_in_order_and_once_however_often_the_export_is_killed() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mut producer = shop.producer();
    let jobs = rounds() * ROUND;
    producer.does(&format!("bulk {jobs} 100"));
    let node = shop.serve("node");
    let waiting = async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().find(|stats| &*stats.queue == "critical").map_or(0, |stats| stats.jobs)
    };
    eventually("all came", async || waiting().await == jobs).await;
    let (done, told) = shop.run(&["export", "critical", "--to", "sidekiq"]);
    assert!(!done && told.contains("queue critical is not paused: pause it first"), "{told}");
    assert!(shop.run(&["queues", "pause", "critical"]).0);
    let (done, told) = shop.run(&["export", "critical", "--to", "sidekiq"]);
    assert!(!done && told.contains("would take the returned jobs from critical again"), "{told}");
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let paused = async || shop.run(&["bridge", "status"]).1.matches("paused: by").count() == 4;
    eventually("it is paused", paused).await;
    // A newcomer, which is the last one.
    producer.does("orders 1 100");
    let (mut kills, most) = (0, (jobs as usize / 5_000).clamp(5, 20));
    loop {
        let before = shop.number(&["LLEN", "queue:critical"]);
        let mut command = shop.command(&["export", "critical", "--to", "sidekiq"]);
        let mut export = Serving(command.stdout(Stdio::null()).spawn().unwrap());
        let mut ended = None;
        eventually("something went back, or all", async || {
            shop.number(&["LLEN", "queue:critical"]) > before || is_over(&export)
        })
        .await;
        if kills < most {
            export.0.kill().unwrap();
            kills += 1;
        } else {
            ended = Some(export.0.wait().unwrap());
        }
        export.0.wait().unwrap();
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
    }
    assert_eq!(waiting().await, 0);
    assert_eq!(numbers(&shop, "queue:critical"), (0..=jobs).collect::<Vec<_>>());
    // A kill between the end of jobs here and that of their markers leaves these of a step, for a while.
    let markers = shop.texts(&["KEYS", "seriatim:shop:export:*"]);
    assert!(markers.len() <= kills * 500, "{}", markers.len());
    for marker in markers {
        assert!(shop.number(&["TTL", &marker]) > 0, "{marker}");
    }
    // There again: nothing is taken for what was there before.
    assert!(shop.run(&["bridge", "resume", "shop"]).0);
    eventually("all came again", async || waiting().await == jobs + 1).await;
    node.stop();
}

/// Whether the process has ended.
fn is_over(process: &Serving) -> bool {
    !crate::site::is_alive(i32::try_from(process.0.id()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_jobs_of_all_four_states_go_back_to_where_sidekiq_has_them() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mut producer = shop.producer();
    producer.does("later 3600 1");
    let push = |class: &str, retry: &str, jid: &str| {
        let job = format!(
            r#"{{"class":"{class}","args":[98765432109876543210],"retry":{retry},"queue":"default","jid":"{jid}","created_at":1769860800.25,"enqueued_at":1769860800.26,"tags":["a"]}}"#
        );
        shop.redis.send(&["LPUSH", "queue:default", &job]).unwrap();
    };
    push("Fails", "5", "b4a577edbccf1d805744efa1");
    push("Dies", "false", "b4a577edbccf1d805744efa2");
    let node = shop.serve("node");
    let count = async |state: JobState| {
        store.jobs(JobQuery::new("default", state)).await.map_or(0, |page| page.rows.len())
    };
    eventually("all came", async || count(JobState::Queued).await == 3).await;
    node.stop();
    // One has a try left, one has none.
    let engine = Engine::builder(store.clone())
        .worker("default", |_: Batch<serde_json::Value>| async move {
            Err::<(), Failure>("on purpose".into())
        });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let engine = tokio::spawn(engine.run_until(stopped));
    eventually("one failed, one died", async || {
        let stats = store.stats(None).await.unwrap();
        let mut mails = stats.iter().filter(|stats| &*stats.queue == "default");
        mails.any(|stats| stats.retrying == 1 && stats.dead == 1)
    })
    .await;
    stop.send(()).unwrap();
    engine.await.unwrap().unwrap();
    let raw = r#"{"class":"Mail","args":[7],"jid":"b4a577edbccf1d805744efa3"}"#;
    let waits =
        seriatim::Job::with_payload("default", seriatim::Payload::from_json_text(raw).unwrap());
    store.pause_queue("default".into(), true).await.unwrap();
    seriatim::Client::new(store.clone()).push(waits).await.unwrap();
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let (done, told) = shop.run(&["export", "default", "--to", "sidekiq"]);
    let said = "given back to Sidekiq: 1 to their queue, 1 to schedule, 1 to retry, 1 to dead";
    assert!(done && told.contains(said), "{told}");
    let mail = shop.redis.send(&["LRANGE", "queue:default", "0", "-1"]).unwrap();
    assert!(
        mail.contains(r#""jid":"b4a577edbccf1d805744efa3""#) && mail.contains("enqueued_at"),
        "{mail}"
    );
    let retry = shop.redis.send(&["ZRANGE", "retry", "0", "-1"]).unwrap();
    for part in [
        r#""retry_count":0"#,
        r#""error_message":"on purpose""#,
        "[98765432109876543210]",
        r#""tags":["a"]"#,
    ] {
        assert!(retry.contains(part), "{part}: {retry}");
    }
    assert!(shop.redis.send(&["ZRANGE", "dead", "0", "-1"]).unwrap().contains(r#""class":"Dies""#));
    assert_eq!(shop.number(&["ZCARD", "schedule"]), 1);
    // A payload that is no job of Sidekiq: none goes back.
    let foreign = seriatim::Job::new("default", &serde_json::json!({ "a": 1 })).unwrap();
    seriatim::Client::new(store.clone()).push(foreign).await.unwrap();
    let (done, told) = shop.run(&["export", "default", "--to", "sidekiq"]);
    assert!(!done && told.contains("nothing was given back: job"), "{told}");
}

/// Puts this many jobs into a queue and as many into each set: due in an hour, failed, dead.
const FOUR_STATES: &str = r#"
local jobs, now = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 1, jobs do
  local function job(state, more)
    return string.format('{"class":"Mail","args":[%d,98765432109876543210],"queue":"default","jid":"%s%020d",'
      .. '"retry":25,"created_at":%d.25%s}', i, state, i, now, more)
  end
  local failed = ',"retry_count":3,"error_class":"E","error_message":"on purpose","failed_at":1769860801.5'
  redis.call('LPUSH', 'queue:default', job('wait', ',"enqueued_at":1769860801.5'))
  redis.call('ZADD', 'schedule', now + 3600 + i / 8, job('soon', ''))
  redis.call('ZADD', 'retry', now + 7200 + i / 8, job('fail', failed))
  redis.call('ZADD', 'dead', now - i / 8, job('dead', failed))
end
redis.call('SADD', 'queues', 'default')"#;
const SETS: [&str; 3] = ["schedule", "retry", "dead"];

/// The ids in the queue, the next one first, and in each set with their times in eighths of a second.
fn four_states(shop: &Shop) -> [Vec<(String, i64)>; 4] {
    let jid = |job: &str| {
        assert!(job.contains(",98765432109876543210]"), "{job}");
        let job: serde_json::Value = serde_json::from_str(job).unwrap();
        job["jid"].as_str().unwrap().to_owned()
    };
    let queue = shop.texts(&["LRANGE", "queue:default", "0", "-1"]);
    let sets = SETS.map(|set| {
        let members = shop.texts(&["ZRANGE", set, "0", "-1", "WITHSCORES"]);
        let eighths = |time: &str| (time.parse::<f64>().unwrap() * 8.0).round() as i64;
        members.chunks(2).map(|pair| (jid(&pair[0]), eighths(&pair[1]))).collect()
    });
    let [schedule, retry, dead] = sets;
    [queue.iter().rev().map(|job| (jid(job), 0)).collect(), schedule, retry, dead]
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_jobs_of_all_four_states_are_the_same_after_kills_on_the_way_here_and_back() {
    let shop = Shop::new(&CONFIG.replace("sets = \"all\"", "sets = \"all\"\ndead = true"));
    let store = shop.site.store().await;
    let of_each = rounds() * ROUND / 4;
    let (now, jobs) =
        (seriatim::Timestamp::of_this_machine().as_micros() / 1_000_000, of_each.to_string());
    shop.redis.send(&["EVAL", FOUR_STATES, "0", &jobs, &now.to_string()]).unwrap();
    let there = four_states(&shop);
    assert!(there.iter().all(|jobs| jobs.len() as u64 == of_each));
    let left = || {
        let sets: u64 = SETS.iter().map(|set| shop.number(&["ZCARD", set])).sum();
        sets + shop.number(&["LLEN", "queue:default"])
    };
    let kills = (of_each as usize / 1_000).clamp(2, 10);
    for _ in 0..kills {
        let (node, before) = (shop.serve("node"), left());
        eventually("the bridge moves", async || before == 0 || left() < before).await;
        drop(node);
    }
    let node = shop.serve("node");
    let came = async || {
        let stats = store.stats(None).await.unwrap();
        let of_queue = stats.iter().find(|stats| &*stats.queue == "default");
        of_queue.is_some_and(|stats| stats.jobs == 3 * of_each && stats.dead == of_each)
    };
    eventually("all came, each once", came).await;
    assert!(shop.run(&["queues", "pause", "default"]).0);
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let paused = async || shop.run(&["bridge", "status"]).1.matches("paused: by").count() == 5;
    eventually("it is paused", paused).await;
    node.stop();
    for _ in 0..kills {
        let before = left();
        let mut command = shop.command(&["export", "default", "--to", "sidekiq"]);
        let export = Serving(command.stdout(Stdio::null()).spawn().unwrap());
        eventually("something went back", async || left() > before || is_over(&export)).await;
        drop(export);
    }
    let (done, told) = shop.run(&["export", "default", "--to", "sidekiq"]);
    assert!(done, "{told}");
    let back = four_states(&shop);
    assert_eq!(back, there);
}

/// The only job of a set, without what an export adds.
fn only(shop: &Shop, set: &str) -> serde_json::Value {
    let jobs = shop.texts(&["ZRANGE", set, "0", "-1"]);
    let [job] = jobs.as_slice() else { panic!("{set} has {} jobs", jobs.len()) };
    let mut job: serde_json::Value = serde_json::from_str(job).unwrap();
    job.as_object_mut().unwrap().remove("seriatim_returned_at");
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_what_failed_and_died_in_sidekiq_itself_comes_and_goes_back_with_its_history() {
    let shop = Shop::new(&CONFIG.replace("sets = \"all\"", "sets = \"all\"\ndead = true"));
    let store = shop.site.store().await;
    let sidekiq = shop.sidekiq("default");
    shop.producer().does("failing");
    eventually("one failed, one died", async || {
        shop.number(&["ZCARD", "retry"]) == 1 && shop.number(&["ZCARD", "dead"]) == 1
    })
    .await;
    sidekiq.kill();
    shop.redis.send(&["DEL", "processes"]).unwrap();
    let there = (only(&shop, "retry"), only(&shop, "dead"));
    let scores = |set: &str| shop.texts(&["ZRANGE", set, "0", "-1", "WITHSCORES"]).remove(1);
    let score = scores("dead").parse::<f64>().unwrap();
    let node = shop.serve("node");
    let count = async |state: JobState| {
        store.jobs(JobQuery::new("default", state)).await.map_or(0, |page| page.rows.len())
    };
    eventually("both came", async || {
        count(JobState::Queued).await == 1 && count(JobState::Dead).await == 1
    })
    .await;
    let failed =
        store.jobs(JobQuery::new("default", JobState::Queued)).await.unwrap().rows.remove(0);
    assert_eq!((failed.retry_count, failed.attempt), (0, 1));
    assert_eq!(failed.error.as_deref(), Some("RuntimeError: on purpose"));
    let died = store.jobs(JobQuery::new("default", JobState::Dead)).await.unwrap().rows.remove(0);
    assert_eq!(died.error.as_deref(), Some("RuntimeError: hopeless"));
    assert!((died.finished_at.unwrap().as_secs_f64() - score).abs() < 0.001, "{died:?}");
    assert!(shop.run(&["queues", "pause", "default"]).0);
    // Each place that the bridge takes from must be paused.
    for (source, taken) in
        [("default", "jobs from schedule"), ("schedule", "jobs from retry"), ("retry", "dead jobs")]
    {
        assert!(shop.run(&["bridge", "pause", "shop", source]).0);
        let (done, told) = shop.run(&["export", "default", "--to", "sidekiq"]);
        let said = format!("would take the returned {taken} again: pause it first");
        assert!(!done && told.contains(&said), "{told}");
    }
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let (done, told) = shop.run(&["export", "default", "--to", "sidekiq"]);
    assert!(done && told.contains("1 to retry, 1 to dead"), "{told}");
    node.stop();
    let mut back = (only(&shop, "retry"), only(&shop, "dead"));
    for (there, back) in [(&there.0, &mut back.0), (&there.1, &mut back.1)] {
        // Its old place in a queue, which only jobs of a queue have.
        back["enqueued_at"] = there["enqueued_at"].clone();
        assert_eq!(back, there);
    }
    assert!((scores("dead").parse::<f64>().unwrap() - score).abs() < 0.001);
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_an_export_that_redis_refuses_counts_nothing_as_given() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    shop.producer().does("bulk 30 3");
    let node = shop.serve("node");
    let waiting = async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().find(|stats| &*stats.queue == "critical").map_or(0, |stats| stats.jobs)
    };
    eventually("all came", async || waiting().await == 30).await;
    node.stop();
    assert!(shop.run(&["queues", "pause", "critical"]).0);
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    shop.redis.send(&["DEL", "queues"]).unwrap();
    shop.redis.send(&["SET", "queues", "of another kind"]).unwrap();
    for _ in 0..2 {
        let (done, told) = shop.run(&["export", "critical", "--to", "sidekiq"]);
        assert!(!done && told.contains("WRONGTYPE"), "{told}");
    }
    shop.redis.send(&["DEL", "queues"]).unwrap();
    let (done, told) = shop.run(&["export", "critical", "--to", "sidekiq"]);
    assert!(done && told.contains("30"), "{told}");
    assert_eq!(numbers(&shop, "queue:critical"), (0..30).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_what_comes_while_an_export_runs_goes_behind_what_went_back() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mut producer = shop.producer();
    // Two pages.
    producer.does("bulk 600 3");
    let node = shop.serve("node");
    eventually("all came", async || {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "critical" && stats.jobs == 600)
    })
    .await;
    node.stop();
    assert!(shop.run(&["queues", "pause", "critical"]).0);
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    // It comes there, and stays the last one.
    producer.does("orders 1 3");
    // The export has seen the jobs when it begins to give.
    shop.redis.send(&["CLIENT", "PAUSE", "60000", "WRITE"]).unwrap();
    let mut command = shop.command(&["export", "critical", "--to", "sidekiq"]);
    let mut export = Serving(command.stdout(Stdio::null()).spawn().unwrap());
    let gives = async || shop.redis.send(&["CLIENT", "LIST"]).unwrap().contains("cmd=eval");
    eventually("it gives", gives).await;
    let client = seriatim::Client::new(store.clone());
    for number in [1_000, 1_001] {
        let job = format!(
            r#"{{"class":"OrderSync","args":["0",{number}],"queue":"critical","jid":"{number:024}"}}"#
        );
        let payload = seriatim::Payload::from_json_text(&job).unwrap();
        client.push(seriatim::Job::with_payload("critical", payload).key("0")).await.unwrap();
    }
    shop.redis.send(&["CLIENT", "UNPAUSE"]).unwrap();
    assert!(export.0.wait().unwrap().success());
    let expected: Vec<u64> = (0..600).chain([1_000, 1_001, 600]).collect();
    assert_eq!(numbers(&shop, "queue:critical"), expected);
    let (_, told) = shop.run(&["audit", "--action", "export"]);
    assert!(told.contains("queue export") && told.contains("queue critical"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_an_export_waits_for_what_a_killed_node_has_in_hand_whatever_it_reported() {
    let shop = Shop::new(CONFIG);
    let store = shop.site.store().await;
    let mail =
        |jid: &str| format!(r#"{{"class":"Mail","args":[1],"queue":"default","jid":"{jid}"}}"#);
    let waiting = async |count: u64| {
        let stats = store.stats(None).await.unwrap();
        stats.iter().any(|stats| &*stats.queue == "default" && stats.jobs == count)
    };
    shop.redis.send(&["LPUSH", "queue:default", &mail("first")]).unwrap();
    let node = shop.serve("node");
    eventually("it came", async || waiting(1).await).await;
    // Before that it does not stop well.
    shop.site.said("node", "serving", &store).await;
    node.stop();
    assert!(shop.run(&["queues", "pause", "default"]).0);
    assert!(shop.run(&["bridge", "pause", "shop"]).0);
    let export = || shop.run(&["export", "default", "--to", "sidekiq"]);
    // As a node leaves it that was killed between two reports.
    let now = (seriatim::Timestamp::of_this_machine().as_micros() / 1_000).to_string();
    let (in_flight, second) = ("seriatim:shop:inflight:queue:default", mail("second"));
    let batch = ["HSET", in_flight, "batch", "1", "run", "r", "at", now.as_str()];
    shop.redis.send(&[&batch[..], &["1", second.as_str()]].concat()).unwrap();
    let (done, told) = export();
    let said = "bridge shop, queue:default: a chunk is in flight: start a node";
    assert!(!done && told.contains(said), "{told}");
    let node = shop.serve("again");
    eventually("it came, although the bridge is paused", async || waiting(2).await).await;
    shop.site.said("again", "serving", &store).await;
    node.stop();
    let woken = "seriatim:shop:woken:queue:critical";
    shop.redis.send(&["LPUSH", woken, &mail("third")]).unwrap();
    let (done, told) = export();
    let said = "bridge shop, queue:critical: a job is not back in its queue: start a node";
    assert!(!done && told.contains(said), "{told}");
    let node = shop.serve("third");
    eventually("it is back", async || shop.number(&["LLEN", "queue:critical"]) == 1).await;
    shop.site.said("third", "serving", &store).await;
    node.stop();
    let (done, told) = export();
    assert!(done && told.contains("2 to their queue"), "{told}");
    assert_eq!(shop.number(&["LLEN", "queue:default"]), 2);
}
