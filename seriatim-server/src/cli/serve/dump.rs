//! At SIGTTIN: what runs here and what it waits for, in the log and in a file of its own.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use seriatim::Timestamp;
use seriatim::engine::{Handle, RunningCall};
use tokio::signal::unix::{Signal, SignalKind};

use crate::base::text::count;
use crate::config::{Builtin, WorkerConfig};
use crate::workers;

/// Calls and programs in a dump.
const LINES_MAX: usize = 10_000;

/// By which a dump is asked for.
pub(super) fn signal() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::TTIN.as_raw())
}

/// Writes a dump at each signal.
pub(super) fn dump_at(mut asked: Signal, engine: Handle, configured: &[WorkerConfig]) {
    let configured = configured.to_vec();
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            let text = dump(&engine, &configured);
            for line in text.lines() {
                tracing::info!("dump: {line}");
            }
            match write(&text) {
                Ok(path) => tracing::info!("dump written to {}", path.display()),
                Err(error) => tracing::warn!("dump not written to a file: {error}"),
            }
        }
    });
}

fn dump(engine: &Handle, configured: &[WorkerConfig]) -> String {
    let calls = engine.running();
    let mut text = format!("running calls: {}, oldest first\n", calls.len());
    for call in calls.iter().take(LINES_MAX) {
        let _ = writeln!(text, "{}", line_of(call, configured));
    }
    for worker in engine.periodic() {
        let _ = writeln!(
            text,
            "periodic worker {}: {:?}, {} runs",
            worker.name, worker.state, worker.runs
        );
    }
    for pid in workers::leaders().into_iter().take(LINES_MAX) {
        let _ = writeln!(text, "program {pid}: {}", state_of(pid));
    }
    text
}

fn line_of(call: &RunningCall, configured: &[WorkerConfig]) -> String {
    let task = call.task.as_deref();
    let waits_for = configured
        .iter()
        .filter(|worker| worker.queue == call.queue)
        .filter(|worker| worker.task.is_none() || worker.task.as_deref() == task)
        .max_by_key(|worker| worker.task.is_some())
        .map_or_else(|| "its handler".to_owned(), waited_for);
    format!(
        "queue {}, task {}, keys {:?}, {}, for {:.1} s, waits for {waits_for}{}",
        call.queue,
        task.unwrap_or("none"),
        call.keys,
        count(call.lanes as u64, "lane"),
        call.age.as_secs_f64(),
        if call.asked_to_stop { ", asked to stop" } else { "" },
    )
}

/// Programs and hosts only: arguments and paths may hold secrets.
fn waited_for(worker: &WorkerConfig) -> String {
    let host = worker
        .url
        .as_ref()
        .and_then(|url| url.split("://").nth(1)?.split('/').next()?.rsplit('@').next());
    match (worker.launch(), worker.builtin) {
        (Some(launch), _) => format!("the program {}", launch.name()),
        (None, Some(Builtin::Http)) => format!("the answer of {}", host.unwrap_or("its URL")),
        (None, Some(Builtin::Replicate)) => "a copy of files".to_owned(),
        (None, _) => "ffmpeg".to_owned(),
    }
}

/// Name and state of a process, from Linux.
fn state_of(pid: i32) -> String {
    let read =
        |what: &str| std::fs::read_to_string(Path::new("/proc").join(format!("{pid}/{what}")));
    let Ok(status) = read("status") else {
        return "its state is not known on this system".to_owned();
    };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let waits_in = read("wchan").ok().filter(|place| place.len() > 1);
    format!(
        "{}, {}{}",
        field("Name:").unwrap_or("?"),
        field("State:").unwrap_or("?"),
        waits_in.map(|place| format!(", waits in {place}")).unwrap_or_default()
    )
}

/// A new file, for its owner only.
fn write(text: &str) -> std::io::Result<PathBuf> {
    let (pid, at) = (std::process::id(), Timestamp::of_this_machine().as_micros());
    let path = std::env::temp_dir().join(format!("seriatim-dump-{pid}-{at}.txt"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}
