//! `[[cron]]`: periodic jobs.

use serde::Deserialize;
use seriatim::{Cron, Error, Job, Missed, Payload};
use toml::Value;

/// One entry. Nodes with an entry of the same name must have the same one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CronConfig {
    name: String,
    schedule: String,
    time_zone: Option<String>,
    queue: String,
    key: Option<String>,
    task: Option<String>,
    payload: Option<Value>,
    priority: Option<u16>,
    max_retries: Option<u32>,
    #[serde(default)]
    missed: Missed,
}

impl CronConfig {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) fn entry(&self) -> Result<Cron, Error> {
        let payload = Payload::json(&self.payload.clone().map(plain).transpose()?)?;
        let mut job = Job::with_payload(&self.queue, payload);
        job.key.clone_from(&self.key);
        job.task.clone_from(&self.task);
        job.priority = self.priority.unwrap_or(job.priority);
        if let Some(retries) = self.max_retries {
            job = job.max_retries(retries);
        }
        job.validate()?;
        let cron = Cron::new(&self.name, &self.schedule, job)?.missed(self.missed);
        match &self.time_zone {
            Some(zone) => cron.time_zone(zone),
            None => Ok(cron),
        }
    }
}

/// JSON has no dates: they become texts, which the serializer would put into an object with a name of its own. It has no
/// infinities either, which would become null.
fn plain(value: Value) -> Result<Value, Error> {
    Ok(match value {
        Value::Datetime(date) => Value::String(date.to_string()),
        Value::Float(number) if !number.is_finite() => {
            let what = format!("{number} is not a JSON number: write another, or a string");
            return Err(Error::invalid("payload", what));
        }
        Value::Array(all) => Value::Array(all.into_iter().map(plain).collect::<Result<_, _>>()?),
        Value::Table(all) => {
            let plain = |(name, value)| plain(value).map(|value| (name, value));
            Value::Table(all.into_iter().map(plain).collect::<Result<_, _>>()?)
        }
        value => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_in_a_payload_is_a_text() {
        let payload = "day = 2026-01-31\nat = [{ first = 2026-01-31T08:00:00Z, n = 7 }]";
        let payload = plain(Value::Table(payload.parse().unwrap())).unwrap();
        let text = serde_json::to_string(&payload).unwrap();
        assert_eq!(text, r#"{"at":[{"first":"2026-01-31T08:00:00Z","n":7}],"day":"2026-01-31"}"#);
    }

    #[test]
    fn what_is_no_number_of_json_is_refused_in_a_payload() {
        for wrong in ["nan", "inf", "-inf"] {
            let entry = format!(
                "name = \"a\"\nschedule = \"@daily\"\nqueue = \"q\"\npayload = {{ rates = [1.5, {wrong}] }}"
            );
            let error = toml::from_str::<CronConfig>(&entry).unwrap().entry().unwrap_err();
            assert!(error.to_string().contains("is not a JSON number"), "{error}");
        }
    }
}
