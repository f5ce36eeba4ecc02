//! Redis's limit and size.

use std::time::Instant;

use redis::{Cmd, FromRedisValue};
use seriatim::{Result, store::Redis};

use super::shared::{BATCH, failed};

/// Two keys with the same hash tag, so that both are in one slot of a cluster.
const READY: &str = "bench:{limit}:ready";
const BUSY: &str = "bench:{limit}:busy";

/// Takes the first members of a ZSET and stores their holder: KEYS ready, busy; ARGV how many.
const CLAIM: &str = "
local members = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
local busy = {}
for i, member in ipairs(members) do busy[2 * i - 1], busy[2 * i] = member, '7' end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #members - 1)
redis.call('HSET', KEYS[2], unpack(busy))
return members";

/// Two scripts per batch: claim, then delete. The two keys are deleted before and after.
pub(super) async fn jobs_per_second(url: &str, jobs: usize) -> Result<f64> {
    let store = Redis::connect(url).await?;
    let mut clear = redis::cmd("DEL");
    clear.arg(READY).arg(BUSY);
    store.send(&clear).await?;
    for from in (0..jobs).step_by(BATCH) {
        let mut fill = redis::cmd("ZADD");
        fill.arg(READY);
        for number in from..jobs.min(from + BATCH) {
            fill.arg(0).arg(format!("{number:016}"));
        }
        store.send(&fill).await?;
    }
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let mut claim = redis::cmd("EVAL");
        claim.arg(CLAIM).arg(2).arg(READY).arg(BUSY).arg(BATCH);
        let claimed: Vec<Vec<u8>> = ask(&store, &claim).await?;
        let mut finish = redis::cmd("HDEL");
        finish.arg(BUSY).arg(&claimed);
        store.send(&finish).await?;
        done += claimed.len();
    }
    let took = started.elapsed();
    store.send(&clear).await?;
    Ok(jobs as f64 / took.as_secs_f64())
}

/// Memory that the server uses in total (`used_memory`), in bytes; in a cluster, of one server.
pub(super) async fn bytes(url: &str) -> Result<u64> {
    let store = Redis::connect(url).await?;
    let text: String = ask(&store, redis::cmd("INFO").arg("memory")).await?;
    let bytes =
        text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    Ok(bytes.unwrap_or_default())
}

async fn ask<T: FromRedisValue>(store: &Redis, command: &Cmd) -> Result<T> {
    redis::from_redis_value(store.send(command).await?).map_err(failed)
}
