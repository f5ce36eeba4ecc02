//! The binary as its users have it: real processes on a real file.
#![allow(clippy::unwrap_used)]

mod answers;
mod bridges;
mod browser;
mod bucket;
mod builtin;
mod clients;
mod clock;
mod commands;
mod crashes;
mod disk;
mod edges;
mod faktory;
mod faults;
mod flow;
mod guides;
mod hand;
mod http;
mod input;
mod newcomer;
mod old_store;
mod payloads;
mod people;
mod predecessor;
mod processes;
mod receiver;
mod replicate;
mod secrets;
mod site;
mod unstartable;
mod workers;
