//! The dashboard: pages for people. Each is a view of calls that the API and the command line have too; templates are in
//! `templates/`, and nothing is shown that the visitor's token may not see.

mod about;
mod again;
mod ask;
mod assets;
mod audit;
mod batches;
mod bridges;
mod button;
mod chart;
mod charts;
mod cron;
mod deed;
mod deeds;
mod events;
mod export;
mod frame;
mod job;
mod jobs;
mod kept;
mod key;
mod lanes;
mod limits;
mod link;
mod login;
mod moment;
mod nodes;
mod operations;
mod overview;
mod part;
mod payload;
mod queue;
mod queues;
mod recent;
mod reschedule;
mod row;
mod scheduled;
mod search;
pub(super) mod session;
mod timeline;
mod turns;
mod visit;
mod ways;
mod whole;
mod wrong;

use super::live::{self, LIVE_PATH};
use super::{Access, Route};
// What nearly every page is made of.
use button::Button;
use chart::Chart;
use deed::{Deed, On};
use frame::Frame;
use moment::Moment;
use recent::Recent;
use row::{JobRow, LaneRow, ROWS_SHOWN};
use visit::page;
use wrong::Wrong;
// For the templates of all pages.
use crate::app::merged::QUEUES_MERGED_MAX;
use crate::base::text::grouped;
pub(super) use link::DEEDS_PATH;
pub(super) use turns::without_trail;
pub(super) use visit::Visit;

/// How the paths of exports begin.
pub(super) const EXPORT_START: &str = "/export/";

/// Every page, and what forms do.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::page("/", Access::Read, overview::show),
        Route::page("/queues", Access::Read, queues::show),
        Route::page("/queues/{queue}", Access::Read, queue::show),
        Route::page("/queues/{queue}/lanes", Access::Read, lanes::show),
        Route::page("/key", Access::Read, key::show),
        Route::page("/jobs", Access::Read, jobs::show),
        Route::page("/jobs/{job_id}", Access::Read, job::show),
        Route::page("/jobs/{job_id}/payload", Access::Read, job::payload),
        Route::page("/key/events", Access::Read, timeline::show),
        Route::page("/jobs/{job_id}/events", Access::Read, events::show),
        Route::page("/export/jobs", Access::Read, export::jobs),
        Route::page("/export/lanes/{queue}", Access::Read, export::lanes),
        Route::page("/export/scheduled", Access::Read, export::scheduled),
        Route::page("/export/audit", Access::Read, export::deeds),
        Route::page("/export/batches", Access::Read, export::batches),
        Route::page("/export/key", Access::Read, export::happened),
        Route::page("/export/jobs/{job_id}/events", Access::Read, whole::events),
        Route::page("/export/causes", Access::Read, whole::causes),
        Route::page("/export/queues", Access::Read, whole::queues),
        Route::page("/export/nodes", Access::Read, whole::nodes),
        Route::page("/export/bridges", Access::Read, whole::bridges),
        Route::page("/export/cron", Access::Read, whole::entries),
        Route::page("/export/operations", Access::Read, whole::operations),
        Route::page("/morgue", Access::Read, jobs::morgue),
        Route::page("/scheduled", Access::Read, scheduled::show),
        Route::page("/reschedule", Access::Operate, reschedule::show),
        Route::page("/cron", Access::Read, cron::show),
        Route::page("/batches", Access::Read, batches::show),
        Route::page("/nodes", Access::Read, nodes::show_all),
        Route::page("/nodes/{node}", Access::Read, nodes::show_one),
        Route::page("/operations", Access::Read, operations::show_all),
        Route::page("/operations/new", Access::Read, ask::by_link),
        Route::form("/operations/new", Access::Read, ask::by_form).traffic(),
        Route::form("/operations/start", Access::Operate, ask::start),
        Route::page("/operations/{operation}", Access::Read, operations::show_one),
        Route::page("/audit", Access::Read, audit::show),
        Route::page("/search", Access::Read, search::show),
        Route::page("/about", Access::Read, about::show).outlives_drain(),
        Route::page("/confirm", Access::Read, deeds::confirm),
        Route::form(DEEDS_PATH, Access::Read, deeds::carry_out),
        Route::page(LIVE_PATH, Access::Read, live::listen),
        Route::page("/login", Access::Open, login::show).outlives_drain(),
        Route::form("/login", Access::Open, login::enter),
        Route::form("/logout", Access::Open, login::leave).outlives_drain(),
        Route::page("/assets/{name}", Access::Open, assets::serve).outlives_drain(),
    ]
}
