//! Gives the jobs of a queue back to Sidekiq. A script gives each and marks it; then it is deleted here, so that an export
//! that was killed and is repeated doubles nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seriatim::store::{
    Cancel, Cancelled, JobOrder, JobQuery, JobState, JobView, QueueStats, Selected, Selection,
    Store,
};
use seriatim::{ErrorKind, JobId};

use super::link::EXPORT;
use super::returned::{Place, Returned};
use super::still::{in_hand, still};
use super::{Call, DEAD, Fault, Keys, Link, Source};
use crate::app::bridges::pauses;
use crate::base::text::count;
use crate::config::BridgeConfig;

/// Jobs that one step gives.
const PAGE: usize = 500;
/// How long a marker lasts, in seconds: an export that was killed can be repeated for a week.
const MARKED_SECONDS: u64 = 7 * 24 * 3_600;
/// Most jobs of one export.
const JOBS_MAX: usize = 10_000_000;
/// This many jobs, or bytes of payloads, are read ahead before they are given back: where no index has the order of
/// arrival, reading on from a page is quick, but starting again reads all jobs.
const BLOCK_JOBS: usize = 20_000;
const BLOCK_BYTES: usize = 32 << 20;
/// Most looks for jobs that came meanwhile.
const LOOKS_MAX: usize = 3;

/// What was given back, by where it went.
#[derive(Default)]
pub(crate) struct Exported {
    pub(crate) queue: u64,
    pub(crate) schedule: u64,
    pub(crate) retry: u64,
    pub(crate) dead: u64,
}

/// How far an export is.
#[derive(Default)]
struct Course {
    exported: Exported,
    /// Whether the jobs came while others were given back.
    comes_later: bool,
    /// The newest job that went back to each queue there.
    newest: BTreeMap<String, Vec<u8>>,
}

impl Course {
    /// Jobs that go back together: the newest first, each before what is there; those that came later in their order.
    fn sorted<T>(&self, mut all: Vec<T>) -> Vec<T> {
        if !self.comes_later {
            all.reverse();
        }
        all
    }

    /// Counts what was given, and remembers the newest of it.
    fn gave(&mut self, queue: String, jobs: Vec<(JobId, Returned)>, given: Vec<u64>) {
        // Those that an export before this one has given are not counted again.
        for ((_, job), _) in jobs.into_iter().zip(given).filter(|(_, given)| *given > 0) {
            *match job.place {
                Place::Queue => &mut self.exported.queue,
                Place::Schedule => &mut self.exported.schedule,
                Place::Retry => &mut self.exported.retry,
                Place::Dead => &mut self.exported.dead,
            } += 1;
            if job.place == Place::Queue && (self.comes_later || !self.newest.contains_key(&queue))
            {
                self.newest.insert(queue.clone(), job.element);
            }
        }
    }
}

/// Adjacent pages of jobs.
struct Block {
    /// Where the first one begins.
    after: Option<String>,
    jobs: usize,
    bytes: usize,
}

/// Why nothing, or not all, was given back.
pub(crate) struct Refused {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        let kind = match &fault {
            Fault::Store(error) => error.kind(),
            _ => ErrorKind::Unavailable,
        };
        Self { kind, why: fault.to_string() }
    }
}

impl From<seriatim::Error> for Refused {
    fn from(error: seriatim::Error) -> Self {
        Fault::Store(error).into()
    }
}

fn conflict(why: String) -> Refused {
    Refused { kind: ErrorKind::Conflict, why }
}

/// Which jobs go where.
pub(crate) struct Export<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) bridge: &'a BridgeConfig,
    pub(crate) url: String,
    /// The queue here.
    pub(crate) queue: Arc<str>,
    /// The queue in Sidekiq of jobs that name none.
    pub(crate) to: String,
}

impl Export<'_> {
    /// Gives back all jobs of the queue, if all can be.
    pub(crate) async fn run(&self) -> Result<Exported, Refused> {
        let mut course = Course::default();
        let mut link = Link::open(&self.url).await?;
        for _ in 0..LOOKS_MAX {
            self.refuse_running().await?;
            self.refuse_in_hand(&mut link).await?;
            let waiting = self.look(JobState::Queued, &course).await?;
            let dead = self.look(JobState::Dead, &course).await?;
            if waiting.is_empty() && dead.is_empty() {
                return Ok(course.exported);
            }
            for (state, blocks) in [(JobState::Queued, waiting), (JobState::Dead, dead)] {
                for block in course.sorted(blocks) {
                    let pages = self.read(state, block).await?;
                    for jobs in course.sorted(pages) {
                        self.give(&mut link, &jobs, &mut course).await?;
                        self.delete(state, &jobs).await?;
                        self.unmark(&mut link, &jobs).await?;
                    }
                }
            }
            course.comes_later = true;
        }
        Err(conflict(format!(
            "jobs are still pushed to queue {}: stop what pushes to it, and repeat this when Sidekiq has taken the jobs that went back; otherwise the rest would go in front of them",
            self.queue
        )))
    }

    async fn refuse_running(&self) -> Result<(), Refused> {
        let name = self.queue.clone();
        let stats: Vec<QueueStats> = self.store.stats(None).await?;
        let Some(stats) = stats.iter().find(|stats| stats.queue == name) else {
            let why = format!("no queue {name:?}");
            return Err(Refused { kind: ErrorKind::NotFound, why });
        };
        if !stats.paused {
            return Err(conflict(format!(
                "queue {name} is not paused: pause it first, `seriatim queues pause {name}`"
            )));
        }
        if stats.claimed > 0 {
            return Err(conflict(format!(
                "{} of queue {name} running: wait until they have ended",
                count(stats.claimed, "turn")
            )));
        }
        Ok(())
    }

    /// What has left a paused source and is not here yet would come when the export is over. A source that is not
    /// paused brings more jobs anyway.
    async fn refuse_in_hand(&self, link: &mut Link) -> Result<(), Refused> {
        let (name, keys) = (&self.bridge.name, Keys::of(self.bridge));
        let pauses = pauses(self.store, name).await?;
        let mut paused = Source::of(self.bridge);
        paused.retain(|source| pauses.holds(&source.name()));
        let names: Vec<String> = paused.iter().map(Source::name).collect();
        still(self.store, name, &names).await.map_err(conflict)?;
        for source in &paused {
            if let Some(why) = in_hand(link, &keys, source).await? {
                return Err(conflict(format!("bridge {name}, {}: {why}", source.name())));
            }
        }
        Ok(())
    }

    /// The jobs in a state, in blocks. Refuses them all if one cannot be given back.
    async fn look(&self, state: JobState, course: &Course) -> Result<Vec<Block>, Refused> {
        let (mut blocks, mut after, mut seen) = (Vec::<Block>::new(), None, 0);
        let now = self.store.now().await?;
        let mut queues = BTreeSet::new();
        loop {
            let (jobs, next) = self.page(state, after.clone()).await?;
            for job in &jobs {
                let returned = Returned::of(job, &self.to, now);
                let left = if course.comes_later { "not all was" } else { "nothing was" };
                let wrong = |why| conflict(format!("{left} given back: job {}: {why}", job.id));
                queues.insert(returned.map_err(wrong)?.queue);
            }
            seen += jobs.len();
            if seen > JOBS_MAX {
                return Err(conflict(format!("more than {JOBS_MAX} jobs")));
            }
            let bytes = jobs.iter().map(|job| job.payload.as_bytes().len()).sum();
            let has_room =
                |block: &&mut Block| block.jobs < BLOCK_JOBS && block.bytes < BLOCK_BYTES;
            match blocks.last_mut().filter(has_room) {
                Some(block) => {
                    (block.jobs, block.bytes) = (block.jobs + jobs.len(), block.bytes + bytes);
                }
                None if jobs.is_empty() => {}
                None => blocks.push(Block { after, jobs: jobs.len(), bytes }),
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        self.refuse_circles(state, &queues).await?;
        Ok(blocks)
    }

    /// A bridge at work would take at once what is given back.
    async fn refuse_circles(
        &self,
        state: JobState,
        queues: &BTreeSet<String>,
    ) -> Result<(), Refused> {
        let name = &self.bridge.name;
        let (takers, pauses) = (self.takers(state, queues), pauses(self.store, name).await?);
        if let Some(taker) = takers.iter().find(|taker| !pauses.holds(&taker.name())) {
            let what = match taker {
                Source::Set(DEAD) => "returned dead jobs".to_owned(),
                Source::Queue(queue) => format!("returned jobs from {queue}"),
                _ => format!("returned jobs from {}", taker.name()),
            };
            return Err(conflict(format!(
                "bridge {name} would take the {what} again: pause it first, `seriatim bridge pause {name}`"
            )));
        }
        let names: Vec<String> = takers.iter().map(Source::name).collect();
        still(self.store, name, &names).await.map_err(conflict)
    }

    /// The sources from which the bridge would take what goes back from this state to these queues.
    fn takers(&self, state: JobState, queues: &BTreeSet<String>) -> Vec<Source> {
        let has_ours = queues.iter().any(|queue| self.bridge.queues.contains(queue));
        let takes = |source: &Source| match source {
            Source::Queue(queue) => queues.contains(queue),
            Source::Set(DEAD) => state == JobState::Dead && !queues.is_empty(),
            // What waits may be due later, or may have failed.
            Source::Set(_) => state == JobState::Queued && has_ours,
            Source::Ids { .. } | Source::Morgue(_) => false,
        };
        Source::of(self.bridge).into_iter().filter(takes).collect()
    }

    async fn page(
        &self,
        state: JobState,
        after: Option<String>,
    ) -> Result<(Vec<JobView>, Option<String>), Refused> {
        let query = JobQuery::new(self.queue.clone(), state);
        let order = JobOrder::Arrival;
        let page = self.store.jobs(JobQuery { order, after, rows_max: PAGE, ..query }).await?;
        Ok((page.rows, page.next))
    }

    /// The pages of a block, without what is gone meanwhile. What came behind it has been given back, but for newcomers.
    async fn read(&self, state: JobState, block: Block) -> Result<Vec<Vec<JobView>>, Refused> {
        let (mut pages, mut after, mut left) = (Vec::new(), block.after, block.jobs);
        loop {
            let (jobs, next) = self.page(state, after).await?;
            left = left.saturating_sub(jobs.len());
            pages.push(jobs);
            after = next;
            if after.is_none() || left == 0 || pages.len() > BLOCK_JOBS / PAGE {
                return Ok(pages);
            }
        }
    }

    async fn give(
        &self,
        link: &mut Link,
        jobs: &[JobView],
        course: &mut Course,
    ) -> Result<(), Refused> {
        let keys = Keys::of(self.bridge);
        let now = self.store.now().await?;
        let mut by_queue: BTreeMap<String, Vec<(JobId, Returned)>> = BTreeMap::new();
        for job in course.sorted(jobs.iter().collect()) {
            let returned = Returned::of(job, &self.to, now)
                .map_err(|why| conflict(format!("job {} stays here: {why}", job.id)))?;
            by_queue.entry(returned.queue.clone()).or_default().push((job.id, returned));
        }
        for (queue, jobs) in by_queue {
            let mut script = Call::of(&EXPORT);
            script.key(keys.theirs("queues")).key(keys.source(&Source::Queue(queue.clone())));
            for set in ["schedule", "retry", "dead"] {
                script.key(keys.theirs(set));
            }
            let newest = course.newest.get(&queue).map_or(&[][..], Vec::as_slice);
            script.arg(&queue).arg(MARKED_SECONDS).arg(u8::from(course.comes_later)).arg(newest);
            for (id, job) in &jobs {
                script.key(keys.marker(*id));
                script.arg(job.place as u8).arg(job.score).arg(job.element.as_slice());
            }
            let given: Vec<u64> = link.call(&script).await?;
            course.gave(queue, jobs, given);
        }
        Ok(())
    }

    async fn delete(&self, state: JobState, jobs: &[JobView]) -> Result<(), Refused> {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        if state == JobState::Dead {
            let which = Selection::Jobs(ids);
            let selected = Selected { now: None, queue: self.queue.clone(), which };
            self.store.delete_dead(selected).await?;
            return Ok(());
        }
        let ended = self.store.cancel(Cancel { now: None, jobs: ids }).await?;
        match ended.iter().filter(|one| **one == Cancelled::Flagged).count() as u64 {
            0 => Ok(()),
            running => Err(conflict(format!(
                "{} given back started here meanwhile and may run twice: was the queue resumed?",
                count(running, "job")
            ))),
        }
    }

    /// What is no longer here needs no marker.
    async fn unmark(&self, link: &mut Link, jobs: &[JobView]) -> Result<(), Refused> {
        let keys = Keys::of(self.bridge);
        let mut command = redis::cmd("DEL");
        jobs.iter().for_each(|job| {
            command.arg(keys.marker(job.id));
        });
        if !jobs.is_empty() {
            link.ask::<u64>(&command).await?;
        }
        Ok(())
    }
}
