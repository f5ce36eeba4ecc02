//! Deeds of people and programs, as the store remembers them: who changed what, when.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::Timestamp;
use seriatim::limits::NOTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};

/// Deeds that a store remembers, and how long.
const DEEDS_MAX: usize = 100_000;
const KEPT_FOR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A change: who, what, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Deed {
    /// When, in UTC
    pub(crate) at: String,
    /// The name of the token
    pub(crate) who: String,
    #[serde(default)]
    pub(crate) role: Option<String>,
    #[serde(default)]
    pub(crate) from: Option<String>,
    pub(crate) action: String,
    /// To what, by name: `queue`, `key`, `job`, …
    #[serde(default)]
    pub(crate) on: BTreeMap<String, String>,
    /// What was asked for, in short.
    #[serde(default)]
    pub(crate) asked: Option<String>,
    #[serde(default)]
    pub(crate) status: u16,
    /// How many objects it changed.
    #[serde(default)]
    pub(crate) count: Option<u64>,
    #[serde(default)]
    pub(crate) request_id: Option<String>,
}

/// A page of deeds, the latest first, and where the next page begins.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) deeds: Vec<Deed>,
    pub(crate) next: Option<String>,
}

/// Whose deeds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'a> {
    All,
    /// Those that name this key or this job.
    Object(&'a str),
}

impl Of<'_> {
    fn prefix(self) -> String {
        match self {
            Self::All => "audit/".to_owned(),
            Self::Object(name) => {
                let hash = blake3::hash(name.as_bytes()).to_hex();
                format!("audit-of/{}/", &hash[..24])
            }
        }
    }
}

/// The names of the notes of a deed: in the order of time, and under what it was done to.
fn names(deed: &Deed, suffix: &str) -> Vec<String> {
    let objects = ["key", "job", "job_id"].iter().filter_map(|name| deed.on.get(*name));
    let of = objects.map(|object| Of::Object(object).prefix());
    std::iter::once(Of::All.prefix()).chain(of).map(|prefix| prefix + suffix).collect()
}

/// Remembers a deed.
pub(crate) async fn keep(store: &dyn Store, deed: &Deed, now: Timestamp) -> seriatim::Result<()> {
    // Two deeds of one moment have different names.
    let suffix = format!("{:016}-{:08x}", now.as_micros(), fastrand::u32(..));
    let value = serde_json::to_vec(deed).unwrap_or_default();
    let notes = names(deed, &suffix).into_iter().map(|name| Note::new(name, value.clone()));
    store.write_notes(notes.collect()).await
}

/// The latest deeds; `after` is `next` of the page before.
pub(crate) async fn latest(
    store: &dyn Store,
    of: Of<'_>,
    after: Option<&str>,
    rows_max: usize,
) -> seriatim::Result<Page> {
    let prefix = of.prefix();
    let suffix = |name: &str| name.strip_prefix(&prefix).unwrap_or_default().to_owned();
    let end = match after {
        Some(after) if after.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') => {
            format!("{prefix}{after}")
        }
        _ => format!("{prefix}\x7f"),
    };
    let query = NoteQuery { backwards: true, rows_max, ..NoteQuery::new(prefix.clone()..end) };
    let notes = store.read_notes(query).await?;
    let is_full = notes.len() == rows_max.min(NOTES_MAX);
    let next = notes.last().filter(|_| is_full).map(|note| suffix(&note.name));
    let deeds = notes.iter().filter_map(|note| serde_json::from_slice(&note.value).ok());
    Ok(Page { deeds: deeds.collect(), next })
}

/// Forgets what is too old or too much.
pub(crate) async fn trim(store: &dyn Store, now: Timestamp) -> seriatim::Result<()> {
    let mut count = 0;
    let mut query = NoteQuery::of(&Of::All.prefix());
    loop {
        let notes = store.read_notes(query.clone()).await?;
        let Some(last) = notes.last() else { break };
        count += notes.len();
        query.from = format!("{} ", last.name);
    }
    let oldest = format!("{}{:016}", Of::All.prefix(), (now - KEPT_FOR).as_micros());
    let mut surplus = count.saturating_sub(DEEDS_MAX);
    loop {
        let first = NoteQuery::of(&Of::All.prefix());
        let notes = store.read_notes(first).await?;
        let old: Vec<&Note> = (notes.iter().enumerate())
            .take_while(|(i, note)| *i < surplus || note.name < oldest)
            .map(|(_, note)| note)
            .collect();
        for note in &old {
            forget(store, note).await?;
        }
        surplus = surplus.saturating_sub(old.len());
        if old.len() < notes.len() || notes.is_empty() {
            return Ok(());
        }
    }
}

async fn forget(store: &dyn Store, note: &Note) -> seriatim::Result<()> {
    let suffix = note.name.strip_prefix(&Of::All.prefix()).unwrap_or_default();
    let mut all = vec![note.name.clone()];
    if let Ok(deed) = serde_json::from_slice(&note.value) {
        all = names(&deed, suffix);
    }
    for name in all {
        store.delete_notes(NoteQuery::new(name.clone()..format!("{name} "))).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use seriatim::store::{Memory, Notebook};

    use super::*;

    fn deed(action: &str, on: &[(&str, &str)]) -> Deed {
        Deed {
            at: "2026-01-31T12:00:00Z".to_owned(),
            who: "ops".to_owned(),
            role: None,
            from: None,
            action: action.to_owned(),
            on: on.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            asked: None,
            status: 200,
            count: None,
            request_id: None,
        }
    }

    async fn actions(store: &Memory, of: Of<'_>) -> Vec<String> {
        let page = latest(store, of, None, 100).await.unwrap();
        page.deeds.into_iter().map(|deed| deed.action).collect()
    }

    #[tokio::test]
    async fn deeds_are_found_by_what_they_were_done_to_and_page_by_page() {
        let store = Memory::new();
        let at = |i: i64| Timestamp::from_micros(1_700_000_000_000_000 + i);
        for i in 0..5 {
            let key = if i % 2 == 0 { "a/b ü" } else { "c" };
            keep(&store, &deed(&format!("deed {i}"), &[("key", key)]), at(i)).await.unwrap();
        }
        assert_eq!(actions(&store, Of::Object("a/b ü")).await, ["deed 4", "deed 2", "deed 0"]);
        let first = latest(&store, Of::All, None, 2).await.unwrap();
        assert_eq!(
            first.deeds.iter().map(|deed| &*deed.action).collect::<Vec<_>>(),
            ["deed 4", "deed 3"]
        );
        let second = latest(&store, Of::All, first.next.as_deref(), 3).await.unwrap();
        assert_eq!(second.deeds.len(), 3);
        assert_eq!(second.deeds[0].action, "deed 2");
    }

    #[tokio::test]
    async fn what_is_older_than_a_year_is_forgotten_under_each_of_its_names() {
        let store = Memory::new();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        keep(&store, &deed("old", &[("key", "k")]), now - KEPT_FOR - Duration::from_secs(1))
            .await
            .unwrap();
        keep(&store, &deed("new", &[("key", "k"), ("job_id", "j")]), now).await.unwrap();
        trim(&store, now).await.unwrap();
        assert_eq!(actions(&store, Of::All).await, ["new"]);
        assert_eq!(actions(&store, Of::Object("k")).await, ["new"]);
        assert_eq!(store.read_notes(NoteQuery::of("audit")).await.unwrap().len(), 3);
    }
}
