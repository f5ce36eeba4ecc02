//! The live part of a page: made at most once a second for all visitors who may see the same.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::super::memo::{Missing, Part};
use super::super::pool::Held;
use super::super::{Problem, Shared, Who};
use super::visit::{AS_OF, DEAD, Visit, Wants, html};

/// Longest part, in bytes.
const PART_BYTES_MAX: usize = 4 << 20;

impl Visit {
    /// The visit of the script of a page, which asks for the live part.
    pub(in crate::http) fn of_part(request: &Request) -> Option<Self> {
        let asks = |visit: &&Self| {
            matches!(visit.wants, Wants::Parts(_)) && *request.method() == Method::GET
        };
        request.extensions().get().filter(asks).cloned()
    }

    /// The live part of the page that another visitor had made, if it may be shown.
    pub(in crate::http) fn ready(&self, app: &Shared) -> Option<Part> {
        app.memo.ready(&self.kind())
    }

    /// The one before it.
    pub(in crate::http) fn last(&self, app: &Shared) -> Option<Part> {
        app.memo.last(&self.kind())
    }

    /// The live part of the page, made with a share of the memory for answers, or as another visitor has it made.
    pub(in crate::http) async fn part(
        &self,
        app: &Shared,
        share: impl Future<Output = Option<Held>>,
        mut request: Request,
        next: Next,
    ) -> Result<Part, Response> {
        request.extensions_mut().insert(self.of_all(&app.memo.stand_in));
        let make = async || {
            let _share = share.await.ok_or(Missing::Busy)?;
            read(next.run(request).await).await.map_err(Missing::Failed)
        };
        app.memo.part(&self.kind(), make).await.map_err(|missing| match missing {
            Missing::Failed(response) => response,
            Missing::Busy => Problem::unavailable("too many pages are being made").into_response(),
        })
    }

    /// Who sees the same at this address: those of one role and time zone, and of one token if that is limited.
    pub(in crate::http) fn kind(&self) -> String {
        let who = match &self.who {
            Who::Anybody => "",
            Who::Token { name, scope, .. } if scope.is_limited() => name,
            Who::Token { role, .. } => role.name(),
        };
        // Lines: none of these has one.
        format!("{}\n{who}\n{}", self.frame.address, self.clock.zone_name())
            + if self.scope.is_limited() { "\nlimited" } else { "" }
    }

    /// A visit whose part is for all.
    fn of_all(&self, stand_in: &str) -> Self {
        let mut visit = self.clone();
        stand_in.clone_into(&mut visit.frame.mark);
        visit
    }

    /// The part with the mark of this visitor, unless the page has it already.
    pub(in crate::http) fn own(&self, part: &Part, stand_in: &str) -> Response {
        let is_known = matches!(&self.wants, Wants::Parts(Some(known)) if *known == part.mark);
        let mut response = match std::str::from_utf8(&part.text) {
            _ if is_known => StatusCode::NOT_MODIFIED.into_response(),
            Ok(text) if text.contains(stand_in) => html(text.replace(stand_in, &self.frame.mark)),
            _ => html(part.text.clone()),
        };
        response.headers_mut().insert(header::ETAG, part.mark.clone());
        response.headers_mut().insert(AS_OF, part.as_of.clone());
        let dead = self.frame.dead.as_deref().and_then(|dead| HeaderValue::from_str(dead).ok());
        dead.and_then(|dead| response.headers_mut().insert(DEAD, dead));
        response
    }
}

/// The part in a page's answer; the answer itself if it is none.
async fn read(response: Response) -> Result<Part, Response> {
    let (mark, as_of, body) = {
        let (head, body) = response.into_parts();
        let header = |name| head.headers.get(name).cloned();
        let (StatusCode::OK, Some(mark)) = (head.status, header(header::ETAG)) else {
            return Err(Response::from_parts(head, body));
        };
        (mark, header(AS_OF).unwrap_or(HeaderValue::from_static("")), body)
    };
    match to_bytes(body, PART_BYTES_MAX).await {
        Ok(text) => Ok(Part { text, mark, as_of, at: Instant::now() }),
        Err(_) => Err(Problem::unavailable("this page is too large to be renewed").into_response()),
    }
}
