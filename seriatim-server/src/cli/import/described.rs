//! What `seriatim_worker.rb --describe` prints of an application (`docs/ruby.md`).

use serde::Deserialize;
use serde_json::{Map, Value};
use seriatim::limits::QUEUES_MAX;

/// Most entries of each list.
const ENTRIES_MAX: usize = QUEUES_MAX as usize;

/// A queue and its weight.
pub(super) type Weighted = (String, Option<u32>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Described {
    /// What the program was told to load, and its file of settings.
    pub(super) require: Option<String>,
    pub(super) config: Option<String>,
    /// Whether the gems are those of a Gemfile.
    #[serde(default)]
    pub(super) bundler: bool,
    pub(super) sidekiq: Option<Sidekiq>,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
    #[serde(default)]
    pub(super) cron: Vec<Tick>,
    pub(super) lowkiq: Option<Lowkiq>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sidekiq {
    pub(super) version: Option<String>,
    pub(super) concurrency: Option<u32>,
    pub(super) timeout: Option<u32>,
    pub(super) max_retries: Option<u32>,
    pub(super) dead_max_jobs: Option<u64>,
    pub(super) dead_timeout_in_seconds: Option<u64>,
    /// Without weights the order is strict.
    pub(super) queues: Vec<Weighted>,
    pub(super) capsules: Vec<Capsule>,
    pub(super) middleware: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capsule {
    pub(super) name: String,
    pub(super) concurrency: Option<u32>,
    pub(super) queues: Vec<Weighted>,
}

/// A class of Sidekiq's or ActiveJob's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) queue: Option<String>,
    pub(super) options: Map<String, Value>,
    pub(super) hooks: Vec<String>,
}

/// An entry of sidekiq-cron or sidekiq-scheduler.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tick {
    pub(super) name: String,
    pub(super) schedule: Option<String>,
    /// What it has beside a schedule, as Ruby prints it.
    pub(super) times: Option<String>,
    pub(super) class: String,
    pub(super) queue: Option<String>,
    pub(super) args: Value,
    pub(super) enabled: bool,
    /// The time of each tick is an argument of its own.
    #[serde(default)]
    pub(super) date_as_argument: bool,
    pub(super) time_zone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lowkiq {
    pub(super) threads_per_node: u32,
    pub(super) workers: Vec<Module>,
}

/// A module of Lowkiq's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) shards_count: u32,
    pub(super) batch_size: u32,
    pub(super) max_retry_count: u32,
}

impl Described {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let described: Self = serde_json::from_str(text).map_err(|error| {
            format!("{error}; write what `ruby seriatim_worker.rb --describe` prints, for a sidekiq.yml alone `--describe --config sidekiq.yml`")
        })?;
        let capsules = described.sidekiq.iter().flat_map(|sidekiq| &sidekiq.capsules);
        let lengths = [
            ("classes", described.classes.len()),
            ("cron", described.cron.len()),
            ("sidekiq.queues", described.sidekiq.as_ref().map_or(0, |one| one.queues.len())),
            ("sidekiq.capsules", capsules.map(|capsule| capsule.queues.len().max(1)).sum()),
            ("lowkiq.workers", described.lowkiq.as_ref().map_or(0, |one| one.workers.len())),
        ];
        match lengths.into_iter().find(|(_, length)| *length > ENTRIES_MAX) {
            Some((name, length)) => {
                Err(format!("`{name}` has {length} entries: at most {ENTRIES_MAX}"))
            }
            None => Ok(described),
        }
    }
}
