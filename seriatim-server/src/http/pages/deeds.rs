//! Forms: the page that asks first, and the deed itself.

use askama::Template;
use axum::extract::{RawForm, RawQuery, State};
use axum::response::Response;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::deed::{Deed, Fields, On};
use super::frame::Frame;
use super::link;
use super::visit::{SAID, Visit, page, see_other, set_cookie};

/// Longest text of a cookie that says what was done, in bytes.
const SAID_BYTES_MAX: usize = 1_000;
/// How long the next page may take to show it, in seconds.
const SAID_SECONDS: u64 = 30;

#[derive(Template)]
#[template(path = "confirm.html", blocks = ["live"])]
struct Confirm<'a> {
    frame: &'a Frame,
    button: &'static str,
    target: String,
    warning: &'static str,
    fields: Vec<(&'static str, String)>,
    back: String,
}

page!(Confirm);

pub(super) async fn confirm(
    State(app): State<Shared>,
    visit: Visit,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let fields = read(query.unwrap_or_default().as_bytes());
    let deed = Deed::read(&fields)?;
    admit(&app, &visit, &deed).await?;
    visit.show(&Confirm {
        frame: &visit.frame,
        button: deed.kind.button,
        target: deed.target(),
        warning: deed.kind.warning.unwrap_or_default(),
        fields: deed.fields(),
        back: back(&visit, &fields),
    })
}

pub(super) async fn carry_out(
    State(app): State<Shared>,
    visit: Visit,
    RawForm(body): RawForm,
) -> Result<Response, Problem> {
    let fields = read(&body);
    if fields.get("mark").map_or("", String::as_str) != visit.frame.mark {
        let detail = "this form is of another login: go back, reload the page, and try again";
        return Err(Problem::new(axum::http::StatusCode::FORBIDDEN, detail));
    }
    let deed = Deed::read(&fields)?;
    admit(&app, &visit, &deed).await?;
    let count = deed.carry_out(&app, visit.who().name()).await?;
    let mut response = see_other(&back(&visit, &fields));
    let said = said(&deed, count);
    if said.len() <= SAID_BYTES_MAX {
        set_cookie(&mut response, &visit.cookie(SAID, &said, SAID_SECONDS, false));
    }
    response.extensions_mut().insert(super::super::audit::Count(count));
    Ok(response)
}

/// Refuses what the visitor's role or queues do not allow.
async fn admit(app: &Shared, visit: &Visit, deed: &Deed) -> Result<(), Problem> {
    visit.who().admit(deed.kind.access)?;
    if !visit.scope.is_limited() {
        return Ok(());
    }
    match (&deed.on, deed.queue()) {
        (_, Some(queue)) => visit.scope.check_queue(queue),
        (On::Job(id), None) => match app.store.job(*id).await? {
            Some(job) if visit.scope.has_queue(&job.queue) => Ok(()),
            _ => Err(visit.scope.no_job(*id)),
        },
        _ => Err(visit
            .scope
            .refuse("may not act on nodes and cron entries, which concern all queues")),
    }
}

fn read(text: &[u8]) -> Fields {
    form_urlencoded::parse(text).into_owned().collect()
}

/// Where the visitor came from: a page of this server.
fn back(visit: &Visit, fields: &Fields) -> String {
    let base = &visit.frame.base;
    local(fields.get("back").map_or("", String::as_str), base).unwrap_or_else(|| format!("{base}/"))
}

/// An address below this one, and of no other site.
pub(super) fn local(address: &str, base: &str) -> Option<String> {
    let path = address.strip_prefix(base)?;
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_below = path.starts_with(['/', '?']) && !address.starts_with("//");
    (is_plain && is_below).then(|| address.to_owned())
}

/// What was done, and the form that undoes it, as the value of a cookie.
fn said(deed: &Deed, count: u64) -> String {
    let text = seriatim::text::one_line(&deed.done(count));
    let mut pairs = vec![format!("text={}", link::encoded(&text))];
    if let Some(undo) = deed.undo() {
        let fields = undo.fields().into_iter();
        pairs.extend(fields.map(|(name, value)| format!("{name}={}", link::encoded(&value))));
    }
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_back_to_a_page_of_this_server_only() {
        for (address, base, is_ours) in [
            ("/queues?by=key", "", true),
            ("/jobs/queues", "/jobs", true),
            ("/other", "/jobs", false),
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
