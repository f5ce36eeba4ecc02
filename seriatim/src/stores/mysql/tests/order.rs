//! The order of locks, and what waits for them.

use tokio::time::timeout;

use super::*;
use crate::Mode;
use crate::model::LaneId;
use crate::stores::contended::{self, Contended};

/// A database with a store.
pub(super) struct Named {
    name: String,
    store: Arc<Mysql>,
}

impl Named {
    pub(super) async fn new() -> Self {
        let name = new_database().await;
        let store = open(&name).await;
        Self { name, store }
    }

    /// A session that has locked these rows.
    async fn locked(&self, rows: &str) -> Conn {
        let mut session = session(&self.name).await;
        let lock = format!("START TRANSACTION; SELECT * FROM {rows} FOR UPDATE");
        session.query_drop(lock).await.unwrap();
        session
    }
}

/// The row of a lane, read by its key alone.
fn row(lane: LaneId) -> String {
    format!("seriatim_lane FORCE INDEX (PRIMARY) WHERE id = {}", lane.number)
}

impl Contended for Named {
    type Session = Conn;

    const MODES: &[Mode] = &[Mode::Fifo, Mode::Accumulate, Mode::Exclusive, Mode::Parallel];

    fn store(&self) -> SharedStore {
        self.store.clone()
    }

    async fn lock(&self, lane: LaneId) -> Conn {
        self.locked(&row(lane)).await
    }

    /// The table has no rows: this locks the gap in which a token is drawn.
    async fn hold_claims(&self) -> Conn {
        self.locked("seriatim_token").await
    }

    async fn is_free(&self, session: &mut Conn, lane: LaneId) -> bool {
        let lock = format!("SELECT * FROM {} FOR UPDATE NOWAIT", row(lane));
        session.query_drop(lock).await.is_ok()
    }

    async fn roll_back(&self, mut session: Conn) {
        session.query_drop("ROLLBACK").await.unwrap();
    }

    async fn until_waiting(&self, sessions: usize) {
        until_waiting(&mut session(&self.name).await, &self.name, sessions).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_and_settles_lock_lanes_without_a_key_in_one_order() {
    contended::lanes_without_a_key_are_locked_in_one_order(&Named::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_under_way_takes_is_there_to_be_seen_when_it_has_been_given_up() {
    contended::what_a_claim_under_way_takes_is_seen_when_it_was_given_up(&Named::new().await).await;
}

/// The server goes on until it has the lock, and undoes all when it finds that nobody waits any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_nobody_waits_for_any_more_takes_nothing() {
    let database = Named::new().await;
    let store = &database.store;
    declare(store, Queue::fifo("q")).await;
    push(store, vec![job("a", 1)]).await;
    let holder = database.hold_claims().await;
    let hasty = format!("{}?call_timeout=500ms", address(&database.name));
    let hasty = Mysql::connect(&hasty).await.unwrap();
    let claims = hasty.claim(claim_request("q", 1));
    let (claimed, ()) = tokio::join!(claims, database.until_waiting(1));
    let error = claimed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(claim(store, "q", 1).await.turns.is_empty(), "the server has it locked");
    database.roll_back(holder).await;
    let free = async {
        while claim(store, "q", 1).await.turns.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, free).await.expect("others may claim it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_locks_queues_in_the_order_of_pushes() {
    let database = new_database().await;
    let (declarer, pusher) = (open(&database).await, open(&database).await);
    let both = || ["one", "two"].map(|queue| Job::new(queue, &1).unwrap().key("k")).to_vec();
    push(&pusher, both()).await;
    let mut holder = session(&database).await;
    let lock = "START TRANSACTION; SELECT * FROM seriatim_lane WHERE q = 2 FOR UPDATE";
    holder.query_drop(lock).await.unwrap();
    let mut watcher = session(&database).await;
    let (one, other) = (declarer.clone(), pusher.clone());
    let queues = vec![Queue::fifo("two"), Queue::fifo("one")];
    let declares = tokio::spawn(async move { one.declare(Declare { now: None, queues }).await });
    until_waiting(&mut watcher, &database, 1).await;
    let pushes = tokio::spawn(async move { push(&other, both()).await });
    until_waiting(&mut watcher, &database, 2).await;
    holder.query_drop("COMMIT").await.unwrap();
    declares.await.unwrap().unwrap();
    pushes.await.unwrap();
    assert_eq!(declarer.repeated() + pusher.repeated(), 0, "no deadlock");
}
