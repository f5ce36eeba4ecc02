//! The server's plans use an index, whatever the size of the tables.

use serde_json::Value;

use super::*;
use crate::contract::{Actions, Beat, Cancel};
use crate::model::rate::Rate;
use crate::{Groups, Outcome, Share};

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

const TABLES: [&str; 2] = ["seriatim_lane", "seriatim_job"];

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

/// Pushes, claims, beats, settles and cancels as both of these stores.
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
        let jobs = vec![turns[0].jobs[0].id];
        store.cancel(Cancel { now: None, jobs }).await.unwrap();
        let retry = Outcome::Retry { error: "e".into(), retry_in: Some(LEASE) };
        let end = |(place, turn): (usize, &Turn)| match place {
            0..10 => crate::store::plan(turn, queue, &retry.clone().into(), &|_| LEASE),
            _ => Settlement::done(turn.lane, turn.token),
        };
        let ends = Settle::now(turns.iter().enumerate().map(end).collect());
        assert!(settles.settle(ends).await.unwrap().iter().all(Settled::is_ok));
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
        if !reads || !["seriatim_lane ", "seriatim_job "].iter().any(|table| sql.contains(table)) {
            continue;
        }
        let plan: String =
            conn.query_first(format!("EXPLAIN FORMAT=JSON {sql}")).await.unwrap().unwrap();
        let mut found = Vec::new();
        faults(&serde_json::from_str(&plan).unwrap(), &mut found);
        // Another index would read and lock other sessions' lanes.
        if sql.starts_with("DELETE") && !plan.contains(r#""key": "PRIMARY""#) {
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
async fn no_statement_of_a_queue_with_groups_reads_a_whole_table_or_sorts() {
    let shares = Groups::each(Share::default().running(1_000).rate(Rate::per_second(100_000)));
    no_call_scans(Queue::fifo("q").groups(shares).running(1_000)).await;
}
