//! Logging in with a token, once, and out again.

use askama::Template;
use axum::extract::{RawForm, RawQuery};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, http};
use seriatim::Timestamp;

use super::super::audit::Signed;
use super::super::caller::Peer;
use super::super::{Access, Problem, Result, Shared};
use super::deeds::read;
use super::kept::Kept;
use super::link;
use super::visit::{html, see_other, set_cookie};
use super::{Frame, Visit, page, session};

#[derive(Template)]
#[template(path = "login.html", blocks = ["live"])]
pub(super) struct Login<'a> {
    frame: &'a Frame,
    next: String,
    /// Whether a form that was sent did nothing.
    is_undone: bool,
    /// What was typed into it.
    kept: Option<Kept>,
    error: Option<String>,
}

page!(Login);

impl<'a> Login<'a> {
    pub(super) fn new(frame: &'a Frame, next: String) -> Self {
        Self { frame, next, is_undone: false, kept: None, error: None }
    }

    /// Behind a form that did nothing.
    pub(super) fn undone(self, kept: Option<Kept>) -> Self {
        Self { is_undone: true, kept, ..self }
    }
}

pub(super) async fn show(app: Shared, visit: Visit, RawQuery(query): RawQuery) -> Result<Response> {
    let query = query.unwrap_or_default();
    let next = next(&visit, query.as_bytes());
    if app.guard.is_open() || visit.frame.visitor.is_some() {
        return Ok(see_other(&next));
    }
    let is_undone = form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "undone");
    visit.show(&Login { is_undone, ..Login::new(&visit.frame, next) })
}

pub(super) async fn enter(
    app: Shared,
    visit: Visit,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    RawForm(body): RawForm,
) -> Result<Response> {
    let next = next(&visit, &body);
    let fields = read(&body);
    let kept = Kept::read(&fields);
    let token = app.guard.token(fields.get("token").map_or("", |secret| secret.trim()));
    let peer = peer.map(|Extension(peer)| peer);
    if let Some(origin) = app.guard.origin(peer.as_ref(), &headers)
        && let Err(wait) = app.logins.admit(origin, token)
    {
        app.meter.refused_login();
        return Err(Problem::too_many("too many wrong tokens from this address").after(wait));
    }
    let refusal = match token {
        None => "This token is not known.".to_owned(),
        Some(token) if !Access::Read.admits(token.role()) => {
            let role = token.role().name();
            format!("This token has the role {role}; pages need reader, operator or admin.")
        }
        Some(token) => {
            let value = session::cookie(token, Timestamp::of_this_machine());
            let seconds = session::LASTS.as_secs();
            let cookie = visit.cookie(session::NAME, &value, seconds, is_secure(&headers));
            let asks = match kept {
                Some(kept) => {
                    let visit = visit.of_login(&app, (token, &value), &headers, &next);
                    kept.asks(&app, &visit).await.ok()
                }
                None => None,
            };
            let mut response = asks.unwrap_or_else(|| see_other(&next));
            set_cookie(&mut response, &cookie);
            response.extensions_mut().insert(Signed(token.who()));
            return Ok(response);
        }
    };
    if token.is_none() {
        app.meter.refused_login();
    }
    let page = Login { kept, error: Some(refusal), ..Login::new(&visit.frame, next) };
    let text = page.render().map_err(|_| Problem::unavailable("cannot write this page"))?;
    let mut response = html(text);
    // Told as a refusal, so that the audit log has it.
    *response.status_mut() = StatusCode::FORBIDDEN;
    Ok(response)
}

pub(super) async fn leave(
    app: Shared,
    visit: Visit,
    headers: HeaderMap,
    RawForm(body): RawForm,
) -> Result<Response> {
    let mut response = see_other(&format!("{}/login", visit.frame.base));
    set_cookie(&mut response, &visit.forget(session::NAME));
    if let Some(token) = session::token(&app.guard, &headers) {
        let mark = form_urlencoded::parse(&body).find(|(name, _)| name == "mark");
        visit.check(mark.as_ref().map_or("", |(_, mark)| mark))?;
        response.extensions_mut().insert(Signed(token.who()));
    }
    Ok(response)
}

/// The page to go on with.
fn next(visit: &Visit, fields: &[u8]) -> String {
    let base = &visit.frame.base;
    let wanted = form_urlencoded::parse(fields).find(|(name, _)| name == "next");
    let wanted = wanted.and_then(|(_, value)| link::local(&value, base));
    wanted.filter(|next| !next.contains("/login")).unwrap_or_else(|| visit.frame.home.clone())
}

/// Whether the browser speaks TLS, as far as a proxy says so.
fn is_secure(headers: &HeaderMap) -> bool {
    let proto =
        headers.get("x-forwarded-proto").and_then(|value: &http::HeaderValue| value.to_str().ok());
    // Several proxies: the first is the visitor's.
    let first = proto.and_then(|proto| proto.split(',').next());
    first.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"))
}
