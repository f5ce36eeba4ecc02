//! Events that are written, read in pages, and forgotten.

use seriatim::limits::NOTES_MAX;
use seriatim::store::{Memory, Notebook};

use super::super::book::Book;
use super::super::shelf::{Limits, trim};
use super::*;
use crate::protocol::document::Event;
use crate::protocol::value::Time;

const QUEUE: &str = "orders";

fn book(notes_max: usize) -> Book {
    Book::new(Limits { retention: Duration::from_secs(3_600), notes_max })
}

fn begin() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

fn job(number: u64) -> JobId {
    JobId::new(begin(), 1, 0, number)
}

/// Writes an event of this job, this many milliseconds after the begin.
fn tell(book: &Book, number: u64, key: &str, millis: u64) {
    let at = begin() + Duration::from_millis(millis);
    let event = Event { key: Some(Some(key)), ..Event::new("queued", job(number), QUEUE) };
    book.write(QUEUE, at, Event { at: Time(at), ..event }.line());
}

fn moments(page: &EventPage) -> Vec<i64> {
    let millis = |event: &Value| {
        let at = time::read(event["at"].as_str().unwrap()).unwrap();
        (at.as_micros() - begin().as_micros()) / 1_000
    };
    page.events.iter().map(millis).collect()
}

/// All pages.
async fn pages(store: &Memory, wanted: Wanted<'_>, rows_max: usize) -> Vec<i64> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    for _ in 0..1_000 {
        let wanted = Wanted { after: after.as_deref(), ..wanted };
        let next = page(store, wanted, rows_max).await.unwrap();
        assert!(next.events.len() <= rows_max);
        all.extend(moments(&next));
        after = next.next;
        if after.is_none() {
            return all;
        }
    }
    panic!("the pages have no end");
}

#[tokio::test]
async fn d14_all_nodes_tell_one_story_of_a_job() {
    let store = Memory::new();
    let (one, other) = (book(100), book(100));
    for i in 0..40 {
        tell(if i % 3 == 0 { &one } else { &other }, i % 2, "k", i * 10);
        if i % 7 == 0 {
            one.flush(&store).await.unwrap();
        }
    }
    other.flush(&store).await.unwrap();
    one.flush(&store).await.unwrap();
    let story = of_job(&store, QUEUE, job(1)).await.unwrap();
    assert_eq!(story.len(), 20);
    assert!(story.is_sorted_by_key(|event| event["at"].as_str().unwrap().to_owned()));
    assert!(of_job(&store, QUEUE, job(9)).await.unwrap().is_empty());
    assert!(of_job(&store, "order", job(1)).await.unwrap().is_empty());
    let notes = store.read_notes(NoteQuery::of("event/")).await.unwrap();
    assert_eq!(notes.len(), 2, "a note of each process, though they wrote often");
}

#[tokio::test]
async fn d14_pages_have_each_event_once_though_several_nodes_write() {
    let store = Memory::new();
    let books: Vec<Book> = (0..3).map(|_| book(10_000)).collect();
    let mut expected = Vec::new();
    for i in 0..1_500_u64 {
        // Five of each moment, over five minutes.
        let millis = i / 5 * 1_000;
        let key = if i % 4 == 0 { "a/\"ü" } else { "b" };
        tell(&books[(i % 3) as usize], i, key, millis);
        expected.push(millis as i64);
        if i % 100 == 0 {
            for book in &books {
                book.flush(&store).await.unwrap();
            }
        }
    }
    for book in &books {
        book.flush(&store).await.unwrap();
    }
    expected.reverse();
    for rows_max in [7, 1_000] {
        assert_eq!(pages(&store, Wanted::all(QUEUE), rows_max).await, expected);
    }
    let of_key = Wanted { key: Some("a/\"ü"), ..Wanted::all(QUEUE) };
    assert_eq!(pages(&store, of_key, 100).await.len(), 375);
    let at = |millis| Some(begin() + Duration::from_millis(millis));
    let some = Wanted { since: at(1_000), until: at(5_000), ..Wanted::all(QUEUE) };
    let times = pages(&store, some, 6).await;
    assert_eq!((times.len(), times[0], times[24]), (25, 5_000, 1_000));
    let wrong = Wanted { after: Some("x"), ..Wanted::all(QUEUE) };
    assert_eq!(page(&store, wrong, 1).await.unwrap_err().field(), Some("after"));
}

#[tokio::test]
async fn what_happened_to_a_key_is_found_among_very_many_notes_without_reading_them() {
    let store = Memory::with_clock(begin);
    let book = book(10_000);
    // A note for each, as each is a minute after the last.
    for i in 0..6_000_u64 {
        let key = if i % 2_000 == 7 { "rare" } else { "often" };
        tell(&book, i, key, i * 60_000);
    }
    book.flush(&store).await.unwrap();
    let minutes = [4_007, 2_007, 7].map(|minute| minute * 60_000);
    let rare = Wanted { key: Some("rare"), ..Wanted::all(QUEUE) };
    let found = page(&store, rare, 10).await.unwrap();
    assert_eq!((moments(&found), found.next), (minutes.to_vec(), None), "on one page");
    let (events, _) = latest(&store, rare, 10, READ_BYTES_MAX / 4).await.unwrap();
    assert_eq!(events.len(), 3, "also with a part of what may be read");
    let of_job = of_job(&store, QUEUE, job(9)).await.unwrap();
    assert_eq!(of_job[0]["job_id"], job(9).to_string());
    // Builds before this one wrote no marks.
    let marks = store.read_notes(NoteQuery::of("event-of/")).await.unwrap();
    store.delete_notes(NoteQuery::only(&marks[7].name)).await.unwrap();
    assert_eq!(pages(&store, rare, 10).await, minutes);
}

#[tokio::test]
async fn d14_the_oldest_events_of_a_queue_make_room_and_old_ones_are_forgotten() {
    let store = Memory::with_clock(begin);
    let book = book(1_100);
    let limits = book.limits().clone();
    // A note for each, as each is a minute after the last.
    for i in 0..1_500 {
        tell(&book, i, "k", i * 60_000);
    }
    book.flush(&store).await.unwrap();
    let other = Note::new("event/orders-2/0000000000000001-x", "{}");
    let beside = Note::new("evenu", "not the journal's");
    store.write_notes(vec![other, beside]).await.unwrap();
    let names = |prefix: &'static str| NoteQuery { names_only: true, ..NoteQuery::of(prefix) };
    let left = async |store: &Memory| {
        let first = store.read_notes(names("event/orders/")).await.unwrap();
        first.len() + pages(store, Wanted::all(QUEUE), 1_000).await.len()
    };
    trim(&store, &limits, begin()).await.unwrap();
    assert_eq!(left(&store).await, NOTES_MAX + 1_100);
    let end = begin() + Duration::from_secs(1_500 * 60);
    trim(&store, &limits, end).await.unwrap();
    assert_eq!(left(&store).await, 60 + 60, "an hour's");
    assert!(store.read_notes(names("event/orders-2")).await.unwrap().is_empty());
    assert_eq!(store.read_notes(names("event-of/")).await.unwrap().len(), 60, "their marks go too");
    assert_eq!(store.read_notes(names("evenu")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_is_lost_and_counted_and_a_store_that_is_away_loses_nothing() {
    let (store, book) = (Memory::new(), book(100));
    book.write(QUEUE, begin(), "x".repeat(seriatim::limits::NOTE_BYTES_MAX + 1));
    assert_eq!(book.lost(), 1);
    tell(&book, 1, "k", 0);
    let away = Memory::new();
    seriatim::store::Store::close(&away).await.unwrap();
    book.flush(&away).await.unwrap_err();
    tell(&book, 1, "k", 1);
    book.flush(&store).await.unwrap();
    book.flush(&store).await.unwrap();
    assert_eq!(of_job(&store, QUEUE, job(1)).await.unwrap().len(), 2);
    (0..200_000).for_each(|i| tell(&book, i, "k", 2));
    assert!(book.lost() > 1, "the wait is bounded");
}
