//! The settings of each kind of worker, which `workers/` runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderName;
use hyper::{Method, Uri};

use super::bucket::BucketSettings;
use super::environment::Environment;
use super::header::HeaderConfig;

/// How long a request of an `http` worker may take by default.
pub(crate) const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// What runs the calls.
#[derive(Clone, Debug)]
pub(crate) enum WorkerKind {
    Command(Launch),
    Process { launch: Launch, processes: usize, watched: Vec<PathBuf> },
    Http(HttpSettings),
    Ffmpeg(Ffmpeg),
    Replicate(Replicate),
}

impl WorkerKind {
    /// The programs that it starts.
    pub(crate) fn programs(&self) -> Vec<Launch> {
        match self {
            Self::Command(launch) | Self::Process { launch, .. } => vec![launch.clone()],
            Self::Http(_) => Vec::new(),
            Self::Ffmpeg(Ffmpeg { transcoder, prober, environment, .. }) => [transcoder, prober]
                .map(|name| Launch::new(std::slice::from_ref(name), environment.clone()))
                .into(),
            Self::Replicate(Replicate { servers, .. }) if servers.folders.is_empty() => Vec::new(),
            Self::Replicate(Replicate { servers, .. }) => {
                vec![Launch::new(&servers.program, servers.environment.clone())]
            }
        }
    }
}

/// A program with its arguments and its environment.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) words: Arc<[String]>,
    pub(crate) environment: Arc<Environment>,
}

impl Launch {
    pub(crate) fn new(words: &[String], environment: Environment) -> Self {
        Self { words: words.into(), environment: Arc::new(environment) }
    }

    /// The program, as the configuration calls it.
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }
}

/// The target of requests, and the meaning of answers.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) url: Uri,
    pub(crate) method: Method,
    pub(crate) headers: Vec<(HeaderName, HeaderConfig)>,
    /// None: as long as the call.
    pub(crate) timeout: Option<Duration>,
    /// Whether an answer 4xx is final.
    pub(crate) is_refusal_final: bool,
    /// Whether the jobs of a lane go in one request, as a list.
    pub(crate) sends_lists: bool,
}

/// Which programs to run, and what payloads may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Ffmpeg {
    pub(crate) transcoder: String,
    pub(crate) prober: String,
    /// Options between input and output, of every job.
    pub(crate) args: Vec<String>,
    /// Whether a payload may add its own.
    pub(crate) takes_args: bool,
    pub(crate) environment: Environment,
    pub(crate) roots: Roots,
}

/// Copies files within some folders, and to servers.
#[derive(Clone, Debug)]
pub(crate) struct Replicate {
    pub(crate) roots: Roots,
    pub(crate) servers: Servers,
}

/// The servers that files may be copied to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    /// Folders by name, as rsync takes them.
    pub(crate) folders: BTreeMap<String, String>,
    pub(crate) buckets: BTreeMap<String, BucketSettings>,
    /// rsync and its first options.
    pub(crate) program: Vec<String>,
    pub(crate) environment: Environment,
}

/// The folders that a worker of files may use.
#[derive(Clone, Debug)]
pub(crate) struct Roots(pub(crate) Vec<PathBuf>);
