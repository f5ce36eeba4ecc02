//! What the public views show, for every SQL store.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::contract::{
    Cancel, Claim, Declare, DeclareDead, Heartbeat, JobFilter, JobQuery, JobState, JobView,
    LaneQuery, LaneState, Lease, NodeInfo, NodeView, Push, Settle, SharedStore, Trouble,
    TroubleKind,
};
use crate::model::{Outcome, Verdict};
use crate::stores::sql_session::Database;
use crate::{Job, Queue};

const JOBS: [&str; 25] = [
    "job_id",
    "queue",
    "key",
    "task",
    "state",
    "node",
    "consumer_group",
    "producer",
    "partition_key",
    "idempotency_key",
    "priority",
    "score",
    "attempt",
    "retry_count",
    "crashes",
    "error",
    "cancel_requested",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "claimed_by",
    "heartbeat_at",
    "progress",
    "result",
];
const LANES: [&str; 14] = [
    "queue",
    "key",
    "state",
    "jobs",
    "due",
    "priority",
    "retry_count",
    "crashes",
    "error",
    "token",
    "node",
    "claimed_at",
    "lease_until",
    "progress",
];
const MORGUE: [&str; 12] = [
    "job_id",
    "queue",
    "key",
    "task",
    "score",
    "attempt",
    "retry_count",
    "crashes",
    "error",
    "created_at",
    "died_at",
    "payload",
];
const NODES: [&str; 9] =
    ["node", "name", "host", "pid", "version", "heartbeat_at", "alive", "told", "lanes"];
const HOUR: Duration = Duration::from_secs(3_600);
/// Where people read of the columns.
const PAGE: &str = include_str!("../../../docs/sql.md");

fn job(queue: &str, key: Option<&str>, number: u32) -> Job {
    let job = Job::new(queue, &number).unwrap();
    Job { key: key.map(str::to_owned), ..job }
}

async fn push(store: &SharedStore, jobs: Vec<Job>) {
    store.push(Push { now: None, jobs }).await.unwrap();
}

/// Claims what is ready, and ends the turns of these keys; the others run.
async fn turn(store: &SharedStore, queue: &Queue, outcomes: Vec<(&str, Outcome)>) {
    let claim = Claim::new(&*queue.name, "n", 9, Lease::Node { ttl: HOUR });
    let turns = store.claim(claim).await.unwrap().turns;
    let of = |turn: &crate::store::Turn| {
        let ends = outcomes.iter().find(|(key, _)| turn.key.as_deref() == Some(*key));
        // Only a turn that ends as done keeps it.
        let verdict =
            |outcome: &Outcome| Verdict { result: Some("[7]".into()), ..outcome.clone().into() };
        ends.map(|(_, outcome)| crate::store::plan(turn, queue, &verdict(outcome), &|_| HOUR))
    };
    let settlements = turns.iter().filter_map(of).collect();
    store.settle(Settle::now(settlements)).await.unwrap();
}

/// Jobs in each state, of each mode.
async fn fill(store: &SharedStore) {
    let fifo = Queue::fifo("fifo").retain_completed(HOUR);
    let (parallel, sums) = (Queue::parallel("parallel"), Queue::accumulate("sums"));
    let exclusive = Queue::exclusive("exclusive");
    let queues = vec![fifo.clone(), parallel.clone(), sums.clone(), exclusive.clone()];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let keys = ["busy", "busy", "dead", "done", "failed"];
    push(store, keys.iter().zip(1..).map(|(key, n)| job("fifo", Some(key), n)).collect()).await;
    let ends = vec![
        ("dead", Outcome::Bury { error: "no such order".into() }),
        ("done", Outcome::Done),
        ("failed", Outcome::Retry { error: "later".into(), retry_in: Some(HOUR) }),
    ];
    turn(store, &fifo, ends).await;
    let mut bound = job("fifo", Some("bound"), 6).task("paint").score(2.5).priority(7);
    bound.options.node = Some("blue".to_owned());
    bound.options.consumer_group = Some("g".to_owned());
    bound.options.producer = Some("psql".to_owned());
    bound.options.partition_key = Some("p1".to_owned());
    bound.options.idempotency_key = Some("once".to_owned());
    let cancelled = job("fifo", Some("canceled"), 7).run_in(HOUR);
    let pushed = store.push(Push { now: None, jobs: vec![bound, cancelled] }).await.unwrap();
    store.cancel(Cancel { now: None, jobs: vec![pushed[1].job_id] }).await.unwrap();
    push(store, vec![job("sums", Some("failed"), 1), job("sums", Some("failed"), 2)]).await;
    push(store, vec![job("sums", Some("busy"), 3), job("sums", Some("busy"), 4)]).await;
    let ends = vec![("failed", Outcome::Retry { error: "sum".into(), retry_in: Some(HOUR) })];
    turn(store, &sums, ends).await;
    push(store, vec![job("sums", Some("busy"), 5), job("sums", Some("light"), 6)]).await;
    push(store, vec![job("exclusive", Some("k"), 1), job("exclusive", Some("k"), 2)]).await;
    turn(store, &exclusive, Vec::new()).await;
    push(store, vec![job("parallel", None, 1)]).await;
    turn(store, &parallel, Vec::new()).await;
    let large = Job::new("parallel", &"ü".repeat(20_000)).unwrap();
    push(store, vec![large, job("parallel", None, 3).run_in(HOUR)]).await;
    turn(store, &sums, Vec::new()).await;
}

fn word(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Dead => "dead",
        JobState::Canceled => "canceled",
    }
}

/// Milliseconds: an SQLite text has no more.
fn millis(time: Option<crate::Timestamp>) -> Option<String> {
    time.map(|time| (time.as_micros() as f64 / 1e3).round().to_string())
}

/// A job as the view must show it.
fn row(job: &JobView) -> Vec<Option<String>> {
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
    let options = job.options.clone().unwrap_or_default();
    let runs = job.state == JobState::Running;
    vec![
        Some(job.id.to_string()),
        Some(job.queue.to_string()),
        text(&job.key),
        text(&job.task),
        Some(word(job.state).to_owned()),
        options.node.clone(),
        options.consumer_group.clone(),
        options.producer.clone(),
        options.partition_key.clone(),
        options.idempotency_key.clone(),
        Some(job.priority.to_string()),
        Some(job.score.to_string()),
        Some(job.attempt.to_string()),
        Some(job.retry_count.to_string()),
        Some(job.crashes.to_string()),
        text(&job.error),
        Some(if job.cancel_requested { "yes" } else { "no" }.to_owned()),
        millis(Some(job.created_at)),
        millis(Some(job.run_at)),
        millis(job.started_at),
        millis(job.finished_at),
        runs.then(|| "n".to_owned()),
        millis(job.heartbeat_at),
        text(&job.progress),
        text(&job.result),
        Some(String::from_utf8(job.payload.as_bytes().to_vec()).unwrap()),
    ]
}

pub(super) async fn the_views_show_every_job_lane_and_node_as_the_store_does(
    database: impl Database,
) {
    let store = database.open().await;
    fill(&store).await;
    let all = [&JOBS[..], &["payload"]].concat();
    for (view, columns) in
        [("jobs", &*all), ("lanes", &LANES), ("morgue", &MORGUE), ("nodes", &NODES)]
    {
        let (names, _) = database.rows(&format!("SELECT * FROM @{view}")).await;
        assert_eq!(names, columns, "{view}");
        let missing = columns.iter().find(|column| !PAGE.contains(&format!("`{column}`")));
        assert_eq!(missing, None, "docs/sql.md tells of each column of {view}");
    }
    let mut expected = Vec::new();
    for queue in ["exclusive", "fifo", "parallel", "sums"] {
        let states = [JobState::Dead, JobState::Succeeded, JobState::Canceled];
        for filter in [JobFilter::Live].into_iter().chain(states.map(Into::into)) {
            let jobs = store.jobs(JobQuery::new(queue, filter)).await.unwrap().rows;
            expected.extend(jobs.iter().map(row));
        }
    }
    expected.sort();
    let states: std::collections::BTreeSet<_> = expected.iter().map(|row| row[4].clone()).collect();
    assert_eq!((expected.len(), states.len()), (18, 5), "each state occurs");
    let columns: Vec<String> = all.iter().map(|column| shown(&database, column)).collect();
    let (_, mut rows) = database.rows(&format!("SELECT {} FROM @jobs", columns.join(", "))).await;
    for row in &mut rows {
        let score = row[11].take().unwrap().parse::<f64>().unwrap();
        row[11] = Some(score.to_string());
    }
    rows.sort();
    compare(&all, &rows, &expected);
    lanes_and_nodes(&database, &store).await;
}

/// Times may differ by one: databases round what is between two milliseconds in their own ways.
fn compare(columns: &[&str], rows: &[Vec<Option<String>>], expected: &[Vec<Option<String>>]) {
    let number = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
    for (row, expected) in rows.iter().zip(expected) {
        for ((column, found), expected) in columns.iter().zip(row).zip(expected) {
            let apart = number(found).zip(number(expected)).map(|(a, b)| (a - b).abs());
            let is_so =
                found == expected || column.ends_with("_at") && apart.is_some_and(|ms| ms <= 1.0);
            assert!(is_so, "{column}: {found:?}, not {expected:?}, in {row:?}");
        }
    }
    assert_eq!(rows.len(), expected.len());
}

fn shown(database: &impl Database, column: &str) -> String {
    match column {
        "key" => "@key".to_owned(),
        "cancel_requested" => "CASE WHEN cancel_requested THEN 'yes' ELSE 'no' END".to_owned(),
        time if time.ends_with("_at") => {
            let micros = database.micros(time);
            format!("round({micros} / 1000.0)")
        }
        column => column.to_owned(),
    }
}

async fn lanes_and_nodes(database: &impl Database, store: &SharedStore) {
    let mut expected = Vec::new();
    for queue in ["exclusive", "fifo", "parallel", "sums"] {
        for lane in store.lanes(LaneQuery::new(queue)).await.unwrap().rows {
            let runs = lane.state == LaneState::Claimed;
            expected.push(vec![
                Some(queue.to_owned()),
                lane.key.as_deref().map(str::to_owned),
                Some(if runs { "claimed" } else { "waiting" }.to_owned()),
                Some(lane.jobs.to_string()),
                Some(lane.retry_count.to_string()),
                lane.error.as_deref().map(str::to_owned),
                lane.token.map(|token| token.to_string()),
                lane.node.map(|node| node.to_string()),
                millis(lane.claimed_at),
            ]);
        }
    }
    expected.sort();
    let sql = format!(
        "SELECT queue, @key, state, jobs, retry_count, error, token, node, {} FROM @lanes",
        shown(database, "claimed_at")
    );
    let (_, mut rows) = database.rows(&sql).await;
    rows.sort();
    let columns =
        ["queue", "key", "state", "jobs", "retry_count", "error", "token", "node", "claimed_at"];
    compare(&columns, &rows, &expected);
    let claimed = expected.iter().filter(|lane| lane[6].is_some()).count();
    // Its process is gone.
    let mut gone = NodeInfo::new("gone".into(), HOUR);
    gone.troubles.push(Trouble {
        kind: TroubleKind::WritesLost,
        queue: None,
        about: "the store".to_owned(),
        text: "a text with \0".to_owned(),
        times: 1,
        since: crate::Timestamp::default(),
        last_at: crate::Timestamp::default(),
    });
    store.heartbeat(Heartbeat { now: None, node: gone, beats: Vec::new() }).await.unwrap();
    let mut nodes = store.nodes().await.unwrap();
    nodes.sort_by_key(|node| node.info.id.clone());
    let (node, heartbeat_at) = (nodes[0].info.id.clone(), nodes[0].heartbeat_at);
    assert!(store.declare_dead(DeclareDead { now: None, node, heartbeat_at }).await.unwrap());
    let row = |node: &NodeView| {
        let lives = &*node.info.id.0 == "n";
        vec![
            Some(node.info.id.to_string()),
            lives.then(|| "lives".to_owned()),
            Some(if lives { claimed } else { 0 }.to_string()),
            millis(Some(node.heartbeat_at)),
        ]
    };
    let columns = ["node", "alive", "lanes", "heartbeat_at"];
    let sql = format!(
        "SELECT node, CASE WHEN alive THEN 'lives' END, lanes, {} FROM @nodes ORDER BY node",
        shown(database, "heartbeat_at")
    );
    let expected: Vec<_> = nodes.iter().map(row).collect();
    compare(&columns, &database.rows(&sql).await.1, &expected);
    let sql = "SELECT queue, @key, error, payload FROM @morgue";
    let dead = ["fifo", "dead", "no such order", "3"].map(|text| Some(text.to_owned()));
    assert_eq!(database.rows(sql).await.1, [dead.to_vec()]);
}
