//! Looks at a queue of Lowkiq as its bridge would, and writes nothing.

use redis::Pipeline;
use seriatim::Timestamp;

use super::batch::Batch;
use super::fault::Fault;
use super::ids;
use super::link::Link;
use super::member::Member;
use super::report::SourceReport;
use super::route::{ByQueue, Routes};
use super::source::{Keys, Source};
use crate::base::text::count;

/// Most payloads after which no more ids are read, from the earliest due on; ids and payloads of one page.
const READ_MAX: u64 = 100_000;
const PAGE: usize = 500;

/// Looks at one queue, with what stays there in `notes`.
pub(super) async fn survey(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    routes: &ByQueue,
    notes: &mut Vec<String>,
) -> Result<SourceReport, Fault> {
    let mut report = SourceReport { source: source.name(), ..SourceReport::default() };
    let Source::Ids { queue, shards } = source else { return Ok(report) };
    let Some(routes) = routes.get(queue) else { return Ok(report) };
    report.length = link.ask(redis::cmd("ZCARD").arg(keys.source(source))).await?;
    report.rejected = link.ask(redis::cmd("LLEN").arg(keys.rejected(source))).await?;
    report.held = ids::others(link, keys, queue).await?;
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
        look(link, keys, (queue, *shards), &page, routes, &mut report).await?;
    }
    let prefix = keys.lowkiq(queue);
    let mut command = redis::cmd("ZCARD");
    command.arg(format!("{prefix}morgue:all_ids_scored_by_updated_at"));
    let dead: u64 = link.ask(&command).await?;
    let mut command = redis::cmd("ZCOUNT");
    command.arg(format!("{prefix}all_ids_scored_by_retry_count")).arg(0).arg("+inf");
    let failed: u64 = link.ask(&command).await?;
    for (ids, what) in [
        (dead, "in its morgue: they stay there, a bridge does not move dead jobs"),
        (failed, "that failed: they move, and here their tries begin anew"),
    ] {
        if ids > 0 {
            notes.push(format!("{queue}: {} {what}", count(ids, "id")));
        }
    }
    Ok(report)
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
        let class = report.classes.entry(queue.to_owned()).or_default();
        for from in (0..payloads).step_by(PAGE) {
            let mut command = redis::cmd("ZRANGE");
            command.arg(payloads_of(id)).arg(from).arg(from + PAGE as u64 - 1).arg("WITHSCORES");
            let some: Vec<(Vec<u8>, f64)> = link.ask(&command).await?;
            for (payload, score) in &some {
                class.jobs += 1;
                let member = Member { perform_in: *perform_in, score: *score, id, payload };
                match member.job(routes, "-".to_owned()) {
                    Ok(job) => {
                        class.with_key += 1;
                        class.queue = Some(job.queue);
                    }
                    Err(refusal) => class.refuse(&refusal),
                }
            }
        }
    }
    Ok(())
}
