//! What calls read does not depend on what waits behind.

use std::future::Future;

use super::*;
use crate::contract::{
    Beat, JobFilter, JobOrder, JobQuery, JobState, LaneOrder, LanePlace, LaneQuery, LaneStage,
    Sweep,
};
use crate::limits::PAGE_BYTES_MAX;
use crate::model::past::Past;
use crate::model::rate::Rate;
use crate::store::Verdict;
use crate::stores::behind::{self, Gauge};
use crate::{Groups, JobId, Mode, Outcome, Share};

/// Rows and index entries that a call may read more where more jobs wait.
const SLACK: i64 = 40;
/// The number of the first copy of a job.
const FIRST_COPY: u64 = 16_000_000;
/// So many jobs that a listing does not sort them.
const LARGE: u32 = 11_000;
/// Jobs with long texts: 15 MB of them.
const LONG: usize = 250;

/// A store with one connection.
pub(super) async fn open_one(database: &str) -> Arc<Mysql> {
    let store = Mysql::connect(&format!("{}?connections=1", address(database))).await.unwrap();
    store.migrate().await.unwrap();
    beat(&store).await;
    Arc::new(store)
}

async fn beat(store: &Mysql) {
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
}

/// The rows and index entries that the store's connection has read, with those of temporary tables, such as lists of
/// numbers in statements.
async fn read(store: &Mysql) -> i64 {
    let mut loan = store.inner.pool.lend().await.ok().unwrap();
    let status = "SELECT variable_value FROM information_schema.session_status \
                  WHERE variable_name IN ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', \
                  'HANDLER_READ_PREV', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')";
    let rows = loan.rows(status).await.ok().unwrap();
    loan.give_back();
    rows.into_iter().map(|row| mysql_async::from_row::<String>(row).parse::<i64>().unwrap()).sum()
}

pub(super) async fn counted<T>(
    store: &Mysql,
    call: impl Future<Output = crate::Result<T>>,
) -> (T, i64) {
    // The question reads some, too.
    let (first, before) = (read(store).await, read(store).await);
    let answer = call.await.unwrap();
    (answer, read(store).await - before - (before - first))
}

/// Adds copies of this job behind the others of its lane.
async fn deepen(store: &Mysql, job: JobId, copies: u32) -> Vec<JobId> {
    let numbers = FIRST_COPY..FIRST_COPY + u64::from(copies);
    let digit = "(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
                 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
    let mut loan = store.inner.pool.lend().await.ok().unwrap();
    for sql in [
        format!(
            "CREATE TEMPORARY TABLE copies AS SELECT j.*, {FIRST_COPY} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS nr \
             FROM seriatim_job j CROSS JOIN {digit} a CROSS JOIN {digit} b CROSS JOIN {digit} c CROSS JOIN {digit} e \
             CROSS JOIN {digit} f WHERE j.seq = {}",
            job.seq()
        ),
        format!("DELETE FROM copies WHERE nr >= {}", numbers.end),
        "UPDATE copies SET seq = nr, digest = IF(digest IS NULL, NULL, UNHEX(MD5(nr))), ord = IF(digest IS NULL, ord, digest)"
            .to_owned(),
        "ALTER TABLE copies DROP COLUMN nr".to_owned(),
        "INSERT INTO seriatim_job SELECT * FROM copies".to_owned(),
        format!("UPDATE seriatim_lane SET n = n + {copies} WHERE id IN (SELECT lane FROM copies)"),
        "DROP TEMPORARY TABLE copies".to_owned(),
        // Sixteen numbers each: those of later jobs are higher.
        format!("INSERT INTO seriatim_number (n) VALUES ({})", numbers.end / 16 + 1),
        "DELETE FROM seriatim_number".to_owned(),
    ] {
        loan.rows(&sql).await.ok().unwrap();
    }
    loan.give_back();
    numbers.map(|seq| JobId::new(job.created_at(), job.queue(), 0, seq)).collect()
}

/// A database of its own.
struct Counting(Arc<Mysql>);

impl Gauge for Counting {
    fn store(&self) -> &dyn Store {
        &*self.0
    }

    async fn counted<T>(&self, call: impl Future<Output = crate::Result<T>>) -> (T, i64) {
        counted(&self.0, call).await
    }

    async fn deepen(&self, job: JobId, copies: u32) -> Vec<JobId> {
        deepen(&self.0, job, copies).await
    }
}

#[tokio::test]
async fn what_waits_behind_is_not_read() {
    behind::what_waits_behind_is_not_read(async || Counting(open_one(&new_database().await).await))
        .await;
}

#[tokio::test]
async fn a_sweep_reads_no_dead_jobs_but_those_that_it_deletes() {
    let store = Counting(open_one(&new_database().await).await);
    behind::a_sweep_reads_only_what_it_deletes(&store, async || {}).await;
}

/// How many bytes the server has sent to the store's connection.
async fn sent(store: &Mysql) -> usize {
    let mut loan = store.inner.pool.lend().await.ok().unwrap();
    let status = "SELECT variable_value FROM information_schema.session_status \
                  WHERE variable_name = 'BYTES_SENT'";
    let row = loan.rows(status).await.ok().unwrap().remove(0);
    loan.give_back();
    mysql_async::from_row::<String>(row).parse().unwrap()
}

#[tokio::test]
async fn a_page_of_long_results_or_progress_is_cut_before_it_is_sent() {
    let store = open_one(&new_database().await).await;
    let queue = Queue::fifo("q").retain_completed(LEASE * 600);
    declare(&store, queue.clone()).await;
    let text = format!("{:?}", "x".repeat(60_000));
    let jobs = (0..LONG).map(|i| job(&i.to_string(), 1)).collect();
    push(&store, jobs).await;
    let mut turns = claim(&store, "q", LONG).await.turns;
    let listed = async |state: JobState| {
        let query = JobQuery { rows_max: LONG, ..JobQuery::new("q", state) };
        let before = sent(&store).await;
        let page = store.jobs(query).await.unwrap();
        let sent = sent(&store).await - before;
        assert!(page.next.is_some() && sent < PAGE_BYTES_MAX * 3 / 2, "{state:?}: {sent} bytes");
        assert!(page.rows.len() >= PAGE_BYTES_MAX / 60_100, "{} rows", page.rows.len());
    };
    for turns in turns.chunks(100) {
        let progress = Some(text.as_str().into());
        let beat = |turn: &Turn| Beat { progress: progress.clone(), ..Beat::of(turn) };
        let beats = turns.iter().map(beat).collect();
        let node = NodeInfo::new("n".into(), LEASE);
        store.heartbeat(Heartbeat { now: None, node, beats }).await.unwrap();
    }
    listed(JobState::Running).await;
    while !turns.is_empty() {
        let some = turns.split_off(turns.len().saturating_sub(100));
        let verdict = Verdict { result: Some(text.as_str().into()), ..Outcome::Done.into() };
        let plan = |turn| crate::store::plan(turn, &queue, &verdict, &|_| LEASE);
        store.settle(Settle::now(some.iter().map(plan).collect())).await.unwrap();
    }
    listed(JobState::Succeeded).await;
}

/// The server reads all of a payload to know its length.
#[tokio::test]
async fn a_listing_asks_for_the_lengths_of_the_payloads_on_its_page_alone() {
    let store = open_one(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..20).map(|number| job("k", number)).collect()).await;
    crate::lock::lock(&store.inner.pool.statements).clear();
    for key in [None, Some("k".to_owned())] {
        let query = JobQuery { key, rows_max: 2, ..JobQuery::new("q", JobState::Queued) };
        assert_eq!(store.jobs(query).await.unwrap().rows.len(), 2);
    }
    let statements =
        std::mem::take(&mut *crate::lock::lock(&store.inner.pool.statements)).join(";");
    let mut lengths = 0;
    for sql in statements.split(';').flat_map(|sql| sql.split(" UNION ALL ")) {
        lengths += usize::from(sql.contains("LENGTH("));
        assert!(
            !sql.contains("LENGTH(") || sql.contains("seq IN (") || sql.contains("id IN ("),
            "{sql}"
        );
    }
    assert!(lengths > 0);
}

/// What a claim reads of three lanes with `depth` jobs each.
async fn entries_of_three(store: &Mysql, mode: Mode, depth: u32) -> i64 {
    let queue = Queue::new(format!("{mode}-{depth}-three"), mode);
    declare(store, queue.clone()).await;
    for key in ["a", "b", "c"] {
        let job = |tag: u32| Job::new(&*queue.name, &tag).unwrap().key(key);
        push(store, (0..depth).map(job).collect()).await;
    }
    let (claimed, read) = counted(store, store.claim(claim_request(&queue.name, 3))).await;
    assert_eq!(claimed.turns.len(), 3);
    read
}

#[tokio::test]
async fn a_claim_of_several_lanes_does_not_read_what_waits_behind() {
    let store = open_one(&new_database().await).await;
    for mode in [Mode::Fifo, Mode::Exclusive] {
        let (few, many) =
            (entries_of_three(&store, mode, 20).await, entries_of_three(&store, mode, 2_000).await);
        println!("{mode}: {few} entries, then {many}");
        assert!(many <= few + SLACK, "{mode}: {few} entries, then {many}");
    }
}

/// The first lanes that wait for a time from then on.
fn scheduled(queue: &str, from: Timestamp) -> LaneQuery {
    LaneQuery {
        order: LaneOrder::Due,
        stages: vec![LaneStage::Scheduled, LaneStage::Retrying],
        from: Some(LanePlace::Due(from)),
        rows_max: 10,
        ..LaneQuery::new(queue)
    }
}

/// What pages read of a queue with `depth` waiting lanes and as many dead jobs.
async fn entries_of_pages(store: &Mysql, depth: u32) -> Vec<(String, i64)> {
    let queue = Queue::fifo(format!("listed-{depth}"));
    let name = queue.name.as_str();
    declare(store, queue.clone()).await;
    let jobs = |kind: &str| -> Vec<Job> {
        let job = |i| Job::new(name, &i).unwrap().key(format!("{kind}-{i}"));
        (0..depth).map(job).collect()
    };
    push(store, jobs("dead")).await;
    let mut turns = Vec::new();
    while turns.len() < depth as usize {
        turns.extend(claim(store, name, depth as usize).await.turns);
    }
    let begun = Timestamp::of_this_machine();
    for (i, turns) in (1..).zip(turns.chunks(20)) {
        let bury = Outcome::Bury { error: "e".into() };
        let plan = |turn| crate::store::plan(turn, &queue, &bury.clone().into(), &|_| LEASE);
        let now = Some(begun + Duration::from_millis(i));
        let turns = turns.iter().map(plan).collect();
        store.settle(Settle { now, ..Settle::now(turns) }).await.unwrap();
    }
    push(store, jobs("waiting")).await;
    push(store, jobs("later").into_iter().map(|job| job.run_in(LEASE * 600)).collect()).await;
    let all = || LaneQuery { rows_max: 10, ..LaneQuery::new(name) };
    let by_key = || LaneQuery { order: LaneOrder::Key, ..all() };
    let look = |query| {
        let stages = vec![LaneStage::Crashed];
        LaneQuery { stages, scan_max: Some(20), ..query }
    };
    let by_due = || LaneQuery { order: LaneOrder::Due, ..all() };
    let mut found = Vec::new();
    for (page, query) in [
        ("held lanes", LaneQuery { stages: vec![LaneStage::Held], ..all() }),
        ("lanes by due time", by_due()),
        ("waiting ones", LaneQuery { stages: LaneStage::WAITING.to_vec(), ..by_due() }),
        ("a bounded look by due time", look(by_due())),
        ("lanes by key", by_key()),
        ("lanes with a prefix", LaneQuery { prefix: Some("waiting-5".into()), ..by_key() }),
        ("a bounded look by key", look(by_key())),
    ] {
        let (first, read) = counted(store, store.lanes(query.clone())).await;
        found.push((page.to_owned(), read));
        let next = LaneQuery { after: first.next, ..query };
        found.push((format!("{page}, next"), counted(store, store.lanes(next)).await.1));
    }
    let of_key = |state| JobQuery {
        key: Some("waiting-7".into()),
        order: JobOrder::Turn,
        ..JobQuery::new(name, state)
    };
    for (page, state) in
        [("queued jobs of a key", JobState::Queued), ("running ones", JobState::Running)]
    {
        let (_, read) = counted(store, store.jobs(of_key(state))).await;
        found.push((page.to_owned(), read));
    }
    let later = LaneQuery { now: Some(begun), ..scheduled(name, begun + LEASE) };
    let (page, read) = counted(store, store.lanes(later)).await;
    assert_eq!(page.rows.len(), 10);
    found.push(("scheduled lanes".to_owned(), read));
    let dead = JobQuery::new(name, JobState::Dead);
    let of_key = JobQuery { key: Some("dead-7".into()), ..dead.clone() };
    let (page, read) = counted(store, store.jobs(of_key)).await;
    assert_eq!(page.rows.len(), 1);
    found.push(("the dead jobs of a key".to_owned(), read));
    let newest = JobQuery { order: JobOrder::UpdatedAt, rows_max: 10, ..dead };
    let (first, read) = counted(store, store.jobs(newest.clone())).await;
    assert_eq!(first.rows.len(), 10);
    found.push(("the newest dead jobs".to_owned(), read));
    let next = JobQuery { after: first.next, ..newest };
    let (second, read) = counted(store, store.jobs(next)).await;
    assert!(second.rows[0].finished_at <= first.rows[9].finished_at);
    found.push(("the newest dead jobs, next".to_owned(), read));
    found
}

#[tokio::test]
async fn a_page_reads_what_it_shows_however_many_lanes_and_dead_jobs_there_are() {
    let store = open_one(&new_database().await).await;
    let (few, many) = (entries_of_pages(&store, 100).await, entries_of_pages(&store, 2_000).await);
    let mut much = Vec::new();
    for ((page, few), (_, many)) in few.into_iter().zip(many) {
        if many > few + SLACK {
            much.push(format!("{page}: {few}, then {many}"));
        }
    }
    assert!(much.is_empty(), "{}", much.join("\n"));
}

/// What pages read of a queue without keys in which `depth` lanes wait at two priorities, beside as many of another one.
async fn entries_without_keys(store: &Mysql, depth: u32) -> Vec<(&'static str, i64)> {
    let (name, other) = (format!("keyless-{depth}"), format!("other-{depth}"));
    declare(store, Queue::parallel(&*other)).await;
    declare(store, Queue::parallel(&*name)).await;
    let jobs = |queue: &str| -> Vec<Job> {
        let job = |i| Job::new(queue, &i).unwrap().priority(100 + (i % 2) as u16);
        (0..depth).map(job).collect()
    };
    push(store, jobs(&other)).await;
    push(store, jobs(&name)).await;
    let mut found = Vec::new();
    let query = LaneQuery { order: LaneOrder::Due, rows_max: 10, ..LaneQuery::new(&*name) };
    let (first, read) = counted(store, store.lanes(query.clone())).await;
    assert_eq!(first.rows.len(), 10);
    found.push(("the first page", read));
    let next = LaneQuery { after: first.next, ..query };
    let (second, read) = counted(store, store.lanes(next)).await;
    assert!(first.rows[9].lane < second.rows[0].lane);
    found.push(("the next page", read));
    found
}

#[tokio::test]
async fn a_page_by_due_time_of_lanes_without_keys_reads_what_it_shows_however_many_there_are() {
    let store = open_one(&new_database().await).await;
    let few = entries_without_keys(&store, 100).await;
    let many = entries_without_keys(&store, 2_000).await;
    for ((page, few), (_, many)) in few.into_iter().zip(many) {
        assert!(many <= few + SLACK, "{page}: {few}, then {many}");
    }
}

#[tokio::test]
async fn a_page_of_jobs_by_arrival_does_not_read_all_of_a_large_queue() {
    let store = open_one(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    for from in (0..LARGE).step_by(1_000) {
        push(&store, (from..from + 1_000).map(|i| job(&i.to_string(), 1)).collect()).await;
    }
    for filter in [JobFilter::Live, JobFilter::In(JobState::Queued)] {
        let query = JobQuery { rows_max: 10, ..JobQuery::new("q", filter) };
        let (page, read) = counted(&store, store.jobs(query)).await;
        assert_eq!(page.rows.len(), 10);
        assert!(read < 1_000, "{filter:?}: {read}");
    }
}

#[tokio::test]
async fn sweeps_pass_by_jobs_that_were_tried_and_have_expired_since_once() {
    const TRIED: u32 = 3_000;
    let store = open_one(&new_database().await).await;
    let queue = Queue::parallel("q");
    declare(&store, queue.clone()).await;
    let expired = Timestamp::of_this_machine() + LEASE;
    let job = |i: u32| Job::new("q", &i).unwrap().expires_at(expired);
    push(&store, (0..TRIED).map(job).collect()).await;
    let turns = claim(&store, "q", TRIED as usize).await.turns;
    let retry = Outcome::Retry { error: "e".into(), retry_in: Some(LEASE * 10) };
    let plan = |turn| crate::store::plan(turn, &queue, &retry.clone().into(), &|_| LEASE);
    store.settle(Settle::now(turns.iter().map(plan).collect())).await.unwrap();
    let run = async |sql: &str| {
        let mut loan = store.inner.pool.lend().await.ok().unwrap();
        let rows = loan.rows(sql).await.ok().unwrap();
        loan.give_back();
        rows.into_iter().next().map(mysql_async::from_row::<i64>)
    };
    let entries = "SELECT COUNT(*) FROM seriatim_expiry";
    assert_eq!(run(entries).await, Some(0), "they do not expire any more");
    // As earlier builds left them: of jobs that were tried, and that are gone.
    run("INSERT INTO seriatim_expiry (seq, at) SELECT id, 1 FROM seriatim_lane").await;
    run("INSERT INTO seriatim_expiry (seq, at) VALUES (1, 1)").await;
    let pushed = store.push(Push { now: None, jobs: vec![job(TRIED)] }).await.unwrap();
    let (mut ended, mut sweeps) = (Vec::new(), 0);
    loop {
        let sweep = Sweep { now: Some(expired + LEASE), rows_max: 10 };
        let (swept, read) = counted(&store, store.sweep(sweep)).await;
        assert!(read < i64::from(TRIED), "{read} rows and entries");
        sweeps += 1;
        ended.extend(swept.expired);
        if !swept.more {
            break;
        }
    }
    assert_eq!(ended, [pushed[0].job_id]);
    assert!(sweeps < TRIED / 90, "{sweeps} sweeps");
    assert_eq!(run(entries).await, Some(0));
}

/// What a sweep reads that ends ten of so many jobs of a key.
async fn read_by_a_sweep(expired: u32) -> i64 {
    let store = open_one(&new_database().await).await;
    declare(&store, Queue::fifo("q")).await;
    let at = Timestamp::of_this_machine() + LEASE;
    push(&store, (0..expired).map(|i| job("k", i).expires_at(at)).collect()).await;
    let sweep = store.sweep(Sweep { now: Some(at + LEASE), rows_max: 10 });
    let (swept, read) = counted(&store, sweep).await;
    assert_eq!((swept.expired.len(), swept.more), (10, true));
    read
}

#[tokio::test]
async fn a_sweep_reads_as_many_expired_jobs_as_it_ends_however_many_a_key_has() {
    let (few, many) = (read_by_a_sweep(30).await, read_by_a_sweep(3_000).await);
    assert!(many <= few + SLACK, "{few}, then {many}");
}

#[tokio::test]
async fn groups_whose_rates_hold_nothing_back_are_forgotten() {
    let store = open_one(&new_database().await).await;
    let share = Share::default().rate(Rate::per_second(10));
    declare(&store, Queue::fifo("q").groups(Groups::each(share))).await;
    let of_group = |group: &str| job(group, 1).group(group);
    push(&store, ["a", "b", "c"].map(of_group).into()).await;
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 3);
    let sweep = Sweep { now: Some(store.now().await.unwrap() + LEASE), rows_max: 100 };
    store.sweep(sweep).await.unwrap();
    let mut loan = store.inner.pool.lend().await.ok().unwrap();
    let rows = loan.rows("SELECT grp FROM seriatim_share").await.ok().unwrap();
    loan.give_back();
    let groups: Vec<i64> = rows.into_iter().map(mysql_async::from_row).collect();
    assert_eq!(groups, [-1], "the row of the whole queue");
}

#[tokio::test]
async fn a_sweep_reads_as_many_dead_jobs_as_it_deletes_however_many_queues_have_some() {
    let store = open_one(&new_database().await).await;
    let old = Timestamp::of_this_machine() - LEASE * 10;
    for queue in 0..20 {
        let queue = Queue::fifo(format!("q{queue}")).retain_dead(LEASE);
        declare(&store, queue.clone()).await;
        let dead = |i: u32| {
            let past = Past { created_at: Some(old), dead_at: Some(old), ..Past::default() };
            Job::new(&*queue.name, &i).unwrap().key(format!("k{i}")).past(past)
        };
        push(&store, (0..50).map(dead).collect()).await;
    }
    let sweep = Sweep { now: None, rows_max: 50 };
    let (swept, read) = counted(&store, store.sweep(sweep)).await;
    assert_eq!((swept.dead.len(), swept.more), (50, true));
    assert!(read < 600, "{read} rows and entries");
}
