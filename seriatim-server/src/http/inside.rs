//! The API for other front-ends of this process: the tokens, roles, budgets, limits and the audit log are those of requests
//! from outside, because it is the same router that answers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;

use super::auth::KnownToken;
use super::caller::{Caller, Class, Party, Peer, site};
use super::input::JSON;
use super::pool::Held;
use super::problem::Problem;
use super::router::build;
use super::state::App;
use super::who::Who;
use super::work::claims_of;

/// The API, and what a front-end needs to know of its server.
pub(crate) struct Inside {
    app: Arc<App>,
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
    _held: Held,
}

/// What the API says when it does not do what was asked.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// With the name of the field that is wrong, if there is one.
    pub(crate) text: String,
}

impl Inside {
    pub(crate) fn new(app: Arc<App>) -> Self {
        let router = TowerToHyperService::new(build(&app));
        Self { app, router }
    }

    /// Whether no token is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.app.guard.is_open()
    }

    /// Counts a wrong token. False: too many came from this address.
    pub(crate) fn bears_a_wrong_token(&self, peer: SocketAddr) -> bool {
        self.app.meter.refused_login();
        self.app.logins.admit(site(peer.ip()), None).is_ok()
    }

    /// Takes this many bytes of the visitor's share of memory; not of the share for pushes, which the resulting request
    /// takes.
    pub(crate) fn room(&self, visitor: &Visitor, bytes: usize) -> Result<Room, Refusal> {
        let token = visitor.token.as_ref().and_then(|secret| self.app.guard.token(secret));
        let who = token.map_or(Who::Anybody, KnownToken::who);
        let (party, scope) = (Party::of(&who, Some(&Peer(visitor.peer))), who.scope());
        let caller = Caller { party, class: Class::Workers, who, scope };
        let held = self.app.budgets.hold(&caller, bytes);
        held.map(|held| Room { _held: held }).map_err(Refusal::of)
    }

    /// The claims of the workers of this token, wherever they were handed out: the name of the worker, and the lane as
    /// `POST /work/claim` answers it.
    pub(crate) async fn claims(&self, visitor: &Visitor) -> Result<Vec<(String, String)>, Refusal> {
        let token = visitor.token.as_ref().and_then(|secret| self.app.guard.token(secret));
        let bearer = token.map(|token| token.name.as_str().into());
        let found = claims_of(&self.app, bearer).await;
        found.map_err(Refusal::of)
    }

    /// The answer to a request for a path below `/api/v1`.
    pub(crate) async fn ask(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Bytes, Refusal> {
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
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|e| Refusal::ours(&e))?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(Refusal::read(status, &body)) }
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
