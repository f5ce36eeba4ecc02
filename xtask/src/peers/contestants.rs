//! The engines that are compared, each at its best settings.

/// Engines that do the same work on the same server.
pub(super) struct Group {
    pub(super) title: &'static str,
    /// The name of its chart.
    pub(super) slug: &'static str,
    pub(super) server: Server,
    /// The number of keys, each in strict order; 0: jobs without order.
    pub(super) keys: u32,
    pub(super) contestants: &'static [Contestant],
}

pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) how: How,
    /// Divides the number of jobs, for engines that would take too long.
    pub(super) share: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Server {
    Postgres,
    Redis,
    /// A new file for each run.
    Sqlite,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    /// A script in `bench/peers`, run by the given program.
    Script(&'static str, &'static str),
    /// An engine of `bench/peers/rust`, with its setting.
    Rust(&'static str, &'static str),
    /// `seriatim bench` in this mode.
    Ours(&'static str),
}

impl Contestant {
    const fn new(name: &'static str, how: How) -> Self {
        Self { name, how, share: 1 }
    }

    const fn with_share(self, share: u32) -> Self {
        Self { share, ..self }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self.how, How::Ours(_))
    }
}

const GRAPHILE: How = How::Script("node", "graphile-worker.mjs");
const PG_BOSS: How = How::Script("node", "pg-boss.mjs");

pub(super) const GROUPS: [Group; 4] = [
    Group {
        title: "PostgreSQL, jobs without order",
        slug: "postgresql",
        server: Server::Postgres,
        keys: 0,
        contestants: &[
            Contestant::new("graphile-worker 0.18 (Node), local queue 500", GRAPHILE),
            Contestant::new(
                "graphile_worker 0.14 (Rust), local queue 500",
                How::Rust("graphile", "500"),
            ),
            Contestant::new(
                "graphile_worker 0.14 (Rust), local queue 5,000",
                How::Rust("graphile", "5000"),
            ),
            Contestant::new("pg-boss 12.35, batch 1,000 × 5", PG_BOSS),
            Contestant::new("Seriatim parallel", How::Ours("parallel")),
            Contestant::new("Seriatim accumulate, a key for each job", How::Ours("accumulate")),
        ],
    },
    Group {
        title: "PostgreSQL, in order, 1,000 keys",
        slug: "postgresql-in-order",
        server: Server::Postgres,
        keys: 1_000,
        contestants: &[
            Contestant::new("graphile-worker 0.18 (Node), named queues", GRAPHILE),
            Contestant::new(
                "graphile_worker 0.14 (Rust), named queues",
                How::Rust("graphile", "500"),
            ),
            Contestant::new("pg-boss 12.35, key_strict_fifo", PG_BOSS).with_share(5),
            Contestant::new("Seriatim fifo", How::Ours("fifo")),
            Contestant::new("Seriatim accumulate", How::Ours("accumulate")),
        ],
    },
    Group {
        title: "SQLite",
        slug: "sqlite",
        server: Server::Sqlite,
        keys: 0,
        contestants: &[
            Contestant::new("apalis 1.0", How::Rust("apalis", "1")).with_share(10),
            Contestant::new("apalis 1.0, completions not stored", How::Rust("apalis", "0")),
            Contestant::new("Seriatim parallel", How::Ours("parallel")),
            Contestant::new("Seriatim fifo, a key for each job", How::Ours("fifo")),
        ],
    },
    Group {
        title: "Redis",
        slug: "redis",
        server: Server::Redis,
        keys: 0,
        contestants: &[
            Contestant::new("BullMQ 6.7, 50 at once", How::Script("node", "bullmq.mjs")),
            Contestant::new("Sidekiq 6.4, 5 threads", How::Script("ruby", "sidekiq.rb")),
            Contestant::new("Seriatim parallel", How::Ours("parallel")),
            Contestant::new("Seriatim accumulate, a key for each job", How::Ours("accumulate")),
        ],
    },
];
