//! How much a call reads: little more than it takes, whatever the size of the tables and whatever the planner knew of
//! them.

use std::collections::HashMap;
use std::sync::Mutex;

use seriatim_testkit::PostgresOptions;
use tokio_postgres::NoTls;

use super::*;
use crate::contract::{
    Act, Actions, Beat, Cancel, Cancelled, ClaimSelection, Consumer, Fleet, GoOn, JobOrder,
    JobQuery, JobState, LaneAction, LaneOrder, LanePlace, LaneQuery, LaneSelection, LaneStage,
    LaneState, Producer, Release, Rescue, Selected, Selection, Sweep, Views,
};
use crate::model::past::Past;
use crate::store::Fate;
use crate::stores::behind::{self, Gauge};
use crate::{Groups, JobId, Mode, Share, Window};

/// Lanes in each measured call.
const BATCH: usize = 20;
/// Most index entries that a call may read per lane. A failure of two jobs meets 42 of their versions.
const ENTRIES_EACH_MAX: i64 = 45;
/// For each queue: jobs that are scheduled, ended, or behind one busy key; lanes that are claimed, and that wait. Each
/// is more than a call may read.
const SCHEDULED: usize = 1_000;
const ENDED: usize = 1_000;
const BEHIND: u32 = 1_000;
const CLAIMED: usize = 1_000;
const WAITING: usize = 1_200;
const MODES: [Mode; 4] = [Mode::Parallel, Mode::Accumulate, Mode::Fifo, Mode::Exclusive];

/// A queue of each mode, and some whose calls take other ways.
fn queues() -> Vec<Queue> {
    let of_modes = MODES.map(|mode| Queue::new(name(mode), mode).retain_completed(LEASE * 600));
    let shares = Groups::each(Share::default().running(100_000));
    let window = Window { max_jobs: Some(2), ..Window::new(LEASE, LEASE) };
    let others = [
        // Its jobs are claimed in series.
        Queue::fifo("series"),
        Queue::fifo("grouped").groups(shares).throttle(LEASE),
        Queue::accumulate("collected").window(window),
    ];
    of_modes.into_iter().chain(others).collect()
}

/// The state of the tables when the statements were planned.
#[derive(Clone, Copy, Debug)]
enum Planned {
    /// Never analysed; the plans are kept.
    Unknown,
    /// Empty and analysed; the plans are kept.
    Empty,
    /// Analysed while they had what they never have again: few keys with many jobs each; the plans are kept.
    Foreign,
    /// Almost empty and vacuumed, after they had been full; the plans are kept.
    Drained,
    /// Empty and vacuumed, with the pages of when they had been full: the planner believes in one row, however many come.
    Vacant,
    /// Full of waiting jobs, and analysed while nothing was claimed.
    Idle,
}

/// A store with one session, alone on its server.
async fn alone() -> (seriatim_testkit::Postgres, Arc<Postgres>) {
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let store = open_at(&format!("{}?connections=1", server.url())).await;
    (server, store)
}

/// A store whose calls are measured: its only session is inside a transaction while they run.
pub(super) struct Watched {
    store: Arc<Postgres>,
    /// Calls that read too much.
    found: Mutex<Vec<String>>,
}

impl Watched {
    pub(super) fn new(store: Arc<Postgres>) -> Self {
        Self { store, found: Mutex::default() }
    }

    /// Index entries, and rows read by sequential scans, by name.
    async fn read(&self) -> HashMap<String, i64> {
        let counted = "SELECT relname::text, pg_stat_get_xact_tuples_returned(oid) FROM pg_class \
            WHERE relnamespace = 'seriatim'::regnamespace AND relkind IN ('i', 'r')";
        let rows = self.store.pool.query(counted, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Returns when no other session, such as one that analyzes a table, may still see what was deleted before. Until then no reader
    /// removes the entries of that from an index, and each of them counts as read.
    async fn until_unseen(&self) {
        let looking = "SELECT count(*) FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()";
        while self.store.pool.query_one(looking, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::task::yield_now().await;
        }
        // Until there is another transaction, a session goes by what it found before.
        self.store.pool.query("SELECT txid_current()", &[]).await.unwrap();
    }

    /// Runs a call and counts what it read.
    pub(super) async fn counted<T>(
        &self,
        call: impl Future<Output = crate::Result<T>>,
    ) -> (T, i64) {
        self.store.pool.query("BEGIN", &[]).await.unwrap();
        let before: i64 = self.read().await.values().sum();
        let answer = call.await.unwrap();
        let after: i64 = self.read().await.values().sum();
        self.store.pool.query("COMMIT", &[]).await.unwrap();
        (answer, after - before)
    }

    /// Runs a call and notes whether it read too much.
    async fn call<T>(&self, name: &str, call: impl Future<Output = crate::Result<T>>) -> T {
        self.store.pool.query("BEGIN", &[]).await.unwrap();
        let before = self.read().await;
        let answer = call.await.unwrap();
        let after = self.read().await;
        self.store.pool.query("COMMIT", &[]).await.unwrap();
        let most = ENTRIES_EACH_MAX * BATCH as i64;
        let read = |name: &String| after[name] - before.get(name).copied().unwrap_or_default();
        let much: HashMap<_, _> =
            after.keys().map(|name| (name, read(name))).filter(|(_, read)| *read > most).collect();
        if !much.is_empty() {
            self.found.lock().unwrap().push(format!("{name} read {much:?}"));
        }
        answer
    }
}

fn name(mode: Mode) -> String {
    mode.to_string()
}

/// Two jobs per key, in modes with keys.
fn jobs_of(queue: &Queue, prefix: &str, lanes: usize) -> Vec<Job> {
    let new = |tag: usize| Job::new(&*queue.name, &tag).unwrap();
    let job = |i: usize, tag: usize| match queue.groups {
        Some(_) => new(tag).key(format!("{prefix}{i}")).group(format!("g{}", i % 5)),
        None => new(tag).key(format!("{prefix}{i}")),
    };
    match queue.mode {
        Mode::Parallel => (0..lanes).map(new).collect(),
        _ => (0..lanes).flat_map(|i| [job(i, 1), job(i, 2)]).collect(),
    }
}

fn named(jobs: Vec<Job>, prefix: &str) -> Vec<Job> {
    let name = |(i, job): (usize, Job)| job.idempotency_key(format!("{prefix}{i}"));
    jobs.into_iter().enumerate().map(name).collect()
}

pub(super) async fn push_many(store: &Postgres, jobs: Vec<Job>) {
    for batch in jobs.chunks(2_000) {
        push(store, batch.to_vec()).await;
    }
}

/// All measured calls, on lanes of one queue.
async fn calls(watched: &Watched, definition: &Queue, lanes: usize) {
    let (store, queue) = (&watched.store, &definition.name);
    let of = |call: &str| format!("{call} in {queue}");
    for prefix in ["new", "new", "w", "more", "and more"] {
        let request = Push { now: None, jobs: jobs_of(definition, prefix, lanes) };
        watched.call(&of("a push"), store.push(request)).await;
    }
    for prefix in ["named", "named"] {
        let jobs = named(jobs_of(definition, prefix, lanes), &format!("{prefix} {lanes} "));
        let request = Push { now: None, jobs };
        watched.call(&of("a named push"), store.push(request)).await;
    }
    let claiming = || Claim { series_max: 8, ..claiming(queue, lanes) };
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let claimed = watched.call(&of("a claim"), store.claim(claiming())).await;
        assert!(!claimed.turns.is_empty(), "{queue}");
        rounds.push(claimed.turns);
    }
    going_on(watched, definition, claiming()).await;
    let beat = |turn: &Turn| Beat { progress: Some("1".into()), ..Beat::of(turn) };
    let node = NodeInfo::new("n".into(), LEASE);
    let request = Heartbeat { now: None, node, beats: rounds[0].iter().map(beat).collect() };
    watched.call(&of("a heartbeat"), store.heartbeat(request)).await;
    let jobs = rounds[2].iter().map(|turn| turn.jobs[0].id).collect();
    watched.call(&of("a cancel"), store.cancel(Cancel { now: None, jobs })).await;
    for action in [LaneAction::Pause, LaneAction::Resume] {
        let lanes = LaneSelection::Lanes(rounds[1].iter().map(|turn| turn.lane).collect());
        let act = Act { now: None, queue: (&**queue).into(), lanes, action };
        watched.call(&of("an action on named lanes"), store.act(act)).await;
        if let Some(key) = rounds[1][0].key.clone() {
            let lanes = LaneSelection::Key(key.to_string());
            let act = Act { now: None, queue: (&**queue).into(), lanes, action };
            watched.call(&of("an action on a key"), store.act(act)).await;
        }
    }
    // A node whose last heartbeat was long ago.
    let node = NodeInfo::new(format!("dead {queue} {lanes}").as_str().into(), LEASE);
    let (dead, now) = (node.id.clone(), Some(Timestamp::of_this_machine() - LEASE * 3));
    store.heartbeat(Heartbeat { now, node, beats: Vec::new() }).await.unwrap();
    let claim = Claim::new(&**queue, dead, lanes, Lease::Node { ttl: LEASE });
    let held = watched.call(&of("a claim"), store.claim(claim)).await.turns;
    let lanes_max = BATCH;
    let rescue = Rescue { now: None, node: "n".into(), lease: LEASE, lanes_max, ticket: 0 };
    let taken = watched.call(&of("a rescue"), store.rescue(rescue)).await;
    assert_eq!(taken.len(), held.len());
    rounds[0].extend(taken);
    let retry = Outcome::Retry { error: "e".into(), retry_in: Some(LEASE) };
    for (turns, outcome) in rounds.iter().zip([Outcome::Done, retry.clone(), retry]) {
        let plan = |turn| crate::store::plan(turn, definition, &outcome.clone().into(), &|_| LEASE);
        let request = Settle::now(turns.iter().map(plan).collect());
        watched.call(&of("a settle"), store.settle(request)).await;
    }
    // The first reader removes the entries of lanes that were ready from the indexes.
    watched.until_unseen().await;
    store.stats(None).await.unwrap();
    watched.call(&of("statistics"), store.stats(None)).await;
    let sweep = Sweep { now: None, rows_max: BATCH };
    watched.call(&of("a sweep"), store.sweep(sweep)).await;
}

/// A settle whose lanes go on, and the release of one of them.
async fn going_on(watched: &Watched, definition: &Queue, claim: Claim) {
    let (store, queue) = (&watched.store, &definition.name);
    let of = |call: &str| format!("{call} in {queue}");
    let turns = watched.call(&of("a claim"), store.claim(claim.clone())).await.turns;
    assert!(!turns.is_empty(), "{queue}");
    let go_on = GoOn { claim, places: (0..turns.len()).collect() };
    let ends = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let request = Settle { go_on: vec![go_on], ..Settle::now(ends) };
    let settled = watched.call(&of("a settle whose lanes go on"), store.settle(request)).await;
    assert!(settled.iter().all(Settled::is_ok), "{settled:?}");
    let goes_on = settled.iter().find_map(|settled| match settled {
        Settled::Ok { next, .. } => next.as_ref(),
        _ => None,
    });
    if let Some(turn) = goes_on {
        let claims = ClaimSelection::Lane(turn.lane);
        let release = Release { now: None, claims, made_by: None, lanes_max: 1 };
        let released = watched.call(&of("a release"), store.release(release)).await;
        done(store, &released).await;
    }
}

/// Jobs that no call needs, oldest first: scheduled ones, ended ones, and those behind one busy key.
async fn fill(store: &Postgres, queue: &Queue) {
    let later = named(jobs_of(queue, "later", SCHEDULED), "later");
    push_many(store, later.into_iter().map(|job| job.run_in(LEASE * 600)).collect()).await;
    push_many(store, jobs_of(queue, "ended", ENDED)).await;
    loop {
        let turns = claim(store, &queue.name, ENDED).await.turns;
        if turns.is_empty() {
            break;
        }
        done(store, &turns).await;
    }
    if queue.mode != Mode::Parallel {
        let busy = |tag: u32| Job::new(&*queue.name, &tag).unwrap().key("busy");
        push(store, vec![busy(0), busy(1)]).await;
        assert_eq!(claim(store, &queue.name, 1).await.turns.len(), 1);
        push_many(store, (2..BEHIND).map(busy).collect()).await;
    }
}

/// What the tables have, or had, when the statements are planned.
async fn prepare(store: &Postgres, planned: Planned) {
    for queue in queues() {
        match planned {
            // A key that collects is due with the second job.
            Planned::Foreign if queue.mode != Mode::Parallel && queue.window.is_none() => {
                let job = |tag| Job::new(&*queue.name, &tag).unwrap().key("theirs");
                let jobs = (0..BEHIND).map(|tag| job(tag).run_in(LEASE * 600));
                push_many(store, jobs.collect()).await;
            }
            Planned::Drained | Planned::Vacant => {
                push_many(store, jobs_of(&queue, "w", WAITING)).await;
                // The last one stays in drained tables, so that they keep their pages.
                let left = usize::from(matches!(planned, Planned::Drained));
                while let turns = claim(store, &queue.name, WAITING - left).await.turns
                    && turns.len() > left
                {
                    done(store, &turns).await;
                }
            }
            _ => {}
        }
    }
}

async fn little_is_read(planned: Planned) {
    // A separate server: transactions of other tests would keep deleted entries in the indexes.
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let other = open_at(&server.url()).await;
    let (client, driver) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(driver);
    // Only this test updates the planner's statistics.
    let names = "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'seriatim'::regnamespace AND relkind = 'r'";
    let names = client.query(names, &[]).await.unwrap();
    let tables: Vec<String> = names.iter().map(|row| row.get(0)).collect();
    for table in &tables {
        let alone = format!("ALTER TABLE {table} SET (autovacuum_enabled = false)");
        client.batch_execute(&alone).await.unwrap();
    }
    let tables = tables.join(", ");
    for queue in queues() {
        declare(&other, queue).await;
    }
    let store = open_at(&format!("{}?connections=1", server.url())).await;
    let watched = Watched::new(store);
    if !matches!(planned, Planned::Idle) {
        prepare(&other, planned).await;
        if !matches!(planned, Planned::Unknown) {
            client.batch_execute(&format!("VACUUM (TRUNCATE false) {tables}")).await.unwrap();
            client.batch_execute(&format!("ANALYZE {tables}")).await.unwrap();
        }
        for queue in queues() {
            calls(&watched, &queue, 1).await;
        }
    }
    for queue in queues() {
        fill(&other, &queue).await;
        push_many(&other, jobs_of(&queue, "claimed", CLAIMED)).await;
    }
    if matches!(planned, Planned::Idle) {
        client.batch_execute(&format!("ANALYZE {tables}")).await.unwrap();
    }
    // Pushes have reserved names by rows that are no more. The first reader removes their entries from the index.
    watched.until_unseen().await;
    other.sweep(Sweep { now: None, rows_max: BATCH }).await.unwrap();
    for queue in queues() {
        assert!(claim(&other, &queue.name, CLAIMED).await.turns.len() >= CLAIMED, "{}", queue.name);
        push_many(&other, jobs_of(&queue, "w", WAITING)).await;
        // The first reader removes dead entries from the index.
        watched.until_unseen().await;
        claim(&other, &queue.name, 1).await;
    }
    for queue in queues() {
        calls(&watched, &queue, BATCH).await;
    }
    let found = watched.found.into_inner().unwrap();
    assert!(found.is_empty(), "planned {planned:?}:\n{}", found.join("\n"));
}

pub(super) async fn open_at(url: &str) -> Arc<Postgres> {
    let store = Postgres::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    Arc::new(store)
}

#[tokio::test]
async fn calls_read_little_when_they_were_planned_without_statistics() {
    little_is_read(Planned::Unknown).await;
}

#[tokio::test]
async fn calls_read_little_when_they_were_planned_for_few_keys_with_many_jobs() {
    little_is_read(Planned::Foreign).await;
}

#[tokio::test]
async fn calls_read_little_when_they_were_planned_for_empty_tables() {
    little_is_read(Planned::Empty).await;
}

#[tokio::test]
async fn calls_read_little_when_they_were_planned_for_drained_tables() {
    little_is_read(Planned::Drained).await;
}

#[tokio::test]
async fn calls_read_little_when_they_were_planned_for_tables_with_nothing_but_old_pages() {
    little_is_read(Planned::Vacant).await;
}

#[tokio::test]
async fn calls_read_little_when_nothing_was_claimed_as_they_were_planned() {
    little_is_read(Planned::Idle).await;
}

/// Adds copies of this job behind the others of its lane.
async fn deepen(store: &Postgres, job: JobId, copies: u32) -> Vec<JobId> {
    let sql = "WITH copied AS (SELECT * FROM seriatim.item WHERE seq = $1), copies AS (
        INSERT INTO seriatim.item SELECT c.* FROM copied l CROSS JOIN generate_series(1, $2::int) n
        CROSS JOIN LATERAL jsonb_populate_record(NULL::seriatim.item, to_jsonb(l) || jsonb_build_object(
          'seq', nextval('seriatim.seq'), 'digest', CASE WHEN l.digest IS NOT NULL THEN '\\x' || md5(n::text) END)) c
        RETURNING queue, seq), told AS (INSERT INTO seriatim.tally (queue, jobs) SELECT queue, count(*) FROM copies GROUP BY queue)
      SELECT seq FROM copies ORDER BY seq";
    let rows = store.pool.query(sql, &[&(job.seq() as i64), &(copies as i32)]).await.unwrap();
    let copy = |row: &tokio_postgres::Row| row.get::<_, i64>(0) as u64;
    rows.iter().map(|row| JobId::new(job.created_at(), job.queue(), 0, copy(row))).collect()
}

impl Gauge for Watched {
    /// It counts the jobs of each lane that it shows: see decision 35.
    const EXCEPT: &[&str] = &["a listing of lanes"];

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn counted<T>(&self, call: impl Future<Output = crate::Result<T>>) -> (T, i64) {
        Self::counted(self, call).await
    }

    async fn deepen(&self, job: JobId, copies: u32) -> Vec<JobId> {
        deepen(&self.store, job, copies).await
    }
}

/// Index entries that a call may read more where more jobs wait: the pages of the index are other ones.
const SLACK: i64 = 40;

#[tokio::test]
async fn a_sweep_looks_at_a_part_of_the_names_whose_jobs_are_stored_and_reaches_all() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    declare(&store, Queue::parallel("q").idempotency_ttl(Duration::from_micros(1))).await;
    let named = |i: usize| Job::new("q", &i).unwrap().idempotency_key(i.to_string());
    for first in (0..WAITING).step_by(BATCH) {
        push(&store, (first..first + BATCH).map(named).collect()).await;
    }
    let sweep = || store.sweep(Sweep { now: None, rows_max: BATCH });
    sweep().await.unwrap();
    for _ in 0..3 {
        let (_, read) = watched.counted(sweep()).await;
        assert!(read <= ENTRIES_EACH_MAX * BATCH as i64, "{read} rows of the jobs");
    }
    // The jobs that came last go, and with them their names, behind all the others.
    let gone = store.claim(claiming("q", WAITING)).await.unwrap().turns;
    done(&store, &gone[WAITING - BATCH..]).await;
    for _ in 0..=2 * WAITING / BATCH {
        sweep().await.unwrap();
    }
    let left = "SELECT count(*) FROM seriatim.idempotency";
    let left: i64 = store.pool.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, (WAITING - BATCH) as i64);
}

/// As a node sweeps: at once after a sweep that says that there is more.
#[tokio::test]
async fn names_that_expired_are_all_forgotten_while_sweeps_say_that_there_is_more() {
    let (_server, store) = alone().await;
    declare(&store, Queue::parallel("q").idempotency_ttl(Duration::from_micros(1))).await;
    for i in 0..40 {
        push(&store, vec![Job::new("q", &i).unwrap().idempotency_key(i.to_string())]).await;
    }
    let turns = store.claim(claiming("q", 40)).await.unwrap().turns;
    done(&store, &turns).await;
    while store.sweep(Sweep { now: None, rows_max: 9 }).await.unwrap().more {}
    let left = "SELECT count(*) FROM seriatim.idempotency";
    let left: i64 = store.pool.query_one(left, &[]).await.unwrap().get(0);
    assert!(left < 9, "{left} of 40");
}

#[tokio::test]
async fn a_look_at_a_job_or_at_what_runs_reads_no_job_that_waits() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    let mut much = Vec::new();
    for mode in MODES {
        let queue = name(mode);
        declare(&store, Queue::new(&*queue, mode)).await;
        push_many(&store, jobs_of(&Queue::new(name(mode), mode), "k", WAITING)).await;
        store.pool.query("ANALYZE", &[]).await.unwrap();
        let turns = claim(&store, &queue, 5).await.turns;
        let jobs: usize = turns.iter().map(|turn| turn.jobs.len()).sum();
        let turn = &turns[0];
        let (job, read) = watched.counted(store.job(turn.jobs[0].id)).await;
        assert_eq!(job.unwrap().state, JobState::Running);
        much.push((mode, "a job", read));
        let (found, read) =
            watched.counted(store.jobs(JobQuery::new(&*queue, JobState::Running))).await;
        assert_eq!(found.rows.len(), jobs);
        much.push((mode, "what runs", read));
        let (seen, read) = watched.counted(store.turn(turn.lane, turn.token)).await;
        assert!(seen.is_some());
        much.push((mode, "a turn", read));
    }
    much.retain(|(_, _, read)| *read > ENTRIES_EACH_MAX * 10);
    assert!(much.is_empty(), "{much:?}");
}

#[tokio::test]
async fn what_is_done_with_some_dead_jobs_reads_no_others() {
    const DEAD: usize = 3_000;
    let (_server, store) = alone().await;
    declare(&store, Queue::fifo("q")).await;
    let dead = |i: usize| {
        let past = Past { dead_at: Some(Timestamp::of_this_machine()), ..Past::default() };
        Job::new("q", &i).unwrap().key(format!("k{i}")).past(past)
    };
    push_many(&store, (0..DEAD).map(dead).collect()).await;
    store.pool.query("ANALYZE", &[]).await.unwrap();
    let query = JobQuery { rows_max: 2, ..JobQuery::new("q", JobState::Dead) };
    let ids: Vec<JobId> = store.jobs(query).await.unwrap().rows.iter().map(|job| job.id).collect();
    let (watched, mut found) = (Watched::new(store.clone()), Vec::new());
    let selected = |which| Selected { now: None, queue: "q".into(), which };
    let of_job = |place: usize| selected(Selection::Jobs(vec![ids[place]]));
    let of_key = |key: &str| selected(Selection::Keys(vec![key.to_owned()]));
    for (requeued, deleted) in [(of_job(0), of_job(1)), (of_key("k70"), of_key("k71"))] {
        found.push(watched.counted(store.requeue(requeued)).await);
        found.push(watched.counted(store.delete_dead(deleted)).await);
    }
    assert!(found.iter().all(|(acted, _)| acted.count == 1), "{found:?}");
    assert!(found.iter().all(|(_, read)| *read < DEAD as i64 / 10), "{found:?}");
    let sweep = store.sweep(Sweep { now: None, rows_max: 100 });
    let (_, read) = watched.counted(sweep).await;
    assert!(read < DEAD as i64 / 10, "a sweep read {read}");
}

#[tokio::test]
async fn a_sweep_reads_no_dead_jobs_but_those_that_it_deletes() {
    let (_server, store) = alone().await;
    let analyze = async || drop(store.pool.query("ANALYZE", &[]).await.unwrap());
    behind::a_sweep_reads_only_what_it_deletes(&Watched::new(store.clone()), analyze).await;
}

#[tokio::test]
async fn what_runs_is_listed_without_a_look_through_the_claims_for_each_job_that_runs() {
    let (_server, store) = alone().await;
    let queue = name(Mode::Parallel);
    declare(&store, Queue::parallel(&*queue)).await;
    let running = 5_000;
    push_many(&store, jobs_of(&Queue::parallel(&*queue), "k", running)).await;
    let mut jobs = Vec::new();
    for _ in 0..running / 10 {
        jobs.extend(claim(&store, &queue, 10).await.turns.iter().map(|turn| turn.jobs[0].id));
    }
    assert_eq!(jobs.len(), running);
    jobs.sort_unstable_by_key(|job| job.seq());
    let watched = Watched::new(store.clone());
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let all = JobQuery::new(&*queue, JobState::Running);
        let mut query = JobQuery { order, rows_max: 5, ..all };
        for expected in jobs.chunks(5).take(2) {
            let (page, read) = watched.counted(store.jobs(query.clone())).await;
            let shown: Vec<JobId> = page.rows.iter().map(|job| job.id).collect();
            assert_eq!(shown, expected, "{order:?}");
            assert!(read <= 5 * running as i64, "{read} rows and entries, {order:?}");
            query.after = page.next;
        }
    }
}

#[tokio::test]
async fn listings_look_through_the_claims_only_for_lanes_that_are_claimed() {
    let (_server, store) = alone().await;
    let queue = name(Mode::Parallel);
    declare(&store, Queue::parallel(&*queue)).await;
    push_many(&store, jobs_of(&Queue::parallel(&*queue), "k", 400)).await;
    let claims = 30;
    for _ in 0..claims {
        claim(&store, &queue, 5).await;
    }
    let watched = Watched::new(store.clone());
    let behind =
        store.lanes(LaneQuery { rows_max: 150, ..LaneQuery::new(&*queue) }).await.unwrap().next;
    let query = LaneQuery { after: behind, rows_max: 100, ..LaneQuery::new(&*queue) };
    let (page, read) = watched.counted(store.lanes(query)).await;
    assert!(
        page.rows.iter().all(|lane| lane.state == LaneState::Waiting) && page.rows.len() == 100
    );
    assert!(read < 100 * claims, "{read} rows and entries for 100 lanes that wait");
    let query = JobQuery { rows_max: 100, ..JobQuery::new(&*queue, JobState::Queued) };
    let (page, read) = watched.counted(store.jobs(query)).await;
    assert_eq!(page.rows.len(), 100);
    assert!(read < 100 * claims, "{read} rows and entries for 100 jobs that wait");
    let later = |i| Job::new(&*queue, &i).unwrap().run_in(LEASE * 600);
    push_many(&store, (0..40).map(later).collect()).await;
    let now = Timestamp::of_this_machine();
    let scheduled = LaneQuery {
        order: LaneOrder::Due,
        stages: vec![LaneStage::Scheduled, LaneStage::Retrying],
        from: Some(LanePlace::Due(now + LEASE)),
        now: Some(now),
        rows_max: 10,
        ..LaneQuery::new(&*queue)
    };
    let (page, read) = watched.counted(store.lanes(scheduled)).await;
    assert_eq!(page.rows.len(), 10);
    assert!(read < claims * 5, "{read} rows and entries for 10 lanes that are scheduled");
}

#[tokio::test]
async fn the_dead_jobs_of_a_key_are_listed_without_those_of_others() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    let queue = name(Mode::Fifo);
    declare(&store, Queue::fifo(&*queue)).await;
    push_many(&store, jobs_of(&Queue::fifo(&*queue), "k", WAITING)).await;
    let turns = claim(&store, &queue, WAITING).await.turns;
    let bury =
        |turn: &Turn| Settlement { rest: Fate::Bury, ..Settlement::done(turn.lane, turn.token) };
    store.settle(Settle::now(turns.iter().map(bury).collect())).await.unwrap();
    let all = JobQuery { rows_max: 1_000, ..JobQuery::new(&*queue, JobState::Dead) };
    let dead = store.jobs(all.clone()).await.unwrap().rows;
    assert!(dead.len() >= 500, "{}", dead.len());
    let of_key = JobQuery { key: dead[7].key.as_ref().map(ToString::to_string), ..all };
    for analysed in [false, true] {
        if analysed {
            store.pool.query("ANALYZE", &[]).await.unwrap();
        }
        let (page, read) = watched.counted(store.jobs(of_key.clone())).await;
        assert!(page.rows.iter().all(|job| job.key == dead[7].key) && !page.rows.is_empty());
        assert!(read <= SLACK, "{read} rows and entries");
    }
}

#[tokio::test]
async fn statistics_read_no_job() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    for mode in MODES {
        declare(&store, Queue::new(name(mode), mode).retain_completed(LEASE * 600)).await;
        push_many(&store, jobs_of(&Queue::new(name(mode), mode), "k", WAITING)).await;
        let turns = claim(&store, &name(mode), WAITING / 2).await.turns;
        done(&store, &turns[..turns.len() / 2]).await;
    }
    // The first reader removes the entries of claimed lanes from the index.
    watched.until_unseen().await;
    store.stats(None).await.unwrap();
    let (stats, read) = watched.counted(store.stats(None)).await;
    assert_eq!(
        stats.iter().map(|one| one.claimed).sum::<u64>(),
        (WAITING / 4 * MODES.len()) as u64
    );
    assert!(read <= SLACK, "{read} rows");
}

#[tokio::test]
async fn statistics_read_the_tallies_once_however_many_queues_there_are() {
    let (_server, store) = alone().await;
    let jobs = (0..300).map(|i| Job::new(format!("q{i}"), &i).unwrap()).collect();
    store.push(Push { now: None, jobs }).await.unwrap();
    let number =
        async |sql: &'static str| -> i64 { store.pool.query(sql, &[]).await.unwrap()[0].get(0) };
    let tallies = number("SELECT count(*) FROM seriatim.tally").await;
    const READ: &str = "SELECT pg_stat_get_xact_tuples_returned('seriatim.tally'::regclass)";
    store.pool.query("BEGIN", &[]).await.unwrap();
    let before = number(READ).await;
    assert_eq!(store.stats(None).await.unwrap().len(), 300);
    let read = number(READ).await - before;
    store.pool.query("COMMIT", &[]).await.unwrap();
    assert!(tallies >= 300 && read <= tallies, "{read} of {tallies} rows");
}

#[tokio::test]
async fn statistics_read_no_lane_however_many_have_failed() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    let queue = Queue::parallel("q");
    declare(&store, queue.clone()).await;
    let mut failed = 0;
    for more in [10, 1_000] {
        push_many(&store, (0..more).map(|i| Job::new("q", &i).unwrap()).collect()).await;
        fail(&store, &queue, &claim(&store, "q", more).await.turns).await;
        failed += more;
        // The first reader removes dead entries from the index of ready lanes.
        watched.until_unseen().await;
        store.stats(None).await.unwrap();
        let (stats, read) = watched.counted(store.stats(None)).await;
        assert_eq!(stats[0].retrying, failed as u64);
        // Some entries of lanes that were ready may stay until a page is written again.
        assert!(read <= 100, "{read} rows for {failed} lanes");
    }
}

#[tokio::test]
async fn what_waits_behind_is_not_read() {
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let store = open_at(&format!("{}?connections=1", server.url())).await;
    behind::what_waits_behind_is_not_read(async || Watched::new(store.clone())).await;
}

#[tokio::test]
async fn a_sweep_reads_no_jobs_that_were_tried_and_have_expired_since() {
    let (_server, store) = alone().await;
    let queue = Queue::parallel("q");
    declare(&store, queue.clone()).await;
    let expired = Timestamp::of_this_machine() + LEASE;
    let job = |i: usize| Job::new("q", &i).unwrap().expires_at(expired);
    push_many(&store, (0..WAITING).map(job).collect()).await;
    fail(&store, &queue, &claim(&store, "q", WAITING).await.turns).await;
    let watched = Watched::new(store.clone());
    let sweep = || store.sweep(Sweep { now: Some(expired + LEASE), rows_max: 9 });
    // The first reader removes the entries of the jobs as they were before.
    watched.until_unseen().await;
    sweep().await.unwrap();
    let untried = store.push(Push { now: None, jobs: vec![job(WAITING)] }).await.unwrap();
    let (swept, read) = watched.counted(sweep()).await;
    assert_eq!(swept.expired, [untried[0].job_id]);
    assert!(read <= SLACK, "{read} rows and entries");
}

/// So many lanes that a claim of them is stored in parts, which only those read who need its lanes.
const LONG_CLAIM: usize = 2_000;

async fn hold_many(store: &Postgres, queue: &Queue) -> Vec<Turn> {
    push_many(store, jobs_of(queue, "k", LONG_CLAIM)).await;
    let turns = claim(store, &queue.name, LONG_CLAIM).await.turns;
    assert_eq!(turns.len(), LONG_CLAIM);
    turns
}

/// The parts of claims that this transaction has read.
async fn parts_read(store: &Postgres) -> i64 {
    let parts = "SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint FROM pg_class c
        JOIN pg_index i ON i.indrelid = c.reltoastrelid WHERE c.oid = 'seriatim.batch'::regclass";
    store.pool.query_one(parts, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn what_touches_lanes_that_wait_reads_no_claims_of_others() {
    let (_server, store) = alone().await;
    let (own, other) = (Queue::parallel("own"), Queue::parallel("other"));
    for queue in [&own, &other] {
        declare(&store, queue.clone()).await;
    }
    hold_many(&store, &other).await;
    hold_many(&store, &own).await;
    let jobs = jobs_of(&own, "w", 2);
    let waiting = store.push(Push { now: None, jobs }).await.unwrap();
    hold_many(&store, &other).await;
    store.pool.query("BEGIN", &[]).await.unwrap();
    let before = parts_read(&store).await;
    let jobs = waiting.iter().map(|pushed| pushed.job_id).collect();
    let cancelled = store.cancel(Cancel { now: None, jobs }).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Now; 2]);
    assert_eq!(parts_read(&store).await - before, 0);
    let held = "SELECT sum(cardinality(lanes)) FROM seriatim.batch";
    let held: i64 = store.pool.query_one(held, &[]).await.unwrap().get(0);
    assert_eq!(held, 3 * LONG_CLAIM as i64);
    assert!(parts_read(&store).await > before, "it counts");
    store.pool.query("COMMIT", &[]).await.unwrap();
}

#[tokio::test]
async fn a_look_at_a_job_that_runs_reads_the_lanes_of_its_claim_alone() {
    let (_server, store) = alone().await;
    let (own, other) = (Queue::parallel("own"), Queue::parallel("other"));
    for queue in [&own, &other] {
        declare(&store, queue.clone()).await;
    }
    let turns = hold_many(&store, &own).await;
    let look = async || {
        store.pool.query("BEGIN", &[]).await.unwrap();
        let before = parts_read(&store).await;
        let job = store.job(turns[0].jobs[0].id).await.unwrap();
        assert_eq!(job.unwrap().state, JobState::Running);
        let read = parts_read(&store).await - before;
        store.pool.query("COMMIT", &[]).await.unwrap();
        read
    };
    let alone = look().await;
    assert!(alone > 0, "it counts");
    hold_many(&store, &own).await;
    hold_many(&store, &other).await;
    assert_eq!(look().await, alone);
}

#[tokio::test]
async fn what_a_node_holds_is_listed_without_the_claims_of_others() {
    let (_server, store) = alone().await;
    let watched = Watched::new(store.clone());
    let other = NodeInfo::new("other".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node: other, beats: Vec::new() }).await.unwrap();
    for mode in MODES {
        let queue = name(mode);
        declare(&store, Queue::new(&*queue, mode)).await;
        push_many(&store, jobs_of(&Queue::new(&*queue, mode), "k", 310)).await;
        let mine = claim(&store, &queue, 10).await.turns;
        for _ in 0..300 {
            let claim = Claim::new(&*queue, "other", 1, Lease::Node { ttl: LEASE });
            assert_eq!(store.claim(claim).await.unwrap().turns.len(), 1);
        }
        let query = LaneQuery { node: Some("n".into()), bare: true, ..LaneQuery::new(&*queue) };
        let (page, read) = watched.counted(store.lanes(query)).await;
        let shown: Vec<_> = page.rows.iter().map(|lane| (lane.lane, lane.token)).collect();
        let held: Vec<_> = mine.iter().map(|turn| (turn.lane, Some(turn.token))).collect();
        assert_eq!(shown, held);
        assert!(read < 300, "{read} rows and entries in {mode}");
    }
}
