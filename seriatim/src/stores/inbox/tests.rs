//! Cases for the inbox, for every store that has one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::contract::{
    DrainInbox, Drained, EndedDeed, InboxAsk, JobState, JobView, RefusedRow, SharedStore,
};
use crate::model::limits::{INBOX_REFUSED_MAX, INBOX_ROWS_MAX};
use crate::store::{Declare, Push};
use crate::stores::sql_session::Database;
use crate::{Batch, Engine, Groups, Job, Queue, Share, Timestamp};

/// Most time for anything.
const LONG: Duration = Duration::from_secs(20);

/// A test of each case, in a database of its own.
macro_rules! cases {
    ($database:expr) => {
        $crate::stores::inbox::tests::cases! { $database;
            a_row_becomes_a_job_with_all_that_it_says,
            what_is_rolled_back_leaves_nothing,
            rows_are_pushed_in_their_order_and_in_parts,
            a_step_that_ends_at_its_bytes_says_that_there_is_more,
            bad_rows_are_refused_with_the_reason_and_hold_nobody_up,
            rows_of_throttled_keys_are_refused_with_the_time_if_their_queue_says_so,
            many_bad_rows_are_refused_and_the_latest_are_kept,
            rows_with_odd_numbers_hold_nobody_up,
            n2_e5_deeds_wait_for_their_answer_and_keep_their_place,
            the_answer_to_a_deed_is_kept_if_the_store_refuses_the_row_behind_it,
            several_callers_push_each_row_once,
            e5_e8_an_engine_runs_what_sql_inserts_and_hears_of_it,
        }
    };
    ($database:expr; $($case:ident,)+) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::stores::inbox::tests::$case($database).await;
        }
    )+ };
}
pub(in crate::stores) use cases;

async fn open(database: &impl Database) -> SharedStore {
    let store = database.open().await;
    let shared = Queue::fifo("shared").groups(Groups::each(Share::default()));
    let queues = vec![Queue::fifo("q"), Queue::parallel("p"), shared];
    store.declare(Declare { now: None, queues }).await.unwrap();
    store
}

async fn step(store: &SharedStore) -> Drained {
    store.drain_inbox(DrainInbox { rows_max: INBOX_ROWS_MAX, ..Default::default() }).await.unwrap()
}

/// Drains until nothing is left. Returns the payloads that were pushed, and the refused rows, in order.
async fn drain(store: &SharedStore) -> (Vec<String>, Vec<RefusedRow>) {
    let (mut payloads, mut refused) = (Vec::new(), Vec::new());
    loop {
        let drained = step(store).await;
        payloads.extend(drained.jobs.iter().map(|job| job.payload.to_value().to_string()));
        refused.extend(drained.refused);
        if !drained.more {
            return (payloads, refused);
        }
    }
}

async fn waiting(store: &SharedStore, queue: &str) -> Vec<JobView> {
    let query = crate::store::JobQuery::new(queue, JobState::Queued);
    store.jobs(query).await.unwrap().rows
}

pub(in crate::stores) async fn a_row_becomes_a_job_with_all_that_it_says(database: impl Database) {
    let store = open(&database).await;
    let sql = "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'order-1', '{\"n\": 1}'); \
        INSERT INTO @inbox (queue, payload, task, score, priority, run_at, expires_at, idempotency_key, node, \
          consumer_group, partition_key, producer, max_retries) \
        VALUES ('p', '[2]', 'resize', 1.5, 7, '2100-01-02 03:04:05', '2100-01-03 00:00:00', 'once', 'blue', 'g', 'part', 'psql', \
          3); \
        INSERT INTO @inbox (queue, @key, key_group) VALUES ('shared', 'k', 'tenant-7')";
    database.run(&sql.replace("2100", "2037"), true).await;
    let drained = step(&store).await;
    assert_eq!(drained.pushed.len(), 3, "{drained:?}");
    let first = &waiting(&store, "q").await[0];
    assert_eq!(
        (first.key.as_deref(), first.payload.to_value().to_string()),
        (Some("order-1"), r#"{"n":1}"#.into())
    );
    let job = &waiting(&store, "p").await[0];
    assert_eq!(job.id, drained.pushed[1].job_id);
    assert_eq!((job.task.as_deref(), job.score, job.priority), (Some("resize"), 1.5, 7));
    assert_eq!(job.run_at, Timestamp::from_micros(2_114_478_245_000_000));
    let options = job.options.as_ref().unwrap();
    assert_eq!(options.expires_at, Some(Timestamp::from_micros(2_114_553_600_000_000)));
    let texts = [
        &options.idempotency_key,
        &options.node,
        &options.consumer_group,
        &options.partition_key,
        &options.producer,
    ];
    assert_eq!(texts.map(|text| text.as_deref().unwrap()), ["once", "blue", "g", "part", "psql"]);
    assert_eq!(options.max_retries, Some(3));
    let shared = waiting(&store, "shared").await.remove(0).options.unwrap();
    assert_eq!(shared.group.as_deref(), Some("tenant-7"));
    assert!(!step(&store).await.more && step(&store).await.pushed.is_empty(), "the rows are gone");
}

/// `before` takes from the store what later versions added.
pub(in crate::stores) async fn rows_of_an_earlier_version_are_pushed_after_the_upgrade(
    database: impl Database,
    before: &str,
) {
    open(&database).await.close().await.unwrap();
    let row = "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '1')";
    database.run(&format!("{before}; {row}"), true).await;
    let store = open(&database).await;
    let row = "INSERT INTO @inbox (queue, @key, payload, max_retries) VALUES ('q', 'k', '2', 3)";
    database.run(row, true).await;
    assert_eq!(drain(&store).await.0, ["1", "2"]);
    let jobs = waiting(&store, "q").await;
    let retries =
        jobs.iter().map(|job| job.options.as_ref().and_then(|options| options.max_retries));
    assert_eq!(retries.collect::<Vec<_>>(), [None, Some(3)]);
}

pub(in crate::stores) async fn what_is_rolled_back_leaves_nothing(database: impl Database) {
    let store = open(&database).await;
    database.run("INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '1')", false).await;
    database.run("INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '2')", true).await;
    assert_eq!(drain(&store).await.0, ["2"]);
    assert_eq!(store.inbox().await.unwrap().waits_since, None);
}

pub(in crate::stores) async fn rows_are_pushed_in_their_order_and_in_parts(
    database: impl Database,
) {
    let store = open(&database).await;
    for number in 0..20 {
        let key = number % 3;
        let sql =
            format!("INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k{key}', '{number}')");
        database.run(&sql, true).await;
    }
    assert!(store.drain_inbox(DrainInbox::default()).await.unwrap().more, "a look pushes nothing");
    assert!(store.inbox().await.unwrap().waits_since.is_some());
    let mut payloads = Vec::new();
    loop {
        let drained = store.drain_inbox(DrainInbox { rows_max: 7, ..Default::default() });
        let drained = drained.await.unwrap();
        assert!(drained.jobs.len() <= 7);
        payloads.extend(drained.jobs.iter().map(|job| job.payload.to_value().to_string()));
        if !drained.more {
            break;
        }
    }
    assert_eq!(payloads, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

pub(in crate::stores) async fn a_step_that_ends_at_its_bytes_says_that_there_is_more(
    database: impl Database,
) {
    let store = open(&database).await;
    let long = "x".repeat(4_000_000);
    for _ in 0..6 {
        let sql = format!("INSERT INTO @inbox (queue, payload) VALUES ('p', '\"{long}\"')");
        database.run(&sql, true).await;
    }
    let first = step(&store).await;
    assert!((4..6).contains(&first.pushed.len()) && first.more, "{}", first.pushed.len());
    assert_eq!(drain(&store).await.0.len(), 6 - first.pushed.len());
}

pub(in crate::stores) async fn bad_rows_are_refused_with_the_reason_and_hold_nobody_up(
    database: impl Database,
) {
    let store = open(&database).await;
    let long = "x".repeat(600);
    let bad = [
        ("(queue, @key, payload) VALUES ('q', 'k', '{\"a\":')", "payload: "),
        ("(queue, @key, priority) VALUES ('q', 'k', -1)", "priority: "),
        ("(queue, @key, priority) VALUES ('q', 'k', 40000)", "priority: "),
        ("(queue, @key, max_retries) VALUES ('q', 'k', -1)", "max_retries: must be 0 to"),
        ("(queue, @key, key_group) VALUES ('shared', 'k', '')", "key_group: must not be empty"),
        (&*format!("(queue, @key) VALUES ('q', '{long}')"), "key: has 600 bytes"),
        ("(queue, @key) VALUES ('q', '')", "key: must not be empty"),
        ("(@key, payload) VALUES ('k', '1')", "queue: is missing"),
        ("(queue, @key) VALUES ('no spaces', 'k')", "queue: must be 1 to 128"),
        ("(queue, @key, action) VALUES ('q', 'k', 'erase')", "action: must be push, cancel or"),
        ("(action) VALUES ('cancel')", "job_id: is missing"),
        ("(action, job_id) VALUES ('cancel', 'x')", "job_id: a job id is a UUID"),
        ("(action, job_id, node) VALUES ('reassign', 'x', '')", "node: must not be empty"),
        // These only the store can refuse.
        ("(queue, @key) VALUES ('p', 'k')", "key: "),
        ("(queue) VALUES ('q')", "key: "),
        ("(queue, @key, key_group) VALUES ('q', 'k', 'g')", "key_group: must be absent"),
    ];
    let mut sql = Vec::new();
    for (number, (row, _)) in bad.iter().enumerate() {
        sql.push(format!("INSERT INTO @inbox {row}"));
        sql.push(format!(
            "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '{number}')"
        ));
    }
    database.run(&sql.join(";"), true).await;
    let (payloads, refused) = drain(&store).await;
    assert_eq!(payloads, (0..bad.len()).map(|number| number.to_string()).collect::<Vec<_>>());
    for ((row, why), refused) in bad.iter().zip(&refused) {
        assert!(refused.why.contains(why), "{row}: {}", refused.why);
    }
    assert_eq!(refused.len(), bad.len());
    let seen = store.inbox().await.unwrap().refused;
    assert_eq!(seen.len(), bad.len());
    assert_eq!(
        seen.last().map(|row| (row.row, &*row.why)),
        refused.first().map(|row| (row.row, &*row.why))
    );
    assert!(seen[0].at > Timestamp::from_micros(1_600_000_000_000_000));
    // A corrected row is taken again.
    let correct =
        "UPDATE @inbox SET refused = NULL, payload = '\"now right\"' WHERE payload LIKE '{%'";
    database.run(correct, true).await;
    assert_eq!(drain(&store).await.0, ["\"now right\""]);
    assert_eq!(store.inbox().await.unwrap().refused.len(), bad.len() - 1);
}

pub(in crate::stores) async fn rows_of_throttled_keys_are_refused_with_the_time_if_their_queue_says_so(
    database: impl Database,
) {
    let store = open(&database).await;
    let hour = Duration::from_secs(3_600);
    let queues = vec![
        Queue::fifo("refusing").throttle(hour).refuse_throttled(),
        Queue::fifo("merging").throttle(hour),
    ];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let row = |queue: &str, key: &str, payload: u32| {
        format!(
            "INSERT INTO @inbox (queue, @key, payload) VALUES ('{queue}', '{key}', '{payload}')"
        )
    };
    let rows = [
        row("refusing", "k", 1),
        row("refusing", "k", 2),
        row("merging", "k", 3),
        row("merging", "k", 4),
        row("refusing", "l", 5),
        row("refusing", "k", 6),
    ];
    database.run(&rows.join(";"), true).await;
    let (payloads, refused) = drain(&store).await;
    assert_eq!(payloads, ["1", "3", "4", "5"]);
    assert_eq!(refused.len(), 2);
    for row in &refused {
        assert!(row.why.starts_with("refused: key \"k\" may be pushed again at 20"), "{}", row.why);
    }
    assert_eq!(waiting(&store, "refusing").await.len(), 2);
    assert_eq!(waiting(&store, "merging").await.len(), 1);
    assert_eq!(store.inbox().await.unwrap().refused.len(), 2);
}

pub(in crate::stores) async fn many_bad_rows_are_refused_and_the_latest_are_kept(
    database: impl Database,
) {
    let store = open(&database).await;
    let more = INBOX_REFUSED_MAX + 5;
    for _ in 0..=more / 2_001 {
        let rows = vec!["('old')"; 2_001].join(",");
        database.run(&format!("INSERT INTO @inbox (refused) VALUES {rows}"), true).await;
    }
    let rows = vec!["('p', 'k')"; 50].join(",");
    database.run(&format!("INSERT INTO @inbox (queue, @key) VALUES {rows}"), true).await;
    let (payloads, refused) = drain(&store).await;
    assert_eq!((payloads.len(), refused.len()), (0, 50));
    let seen = store.inbox().await.unwrap().refused;
    assert!(seen[..50].iter().all(|row| row.why.starts_with("key: ")) && seen[50].why == "old");
    let latest = refused.last().unwrap().row;
    let counted = format!(
        "INSERT INTO @inbox (queue, @key, payload) SELECT 'q', 'k', count(*) FROM @inbox WHERE id <= {latest}"
    );
    database.run(&counted, true).await;
    assert_eq!(drain(&store).await.0, [INBOX_REFUSED_MAX.to_string()]);
}

pub(in crate::stores) async fn rows_with_odd_numbers_hold_nobody_up(database: impl Database) {
    let store = open(&database).await;
    let (lowest, given) = (i64::MIN, database.numbering());
    let sql = format!(
        "INSERT INTO @inbox (id, queue, payload) {given} VALUES ({lowest}, 'q', '1'), (-7, 'p', '2'); \
         INSERT INTO @inbox (queue, payload) VALUES ('p', '3'); \
         INSERT INTO @inbox (queue, payload) VALUES ('seriatim.exhausted', '4')"
    );
    database.run(&sql, true).await;
    let (payloads, refused) = drain(&store).await;
    assert_eq!(payloads, ["2", "3"]);
    let why: Vec<_> = refused.iter().map(|row| (row.row, row.why.split(':').next())).collect();
    assert_eq!(why[0], (lowest, Some("key")), "{refused:?}");
    assert!(refused[1].why.contains("reserved"), "{refused:?}");
    assert_eq!(store.inbox().await.unwrap().refused.len(), 2);
}

pub(in crate::stores) async fn n2_e5_deeds_wait_for_their_answer_and_keep_their_place(
    database: impl Database,
) {
    let store = open(&database).await;
    let job = Job::new("q", &1).unwrap().key("k");
    let pushed = store.push(Push { now: None, jobs: vec![job] }).await.unwrap()[0].job_id;
    let sql = format!(
        "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '2'); \
         INSERT INTO @inbox (action, job_id) VALUES ('cancel', '{pushed}'); \
         INSERT INTO @inbox (action, job_id, node) VALUES ('reassign', '{pushed}', 'blue'); \
         INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '3')"
    );
    database.run(&sql, true).await;
    let first = step(&store).await;
    assert_eq!((first.pushed.len(), first.deeds.len(), first.more), (1, 0, true));
    let deeds = step(&store).await.deeds;
    let asked: Vec<_> = deeds.iter().map(|deed| (deed.job, deed.ask.clone())).collect();
    assert_eq!(
        asked,
        [(pushed, InboxAsk::Cancel), (pushed, InboxAsk::Reassign(Some("blue".into())))]
    );
    assert_eq!(step(&store).await.deeds, deeds, "they stay until they are answered");
    let ended = vec![
        EndedDeed { row: deeds[0].row, refused: None },
        EndedDeed { row: deeds[1].row, refused: Some("it has ended".to_owned()) },
    ];
    let request = DrainInbox { now: None, rows_max: 10, ended };
    let last = store.drain_inbox(request).await.unwrap();
    assert_eq!(last.jobs[0].payload.to_value(), 3);
    assert_eq!(store.inbox().await.unwrap().refused[0].why, "it has ended");
}

pub(in crate::stores) async fn the_answer_to_a_deed_is_kept_if_the_store_refuses_the_row_behind_it(
    database: impl Database,
) {
    let store = open(&database).await;
    let job = Job::new("q", &1).unwrap().key("k");
    let pushed = store.push(Push { now: None, jobs: vec![job] }).await.unwrap()[0].job_id;
    let sql = format!(
        "INSERT INTO @inbox (action, job_id) VALUES ('cancel', '{pushed}'); \
         INSERT INTO @inbox (queue, payload) VALUES ('q', '2')"
    );
    database.run(&sql, true).await;
    let deed = step(&store).await.deeds.remove(0);
    let ended = vec![EndedDeed { row: deed.row, refused: None }];
    let request = DrainInbox { now: None, rows_max: 10, ended };
    let refused = store.drain_inbox(request).await.unwrap().refused;
    assert!(refused[0].why.starts_with("key: "), "{refused:?}");
    assert!(step(&store).await.deeds.is_empty(), "it would be carried out again, in vain");
    assert_eq!(store.inbox().await.unwrap().refused.len(), 1);
}

pub(in crate::stores) async fn several_callers_push_each_row_once(database: impl Database) {
    let store = open(&database).await;
    let rows: Vec<_> =
        (0..400).map(|number| format!("('q', 'k{}', '{number}')", number % 5)).collect();
    let rows = format!("INSERT INTO @inbox (queue, @key, payload) VALUES {}", rows.join(","));
    database.run(&rows, true).await;
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut callers = Vec::new();
    for _ in 0..4 {
        let (store, seen) = (database.open().await, seen.clone());
        callers.push(tokio::spawn(async move {
            while store.drain_inbox(DrainInbox::default()).await.unwrap().more {
                let request = DrainInbox { rows_max: 30, ..Default::default() };
                let drained = match store.drain_inbox(request).await {
                    Err(error) if error.is_transient() => continue,
                    drained => drained.unwrap(),
                };
                let numbers = drained.jobs.iter().map(|job| job.payload.decode::<u64>().unwrap());
                seen.lock().unwrap().extend(numbers);
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..400).collect::<Vec<_>>());
    let numbers = waiting(&store, "q").await;
    for key in 0..5 {
        let key = format!("k{key}");
        let mut of_key: Vec<_> =
            numbers.iter().filter(|job| job.key.as_deref() == Some(&key)).collect();
        of_key.sort_by_key(|job| job.id.seq());
        let numbers: Vec<u64> = of_key.iter().map(|job| job.payload.decode().unwrap()).collect();
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

/// Polls never: only a wake-up finds the row in time.
pub(in crate::stores) async fn e5_e8_an_engine_runs_what_sql_inserts_and_hears_of_it(
    database: impl Database,
) {
    let store = open(&database).await;
    let other = Job::new("q", &0).unwrap().key("other").run_in(Duration::from_secs(3_600));
    let other = store.push(Push { now: None, jobs: vec![other] }).await.unwrap()[0].job_id;
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (did, mut deeds) = tokio::sync::mpsc::unbounded_channel();
    let engine = Engine::builder(database.open().await)
        .queue(Queue::fifo("q"))
        .poll_interval(Duration::from_secs(3_600))
        .worker("q", move |batch: Batch<u64>| {
            let number = batch.payloads().copied().next().unwrap();
            heard.send(number).unwrap();
            async {}
        })
        .on_inbox_action(move |deed, refused| {
            did.send((deed.ask, refused)).unwrap();
            async {}
        });
    let (writer, seen) = (database.clone(), store.clone());
    let ends = async move {
        let mut next = async || tokio::time::timeout(LONG, deeds.recv()).await.unwrap().unwrap();
        for number in 1..=3_u64 {
            let sql =
                format!("INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '{number}')");
            writer.run(&sql, true).await;
            assert_eq!(tokio::time::timeout(LONG, hears.recv()).await.unwrap(), Some(number));
        }
        let sql = format!(
            "INSERT INTO @inbox (action, job_id, node) VALUES ('reassign', '{other}', 'blue')"
        );
        writer.run(&sql, true).await;
        assert_eq!(next().await, (InboxAsk::Reassign(Some("blue".into())), None));
        let bound = seen.job(other).await.unwrap().unwrap().options.unwrap().node.clone();
        assert_eq!(bound.as_deref(), Some("blue"));
        for _ in 0..2 {
            let sql = format!("INSERT INTO @inbox (action, job_id) VALUES ('cancel', '{other}')");
            writer.run(&sql, true).await;
        }
        assert_eq!(next().await, (InboxAsk::Cancel, None));
        let again = Some("no job has this id".to_owned());
        assert_eq!(next().await, (InboxAsk::Cancel, again));
        // What comes after them is pushed when the store knows how they ended.
        let last = "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '4')";
        writer.run(last, true).await;
        assert_eq!(tokio::time::timeout(LONG, hears.recv()).await.unwrap(), Some(4));
    };
    engine.run_until(ends).await.unwrap();
    assert!(waiting(&store, "q").await.is_empty());
    assert_eq!(store.inbox().await.unwrap().refused.len(), 1);
}
