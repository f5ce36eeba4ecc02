//! Pushes the jobs of a file or of standard input, a chunk at a time.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::pin::Pin;

use seriatim::store::{PushStatus, Pushed};
use seriatim::{Client, ErrorKind, Job, shutdown_signal};
use tokio::sync::mpsc;

use crate::base::text::{MARK, count};
use crate::base::time::absolute;
use crate::cli::output::{Failure, Progress, Result, hint};
use crate::config::in_words;
use crate::protocol::document::Streamed;
use crate::protocol::job_input::{JobInput, split_place};
use crate::protocol::value::Time;

/// Jobs of one chunk.
const CHUNK_JOBS_MAX: usize = 1_000;
/// Bytes of one chunk: limits memory, whatever the size of the jobs.
const CHUNK_BYTES_MAX: usize = 8 << 20;
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// The jobs of `path` (`-`: standard input), from this line on (the first is 1).
pub(super) struct Source<'a> {
    path: &'a Path,
    from_line: u64,
    lines: Lines,
}

impl<'a> Source<'a> {
    /// Fails if the file cannot be read, before there is a store for its jobs.
    pub(super) fn open(path: &'a Path, from_line: u64) -> Result<Self> {
        Ok(Self { path, from_line, lines: Lines::open(path)? })
    }

    /// Reads all jobs, and counts them.
    pub(super) fn check(mut self, job: impl Fn(JobInput) -> seriatim::Result<Job>) -> Result<u64> {
        let wrong = |line: u64, error: &dyn Display| {
            Failure::failed(format!("{}: {error}", place(self.path, line)))
        };
        self.lines.skip_to(self.from_line)?;
        let mut jobs = 0;
        loop {
            let chunk = self.lines.chunk();
            for (number, text) in &chunk.lines {
                parse(text, &job).map_err(|error| wrong(*number, &error))?;
                jobs += 1;
            }
            match chunk.wrong {
                Some((number, error)) => return Err(wrong(number, &error)),
                None if chunk.is_last => return Ok(jobs),
                None => {}
            }
        }
    }
}

/// What became of the jobs of a source.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) counts: Streamed,
    /// The line of the first one whose key is throttled, in a queue that refuses such pushes.
    first_refused: Option<u64>,
}

impl Loaded {
    /// The error if some were refused.
    pub(super) fn check(&self) -> Result<()> {
        self.refused().map_or(Ok(()), |told| Err(Failure::failed(told)))
    }

    /// Words for those that were not new.
    pub(super) fn known(&self) -> String {
        match self.counts.duplicate {
            0 => String::new(),
            known => format!(", {known} of them known already"),
        }
    }

    /// Words for those that were refused, behind others.
    fn and_refused(&self) -> String {
        self.refused().map(|told| format!("; {told}")).unwrap_or_default()
    }

    fn refused(&self) -> Option<String> {
        let (line, Time(again_at)) = (self.first_refused?, self.counts.again_at?);
        let (jobs, at) = (count(self.counts.throttled, "job"), absolute(again_at));
        Some(format!(
            "refused: {jobs} of throttled keys, the first one in line {line}; all may be pushed again at {at}"
        ))
    }

    fn add(&mut self, lines: &[u64], pushed: &[Pushed]) {
        let place = pushed.iter().position(|one| one.status == PushStatus::Throttled);
        let line = place.and_then(|place| lines.get(place)).copied();
        self.first_refused = self.first_refused.or(line);
        self.counts.add(pushed);
    }
}

/// Pushes all jobs of a source; `job` makes each, with the options of the command line. A signal stops it between two
/// chunks, with the line from which to continue.
pub(super) async fn push(
    client: &Client,
    source: Source<'_>,
    job: impl Fn(JobInput) -> seriatim::Result<Job>,
) -> Result<Loaded> {
    let (jobs, lines) = (Vec::new(), Vec::new());
    let mut pusher = Pusher { client, path: source.path, all: Loaded::default(), jobs, lines };
    let mut chunks = read(source.lines, source.from_line)?;
    let (mut stop, mut progress) = (Stop::default(), Progress::start());
    // The first line that is not pushed.
    let mut next = source.from_line;
    while let Some(chunk) = stop.unless_told(chunks.recv()).await {
        let Some(chunk) = chunk else {
            return Err(Failure::failed("the file was not read to its end"));
        };
        let mut wrong = None;
        for (number, text) in chunk.lines {
            match parse(&text, &job) {
                Ok(job) => {
                    pusher.jobs.push(job);
                    pusher.lines.push(number);
                }
                Err(error) => {
                    wrong = Some((number, error));
                    break;
                }
            }
        }
        stop.after(pusher.send()).await?;
        // The lines before the bad one are good: they are pushed, and the bad line is where to continue.
        if let Some((line, error)) = wrong.or(chunk.wrong) {
            return Err(pusher.failed(line, line, &error));
        }
        if chunk.is_last {
            return Ok(pusher.all);
        }
        next = chunk.next;
        progress.tell(pusher.all.counts.pushed, chunk.bytes, chunk.bytes_total);
    }
    drop(progress);
    Err(Failure::interrupted(format!(
        "interrupted: {} pushed{}; continue with --from-line {next}{}",
        count(pusher.all.counts.pushed, "job"),
        pusher.all.known(),
        pusher.all.and_refused()
    )))
}

struct Chunk {
    /// Non-empty lines with their numbers.
    lines: Vec<(u64, String)>,
    /// A line behind them that cannot be read.
    wrong: Option<(u64, Failure)>,
    /// Nothing follows.
    is_last: bool,
    /// The number of the line behind all of them.
    next: u64,
    /// How much of the whole was read.
    bytes: u64,
    bytes_total: Option<u64>,
}

/// Reads one chunk ahead, on its own thread: standard input may block forever, and the process must still
/// end at a signal.
fn read(mut lines: Lines, from_line: u64) -> Result<mpsc::Receiver<Chunk>> {
    let (to, chunks) = mpsc::channel(1);
    let reading = move || {
        if let Err(error) = lines.skip_to(from_line) {
            let wrong = Some((lines.number, error));
            let _ = to.blocking_send(lines.gathered(Vec::new(), wrong));
            return;
        }
        loop {
            let chunk = lines.chunk();
            let ends = chunk.is_last || chunk.wrong.is_some();
            if to.blocking_send(chunk).is_err() || ends {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("reader".to_owned()).spawn(reading);
    spawned.map_err(|error| Failure::failed(format!("cannot read: {error}")))?;
    Ok(chunks)
}

/// A file, line by line.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    /// The number of the last line read, from 1.
    number: u64,
    bytes: u64,
    /// The size of a file; unknown for standard input.
    bytes_total: Option<u64>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let mut bytes_total = None;
        let reader: Box<dyn Read + Send> = if is_stdin(path) {
            Box::new(std::io::stdin())
        } else {
            let unreadable =
                |e: std::io::Error| Failure::failed(format!("cannot read {}: {e}", path.display()));
            let file = std::fs::File::open(path).map_err(unreadable)?;
            bytes_total = file.metadata().ok().map(|metadata| metadata.len());
            Box::new(file)
        };
        let reader = BufReader::new(reader);
        Ok(Self { reader, number: 0, bytes: 0, bytes_total })
    }

    fn next(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        self.number += 1;
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(Failure::failed)? as u64;
        self.bytes += read;
        match read {
            0 => return Ok(None),
            // Before it is read as text: the cut may be within a character.
            LINE_BYTES_MAX => {
                let wrong = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return Err(Failure::failed(wrong));
            }
            _ => {}
        }
        let no_text = |_| Failure::failed("the line is not valid UTF-8");
        let mut text = String::from_utf8(bytes).map_err(no_text)?;
        if self.number == 1 && text.starts_with(MARK) {
            text.drain(..MARK.len());
        }
        Ok(Some(text))
    }

    /// Skips the lines before this one. An error if there are too few.
    fn skip_to(&mut self, line: u64) -> Result<()> {
        while self.number + 1 < line {
            let error = match self.next() {
                Ok(Some(_)) => continue,
                Ok(None) => {
                    let lines = self.number - 1;
                    Failure::usage(format!("--from-line {line}: the file has only {lines} lines"))
                }
                Err(error) => error,
            };
            return Err(error);
        }
        Ok(())
    }

    fn chunk(&mut self) -> Chunk {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < CHUNK_JOBS_MAX && bytes < CHUNK_BYTES_MAX {
            match self.next() {
                Ok(Some(text)) if text.trim().is_empty() => {}
                Ok(Some(text)) => {
                    bytes += text.len();
                    lines.push((self.number, text));
                }
                Ok(None) => return Chunk { is_last: true, ..self.gathered(lines, None) },
                Err(error) => return self.gathered(lines, Some((self.number, error))),
            }
        }
        self.gathered(lines, None)
    }

    fn gathered(&self, lines: Vec<(u64, String)>, wrong: Option<(u64, Failure)>) -> Chunk {
        let (bytes, bytes_total) = (self.bytes, self.bytes_total);
        Chunk { lines, wrong, is_last: false, next: self.number + 1, bytes, bytes_total }
    }
}

/// Whether a signal asked the process to stop.
struct Stop {
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
    told: bool,
}

impl Default for Stop {
    fn default() -> Self {
        Self { signal: Box::pin(shutdown_signal()), told: false }
    }
}

impl Stop {
    /// The result of `work`; none if a signal comes first.
    async fn unless_told<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        if self.told {
            return None;
        }
        tokio::select! {
            biased;
            () = &mut self.signal => None,
            result = work => Some(result),
        }
    }

    /// The result of `work`, even if a signal comes meanwhile.
    async fn after<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        if !self.told {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = &mut self.signal => self.told = true,
            }
            hint("stopping after this chunk; a second signal stops immediately");
            tokio::spawn(async {
                shutdown_signal().await;
                hint("stopped immediately: the last chunk may or may not have been pushed");
                std::process::exit(Failure::INTERRUPTED.into());
            });
        }
        work.await
    }
}

/// The next chunk, and what became of those before.
struct Pusher<'a> {
    client: &'a Client,
    path: &'a Path,
    all: Loaded,
    jobs: Vec<Job>,
    /// The line of each job.
    lines: Vec<u64>,
}

impl Pusher<'_> {
    async fn send(&mut self) -> Result<()> {
        let (jobs, lines) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.lines));
        let Some(first) = lines.first().copied() else { return Ok(()) };
        match self.client.push_all(jobs).await {
            Ok(pushed) => self.all.add(&lines, &pushed),
            Err(error) => return Err(self.refused(&lines, first, &error)),
        }
        Ok(())
    }

    /// Why the store has not taken a chunk, of which this is the first line.
    fn refused(&self, lines: &[u64], first: u64, error: &seriatim::Error) -> Failure {
        if error.kind() == ErrorKind::Unavailable {
            // No answer came: who goes on from there may push it twice.
            let (place, last) = (place(self.path, first), lines.last().copied().unwrap_or(first));
            let before = count(self.all.counts.pushed, "job");
            let refused = self.all.and_refused();
            return Failure::failed(format!(
                "{place}: {error} ({before} pushed before it; lines {first} to {last} may be in the store too: continue with --from-line {first} if they are not, or have idempotency keys{refused})"
            ));
        }
        // The store names the job by its place in the chunk; nothing of the chunk was pushed.
        let place = error.field().and_then(split_place);
        let line = place.and_then(|(place, _)| lines.get(place)).copied().unwrap_or(first);
        let told = match place {
            Some((_, field)) if !field.is_empty() => format!("{field}: {}", error.message()),
            _ => error.to_string(),
        };
        self.failed(line, first, &told)
    }

    fn failed(&self, line: u64, go_on: u64, error: &dyn Display) -> Failure {
        let place = place(self.path, line);
        let before = match self.all.counts.pushed {
            0 => "nothing was pushed".to_owned(),
            jobs => {
                let were = if jobs == 1 { "was" } else { "were" };
                let jobs = count(jobs, "job");
                let known = self.all.known();
                format!("{jobs} {were} pushed before it{known}; continue with --from-line {go_on}")
            }
        };
        let refused = self.all.and_refused();
        Failure::failed(format!("{place}: {error} ({before}{refused})"))
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn place(path: &Path, line: u64) -> String {
    match is_stdin(path) {
        true => format!("standard input, line {line}"),
        false => format!("{}:{line}", path.display()),
    }
}

/// The job of a line, checked as far as possible without the store.
fn parse(text: &str, job: impl Fn(JobInput) -> seriatim::Result<Job>) -> Result<Job> {
    // A list would be read as the fields of a job, in their order.
    if !text.trim_start().starts_with('{') {
        return Err(Failure::failed(
            "is not a JSON object; each line is a job, as in {\"payload\":1}",
        ));
    }
    let line: JobInput =
        serde_json::from_str(text.trim_end()).map_err(|error| unreadable(text, &error))?;
    let job = job(line)?;
    job.validate()?;
    Ok(job)
}

/// The error without the line of the JSON reader: each document is one of our lines.
fn unreadable(text: &str, error: &serde_json::Error) -> Failure {
    let told = error.to_string();
    let told = in_words(told.rsplit_once(" at line ").map_or(&*told, |(message, _)| message));
    if !error.is_data() {
        return Failure::failed(format!("{told}, at column {}", error.column()));
    }
    // What is about a key names it.
    let field = if told.contains('`') { None } else { field_of(text) };
    Failure::failed(field.map_or(told.clone(), |field| format!("{field}: {told}")))
}

/// The field whose value cannot be read.
fn field_of(text: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, JobInput>(&mut reader).err()?;
    Some(error.path().to_string()).filter(|path| path != ".")
}

#[cfg(test)]
#[path = "push_file_fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use seriatim::store::Memory;
    use seriatim::{Error, Queue};

    use super::*;

    #[test]
    fn of_a_chunk_without_an_answer_it_is_not_said_that_it_was_not_pushed() {
        let client = Client::new(Arc::new(Memory::new()));
        let (jobs, lines) = (Vec::new(), Vec::new());
        let counts = Streamed { pushed: 1_000, ..Streamed::default() };
        let all = Loaded { counts, ..Loaded::default() };
        let pusher = Pusher { client: &client, path: Path::new("jobs.ndjson"), all, jobs, lines };
        let of = |kind| pusher.refused(&[1_001, 1_003], 1_001, &Error::new(kind, "no")).to_string();
        let said = of(ErrorKind::Unavailable);
        assert!(said.contains("lines 1001 to 1003 may be in the store too"), "{said}");
        let said = of(ErrorKind::Full);
        assert!(said.ends_with("pushed before it; continue with --from-line 1001)"), "{said}");
    }

    #[test]
    fn a_line_that_is_too_long_is_called_so_also_if_it_is_cut_within_a_character() {
        let said = |bytes: Vec<u8>| {
            let reader: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(bytes));
            let reader = BufReader::new(reader);
            let mut lines = Lines { reader, number: 0, bytes: 0, bytes_total: None };
            lines.next().unwrap_err().to_string()
        };
        let long = format!("x{}", "é".repeat(LINE_BYTES_MAX as usize / 2));
        assert_eq!(said(long.into_bytes()), "the line is longer than 8388608 bytes");
        assert_eq!(said(b"\xff\n".to_vec()), "the line is not valid UTF-8");
    }

    #[tokio::test]
    async fn a_file_that_is_broken_off_also_says_which_jobs_were_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.ndjson");
        let lines =
            "{\"key\":\"a\"}\n{\"key\":\"a\"}\n{\"key\":\"b\"}\n{\"key\":\"b\"}\n{\"kye\":1}\n";
        std::fs::write(&path, lines).unwrap();
        let client = Client::new(Arc::new(Memory::new()));
        let queue = Queue::fifo("orders").throttle(Duration::from_secs(3_600)).refuse_throttled();
        client.declare([queue]).await.unwrap();
        let source = Source::open(&path, 1).unwrap();
        let pushed = push(&client, source, |line| line.into_job("orders")).await;
        let said = pushed.err().unwrap().to_string();
        let before = "(2 jobs were pushed before it; continue with --from-line 5; refused: 2 jobs of throttled keys, the first one in line 2; all may be pushed again at ";
        assert!(said.contains(before), "{said}");
    }
}
