//! The HTTP API: a thin layer over the library. One resource in each file; `route` describes an
//! endpoint, and router and OpenAPI document are made of the same list of them.

mod around;
mod audit;
mod auth;
mod caller;
mod checkup;
mod cron;
mod dataloader;
mod deeds;
mod doctor;
mod events;
#[cfg(test)]
mod fuzz;
mod health;
mod history;
mod implied;
mod input;
mod jobs;
mod lanes;
mod limits;
mod line;
mod logins;
mod metrics;
mod morgue;
mod nodes;
mod openapi;
mod page;
mod pages;
mod person;
mod pool;
mod problem;
mod push;
mod queues;
mod route;
mod router;
mod sampler;
mod schema;
mod scope;
mod seen;
mod server;
mod signature;
mod state;
mod stats;
mod tokens;
mod work;

pub(crate) use audit::Audit;
pub(crate) use metrics::meter::Meter;
pub(crate) use metrics::store::Metered;
pub use person::Person;
pub(crate) use router::api_document;
pub use router::{Dashboard, dashboard, router};
pub(crate) use server::{Entrance, Listening, Server};
pub(crate) use state::{App, Setup};
pub(crate) use tokens::unknown_queues;
