//! Jobs, as clients of Faktory write and read them.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use seriatim::limits::NAME_BYTES_MAX;

/// The queue of jobs and fetches that name none.
pub(super) const QUEUE_DEFAULT: &str = "default";
const RETRIES_DEFAULT: i32 = 25;
/// How long a job may run by default, in seconds.
const RESERVED_SECONDS: u64 = 1_800;
const RESERVED_SECONDS_MIN: u64 = 60;
const RESERVED_SECONDS_MAX: u64 = 86_400;
/// Faktory's own shortest.
const JID_BYTES_MIN: usize = 8;
/// What leaves room for a hash in the idempotency key.
const JID_BYTES_MAX: usize = NAME_BYTES_MAX - HASH_CHARS - 1;
/// Of the hash of a job.
const HASH_CHARS: usize = 2 * blake3::OUT_LEN;
/// Most jobs of a list.
const LIST_MAX: usize = 1_000;
/// Fields of `custom` with a meaning that Seriatim does not have.
const ENTERPRISE: [&str; 4] = ["bid", "expires_at", "expires_in", "unique_for"];

/// A job that is pushed.
pub(super) struct Pushed<'a> {
    pub(super) queue: String,
    pub(super) jid: String,
    /// For `POST /queues/{queue}/jobs`.
    pub(super) body: Body<'a>,
}

#[derive(Deserialize)]
struct Written<'a> {
    jid: String,
    jobtype: String,
    #[serde(borrow)]
    args: &'a RawValue,
    queue: Option<String>,
    at: Option<String>,
    retry: Option<i32>,
    /// Only read so that it is refused here if a fetch could not read it.
    #[serde(rename = "reserve_for")]
    _reserve_for: Option<u64>,
    #[serde(borrow)]
    custom: Option<BTreeMap<String, &'a RawValue>>,
}

/// `custom.seriatim`.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ours<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    score: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    priority: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    group: Option<&'a RawValue>,
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    payload: &'a RawValue,
    task: String,
    max_retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    idempotency_key: String,
    #[serde(flatten)]
    ours: Ours<'a>,
}

impl<'a> Pushed<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
        let payload: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Self::of(payload)
    }

    fn of(payload: &'a RawValue) -> Result<Self, String> {
        if !is_object(payload) {
            return Err("a job must be a JSON object".to_owned());
        }
        let written: Written<'a> =
            serde_json::from_str(payload.get()).map_err(|error| error.to_string())?;
        let Written { jid, jobtype, args, queue, at, retry, custom, .. } = written;
        if !(JID_BYTES_MIN..=JID_BYTES_MAX).contains(&jid.len()) {
            return Err(format!(
                "jid has {} bytes: write {JID_BYTES_MIN} to {JID_BYTES_MAX}",
                jid.len()
            ));
        }
        if !args.get().starts_with('[') {
            return Err("args must be a list".to_owned());
        }
        let custom = custom.unwrap_or_default();
        if let Some(field) = ENTERPRISE.iter().find(|field| custom.contains_key(**field)) {
            return Err(format!("custom.{field} is not supported"));
        }
        let ours = custom.get("seriatim").map(|ours| serde_json::from_str(ours.get()));
        let ours = ours.transpose().map_err(|error| format!("custom.seriatim: {error}"))?;
        // A client that gets no answer pushes the same bytes again. Another push of the id is another job.
        let hash = blake3::hash(payload.get().as_bytes());
        let body = Body {
            payload,
            task: jobtype,
            max_retries: u32::try_from(retry.unwrap_or(RETRIES_DEFAULT)).unwrap_or(0),
            run_at: at.filter(|at| !at.is_empty()),
            idempotency_key: format!("{jid} {}", hash.to_hex()),
            ours: ours.unwrap_or_default(),
        };
        Ok(Self { queue: queue.unwrap_or_else(|| QUEUE_DEFAULT.to_owned()), jid, body })
    }
}

/// Serde reads the fields of a struct from a list too.
fn is_object(payload: &RawValue) -> bool {
    payload.get().starts_with('{')
}

/// The jid in the idempotency key of a job that a client of Faktory pushed.
pub(super) fn jid_of(idempotency_key: &str) -> Option<&str> {
    let (jid, hash) = idempotency_key.rsplit_once(' ')?;
    (hash.len() == HASH_CHARS).then_some(jid)
}

/// A job of a list, or its id and what is wrong with it.
type Listed<'a> = Result<Pushed<'a>, (String, String)>;

/// The jobs of a list. One without an id makes all of it wrong.
pub(super) fn read_list(text: &str) -> Result<Vec<Listed<'_>>, String> {
    let list: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if list.len() > LIST_MAX {
        return Err(format!("{} jobs: push at most {LIST_MAX} at once", list.len()));
    }
    list.into_iter().enumerate().map(|(place, payload)| read_listed(place, payload)).collect()
}

fn read_listed(place: usize, payload: &RawValue) -> Result<Listed<'_>, String> {
    #[derive(Deserialize)]
    struct Named {
        jid: String,
    }
    Pushed::of(payload).map(Ok).or_else(|why| match serde_json::from_str(payload.get()) {
        Ok(Named { jid }) => Ok(Err((jid, why))),
        Err(_) => Err(format!("[{place}]: {why}")),
    })
}

/// For each job of the answer to a push: its id, or why it was refused.
pub(super) fn pushed(answer: &[u8]) -> Result<Vec<Result<String, String>>, String> {
    #[derive(Deserialize)]
    struct Answer {
        jobs: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        job_id: String,
        status: String,
        again_at: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let read = |one: One| match one.again_at.filter(|_| one.status == "throttled") {
        Some(at) => Err(format!("refused: its key may be pushed again at {at}")),
        None => Ok(one.job_id),
    };
    Ok(answer.jobs.into_iter().map(read).collect())
}

/// A lane as `POST /work/claim` answers it.
#[derive(Deserialize)]
pub(super) struct Claimed {
    pub(super) lane: String,
    pub(super) queue: String,
    pub(super) token: u64,
    pub(super) secret: String,
    pub(super) retry_count: i32,
    max_retries: i32,
    first_attempt_at: Option<String>,
    pub(super) task: Option<String>,
    pub(super) jobs: Vec<ClaimedJob>,
}

#[derive(Deserialize)]
pub(super) struct ClaimedJob {
    pub(super) job_id: String,
    pub(super) payload: Box<RawValue>,
}

impl Claimed {
    /// As requests name it.
    pub(super) fn named(&self) -> Value {
        json!({ "lane": self.lane, "token": self.token, "secret": self.secret })
    }

    /// What is known of its failures, if it has failed. The client in Rust reads no job that lacks one of these fields.
    fn failure(&self) -> Option<Value> {
        let failed_at = self.first_attempt_at.clone();
        let failed_at = failed_at.unwrap_or_else(|| jiff::Timestamp::now().to_string());
        let failure = json!({
            "retry_count": self.retry_count, "remaining": (self.max_retries - self.retry_count).max(0),
            "failed_at": failed_at,
        });
        (self.retry_count >= 0).then_some(failure)
    }
}

/// A job for a worker of Faktory.
pub(super) struct Fetched {
    pub(super) jid: String,
    /// Its id here.
    pub(super) id: String,
    pub(super) retry: i32,
    pub(super) reserved_seconds: u64,
    pub(super) text: String,
}

#[derive(Deserialize)]
struct Known {
    jid: String,
    #[serde(rename = "jobtype")]
    _jobtype: String,
    #[serde(rename = "args")]
    _args: Vec<IgnoredAny>,
    retry: Option<i32>,
    reserve_for: Option<u64>,
}

/// The value of a field. Payloads are large: none is copied before all of the text is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Raw(&'a RawValue),
    Only([&'a RawValue; 1]),
    Text(&'a str),
    Made(Value),
}

impl Fetched {
    /// The first job of the lane. One that no client of Faktory pushed has its payload as the only argument; so has one
    /// whose id `is_held` already, under the id of Seriatim.
    pub(super) fn of(lane: &Claimed, is_held: impl Fn(&str) -> bool) -> Option<Self> {
        let job = lane.jobs.first()?;
        let text = Some(&*job.payload).filter(|payload| is_object(payload)).map(RawValue::get);
        let known: Option<Known> = text.and_then(|text| serde_json::from_str(text).ok());
        let own = known.is_some();
        let known = known.unwrap_or_else(|| Known {
            jid: job.job_id.clone(),
            _jobtype: String::new(),
            _args: Vec::new(),
            retry: None,
            reserve_for: None,
        });
        let jid = if is_held(&known.jid) { job.job_id.clone() } else { known.jid };
        let mut fields: BTreeMap<String, Field<'_>> = if own {
            let fields: BTreeMap<String, &RawValue> =
                serde_json::from_str(job.payload.get()).ok()?;
            fields.into_iter().map(|(name, value)| (name, Field::Raw(value))).collect()
        } else {
            let task = lane.task.as_deref().unwrap_or(&lane.queue);
            BTreeMap::from([
                ("args".to_owned(), Field::Only([&job.payload])),
                ("jobtype".to_owned(), Field::Text(task)),
            ])
        };
        fields.insert("jid".to_owned(), Field::Text(&jid));
        fields.insert("queue".to_owned(), Field::Text(&lane.queue));
        fields.extend(lane.failure().map(|failure| ("failure".to_owned(), Field::Made(failure))));
        let seconds = known.reserve_for.unwrap_or(RESERVED_SECONDS);
        // The client in Rust reads no job without it.
        fields.entry("reserve_for".to_owned()).or_insert(Field::Made(seconds.into()));
        let text = serde_json::to_string(&fields).ok()?;
        Some(Self {
            id: job.job_id.clone(),
            retry: known.retry.unwrap_or(RETRIES_DEFAULT),
            reserved_seconds: seconds.clamp(RESERVED_SECONDS_MIN, RESERVED_SECONDS_MAX),
            text,
            jid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(job: &Value) -> Value {
        serde_json::to_value(Pushed::read(&job.to_string()).unwrap().body).unwrap()
    }

    #[test]
    fn a_job_becomes_one_of_seriatim_with_itself_as_payload() {
        let job = json!({ "jid": "12345678", "jobtype": "Sync", "args": [1], "at": "", "priority": 5,
            "custom": { "seriatim": { "key": 42, "score": 1.5 }, "locale": "fr" } });
        let made = body(&job);
        assert_eq!(made["payload"], job);
        assert_eq!((&made["task"], &made["max_retries"]), (&json!("Sync"), &json!(25)));
        assert_eq!((&made["key"], &made["score"]), (&json!(42), &json!(1.5)));
        assert_eq!((made.get("run_at"), made.get("priority")), (None, None));
        assert_eq!(Pushed::read(&job.to_string()).unwrap().queue, "default");
        let later = json!({ "jid": "12345678", "jobtype": "Sync", "args": [], "at": "2030-01-01T00:00:00Z", "retry": -1 });
        let later = body(&later);
        assert_eq!(
            (&later["run_at"], &later["max_retries"]),
            (&json!("2030-01-01T00:00:00Z"), &json!(0))
        );
        assert_ne!(later["idempotency_key"], made["idempotency_key"]);
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_the_reason() {
        for (job, why) in [
            (json!({ "jid": "1234567", "jobtype": "Sync", "args": [] }), "jid has 7 bytes"),
            (json!({ "jid": "12345678", "args": [] }), "missing field `jobtype`"),
            (json!({ "jid": "12345678", "jobtype": "Sync", "args": 1 }), "args must be a list"),
            (
                json!({ "jid": "12345678", "jobtype": "Sync", "args": [], "custom": { "unique_for": 9 } }),
                "custom.unique_for",
            ),
            (
                json!({ "jid": "12345678", "jobtype": "Sync", "args": [], "custom": { "seriatim": { "kee": 9 } } }),
                "`kee`",
            ),
        ] {
            let error = Pushed::read(&job.to_string()).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
        let list =
            read_list(r#"[{"jid":"12345678","jobtype":"a","args":[]},{"jid":"1"}]"#).unwrap();
        assert!(list[0].is_ok() && list[1].as_ref().is_err_and(|(jid, _)| jid == "1"));
        assert!(read_list("[{}]").err().unwrap().starts_with("[0]"));
    }

    #[test]
    fn what_a_fetch_could_not_read_is_refused_when_it_is_pushed() {
        for reserved in [json!(1.5), json!("60"), json!(-1)] {
            let job = json!({ "jid": "12345678", "jobtype": "Sync", "args": [], "reserve_for": reserved });
            let error = Pushed::read(&job.to_string()).err().unwrap();
            assert!(error.contains("expected u64"), "{error}");
        }
        for list in ["[]", r#"["12345678","Sync",[1],null,null,null,null,null]"#] {
            assert_eq!(Pushed::read(list).err().unwrap(), "a job must be a JSON object");
        }
    }

    #[test]
    fn the_longest_jid_still_fits_into_the_idempotency_key() {
        let pushed = |bytes: usize| {
            let job = json!({ "jid": "x".repeat(bytes), "jobtype": "Sync", "args": [] });
            Pushed::read(&job.to_string()).map(|pushed| pushed.body.idempotency_key.len())
        };
        assert_eq!(pushed(191), Ok(NAME_BYTES_MAX));
        assert_eq!(pushed(192), Err("jid has 192 bytes: write 8 to 191".to_owned()));
    }

    #[test]
    fn a_worker_gets_the_job_as_it_was_pushed_and_others_as_arguments() {
        let lane = |payload: &str, retry_count: i32| Claimed {
            lane: "1-0-1".to_owned(),
            queue: "orders".to_owned(),
            token: 1,
            secret: String::new(),
            retry_count,
            max_retries: 25,
            first_attempt_at: Some("2026-11-27T08:00:00Z".to_owned()),
            task: None,
            jobs: vec![ClaimedJob {
                job_id: "77".to_owned(),
                payload: serde_json::from_str(payload).unwrap(),
            }],
        };
        let job = r#"{"jid":"12345678","jobtype":"Sync","args":[123456789012345678901234567890],"retry":0,"reserve_for":1}"#;
        let fetched = Fetched::of(&lane(job, -1), |_| false).unwrap();
        assert_eq!((&*fetched.jid, fetched.retry, fetched.reserved_seconds), ("12345678", 0, 60));
        assert!(fetched.text.contains("[123456789012345678901234567890]"), "{}", fetched.text);
        let again: Value =
            serde_json::from_str(&Fetched::of(&lane(job, 3), |_| false).unwrap().text).unwrap();
        let failure =
            json!({ "retry_count": 3, "remaining": 22, "failed_at": "2026-11-27T08:00:00Z" });
        assert_eq!((&again["failure"], &again["reserve_for"]), (&failure, &json!(1)));
        assert_eq!(Fetched::of(&lane(job, -1), |jid| jid == "12345678").unwrap().jid, "77");
        let foreign = Fetched::of(&lane(r#"{"status":"paid"}"#, -1), |_| false).unwrap();
        let foreign: Value = serde_json::from_str(&foreign.text).unwrap();
        assert_eq!(
            foreign,
            json!({ "jid": "77", "jobtype": "orders", "queue": "orders", "args": [{ "status": "paid" }],
                "reserve_for": 1800 })
        );
        // Not taken for the fields of a job.
        let list = r#"["12345678","Sync",[1],25,600]"#;
        let fetched = Fetched::of(&lane(list, -1), |_| false).unwrap();
        assert_eq!(fetched.jid, "77");
        assert!(fetched.text.contains(&format!("\"args\":[{list}]")), "{}", fetched.text);
    }
}
