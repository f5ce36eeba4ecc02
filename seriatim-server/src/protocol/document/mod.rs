//! What the HTTP API answers, and `--json` prints.
#![allow(clippy::struct_field_names)] // The names are those of the documents.

mod answer;
mod batch;
mod bridge;
mod event;
mod found;
mod job;
mod lane;
mod node;
mod problem;
mod queue;
mod reported;
mod stats;
mod times;

pub(crate) use answer::*;
pub(crate) use batch::{Batch, Batches, EndedBatch};
pub(crate) use bridge::{Bridge, BridgePause, BridgeSource, BridgeState, BridgeStatus, Bridges};
pub(crate) use event::{Event, EventPage, JobEvents};
pub(crate) use found::{Cause, Causes, Search};
pub(crate) use job::{EditedJob, Job, JobFailure, JobStatus, Jobs};
pub(crate) use lane::{EndedLane, Key, KeyInQueue, Lane, Lanes};
pub(crate) use node::{Node, Nodes, Trouble, load};
pub(crate) use problem::Problem;
pub(crate) use queue::{Queue, QueueFigures, Queues};
pub(crate) use stats::{NamedFigures, Stats};
pub(crate) use times::Times;
