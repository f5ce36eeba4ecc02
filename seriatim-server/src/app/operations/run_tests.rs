use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use seriatim::store::{
    Act, Claim, Heartbeat, JobState, LaneSelection, Lease, Memory, NodeId, NodeInfo, Push, Settle,
    Wrapper, plan,
};
use seriatim::{Job, Outcome, Queue};

use super::super::action::Action;
use super::super::book::{Begin, begin, list, read, show, stop, take_over, write};
use super::super::preview::preview;
use super::super::wish::{List, Wish};
use super::*;

const LEASE: Duration = Duration::from_secs(60);

struct Here(AtomicBool);

impl Leaving for Here {
    fn is_leaving(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    async fn leaving(&self) {
        if !self.is_leaving() {
            std::future::pending::<()>().await;
        }
    }
}

fn here() -> Here {
    Here(AtomicBool::new(false))
}

async fn push(store: &SharedStore, keys: std::ops::Range<u32>, prefix: &str) {
    let job = |i| Job::new("orders", &i).unwrap().key(format!("{prefix}{i}"));
    for keys in keys.collect::<Vec<_>>().chunks(5_000) {
        let jobs = keys.iter().copied().map(job).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
    }
    tokio::time::advance(Duration::from_millis(1)).await;
}

/// A store with this many dead jobs: those with an even number have one cause, the others another one.
async fn with_dead(count: u32) -> SharedStore {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    die(&store, count).await;
    store
}

async fn die(store: &SharedStore, count: u32) {
    fail_each(store, Queue::fifo("orders").max_retries(0), "k", count).await;
}

/// Pushes a job for each of so many keys of the queue, and lets its turn fail.
async fn fail_each(store: &SharedStore, queue: Queue, prefix: &str, count: u32) {
    let queues = vec![queue.clone()];
    store.declare(seriatim::store::Declare { now: None, queues }).await.unwrap();
    push(store, 0..count, prefix).await;
    let mut node = NodeInfo::new(NodeId::from("n"), LEASE);
    node.queues = vec!["orders".to_owned()];
    let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
    store.heartbeat(beat).await.unwrap();
    let claim = Claim::new("orders", node.id, count as usize, Lease::Node { ttl: LEASE });
    let turns = store.claim(claim).await.unwrap().turns;
    assert_eq!(turns.len(), count as usize);
    let fail = |(i, turn): (usize, &seriatim::store::Turn)| {
        let error = if i % 2 == 0 { format!("timeout after {i}s") } else { "no stock".to_owned() };
        plan(turn, &queue, &Outcome::Retry { error: error.into(), retry_in: None }.into(), &|_| {
            LEASE
        })
    };
    let turns = turns.iter().enumerate().map(fail).collect();
    store.settle(Settle { turns, ..Settle::default() }).await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
}

async fn begun(store: &SharedStore, wish: Wish, waits: Duration) -> Operation {
    let counted = preview(&**store, &wish).await.unwrap();
    let as_me = Begin { who: "me", runner: "here", waits };
    begin(&**store, wish, &counted, as_me).await.unwrap()
}

async fn dead_of(store: &SharedStore) -> u64 {
    store.stats(None).await.unwrap()[0].dead
}

#[tokio::test(start_paused = true)]
async fn what_was_counted_is_what_is_done_in_steps() {
    let store = with_dead(2_600).await;
    let cause = Some("timeout after Ns".to_owned());
    let wish = Wish { cause, ..Wish::new(Action::Requeue, "orders") };
    let counted = preview(&*store, &wish).await.unwrap();
    assert_eq!((counted.count.to_string(), counted.samples.len()), ("1,300".to_owned(), 5));
    let operation = begun(&store, wish, Duration::ZERO).await;
    let mut steps = Vec::new();
    run(&store, &operation.id, "here", &here(), |now| steps.push((now.looked_at, now.count)))
        .await
        .unwrap();
    assert_eq!(steps, [(1_000, 500), (2_000, 1_000), (2_600, 1_300)]);
    let done = show(&*store, &operation.id).await.unwrap();
    assert_eq!((done.state, done.count), (State::Done, 1_300));
    assert_eq!(done.progress(), "1,300 of 1,300 dead jobs requeued");
    assert_eq!(dead_of(&store).await, 1_300);
    let wanted = deeds::Wanted { of: Some("orders"), ..Default::default() };
    let kept = deeds::latest(&*store, wanted, 5).await.unwrap().entries;
    assert_eq!((&*kept[0].action, kept[0].count), ("operation done", Some(1_300)));
    assert_eq!(kept[0].on["operation"], operation.id);
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_reaches_into_the_future_leaves_alone_what_came_later() {
    let store = with_dead(3).await;
    let far = Some(Time(Memory::TOKIO_TIME_START + Duration::from_secs(1 << 30)));
    let mut wish = Wish { before: far, ..Wish::new(Action::Requeue, "orders") };
    let counted = preview(&*store, &wish).await.unwrap();
    // As a page sends what it counted.
    wish.before = Some(counted.before);
    fail_each(&store, Queue::fifo("orders").max_retries(0), "later", 4).await;
    assert_eq!(preview(&*store, &wish).await.unwrap().count.count, 3);
}

#[tokio::test(start_paused = true)]
async fn what_came_later_is_left_alone() {
    let store = with_dead(10).await;
    let early = store.now().await.unwrap() - Duration::from_secs(60);
    let wish = Wish { before: Some(Time(early)), ..Wish::new(Action::DeleteDead, "orders") };
    assert_eq!(preview(&*store, &wish).await.unwrap().count.count, 0);
    let operation = begun(&store, wish, Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(dead_of(&store).await, 10);
}

#[tokio::test(start_paused = true)]
async fn the_number_to_type_is_that_of_the_queue_if_counting_ended_before() {
    let store: SharedStore = Arc::new(Memory::new());
    push(&store, 0..12_345, "k").await;
    let counted = preview(&*store, &Wish::new(Action::DeleteWaiting, "orders")).await.unwrap();
    assert_eq!((counted.count.count, counted.count.more), (10_000, true));
    assert_eq!(counted.confirm, Some(12_345));
    for (said, is_enough) in [(12_345, true), (12_300, true), (10_000, false), (99_999, false)] {
        assert_eq!(counted.check(Some(said)).is_ok(), is_enough, "{said}");
    }
    assert!(counted.check(None).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_it_before_the_next_step_and_an_undone_one_does_nothing() {
    let store = with_dead(3_000).await;
    let operation = begun(&store, Wish::new(Action::Requeue, "orders"), Duration::ZERO).await;
    let id = operation.id.clone();
    step(&store, &id, "here", false, &mut None).await.unwrap();
    stop(&*store, &id, "ops").await.unwrap();
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    let stopped = show(&*store, &id).await.unwrap();
    assert_eq!((stopped.state, stopped.stopped_by.as_deref()), (State::Stopped, Some("ops")));
    assert_eq!((stopped.count, dead_of(&store).await), (1_000, 2_000));
    let wish = Wish::new(Action::DeleteDead, "orders");
    let operation = begun(&store, wish, Duration::from_secs(10)).await;
    assert_eq!(operation.state, State::Waiting);
    let undone = stop(&*store, &operation.id, "me").await.unwrap();
    assert_eq!(undone.state, State::Stopped);
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(show(&*store, &operation.id).await.unwrap().count, 0);
}

#[tokio::test(start_paused = true)]
async fn another_process_goes_on_where_the_last_one_was() {
    let store = with_dead(2_500).await;
    let operation = begun(&store, Wish::new(Action::DeleteDead, "orders"), Duration::ZERO).await;
    let id = &operation.id;
    step(&store, id, "here", false, &mut None).await.unwrap();
    assert_eq!(take_over(&*store, "there").await.unwrap(), Vec::<String>::new(), "it is alive");
    let (mut record, _) = read(&*store, id).await.unwrap().unwrap();
    record.beat -= 60_000_000;
    write(&*store, &record).await.unwrap();
    assert_eq!(take_over(&*store, "there").await.unwrap(), std::slice::from_ref(id));
    assert!(
        step(&store, id, "here", false, &mut None).await.unwrap().is_none(),
        "it is not its any more"
    );
    run(&store, id, "there", &here(), |_| {}).await.unwrap();
    let done = show(&*store, id).await.unwrap();
    assert_eq!((done.state, done.count, dead_of(&store).await), (State::Done, 2_500, 0));
    let operation = begun(&store, Wish::new(Action::Pause, "orders"), Duration::ZERO).await;
    let leaves = Here(AtomicBool::new(true));
    run(&store, &operation.id, "here", &leaves, |_| {}).await.unwrap();
    assert_eq!(take_over(&*store, "there").await.unwrap(), [operation.id], "handed over at once");
}

#[tokio::test(start_paused = true)]
async fn what_was_done_but_not_written_down_when_its_process_was_killed_is_counted_once() {
    for action in [Action::Requeue, Action::DeleteDead, Action::CancelJobs] {
        let store: SharedStore = Arc::new(Memory::in_tokio_time());
        match action {
            Action::CancelJobs => with_running(&store, 1_100).await,
            _ => die(&store, 1_100).await,
        }
        let operation = begun(&store, Wish::new(action, "orders"), Duration::ZERO).await;
        let id = &operation.id;
        let (mut record, _) = read(&*store, id).await.unwrap().unwrap();
        step(&store, id, "here", false, &mut None).await.unwrap();
        // The step never got to write this.
        record.beat -= 60_000_000;
        write(&*store, &record).await.unwrap();
        assert_eq!(take_over(&*store, "there").await.unwrap(), std::slice::from_ref(id));
        run(&store, id, "there", &here(), |_| {}).await.unwrap();
        let done = show(&*store, id).await.unwrap();
        assert_eq!((done.state, done.count), (State::Done, 1_100), "{action}");
        let left = store.read_notes(seriatim::store::NoteQuery::of("operation-step/")).await;
        assert_eq!(left.unwrap(), []);
    }
}

/// Pushes so many jobs, and claims ten of them.
async fn with_running(store: &SharedStore, count: u32) {
    die(store, 1).await;
    push(store, 0..count, "live").await;
    let claim = Claim::new("orders", NodeId::from("n"), 10, Lease::Node { ttl: LEASE });
    assert_eq!(store.claim(claim).await.unwrap().turns.len(), 10);
}

/// A store that answers one call with an error: this one among those of this operation.
struct Cut {
    inner: SharedStore,
    at: (&'static str, usize),
    /// Whether it has carried the call out.
    is_done: bool,
    kind: ErrorKind,
    calls: AtomicUsize,
}

impl Wrapper for Cut {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = seriatim::Result<T>> + Send + 'static,
    ) -> impl Future<Output = seriatim::Result<T>> + Send {
        let (of, nth) = self.at;
        let is_cut = operation == of && self.calls.fetch_add(1, Ordering::SeqCst) + 1 == nth;
        let (is_done, kind) = (self.is_done, self.kind);
        async move {
            if !is_cut {
                return call.await;
            }
            if is_done {
                call.await?;
            }
            Err(seriatim::Error::new(kind, "cut off"))
        }
    }
}

/// Carries out an action on so many jobs, with one call that fails.
async fn cut_off(
    (action, count): (Action, u32),
    at: (&'static str, usize),
    is_done: bool,
    kind: ErrorKind,
) -> Operation {
    let inner: SharedStore = Arc::new(Memory::in_tokio_time());
    let mut wish = Wish::new(action, "orders");
    match action {
        Action::CancelJobs => with_running(&inner, count).await,
        _ => die(&inner, count).await,
    }
    if action == Action::DeleteJobs {
        let dead = JobQuery { rows_max: 1_000, ..JobQuery::new("orders", JobState::Dead) };
        let dead = inner.jobs(dead).await.unwrap().rows;
        wish.jobs = Some(List(dead.iter().map(|job| job.id).collect()));
    }
    let id = begun(&inner, wish, Duration::ZERO).await.id;
    let calls = AtomicUsize::new(0);
    let cut = Arc::new(Cut { inner: inner.clone(), at, is_done, kind, calls });
    let store: SharedStore = cut.clone();
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    assert!(cut.calls.load(Ordering::SeqCst) >= at.1, "{action} {at:?}");
    show(&*inner, &id).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_done_but_not_written_down_when_the_store_went_away_is_counted_once() {
    for (action, count, at, is_done) in [
        (Action::Requeue, 1_100, ("requeue", 3), true),
        (Action::DeleteDead, 1_100, ("delete_dead", 1), true),
        (Action::CancelJobs, 1_100, ("cancel", 1), true),
        (Action::DeleteJobs, 700, ("delete_dead", 600), true),
        (Action::DeleteJobs, 700, ("delete_dead", 600), false),
        // The record, behind the intent.
        (Action::DeleteDead, 1_100, ("write_notes", 2), true),
        (Action::DeleteDead, 1_100, ("write_notes", 2), false),
    ] {
        let done = cut_off((action, count), at, is_done, ErrorKind::Unavailable).await;
        let all = (State::Done, u64::from(count));
        assert_eq!((done.state, done.count), all, "{action} {at:?} {is_done}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_an_operation_failed_is_counted() {
    let at = ("delete_dead", 600);
    let failed = cut_off((Action::DeleteJobs, 700), at, false, ErrorKind::Internal).await;
    assert_eq!((failed.state, failed.count), (State::Failed, 599));
}

#[tokio::test(start_paused = true)]
async fn lanes_are_chosen_by_state_and_the_start_of_their_key() {
    let store = with_dead(1).await;
    push(&store, 0..30, "a").await;
    push(&store, 0..20, "b").await;
    let wish = Wish { prefix: Some("b".to_owned()), ..Wish::new(Action::Pause, "orders") };
    let operation = begun(&store, wish, Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(show(&*store, &operation.id).await.unwrap().count, 20);
    let wish = Wish { state: "paused".to_owned(), ..Wish::new(Action::DeleteWaiting, "orders") };
    let operation = begun(&store, wish, Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].lanes, 30);
}

#[tokio::test(start_paused = true)]
async fn lanes_are_chosen_by_each_filter_of_their_listing() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    fail_each(&store, Queue::fifo("orders"), "failed", 3).await;
    push(&store, 0..2, "held").await;
    let claim = Claim::new("orders", NodeId::from("n"), 2, Lease::Node { ttl: LEASE });
    assert_eq!(store.claim(claim).await.unwrap().turns.len(), 2);
    push(&store, 0..5, "old").await;
    let between = absolute(store.now().await.unwrap());
    tokio::time::advance(Duration::from_secs(7_200)).await;
    push(&store, 0..7, "new").await;
    // It changes none of them, and counts all.
    let all = || Wish::new(Action::Resume, "orders");
    let hour = "1h".to_owned();
    let ready = || Wish { state: "ready".to_owned(), ..all() };
    for (wish, count) in [
        (Wish { state: "ready, running".to_owned(), ..all() }, 14),
        (Wish { lag_min: hour.clone(), ..all() }, 8),
        (Wish { lag_min: hour.clone(), ..ready() }, 5),
        (Wish { lag_min: hour, prefix: Some("failed".to_owned()), ..all() }, 3),
        (Wish { retries_min: "0".to_owned(), ..all() }, 3),
        (Wish { retries_min: "1".to_owned(), ..all() }, 0),
        (Wish { node: "n".to_owned(), ..all() }, 2),
        (Wish { due_to: between.clone(), ..ready() }, 5),
        (Wish { due_from: between, ..ready() }, 7),
    ] {
        let operation = begun(&store, wish, Duration::ZERO).await;
        assert_eq!(operation.expected, count, "{:?}", operation.what);
        run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
        let done = show(&*store, &operation.id).await.unwrap();
        assert_eq!(done.count, count, "{:?}", operation.what);
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_that_lag_later_or_match_no_more_when_their_step_comes_are_left_alone() {
    let store = with_dead(1).await;
    push(&store, 0..5, "old").await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    push(&store, 0..7, "new").await;
    let wish = Wish { lag_min: "30m".to_owned(), ..Wish::new(Action::Pause, "orders") };
    let operation = begun(&store, wish, Duration::ZERO).await;
    assert_eq!(operation.expected, 5);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let (lanes, action) = (LaneSelection::Key("old0".to_owned()), LaneAction::Pause);
    store.act(Act { now: None, queue: "orders".into(), lanes, action }).await.unwrap();
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    let done = show(&*store, &operation.id).await.unwrap();
    assert_eq!((done.count, done.looked_at), (4, 12));
}

#[test]
fn a_wish_says_before_when_those_that_it_is_about_must_have_been() {
    let before = Some(Time(Timestamp::from_micros(1_700_000_000_000_000)));
    let filtered = Wish { before, ..Wish::new(Action::DeleteDead, "orders") };
    assert_eq!(filtered.in_words(), "dead jobs of orders, before 2023-11-14T22:13:20Z");
    let jobs = Some(List(vec![JobId::from_bytes([1; 16])]));
    let named = Wish { jobs, ..filtered };
    assert_eq!(named.in_words(), "1 chosen dead jobs of orders");
}

#[test]
fn what_the_version_before_stored_is_read_and_a_count_may_be_a_number() {
    let stored = r#"{"action":"pause","queue":"orders","prefix":"eu/","state":"retrying","before":"2026-01-31T12:00:00Z"}"#;
    let wish: Wish = serde_json::from_str(stored).unwrap();
    assert_eq!(wish.state, "retrying");
    assert_eq!(serde_json::to_string(&wish).unwrap(), stored);
    for least in ["3", "\"3\""] {
        let sent = format!(r#"{{"action":"pause","queue":"orders","retries_min":{least}}}"#);
        assert_eq!(serde_json::from_str::<Wish>(&sent).unwrap().retries_min, "3");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_without_a_key_that_came_later_are_not_deleted() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    let queues = vec![Queue::parallel("mails")];
    store.declare(seriatim::store::Declare { now: None, queues }).await.unwrap();
    let push = async |count: usize| {
        let jobs = vec![Job::new("mails", &1).unwrap(); count];
        store.push(Push { now: None, jobs }).await.unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
    };
    push(700).await;
    let before = Some(Time(store.now().await.unwrap()));
    push(30).await;
    let wish = Wish { before, ..Wish::new(Action::DeleteWaiting, "mails") };
    assert_eq!(preview(&*store, &wish).await.unwrap().count.count, 700);
    let operation = begun(&store, wish, Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(show(&*store, &operation.id).await.unwrap().count, 700);
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 30);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_does_not_overwrite_what_another_one_took_over() {
    let store = with_dead(30).await;
    let operation = begun(&store, Wish::new(Action::Requeue, "orders"), Duration::ZERO).await;
    let (mut mine, _) = read(&*store, &operation.id).await.unwrap().unwrap();
    let now = store.now().await.unwrap();
    let (mut theirs, _) = read(&*store, &operation.id).await.unwrap().unwrap();
    theirs.runner = "there".to_owned();
    write(&*store, &theirs).await.unwrap();
    run(&store, &operation.id, "there", &here(), |_| {}).await.unwrap();
    mine.operation.count = 7;
    end(&mut mine, State::Done, now);
    assert!(!written(&*store, &mut mine, now).await.unwrap());
    assert_eq!(show(&*store, &operation.id).await.unwrap().count, 30);
}

#[tokio::test(start_paused = true)]
async fn operations_are_bounded_in_number_and_the_oldest_are_forgotten() {
    let store = with_dead(1).await;
    let wish = || Wish::new(Action::Pause, "orders");
    for _ in 0..130 {
        let operation = begun(&store, wish(), Duration::ZERO).await;
        run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    }
    assert_eq!(list(&*store).await.unwrap().len(), 120);
    for _ in 0..20 {
        begun(&store, wish(), Duration::ZERO).await;
    }
    let counted = preview(&*store, &wish()).await.unwrap();
    let as_me = Begin { who: "me", runner: "here", waits: Duration::ZERO };
    let refused = begin(&*store, wish(), &counted, as_me).await.unwrap_err().to_string();
    assert!(refused.starts_with("20 operations have not ended"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn waiting_and_running_jobs_are_cancelled_by_filter_and_what_came_later_is_left_alone() {
    let store = with_dead(1).await;
    push(&store, 0..1_200, "a").await;
    push(&store, 0..30, "b").await;
    let claim = Claim::new("orders", NodeId::from("n"), 10, Lease::Node { ttl: LEASE });
    let running = store.claim(claim).await.unwrap().turns;
    let before = Some(Time(store.now().await.unwrap()));
    let prefix = Some("a".to_owned());
    let wish = Wish { prefix, before, ..Wish::new(Action::CancelJobs, "orders") };
    let counted = preview(&*store, &wish).await.unwrap();
    assert_eq!((counted.count.count, counted.confirm), (1_200, Some(1_200)));
    push(&store, 2_000..2_005, "a").await;
    let operation = begun(&store, wish, Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    let done = show(&*store, &operation.id).await.unwrap();
    assert_eq!(done.progress(), "1,200 of 1,200 waiting and running jobs cancelled");
    let live = JobQuery { rows_max: 1_000, ..JobQuery::new("orders", JobFilter::Live) };
    let left = store.jobs(live).await.unwrap().rows;
    assert_eq!(left.len(), running.len() + 30 + 5);
    let flagged = left.iter().filter(|job| job.cancel_requested);
    assert_eq!(flagged.count(), running.len());
    // A job that was asked to end counts once, and one of another queue is left alone, even if they are named.
    let asked = left.iter().find(|job| job.cancel_requested).unwrap().id;
    let other = Queue::fifo("mails");
    store.declare(seriatim::store::Declare { now: None, queues: vec![other] }).await.unwrap();
    let jobs = vec![Job::new("mails", &1).unwrap().key("k")];
    let foreign = store.push(Push { now: None, jobs }).await.unwrap()[0].job_id;
    let jobs = Some(List(vec![foreign, asked, left[20].id]));
    let operation =
        begun(&store, Wish { jobs, ..Wish::new(Action::CancelJobs, "orders") }, Duration::ZERO);
    let id = operation.await.id;
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(show(&*store, &id).await.unwrap().count, 1);
    assert!(store.job(foreign).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn filters_that_do_not_belong_to_the_action_and_unconfirmed_numbers_are_refused() {
    let store = with_dead(1_200).await;
    let task = Some("t".to_owned());
    let wrong = Wish { task, ..Wish::new(Action::Pause, "orders") };
    assert!(preview(&*store, &wrong).await.unwrap_err().to_string().contains("lanes have no task"));
    let unnamed = Wish::new(Action::DeleteJobs, "orders");
    assert!(preview(&*store, &unnamed).await.unwrap_err().to_string().contains("names the jobs"));
    let delete = Wish::new(Action::DeleteDead, "orders");
    let counted = preview(&*store, &delete).await.unwrap();
    assert_eq!(counted.confirm, Some(1_200));
    assert!(counted.check(None).is_err() && counted.check(Some(1_199)).is_err());
    assert!(counted.check(Some(1_200)).is_ok());
    let requeue = preview(&*store, &Wish::new(Action::Requeue, "orders")).await.unwrap();
    assert!(requeue.confirm.is_none() && requeue.check(None).is_ok());
}

/// How many were sent back after so long, at each step.
async fn paced(store: &SharedStore, wish: Wish) -> Vec<(Duration, u64)> {
    let operation = begun(store, wish, Duration::ZERO).await;
    let (began, mut steps) = (Instant::now(), Vec::new());
    run(store, &operation.id, "here", &here(), |now| steps.push((began.elapsed(), now.count)))
        .await
        .unwrap();
    steps
}

fn at(rate: &str) -> Wish {
    Wish { rate: Some(rate.parse().unwrap()), ..Wish::new(Action::Requeue, "orders") }
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_from_the_first_second_to_the_last() {
    let store = with_dead(2_600).await;
    let steps = paced(&store, at("500/s")).await;
    for (time, count) in &steps {
        let allowed = 500.0 * time.as_secs_f64();
        assert!((*count as f64 - allowed).abs() <= 125.0, "{count} after {time:?}");
    }
    let (time, count) = steps.last().unwrap();
    assert!((5.0..5.5).contains(&time.as_secs_f64()), "{time:?}");
    assert_eq!((*count, dead_of(&store).await), (2_600, 0));
}

#[tokio::test(start_paused = true)]
async fn a_step_at_a_rate_goes_on_with_what_the_last_one_found() {
    let store = with_dead(150).await;
    let operation = begun(&store, at("50/s"), Duration::ZERO).await;
    let mut left = None;
    for sent in 1..=10 {
        step(&store, &operation.id, "here", false, &mut left).await.unwrap();
        let kept = left.as_ref().map_or(0, |look: &Look| look.found.len());
        assert_eq!((dead_of(&store).await, kept as u64), (150 - 10 * sent, 100 - 10 * sent));
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(
        (dead_of(&store).await, show(&*store, &operation.id).await.unwrap().count),
        (0, 150)
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_lower_than_one_a_second_holds_too_and_a_stop_is_heard_meanwhile() {
    let store = with_dead(10).await;
    let operation = begun(&store, at("6/m"), Duration::ZERO).await;
    let (id, began) = (operation.id.clone(), Instant::now());
    run(&store, &id, "here", &here(), |now| {
        assert_eq!(now.count, 1 + began.elapsed().as_secs() / 10);
        if now.count == 4 {
            let (store, id) = (store.clone(), id.clone());
            tokio::spawn(async move { stop(&*store, &id, "me").await.unwrap() });
        }
    })
    .await
    .unwrap();
    assert!(began.elapsed() < Duration::from_secs(32), "{:?}", began.elapsed());
    let stopped = show(&*store, &id).await.unwrap();
    assert_eq!((stopped.state, stopped.count, dead_of(&store).await), (State::Stopped, 4, 6));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_not_made_up_for() {
    let store = with_dead(1_000).await;
    let id = begun(&store, at("100/s"), Duration::ZERO).await.id;
    step(&store, &id, "here", false, &mut None).await.unwrap();
    tokio::time::advance(Duration::from_secs(600)).await;
    let began = Instant::now();
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!((8.5..10.0).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn dead_jobs_of_a_key_go_back_together_so_that_none_overtakes_an_older_one() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    // Each round kills one job of each key.
    for _ in 0..3 {
        die(&store, 400).await;
    }
    let steps = paced(&store, at("10/s")).await;
    let counts: Vec<u64> = steps.iter().map(|(_, count)| *count).filter(|n| *n > 0).collect();
    assert!(counts.iter().all(|count| count.is_multiple_of(3)), "whole keys: {counts:?}");
    assert_eq!(counts.last(), Some(&1_200));
}

#[tokio::test(start_paused = true)]
async fn what_died_earlier_is_left_alone() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    die(&store, 30).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let since = Some(Time(store.now().await.unwrap()));
    die(&store, 7).await;
    let wish = Wish { since, ..Wish::new(Action::Requeue, "orders") };
    assert_eq!(preview(&*store, &wish).await.unwrap().count.count, 7);
    paced(&store, wish).await;
    assert_eq!(dead_of(&store).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_refused_where_nothing_is_sent_back_by_a_filter() {
    let store = with_dead(1).await;
    let rate = at("5/s").rate;
    let named = Some(List(vec![JobId::from_bytes([1; 16])]));
    for wish in [
        Wish { rate, ..Wish::new(Action::DeleteDead, "orders") },
        Wish { rate, ..Wish::new(Action::Pause, "orders") },
        Wish { rate, jobs: named, ..Wish::new(Action::Requeue, "orders") },
    ] {
        let refused = preview(&*store, &wish).await.unwrap_err().to_string();
        assert!(refused.contains("has a rate"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_dead_jobs_of_a_key_than_a_store_takes_at_once_go_back_by_their_scores() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    let queue = Queue::accumulate("orders").max_retries(0);
    let declare = seriatim::store::Declare { now: None, queues: vec![queue.clone()] };
    store.declare(declare).await.unwrap();
    // The later a job comes, the lower its score.
    let count = 10_500;
    let job = |i: i32| Job::new("orders", &i).unwrap().key("k").score(f64::from(-i));
    for jobs in (0..count).collect::<Vec<_>>().chunks(5_000) {
        let jobs = jobs.iter().copied().map(job).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
    }
    let mut node = NodeInfo::new(NodeId::from("n"), LEASE);
    node.queues = vec!["orders".to_owned()];
    let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
    store.heartbeat(beat).await.unwrap();
    while dead_of(&store).await < count as u64 {
        let claim = Claim::new("orders", node.id.clone(), 1, Lease::Node { ttl: LEASE });
        let turns = store.claim(claim).await.unwrap().turns;
        let bury = Outcome::Bury { error: "no stock".into() };
        let turns = turns.iter().map(|turn| plan(turn, &queue, &bury.clone().into(), &|_| LEASE));
        store.settle(Settle { turns: turns.collect(), ..Settle::default() }).await.unwrap();
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let id = begun(&store, at("1/h"), Duration::ZERO).await.id;
    step(&store, &id, "here", false, &mut None).await.unwrap();
    assert_eq!(dead_of(&store).await, 500);
    let left = JobQuery::new("orders", JobState::Dead);
    let left = store.jobs(left).await.unwrap().rows;
    assert!(left.iter().all(|job| job.score > -500.0), "those of the highest scores wait");
}

async fn lanes_of(store: &SharedStore) -> u64 {
    store.stats(None).await.unwrap()[0].lanes
}

#[tokio::test(start_paused = true)]
async fn what_came_and_failed_later_is_not_taken_away_with_all_that_failed_in_the_queue() {
    for queue in [Queue::fifo("orders"), Queue::exclusive("orders"), Queue::accumulate("orders")] {
        for action in [Action::Bury, Action::DeleteFailed] {
            let store: SharedStore = Arc::new(Memory::in_tokio_time());
            fail_each(&store, queue.clone(), "a", 1_200).await;
            let before = Some(Time(store.now().await.unwrap()));
            let wish = Wish { before, ..Wish::new(action, "orders") };
            let operation = begun(&store, wish.clone(), Duration::ZERO).await;
            assert_eq!(operation.expected, 1_200);
            fail_each(&store, queue.clone(), "b", 40).await;
            let mut counts = Vec::new();
            run(&store, &operation.id, "here", &here(), |now| counts.push(now.count))
                .await
                .unwrap();
            assert_eq!(counts, [1_000, 1_200], "{queue:?} {action}");
            assert_eq!(lanes_of(&store).await, 40, "{queue:?} {action}");
            let later = begun(&store, wish, Duration::ZERO).await;
            run(&store, &later.id, "here", &here(), |_| {}).await.unwrap();
            assert_eq!(show(&*store, &later.id).await.unwrap().count, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_counts_once_however_many_of_its_jobs_failed() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    let queue = Queue::exclusive("orders");
    for _ in 0..2 {
        fail_each(&store, queue.clone(), "k", 3).await;
    }
    let counted = preview(&*store, &Wish::new(Action::Bury, "orders")).await.unwrap();
    assert_eq!((counted.count.count, counted.samples.len()), (3, 3));
    let operation = begun(&store, Wish::new(Action::Bury, "orders"), Duration::ZERO).await;
    run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!(show(&*store, &operation.id).await.unwrap().count, 3);
    assert_eq!((dead_of(&store).await, lanes_of(&store).await), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_step_looks_at_no_more_lanes_however_few_of_them_are_meant() {
    let store: SharedStore = Arc::new(Memory::in_tokio_time());
    fail_each(&store, Queue::fifo("orders"), "a", 1_500).await;
    push(&store, 0..1_000, "b").await;
    let none = Wish { state: "crashed".to_owned(), ..Wish::new(Action::Retry, "orders") };
    let few = Wish { prefix: Some("b".to_owned()), ..Wish::new(Action::Bury, "orders") };
    for (wish, lanes) in [(none, 2_500), (few, 1_500)] {
        let operation = begun(&store, wish, Duration::ZERO).await;
        assert_eq!((operation.expected, operation.expected_more), (0, false));
        let mut looks = Vec::new();
        run(&store, &operation.id, "here", &here(), |now| looks.push(now.looked_at)).await.unwrap();
        assert_eq!((looks[0], *looks.last().unwrap()), (1_000, lanes), "{looks:?}");
    }
    for (state, count) in [("ready", 1_000), ("retrying", 1_500)] {
        let wish = Wish { state: state.to_owned(), ..Wish::new(Action::Pause, "orders") };
        let operation = begun(&store, wish, Duration::ZERO).await;
        run(&store, &operation.id, "here", &here(), |_| {}).await.unwrap();
        assert_eq!(show(&*store, &operation.id).await.unwrap().count, count, "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_died_last_is_counted_first() {
    let store = with_dead(1_100).await;
    let since = Some(Time(store.now().await.unwrap()));
    fail_each(&store, Queue::fifo("orders").max_retries(0), "late", 1).await;
    for since in [None, since] {
        let wish = Wish { since, ..Wish::new(Action::Requeue, "orders") };
        let counted = preview(&*store, &wish).await.unwrap();
        assert_eq!(counted.count.count, if since.is_some() { 1 } else { 1_101 });
        assert_eq!(counted.samples[0].key.as_deref(), Some("late0"));
    }
}

#[tokio::test(start_paused = true)]
async fn dead_jobs_without_a_task_are_meant_alone() {
    let store = with_dead(3).await;
    let queue = Queue::fifo("orders").max_retries(0);
    let job = Job::new("orders", &1).unwrap().key("tasked").task("ship");
    store.push(Push { now: None, jobs: vec![job] }).await.unwrap();
    tokio::time::advance(Duration::from_millis(1)).await;
    // The one that waits longest is claimed.
    fail_each(&store, queue, "k", 1).await;
    assert_eq!(dead_of(&store).await, 4);
    let untasked = Wish { untasked: true, ..Wish::new(Action::Requeue, "orders") };
    let counted = preview(&*store, &untasked).await.unwrap();
    assert!(counted.samples.iter().all(|one| one.key.as_deref() != Some("tasked")));
    assert_eq!(counted.count.count, 3);
    let lanes = Wish { untasked: true, ..Wish::new(Action::Pause, "orders") };
    assert!(preview(&*store, &lanes).await.unwrap_err().to_string().contains("lanes have no task"));
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_while_it_is_shown_to_wait_has_done_nothing() {
    let store = with_dead(30).await;
    let wish = || Wish::new(Action::DeleteDead, "orders");
    let id = begun(&store, wish(), Duration::from_secs(10)).await.id;
    tokio::time::advance(Duration::from_secs(10)).await;
    let next = step(&store, &id, "here", false, &mut None).await.unwrap().unwrap();
    assert_eq!((next.operation.state, dead_of(&store).await), (State::Running, 30));
    // Stopped now, it was not before it began.
    let stopping = stop(&*store, &id, "me").await.unwrap();
    assert_eq!((stopping.state, stopping.stopped_by.as_deref()), (State::Running, Some("me")));
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    let stopped = show(&*store, &id).await.unwrap();
    assert_eq!((stopped.state, stopped.count, dead_of(&store).await), (State::Stopped, 0, 30));
    let id = begun(&store, wish(), Duration::from_secs(10)).await.id;
    run(&store, &id, "here", &here(), |_| {}).await.unwrap();
    assert_eq!((show(&*store, &id).await.unwrap().state, dead_of(&store).await), (State::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_operation_hears_that_it_failed() {
    let store = with_dead(30).await;
    let id = begun(&store, at("5/s"), Duration::ZERO).await.id;
    step(&store, &id, "here", false, &mut None).await.unwrap();
    seriatim::store::delete_queue(&*store, "orders", true).await.unwrap();
    let mut last = None;
    run(&store, &id, "here", &here(), |now| last = Some(now.clone())).await.unwrap();
    let last = last.unwrap();
    assert_eq!((last.state, &last), (State::Failed, &show(&*store, &id).await.unwrap()));
    assert!(last.error.unwrap().contains("orders"));
}
