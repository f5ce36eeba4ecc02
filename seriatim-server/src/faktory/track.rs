//! How far a job is, as workers say it and as others ask for it.

use serde::Deserialize;
use serde_json::{Value, json};

const PERCENT_MAX: u8 = 100;

/// What a worker says of a job that it holds.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Progress {
    pub(super) jid: String,
    percent: Option<u8>,
    desc: Option<String>,
    pub(super) reserve_until: Option<jiff::Timestamp>,
}

impl Progress {
    pub(super) fn checked(self) -> Result<Self, String> {
        match self.percent {
            Some(percent) if percent > PERCENT_MAX => {
                Err(format!("TRACK: percent must be 0 to {PERCENT_MAX}"))
            }
            _ => Ok(self),
        }
    }

    /// For `POST /work/heartbeat`; none if only more time is wanted.
    pub(super) fn report(&self) -> Option<Value> {
        let said = [
            self.percent.map(|percent| ("percent".to_owned(), json!(percent))),
            self.desc.as_ref().map(|desc| ("desc".to_owned(), json!(desc))),
        ];
        let said: serde_json::Map<String, Value> = said.into_iter().flatten().collect();
        (!said.is_empty()).then_some(Value::Object(said))
    }
}

/// The answer about a job that is unknown, or no longer known.
pub(super) fn unknown(jid: &str) -> String {
    json!({ "jid": jid, "state": "unknown", "updated_at": "" }).to_string()
}

/// The answer about a job, from that of `GET /jobs/{id}`.
pub(super) fn answer(jid: &str, job: &[u8]) -> Result<String, String> {
    let job: Value = serde_json::from_slice(job).map_err(|error| error.to_string())?;
    let has_failed = job["retry_count"].as_i64().is_some_and(|count| count >= 0);
    let state = match job["status"].as_str() {
        Some("queued") if !has_failed => "enqueued",
        Some("running") => "working",
        Some("succeeded") => "success",
        Some("dead") => "dead",
        _ => "failed",
    };
    let times = ["finished_at", "heartbeat_at", "retried_at", "failed_at", "created_at"];
    let updated_at = times.iter().find_map(|time| job[*time].as_str()).unwrap_or_default();
    let mut answer = json!({ "jid": jid, "state": state, "updated_at": updated_at });
    // Other workers report what they like.
    let percent = job["progress"]["percent"].as_u64();
    if let Some(percent) = percent.filter(|percent| *percent <= PERCENT_MAX.into()) {
        answer["percent"] = percent.into();
    }
    if let Some(desc) = job["progress"]["desc"].as_str() {
        answer["desc"] = desc.into();
    }
    Ok(answer.to_string())
}
