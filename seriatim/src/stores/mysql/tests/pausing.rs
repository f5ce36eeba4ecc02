//! A pause, a change of mode and a deletion beside users' transactions; a pause beside lanes that go on; a limit beside claims
//! under way.

use std::sync::Mutex;

use mysql_async::{IsolationLevel, TxOpts};
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::Client;
use crate::contract::{GoOn, delete_queue};

/// How often the queue is paused while its lanes go on.
const ROUNDS: usize = 15;
/// How many calls the workers end during a pause.
const CALLS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_waits_for_no_open_transaction_and_holds_up_no_other_key() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let mut user = session(&database).await;
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::ReadCommitted);
    let mut transaction = user.start_transaction(options).await.unwrap();
    Client::new(store.clone()).push_in(&mut transaction, vec![job("a", 2)]).await.unwrap();
    let pusher = open(&database).await;
    let waits = tokio::spawn(async move { push(&pusher, vec![job("a", 3)]).await });
    until_waiting(&mut session(&database).await, &database, 1).await;
    let calls = async {
        store.pause_queue("q".into(), true).await.unwrap();
        push(&store, vec![job("b", 4)]).await;
        assert!(claim(&store, "q", 9).await.turns.is_empty());
        store.pause_queue("q".into(), false).await.unwrap();
        let turns = claim(&store, "q", 9).await.turns;
        assert_eq!(turns.iter().map(|turn| turn.key.as_deref()).collect::<Vec<_>>(), [Some("b")]);
        assert!(done(&store, &turns).await[0].is_ok());
    };
    timeout(SOON, calls).await.expect("nothing waits for the user");
    transaction.commit().await.unwrap();
    waits.await.unwrap();
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_or_deletion_that_waits_for_an_open_transaction_lets_others_through() {
    for deletes in [false, true] {
        let database = new_database().await;
        let store = open(&database).await;
        declare(&store, Queue::fifo("q")).await;
        declare(&store, Queue::parallel("other")).await;
        let client = Client::new(store.clone());
        let mut user = session(&database).await;
        let mut options = TxOpts::new();
        options.with_isolation_level(IsolationLevel::ReadCommitted);
        let mut transaction = user.start_transaction(options).await.unwrap();
        client.push_in(&mut transaction, vec![job("a", 1)]).await.unwrap();
        let changer = open(&database).await;
        let changing = tokio::spawn(async move {
            let queues = vec![Queue::exclusive("q")];
            match deletes {
                true => delete_queue(&*changer, "q", false).await.map(drop),
                false => changer.declare(Declare { now: None, queues }).await,
            }
        });
        until_waiting(&mut session(&database).await, &database, 1).await;
        let calls = async {
            store.pause_queue("other".into(), true).await.unwrap();
            push(&store, vec![Job::new("new", &1).unwrap()]).await;
            client.push_in(&mut transaction, vec![job("a", 2)]).await.unwrap();
        };
        timeout(SOON, calls).await.expect("each waits briefly");
        transaction.commit().await.unwrap();
        let changed = timeout(SOON, changing).await.expect("it goes on by itself").unwrap();
        // A declared queue with jobs keeps its mode.
        let expected = if deletes { Ok(()) } else { Err(ErrorKind::Conflict) };
        assert_eq!(changed.map_err(|error| error.kind()), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_says_that_an_open_transaction_was_in_its_way() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    let mut user = session(&database).await;
    let mut transaction = user.start_transaction(TxOpts::default()).await.unwrap();
    Client::new(store).push_in(&mut transaction, vec![job("a", 1)]).await.unwrap();
    let hasty = Mysql::connect(&format!("{}?call_timeout=3s", address(&database))).await.unwrap();
    let queues = vec![Queue::exclusive("q")];
    let refused = hasty.declare(Declare { now: None, queues }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("kept it locked"), "{refused}");
    transaction.rollback().await.unwrap();
    declare(&hasty, Queue::exclusive("q")).await;
}

/// Ends these turns; their lanes may go on.
async fn go_on(store: &Mysql, turns: &[Turn]) -> Vec<Turn> {
    let places = (0..turns.len()).collect();
    let go_on = vec![GoOn { claim: claim_request("q", turns.len()), places }];
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let settled = store.settle(Settle { go_on, ..Settle::now(turns) }).await.unwrap();
    let next = settled.into_iter().map(|settled| match settled {
        Settled::Ok { next, .. } => next.map(|turn| *turn),
        other => panic!("{other:?}"),
    });
    next.flatten().collect()
}

/// The same, but the settle waits for its lanes until `first` is done, which waits for none.
async fn go_on_after(
    store: &Arc<Mysql>,
    database: &str,
    turns: Vec<Turn>,
    first: impl Future<Output = ()>,
) -> Vec<Turn> {
    let mut holder = session(database).await;
    let lock = "START TRANSACTION; SELECT * FROM seriatim_lane FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let settler = store.clone();
    let settle = tokio::spawn(async move { go_on(&settler, &turns).await });
    until_waiting(&mut session(database).await, database, 1).await;
    timeout(SOON, first).await.expect("it waits for no lane");
    holder.query_drop("COMMIT").await.unwrap();
    settle.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_was_under_way_claims_nothing_after_a_pause_has_returned() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("a", 2)]).await;
    let turns = claim(&store, "q", 1).await.turns;
    let pause = async { store.pause_queue("q".into(), true).await.unwrap() };
    assert_eq!(go_on_after(&store, &database, turns, pause).await, []);
    store.pause_queue("q".into(), false).await.unwrap();
    assert_eq!(claim(&store, "q", 1).await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_was_under_way_claims_nothing_beyond_a_limit_that_was_declared() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2), job("a", 3), job("b", 4)]).await;
    let turns = claim(&store, "q", 2).await.turns;
    assert_eq!(turns.len(), 2);
    let limit = declare(&store, Queue::fifo("q").running(1));
    assert_eq!(go_on_after(&store, &database, turns, limit).await, []);
    assert_eq!(claim(&store, "q", 2).await.turns.len(), 1);
}

/// The next token of the store.
async fn token(store: &Mysql) -> Token {
    push(store, vec![Job::new("clock", &1).unwrap()]).await;
    let turns = claim(store, "clock", 1).await.turns;
    assert!(done(store, &turns).await[0].is_ok());
    turns[0].token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_starts_after_a_pause_has_returned_while_lanes_go_on() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    declare(&store, Queue::parallel("clock")).await;
    let keys = ["a", "b", "c", "d"];
    let jobs = (0..4_000).map(|tag| job(keys[tag as usize % keys.len()], tag));
    push(&store, jobs.collect()).await;
    let tokens: Arc<Mutex<Vec<Token>>> = Arc::default();
    let (called, mut calls) = watch::channel(0);
    let called = Arc::new(called);
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (store, tokens, called) = (open(&database).await, tokens.clone(), called.clone());
        workers.push(tokio::spawn(async move {
            let mut turns: Vec<Turn> = Vec::new();
            loop {
                turns = match turns.is_empty() {
                    true => claim(&store, "q", 2).await.turns,
                    false => go_on(&store, &turns).await,
                };
                tokens.lock().unwrap().extend(turns.iter().map(|turn| turn.token));
                called.send_modify(|calls| *calls += 1);
            }
        }));
    }
    let mut pauses = Vec::new();
    let mut more_calls = async || {
        let now = *calls.borrow();
        let more = calls.wait_for(|calls| *calls >= now + CALLS);
        timeout(SOON * 5, more).await.expect("the workers work").unwrap();
    };
    for _ in 0..ROUNDS {
        more_calls().await;
        store.pause_queue("q".into(), true).await.unwrap();
        let from = token(&store).await;
        more_calls().await;
        pauses.push(from..token(&store).await);
        store.pause_queue("q".into(), false).await.unwrap();
    }
    workers.iter().for_each(|worker| worker.abort());
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() > ROUNDS * 4, "the workers have worked: {}", tokens.len());
    let started: Vec<&Token> =
        tokens.iter().filter(|token| pauses.iter().any(|pause| pause.contains(token))).collect();
    assert!(started.is_empty(), "started during a pause: {started:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_limit_counts_the_turns_of_claims_that_were_under_way() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1).priority(5)]).await;
    // A claim of "a" waits for the holder.
    let mut holder = session(&database).await;
    for sql in [
        "CREATE TABLE held (k VARCHAR(9) PRIMARY KEY, n INT NOT NULL)",
        "INSERT INTO held VALUES ('a', 0)",
        "CREATE TRIGGER holds BEFORE UPDATE ON seriatim_lane FOR EACH ROW \
         UPDATE held SET n = n + 1 WHERE k = NEW.k",
        "START TRANSACTION",
        "UPDATE held SET n = 0",
    ] {
        holder.query_drop(sql).await.unwrap();
    }
    let claimer = open(&database).await;
    let under_way = tokio::spawn(async move { claim(&claimer, "q", 1).await.turns.len() });
    let mut watcher = session(&database).await;
    until_waiting(&mut watcher, &database, 1).await;
    push(&store, vec![job("b", 2).priority(1)]).await;
    let after = tokio::spawn(async move {
        declare(&store, Queue::fifo("q").running(1)).await;
        claim(&store, "q", 1).await.turns.len()
    });
    let _ = timeout(SOON, until_waiting(&mut watcher, &database, 2)).await;
    holder.query_drop("COMMIT").await.unwrap();
    assert_eq!((under_way.await.unwrap(), after.await.unwrap()), (1, 0));
}
