//! No script blocks the others for long: long work goes in steps, which are counted here. With `SERIATIM_DEPTH=100000` and
//! `--no-capture` the first tests print how long they take while so many other lanes wait.

use super::super::link::INDEX;
use super::*;
use crate::contract::JobOrder;
use crate::store::{Due, Fate};

/// Lanes of a batch.
const LANES: usize = 1_000;
/// Most rows of a step, and some more.
const ROWS_MAX: usize = 1_010;
/// Most bytes of records of a step, and some more.
const BYTES_MAX: usize = 2 << 20;
/// Most lanes as tables of a step, and some more.
const TABLES_MAX: usize = 180;
/// Most lanes of a step whose plain job failed, or runs again.
const FAILED_MAX: usize = 250;

/// A private server that tells which scripts it has run.
struct Watched {
    server: seriatim_testkit::Redis,
    store: Arc<Redis>,
}

/// The scripts of an operation.
struct Scripts {
    count: usize,
    /// By the clock, in µs.
    longest: u64,
    /// The server's CPU for each, in µs.
    cpu: u64,
}

impl Watched {
    async fn of(queue: Queue) -> Self {
        let words = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"];
        let server = seriatim_testkit::Redis::start_with(&words).unwrap();
        let store = open_at(&server.url(), &new_prefix()).await;
        declare(&store, queue).await;
        Self { server, store }
    }

    /// The server's CPU until now, in µs.
    async fn cpu(&self) -> u64 {
        let mut link = linked(&self.server.url()).await;
        let mut cmd = ::redis::cmd("INFO");
        let text: String = cmd.arg("cpu").query_async(&mut link).await.unwrap();
        let of = |line: &str| {
            let field =
                line.strip_prefix("used_cpu_user:").or(line.strip_prefix("used_cpu_sys:"))?;
            field.trim().parse::<f64>().ok()
        };
        (text.lines().filter_map(of).sum::<f64>() * 1e6) as u64
    }

    async fn scripts<T>(&self, operation: impl Future<Output = T>) -> (Scripts, T) {
        let mut link = linked(&self.server.url()).await;
        let () = ::redis::cmd("SLOWLOG").arg("RESET").query_async(&mut link).await.unwrap();
        let before = self.cpu().await;
        let answer = operation.await;
        let cpu = self.cpu().await - before;
        type Logged = (u64, u64, u64, Vec<Vec<u8>>, Vec<u8>, Vec<u8>);
        let mut cmd = ::redis::cmd("SLOWLOG");
        let log: Vec<Logged> = cmd.arg("GET").arg(-1).query_async(&mut link).await.unwrap();
        let scripts = log.iter().filter(|(_, _, _, words, ..)| words[0].starts_with(b"EVAL"));
        let times: Vec<u64> = scripts.map(|(_, _, took, ..)| *took).collect();
        let count = times.len();
        let longest = times.into_iter().max().unwrap_or(0);
        (Scripts { count, longest, cpu: cpu / count.max(1) as u64 }, answer)
    }
}

/// How many rows each step of a listing has.
async fn rows_of_steps(store: &Redis, what: &str, words: &[&str]) -> Vec<usize> {
    let key = store.key(Shard { queue: 1, shard: 0 }, "");
    let (mut from, mut rows) = (String::new(), Vec::new());
    loop {
        let mut args = super::super::args::Args::default();
        args.text(what).text(&from).int(1_000_000);
        words.iter().for_each(|word| {
            args.text(word);
        });
        let mut answer = store.link.call(&INDEX, &key, &args).await.unwrap();
        from = answer.text().unwrap().to_string();
        rows.push(answer.list().unwrap().rest().count());
        if from.is_empty() {
            return rows;
        }
    }
}

fn settlement(turn: &Turn, rest: Fate) -> Settlement {
    let mut end = Settlement { rest, ..Settlement::done(turn.lane, turn.token) };
    if rest == Fate::Keep {
        end.keep.job = Some(turn.jobs[0].id);
        (end.keep.retry_count, end.keep.counted, end.keep.due) = (0, true, Due::Now);
        end.keep.error = Some("it failed".into());
    }
    end
}

fn settle_as(turns: &[Turn], rest: Fate) -> Settle {
    let turns = turns.iter().map(|turn| settlement(turn, rest)).collect();
    Settle { skip_locked: true, ..Settle::now(turns) }
}

async fn push_lanes(store: &Redis, lanes: usize, prefix: &str) {
    for first in (0..lanes).step_by(1_000) {
        let jobs = (first..lanes.min(first + 1_000)).map(|i| job(&format!("{prefix}{i}"), 1));
        push(store, jobs.collect()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_keys_of_the_whole_store_are_swept_in_short_steps() {
    const STEP: usize = 200;
    let watched = Watched::of(Queue::parallel("q")).await;
    let store = &watched.store;
    let of_store = |i| {
        let job = Job::new("q", &1).unwrap().idempotency_key(format!("{i}"));
        job.idempotency_scope(crate::store::IdempotencyScope::Store)
    };
    push(store, (0..LANES).map(of_store).collect()).await;
    let now = Some(store.now().await.unwrap() + Duration::from_secs(30 * 86_400));
    for rows_max in [STEP + 1, 10 * LANES] {
        let (scripts, swept) = watched.scripts(store.sweep(Sweep { now, rows_max })).await;
        // The jobs are stored, so their keys stay.
        assert_eq!(swept.unwrap().more, rows_max < LANES);
        assert!(scripts.count >= rows_max.min(LANES - STEP) / STEP, "{}", scripts.count);
    }
    let repeat = push(store, vec![of_store(7)]).await;
    assert_eq!(repeat[0].status, PushStatus::Duplicate);
}

/// A job in a lane of its own.
fn lane_job(mode: Mode, key: String) -> Job {
    let job = Job::new("q", &1).unwrap();
    if mode.is_keyed() { job.key(key) } else { job }
}

fn act_on_failed(action: LaneAction) -> Act {
    Act { now: None, queue: "q".into(), lanes: LaneSelection::Failed, action }
}

async fn claim_lanes(store: &Redis, lanes: usize) -> Vec<Turn> {
    let mut turns = Vec::new();
    while turns.len() < lanes {
        let more = claim(store, lanes - turns.len()).await;
        assert!(!more.is_empty());
        turns.extend(more);
    }
    turns
}

/// Prints what an operation took, and checks that no script had more than so many lanes.
fn report(mode: &str, name: &str, scripts: &Scripts, lanes: usize, most: usize) {
    let Scripts { count, longest, cpu } = scripts;
    println!(
        "{mode:<10} {name:<24} {count:>4} scripts, {cpu:>6} µs of CPU each, longest {longest:>6} µs"
    );
    assert!(count * most >= lanes, "{mode}, {name}: {lanes} lanes in {count} scripts");
}

/// Operations on lanes with a job each. What is measured four times shows the least.
async fn operations_of(queue: Queue) {
    let mode = queue.mode;
    let watched = Watched::of(queue.retain_completed(Duration::ZERO)).await;
    let store = watched.store.clone();
    let depth: Option<usize> =
        std::env::var("SERIATIM_DEPTH").ok().map(|depth| depth.parse().unwrap());
    let (depth, rounds) = depth.map_or((0, 1), |depth| (depth, 4));
    let later = |i| lane_job(mode, format!("other {i}")).run_in(Duration::from_secs(86_400));
    for first in (0..depth).step_by(1_000) {
        push(&store, (first..depth.min(first + 1_000)).map(later).collect()).await;
    }
    let mut least: Vec<(&str, Scripts, usize)> = Vec::new();
    for round in 0..rounds {
        for (name, scripts, most) in round_of(&watched, mode, &format!("{round} ")).await {
            match least.iter_mut().find(|known| known.0 == name) {
                Some((_, known, _)) if known.cpu > scripts.cpu => *known = scripts,
                Some(_) => {}
                None => least.push((name, scripts, most)),
            }
        }
    }
    for (name, scripts, most) in &least {
        report(mode.as_str(), name, scripts, LANES, *most);
    }
}

/// Each operation, with the scripts that it took and the most lanes that one of them may have.
async fn round_of(
    watched: &Watched,
    mode: Mode,
    prefix: &str,
) -> Vec<(&'static str, Scripts, usize)> {
    let store = &*watched.store;
    let mut took = Vec::new();
    let jobs = || (0..LANES).map(|i| lane_job(mode, format!("{prefix}{i}"))).collect();
    took.push(("push", watched.scripts(push(store, jobs())).await.0, LANES));
    let (scripts, page) = watched.scripts(store.lanes(LaneQuery::new("q"))).await;
    page.unwrap();
    took.push(("list of lanes", scripts, LANES));
    let (scripts, turns) = watched.scripts(claim(store, LANES)).await;
    assert_eq!(turns.len(), LANES);
    took.push(("claim", scripts, LANES));
    let node = LaneQuery { node: Some("n".into()), ..LaneQuery::new("q") };
    let (scripts, page) = watched.scripts(store.lanes(node)).await;
    assert_eq!(page.unwrap().rows.len(), LANES);
    took.push(("what a node holds", scripts, LANES));
    let (scripts, settled) = watched.scripts(store.settle(settle_as(&turns, Fate::Keep))).await;
    assert!(settled.unwrap().iter().all(Settled::is_ok));
    took.push(("settle, all failed", scripts, FAILED_MAX));
    let (scripts, turns) = watched.scripts(claim_lanes(store, LANES)).await;
    took.push(("claim of failed lanes", scripts, LANES));
    let (scripts, settled) = watched.scripts(store.settle(settle_as(&turns, Fate::Keep))).await;
    assert!(settled.unwrap().iter().all(Settled::is_ok));
    took.push(("settle, failed again", scripts, FAILED_MAX));
    let failing = LaneQuery { stages: vec![LaneStage::Retrying], ..LaneQuery::new("q") };
    let (scripts, page) = watched.scripts(store.lanes(failing)).await;
    assert_eq!(page.unwrap().rows.len(), LANES);
    took.push(("list of failed lanes", scripts, TABLES_MAX));
    for (name, action) in [
        ("pause, with a scan", LaneAction::Pause),
        ("resume, with a scan", LaneAction::Resume),
        ("perform now, with a scan", LaneAction::RunNow),
    ] {
        let (scripts, acted) = watched.scripts(store.act(act_on_failed(action))).await;
        assert_eq!(acted.unwrap().count, LANES as u64);
        took.push((name, scripts, TABLES_MAX));
    }
    let (scripts, turns) = watched.scripts(claim_lanes(store, LANES)).await;
    took.push(("claim after these", scripts, TABLES_MAX));
    let released = async {
        let request = || Release {
            now: None,
            claims: ClaimSelection::Queue("q".into()),
            made_by: turns.iter().map(|turn| turn.claimed_at).max(),
            lanes_max: LANES,
        };
        let mut taken = Vec::new();
        while taken.len() < LANES {
            taken.extend(store.release(request()).await.unwrap());
        }
        taken
    };
    let (scripts, turns) = watched.scripts(released).await;
    took.push(("release", scripts, TABLES_MAX));
    let (scripts, settled) = watched.scripts(store.settle(settle_as(&turns, Fate::Done))).await;
    assert!(settled.unwrap().iter().all(Settled::is_ok));
    took.push(("settle, done after that", scripts, TABLES_MAX));
    push(store, jobs()).await;
    let turns = claim_lanes(store, LANES).await;
    let (scripts, settled) = watched.scripts(store.settle(settle_as(&turns, Fate::Done))).await;
    assert!(settled.unwrap().iter().all(Settled::is_ok));
    took.push(("settle, all done", scripts, LANES));
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_many_lanes_takes_a_script_for_each_part_of_them_in_parallel() {
    operations_of(Queue::parallel("q")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_many_lanes_takes_a_script_for_each_part_of_them_in_fifo() {
    operations_of(Queue::fifo("q")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_many_lanes_takes_a_script_for_each_part_of_them_in_accumulate() {
    operations_of(Queue::accumulate("q")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_many_lanes_takes_a_script_for_each_part_of_them_in_exclusive() {
    operations_of(Queue::exclusive("q")).await;
}

/// Jobs of all turns of a script count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_of_large_turns_takes_a_script_for_each_10_000_jobs() {
    const TURNS: usize = 4;
    const JOBS: u32 = 4_000;
    let watched = Watched::of(Queue::accumulate("q").retain_completed(Duration::ZERO)).await;
    let store = &*watched.store;
    let fill = async || {
        for key in 0..TURNS {
            push(store, (0..JOBS).map(|tag| job(&format!("k{key}"), tag)).collect()).await;
        }
    };
    // From now on the server has the script.
    push(store, vec![job("k", 0)]).await;
    assert!(done(store, &claim(store, 1).await).await[0].is_ok());
    fill().await;
    for (fills, rest) in [(true, Fate::Done), (false, Fate::Keep), (false, Fate::Done)] {
        let turns = claim_lanes(store, TURNS).await;
        assert!(turns.iter().all(|turn| turn.jobs.len() == JOBS as usize));
        let (scripts, settled) = watched.scripts(store.settle(settle_as(&turns, rest))).await;
        assert!(settled.unwrap().iter().all(Settled::is_ok), "{rest:?}");
        assert_eq!(scripts.count, 2, "{rest:?}");
        if fills {
            fill().await;
        }
    }
    let (left, all) = (numbers(store).await, 2 * u64::from(JOBS) * TURNS as u64);
    assert_eq!((left.jobs, left.claimed, left.processed), (0, 0, all + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_takes_a_script_for_each_part_of_what_it_removes() {
    let watched = Watched::of(Queue::parallel("q").retain_completed(LEASE)).await;
    let store = &*watched.store;
    push(store, (0..LANES).map(|_| lane_job(Mode::Parallel, String::new())).collect()).await;
    let turns = claim_lanes(store, LANES).await;
    assert!(done(store, &turns).await.iter().all(Settled::is_ok));
    let now = Some(turns[0].claimed_at + LEASE + LEASE);
    let (scripts, swept) = watched.scripts(store.sweep(Sweep { now, rows_max: 1_000 })).await;
    let swept = swept.unwrap();
    assert_eq!((swept.completed, swept.more), (LANES as u64, false));
    report("parallel", "sweep of finished jobs", &scripts, LANES, 250);
}

/// Each lane has a claim of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_release_reads_so_many_claims_however_many_there_are() {
    const CLAIMS: usize = 3_000;
    let watched = Watched::of(Queue::fifo("q")).await;
    let store = &*watched.store;
    push_lanes(store, CLAIMS, "k").await;
    let lease = Lease::Own { ttl: LEASE };
    for _ in 0..CLAIMS / LANES {
        let request = Claim { lease, ..claim_request("q", LANES) };
        assert_eq!(store.claim(request).await.unwrap().turns.len(), LANES);
    }
    let release = async |claims, made_by| {
        let request = Release { now: None, claims, made_by, lanes_max: LANES };
        let (scripts, taken) = watched.scripts(store.release(request)).await;
        (scripts, taken.unwrap().len())
    };
    let (scripts, taken) = release(ClaimSelection::Node("other".into()), None).await;
    assert_eq!(taken, 0);
    report("fifo", "release of nothing", &scripts, CLAIMS, 1_200);
    let began = store.now().await.unwrap();
    let (scripts, taken) = release(ClaimSelection::Node("n".into()), Some(began)).await;
    assert_eq!(taken, LANES);
    report("fifo", "release of a node", &scripts, LANES, TABLES_MAX);
    let mut released = taken;
    while released < CLAIMS {
        let (_, taken) = release(ClaimSelection::Queue("q".into()), Some(began)).await;
        assert!(taken > 0, "{released}");
        released += taken;
    }
    assert_eq!(release(ClaimSelection::Queue("q".into()), Some(began)).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_about_dead_jobs_of_many_keys_reads_those_of_some_keys() {
    const CALLS_OF_A_KEY: u64 = 8;
    let watched = Watched::of(Queue::fifo("q")).await;
    let (store, url) = (&*watched.store, watched.server.url());
    let keys: Vec<String> = (0..2 * LANES).map(|i| format!("k{i}")).collect();
    push_lanes(store, keys.len(), "k").await;
    for turns in claim_lanes(store, keys.len()).await.chunks(LANES) {
        let buried = store.settle(settle_as(turns, Fate::Bury)).await.unwrap();
        assert!(buried.iter().all(Settled::is_ok));
    }
    let which = || Selection::Keys(keys.clone());
    let selected = || Selected { now: None, queue: "q".into(), which: which() };
    let before = super::depth::calls(&url).await;
    let deleted = store.delete_dead(selected()).await.unwrap();
    let calls = super::depth::calls(&url).await - before;
    assert_eq!((deleted.count, deleted.more), (keys.len() as u64, false));
    assert!(calls <= CALLS_OF_A_KEY * keys.len() as u64, "{calls} commands");
}

#[tokio::test]
async fn a_step_of_a_listing_has_so_many_rows_whatever_one_key_or_one_claim_has() {
    const JOBS: u32 = 6_000;
    let store = open(&new_prefix()).await;
    declare(&store, Queue::accumulate("q").merge(Merge::None)).await;
    push(&store, (0..JOBS).map(|i| job("k", i)).collect()).await;
    push_lanes(&store, 3_000, "other ").await;
    let check = async |what: &str, words: &[&str], rows: usize| {
        let steps = rows_of_steps(&store, what, words).await;
        assert_eq!(steps.iter().sum::<usize>(), rows, "{what}");
        assert!(steps.iter().all(|rows| *rows <= ROWS_MAX), "{what}: {steps:?}");
    };
    check("jobs", &["k"], JOBS as usize).await;
    check("turns", &["k", "0", "1"], JOBS as usize).await;
    let turns = claim_lanes(&store, 3_001).await;
    check("jobs", &["k"], JOBS as usize).await;
    check("running", &["k"], JOBS as usize).await;
    check("running", &[], JOBS as usize + 3_000).await;
    check("held", &[], 3_001).await;
    check("holder", &["n"], 3_001).await;
    let buried = store.settle(settle_as(&turns, Fate::Bury)).await.unwrap();
    assert!(buried.iter().all(Settled::is_ok));
    check("deadkey", &["k"], JOBS as usize).await;
    check("newest", &["", "0"], JOBS as usize + 3_000).await;
    check("bykey", &[""], JOBS as usize + 3_000).await;
    check("dead", &[], JOBS as usize + 3_000).await;
}

#[tokio::test]
async fn a_step_of_a_listing_reads_so_many_bytes_whatever_the_payloads_are() {
    const LANES: usize = 200;
    const BYTES: usize = 60_000;
    let store = open(&new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let payload = "x".repeat(BYTES);
    // Payloads of jobs that expire are in their records, however long.
    let expires_at = Timestamp::of_this_machine() + Duration::from_secs(3_600);
    let job = || Job::new("q", &payload).unwrap().expires_at(expires_at);
    let large = |i: usize| job().key(format!("k{i}"));
    let one_key = |_| job().key("k");
    push(&store, (0..LANES).map(large).collect()).await;
    push(&store, (0..LANES).map(one_key).collect()).await;
    let check = async |what: &str, words: &[&str]| {
        let steps = rows_of_steps(&store, what, words).await;
        assert!(steps.iter().all(|rows| rows * BYTES <= BYTES_MAX), "{what}: {steps:?}");
    };
    check("lanes", &[]).await;
    check("live", &[]).await;
    check("jobs", &["k"]).await;
    check("turns", &["k", "0", "1"]).await;
    let turns = claim_lanes(&store, LANES + 1).await;
    check("held", &[]).await;
    check("running", &[]).await;
    for part in turns.chunks(100) {
        let settled = store.settle(settle_as(part, Fate::Keep)).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok));
    }
    check("trouble", &["", "0"]).await;
    check("failed", &[]).await;
    for part in claim_lanes(&store, LANES + 1).await.chunks(100) {
        let settled = store.settle(settle_as(part, Fate::Bury)).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok));
    }
    check("newest", &["", "0"]).await;
    check("bykey", &[""]).await;
}

/// One in the middle of the order of its parts, in each place that a lane has for jobs.
#[tokio::test]
async fn the_jobs_of_a_key_are_all_told_whatever_place_they_have() {
    for queue in [Queue::accumulate("q"), Queue::fifo("q").take(20), Queue::exclusive("q")] {
        let mode = queue.mode;
        let store = open(&new_prefix()).await;
        declare(&store, queue).await;
        let odd = |i: u32| match i % 3 {
            0 => job("k", i),
            1 => job("k", i).score(f64::from(5_000 - i)),
            _ => job("k", i).run_in(Duration::from_secs(60 * u64::from(i))),
        };
        let mut wanted = HashSet::new();
        for first in (0..1_200).step_by(400) {
            let jobs = (first..first + 400).map(odd).collect();
            wanted.extend(push(&store, jobs).await.iter().map(|pushed| pushed.job_id));
        }
        let told = async |filter: JobFilter, order| {
            let mut query = JobQuery { key: Some("k".into()), order, ..JobQuery::new("q", filter) };
            query.rows_max = 500;
            let mut ids = Vec::new();
            loop {
                let page = store.jobs(query.clone()).await.unwrap();
                ids.extend(page.rows.iter().map(|job| job.id));
                query.after = page.next;
                if query.after.is_none() {
                    return ids;
                }
            }
        };
        for _ in 0..2 {
            let all = told(JobFilter::Live, JobOrder::Arrival).await;
            assert_eq!(all.len(), wanted.len(), "{mode:?}");
            assert_eq!(all.into_iter().collect::<HashSet<_>>(), wanted, "{mode:?}");
            let waiting = told(JobFilter::In(JobState::Queued), JobOrder::Turn).await;
            assert_eq!(waiting.len(), wanted.len(), "{mode:?}");
            let turns = claim(&store, 1).await;
            let running = told(JobFilter::In(JobState::Running), JobOrder::Turn).await;
            assert!(running.iter().eq(turns[0].jobs.iter().map(|job| &job.id)), "{mode:?}");
            let waiting = told(JobFilter::In(JobState::Queued), JobOrder::Turn).await;
            assert_eq!(waiting.len() + running.len(), wanted.len(), "{mode:?}");
            let all = told(JobFilter::Live, JobOrder::Arrival).await;
            assert_eq!(all.into_iter().collect::<HashSet<_>>(), wanted, "{mode:?}");
            let settled = store.settle(settle_as(&turns, Fate::Keep)).await.unwrap();
            assert!(settled[0].is_ok());
        }
    }
}

/// The turns behind the failed step were not sent, so their answer is that they are to be sent again.
#[tokio::test]
async fn what_a_settle_did_before_its_failure_is_answered() {
    const LANES: usize = 600;
    const BROKEN: usize = 400;
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push_lanes(&store, LANES, "k").await;
    let turns = claim_lanes(&store, LANES).await;
    let lanes = format!("{prefix}:{{q1:0}}:lanes");
    let name = super::super::reply::lane_bytes(turns[BROKEN].lane.number);
    let mut link = linked(&url()).await;
    let record: Vec<u8> =
        ::redis::cmd("HGET").arg(&lanes).arg(&name[..]).query_async(&mut link).await.unwrap();
    let write = async |record: &[u8]| {
        let mut link = linked(&url()).await;
        let mut cmd = ::redis::cmd("HSET");
        cmd.arg(&lanes).arg(&name[..]).arg(record).exec_async(&mut link).await.unwrap();
    };
    write(b"no record").await;
    let settled = store.settle(settle_as(&turns, Fate::Keep)).await.unwrap();
    let first = settled.iter().take_while(|settled| settled.is_ok()).count();
    assert!((1..=BROKEN).contains(&first), "{first}");
    assert!(settled[first..].iter().all(|settled| *settled == Settled::Unanswered));
    let request = Settle { skip_locked: false, ..settle_as(&turns, Fate::Keep) };
    assert!(store.settle(request).await.is_err(), "the caller did not say that it repeats");
    write(&record).await;
    let repeated = store.settle(settle_as(&turns, Fate::Keep)).await.unwrap();
    let before = repeated.iter().take_while(|settled| **settled == Settled::Stale).count();
    assert!((first..=BROKEN).contains(&before), "{before}, {first} at first");
    assert!(repeated[before..].iter().all(Settled::is_ok));
    assert_eq!(claim_lanes(&store, LANES).await.len(), LANES, "each failed once");
}

#[tokio::test]
async fn lanes_that_go_on_do_so_in_the_order_in_which_they_are_named_in_whatever_step_they_are() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::fifo("q").retain_completed(Duration::ZERO)).await;
    // Those that failed once are read as tables, the others are not.
    push_lanes(&store, 240, "failed ").await;
    let failed = claim_lanes(&store, 240).await;
    assert!(store.settle(settle_as(&failed, Fate::Keep)).await.unwrap().iter().all(Settled::is_ok));
    push_lanes(&store, 240, "fresh ").await;
    let turns = claim_lanes(&store, 480).await;
    push_lanes(&store, 240, "failed ").await;
    push_lanes(&store, 240, "fresh ").await;
    let most = 470;
    let claim = Claim::new("q", "n", most, Lease::Node { ttl: LEASE });
    let go_on = vec![GoOn { claim, places: (0..480).collect() }];
    let request = Settle { go_on, ..settle_as(&turns, Fate::Done) };
    let settled = store.settle(request).await.unwrap();
    let goes_on = |settled: &Settled| matches!(settled, Settled::Ok { next: Some(_), .. });
    assert!(settled.iter().all(Settled::is_ok));
    let first = settled.iter().take_while(|settled| goes_on(settled)).count();
    assert!((50..=most).contains(&first), "{first}");
    assert!(!settled[first..].iter().any(goes_on));
}
