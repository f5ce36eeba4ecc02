//! What a bridge takes jobs from, and the names of keys in Redis.

use crate::config::{BridgeConfig, Sets};

/// The sets of jobs that are not due.
const SETS: [&str; 2] = ["schedule", "retry"];
/// The set of dead jobs.
pub(super) const DEAD: &str = "dead";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Queue(String),
    /// Shared by all queues.
    Set(&'static str),
    /// A queue of Lowkiq: ids in shards, each with payloads.
    Ids {
        queue: String,
        shards: u32,
    },
    /// The morgue of a queue of Lowkiq.
    Morgue(String),
}

impl Source {
    /// All sources of a bridge.
    pub(super) fn of(bridge: &BridgeConfig) -> Vec<Self> {
        if let Some(lowkiq) = bridge.lowkiq() {
            let ids = |queue: &String| {
                let shards = lowkiq.shards.of(queue)?;
                Some(Self::Ids { queue: queue.clone(), shards })
            };
            let morgues = bridge.queues.iter().filter(|_| bridge.dead).cloned().map(Self::Morgue);
            return bridge.queues.iter().filter_map(ids).chain(morgues).collect();
        }
        let queues = bridge.queues.iter().cloned().map(Self::Queue);
        let sets = SETS.into_iter().filter(|_| bridge.sets() != Sets::Leave).map(Self::Set);
        queues.chain(sets).chain(bridge.dead.then_some(Self::Set(DEAD))).collect()
    }

    /// Its name in figures: no queue can be taken for a set.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Queue(queue) | Self::Ids { queue, .. } => format!("queue:{queue}"),
            Self::Set(set) => (*set).to_owned(),
            Self::Morgue(queue) => format!("morgue:{queue}"),
        }
    }

    /// What scripts call it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Set(_) => "set",
            Self::Ids { .. } => "ids",
            Self::Morgue(_) => "morgue",
        }
    }
}

/// Names of keys: those of the other system, and those of this bridge beside them.
#[derive(Clone)]
pub(super) struct Keys {
    prefix: String,
    pub(super) bridge: String,
}

impl Keys {
    pub(super) fn of(bridge: &BridgeConfig) -> Self {
        Self { prefix: bridge.prefix(), bridge: bridge.name.clone() }
    }

    /// A key of the other system.
    pub(super) fn theirs(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn ours(&self, what: &str, source: &Source) -> String {
        format!("{}seriatim:{}:{what}:{}", self.prefix, self.bridge, source.name())
    }

    /// What the names of all keys of a queue of Lowkiq begin with.
    pub(super) fn lowkiq(&self, queue: &str) -> String {
        format!("{}lowkiq:A:v1:{queue}:", self.prefix)
    }

    /// And those of its morgue.
    pub(super) fn morgue(&self, queue: &str) -> String {
        self.lowkiq(queue) + "morgue:"
    }

    pub(super) fn source(&self, source: &Source) -> String {
        match source {
            // So it is written there.
            Source::Ids { queue, .. } => self.lowkiq(queue) + "all_ids_scored_by_perfrom_in",
            Source::Morgue(queue) => self.morgue(queue) + "all_ids_scored_by_updated_at",
            _ => self.theirs(&source.name()),
        }
    }

    /// A hash: jobs that left the source and may not be in the store yet.
    pub(super) fn in_flight(&self, source: &Source) -> String {
        self.ours("inflight", source)
    }

    /// Of a job without an id the beginning of its name, on this start of the server: other sources, also those of other
    /// bridges and namespaces, have another one.
    pub(super) fn run(&self, source: &Source, run: &str) -> String {
        let place = blake3::hash(self.in_flight(source).as_bytes()).to_hex();
        format!("{run}-{}", &place[..16])
    }

    /// A list: the job that ended the wait for one.
    pub(super) fn woken(&self, source: &Source) -> String {
        self.ours("woken", source)
    }

    pub(super) fn sequence(&self, source: &Source) -> String {
        self.ours("sequence", source)
    }

    /// That an export gave this job back.
    pub(super) fn marker(&self, job: seriatim::JobId) -> String {
        format!("{}seriatim:{}:export:{job}", self.prefix, self.bridge)
    }

    /// A list or set like the source: `rejected:QUEUE`, or `rejected:set:schedule`; of Lowkiq a list beside its keys.
    pub(super) fn rejected(&self, source: &Source) -> String {
        match source {
            Source::Queue(queue) => self.theirs(&format!("rejected:{queue}")),
            Source::Set(set) => self.theirs(&format!("rejected:set:{set}")),
            Source::Ids { queue, .. } => self.lowkiq(queue) + "rejected",
            Source::Morgue(queue) => self.morgue(queue) + "rejected",
        }
    }
}
