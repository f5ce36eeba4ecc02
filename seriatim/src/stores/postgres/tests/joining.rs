//! Pushes to keys that have lanes: they lock these first, and make none unless one is missing.

use super::*;
use crate::Mode;
use crate::limits::ROUTES_MAX;
use crate::stores::route;

/// More than a push looks for before it takes all lanes to exist.
const KEYS: u32 = 40;
/// A key that it does not look for.
const MISSING: &str = "k03";

fn key(number: u32) -> String {
    format!("k{number:02}")
}

fn keys() -> impl DoubleEndedIterator<Item = String> {
    (0..KEYS).map(key)
}

/// A store with a lane for each key but one.
async fn with_lanes(schema: &str, mode: Mode) -> Arc<Postgres> {
    let store = open(schema).await;
    declare(&store, Queue::new("q", mode)).await;
    push(&store, keys().filter(|key| key != MISSING).map(|key| job(&key, 1)).collect()).await;
    store
}

#[tokio::test]
async fn a_push_to_keys_of_which_one_has_no_lane_stores_each_job_behind_those_of_its_key() {
    for mode in [Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        let schema = new_schema();
        let store = with_lanes(&schema, mode).await;
        push(&store, keys().map(|key| job(&key, 2)).collect()).await;
        push(&store, keys().rev().map(|key| job(&key, 3)).collect()).await;
        let stats = store.stats(None).await.unwrap().remove(0);
        assert_eq!((stats.lanes, stats.jobs), (40, 119), "{mode}");
        let mut got: Vec<(String, Vec<u32>)> = keys().map(|key| (key, Vec::new())).collect();
        loop {
            let turns = claim(&store, "q", 100).await.turns;
            if turns.is_empty() {
                break;
            }
            for turn in &turns {
                let of = got.iter_mut().find(|(key, _)| Some(key.as_str()) == turn.key.as_deref());
                let tags = turn.jobs.iter().map(|job| job.payload.decode::<u32>().unwrap());
                of.unwrap().1.extend(tags);
            }
            assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
        }
        for (key, tags) in got {
            let all = if key == MISSING { vec![2, 3] } else { vec![1, 2, 3] };
            assert_eq!(tags, all, "{mode}, {key}");
        }
    }
}

/// Otherwise it would wait for an earlier lane with a later one locked: a deadlock with a push that locks them in order.
#[tokio::test]
async fn a_push_keeps_no_lane_locked_while_it_waits_for_one_that_is_being_made_before_it() {
    let schema = new_schema();
    let server = session().await;
    let store = with_lanes(&schema, Mode::Fifo).await;
    let other = session().await;
    let making = format!(
        "BEGIN; INSERT INTO seriatim.lane (number, queue, key, due) \
           SELECT 0, queue, '{MISSING}', 0 FROM seriatim.lane LIMIT 1"
    );
    other.batch_execute(&in_schema(&making, &schema)).await.unwrap();
    let pusher = tokio::spawn({
        let store = store.clone();
        async move { push(&store, keys().map(|key| job(&key, 2)).collect()).await }
    });
    until_waiting(&server, &schema, 1).await;
    let later = "SELECT FROM seriatim.lane WHERE key > 'k03' FOR UPDATE NOWAIT";
    other.batch_execute(&in_schema(later, &schema)).await.expect("they are free");
    other.batch_execute("ROLLBACK").await.unwrap();
    pusher.await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 79);
}

#[tokio::test]
async fn the_last_number_of_a_route_is_given_out_and_no_further_one() {
    let schema = new_schema();
    let store = open(&schema).await;
    let last = ROUTES_MAX - 1;
    let sql = format!("SELECT setval(pg_get_serial_sequence('{schema}.route', 'number'), {last})");
    session().await.batch_execute(&sql).await.unwrap();
    route::tests::the_last_number_is_given_out_and_no_further_one(&*store).await;
}
