//! A job in JSON: a line of a file, a body of the HTTP API.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::value::RawValue;
use seriatim::limits::PRIORITY_MAX;
use seriatim::store::{IdempotencyScope, bound_group};
use seriatim::{Backoff, Error, Job, Payload, Result, RunAt};

use super::schema::{Foreign, at_most_one, other_names};
use super::value::{Length, Time};

/// A job without its queue.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Job", transform = spellings)]
pub(crate) struct JobInput {
    /// The key, in every mode but `parallel`. Jobs of one key run one after the other
    #[serde(alias = "id", deserialize_with = "key")]
    #[schemars(schema_with = "key_schema")]
    key: Option<String>,
    /// Any JSON document. Default: null
    payload: Option<Box<RawValue>>,
    /// The place among the jobs of the key, lowest first. Default: the time of the push; in fifo 0
    score: Option<f64>,
    /// The kind of work, for queues with several workers
    task: Option<String>,
    /// When the job is due. Default: now
    #[serde(alias = "perform_in", alias = "available_at")]
    run_at: Option<Time>,
    /// How long after the push the job is due
    delay: Option<Length>,
    /// Lower runs first. Default: 100
    #[schemars(range(max = PRIORITY_MAX))]
    priority: Option<u16>,
    /// Retries after the first try. Default: the queue's
    max_retries: Option<u32>,
    /// Limit of failures and crashes together
    max_attempts: Option<u32>,
    /// The wait between tries. Default: the queue's
    #[schemars(with = "Option<Foreign<Backoff>>")]
    backoff: Option<Backoff>,
    /// How long a handler may take. Default: the queue's
    timeout: Option<Length>,
    /// How long a claim lasts without a heartbeat. Default: the queue's
    #[serde(alias = "lease_ttl_sec")]
    lease_ttl: Option<Length>,
    /// A job that has not started by then is cancelled with error `expired`
    expires_at: Option<Time>,
    /// A repeated push with the same queue, key and idempotency key returns the first job
    idempotency_key: Option<String>,
    /// Where the idempotency key is unique: for its queue and key, or in the whole store. Default: key
    #[schemars(with = "Option<Foreign<IdempotencyScope>>")]
    idempotency_scope: Option<IdempotencyScope>,
    /// Only nodes of this configured name may claim the job
    node: Option<String>,
    /// Only nodes and workers of this consumer group may claim the job
    consumer_group: Option<String>,
    /// The group of its key, such as a tenant, in a queue with `groups`
    group: Option<String>,
    /// Only workers that run this build may claim the job; not together with consumer_group
    build: Option<String>,
    /// Stored and shown
    partition_key: Option<String>,
    /// Who pushed the job; stored and shown
    producer: Option<String>,
    /// W3C trace context. Default: that of the request
    traceparent: Option<String>,
    /// The batch that the job joins: it must be open, or sealed and not ended
    batch: Option<String>,
}

fn key_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "integer", "null"] })
}

fn spellings(schema: &mut Schema) {
    at_most_one(schema, &["delay", "run_at", "perform_in", "available_at"]);
    other_names(schema, "run_at", &["perform_in", "available_at"]);
    other_names(schema, "key", &["id"]);
    other_names(schema, "lease_ttl", &["lease_ttl_sec"]);
}

impl JobInput {
    /// With these where it names none. A job always has both, and no longer tells whether they were named.
    pub(crate) fn or(self, priority: Option<u16>, scope: Option<IdempotencyScope>) -> Self {
        let idempotency_scope = self.idempotency_scope.or(scope);
        Self { priority: self.priority.or(priority), idempotency_scope, ..self }
    }

    /// The job, for this queue.
    pub(crate) fn into_job(self, queue: &str) -> Result<Job> {
        seriatim::store::refuse_reserved_queue(queue)?;
        let payload = match self.payload {
            Some(document) => Payload::from_raw(document),
            None => Payload::from_json_text("null")?,
        };
        let mut job = Job::with_payload(queue, payload);
        (job.key, job.task, job.score) = (self.key, self.task, self.score);
        job.priority = self.priority.unwrap_or(job.priority);
        job.run_at = match (self.delay, self.run_at) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("delay", "contradicts run_at: write one of them"));
            }
            (Some(Length(length)), None) => RunAt::In(length),
            (None, Some(Time(time))) => RunAt::At(time),
            (None, None) => RunAt::Now,
        };
        let options = &mut job.options;
        options.max_retries = self.max_retries;
        options.max_attempts = self.max_attempts;
        options.backoff = self.backoff;
        options.timeout = self.timeout.map(|Length(length)| length);
        options.lease_ttl = self.lease_ttl.map(|Length(length)| length);
        options.expires_at = self.expires_at.map(|Time(time)| time);
        options.idempotency_key = self.idempotency_key;
        options.idempotency_scope = self.idempotency_scope.unwrap_or_default();
        options.node = self.node;
        options.consumer_group = bound_group(self.consumer_group, self.build)?;
        options.group = self.group;
        options.partition_key = self.partition_key;
        options.producer = self.producer;
        options.traceparent = self.traceparent;
        options.batch = self.batch;
        Ok(job)
    }
}

/// 3 and `key`, of `jobs[3].key`.
pub(crate) fn split_place(field: &str) -> Option<(usize, &str)> {
    let (place, field) = field.strip_prefix("jobs[")?.split_once(']')?;
    Some((place.parse().ok()?, field.strip_prefix('.').unwrap_or(field)))
}

/// A key: a string, or the digits of an integer.
fn key<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    let wrong = || de::Error::custom("must be a string or a whole number");
    Option::<serde_json::Value>::deserialize(from)?
        .map(|value| match value {
            serde_json::Value::String(text) => Ok(text),
            serde_json::Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
            _ => Err(wrong()),
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::Timestamp;

    use super::*;

    fn read(text: &str) -> std::result::Result<Job, String> {
        let input: JobInput = serde_json::from_str(text).map_err(|e| e.to_string())?;
        input.into_job("q").map_err(|e| e.to_string())
    }

    #[test]
    fn l12_the_names_of_lowkiq_and_dataloader_are_understood() {
        let job = read(r#"{"id":42,"perform_in":1700000000,"payload":[1]}"#).unwrap();
        assert_eq!(job.key.as_deref(), Some("42"));
        assert_eq!(job.run_at, RunAt::At(Timestamp::from_micros(1_700_000_000_000_000)));
        let job = read(r#"{"key":"k","available_at":"2026-01-31T12:00:00Z"}"#).unwrap();
        assert_eq!(job.run_at, RunAt::At(Timestamp::from_micros(1_769_860_800_000_000)));
        assert_eq!(read(r#"{"delay":"1m"}"#).unwrap().run_at, RunAt::In(Duration::from_secs(60)));
    }

    #[test]
    fn a_length_in_the_place_of_a_time_is_refused_with_advice() {
        let error = read(r#"{"perform_in":60}"#).unwrap_err();
        assert!(error.contains("write `delay`"), "{error}");
        assert!(read(r#"{"run_at":1700000000,"delay":5}"#).unwrap_err().contains("contradicts"));
        assert!(read(r#"{"delay":-1}"#).unwrap_err().contains("0 seconds or more"));
        assert!(read(r#"{"key":1.5}"#).unwrap_err().contains("whole number"));
    }

    #[test]
    fn the_store_names_a_job_by_its_place() {
        assert_eq!(split_place("jobs[12].key"), Some((12, "key")));
        assert_eq!(split_place("jobs[0]"), Some((0, "")));
        assert_eq!(split_place("key"), None);
    }
}
