//! Writes a history while it happens.

use std::io::Write;
use std::sync::{Arc, Mutex};

use seriatim::store::{JobQuery, JobState, PushStatus, Pushed, Settled, Store};
use seriatim::{
    Error, Job, JobId, Payload, Queue, Timestamp,
    engine::Observer,
    store::{Fate, NodeId, Settlement, Turn, Verdict, digest},
};

use super::history::{Event, Handed, JobFate, PushResult};
use crate::lock::lock;

/// Records the events of one process as JSON lines. All recorders of a history must use the same clock: this one uses
/// the machine's.
pub struct Recorder<W: Write + Send + 'static> {
    actor: String,
    out: Arc<Mutex<W>>,
}

impl<W: Write + Send + 'static> Recorder<W> {
    /// A recorder for the process `actor`.
    pub fn new(actor: impl Into<String>, out: W) -> Self {
        Self { actor: actor.into(), out: Arc::new(Mutex::new(out)) }
    }

    /// A recorder for another process, writing to the same history.
    #[must_use]
    pub fn for_actor(&self, actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), out: self.out.clone() }
    }

    /// Records an event, in one write: so several processes may append to one file. A write error is logged, and the history
    /// is judged as torn.
    pub fn record(&self, event: &Event) {
        let line = serde_json::to_string(event).map_err(std::io::Error::from);
        let written = line.and_then(|line| lock(&self.out).write_all((line + "\n").as_bytes()));
        if let Err(error) = written {
            tracing::error!(%error, "the history cannot be written");
        }
    }

    /// Records how the jobs of a queue relate.
    pub fn queue(&self, queue: &Queue) {
        self.record(&Event::queue(queue));
    }

    /// Records a push that was sent at `sent_at` and answered now. `None`: the answer was lost.
    pub fn pushed(&self, sent_at: Timestamp, job: &Job, answer: Option<&Result<Pushed, Error>>) {
        self.pushed_as(sent_at, job, answer.map(Result::as_ref));
    }

    fn pushed_as(&self, sent_at: Timestamp, job: &Job, answer: Option<Result<&Pushed, &Error>>) {
        let pushed = answer.and_then(Result::ok);
        let result = match answer {
            Some(Ok(_)) => PushResult::Acknowledged,
            Some(Err(error)) if !error.is_transient() => PushResult::Refused,
            _ => PushResult::Unknown,
        };
        self.record(&Event::Push {
            sent_at: sent_at.as_micros(),
            at: now(),
            queue: job.queue.clone(),
            key: job.key.clone(),
            score: job.score,
            tag: tag(job.task.as_deref(), &job.payload),
            result,
            job_id: pushed.map(|pushed| pushed.job_id),
            status: pushed.map(|pushed| pushed.status),
            again_at: pushed.and_then(|pushed| pushed.again_at).map(Timestamp::as_micros),
        });
    }

    /// Records that the store pushed the callbacks of batches which this turn has.
    fn called_back(&self, turn: &Turn) {
        for job in turn.jobs.iter().filter(|job| job.ended_batch().is_some()) {
            self.record(&Event::Push {
                sent_at: job.id.created_at().as_micros(),
                at: turn.claimed_at.as_micros(),
                queue: turn.queue.to_string(),
                key: turn.key.as_deref().map(str::to_owned),
                score: Some(job.score),
                tag: tag(job.task.as_deref(), &job.payload),
                result: PushResult::Acknowledged,
                job_id: Some(job.id),
                status: Some(PushStatus::Queued),
                again_at: None,
            });
        }
    }

    /// Records that a process has died.
    pub fn died(&self, actor: &str) {
        self.record(&Event::Died { at: now(), actor: actor.to_owned() });
    }

    /// Records all jobs that the store still has, and that the list is complete.
    pub async fn finish(&self, store: &dyn Store) -> Result<(), Error> {
        for view in store.queues().await? {
            for state in [JobState::Queued, JobState::Dead, JobState::Succeeded, JobState::Canceled]
            {
                self.finish_state(store, &view.queue.name, state).await?;
            }
        }
        self.record(&Event::FinalEnd {});
        lock(&self.out).flush().unwrap_or_default();
        Ok(())
    }

    async fn finish_state(
        &self,
        store: &dyn Store,
        queue: &str,
        state: JobState,
    ) -> Result<(), Error> {
        let mut query = JobQuery::new(queue, state);
        loop {
            let page = store.jobs(query.clone()).await?;
            for job in page.rows {
                self.record(&Event::Final { job_id: job.id, state: job.state });
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(()),
            }
        }
    }
}

impl<W: Write + Send + 'static> Observer for Recorder<W> {
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        for (place, job) in jobs.iter().enumerate() {
            let of_job = answer.map(|pushed| &pushed[place]);
            self.pushed_as(sent_at, job, Some(of_job));
        }
    }

    fn started(&self, turn: &Turn) {
        self.called_back(turn);
        let handed = |job: &seriatim::store::TurnJob| Handed {
            job_id: job.id,
            score: job.score,
            tag: tag(job.task.as_deref(), &job.payload),
        };
        self.record(&Event::Start {
            at: now(),
            actor: self.actor.clone(),
            queue: turn.queue.to_string(),
            key: turn.key.as_deref().map(str::to_owned),
            lane: turn.lane,
            token: turn.token,
            claimed_at: turn.claimed_at.as_micros(),
            group: group(turn).map(str::to_owned),
            jobs: turn.jobs.iter().map(handed).collect(),
        });
    }

    fn ended(&self, turn: &Turn, _verdict: &Verdict) {
        self.record(&Event::End { at: now(), lane: turn.lane, token: turn.token });
    }

    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        self.record(&Event::Settling {
            at: now(),
            queue: turn.queue.to_string(),
            key: turn.key.as_deref().map(str::to_owned),
            lane: turn.lane,
            token: turn.token,
            fates: fates(turn, settlement, &[]),
        });
    }

    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        let cancelled = match settled {
            Settled::Ok { cancelled, .. } => cancelled.as_slice(),
            _ => &[],
        };
        self.record(&Event::Settle {
            sent_at: sent_at.as_micros(),
            at: now(),
            queue: turn.queue.to_string(),
            key: turn.key.as_deref().map(str::to_owned),
            lane: turn.lane,
            token: turn.token,
            claimed_at: Some(turn.claimed_at.as_micros()),
            accepted: settled.is_ok(),
            fates: fates(turn, settlement, cancelled),
            cause: cause(turn, settlement).to_owned(),
        });
    }

    fn rescued(&self, turn: &Turn) {
        self.record(&Event::rescued(now(), turn, false));
    }

    fn released(&self, turn: &Turn) {
        self.record(&Event::rescued(now(), turn, true));
    }

    fn renewed(&self, node: &NodeId, until: Timestamp) {
        self.record(&Event::Lease {
            at: now(),
            actor: self.actor.clone(),
            node: node.to_string(),
            until: until.as_micros(),
        });
    }
}

/// The fates of a turn's jobs under a settlement.
fn fates(turn: &Turn, settlement: &Settlement, cancelled: &[JobId]) -> Vec<JobFate> {
    let fate = |job: &seriatim::store::TurnJob| JobFate {
        job_id: job.id,
        fate: match cancelled.contains(&job.id) {
            true => Fate::Cancel,
            false => settlement.fate_of(job.id),
        },
    };
    // Expired jobs were removed from the turn before delivery.
    let is_other = |id: &JobId| turn.jobs.iter().all(|job| job.id != *id);
    let others = settlement.exceptions.iter().filter(|(id, _)| is_other(id));
    let others = others.map(|(job_id, fate)| JobFate { job_id: *job_id, fate: *fate });
    turn.jobs.iter().map(fate).chain(others).collect()
}

/// Why a turn's jobs went back, as one word.
pub(crate) fn cause(turn: &Turn, settlement: &Settlement) -> &'static str {
    let keep = &settlement.keep;
    match settlement.rest {
        Fate::Keep if settlement.ends_owner() => "bury",
        Fate::Keep if keep.crashes > turn.crashes => "crash",
        Fate::Keep if keep.counted && keep.retry_count < 0 => "bury",
        Fate::Keep if keep.counted => "retry",
        Fate::Keep if keep.due == seriatim::store::Due::Unchanged => "release",
        Fate::Keep => "snooze",
        Fate::Bury => "bury",
        Fate::Cancel => "cancel",
        _ => "done",
    }
}

/// The group of a turn's jobs.
pub(crate) fn group(turn: &Turn) -> Option<&str> {
    turn.head()?.options.as_ref()?.group.as_deref()
}

pub(crate) fn tag(task: Option<&str>, payload: &Payload) -> String {
    let digest = digest(task, payload);
    let half = digest.first_chunk::<8>().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(half))
}

fn now() -> i64 {
    Timestamp::of_this_machine().as_micros()
}
