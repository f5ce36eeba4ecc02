//! What was typed into a form whose sender's login had ended. The login shows it, and carries it on in the body of its form;
//! the page behind the login asks whether to send it. So it is in no address and in no store, and does nothing by itself.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::{Result, Shared};
use super::deed::Fields;
use super::deeds::{self, back_to};
use super::login::Login;
use super::visit::html;
use super::{Deed, On, Visit, link};

/// What they learn who then send it.
const ENDED: &str =
    "Your login was no longer valid, so nothing was done. Check the form, and submit it again.";

/// A form that was typed.
pub(super) struct Kept {
    deed: Deed,
    /// The page that the deed leads back to.
    back: String,
}

impl Kept {
    /// The form with these fields, if people type into such forms.
    pub(super) fn read(fields: &Fields) -> Option<Self> {
        let deed = Deed::read(fields).ok().filter(Deed::is_typed)?;
        Some(Self { deed, back: fields.get("back").cloned().unwrap_or_default() })
    }

    /// In words, for the page of the login.
    pub(super) fn what(&self) -> String {
        format!("{}: {}", self.deed.kind.button, self.deed.target())
    }

    /// The payload that was typed.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.deed.on {
            On::Dead { payload, .. } => payload.as_deref(),
            _ => None,
        }
    }

    /// The other fields, as hidden ones.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = self.deed.fields();
        fields.retain(|(name, _)| *name != "payload");
        fields.push(("back", self.back.clone()));
        link::carried(fields)
    }

    /// The page that asks who has logged in whether to send it; none if they may not.
    pub(super) async fn asks(&self, app: &Shared, visit: &Visit) -> Result<Response> {
        deeds::admit(app, visit, &self.deed).await?;
        let back = back_to(visit, &self.back);
        match self.text() {
            Some(text) => deeds::edit(visit, &self.deed, back, text.to_owned(), ENDED.to_owned()),
            None => {
                let typed = self.deed.typed();
                deeds::ask(visit, &self.deed, back, format!("{ENDED} {typed}"), None)
            }
        }
    }
}

impl Visit {
    /// The login, with what was typed; none if that was nothing.
    pub(in crate::http) fn asks_to_log_in(&self, form: &[u8]) -> Option<Response> {
        let kept = Kept::read(&deeds::read(form))?;
        let next = self.came_from().to_owned();
        let login = Login::new(&self.frame, next).undone(Some(kept));
        let mut response = html(login.render().ok()?);
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::Memory;

    use super::super::super::auth::{Guard, KnownToken};
    use super::super::super::caller::Party;
    use super::super::super::limits::LOGIN_BODIES_BYTES;
    use super::super::super::router::build;
    use super::super::super::scope::Scope;
    use super::super::super::state::App;
    use super::*;
    use crate::config::Role;

    #[tokio::test]
    async fn what_a_stranger_typed_takes_memory_until_the_page_that_repeats_it_is_sent() {
        let (name, secret) = ("boss".to_owned(), "no-stranger-knows");
        let token = KnownToken::new(name, secret, Role::Admin, Scope::default());
        let guard = Guard { tokens: vec![token], ..Guard::default() };
        let app = App::mounted(Arc::new(Memory::new()), guard);
        let service = TowerToHyperService::new(build(&app));
        let job = "00000000-0000-0000-0000-000000000001";
        let typed = format!("deed=dead.edit&queue=q&job={job}&payload={}", "x".repeat(200 << 10));
        let all_free = || app.budgets.logins.try_take(&Party::Unknown, LOGIN_BODIES_BYTES.party);
        for (path, status) in [("/do", StatusCode::UNAUTHORIZED), ("/login", StatusCode::FORBIDDEN)]
        {
            let request = Request::post(path).header("sec-fetch-site", "same-origin");
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let request = request.body(Body::from(typed.clone())).unwrap();
            let page = service.call(request).await.unwrap();
            assert_eq!(page.status(), status);
            assert!(all_free().is_none(), "{path}");
            drop(page);
            assert!(all_free().is_some(), "{path}");
        }
    }
}
