//! How much a call does: as much for 100,000 jobs beside or behind what it takes as for ten.

use rusqlite::Connection;

use super::super::connect_writer;
use super::super::migrate::migrate;
use super::super::tx::{Definitions, STEPS, Tx};
use super::*;
use crate::contract::{
    Act, Beat, ClaimSelection, GoOn, Heartbeat, JobFilter, JobOrder, JobQuery, JobState,
    LaneAction, LaneOrder, LaneQuery, LaneSelection, LaneStage, Release, Rescue, Settle, Sweep,
};
use crate::model::past::Past;
use crate::model::{DueRule, Mode, Outcome, Queue, Timestamp, Turn, plan};

const FEW: u32 = 10;
const MANY: u32 = 100_000;
/// Lanes in each measured call.
const LANES: usize = 5;
/// Steps of SQLite's virtual machine that a call may make more among many jobs than among few.
const MORE_MAX: u64 = 300;
const DAY: Duration = Duration::from_secs(86_400);

/// Calls on this thread, each with the steps that it made.
struct Counted<'c> {
    tx: Tx<'c>,
    mode: Mode,
    now: Timestamp,
    steps: Vec<(&'static str, u64)>,
}

impl<'c> Counted<'c> {
    fn call<T>(&mut self, name: &'static str, call: impl FnOnce(&mut Tx<'c>) -> T) -> T {
        self.tx.at(Some(self.now));
        let before = STEPS.get();
        let answer = call(&mut self.tx);
        self.steps.push((name, STEPS.get() - before));
        answer
    }

    fn push(&mut self, name: &'static str, jobs: Vec<Job>) {
        self.call(name, |tx| tx.push(&jobs).unwrap());
    }

    fn beat(&mut self, name: &'static str, node: &str, turns: &[Turn]) {
        let beat = |turn: &Turn| Beat { progress: Some("1".into()), ..Beat::of(turn) };
        let node = NodeInfo::new(node.into(), LEASE);
        let request = Heartbeat { now: None, node, beats: turns.iter().map(beat).collect() };
        self.call(name, |tx| tx.heartbeat(&request).unwrap());
    }

    fn claim(&mut self, name: &'static str) -> Vec<Turn> {
        let turns = self.call(name, |tx| tx.claim(&claiming("q", LANES)).unwrap().turns);
        assert_eq!(turns.len(), LANES, "{name} in {}", self.mode);
        turns
    }

    fn settle(&mut self, name: &'static str, turns: &[Turn], outcome: &Outcome, goes_on: bool) {
        let queue = queue(self.mode);
        let plan = |turn| plan(turn, &queue, &outcome.clone().into(), &|_| Duration::ZERO);
        let claim = Claim { lanes_max: turns.len(), ..claiming("q", LANES) };
        let go_on = GoOn { claim, places: (0..turns.len()).collect() };
        let go_on = if goes_on { vec![go_on] } else { Vec::new() };
        let request = Settle { go_on, ..Settle::now(turns.iter().map(plan).collect()) };
        self.call(name, |tx| tx.settle(&request).unwrap());
    }
}

fn queue(mode: Mode) -> Queue {
    let mut queue = Queue::new("q", mode);
    if mode == Mode::Accumulate {
        queue.due = DueRule::Earliest;
    }
    queue.retain_completed(Duration::ZERO)
}

fn job(mode: Mode, key: String, number: u32) -> Job {
    let job = Job::new("q", &number).unwrap();
    if mode == Mode::Parallel { job } else { job.key(key) }
}

/// Jobs that no call needs: ready and scheduled ones of other lanes, and those behind the lanes that are claimed.
fn fill(tx: &mut Tx<'_>, mode: Mode) {
    // A claim in `accumulate` takes all that waits for its lane, up to as many jobs as a turn has.
    let before = if mode == Mode::Accumulate { "beside" } else { "busy" };
    for i in 0..FEW {
        let lane = i % LANES as u32;
        let jobs = [
            job(mode, format!("busy{lane}"), i % 10),
            job(mode, format!("{before}{lane}"), i).priority(200),
            job(mode, format!("later{i}"), i).run_in(DAY),
            job(mode, format!("waiting{i}"), i).priority(200),
        ];
        tx.push(&jobs).unwrap();
    }
}

/// Adds dead jobs.
fn bury(tx: &mut Tx<'_>, depth: u32) {
    let dead = "INSERT INTO ended (seq, q, dead, state, at, created, score, jprio, run_at, attempts, flagged, jroute, retry,
                  crashes, payload)
                WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?1)
                SELECT 1000000000 + n, number, 1, 'failed', ?2 - n / 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, x'31' FROM i, queue";
    // More than a sweep looks at.
    tx.execute(dead, [i64::from(depth.max(200)), tx.now]).unwrap();
}

/// Copies rows of this table, so that there are `times` as many. The copies have other numbers, further apart than those of
/// the originals; `different` has what else differs, as SQL that may name the number (`new`) and the copy (`nr`).
fn copy(c: &Connection, table: &str, times: u32, different: &[(&str, &str)], which: &str) {
    let columns = format!("SELECT group_concat(name) FROM pragma_table_info('{table}')");
    let columns: String = c.query_row(&columns, [], |row| row.get(0)).unwrap();
    let value = |column: &str| {
        let other = different.iter().find(|(name, _)| *name == column);
        other.map_or(column.to_owned(), |(_, sql)| (*sql).to_owned())
    };
    let values: Vec<String> = columns.split(',').map(value).collect();
    let key = if table == "item" { "seq" } else { "id" };
    let sql = format!(
        "INSERT INTO {table} ({columns}) WITH RECURSIVE i (nr) AS (SELECT 1 UNION ALL SELECT nr + 1 FROM i WHERE nr < {times} - 1)
         SELECT {} FROM (SELECT *, 1000 + nr * 64 + {key} AS new FROM i, {table} WHERE {which})",
        values.join(",")
    );
    c.execute_batch(&sql).unwrap();
}

/// Makes `times` as many of all that [`fill`] has pushed.
fn deepen(c: &Connection, mode: Mode, times: u32) {
    let highest: i64 = c.query_row("SELECT seq FROM meta", [], |row| row.get(0)).unwrap();
    assert!(highest < 64);
    // The last eight bytes are the number, but in `accumulate`, where all is the digest.
    let order = match mode {
        Mode::Accumulate => "unhex(printf('%032x', new))",
        _ => "CAST(substr(ord, 1, length(ord) - 8) || unhex(printf('80%014x', new)) AS BLOB)",
    };
    // Behind lanes that no claim takes as a whole.
    let behind = match mode {
        Mode::Accumulate => "lane IN (SELECT id FROM lane WHERE key GLOB 'beside*')",
        _ => "true",
    };
    let digest = if mode == Mode::Accumulate { order } else { "digest" };
    copy(c, "item", times, &[("seq", "new"), ("ord", order), ("digest", digest)], behind);
    let apart =
        if mode == Mode::Parallel { "true" } else { "key GLOB 'later*' OR key GLOB 'waiting*'" };
    copy(c, "lane", times, &[("id", "new"), ("seq", "new"), ("key", "key || '-' || nr")], apart);
    let figures = format!(
        "INSERT INTO ready SELECT q, class, prio, due, id FROM lane WHERE st = 0 AND id > 1000;
         UPDATE lane SET n = (SELECT count(*) FROM item WHERE lane = lane.id) WHERE n > 0;
         UPDATE queue SET lanes = (SELECT count(*) FROM lane),
           jobs = (SELECT count(*) FROM lane) + (SELECT count(*) FROM item);
         UPDATE meta SET seq = {};",
        1_064 + u64::from(times) * 64
    );
    c.execute_batch(&figures).unwrap();
}

/// A store of its own, within a transaction.
pub(super) fn in_memory() -> Connection {
    let connection = connect_writer(":memory:".as_ref(), true).unwrap();
    migrate(&connection).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    connection
}

/// The statistics of a file in which all rows of each index are equal.
fn analyse_wrongly(c: &Connection) {
    let columns = "length(stat) - length(replace(stat, ' ', ''))";
    let wrong = format!(
        "ANALYZE;
         UPDATE sqlite_stat1 SET stat = '1000000' || replace(printf('%.*c', {columns}, ' '), ' ', ' 1000000');
         ANALYZE sqlite_schema"
    );
    c.execute_batch(&wrong).unwrap();
}

/// The steps of each call, among `depth` jobs.
fn calls(mode: Mode, depth: u32, analyse: fn(&Connection)) -> Vec<(&'static str, u64)> {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    let now = Timestamp::of_this_machine();
    tx.at(Some(now)).declare(&[queue(mode)], false).unwrap();
    fill(&mut tx, mode);
    tx.finish().unwrap();
    if depth > FEW {
        deepen(&connection, mode, depth / FEW);
    }
    analyse(&connection);
    let tx = Tx::begin(&connection, &mut definitions).unwrap();
    let mut counted = Counted { tx, mode, now, steps: Vec::new() };
    bury(&mut counted.tx, depth);
    let lanes = 0..LANES as u32;
    let of = |start: &'static str| lanes.clone().map(move |i| job(mode, format!("{start}{i}"), 7));
    counted.beat("a heartbeat", "n", &[]);
    counted.push("a push of new lanes", of("new").collect());
    counted.push("a push behind others", of("busy").collect());
    counted.push("a push that is due sooner", of("later").collect());
    let named = of("busy").map(|job| job.idempotency_key("name"));
    counted.push("a push with a name", named.collect());
    let turns = counted.claim("a claim");
    counted.push("a push to claimed lanes", of("busy").collect());
    counted.beat("a heartbeat with progress", "n", &turns);
    counted.settle("a settle that goes on", &turns, &Outcome::Done, mode != Mode::Parallel);
    let claims = ClaimSelection::Node("n".into());
    let release = Release { now: None, claims, made_by: None, lanes_max: 100 };
    let held = counted.call("a release", |tx| tx.release(&release).unwrap());
    counted.settle("a settle of released lanes", &held, &Outcome::Done, false);
    let turns = counted.claim("a claim after a release");
    let failed = Outcome::Retry { error: "e".into(), retry_in: Some(DAY) };
    counted.settle("a failure", &turns, &failed, false);
    let turns = counted.claim("a claim after a failure");
    let jobs: Vec<_> = turns.iter().map(|turn| turn.jobs[0].id).collect();
    counted
        .call("a cancel", |tx| jobs.iter().try_for_each(|job| tx.cancel(*job).map(drop)).unwrap());
    for action in [LaneAction::Pause, LaneAction::Resume] {
        let lanes = LaneSelection::Lanes(turns.iter().map(|turn| turn.lane).collect());
        let act = Act { now: None, queue: "q".into(), lanes, action };
        let acted = counted.call("an action on named lanes", |tx| {
            let (chosen, _) = tx.chosen(&act).unwrap();
            tx.act(&act, &chosen).unwrap().0
        });
        assert_eq!(acted, LANES as u64);
    }
    views(&mut counted, &turns);
    counted.now = now + LEASE * 3;
    counted.beat("a heartbeat of another node", "m", &[]);
    let node = "m".into();
    let rescue = Rescue { now: None, node, lease: LEASE, lanes_max: 100, ticket: 0 };
    let held = counted.call("a rescue", |tx| tx.rescue(&rescue).unwrap());
    assert_eq!(held.len(), LANES);
    let bury = Outcome::Bury { error: "e".into() };
    counted.settle("a burial", &held, &bury, false);
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let page = JobQuery { order, rows_max: 2, ..JobQuery::new("q", JobState::Dead) };
        counted.call("dead jobs", |tx| tx.job_rows(&page, page.rows_max).unwrap());
    }
    counted.call("a sweep", |tx| tx.sweep(Sweep { now: None, rows_max: 100 }.rows_max).unwrap());
    counted.steps
}

fn views(counted: &mut Counted<'_>, turns: &[Turn]) {
    counted.call("the jobs of turns", |tx| {
        turns.iter().for_each(|turn| drop(tx.job_view(turn.jobs[0].id).unwrap()));
    });
    let node = Some("n".into());
    let held = LaneQuery { node, rows_max: 10, ..LaneQuery::new("q") };
    let held = counted.call("the lanes of a node", |tx| tx.lane_page(&held).unwrap());
    assert_eq!(held.rows.len(), LANES);
    for (name, order) in [
        ("lanes by age", LaneOrder::Age),
        ("lanes by key", LaneOrder::Key),
        ("lanes by due time", LaneOrder::Due),
        ("lanes by retries", LaneOrder::RetryCount),
    ] {
        use LaneStage::{Held, Paused, Ready, Retrying, Running, Scheduled};
        let sets = [&[][..], &[Ready, Scheduled, Retrying], &[Running], &[Held, Paused]];
        for stages in sets {
            let page = LaneQuery { order, rows_max: 10, ..LaneQuery::new("q") };
            let mut page = LaneQuery { stages: stages.to_vec(), ..page };
            page.after = counted.call(name, |tx| tx.lane_page(&page).unwrap()).next;
            counted.call(name, |tx| tx.lane_page(&page).unwrap());
        }
        // A bounded look for what nothing has.
        let stages = vec![LaneStage::Crashed];
        let look = LaneQuery { order, stages, scan_max: Some(20), ..LaneQuery::new("q") };
        counted.call("a bounded look", |tx| tx.lane_page(&look).unwrap());
    }
    let prefix = Some("waiting1".into());
    let page = LaneQuery { prefix, order: LaneOrder::Key, rows_max: 2, ..LaneQuery::new("q") };
    counted.call("lanes with a prefix", |tx| tx.lane_page(&page).unwrap());
    for (name, filter) in [
        ("jobs", JobFilter::Live),
        ("waiting jobs", JobState::Queued.into()),
        ("running jobs", JobState::Running.into()),
    ] {
        let mut page = JobQuery { rows_max: 4, ..JobQuery::new("q", filter) };
        page.after = counted.call(name, |tx| tx.job_rows(&page, page.rows_max).unwrap()).next;
        counted.call(name, |tx| tx.job_rows(&page, page.rows_max).unwrap());
    }
    counted.call("the figures", |tx| tx.stats().unwrap());
    counted.call("the due times", |tx| tx.due(&[]).unwrap());
}

#[test]
fn the_lanes_that_failed_are_found_by_an_index() {
    let connection = connect_writer(":memory:".as_ref(), true).unwrap();
    migrate(&connection).unwrap();
    let sql = "EXPLAIN QUERY PLAN SELECT id FROM lane WHERE q = 1 AND retry >= 0 AND 0 = 0 ORDER BY id LIMIT 3";
    let plan: String = connection.query_row(sql, [], |row| row.get(3)).unwrap();
    assert!(plan.contains("lane_worst (q=?)"), "{plan}");
}

fn nothing_more_is_read(analyse: fn(&Connection)) {
    let mut found = Vec::new();
    for mode in [Mode::Parallel, Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        let [few, many] = [FEW, MANY].map(|depth| calls(mode, depth, analyse));
        for ((name, few), (_, many)) in few.into_iter().zip(many) {
            if many > few + MORE_MAX {
                found.push(format!("{name} in {mode}: {few} steps, then {many}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_waits_beside_or_behind_is_not_read() {
    nothing_more_is_read(|_| ());
}

#[test]
fn what_waits_beside_or_behind_is_not_read_whatever_statistics_say() {
    nothing_more_is_read(analyse_wrongly);
}

/// The steps of the figures of this many queues.
fn steps_of_figures(queues: u32) -> u64 {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(Some(Timestamp::of_this_machine()));
    let jobs = (0..queues).map(|i| Job::new(format!("q{i}"), &i).unwrap());
    tx.push(&jobs.collect::<Vec<_>>()).unwrap();
    let before = STEPS.get();
    assert_eq!(tx.stats().unwrap().len(), queues as usize);
    tx.due(&[]).unwrap();
    STEPS.get() - before
}

#[test]
fn figures_cost_as_much_for_each_queue_however_many_there_are() {
    let [few, many] = [10, 1_000].map(steps_of_figures);
    assert!(many <= few * 100, "{few} steps for 10 queues, {many} for 1,000");
}

#[test]
fn jobs_of_a_small_queue_are_listed_without_reading_what_waits_in_others() {
    let [few, many] = [FEW, MANY].map(steps_of_small_queues);
    for ((mode, few), (_, many)) in few.into_iter().zip(many) {
        assert!(many <= few + MORE_MAX, "{mode}: {few}, then {many}");
    }
}

/// The steps of listing the few jobs of a queue of each mode, behind `depth` lanes and as many jobs of another one.
fn steps_of_small_queues(depth: u32) -> [(Mode, u64); 3] {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(Some(Timestamp::of_this_machine()));
    tx.declare(&[Queue::fifo("orders")], false).unwrap();
    let other = |key: String, tag| Job::new("orders", &tag).unwrap().key(key);
    let behind = (0..depth).map(|i| other("busy".to_owned(), i));
    let lanes = (0..depth).map(|i| other(format!("order-{i}"), i));
    tx.push(&behind.chain(lanes).collect::<Vec<_>>()).unwrap();
    [Mode::Parallel, Mode::Fifo, Mode::Accumulate].map(|mode| {
        let name = mode.to_string();
        tx.declare(&[Queue::new(name.as_str(), mode)], false).unwrap();
        let jobs =
            [1, 2].map(|number| Job { queue: name.clone(), ..job(mode, "one".to_owned(), number) });
        tx.push(&jobs).unwrap();
        let before = STEPS.get();
        let page = tx.job_rows(&JobQuery::new(name.as_str(), JobFilter::Live), 4).unwrap();
        assert_eq!(page.rows.len(), 2);
        (mode, STEPS.get() - before)
    })
}

/// They come back to a lane that has another number.
#[test]
fn jobs_with_a_key_are_listed_in_a_large_queue_that_has_become_parallel() {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(Some(Timestamp::of_this_machine())).declare(&[queue(Mode::Fifo)], false).unwrap();
    let dead = |i: u32| {
        let past = Past { dead_at: Some(Timestamp::of_this_machine()), ..Past::default() };
        job(Mode::Fifo, "k".to_owned(), i).past(past)
    };
    let pushed = tx.push(&[dead(1), dead(2)]).unwrap();
    tx.declare(&[queue(Mode::Parallel)], false).unwrap();
    tx.push(&(0..MANY).map(|i| job(Mode::Parallel, String::new(), i)).collect::<Vec<_>>()).unwrap();
    let ids = [pushed[0].job_id, pushed[1].job_id];
    assert_eq!(tx.requeue("q", &ids.map(|id| id.seq() as i64)).unwrap(), 2);
    let page = tx.job_rows(&JobQuery::new("q", JobFilter::Live), 4).unwrap();
    assert_eq!([page.rows[0].id, page.rows[1].id], ids);
}

/// The steps of a sweep that ends one job, beside so many that have expired since they were tried.
fn steps_of_expiry(mode: Mode, tried: u32) -> u64 {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    let now = Timestamp::of_this_machine();
    tx.at(Some(now)).declare(&[queue(mode)], false).unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    tx.heartbeat(&Heartbeat { now: None, node, beats: Vec::new() }).unwrap();
    let expiring = |key: &str, i| job(mode, key.to_owned(), i).expires_at(now + LEASE);
    tx.push(&(0..tried).map(|i| expiring("k", i)).collect::<Vec<_>>()).unwrap();
    let turns = tx.claim(&claiming("q", tried as usize)).unwrap().turns;
    let failed = Outcome::Retry { error: "e".into(), retry_in: Some(DAY) }.into();
    let failed = |turn| plan(turn, &queue(mode), &failed, &|_| DAY);
    tx.settle(&Settle::now(turns.iter().map(failed).collect())).unwrap();
    tx.push(&[expiring("other", tried)]).unwrap();
    tx.at(Some(now + LEASE * 2));
    let before = STEPS.get();
    assert_eq!(tx.sweep(100).unwrap().expired.len(), 1);
    STEPS.get() - before
}

#[test]
fn a_sweep_reads_no_jobs_that_were_tried_and_have_expired_since() {
    for mode in [Mode::Parallel, Mode::Accumulate] {
        let [few, many] = [FEW, 2_000].map(|tried| steps_of_expiry(mode, tried));
        assert!(many <= few + MORE_MAX, "{mode}: {few} steps, then {many}");
    }
}

/// The steps of a sweep of a queue with so many dead jobs, which all stay.
fn steps_beside_dead(depth: u32) -> u64 {
    let connection = in_memory();
    let mut definitions = Definitions::default();
    let mut tx = Tx::begin(&connection, &mut definitions).unwrap();
    tx.at(Some(Timestamp::of_this_machine())).declare(&[queue(Mode::Fifo)], false).unwrap();
    let dead = |i: u32| {
        let past = Past { dead_at: Some(Timestamp::of_this_machine()), ..Past::default() };
        job(Mode::Fifo, "k".to_owned(), i).past(past)
    };
    tx.push(&(0..depth).map(dead).collect::<Vec<_>>()).unwrap();
    let before = STEPS.get();
    assert_eq!(tx.sweep(1_000).unwrap().dead.len(), 0);
    STEPS.get() - before
}

#[test]
fn a_sweep_reads_no_dead_jobs_that_stay() {
    let [few, many] = [FEW, 900].map(steps_beside_dead);
    assert!(many <= few + MORE_MAX, "{few} steps, then {many}");
}
