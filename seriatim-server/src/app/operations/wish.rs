//! Which jobs or lanes an operation is about.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use seriatim::store::{JobView, LaneId, LaneQuery, Owner, Store};
use seriatim::{JobId, Mode, Rate, Timestamp};

use super::action::Action;
use crate::app::causes::{UNKNOWN_CAUSE, masked};
use crate::app::error::{Error, Result};
use crate::app::lane_filters::Filters;
use crate::app::nodes;
use crate::base::text::one_line;
use crate::base::time::absolute;
use crate::protocol::schema::{Foreign, exactly_one, queue_pattern};
use crate::protocol::value::Time;

/// Jobs or lanes that one step looks at, and most that a wish names one by one.
pub(super) const STEP_ROWS_MAX: usize = 1_000;
/// To delete or cancel more than this, confirm their number.
pub(super) const CONFIRM_ABOVE: u64 = 1_000;
/// Most queues of one operation: its record has their names.
pub(crate) const QUEUES_MAX: usize = 50;
/// Stands for all queues that the caller may use.
pub(crate) const ALL_QUEUES: &str = "*";
/// Queues that are named in words; of more their number is.
const QUEUES_NAMED_MAX: usize = 5;
/// Longest text of a filter, in bytes.
const TEXT_BYTES_MAX: usize = 1_000;

/// What is to be done, and to which jobs or lanes: those for which all filters hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OperationWish", transform = |schema: &mut _| exactly_one(schema, &["queue", "queues"]))]
pub(crate) struct Wish {
    pub(crate) action: Action,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "String", regex(pattern = queue_pattern()))]
    pub(crate) queue: String,
    /// These queues, at most 50, one after another; `*` alone for all that have something to do and that the token may use
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "List<String>", extend("maxItems" = QUEUES_MAX))]
    pub(crate) queues: Option<List<String>>,
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
    /// Only lanes that are ready, scheduled, retrying, running, held, paused or crashed; several with commas
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    /// Only lanes that this node holds: its id or name
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) node: String,
    /// Only lanes due then or later
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) due_from: String,
    /// Only lanes due then or earlier
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) due_to: String,
    /// Only lanes with this retry count or a higher one
    #[serde(default, deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("type" = ["integer", "string"]))]
    pub(crate) retries_min: String,
    /// Only lanes that wait and, at `before`, had been due for this long or longer: 250ms, 10s, 5m
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) lag_min: String,
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
            queues: None,
            key: None,
            prefix: None,
            task: None,
            untasked: false,
            error: None,
            cause: None,
            state: String::new(),
            node: String::new(),
            due_from: String::new(),
            due_to: String::new(),
            retries_min: String::new(),
            lag_min: String::new(),
            before: None,
            since: None,
            rate: None,
            jobs: None,
            lanes: None,
        }
    }

    /// In all queues that the caller may use.
    pub(crate) fn in_all_queues(self) -> Self {
        Self { queue: String::new(), queues: Some(List(vec![ALL_QUEUES.to_owned()])), ..self }
    }

    /// The names of its queues, as they were sent.
    pub(crate) fn names(&self) -> &[String] {
        self.queues.as_ref().map_or(std::slice::from_ref(&self.queue), |List(names)| names)
    }

    /// The names of its queues, as they were sent, but for what stands for all.
    pub(crate) fn named_queues(&self) -> impl Iterator<Item = &str> {
        self.names().iter().map(String::as_str).filter(|name| *name != ALL_QUEUES)
    }

    /// The same in one queue.
    pub(super) fn of(&self, queue: &str) -> Self {
        Self { queue: queue.to_owned(), queues: None, ..self.clone() }
    }

    /// With the id of its node, and with the names of its queues, where all are meant: those with something to do that
    /// `may_use` admits.
    pub(crate) async fn resolved(
        mut self,
        store: &dyn Store,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        if !self.node.is_empty() {
            self.node = nodes::find(store, &self.node).await?.info.id.to_string();
        }
        let wrong = |why: String| Err(Error::Bound { field: "queues", why });
        let (action, is_one) = (self.action, !self.queue.is_empty());
        let Some(List(names)) = &mut self.queues else { return Ok(self) };
        if names.is_empty() || is_one {
            return wrong("name one `queue`, or several `queues`".to_owned());
        }
        if names.iter().any(|name| name == ALL_QUEUES) {
            if names.len() > 1 {
                return wrong("`*` is all queues: name no others beside it".to_owned());
            }
            let mut stats = store.stats(None).await?;
            stats.retain(|of| may_use(&of.queue) && action.finds_some(of));
            *names = stats.into_iter().map(|of| of.queue.to_string()).collect();
        }
        names.sort_unstable();
        names.dedup();
        match names.len() {
            0..=QUEUES_MAX => Ok(self),
            many => wrong(format!("{many} queues: at most {QUEUES_MAX} in one operation")),
        }
    }

    /// Its queues, as forms and queries name them.
    pub(crate) fn place(&self) -> (&'static str, String) {
        match &self.queues {
            Some(List(names)) => ("queues", names.join(",")),
            None => ("queue", self.queue.clone()),
        }
    }

    /// Its queues, in words.
    fn place_in_words(&self) -> String {
        match self.names() {
            [] => "no queue".to_owned(),
            [all] if all == ALL_QUEUES => "all queues".to_owned(),
            names if names.len() <= QUEUES_NAMED_MAX => names.join(", "),
            names => format!("{} queues", names.len()),
        }
    }

    /// Refuses filters that do not belong to the action.
    pub(crate) fn check(&self) -> Result<()> {
        if self.queue.is_empty() && self.queues.is_none() {
            return Err(Error::Bound { field: "queue", why: "name a queue".to_owned() });
        }
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
            return wrong("task", "lanes have no task, and this action is on lanes");
        }
        let lane_filter = self.lane_filters().next();
        if let Some((field, _)) = lane_filter.filter(|_| !on_lanes) {
            return wrong(field, "only lanes are chosen by it, and this action is on jobs");
        }
        if on_lanes && self.since.is_some() {
            return wrong("since", "lanes do not die, and this action is on lanes");
        }
        if self.rate.is_some() && !self.takes_rate() {
            return wrong("rate", "only a requeue of dead jobs chosen by a filter has a rate");
        }
        if self.action == Action::DeleteJobs && self.jobs.is_none() {
            return wrong("jobs", "names the jobs, and is needed by this action");
        }
        let texts = [&self.key, &self.prefix, &self.task, &self.error, &self.cause];
        let given = texts.iter().filter_map(|text| text.as_deref());
        let mut given = given.chain(self.lane_filters().map(|(_, text)| text));
        if given.any(|text| text.len() > TEXT_BYTES_MAX) {
            let why = format!("a filter has at most {TEXT_BYTES_MAX} bytes");
            return Err(Error::Bound { field: "filter", why });
        }
        self.lane_query(Timestamp::MAX)?;
        let Some(named) = self.named() else { return Ok(()) };
        if self.queues.is_some() {
            return wrong("queues", "jobs and lanes named one by one must be of one `queue`");
        }
        if !(1..=STEP_ROWS_MAX).contains(&named) {
            let field = if on_lanes { "lanes" } else { "jobs" };
            let why = format!("name 1 to {STEP_ROWS_MAX}, not {named}");
            return Err(Error::Bound { field, why });
        }
        let is_filtered = texts.iter().any(|text| text.is_some()) || self.untasked;
        if is_filtered || lane_filter.is_some() || self.since.is_some() {
            let why = "name jobs or lanes one by one, or filter them, not both".to_owned();
            return Err(Error::Bound { field: "filter", why });
        }
        Ok(())
    }

    /// Whether its lanes are found by their waiting jobs.
    pub(super) fn finds_jobs(&self, mode: Mode) -> bool {
        // A lane without a key is one job, and only jobs know when they were pushed.
        let is_keyless = !mode.is_keyed() && self.lane_filters().next().is_none();
        self.is_all_failed(mode) || (self.action == Action::DeleteWaiting && is_keyless)
    }

    /// Whether it is about all jobs that failed in a queue of this mode, also behind a head that has not: listings of lanes
    /// do not have them. Where lanes fail, they do.
    fn is_all_failed(&self, mode: Mode) -> bool {
        let filtered = [&self.key, &self.prefix, &self.task, &self.error, &self.cause];
        let is_filtered =
            filtered.iter().any(|text| text.is_some()) || self.lane_filters().next().is_some();
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
            && !self.is_asked(job)
            && (!self.action.is_for_failed() || job.retry_count >= 0)
            && self.since.is_none_or(|Time(since)| at >= since)
            && self.task.as_deref().is_none_or(|task| job.task.as_deref() == Some(task))
            && (!self.untasked || job.task.is_none())
            && self.has(job.key.as_deref(), job.error.as_deref())
    }

    /// Whether it was done to this job before: it runs, and has the request to end. To ask again would count it twice.
    pub(super) fn is_asked(&self, job: &JobView) -> bool {
        self.action == Action::CancelJobs && job.cancel_requested
    }

    /// The listing of its lanes. The lag is that at `before`: it grows by itself, and what was counted is meant.
    pub(super) fn lane_query(&self, before: Timestamp) -> Result<LaneQuery> {
        let filters = Filters {
            state: &self.state,
            lane: "",
            prefix: self.prefix.as_deref().unwrap_or_default(),
            node: &self.node,
            due_from: &self.due_from,
            due_to: &self.due_to,
            retries_min: &self.retries_min,
            lag_min: &self.lag_min,
        };
        let query = LaneQuery { key: self.key.clone(), ..LaneQuery::new(self.queue.as_str()) };
        Ok(match filters.of(query)? {
            (query, Some(least)) => query.lagging(least, before),
            (query, None) => query,
        })
    }

    /// Whether it is about a job or a lane with this key and last error.
    pub(super) fn has(&self, key: Option<&str>, error: Option<&str>) -> bool {
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

    /// The filters that only lanes have, by name: those that are set.
    pub(super) fn lane_filters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all: [(&str, &str); 6] = [
            ("state", &self.state),
            ("node", &self.node),
            ("due_from", &self.due_from),
            ("due_to", &self.due_to),
            ("retries_min", &self.retries_min),
            ("lag_min", &self.lag_min),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty())
    }

    /// The filters by name, as forms, queries and command lines write them.
    pub(crate) fn filters(&self) -> Vec<(&'static str, String)> {
        let joined = |ids: Vec<String>| ids.join(",");
        [
            ("key", self.key.clone()),
            ("prefix", self.prefix.clone()),
            ("task", self.task.clone()),
            ("untasked", self.untasked.then(|| "true".to_owned())),
            ("error", self.error.clone()),
            ("cause", self.cause.clone()),
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
        .chain(self.lane_filters().map(|(name, text)| (name, text.to_owned())))
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
            None => format!("{} of {}", self.action.objects(), self.place_in_words()),
        };
        for (name, value) in self.sent_filters() {
            let says = match name {
                "jobs" | "lanes" => continue,
                // What is named one by one may have come at any time.
                "before" if self.named().is_some() => continue,
                "untasked" => {
                    words += ", without a task";
                    continue;
                }
                "prefix" => "keys from",
                "error" => "error with",
                "rate" => "at most",
                "due_from" => "due from",
                "due_to" => "due to",
                "retries_min" => "retry count at least",
                "lag_min" => "due for at least",
                name => name,
            };
            words += &format!(", {says} {}", one_line(&value));
        }
        words
    }
}

/// Reads a text, or a number as its text.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
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
