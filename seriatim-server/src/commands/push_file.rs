//! Pushes the jobs of a file or of standard input, a batch at a time.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use seriatim::{Client, Job};

use crate::config::in_words;
use crate::job_input::JobInput;
use crate::output::Failure;
use crate::output::progress::Progress;

/// Jobs that are pushed together.
const BATCH_JOBS_MAX: usize = 1_000;
/// Bytes of lines that are pushed together, so that memory stays bounded whatever the jobs carry.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Pushes all jobs of `path`, `-` being standard input, into `queue`; `complete` adds what the
/// command line says of each. Answers how many were pushed.
pub(super) async fn push(
    client: &Client,
    path: &Path,
    queue: &str,
    complete: impl Fn(Job) -> Job,
) -> Result<u64, Failure> {
    let mut pusher = Pusher { client, path, pushed: 0, jobs: Vec::new(), lines: Vec::new() };
    let mut lines = Lines::open(path)?;
    let mut progress = Progress::start();
    let mut batch_bytes = 0;
    loop {
        let read = lines.next().and_then(|text| match text {
            Some(text) if text.trim().is_empty() => Ok(Next::Nothing),
            Some(text) => Ok(Next::Job(Box::new(complete(parse(text, queue)?)), text.len())),
            None => Ok(Next::End),
        });
        match read {
            Ok(Next::Nothing) => {}
            Ok(Next::Job(job, bytes)) => {
                pusher.jobs.push(*job);
                pusher.lines.push(lines.number);
                batch_bytes += bytes;
            }
            Ok(Next::End) => {
                pusher.send().await?;
                return Ok(pusher.pushed);
            }
            Err(error) => {
                // What stands before the bad line is good: it goes, and the line is where to go on.
                pusher.send().await?;
                return Err(pusher.failed(lines.number, lines.number, &error));
            }
        }
        if pusher.jobs.len() == BATCH_JOBS_MAX || batch_bytes >= BATCH_BYTES_MAX {
            pusher.send().await?;
            batch_bytes = 0;
            progress.tell(pusher.pushed, lines.bytes, lines.bytes_total);
        }
    }
}

/// What a line held.
enum Next {
    Job(Box<Job>, usize),
    Nothing,
    End,
}

/// A file, line by line.
struct Lines {
    reader: BufReader<Box<dyn Read>>,
    text: String,
    /// Of the line that was read last, from 1.
    number: u64,
    bytes: u64,
    /// Of a file; standard input does not tell.
    bytes_total: Option<u64>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, Failure> {
        let mut bytes_total = None;
        let reader: Box<dyn Read> = if is_stdin(path) {
            Box::new(std::io::stdin())
        } else {
            let unreadable =
                |e: std::io::Error| Failure::failed(format!("{}: {e}", path.display()));
            let file = std::fs::File::open(path).map_err(unreadable)?;
            bytes_total = file.metadata().ok().map(|metadata| metadata.len());
            Box::new(file)
        };
        let reader = BufReader::new(reader);
        Ok(Self { reader, text: String::new(), number: 0, bytes: 0, bytes_total })
    }

    fn next(&mut self) -> Result<Option<&str>, Failure> {
        self.text.clear();
        self.number += 1;
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut self.text);
        let read = read.map_err(Failure::failed)? as u64;
        self.bytes += read;
        match read {
            0 => Ok(None),
            LINE_BYTES_MAX => {
                Err(Failure::failed(format!("the line is longer than {LINE_BYTES_MAX} bytes")))
            }
            _ => Ok(Some(&self.text)),
        }
    }
}

/// What waits to be pushed together, and how much was.
struct Pusher<'a> {
    client: &'a Client,
    path: &'a Path,
    pushed: u64,
    jobs: Vec<Job>,
    /// The line of each job.
    lines: Vec<u64>,
}

impl Pusher<'_> {
    async fn send(&mut self) -> Result<(), Failure> {
        let (jobs, lines) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.lines));
        let Some(first) = lines.first().copied() else { return Ok(()) };
        match self.client.push_all(jobs).await {
            Ok(pushed) => self.pushed += pushed.len() as u64,
            Err(error) => {
                // The store names the job by its place in the batch, of which nothing was pushed.
                let place = error.field().and_then(split_place);
                let line = place.and_then(|(place, _)| lines.get(place)).copied().unwrap_or(first);
                let told = match place {
                    Some((_, field)) if !field.is_empty() => {
                        format!("{field}: {}", error.message())
                    }
                    _ => error.to_string(),
                };
                return Err(self.failed(line, first, &told));
            }
        }
        Ok(())
    }

    fn failed(&self, line: u64, go_on: u64, error: &dyn Display) -> Failure {
        let place = match is_stdin(self.path) {
            true => format!("standard input, line {line}"),
            false => format!("{}:{line}", self.path.display()),
        };
        let before = match self.pushed {
            0 => "nothing is pushed".to_owned(),
            1 => format!("1 job before it is pushed; go on from line {go_on}"),
            jobs => format!("{jobs} jobs before it are pushed; go on from line {go_on}"),
        };
        Failure::failed(format!("{place}: {error} ({before})"))
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// 3 and `key`, of `jobs[3].key`.
pub(super) fn split_place(field: &str) -> Option<(usize, &str)> {
    let (place, field) = field.strip_prefix("jobs[")?.split_once(']')?;
    Some((place.parse().ok()?, field.strip_prefix('.').unwrap_or(field)))
}

/// The job of a line, checked as far as can be without the store.
fn parse(text: &str, queue: &str) -> Result<Job, Failure> {
    let line: JobInput = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let job = line.into_job(queue)?;
    job.validate()?;
    Ok(job)
}

/// The error without what the reader adds of lines: each document is one line of ours.
fn unreadable(error: &serde_json::Error) -> Failure {
    let (column, text) = (error.column(), error.to_string());
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let place = if error.is_data() { String::new() } else { format!(", at column {column}") };
    Failure::failed(format!("{}{place}", in_words(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_names_a_job_by_its_place() {
        assert_eq!(split_place("jobs[12].key"), Some((12, "key")));
        assert_eq!(split_place("jobs[0]"), Some((0, "")));
        assert_eq!(split_place("key"), None);
    }
}
