//! What the SQL stores share of the inbox: the meaning of its rows.

#[cfg(test)]
pub(super) mod tests;

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;

use crate::contract::{Drained, EndedDeed, InboxAsk, InboxDeed, PushStatus, Pushed, RefusedRow};
use crate::model::job::refuse_reserved_queue;
use crate::model::limits::{
    ATTEMPTS_MAX, INBOX_BYTES_MAX, INBOX_ROWS_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
    cut_error,
};
use crate::model::{
    Error, ErrorKind, Job, JobId, Payload, Result, RunAt, Timestamp, validate_text,
};

/// A row that waits, as the stores read it. Texts are cut at 1,024 characters, above every limit; a payload over its limit
/// is left out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Row {
    pub id: i64,
    pub action: Option<String>,
    pub queue: Option<String>,
    pub key: Option<String>,
    pub payload: Option<String>,
    /// The length of the payload.
    pub bytes: Option<i64>,
    pub task: Option<String>,
    /// As text, which keeps every digit, like the next.
    pub score: Option<String>,
    pub priority: Option<String>,
    /// In microseconds since 1970, like the next.
    pub run_at: Option<i64>,
    pub expires_at: Option<i64>,
    /// The column with a time that cannot be read.
    #[serde(default)]
    pub bad_time: Option<String>,
    /// The column with bytes that are no text.
    #[serde(default)]
    pub bad_text: Option<String>,
    pub idempotency_key: Option<String>,
    pub node: Option<String>,
    pub consumer_group: Option<String>,
    pub partition_key: Option<String>,
    pub producer: Option<String>,
    pub job_id: Option<String>,
    pub max_retries: Option<String>,
    pub key_group: Option<String>,
}

/// What a row asks for.
enum Asked {
    Push(Box<Job>),
    Deed(InboxDeed),
}

/// What one step does with the oldest rows.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// The jobs to push, and their rows.
    pub jobs: Vec<Job>,
    pub rows: Vec<i64>,
    /// Rows that can never be pushed.
    pub refused: Vec<RefusedRow>,
    /// What the first rows ask for, if they ask for no push.
    pub deeds: Vec<InboxDeed>,
}

impl Step {
    /// The rows from the first one on that are carried out in the same way: pushes, or deeds.
    pub(super) fn of(rows: &[Row], now: Timestamp) -> Self {
        let mut step = Self::default();
        for row in rows {
            match row.asks() {
                Ok(Asked::Push(job)) if step.deeds.is_empty() => {
                    step.rows.push(row.id);
                    step.jobs.push(*job);
                }
                Ok(Asked::Deed(deed)) if step.jobs.is_empty() => step.deeds.push(deed),
                // The kind changes: the rest is for the next step.
                Ok(_) => break,
                Err(error) => step.refused.push(row.refused(&error, now)),
            }
        }
        step
    }

    /// Refuses the rows that the store answered with a refusal; the rest of the answer is of those that stay.
    pub(super) fn refuse_throttled(
        &mut self,
        pushed: Vec<Pushed>,
        all: &[Row],
        now: Timestamp,
    ) -> Vec<Pushed> {
        if pushed.iter().all(|pushed| pushed.status != PushStatus::Throttled) {
            return pushed;
        }
        let (jobs, rows) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.rows));
        let mut taken = Vec::with_capacity(pushed.len());
        for ((job, row), pushed) in jobs.into_iter().zip(rows).zip(pushed) {
            match pushed.taken(job.key.as_deref()) {
                Ok(_) => {
                    self.jobs.push(job);
                    self.rows.push(row);
                    taken.push(pushed);
                }
                Err(error) => {
                    let row = all.iter().find(|of| of.id == row);
                    self.refused.extend(row.map(|row| row.refused(&error, now)));
                }
            }
        }
        taken
    }

    /// The answer of the store. `found`: the rows of which it is a step. `rows_max`: most of them.
    pub(super) fn drained(self, pushed: Vec<Pushed>, found: &[Row], rows_max: i64) -> Drained {
        let Self { jobs, rows, refused, deeds } = self;
        let is_part = !deeds.is_empty() || rows.len() + refused.len() < found.len();
        let more = is_part || found.len() as i64 >= rows_max || may_be_cut(found);
        Drained { jobs, pushed, refused, deeds, more }
    }
}

/// Whether a row may have been left for the next step because of its bytes.
fn may_be_cut(found: &[Row]) -> bool {
    let payload_max = PAYLOAD_BYTES_MAX as i64;
    let bytes: i64 = found.iter().filter_map(|row| row.bytes).map(|n| n.min(payload_max)).sum();
    bytes + payload_max > INBOX_BYTES_MAX as i64
}

/// Rows to be deleted, and those to be marked, each with its reason.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub done: Vec<i64>,
    pub refused: Vec<(i64, String)>,
}

impl Ends {
    /// Those of carried out deeds.
    pub(super) fn of_deeds(ended: &[EndedDeed]) -> Self {
        let mut ends = Self::default();
        for deed in ended {
            match &deed.refused {
                Some(why) => ends.refused.push((deed.row, cut_error(why).into_owned())),
                None => ends.done.push(deed.row),
            }
        }
        ends
    }

    /// Those of a step.
    pub(super) fn of_step(step: &Step) -> Self {
        let refused = step.refused.iter().map(|row| (row.row, row.why.clone()));
        Self { done: step.rows.clone(), refused: refused.collect() }
    }

    /// Those of carried out deeds, and of a row behind them that the store refuses.
    pub(super) fn of_refused(ended: &[EndedDeed], row: &RefusedRow) -> Self {
        let mut ends = Self::of_deeds(ended);
        ends.refused.push((row.row, row.why.clone()));
        ends
    }

    #[cfg(feature = "postgres")]
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.refused.is_empty()
    }
}

impl Row {
    /// Payload bytes that it adds to a step.
    #[cfg(feature = "sqlite")]
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, String::len)
    }

    /// The row, refused.
    pub(super) fn refused(&self, error: &Error, now: Timestamp) -> RefusedRow {
        let (queue, key) = (self.queue.clone(), self.key.clone());
        // The place in a batch means nothing to a reader of the row.
        let why = match error.field().map(|field| field.split_once("].").map_or(field, |of| of.1)) {
            Some("group") => format!("key_group: {}", error.message()),
            Some(field) if !field.starts_with("jobs[") => format!("{field}: {}", error.message()),
            _ => error.message().to_owned(),
        };
        RefusedRow { row: self.id, queue, key, why: cut_error(&why).into_owned(), at: now }
    }

    /// The column in which bytes were replaced, as they were no text.
    #[cfg(feature = "sqlite")]
    pub(super) fn replaced(&self) -> Option<&'static str> {
        let texts = [
            ("queue", &self.queue),
            ("key", &self.key),
            ("payload", &self.payload),
            ("task", &self.task),
            ("idempotency_key", &self.idempotency_key),
            ("node", &self.node),
            ("consumer_group", &self.consumer_group),
            ("partition_key", &self.partition_key),
            ("producer", &self.producer),
            ("key_group", &self.key_group),
        ];
        let is_replaced =
            |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\u{fffd}'));
        texts.into_iter().find(|(_, text)| is_replaced(text)).map(|(name, _)| name)
    }

    fn asks(&self) -> Result<Asked> {
        if let Some(field) = &self.bad_time {
            let message = "cannot be read as a time";
            return Err(Error::invalid(field.clone(), message));
        }
        if let Some(field) = &self.bad_text {
            let message = "must be text in UTF-8 without NUL characters";
            return Err(Error::invalid(field.clone(), message));
        }
        match self.action.as_deref() {
            None | Some("push") => self.job().map(Box::new).map(Asked::Push),
            Some("cancel") => self.deed(InboxAsk::Cancel),
            Some("reassign") => {
                // As that of a push.
                if let Some(node) = &self.node {
                    validate_text("node", node, NAME_BYTES_MAX)?;
                }
                self.deed(InboxAsk::Reassign(self.node.clone()))
            }
            Some(_) => Err(Error::invalid("action", "must be push, cancel or reassign")),
        }
    }

    fn deed(&self, ask: InboxAsk) -> Result<Asked> {
        let missing = || Error::invalid("job_id", "is missing: which job?");
        let job: JobId = self.job_id.as_deref().ok_or_else(missing)?.parse()?;
        Ok(Asked::Deed(InboxDeed { row: self.id, job, ask }))
    }

    fn job(&self) -> Result<Job> {
        if self.job_id.is_some() {
            let message = "belongs to the actions cancel and reassign: a push makes a new job";
            return Err(Error::invalid("job_id", message));
        }
        let missing = || Error::invalid("queue", "is missing");
        let queue = self.queue.as_ref().ok_or_else(missing)?;
        refuse_reserved_queue(queue)?;
        let mut job = Job::with_payload(queue, self.body()?);
        job.key.clone_from(&self.key);
        job.task.clone_from(&self.task);
        if let Some(score) = &self.score {
            let score = score.parse();
            job.score =
                Some(score.map_err(|_| Error::invalid("score", "must be a finite number"))?);
        }
        if let Some(priority) = &self.priority {
            job.priority = number("priority", priority, PRIORITY_MAX)?;
        }
        if let Some(retries) = &self.max_retries {
            job.options.max_retries = Some(number("max_retries", retries, ATTEMPTS_MAX)?);
        }
        if let Some(time) = self.run_at {
            job.run_at = RunAt::At(Timestamp::from_micros(time));
        }
        job.options.expires_at = self.expires_at.map(Timestamp::from_micros);
        job.options.idempotency_key.clone_from(&self.idempotency_key);
        job.options.node.clone_from(&self.node);
        job.options.consumer_group.clone_from(&self.consumer_group);
        job.options.partition_key.clone_from(&self.partition_key);
        job.options.producer.clone_from(&self.producer);
        job.options.group.clone_from(&self.key_group);
        job.validate()?;
        Ok(job)
    }

    fn body(&self) -> Result<Payload> {
        match (&self.payload, self.bytes) {
            (_, Some(bytes)) if bytes > PAYLOAD_BYTES_MAX as i64 => {
                let message = format!("has {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are taken");
                Err(Error::invalid("payload", message))
            }
            (Some(text), _) => Payload::from_json_text(text),
            (None, _) => Payload::json(&()),
        }
    }
}

/// The number in a column, which is 0 to `most`.
fn number<T: FromStr + PartialOrd + Display>(
    column: &'static str,
    text: &str,
    most: T,
) -> Result<T> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| Error::invalid(column, format!("must be 0 to {most}")))
}

/// Reads rows from documents.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn read<'a>(documents: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Row>> {
    let corrupt =
        |e| Error::new(ErrorKind::Corrupt, "a row of the inbox cannot be read").because(e);
    documents.into_iter().map(|text| serde_json::from_slice(text).map_err(corrupt)).collect()
}

/// Reads refused rows from documents.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn read_refused<'a>(
    documents: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<RefusedRow>> {
    let corrupt =
        |e| Error::new(ErrorKind::Corrupt, "a row of the inbox cannot be read").because(e);
    documents.into_iter().map(|text| serde_json::from_slice(text).map_err(corrupt)).collect()
}

/// Most rows of a step.
pub(super) fn rows_max(asked: usize) -> i64 {
    asked.min(INBOX_ROWS_MAX) as i64
}

/// How an attempt to carry out the oldest rows ended.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) enum Attempt {
    Done(Drained),
    /// Then nothing has happened.
    Refused(Refusal),
}

/// The store refuses the job of this row. If rows come before it whose jobs it takes: how many.
pub(super) type Refusal = (RefusedRow, Option<usize>);

/// The row because of which a push was refused. An error: it is not because of a row.
pub(super) fn refusal(error: Error, step: &Step, rows: &[Row], now: Timestamp) -> Result<Refusal> {
    let is_of_a_job = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid);
    let Some(field) = error.field().filter(|_| is_of_a_job) else {
        return Err(error);
    };
    let place = field.strip_prefix("jobs[").and_then(|rest| rest.split_once(']'));
    let place = place.and_then(|(place, _)| place.parse().ok());
    // If it names none, half of them are tried, down to a single one.
    let place = place.filter(|place| *place < step.rows.len()).unwrap_or(step.rows.len() / 2);
    let number = step.rows.get(place).copied().unwrap_or_default();
    let Some(before) = rows.iter().position(|row| row.id == number) else {
        return Err(error);
    };
    let row = rows[before].refused(&error, now);
    Ok((row, (place > 0).then_some(before)))
}
