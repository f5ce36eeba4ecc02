//! Jobs, queues, lanes and turns, and the rules for them. Pure: no I/O.

pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod canonical;
pub(crate) mod clock;
pub(crate) mod cursor;
pub mod duration;
pub(crate) mod error;
pub(crate) mod flow;
pub(crate) mod held;
pub(crate) mod id;
pub(crate) mod job;
pub mod limits;
pub mod names;
mod numbers;
pub(crate) mod past;
pub(crate) mod payload;
pub(crate) mod queue;
pub(crate) mod rate;
pub(crate) mod report;
pub(crate) mod result;
pub(crate) mod retry;
pub(crate) mod settle;
pub mod text;
pub(crate) mod turn;
pub(crate) mod window;

pub(crate) use batch::{BatchCounts, EndedBatch, Leave};
pub(crate) use build::group_of_build;
pub(crate) use clock::Timestamp;
pub(crate) use cursor::Cursor;
pub(crate) use error::{Error, ErrorKind, Result};
pub(crate) use flow::{Limit, Share, Spent, Usage, group_number};
pub(crate) use held::HeldJob;
pub(crate) use id::{JobId, LaneId, NodeId, Token, check_node_name};
pub(crate) use job::{Job, JobOptions, RunAt, validate_queue_name, validate_text};
pub(crate) use payload::{Digest, Payload};
pub(crate) use queue::{DueRule, Merge, Mode, Owner, Queue, Throttled};
pub(crate) use report::{StepRecord, TurnReport};
pub(crate) use result::check_result;
pub(crate) use retry::Exhaustion;
pub(crate) use settle::{
    Due, EndKind, Ending, Fate, Keep, NextRetry, Outcome, Settlement, Verdict, crash, plan,
    release, retries_max,
};
pub(crate) use turn::{Turn, TurnJob};
pub(crate) use window::{Dues, Window};
