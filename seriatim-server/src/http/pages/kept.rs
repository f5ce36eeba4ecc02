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
const ENDED: &str = "Your login was no longer valid, so nothing was done. Check the form, and submit it again.";

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
                deeds::ask(visit, &self.deed, back, format!("{ENDED} {typed}"))
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
