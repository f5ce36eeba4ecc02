//! Which job of this store a job of the source becomes.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use seriatim::limits::KEY_BYTES_MAX;
use seriatim::store::{Past, digest};
use seriatim::{Job, Payload, RunAt, Timestamp};

use super::element::{Element, Retries};
use super::form::Form;
use crate::base::glob::is_match;
use crate::base::pointer::Pointer;
use crate::base::setup_error::SetupError;
use crate::config::{BridgeConfig, MissingKey, RouteConfig};

/// The largest whole number that a score can tell from its neighbours.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Longest id of a job that is a part of its idempotency key, in bytes. The hash alone identifies it.
const SHOWN_JID_BYTES_MAX: usize = 128;

/// Why a job is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// For figures.
    pub(super) reason: Reason,
    pub(super) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It is no job.
    Malformed,
    Key,
    Score,
    Payload,
    /// The store does not accept it.
    Job,
    /// The queue refuses it now: its key is throttled.
    Throttled,
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Key => "key",
            Self::Score => "score",
            Self::Payload => "payload",
            Self::Job => "job",
            Self::Throttled => "throttled",
        }
    }
}

impl Reason {
    pub(super) fn because(self, why: impl Into<String>) -> Refusal {
        Refusal { reason: self, why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.why)
    }
}

/// The routes of each queue of the source.
pub(super) type ByQueue = BTreeMap<String, Routes>;

/// The routes of one queue of the source.
#[derive(Clone)]
pub(super) struct Routes {
    pub(super) from: String,
    in_order: Vec<RouteConfig>,
    /// Of Lowkiq's payloads.
    pub(super) form: Option<Form>,
    /// Changes with what a job becomes.
    pub(super) mark: String,
}

/// The routes of a bridge. An error if a variable that they need is missing.
pub(super) fn of_bridge(bridge: &BridgeConfig) -> Result<ByQueue, SetupError> {
    let form = Form::of(bridge)?;
    let routes = |queue: &String| (queue.clone(), Routes::new(bridge, queue, form.clone()));
    Ok(bridge.queues.iter().map(routes).collect())
}

impl Routes {
    pub(super) fn new(bridge: &BridgeConfig, from: &str, form: Option<Form>) -> Self {
        let routes = bridge.routes_of(from);
        // Texts and numbers only: writing them cannot fail.
        let text =
            serde_json::to_vec(&(&routes, form.as_ref().map(Form::name))).unwrap_or_default();
        let mark = blake3::hash(&text).to_hex()[..16].to_owned();
        Self { from: from.to_owned(), in_order: routes, form, mark }
    }

    /// Whether some of its jobs have keys.
    pub(super) fn are_keyed(&self) -> bool {
        self.in_order.iter().any(|route| route.key.is_some())
    }

    /// The route of a class. The last one matches all.
    pub(super) fn of(&self, class: &str) -> Option<&RouteConfig> {
        self.in_order.iter().find(|route| is_match(&route.class, class))
    }

    /// The job that a job of the source becomes. `unnamed` identifies it if it has no id of its own.
    pub(super) fn job(
        &self,
        bytes: &[u8],
        due: RunAt,
        unnamed: impl FnOnce() -> String,
    ) -> Result<Job, Refusal> {
        self.made(bytes, due, None, unnamed)
    }

    /// The same for one that died.
    pub(super) fn dead(
        &self,
        bytes: &[u8],
        at: Timestamp,
        unnamed: impl FnOnce() -> String,
    ) -> Result<Job, Refusal> {
        self.made(bytes, RunAt::Now, Some(at), unnamed)
    }

    fn made(
        &self,
        bytes: &[u8],
        due: RunAt,
        died_at: Option<Timestamp>,
        unnamed: impl FnOnce() -> String,
    ) -> Result<Job, Refusal> {
        let element = Element::read(bytes).map_err(|why| Reason::Malformed.because(why))?;
        let no_route =
            || Reason::Malformed.because(format!("no route is for class {:?}", element.class));
        let route = self.of(&element.class).ok_or_else(no_route)?;
        let payload = payload(route, &element)?;
        let name = route.queue.as_deref().unwrap_or(&self.from);
        let mut job = Job::with_payload(name, payload);
        job.key = key(route, &element)?;
        job.score = score(route, &element)?;
        job.priority = route.priority.unwrap_or(job.priority);
        job.run_at = due;
        if route.payload.is_none() {
            // Ids and times differ between jobs that are otherwise equal.
            let arguments = Payload::from_bytes(element.args.get().as_bytes().to_vec());
            job.digest = Some(digest(Some(&element.class), &arguments));
        }
        let jid = element.jid.as_deref();
        let named = jid.map_or_else(unnamed, |jid| identity(jid, bytes));
        let mut job = job.idempotency_key(named);
        if let Retries::Most(most) = element.retries() {
            job = job.max_retries(most);
        }
        let past = Past { dead_at: died_at, ..element.past() };
        if past.failures > 0 || died_at.is_some() {
            job = job.past(past);
        }
        job.task = Some(element.class);
        job.validate().map_err(|error| Reason::Job.because(error.to_string()))?;
        Ok(job)
    }
}

/// Sidekiq pushes one id again and again: interrupted jobs, a retry from its page. So an id alone does not tell a
/// repetition from a new push; all bytes do, which have the time of the push.
fn identity(jid: &str, bytes: &[u8]) -> String {
    let hash = &blake3::hash(bytes).to_hex()[..32];
    let is_shown = jid.len() <= SHOWN_JID_BYTES_MAX && !jid.contains(char::is_control);
    if is_shown { format!("{jid}-{hash}") } else { hash.to_owned() }
}

fn at<'a>(pointer: &Pointer, element: &Element<'a>) -> Option<&'a RawValue> {
    pointer.at(element.whole).filter(|value| value.get() != "null")
}

fn payload(route: &RouteConfig, element: &Element<'_>) -> Result<Payload, Refusal> {
    let Some(pointer) = &route.payload else {
        return Ok(Payload::from_bytes(element.whole.get().as_bytes().to_vec()));
    };
    let missing = || Reason::Payload.because(format!("has nothing at {pointer}"));
    let text = pointer.at(element.whole).ok_or_else(missing)?;
    Ok(Payload::from_bytes(text.get().as_bytes().to_vec()))
}

fn key(route: &RouteConfig, element: &Element<'_>) -> Result<Option<String>, Refusal> {
    let Some(pointer) = &route.key else { return Ok(None) };
    let Some(value) = at(pointer, element) else {
        return match &route.missing_key {
            MissingKey::Refuse => Err(Reason::Key.because(format!("has nothing at {pointer}"))),
            MissingKey::Fixed(key) => Ok(Some(key.clone())),
        };
    };
    let key = key_text(value.get()).ok_or_else(|| {
        Reason::Key.because(format!("at {pointer} is not a string, whole number or GlobalID"))
    })?;
    checked_key(&format!("at {pointer}"), key).map(Some)
}

/// A key that a store accepts.
pub(super) fn checked_key(place: &str, key: String) -> Result<String, Refusal> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains('\0') {
        let why = format!("{place} has {} bytes: 1 to {KEY_BYTES_MAX} without NUL", key.len());
        return Err(Reason::Key.because(why));
    }
    Ok(key)
}

/// A text, a whole number of any length, or the GlobalID of ActiveJob.
fn key_text(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct GlobalId {
        #[serde(rename = "_aj_globalid")]
        id: String,
    }
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'{' => serde_json::from_str::<GlobalId>(text).ok().map(|gid| gid.id),
        b'-' | b'0'..=b'9' => {
            text.bytes().skip(1).all(|byte| byte.is_ascii_digit()).then(|| text.to_owned())
        }
        _ => None,
    }
}

fn score(route: &RouteConfig, element: &Element<'_>) -> Result<Option<f64>, Refusal> {
    let Some(pointer) = &route.score else { return Ok(None) };
    let missing = || Reason::Score.because(format!("has nothing at {pointer}"));
    let text = at(pointer, element).ok_or_else(missing)?.get();
    let score: f64 = serde_json::from_str(text)
        .map_err(|_| Reason::Score.because(format!("at {pointer} is not a number")))?;
    let is_whole = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    if is_whole && score.abs() > EXACT_MAX {
        let why = format!(
            "at {pointer} is a number beyond 2^53, which a score cannot tell from the next"
        );
        return Err(Reason::Score.because(why));
    }
    Ok(Some(score))
}
