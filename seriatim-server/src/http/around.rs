//! Wraps every request: request id, access control, counters.

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use seriatim::text::cut_middle;
use tracing::Instrument;

use super::audit::{Doing, Entry, Named, Signed, is_refusal};
use super::caller::{Class, Party, REQUEST_ID};
use super::events::EVENTS_PATH;
use super::jobs::JOB_PATH;
use super::limits::{
    ANSWER_WAIT_MAX, BODY_BYTES_MAX, Body, JOB_ANSWER_BYTES, PAGE_ANSWER_BYTES, held, off_thread,
};
use super::live::LIVE_PATH;
use super::memo::Part;
use super::metrics::METRICS_PATH;
use super::pages::{DEEDS_PATH, EXPORT_START, Visit, session, without_trail};
use super::problem::QUOTED_BYTES_MAX;
use super::route::{Door, Met, method_word};
use super::scope::Reach;
use super::waiting::waits;
use super::{Access, Caller, Problem, Result, Scope, Shared, Who};
use crate::trace;

/// Longest request id that is taken over from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What stands before one endpoint.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) app: Shared,
    pub(super) access: Access,
    pub(super) door: Door,
    pub(super) path: &'static str,
    pub(super) reach: Reach,
    pub(super) outlives_drain: bool,
    pub(super) is_traffic: bool,
}

/// Lets a request in, or not.
pub(super) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let path = gate.path;
    let mut response = match gate.door {
        Door::Programs => gate.answer(request, next).await,
        Door::People => {
            let (mut parts, body) = request.into_parts();
            // Open pages have no form, and work without the store.
            let is_bare = gate.access == Access::Open && parts.method.is_safe();
            let key = match is_bare {
                true => gate.app.page_key.known(),
                false => {
                    gate.app.clock.look(&*gate.app.store).await;
                    gate.app.page_key().await
                }
            };
            let visit = Visit::of(&gate.app, &parts, key);
            if let Some(uri) = without_trail(&parts.uri) {
                parts.uri = uri;
            }
            let mut request = Request::from_parts(parts, body);
            request.extensions_mut().insert(visit.clone());
            visit.shown(gate.answer(request, next).await)
        }
    };
    response.extensions_mut().insert(Met(path));
    response
}

impl Gate {
    async fn answer(self, request: Request, next: Next) -> Response {
        let who = match self.know(&request) {
            Ok(who) => who,
            Err(problem) => {
                let entry = Entry::of(&request, None, self.path);
                // A caller without a token is usually a program that is not configured yet.
                let guessed = request.headers().contains_key(AUTHORIZATION);
                if guessed
                    || !request.method().is_safe()
                    || problem.status() != StatusCode::UNAUTHORIZED
                {
                    self.app.audit.refused(entry, problem.status()).await;
                }
                return self.turned_away(request, problem).await;
            }
        };
        if request.method().is_safe() {
            return self.pass(&who, request, next).await;
        }
        let is_known = self.access != Access::Open;
        let mut entry = Entry::of(&request, Some(&who).filter(|_| is_known), self.path);
        if !self.is_traffic && is_known {
            entry.is_deed();
        }
        if self.app.audit.wants(request.method(), self.is_traffic) {
            return self.audited(who, entry, request, next).await;
        }
        let (app, response) = (self.app.clone(), self.pass(&who, request, next).await);
        if is_refusal(response.status()) {
            app.audit.refused(entry, response.status()).await;
        }
        response
    }

    /// What was typed into a form is shown again to those whose login has ended, as far as it is small.
    async fn turned_away(&self, request: Request, problem: Problem) -> Response {
        let is_form = self.path == DEEDS_PATH && problem.status() == StatusCode::UNAUTHORIZED;
        let visit = request.extensions().get::<Visit>().filter(|_| is_form).cloned();
        let Some(visit) = visit else { return problem.into_response() };
        let (parts, body) = request.into_parts();
        let asks = match self.of_stranger(&parts, body).await {
            Ok(read) => visit.asks_to_log_in(&read.bytes).map(|page| read.held_by(page)),
            Err(_) => None,
        };
        asks.unwrap_or_else(|| problem.into_response())
    }

    /// The body of a caller without a token.
    async fn of_stranger(&self, parts: &Parts, body: axum::body::Body) -> Result<Body> {
        let origin = self.app.guard.origin(parts.extensions.get(), &parts.headers);
        let party = origin.map_or(Party::Unknown, Party::Address);
        self.app.budgets.read_login(&party, body).await
    }

    /// Identifies the caller; counts and limits unknown ones.
    fn know(&self, request: &Request) -> Result<Who> {
        let (app, headers) = (&self.app, request.headers());
        let known = match self.door {
            Door::Programs => app.guard.know(self.access, request.method(), headers),
            Door::People => {
                let visit = request.extensions().get::<Visit>();
                let nobody = Ok(None);
                let visitor = visit.map_or(&nobody, Visit::visitor);
                session::know(&app.guard, self.access, request.method(), headers, visitor)
            }
        };
        let origin = app.guard.origin(request.extensions().get(), headers);
        let (Some(origin), true) = (origin, self.access != Access::Open) else { return known };
        let token = match &known {
            Ok(Who::Token { name, .. }) => app.guard.named(name),
            Err(problem)
                if problem.status() == StatusCode::UNAUTHORIZED
                    && headers.contains_key(AUTHORIZATION) =>
            {
                app.meter.refused_login();
                None
            }
            _ => return known,
        };
        // A person whom a proxy names has no token that could be guessed.
        if token.is_none() && known.is_ok() {
            return known;
        }
        match app.logins.admit(origin, token) {
            Ok(()) => known,
            Err(wait) => {
                Err(Problem::too_many("too many wrong tokens from this address").after(wait))
            }
        }
    }

    async fn pass(&self, who: &Who, request: Request, next: Next) -> Response {
        if let Err(problem) = who.admit(self.access) {
            return problem.into_response();
        }
        if self.app.is_draining() && !self.outlives_drain {
            let draining = Problem::unavailable("this node is draining: use another one");
            return draining.into_response();
        }
        // Probes need no place.
        let Some(class) = self.class_of(&request) else { return next.run(request).await };
        let scope = who.scope();
        if self.reach == Reach::All
            && let Err(problem) =
                scope.check_all("may not use this endpoint, which concerns all queues")
        {
            return problem.into_response();
        }
        let caller = Caller::new(who, class, &request);
        let (party, budgets) = (&caller.party, &self.app.budgets);
        if self.path == METRICS_PATH {
            return match budgets.metrics.try_take(party, 1) {
                Some(place) => held(next.run(request).await, place),
                None => too_many(),
            };
        }
        let visit = Visit::of_part(&request);
        let shared = visit.as_ref().filter(|_| !scope.is_limited());
        if let Some((visit, part)) = shared.and_then(|visit| Some((visit, visit.ready(&self.app)?)))
        {
            return self.shown(visit, &part, party).await;
        }
        let Some(_place) = budgets.requests.of(class).try_take(party, 1) else {
            return match shared.and_then(|visit| Some((visit, visit.last(&self.app)?))) {
                Some((visit, part)) => self.shown(visit, &part, party).await,
                None => too_many(),
            };
        };
        let mut request = match self.within(&scope, request).await {
            Ok(request) => request,
            Err(problem) => return problem.into_response(),
        };
        request.extensions_mut().insert(caller.clone());
        let share = budgets.answers.take(party, self.answer_bytes(class), ANSWER_WAIT_MAX);
        if let Some(visit) = visit {
            return match visit.part(&self.app, share, request, next).await {
                Ok(part) => self.shown(&visit, &part, party).await,
                Err(response) => response,
            };
        }
        let Some(share) = share.await else { return too_many() };
        held(self.made(request, next).await, share)
    }

    /// A part of a page as the answer. What of it is in memory until it is sent is counted.
    async fn shown(&self, visit: &Visit, part: &Part, party: &Party) -> Response {
        let budget = &self.app.budgets.answers;
        let bytes = u32::try_from(part.text.len()).unwrap_or(u32::MAX);
        match budget.take(party, bytes, ANSWER_WAIT_MAX).await {
            Some(share) => held(visit.own(part, &self.app.memo.stand_in), share),
            None => too_many(),
        }
    }

    /// The answer of the handler.
    async fn made(&self, request: Request, next: Next) -> Response {
        let memo = &self.app.memo;
        let (is_read, visit) = (request.method().is_safe(), request.extensions().get::<Visit>());
        if let (true, Some(visit)) = (is_read, visit) {
            memo.forget(&visit.kind());
        }
        let response = next.run(request).await;
        if !is_read && !self.is_traffic {
            memo.forget_all();
        }
        response
    }

    /// Refuses a token the queues that it is not for, by what the path names.
    async fn within(&self, scope: &Scope, request: Request) -> Result<Request> {
        let name = match self.reach {
            Reach::Queue => "queue",
            Reach::Job => "job_id",
            Reach::Handler | Reach::All => return Ok(request),
        };
        if !scope.is_limited() {
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        let path = RawPathParams::from_request_parts(&mut parts, &()).await;
        let path = path.map_err(|rejection| Problem::invalid("path", rejection.body_text()))?;
        let value = path.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        if self.reach == Reach::Queue {
            scope.check_queue(value)?;
        } else if let Ok(id) = value.parse() {
            scope.check_id(&*self.app.store, id).await?;
        }
        Ok(Request::from_parts(parts, body))
    }

    /// A request that waits for a job takes no place of readers, nor memory meanwhile. One that only asks to wait does.
    fn class_of(&self, request: &Request) -> Option<Class> {
        match self.access {
            Access::Follow if self.path == JOB_PATH && waits(request) => Some(Class::Producers),
            access => Class::of(access),
        }
    }

    /// What the answer may take of memory.
    fn answer_bytes(&self, class: Class) -> u32 {
        match (class, self.path) {
            (_, EVENTS_PATH | LIVE_PATH) => 0,
            (Class::Readers, path) if path.contains("{job_id}") => JOB_ANSWER_BYTES,
            // It is made step by step, and sent for as long as its reader likes.
            (Class::Readers, path) if path.starts_with(EXPORT_START) => JOB_ANSWER_BYTES,
            (Class::Readers, _) => PAGE_ANSWER_BYTES,
            _ => 0,
        }
    }

    /// Passes it, and writes down who asked for what. All of that in a task of its own: a client that
    /// goes away takes neither the action back nor its line.
    async fn audited(self, who: Who, entry: Entry, request: Request, next: Next) -> Response {
        let (app, mut unanswered) = (self.app.clone(), entry.clone());
        let doing = request.extensions().get().map(Visit::doing).cloned().unwrap_or_default();
        let (unfinished, does) = (app.unfinished(), doing.clone());
        let answering = async move {
            let response = self.told((&who, &does), entry, request, next).await;
            drop(unfinished);
            response
        };
        match tokio::spawn(answering.in_current_span()).await {
            Ok(response) => response,
            Err(error) => {
                unanswered.does(&doing);
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                app.audit.write(unanswered, status, None).await;
                tracing::error!(%error, "failed to answer a request");
                Problem::new(status, "internal error: see the log").into_response()
            }
        }
    }

    async fn told(
        &self,
        (who, doing): (&Who, &Doing),
        mut entry: Entry,
        request: Request,
        next: Next,
    ) -> Response {
        let may = who.admit(self.access).is_ok();
        let response = match self.is_traffic || !may {
            true => self.pass(who, request, next).await,
            // What is done may stand in the body, which is small.
            false => match self.heard(who, request, &mut entry).await {
                Ok((request, body)) => body.held_by(self.pass(who, request, next).await),
                Err(problem) => problem.into_response(),
            },
        };
        entry.does(doing);
        let (status, count) = (response.status(), response.extensions().get().copied());
        if let Some(named) = response.extensions().get::<Named>() {
            entry.is_on(named);
        }
        let signed = response.extensions().get::<Signed>();
        if let Some(Signed(who)) = signed {
            entry.is_by(who);
        }
        // A form answers with the next page. Who logs in changes nothing, and may have come to see what is wrong.
        let is_done =
            status.is_success() || (status.is_redirection() && self.access != Access::Open);
        let is_refused = is_refusal(status) || (!self.is_traffic && status.is_client_error());
        if is_refused {
            self.app.audit.refused(entry, status).await;
        } else if self.access == Access::Open && signed.is_none() {
            // A logout without a login: nothing was done.
            return response;
        } else if !self.app.audit.write(entry, status, count).await && is_done {
            let said =
                "the request was carried out, but the audit log cannot be written: see the log";
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, said).into_response();
        }
        response
    }

    /// Reads the body, for those who write down what it asks for.
    async fn heard(
        &self,
        who: &Who,
        request: Request,
        entry: &mut Entry,
    ) -> Result<(Request, Body)> {
        let class = Class::of(self.access);
        let caller = class.map(|class| Caller::new(who, class, &request));
        let (parts, body) = request.into_parts();
        let budgets = &self.app.budgets;
        let read = match caller {
            Some(caller) => budgets.read(&caller, body, BODY_BYTES_MAX).await?,
            None => self.of_stranger(&parts, body).await?,
        };
        // Of a form its handler says what it does.
        if self.door == Door::Programs {
            let (bytes, mut words) = (read.bytes.clone(), entry.clone());
            let asked = move || {
                words.asks(&bytes);
                words
            };
            *entry = off_thread(read.bytes.len(), asked).await?;
        }
        let body = read.bytes.clone().into();
        Ok((Request::from_parts(parts, body), read))
    }
}

fn too_many() -> Response {
    Problem::too_many("too many requests of this kind in progress").into_response()
}

/// Gives the request an id, the client's own where it sent one, and sends it back.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let fits = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.to_str().is_ok()
    };
    let own = request.headers().get(&REQUEST_ID).filter(fits).cloned();
    let id = own.or_else(|| format!("{:032x}", fastrand::u128(..)).parse().ok());
    if let Some(id) = &id {
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let span = span(&request);
    let mut response = next.run(request).instrument(span).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The fields of a request in each of its log lines.
fn span(request: &Request) -> tracing::Span {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let request_id = header("x-request-id");
    let trace_id = header("traceparent").and_then(trace::id);
    tracing::info_span!("request", request_id, trace_id)
}

/// Counts the request by route and status.
pub(super) async fn count(app: Shared, request: Request, next: Next) -> Response {
    let method = method_word(&request);
    let response = next.run(request).await;
    let route = response.extensions().get::<Met>().map_or("other", |met| met.0);
    app.meter.requested(method, route, response.status().as_u16());
    response
}

/// There is no such path.
pub(super) async fn nothing_here(app: Shared, request: Request) -> Response {
    let path = request.uri().path();
    let problem = Problem::missing(format!("nothing at {path}; /openapi.json lists the endpoints"));
    let said = format!("There is no page at {}.", cut_middle(path, QUOTED_BYTES_MAX));
    refused(&app, request, problem.on_pages(said)).await
}

/// There is such a path, for other methods; the router adds which.
pub(super) async fn not_so(app: Shared, request: Request) -> Response {
    let detail = format!("{} is not allowed here; see the header Allow", request.method());
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    refused(&app, request, problem.on_pages("This address is not a page.")).await
}

/// As a page for a browser, where there are pages.
async fn refused(app: &Shared, request: Request, problem: Problem) -> Response {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_browser = accept.is_some_and(|accept| accept.contains("text/html"));
    let response = problem.into_response();
    if !is_browser || !app.dashboard.enabled {
        return response;
    }
    let (parts, _) = request.into_parts();
    Visit::of(app, &parts, app.page_key().await).shown(response)
}
