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
/// How long a deletion from a page can be undone.
pub(super) const UNDO_WAIT: Duration = Duration::from_secs(10);
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
    visit.show(&Confirm {
        frame: &visit.frame,
        button: deed.kind.button,
        target: deed.target(),
        warning: deed.kind.warning.unwrap_or_default(),
        now: deed.now(&app).await?,
        fields: link::carried(deed.fields()),
        back: back(&visit, &fields),
        ways: Ways::of(&deed),
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
        visit.doing().is(deed.kind.name.replace('.', " "), on(deed, fields));
    }
    if fields.get("mark").map_or("", String::as_str) != visit.frame.mark {
        return Err(other_login());
    }
    let deed = deed?;
    admit(app, visit, &deed).await?;
    let who = visit.who().name().to_owned();
    let mut response = see_other(&back(visit, fields));
    if let Some(wish) = deed.waits(app).await? {
        let operation = operator::begin(app, wish, &who, None, UNDO_WAIT).await?;
        let text = format!("{}: deleted in {} s", deed.target(), UNDO_WAIT.as_secs());
        say(visit, &mut response, &told_later(&text, operation.id));
        return Ok(response);
    }
    let undo = deed.undo_now(app).await;
    let count = deed.carry_out(app, &who).await?;
    app.checkups.forget();
    say(visit, &mut response, &told(&deed.done(count), undo));
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
    let Some(mut deed) = Deed::read(fields).ok().filter(is_edit) else { return Err(problem) };
    if let On::Dead { payload, .. } = &mut deed.on {
        *payload = None;
    }
    let mut refusal = problem.into_response();
    let Some(Told(why)) = refusal.extensions_mut().remove() else { return Ok(refusal) };
    let mut response = visit.show(&Edit {
        frame: &visit.frame,
        why,
        fields: [deed.fields(), vec![("back", back(visit, fields))]].concat(),
        text: text.clone(),
    })?;
    *response.status_mut() = refusal.status();
    Ok(response)
}

/// The mark of a form is not of the visitor's pages.
pub(super) fn other_login() -> Problem {
    let detail = "this form is of another login: go back, reload the page, and try again";
    Problem::new(axum::http::StatusCode::FORBIDDEN, detail)
}

/// Lets the next page tell it.
pub(super) fn say(visit: &Visit, response: &mut Response, said: &str) {
    set_cookie(response, &visit.tells(said, SAID_SECONDS));
}

/// Refuses what the visitor's role or queues do not allow.
async fn admit(app: &Shared, visit: &Visit, deed: &Deed) -> Result<()> {
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
            visit.scope.check_queue(&operation.what.queue)
        }
        _ => Err(visit.scope.refuse(
            "may not act on nodes, batches, bridges and cron entries, which concern all queues",
        )),
    }
}

fn read(text: &[u8]) -> Fields {
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
    told(text, Deed::new("operation.stop", On::Operation(id)))
}

/// Where the visitor came from: a page of this server.
fn back(visit: &Visit, fields: &Fields) -> String {
    back_to(visit, fields.get("back").map_or("", String::as_str))
}

/// The address, if it is a page of this server; else the first page.
pub(super) fn back_to(visit: &Visit, address: &str) -> String {
    let base = &visit.frame.base;
    local(address, base).unwrap_or_else(|| visit.frame.home.clone())
}

/// An address below this one, and of no other site.
pub(super) fn local(address: &str, base: &str) -> Option<String> {
    let path = address.strip_prefix(base)?;
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // A browser resolves them, and leaves this path.
    let dots = path.split(['/', '?', '#']).any(|part| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    });
    let is_below = path.starts_with(['/', '?']) && !address.starts_with("//");
    (is_plain && is_below && !dots).then(|| address.to_owned())
}

/// What was done, and the form that undoes it, as the value of a cookie. Where both have no room, because of a long key, the
/// text is cut.
fn told(text: &str, undo: Option<Deed>) -> String {
    let fields = undo.iter().flat_map(Deed::fields);
    let field = |(name, value): (_, String)| format!("&{name}={}", link::encoded(&value));
    let undo: String = fields.map(field).collect();
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
    use seriatim::store::{Declare, Memory, Queues};
    use seriatim::{Queue, SharedStore};

    use super::super::super::router::router;
    use super::*;
    use crate::app::deeds::{Wanted, latest};
    use crate::app::lanes::OneLane;

    async fn queues() -> SharedStore {
        let store = Arc::new(Memory::new());
        let queues = ["mails", "pay"].map(Queue::fifo).to_vec();
        store.declare(Declare { now: None, queues }).await.unwrap();
        store
    }

    /// Sends a form, as a page of this server does.
    async fn sent(store: &SharedStore, path: &str, form: &str) -> StatusCode {
        let request = Request::post(path).header("sec-fetch-site", "same-origin");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.body(Body::from(form.to_owned())).unwrap();
        let service = TowerToHyperService::new(router(store.clone()));
        service.call(request).await.unwrap().status()
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
            let said = told(&text, Deed::new("lane.resume", on()));
            assert!(said.len() <= SAID_BYTES_MAX && said.ends_with("&key=k"), "{said}");
            assert_eq!(said.starts_with(&format!("text={}&", link::encoded(&text))), is_whole);
        }
    }

    #[test]
    fn a_form_leads_back_to_a_page_of_this_server_only() {
        for (address, base, is_ours) in [
            ("/queues?by=key", "", true),
            ("/jobs/queues", "/jobs", true),
            ("/other", "/jobs", false),
            ("/jobs/../other", "/jobs", false),
            ("/jobs/%2E./other", "/jobs", false),
            ("/jobs/queues?by=..", "/jobs", true),
            ("//evil.example", "", false),
            ("https://evil.example", "", false),
            ("/\\evil.example", "", false),
            ("/a\r\nX: y", "", false),
            ("", "", false),
        ] {
            assert_eq!(local(address, base).is_some(), is_ours, "{address}");
        }
    }
}
