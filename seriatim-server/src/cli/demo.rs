//! `seriatim demo`: order updates pushed out of order, in duplicate and concurrently run through a
//! real engine, with failures and a node that dies; a proof from recorded history at the end.

mod kept;

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use seriatim::{
    Backoff, Batch, Client, Engine, EngineBuilder, Failure as HandlerFailure, Job, Queue,
    SharedStore, Timestamp, store::Sqlite,
};
use seriatim_verify::checker::{Recorder, check_files};
use tokio::sync::oneshot;

use crate::cli::output::{Failure, Result, say};

const QUEUE: &str = "orders";
/// The node that dies.
const DOOMED: &str = "b";
/// Short, so that the takeover of the dead node's work can be watched.
const LEASE: Duration = Duration::from_secs(2);
/// After this time the demo fails.
const PATIENCE: Duration = Duration::from_secs(50);

#[derive(Args)]
pub(crate) struct Demo {
    /// Run until interrupted
    #[arg(long)]
    forever: bool,
    /// Number of orders
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..100_000))]
    orders: u32,
    /// Seed for the shuffling and the failures
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Write the recorded history to this file
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Instead create a folder with a store full of sample problems and a configuration, to try the dashboard. Default: seriatim-demo
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "seriatim-demo")]
    #[arg(conflicts_with_all = ["forever", "orders", "seed", "history"])]
    keep: Option<PathBuf>,
}

/// An update of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OrderChanged {
    version: u32,
    status: String,
}

const STATUSES: [&str; 8] =
    ["placed", "paid", "picked", "packed", "shipped", "in transit", "delivered", "closed"];

type History = Recorder<BufWriter<std::fs::File>>;

/// The progress of the demo.
#[derive(Default)]
struct Progress {
    pushed: AtomicU64,
    handled: AtomicU64,
    failures: AtomicU64,
    /// Running handlers of the node that will die.
    doomed_inside: AtomicU64,
    /// Nothing more is pushed.
    ends: AtomicBool,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        if let Some(folder) = &self.keep {
            return kept::leave(folder).await;
        }
        let folder = tempfile::tempdir().map_err(Failure::failed)?;
        let log = self.history.clone().unwrap_or_else(|| folder.path().join("history.ndjson"));
        let recorder = Arc::new(open_history(&log)?);
        let store: SharedStore = Arc::new(Sqlite::open(folder.path().join("demo.db"))?);
        store.migrate().await?;
        recorder.queue(&queue());
        say(format!(
            "{} orders, each changed {} times; updates arrive out of order and twice, from four concurrent producers.\n\
             Two nodes work on an SQLite file. Some handlers fail; one node dies half way.\n",
            self.orders,
            STATUSES.len()
        ));
        let progress = Arc::new(Progress::default());
        let started = Instant::now();
        self.play(&store, &recorder, &progress).await?;
        recorder.finish(&*store).await?;
        let took = started.elapsed();
        drop(recorder);
        self.prove(&log, took)
    }

    async fn play(
        &self,
        store: &SharedStore,
        recorder: &Arc<History>,
        progress: &Arc<Progress>,
    ) -> Result<()> {
        let (stop, stopped) = oneshot::channel::<()>();
        let steady = engine(store, &recorder.for_actor("node-a"), "a", progress.clone());
        let steady = tokio::spawn(steady.run_until(async { stopped.await.unwrap_or_default() }));
        let doomed = Doomed::start(store, recorder, progress)?;
        let show = tokio::spawn(show(progress.clone(), store.clone()));
        if self.forever {
            tokio::spawn(end_at_interrupt(progress.clone()));
        }
        let mut round = 0;
        let half_way = Duration::from_secs(3);
        let kill = tokio::spawn(async move {
            tokio::time::sleep(half_way).await;
            tokio::task::spawn_blocking(move || doomed.kill()).await
        });
        loop {
            self.push_round(store, recorder, progress, round).await?;
            round += 1;
            if !self.forever || progress.ends.load(Ordering::Relaxed) {
                break;
            }
        }
        kill.await.map_err(Failure::failed)?.map_err(Failure::failed)?;
        drain(store).await?;
        show.abort();
        // Without a receiver the engine has failed; its error is reported below.
        let _ = stop.send(());
        steady.await.map_err(Failure::failed)??;
        say(status(progress, 0));
        Ok(())
    }

    async fn push_round(
        &self,
        store: &SharedStore,
        recorder: &Arc<History>,
        progress: &Arc<Progress>,
        round: u64,
    ) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ (round << 32));
        let mut updates: Vec<(u32, u32)> = Vec::new();
        for order in 0..self.orders {
            for version in 0..STATUSES.len() as u32 {
                updates.push((order, version));
                if rng.u8(0..4) == 0 {
                    updates.push((order, version));
                }
            }
        }
        // Near each other in time, but out of order, as messages of several services are.
        for i in 0..updates.len() {
            let near = rng.usize(i..updates.len().min(i + 200));
            updates.swap(i, near);
        }
        let producers = 4;
        let client = Client::new(store.clone());
        let pause = Duration::from_secs(6).div_f64((updates.len() / producers).max(1) as f64);
        let mut tasks = Vec::new();
        for producer in 0..producers {
            let mine: Vec<_> = updates.iter().copied().skip(producer).step_by(producers).collect();
            let (client, recorder, progress) = (client.clone(), recorder.clone(), progress.clone());
            tasks.push(tokio::spawn(async move {
                for (order, version) in mine {
                    if progress.ends.load(Ordering::Relaxed) {
                        break;
                    }
                    push(&client, &recorder, order, version, round).await?;
                    progress.pushed.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(pause).await;
                }
                Ok::<_, seriatim::Error>(())
            }));
        }
        for task in tasks {
            task.await.map_err(Failure::failed)??;
        }
        Ok(())
    }

    fn prove(&self, log: &Path, took: Duration) -> Result<()> {
        let report = check_files(&[log.to_owned()]).map_err(Failure::failed)?;
        say(format!(
            "\nThe proof, computed from the recorded history ({:.1} s):\n\n{report}",
            took.as_secs_f64()
        ));
        if let Some(path) = &self.history {
            say(format!("check it again with: seriatim check {}", path.display()));
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(Failure::failed("the proof failed: a guarantee was violated")),
        }
    }
}

fn open_history(path: &Path) -> Result<History> {
    let file = std::fs::File::create(path)
        .map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))?;
    Ok(Recorder::new("producers", BufWriter::new(file)))
}

fn queue() -> Queue {
    let base = Duration::from_millis(100);
    Queue::accumulate(QUEUE).batch_size(5).backoff(Backoff::Constant { base })
}

async fn push(
    client: &Client,
    recorder: &History,
    order: u32,
    version: u32,
    round: u64,
) -> seriatim::Result<()> {
    let status = STATUSES[version as usize].to_owned();
    let score = f64::from(version) + round as f64 * STATUSES.len() as f64;
    let update = OrderChanged { version, status };
    let job = Job::new(QUEUE, &update)?.key(format!("order-{order}")).score(score);
    let sent_at = Timestamp::of_this_machine();
    let answer = client.push(job.clone()).await;
    recorder.pushed(sent_at, &job, Some(&answer));
    answer.map(drop)
}

fn engine(
    store: &SharedStore,
    recorder: &History,
    name: &str,
    progress: Arc<Progress>,
) -> EngineBuilder {
    let is_doomed = name == DOOMED;
    Engine::builder(store.clone())
        .node_name(name)
        .concurrency(8)
        .prefetch_max(40)
        .lease(LEASE)
        .queue(queue())
        .observer(Arc::new(recorder.for_actor(format!("node-{name}"))))
        .worker(QUEUE, move |batch: Batch<OrderChanged>| {
            let progress = progress.clone();
            let inside = u64::from(is_doomed);
            async move {
                progress.doomed_inside.fetch_add(inside, Ordering::Relaxed);
                let result = handle(&batch, &progress).await;
                progress.doomed_inside.fetch_sub(inside, Ordering::Relaxed);
                result
            }
        })
}

/// Takes some milliseconds, like a call of another service, and sometimes fails.
async fn handle(batch: &Batch<OrderChanged>, progress: &Progress) -> Result<(), HandlerFailure> {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..80))).await;
    if fastrand::u8(0..20) == 0 {
        progress.failures.fetch_add(1, Ordering::Relaxed);
        return Err("the other service returned 503".into());
    }
    progress.handled.fetch_add(batch.payloads().count() as u64, Ordering::Relaxed);
    Ok(())
}

/// A node that will die: its own threads stop in the middle of their work.
struct Doomed {
    runtime: tokio::runtime::Runtime,
    recorder: Arc<History>,
    progress: Arc<Progress>,
}

impl Doomed {
    fn start(
        store: &SharedStore,
        recorder: &Arc<History>,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        let doomed = engine(store, recorder, DOOMED, progress.clone());
        runtime.spawn(doomed.run_until(std::future::pending::<()>()));
        Ok(Self { runtime, recorder: recorder.clone(), progress: progress.clone() })
    }

    /// No handler finishes, nothing is settled or released, no heartbeat follows.
    fn kill(self) {
        let patience = Instant::now() + Duration::from_secs(2);
        while self.progress.doomed_inside.load(Ordering::Relaxed) < 3 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        self.recorder.died(&format!("node-{DOOMED}"));
        say("node b died in the middle of its work");
    }
}

async fn drain(store: &SharedStore) -> Result<()> {
    let started = Instant::now();
    let mut wakeups = store.wakeups();
    while waiting(store).await? > 0 {
        if started.elapsed() > PATIENCE {
            return Err(Failure::failed("the queue did not become empty in time"));
        }
        wakeups.wait(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn waiting(store: &SharedStore) -> Result<u64> {
    Ok(store.stats(None).await?.iter().map(|queue| queue.jobs).sum())
}

/// The first interrupt ends the pushes, so that the proof follows; a second one ends the process. From the first wait on,
/// no interrupt ends the process by itself.
async fn end_at_interrupt(progress: Arc<Progress>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        progress.ends.store(true, Ordering::Relaxed);
        let _ = tokio::signal::ctrl_c().await;
        std::process::exit(Failure::INTERRUPTED.into());
    }
}

fn status(progress: &Progress, waiting: u64) -> String {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    format!(
        "pushed {:>6}   handled {:>6}   failed calls {:>4}   waiting {waiting:>5}",
        read(&progress.pushed),
        read(&progress.handled),
        read(&progress.failures)
    )
}

async fn show(progress: Arc<Progress>, store: SharedStore) {
    let live = std::io::stdout().is_terminal();
    let pause = Duration::from_millis(if live { 150 } else { 2_000 });
    loop {
        tokio::time::sleep(pause).await;
        let line = status(&progress, waiting(&store).await.unwrap_or_default());
        if live {
            let _ = write!(std::io::stdout(), "\r{line} ");
            let _ = std::io::stdout().flush();
        } else {
            say(line);
        }
    }
}
