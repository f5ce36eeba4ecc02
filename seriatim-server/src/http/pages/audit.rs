//! Who did what.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::Store;

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
    pub(super) after: String,
}

impl Wish {
    /// The filters as a query.
    fn pairs(&self) -> [(&str, &str); 6] {
        [
            ("of", &self.of),
            ("queue", &self.queue),
            ("who", &self.who),
            ("action", &self.action),
            ("since", &self.since),
            ("until", &self.until),
        ]
    }

    /// A page behind this entry.
    pub(super) async fn page(
        &self,
        store: &dyn Store,
        after: Option<&str>,
        rows_max: usize,
    ) -> Result<deeds::Page> {
        let wanted = Wanted {
            of: given(&self.of),
            queue: given(&self.queue),
            who: given(&self.who),
            action: given(&self.action),
            since: moment(store, "since", &self.since).await?,
            until: moment(store, "until", &self.until).await?,
            after,
        };
        Ok(deeds::latest(store, wanted, rows_max).await?)
    }

    /// Whether a rarely used filter is set.
    fn is_filtered(&self) -> bool {
        let rare = [&self.queue, &self.who, &self.action, &self.since, &self.until];
        rare.iter().any(|text| !text.is_empty())
    }
}

/// A deed for a template.
pub(super) struct DeedRow {
    pub(super) at: Moment,
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
            at: visit.clock.of(deed.noted_at),
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
    export: String,
    next: Option<String>,
}

page!(Audit);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    whole(&visit)?;
    let found = wish.page(&*app.store, given(&wish.after), ROWS_SHOWN).await;
    let (page, wrong) = Wrong::of(found, &["since", "until"])?;
    let base = &visit.frame.base;
    let with = |path: &str, after: &str| {
        let pairs = wish.pairs().into_iter().chain([("after", after)]);
        link::with(&format!("{base}{path}"), &pairs.collect::<Vec<_>>())
    };
    let (next, export) = (page.next.map(|next| with("/audit", &next)), with("/export/audit", ""));
    let rows = page.entries.into_iter().map(|deed| DeedRow::new(&visit, deed)).collect();
    let is_filtered = wish.is_filtered();
    let page =
        Audit { frame: &visit.frame, wish: &wish, wrong: &wrong, is_filtered, rows, export, next };
    Ok(wrong.shown(visit.show(&page)?))
}

/// The audit log has all queues.
pub(super) fn whole(visit: &Visit) -> Result<()> {
    visit.scope.check_all("may not see the audit log, which concerns all queues")
}

async fn moment(store: &dyn Store, field: &'static str, text: &str) -> Result<Option<Timestamp>> {
    let Some(text) = given(text) else { return Ok(None) };
    let read = time::Moment::read(text).map_err(|why| Problem::invalid(field, why))?;
    Ok(Some(read.of(store).await?))
}
