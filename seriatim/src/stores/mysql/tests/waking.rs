//! Wake-ups of other processes.

use mysql_async::TxOpts;
use tokio::time::Instant;

use super::reading::{counted, open_one};
use super::*;
use crate::contract::{SharedStore, Wake, Wakeups};
use crate::stores::mysql::rings::KEPT;
use crate::stores::mysql::wake::{Ear, Found};
use crate::stores::waiting::{self, Place, Waiting};
use crate::{Client, DueRule, Outcome};

const LONG: Duration = Duration::from_secs(30);

fn queue_names(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|i| format!("q{i}").into()).collect()
}

async fn declare_all(store: &Mysql, names: &[Arc<str>]) {
    let queues = names.iter().map(|name| Queue::parallel(&**name)).collect();
    store.declare(Declare { now: None, queues }).await.unwrap();
}

async fn push_to(store: &Mysql, queue: &str) {
    push(store, vec![Job::new(queue, &1).unwrap()]).await;
}

/// What an idle process reads in a poll and a look at all its queues, and what it reads after a push to one of them.
async fn entries_read(queues: usize) -> [i64; 2] {
    let database = new_database().await;
    let (store, other) = (open_one(&database).await, open(&database).await);
    let names = queue_names(queues);
    declare_all(&other, &names).await;
    let (inner, mut ear) = (&store.inner, Ear::default());
    for _ in 0..2 {
        ear.ring(inner, Instant::now()).await.unwrap();
        store.due(names.clone()).await.unwrap();
    }
    let mut look = async || {
        let (found, polled) = counted(&store, ear.ring(inner, Instant::now())).await;
        let (due, looked) = counted(&store, store.due(names.clone())).await;
        assert_eq!(due.len(), queues);
        (found, due.iter().filter(|one| one.due.is_some()).count(), polled + looked)
    };
    let idle = look().await;
    assert_eq!((idle.0, idle.1), (Found::Nothing, 0));
    push_to(&other, "q0").await;
    let pushed = look().await;
    assert_eq!((pushed.0, pushed.1), (Found::All, 1));
    [idle.2, pushed.2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_reads_what_changed_whatever_the_number_of_queues() {
    let (few, many) = (entries_read(1).await, entries_read(300).await);
    println!("entries read: {few:?} with one queue, {many:?} with 300");
    for (few, many) in few.into_iter().zip(many) {
        // The server reads what it knows of a table's size when the table is first used.
        assert!(many <= few + 10, "{many} entries instead of {few}");
    }
}

/// The round trips of a look at this many queues, two of which have jobs.
async fn round_trips(queues: usize) -> usize {
    let store = open_one(&new_database().await).await;
    let names = queue_names(queues);
    declare_all(&store, &names).await;
    push_to(&store, "q0").await;
    push(&store, vec![Job::new("q1", &1).unwrap().run_in(LEASE)]).await;
    let sent = || store.inner.pool.statements.lock().unwrap().len();
    let before = sent();
    let due = store.due(names.clone()).await.unwrap();
    assert_eq!(due.iter().filter(|one| one.due.is_some()).count(), 2);
    sent() - before
}

#[tokio::test]
async fn a_look_at_many_queues_takes_as_many_round_trips_as_one_at_few() {
    let (few, many) = (round_trips(5).await, round_trips(500).await);
    assert_eq!(few, many);
}

/// Listens to a queue from now on.
async fn listen(store: &Mysql, queue: &str) -> Wakeups {
    let mut wakeups = store.wakeups().only([queue.into()]);
    // The first poll wakes all.
    wakeups.wait(LONG).await.expect("a first wake-up");
    wakeups
}

async fn hear(wakeups: &mut Wakeups, queue: &str) {
    let wake = wakeups.wait(LONG).await;
    assert_eq!(wake, Some(Wake::of([queue])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_commits_after_later_ones_wakes_other_processes() {
    let database = new_database().await;
    let (one, other) = (open(&database).await, open(&database).await);
    declare_all(&one, &["late".into(), "soon".into()]).await;
    let mut late = listen(&other, "late").await;
    let mut soon = other.wakeups().only(["soon".into()]);
    let client = Client::new(one.clone() as SharedStore);
    let mut session = session(&database).await;
    let mut transaction = session.start_transaction(TxOpts::default()).await.unwrap();
    client.push_in(&mut transaction, vec![Job::new("late", &1).unwrap()]).await.unwrap();
    late.forget();
    push_to(&one, "soon").await;
    hear(&mut soon, "soon").await;
    transaction.commit().await.unwrap();
    hear(&mut late, "late").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_another_process_resumes_is_heard() {
    let database = new_database().await;
    let (one, other) = (open(&database).await, open(&database).await);
    declare(&one, Queue::parallel("q")).await;
    one.pause_queue("q".into(), true).await.unwrap();
    push_to(&one, "q").await;
    let mut wakeups = listen(&other, "q").await;
    let due = async || other.due(vec!["q".into()]).await.unwrap()[0].due;
    assert_eq!(due().await, None);
    wakeups.forget();
    one.pause_queue("q".into(), false).await.unwrap();
    hear(&mut wakeups, "q").await;
    assert!(due().await.is_some());
}

/// The number of rows for other processes.
async fn rows(conn: &mut Conn) -> u64 {
    conn.query_first("SELECT COUNT(*) FROM seriatim_ring").await.unwrap().unwrap()
}

#[tokio::test]
async fn what_makes_a_lane_claimable_sooner_wakes_other_processes_and_nothing_else_does() {
    let database = new_database().await;
    let (store, mut conn) = (open(&database).await, session(&database).await);
    let queue = Queue::accumulate("q").due(DueRule::Earliest);
    declare(&store, queue.clone()).await;
    let mut seen = 0;
    let mut rang = async |conn: &mut Conn| {
        let before = std::mem::replace(&mut seen, rows(conn).await);
        seen - before
    };
    let later = |tag: u32, hours: u32| job("k", tag).run_in(Duration::from_secs(3_600) * hours);
    for (name, jobs, rings) in [
        ("a new lane", vec![later(1, 5)], 1),
        ("a later job", vec![later(2, 6)], 0),
        ("an earlier job", vec![later(3, 4)], 1),
        ("a due job", vec![job("k", 4)], 1),
        ("another due job", vec![job("k", 5)], 0),
        ("several new lanes", vec![job("l", 1), job("m", 1), job("n", 1)], 1),
    ] {
        push(&store, jobs).await;
        assert_eq!(rang(&mut conn).await, rings, "{name}");
    }
    let turns = claim(&store, "q", 9).await.turns;
    assert_eq!((turns.len(), rang(&mut conn).await), (4, 0), "a claim");
    push(&store, vec![job("l", 2)]).await;
    assert_eq!(rang(&mut conn).await, 0, "a push to a running key");
    let settle = async |key: &str, outcome: Outcome| {
        let turn = turns.iter().find(|turn| turn.key.as_deref() == Some(key)).unwrap();
        let plan = crate::store::plan(turn, &queue, &outcome.into(), &|_| Duration::ZERO);
        assert!(store.settle(Settle::now(vec![plan])).await.unwrap()[0].is_ok());
    };
    let retry = Outcome::Retry { error: "e".into(), retry_in: None };
    for (name, key, outcome, rings) in [
        ("a turn with more jobs behind it", "l", Outcome::Done, 1),
        ("a failed turn", "m", retry, 1),
        ("the last turn of a lane", "n", Outcome::Done, 0),
    ] {
        settle(key, outcome).await;
        assert_eq!(rang(&mut conn).await, rings, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_for_other_processes_are_deleted_when_all_have_read_them() {
    let database = new_database().await;
    let (store, mut conn) = (open(&database).await, session(&database).await);
    declare(&store, Queue::parallel("q")).await;
    let (mut ear, mut now) = (Ear::default(), Instant::now());
    let mut pass = async |time: Duration| {
        now += time;
        ear.ring(&store.inner, now).await.unwrap()
    };
    pass(Duration::ZERO).await;
    let client = Client::new(store.clone() as SharedStore);
    let mut users = session(&database).await;
    let mut transaction = users.start_transaction(TxOpts::default()).await.unwrap();
    client.push_in(&mut transaction, vec![Job::new("q", &1).unwrap()]).await.unwrap();
    for _ in 0..5 {
        push_to(&store, "q").await;
    }
    let step = KEPT / 2;
    pass(step).await;
    pass(step).await;
    assert_eq!(rows(&mut conn).await, 5, "not all processes have read them");
    pass(step).await;
    assert_eq!(rows(&mut conn).await, 1, "the newest stays");
    transaction.commit().await.unwrap();
    assert_eq!(pass(step).await, Found::All, "a late row");
    pass(step / 2).await;
    assert_eq!(rows(&mut conn).await, 2, "others may not have read it");
    for _ in 0..3 {
        pass(step).await;
    }
    assert_eq!(rows(&mut conn).await, 1);
}

/// A database, in which processes wait.
struct Database(String);

impl Database {
    async fn new() -> Self {
        Self(new_database().await)
    }
}

impl Place for Database {
    async fn open(&self) -> SharedStore {
        open(&self.0).await
    }

    async fn sleepers(&self) -> usize {
        let count = "SELECT COUNT(*) FROM seriatim_sleeper";
        session(&self.0).await.query_first::<usize, _>(count).await.unwrap().unwrap()
    }

    async fn forget_all_but_one(&self) {
        let mut session = session(&self.0).await;
        let first: Option<i64> =
            session.query_first("SELECT MIN(p) FROM seriatim_sleeper").await.unwrap();
        let others = format!("DELETE FROM seriatim_sleeper WHERE p <> {}", first.unwrap());
        session.query_drop(others).await.unwrap();
    }
}

waiting::cases!(Database::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_said_long_ago_that_it_waits_is_not_believed_and_forgotten() {
    let database = Database::new().await;
    let mut waiting = Waiting::new(&database).await;
    let old = "UPDATE seriatim_sleeper SET since = since - 100000000";
    session(&database.0).await.query_drop(old).await.unwrap();
    waiting.push(vec![job("a", 1)]).await;
    waiting.all_are_woken().await;
    let store = open(&database.0).await;
    let (mut ear, now) = (Ear::default(), Instant::now());
    ear.ring(&store.inner, now).await.unwrap();
    assert_eq!(database.sleepers().await, 0);
}

/// A server listens anew for each call of a client that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_to_listen_while_the_last_one_ends_hears_what_follows() {
    let database = new_database().await;
    let (store, other) = (open(&database).await, open(&database).await);
    let mut session = session(&database).await;
    declare(&other, Queue::parallel("q")).await;
    for round in 0..20 {
        drop(store.wakeups());
        // It is about to end, or ends, or has ended.
        for _ in 0..10 * round {
            session.query_drop("DO 0").await.unwrap();
        }
        let mut wakeups = store.wakeups().only(["q".into()]);
        push_to(&other, "q").await;
        let is_due = async || store.due(vec!["q".into()]).await.unwrap()[0].due.is_some();
        loop {
            let wake = wakeups.wait(LONG).await.expect("a wake-up");
            // It also wakes all when it begins to poll.
            if wake == Wake::of(["q"]) || is_due().await {
                break;
            }
        }
        claim(&store, "q", 9).await;
    }
}

/// The others would look for it for ten minutes.
#[tokio::test]
async fn a_wake_up_for_several_queues_leaves_no_number_unused() {
    let database = new_database().await;
    let store = open(&database).await;
    let names = queue_names(7);
    declare_all(&store, &names).await;
    for _ in 0..3 {
        let jobs = names.iter().map(|name| Job::new(&**name, &1).unwrap()).collect();
        push(&store, jobs).await;
    }
    let unused = "SELECT MAX(n) - MIN(n) + 1 - COUNT(*) FROM seriatim_ring";
    let unused: Option<i64> = session(&database).await.query_first(unused).await.unwrap();
    assert_eq!(unused, Some(0));
}
