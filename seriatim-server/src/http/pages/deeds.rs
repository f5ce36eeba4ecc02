//! Forms: the page that asks first, and the deed itself.

use std::time::Duration;

use askama::Template;
use axum::extract::{RawForm, RawQuery};
use axum::response::{IntoResponse, Response};
use seriatim::text::{cut_middle, one_line};

use super::super::operator;
use super::super::problem::Told;
use super::super::{Problem, Result, Shared};
use super::deed::Fields;
use super::visit::{see_other, set_cookie};
use super::ways::Ways;
use super::{Deed, Frame, On, Visit, link, page};
use crate::app::operations;

/// Longest text of a cookie that says what was done, in bytes: browsers keep cookies of 4,096 with their name, seal and
/// attributes.
const SAID_BYTES_MAX: usize = 3_500;
/// Longest form of it that undoes something, in bytes: the fields of the longest key fit.
const UNDO_BYTES_MAX: usize = 3_450;
/// How long a deletion from a page can be undone.
pub(super) const UNDO_WAIT: Duration = Duration::from_secs(10);
/// The field of a form that takes back what another request did: that request.
const UNDOES: &str = "undoes";
/// How long the next page may take to show it, in seconds.
const SAID_SECONDS: u64 = 30;

#[derive(Template)]
#[template(path = "confirm.html", blocks = ["live"])]
struct Confirm<'a> {
    frame: &'a Frame,
    button: &'static str,
    target: String,
    warning: &'static str,
    /// See [`Deed::now`].
    now: String,
    fields: Vec<(&'static str, String)>,
    back: String,
    /// None for a deed that does not ask.
    ways: Option<Ways>,
}

page!(Confirm);

pub(super) async fn confirm(
    app: Shared,
    visit: Visit,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let fields = read(query.unwrap_or_default().as_bytes());
    let deed = Deed::read(&fields)?;
    admit(&app, &visit, &deed).await?;
    let (now, ways) = (deed.now(&app).await?, deed.ways(&app).await);
    ask(&visit, &deed, back(&visit, &fields), now, ways)
}

/// The page that asks; `now` is what to know besides the warning.
pub(super) fn ask(
    visit: &Visit,
    deed: &Deed,
    back: String,
    now: String,
    ways: Option<Ways>,
) -> Result<Response> {
    visit.show(&Confirm {
        frame: &visit.frame,
        button: deed.kind.button,
        target: deed.target(),
        warning: deed.kind.warning.unwrap_or_default(),
        now,
        fields: link::carried(deed.fields()),
        back,
        ways,
    })
}

pub(super) async fn carry_out(
    app: Shared,
    visit: Visit,
    RawForm(body): RawForm,
) -> Result<Response> {
    let fields = read(&body);
    match does(&app, &visit, &fields).await {
        Err(problem) => edited_again(&visit, &fields, problem),
        done => done,
    }
}

async fn does(app: &Shared, visit: &Visit, fields: &Fields) -> Result<Response> {
    let deed = Deed::read(fields);
    if let Ok(deed) = &deed {
        visit.doing().is(deed.kind.action(), on(deed, fields));
    }
    visit.check(fields.get("mark").map_or("", String::as_str))?;
    let deed = deed?;
    admit(app, visit, &deed).await?;
    let who = visit.who().name().to_owned();
    let mut response = see_other(&back(visit, fields));
    if let Some(wish) = deed.waits(app).await? {
        let operation = operator::begin(app, wish, &who, None, UNDO_WAIT).await?;
        let text = format!("{}: will be deleted in {} s", deed.target(), UNDO_WAIT.as_secs());
        say(visit, &mut response, &told_later(&text, operation.id));
        return Ok(response);
    }
    if let Some(undoes) = fields.get(UNDOES) {
        deed.check_undo(app, undoes).await?;
    }
    let undo = deed.undo_now(app).await;
    let count = deed.carry_out(app, &who).await?;
    app.checkups.forget();
    say(
        visit,
        &mut response,
        &told(&deed.done(app, count).await, undo.as_ref(), visit.request_id()),
    );
    response.extensions_mut().insert(super::super::audit::Count(count));
    Ok(response)
}

/// What a deed is done to, as the audit log has it: all but its name, what was before, and payloads, which may be secret.
/// The reason stands nowhere else.
fn on(deed: &Deed, fields: &Fields) -> Vec<(&'static str, String)> {
    let mut on = deed.fields();
    on.retain(|(name, _)| !["deed", "was", "payload", "reason"].contains(name));
    let reason = fields.get("reason").filter(|reason| !reason.is_empty());
    on.extend(reason.map(|reason| ("reason", reason.clone())));
    on
}

#[derive(Template)]
#[template(path = "edit.html", blocks = ["live"])]
struct Edit<'a> {
    frame: &'a Frame,
    why: String,
    fields: Vec<(&'static str, String)>,
    text: String,
}

page!(Edit);

/// The form of a payload that was not pushed, with the text as it was edited: no browser would bring it back. It needs no
/// store, which may be away.
fn edited_again(visit: &Visit, fields: &Fields, problem: Problem) -> Result<Response> {
    let Some(text) = fields.get("payload") else { return Err(problem) };
    let is_edit = |deed: &Deed| deed.kind.name == "dead.edit" && visit.may(deed.kind.access);
    let Some(deed) = Deed::read(fields).ok().filter(is_edit) else { return Err(problem) };
    let mut refusal = problem.into_response();
    let Some(Told(why)) = refusal.extensions_mut().remove() else { return Ok(refusal) };
    let mut response = edit(visit, &deed, back(visit, fields), text.clone(), why)?;
    *response.status_mut() = refusal.status();
    Ok(response)
}

/// The form of a payload with this text.
pub(super) fn edit(
    visit: &Visit,
    deed: &Deed,
    back: String,
    text: String,
    why: String,
) -> Result<Response> {
    let mut fields = deed.fields();
    fields.retain(|(name, _)| *name != "payload");
    fields.push(("back", back));
    visit.show(&Edit { frame: &visit.frame, why, fields, text })
}

/// Lets the next page tell it.
pub(super) fn say(visit: &Visit, response: &mut Response, said: &str) {
    if let Some(cookie) = visit.tells(said, SAID_SECONDS) {
        set_cookie(response, &cookie);
    }
}

/// Refuses what the visitor's role or queues do not allow.
pub(super) async fn admit(app: &Shared, visit: &Visit, deed: &Deed) -> Result<()> {
    visit.who().admit(deed.kind.access)?;
    if !visit.scope.is_limited() {
        return Ok(());
    }
    match (&deed.on, deed.queue()) {
        (On::Dead { queue, job, .. }, _) => {
            visit.scope.check_queue(queue)?;
            visit.scope.check_id(&*app.store, *job).await
        }
        (_, Some(queue)) => visit.scope.check_queue(queue),
        (On::Job(id) | On::Due { job: id, .. } | On::Bound { job: id, .. }, None) => {
            visit.scope.check_id(&*app.store, *id).await
        }
        (On::Operation(id), None) => {
            let operation = operations::show(&*app.store, id).await?;
            operation.what.names().iter().try_for_each(|queue| visit.scope.check_queue(queue))
        }
        _ => Err(visit.scope.refuse(
            "may not act on nodes, batches, bridges and cron entries, which concern all queues",
        )),
    }
}

pub(super) fn read(text: &[u8]) -> Fields {
    pairs(text).into_iter().collect()
}

/// The fields of a form. A button of the page's own form has those of its deed in one; see also [`link::carried`].
pub(super) fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let all = form_urlencoded::parse(text).into_owned();
    let (within, mut fields): (Vec<_>, Vec<_>) = all.partition(|(name, _)| name == "do");
    for (_, value) in within {
        fields.extend(form_urlencoded::parse(value.as_bytes()).into_owned());
    }
    fields
}

/// What will be done unless it is undone.
pub(super) fn told_later(text: &str, id: String) -> String {
    told(text, Deed::new("operation.stop", On::Operation(id)).as_ref(), "")
}

/// Where the visitor came from: a page of this server.
fn back(visit: &Visit, fields: &Fields) -> String {
    back_to(visit, fields.get("back").map_or("", String::as_str))
}

/// The address, if it is a page of this server; else the first page.
pub(super) fn back_to(visit: &Visit, address: &str) -> String {
    let base = &visit.frame.base;
    link::local(address, base).unwrap_or_else(|| visit.frame.home.clone())
}

/// What was done, and the form that undoes it, as the value of a cookie. Where both have no room, because of a long key, the
/// text is cut. `request` is the one that is undone.
fn told(text: &str, undo: Option<&Deed>, request: &str) -> String {
    let mut fields = undo.map(Deed::fields).unwrap_or_default();
    if !fields.is_empty() && !request.is_empty() {
        fields.insert(0, (UNDOES, request.to_owned()));
    }
    let field = |(name, value): (_, String)| format!("&{name}={}", link::encoded(&value));
    let mut undo: String = fields.into_iter().map(field).collect();
    if undo.len() > UNDO_BYTES_MAX {
        // The limits of many groups: the browser would drop all of it.
        undo.clear();
    }
    let text = one_line(text);
    let said = |bytes| format!("text={}{undo}", link::encoded(&cut_middle(&text, bytes)));
    let mut bytes = text.len();
    while bytes > 0 && said(bytes).len() > SAID_BYTES_MAX {
        bytes /= 2;
    }
    said(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{Declare, Memory, Push, Queues};
    use seriatim::{Job, Queue, SharedStore, Timestamp};

    use super::super::super::router::router;
    use super::super::super::state::App;
    use super::*;
    use crate::app::deeds::{Wanted, latest};
    use crate::app::lanes::OneLane;
    use crate::app::operations::{Action, Begin, Wish, begin, preview, run};

    async fn queues() -> SharedStore {
        queues_of(Memory::new()).await
    }

    async fn queues_of(store: Memory) -> SharedStore {
        let store = Arc::new(store);
        let queues = ["mails", "pay"].map(Queue::fifo).to_vec();
        store.declare(Declare { now: None, queues }).await.unwrap();
        store
    }

    /// Sends a form, as a page of this server does.
    async fn sent(store: &SharedStore, path: &str, form: &str) -> StatusCode {
        let service = TowerToHyperService::new(router(store.clone()));
        let about = Request::get("/about").body(Body::empty()).unwrap();
        let about = service.call(about).await.unwrap().into_body();
        let about = axum::body::to_bytes(about, usize::MAX).await.unwrap();
        let about = String::from_utf8(about.to_vec()).unwrap();
        let mark = about.split_once("name=\"mark\" value=\"").unwrap().1.split('"').next().unwrap();
        let request = Request::post(path).header("sec-fetch-site", "same-origin");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.body(Body::from(format!("mark={mark}&{form}"))).unwrap();
        service.call(request).await.unwrap().status()
    }

    /// Somebody pauses all keys that begin so.
    async fn pause_many(store: &SharedStore) {
        let prefix = Some("k".to_owned());
        let wish = Wish { prefix, ..Wish::new(Action::Pause, "mails") };
        let counted = preview(&**store, &wish).await.unwrap();
        let other = Begin { who: "other", runner: "here", waits: Duration::ZERO };
        let begun = begin(&**store, wish, &counted, other).await.unwrap();
        run(store, &begun.id, "here", &*App::open(store.clone()), |_| {}).await.unwrap();
    }

    #[tokio::test]
    async fn an_undo_takes_back_its_own_pause_alone_also_where_machine_and_store_have_other_times()
    {
        for (ahead, behind) in
            [(0, 10), (10, 0)].map(|(a, b)| (Duration::from_secs(a), Duration::from_secs(b)))
        {
            let clock = move || Timestamp::of_this_machine() + ahead - behind;
            let store = queues_of(Memory::with_clock(clock)).await;
            let jobs = vec![Job::new("mails", &1).unwrap().key("k")];
            store.push(Push { now: None, jobs }).await.unwrap();
            let lane = async |verb: &str, more: &str| {
                sent(&store, "/do", &format!("deed=lane.{verb}&queue=mails&key=k{more}")).await
            };
            let undo = async || {
                let of_key = Wanted { of: Some("k"), ..Wanted::default() };
                let mut done = latest(&*store, of_key, 1).await.unwrap().entries;
                let request = done.remove(0).request_id.unwrap();
                lane("resume", &format!("&undoes={request}")).await
            };
            pause_many(&store).await;
            assert_eq!(lane("resume", "").await, StatusCode::SEE_OTHER);
            assert_eq!(lane("pause", "").await, StatusCode::SEE_OTHER);
            assert_eq!(undo().await, StatusCode::SEE_OTHER, "the others paused it before");
            assert_eq!(lane("pause", "").await, StatusCode::SEE_OTHER);
            pause_many(&store).await;
            assert_eq!(undo().await, StatusCode::CONFLICT, "the others paused it since");
        }
    }

    #[tokio::test]
    async fn forms_within_forms_without_end_are_refused_and_the_process_lives() {
        let store = queues().await;
        assert_eq!(sent(&store, "/do", &"do=".repeat(349_000)).await, StatusCode::BAD_REQUEST);
        let deep = "do=".repeat(5_400);
        assert_eq!(sent(&store, "/login", &deep).await, StatusCode::FORBIDDEN);
        assert_eq!(sent(&store, "/logout", &deep).await, StatusCode::SEE_OTHER);
    }

    #[tokio::test]
    async fn the_audit_log_tells_what_a_form_did_however_it_is_written() {
        let store = queues().await;
        let many = "/operations/start";
        let time = "2026-01-31T12%3A00%3A00Z";
        for (path, form, action, on) in [
            (
                "/do",
                "a=&b=&c=&d=&e=&f=&g=&h=&i=&deed=queue.pause&queue=pay&reason=dunno".to_owned(),
                "queue pause",
                vec![("queue", "pay"), ("reason", "dunno")],
            ),
            (
                "/do",
                "do=deed%3Dqueue.resume%26queue%3Dpay&deed=lane.retry&queue=mails&key=x".to_owned(),
                "queue resume",
                vec![("queue", "pay")],
            ),
            (
                many,
                format!("deed=queue.pause&action=requeue&queue=pay&since={time}&before={time}"),
                "operation requeue",
                vec![
                    ("queue", "pay"),
                    ("since", "2026-01-31T12:00:00Z"),
                    ("before", "2026-01-31T12:00:00Z"),
                ],
            ),
        ] {
            assert_eq!(sent(&store, path, &form).await, StatusCode::SEE_OTHER, "{form}");
            // An operation tells its end too.
            let of_action = Wanted { action: Some(action), ..Wanted::default() };
            let done = latest(&*store, of_action, 1).await.unwrap().entries.remove(0);
            let on = on.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!((&*done.action, done.on), (action, on.collect()), "{form}");
            let views = store.queues().await.unwrap();
            let paused = views.iter().filter(|view| view.paused);
            let paused: Vec<&str> = paused.map(|view| &*view.queue.name).collect();
            assert_eq!(paused, if action == "queue pause" { vec!["pay"] } else { vec![] });
        }
    }

    #[test]
    fn what_is_said_fits_in_a_cookie_and_keeps_its_undo() {
        let on = || On::Lane { queue: "q".to_owned(), lane: OneLane::Key("k".to_owned()) };
        for (text, is_whole) in [("paused".to_owned(), true), ("ж".repeat(2_000), false)] {
            let said = told(&text, Deed::new("lane.resume", on()).as_ref(), "1");
            assert!(said.len() <= SAID_BYTES_MAX && said.ends_with("&key=k"), "{said}");
            assert_eq!(said.starts_with(&format!("text={}&", link::encoded(&text))), is_whole);
        }
    }
}
