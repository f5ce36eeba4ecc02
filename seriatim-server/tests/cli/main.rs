//! The binary as its users have it: real processes on a real file.
#![allow(clippy::unwrap_used)]

mod commands;
mod crashes;
mod disk;
mod hand;
mod http;
mod input;
mod people;
mod site;
mod workers;
