//! A job as people and programs write it in JSON: a line of a file, a body of the HTTP API.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::value::RawValue;
use seriatim::{Backoff, Error, Job, Payload, Result, RunAt, Timestamp};

/// A number below this (in 2001) is no time that somebody means, but a length.
const TIME_SECONDS_MIN: f64 = 1e9;

/// A job, all but its queue.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct JobInput {
    #[serde(alias = "id", deserialize_with = "key")]
    key: Option<String>,
    payload: Option<Box<RawValue>>,
    score: Option<f64>,
    task: Option<String>,
    #[serde(alias = "perform_in", alias = "available_at")]
    run_at: Option<When>,
    delay: Option<Length>,
    priority: Option<u16>,
    max_retries: Option<u32>,
    max_attempts: Option<u32>,
    backoff: Option<Backoff>,
    timeout: Option<Length>,
    #[serde(alias = "lease_ttl_sec")]
    lease_ttl: Option<Length>,
    expires_at: Option<When>,
    idempotency_key: Option<String>,
    node: Option<String>,
    consumer_group: Option<String>,
    partition_key: Option<String>,
    producer: Option<String>,
    traceparent: Option<String>,
}

impl JobInput {
    /// The job, for this queue.
    pub(crate) fn into_job(self, queue: &str) -> Result<Job> {
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
            (None, Some(When(time))) => RunAt::At(time),
            (None, None) => RunAt::Now,
        };
        let options = &mut job.options;
        options.max_retries = self.max_retries;
        options.max_attempts = self.max_attempts;
        options.backoff = self.backoff;
        options.timeout = self.timeout.map(|Length(length)| length);
        options.lease_ttl = self.lease_ttl.map(|Length(length)| length);
        options.expires_at = self.expires_at.map(|When(time)| time);
        options.idempotency_key = self.idempotency_key;
        options.node = self.node;
        options.consumer_group = self.consumer_group;
        options.partition_key = self.partition_key;
        options.producer = self.producer;
        options.traceparent = self.traceparent;
        Ok(job)
    }
}

/// 3 and `key`, of `jobs[3].key`.
pub(crate) fn split_place(field: &str) -> Option<(usize, &str)> {
    let (place, field) = field.strip_prefix("jobs[")?.split_once(']')?;
    Some((place.parse().ok()?, field.strip_prefix('.').unwrap_or(field)))
}

/// A point in time: RFC 3339, or Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct When(pub(crate) Timestamp);

/// A length: `10s`, `5m`, or seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Length(pub(crate) Duration);

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        match from.deserialize_any(TextOrNumber("a time: RFC 3339 or Unix seconds"))? {
            Either::Number(seconds) if seconds < TIME_SECONDS_MIN => {
                Err(de::Error::custom(format!(
                    "is an absolute time, and {seconds} lies long before now; to wait so many seconds write `delay`"
                )))
            }
            Either::Number(seconds) => Ok(Self(Timestamp::from_secs_f64(seconds))),
            Either::Text(text) => {
                let time: jiff::Timestamp = text.parse().map_err(|_| {
                    de::Error::custom("write a time as 2026-01-31T12:00:00Z or as Unix seconds")
                })?;
                Ok(Self(Timestamp::from_micros(time.as_microsecond())))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        match from
            .deserialize_any(TextOrNumber("a length: 250ms, 10s, 5m or a number of seconds"))?
        {
            Either::Number(seconds) => {
                Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| {
                    de::Error::custom(format!("must be 0 seconds or more, not {seconds}"))
                })
            }
            Either::Text(text) => seriatim::duration::parse(&text)
                .map(Self)
                .map_err(|e| de::Error::custom(e.message())),
        }
    }
}

/// A key: a text, or a whole number as its digits.
fn key<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    let wrong = || de::Error::custom("must be a text or a whole number");
    Option::<serde_json::Value>::deserialize(from)?
        .map(|value| match value {
            serde_json::Value::String(text) => Ok(text),
            serde_json::Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
            _ => Err(wrong()),
        })
        .transpose()
}

enum Either {
    Text(String),
    Number(f64),
}

/// Reads one of both, and says what was expected.
struct TextOrNumber(&'static str);

impl Visitor<'_> for TextOrNumber {
    type Value = Either;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E>(self, text: &str) -> std::result::Result<Either, E> {
        Ok(Either::Text(text.to_owned()))
    }
    fn visit_f64<E>(self, number: f64) -> std::result::Result<Either, E> {
        Ok(Either::Number(number))
    }
    fn visit_u64<E>(self, number: u64) -> std::result::Result<Either, E> {
        Ok(Either::Number(number as f64))
    }
    fn visit_i64<E>(self, number: i64) -> std::result::Result<Either, E> {
        Ok(Either::Number(number as f64))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
