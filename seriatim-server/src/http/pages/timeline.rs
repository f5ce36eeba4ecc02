//! What happened to a key, in all queues: turns and jobs, and what people did.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use seriatim::Timestamp;
use seriatim::text::one_line;

use super::super::events;
use super::super::{Caller, Query, Result, Shared};
use super::row::told;
use super::{Frame, Moment, Visit, link, page};
use crate::app::deeds::Deed;
use crate::base::time::absolute;
use crate::journal::{OfKey, Told};
use crate::protocol::value::Time;

/// Rows shown.
const ROWS_MAX: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    k: String,
    /// Only what happened until then
    until: Option<Time>,
    /// Continue after this
    pub(super) after: Option<String>,
}

impl Wish {
    /// A page behind this one.
    pub(super) fn wanted<'a>(&'a self, after: Option<&'a str>, rows_max: usize) -> OfKey<'a> {
        let until = self.until.map(|Time(until)| until);
        OfKey { key: &self.k, since: None, until, after, rows_max, deeds: true }
    }
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
    export: String,
    /// Queues without a journal, known only from the store.
    without_journal: Vec<String>,
    /// Queues whose journal was not asked.
    not_asked: usize,
}

page!(Timeline);

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
    caller: Caller,
    Query(wish): Query<Wish>,
) -> Result<Response> {
    let wanted = wish.wanted(wish.after.as_deref(), ROWS_MAX);
    let story = events::of_key(&app, &caller.party, &visit.scope, wanted).await?;
    let (base, k, name) = (&visit.frame.base, &wish.k, one_line(&wish.k));
    let until = wish.until.map(|Time(until)| absolute(until)).unwrap_or_default();
    let to = |path: &str, after: &str| {
        link::with(&format!("{base}{path}"), &[("k", k), ("until", &until), ("after", after)])
    };
    let row = |(at, told)| match told {
        Told::Event(event) => row_of(&visit, at, &event),
        Told::Deed(deed) => row_of_deed(&visit, at, deed),
    };
    visit.show(&Timeline {
        frame: &visit.frame,
        key_href: link::key(base, k),
        jobs: link::with(&format!("{base}/jobs"), &[("key", k)]),
        audit: visit.audit(&name),
        search: link::search_all(base, k),
        export: to("/export/key", ""),
        is_first: wish.until.is_none() && wish.after.is_none(),
        next: story.next.map(|next| to("/key/events", &next)),
        name,
        rows: story.rows.into_iter().map(row).collect(),
        without_journal: story.without_journal,
        not_asked: story.not_asked,
    })
}

fn row_of(visit: &Visit, at: Timestamp, event: &Value) -> Row {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let id = text("job_id");
    let job = id.parse().ok().map(|job| (id, link::job(&visit.frame.base, job)));
    let attempt = event["attempt"].as_u64().map(|attempt| attempt.to_string());
    Row {
        at: visit.clock.of(at),
        queue: text("queue"),
        what: text("event"),
        job,
        attempt: attempt.unwrap_or_default(),
        who: told(&text("node")),
        text: told(&text("error")),
        is_bad: true,
    }
}

fn row_of_deed(visit: &Visit, at: Timestamp, mut deed: Deed) -> Row {
    let reason = deed.on.remove("reason").filter(|reason| !reason.is_empty());
    let (result, is_bad) = (deed.result(), deed.is_refused());
    Row {
        at: visit.clock.of(at),
        queue: deed.on.remove("queue").unwrap_or_default(),
        what: deed.action,
        job: None,
        attempt: String::new(),
        is_bad,
        who: deed.who,
        text: reason.map_or(result.clone(), |reason| format!("{result}: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{Declare, Memory, Note, Push};
    use seriatim::{Job, JobId, Queue, SharedStore};
    use tokio::time::timeout;

    use super::super::super::caller::Party;
    use super::super::super::limits::ANSWER_WAIT_MAX;
    use super::super::super::metrics::store::Metered;
    use super::super::super::router::build;
    use super::super::super::state::{App, Setup};
    use super::*;
    use crate::app::{deeds, failures};
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
        deeds::keep_at(&*store, &paused, at).await.unwrap();
        let pages = walked(&app(store), "k").await;
        let rows: Vec<&String> = pages.iter().flatten().collect();
        let different: BTreeSet<&String> = rows.iter().copied().collect();
        assert_eq!((rows.len(), different.len()), (65, 65), "{pages:?}");
        assert!(rows.is_sorted_by_key(|row| Reverse(row.split(' ').next())), "{pages:?}");
        assert_eq!((pages[0].len(), pages.len() <= 5), (50, true), "{pages:?}");
    }

    #[tokio::test]
    async fn what_happened_comes_in_small_pages_and_plain_text_however_long_and_odd_its_errors_are()
    {
        let store: SharedStore = Arc::new(Memory::with_clock(|| NOW));
        let queues = vec![Queue::fifo("noted"), Queue::fifo("plain").max_retries(200)];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let push = |queue: &str| {
            let jobs = vec![Job::new(queue, &1).unwrap().key("k")];
            store.push(Push { now: None, jobs })
        };
        let [noted, plain] =
            [push("noted").await, push("plain").await].map(|pushed| pushed.unwrap()[0].job_id);
        let error = format!("\u{202e}it fails{}", " and fails".repeat(400));
        let failed = |i: u64| {
            let at = Time(NOW + Duration::from_secs(i));
            let (job, error) = (noted, Some(Some(&*error)));
            let event =
                Event { at, key: Some(Some("k")), error, ..Event::new("failed", job, "noted") };
            Note::new(format!("event/noted/{:016}-1", at.0.as_micros()), event.line())
        };
        store.write_notes((0..160).map(failed).collect()).await.unwrap();
        let failure = crate::protocol::document::JobFailure {
            at: Time(NOW),
            attempt: 1,
            node: None,
            error: error.clone(),
        };
        store.write_notes(vec![failures::note(plain, &failure)]).await.unwrap();
        let service = TowerToHyperService::new(build(&app(store)));
        let (mut path, mut rows) = (format!("/jobs/{noted}/events"), 0);
        for more in ["/key/events?k=k".to_owned(), format!("/jobs/{plain}")] {
            loop {
                let request = Request::get(&path).body(Body::empty()).unwrap();
                let answer = service.call(request).await.unwrap();
                let page = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let page = String::from_utf8(page.to_vec()).unwrap();
                assert!(page.len() <= 30_000, "{path}: {} bytes", page.len());
                assert!(
                    page.contains("it fails and") && !page.contains('\u{202e}'),
                    "{path}: {page}"
                );
                rows += page.matches("<td>failed</td>").count();
                let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { break };
                path = next.split('"').next().unwrap().replace("&#38;", "&");
            }
            path = more;
        }
        assert_eq!(rows, 2 * 160, "each event stands once for the job and once for the key");
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_of_the_journal_waits_for_others_and_is_refused_only_after_some_seconds() {
        let app = app(Arc::new(Memory::with_clock(|| NOW)));
        let service = TowerToHyperService::new(build(&app));
        let ask = || service.call(Request::get("/key/events?k=k").body(Body::empty()).unwrap());
        let other = |name: &str| app.budgets.searches.try_take(&Party::Token(name.into()), 1);
        let mut held = vec![other("one").unwrap()];
        assert!(other("one").is_none(), "no party has both places");
        assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
        held.push(other("two").unwrap());
        assert_eq!(ask().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        let mut asked = std::pin::pin!(ask());
        assert!(timeout(ANSWER_WAIT_MAX / 2, &mut asked).await.is_err());
        drop(held);
        assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
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
