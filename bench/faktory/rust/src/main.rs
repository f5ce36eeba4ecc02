//! The crate faktory: `faktory-client push JOBS KEYS` or `faktory-client work SLOTS`.

use std::collections::HashSet;
use std::env;
use std::io::{Error, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use faktory::{Client, Job, Worker};
use serde_json::json;

fn say(event: &str, n: u64) -> Result<(), Error> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Error::other)?;
    writeln!(std::io::stdout(), "{event} {n} {:.6}", time.as_secs_f64())
}

fn job(n: u64, keys: u64) -> Job {
    let mut job = Job::builder("Sync");
    job.args(vec![n]);
    if n.is_multiple_of(5) {
        let ours = json!({ "key": format!("key-{}", n / 5 % keys), "score": n });
        job.queue("ordered").add_to_custom_data("seriatim", ours);
    }
    job.build()
}

async fn push(count: u64, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut client = Client::connect().await?;
    for first in (0..count).step_by(1000) {
        let jobs: Vec<Job> = (first..count.min(first + 1000)).map(|n| job(n, keys)).collect();
        if let (_, Some(wrong)) = client.enqueue_many(jobs).await? {
            return Err(format!("refused: {wrong:?}").into());
        }
    }
    Ok(())
}

async fn sync(job: Job, failed: Arc<Mutex<HashSet<u64>>>) -> Result<(), Error> {
    let n = job.args()[0].as_u64().ok_or_else(|| Error::other("no number"))?;
    say("start", n)?;
    let millis = if n.is_multiple_of(485) { 1_000 } else { 5 };
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let is_first = failed.lock().map_err(|_| Error::other("poisoned"))?.insert(n);
    if [7, 10].contains(&(n % 50)) && is_first {
        say("fail", n)?;
        return Err(Error::other("the first try fails"));
    }
    say("end", n)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize| args.get(place).and_then(|text| text.parse().ok()).unwrap_or(1);
    if args.first().is_some_and(|what| what == "push") {
        return push(number(1), number(2)).await;
    }
    let failed = Arc::new(Mutex::new(HashSet::new()));
    let worker = Worker::builder().workers(number(1) as usize);
    let worker = worker.register_fn("Sync", move |job| sync(job, failed.clone()));
    worker.connect().await?.run_to_completion(&["ordered", "default"]).await
}
