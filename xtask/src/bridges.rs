//! `cargo xtask bridges`: how fast a bridge moves the jobs of Sidekiq here, and an export gives them back.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use seriatim_testkit::Redis;

use crate::measured::{object_of, thousands};
use crate::options::Options;
use crate::serving::{Serving, with_server, write};
use crate::{Failure, cargo, files, step};

const PAGE: &str = "docs/bridges.md";
const USAGE: &str = "usage: cargo xtask bridges [--jobs N] [--store sqlite|postgres|mysql|redis]... [--write]; \
    --write: into docs/bridges.md";
const JOBS: u64 = 100_000;
/// Keys of the jobs that have some.
const KEYS: u64 = 1_000;
const QUEUE: &str = "queue:default";
/// Names the variable with the URL of its Redis.
const SIDEKIQ: &str = "SIDEKIQ_REDIS";
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = Options::parse(args, JOBS, USAGE)?;
    let build = &mut cargo::command(root, &["build", "--release", "--package", "seriatim-server"]);
    step::run("build", build)?;
    let jobs = options.jobs;
    let mut text = format!(
        "{jobs} jobs that wait in Sidekiq's Redis, one run each, all servers on the same machine: `cargo xtask bridges`. Jobs a second \
         here; seconds until all are back there.\n\n| store | without keys | {KEYS} keys, in order | back | back, in order |\n|---|---|---|---|---|\n"
    );
    for store in options.stores {
        let mut moved = Vec::new();
        for keys in [0, KEYS] {
            step::announce(&format!("{store}, {jobs} jobs, {keys} keys"));
            moved.push(match store {
                "sqlite" => {
                    let file = root.join("target/bridges/bridge.db");
                    measure(root, &format!("sqlite:{}", file.display()), jobs, keys)?
                }
                _ => with_server(store, |url| measure(root, url, jobs, keys))?,
            });
        }
        let rate = |took: Duration| thousands(jobs as f64 / took.as_secs_f64());
        let [(plain, plain_back), (keyed, keyed_back)] = moved[..] else { continue };
        let row = format!(
            "| {store} | {} | {} | {:.1} | {:.1} |\n",
            rate(plain),
            rate(keyed),
            plain_back.as_secs_f64(),
            keyed_back.as_secs_f64()
        );
        eprint!("{row}");
        text.push_str(&row);
    }
    println!("\n{text}");
    if options.write {
        files::replace_part(root, PAGE, "bridges", &text)?;
    }
    Ok(())
}

/// How long they take to come here, and to go back.
fn measure(root: &Path, url: &str, jobs: u64, keys: u64) -> Result<(Duration, Duration), String> {
    let sidekiq = Redis::start()?;
    fill(sidekiq.port(), jobs, keys)?;
    let folder = root.join("target/bridges");
    let _ = fs::remove_dir_all(&folder);
    write(&folder, "seriatim.toml", &config(url, keys))?;
    let place = Place { root, folder, sidekiq: sidekiq.url() };
    let waiting = || -> Result<u64, String> {
        let length = sidekiq.send(&["LLEN", QUEUE])?;
        length.trim().trim_start_matches(':').parse().map_err(|_| length)
    };
    let serve = place.program(&["serve", "--no-http"]).stdin(Stdio::null()).spawn();
    let _serving = Serving(vec![serve.map_err(|e| format!("seriatim serve: {e}"))?]);
    until(|| Ok(waiting()? < jobs))?;
    let began = Instant::now();
    until(|| Ok(waiting()? == 0))?;
    until(|| Ok(place.stored()? == jobs))?;
    let came = began.elapsed();
    place.run(&["queues", "pause", "jobs"])?;
    place.run(&["bridge", "pause", "bench"])?;
    let began = Instant::now();
    place.run(&["export", "jobs", "--to", "sidekiq"])?;
    let went = began.elapsed();
    match waiting()? {
        back if back == jobs => Ok((came, went)),
        back => Err(format!("{back} of {jobs} jobs came back")),
    }
}

fn config(url: &str, keys: u64) -> String {
    let (mode, key) = match keys {
        0 => ("parallel", ""),
        _ => ("fifo", "key = \"/args/0\"\n"),
    };
    format!(
        "[store]\nurl = \"{url}\"\n[queues.jobs]\nmode = \"{mode}\"\n\
         [[bridges]]\nname = \"bench\"\nkind = \"sidekiq\"\nurl_env = \"{SIDEKIQ}\"\nqueues = [\"default\"]\n\
         [[bridges.routes]]\nqueue = \"jobs\"\n{key}"
    )
}

/// Where the program runs, with its configuration.
struct Place<'a> {
    root: &'a Path,
    folder: PathBuf,
    sidekiq: String,
}

impl Place<'_> {
    fn program(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.root.join("target/release/seriatim"));
        command.args(args).current_dir(&self.folder).env(SIDEKIQ, &self.sidekiq);
        command.env("SERIATIM_LOG", "error");
        command
    }

    fn run(&self, args: &[&str]) -> Result<(), String> {
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
    fn stored(&self) -> Result<u64, String> {
        let stats = object_of("stats", &mut self.program(&["stats", "--json"]))?;
        stats["total"]["jobs"].as_u64().ok_or_else(|| format!("no jobs in: {stats}"))
    }
}

/// Pushes as Sidekiq's client does, without waiting for each answer.
fn fill(port: u16, jobs: u64, keys: u64) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("Sidekiq's Redis: {e}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    let answers = BufReader::new(stream.try_clone().map_err(failed)?);
    let answered = thread::spawn(move || answers.lines().take(jobs as usize + 1).count());
    let mut send = |words: &[&str]| {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(text.as_bytes()).map_err(failed)
    };
    send(&["SADD", "queues", "default"])?;
    for number in 0..jobs {
        let key = number % keys.max(1);
        let job = format!(
            r#"{{"class":"OrderSync","args":["key-{key}",{number}],"retry":true,"queue":"default","jid":"{number:024x}","created_at":1764000000.5,"enqueued_at":1764000000.5}}"#
        );
        send(&["LPUSH", QUEUE, &job])?;
    }
    match answered.join() {
        Ok(count) if count as u64 == jobs + 1 => Ok(()),
        _ => Err("Sidekiq's Redis did not answer all pushes".to_owned()),
    }
}

fn until(mut is_so: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            return Err(format!("it took longer than {PATIENCE:?}"));
        }
        sleep(LOOK);
    }
    Ok(())
}
