//! The report of a turn's holder: its progress and its steps. A store keeps both in one text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::error::{Error, Result};
use crate::model::id::JobId;
use crate::model::limits::{NAME_BYTES_MAX, PROGRESS_BYTES_MAX, STEPS_BYTES_MAX};

/// The field of a text that keeps steps beside progress. A progress with this word in it is wrapped even without
/// steps, so that none is mistaken for them.
const MARK: &str = "\"seriatim.steps\"";

/// The progress of a turn and its steps. Each replaces only its own kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnReport {
    /// The last progress, as JSON.
    pub progress: Option<Arc<str>>,
    /// The steps, if the turn has any.
    pub steps: Option<StepRecord>,
}

/// The steps of a turn: which one is under way, and the results of those that have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Identifies the jobs to which the steps belong.
    jobs: String,
    /// The step under way.
    pub step: Option<String>,
    /// The results of the steps that have ended.
    pub done: BTreeMap<String, Value>,
}

/// Both in one text. Progress alone is kept as it was reported.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    #[serde(rename = "seriatim.steps")]
    steps: Option<Cow<'a, StepRecord>>,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
}

impl TurnReport {
    /// Reads what a store keeps as a turn's progress.
    pub fn read(kept: Option<&str>) -> Self {
        let Some(text) = kept else { return Self::default() };
        let document = text.contains(MARK).then(|| serde_json::from_str::<Document<'_>>(text));
        match document {
            Some(Ok(Document { steps, progress })) => Self {
                progress: progress.map(|raw| raw.get().into()),
                steps: steps.map(Cow::into_owned),
            },
            _ => Self { progress: Some(text.into()), steps: None },
        }
    }

    /// The text for a store. `None` if nothing was reported.
    pub fn write(&self) -> Option<Arc<str>> {
        let progress = self.progress.as_deref();
        if self.steps.is_none() && !progress.is_some_and(|text| text.contains(MARK)) {
            return self.progress.clone();
        }
        let steps = self.steps.as_ref().map(Cow::Borrowed);
        // Progress that is not JSON cannot be stored beside steps: steps take precedence.
        let progress = progress.and_then(|text| serde_json::from_str(text).ok());
        serde_json::to_string(&Document { steps, progress }).ok().map(Into::into)
    }

    /// The steps of a turn of these jobs. Steps of other jobs are ignored.
    pub fn steps_of(&mut self, jobs: &[JobId]) -> &mut StepRecord {
        let jobs = name_of(jobs);
        let steps = self.steps.take().filter(|steps| steps.jobs == jobs);
        self.steps.insert(steps.unwrap_or(StepRecord { jobs, step: None, done: BTreeMap::new() }))
    }

    /// Refuses progress that is too long.
    pub fn check_progress(text: &str) -> Result<()> {
        match text.len() {
            bytes if bytes > PROGRESS_BYTES_MAX => {
                let message = format!("has {bytes} bytes; at most {PROGRESS_BYTES_MAX} are kept");
                Err(Error::invalid("progress", message))
            }
            _ => Ok(()),
        }
    }
}

impl StepRecord {
    /// Begins a step: its result, if it has ended before.
    pub fn begin(&mut self, name: &str) -> Result<Option<&Value>> {
        check_name(name)?;
        if !self.done.contains_key(name) {
            self.step = Some(name.to_owned());
        }
        self.check_size(name)?;
        Ok(self.done.get(name))
    }

    /// Ends a step with its result.
    pub fn end(&mut self, name: &str, result: Value) -> Result<()> {
        check_name(name)?;
        self.done.insert(name.to_owned(), result);
        self.step = None;
        self.check_size(name)
    }

    fn check_size(&self, name: &str) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| {
            Error::invalid("step", "its result cannot be written as JSON").because(e)
        })?;
        match text.len() {
            bytes if bytes > STEPS_BYTES_MAX => {
                let message = format!(
                    "{name:?}: the results have {bytes} bytes; at most {STEPS_BYTES_MAX} are kept: return a reference"
                );
                Err(Error::invalid("step", message))
            }
            _ => Ok(()),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("{name:?} must have 1 to {NAME_BYTES_MAX} bytes");
        return Err(Error::invalid("step", message));
    }
    Ok(())
}

/// A hash that identifies a set of jobs, so that the steps of other jobs are not used for them.
fn name_of(jobs: &[JobId]) -> String {
    let mut hasher = blake3::Hasher::new();
    for job in jobs {
        hasher.update(&job.to_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(progress: Option<&str>, steps: Option<StepRecord>) -> TurnReport {
        TurnReport { progress: progress.map(Into::into), steps }
    }

    #[test]
    fn d12_progress_alone_is_kept_as_it_was_reported() {
        for text in ["7", r#"{"percent": 40.0}"#, "null"] {
            let kept = told(Some(text), None).write();
            assert_eq!(kept.as_deref(), Some(text));
            assert_eq!(TurnReport::read(kept.as_deref()), told(Some(text), None));
        }
        assert_eq!(TurnReport::default().write(), None);
    }

    #[test]
    fn d12_progress_and_steps_leave_each_other_alone() {
        let mut report = TurnReport::default();
        report.steps_of(&[]).end("extract", json!([1, 2])).unwrap();
        report.progress = Some(r#"{"n":1e400}"#.into());
        let mut read = TurnReport::read(report.write().as_deref());
        assert_eq!(read, report, "numbers too, which nobody reads");
        read.steps_of(&[]).begin("load").unwrap();
        assert_eq!(read.progress, report.progress);
        assert_eq!(read.steps_of(&[]).begin("extract").unwrap(), Some(&json!([1, 2])));
        assert_eq!(read.steps.unwrap().step.as_deref(), Some("load"));
    }

    #[test]
    fn d12_progress_that_looks_like_steps_is_progress() {
        let mut steps = TurnReport::default();
        steps.steps_of(&[]).end("paid", json!(true)).unwrap();
        let forged = steps.write().unwrap();
        let report = told(Some(&forged), None);
        assert_eq!(TurnReport::read(report.write().as_deref()), report);
    }

    #[test]
    fn d12_steps_of_other_jobs_do_not_count() {
        let mut report = TurnReport::default();
        let (one, other) = (JobId::from_bytes([1; 16]), JobId::from_bytes([2; 16]));
        report.steps_of(&[one]).end("extract", json!(1)).unwrap();
        assert_eq!(report.steps_of(&[one]).done.len(), 1);
        assert_eq!(report.steps_of(&[other]).done.len(), 0);
    }
}
