//! Locks: their order, and what an open transaction of a user holds up.

use tokio::time::timeout;

use super::giving_up::hold_claims;
use super::*;
use crate::contract::{
    Actions, Amend, Batches, Beat, Change, DrainInbox, GoOn, Inbox, OpenBatch, Rescue, delete_queue,
};
use crate::model::LaneId;
use crate::stores::contended::{self, Contended};
use crate::{Client, Mode};

/// Locks a lane's row until the session ends.
async fn lock(schema: &str, lane: &str) -> tokio_postgres::Client {
    let client = session().await;
    let sql = format!("BEGIN; SELECT FROM seriatim.lane WHERE {lane} FOR UPDATE");
    client.batch_execute(&in_schema(&sql, schema)).await.unwrap();
    client
}

/// Nobody has locked the lane's row.
async fn is_free(client: &tokio_postgres::Client, schema: &str, lane: &str) -> bool {
    let sql = format!("SELECT FROM seriatim.lane WHERE {lane} FOR UPDATE NOWAIT");
    client.batch_execute(&in_schema(&sql, schema)).await.is_ok()
}

#[tokio::test]
async fn pushes_lock_lanes_in_one_order_in_a_database_with_another_collation() {
    let (schema, server) = (new_schema(), session().await);
    let create = format!(
        "CREATE DATABASE {schema} LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0 ENCODING 'UTF8'"
    );
    server.batch_execute(&create).await.unwrap();
    let (base, _) =
        url().rsplit_once('/').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let url = format!("{base}/{schema}?schema={schema}");
    let store = Arc::new(Postgres::connect(&url).await.unwrap());
    store.migrate().await.unwrap();
    let (client, driver) =
        tokio_postgres::connect(&format!("{base}/{schema}"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(driver);
    push(&store, vec![job("alice", 1), job("Bob", 1)]).await;
    for named in [false, true] {
        let sql = "BEGIN; SELECT FROM seriatim.lane WHERE key = 'Bob' FOR UPDATE";
        client.batch_execute(&in_schema(sql, &schema)).await.unwrap();
        let pusher = tokio::spawn({
            let (store, name) = (store.clone(), format!("n{named}"));
            let one = move |key| match named {
                true => job(key, 2).idempotency_key(name.clone()),
                false => job(key, 2),
            };
            async move { push(&store, vec![one("alice"), one("Bob")]).await }
        });
        until_waiting(&server, &schema, 1).await;
        // A settle of both locks Bob first, everywhere.
        assert!(is_free(&client, &schema, "key = 'alice'").await, "named: {named}");
        client.batch_execute("COMMIT").await.unwrap();
        pusher.await.unwrap();
    }
    store.close().await.unwrap();
    server.batch_execute(&format!("DROP DATABASE {schema} WITH (FORCE)")).await.unwrap();
}

/// A schema with a store.
pub(super) struct Schema {
    name: String,
    store: Arc<Postgres>,
}

impl Schema {
    pub(super) async fn new() -> Self {
        let name = new_schema();
        let store = open(&name).await;
        Self { name, store }
    }
}

impl Contended for Schema {
    type Session = tokio_postgres::Client;

    const MODES: &[Mode] = &[Mode::Fifo, Mode::Accumulate, Mode::Exclusive];

    fn store(&self) -> SharedStore {
        self.store.clone()
    }

    async fn lock(&self, lane: LaneId) -> Self::Session {
        lock(&self.name, &number(lane)).await
    }

    async fn hold_claims(&self) -> Self::Session {
        hold_claims(&self.name).await
    }

    async fn is_free(&self, session: &mut Self::Session, lane: LaneId) -> bool {
        is_free(session, &self.name, &number(lane)).await
    }

    async fn roll_back(&self, session: Self::Session) {
        session.batch_execute("ROLLBACK").await.unwrap();
    }

    async fn until_waiting(&self, sessions: usize) {
        until_waiting(&session().await, &self.name, sessions as i64).await;
    }
}

fn number(lane: LaneId) -> String {
    format!("number = {}", lane.number)
}

#[tokio::test]
async fn an_open_transaction_on_a_running_lane_holds_up_the_settle_of_no_other() {
    contended::a_locked_lane_holds_up_the_settle_of_no_other(&Schema::new().await).await;
}

#[tokio::test]
async fn an_open_transaction_on_a_key_holds_up_the_expiry_of_no_other() {
    contended::a_locked_lane_holds_up_the_expiry_of_no_other_job(&Schema::new().await).await;
}

#[tokio::test]
async fn cancels_and_settles_lock_lanes_without_a_key_in_one_order() {
    contended::lanes_without_a_key_are_locked_in_one_order(&Schema::new().await).await;
}

#[tokio::test]
async fn an_open_transaction_on_a_running_lane_does_not_hold_up_heartbeats() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 1)]).await;
    let turns = claim(&store, "q", 2).await.turns;
    let holder = lock(&schema, "key = 'a'").await;
    let beat = |turn: &Turn| Beat { progress: Some("half".into()), ..Beat::of(turn) };
    let node = NodeInfo::new("n".into(), LEASE);
    let request = Heartbeat { now: None, node, beats: turns.iter().map(beat).collect() };
    let pulse =
        timeout(SOON, store.heartbeat(request)).await.expect("it waits for nobody").unwrap();
    assert!(pulse.alive && pulse.lost.is_empty());
    holder.batch_execute("ROLLBACK").await.unwrap();
    let sql = in_schema("SELECT key FROM seriatim.lane WHERE progress = 'half'", &schema);
    let told = holder.query(&sql, &[]).await.unwrap();
    assert_eq!(told.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn heartbeats_have_a_connection_of_their_own() {
    let schema = new_schema();
    open(&schema).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let url = format!("{}{mark}schema={schema}&connections=1", url());
    let store = Postgres::connect(&url).await.unwrap();
    let in_use = store.pool.lend().await.unwrap();
    let line = store.heartbeat_line().expect("a connection for heartbeats").await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    let beat = line.heartbeat(Heartbeat { now: None, node, beats: Vec::new() });
    assert!(timeout(SOON, beat).await.expect("it waits for nobody").unwrap().alive);
    drop(in_use);
}

#[tokio::test]
async fn a_job_gets_another_node_before_its_lane_is_locked() {
    let schema = new_schema();
    let (store, server) = (open(&schema).await, session().await);
    declare(&store, Queue::fifo("q")).await;
    let job = vec![job("a", 1).consumer_group("g")];
    let pushed = store.push(Push { now: None, jobs: job }).await.unwrap();
    let other = session().await;
    // As a push does that is not over yet.
    let route = "BEGIN; INSERT INTO seriatim.route (node, consumer_group) VALUES ('new', 'g')";
    other.batch_execute(&in_schema(route, &schema)).await.unwrap();
    let change = Change::Node(Some("new".into()));
    let amend = Amend { now: None, job: pushed[0].job_id, change };
    let one = store.clone();
    let amending = tokio::spawn(async move { one.amend(amend).await });
    until_waiting(&server, &schema, 1).await;
    assert!(is_free(&other, &schema, "key = 'a'").await, "the push may need it");
    other.batch_execute("COMMIT").await.unwrap();
    amending.await.unwrap().unwrap();
    let mine =
        Claim { node_name: Some("new".into()), groups: vec!["g".into()], ..claiming("q", 1) };
    assert!(claim(&store, "q", 1).await.turns.is_empty(), "it is bound");
    assert_eq!(store.claim(mine).await.unwrap().turns.len(), 1);
}

/// The end of its last job, which pushes the callback, has locked lanes.
#[tokio::test]
async fn where_the_callback_of_a_batch_may_run_is_written_when_the_batch_is_opened() {
    let schema = new_schema();
    let store = open(&schema).await;
    let callback = job("c", 1).node("n").consumer_group("g");
    let request = OpenBatch { now: None, id: "b".into(), callback };
    store.open_batch(request).await.unwrap();
    let routes = "SELECT count(*) FROM seriatim.route WHERE node = 'n' AND consumer_group = 'g'";
    let routes = session().await.query_one(&in_schema(routes, &schema), &[]).await.unwrap();
    assert_eq!(routes.get::<_, i64>(0), 1);
}

/// A session, and a store whose lane of key "k" in queue "q" it has locked.
async fn with_a_locked_lane(schema: &str) -> (tokio_postgres::Client, Arc<Postgres>) {
    let store = open(schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    (lock(schema, "key = 'k'").await, store)
}

/// Nobody waits for a push, or a step of the inbox, that waits for a lane.
async fn holds_up_nobody(schema: &str, others: &Postgres) {
    let server = session().await;
    until_waiting(&server, schema, 1).await;
    let calls = async {
        declare(others, Queue::parallel("another")).await;
        push(others, vec![Job::new("new", &2).unwrap().node("new")]).await;
        others.pause_queue("another".into(), true).await.unwrap();
    };
    timeout(SOON, calls).await.expect("they wait for nobody");
}

#[tokio::test]
async fn a_push_to_a_new_queue_that_waits_for_a_lane_of_another_holds_up_nobody() {
    let schema = new_schema();
    let (holder, store) = with_a_locked_lane(&schema).await;
    let jobs = vec![Job::new("new", &1).unwrap().node("new"), job("k", 2)];
    let pushing = tokio::spawn({
        let store = store.clone();
        async move { push(&store, jobs).await }
    });
    holds_up_nobody(&schema, &*open(&schema).await).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    pushing.await.unwrap();
}

#[tokio::test]
async fn a_step_of_the_inbox_that_waits_for_a_lane_holds_up_nobody() {
    let schema = new_schema();
    let (holder, store) = with_a_locked_lane(&schema).await;
    let rows = "INSERT INTO seriatim.inbox (queue, key, node) VALUES ('new', NULL, 'new'), ('q', 'k', NULL)";
    session().await.batch_execute(&in_schema(rows, &schema)).await.unwrap();
    let draining = tokio::spawn({
        let store = store.clone();
        async move { store.drain_inbox(DrainInbox { rows_max: 9, ..Default::default() }).await }
    });
    holds_up_nobody(&schema, &*open(&schema).await).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(draining.await.unwrap().unwrap().pushed.len(), 2);
}

#[tokio::test]
async fn pushes_that_wait_for_a_lane_leave_connections_to_other_calls() {
    let schema = new_schema();
    let (holder, _) = with_a_locked_lane(&schema).await;
    let mark = if url().contains('?') { '&' } else { '?' };
    let url = format!("{}{mark}schema={schema}&connections=4", url());
    let store = Arc::new(Postgres::connect(&url).await.unwrap());
    let pushing = (2..10).map(|tag| {
        let store = store.clone();
        tokio::spawn(async move { push(&store, vec![job("k", tag)]).await })
    });
    let pushing: Vec<_> = pushing.collect();
    until_waiting(&session().await, &schema, 3).await;
    timeout(SOON, claim(&store, "q", 1)).await.expect("it waits for nobody");
    holder.batch_execute("ROLLBACK").await.unwrap();
    for push in pushing {
        push.await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_that_pushes_to_a_queue_deleted_since_holds_up_nobody() {
    let schema = new_schema();
    let (store, others) = (open(&schema).await, open(&schema).await);
    push(&store, vec![Job::new("gone", &1).unwrap().node("here")]).await;
    delete_queue(&*others, "gone", true).await.unwrap();
    let routes = in_schema("DELETE FROM seriatim.route", &schema);
    let mut session = session().await;
    session.batch_execute(&routes).await.unwrap();
    let mut transaction = session.transaction().await.unwrap();
    let jobs = vec![Job::new("gone", &2).unwrap().node("here")];
    let client = Client::new(store.clone() as SharedStore);
    client.push_in(&mut transaction, jobs).await.unwrap();
    let calls = async {
        declare(&others, Queue::parallel("another")).await;
        push(&others, vec![Job::new("new", &3).unwrap().node("here")]).await;
        others.pause_queue("another".into(), true).await.unwrap();
    };
    timeout(SOON, calls).await.expect("they wait for nobody");
    transaction.commit().await.unwrap();
    let stats = store.stats(None).await.unwrap();
    assert!(stats.iter().any(|stats| &*stats.queue == "gone" && stats.jobs == 1));
}

/// For two leases, as long as the worker's heartbeats come. It may not know of the transaction.
#[tokio::test]
async fn an_own_lease_outlives_an_open_transaction_on_its_lane_while_it_is_extended() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 1)]).await;
    let start = store.now().await.unwrap();
    let at = |leases: f64| Some(start + LEASE.mul_f64(leases));
    let lease = Lease::Own { ttl: LEASE };
    let request = Claim { now: at(0.0), ..Claim::new("q", "n", 2, lease) };
    let turns = store.claim(request).await.unwrap().turns;
    let holder = lock(&schema, "key = 'a'").await;
    let locked = turns.iter().find(|turn| turn.key.as_deref() == Some("a")).unwrap();
    let beat = async |time| {
        // The worker of the other lane is gone.
        let beats = vec![Beat { extend: Some(LEASE), ..Beat::of(locked) }];
        let node = NodeInfo::new("n".into(), LEASE * 100);
        let request = Heartbeat { now: time, node, beats };
        let pulse = timeout(SOON, store.heartbeat(request)).await.expect("it waits for nobody");
        assert!(pulse.unwrap().lost.is_empty());
    };
    let rescue = async |time| {
        let node = "n".into();
        let request = Rescue { now: time, node, lease: LEASE, lanes_max: 10, ticket: 0 };
        let taken = timeout(SOON, store.rescue(request)).await.expect("it waits for nobody");
        let taken = taken.unwrap();
        done(&store, &taken).await;
        taken.iter().filter_map(|turn| turn.key.as_deref().map(str::to_owned)).collect::<Vec<_>>()
    };
    for half in 1..=4 {
        beat(at(f64::from(half) / 2.0)).await;
    }
    assert_eq!(rescue(at(2.1)).await, ["b"], "the row of the other one is locked");
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert!(rescue(at(2.2)).await.is_empty(), "the last heartbeat extended its lease");
    let sweep = crate::contract::Sweep { now: at(2.3), rows_max: 10 };
    store.sweep(sweep).await.unwrap();
    assert!(rescue(at(2.9)).await.is_empty());
    assert_eq!(rescue(at(3.1)).await, ["a"]);
}

#[tokio::test]
async fn lanes_that_go_on_lock_their_queues_in_the_order_of_pushes() {
    let schema = new_schema();
    let store = open(&schema).await;
    let mut turns = Vec::new();
    for queue in ["older", "younger"] {
        declare(&store, Queue::fifo(queue)).await;
        push(&store, vec![Job::new(queue, &1).unwrap().key("k")]).await;
        turns.extend(claim(&store, queue, 1).await.turns);
    }
    let server = session().await;
    let queue_lock = |function: &str, turn: &Turn| {
        format!("SELECT {function}(hashtext('{schema}.'), {})", turn.lane.queue)
    };
    let holder = session().await;
    holder.batch_execute("BEGIN").await.unwrap();
    holder.execute(&queue_lock("pg_advisory_xact_lock", &turns[0]), &[]).await.unwrap();
    turns.reverse();
    let go_on =
        |place: usize| GoOn { claim: claiming(&turns[place].queue, 1), places: vec![place] };
    let ends = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    let request = Settle { go_on: vec![go_on(0), go_on(1)], ..Settle::now(ends) };
    let one = store.clone();
    let settle = tokio::spawn(async move { one.settle(request).await.unwrap() });
    until_waiting(&server, &schema, 1).await;
    let is_free = queue_lock("pg_try_advisory_xact_lock", &turns[0]);
    let row = holder.query_one(&is_free, &[]).await.unwrap();
    assert!(row.get::<_, bool>(0), "the younger queue is locked before the older one");
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert!(settle.await.unwrap().iter().all(Settled::is_ok));
}

#[tokio::test]
async fn a_settle_waits_for_a_short_lock_in_line() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1)]).await;
    let turns = claim(&store, "q", 1).await.turns;
    let end = Settlement::done(turns[0].lane, turns[0].token);
    let server = session().await;
    loop {
        let holder = lock(&schema, "key = 'a'").await;
        let request = Settle { skip_locked: true, ..Settle::now(vec![end.clone()]) };
        let one = store.clone();
        let settle = tokio::spawn(async move { one.settle(request).await.unwrap() });
        until_waiting(&server, &schema, 1).await;
        holder.batch_execute("ROLLBACK").await.unwrap();
        // A slow machine may let the wait end first.
        if settle.await.unwrap()[0].is_ok() {
            break;
        }
    }
}

/// Otherwise its row stays, and all that look for a claim read it: every failure among others.
#[tokio::test]
async fn two_settles_of_one_claim_leave_nothing_of_it_although_one_has_not_committed() {
    let schema = new_schema();
    let server = session().await;
    let store = open(&schema).await;
    declare(&store, Queue::parallel("q")).await;
    push(&store, vec![Job::new("q", &1).unwrap(), Job::new("q", &2).unwrap()]).await;
    let turns = claim(&store, "q", 2).await.turns;
    let other = session().await;
    let counting = "BEGIN; UPDATE seriatim.batch SET remaining = remaining";
    other.batch_execute(&in_schema(counting, &schema)).await.unwrap();
    let settle = tokio::spawn({
        let (store, turns) = (store.clone(), turns[..1].to_vec());
        async move { assert!(done(&store, &turns).await[0].is_ok()) }
    });
    until_waiting(&server, &schema, 1).await;
    other.batch_execute("COMMIT").await.unwrap();
    settle.await.unwrap();
    assert!(done(&store, &turns[1..]).await[0].is_ok());
    let left = in_schema("SELECT count(*) FROM seriatim.batch", &schema);
    assert_eq!(server.query_one(&left, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Otherwise a third session could take the lane in between. Then the push would wait behind the second one, which waits for the
/// transaction of the push: a deadlock.
#[tokio::test]
async fn a_push_keeps_its_lanes_when_another_session_takes_its_idempotency_key() {
    let schema = new_schema();
    let server = session().await;
    let (store, second) = (open(&schema).await, open(&schema).await);
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2), job("p", 1)]).await;
    let sql = |text: &str| in_schema(text, &schema);
    let taker = session().await;
    let take = "BEGIN; INSERT INTO seriatim.idempotency SELECT number, 'k', 'n', 0, 0, 0, 0 FROM seriatim.queue";
    taker.batch_execute(&sql(take)).await.unwrap();
    let pushing = |store: &Arc<Postgres>, jobs: Vec<Job>| {
        let store = store.clone();
        tokio::spawn(async move { push(&store, jobs).await })
    };
    // The row of the other lane is written at once.
    let first = pushing(&store, vec![job("k", 3).idempotency_key("n"), job("p", 2)]);
    until_waiting(&server, &schema, 1).await;
    let behind = pushing(&second, vec![job("k", 4)]);
    until_waiting(&server, &schema, 2).await;
    // Comes between the savepoint in which the push has written and its second attempt to write.
    let between = session().await;
    between.batch_execute(&format!("SET application_name = 'seriatim {schema}'")).await.unwrap();
    let table = sql("BEGIN; LOCK TABLE seriatim.lane IN SHARE MODE");
    let locking = tokio::spawn(async move {
        between.batch_execute(&table).await.unwrap();
        between
    });
    until_waiting(&server, &schema, 3).await;
    taker.batch_execute("COMMIT").await.unwrap();
    let between = locking.await.unwrap();
    assert!(!is_free(&taker, &schema, "key = 'k'").await, "the lane was given back");
    between.batch_execute("ROLLBACK").await.unwrap();
    first.await.unwrap();
    behind.await.unwrap();
    let repeated = |store: &Postgres| store.pool.repeated.load(Ordering::Relaxed);
    assert_eq!((repeated(&store), repeated(&second)), (0, 0), "no deadlock");
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 6);
}
