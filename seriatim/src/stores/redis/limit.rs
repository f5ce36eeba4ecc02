//! The bare limit: the least work in Redis that gives the same guarantees, to measure ourselves against.

use std::time::Instant;

use super::address;
use super::fault::translate;
use super::wire::Wire;
use crate::model::error::Result;

/// Takes the first of a ZSET and writes down who has them: KEYS ready, busy; ARGV how many.
const CLAIM: &str = "
local members = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
local busy = {}
for i, member in ipairs(members) do busy[2 * i - 1], busy[2 * i] = member, '7' end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #members - 1)
redis.call('HSET', KEYS[2], unpack(busy))
return members";

/// Jobs per second of two scripts for each batch: claim, then delete. `prefix` begins the two keys
/// that it uses, which it deletes before and after. A batch is 1 to 3,000 jobs.
pub async fn bare_limit(url: &str, prefix: &str, jobs: usize, batch: usize) -> Result<f64> {
    let (place, options) = address::read(url)?;
    let wire = Wire::open(place, &options).await?;
    // One tag, so that both lie in one slot of a cluster.
    let (ready, busy) = (format!("{prefix}:{{limit}}:ready"), format!("{prefix}:{{limit}}:busy"));
    let batch = batch.clamp(1, 3_000);
    let mut clear = redis::cmd("DEL");
    clear.arg(&ready).arg(&busy);
    wire.send(&clear).await.map_err(translate)?;
    for from in (0..jobs).step_by(batch) {
        let mut fill = redis::cmd("ZADD");
        fill.arg(&ready);
        for number in from..jobs.min(from + batch) {
            fill.arg(0).arg(format!("{number:016}"));
        }
        wire.send(&fill).await.map_err(translate)?;
    }
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let mut claim = redis::cmd("EVAL");
        claim.arg(CLAIM).arg(2).arg(&ready).arg(&busy).arg(batch);
        let claimed = wire.send(&claim).await.map_err(translate)?;
        let claimed: Vec<Vec<u8>> =
            redis::from_redis_value(claimed).map_err(|error| translate(error.into()))?;
        let mut finish = redis::cmd("HDEL");
        finish.arg(&busy).arg(&claimed);
        wire.send(&finish).await.map_err(translate)?;
        done += claimed.len();
    }
    let took = started.elapsed();
    wire.send(&clear).await.map_err(translate)?;
    Ok(jobs as f64 / took.as_secs_f64())
}
