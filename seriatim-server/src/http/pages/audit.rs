//! Who did what.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::super::input::Query;
use super::super::limits::PAGE_ROWS_DEFAULT;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::frame::Frame;
use super::link;
use super::moment::Moment;
use super::visit::{Visit, page};
use crate::app::deeds::{self, Deed, Wanted};
use crate::base::time;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// A key or a job id
    #[serde(default)]
    of: String,
    #[serde(default)]
    after: String,
}

/// A deed for a template.
pub(super) struct DeedRow {
    pub(super) at: Option<Moment>,
    pub(super) who: String,
    pub(super) role: String,
    pub(super) from: String,
    pub(super) action: String,
    pub(super) on: String,
    pub(super) count: String,
    pub(super) result: String,
    pub(super) request_id: String,
}

impl DeedRow {
    pub(super) fn new(visit: &Visit, deed: Deed) -> Self {
        let result = deed.result();
        let on = deed.on.iter().map(|(name, value)| format!("{name} {value}"));
        Self {
            at: time::read(&deed.at).ok().map(|at| visit.clock.of(at)),
            who: deed.who,
            role: deed.role.unwrap_or_default(),
            from: deed.from.unwrap_or_default(),
            action: deed.action,
            on: on.chain(deed.asked).collect::<Vec<_>>().join(", "),
            count: deed.count.map(|count| count.to_string()).unwrap_or_default(),
            result,
            request_id: deed.request_id.unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "audit.html", blocks = ["live"])]
struct Audit<'a> {
    frame: &'a Frame,
    of: &'a str,
    rows: Vec<DeedRow>,
    next: Option<String>,
}

page!(Audit);

pub(super) async fn show(
    State(app): State<Shared>,
    visit: Visit,
    Query(Wish { of, after }): Query<Wish>,
) -> Result<Response, Problem> {
    if visit.scope.is_limited() {
        return Err(visit.scope.refuse("may not see the audit log, which has all queues"));
    }
    let of_whom = Some(of.as_str()).filter(|of| !of.is_empty());
    let after = Some(after.as_str()).filter(|after| !after.is_empty());
    let wanted = Wanted { of: of_whom, after, ..Wanted::default() };
    let page = deeds::latest(&*app.store, wanted, PAGE_ROWS_DEFAULT).await?;
    let path = format!("{}/audit", visit.frame.base);
    let next = page.next.map(|next| link::with(&path, &[("of", &of), ("after", &next)]));
    let rows = page.entries.into_iter().map(|deed| DeedRow::new(&visit, deed)).collect();
    visit.show(&Audit { frame: &visit.frame, of: &of, rows, next })
}
