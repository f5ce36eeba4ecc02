//! A store that an earlier build wrote is read by this one. A change of the layout raises its version, keeps this file,
//! and comes with a step that brings such a store to the new version. With `SERIATIM_WRITE_LAYOUT` set, the file is
//! written again; do this before the version is released.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::*;
use crate::Payload;
use crate::store::Fate;
use crate::stores::redis::compact::APART_BYTES_MIN;

const STORE: &str = include_str!("version_7.txt");
/// No index has its held and paused lanes.
const LAST: &str = include_str!("version_6.txt");
/// Failed jobs of its keys with many others are no longer plain.
const BEFORE: &str = include_str!("version_5.txt");
/// Its payloads are all in the records of their jobs.
const EARLIER: &str = include_str!("version_4.txt");
/// In the file, instead of the prefix of the keys.
const PREFIX: &str = "PREFIX";

type Link = ::redis::aio::MultiplexedConnection;

async fn link() -> Link {
    linked(&url()).await
}

async fn ask<T: ::redis::FromRedisValue>(link: &mut Link, words: &[&[u8]]) -> T {
    let mut cmd = ::redis::Cmd::new();
    cmd.arg(words);
    cmd.query_async(link).await.unwrap()
}

/// The commands that make a store: a line each, of words between tabs.
async fn dump(prefix: &str) -> String {
    let mut link = link().await;
    let mut keys: Vec<String> = ask(&mut link, &[b"KEYS", format!("{prefix}:*").as_bytes()]).await;
    keys.sort();
    let mut text = String::new();
    for key in keys.iter().filter(|key| !key.contains(":given_up")) {
        let name = key.as_bytes();
        let kind: String = ask(&mut link, &[b"TYPE", name]).await;
        let (write, read): (&str, Vec<&[u8]>) = match &*kind {
            "hash" => ("HSET", vec![b"HGETALL", name]),
            "list" => ("RPUSH", vec![b"LRANGE", name, b"0", b"-1"]),
            "set" => ("SADD", vec![b"SMEMBERS", name]),
            _ => ("ZADD", vec![b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"]),
        };
        let mut words: Vec<Vec<u8>> = ask(&mut link, &read).await;
        if kind == "zset" {
            words.chunks_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        write!(text, "{write}\t{}", key.replacen(prefix, PREFIX, 1)).unwrap();
        words.iter().for_each(|word| write!(text, "\t{}", word.escape_ascii()).unwrap());
        text.push('\n');
    }
    text
}

fn unescaped(word: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, (byte == b'\\').then(|| rest.next()).flatten()) {
            (_, Some(b't')) => b'\t',
            (_, Some(b'r')) => b'\r',
            (_, Some(b'n')) => b'\n',
            (_, Some(b'x')) => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            (_, Some(other)) => other,
            (plain, None) => plain,
        });
    }
    bytes
}

async fn restore(stored: &str, prefix: &str) {
    let mut link = link().await;
    for line in stored.lines() {
        let line = line.replacen(PREFIX, prefix, 1);
        let words: Vec<Vec<u8>> = line.split('\t').map(unescaped).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let _: i64 = ask(&mut link, &words).await;
    }
}

fn queues() -> Vec<Queue> {
    let (fifo, exclusive) = (Queue::fifo("fifo"), Queue::exclusive("exclusive"));
    vec![Queue::parallel("parallel"), fifo, Queue::accumulate("accumulate"), exclusive]
}

fn of(queue: &str, key: &str, tag: u32) -> Job {
    let job = Job::new(queue, &tag).unwrap();
    if queue == "parallel" { job } else { job.key(key) }
}

/// The same with a payload that is long.
fn padded(queue: &str, key: &str, tag: u32) -> Job {
    let text = format!("{}{tag}", " ".repeat(APART_BYTES_MIN));
    Job { payload: Payload::from_bytes(text), ..of(queue, key, tag) }
}

async fn claim_of(store: &Redis, queue: &str, lanes_max: usize) -> Vec<Turn> {
    store.claim(claim_request(queue, lanes_max)).await.unwrap().turns
}

fn failed(turn: &Turn) -> Settlement {
    let mut end = Settlement { rest: Fate::Keep, ..Settlement::done(turn.lane, turn.token) };
    end.keep.job = Some(turn.jobs[0].id);
    (end.keep.retry_count, end.keep.counted) = (0, true);
    end.keep.error = Some("it failed".into());
    end
}

/// In each queue: a long lane whose first turn failed, jobs out of order, one with options of its own, lanes of one job,
/// a scheduled one, and a claimed one; with `apart`, payloads that are not in the records of their jobs.
async fn fill(store: &Redis, apart: bool) {
    for queue in queues() {
        let name = queue.name.clone();
        declare(store, queue).await;
        push(store, (0..50).map(|tag| of(&name, "long", tag)).collect()).await;
        let turns = claim_of(store, &name, 1).await;
        store.settle(Settle::now(vec![failed(&turns[0])])).await.unwrap();
        push(store, vec![of(&name, "long", 50).score(-1.0), of(&name, "long", 51).priority(7)])
            .await;
        push(store, vec![of(&name, "long", 52).idempotency_key("once").expires_at(Timestamp::MAX)])
            .await;
        push(store, vec![of(&name, "one", 60), of(&name, "two", 61)]).await;
        if apart {
            push(store, vec![padded(&name, "long", 70), padded(&name, "three", 71)]).await;
            push(store, vec![padded(&name, "three", 72).idempotency_key("twice")]).await;
        }
        push(
            store,
            vec![of(&name, "later", 62).run_at(Timestamp::from_micros(2_000_000_000_000_000))],
        )
        .await;
        assert_eq!(claim_of(store, &name, 1).await.len(), 1);
    }
}

/// What is in a store: the numbers of each queue, and the jobs in the order in which they run.
async fn contents(store: &Redis) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for stats in store.stats(None).await.unwrap() {
        let name = stats.queue.clone();
        let mut text =
            format!("{} lanes, {} jobs, {} running", stats.lanes, stats.jobs, stats.claimed);
        let claims = ClaimSelection::Queue(name.clone());
        let release = Release { now: None, claims, lanes_max: 100, made_by: None };
        let held = store.release(release).await.unwrap();
        assert_eq!(held.len(), 1, "{name}");
        done(store, &held).await;
        let query = JobQuery { rows_max: 1_000, ..JobQuery::new(&*name, JobFilter::Live) };
        let listed = store.jobs(query).await.unwrap().rows.len();
        loop {
            let turns = claim_of(store, &name, 1).await;
            let Some(turn) = turns.first() else { break };
            let jobs = turn.jobs.iter().map(|job| {
                let tag: u32 = job.payload.decode().unwrap();
                format!("{tag}#{}", job.attempt)
            });
            write!(text, "; {}", jobs.collect::<Vec<_>>().join(" ")).unwrap();
            assert!(done(store, &turns).await[0].is_ok());
        }
        write!(text, "; {listed} listed").unwrap();
        found.insert(name.to_string(), text);
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_this_version_is_read_by_later_builds() {
    let new = new_prefix();
    let store = open(&new).await;
    fill(&store, true).await;
    if std::env::var_os("SERIATIM_WRITE_LAYOUT").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stores/redis/tests/version_7.txt");
        std::fs::write(path, dump(&new).await).unwrap();
        return;
    }
    let old = new_prefix();
    restore(STORE, &old).await;
    let earlier = open(&old).await;
    assert_eq!(contents(&earlier).await, contents(&store).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_of_the_versions_before_are_read_too() {
    for (stored, apart) in [(LAST, true), (BEFORE, true), (EARLIER, false)] {
        let (new, old) = (new_prefix(), new_prefix());
        let store = open(&new).await;
        fill(&store, apart).await;
        restore(stored, &old).await;
        let earlier = open(&old).await;
        assert_eq!(contents(&earlier).await, contents(&store).await);
    }
}
