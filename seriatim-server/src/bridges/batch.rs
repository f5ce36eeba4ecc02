//! A batch in flight: jobs that left their source, and what happens to them here.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim::limits::{PUSH_BYTES_MAX, PUSH_JOBS_MAX};
use seriatim::store::{Push, PushStatus, Store};
use seriatim::{ErrorKind, Job, RunAt, Timestamp};

use super::link::{NOTE, SETTLE, SETTLE_IDS};
use super::member::Member;
use super::twins::Twins;
use super::{ByQueue, Call, DEAD, Element, Fault, Keys, Link, Reason, Refusal, Source, ids};
use crate::base::text::count;

/// A batch can be pushed again for this long: later its queues may have forgotten its idempotency keys.
const DOUBT_AFTER: Duration = Duration::from_secs(50 * 60);

pub(super) struct Batch {
    id: String,
    pub(super) at: Timestamp,
    routes: String,
    run: String,
    /// In their order, each with its number.
    elements: Vec<(u64, Vec<u8>)>,
    /// How many with the same bytes came before, of the jobs that have any; as text.
    again: Option<String>,
}

/// What became of a batch.
#[derive(Default)]
pub(super) struct Done {
    pub(super) pushed: u64,
    pub(super) duplicates: u64,
    pub(super) refused: Vec<Refusal>,
}

impl Batch {
    /// The batch in flight, if there is one.
    pub(super) async fn read(
        link: &mut Link,
        keys: &Keys,
        source: &Source,
    ) -> Result<Option<Self>, Fault> {
        let fields: Vec<(Vec<u8>, Vec<u8>)> = match source {
            Source::Ids { queue, .. } => ids::in_flight(link, (keys, source), queue).await?,
            _ => link.ask(redis::cmd("HGETALL").arg(keys.in_flight(source))).await?,
        };
        if fields.is_empty() {
            return Ok(None);
        }
        let mut batch = Self {
            id: String::new(),
            at: Timestamp::default(),
            routes: String::new(),
            run: String::new(),
            elements: Vec::with_capacity(fields.len()),
            again: None,
        };
        for (name, value) in fields {
            let text = || String::from_utf8_lossy(&value).into_owned();
            match &*String::from_utf8_lossy(&name) {
                "batch" => batch.id = text(),
                "at" => {
                    let ms = text().parse::<i64>().unwrap_or(0);
                    batch.at = Timestamp::from_micros(ms.saturating_mul(1_000));
                }
                "routes" => batch.routes = text(),
                "run" => batch.run = text(),
                "again" => batch.again = Some(text()),
                number => {
                    let number = number.parse().map_err(|_| unknown(keys, source, number))?;
                    batch.elements.push((number, value));
                }
            }
        }
        batch.elements.sort_by_key(|(number, _)| *number);
        Ok(Some(batch))
    }

    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn taken_at(&self) -> Timestamp {
        self.at
    }

    /// Whether its queues may no longer know jobs of it that were pushed.
    pub(super) fn is_in_doubt(&self, now: Timestamp) -> bool {
        now.since(self.at) >= DOUBT_AFTER
    }

    /// Refuses what can be pushed only by another configuration, or not without a decision.
    pub(super) fn check(&self, mark: &str, now: Timestamp) -> Result<(), Fault> {
        if self.is_in_doubt(now) {
            return Err(Fault::Held(format!(
                "{} in doubt: the chunk left the source long ago, and it is no longer known whether it is here; decide with: seriatim bridge decide",
                count(self.len() as u64, "job")
            )));
        }
        // Without routes: a person has decided.
        if !self.routes.is_empty() && self.routes != mark {
            return Err(Fault::Foreign(format!(
                "{} in flight, taken by other routes: start a node with the earlier routes, or push them with the present ones: `seriatim bridge decide … --again`. Change routes only while nothing is in flight (pause the bridge first)",
                count(self.len() as u64, "job")
            )));
        }
        Ok(())
    }

    /// Numbers the jobs with the same bytes, as an earlier push of this batch did. Returns whether it is still in flight.
    pub(super) async fn number(
        &mut self,
        link: &mut Link,
        (keys, source): (&Keys, &Source),
        twins: &mut Twins,
    ) -> Result<bool, Fault> {
        let jobs = self.elements.iter().map(|(number, bytes)| (*number, bytes.as_slice()));
        let before = twins.number(&link.run, jobs);
        if before.is_empty() || self.again.is_some() {
            return Ok(true);
        }
        let mut script = Call::of(&NOTE);
        // Numbers only: writing them cannot fail.
        let note = serde_json::to_string(&before).unwrap_or_default();
        script.key(keys.in_flight(source)).arg(&self.id).arg(note);
        self.again = link.call(&script).await?;
        Ok(self.again.is_some())
    }

    /// Pushes it, and settles it in the source.
    pub(super) async fn push(
        &self,
        store: &dyn Store,
        link: &mut Link,
        (keys, source): (&Keys, &Source),
        routes: &ByQueue,
    ) -> Result<Done, Fault> {
        let (mut done, mut jobs, mut back) = (Done::default(), Vec::new(), Vec::new());
        let again = self.again.as_deref().map(serde_json::from_str::<BTreeMap<u64, usize>>);
        let again = again.and_then(Result::ok).unwrap_or_default();
        for (number, value) in &self.elements {
            match self.job(source, routes, *number, value) {
                Ok(job) => jobs.push((told_apart(job, again.get(number)), value)),
                Err(refusal) => {
                    done.refused.push(refusal);
                    back.push(value.as_slice());
                }
            }
        }
        while !jobs.is_empty() {
            let most = fitting(jobs.iter().map(|(job, _)| job));
            let some = jobs.iter().take(most).map(|(job, _)| job.clone()).collect();
            match store.push(Push { now: None, jobs: some }).await {
                Ok(pushed) => {
                    for ((job, value), one) in jobs.drain(..most).zip(pushed) {
                        match one.taken(job.key.as_deref()) {
                            Ok(_) if one.status == PushStatus::Duplicate => done.duplicates += 1,
                            Ok(_) => done.pushed += 1,
                            Err(error) => {
                                done.refused.push(Reason::Throttled.because(error.to_string()));
                                back.push(value.as_slice());
                            }
                        }
                    }
                }
                Err(error) => {
                    // None was pushed, because of one of them.
                    let place = refused_place(&error).filter(|place| *place < most);
                    let Some(place) = place else { return Err(error.into()) };
                    done.refused.push(Reason::Job.because(error.to_string()));
                    back.push(jobs.remove(place).1);
                }
            }
        }
        self.settle(link, (keys, source), &back).await?;
        Ok(done)
    }

    /// Forgets it in the source, and keeps there what was refused. Whether it was still there.
    pub(super) async fn settle(
        &self,
        link: &mut Link,
        (keys, source): (&Keys, &Source),
        refused: &[&[u8]],
    ) -> Result<bool, Fault> {
        let code = if matches!(source, Source::Ids { .. }) { &SETTLE_IDS } else { &SETTLE };
        let mut script = Call::of(code);
        script.key(keys.in_flight(source)).key(keys.rejected(source)).arg(&self.id);
        match source {
            Source::Ids { queue, .. } => script.prefix(keys.lowkiq(queue)).arg(&keys.bridge),
            _ => script.arg(source.kind()),
        };
        for value in refused {
            match source {
                Source::Set(_) => {
                    let (score, element) = scored(value);
                    script.arg(score).arg(element)
                }
                _ => script.arg(*value),
            };
        }
        Ok(link.call::<i64>(&script).await? > 0)
    }

    fn job(
        &self,
        source: &Source,
        routes: &ByQueue,
        number: u64,
        value: &[u8],
    ) -> Result<Job, Refusal> {
        let unnamed = || format!("{}-{number}", self.run);
        let not_ours = || Reason::Malformed.because("is of no queue of this bridge");
        match source {
            Source::Ids { queue, .. } => {
                let member = Member::read(value).ok_or_else(not_ours)?;
                member.job(routes.get(queue).ok_or_else(not_ours)?, unnamed())
            }
            Source::Queue(queue) => match routes.get(queue) {
                Some(routes) => routes.job(value, RunAt::Now, unnamed),
                None => Err(not_ours()),
            },
            Source::Morgue(queue) => {
                let member = Member::read(value).ok_or_else(not_ours)?;
                member.dead(routes.get(queue).ok_or_else(not_ours)?, unnamed())
            }
            Source::Set(set) => of_set(routes, set, scored(value), unnamed),
        }
    }
}

/// The job under another name than those with the same bytes that came before it.
fn told_apart(mut job: Job, before: Option<&usize>) -> Job {
    if let (Some(before), Some(name)) = (before, &mut job.options.idempotency_key) {
        *name = format!("{name}-{before}");
    }
    job
}

/// The job that a member of a set becomes; its score is when it is due, or died.
pub(super) fn of_set(
    routes: &ByQueue,
    set: &str,
    (score, element): (&[u8], &[u8]),
    unnamed: impl FnOnce() -> String,
) -> Result<Job, Refusal> {
    let queue = Element::read(element).map_err(|why| Reason::Malformed.because(why))?.queue();
    let routes = routes.get(&queue).ok_or_else(|| {
        Reason::Malformed.because(format!("is of queue {queue:?}, which is not of this bridge"))
    })?;
    let seconds: f64 =
        std::str::from_utf8(score).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let at = Timestamp::from_secs_f64(seconds.max(0.0));
    if set == DEAD {
        routes.dead(element, at, unnamed)
    } else {
        routes.job(element, RunAt::At(at), unnamed)
    }
}

/// A member of a set as it is in flight: behind its score.
fn scored(value: &[u8]) -> (&[u8], &[u8]) {
    match value.iter().position(|byte| *byte == b' ') {
        Some(place) => (&value[..place], &value[place + 1..]),
        None => (b"0", value),
    }
}

/// How many of these one push takes: as JSON, payloads of Lowkiq may be several times as long as they were.
fn fitting<'a>(jobs: impl Iterator<Item = &'a Job>) -> usize {
    let mut bytes = 0;
    let fits = jobs.take(PUSH_JOBS_MAX).take_while(|job| {
        bytes += job.payload.as_bytes().len();
        bytes <= PUSH_BYTES_MAX
    });
    // A job alone always fits.
    fits.count().max(1)
}

/// The job of a push that the store refuses. That its queue is being deleted will pass; that its key is bound to another
/// place may not.
fn refused_place(error: &seriatim::Error) -> Option<usize> {
    let (place, field) = error.field()?.strip_prefix("jobs[")?.split_once(']')?;
    let is_refused = match error.kind() {
        ErrorKind::Invalid => true,
        ErrorKind::Conflict => field == ".key",
        _ => false,
    };
    place.parse().ok().filter(|_| is_refused)
}

fn unknown(keys: &Keys, source: &Source, field: &str) -> Fault {
    Fault::Held(format!("{} has a field {field:?} that no bridge wrote", keys.in_flight(source)))
}
