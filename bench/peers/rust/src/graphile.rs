//! `graphile_worker`: a local queue, and completions in batches.

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;

use crate::{Figures, PUSH_BATCH, all_of, did, from_callers, rate};

const CONNECTIONS: u32 = 20;
const CONCURRENCY: usize = 24;
const BATCH_DELAY: Duration = Duration::from_millis(5);

#[derive(Deserialize, Serialize)]
struct Blank {}

impl TaskHandler for Blank {
    const IDENTIFIER: &'static str = "blank";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        did();
        Ok::<(), String>(())
    }
}

fn spec(number: u64, keys: u64) -> JobSpec {
    match keys {
        0 => JobSpec::default(),
        _ => JobSpec::builder().queue_name(format!("key-{}", number % keys)).build(),
    }
}

pub async fn measure(url: &str, jobs: u64, keys: u64, local_queue: usize) -> Figures {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await.unwrap();
    sqlx::query("DROP SCHEMA IF EXISTS graphile_worker CASCADE").execute(&pool).await.unwrap();
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema("graphile_worker")
        .concurrency(CONCURRENCY)
        .complete_job_batch_delay(BATCH_DELAY)
        .fail_job_batch_delay(BATCH_DELAY)
        .local_queue(LocalQueueConfig::default().with_size(local_queue))
        .define_job::<Blank>()
        .init()
        .await
        .unwrap();
    let utils = worker.create_utils();
    let push = rate(jobs, async {
        for first in (0..jobs).step_by(PUSH_BATCH as usize) {
            let numbers = first..jobs.min(first + PUSH_BATCH);
            let batch: Vec<RawJobSpec> = numbers
                .map(|number| RawJobSpec {
                    identifier: "blank".to_owned(),
                    payload: serde_json::json!({}),
                    spec: spec(number, keys),
                })
                .collect();
            utils.add_raw_jobs(&batch).await.unwrap();
        }
    });
    let push = push.await;
    let drain = rate(jobs, async {
        // Until the last completion is stored.
        let all = all_of(jobs);
        let stop = async {
            all.await;
            worker.request_shutdown();
        };
        tokio::join!(worker.run(), stop).0.unwrap();
    });
    let drain = drain.await;
    let single = from_callers(jobs, || async {
        utils.add_raw_job("later", serde_json::json!({}), JobSpec::default()).await.unwrap();
    });
    Figures { push, single: single.await, drain }
}
