//! A store whose payloads are written in their stored form, and read from it.

use std::sync::Arc;

use seriatim::store::*;
use seriatim::{JobId, Result, SharedStore};

use super::form::Forms;

pub(super) struct Formed {
    inner: SharedStore,
    forms: Arc<Forms>,
}

impl Formed {
    pub(super) fn new(inner: SharedStore, forms: Arc<Forms>) -> Self {
        Self { inner, forms }
    }

    fn turns<'a>(&self, turns: impl Iterator<Item = &'a mut Turn>) {
        let jobs = turns.flat_map(|turn| &mut turn.jobs);
        jobs.for_each(|job| self.forms.open(&mut job.payload));
    }

    /// For people: what cannot be read is shown as it is stored.
    fn seen(&self, job: &mut JobView) {
        if job.lacks_payload() {
            return;
        }
        if let Ok(Some(plain)) = self.forms.read(&job.payload) {
            job.payload_bytes = plain.as_bytes().len();
            job.payload = plain;
        }
    }
}

impl Wrapper for Formed {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn push(&self, mut request: Push) -> Result<Vec<Pushed>> {
        request.jobs.iter_mut().try_for_each(|job| self.forms.write(job))?;
        self.inner.push(request).await
    }

    async fn open_batch(&self, mut request: OpenBatch) -> Result<BatchView> {
        self.forms.write(&mut request.callback)?;
        self.inner.open_batch(request).await
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let mut claimed = self.inner.claim(request).await?;
        self.turns(claimed.turns.iter_mut());
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let mut settled = self.inner.settle(request).await?;
        let next = settled.iter_mut().filter_map(|settled| match settled {
            Settled::Ok { next, .. } => next.as_deref_mut(),
            _ => None,
        });
        self.turns(next);
        Ok(settled)
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let mut turn = self.inner.turn(lane, token).await?;
        self.turns(turn.iter_mut());
        Ok(turn)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let mut turns = self.inner.rescue(request).await?;
        self.turns(turns.iter_mut());
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let mut turns = self.inner.release(request).await?;
        self.turns(turns.iter_mut());
        Ok(turns)
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        let mut page = self.inner.jobs(query).await?;
        page.rows.iter_mut().for_each(|job| self.seen(job));
        Ok(page)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let mut job = self.inner.job(id).await?;
        job.iter_mut().for_each(|job| self.seen(job));
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::{Job, Payload, Queue, Timestamp};

    use super::*;
    use crate::app::payloads::{forms, wrap};
    use crate::config::PayloadsConfig;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn l14_a_turn_has_its_payload_as_it_was_pushed_also_when_it_is_taken_over_or_released() {
        let config = PayloadsConfig { compress: ["q".to_owned()].into(), ..Default::default() };
        let memory: SharedStore = Arc::new(Memory::new());
        let store = wrap(memory.clone(), &forms(&config).unwrap());
        let payload = Payload::from_json_text(&format!("{:?}", "long ".repeat(100))).unwrap();
        let at = |seconds: i64| {
            Some(Timestamp::from_micros(1_700_000_000_000_000 + seconds * 1_000_000))
        };
        store.declare(Declare { now: at(0), queues: vec![Queue::fifo("q")] }).await.unwrap();
        let job = Job::with_payload("q", payload.clone()).key("k");
        let pushed = store.push(Push { now: at(0), jobs: vec![job] }).await.unwrap();
        let stored = memory.job(pushed[0].job_id).await.unwrap().unwrap().payload;
        assert_ne!(stored.as_bytes(), payload.as_bytes());
        for (node, seconds) in [("a", 0), ("b", 60)] {
            let node = NodeInfo::new(node.into(), LEASE);
            let beat = Heartbeat { now: at(seconds), node, beats: Vec::new() };
            store.heartbeat(beat).await.unwrap();
        }
        let claim = Claim::new("q", "a", 1, Lease::Own { ttl: LEASE });
        let claimed = store.claim(Claim { now: at(0), ..claim }).await.unwrap().turns;
        let rescue =
            Rescue { now: at(60), node: "b".into(), lease: LEASE, lanes_max: 1, ticket: 1 };
        let rescued = store.rescue(rescue).await.unwrap();
        let claims = ClaimSelection::Queue("q".into());
        let release = Release { now: at(60), claims, made_by: None, lanes_max: 1 };
        let released = store.release(release).await.unwrap();
        for turns in [claimed, rescued, released] {
            assert_eq!(turns[0].jobs[0].payload.as_bytes(), payload.as_bytes());
        }
    }
}
