//! Batches whose jobs engines run: handlers that add to them, and callbacks.

use std::sync::atomic::Ordering;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::store::EndedBatch;
use crate::*;

fn rows() -> Queue {
    Queue::parallel("rows").max_retries(1).backoff(Backoff::Constant { base: secs(1) })
}

/// Adds as many jobs to the batch of each of its own as that says, each a smaller one, and fails on demand.
fn grower(client: Client) -> Worker {
    Worker::new("rows", move |batch: Batch<u32>, _: Context| {
        let client = client.clone();
        async move {
            for lane in batch.lanes() {
                let (job, below) = lane.jobs().next().unwrap();
                let mut jobs = Vec::new();
                for number in 0..*below {
                    let name = format!("{} {number}", job.id);
                    let job = Job::new("rows", &number)?.batch(job.batch().unwrap());
                    jobs.push(job.idempotency_key(name));
                }
                client.push_all(jobs).await?;
                pass(secs(1)).await;
                if *below == 1 && lane.attempt() == 1 {
                    return Err("not at the first try".into());
                }
                if *below == 0 && job.id.seq() % 2 == 0 {
                    return Err("never".into());
                }
            }
            Ok::<(), Failure>(())
        }
    })
}

/// Logs the counts of each callback.
fn reporter(log: &Log) -> Worker {
    let log = log.clone();
    Worker::new("reports", move |batch: Batch<String>| {
        for lane in batch.lanes() {
            let EndedBatch { id, done, dead, cancelled } =
                lane.turn().jobs[0].ended_batch().unwrap().clone();
            log.add(format!("{id} of {done} done, {dead} dead, {cancelled} cancelled"));
        }
        std::future::ready(())
    })
}

/// A job that says n makes 2ⁿ jobs, itself included.
const JOBS: u64 = 1 << 6;

async fn opened(rig: &Rig) -> Client {
    let client = Client::new(rig.shared());
    client.open_batch("b", Job::new("reports", "all in").unwrap()).await.unwrap();
    client.push(Job::new("rows", &6).unwrap().batch("b")).await.unwrap();
    assert_eq!(client.seal_batch("b").await.unwrap().pending, 1);
    client
}

async fn told_once(client: &Client, log: &Log) {
    let batch = client.batch("b").await.unwrap().unwrap();
    assert_eq!((batch.done + batch.dead, batch.pending), (JOBS, 0));
    assert!(batch.dead > 0 && batch.ended_at.is_some());
    let told = format!("b of {} done, {} dead, 0 cancelled", batch.done, batch.dead);
    assert_eq!(log.lines(), [told]);
}

#[tokio::test(start_paused = true)]
async fn handlers_add_to_their_own_batch_and_its_callback_gets_the_counts() {
    let (rig, log) = (Rig::new(), Log::default());
    let client = opened(&rig).await;
    let workers = engine(&rig).queue(rows()).with(grower(client.clone())).with(reporter(&log));
    let running = Running::start(workers);
    log.reaches(1).await;
    running.stop().await;
    told_once(&client, &log).await;
}

#[tokio::test(start_paused = true)]
async fn after_kills_and_lost_answers_the_counts_are_exact_and_the_callback_runs_once() {
    let (rig, log) = (Rig::new(), Log::default());
    let client = opened(&rig).await;
    // What kills leave behind is no failure of its own.
    let rows = rows().max_crashes(100);
    let workers = || {
        rig.faults.lost_settles.store(2, Ordering::SeqCst);
        let engine = engine(&rig).queue(rows.clone());
        engine.with(grower(client.clone())).with(reporter(&log))
    };
    for _ in 0..5 {
        let running = Running::start(workers());
        pass(std::time::Duration::from_millis(2_300)).await;
        running.kill();
        pass(secs(60)).await;
    }
    let running = Running::start(workers());
    log.reaches(1).await;
    running.stop().await;
    told_once(&client, &log).await;
}
