//! Deeds of people and programs, as the store remembers them: who changed what, when.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use seriatim::Timestamp;
use seriatim::limits::NOTES_MAX;
use seriatim::store::{Note, NoteQuery, Store};

use super::notes;

/// Deeds that a store remembers, and how long.
const DEEDS_MAX: usize = 100_000;
const KEPT_FOR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A change: who, what, when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// When it was noted, which is what orders them.
    #[serde(skip)]
    pub(crate) noted_at: Timestamp,
}

/// Verbs of deeds, and what they did.
const DONE: [(&str, &str); 23] = [
    ("bind", "bound"),
    ("bury", "buried"),
    ("cancel", "cancelled"),
    ("define", "defined"),
    ("delete", "deleted"),
    ("edit", "edited and requeued"),
    ("group", "set the groups of"),
    ("limits", "limited"),
    ("pause", "paused"),
    ("push", "pushed"),
    ("quiet", "quieted"),
    ("release", "took the claim on"),
    ("requeue", "requeued"),
    ("reschedule", "rescheduled"),
    ("restore", "restored the limits of"),
    ("resume", "resumed"),
    ("retry", "set"),
    ("run", "ran"),
    ("seal", "sealed"),
    ("start", "started"),
    ("stop", "stopped"),
    ("take", "took"),
    ("ungroup", "removed groups of"),
];
/// What a deed is about: the first that it names.
const ABOUT: [(&str, &str); 10] = [
    ("key", "key"),
    ("job", "job"),
    ("job_id", "job"),
    ("lane", "lane"),
    ("cron", "cron entry"),
    ("node", "node"),
    ("batch", "batch"),
    ("bridge", "bridge"),
    ("operation", "operation"),
    ("name", ""),
];

impl Deed {
    /// What was done, after the name of who did it: `paused key order-58 of orders: the address is wrong`.
    pub(crate) fn in_words(&self) -> String {
        let mut on = self.on.clone();
        let (noun, verb) = self.action.split_once(' ').unwrap_or((&self.action, ""));
        let done = DONE.iter().find(|(known, _)| *known == verb).map(|(_, done)| *done);
        // How an operation ended: `done`, `failed` or `stopped`, and who asked it to stop.
        let end =
            verb.split(' ').next().filter(|_| noun == "operation").and_then(|end| match end {
                "done" => Some("finished".to_owned()),
                "stopped" => Some(format!("was {verb}")),
                "failed" => Some(end.to_owned()),
                _ => None,
            });
        let mut words = match (noun, verb, done) {
            ("operation", ..) if end.is_some() => String::new(),
            ("operation", "start", _) => "started an operation".to_owned(),
            ("operation", verb, _) if verb != "stop" => {
                format!("started to {}", verb.replace('_', " "))
            }
            (.., Some(done)) => done.to_owned(),
            _ => self.action.clone(),
        };
        words += match (noun, verb) {
            ("morgue", _) => " dead jobs",
            ("lane", "delete") => " waiting jobs",
            _ => "",
        };
        // An operation may be about one key.
        let operation = if noun == "operation" { on.remove("operation") } else { None };
        let about = operation
            .map(|id| ("operation", id))
            .or_else(|| ABOUT.iter().find_map(|(name, said)| Some((*said, on.remove(*name)?))));
        let of = match () {
            () if words.starts_with("started") => "in",
            () if about.is_some() || words.ends_with("jobs") => "of",
            () => "queue",
        };
        if let Some((said, name)) = about {
            let link = match &*words {
                "" => "",
                jobs if jobs.ends_with("jobs") => " of ",
                _ => " ",
            };
            let said = if said.is_empty() { noun } else { said };
            words += &format!("{link}{said} {name}");
        }
        words += &on.remove("queue").map(|queue| format!(" {of} {queue}")).unwrap_or_default();
        words += &end.map(|end| format!(" {end}")).unwrap_or_default();
        words += if verb == "retry" && noun != "operation" { " to run now" } else { "" };
        words += &on.remove("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        let more = on.iter().map(|(name, value)| format!("{name} {value}"));
        let more: Vec<String> = more.chain(self.asked.clone()).collect();
        if more.is_empty() { words } else { format!("{words} ({})", more.join(", ")) }
    }

    /// The queues that it names: several only of an operation and a definition of several.
    fn queues(&self) -> impl Iterator<Item = &str> {
        let several = self.on.get("queues").into_iter().flat_map(|names| names.split(','));
        self.on.get("queue").map(String::as_str).into_iter().chain(several)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.status >= 400
    }

    /// How it ended, in words.
    pub(crate) fn result(&self) -> String {
        match self.status {
            0..400 => "done".to_owned(),
            status => format!("refused ({status})"),
        }
    }
}

/// A page of the audit log, the latest action first.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "AuditPage")]
pub(crate) struct Page {
    pub(crate) entries: Vec<Deed>,
    /// The `after` of the next page
    pub(crate) next: Option<String>,
}

/// Which deeds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// Those that name this key, job, queue, node or cron entry.
    pub(crate) of: Option<&'a str>,
    pub(crate) queue: Option<&'a str>,
    /// Those of this person or token.
    pub(crate) who: Option<&'a str>,
    /// Those whose name has this text.
    pub(crate) action: Option<&'a str>,
    pub(crate) since: Option<Timestamp>,
    /// Up to then.
    pub(crate) until: Option<Timestamp>,
    /// `next` of the page before.
    pub(crate) after: Option<&'a str>,
}

impl Wanted<'_> {
    /// Whether no name of notes has all conditions.
    fn is_filtered(&self) -> bool {
        self.of.is_some() && self.queue.is_some() || self.who.is_some() || self.action.is_some()
    }

    fn has(&self, deed: &Deed) -> bool {
        let of_queue = |queue: &str| deed.queues().any(|on| on == queue);
        self.who.is_none_or(|who| deed.who == who)
            && self.action.is_none_or(|action| deed.action.contains(action))
            && (self.of.is_none() || self.queue.is_none_or(of_queue))
    }
}

/// Notes that a page of several conditions reads at most, and in one step.
const READ_MAX: usize = 5_000;
const STEP: usize = 250;
/// What a deed is found by.
const OBJECTS: [&str; 9] =
    ["key", "job", "job_id", "queue", "node", "cron", "bridge", "name", "lane"];

/// Where deeds are noted.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    All,
    /// Those that name this object.
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
    let objects = OBJECTS.iter().filter_map(|name| deed.on.get(*name)).map(String::as_str);
    let of = objects.chain(deed.queues()).map(|object| Of::Object(object).prefix());
    let mut names: Vec<String> =
        std::iter::once(Of::All.prefix()).chain(of).map(|prefix| prefix + suffix).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Remembers a deed, by the store's clock: those of all nodes are in one order.
pub(crate) async fn keep(store: &dyn Store, deed: &Deed) -> seriatim::Result<()> {
    keep_at(store, deed, store.now().await?).await
}

pub(crate) async fn keep_at(
    store: &dyn Store,
    deed: &Deed,
    now: Timestamp,
) -> seriatim::Result<()> {
    // Two deeds of one moment have different names.
    let suffix = format!("{}-{:08x}", notes::moment(now), fastrand::u32(..));
    let value = serde_json::to_vec(deed).unwrap_or_default();
    let notes = names(deed, &suffix).into_iter().map(|name| Note::new(name, value.clone()));
    store.write_notes(notes.collect()).await
}

/// The latest deeds. A page of several conditions may be short, or empty, although there is a next one.
pub(crate) async fn latest(
    store: &dyn Store,
    wanted: Wanted<'_>,
    rows_max: usize,
) -> seriatim::Result<Page> {
    let prefix = wanted.of.or(wanted.queue).map_or(Of::All, Of::Object).prefix();
    let suffix = |name: &str| suffix_of(name, &prefix).to_owned();
    let begin = wanted.since.map(notes::moment);
    let is_cursor =
        |after: &&str| after.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let last = wanted.until.map(|until| format!("{prefix}{}~", notes::moment(until)));
    let behind = wanted.after.filter(is_cursor).map(|after| format!("{prefix}{after}"));
    let mut end = last.into_iter().chain(behind).min().unwrap_or_else(|| format!("{prefix}\x7f"));
    let is_filtered = wanted.is_filtered();
    let fits = |deed: &Deed| !is_filtered || wanted.has(deed);
    let most = if is_filtered { STEP } else { rows_max.min(NOTES_MAX) };
    let (mut deeds, mut read) = (Vec::new(), 0);
    loop {
        let names = format!("{prefix}{}", begin.as_deref().unwrap_or_default())..end.clone();
        let query = NoteQuery { backwards: true, rows_max: most, ..NoteQuery::new(names) };
        let notes = store.read_notes(query).await?;
        read += notes.len();
        for note in &notes {
            deeds.extend(read_note(note, &prefix).filter(fits));
            if deeds.len() >= rows_max {
                return Ok(Page { entries: deeds, next: Some(suffix(&note.name)) });
            }
        }
        let Some(last) = notes.last().filter(|_| notes.len() == most) else {
            return Ok(Page { entries: deeds, next: None });
        };
        if read >= READ_MAX {
            return Ok(Page { entries: deeds, next: Some(suffix(&last.name)) });
        }
        end.clone_from(&last.name);
    }
}

/// The deed of a note; the end of its name has the time.
fn read_note(note: &Note, prefix: &str) -> Option<Deed> {
    let deed: Deed = serde_json::from_slice(&note.value).ok()?;
    let micros = suffix_of(&note.name, prefix).split('-').next()?.parse().ok();
    Some(Deed { noted_at: micros.map(Timestamp::from_micros).unwrap_or_default(), ..deed })
}

fn suffix_of<'a>(name: &'a str, prefix: &str) -> &'a str {
    name.strip_prefix(prefix).unwrap_or_default()
}

/// Those that fit among the latest, read in one step.
pub(crate) async fn step(store: &dyn Store, wanted: Wanted<'_>) -> seriatim::Result<Vec<Deed>> {
    let prefix = wanted.of.or(wanted.queue).map_or(Of::All, Of::Object).prefix();
    let query = NoteQuery { backwards: true, rows_max: NOTES_MAX, ..NoteQuery::of(&prefix) };
    let notes = store.read_notes(query).await?;
    let deeds = notes.iter().filter_map(|note| read_note(note, &prefix));
    Ok(deeds.filter(|deed| wanted.has(deed)).collect())
}

/// Forgets what is too old or too much.
pub(crate) async fn trim(store: &dyn Store, now: Timestamp) -> seriatim::Result<()> {
    let count = notes::count(store, &Of::All.prefix()).await?;
    let oldest = Of::All.prefix() + &notes::moment(now - KEPT_FOR);
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
    let (prefix, mut all) = (Of::All.prefix(), vec![note.name.clone()]);
    if let Ok(deed) = serde_json::from_slice(&note.value) {
        all = names(&deed, suffix_of(&note.name, &prefix));
    }
    for name in all {
        store.delete_notes(NoteQuery::only(&name)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
            noted_at: Timestamp::default(),
        }
    }

    async fn actions(store: &Memory, wanted: Wanted<'_>) -> Vec<String> {
        let page = latest(store, wanted, 100).await.unwrap();
        page.entries.into_iter().map(|deed| deed.action).collect()
    }

    fn of(object: &str) -> Wanted<'_> {
        Wanted { of: Some(object), ..Wanted::default() }
    }

    #[test]
    fn a_deed_is_told_in_words() {
        let told = |action, on: &[(&str, &str)]| deed(action, on).in_words();
        let of_key = [("key", "order-58"), ("queue", "orders"), ("reason", "the address is wrong")];
        assert_eq!(
            told("lane pause", &of_key),
            "paused key order-58 of orders: the address is wrong"
        );
        assert_eq!(
            told("lane delete", &of_key[..2]),
            "deleted waiting jobs of key order-58 of orders"
        );
        assert_eq!(told("queue resume", &of_key[1..2]), "resumed queue orders");
        assert_eq!(told("morgue requeue", &of_key[1..2]), "requeued dead jobs of orders");
        let many = [("queue", "orders"), ("prefix", "order-")];
        assert_eq!(
            told("operation delete_dead", &many),
            "started to delete dead in orders (prefix order-)"
        );
        let ended = [("operation", "7-a"), ("key", "k"), ("queue", "orders")];
        let told_end = told("operation done", &ended);
        assert_eq!(told_end, "operation 7-a of orders finished (key k)");
        let told_end = told("operation stopped by ann", &ended[..1]);
        assert_eq!(told_end, "operation 7-a was stopped by ann");
        let told_end = told("operation done by ann", &ended[..1]);
        assert_eq!(told_end, "operation 7-a finished", "too late to stop it");
        assert_eq!(told("operation failed", &ended[..1]), "operation 7-a failed");
        assert_eq!(told("operation start", &ended[2..]), "started an operation in orders");
        assert_eq!(told("lane retry", &of_key[..2]), "set key order-58 of orders to run now");
        assert_eq!(told("operation stop", &ended[..1]), "stopped operation 7-a");
        let limits = [("queue", "orders"), ("limits", r#"{"limit":{"running":5}}"#)];
        assert_eq!(
            told("queue restore", &limits),
            r#"restored the limits of queue orders (limits {"limit":{"running":5}})"#
        );
        assert_eq!(told("cron run", &[("name", "tick")]), "ran cron tick");
        assert_eq!(told("login", &[]), "login");
    }

    #[tokio::test]
    async fn deeds_are_found_by_what_they_were_done_to_and_page_by_page() {
        let store = Memory::new();
        let at = |i: i64| Timestamp::from_micros(1_700_000_000_000_000 + i);
        for i in 0..5 {
            let key = if i % 2 == 0 { "a/b ü" } else { "c" };
            keep_at(&store, &deed(&format!("deed {i}"), &[("key", key)]), at(i)).await.unwrap();
        }
        assert_eq!(actions(&store, of("a/b ü")).await, ["deed 4", "deed 2", "deed 0"]);
        let first = latest(&store, Wanted::default(), 2).await.unwrap();
        assert_eq!(
            first.entries.iter().map(|deed| &*deed.action).collect::<Vec<_>>(),
            ["deed 4", "deed 3"]
        );
        let second =
            latest(&store, Wanted { after: first.next.as_deref(), ..Wanted::default() }, 3)
                .await
                .unwrap();
        assert_eq!(second.entries.len(), 3);
        assert_eq!(second.entries[0].action, "deed 2");
    }

    #[tokio::test]
    async fn a_time_beyond_all_that_stores_keep_is_later_than_each_deed() {
        let store = Memory::new();
        keep(&store, &deed("deed", &[])).await.unwrap();
        let far = Some(Timestamp::from_micros(16_725_225_600_000_000));
        assert_eq!(actions(&store, Wanted { until: far, ..Wanted::default() }).await, ["deed"]);
        let since = Wanted { since: far, ..Wanted::default() };
        assert_eq!(actions(&store, since).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn deeds_of_a_key_are_listed_by_queue_and_time_over_all_pages() {
        let store = Memory::new();
        let at = |i: i64| Timestamp::from_micros(1_700_000_000_000_000 + i);
        for i in 0..20 {
            let queue = if i % 5 == 0 { "orders" } else { "mails" };
            let on = [("key", "k"), ("queue", queue)];
            keep_at(&store, &deed(&format!("deed {i}"), &on), at(i)).await.unwrap();
        }
        let both = Wanted { queue: Some("orders"), since: Some(at(5)), ..of("k") };
        assert_eq!(actions(&store, both).await, ["deed 15", "deed 10", "deed 5"]);
        let first = latest(&store, both, 2).await.unwrap();
        assert_eq!(first.entries.len(), 2);
        let rest =
            latest(&store, Wanted { after: first.next.as_deref(), ..both }, 2).await.unwrap();
        assert_eq!(rest.entries[0].action, "deed 5");
        let of_queue = Wanted { queue: Some("orders"), ..Wanted::default() };
        assert_eq!(actions(&store, of_queue).await.len(), 4);
        let until = Wanted { until: Some(at(6)), since: Some(at(4)), ..Wanted::default() };
        assert_eq!(actions(&store, until).await, ["deed 6", "deed 5", "deed 4"]);
        let named = Wanted { action: Some("deed 1"), queue: Some("mails"), ..Wanted::default() };
        assert_eq!(actions(&store, named).await.len(), 9, "1, 11 to 14 and 16 to 19");
        let who = |who| Wanted { who: Some(who), ..of_queue };
        assert_eq!(actions(&store, who("ops")).await.len(), 4);
        assert_eq!(actions(&store, who("nobody")).await.len(), 0);
    }

    #[tokio::test]
    async fn what_is_older_than_a_year_is_forgotten_under_each_of_its_names() {
        let store = Memory::new();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        keep_at(&store, &deed("old", &[("key", "k")]), now - KEPT_FOR - Duration::from_secs(1))
            .await
            .unwrap();
        keep_at(&store, &deed("new", &[("key", "k"), ("job_id", "j")]), now).await.unwrap();
        trim(&store, now).await.unwrap();
        assert_eq!(actions(&store, Wanted::default()).await, ["new"]);
        assert_eq!(actions(&store, of("k")).await, ["new"]);
        assert_eq!(store.read_notes(NoteQuery::of("audit")).await.unwrap().len(), 3);
    }
}
