//! Pages of jobs: see `page.rs`.

use std::collections::HashSet;

use async_trait::async_trait;

use super::Redis;
use super::ahead::{Ahead, ENTRIES_MAX, Scope};
use super::entry::{cursor, walk_of};
use super::memo::Known;
use super::page::{Chosen, Rows, job_entry, runs};
use super::reply::{Fields, Shard};
use crate::contract::{JobFilter, JobOrder, JobQuery, JobState, JobView, Store};
use crate::model::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, SCAN_BYTES_MAX};
use crate::model::{JobId, Result};
use crate::stores::job_look::{JobRows, Step};

#[async_trait]
impl JobRows for Redis {
    async fn job_rows(&self, query: &JobQuery, looks_max: usize) -> Result<Step> {
        let known = self.current(&query.queue).await?;
        let ahead = self.ahead_of(query, &known, looks_max).await?;
        let (page, more) = ahead.first(looks_max);
        let walk = ahead.walk();
        let next = page.last().filter(|_| more).map(|last| last.cursor(walk));
        let mut step = Step { next, walk, ..Step::default() };
        let mut shown = 0;
        for (shard, numbers) in runs(&known, &page) {
            let mut left = &numbers[..];
            while !left.is_empty() && !is_full(&step, query, shown) {
                let some = &left[..left.len().min(PAGE_ROWS_MAX)];
                let most = query.payload_bytes_max;
                let (views, looked) = self.job_views(shard, &known.name, some, most).await?;
                let bytes = JobView::bytes;
                step.bytes += views.iter().map(bytes).sum::<usize>();
                // A job may have been claimed or have ended in between.
                let fits = |view: &JobView| {
                    query.filter.shows(view.state) && (query.shows(view) || query.is_past(view))
                };
                let fitting: Vec<JobView> = views.into_iter().filter(fits).collect();
                shown += fitting.iter().map(bytes).sum::<usize>();
                step.rows.extend(fitting);
                let looked = looked.clamp(1, left.len());
                (left, step.looked) = (&left[looked..], step.looked + looked);
            }
        }
        if step.looked < page.len() {
            step.next = page[..step.looked].last().map(|last| last.cursor(walk));
        }
        self.listings.put(ahead);
        Ok(step)
    }

    fn reads_all(&self, query: &JobQuery) -> bool {
        let dead = JobFilter::In(JobState::Dead);
        !(query.filter == dead && matches!(query.order, JobOrder::Key | JobOrder::UpdatedAt))
    }

    fn cursor(&self, job: Option<JobId>, place: String, walk: Option<u64>) -> String {
        let (shard, number) = job.map_or((0, 0), |job| (job.shard(), job.seq() as i64));
        cursor(shard, number, walk, &place)
    }

    fn arrival(&self, job: JobId) -> String {
        (job.created_at().as_micros() / 1_000).to_string()
    }
}

/// Whether a step has read enough: all jobs that it chose, unless their payloads are large.
fn is_full(step: &Step, query: &JobQuery, shown: usize) -> bool {
    match query.is_filtered() {
        true => {
            shown >= PAGE_BYTES_MAX
                || step.bytes >= SCAN_BYTES_MAX
                || step.rows.len() >= query.most()
        }
        false => step.bytes >= PAGE_BYTES_MAX,
    }
}

impl Redis {
    /// What follows the query's cursor: at least a page, if there is one.
    async fn ahead_of(&self, query: &JobQuery, known: &Known, looks_max: usize) -> Result<Ahead> {
        let now = match query.now {
            Some(now) => now,
            None => self.now().await?,
        };
        let (at, scope) = ((known.queue.mode, now), Scope::of(query, known.number));
        let rows_max = scope.map_or(looks_max, |_| looks_max.max(ENTRIES_MAX));
        let mut chosen = Chosen::of_jobs(query, at, rows_max)?;
        let walk = query.after.as_deref().and_then(walk_of);
        if let Some((walk, after)) = walk.zip(chosen.after.as_ref())
            && let Some(ahead) = self.listings.take(scope, walk, after, looks_max)
        {
            return Ok(ahead);
        }
        for shard in known.shards() {
            let running = match query.filter {
                JobFilter::In(JobState::Queued) if query.key.is_none() => {
                    self.running(shard).await?
                }
                _ => HashSet::new(),
            };
            let rows = Rows::of_jobs(query, &chosen, shard.shard);
            let look = |row| {
                let entry = job_entry(Fields::of(row)?, shard, query, at)?;
                chosen.add(entry.filter(|entry| !running.contains(&entry.number)));
                Ok(())
            };
            self.each_row(shard, &rows, look).await?;
        }
        Ok(Ahead::new(scope, chosen.entries()))
    }

    /// The numbers of running jobs.
    async fn running(&self, shard: Shard) -> Result<HashSet<i64>> {
        let mut running = HashSet::new();
        let look = |row| {
            running.insert(Fields::of(row)?.int()?);
            Ok(())
        };
        self.each_row(shard, &Rows::running(None), look).await?;
        Ok(running)
    }
}
