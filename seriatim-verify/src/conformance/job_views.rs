//! Listings of jobs with filters, and in the order of turns.

use seriatim::limits::{PAGE_BYTES_MAX, SCAN_BYTES_MAX, SOUGHT_BYTES_MAX};
use seriatim::store::*;
use seriatim::{ErrorKind, Job, JobId, Mode, Outcome, Queue};

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        jobs_are_listed_by_task_and_text,
        jobs_are_listed_by_the_time_when_they_are_due_or_ended,
        a_look_at_few_jobs_ends_early_and_the_next_goes_on,
        a_look_for_a_text_ends_early_at_large_payloads,
        payloads_that_are_too_long_are_left_out_of_a_listing,
        jobs_of_a_lane_are_listed_as_it_hands_them_over,
        the_order_of_turns_goes_on_behind_a_row_that_is_gone,
        what_no_listing_of_jobs_has_is_refused,
    ]
}

/// All rows of a listing, page by page, and how many pages there were.
async fn all(bench: &Bench, mut query: JobQuery) -> (Vec<JobView>, usize) {
    let (mut rows, mut pages) = (Vec::new(), 0);
    loop {
        let page = bench.store.jobs(query.clone()).await.unwrap();
        assert!(page.rows.len() <= query.rows_max, "{query:?}");
        assert!(!page.cut || page.next.is_some(), "{query:?}");
        rows.extend(page.rows);
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            return (rows, pages);
        }
    }
}

async fn listed_tags(bench: &Bench, query: JobQuery) -> Vec<String> {
    all(bench, query).await.0.iter().map(|job| tag(&job.payload)).collect()
}

/// Three rows a page, in this order.
fn of(filter: impl Into<JobFilter>, order: JobOrder) -> JobQuery {
    JobQuery { order, rows_max: 3, ..JobQuery::new("q", filter) }
}

async fn jobs_are_listed_by_task_and_text(mut bench: Bench) {
    bench.declare(Queue::fifo("q").max_retries(5)).await;
    let task = |i: u32| if i.is_multiple_of(2) { "ship" } else { "bill" };
    let push = |i: u32| loose(&format!("n{i}")).task(task(i)).key(format!("k{i}"));
    let plain = (0..10).map(push);
    bench.push_all(plain.chain([loose("bare").key("bare")]).collect()).await;
    for turn in bench.claim(4).await {
        match turn.key.as_deref() {
            Some("k0" | "k1") => bench.fail(&turn).await,
            _ => {
                bench.end(&turn, Outcome::Bury { error: "no stock of n1'%_\\".into() }).await;
            }
        }
    }
    let some = |text: &str| Some(text.to_owned());
    for order in [JobOrder::Arrival, JobOrder::Key] {
        let live = || of(JobFilter::Live, order);
        let bill = JobQuery { task: some("bill"), ..live() };
        assert_eq!(listed_tags(&bench, bill.clone()).await, ["n1", "n5", "n7", "n9"], "{order:?}");
        let both = JobQuery { text: some("n9"), ..bill };
        assert_eq!(listed_tags(&bench, both).await, ["n9"]);
        let none = JobQuery { task: some("bil"), ..live() };
        assert_eq!(listed_tags(&bench, none).await, [""; 0]);
        let failed = JobQuery { error: some("it failed"), ..live() };
        assert_eq!(listed_tags(&bench, failed).await, ["n0", "n1"]);
        let keyed = JobQuery { key: some("k1"), error: some("it failed"), ..live() };
        assert_eq!(listed_tags(&bench, keyed).await, ["n1"]);
        let prefix = JobQuery { prefix: some("k"), task: some("ship"), ..live() };
        assert_eq!(listed_tags(&bench, prefix).await, ["n0", "n4", "n6", "n8"]);
        let text = JobQuery { text: some("\"bare\""), ..live() };
        assert_eq!(listed_tags(&bench, text).await, ["bare"]);
    }
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let dead = || of(JobState::Dead, order);
        // In a payload or in an error; wild cards of SQL mean themselves.
        for (text, count) in [("n3", 1), ("n1'%_\\", 2), ("no%stock", 0), ("NO", 0), ("", 2)] {
            let found = listed_tags(&bench, JobQuery { text: some(text), ..dead() }).await;
            assert_eq!(found.len(), count, "{text} {order:?}: {found:?}");
        }
        for (prefix, count) in [("k", 2), ("k3", 1), ("k31", 0), ("a", 0), ("z", 0), ("", 2)] {
            let found = listed_tags(&bench, JobQuery { prefix: some(prefix), ..dead() }).await;
            assert_eq!(found.len(), count, "{prefix} {order:?}: {found:?}");
        }
        let error = JobQuery { error: some("n3"), ..dead() };
        assert_eq!(listed_tags(&bench, error).await, [""; 0], "{order:?}");
        let task = JobQuery { task: some("ship"), ..dead() };
        assert_eq!(listed_tags(&bench, task).await, ["n2"], "{order:?}");
    }
}

async fn jobs_are_listed_by_the_time_when_they_are_due_or_ended(mut bench: Bench) {
    let mut queue = Queue::fifo("q");
    queue.retain_completed = Some(LEASE * 1_000);
    bench.declare(queue).await;
    let start = bench.now;
    let at = |times: u32| Some(start + WAIT * times);
    let push = |i: u32| loose(&format!("n{i}")).key(format!("k{i}")).run_in(WAIT * i);
    bench.push_all((0..8).map(push).collect()).await;
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let live = |from, to| JobQuery { from, to, ..of(JobFilter::Live, order) };
        assert_eq!(listed_tags(&bench, live(at(2), at(3))).await, ["n2", "n3"], "{order:?}");
        assert_eq!(listed_tags(&bench, live(at(7), None)).await, ["n7"], "{order:?}");
        assert_eq!(listed_tags(&bench, live(None, at(0))).await, ["n0"], "{order:?}");
    }
    bench.pass(WAIT * 10);
    for (i, turn) in bench.claim(8).await.into_iter().enumerate() {
        match i % 2 {
            0 => bench.done(&turn).await,
            _ => {
                bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
            }
        }
        bench.pass(WAIT);
    }
    for state in [JobState::Dead, JobState::Succeeded] {
        for order in [JobOrder::Arrival, JobOrder::UpdatedAt] {
            let (ended, _) = all(&bench, of(state, order)).await;
            assert_eq!(ended.len(), 4);
            for (from, to) in [(at(12), at(15)), (at(13), None), (None, at(13)), (at(30), None)] {
                let fits = |job: &&JobView| {
                    from.is_none_or(|from| job.at() >= from) && to.is_none_or(|to| job.at() <= to)
                };
                let wanted: Vec<JobId> = ended.iter().filter(fits).map(|job| job.id).collect();
                let query = JobQuery { from, to, ..of(state, order) };
                let found: Vec<JobId> =
                    all(&bench, query).await.0.iter().map(|job| job.id).collect();
                assert_eq!(found, wanted, "{state:?} {order:?}");
            }
        }
    }
}

async fn a_look_at_few_jobs_ends_early_and_the_next_goes_on(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let task = |i: u32| if [2, 17, 19].contains(&i) { "rare" } else { "usual" };
    let push = |i: u32| loose(&format!("n{i}")).task(task(i)).key(format!("k{i:02}"));
    bench.push_all((0..20).map(push).collect()).await;
    let rare = |filter: JobFilter, order| JobQuery {
        task: Some("rare".to_owned()),
        scan_max: Some(5),
        ..of(filter, order)
    };
    for order in [JobOrder::Arrival, JobOrder::Key] {
        let (rows, pages) = all(&bench, rare(JobFilter::Live, order)).await;
        let tags: Vec<String> = rows.iter().map(|job| tag(&job.payload)).collect();
        assert_eq!(tags, ["n2", "n17", "n19"], "{order:?}");
        assert!((4..=5).contains(&pages), "{order:?}: {pages} pages");
        let first = bench.store.jobs(rare(JobFilter::Live, order)).await.unwrap();
        assert!(first.cut && first.rows.len() == 1, "{order:?}");
    }
    for turn in bench.claim(20).await {
        bench.end(&turn, Outcome::Bury { error: "hopeless".into() }).await;
    }
    for order in [JobOrder::Arrival, JobOrder::Key, JobOrder::UpdatedAt] {
        let (rows, pages) = all(&bench, rare(JobState::Dead.into(), order)).await;
        let mut tags: Vec<String> = rows.iter().map(|job| tag(&job.payload)).collect();
        tags.sort();
        assert_eq!(tags, ["n17", "n19", "n2"], "{order:?}");
        assert!((4..=5).contains(&pages), "{order:?}: {pages} pages");
    }
}

async fn a_look_for_a_text_ends_early_at_large_payloads(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let large = Job::new("q", &"x".repeat(PAGE_BYTES_MAX - 2)).unwrap();
    // A little more than is read for one page.
    for i in 0..=SCAN_BYTES_MAX / PAGE_BYTES_MAX {
        bench.push(large.clone().key(format!("k{i}"))).await;
    }
    bench.push(loose("wanted").key("z")).await;
    let text = Some("wanted".to_owned());
    let query = JobQuery { text, scan_max: Some(1_000), ..of(JobFilter::Live, JobOrder::Arrival) };
    let first = bench.store.jobs(query.clone()).await.unwrap();
    assert!(first.cut && first.rows.is_empty());
    assert_eq!(listed_tags(&bench, query).await, ["wanted"]);
}

async fn payloads_that_are_too_long_are_left_out_of_a_listing(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    // The longest is stored apart from its job on some stores.
    let lengths = [10, 100, 5_000, 200_000];
    let push =
        |length: &usize| Job::new("q", &"x".repeat(length - 2)).unwrap().key(format!("k{length}"));
    bench.push_all(lengths.iter().map(push).collect()).await;
    let shown = |jobs: &[JobView]| -> Vec<(usize, usize, bool)> {
        let shown =
            |job: &JobView| (job.payload.as_bytes().len(), job.payload_bytes, job.lacks_payload());
        jobs.iter().map(shown).collect()
    };
    let expected = |most: usize| -> Vec<(usize, usize, bool)> {
        let kept = |length: &usize| if *length <= most { *length } else { 0 };
        lengths.iter().map(|length| (kept(length), *length, *length > most)).collect()
    };
    let mut turns = Vec::new();
    for filter in [JobFilter::Live, JobState::Running.into(), JobState::Dead.into()] {
        match filter {
            JobFilter::In(JobState::Running) => turns = bench.claim(4).await,
            JobFilter::In(_) => {
                for turn in &turns {
                    bench.end(turn, Outcome::Bury { error: "hopeless".into() }).await;
                }
            }
            JobFilter::Live => {}
        }
        for most in [0, 100, 5_000, 1 << 20, usize::MAX] {
            let payload_bytes_max = Some(most);
            let query = JobQuery { payload_bytes_max, ..of(filter, JobOrder::Arrival) };
            let (jobs, _) = all(&bench, query.clone()).await;
            assert_eq!(shown(&jobs), expected(most), "{filter:?} {most}");
            // What is left out is searched nevertheless.
            let query = JobQuery { text: Some("xxxxxxxx".into()), ..query };
            let (jobs, _) = all(&bench, query).await;
            assert_eq!(shown(&jobs), expected(most), "{filter:?} {most}");
        }
        for job in all(&bench, of(filter, JobOrder::Arrival)).await.0 {
            assert!(!job.lacks_payload() && !bench.job(job.id).await.lacks_payload());
        }
    }
    let key = Some("k5000".to_owned());
    let query = JobQuery { key, payload_bytes_max: Some(0), ..of(JobState::Dead, JobOrder::Key) };
    assert_eq!(shown(&all(&bench, query).await.0), [(0, 5_000, true)]);
}

async fn jobs_of_a_lane_are_listed_as_it_hands_them_over(mut bench: Bench) {
    for mode in [Mode::Accumulate, Mode::Fifo, Mode::Exclusive] {
        bench.declare(Queue::new("q", mode)).await;
        let push = |i: u32| {
            // Out of order, with equal scores and priorities, some not due yet.
            let place = (i * 7) % 10;
            let job = job(&format!("n{i}")).score(f64::from(place) / 8.0 - 0.3);
            let job = job.priority((place * 3) as u16);
            if i % 3 == 2 { job.run_in(WAIT * (20 - i)) } else { job }
        };
        bench.push_all((0..15).map(push).collect()).await;
        let now = Some(bench.now);
        let waiting = |rows_max| JobQuery {
            now,
            key: Some("k".to_owned()),
            rows_max,
            ..of(JobState::Queued, JobOrder::Turn)
        };
        let told = listed_tags(&bench, waiting(3)).await;
        assert_eq!(told.len(), 15, "{mode}");
        assert_eq!(told, listed_tags(&bench, waiting(1_000)).await, "{mode}");
        let turn = bench.one().await;
        let running = JobQuery { filter: JobState::Running.into(), ..waiting(3) };
        assert_eq!(listed_tags(&bench, running.clone()).await, tags(&turn), "{mode}");
        assert_eq!(told[..turn.jobs.len()], tags(&turn), "{mode}");
        let rest = listed_tags(&bench, waiting(4)).await;
        assert_eq!(rest, told[turn.jobs.len()..], "{mode}");
        bench.done(&turn).await;
        bench.pass(WAIT * 1_000);
        bench.beat().await;
        // All are due now.
        let told = listed_tags(&bench, JobQuery { now: Some(bench.now), ..waiting(2) }).await;
        let mut handed_over = Vec::new();
        while handed_over.len() < told.len() {
            let turn = bench.one().await;
            handed_over.extend(tags(&turn));
            bench.done(&turn).await;
        }
        assert_eq!(told, handed_over, "{mode}");
        bench.delete_queue(1_000).await;
    }
}

async fn the_order_of_turns_goes_on_behind_a_row_that_is_gone(mut bench: Bench) {
    for mode in [Mode::Fifo, Mode::Exclusive] {
        bench.declare(Queue::new("q", mode)).await;
        let push = |i: u32| {
            let place = (i * 7) % 10;
            job(&format!("n{i}")).score(0.1 * f64::from(place)).priority(place as u16)
        };
        bench.push_all((0..10).map(push).collect()).await;
        let mut query = JobQuery {
            now: Some(bench.now),
            key: Some("k".to_owned()),
            ..of(JobState::Queued, JobOrder::Turn)
        };
        let wanted = listed_tags(&bench, query.clone()).await;
        let mut seen = Vec::new();
        loop {
            let page = bench.store.jobs(query.clone()).await.unwrap();
            seen.extend(page.rows.iter().map(|job| tag(&job.payload)));
            if let Some(last) = page.rows.last() {
                bench.forget(last.id).await;
            }
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(seen, wanted, "{mode}");
        bench.delete_queue(1_000).await;
    }
}

async fn what_no_listing_of_jobs_has_is_refused(mut bench: Bench) {
    bench.queue(Mode::Fifo).await;
    let key = || Some("k".to_owned());
    for query in [
        of(JobState::Queued, JobOrder::Turn),
        JobQuery { key: key(), ..of(JobFilter::Live, JobOrder::Turn) },
        JobQuery { key: key(), ..of(JobState::Dead, JobOrder::Turn) },
    ] {
        refused(bench.store.jobs(query).await, ErrorKind::Invalid, "order");
    }
    let long = Some("x".repeat(SOUGHT_BYTES_MAX + 1));
    let text = JobQuery { text: long.clone(), ..of(JobFilter::Live, JobOrder::Arrival) };
    refused(bench.store.jobs(text).await, ErrorKind::Invalid, "text");
    let error = JobQuery { error: long, ..of(JobFilter::Live, JobOrder::Arrival) };
    refused(bench.store.jobs(error).await, ErrorKind::Invalid, "error");
    let wrong = Some("nonsense".to_owned());
    let query = JobQuery { key: key(), after: wrong, ..of(JobState::Queued, JobOrder::Turn) };
    refused(bench.store.jobs(query).await, ErrorKind::Invalid, "after");
}
