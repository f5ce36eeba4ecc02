//! Groups and limits: while others settle and declare, and what other queues pay.

use tokio::time::timeout;

use super::pausing::waiting_settle;
use super::*;
use crate::contract::{DeleteQueue, Sweep, Transaction};
use crate::model::rate::Rate;
use crate::{Groups, Mode, Share};

const GROUPS: [&str; 4] = ["a", "b", "c", "d"];

/// A job of one of the groups.
fn of_group(i: usize) -> Job {
    Job::new("q", &i).unwrap().group(GROUPS[i % GROUPS.len()]).key(format!("k{i}"))
}

async fn rows(schema: &str, table: &str) -> i64 {
    let sql = in_schema(&format!("SELECT count(*) FROM seriatim.{table}"), schema);
    session().await.query_one(&sql, &[]).await.unwrap().get(0)
}

fn limited() -> Queue {
    Queue::fifo("q").groups(Groups::each(Share::default().running(2))).running(6)
}

/// A claim visits 10,000 groups at most. If none of these may start anything, the next claim visits others in a second.
#[tokio::test]
async fn a_claim_that_visits_only_groups_at_their_limits_is_not_asked_for_again_at_once() {
    let schema = new_schema();
    let store = open(&schema).await;
    let each = Share::default().rate(Rate::per_hour(1));
    declare(&store, Queue::fifo("q").groups(Groups::each(each))).await;
    push(&store, (0..8).map(of_group).collect()).await;
    let first = claim(&store, "q", 9).await.turns;
    assert_eq!(first.len(), GROUPS.len());
    assert!(done(&store, &first).await.iter().all(Settled::is_ok));
    let fewer = "UPDATE seriatim.queue SET shares = jsonb_set(shares, '{visits}', '3')";
    session().await.batch_execute(&in_schema(fewer, &schema)).await.unwrap();
    let now = store.now().await.unwrap();
    let claimed = claim(&store, "q", 9).await;
    assert!(claimed.turns.is_empty());
    let next = claimed.next_due.unwrap().since(now);
    assert!((500..2_000).contains(&next.as_millis()), "{next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_change_while_nodes_work_lose_no_place() {
    let schema = new_schema();
    let store = open(&schema).await;
    let without = || Queue::fifo("q").groups(Groups::default());
    declare(&store, without()).await;
    push(&store, (0..200).map(of_group).collect()).await;
    let done_jobs = Arc::new(AtomicU32::new(0));
    let worker = |store: Arc<Postgres>, done_jobs: Arc<AtomicU32>| {
        tokio::spawn(async move {
            while done_jobs.load(Ordering::SeqCst) < 200 {
                let turns = claim(&store, "q", 3).await.turns;
                assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
                done_jobs.fetch_add(turns.len() as u32, Ordering::SeqCst);
            }
        })
    };
    let workers = [
        worker(open(&schema).await, done_jobs.clone()),
        worker(open(&schema).await, done_jobs.clone()),
    ];
    while done_jobs.load(Ordering::SeqCst) < 190 {
        declare(&store, limited()).await;
        declare(&store, without()).await;
    }
    declare(&store, limited()).await;
    for worker in workers {
        timeout(SOON * 3, worker).await.expect("no permit is lost").unwrap();
    }
    claim(&store, "q", 1).await;
    let left = in_schema("SELECT coalesce(max(running), 0) FROM seriatim.share", &schema);
    assert_eq!(session().await.query_one(&left, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_settle_in_an_open_transaction_holds_up_no_claim_and_frees_its_place_with_the_commit() {
    let schema = new_schema();
    let store = open(&schema).await;
    let shares = Groups::each(Share::default().running(2));
    declare(&store, Queue::fifo("q").groups(shares)).await;
    let jobs = ["x", "y", "z"].map(|key| Job::new("q", &1).unwrap().key(key).group("a"));
    push(&store, jobs.into()).await;
    let turns = claim(&store, "q", 5).await.turns;
    assert_eq!(turns.len(), 2);
    let mut user = session().await;
    let mut open = user.transaction().await.unwrap();
    let end = Settlement::done(turns[0].lane, turns[0].token);
    assert!(open.settle(&*store, Settle::now(vec![end])).await.unwrap()[0].is_ok());
    let waiting = timeout(SOON, claim(&store, "q", 5)).await.expect("it waits for nobody");
    assert!(waiting.turns.is_empty());
    Transaction::commit(open, &*store).await.unwrap();
    assert_eq!(claim(&store, "q", 5).await.turns.len(), 1);
}

#[tokio::test]
async fn a_queue_without_groups_and_limits_writes_nothing_for_them() {
    let schema = new_schema();
    let store = open(&schema).await;
    for mode in Mode::ALL {
        let name = mode.to_string();
        declare(&store, Queue::new(&name, mode)).await;
        let job = |i: usize| {
            let job = Job::new(&*name, &i).unwrap();
            if mode.is_keyed() { job.key(format!("k{}", i % 5)) } else { job }
        };
        push(&store, (0..10).map(job).collect()).await;
        let turns = claim(&store, &name, 10).await.turns;
        done(&store, &turns).await;
    }
    assert_eq!((rows(&schema, "share").await, rows(&schema, "freed").await), (0, 0));
    assert_eq!(rows(&schema, "queue WHERE shares IS NOT NULL OR counted IS NOT NULL").await, 0);
}

#[tokio::test]
async fn limits_without_groups_leave_claims_light() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::parallel("q").running(5).rate(Rate::per_second(1_000))).await;
    push(&store, (0..9).map(|i| Job::new("q", &i).unwrap()).collect()).await;
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 5);
    assert_eq!(rows(&schema, "lane WHERE claimed OR token > 0").await, 0);
    assert_eq!(rows(&schema, "freed").await, 0);
}

/// A claim of 8 lanes as another process would make it, before its commit.
async fn claim_8(user: &mut tokio_postgres::Client, schema: &str) -> i64 {
    let claim = "BEGIN; SET LOCAL search_path = pg_catalog";
    user.batch_execute(claim).await.unwrap();
    let claim = "SELECT count(lane) FROM seriatim.claim(NULL, 'q', 'n', NULL, '{}', 8, 8, false, 60000000, 1000, 1000, 1000000, NULL, 0, \
        true, 0, 1)";
    user.query_one(&in_schema(claim, schema), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn claims_far_below_a_limit_go_side_by_side_and_the_last_ones_wait_for_those_under_way() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::parallel("q").running(64)).await;
    push(&store, (0..99).map(|i| Job::new("q", &i).unwrap()).collect()).await;
    assert_eq!(claim(&store, "q", 24).await.turns.len(), 24);
    let mut others = [session().await, session().await];
    assert_eq!(claim_8(&mut others[0], &schema).await, 8);
    let beside = timeout(SOON, claim(&store, "q", 8)).await.expect("there is room for both");
    assert_eq!(beside.turns.len(), 8);
    // 32 are counted: as many as can be missing behind the other doors leave room for these.
    assert_eq!(claim_8(&mut others[1], &schema).await, 8);
    let last = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, "q", 99).await.turns.len() }
    });
    until_waiting(&session().await, &schema, 1).await;
    for other in &others {
        other.batch_execute("COMMIT").await.unwrap();
    }
    assert_eq!(last.await.unwrap(), 64 - 24 - 8 - 16);
}

/// A transaction of a user that has pushed a job.
async fn with_a_push<'a>(
    user: &'a mut tokio_postgres::Client,
    store: &Postgres,
    job: Job,
) -> tokio_postgres::Transaction<'a> {
    let mut open = user.transaction().await.unwrap();
    open.push(store, Push { now: None, jobs: vec![job] }).await.unwrap();
    open
}

#[tokio::test]
async fn a_queue_gets_a_limit_beside_an_open_transaction_that_pushed() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 1)]).await;
    let mut user = session().await;
    let open = with_a_push(&mut user, &store, job("theirs", 1)).await;
    let limit = declare(&store, Queue::fifo("q").running(2));
    timeout(SOON, limit).await.expect("it waits for claims alone");
    Transaction::commit(open, &*store).await.unwrap();
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_was_under_way_claims_nothing_after_its_queue_got_a_limit() {
    let schema = new_schema();
    let store = open(&schema).await;
    declare(&store, Queue::fifo("q")).await;
    let (settle, holder) = waiting_settle(&store, &schema).await;
    let limit = declare(&store, Queue::fifo("q").rate(Rate::per_second(1)));
    timeout(SOON, limit).await.expect("it waits for no lane");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(settle.await.unwrap(), []);
    assert_eq!(claim(&store, "q", 1).await.turns.len(), 1);
}

/// What else a queue depends on: its mode, or that its jobs go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_an_open_transaction_forbids_holds_nobody_up() {
    let schema = new_schema();
    let (store, other, watcher) = (open(&schema).await, open(&schema).await, session().await);
    declare(&store, Queue::fifo("q")).await;
    declare(&store, Queue::fifo("other")).await;
    let mut user = session().await;
    let open = with_a_push(&mut user, &store, job("theirs", 1)).await;
    let limits = limited();
    let changer = store.clone();
    let change = tokio::spawn(async move { declare(&changer, limits).await });
    until_waiting(&watcher, &schema, 1).await;
    let others = async {
        push(&other, vec![job("a", 1)]).await;
        assert_eq!(claim(&other, "q", 9).await.turns.len(), 1);
        other.pause_queue("other".into(), true).await.unwrap();
        declare(&other, Queue::parallel("new")).await;
    };
    timeout(SOON, others).await.expect("nobody waits for the open transaction");
    assert!(!change.is_finished(), "it waits for the transaction");
    Transaction::commit(open, &*store).await.unwrap();
    timeout(SOON, change).await.expect("it goes on").unwrap();
}

/// A store whose calls take two seconds at most.
async fn hasty(schema: &str) -> Postgres {
    let mark = if url().contains('?') { '&' } else { '?' };
    let hasty = format!("{}{mark}schema={schema}&call_timeout=2s", url());
    Postgres::connect(&hasty).await.unwrap()
}

/// A push created the queue.
#[tokio::test]
async fn a_client_tries_for_all_of_its_time_to_declare_what_an_open_transaction_forbids() {
    let schema = new_schema();
    let (store, hasty) = (open(&schema).await, hasty(&schema).await);
    push(&store, vec![job("a", 1)]).await;
    let mut user = session().await;
    let open = with_a_push(&mut user, &store, job("theirs", 1)).await;
    let request = Declare { now: None, queues: vec![Queue::fifo("q")] };
    let began = std::time::Instant::now();
    let error = hasty.declare_new(request.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() > Duration::from_secs(1), "{error}");
    Transaction::commit(open, &*store).await.unwrap();
    hasty.declare_new(request).await.unwrap();
    assert_eq!(claim(&store, "q", 9).await.turns.len(), 2);
}

#[tokio::test]
async fn a_change_that_an_open_transaction_forbids_says_so_when_its_time_is_over() {
    let schema = new_schema();
    let (store, hasty) = (open(&schema).await, hasty(&schema).await);
    declare(&store, Queue::fifo("q")).await;
    let mut user = session().await;
    let open = with_a_push(&mut user, &store, job("theirs", 1)).await;
    let change = Declare { now: None, queues: vec![limited()] };
    let errors = [
        hasty.declare(change.clone()).await.unwrap_err(),
        hasty.delete_queue(DeleteQueue { queue: "q".into(), rows_max: 10 }).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            error.to_string().contains("\"q\" cannot be changed now: a transaction"),
            "{error}"
        );
    }
    Transaction::commit(open, &*store).await.unwrap();
    hasty.declare(change).await.unwrap();
}

#[tokio::test]
async fn groups_that_use_nothing_of_their_limits_are_forgotten() {
    let schema = new_schema();
    let store = open(&schema).await;
    let share = Share::default().running(2).rate(Rate::per_second(10));
    declare(&store, Queue::fifo("q").groups(Groups::each(share))).await;
    push(&store, (0..GROUPS.len()).map(of_group).collect()).await;
    let turns = claim(&store, "q", GROUPS.len()).await.turns;
    assert_eq!(rows(&schema, "share").await, GROUPS.len() as i64 + 1);
    done(&store, &turns[1..]).await;
    // The next claim counts the turns that have ended.
    claim(&store, "q", 1).await;
    let sweep = Sweep { now: Some(store.now().await.unwrap() + LEASE), rows_max: 100 };
    store.sweep(sweep).await.unwrap();
    assert_eq!(rows(&schema, "share").await, 2, "of the group with a turn, and of the queue");
}
