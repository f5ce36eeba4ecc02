//! The configuration: TOML, overridden by variables (`SERIATIM_NODE__ID`) and by flags.

mod access;
mod bridge;
#[cfg(test)]
mod bridge_tests;
mod bucket;
mod cron;
mod dashboard;
mod environment;
mod explain;
mod faktory;
#[cfg(test)]
mod fuzz;
mod header;
mod key;
mod length;
mod log;
mod lowkiq;
mod payloads;
mod periodic;
mod splitter;
#[cfg(test)]
mod tests;
mod text_or_table;
mod window;
mod worker;
mod worker_kind;
mod zone;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use seriatim::engine::{Exhausted, Scheduler};
use seriatim::limits::{
    ATTEMPTS_MAX, BATCH_SIZE_MAX, CRASHES_MAX, QUEUES_MAX, SHARDS_MAX, TURN_JOBS_MAX, WEIGHT_MAX,
};
use seriatim::names::{closest, did_you_mean};
use seriatim::store::{Throttled, check_node_name};
use seriatim::{Backoff, Cron, DueRule, Exhaustion, Merge, Mode, Queue};
use toml::{Table, Value};

use crate::base::setup_error::SetupError;
use crate::protocol::limits;
use crate::protocol::schema::Foreign;

pub(crate) use access::{Audited, Role};
pub(crate) use bridge::{BridgeConfig, MissingKey, RouteConfig, Sets};
pub(crate) use bucket::BucketSettings;
pub(crate) use cron::CronConfig;
pub(crate) use dashboard::{DashboardConfig, Payloads, ProxyConfig};
use environment::is_default;
pub(crate) use environment::{Environment, is_variable};
use explain::explain;
pub(crate) use explain::in_words;
pub(crate) use faktory::FaktoryConfig;
pub(crate) use key::KeyConfig;
use length::length;
#[cfg(test)]
pub(crate) use log::DEFAULT_LEVEL;
pub(crate) use log::{
    AUDIT, LOG_BYTES, LOG_KEPT, LogConfig, LogFilter, LogFormat, log_of_variable,
};
pub(crate) use payloads::PayloadsConfig;
pub(crate) use periodic::PeriodicConfig;
use splitter::SplitterConfig;
use window::WindowConfig;
pub(crate) use worker::{Builtin, WorkerConfig};
pub(crate) use worker_kind::{
    Ffmpeg, HTTP_TIMEOUT, HttpSettings, Launch, Replicate, Roots, Servers, WorkerKind,
};
pub(crate) use zone::Zone;

pub(crate) const STORE_DEFAULT: &str = "sqlite:seriatim.db";
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:7117";

/// How long events of jobs are kept by default.
pub(crate) const JOURNAL_RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How many bytes of them are kept of each queue by default.
pub(crate) const JOURNAL_BYTES: u64 = 64 << 20;
const JOURNAL_RETENTION_MIN: Duration = Duration::from_secs(60);
const JOURNAL_BYTES_MIN: u64 = 1 << 20;
/// Prefix of the variables that override the file.
const PREFIX: &str = "SERIATIM_";
/// Parts of the file that a variable sets as a whole; queues are added to those of the file.
const WHOLE: [&str; 5] = ["workers", "cron", "periodic", "bridges", "queues"];
/// Variables that are not of the file: of the program itself, and of its workers and their programs.
const OF_ITS_OWN: [&str; 6] = ["store", "token", "log", "url", "jobs", "engine"];
/// Parts whose keys have a variable each. `store` and `log` have one of their own.
const TABLES: [&str; 7] =
    ["http", "faktory", "dashboard", "journal", "payloads", "node", "defaults"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) store: StoreConfig,
    pub(crate) http: HttpConfig,
    pub(crate) faktory: FaktoryConfig,
    pub(crate) dashboard: DashboardConfig,
    pub(crate) log: LogConfig,
    pub(crate) journal: JournalConfig,
    pub(crate) payloads: PayloadsConfig,
    pub(crate) node: NodeConfig,
    pub(crate) defaults: QueueConfig,
    pub(crate) queues: BTreeMap<String, QueueConfig>,
    pub(crate) workers: Vec<WorkerConfig>,
    pub(crate) cron: Vec<CronConfig>,
    pub(crate) periodic: Vec<PeriodicConfig>,
    pub(crate) bridges: Vec<BridgeConfig>,
    /// The file, as errors name it.
    #[serde(skip)]
    file: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    pub(crate) url: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    pub(crate) listen: Option<String>,
    /// Mounts everything below a prefix.
    pub(crate) base_path: Option<String>,
    /// The `environment` of `/info`.
    pub(crate) environment: Option<String>,
    /// The audit log. Default: the log.
    pub(crate) audit_file: Option<PathBuf>,
    pub(crate) audit: Audited,
    /// Of times without a zone in `jobs/trigger`.
    pub(crate) time_zone: Zone,
    /// How many undeclared queues pushes may create.
    pub(crate) implied_queues: Option<ImpliedQueues>,
    pub(crate) tokens: Vec<TokenConfig>,
    /// Who has asked people for their names.
    pub(crate) proxy: Option<ProxyConfig>,
}

/// A token of the HTTP API; a variable contains its secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenConfig {
    pub(crate) name: String,
    pub(crate) token_env: String,
    pub(crate) role: Role,
    /// The queues that its bearer may use; all if unset.
    pub(crate) queues: Option<Vec<String>>,
    /// The consumer groups that its bearer may name; all if unset.
    pub(crate) groups: Option<Vec<String>>,
}

/// The journal: events of jobs, in the store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct JournalConfig {
    pub(crate) enabled: bool,
    /// Whose jobs; all if unset.
    pub(crate) queues: Option<BTreeSet<String>>,
    #[serde(deserialize_with = "length")]
    pub(crate) retention: Option<Duration>,
    pub(crate) bytes_max: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeConfig {
    pub(crate) id: Option<String>,
    pub(crate) consumer_groups: Vec<String>,
    /// The build of the worker programs.
    pub(crate) build: Option<String>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) splitter: SplitterConfig,
    #[serde(deserialize_with = "length")]
    pub(crate) poll_interval: Option<Duration>,
    #[serde(deserialize_with = "length")]
    pub(crate) heartbeat: Option<Duration>,
    #[serde(deserialize_with = "length")]
    pub(crate) lease: Option<Duration>,
    #[serde(deserialize_with = "length")]
    pub(crate) shutdown_timeout: Option<Duration>,
    /// Immediately take over claims of dead processes on this machine.
    pub(crate) takeover: Option<bool>,
    /// End at the start when the program of a worker cannot be started.
    pub(crate) strict: bool,
}

/// How many queues pushes may create: a number, `true` for unlimited, `false` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImpliedQueues(pub(crate) usize);

impl<'de> Deserialize<'de> for ImpliedQueues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl de::Visitor<'_> for Read {
            type Value = ImpliedQueues;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 0 to {QUEUES_MAX}, true or false")
            }
            fn visit_bool<E: de::Error>(self, any: bool) -> Result<Self::Value, E> {
                Ok(ImpliedQueues(if any { QUEUES_MAX as usize } else { 0 }))
            }
            fn visit_i64<E: de::Error>(self, most: i64) -> Result<Self::Value, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(most), &self);
                let fits = u32::try_from(most).ok().filter(|most| *most <= QUEUES_MAX);
                fits.map(|most| ImpliedQueues(most as usize)).ok_or_else(wrong)
            }
        }
        from.deserialize_any(Read)
    }
}

/// The settings of a queue.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "QueueSettings")]
pub(crate) struct QueueConfig {
    /// Required for a new queue
    #[schemars(with = "Option<Foreign<Mode>>")]
    mode: Option<Mode>,
    /// The score of merged jobs with equal payloads (accumulate). Default: min
    #[schemars(with = "Option<Foreign<Merge>>")]
    merge: Option<Merge>,
    /// The due time of a key with several waiting jobs (accumulate). Default: first
    #[schemars(with = "Option<Foreign<DueRule>>")]
    due: Option<DueRule>,
    /// For how long a key collects jobs (accumulate). Default: they are due when they are pushed
    window: Option<WindowConfig>,
    /// Most jobs of a turn (fifo). Default: 1
    #[schemars(range(min = 1, max = TURN_JOBS_MAX))]
    take: Option<u32>,
    /// Most lanes of a handler call. Default: 1
    #[schemars(range(min = 1, max = BATCH_SIZE_MAX))]
    batch_size: Option<u32>,
    /// Retries after the first try. Default: 25
    #[schemars(range(max = ATTEMPTS_MAX))]
    max_retries: Option<u32>,
    /// The wait between tries. Default: polynomial
    #[schemars(with = "Option<Foreign<Backoff>>")]
    backoff: Option<Backoff>,
    /// What happens after the last try. Default: bury
    #[schemars(with = "Option<Foreign<Exhaustion>>")]
    exhausted: Option<Exhaustion>,
    /// A job is buried after this many crashes
    #[schemars(range(min = 1, max = CRASHES_MAX))]
    max_crashes: Option<u32>,
    /// How long a handler may take. Default: no limit
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    timeout: Option<Duration>,
    /// How long a claim lasts without a heartbeat. Default: the node's lease
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    lease: Option<Duration>,
    /// The longest lease that a claim or job may ask for. Default: 1h
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    lease_max: Option<Duration>,
    /// How long finished jobs are kept. Default: 1h in exclusive, 0 elsewhere
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    retain_completed: Option<Duration>,
    /// How long dead jobs are kept
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    retain_dead: Option<Duration>,
    /// Most dead jobs kept
    retain_dead_max: Option<u64>,
    /// How long an idempotency key is remembered at least
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    idempotency_ttl: Option<Duration>,
    /// After a push to a key, further pushes to it create no job for this long. Default: each creates one
    #[serde(deserialize_with = "length")]
    #[schemars(with = "Option<Foreign<Duration>>")]
    throttle: Option<Duration>,
    /// Such pushes are merged into the earlier job, or refused with the time when they may be repeated. Default: merge
    #[schemars(with = "Option<Foreign<Throttled>>")]
    throttled: Option<Throttled>,
    /// How many turns may run at once, and how many may start per second, minute or hour, on all nodes together.
    /// Default: no limit
    limit: Option<limits::Limit>,
    /// If set, jobs may have a group, such as a tenant, and groups take turns. Default: they may not
    groups: Option<limits::Groups>,
    /// The share under the weighted scheduler. Default: 1
    #[schemars(range(min = 1, max = WEIGHT_MAX))]
    weight: Option<u32>,
    /// Parts of a new queue. Default: 1
    #[schemars(range(min = 1, max = SHARDS_MAX))]
    shards: Option<u16>,
}

impl Config {
    /// The named file, else `seriatim.toml` in the current folder, if present.
    pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
        let default = PathBuf::from("seriatim.toml");
        named.map(Path::to_owned).or_else(|| default.exists().then_some(default))
    }

    /// Reads the file, if any, and the variables.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, SetupError> {
        let path = Self::file(path);
        let (name, text) = match &path {
            None => ("the environment".to_owned(), String::new()),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| {
                    SetupError::invalid(format!("cannot read {}: {e}", path.display()))
                })?;
                (path.display().to_string(), text)
            }
        };
        let mut config = parse(&text, environment()?, &name)?;
        config.validate(&name)?;
        config.file = name;
        Ok(config)
    }

    fn validate(&self, name: &str) -> Result<(), SetupError> {
        self.validate_secrets(name)?;
        let tokens: Vec<&str> = self.secret_variables().collect();
        for (i, worker) in self.workers.iter().enumerate() {
            let wrong = |what: &str| {
                SetupError::invalid(format!(
                    "{name}: workers[{i}] (queue {:?}): {what}",
                    worker.queue
                ))
            };
            let queue = self.queues.get(&worker.queue);
            if queue.is_none() && worker.queue != Exhausted::QUEUE {
                let near = did_you_mean(&worker.queue, self.queues.keys().map(String::as_str));
                return Err(wrong(&format!(
                    "no [queues] entry of this name: add one with a mode{near}"
                )));
            }
            // A queue without a mode is refused at its declaration, with its own message.
            let mode = queue.and_then(|queue| queue.mode).or(self.defaults.mode);
            let mode = mode.unwrap_or(Mode::Parallel);
            worker.read_kind(mode).map_err(|what| wrong(&what))?;
            worker.environment().check(&tokens).map_err(|what| wrong(&what))?;
        }
        self.validate_node(name)?;
        self.validate_periodic(name, &tokens)?;
        self.validate_journal(name)?;
        self.validate_bridges(name, &tokens)?;
        let wrong = |what| SetupError::invalid(format!("{name}: {what}"));
        let parts = self.payloads.check(&self.queues).and_then(|()| self.log.check());
        parts.and_then(|()| self.dashboard.validate()).map_err(wrong)?;
        self.validate_cron(name)
    }

    /// The variables whose values only this server may see.
    fn secret_variables(&self) -> impl Iterator<Item = &str> {
        let tokens = self.http.tokens.iter().map(|token| token.token_env.as_str());
        let keys = self.payloads.keys.iter().filter_map(|key| key.env.as_deref());
        tokens.chain(keys).chain(self.workers.iter().flat_map(WorkerConfig::secret_variables))
    }

    /// Refuses a secret in a variable that is passed to all programs without being listed.
    fn validate_secrets(&self, name: &str) -> Result<(), SetupError> {
        let tokens = self.http.tokens.iter().enumerate();
        let tokens = tokens.map(|(i, token)| (format!("http.tokens[{i}]"), &*token.token_env));
        let keys = self.payloads.keys.iter().enumerate();
        let keys = keys.filter_map(|(i, key)| {
            key.env.as_deref().map(|variable| (format!("payloads.keys[{i}]"), variable))
        });
        let workers = self.workers.iter().enumerate().flat_map(|(i, worker)| {
            let place = format!("workers[{i}] (queue {:?})", worker.queue);
            worker.secret_variables().map(move |variable| (place.clone(), variable))
        });
        let bridges = self.bridges.iter().enumerate().map(|(i, bridge)| {
            (format!("bridges[{i}] (name {:?})", bridge.name), &*bridge.url_env)
        });
        let mut secrets = tokens.chain(keys).chain(workers).chain(bridges);
        match secrets.find(|(_, variable)| is_default(variable)) {
            None => Ok(()),
            Some((place, variable)) => Err(SetupError::invalid(format!(
                "{name}: {place}: every worker program gets variable {variable}, so no secret may be in it; use one of another name"
            ))),
        }
    }

    fn validate_periodic(&self, name: &str, tokens: &[&str]) -> Result<(), SetupError> {
        for (i, entry) in self.periodic.iter().enumerate() {
            let wrong = |what: String| {
                SetupError::invalid(format!(
                    "{name}: periodic[{i}] (name {:?}): {what}",
                    entry.name
                ))
            };
            entry.check(tokens).map_err(wrong)?;
            let same = |other: &PeriodicConfig| other.name == entry.name;
            if let Some(first) = self.periodic[..i].iter().position(same) {
                return Err(wrong(format!("`name`: periodic[{first}] has it too")));
            }
        }
        Ok(())
    }

    fn validate_bridges(&self, name: &str, secrets: &[&str]) -> Result<(), SetupError> {
        let target = |queue: &QueueConfig| bridge::Target {
            mode: queue.mode.or(self.defaults.mode),
            idempotency_ttl: queue.idempotency_ttl.or(self.defaults.idempotency_ttl),
        };
        let targets =
            self.queues.iter().map(|(name, queue)| (name.as_str(), target(queue))).collect();
        bridge::check_all(&self.bridges, secrets, &targets)
            .map_err(|what| SetupError::invalid(format!("{name}: {what}")))
    }

    fn validate_node(&self, name: &str) -> Result<(), SetupError> {
        let NodeConfig { id, build, consumer_groups, .. } = &self.node;
        let wrong = |what: String| Err(SetupError::invalid(format!("{name}: node.{what}")));
        if let Some(error) = id.as_deref().and_then(|id| check_node_name(id).err()) {
            return wrong(format!("id: {}", error.message()));
        }
        let groups = consumer_groups.iter().map(|group| ("consumer_groups", group));
        let mut named = build.iter().map(|build| ("build", build)).chain(groups);
        match named.find(|(_, name)| name.is_empty()) {
            Some((field, _)) => wrong(format!("{field}: is empty: write a name, or remove it")),
            None => Ok(()),
        }
    }

    /// A place in the configuration, with the file.
    fn at(&self, place: &str) -> String {
        if self.file.is_empty() { place.to_owned() } else { format!("{}: {place}", self.file) }
    }

    fn validate_journal(&self, name: &str) -> Result<(), SetupError> {
        let wrong = |what: String| Err(SetupError::invalid(format!("{name}: journal.{what}")));
        let unknown = |queue: &&String| !self.queues.contains_key(*queue);
        if let Some(queue) = self.journal.queues.iter().flatten().find(unknown) {
            let near = did_you_mean(queue, self.queues.keys().map(String::as_str));
            return wrong(format!(
                "queues: {queue:?} has no [queues] entry: add one, or remove the name{near}"
            ));
        }
        match (self.journal.retention, self.journal.bytes_max) {
            (Some(retention), _) if retention < JOURNAL_RETENTION_MIN => {
                wrong("retention: at least one minute".to_owned())
            }
            (_, Some(bytes)) if bytes < JOURNAL_BYTES_MIN => {
                wrong(format!("bytes_max: {bytes} is too small: at least {JOURNAL_BYTES_MIN}"))
            }
            _ => Ok(()),
        }
    }

    /// Cron entries of undeclared queues. The store may know them; most often it is a typo.
    pub(crate) fn cron_slips(&self) -> impl Iterator<Item = String> {
        let unknown = self.cron.iter().filter(|entry| !self.queues.contains_key(entry.queue()));
        unknown.map(|entry| {
            let (name, queue) = (entry.name(), entry.queue());
            let near = did_you_mean(queue, self.queues.keys().map(String::as_str));
            format!("cron {name:?} pushes to queue {queue:?}, which has no [queues] entry{near}")
        })
    }

    /// Refuses entries with equal names, and entries whose pushes would all be refused.
    fn validate_cron(&self, name: &str) -> Result<(), SetupError> {
        for (i, entry) in self.cron.iter().enumerate() {
            let place = format!("{name}: cron[{i}] (name {:?})", entry.name());
            if let Some(first) =
                self.cron[..i].iter().position(|other| other.name() == entry.name())
            {
                return Err(SetupError::invalid(format!(
                    "{place}: `name`: cron[{first}] has the same name, by which nodes know whether a time was already pushed: use different names"
                )));
            }
            // The first push creates an undeclared queue, in the mode that fits.
            let Some(queue) = self.queues.get(entry.queue()) else { continue };
            let Some(mode) = queue.mode.or(self.defaults.mode) else { continue };
            let (queue, is_keyed) = (entry.queue(), mode.is_keyed());
            let what = match (is_keyed, entry.has_key()) {
                (true, false) => format!(
                    "`key` is missing: queue {queue:?} is {mode}, so each job needs one, as in key = \"nightly\""
                ),
                (false, true) => format!(
                    "`key` contradicts queue {queue:?}, which is {mode}: remove it, or change the queue's mode"
                ),
                _ => continue,
            };
            return Err(SetupError::invalid(format!("{place}: {what}")));
        }
        Ok(())
    }

    pub(crate) fn cron_entries(&self) -> Result<Vec<Cron>, SetupError> {
        let entry = |config: &CronConfig| {
            let place = self.at(&format!("cron (name {:?})", config.name()));
            let wrong = |e| SetupError::invalid(format!("{place}: {e}"));
            config.entry().map_err(wrong)
        };
        self.cron.iter().map(entry).collect()
    }

    /// The queues that are to be declared.
    pub(crate) fn declared(&self) -> Result<Vec<Queue>, SetupError> {
        let queue = |(name, settings): (&String, &QueueConfig)| {
            let mode = settings.mode.or(self.defaults.mode).ok_or_else(|| {
                let place = self.at(&format!("queues.{name}.mode"));
                SetupError::invalid(format!(
                    "{place}: is missing: write mode = \"fifo\", or parallel, accumulate or exclusive"
                ))
            })?;
            let mut queue = Queue::new(name.as_str(), mode);
            self.defaults.apply(&mut queue);
            settings.apply(&mut queue);
            let wrong = |e| SetupError::invalid(self.at(&format!("queues.{name}.{e}")));
            queue.validate().map_err(wrong)?;
            Ok(queue)
        };
        self.queues.iter().map(queue).collect()
    }
}

impl QueueConfig {
    /// The definition of a queue of this name; `mode` is the default for its mode.
    pub(crate) fn define(&self, name: &str, mode: Option<Mode>) -> seriatim::Result<Queue> {
        let mode = self.mode.or(mode).ok_or_else(|| {
            seriatim::Error::invalid("mode", "write parallel, accumulate, fifo or exclusive")
        })?;
        let mut queue = Queue::new(name, mode);
        self.apply(&mut queue);
        queue.validate()?;
        Ok(queue)
    }

    fn apply(&self, queue: &mut Queue) {
        let keep = |value: &mut u32, set: Option<u32>| *value = set.unwrap_or(*value);
        keep(&mut queue.take, self.take);
        keep(&mut queue.batch_size, self.batch_size);
        keep(&mut queue.max_retries, self.max_retries);
        keep(&mut queue.max_crashes, self.max_crashes);
        keep(&mut queue.weight, self.weight);
        queue.merge = self.merge.unwrap_or(queue.merge);
        queue.due = self.due.unwrap_or(queue.due);
        queue.window = self.window.as_ref().map(WindowConfig::window).or(queue.window);
        queue.backoff = self.backoff.unwrap_or(queue.backoff);
        queue.exhausted = self.exhausted.unwrap_or(queue.exhausted);
        queue.timeout = self.timeout.or(queue.timeout);
        queue.lease = self.lease.or(queue.lease);
        queue.lease_max = self.lease_max.unwrap_or(queue.lease_max);
        queue.retain_completed = self.retain_completed.or(queue.retain_completed);
        queue.retain_dead = self.retain_dead.unwrap_or(queue.retain_dead);
        queue.retain_dead_max = self.retain_dead_max.unwrap_or(queue.retain_dead_max);
        queue.idempotency_ttl = self.idempotency_ttl.unwrap_or(queue.idempotency_ttl);
        queue.throttle = self.throttle.or(queue.throttle);
        queue.throttled = self.throttled.unwrap_or(queue.throttled);
        queue.limit = self.limit.map_or(queue.limit, Into::into);
        let groups = self.groups.clone().map(Into::into);
        queue.groups = groups.or_else(|| queue.groups.take());
        queue.shards = self.shards.unwrap_or(queue.shards);
    }
}

/// Reads a configuration. Variables override the file.
fn parse(
    text: &str,
    variables: impl IntoIterator<Item = (String, String)>,
    name: &str,
) -> Result<Config, SetupError> {
    let mut overrides: Vec<(Vec<String>, String)> = Vec::new();
    for variable in variables {
        overrides.extend(override_path(variable).map_err(SetupError::invalid)?);
    }
    // What is set as a whole comes first: single keys change it.
    overrides.sort_by_key(|(path, _)| path.len());
    let wrong = |error: &toml::de::Error| explain(name, "", error);
    // The file by itself first: its errors carry line and column.
    let document = toml::Deserializer::parse(text).map_err(|e| wrong(&e))?;
    let config: Config = serde_path_to_error::deserialize(document)
        .map_err(|e| explain(name, &e.path().to_string(), e.inner()))?;
    if overrides.is_empty() {
        return Ok(config);
    }
    let mut table: Table = toml::from_str(text).map_err(|e| wrong(&e))?;
    for (path, value) in overrides {
        set(&mut table, &path, &value).map_err(|e| SetupError::invalid(format!("{name}: {e}")))?;
    }
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|e| {
        let path = e.path().to_string();
        let variable = format!("{PREFIX}{}", path.to_uppercase().replace('.', "__"));
        explain(&format!("variable {variable}"), &path, e.inner())
    })
}

/// Our variables of the environment. A value that is not UTF-8 is refused and not shown: it may be a
/// secret.
pub(crate) fn environment() -> Result<Vec<(String, String)>, SetupError> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
        Some((name, value))
    });
    ours.map(|(name, value)| {
        let value = value
            .into_string()
            .map_err(|_| SetupError::invalid(format!("variable {name}: its value is not UTF-8")))?;
        Ok((name, value))
    })
    .collect()
}

/// `SERIATIM_HTTP__LISTEN` is `http.listen`; `SERIATIM_WORKERS` is the whole list.
fn override_path(
    (variable, value): (String, String),
) -> Result<Option<(Vec<String>, String)>, String> {
    let Some(path) = variable.strip_prefix(PREFIX) else { return Ok(None) };
    let parts: Vec<String> = path.to_lowercase().split("__").map(str::to_owned).collect();
    let [name] = parts.as_slice() else { return Ok(Some((parts, value))) };
    if TABLES.contains(&name.as_str()) {
        return Err(format!(
            "variable {variable}: `{name}` is a table; set its keys one by one, as in {variable}__KEY"
        ));
    }
    match WHOLE.contains(&name.as_str()) {
        true => Ok(Some((parts, value))),
        false => refuse_misspelt(&variable, name).map(|()| None),
    }
}

/// An unknown name may belong to another program, or to a token. One that is nearly ours is a typing error.
fn refuse_misspelt(variable: &str, name: &str) -> Result<(), String> {
    if OF_ITS_OWN.contains(&name) {
        return Ok(());
    }
    let known: Vec<&str> = OF_ITS_OWN.into_iter().chain(WHOLE).collect();
    closest(name, known.iter().copied()).map_or(Ok(()), |meant| {
        Err(format!("variable {variable}: did you mean {PREFIX}{}?", meant.to_uppercase()))
    })
}

fn set(table: &mut Table, path: &[String], value: &str) -> Result<(), String> {
    let Some((last, parents)) = path.split_last() else { return Ok(()) };
    let mut place = table;
    for part in parents {
        let next = place.entry(part.clone()).or_insert_with(|| Value::Table(Table::new()));
        place = next.as_table_mut().ok_or_else(|| format!("{} is not a table", path.join(".")))?;
    }
    // Numbers and lists are parsed; anything else is a string.
    let parsed = toml::from_str::<Table>(&format!("value = {value}")).ok();
    let value = parsed
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let there = place.get_mut(last).filter(|_| parents.is_empty());
    if let (Some(Value::Table(there)), Value::Table(more)) = (there, &value) {
        there.extend(more.clone());
        return Ok(());
    }
    place.insert(last.clone(), value);
    Ok(())
}
