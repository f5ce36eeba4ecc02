//! How far a job is, as workers say it and as others ask for it.

use serde::Deserialize;
use serde_json::value::RawValue;
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

/// The fields that the answer needs. The others are skipped: payload and result may have any size and depth.
#[derive(Deserialize)]
struct Job<'a> {
    status: String,
    retry_count: i64,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
    finished_at: Option<String>,
    heartbeat_at: Option<String>,
    retried_at: Option<String>,
    failed_at: Option<String>,
    created_at: Option<String>,
}

/// Other workers report what they like.
#[derive(Default, Deserialize)]
struct Reported<'a> {
    #[serde(borrow)]
    percent: Option<&'a RawValue>,
    #[serde(borrow)]
    desc: Option<&'a RawValue>,
}

/// The answer about a job, from that of `GET /jobs/{id}`.
pub(super) fn answer(jid: &str, job: &[u8]) -> Result<String, String> {
    let job: Job<'_> = serde_json::from_slice(job).map_err(|error| error.to_string())?;
    let state = match &*job.status {
        "queued" if job.retry_count < 0 => "enqueued",
        "running" => "working",
        "succeeded" => "success",
        "dead" => "dead",
        _ => "failed",
    };
    let times = [job.finished_at, job.heartbeat_at, job.retried_at, job.failed_at, job.created_at];
    let updated_at = times.into_iter().flatten().next().unwrap_or_default();
    let mut answer = json!({ "jid": jid, "state": state, "updated_at": updated_at });
    let reported = job.progress.and_then(|said| serde_json::from_str(said.get()).ok());
    let Reported { percent, desc } = reported.unwrap_or_default();
    let percent = percent.and_then(|percent| serde_json::from_str::<u8>(percent.get()).ok());
    if let Some(percent) = percent.filter(|percent| *percent <= PERCENT_MAX) {
        answer["percent"] = percent.into();
    }
    if let Some(desc) = desc.and_then(|desc| serde_json::from_str::<String>(desc.get()).ok()) {
        answer["desc"] = desc.into();
    }
    Ok(answer.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_however_deep_its_payload_and_whatever_was_reported() {
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let told = |progress: &str| {
            let job = format!(
                r#"{{"job_id":"1","payload":{deep},"result":{deep},"status":"running","retry_count":-1,"created_at":"c","heartbeat_at":"h","progress":{progress}}}"#
            );
            serde_json::from_str::<Value>(&answer("j", job.as_bytes()).unwrap()).unwrap()
        };
        let plain = json!({ "jid": "j", "state": "working", "updated_at": "h" });
        for odd in ["null", "[1]", "7", r#"{"percent":101,"desc":3}"#, &*deep] {
            assert_eq!(told(odd), plain, "{odd}");
        }
        let said = told(r#"{"percent":"half","desc":"copying","more":1}"#);
        assert_eq!((said.get("percent"), &said["desc"]), (None, &json!("copying")));
        assert_eq!(told(r#"{"percent":50}"#)["percent"], 50);
    }
}
