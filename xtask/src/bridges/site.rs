//! Sidekiq's Redis with jobs in it, and the program beside it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use seriatim_testkit::Redis;

use crate::measured::object_of;
use crate::serving::{Serving, write};

pub(super) const QUEUE: &str = "queue:default";
/// Names the variable with the URL of its Redis.
const SIDEKIQ: &str = "SIDEKIQ_REDIS";
const LOOK: Duration = Duration::from_millis(5);

fn config(url: &str, keys: u64, sets: &str) -> String {
    let (mode, key) = match keys {
        0 => ("parallel", ""),
        _ => ("fifo", "key = \"/args/0\"\n"),
    };
    format!(
        "[store]\nurl = \"{url}\"\n[queues.jobs]\nmode = \"{mode}\"\n\
         [[bridges]]\nname = \"bench\"\nkind = \"sidekiq\"\nurl_env = \"{SIDEKIQ}\"\nqueues = [\"default\"]\nsets = \"{sets}\"\n\
         [[bridges.routes]]\nqueue = \"jobs\"\n{key}"
    )
}

/// Sidekiq's Redis, and where the program runs, with its configuration.
pub(super) struct Site<'a> {
    root: &'a Path,
    folder: PathBuf,
    pub(super) sidekiq: Redis,
}

impl<'a> Site<'a> {
    /// The store is at `url`. `sets`: as a bridge has it.
    pub(super) fn new(root: &'a Path, url: &str, keys: u64, sets: &str) -> Result<Self, String> {
        let folder = root.join("target/bridges");
        let _ = fs::remove_dir_all(&folder);
        write(&folder, "seriatim.toml", &config(url, keys, sets))?;
        Ok(Self { root, folder, sidekiq: Redis::start()? })
    }

    /// Starts a node, which moves jobs.
    pub(super) fn serve(&self) -> Result<Serving, String> {
        let serve = self.program(&["serve", "--no-http"]).stdin(Stdio::null()).spawn();
        Ok(Serving(vec![serve.map_err(|e| format!("seriatim serve: {e}"))?]))
    }

    /// What one of Redis' commands counts.
    pub(super) fn counts(&self, words: &[&str]) -> Result<u64, String> {
        let answer = self.sidekiq.send(words)?;
        answer.trim().trim_start_matches(':').parse().map_err(|_| answer)
    }

    fn program(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.root.join("target/release/seriatim"));
        command.args(args).current_dir(&self.folder).env(SIDEKIQ, self.sidekiq.url());
        command.env("SERIATIM_LOG", "error");
        command
    }

    pub(super) fn run(&self, args: &[&str]) -> Result<(), String> {
        let output = self.program(args).output().map_err(|e| format!("seriatim: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let errors = String::from_utf8_lossy(&output.stderr);
                Err(format!("seriatim {}: {errors}", args.join(" ")))
            }
        }
    }

    /// How many jobs the queue has.
    pub(super) fn stored(&self) -> Result<u64, String> {
        let stats = object_of("stats", &mut self.program(&["stats", "--json"]))?;
        stats["total"]["jobs"].as_u64().ok_or_else(|| format!("no jobs in: {stats}"))
    }
}

/// A connection that sends as Sidekiq's client does.
pub(super) struct Producer {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Producer {
    pub(super) fn new(sidekiq: &Redis) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", sidekiq.port())).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let answers = BufReader::new(stream.try_clone().map_err(failed)?);
        Ok(Self { stream, answers })
    }

    fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(text.as_bytes()).map_err(failed)
    }

    /// Sends one command and waits for its answer.
    pub(super) fn asks(&mut self, words: &[&str]) -> Result<(), String> {
        self.send(words)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        if line.starts_with('-') { Err(line) } else { Ok(()) }
    }

    /// Pushes the jobs with these numbers, without waiting for each answer; with a `due` time they are scheduled.
    pub(super) fn fill(
        mut self,
        numbers: std::ops::Range<u64>,
        keys: u64,
        due: Option<u64>,
    ) -> Result<(), String> {
        let count = numbers.clone().count();
        let answers = self.answers.get_ref().try_clone().map_err(failed)?;
        let answered: JoinHandle<usize> =
            thread::spawn(move || BufReader::new(answers).lines().take(count + 1).count());
        self.send(&["SADD", "queues", "default"])?;
        for number in numbers {
            let job = job(number, keys);
            match due {
                None => self.send(&["LPUSH", QUEUE, &job])?,
                Some(due) => self.send(&["ZADD", "schedule", &format!("{due}"), &job])?,
            }
        }
        match answered.join() {
            Ok(answers) if answers == count + 1 => Ok(()),
            _ => Err("Sidekiq's Redis did not answer all pushes".to_owned()),
        }
    }
}

/// As Sidekiq writes it.
pub(super) fn job(number: u64, keys: u64) -> String {
    let key = number % keys.max(1);
    format!(
        r#"{{"class":"OrderSync","args":["key-{key}",{number}],"retry":true,"queue":"default","jid":"{number:024x}","created_at":1764000000.5,"enqueued_at":1764000000.5}}"#
    )
}

fn failed(error: std::io::Error) -> String {
    format!("Sidekiq's Redis: {error}")
}

/// Looks until it is so, for at most this long.
pub(super) fn until(
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let end = Instant::now() + patience;
    while !is_so()? {
        if Instant::now() > end {
            return Err(format!("it took longer than {patience:?}"));
        }
        sleep(LOOK);
    }
    Ok(())
}
