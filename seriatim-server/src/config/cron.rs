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
        let payload = serde_json::to_string(&self.payload)
            .map_err(|e| Error::invalid("payload", "cannot be written as JSON").because(e))?;
        let mut job = Job::with_payload(&self.queue, Payload::from_json_text(&payload)?);
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
