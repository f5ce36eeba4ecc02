//! A process that hangs in the middle of an operation, with its locks.

use tokio::time::timeout;

use super::*;
use crate::Mode;
use crate::contract::{Beat, LaneQuery, delete_queue};

/// A lane of queue `q` that a transaction keeps locked.
struct Hanging {
    database: String,
    store: Arc<Mysql>,
    _holder: Conn,
}

impl Hanging {
    async fn new() -> Self {
        let database = new_database().await;
        let store = open(&database).await;
        declare(&store, Queue::fifo("q")).await;
        declare(&store, Queue::fifo("other")).await;
        push(&store, vec![job("locked", 1)]).await;
        let mut holder = session(&database).await;
        let lock = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
                    SELECT * FROM seriatim_lane WHERE q = 1 AND k = 'locked' FOR UPDATE";
        holder.query_drop(lock).await.unwrap();
        Self { database, store, _holder: holder }
    }

    /// Starts a push that hangs in its transaction.
    async fn push(&self) -> tokio::task::JoinHandle<()> {
        let store = open(&self.database).await;
        let pusher = tokio::spawn(async move { push(&store, vec![job("locked", 2)]).await });
        until_waiting(&mut session(&self.database).await, &self.database, 1).await;
        pusher
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_hangs_keeps_nobody_from_new_queues_routes_and_pauses() {
    let hanging = Hanging::new().await;
    let pusher = hanging.push().await;
    let store = &hanging.store;
    let calls = async {
        declare(store, Queue::fifo("new")).await;
        declare(store, Queue::fifo("q").max_retries(3)).await;
        push(store, vec![Job::new("unknown", &1).unwrap()]).await;
        push(store, vec![job("routed", 1).node("elsewhere")]).await;
        push(store, vec![Job::new("other", &1).unwrap().key("k")]).await;
        store.pause_queue("other".into(), true).await.unwrap();
        assert!(claim(store, "other", 9).await.turns.is_empty());
        store.pause_queue("other".into(), false).await.unwrap();
        assert_eq!(claim(store, "other", 9).await.turns.len(), 1);
    };
    timeout(SOON, calls).await.expect("nothing waits for the push");
    pusher.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_waits_for_the_claims_that_are_under_way() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2)]).await;
    let mut holder = session(&database).await;
    let lock = "START TRANSACTION; SELECT * FROM seriatim_ticket WHERE node = 'n' FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let (claimer, pauser) = (store.clone(), store.clone());
    let request = Claim { ticket: 1, ..claim_request("q", 1) };
    let claimed = tokio::spawn(async move { claimer.claim(request).await });
    let mut watcher = session(&database).await;
    until_waiting(&mut watcher, &database, 1).await;
    let pause = tokio::spawn(async move { pauser.pause_queue("q".into(), true).await });
    until_waiting(&mut watcher, &database, 2).await;
    assert!(!pause.is_finished(), "the claim is under way");
    holder.query_drop("COMMIT").await.unwrap();
    pause.await.unwrap().unwrap();
    let claimed = timeout(SOON, claimed).await.expect("it has ended").unwrap().unwrap();
    assert_eq!(claimed.turns.len(), 1);
    assert!(claim(&store, "q", 1).await.turns.is_empty());
}

/// It must wait; others do not wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_or_deletion_of_a_queue_that_waits_holds_up_its_queue_only() {
    for deletes in [false, true] {
        let hanging = Hanging::new().await;
        let implied = open(&hanging.database).await;
        push(&implied, vec![Job::new("loose", &1).unwrap().key("k")]).await;
        let mut holder = session(&hanging.database).await;
        let lock = "SELECT q FROM seriatim_gate WHERE q = 3 AND claims = 0 LOCK IN SHARE MODE";
        holder.query_drop("START TRANSACTION").await.unwrap();
        holder.query_drop(lock).await.unwrap();
        let changing = tokio::spawn(async move {
            match deletes {
                true => drop(delete_queue(&*implied, "loose", true).await.unwrap()),
                false => declare(&implied, Queue::fifo("loose")).await,
            }
        });
        until_waiting(&mut session(&hanging.database).await, &hanging.database, 1).await;
        let store = &hanging.store;
        let calls = async {
            push(store, vec![Job::new("other", &1).unwrap().key("k")]).await;
            let turns = claim(store, "other", 9).await.turns;
            assert!(turns.len() == 1 && done(store, &turns).await[0].is_ok());
            declare(store, Queue::fifo("new")).await;
            push(store, vec![Job::new("unknown", &1).unwrap()]).await;
            store.pause_queue("other".into(), true).await.unwrap();
        };
        timeout(SOON, calls).await.expect("the other queues do not wait");
        holder.query_drop("COMMIT").await.unwrap();
        changing.await.unwrap();
        let queues = store.queues().await.unwrap();
        let changed = queues.iter().find(|view| view.queue.name == "loose");
        let mode = changed.map(|view| view.queue.mode);
        assert_eq!(mode, (!deletes).then_some(Mode::Fifo), "deletes: {deletes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_does_not_wait_for_a_lane_that_a_transaction_has_locked() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2), job("c", 3)]).await;
    let turns = claim(&store, "q", 3).await.turns;
    let mut holder = session(&database).await;
    let lock = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
                SELECT * FROM seriatim_lane WHERE q = 1 AND k = 'a' FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let beat = |turn: &Turn, token| Beat {
        lane: turn.lane,
        token,
        progress: Some("half".into()),
        extend: None,
    };
    let mut beats: Vec<Beat> = turns.iter().map(|turn| beat(turn, turn.token)).collect();
    beats[2].token = Token(1);
    let node = NodeInfo::new("n".into(), LEASE);
    let heartbeat = store.heartbeat(Heartbeat { now: None, node, beats });
    let pulse = timeout(SOON, heartbeat).await.expect("it does not wait").unwrap();
    assert!(pulse.alive);
    assert_eq!(pulse.lost, [turns[2].lane], "the locked lane is not lost");
    let shown = store.lanes(LaneQuery::new("q")).await.unwrap().rows;
    let shown: Vec<_> = shown.iter().map(|lane| lane.progress.as_deref()).collect();
    assert_eq!(shown, [None, Some("half"), None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_have_a_connection_of_their_own() {
    let database = new_database().await;
    open(&database).await;
    let one = Mysql::connect(&format!("{}?connections=1", address(&database))).await.unwrap();
    let all_in_use = one.inner.pool.lend().await.ok().unwrap();
    let line = one.heartbeat_line().expect("a connection for heartbeats").await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    let heartbeat = line.heartbeat(Heartbeat { now: None, node, beats: Vec::new() });
    assert!(timeout(SOON, heartbeat).await.expect("it does not wait").unwrap().alive);
    all_in_use.give_back();
}
