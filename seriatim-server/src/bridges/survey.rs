//! Looks at a queue of Lowkiq as its bridge would, and writes nothing.

use redis::Pipeline;
use seriatim::Timestamp;

use super::member::Member;
use super::report::SourceReport;
use super::{Batch, ByQueue, Fault, Keys, Link, Routes, Source, ids};
use crate::base::text::count;

/// Most payloads after which no more ids are read, from the earliest due on; ids and payloads of one page.
const READ_MAX: u64 = 100_000;
const PAGE: usize = 500;

/// Looks at one queue, with what stays there in `notes`.
pub(super) async fn survey(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    (routes, moves_dead): (&ByQueue, bool),
    notes: &mut Vec<String>,
) -> Result<SourceReport, Fault> {
    let mut report = SourceReport { source: source.name(), ..SourceReport::default() };
    let (Source::Ids { queue, .. } | Source::Morgue(queue)) = source else { return Ok(report) };
    let Some(routes) = routes.get(queue) else { return Ok(report) };
    report.length = link.ask(redis::cmd("ZCARD").arg(keys.source(source))).await?;
    report.rejected = link.ask(redis::cmd("LLEN").arg(keys.rejected(source))).await?;
    if let Source::Ids { .. } = source {
        report.held = ids::others(link, keys, queue).await?;
    }
    match Batch::read(link, keys, source).await {
        Ok(batch) => report.in_flight = batch.map_or(0, |batch| batch.len() as u64),
        Err(Fault::Held(why)) => report.held = Some(why),
        Err(fault) => return Err(fault),
    }
    let jobs = |report: &SourceReport| report.classes.values().map(|class| class.jobs).sum::<u64>();
    while report.read < report.length && jobs(&report) < READ_MAX {
        let page = ids::page(link, (keys, source), report.read, PAGE).await?;
        if page.is_empty() {
            break;
        }
        match source {
            Source::Ids { shards, .. } => {
                look(link, keys, (queue, *shards), &page, routes, &mut report).await?;
            }
            _ => look_at_dead(link, keys, queue, &page, routes, &mut report).await?,
        }
    }
    if let (Source::Ids { .. }, false) = (source, moves_dead) {
        let morgue = keys.source(&Source::Morgue(queue.clone()));
        let dead: u64 = link.ask(redis::cmd("ZCARD").arg(morgue)).await?;
        if dead > 0 {
            notes.push(format!(
                "{queue}: its morgue keeps {}: `dead = true` moves them into the one here",
                count(dead, "id")
            ));
        }
    }
    Ok(report)
}

/// Looks at a page of dead ids.
async fn look_at_dead(
    link: &mut Link,
    keys: &Keys,
    queue: &str,
    page: &[(Vec<u8>, f64)],
    routes: &Routes,
    report: &mut SourceReport,
) -> Result<(), Fault> {
    let payloads = format!("{}payloads:", keys.morgue(queue));
    for (id, died_at) in page {
        report.read += 1;
        report.ours += 1;
        let key = [payloads.as_bytes(), id].concat();
        let count: u64 = link.ask(redis::cmd("ZCARD").arg(&key)).await?;
        look_at_payloads(link, &key, count, (queue, id, *died_at), routes, report).await?;
    }
    Ok(())
}

/// Looks at the payloads of an id.
async fn look_at_payloads(
    link: &mut Link,
    key: &[u8],
    count: u64,
    (queue, id, at): (&str, &[u8], f64),
    routes: &Routes,
    report: &mut SourceReport,
) -> Result<(), Fault> {
    let class = report.classes.entry(queue.to_owned()).or_default();
    for from in (0..count).step_by(PAGE) {
        let mut command = redis::cmd("ZRANGE");
        command.arg(key).arg(from).arg(from + PAGE as u64 - 1).arg("WITHSCORES");
        let some: Vec<(Vec<u8>, f64)> = link.ask(&command).await?;
        for (payload, score) in &some {
            class.jobs += 1;
            let (perform_in, retry_count, error) = (at, -1.0, &[][..]);
            let member = Member { perform_in, retry_count, score: *score, id, error, payload };
            match member.job(routes, "-".to_owned()) {
                Ok(job) => {
                    class.with_key += 1;
                    class.queue = Some(job.queue);
                }
                Err(refusal) => class.refuse(&refusal),
            }
        }
    }
    Ok(())
}

/// Looks at a page of ids.
async fn look(
    link: &mut Link,
    keys: &Keys,
    (queue, shards): (&str, u32),
    page: &[(Vec<u8>, f64)],
    routes: &Routes,
    report: &mut SourceReport,
) -> Result<(), Fault> {
    let prefix = keys.lowkiq(queue);
    let payloads_of = |id: &[u8]| [format!("{prefix}payloads:").as_bytes(), id].concat();
    let (mut places, mut counts) = (Pipeline::new(), Pipeline::new());
    for (id, _) in page {
        let shard = ids::shard(id, shards);
        places.cmd("ZSCORE").arg(format!("{prefix}ids_scored_by_perform_in:{shard}")).arg(id);
        counts.cmd("ZCARD").arg(payloads_of(id));
    }
    let places: Vec<Option<f64>> = link.ask_all(&places).await?;
    let counts: Vec<u64> = link.ask_all(&counts).await?;
    let now = Timestamp::of_this_machine().as_secs_f64();
    for (((id, perform_in), place), payloads) in page.iter().zip(places).zip(counts) {
        report.read += 1;
        report.ours += 1;
        report.age = Some(report.age.unwrap_or(0.0).max(now - perform_in));
        let shown = || String::from_utf8_lossy(id);
        if place.is_none() {
            report.held.get_or_insert_with(|| ids::misplaced(&shown(), shards));
        }
        if payloads == 0 || payloads > ids::ID_PAYLOADS_MAX as u64 {
            report.held.get_or_insert_with(|| ids::not_whole(&shown(), payloads));
            continue;
        }
        let of = (queue, id.as_slice(), *perform_in);
        look_at_payloads(link, &payloads_of(id), payloads, of, routes, report).await?;
    }
    Ok(())
}
