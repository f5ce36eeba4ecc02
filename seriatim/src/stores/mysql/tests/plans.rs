//! The server's plans use an index, whatever the size of the tables.

use serde_json::Value;

use super::*;
use crate::model::rate::Rate;
use crate::{Groups, Share};

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
            // Names in <> are temporary tables of a few rows; `given` has the numbers in the statement.
            let is_table = !table.starts_with('<') && table != "given";
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

/// Claims and settles, and checks the plan of each statement on lanes or jobs, where much waits and where little does.
async fn no_claim_or_settle_scans(queue: Queue) {
    let few = if queue.mode.is_keyed() { 1_500 } else { 300 };
    for jobs in [5_000, few] {
        no_plan_scans(queue.clone(), jobs).await;
    }
}

async fn no_plan_scans(queue: Queue, jobs: u32) {
    let database = new_database().await;
    let store = open(&database).await;
    fill(&store, queue, jobs).await;
    let mut conn = session(&database).await;
    conn.query_drop("ANALYZE TABLE seriatim_lane, seriatim_job").await.unwrap();
    let other = open(&database).await;
    for store in [&store, &other] {
        store.inner.pool.statements.lock().unwrap().clear();
    }
    for settles in [&store, &other] {
        let turns = claim(&store, "q", 100).await.turns;
        assert!(turns.len() == 100 && done(settles, &turns).await.iter().all(Settled::is_ok));
    }
    let mut explained = 0;
    let sent = |store: &Mysql| store.inner.pool.statements.lock().unwrap().join(";");
    let statements = [sent(&store), sent(&other)].join(";");
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
        assert!(found.is_empty(), "{found:?} in {sql}\n{plan}");
        // Another index would read and lock other sessions' lanes.
        let by_number = plan.contains(r#""key": "PRIMARY""#);
        assert!(by_number || !sql.starts_with("DELETE"), "{sql}\n{plan}");
        explained += 1;
    }
    assert!(explained >= 8, "{explained} statements in {statements}");
}

#[tokio::test]
async fn no_statement_of_a_parallel_queue_reads_a_whole_table_or_sorts() {
    no_claim_or_settle_scans(Queue::parallel("q")).await;
}

#[tokio::test]
async fn no_statement_of_a_keyed_queue_reads_a_whole_table_or_sorts() {
    no_claim_or_settle_scans(Queue::fifo("q")).await;
}

#[tokio::test]
async fn no_statement_of_a_queue_with_groups_reads_a_whole_table_or_sorts() {
    let shares = Groups::each(Share::default().running(1_000).rate(Rate::per_second(100_000)));
    no_claim_or_settle_scans(Queue::fifo("q").groups(shares).running(1_000)).await;
}
