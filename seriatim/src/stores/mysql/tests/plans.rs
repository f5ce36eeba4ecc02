//! The server's plans use an index, whatever the size of the tables.

use serde_json::Value;

use super::*;
use crate::contract::{Actions, Beat, Cancel, GoOn, Rescue, Sweep};
use crate::model::rate::Rate;
use crate::{Groups, Mode, Outcome, Share};

/// Fills a queue with ready lanes of many priorities and scheduled ones; with keys, of five jobs each.
async fn fill(store: &Mysql, queue: Queue, jobs: u32) {
    let in_an_hour = Timestamp::of_this_machine() + Duration::from_secs(3_600);
    let is_keyed = queue.mode.is_keyed();
    declare(store, queue).await;
    let job = |i: u32| {
        let lane = if is_keyed { i / 5 } else { i };
        let job = Job::new("q", &i).unwrap().priority((lane % 100) as u16);
        let job = if is_keyed { job.key(format!("key-{lane}")) } else { job };
        if lane % 3 == 0 { job.run_at(in_an_hour) } else { job }
    };
    for some in (0..jobs).collect::<Vec<_>>().chunks(1_000) {
        push(store, some.iter().copied().map(job).collect()).await;
    }
}

/// Tables with jobs that the plan scans or sorts.
fn faults(plan: &Value, found: &mut Vec<String>) {
    match plan {
        Value::Object(plan) => {
            let word = |name: &str| plan.get(name).and_then(Value::as_str).unwrap_or_default();
            let (table, access) = (word("table_name"), word("access_type"));
            // Names in <> are temporary tables of a few rows; `given` has the numbers in the statement. The flagged jobs
            // (`f`) are few, and a heartbeat begins with all of them.
            let is_table = !table.starts_with('<') && !["given", "f"].contains(&table);
            let is_table = is_table && !WHOLE.contains(&table);
            if is_table && ["ALL", "index"].contains(&access) {
                found.push(format!("{table}: {access}"));
            }
            for (name, part) in plan {
                if name == "filesort" {
                    found.push("filesort".to_owned());
                }
                faults(part, found);
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| faults(part, found)),
        _ => {}
    }
}

/// What the server knows of the tables.
#[derive(Clone, Copy, Debug)]
enum Statistics {
    /// What is in them.
    Fresh,
    /// Nothing.
    None,
    /// What another server had in them: every index has one value.
    Foreign,
    /// What was in them when they were empty.
    Stale,
}

impl Statistics {
    const ALL: [Self; 4] = [Self::Fresh, Self::None, Self::Foreign, Self::Stale];

    /// After the store was set up, before it is filled.
    async fn before(self, conn: &mut Conn) {
        for table in TABLES {
            let keep = format!("ALTER TABLE {table} STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0");
            conn.query_drop(keep).await.unwrap();
        }
        conn.query_drop(format!("ANALYZE TABLE {}", TABLES.join(","))).await.unwrap();
    }

    /// After it was filled.
    async fn after(self, conn: &mut Conn) {
        let of = "WHERE database_name = DATABASE()";
        let write = match self {
            Self::Fresh => vec![format!("ANALYZE TABLE {}", TABLES.join(","))],
            Self::None => {
                let tables = ["innodb_table_stats", "innodb_index_stats"];
                tables.map(|table| format!("DELETE FROM mysql.{table} {of}")).into()
            }
            Self::Foreign => vec![
                format!("UPDATE mysql.innodb_table_stats SET n_rows = 1000000 {of}"),
                format!(
                    "UPDATE mysql.innodb_index_stats SET stat_value = 1 {of} AND stat_name LIKE 'n_diff%'"
                ),
            ],
            Self::Stale => Vec::new(),
        };
        for sql in write {
            conn.query_drop(sql).await.unwrap();
        }
        // The server reads them again.
        conn.query_drop(format!("FLUSH TABLES {}", TABLES.join(","))).await.unwrap();
    }
}

const TABLES: [&str; 12] = [
    "seriatim_lane",
    "seriatim_job",
    "seriatim_ended",
    "seriatim_idempotency",
    "seriatim_expiry",
    "seriatim_alias",
    "seriatim_wake",
    "seriatim_extension",
    "seriatim_share",
    "seriatim_gate",
    "seriatim_ticket",
    "seriatim_delta",
];
/// Tables with a row for each queue, route or node, or for each call until sums are folded. Some calls read them whole.
const WHOLE: [&str; 5] =
    ["seriatim_queue", "seriatim_route", "seriatim_grouped", "seriatim_node", "seriatim_delta"];
/// Statements of sweeps that read tables whole, with a row for each group, and for each lease that was extended.
const OF_SWEEPS: [&str; 2] =
    ["SELECT q, grp FROM seriatim_share ", "DELETE FROM seriatim_extension WHERE until "];

/// Makes the calls of ordinary work, and checks the plan of each statement on lanes or jobs, where much waits and where
/// little does.
async fn no_call_scans(queue: Queue) {
    let few = if queue.mode.is_keyed() { 1_500 } else { 300 };
    let mut found = Vec::new();
    for known in Statistics::ALL {
        for jobs in [5_000, few] {
            found.extend(plans_that_scan(queue.clone(), jobs, known).await);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Pushes, claims, beats, settles and cancels as both of these stores; one rescues and sweeps.
async fn work(queue: &Queue, store: &Mysql, other: &Mysql) {
    for (claims, settles) in [(store, store), (other, other), (store, other)] {
        let turns = claim(claims, "q", 60).await.turns;
        assert_eq!(turns.len(), 60);
        let beat = |turn: &Turn| Beat { progress: Some("1".into()), ..Beat::of(turn) };
        let node = NodeInfo::new("n".into(), LEASE);
        let beats = turns.iter().map(beat).collect();
        claims.heartbeat(Heartbeat { now: None, node, beats }).await.unwrap();
        let again = turns[..20].iter().filter_map(|turn| Some(job(turn.key.as_deref()?, 9)));
        let again: Vec<Job> = again.collect();
        if !again.is_empty() {
            push(settles, again).await;
        }
        let soon = Timestamp::of_this_machine() + LEASE;
        let named = |i: u32| {
            let job = Job::new("q", &i).unwrap().idempotency_key(i.to_string()).expires_at(soon);
            let job = job.priority(200);
            if queue.mode.is_keyed() { job.key(format!("named-{i}")) } else { job }
        };
        push(settles, (0..3).map(named).collect()).await;
        let jobs = turns[..3].iter().map(|turn| turn.jobs[0].id).collect();
        store.cancel(Cancel { now: None, jobs }).await.unwrap();
        let retry = Outcome::Retry { error: "e".into(), retry_in: Some(LEASE) };
        let bury = Outcome::Bury { error: "e".into() };
        let end = |(place, turn): (usize, &Turn)| match place {
            0..10 => crate::store::plan(turn, queue, &retry.clone().into(), &|_| LEASE),
            10..15 => crate::store::plan(turn, queue, &bury.clone().into(), &|_| LEASE),
            _ => Settlement::done(turn.lane, turn.token),
        };
        let ends = turns.iter().enumerate().map(end).collect();
        let go_on = GoOn { claim: claim_request("q", 60), places: (0..60).collect() };
        let ends = Settle { go_on: vec![go_on], ..Settle::now(ends) };
        let settled = settles.settle(ends).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok));
        let next = settled.into_iter().filter_map(|settled| match settled {
            Settled::Ok { next, .. } => next.map(|turn| *turn),
            _ => None,
        });
        let next: Vec<Turn> = next.collect();
        assert!(!next.is_empty() || queue.mode != Mode::Fifo || queue.groups.is_some());
        if !next.is_empty() {
            done(claims, &next).await;
        }
    }
    let gone = NodeInfo::new("gone".into(), LEASE);
    let now = Some(Timestamp::of_this_machine() - LEASE * 2);
    store.heartbeat(Heartbeat { now, node: gone, beats: Vec::new() }).await.unwrap();
    let claim = Claim::new("q", "gone", 5, Lease::Node { ttl: LEASE });
    assert_eq!(store.claim(claim).await.unwrap().turns.len(), 5);
    for now in [None, Some(Timestamp::of_this_machine() + LEASE / 2)] {
        let rescue = Rescue { now, node: "n".into(), lease: LEASE, lanes_max: 10, ticket: 0 };
        store.rescue(rescue).await.unwrap();
    }
    for later in [LEASE * 2, LEASE * 60 * 24 * 60] {
        let now = Some(Timestamp::of_this_machine() + later);
        store.sweep(Sweep { now, rows_max: 5 }).await.unwrap();
    }
}

async fn plans_that_scan(queue: Queue, jobs: u32, known: Statistics) -> Vec<String> {
    let database = new_database().await;
    let store = open(&database).await;
    let mut conn = session(&database).await;
    known.before(&mut conn).await;
    fill(&store, queue.clone(), jobs).await;
    known.after(&mut conn).await;
    let other = open(&database).await;
    for store in [&store, &other] {
        store.inner.pool.statements.lock().unwrap().clear();
    }
    work(&queue, &store, &other).await;
    let sent = |store: &Mysql| store.inner.pool.statements.lock().unwrap().join(";");
    let statements = [sent(&store), sent(&other)].join(";");
    let (mut explained, mut bad) = (0, Vec::new());
    for sql in statements.split(';').map(str::trim) {
        let reads =
            ["SELECT", "(SELECT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb));
        let is_of_sweeps = OF_SWEEPS.iter().any(|begin| sql.starts_with(begin));
        let is_of_tables = TABLES.iter().any(|table| sql.contains(&format!("{table} ")));
        if !reads || is_of_sweeps || !is_of_tables {
            continue;
        }
        let plan: String =
            conn.query_first(format!("EXPLAIN FORMAT=JSON {sql}")).await.unwrap().unwrap();
        let mut found = Vec::new();
        faults(&serde_json::from_str(&plan).unwrap(), &mut found);
        // A rescue sorts the claims that have ended.
        found.retain(|fault| fault != "filesort" || !sql.starts_with("SELECT c.id"));
        // Another index would read and lock other sessions' lanes.
        let is_of_jobs =
            ["seriatim_lane ", "seriatim_job "].iter().any(|table| sql.contains(table));
        if is_of_jobs && sql.starts_with("DELETE") && !plan.contains(r#""key": "PRIMARY""#) {
            found.push("not by number".to_owned());
        }
        if !found.is_empty() {
            bad.push(format!("{known:?}, {jobs} jobs: {found:?} in {sql}\n{plan}"));
        }
        explained += 1;
    }
    assert!(explained >= 8, "{explained} statements in {statements}");
    bad
}

#[tokio::test]
async fn no_statement_of_a_parallel_queue_reads_a_whole_table_or_sorts() {
    no_call_scans(Queue::parallel("q")).await;
}

#[tokio::test]
async fn no_statement_of_a_keyed_queue_reads_a_whole_table_or_sorts() {
    no_call_scans(Queue::fifo("q")).await;
}

#[tokio::test]
async fn no_statement_of_a_queue_that_accumulates_reads_a_whole_table_or_sorts() {
    no_call_scans(Queue::accumulate("q")).await;
}

#[tokio::test]
async fn no_statement_of_an_exclusive_queue_reads_a_whole_table_or_sorts() {
    no_call_scans(Queue::exclusive("q")).await;
}

#[tokio::test]
async fn no_statement_of_a_queue_with_groups_reads_a_whole_table_or_sorts() {
    let shares = Groups::each(Share::default().running(1_000).rate(Rate::per_second(100_000)));
    no_call_scans(Queue::fifo("q").groups(shares).running(1_000)).await;
}
