//! The ids of a queue of Lowkiq: taken as its own server takes them, all payloads of an id at once.

use seriatim::Timestamp;
use seriatim::limits::{PUSH_JOBS_MAX, TURN_BYTES_MAX};
use tokio::time::Duration;

use super::link::{READ_IDS, TAKE_IDS};
use super::{Call, Fault, Keys, Link, Source};
use crate::base::text::count;

/// Ids that one step looks at.
const LOOK_IDS_MAX: usize = 500;
/// Payloads of a batch, and the bytes at which it ends early; and those of one id, all of which move at once.
pub(super) const BATCH_PAYLOADS_MAX: usize = 500;
pub(super) const BATCH_BYTES_MAX: usize = TURN_BYTES_MAX;
pub(super) const ID_PAYLOADS_MAX: usize = PUSH_JOBS_MAX;
const ID_BYTES_MAX: usize = 32 << 20;
/// How often an empty queue is looked at: nothing in Lowkiq's Redis can be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most such looks of a bridge in a second, over all its queues.
const LOOKS_MAX: u32 = 200;

/// Between the number of ids in a shard, which Lowkiq reads, and the bridge with its batch.
const MARK: &str = " seriatim ";

/// How long to wait after a look at an empty queue, if the bridge has this many queues.
pub(super) fn rest(queues: usize) -> Duration {
    let queues = u32::try_from(queues).unwrap_or(u32::MAX);
    LOOK_EVERY.max(Duration::from_secs(1) * queues / LOOKS_MAX)
}

pub(super) fn shard(id: &[u8], shards: u32) -> u32 {
    crc32fast::hash(id) % shards.max(1)
}

/// Ids of a queue from a place on, the earliest due first.
pub(super) async fn page(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    from: u64,
    most: usize,
) -> Result<Vec<(Vec<u8>, f64)>, Fault> {
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.source(source)).arg(from).arg(from + most as u64 - 1).arg("WITHSCORES");
    link.ask(&command).await
}

/// Takes a batch: `none` if there is nothing, `held` if one is in flight, `taken` with its payloads.
pub(super) async fn take(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    (queue, shards): (&str, u32),
    mark: &str,
) -> Result<(String, u64), Fault> {
    let ids = page(link, (keys, source), 0, LOOK_IDS_MAX).await?;
    if ids.is_empty() {
        return Ok(("none".to_owned(), 0));
    }
    let mut script = Call::of(&TAKE_IDS);
    script.key(keys.in_flight(source)).key(keys.sequence(source));
    script.prefix(keys.lowkiq(queue)).arg(&keys.bridge);
    script.arg(BATCH_PAYLOADS_MAX).arg(BATCH_BYTES_MAX).arg(ID_PAYLOADS_MAX).arg(ID_BYTES_MAX);
    script.arg(Timestamp::of_this_machine().as_micros() / 1_000).arg(mark);
    script.arg(keys.run(source, &link.run));
    for (id, _) in &ids {
        script.arg(shard(id, shards)).arg(id);
    }
    let (word, number, about): (String, u64, Vec<u8>) = link.call(&script).await?;
    let about = String::from_utf8_lossy(&about);
    match &*word {
        "busy" => Err(Fault::Held(busy(&number.to_string(), &about))),
        "shards" => Err(Fault::Held(misplaced(&about, shards))),
        "left" => Err(Fault::Held(format!(
            "id {about:?} is also held by a Lowkiq server, or was left behind by one (keys processing:… of shard {number}): stop the server with TERM; if it died, start it once more first, so that it puts its ids back; delete what is left there after that"
        ))),
        "whole" => Err(Fault::Held(not_whole(&about, number))),
        _ => Ok((word, number)),
    }
}

/// The fields of the batch in flight with its payloads. What Lowkiq took back is not in it.
pub(super) async fn in_flight(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    queue: &str,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
    let mut script = Call::of(&READ_IDS);
    script.key(keys.in_flight(source)).prefix(keys.lowkiq(queue)).arg(&keys.bridge);
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = link.call(&script).await?;
    if let [(word, shard), (_, owner)] = fields.as_slice()
        && word == b"busy"
    {
        let text = String::from_utf8_lossy;
        return Err(Fault::Held(busy(&text(shard), &text(owner))));
    }
    if let Some((_, ids)) = fields.pop_if(|(name, _)| name == b"back")
        && ids != b"0"
    {
        let (bridge, ids) = (&keys.bridge, String::from_utf8_lossy(&ids));
        tracing::warn!(
            bridge,
            queue,
            "a Lowkiq server started and took back {ids} of the ids in flight: those that are already here run twice"
        );
    }
    Ok(fields)
}

/// The first shard that another process works on.
pub(super) async fn others(
    link: &mut Link,
    keys: &Keys,
    queue: &str,
) -> Result<Option<String>, Fault> {
    let lengths = keys.lowkiq(queue) + "processing_length_by_shard";
    let shards: Vec<(String, String)> = link.ask(redis::cmd("HGETALL").arg(lengths)).await?;
    let ours = format!("{MARK}{} ", keys.bridge);
    let other = shards.into_iter().find(|(_, owner)| !owner.contains(&ours));
    Ok(other.map(|(shard, owner)| busy(&shard, &owner)))
}

/// `owner`: what says whose the shard is.
fn busy(shard: &str, owner: &str) -> String {
    let bridge = owner.split_once(MARK).and_then(|(_, batch)| batch.rsplit_once(' '));
    if let Some((bridge, _)) = bridge {
        return format!(
            "ids of shard {shard} are in flight in bridge {bridge:?}: let it push them; if it no longer exists, start a Lowkiq server once, which puts them back, and stop it with TERM"
        );
    }
    format!(
        "ids of shard {shard} are held by a Lowkiq server, which works on this queue or died: a bridge and Lowkiq never share a queue. Stop it with TERM; if it died, start it once more first, so that it puts its ids back"
    )
}

/// Why an id with this many payloads cannot move.
pub(super) fn not_whole(id: &str, payloads: u64) -> String {
    match payloads {
        0 => format!(
            "id {id:?} has no payload, so Lowkiq itself would fail on it: remove it from the sets of this queue"
        ),
        _ => format!(
            "id {id:?} has {}, and may have {ID_PAYLOADS_MAX} and {ID_BYTES_MAX} bytes: let Lowkiq work on it first",
            count(payloads, "payload")
        ),
    }
}

pub(super) fn misplaced(id: &str, shards: u32) -> String {
    format!("id {id:?} is not in its shard by `shards_count` {shards}: write that of the module")
}
