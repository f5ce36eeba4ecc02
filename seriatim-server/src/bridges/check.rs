//! Looks at what a bridge would do, and writes nothing.

use std::collections::BTreeMap;

use seriatim::Timestamp;

use super::batch::of_set;
use super::consumers::{self, Consumer};
use super::report::{Report, SourceReport};
use super::survey::survey;
use super::{Batch, ByQueue, DEAD, Element, Fault, Keys, Link, Routes, Source, route};
use crate::base::setup_error::SetupError;
use crate::base::text::count;
use crate::config::{BridgeConfig, Sets};

/// Most jobs of a source that are read, from the oldest on, and of one page.
const READ_MAX: u64 = 100_000;
const PAGE: u64 = 500;
/// Most keys that a step of the search for private lists looks at, and most of these lists.
const SCAN: u32 = 1_000;
const PRIVATE_MAX: usize = 100;
/// Most queues that are not of the bridge, and are named.
const QUEUES_MAX: usize = 20;
/// Patterns of lists in which other fetchers keep what they work on.
const PRIVATE: [&str; 2] = ["queue:sq|*", "working:queue:*"];
/// Fields that only Sidekiq's own code acts on, and what that means here.
const FIELDS: [(&str, &str); 7] = [
    ("bid", "belong to a batch: only a Ruby worker with Sidekiq Pro counts them"),
    ("lock_digest", "hold a lock of sidekiq-unique-jobs: only a Ruby worker releases it"),
    ("unique_for", "hold a lock of Sidekiq Enterprise: only a Ruby worker releases it"),
    ("encrypt", "have an encrypted last argument: only a Ruby worker reads it"),
    ("retry_queue", "are retried in another queue: only there in Sidekiq"),
    ("expires_in", "expire: only a Ruby worker knows when"),
    ("retry_for", "are retried for a limited time: only a Ruby worker knows how long"),
];

/// What is read of a bridge's Redis.
struct Look<'a> {
    link: Link,
    keys: Keys,
    bridge: &'a BridgeConfig,
    routes: ByQueue,
    consumers: Vec<Consumer>,
    /// How many jobs have each field.
    fields: BTreeMap<&'static str, u64>,
    /// How many jobs of the sets are of queues that the bridge does not take from.
    left: BTreeMap<String, u64>,
}

/// Looks at a bridge's Redis.
pub(crate) async fn check(bridge: &BridgeConfig, url: &str) -> Result<Report, String> {
    look(bridge, url).await.map_err(|fault| format!("bridge {:?}: {fault}", bridge.name))
}

async fn look(bridge: &BridgeConfig, url: &str) -> Result<Report, Fault> {
    let wrong = |error: SetupError| Fault::Held(error.to_string());
    let routes = route::of_bridge(bridge).map_err(wrong)?;
    let (mut link, keys) = (Link::open(url).await?, Keys::of(bridge));
    if bridge.lowkiq().is_some() {
        let (mut sources, mut notes) = (Vec::new(), Vec::new());
        for source in Source::of(bridge) {
            let of = (&keys, &source);
            sources.push(survey(&mut link, of, (&routes, bridge.dead), &mut notes).await?);
        }
        return Ok(Report::of(bridge, sources, None, notes));
    }
    let consumers = consumers::living(&mut link, &keys).await?;
    let (fields, left) = (BTreeMap::new(), BTreeMap::new());
    let mut look = Look { link, keys, bridge, routes, consumers, fields, left };
    let mut sources = Vec::new();
    for source in Source::of(bridge) {
        sources.push(look.source(&source).await?);
    }
    let notes = look.notes().await?;
    let consumers = look.consumers.into_iter().map(|one| one.identity).collect();
    Ok(Report::of(bridge, sources, Some(consumers), notes))
}

impl Look<'_> {
    async fn source(&mut self, source: &Source) -> Result<SourceReport, Fault> {
        let (key, rejected) = (self.keys.source(source), self.keys.rejected(source));
        let sizes = match source {
            Source::Queue(_) => "LLEN",
            Source::Set(_) | Source::Ids { .. } | Source::Morgue(_) => "ZCARD",
        };
        let mut report = SourceReport {
            source: source.name(),
            length: self.link.ask(redis::cmd(sizes).arg(&key)).await?,
            rejected: self.link.ask(redis::cmd(sizes).arg(rejected)).await?,
            held: self.held(source),
            ..SourceReport::default()
        };
        if let Some(batch) = Batch::read(&mut self.link, &self.keys, source).await? {
            report.in_flight = batch.len() as u64;
        }
        while report.read < report.length.min(READ_MAX) {
            let page = self.page(source, &key, report.read).await?;
            if page.is_empty() {
                break;
            }
            for (element, score) in page {
                self.add(source, &mut report, &element, &score);
            }
        }
        Ok(report)
    }

    /// Elements of a source with their scores, the oldest first.
    async fn page(
        &mut self,
        source: &Source,
        key: &str,
        from: u64,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let until = from + PAGE.cast_signed();
        match source {
            Source::Set(_) | Source::Ids { .. } | Source::Morgue(_) => {
                let mut command = redis::cmd("ZRANGE");
                command.arg(key).arg(from).arg(until - 1).arg("WITHSCORES");
                self.link.ask(&command).await
            }
            Source::Queue(_) => {
                let mut command = redis::cmd("LRANGE");
                command.arg(key).arg(-until).arg(-from - 1);
                let page: Vec<Vec<u8>> = self.link.ask(&command).await?;
                Ok(page.into_iter().rev().map(|element| (element, Vec::new())).collect())
            }
        }
    }

    fn add(&mut self, source: &Source, report: &mut SourceReport, bytes: &[u8], score: &[u8]) {
        report.read += 1;
        let Ok(element) = Element::read(bytes) else {
            // In a set it stays where it is.
            report.malformed += u64::from(matches!(source, Source::Queue(_)));
            return;
        };
        let queue = match source {
            Source::Queue(queue) => queue.clone(),
            Source::Set(_) | Source::Ids { .. } | Source::Morgue(_) => element.queue(),
        };
        let Some(routes) = self.routes.get(&queue) else {
            *self.left.entry(queue).or_default() += 1;
            return;
        };
        report.ours += 1;
        let age = element.since().map(|at| Timestamp::of_this_machine().since(at).as_secs_f64());
        report.age = report.age.into_iter().chain(age).reduce(f64::max);
        for (field, _) in FIELDS {
            *self.fields.entry(field).or_default() += u64::from(element.has(field));
        }
        let unnamed = || "-".to_owned();
        let job = match source {
            Source::Queue(_) => routes.job(bytes, seriatim::RunAt::Now, unnamed),
            Source::Set(_) | Source::Ids { .. } | Source::Morgue(_) => {
                of_set(&self.routes, &source.name(), (score, bytes), unnamed)
            }
        };
        let class = report.classes.entry(element.class).or_default();
        class.jobs += 1;
        match job {
            Ok(job) => {
                class.with_key += u64::from(job.key.is_some());
                class.queue = Some(job.queue);
            }
            Err(refusal) => class.refuse(&refusal),
        }
    }

    /// Why the bridge would take nothing from a source.
    fn held(&self, source: &Source) -> Option<String> {
        let Source::Queue(queue) = source else { return None };
        let is_keyed = self.routes.get(queue).is_some_and(Routes::are_keyed);
        let taker = self.consumers.iter().find(|consumer| is_keyed && consumer.takes(queue))?;
        Some(format!(
            "its jobs have keys, and Sidekiq process {} takes from it too: remove the queue from that process, or limit the routes with keys to other queues with `from`",
            taker.identity
        ))
    }

    async fn notes(&mut self) -> Result<Vec<String>, Fault> {
        let mut notes = Vec::new();
        for (field, means) in FIELDS {
            let jobs = self.fields.get(field).copied().unwrap_or_default();
            if jobs > 0 {
                notes.push(format!("{} with `{field}` {means}", count(jobs, "job")));
            }
        }
        for (queue, jobs) in self.left.iter().take(QUEUES_MAX) {
            notes.push(format!(
                "left in the sets above: {} of queue {queue:?}, which this bridge does not list",
                count(*jobs, "job")
            ));
        }
        let dead: u64 = self.link.ask(redis::cmd("ZCARD").arg(self.keys.theirs(DEAD))).await?;
        if dead > 0 && !self.bridge.dead {
            notes.push(format!(
                "`dead` keeps {}: `dead = true` moves those of the bridge's queues into the morgue",
                count(dead, "job")
            ));
        }
        if self.bridge.sets() == Sets::Due && !self.consumers.is_empty() {
            notes.push(
                "jobs in `schedule` and `retry` are left to Sidekiq while one of its processes lives"
                    .to_owned(),
            );
        }
        if self.bridge.sets() == Sets::Leave {
            notes.push("`schedule` and `retry` stay where they are: sets = \"leave\"".to_owned());
        }
        let cron: u64 =
            self.link.ask(redis::cmd("SCARD").arg(self.keys.theirs("cron_jobs"))).await?;
        if cron > 0 {
            notes.push(format!("{} of sidekiq-cron tick in Sidekiq's processes: replace them by [[cron]] when the last process ends", count(cron, "entry").replace("entrys", "entries")));
        }
        for key in self.private().await? {
            notes.push(format!("{key} has jobs of another fetcher, which are left to it"));
        }
        Ok(notes)
    }

    /// Lists of other fetchers.
    async fn private(&mut self) -> Result<Vec<String>, Fault> {
        let mut found = Vec::new();
        for pattern in PRIVATE {
            let pattern = self.keys.theirs(pattern);
            let mut cursor = 0_u64;
            loop {
                let mut command = redis::cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN);
                let (next, keys): (u64, Vec<String>) = self.link.ask(&command).await?;
                found.extend(keys);
                cursor = next;
                if cursor == 0 || found.len() >= PRIVATE_MAX {
                    break;
                }
            }
        }
        found.truncate(PRIVATE_MAX);
        Ok(found)
    }
}
