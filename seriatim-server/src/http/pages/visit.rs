//! One request for a page: who asks, how they want it, and the answer as HTML.

use askama::Template;
use axum::extract::{FromRequestParts, NestedPath, OriginalUri};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use seriatim::JobId;
use seriatim::store::JobView;

use super::super::audit::{self, Doing};
use super::super::auth::KnownToken;
use super::super::page_key::Key;
use super::super::problem::Told;
use super::super::{Access, Problem, Result, Scope, Shared, Who};
use super::frame::{PLACES, Said};
use super::moment::Clock;
use super::payload::Discreet;
use super::session::Keys;
use super::turns::without_trail;
use super::{Deed, Frame, assets, grouped, link, session};
use crate::app::find;

/// The script of a page asks with it for the live part alone.
const PARTS: HeaderName = HeaderName::from_static("x-parts");
/// When a part was made, by the visitor's clock.
pub(super) const AS_OF: HeaderName = HeaderName::from_static("x-as-of");
/// How many jobs are dead, for the menu.
pub(super) const DEAD: HeaderName = HeaderName::from_static("x-dead");
/// What a deed did, for the next page.
const SAID: &str = "seriatim_said";
/// Addresses that show no page without a query.
const FORMS: [&str; 3] = [link::DEEDS_PATH, "/operations/new", "/operations/start"];
/// Pages load and send to this server alone, and run no foreign script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A visitor's request.
#[derive(Clone)]
pub(in crate::http) struct Visit {
    pub(super) frame: Frame,
    pub(super) clock: Clock,
    pub(super) scope: Scope,
    pub(super) who: Who,
    visitor: Result<Option<Who>, String>,
    /// What this visitor sees of payloads.
    pub(super) discreet: Discreet,
    pub(super) wants: Wants,
    /// Whether it changes nothing, so that it may be sent again.
    is_read: bool,
    doing: Doing,
    /// The page whose form this is, as far as the browser says it.
    came_from: String,
    request_id: String,
    /// The key of all nodes, and those of this visitor; none while the store does not answer.
    root: Option<Key>,
    keys: Option<Keys>,
}

/// What of a page is wanted.
#[derive(Clone)]
pub(super) enum Wants {
    All,
    /// The live part, unless it is this one.
    Parts(Option<HeaderValue>),
}

/// A page: its template, and the part of it that is replaced while it is open.
pub(super) trait Page: Template {
    fn live(&self) -> askama::Result<String>;
}

impl Visit {
    /// A job of a queue that the visitor may see.
    pub(super) async fn job(&self, app: &Shared, id: JobId) -> Result<JobView> {
        let job = find::job(&*app.store, id).await?;
        match self.scope.has_queue(&job.queue) {
            true => Ok(job),
            false => Err(self.scope.no_job(id)),
        }
    }

    /// Of a request that has come to the gate, which hands it on to the page. `root` is the key of all nodes.
    pub(in crate::http) fn of(app: &Shared, parts: &Parts, root: Option<Key>) -> Self {
        let (uri, extensions) = (&parts.uri, &parts.extensions);
        let prefix = app.guard.proxy.as_ref().and_then(|proxy| proxy.prefix(parts));
        let prefix = prefix.unwrap_or_default();
        let nested = extensions.get::<NestedPath>().map_or("", NestedPath::as_str);
        let original = extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri);
        let uri = original.unwrap_or(uri);
        let below = |uri: &Uri| {
            format!("{prefix}{}", uri.path_and_query().map_or("/", |target| target.as_str()))
        };
        let address = below(uri);
        let here = without_trail(uri).map_or_else(|| address.clone(), |uri| below(&uri));
        let base = format!("{prefix}{}{}", nested.trim_end_matches('/'), app.base_path);
        let is_nested = !nested.is_empty() && app.base_path.is_empty();
        let home = if is_nested { base.clone() } else { format!("{base}/") };
        let visitor = session::visitor(&app.guard, parts).map_err(Problem::into_detail);
        let mut visit = Self::new(app, (base, home), here, (&parts.headers, root), visitor);
        visit.frame.address = address;
        let came_from = sender(&parts.headers, &visit.frame);
        let request_id = audit::request_id(&parts.headers).unwrap_or_default();
        Self { is_read: parts.method == Method::GET, came_from, request_id, ..visit }
    }

    fn new(
        app: &Shared,
        (base, home): (String, String),
        here: String,
        (headers, root): (&HeaderMap, Option<Key>),
        visitor: Result<Option<Who>, String>,
    ) -> Self {
        let token = session::token(&app.guard, headers);
        let known = visitor.as_ref().ok().and_then(Option::as_ref);
        let who = known.cloned().unwrap_or(Who::Anybody);
        let is_open = app.guard.is_open();
        let may = |access| if known.is_some() { who.may(access) } else { is_open };
        let keys = root.map(|root| Keys::of(&root, &who, headers, token.is_some()));
        let scope = who.scope();
        let dead = may(Access::Read).then(|| app.changes.dead(|queue| scope.has_queue(queue)));
        let clock = Clock::new(app.clock.now(), zone(headers).as_deref());
        let frame = Frame {
            base,
            home,
            environment: app.environment.clone(),
            visitor: known.and_then(|who| Some((who.name().to_owned(), who.role()?.name()))),
            logs_out: token.is_some(),
            clock: clock.time_of_day(),
            theme: theme(headers),
            mark: keys.as_ref().map(|keys| keys.mark.clone()).unwrap_or_default(),
            address: here.clone(),
            here,
            said: keys.as_ref().and_then(|keys| said(headers, &keys.said)),
            dead: dead.flatten().map(|dead| if dead > 0 { grouped(dead) } else { String::new() }),
            places: &PLACES,
            style: assets::style(),
            script: assets::script(),
            icon: assets::icon(),
            may_operate: may(Access::Operate),
            may_all: may(Access::Admin),
        };
        let wants = match headers.contains_key(&PARTS) {
            true => Wants::Parts(headers.get(header::IF_NONE_MATCH).cloned()),
            false => Wants::All,
        };
        let discreet = Discreet::of(&app.dashboard, may(Access::Admin));
        let (is_read, doing) = (false, Doing::default());
        let (came_from, request_id) = (String::new(), String::new());
        let scope = who.scope();
        Self {
            frame,
            clock,
            scope,
            who,
            visitor,
            discreet,
            wants,
            is_read,
            doing,
            came_from,
            request_id,
            root,
            keys,
        }
    }

    /// What the next page tells, as a cookie that no other site can make. Every node of the store knows it.
    pub(super) fn tells(&self, said: &str, seconds: u64) -> Option<String> {
        let keys = self.keys.as_ref()?;
        Some(self.cookie(SAID, &session::sealed(&keys.said, said), seconds, false))
    }

    /// Refuses a form that no page of this visitor made.
    pub(super) fn check(&self, mark: &str) -> Result<()> {
        let Some(keys) = &self.keys else {
            let detail = "the store does not answer: nothing was done";
            return Err(Problem::unavailable(detail));
        };
        let detail = "this form is of another login: go back, reload the page, and try again";
        let refused = || Problem::new(StatusCode::FORBIDDEN, detail);
        keys.made(mark).then_some(()).ok_or_else(refused)
    }

    /// Who it is, or why that cannot be known.
    pub(in crate::http) fn visitor(&self) -> &Result<Option<Who>, String> {
        &self.visitor
    }

    /// What the audit log says of a form: its handler fills it in.
    pub(in crate::http) fn doing(&self) -> &Doing {
        &self.doing
    }

    pub(super) fn who(&self) -> &Who {
        &self.who
    }

    /// This request, as the audit log has it.
    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The page of the form that was sent.
    pub(super) fn came_from(&self) -> &str {
        &self.came_from
    }

    /// The visit of who has logged in with this token, whose cookie this is, and goes on with this page.
    pub(super) fn of_login(
        &self,
        app: &Shared,
        (token, cookie): (&KnownToken, &str),
        headers: &HeaderMap,
        here: &str,
    ) -> Self {
        let mut headers = headers.clone();
        let mut cookies = format!("{}={cookie}", session::NAME);
        for other in headers.get_all(header::COOKIE) {
            cookies += &other.to_str().map(|other| format!("; {other}")).unwrap_or_default();
        }
        // The first of a name counts.
        if let Ok(cookies) = HeaderValue::from_str(&cookies) {
            headers.insert(header::COOKIE, cookies);
        }
        let places = (self.frame.base.clone(), self.frame.home.clone());
        let visitor = Ok(Some(token.who()));
        Self::new(app, places, here.to_owned(), (&headers, self.root), visitor)
    }

    pub(super) fn may(&self, access: Access) -> bool {
        match access {
            Access::Admin => self.frame.may_all,
            _ => self.frame.may_operate,
        }
    }

    /// The page of what people did to a key, job or queue, if the visitor may see it.
    pub(super) fn audit(&self, of: &str) -> Option<String> {
        let path = format!("{}/audit", self.frame.base);
        (!self.scope.is_limited()).then(|| link::with(&path, &[("of", of)]))
    }

    /// The page as the answer; for its script the live part, if that has changed.
    pub(super) fn show(&self, page: &impl Page) -> Result<Response> {
        let failed = |error: askama::Error| {
            tracing::error!(%error, "cannot write a page");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "cannot write this page: see the log")
        };
        let Wants::Parts(_) = &self.wants else {
            let mut response = html(page.render().map_err(failed)?);
            if self.frame.said.is_some() {
                set_cookie(&mut response, &self.forget(SAID));
            }
            return Ok(response);
        };
        let live = page.live().map_err(failed)?;
        let hash = blake3::hash(live.as_bytes()).to_hex();
        let mut response = html(live);
        let mark = HeaderValue::from_str(&format!("\"{}\"", &hash[..32])).ok();
        mark.and_then(|mark| response.headers_mut().insert(header::ETAG, mark));
        let clock = HeaderValue::from_str(&self.frame.clock).ok();
        clock.and_then(|clock| response.headers_mut().insert(AS_OF, clock));
        Ok(response)
    }

    /// An answer of the server as this visitor can read it: a problem as a page, or the way to log in.
    pub(in crate::http) fn shown(&self, mut response: Response) -> Response {
        let Some(Told(detail)) = response.extensions_mut().remove::<Told>() else {
            return response;
        };
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED && matches!(self.wants, Wants::All) {
            // What a form would have done is not done after the login: its page is shown again.
            let pairs = match self.is_read {
                true => [("next", &*self.frame.here), ("undone", "")],
                false => [("next", &*self.came_from), ("undone", "true")],
            };
            return see_other(&link::with(&format!("{}/login", self.frame.base), &pairs));
        }
        let (frame, title) = (&self.frame, title(status));
        let retries = status == StatusCode::SERVICE_UNAVAILABLE && self.is_read;
        let page = Refusal { frame, status: status.as_u16(), title, detail, retries };
        let mut answer = html(page.render().unwrap_or_default());
        *answer.status_mut() = status;
        let wait = response.headers_mut().remove(header::RETRY_AFTER);
        wait.and_then(|wait| answer.headers_mut().insert(header::RETRY_AFTER, wait));
        answer
    }

    /// A cookie for all pages, which scripts cannot read.
    pub(super) fn cookie(&self, name: &str, value: &str, seconds: u64, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        let path = if self.frame.base.is_empty() { "/" } else { &self.frame.base };
        format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
    }

    pub(super) fn forget(&self, name: &str) -> String {
        self.cookie(name, "", 0, false)
    }
}

#[derive(Template)]
#[template(path = "refusal.html")]
struct Refusal<'a> {
    frame: &'a Frame,
    status: u16,
    title: &'static str,
    detail: String,
    /// Whether the page asks again by itself.
    retries: bool,
}

fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::BAD_REQUEST => "This address is not understood",
        StatusCode::CONFLICT => "Not possible now",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "Not available now",
        _ => "Something went wrong",
    }
}

fn zone(headers: &HeaderMap) -> Option<String> {
    let value = session::cookie_of(headers, "seriatim_zone")?;
    let mut pairs = form_urlencoded::parse(value.as_bytes());
    pairs.next().map(|(name, _)| name.into_owned())
}

fn theme(headers: &HeaderMap) -> &'static str {
    match session::cookie_of(headers, "seriatim_theme") {
        Some("light") => "light",
        Some("dark") => "dark",
        _ => "auto",
    }
}

/// The page whose form is sent; the first one if the browser does not say it, or if it was no page but another form.
fn sender(headers: &HeaderMap, frame: &Frame) -> String {
    let referer = headers.get(header::REFERER).and_then(|referer| referer.to_str().ok());
    let path = referer.and_then(|referer| {
        let (_, rest) = referer.split_once("://")?;
        Some(&rest[rest.find('/')?..])
    });
    let path = path.and_then(|path| link::local(path, &frame.base));
    let is_page =
        |path: &String| !FORMS.iter().any(|form| *path == format!("{}{form}", frame.base));
    path.filter(is_page).unwrap_or_else(|| frame.home.clone())
}

/// What the last deed did: `text`, and the fields of the form that undoes it.
fn said(headers: &HeaderMap, key: &Key) -> Option<Said> {
    let value = session::unsealed(key, session::cookie_of(headers, SAID)?)?;
    let mut text = String::new();
    let mut undo = Vec::new();
    for (name, value) in form_urlencoded::parse(value.as_bytes()) {
        match &*name {
            "text" => text = value.into_owned(),
            _ => undo.push((name.into_owned(), value.into_owned())),
        }
    }
    let deed = undo.iter().find(|(name, _)| name == "deed");
    let is_offered = deed.is_some_and(|(_, deed)| Deed::takes_back(deed));
    Some(Said { text, undo: is_offered.then(|| link::carried(undo)) })
}

/// To another page, by GET.
pub(super) fn see_other(place: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, "").into_response();
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    guarded(response)
}

pub(super) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

pub(super) fn html(text: impl Into<axum::body::Body>) -> Response {
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))];
    guarded((head, text.into()).into_response())
}

/// What keeps a page to itself.
pub(super) fn guarded(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

impl<S: Send + Sync> FromRequestParts<S> for Visit {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let visit = parts.extensions.get::<Self>().cloned();
        visit.ok_or_else(|| Problem::missing("this is not a page"))
    }
}

/// Makes a template a page: its block `live` is the part that is replaced.
macro_rules! page {
    ($name:ident) => {
        impl crate::http::pages::visit::Page for $name<'_> {
            fn live(&self) -> askama::Result<String> {
                self.as_live().render()
            }
        }
    };
}
pub(super) use page;
