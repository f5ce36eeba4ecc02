//! The producers of a run.

use std::sync::Arc;
use std::time::Duration;

use seriatim::store::{PushStatus, Pushed};
use seriatim::{Backoff, Client, ErrorKind, Job, Payload, Queue, Result};
use tokio::time::sleep;

use super::batches;
use super::scene::GROUPS;
use super::wire::Wire;
use super::world::World;

/// Pushes all jobs of a producer.
pub(super) async fn run(world: Arc<World>, number: usize) {
    let client = Client::new(Wire::new(world.clone(), None).store());
    let mut left = world.scene.pushes;
    let mean = world.scene.length.mul_f64(0.6) / (left as u32 + 1);
    let batch = batches::open(&world, &client, number).await;
    while left > 0 && !world.is_calm() {
        let count = world.roll(|rng| if rng.u8(0..4) == 0 { rng.usize(1..=8) } else { 1 });
        let jobs: Vec<Job> = (0..count.min(left))
            .map(|i| job(&world, (number, left - i), batch.as_deref()))
            .collect();
        left -= jobs.len();
        push(&world, &client, jobs).await;
        if world.roll(|rng| rng.u8(0..3) > 0) {
            sleep(world.about(mean.mul_f64(2.0))).await;
        }
    }
    if let Some(batch) = batch {
        batches::seal(&world, &client, &batch).await;
    }
}

async fn push(world: &World, client: &Client, jobs: Vec<Job>) {
    let retries = world.roll(|rng| rng.u8(0..3));
    for _ in 0..=retries {
        let answer = send(client, &jobs).await;
        match answer {
            Ok(answer) => return check(world, &jobs, &answer),
            Err(error) if error.is_transient() => {}
            // The jobs waiting for the key are bound to another node.
            Err(error) if error.kind() == ErrorKind::Conflict => return,
            Err(error) => return world.alarm.raise(format!("error: a push failed with {error}")),
        }
        sleep(Duration::from_millis(world.roll(|rng| rng.u64(0..2_000)))).await;
    }
}

async fn send(client: &Client, jobs: &[Job]) -> Result<Vec<Pushed>> {
    match jobs {
        [job] => client.push(job.clone()).await.map(|pushed| vec![pushed]),
        _ => client.push_all(jobs.to_vec()).await,
    }
}

/// Checks that acknowledged jobs are in the store under their ids.
fn check(world: &World, jobs: &[Job], answer: &[Pushed]) {
    let tape = world.tape();
    let throttles = |job: &Job| {
        world.scene.queues.iter().any(|queue| queue.name == job.queue && queue.throttle.is_some())
    };
    for (job, pushed) in jobs.iter().zip(answer) {
        // The job before it stands for a throttled one, also when that is repeated.
        let is_repeated = pushed.status == PushStatus::Duplicate && throttles(job);
        if pushed.again_at.is_some() || is_repeated {
            continue;
        }
        if !tape.knows(pushed.job_id, job) {
            let id = pushed.job_id;
            world.alarm.raise(format!("push: {id} was acknowledged and is not that job: {job:?}"));
        }
    }
}

fn job(world: &World, name: (usize, usize), batch: Option<&str>) -> Job {
    let plan = world.scene.jobs;
    let queue = world.roll(|rng| rng.choice(&world.scene.queues).cloned());
    let queue = queue.unwrap_or_else(|| Queue::parallel("none"));
    let n = world.roll(|rng| rng.u64(0..plan.payloads));
    let batch = batch.filter(|_| world.roll(|rng| rng.bool()));
    // Jobs of different batches never merge, and the checker knows equal jobs by their payloads.
    let of = batch.unwrap_or_default();
    let text = match world.happens(plan.undecodable) {
        true => format!("\"rotten {n}{of}\""),
        false => format!("{{\"n\":{n},\"of\":\"{of}\"}}"),
    };
    let mut job = Job::with_payload(queue.name.clone(), Payload::from_bytes(text));
    if queue.mode.is_keyed() {
        job = job.key(format!("k{}", world.roll(|rng| rng.u32(0..world.scene.keys))));
    }
    if queue.groups.is_some() {
        job = with_group(world, job);
    }
    if let Some(batch) = batch {
        job = job.batch(batch);
    }
    if world.happens(plan.scored) {
        job = job.score(f64::from(world.roll(|rng| rng.u32(0..50))));
    }
    if world.happens(plan.delayed) {
        job = job.run_in(Duration::from_millis(world.roll(|rng| rng.u64(0..30_000))));
    }
    if world.happens(plan.urgent) {
        job = job.priority(world.roll(|rng| rng.u16(0..200)));
    }
    if world.happens(plan.with_task) {
        job = job.task(if world.roll(|rng| rng.bool()) { "sync" } else { "mail" });
    }
    if world.happens(plan.idempotent) {
        // Identifies this push: repeating it after a lost answer must not add a second job. The payload is then the
        // same too.
        job = job.idempotency_key(format!("{}-{}", name.0, name.1));
    }
    options(world, job)
}

/// Of a group, or of none: for each key always the same.
fn with_group(world: &World, job: Job) -> Job {
    let place = match job.key.as_deref() {
        Some(key) => usize::from(key.as_bytes().last().copied().unwrap_or_default()),
        None => world.roll(|rng| rng.usize(..)),
    };
    match GROUPS.get(place % (GROUPS.len() + 1)) {
        Some(group) => job.group(*group),
        None => job,
    }
}

fn options(world: &World, mut job: Job) -> Job {
    let plan = world.scene.jobs;
    if world.happens(plan.expiring) {
        let length = Duration::from_millis(world.roll(|rng| rng.u64(0..20_000)));
        job = job.expires_at(world.store_now() + length);
    }
    if world.happens(plan.routed) {
        let first = &world.scene.nodes[0];
        job = match &first.group {
            Some(group) if world.roll(|rng| rng.bool()) => job.consumer_group(group.as_str()),
            _ => job.node(first.name.as_str()),
        };
    }
    if world.happens(plan.own_rules) {
        job.options.max_attempts = Some(world.roll(|rng| rng.u32(1..4)));
        job.options.timeout = Some(Duration::from_millis(world.roll(|rng| rng.u64(100..20_000))));
        job.options.backoff = Some(Backoff::Constant {
            base: Duration::from_millis(world.roll(|rng| rng.u64(1..2_000))),
        });
        job.options.lease_ttl =
            Some(world.scene.nodes[0].lease.mul_f64(world.roll(|rng| 0.5 + rng.f64())));
    }
    job
}
