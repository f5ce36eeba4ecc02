//! Failures with advice for the command line.

use seriatim::store::{JobState, LaneState};

use super::output::Failure;
use crate::app::error::Error;
use crate::base::text::one_line;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let told = match &error {
            Error::NoQueue { .. } => {
                format!("{error}: `seriatim queues` lists them; a push creates one")
            }
            Error::ForeignJob(_) => format!("{error}: check --store"),
            Error::NoLane { queue, key } => {
                let key = one_line(key);
                format!("{error}; its dead jobs: `seriatim morgue {queue} --key {key}`")
            }
            Error::Claimed { .. } => format!(
                "{error}: cancel its jobs (`seriatim jobs cancel`), release its claim (`seriatim lanes release`), or retry when its turn has ended"
            ),
            Error::NoNode(_) => format!("{error}: `seriatim nodes` lists them"),
            Error::NotWaiting { job, queue, state: JobState::Dead } => {
                format!("{error}: requeue it with `seriatim morgue requeue {queue} {job}`")
            }
            Error::NotDead { job, .. } => format!("{error}; see `seriatim jobs show {}`", job.id),
            Error::StandsStill { queue, key, lane, state } => {
                let action = if *state == LaneState::Paused { "resume" } else { "retry" };
                let which = key.as_deref().map_or_else(|| format!("--lane={lane}"), one_line);
                format!("{error}: `seriatim lanes {action} {queue} {which}` resumes it")
            }
            Error::Cursor => format!("--after: {error}"),
            Error::Unranged { .. } => "--from and --to need --by key, due or retries".to_owned(),
            Error::Bound { field, .. } => format!("--{}: {error}", field.replace('_', "-")),
            Error::NoOperation(_) => format!("{error}: `seriatim operations` lists them"),
            Error::TooManyOperations { .. } => format!("{error}: `seriatim operations stop ID`"),
            Error::Unconfirmed { count, .. } => format!("{error}: --confirm {count}"),
            Error::Store(_)
            | Error::NoJob { .. }
            | Error::NotClaimed
            | Error::NoLaneFree { .. }
            | Error::SeveralNodes { .. }
            | Error::NotWaiting { .. } => error.to_string(),
        };
        match error {
            Error::Store(error) => error.into(),
            // Whether it is not there is not known.
            Error::NoLaneFree { .. } => Self::conflict(told),
            error => Self::of_kind(error.kind(), told),
        }
    }
}
