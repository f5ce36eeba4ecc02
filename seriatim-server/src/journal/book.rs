//! The journal on disk: files of JSON lines in a folder, bounded in size and age.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use seriatim::{JobId, Timestamp};
use tokio::sync::{Semaphore, oneshot};

/// Lines waiting to be written. Further ones are lost and counted: a slow disk must not delay the
/// jobs.
const WAITING_LINES_MAX: usize = 50_000;
/// A folder is so many files at least, so that a part of it can be removed.
const FILES: u64 = 8;
/// How often the folder is checked when idle.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);
/// Most events returned for one job: the newest.
const EVENTS_MAX: usize = 1_000;
/// Most concurrent searches; each reads the whole folder.
const SEARCHES_MAX: usize = 2;
const SUFFIX: &str = ".ndjson";

/// Writes and searches the files.
pub(crate) struct Book {
    limits: Limits,
    lines: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    lost_before: Once,
    searches: Semaphore,
}

#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) folder: PathBuf,
    pub(crate) retention: Duration,
    pub(crate) bytes_max: u64,
}

enum Message {
    Line(String),
    /// Answered when all before it is in the file.
    Flush(oneshot::Sender<()>),
}

/// What was found of a job.
pub(crate) enum Search {
    Found(Vec<Value>),
    /// Too many concurrent searches.
    Busy,
}

impl Book {
    /// Opens a new file in the folder, and makes the folder if it is not there.
    pub(crate) fn open(limits: Limits) -> io::Result<Self> {
        // Only the owner may read events and keys of jobs.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&limits.folder)?;
        let writer = Writer::open(limits.clone())?;
        let (lines, received) = mpsc::sync_channel(WAITING_LINES_MAX);
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&received))?;
        let lost = Arc::default();
        let searches = Semaphore::new(SEARCHES_MAX);
        Ok(Self { limits, lines, lost, lost_before: Once::new(), searches })
    }

    pub(crate) fn write(&self, line: String) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.try_send(Message::Line(line))
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.lost_before.call_once(|| {
                tracing::warn!(
                    "the disk of the journal is too slow: events are lost, counted in seriatim_journal_lost_total"
                );
            });
        }
    }

    /// Events that could not be written down.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The events of a job, oldest first, of all files in the folder.
    pub(crate) async fn search(&self, job: JobId) -> io::Result<Search> {
        let Ok(_place) = self.searches.try_acquire() else { return Ok(Search::Busy) };
        let (done, is_done) = oneshot::channel();
        let (limits, lines) = (self.limits.clone(), self.lines.clone());
        let searched = tokio::task::spawn_blocking(move || {
            // A thread that has ended has nothing to write any more.
            if lines.send(Message::Flush(done)).is_ok() {
                let _ = is_done.blocking_recv();
            }
            find(&limits, job)
        });
        searched.await.map_err(io::Error::other)?.map(Search::Found)
    }
}

fn find(limits: &Limits, job: JobId) -> io::Result<Vec<Value>> {
    let name = format!("\"{job}\"");
    let oldest = Timestamp::of_this_machine() - limits.retention;
    let oldest = crate::base::time::absolute(oldest);
    let mut found = Vec::new();
    for (path, ..) in files(&limits.folder)? {
        // Another process may have removed it by now.
        let Ok(file) = File::open(&path) else { continue };
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            // Invalid text is no event: a writer was killed, or a disk is damaged.
            let text = std::str::from_utf8(&line).ok().filter(|text| text.contains(&name));
            let event = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let is_its = |event: &Value| {
                event["job_id"] == *job.to_string() && event["at"].as_str() >= Some(&oldest)
            };
            found.extend(event.filter(is_its));
        }
    }
    // Several processes write into the folder; a stable order keeps what one of them wrote in order.
    found.sort_by_key(|event| {
        event["at"].as_str().and_then(|at| at.parse().ok()).unwrap_or(jiff::Timestamp::MIN)
    });
    found.drain(..found.len().saturating_sub(EVENTS_MAX));
    Ok(found)
}

/// The files of the folder, oldest first.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_string_lossy().ends_with(SUFFIX);
        if let (true, Ok(data)) = (is_ours, entry.metadata()) {
            all.push((entry.path(), data.len(), data.modified()?));
        }
    }
    // Their names begin with the time.
    all.sort();
    Ok(all)
}

/// The thread that writes.
struct Writer {
    limits: Limits,
    file: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
    opened: Instant,
}

impl Writer {
    fn open(limits: Limits) -> io::Result<Self> {
        let began = Timestamp::of_this_machine().as_micros();
        let name = format!("{began:016}-{}{SUFFIX}", std::process::id());
        let path = limits.folder.join(name);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let file = BufWriter::new(file);
        let writer = Self { limits, file, path, bytes: 0, opened: Instant::now() };
        writer.prune()?;
        Ok(writer)
    }

    fn run(mut self, received: &Receiver<Message>) {
        let mut is_ill = false;
        loop {
            let done = match received.recv_timeout(LOOK_INTERVAL) {
                Ok(message) => self.write_all(message, received),
                Err(RecvTimeoutError::Timeout) => self.turn_over(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let (Err(error), false) = (&done, is_ill) {
                let folder = self.limits.folder.display();
                tracing::error!(%error, "cannot write the journal in {folder}: events are lost");
            }
            is_ill = done.is_err();
        }
    }

    /// Writes what waits, and flushes when nothing waits any more.
    fn write_all(&mut self, first: Message, received: &Receiver<Message>) -> io::Result<()> {
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    self.bytes += line.len() as u64;
                    self.file.write_all(line.as_bytes())?;
                }
                Message::Flush(done) => told.push(done),
            }
            next = received.try_recv().ok();
        }
        self.file.flush()?;
        for done in told {
            // The caller may be gone.
            let _ = done.send(());
        }
        self.turn_over()
    }

    /// Begins a new file when this one is large or old.
    fn turn_over(&mut self) -> io::Result<()> {
        let is_large = self.bytes >= self.limits.bytes_max / FILES;
        let is_old = self.opened.elapsed() >= self.limits.retention / FILES as u32;
        match is_large || (is_old && self.bytes > 0) {
            true => {
                *self = Self::open(self.limits.clone())?;
                Ok(())
            }
            false if is_old => self.prune(),
            false => Ok(()),
        }
    }

    /// Removes what is too old, and the oldest of what is too much.
    fn prune(&self) -> io::Result<()> {
        let all = files(&self.limits.folder)?;
        let mut bytes: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
        for (path, size, modified) in all {
            let age = modified.elapsed().unwrap_or_default();
            let is_spent = age > self.limits.retention || bytes > self.limits.bytes_max;
            if path != self.path && is_spent {
                bytes -= size;
                // Another process of the folder may have been faster.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "book_fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::document::Event;

    const JOB: &str = "01a1fd84-a548-7000-8001-00000000ffff";

    #[tokio::test]
    async fn d14_events_are_found_after_a_restart_and_the_folder_stays_within_its_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            folder: folder.path().to_owned(),
            retention: Duration::from_secs(3_600),
            bytes_max: 80_000,
        };
        let job: JobId = JOB.parse().unwrap();
        let written = Book::open(limits.clone()).unwrap();
        written.write(Event::new("queued", job, "orders").line());
        assert!(
            matches!(written.search(job).await.unwrap(), Search::Found(events) if events.len() == 1)
        );
        drop(written);
        let book = Book::open(limits.clone()).unwrap();
        book.write(Event::new("started", job, "orders").line());
        let Search::Found(events) = book.search(job).await.unwrap() else { panic!("busy") };
        let words: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
        assert_eq!(words, ["queued", "started"]);
        let other: JobId = "01a1fd84-a548-7000-8001-00000000aaaa".parse().unwrap();
        for _ in 0..40 {
            (0..100).for_each(|_| book.write(Event::new("queued", other, "orders").line()));
            assert!(matches!(book.search(other).await.unwrap(), Search::Found(_)));
        }
        let bytes: u64 = files(folder.path()).unwrap().iter().map(|(_, bytes, _)| bytes).sum();
        assert!((60_000..=100_000).contains(&bytes), "{bytes}");
        assert!(
            matches!(book.search(job).await.unwrap(), Search::Found(events) if events.is_empty())
        );
        assert_eq!(book.lost(), 0);
    }
}
