//! What two workers did, and whether that is right.

use std::collections::{BTreeMap, BTreeSet};

/// One of `KEYED_OF` jobs has a key; one of `SLOW_OF`, with a key, takes a second.
const KEYED_OF: u64 = 5;
const SLOW_OF: u64 = 485;
/// How long the jobs of a killed worker may wait for another one, in seconds.
const RESCUE_MAX: f64 = 75.0;
/// The worker that is killed.
pub(super) const VICTIM: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Start,
    End,
    Fail,
}

/// What a worker printed about a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) worker: usize,
    pub(super) what: What,
    pub(super) job: u64,
    /// In seconds.
    pub(super) at: f64,
}

impl Event {
    /// Reads `start 7 1764230400.25`.
    pub(super) fn read(worker: usize, line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let what = match words.next()? {
            "start" => What::Start,
            "end" => What::End,
            "fail" => What::Fail,
            _ => return None,
        };
        let (job, at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { worker, what, job, at })
    }
}

/// The key of a job, if it has one.
fn key_of(job: u64, keys: u64) -> Option<u64> {
    job.is_multiple_of(KEYED_OF).then_some(job / KEYED_OF % keys)
}

/// Whether a worker that starts the job holds it for longer than a kill takes.
pub(super) fn is_slow(job: u64) -> bool {
    job.is_multiple_of(SLOW_OF)
}

/// A trial.
pub(super) struct Record {
    pub(super) jobs: u64,
    pub(super) keys: u64,
    pub(super) slots: usize,
    pub(super) killed_at: f64,
    pub(super) events: Vec<Event>,
    /// The jobs that the server has as done, with the claims that their workers lost.
    pub(super) done: Vec<(u64, u64)>,
}

/// What a trial shows.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    /// When the last job ended that did not wait for the killed worker.
    pub(super) last_at: f64,
    /// Jobs that the killed worker held.
    pub(super) again: usize,
    /// How long the last of them waited for another worker.
    pub(super) rescue: f64,
}

impl Record {
    /// Refuses a job that is lost or done twice without need, one that was rescued too late, and keys out of order.
    pub(super) fn judge(mut self) -> Result<Shown, String> {
        self.events.sort_by(|one, other| one.at.total_cmp(&other.at));
        let numbers: BTreeSet<u64> = self.done.iter().map(|(job, _)| *job).collect();
        if self.done.len() as u64 != self.jobs || numbers.len() as u64 != self.jobs {
            return Err(format!(
                "the server has {} jobs as done, {} different ones, of {}",
                self.done.len(),
                numbers.len(),
                self.jobs
            ));
        }
        let rescued = self.done.iter().filter(|(_, crashes)| *crashes > 0);
        let rescued: BTreeSet<u64> = rescued.map(|(job, _)| *job).collect();
        self.each_is_done_once(&rescued)?;
        self.keys_are_in_order()?;
        let keys: BTreeSet<_> = rescued.iter().map(|job| key_of(*job, self.keys)).collect();
        let waited = |job: u64| match key_of(job, self.keys) {
            None => rescued.contains(&job),
            key => keys.contains(&key),
        };
        let last_at = self.ends().filter(|end| !waited(end.job)).map(|end| end.at);
        Ok(Shown {
            last_at: last_at.fold(0.0, f64::max),
            again: rescued.len(),
            rescue: self.rescue(&rescued)?,
        })
    }

    fn ends(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.what == What::End)
    }

    fn each_is_done_once(&self, rescued: &BTreeSet<u64>) -> Result<(), String> {
        let mut times = BTreeMap::<u64, Vec<usize>>::new();
        for end in self.ends() {
            times.entry(end.job).or_default().push(end.worker);
        }
        for job in 0..self.jobs {
            let workers = times.remove(&job).unwrap_or_default();
            let is_right = match &*workers {
                [_] => true,
                [VICTIM, other] => *other != VICTIM && rescued.contains(&job),
                _ => false,
            };
            if !is_right {
                return Err(format!("job {job} was done by the workers {workers:?}"));
            }
        }
        Ok(())
    }

    /// How long the jobs of the killed worker waited.
    fn rescue(&self, rescued: &BTreeSet<u64>) -> Result<f64, String> {
        // It may hold as many as it works on, and one more for each of its connections.
        if !(1..=2 * self.slots).contains(&rescued.len()) {
            return Err(format!("the killed worker held {} jobs", rescued.len()));
        }
        let mut latest = 0.0_f64;
        for job in rescued {
            let starts = self.events.iter().filter(|event| event.what == What::Start);
            let mut starts = starts.filter(|start| start.job == *job && start.worker != VICTIM);
            let start = starts.next().ok_or_else(|| format!("job {job} was not rescued"))?;
            let waited = start.at - self.killed_at;
            if !(0.0..=RESCUE_MAX).contains(&waited) {
                return Err(format!("job {job} was rescued {waited:.1} s after the kill"));
            }
            latest = latest.max(waited);
        }
        Ok(latest)
    }

    /// The jobs of a key start in their order, each after the one before has ended.
    fn keys_are_in_order(&self) -> Result<(), String> {
        let (mut last, mut at_work) = (BTreeMap::new(), BTreeMap::<u64, Event>::new());
        for event in &self.events {
            let Some(key) = key_of(event.job, self.keys) else { continue };
            if event.what != What::Start {
                at_work.remove(&key);
                continue;
            }
            let before = last.insert(key, event.job).unwrap_or_default();
            if before > event.job {
                return Err(format!("key {key}: job {} started after job {before}", event.job));
            }
            let other = at_work.insert(key, *event);
            let is_dead = |other: &Event| other.worker == VICTIM && event.at > self.killed_at;
            if let Some(other) = other.filter(|other| !is_dead(other)) {
                return Err(format!("key {key}: jobs {} and {} overlap", other.job, event.job));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six jobs of two keys' worth; the victim is killed at 10 with job 5, which it has ended and not acknowledged.
    fn record(change: impl FnOnce(&mut Record)) -> Result<Shown, String> {
        let lines = [
            (0, "start 0 1"),
            (0, "end 0 2"),
            (1, "start 1 1"),
            (1, "fail 1 2"),
            (1, "start 1 3"),
            (1, "end 1 4"),
            (0, "start 2 2"),
            (0, "end 2 3"),
            (1, "start 3 5"),
            (1, "end 3 6"),
            (1, "start 4 6"),
            (1, "end 4 7"),
            (0, "start 5 8"),
            (0, "end 5 9"),
            (1, "start 5 70"),
            (1, "end 5 71"),
        ];
        let events = lines.iter().map(|(worker, line)| Event::read(*worker, line).unwrap());
        let mut record = Record {
            jobs: 6,
            keys: 1,
            slots: 1,
            killed_at: 10.0,
            events: events.collect(),
            done: (0..6).map(|job| (job, u64::from(job == 5))).collect(),
        };
        change(&mut record);
        record.judge()
    }

    #[test]
    fn a_job_of_the_killed_worker_may_be_done_twice() {
        let shown = Shown { last_at: 7.0, again: 1, rescue: 60.0 };
        assert_eq!(record(|_| {}), Ok(shown));
    }

    #[test]
    fn lost_repeated_late_and_disordered_jobs_are_found() {
        let event = |worker, line| Event::read(worker, line).unwrap();
        let refused = |why: &str, change: &dyn Fn(&mut Record)| {
            let error = record(change).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused("5 jobs as done", &|record| record.done.truncate(5));
        refused("job 2 was done by", &|record| record.events.retain(|event| event.job != 2));
        refused("job 3 was done by", &|record| record.events.push(event(1, "end 3 9")));
        refused("held 0 jobs", &|record| {
            record.done[5].1 = 0;
            record.events.retain(|event| event.at < 69.0);
        });
        refused("76.0 s after the kill", &|record| record.events[14].at = 86.0);
        refused("job 5 started after job 10", &|record| {
            record.events.push(event(1, "start 10 7"));
        });
        refused("jobs 0 and 5 overlap", &|record| {
            record.events[1].at = 8.5;
        });
    }
}
