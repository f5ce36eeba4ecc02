//! The page that asks when a waiting job, or the first one of a key, shall be due.

use askama::Template;
use axum::response::Response;
use serde::Deserialize;
use seriatim::store::{JobView, LaneId, LaneQuery};
use seriatim::text::one_line;
use seriatim::{JobId, Mode};

use super::super::{Problem, Query, Result, Shared};
use super::deeds::back_to;
use super::ways::{Ways, post};
use super::{Frame, Moment, Visit, link, page};
use crate::app::{find, jobs, lane_jobs};
use crate::base::text::{KEY_COLUMNS, cut};
use crate::base::time::absolute;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wish {
    job: Option<JobId>,
    /// The first waiting job of this lane, if no job is named
    lane: Option<LaneId>,
    back: String,
}

#[derive(Template)]
#[template(path = "reschedule.html", blocks = ["live"])]
struct Reschedule<'a> {
    frame: &'a Frame,
    job: String,
    href: String,
    queue: String,
    key: Option<(String, String)>,
    task: String,
    /// None while a turn of its key hides it.
    due: Option<Moment>,
    /// The same as a form has it.
    was: String,
    /// What else moves with it.
    moves: &'static str,
    back: String,
    ways: Ways,
}

page!(Reschedule);

pub(super) async fn show(app: Shared, visit: Visit, Query(wish): Query<Wish>) -> Result<Response> {
    let job = wish.job(&app, &visit).await?;
    jobs::waiting(&job)?;
    let view = find::queue(&*app.store, &job.queue).await?;
    let base = &visit.frame.base;
    let (id, short) = (job.id, |text: &str| cut(&one_line(text), KEY_COLUMNS));
    let due = jobs::due_of(&*app.store, &job, view.queue.mode).await?;
    let was = due.map(absolute).unwrap_or_default();
    // An example, where it is not known.
    let at = absolute(due.unwrap_or(visit.clock.now));
    let asked = format!("'{{\"run_at\":\"{at}\"}}'");
    visit.show(&Reschedule {
        frame: &visit.frame,
        job: id.to_string(),
        href: link::job(base, id),
        key: job.key.as_deref().map(|key| (short(key), link::key(base, key))),
        task: job.task.as_deref().map(one_line).unwrap_or_default(),
        due: due.map(|at| visit.clock.of(at)),
        moves: match view.queue.mode {
            Mode::Accumulate => "All waiting jobs of the key move with it.",
            Mode::Fifo => "Jobs that wait behind it for the key run after it.",
            Mode::Parallel | Mode::Exclusive => "",
        },
        back: back_to(&visit, &wish.back),
        ways: Ways::new(
            post(&format!("/api/v1/jobs/{id}/reschedule"), &asked),
            &format!("seriatim jobs reschedule {id} --at {at}"),
        ),
        queue: job.queue.to_string(),
        was,
    })
}

impl Wish {
    async fn job(&self, app: &Shared, visit: &Visit) -> Result<JobView> {
        if let Some(id) = self.job {
            return visit.job(app, id).await;
        }
        let lane = self.lane.ok_or_else(|| Problem::invalid("lane", "name a job or a lane"))?;
        let store = &*app.store;
        let views = store.queues().await?;
        let view = views.into_iter().find(|view| view.number == lane.queue);
        let gone = || Problem::missing(format!("nothing waits in lane {lane} any more"));
        let queue = view.ok_or_else(gone)?.queue.name;
        visit.scope.check_queue(&queue)?;
        let query = LaneQuery { lane: Some(lane), rows_max: 1, ..LaneQuery::new(queue.as_str()) };
        let found = store.lanes(query).await?.rows.pop().ok_or_else(gone)?;
        match (found.only, found.key) {
            (Some(job), _) => visit.job(app, job.id).await,
            (None, Some(key)) => {
                let first = lane_jobs::of(store, &queue, &key, false, None, 1, Some(0)).await?;
                first.waiting.into_iter().next().ok_or_else(gone)
            }
            (None, None) => Err(gone()),
        }
    }
}
