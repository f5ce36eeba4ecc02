//! What happened to a key, in all queues: turns and jobs, and what people did.

use std::cmp::Reverse;
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use seriatim::Timestamp;
use seriatim::store::Store;
use seriatim::text::one_line;

use super::super::events::{self, OfQueue};
use super::super::{Query, Result, Shared};
use super::{Frame, Moment, Visit, link, page};
use crate::app::deeds::{self, Deed, Wanted};
use crate::base::time::{self, absolute};
use crate::journal::Start;
use crate::protocol::value::Time;

/// Rows shown.
const ROWS_MAX: usize = 50;
/// Deeds that a page reads: of another object with the key's name, there may be any number.
const DEEDS_READ_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    k: String,
    /// Only what happened until then
    until: Option<Time>,
    /// Continue after this
    after: Option<String>,
}

#[derive(Template)]
#[template(path = "timeline.html", blocks = ["live"])]
struct Timeline<'a> {
    frame: &'a Frame,
    /// The key on one line.
    name: String,
    key_href: String,
    rows: Vec<Row>,
    /// Whether these are the latest.
    is_first: bool,
    /// What happened before.
    next: Option<String>,
    jobs: String,
    audit: Option<String>,
    search: String,
    /// Queues without a journal, known only from the store.
    without_journal: Vec<String>,
    /// Queues whose journal was not asked.
    not_asked: usize,
}

page!(Timeline);

/// Rows of several sources, and from when on they are all there.
struct Merged {
    rows: Vec<(Timestamp, Row)>,
    complete: Timestamp,
    /// As many as are needed of each source.
    most: usize,
}

impl Merged {
    /// Adds those of a source: as many as are needed, or all from this time on.
    fn add(&mut self, rows: impl IntoIterator<Item = (Timestamp, Row)>, complete: Timestamp) {
        let before = self.rows.len();
        self.rows.extend(rows);
        if self.rows.len() - before < self.most {
            self.complete = self.complete.max(complete);
        }
    }

    /// Those of a page, and where the next one begins. What is older than all that was read waits for it, or it would stand
    /// before what has not been read yet.
    fn page(self, start: Start) -> (Vec<Row>, Option<Start>) {
        let Self { mut rows, complete, .. } = self;
        rows.retain(|(at, _)| *at >= complete);
        rows.sort_by_key(|(at, _)| Reverse(*at));
        let end = start.behind + ROWS_MAX;
        let more = rows.len() > end;
        rows.truncate(end);
        let next = Start::next(&rows, |(at, _)| *at, more, (complete, Timestamp::default()));
        (rows.into_iter().skip(start.behind).map(|(_, row)| row).collect(), next)
    }
}

struct Row {
    at: Moment,
    queue: String,
    what: String,
    /// The job, and its page.
    job: Option<(String, String)>,
    attempt: String,
    /// The node, or the person.
    who: String,
    /// An error, or how a deed ended.
    text: String,
    /// It is an error, or the deed was refused.
    is_bad: bool,
}

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { k, until, after }): Query<Wish>,
) -> Result<Response> {
    let (name, until) = (one_line(&k), until.map(|Time(until)| until));
    let start = match &after {
        Some(after) => Start::read(after)?,
        None => Start { at: until.unwrap_or(Timestamp::MAX), behind: 0 },
    };
    let most = start.behind + ROWS_MAX + 1;
    let mut rows = Merged { rows: Vec::new(), complete: Timestamp::default(), most };
    let may_see = |queue: &str| visit.scope.has_queue(queue);
    let known = events::of_key(&app, &k, start.at, most, may_see).await?;
    for OfQueue { queue, events, complete } in known.queues {
        let of_queue = events.iter().map(|(at, event)| (*at, row_of(&visit, &queue, *at, event)));
        rows.add(of_queue, complete);
    }
    if !visit.scope.is_limited() {
        let (deeds, complete) = deeds_of(&*app.store, &name, start.at, most).await?;
        let of_deeds = deeds.into_iter().filter_map(|deed| row_of_deed(&visit, deed));
        rows.add(of_deeds, complete);
    }
    let (rows, next) = rows.page(start);
    let base = &visit.frame.base;
    let (until_text, path) =
        (until.map(absolute).unwrap_or_default(), format!("{base}/key/events"));
    let to = |next: Start| {
        link::with(&path, &[("k", &k), ("until", &until_text), ("after", &next.text())])
    };
    visit.show(&Timeline {
        frame: &visit.frame,
        key_href: link::key(base, &k),
        jobs: link::with(&format!("{base}/jobs"), &[("key", &k)]),
        audit: visit.audit(&name),
        search: link::search_all(base, &k),
        is_first: until.is_none() && after.is_none(),
        next: next.map(to),
        name,
        rows,
        without_journal: known.without_journal,
        not_asked: known.not_asked,
    })
}

/// Deeds on the key, the last one first, and the time from which on they are all there if they are fewer than `most`.
async fn deeds_of(
    store: &dyn Store,
    key: &str,
    until: Timestamp,
    most: usize,
) -> seriatim::Result<(Vec<Deed>, Timestamp)> {
    let (mut found, mut read, mut after) = (Vec::new(), 0, None::<String>);
    loop {
        let of = Wanted { of: Some(key), until: Some(until), ..Wanted::default() };
        let wanted = Wanted { after: after.as_deref(), ..of };
        let page = deeds::latest(store, wanted, most).await?;
        let last = page.entries.last().map(|deed| deed.noted_at);
        read += page.entries.len();
        // A queue or a node may have the same name.
        found.extend(
            page.entries.into_iter().filter(|deed| deed.on.get("key").is_some_and(|on| on == key)),
        );
        let (Some(last), Some(next)) = (last, page.next) else {
            return Ok((found, Timestamp::default()));
        };
        if found.len() >= most || read >= DEEDS_READ_MAX {
            // There may be others of that moment.
            return Ok((found, last + Duration::from_micros(1)));
        }
        after = Some(next);
    }
}

fn row_of(visit: &Visit, queue: &str, at: Timestamp, event: &Value) -> Row {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let id = text("job_id");
    let job = id.parse().ok().map(|job| (id, link::job(&visit.frame.base, job)));
    let attempt = event["attempt"].as_u64().map(|attempt| attempt.to_string());
    Row {
        at: visit.clock.of(at),
        queue: queue.to_owned(),
        what: text("event"),
        job,
        attempt: attempt.unwrap_or_default(),
        who: text("node"),
        text: text("error"),
        is_bad: true,
    }
}

fn row_of_deed(visit: &Visit, mut deed: Deed) -> Option<(Timestamp, Row)> {
    let (at, noted_at) = (time::read(&deed.at).ok()?, deed.noted_at);
    let reason = deed.on.remove("reason").filter(|reason| !reason.is_empty());
    let (result, is_bad) = (deed.result(), deed.is_refused());
    let row = Row {
        at: visit.clock.of(at),
        queue: deed.on.remove("queue").unwrap_or_default(),
        what: deed.action,
        job: None,
        attempt: String::new(),
        is_bad,
        who: deed.who,
        text: reason.map_or(result.clone(), |reason| format!("{result}: {reason}")),
    };
    Some((noted_at, row))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{Declare, Memory, Note, Push};
    use seriatim::{Job, JobId, Queue, SharedStore};

    use super::super::super::metrics::store::Metered;
    use super::super::super::router::build;
    use super::super::super::state::{App, Setup};
    use super::*;
    use crate::journal::{Book, Journal, Limits};
    use crate::protocol::document::Event;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn minutes_ago(minutes: u64) -> Timestamp {
        NOW - Duration::from_secs(60 * minutes)
    }

    /// A note of the journal with one event.
    fn note(queue: &str, key: &str, at: Timestamp) -> Note {
        let job = JobId::new(at, 1, 0, 1);
        let event =
            Event { at: Time(at), key: Some(Some(key)), ..Event::new("claimed", job, queue) };
        Note::new(format!("event/{queue}/{:016}-1", at.as_micros()), event.line())
    }

    /// The times and events of the pages of a key, page by page.
    async fn walked(app: &Shared, key: &str) -> Vec<Vec<String>> {
        let service = TowerToHyperService::new(build(app));
        let (mut path, mut pages) = (format!("/key/events?k={key}"), Vec::new());
        for _ in 0..20 {
            let request = Request::get(&path).body(Body::empty()).unwrap();
            let answer = service.call(request).await.unwrap();
            let page = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let page = String::from_utf8(page.to_vec()).unwrap();
            let rows = page.split("<tr><th scope=\"row\"><time datetime=\"").skip(1);
            let row = |row: &str| {
                let (at, rest) = row.split_once('"').unwrap();
                let rest = rest.split_once("</time>").unwrap().1;
                format!("{at} {}", rest.split("</tr>").next().unwrap())
            };
            pages.push(rows.map(row).collect());
            let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { return pages };
            path = next.split('"').next().unwrap().replace("&#38;", "&");
        }
        panic!("the pages have no end: {pages:?}");
    }

    fn app(store: SharedStore) -> Shared {
        let queues = BTreeSet::from(["noted", "quiet"].map(str::to_owned));
        let journal = Journal::new(Some(Book::new(Limits::default())), Some(queues));
        let journal = Arc::new(journal);
        let (store, meter) = Metered::wrap(store, journal.clone());
        App::over(store, meter, Setup { journal, ..Setup::default() })
    }

    #[tokio::test]
    async fn each_event_of_a_key_is_on_one_page_however_many_happen_at_once_or_lie_between() {
        let store: SharedStore = Arc::new(Memory::with_clock(|| NOW));
        let queues = ["noted", "quiet", "plain"].map(Queue::fifo).to_vec();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let jobs = (0..60).map(|i| Job::new("plain", &i).unwrap().key("k")).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        // More notes about others than a page reads, and older events elsewhere.
        let others = (10..2_100).map(|minutes| note("noted", "other", minutes_ago(minutes)));
        let of_key = [("noted", 5), ("noted", 2_200), ("quiet", 2_250), ("quiet", 20)];
        let of_key = of_key.map(|(queue, minutes)| note(queue, "k", minutes_ago(minutes)));
        for notes in others.chain(of_key).collect::<Vec<_>>().chunks(500) {
            store.write_notes(notes.to_vec()).await.unwrap();
        }
        let at = minutes_ago(2_225);
        let on = [("queue", "quiet"), ("key", "k")];
        let on = on.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let paused =
            Deed { at: absolute(at), action: "lane pause".to_owned(), on, ..Deed::default() };
        deeds::keep(&*store, &paused, at).await.unwrap();
        let pages = walked(&app(store), "k").await;
        let rows: Vec<&String> = pages.iter().flatten().collect();
        let different: BTreeSet<&String> = rows.iter().copied().collect();
        assert_eq!((rows.len(), different.len()), (65, 65), "{pages:?}");
        assert!(rows.is_sorted_by_key(|row| Reverse(row.split(' ').next())), "{pages:?}");
        assert_eq!((pages[0].len(), pages.len() <= 5), (50, true), "{pages:?}");
    }

    #[tokio::test]
    async fn a_page_says_how_many_journals_it_did_not_search() {
        let store: SharedStore = Arc::new(Memory::new());
        let queues = (0..60).map(|i| Queue::fifo(format!("q{i}"))).collect();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let journal = Arc::new(Journal::new(Some(Book::new(Limits::default())), None));
        let (store, meter) = Metered::wrap(store, journal.clone());
        let app = App::over(store, meter, Setup { journal, ..Setup::default() });
        let service = TowerToHyperService::new(build(&app));
        let request = Request::get("/key/events?k=k").body(Body::empty()).unwrap();
        let answer = service.call(request).await.unwrap();
        let page = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("journals of 10 more queues were not searched"), "{page}");
        assert!(
            page.contains("Nothing is remembered.") && !page.contains("rel=\"next\""),
            "{page}"
        );
    }
}
