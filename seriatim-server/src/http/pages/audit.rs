//! Who did what.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::Timestamp;

use super::super::input::given;
use super::super::{Problem, Query, Result, Shared};
use super::{Frame, Moment, ROWS_SHOWN, Visit, Wrong, link, page};
use crate::app::deeds::{self, Deed, Wanted};
use crate::base::text::grouped;
use crate::base::time;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    /// A key or a job id
    of: String,
    queue: String,
    who: String,
    action: String,
    since: String,
    until: String,
    after: String,
}

impl Wish {
    /// Whether a rarely used filter is set.
    fn is_filtered(&self) -> bool {
        let rare = [&self.queue, &self.who, &self.action, &self.since, &self.until];
        rare.iter().any(|text| !text.is_empty())
    }
}

/// A deed for a template.
pub(super) struct DeedRow {
    pub(super) at: Option<Moment>,
    pub(super) who: String,
    pub(super) role: String,
    pub(super) from: String,
    /// As programs name it.
    pub(super) action: String,
    pub(super) words: String,
    pub(super) count: String,
    pub(super) result: String,
    pub(super) is_refused: bool,
    pub(super) request_id: String,
}

impl DeedRow {
    pub(super) fn new(visit: &Visit, deed: Deed) -> Self {
        Self {
            words: deed.in_words(),
            result: deed.result(),
            is_refused: deed.is_refused(),
            at: time::read(&deed.at).ok().map(|at| visit.clock.of(at)),
            who: deed.who,
            role: deed.role.unwrap_or_default(),
            from: deed.from.unwrap_or_default(),
            action: deed.action,
            count: deed.count.map(grouped).unwrap_or_default(),
            request_id: deed.request_id.unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "audit.html", blocks = ["live"])]
struct Audit<'a> {
    frame: &'a Frame,
    wish: &'a Wish,
    wrong: &'a Wrong,
    is_filtered: bool,
    rows: Vec<DeedRow>,
    next: Option<String>,
}

page!(Audit);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    visit.scope.check_all("may not see the audit log, which has all queues")?;
    let (page, wrong) = Wrong::of(latest(&app, &wish).await, &["since", "until"])?;
    let path = format!("{}/audit", visit.frame.base);
    let next = page.next.map(|next| {
        let query = [
            ("of", wish.of.as_str()),
            ("queue", &wish.queue),
            ("who", &wish.who),
            ("action", &wish.action),
            ("since", &wish.since),
            ("until", &wish.until),
            ("after", &next),
        ];
        link::with(&path, &query)
    });
    let rows = page.entries.into_iter().map(|deed| DeedRow::new(&visit, deed)).collect();
    let is_filtered = wish.is_filtered();
    let page = Audit { frame: &visit.frame, wish: &wish, wrong: &wrong, is_filtered, rows, next };
    Ok(wrong.shown(visit.show(&page)?))
}

async fn latest(app: &Shared, wish: &Wish) -> Result<deeds::Page> {
    let wanted = Wanted {
        of: given(&wish.of),
        queue: given(&wish.queue),
        who: given(&wish.who),
        action: given(&wish.action),
        since: moment("since", &wish.since)?,
        until: moment("until", &wish.until)?,
        after: given(&wish.after),
    };
    Ok(deeds::latest(&*app.store, wanted, ROWS_SHOWN).await?)
}

fn moment(field: &'static str, text: &str) -> Result<Option<Timestamp>> {
    let read = |text| time::read(text).map_err(|why| Problem::invalid(field, why));
    given(text).map(read).transpose()
}
