//! Clients of Faktory: its protocol as a way into the API (`docs/faktory.md`). A line is a command, an answer is as of
//! Redis. Each command becomes requests to the API of this process, which decides everything else.

mod command;
mod conversation;
mod front;
mod greeting;
mod held;
mod job;
mod mutation;
mod places;
mod recent;
mod reply;
mod server;
mod track;

pub(crate) use server::{Entrance, Listening, Server};
