//! The `[[workers]]` tables: which keys go together, and what they mean.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::length;
use crate::output::Failure;

/// Most processes of one worker.
const PROCESSES_MAX: usize = 1_024;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerConfig {
    pub(crate) queue: String,
    #[serde(default)]
    pub(crate) task: Option<String>,
    /// One process per call.
    #[serde(default)]
    pub(crate) command: Option<Vec<String>>,
    /// Long-lived.
    #[serde(default)]
    pub(crate) process: Option<Vec<String>>,
    /// How many of them.
    #[serde(default)]
    pub(crate) processes: Option<usize>,
    /// Files that are part of the program, besides those it is started with.
    #[serde(default)]
    pub(crate) watch: Option<Vec<PathBuf>>,
    /// Most calls at once: of this queue, or in each process.
    #[serde(default)]
    pub(crate) concurrency: Option<usize>,
    #[serde(default, deserialize_with = "length")]
    pub(crate) timeout: Option<Duration>,
}

/// What runs the calls.
#[derive(Clone, Debug)]
pub(crate) enum WorkerKind {
    Command(Arc<[String]>),
    Process { program: Arc<[String]>, processes: usize, watched: Vec<PathBuf> },
}

impl WorkerConfig {
    /// The kind of the worker; an error names the keys that contradict each other.
    pub(crate) fn kind(&self) -> Result<WorkerKind, Failure> {
        self.read_kind().map_err(Failure::usage)
    }

    /// The same, with an error that says nothing of where it is.
    pub(super) fn read_kind(&self) -> Result<WorkerKind, String> {
        let kinds = [("command", self.command.is_some()), ("process", self.process.is_some())];
        let mut named = kinds.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name);
        let kind = named.next().ok_or("needs `command` or `process`")?;
        if let Some(other) = named.next() {
            return Err(format!("`{kind}` and `{other}` contradict each other: keep one of them"));
        }
        self.check_keys(kind)?;
        let program = self.command.as_ref().or(self.process.as_ref());
        if program.is_some_and(|program| program.first().is_none_or(String::is_empty)) {
            return Err(format!("`{kind}` is empty: write the program and its arguments"));
        }
        if self.concurrency == Some(0) {
            return Err("`concurrency` is 0: at least 1".to_owned());
        }
        let program: Arc<[String]> = program.cloned().unwrap_or_default().into();
        match kind {
            "command" => Ok(WorkerKind::Command(program)),
            _ => self.process_kind(program),
        }
    }

    fn process_kind(&self, program: Arc<[String]>) -> Result<WorkerKind, String> {
        let processes = self.processes.unwrap_or(1);
        if !(1..=PROCESSES_MAX).contains(&processes) {
            return Err(format!("`processes` is {processes}: from 1 to {PROCESSES_MAX}"));
        }
        let watched = self.watch.clone().unwrap_or_default();
        Ok(WorkerKind::Process { program, processes, watched })
    }

    /// Refuses keys that say nothing for this kind.
    fn check_keys(&self, kind: &str) -> Result<(), String> {
        let keys = [
            ("processes", self.processes.is_some(), "process"),
            ("watch", self.watch.is_some(), "process"),
        ];
        match keys.iter().find(|(_, is_set, of)| *is_set && *of != kind) {
            None => Ok(()),
            Some((key, _, of)) => {
                Err(format!("`{key}` belongs to `{of}`, and this worker has `{kind}`"))
            }
        }
    }
}
