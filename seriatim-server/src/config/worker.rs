//! The `[[workers]]` tables: which keys go together, and what they mean.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hyper::header::HeaderName;
use hyper::{Method, Uri};
use serde::Deserialize;
use seriatim::{Backoff, Exhaustion, Mode, Queue};

use super::bucket::{BucketConfig, ServerConfig};
use super::environment::Environment;
use super::header::HeaderConfig;
use super::length::length;
use super::worker_kind::{
    Ffmpeg, HTTP_TIMEOUT, HttpSettings, Launch, Replicate, Roots, Servers, WorkerKind,
};
use crate::base::setup_error::SetupError;

/// The time limit of a call, unless the worker, its queue or a job sets one.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3_600);
/// The same for calls that convert or copy large files.
pub(crate) const TIMEOUT_DEFAULT_FILES: Duration = Duration::from_secs(24 * 3_600);
/// Most processes of one worker.
const PROCESSES_MAX: usize = 1_024;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerConfig {
    pub(crate) queue: String,
    pub(crate) task: Option<String>,
    /// One process per call.
    pub(crate) command: Option<Vec<String>>,
    /// Long-lived.
    pub(crate) process: Option<Vec<String>>,
    /// How many of them.
    pub(crate) processes: Option<usize>,
    /// Files that are part of the program, besides those it is started with.
    pub(crate) watch: Option<Vec<PathBuf>>,
    /// Further variables for the program.
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// Variables of this process to pass on.
    pub(crate) env_pass: Option<Vec<String>>,
    /// Most concurrent calls: of this queue, or in each process.
    pub(crate) concurrency: Option<usize>,
    #[serde(default, deserialize_with = "length")]
    pub(crate) timeout: Option<Duration>,
    /// The share under the `weighted` scheduler, instead of the queue's.
    pub(crate) weight: Option<u32>,
    /// About retries, instead of the queue's.
    pub(crate) max_retries: Option<u32>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) exhausted: Option<Exhaustion>,
    /// Ready-made.
    pub(crate) builtin: Option<Builtin>,
    pub(crate) url: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) headers: Option<BTreeMap<String, HeaderConfig>>,
    /// The outcome after a 4xx answer.
    pub(crate) on_refusal: Option<OnRefusal>,
    /// Folders within which files may be read and written.
    pub(crate) roots: Option<Vec<PathBuf>>,
    /// Other servers by name, and the program that copies to their folders.
    pub(crate) servers: Option<BTreeMap<String, ServerConfig>>,
    pub(crate) rsync: Option<Vec<String>>,
    /// The programs, where they are not in the path.
    pub(crate) ffmpeg: Option<String>,
    pub(crate) ffprobe: Option<String>,
    /// Options of every job.
    pub(crate) args: Option<Vec<String>>,
    /// Whether payloads may add options.
    pub(crate) payload_args: Option<bool>,
}

/// The ready-made workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Builtin {
    Http,
    Ffmpeg,
    Replicate,
}

impl Builtin {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ffmpeg => "ffmpeg",
            Self::Replicate => "replicate",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnRefusal {
    Bury,
    Retry,
}

impl WorkerConfig {
    /// Most calls at a time; unset: the node's.
    pub(crate) fn most_calls(&self) -> Option<usize> {
        match &self.process {
            Some(_) => {
                let each = self.concurrency.unwrap_or(1).max(1);
                Some(self.processes.unwrap_or(1).saturating_mul(each))
            }
            None => self.concurrency,
        }
    }

    /// The default time limit of a call; none if `timeout` is 0.
    pub(crate) fn timeout_default(&self) -> Option<Duration> {
        let length = match self.builtin {
            None | Some(Builtin::Http) => TIMEOUT_DEFAULT,
            Some(Builtin::Ffmpeg | Builtin::Replicate) => TIMEOUT_DEFAULT_FILES,
        };
        Some(length).filter(|_| self.timeout != Some(Duration::ZERO))
    }

    /// The kind of the worker, of a queue of this mode.
    pub(crate) fn kind(&self, mode: Mode) -> Result<WorkerKind, SetupError> {
        self.read_kind(mode).map_err(SetupError::invalid)
    }

    /// The same; the error names the contradicting keys, not their place.
    pub(super) fn read_kind(&self, mode: Mode) -> Result<WorkerKind, String> {
        let kind = self.named_kind()?;
        self.check_keys(kind)?;
        self.check_numbers()?;
        if self.concurrency == Some(0) {
            return Err("`concurrency` is 0: at least 1".to_owned());
        }
        match self.builtin {
            None => self.program_kind(kind),
            Some(Builtin::Http) => self.http(mode).map(WorkerKind::Http),
            Some(Builtin::Ffmpeg) => Ok(WorkerKind::Ffmpeg(self.transcoder(self.roots(kind)?))),
            Some(Builtin::Replicate) => {
                let (roots, servers) = (self.roots(kind)?, self.known_servers()?);
                Ok(WorkerKind::Replicate(Replicate { roots, servers }))
            }
        }
    }

    /// The program of a `command` or a `process`.
    pub(crate) fn launch(&self) -> Option<Launch> {
        let words = self.command.as_ref().or(self.process.as_ref())?;
        Some(Launch::new(words, self.environment()))
    }

    /// The environment of its program.
    pub(super) fn environment(&self) -> Environment {
        Environment {
            set: self.env.clone().unwrap_or_default(),
            passed: self.env_pass.clone().unwrap_or_default(),
        }
    }

    /// What it runs, in a word or as its command.
    pub(crate) fn shown(&self) -> String {
        let program = self.command.as_ref().or(self.process.as_ref());
        let builtin = || self.builtin.map_or("", Builtin::name).to_owned();
        program.map_or_else(builtin, |program| program.join(" "))
    }

    fn named_kind(&self) -> Result<&'static str, String> {
        let kinds = [
            ("command", self.command.is_some()),
            ("process", self.process.is_some()),
            ("builtin", self.builtin.is_some()),
        ];
        let mut named = kinds.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name);
        match (named.next(), named.next()) {
            (None, _) => Err("needs `command`, `process` or `builtin`".to_owned()),
            (Some(kind), None) => Ok(self.builtin.map_or(kind, Builtin::name)),
            (Some(one), Some(other)) => {
                Err(format!("`{one}` and `{other}` contradict each other: remove one"))
            }
        }
    }

    fn program_kind(&self, kind: &str) -> Result<WorkerKind, String> {
        let Some(launch) = self.launch().filter(|launch| !launch.name().is_empty()) else {
            return Err(format!("`{kind}` is empty: write the program and its arguments"));
        };
        if self.command.is_some() {
            return Ok(WorkerKind::Command(launch));
        }
        let processes = self.processes.unwrap_or(1);
        if !(1..=PROCESSES_MAX).contains(&processes) {
            return Err(format!("`processes` is {processes}: from 1 to {PROCESSES_MAX}"));
        }
        let watched = self.watch.clone().unwrap_or_default();
        Ok(WorkerKind::Process { launch, processes, watched })
    }

    /// What it sets instead of its queue has the same limits.
    fn check_numbers(&self) -> Result<(), String> {
        let mut queue = Queue::parallel("jobs");
        queue.max_retries = self.max_retries.unwrap_or(queue.max_retries);
        queue.weight = self.weight.unwrap_or(queue.weight);
        queue.backoff = self.backoff.unwrap_or(queue.backoff);
        queue.validate().map_err(|error| error.to_string())
    }

    /// Refuses keys that do not apply to this kind.
    fn check_keys(&self, kind: &str) -> Result<(), String> {
        let keys: [(&str, bool, &[&str]); 15] = [
            ("env", self.env.is_some(), &["command", "process", "ffmpeg", "replicate"]),
            ("env_pass", self.env_pass.is_some(), &["command", "process", "ffmpeg", "replicate"]),
            ("processes", self.processes.is_some(), &["process"]),
            ("watch", self.watch.is_some(), &["process"]),
            ("url", self.url.is_some(), &["http"]),
            ("method", self.method.is_some(), &["http"]),
            ("headers", self.headers.is_some(), &["http"]),
            ("on_refusal", self.on_refusal.is_some(), &["http"]),
            ("roots", self.roots.is_some(), &["ffmpeg", "replicate"]),
            ("servers", self.servers.is_some(), &["replicate"]),
            ("rsync", self.rsync.is_some(), &["replicate"]),
            ("ffmpeg", self.ffmpeg.is_some(), &["ffmpeg"]),
            ("ffprobe", self.ffprobe.is_some(), &["ffmpeg"]),
            ("args", self.args.is_some(), &["ffmpeg"]),
            ("payload_args", self.payload_args.is_some(), &["ffmpeg"]),
        ];
        match keys.iter().find(|(_, is_set, of)| *is_set && !of.contains(&kind)) {
            None => Ok(()),
            Some((key, _, of)) => {
                let of = of.join("` or `");
                Err(format!("`{key}` needs `{of}`, but this worker is `{kind}`"))
            }
        }
    }

    fn http(&self, mode: Mode) -> Result<HttpSettings, String> {
        let url = self.url.as_deref().ok_or("`builtin = \"http\"` needs `url`")?;
        let url: Uri = url.parse().map_err(|error| format!("`url`: {error}"))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
            return Err("`url` must begin with http:// or https:// and a host".to_owned());
        }
        // Requests would silently lack them.
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("`url` has a user or password, which is not sent: remove it, and write headers = { Authorization = { env = \"HOOK_TOKEN\" } }".to_owned());
        }
        let method = match self.method.as_deref() {
            None | Some("POST") => Method::POST,
            Some("PUT") => Method::PUT,
            Some("PATCH") => Method::PATCH,
            Some(other) => return Err(format!("`method` is {other:?}: write POST, PUT or PATCH")),
        };
        Ok(HttpSettings {
            url,
            method,
            headers: self.named_headers()?,
            timeout: Some(self.timeout.unwrap_or(HTTP_TIMEOUT)).filter(|it| !it.is_zero()),
            is_refusal_final: self.on_refusal != Some(OnRefusal::Retry),
            // What waits for a key is handed over together: a varying number of payloads.
            sends_lists: mode == Mode::Accumulate,
        })
    }

    fn named_headers(&self) -> Result<Vec<(HeaderName, HeaderConfig)>, String> {
        let mut named = Vec::new();
        for (name, value) in self.headers.iter().flatten() {
            let wrong = |why: &str| format!("`headers`: {name:?} {why}");
            let header =
                HeaderName::try_from(name).map_err(|_| wrong("is not the name of a header"))?;
            let ours = ["content-length", "host", "idempotency-key", "transfer-encoding"];
            if ours.contains(&header.as_str()) || header.as_str().starts_with("seriatim-") {
                return Err(wrong("is set by Seriatim"));
            }
            value.check().map_err(|why| wrong(&why))?;
            named.push((header, value.clone()));
        }
        Ok(named)
    }

    fn transcoder(&self, roots: Roots) -> Ffmpeg {
        Ffmpeg {
            transcoder: self.ffmpeg.clone().unwrap_or_else(|| "ffmpeg".to_owned()),
            prober: self.ffprobe.clone().unwrap_or_else(|| "ffprobe".to_owned()),
            args: self.args.clone().unwrap_or_default(),
            takes_args: self.payload_args.unwrap_or(false),
            environment: self.environment(),
            roots,
        }
    }

    /// The variables with the keys of its buckets and the values of its headers, which no program may get.
    pub(super) fn secret_variables(&self) -> impl Iterator<Item = &str> {
        let servers = self.servers.iter().flat_map(BTreeMap::values);
        let buckets = servers.filter_map(|server| match server {
            ServerConfig::Bucket(bucket) => Some(bucket),
            ServerConfig::Folder(_) => None,
        });
        let headers = self.headers.iter().flat_map(BTreeMap::values);
        buckets.flat_map(BucketConfig::variables).chain(headers.filter_map(HeaderConfig::variable))
    }

    fn known_servers(&self) -> Result<Servers, String> {
        let mut servers = Servers { environment: self.environment(), ..Servers::default() };
        for (name, server) in self.servers.iter().flatten() {
            if name.is_empty() || name.contains([':', '/']) {
                return Err(format!(
                    "`servers`: the name {name:?} is empty or has a colon or slash"
                ));
            }
            match server {
                ServerConfig::Folder(folder) => {
                    check_folder(name, folder)?;
                    servers.folders.insert(name.clone(), folder.clone());
                }
                ServerConfig::Bucket(bucket) => {
                    let settings = bucket.settings();
                    let settings = settings.map_err(|why| format!("`servers`: {name}: {why}"))?;
                    servers.buckets.insert(name.clone(), settings);
                }
            }
        }
        servers.program = self.rsync.clone().unwrap_or_else(|| vec!["rsync".to_owned()]);
        if servers.program.first().is_none_or(String::is_empty) {
            return Err("`rsync` is empty: name the program, and options if any".to_owned());
        }
        Ok(servers)
    }

    /// Payloads name files: only the configuration can limit which.
    fn roots(&self, kind: &str) -> Result<Roots, String> {
        let roots = self.roots.clone().unwrap_or_default();
        if roots.is_empty() || roots.iter().any(|root| root.as_os_str().is_empty()) {
            return Err(format!(
                "`builtin = \"{kind}\"` needs `roots`: the folders whose files jobs may name, as in roots = [\"/srv/media\"]"
            ));
        }
        Ok(Roots(roots))
    }
}

/// Refuses what rsync would not take for a folder of another server.
fn check_folder(name: &str, folder: &str) -> Result<(), String> {
    let is_server = folder.starts_with("rsync://") || folder.contains(':');
    if is_server && !folder.starts_with('-') && !folder.contains(char::is_control) {
        return Ok(());
    }
    Err(format!(
        "`servers`: {name} is {folder:?}: write USER@HOST:/FOLDER or rsync://HOST/MODULE/FOLDER"
    ))
}
