//! Which jobs or lanes an operation is about.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use seriatim::store::{JobView, LaneId, LaneStage, LaneView, Owner};
use seriatim::{JobId, Mode, Rate, Timestamp};

use super::action::Action;
use crate::app::causes::{UNKNOWN_CAUSE, masked};
use crate::app::error::{Error, Result};
use crate::base::text::one_line;
use crate::base::time::absolute;
use crate::protocol::schema::{Foreign, queue_pattern};
use crate::protocol::value::Time;

/// Jobs or lanes that one step looks at, and most that a wish names one by one.
pub(super) const STEP_ROWS_MAX: usize = 1_000;
/// To delete or cancel more than this, confirm their number.
pub(super) const CONFIRM_ABOVE: u64 = 1_000;
/// Longest text of a filter, in bytes.
const TEXT_BYTES_MAX: usize = 1_000;

/// What is to be done, and to which jobs or lanes: those for which all filters hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OperationWish")]
pub(crate) struct Wish {
    pub(crate) action: Action,
    #[schemars(regex(pattern = queue_pattern()))]
    pub(crate) queue: String,
    /// Only of this key
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) key: Option<String>,
    /// Only of keys with this prefix
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) prefix: Option<String>,
    /// Only jobs of this task
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) task: Option<String>,
    /// Only jobs without a task
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) untasked: bool,
    /// Only those whose last error contains this
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) error: Option<String>,
    /// Only those of this cause: their error with `N` for numbers, `ID` for ids and `"…"` for quotes
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) cause: Option<String>,
    /// Only lanes in this state
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Foreign<LaneStage>")]
    pub(crate) state: Option<LaneStage>,
    /// Only what died, waited or was pushed before. Default: now
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub(crate) before: Option<Time>,
    /// Only what died, or to cancel was pushed, at this time or later
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub(crate) since: Option<Time>,
    /// At most this many jobs per second, minute or hour: `500/s`. The others stay dead until their turn. Default: no
    /// limit
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Foreign<Rate>")]
    pub(crate) rate: Option<Rate>,
    /// These jobs, instead of a filter
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "List<Foreign<JobId>>")]
    pub(crate) jobs: Option<List<JobId>>,
    /// These lanes, instead of a filter
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "List<Foreign<LaneId>>")]
    pub(crate) lanes: Option<List<LaneId>>,
}

/// A list in JSON; in forms and queries a text with commas.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl Wish {
    pub(crate) fn new(action: Action, queue: impl Into<String>) -> Self {
        Self {
            action,
            queue: queue.into(),
            key: None,
            prefix: None,
            task: None,
            untasked: false,
            error: None,
            cause: None,
            state: None,
            before: None,
            since: None,
            rate: None,
            jobs: None,
            lanes: None,
        }
    }

    /// Refuses filters that do not belong to the action.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong =
            |field, why: &str| Err(Error::Bound { field, why: format!("{why}: {}", self.action) });
        let on_lanes = self.action.on_lanes().is_some();
        if on_lanes && self.jobs.is_some() {
            return wrong("jobs", "this action is on lanes");
        }
        if !on_lanes && self.lanes.is_some() {
            return wrong("lanes", "this action is on jobs");
        }
        if on_lanes && (self.task.is_some() || self.untasked) {
            return wrong("task", "lanes have no task, this action is on lanes");
        }
        if !on_lanes && self.state.is_some() {
            return wrong("state", "only lanes have it, this action is on jobs");
        }
        if on_lanes && self.since.is_some() {
            return wrong("since", "lanes do not die, this action is on lanes");
        }
        if self.rate.is_some() && !self.takes_rate() {
            return wrong("rate", "only dead jobs that are filtered are requeued at a rate");
        }
        if self.action == Action::DeleteJobs && self.jobs.is_none() {
            return wrong("jobs", "names the jobs, and is needed by this action");
        }
        let texts = [&self.key, &self.prefix, &self.task, &self.error, &self.cause];
        if texts.iter().any(|text| text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX)) {
            let why = format!("a filter has at most {TEXT_BYTES_MAX} bytes");
            return Err(Error::Bound { field: "filter", why });
        }
        let Some(named) = self.named() else { return Ok(()) };
        if !(1..=STEP_ROWS_MAX).contains(&named) {
            let field = if on_lanes { "lanes" } else { "jobs" };
            let why = format!("name 1 to {STEP_ROWS_MAX}, not {named}");
            return Err(Error::Bound { field, why });
        }
        let is_filtered = texts.iter().any(|text| text.is_some()) || self.untasked;
        if is_filtered || self.state.is_some() || self.since.is_some() {
            let why = "name jobs or lanes one by one, or filter them, not both".to_owned();
            return Err(Error::Bound { field: "filter", why });
        }
        Ok(())
    }

    /// Whether its lanes are found by their waiting jobs.
    pub(super) fn finds_jobs(&self, mode: Mode) -> bool {
        // A lane without a key is one job, and only jobs know when they were pushed.
        let is_keyless = !mode.is_keyed() && self.state.is_none();
        self.is_all_failed(mode) || (self.action == Action::DeleteWaiting && is_keyless)
    }

    /// Whether it is about all jobs that failed in a queue of this mode, also behind a head that has not: listings of lanes
    /// do not have them. Where lanes fail, they do.
    fn is_all_failed(&self, mode: Mode) -> bool {
        let filtered = [&self.key, &self.prefix, &self.task, &self.error, &self.cause];
        let is_filtered = filtered.iter().any(|text| text.is_some()) || self.state.is_some();
        let of_jobs = self.action.is_for_failed() && mode.failure_belongs_to() == Owner::Job;
        of_jobs && !is_filtered && self.named().is_none()
    }

    /// Whether a rate may be set.
    pub(crate) fn takes_rate(&self) -> bool {
        self.action == Action::Requeue && self.named().is_none()
    }

    /// How many are named one by one; none if they are filtered.
    pub(crate) fn named(&self) -> Option<usize> {
        let jobs = self.jobs.as_ref().map(|List(jobs)| jobs.len());
        jobs.or(self.lanes.as_ref().map(|List(lanes)| lanes.len()))
    }

    /// Whether it is about this job, which the store found by its state.
    pub(super) fn has_job(&self, job: &JobView, before: Timestamp) -> bool {
        let at = job.finished_at.unwrap_or(job.created_at);
        at < before
            && (!self.action.is_for_failed() || job.retry_count >= 0)
            && self.since.is_none_or(|Time(since)| at >= since)
            && self.task.as_deref().is_none_or(|task| job.task.as_deref() == Some(task))
            && (!self.untasked || job.task.is_none())
            && self.has(job.key.as_deref(), job.error.as_deref())
    }

    /// Whether it is about this lane at `now`.
    pub(super) fn has_lane(&self, lane: &LaneView, now: Timestamp) -> bool {
        let is_in = |state| match state {
            LaneStage::Crashed => lane.crashes > 0,
            state => lane.stage(now) == state,
        };
        (!self.action.is_for_failed() || lane.retry_count >= 0)
            && self.state.is_none_or(is_in)
            && self.has(lane.key.as_deref(), lane.error.as_deref())
    }

    fn has(&self, key: Option<&str>, error: Option<&str>) -> bool {
        let (wants, text) = (self, error.unwrap_or_default());
        wants.key.as_deref().is_none_or(|wanted| key == Some(wanted))
            && wants
                .prefix
                .as_deref()
                .is_none_or(|start| key.unwrap_or_default().starts_with(start))
            && wants.error.as_deref().is_none_or(|part| text.contains(part))
            && wants
                .cause
                .as_deref()
                .is_none_or(|cause| masked(error.unwrap_or(UNKNOWN_CAUSE)) == cause)
    }

    /// The filters by name, as forms, queries and command lines write them.
    pub(crate) fn filters(&self) -> Vec<(&'static str, String)> {
        let state = self
            .state
            .and_then(|state| serde_json::to_value(state).ok()?.as_str().map(str::to_owned));
        let joined = |ids: Vec<String>| ids.join(",");
        [
            ("key", self.key.clone()),
            ("prefix", self.prefix.clone()),
            ("task", self.task.clone()),
            ("untasked", self.untasked.then(|| "true".to_owned())),
            ("error", self.error.clone()),
            ("cause", self.cause.clone()),
            ("state", state),
            ("since", self.since.map(|Time(since)| absolute(since))),
            ("rate", self.rate.map(|rate| rate.to_string())),
            (
                "jobs",
                self.jobs
                    .as_ref()
                    .map(|List(of)| joined(of.iter().map(JobId::to_string).collect())),
            ),
            (
                "lanes",
                self.lanes
                    .as_ref()
                    .map(|List(of)| joined(of.iter().map(LaneId::to_string).collect())),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// The filters with the time before which things must have been, as one that is sent has it.
    pub(crate) fn sent_filters(&self) -> Vec<(&'static str, String)> {
        let before = self.before.map(|Time(before)| ("before", absolute(before)));
        self.filters().into_iter().chain(before).collect()
    }

    /// Which, in words: `dead jobs of orders, key order-1`.
    pub(crate) fn in_words(&self) -> String {
        let mut words = match self.named() {
            Some(named) => format!("{named} chosen {} of {}", self.action.objects(), self.queue),
            None => format!("{} of {}", self.action.objects(), self.queue),
        };
        for (name, value) in self.filters() {
            let says = match name {
                "jobs" | "lanes" => continue,
                "untasked" => {
                    words += ", without a task";
                    continue;
                }
                "prefix" => "keys from",
                "error" => "error with",
                "rate" => "at most",
                name => name,
            };
            words += &format!(", {says} {}", one_line(&value));
        }
        words
    }
}

impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ListOrText(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": STEP_ROWS_MAX })
    }
}

struct ListOrText<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Visitor<'de> for ListOrText<T> {
    type Value = List<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ids")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<List<T>, E> {
        let ids = text.split(',').filter(|id| !id.is_empty());
        ids.map(|id| id.parse().map_err(E::custom)).collect::<Result<_, E>>().map(List)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = list.next_element()? {
            // One more than allowed shows that there are too many.
            if ids.len() <= STEP_ROWS_MAX {
                ids.push(id);
            }
        }
        Ok(List(ids))
    }
}
