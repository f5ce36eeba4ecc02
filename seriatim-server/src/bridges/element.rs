//! Jobs as Sidekiq keeps them: JSON without a version, of all versions from 4.2 to 8.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use seriatim::Timestamp;
use seriatim::limits::{ATTEMPTS_MAX, PAYLOAD_BYTES_MAX, cut_error};
use seriatim::store::Past;

/// From this value on a time is in milliseconds (Sidekiq 8), below in seconds. Other programs may write whole seconds,
/// so only the size distinguishes them.
const MILLISECONDS_FROM: f64 = 1e11;
/// The queue of jobs that name none.
pub(super) const QUEUE_DEFAULT: &str = "default";

/// A job, as its bytes say.
pub(super) struct Element<'a> {
    /// The text as it is.
    pub(super) whole: &'a RawValue,
    /// What runs it: the class of ActiveJob, if it wraps one.
    pub(super) class: String,
    pub(super) args: &'a RawValue,
    pub(super) jid: Option<String>,
    fields: BTreeMap<String, &'a RawValue>,
}

/// Whether and how often it is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// As the queue says.
    Default,
    Most(u32),
}

impl<'a> Element<'a> {
    /// Reads a job. The error says what is wrong with it.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(format!("has {} bytes: at most {PAYLOAD_BYTES_MAX}", bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
        let whole: &RawValue =
            serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let fields: BTreeMap<String, &RawValue> =
            serde_json::from_str(whole.get()).map_err(|_| "is not a JSON object".to_owned())?;
        let text =
            |name: &str| -> Option<String> { serde_json::from_str(fields.get(name)?.get()).ok() };
        let class = text("wrapped").or_else(|| text("class")).filter(|class| !class.is_empty());
        let class = class.ok_or("has no `class`")?;
        let args = fields.get("args").filter(|args| args.get().starts_with('['));
        let args = *args.ok_or("has no list `args`")?;
        let jid = text("jid").filter(|jid| !jid.is_empty());
        Ok(Self { whole, class, args, jid, fields })
    }

    /// The queue that it names.
    pub(super) fn queue(&self) -> String {
        self.text("queue").unwrap_or_else(|| QUEUE_DEFAULT.to_owned())
    }

    /// When it was put into its queue; else when it was made.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.time("enqueued_at").or_else(|| self.time("created_at"))
    }

    /// What happened to it there.
    pub(super) fn past(&self) -> Past {
        let failures = self.number("retry_count").map_or(0, |count| count.saturating_add(1));
        Past {
            failures: failures.min(ATTEMPTS_MAX),
            error: self.error(),
            created_at: self.time("created_at"),
            started_at: self.time("failed_at"),
            dead_at: None,
        }
    }

    fn error(&self) -> Option<Arc<str>> {
        let parts = [self.text("error_class"), self.text("error_message")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| kept_error(&parts.join(": ")))
    }

    /// How often it may be retried in all.
    pub(super) fn retries(&self) -> Retries {
        match (self.fields.get("retry").map(|retry| retry.get()), self.number("retry")) {
            (Some("false"), _) => Retries::Most(0),
            (_, Some(most)) => Retries::Most(most),
            _ => Retries::Default,
        }
    }

    /// Whether it has a field that is neither null nor false.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !matches!(value.get(), "null" | "false"))
    }

    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.fields.get(name)?.get()).ok()
    }

    fn number(&self, name: &str) -> Option<u32> {
        serde_json::from_str(self.fields.get(name)?.get()).ok()
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        let number: f64 = serde_json::from_str(self.fields.get(name)?.get()).ok()?;
        let seconds = if number >= MILLISECONDS_FROM { number / 1e3 } else { number };
        let kept = Timestamp::default()..=Timestamp::MAX;
        Some(Timestamp::from_secs_f64(seconds)).filter(|time| kept.contains(time))
    }
}

/// An error of another system, as stores keep it.
pub(super) fn kept_error(text: &str) -> Arc<str> {
    cut_error(&text.replace('\0', "\u{fffd}")).into()
}
