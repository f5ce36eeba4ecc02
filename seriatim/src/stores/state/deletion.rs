//! Pausing and deleting a queue.

use super::{Location, State};
use crate::contract::errors::{is_claimed, is_closing};
use crate::contract::{Acted, DeleteQueue};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{JobId, Result, Timestamp};

impl State {
    pub(in crate::stores) fn pause_queue(&mut self, name: &str, paused: bool) -> Result<()> {
        let row = self.queue_mut(name)?;
        if row.closing {
            return Err(is_closing(name));
        }
        row.paused = paused;
        Ok(())
    }

    pub(in crate::stores) fn delete_queue(&mut self, request: &DeleteQueue) -> Result<Acted> {
        let number = self.queue(&request.queue)?.number;
        let held = |lane: &&u64| self.lanes[*lane].id.queue == number;
        self.close_queue(&request.queue, self.claimed.iter().filter(held).count() as u64)?;
        let rows_max = request.rows_max.clamp(1, ACTION_ROWS_MAX);
        let acted = self.empty_queue(number, rows_max);
        if !acted.more {
            self.queues.remove(&number);
            self.ended.remove(&number);
            self.sharing.forget(number);
        }
        Ok(acted)
    }

    /// Closes the queue to new jobs; an error if `claimed` lanes are still claimed.
    pub(in crate::stores) fn close_queue(&mut self, name: &str, claimed: u64) -> Result<()> {
        if claimed > 0 {
            return Err(is_claimed(name, claimed));
        }
        let row = self.queue_mut(name)?;
        (row.closing, row.paused) = (true, true);
        Ok(())
    }

    /// Removes the contents of a closed queue, about `rows_max` rows of each kind.
    pub(in crate::stores) fn empty_queue(&mut self, number: u32, rows_max: usize) -> Acted {
        let (mut count, mut more) = (0, false);
        let lanes = self.lanes.values().filter(|lane| lane.id.queue == number);
        let lanes: Vec<u64> = lanes.map(|lane| lane.id.number).take(rows_max + 1).collect();
        for lane in &lanes {
            if count >= rows_max as u64 {
                more = true;
                break;
            }
            count += self.delete_lane(*lane);
        }
        let ended = self.done.values().chain(self.dead.values());
        let ended = ended.filter(|job| job.queue == number).map(|job| job.entry.id);
        let mut ended: Vec<JobId> = ended.take(rows_max + 1).collect();
        more |= ended.len() > rows_max;
        ended.truncate(rows_max);
        count += ended.len() as u64;
        for id in ended {
            let job = match self.jobs.get(&id) {
                Some(Location::Done) => self.done.remove(&id),
                _ => self.dead.remove(&id),
            };
            if let Some(job) = job {
                self.forget(&job.entry);
            }
        }
        let names = self.idempotency.keys().filter(|(queue, ..)| *queue == number).cloned();
        let names: Vec<_> = names.take(rows_max + 1).collect();
        more |= names.len() > rows_max;
        for name in names.iter().take(rows_max) {
            self.idempotency.remove(name);
        }
        Acted { count, more }
    }

    /// Deletes an unclaimed lane and returns its number of jobs.
    fn delete_lane(&mut self, number: u64) -> u64 {
        let Some(lane) = self.lanes.get_mut(&number) else { return 0 };
        let jobs = lane.take_all();
        for job in &jobs {
            self.delete(job);
        }
        self.position(number, Timestamp::default());
        jobs.len() as u64
    }
}
