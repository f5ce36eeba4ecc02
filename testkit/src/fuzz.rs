//! Fuzzing: gives parsers of foreign input random variations of a corpus. A parser must not panic, take long or leak
//! memory.
//!
//! Stable Rust has no coverage feedback, so everything depends on the corpus: it has valid entries, and [`Mutator`]
//! makes nearly valid ones of them. An input that causes a failure is written into the corpus, with which every later
//! run begins.

mod mutator;
mod panics;
mod watchdog;

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutator::Mutator;
use watchdog::Watchdog;

/// How long each surface is attacked, in seconds. If unset, it gets a fixed number of inputs.
pub const SECONDS_VARIABLE: &str = "SERIATIM_FUZZ_SECONDS";
/// The seed of the random inputs. If unset, always the same.
pub const SEED_VARIABLE: &str = "SERIATIM_FUZZ_SEED";
/// The start of the line that a run prints at its end.
pub const REPORT: &str = "fuzz ";

const SEED: u64 = 12;
/// Inputs of a run without a time limit, unless the surface sets a number.
const INPUTS: u64 = 2_000;
/// Longest input, unless the surface sets a length.
const BYTES_MAX: usize = 4 << 10;
/// The time limit for one input. Generous, because debug builds on a busy machine are slow.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// Inputs before memory is first measured: buffers and tables have reached their size by then.
const WARM_INPUTS: u64 = 500;
/// How much the process may grow after that, in a run with a time limit. In a shorter run other tests may share the
/// process.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// The prefix of corpus files that a run has found.
const FOUND: &str = "found-";
/// The suffix of files with one entry per line.
const LINES: &str = ".lines";

/// A part of the program that parses foreign input, with its corpus.
pub struct Surface {
    name: &'static str,
    folder: PathBuf,
    bytes_max: usize,
    inputs: u64,
    entries: Vec<Vec<u8>>,
}

impl Surface {
    /// The surface with the corpus `testkit/corpus/NAME`: each file is an entry; in a file whose name ends in
    /// `.lines`, each line is one. Empty lines and lines that begin with `##` are skipped.
    ///
    /// # Panics
    /// If the corpus cannot be read.
    pub fn new(name: &'static str) -> Self {
        Self::made(name, |line| vec![line.as_bytes().to_vec()])
    }

    /// The same, with entries made from each line.
    ///
    /// # Panics
    /// If the corpus cannot be read.
    pub fn made(name: &'static str, make: impl Fn(&str) -> Vec<Vec<u8>>) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let entries = read(&folder, make);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Self { name, folder, bytes_max: BYTES_MAX, inputs: INPUTS, entries }
    }

    /// Adds entries that are not in a file.
    #[must_use]
    pub fn and(mut self, entries: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.entries.extend(entries);
        self
    }

    /// Sets the length of the longest generated input. Entries may be longer.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Sets the number of inputs in addition to the corpus, if no time is set: about a second's worth.
    #[must_use]
    pub fn inputs(mut self, inputs: u64) -> Self {
        self.inputs = inputs;
        self
    }

    /// Gives `read` the corpus, then generated inputs, for as long as the environment says. `read` panics if
    /// something is wrong.
    ///
    /// # Panics
    /// If an input causes a failure: the message names it, and how to repeat it.
    pub fn attack(self, read: impl FnMut(&[u8])) {
        let length = number(SECONDS_VARIABLE).map(Duration::from_secs);
        let seed = number(SEED_VARIABLE).unwrap_or(SEED);
        match self.run(seed, length, read) {
            Ok(report) => println!("{REPORT}{report}"),
            Err(found) => panic!("{found}"),
        }
    }

    fn run(
        &self,
        seed: u64,
        length: Option<Duration>,
        mut read: impl FnMut(&[u8]),
    ) -> Result<Report, Found> {
        assert!(!self.entries.is_empty(), "{} has no corpus", self.folder.display());
        let mutator = Mutator::new(&self.entries, self.bytes_max);
        let mut watchdog = Watchdog::start(self.name);
        let corpus = self.entries.len() as u64;
        let (started, mut before, mut inputs) = (Instant::now(), None, 0);
        while match length {
            Some(length) => inputs < corpus || started.elapsed() < length,
            None => inputs < corpus + self.inputs,
        } {
            let entry = usize::try_from(inputs).ok().and_then(|place| self.entries.get(place));
            let input = entry.cloned().unwrap_or_else(|| mutator.input(seed, inputs));
            watchdog.looks_at(&input);
            let begun = Instant::now();
            let done = panics::caught(|| read(&input)).and_then(|()| in_time(begun.elapsed()));
            done.map_err(|why| self.found(seed, inputs, &input, why))?;
            inputs += 1;
            if inputs >= WARM_INPUTS.max(corpus) {
                before.get_or_insert_with(resident_bytes);
            }
        }
        let after = resident_bytes();
        let report = Report {
            name: self.name,
            inputs,
            took: started.elapsed(),
            before: before.unwrap_or(after),
            after,
            seed,
        };
        match length.is_some() && report.growth() > GROWTH_BYTES_MAX {
            true => Err(Found {
                why: format!("memory grew beyond {} MiB: {report}", GROWTH_BYTES_MAX >> 20),
                name: self.name,
                seed,
                number: inputs,
                path: None,
            }),
            false => Ok(report),
        }
    }

    /// Writes a failing input into the corpus.
    fn found(&self, seed: u64, number: u64, input: &[u8], why: String) -> Found {
        let path = self.folder.join(format!("{FOUND}{:016x}", hash(input)));
        let path = fs::write(&path, input).ok().map(|()| path);
        Found { name: self.name, seed, number, path, why }
    }
}

/// The result of a run.
#[derive(Debug)]
struct Report {
    name: &'static str,
    inputs: u64,
    took: Duration,
    before: u64,
    after: u64,
    seed: u64,
}

impl Report {
    fn growth(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, inputs, seed, .. } = self;
        let rate = *inputs as f64 / self.took.as_secs_f64().max(1e-3);
        let (before, after) = (self.before >> 20, self.after >> 20);
        write!(
            f,
            "{name}: {inputs} inputs, {rate:.0} a second; {before} MiB resident, {after} MiB at the end; seed {seed}"
        )
    }
}

/// An input that caused a failure.
#[derive(Debug)]
struct Found {
    name: &'static str,
    seed: u64,
    number: u64,
    path: Option<PathBuf>,
    why: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seed, number, why, .. } = self;
        writeln!(f, "{name}: input {number} of seed {seed}: {why}")?;
        match &self.path {
            Some(path) => write!(
                f,
                "The input is saved in {}: the same test now starts with it. Fix the bug, and commit the file.",
                path.display()
            ),
            None => {
                write!(f, "Run the same test with {SEED_VARIABLE}={seed} to repeat it.")
            }
        }
    }
}

fn in_time(took: Duration) -> Result<(), String> {
    match took > INPUT_TIME_MAX {
        true => Err(format!("took {took:?}, of {INPUT_TIME_MAX:?} at most")),
        false => Ok(()),
    }
}

/// The corpus in a folder, in the order of its file names. Files that a run has found are entries as they are.
fn read(folder: &Path, make: impl Fn(&str) -> Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    let list = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut entries = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !path.to_string_lossy().ends_with(LINES) {
            entries.push(bytes);
            continue;
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("{}: is not UTF-8 text", path.display()))?;
        let lines = text.split('\n').filter(|line| !line.is_empty() && !line.starts_with("##"));
        entries.extend(lines.flat_map(&make));
    }
    Ok(entries)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is not a whole number")))
}

/// FNV-1a; used only to name files.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(folder: &Path) -> Surface {
        let entries = ["port = 80", "host = here", "{\"list\":[1,2,3]}"];
        let entries = entries.map(|entry| entry.as_bytes().to_vec()).to_vec();
        let folder = folder.to_owned();
        Surface { name: "own", folder, bytes_max: 200, inputs: 20_000, entries }
    }

    #[test]
    fn a_reader_that_panics_at_what_is_nearly_right_is_found_and_the_input_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let surface = surface(folder.path());
        let read = |input: &[u8]| {
            let text = String::from_utf8_lossy(input);
            if let Some(port) = text.strip_prefix("port = ") {
                assert_ne!(port.trim().parse(), Ok(u64::from(u16::MAX)), "no port");
            }
        };
        let found = surface.run(SEED, None, read).unwrap_err();
        assert!(found.to_string().contains("no port"), "{found}");
        let path = found.path.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), "port = 65535");
        // From now on it is tried first.
        let entries = super::read(folder.path(), |_| Vec::new()).unwrap();
        let again = Surface { entries, ..surface }.run(SEED + 1, None, read).unwrap_err();
        assert_eq!(again.number, 0);
    }

    #[test]
    fn a_seed_makes_the_same_inputs_and_none_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let seen = |seed| {
            let (mut seen, mut longest) = (Vec::new(), 0);
            let read = |input: &[u8]| {
                seen.push(hash(input));
                longest = longest.max(input.len());
            };
            surface(folder.path()).run(seed, None, read).unwrap();
            assert_eq!(longest, 200);
            seen
        };
        let first = seen(1);
        assert_eq!(first, seen(1));
        assert_ne!(first, seen(2));
        let different = first.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(different > first.len() / 2, "{different} of {}", first.len());
    }

    #[test]
    fn a_panic_that_the_reader_catches_itself_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let read = |_: &[u8]| drop(std::panic::catch_unwind(|| panic!("inside")));
        let found = surface(folder.path()).run(SEED, None, read).unwrap_err();
        assert!(found.why.contains("inside"), "{found}");
    }
}
