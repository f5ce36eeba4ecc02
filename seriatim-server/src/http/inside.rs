//! The API for other front-ends of this process: the tokens, roles, budgets, limits and the audit log are those of requests
//! from outside, because it is the same router that answers.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use seriatim::JobId;
use seriatim::store::Cancel;

use super::auth::KnownToken;
use super::caller::{Class, Party, Peer, site};
use super::input::JSON;
use super::limits::Kept;
use super::pool::Held;
use super::router::build;
use super::work::claims_of;
use super::{Caller, Problem, Shared, Who};

/// The API, and what a front-end needs to know of its server.
pub(crate) struct Inside {
    app: Shared,
    router: TowerToHyperService<Router>,
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) peer: SocketAddr,
    /// The secret of their token; none if no token is needed.
    pub(crate) token: Option<Arc<str>>,
}

/// Memory of a visitor's share, until it is dropped.
pub(crate) struct Room {
    _held: Option<Held>,
    _kept: Option<Kept>,
}

/// An answer, which has its share of memory until it is dropped.
pub(crate) struct Replied {
    bytes: Bytes,
    kept: Option<Kept>,
}

/// What the API says when it does not do what was asked.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// With the name of the field that is wrong, if there is one.
    pub(crate) text: String,
}

impl Inside {
    pub(crate) fn new(app: Shared) -> Self {
        let router = TowerToHyperService::new(build(&app));
        Self { app, router }
    }

    /// Whether no token is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.app.guard.is_open()
    }

    /// Whether a client with this token, or with a wrong one, is heard. False: too many wrong ones came from its address.
    pub(crate) fn admits(&self, peer: SocketAddr, token: Option<&Arc<str>>) -> bool {
        let token = token.and_then(|secret| self.app.guard.token(secret));
        if token.is_none() {
            self.app.meter.refused_login();
        }
        self.app.logins.admit(site(peer.ip()), token).is_ok()
    }

    /// Takes this many bytes of the visitor's share of memory; not of the share for pushes, which the resulting request
    /// takes.
    pub(crate) fn room(&self, visitor: &Visitor, bytes: usize) -> Result<Room, Refusal> {
        let token = visitor.token.as_ref().and_then(|secret| self.app.guard.token(secret));
        let who = token.map_or(Who::Anybody, KnownToken::who);
        let (party, scope) = (Party::of(&who, Some(&Peer(visitor.peer))), who.scope());
        let caller = Caller { party, class: Class::Workers, who, scope };
        let held = self.app.budgets.hold(&caller, bytes);
        held.map(|held| Room { _held: Some(held), _kept: None }).map_err(Refusal::of)
    }

    /// The claims of the workers of this token that are not known, wherever they were handed out: see [`claims_of`].
    pub(crate) async fn claims(
        &self,
        visitor: &Visitor,
        is_known: impl Fn(&str, u64) -> bool + Send,
        found: impl FnMut(&str, &str) + Send,
    ) -> Result<(), Refusal> {
        let token = visitor.token.as_ref().and_then(|secret| self.app.guard.token(secret));
        let bearer = token.map(|token| token.name.as_str().into());
        claims_of(&self.app, bearer, is_known, found).await.map_err(Refusal::of)
    }

    /// Lets a job end cancelled with its turn. For who holds it: over HTTP, workers cancel none.
    pub(crate) async fn flag(&self, job: JobId) -> Result<(), Refusal> {
        let flagged = self.app.store.cancel(Cancel { now: None, jobs: vec![job] }).await;
        flagged.map(drop).map_err(|error| Refusal::of(error.into()))
    }

    /// The answer to a request for a path below `/api/v1`.
    pub(crate) async fn ask(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Replied, Refusal> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.app.base_path))
            .header(CONTENT_TYPE, JSON)
            .extension(Peer(visitor.peer));
        if let Some(token) = &visitor.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body)).map_err(|e| Refusal::ours(&e))?;
        let Ok(answer) = self.router.call(request).await;
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(|e| Refusal::ours(&e))?.to_bytes();
        match parts.status.is_success() {
            true => Ok(Replied { bytes, kept: parts.extensions.get().cloned() }),
            false => Err(Refusal::read(parts.status, &bytes)),
        }
    }
}

impl Replied {
    /// Its memory, for as long as something of it is held.
    pub(crate) fn room(&self) -> Room {
        Room { _held: None, _kept: self.kept.clone() }
    }
}

impl Deref for Replied {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Refusal {
    fn ours(error: &dyn std::error::Error) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, text: error.to_string() }
    }

    fn of(problem: Problem) -> Self {
        Self { status: problem.status(), text: problem.into_detail() }
    }

    fn read(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Said {
            detail: Option<String>,
            field: Option<String>,
        }
        let said = serde_json::from_slice(body).unwrap_or(Said { detail: None, field: None });
        let detail = said.detail.unwrap_or_else(|| status.to_string());
        let text = said.field.map_or_else(|| detail.clone(), |field| format!("{field}: {detail}"));
        Self { status, text }
    }
}
