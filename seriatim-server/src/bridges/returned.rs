//! A job of this store, as Sidekiq keeps it.

use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use seriatim::Timestamp;
use seriatim::store::{JobState, JobView};

use super::element::Element;

/// From here on a time is in milliseconds: see `element.rs`.
const MILLISECONDS_FROM: f64 = 1e11;
/// Length of the ids that Sidekiq gives.
const JID_CHARS: usize = 24;
/// The class of errors of jobs that failed here.
const ERROR_CLASS: &str = "Seriatim";

/// Where a job goes, as the script counts its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Queue = 2,
    Schedule = 3,
    Retry = 4,
    Dead = 5,
}

/// A job for Sidekiq.
pub(super) struct Returned {
    pub(super) place: Place,
    /// When it is due, or died, in seconds; of no meaning in a queue.
    pub(super) score: f64,
    pub(super) queue: String,
    pub(super) element: Vec<u8>,
}

/// A field of ours, which Sidekiq keeps: when a job was given back, in microseconds, and its id here. Jobs with the
/// same bytes would be one member of a set.
const RETURNED_AT: &str = "seriatim_returned_at";

impl Returned {
    /// `queue`: of jobs that name none. The error says why it cannot be given back.
    pub(super) fn of(job: &JobView, queue: &str, now: Timestamp) -> Result<Self, String> {
        refuse_of_batch(job)?;
        let mut fields = fields(job)?;
        let text = |name: &str, fields: &BTreeMap<String, Box<RawValue>>| -> Option<String> {
            serde_json::from_str(fields.get(name)?.get()).ok()
        };
        let queue = text("queue", &fields).unwrap_or_else(|| queue.to_owned());
        let set =
            |fields: &mut BTreeMap<String, Box<RawValue>>, name: &str, value: serde_json::Value| {
                if let Ok(raw) = to_raw_value(&value) {
                    fields.insert(name.to_owned(), raw);
                }
            };
        set(&mut fields, "queue", json!(queue));
        let (place, at) = match job.state {
            JobState::Dead => (Place::Dead, job.finished_at.unwrap_or(now)),
            _ if job.retry_count >= 0 => (Place::Retry, job.run_at.max(now)),
            _ if job.run_at > now => (Place::Schedule, job.run_at),
            _ => (Place::Queue, now),
        };
        let is_in_ms = fields.get("created_at").is_none_or(|raw| {
            raw.get().parse::<f64>().is_ok_and(|number| number >= MILLISECONDS_FROM)
        });
        let time = |at: Timestamp| match is_in_ms {
            true => json!(at.as_micros() / 1_000),
            false => json!(at.as_secs_f64()),
        };
        fields.remove("enqueued_at");
        if place == Place::Queue {
            set(&mut fields, "enqueued_at", time(now));
        }
        // A bridge must not take it for what it moved before, wherever it goes.
        set(&mut fields, RETURNED_AT, json!(format!("{} {}", now.as_micros(), job.id)));
        if matches!(place, Place::Retry | Place::Dead) && !failed_there_last(job) {
            // The failures there are counted in those here, unless the job was requeued here.
            let before = fields.get("retry_count").and_then(|raw| raw.get().parse().ok());
            // In `accumulate` the failures are the lane's: a dead job has its attempts.
            let here = match place {
                Place::Dead => i64::from(job.attempt) - 1,
                _ => i64::from(job.retry_count),
            };
            let count = before.unwrap_or(-1_i64).max(here.max(0));
            set(&mut fields, "retry_count", json!(count));
            let since = if fields.contains_key("failed_at") { "retried_at" } else { "failed_at" };
            let failed = job.finished_at.filter(|_| place == Place::Dead);
            set(&mut fields, since, time(failed.unwrap_or(now)));
            set(&mut fields, "error_class", json!(ERROR_CLASS));
            set(&mut fields, "error_message", json!(job.error.as_deref().unwrap_or("failed")));
            fields.remove("error_backtrace");
        }
        let element = serde_json::to_vec(&fields).map_err(|error| error.to_string())?;
        Ok(Self { place, score: at.as_secs_f64(), queue, element })
    }
}

/// Refuses what Sidekiq would not run as a part of its batch. A dead job has ended there: it may go.
fn refuse_of_batch(job: &JobView) -> Result<(), String> {
    let Some(options) = &job.options else { return Ok(()) };
    if options.ended_batch.is_some() {
        let why =
            "it is the callback of a batch, whose counts would be lost: run it here, or delete it";
        return Err(why.to_owned());
    }
    match options.batch.is_some() && job.state != JobState::Dead {
        true => {
            Err("it belongs to a batch, which would end without it: run or cancel it here first"
                .to_owned())
        }
        false => Ok(()),
    }
}

/// Whether it has not failed here: then it goes back with the failure that it came with.
fn failed_there_last(job: &JobView) -> bool {
    let past = Element::read(job.payload.as_bytes()).ok().map(|element| element.past());
    past.is_some_and(|past| {
        let count = i64::from(past.failures) - 1;
        count >= 0 && i64::from(job.retry_count) == count && job.error == past.error
    })
}

/// The fields of a whole job, with a jid; of one whose arguments are the payload, those that it must have.
fn fields(job: &JobView) -> Result<BTreeMap<String, Box<RawValue>>, String> {
    let payload = job.payload.as_bytes();
    // The same if the export is repeated.
    let made = || blake3::hash(job.id.to_string().as_bytes()).to_hex()[..JID_CHARS].to_owned();
    if let Ok(element) = Element::read(payload) {
        let mut fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        // Sidekiq's pages name what is in a set by it.
        if element.jid.is_none() {
            let jid = to_raw_value(&made()).map_err(|error| error.to_string())?;
            fields.insert("jid".to_owned(), jid);
        }
        return Ok(fields);
    }
    let args: Box<RawValue> = serde_json::from_slice(payload)
        .map_err(|_| "its payload is not JSON, or is compressed or encrypted".to_owned())?;
    let (Some(class), true) = (&job.task, args.get().starts_with('[')) else {
        return Err(
            "its payload is neither a job of Sidekiq nor, with a task, a list of arguments"
                .to_owned(),
        );
    };
    let known = job.options.as_ref().and_then(|options| options.idempotency_key.as_deref());
    let jid = known.and_then(|key| key.split_once('-')).map(|(jid, _)| jid.to_owned());
    let jid = jid.filter(|jid| jid.len() == JID_CHARS).unwrap_or_else(made);
    let created = job.created_at.as_secs_f64();
    let rest = json!({ "class": &**class, "jid": jid, "retry": true, "created_at": created });
    let rest: BTreeMap<String, serde_json::Value> =
        serde_json::from_value(rest).map_err(|error| error.to_string())?;
    let raw = |(name, value): (String, serde_json::Value)| {
        to_raw_value(&value).map(|raw| (name, raw)).map_err(|error| error.to_string())
    };
    let mut fields: BTreeMap<String, Box<RawValue>> =
        rest.into_iter().map(raw).collect::<Result<_, String>>()?;
    fields.insert("args".to_owned(), args);
    Ok(fields)
}
