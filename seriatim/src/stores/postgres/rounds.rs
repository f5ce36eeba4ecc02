//! What this process tidies up in the background after many calls: claims would pass by the entries of lanes that were
//! claimed before, tables would grow by what has ended, and statistics would add up ever more rows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::pool::Pool;
use crate::lock::lock;
use crate::model::Turn;

/// Each claimed lane leaves an entry in the index of `ready`, which every claim passes by until a vacuum. Autovacuum
/// comes once a minute, after millions.
const READY: Vacuum = Vacuum {
    statement: "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.ready",
    table: "ready",
    unit: Unit::Lanes,
    enough: 20_000,
};
/// Each ended lane leaves some 400 bytes, which new ones take after a vacuum. Between two visits of autovacuum a busy
/// queue would take a gigabyte.
const LANES: Vacuum = Vacuum {
    statement: "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.lane, seriatim.batch",
    table: "lane",
    unit: Unit::Lanes,
    enough: 50_000,
};
/// Likewise each ended job that waited behind another one of its lane. Where none did, the table is empty.
const ITEMS: Vacuum = Vacuum {
    statement: "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.item",
    table: "item",
    unit: Unit::Jobs,
    enough: 50_000,
};

static VACUUMS: [Vacuum; 3] = [READY, LANES, ITEMS];
const VACUUMED_AGO: &str = "SELECT (extract(epoch FROM clock_timestamp() - greatest(last_vacuum, last_autovacuum)) * 1000000)::bigint \
     FROM pg_stat_all_tables WHERE relid = ('seriatim.' || $1::text)::regclass";

/// Of the time, what each vacuum takes at most, over all processes. It reads whole indexes, and if an open transaction keeps
/// what was deleted, all of that. With a smaller share a busy queue leaves more than a vacuum gets rid of: the next one takes
/// longer, and the one after it comes later still.
const SHARE_MAX_PERCENT: u32 = 10;
/// So the next one waits for this many times as long as the last one took.
const REST: u32 = 100 / SHARE_MAX_PERCENT - 1;
/// Longer than other calls: what a cancelled vacuum has done is lost, and the next one would be cancelled too.
const VACUUM_WITHIN: Duration = Duration::from_hours(1);

/// Calls of this process between two rounds for `tally`: each adds a row or two, which statistics read until they are
/// folded.
const CALLS: u64 = 10_000;
/// Rows that a round folds, at most: those of other processes too.
const FOLD: &str = "SELECT seriatim.fold(100000)";
/// The tables to which calls add rows that others soon delete.
const VACUUM_TALLY: &str =
    "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.tally, seriatim.freed, seriatim.share";

/// What is vacuumed after how much that this process claims.
struct Vacuum {
    statement: &'static str,
    /// A table of it, which tells when some process did it last.
    table: &'static str,
    unit: Unit,
    enough: u64,
}

enum Unit {
    Lanes,
    Jobs,
}

/// Counts what is claimed, and calls, until the next rounds.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Counts>);

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    vacuums: [Mutex<Since>; 3],
}

/// Since the last vacuum.
#[derive(Default)]
struct Since {
    claimed: u64,
    /// The time between two vacuums, by how long one took.
    rest: Duration,
    rests_until: Option<Instant>,
}

impl Since {
    /// Counts what was claimed. Returns whether the next vacuum is to start, and counts from there.
    fn count(&mut self, claimed: usize, enough: u64) -> bool {
        self.claimed += claimed as u64;
        let starts =
            self.claimed >= enough && self.rests_until.is_none_or(|until| until <= Instant::now());
        if starts {
            self.claimed = 0;
        }
        starts
    }

    /// A vacuum has ended. One that another process was at took no time, so the rest shrinks by half at most.
    fn ended(&mut self, took: Duration) {
        self.rest = (took * REST).max(self.rest / 2);
        self.rests(self.rest);
    }

    fn rests(&mut self, length: Duration) {
        self.rests_until = self.rests_until.max(Some(Instant::now() + length));
    }
}

impl Rounds {
    /// A call that changed what queues hold. Starts a round in the background if there were enough.
    pub(super) fn count(&self, pool: &Pool) {
        if self.0.calls.fetch_add(1, Ordering::Relaxed) + 1 >= CALLS
            && self.0.calls.swap(0, Ordering::Relaxed) >= CALLS
        {
            tokio::spawn(fold(pool.alone()));
        }
    }

    /// The same after a claim of these turns.
    pub(super) fn claimed(&self, turns: &[Turn], pool: &Pool) {
        if !turns.is_empty() {
            self.count(pool);
            self.taken(turns.len(), turns.iter().map(|turn| turn.jobs.len()).sum(), pool);
        }
    }

    /// Counts lanes that were ready, and jobs, also those of lanes that go on.
    pub(super) fn taken(&self, lanes: usize, jobs: usize, pool: &Pool) {
        for (place, vacuum) in VACUUMS.iter().enumerate() {
            let claimed = match vacuum.unit {
                Unit::Lanes => lanes,
                Unit::Jobs => jobs,
            };
            if lock(&self.0.vacuums[place]).count(claimed, vacuum.enough) {
                tokio::spawn(self.clone().vacuum(place, pool.alone()));
            }
        }
    }

    async fn vacuum(self, place: usize, pool: Pool) {
        let (vacuum, since) = (&VACUUMS[place], &self.0.vacuums[place]);
        let pool = pool.within(VACUUM_WITHIN);
        let rest = lock(since).rest;
        if let Some(ago) = vacuumed_ago(vacuum.table, &pool).await.filter(|ago| *ago < rest) {
            // Another process was faster.
            return lock(since).rests(rest - ago);
        }
        let began = Instant::now();
        if let Err(error) = pool.query(vacuum.statement, &[]).await {
            tracing::debug!(%error, "the tables are left to autovacuum: {}", vacuum.statement);
        }
        lock(since).ended(began.elapsed());
    }
}

/// How long ago some process vacuumed a table.
async fn vacuumed_ago(table: &str, pool: &Pool) -> Option<Duration> {
    let micros: Option<i64> = pool.query_one(VACUUMED_AGO, &[&table]).await.ok()?.get(0);
    micros.map(|micros| Duration::from_micros(micros.max(0) as u64))
}

async fn fold(pool: Pool) {
    for step in [FOLD, VACUUM_TALLY] {
        if let Err(error) = pool.query(step, &[]).await {
            tracing::debug!(%error, "what the queues hold is left to the sweep and to autovacuum");
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_testkit::PostgresOptions;

    use super::*;
    use crate::Job;
    use crate::contract::{Producer, Push, Store};
    use crate::stores::postgres::Postgres;
    use crate::stores::postgres::pool::in_schema;
    use crate::stores::postgres::tests::{new_schema, open, session};

    #[tokio::test]
    async fn a_process_does_not_vacuum_what_another_has_vacuumed_within_the_rest() {
        let schema = new_schema();
        let (store, other) = (open(&schema).await, session().await);
        let vacuums = async || -> i64 {
            let sql = "SELECT vacuum_count FROM pg_stat_all_tables WHERE relid = 'seriatim.ready'::regclass";
            other.query_one(&in_schema(sql, &schema), &[]).await.unwrap().get(0)
        };
        let rounds = Rounds::default();
        rounds.clone().vacuum(0, store.pool.alone()).await;
        assert_eq!(
            vacuums().await,
            1,
            "it has not vacuumed yet, and does not know how long it takes"
        );
        other.batch_execute(&in_schema(READY.statement, &schema)).await.unwrap();
        *lock(&rounds.0.vacuums[0]) = Since { rest: Duration::from_mins(1), ..Since::default() };
        rounds.clone().vacuum(0, store.pool.alone()).await;
        assert_eq!(vacuums().await, 2);
        assert!(!lock(&rounds.0.vacuums[0]).count(1_000, 10), "it rests");
        lock(&rounds.0.vacuums[0]).rest = Duration::ZERO;
        rounds.vacuum(0, store.pool.alone()).await;
        assert_eq!(vacuums().await, 3);
    }

    #[tokio::test]
    async fn a_vacuum_ends_though_it_takes_longer_than_other_calls_may() {
        let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
        let server = seriatim_testkit::Postgres::start_with(options).unwrap();
        let store = Postgres::connect(&server.url()).await.unwrap();
        store.migrate().await.unwrap();
        let jobs = (0..1_000).map(|i| Job::new("q", &i).unwrap()).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        let (client, driver) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(driver);
        // It rests for 100 ms at each page.
        let slow =
            "ALTER ROLE ALL SET vacuum_cost_delay = 100; ALTER ROLE ALL SET vacuum_cost_limit = 1";
        client.batch_execute(slow).await.unwrap();
        let hasty = format!("{}?call_timeout=500ms", server.url());
        let hasty = Postgres::connect(&hasty).await.unwrap();
        Rounds::default().vacuum(0, hasty.pool.alone()).await;
        let sql =
            "SELECT vacuum_count FROM pg_stat_all_tables WHERE relid = 'seriatim.ready'::regclass";
        let vacuums: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(vacuums, 1);
    }

    #[test]
    fn a_vacuum_comes_after_enough_lanes_and_a_rest_as_long_as_the_last_one_took() {
        let mut since = Since::default();
        assert!(!since.count(9, 10) && since.count(1, 10), "ten lanes");
        assert!(!since.count(9, 10) && since.count(1, 10), "ten more");
        since.ended(Duration::from_mins(1));
        since.ended(Duration::ZERO);
        assert!(since.rest >= Duration::from_mins(4));
        assert!(!since.count(1_000, 10), "the long one has the longer rest");
        since.rests_until = Some(Instant::now());
        assert!(since.count(0, 10), "what came during the rest counts");
        assert!(!since.count(9, 10));
    }
}
