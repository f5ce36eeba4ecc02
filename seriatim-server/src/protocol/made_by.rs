//! Who or what made a job, in words.

use std::fmt;

use seriatim::store::{JobOptions, schedule_of};
use seriatim::text::one_line;

/// The origin of a job, as its options tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeBy<'a> {
    Cron(&'a str),
    /// It is the callback of this batch.
    EndOfBatch(&'a str),
    Batch(&'a str),
    Producer(&'a str),
    Push,
}

impl<'a> MadeBy<'a> {
    pub(crate) fn of(options: Option<&'a JobOptions>) -> Self {
        let Some(options) = options else { return Self::Push };
        let cron = options.idempotency_key.as_deref().and_then(schedule_of).map(Self::Cron);
        let ended = options.ended_batch.as_ref().map(|ended| Self::EndOfBatch(&ended.id));
        let batch = options.batch.as_deref().map(Self::Batch);
        let producer = options.producer.as_deref().map(Self::Producer);
        cron.or(ended).or(batch).or(producer).unwrap_or(Self::Push)
    }
}

impl fmt::Display for MadeBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(name) => write!(f, "cron {}", one_line(name)),
            Self::EndOfBatch(id) => write!(f, "end of batch {}", one_line(id)),
            Self::Batch(id) => write!(f, "batch {}", one_line(id)),
            Self::Producer(name) => write!(f, "push by {}", one_line(name)),
            Self::Push => f.write_str("push"),
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim::Job;

    use super::*;

    #[test]
    fn a_job_tells_who_made_it() {
        let job = || Job::new("q", &1).unwrap();
        let tick = job().idempotency_key("cron/nightly/report/1700000000");
        let by_hand = job().idempotency_key("cron/nightly/report/by-hand/1700000000000000");
        for (job, said) in [
            (job(), "push"),
            (tick, "cron nightly/report"),
            (by_hand, "cron nightly/report"),
            (job().idempotency_key("cron/mine"), "push"),
            (job().batch("import-7"), "batch import-7"),
        ] {
            assert_eq!(MadeBy::of(Some(&job.options)).to_string(), said);
        }
        assert_eq!(MadeBy::of(None), MadeBy::Push);
    }
}
