//! The notebook.

use seriatim::ErrorKind;
use seriatim::limits::{NOTE_BYTES_MAX, NOTE_NAME_BYTES_MAX, NOTES_BYTES_MAX, NOTES_MAX};
use seriatim::store::*;

use super::bench::*;
use super::case::{Case, listed};

pub(super) fn cases() -> Vec<Case> {
    listed![
        notes_are_read_in_the_order_of_their_names,
        notes_are_read_by_their_names,
        a_note_is_replaced_by_one_of_its_name,
        notes_of_a_range_are_deleted,
        a_note_that_does_not_fit_is_refused_with_all_of_its_call,
    ]
}

async fn write(bench: &Bench, names: &[&str]) {
    let notes = names.iter().map(|name| Note::new(*name, format!("value of {name}"))).collect();
    bench.store.write_notes(notes).await.unwrap();
}

async fn names(bench: &Bench, query: NoteQuery) -> Vec<String> {
    let notes = bench.store.read_notes(query).await.unwrap();
    notes.into_iter().map(|note| note.name).collect()
}

async fn notes_are_read_in_the_order_of_their_names(bench: Bench) {
    write(&bench, &["b/2", "a", "b/10", "B/1", "b0", "~", "b/2~"]).await;
    assert_eq!(
        names(&bench, NoteQuery::new("".."\x7f")).await,
        ["B/1", "a", "b/10", "b/2", "b/2~", "b0", "~"]
    );
    assert_eq!(names(&bench, NoteQuery::of("b/")).await, ["b/10", "b/2", "b/2~"]);
    assert_eq!(names(&bench, NoteQuery::new("a".."b/2")).await, ["a", "b/10"]);
    let last = NoteQuery { backwards: true, rows_max: 2, ..NoteQuery::of("b") };
    assert_eq!(names(&bench, last).await, ["b0", "b/2~"]);
    assert!(names(&bench, NoteQuery::new("z".."a")).await.is_empty());
    for backwards in [false, true] {
        let bare = NoteQuery { names_only: true, backwards, ..NoteQuery::of("b/") };
        let notes = bench.store.read_notes(bare.clone()).await.unwrap();
        assert!(notes.iter().all(|note| note.value.is_empty()), "{notes:?}");
        assert_eq!(notes.len(), names(&bench, bare).await.len());
        assert_eq!(notes.len(), 3);
    }
}

async fn notes_are_read_by_their_names(bench: Bench) {
    write(&bench, &["b/2", "a", "b/10", "~"]).await;
    let read = async |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let notes = bench.store.named_notes(names).await.unwrap();
        notes.into_iter().map(|note| (note.name, String::from_utf8(note.value).unwrap())).collect()
    };
    let of = |name: &str| (name.to_owned(), format!("value of {name}"));
    let found: Vec<_> = read(&["~", "unknown", "b/10", "b/2", "b/", "~", ""]).await;
    assert_eq!(found, [of("b/10"), of("b/2"), of("~")]);
    assert_eq!(read(&[]).await, Vec::<(String, String)>::new());
    let many = (0..=NOTES_MAX).map(|i| i.to_string()).collect();
    let refused = bench.store.named_notes(many).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

async fn a_note_is_replaced_by_one_of_its_name(bench: Bench) {
    let bytes = [0_u8, 255, b'\'', b'\\', 10];
    let notes = vec![Note::new("n", "one"), Note::new("n", "two"), Note::new("m", bytes)];
    bench.store.write_notes(notes).await.unwrap();
    let read = || async { bench.store.read_notes(NoteQuery::of("")).await.unwrap() };
    assert_eq!(read().await, [Note::new("m", bytes), Note::new("n", "two")]);
    bench.store.write_notes(vec![Note::new("n", "")]).await.unwrap();
    bench.store.write_notes(Vec::new()).await.unwrap();
    assert_eq!(read().await, [Note::new("m", bytes), Note::new("n", "")]);
}

async fn notes_of_a_range_are_deleted(bench: Bench) {
    write(&bench, &["a/1", "a/2", "a/3", "b/1"]).await;
    let oldest = NoteQuery { rows_max: 2, ..NoteQuery::of("a/") };
    assert_eq!(bench.store.delete_notes(oldest).await.unwrap(), 2);
    assert_eq!(names(&bench, NoteQuery::of("")).await, ["a/3", "b/1"]);
    let last = NoteQuery { backwards: true, rows_max: 1, ..NoteQuery::of("") };
    assert_eq!(bench.store.delete_notes(last).await.unwrap(), 1);
    assert_eq!(bench.store.delete_notes(NoteQuery::of("a/")).await.unwrap(), 1);
    assert_eq!(bench.store.delete_notes(NoteQuery::of("")).await.unwrap(), 0);
}

async fn a_note_that_does_not_fit_is_refused_with_all_of_its_call(bench: Bench) {
    let long = "n".repeat(NOTE_NAME_BYTES_MAX);
    for name in ["", "a b", "ä", "a\n", &format!("{long}n")] {
        let notes = vec![Note::new("good", "x"), Note::new(name, "x")];
        let refused = bench.store.write_notes(notes).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.field()),
            (ErrorKind::Invalid, Some("name")),
            "{name:?}"
        );
    }
    let large = vec![Note::new("good", "x"), Note::new("n", vec![b'x'; NOTE_BYTES_MAX + 1])];
    assert_eq!(bench.store.write_notes(large).await.unwrap_err().field(), Some("value"));
    let many = (0..=NOTES_MAX).map(|i| Note::new(i.to_string(), "")).collect();
    assert_eq!(bench.store.write_notes(many).await.unwrap_err().field(), Some("notes"));
    let much = NOTES_BYTES_MAX / NOTE_BYTES_MAX;
    let much = (0..=much).map(|i| Note::new(i.to_string(), vec![b'x'; NOTE_BYTES_MAX])).collect();
    assert_eq!(bench.store.write_notes(much).await.unwrap_err().field(), Some("notes"));
    assert!(names(&bench, NoteQuery::of("")).await.is_empty());
    let most = (0..NOTES_MAX).map(|i| Note::new(format!("{i:04}"), vec![7; 100])).collect();
    bench.store.write_notes(most).await.unwrap();
    bench
        .store
        .write_notes(vec![Note::new(long.clone(), vec![255; NOTE_BYTES_MAX])])
        .await
        .unwrap();
    assert_eq!(names(&bench, NoteQuery::of("0")).await.len(), NOTES_MAX);
    assert_eq!(names(&bench, NoteQuery::of("n")).await, [long]);
}
