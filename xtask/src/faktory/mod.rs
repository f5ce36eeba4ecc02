//! `cargo xtask faktory`: real clients of Faktory push jobs and work on them, and one of two workers is killed.

mod clients;
mod record;
mod trial;

use std::path::Path;

use self::clients::{CLIENTS, Client};
use crate::args::Args;
use crate::{Failure, cargo, files, step};

const PAGE: &str = "docs/faktory.md";
const USAGE: &str = "usage: cargo xtask faktory [--jobs N] [--only node|python|pyfaktory|rust|ruby]... [--write], with at least 1,000 jobs; \
    --write: into docs/faktory.md";
const JOBS: u64 = 10_000;
/// The program as the tests have it. This is no measurement.
const BUILD: [&str; 7] =
    ["test", "--no-run", "--package", "seriatim-server", "--all-features", "--test", "cli"];

struct Options {
    jobs: u64,
    clients: Vec<&'static Client>,
    write: bool,
}

/// `args`: see [`USAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let options = parse(args)?;
    step::run("build", &mut cargo::command(root, &BUILD))?;
    let mut text = format!(
        "{} jobs, a fifth of them in order by key, two workers of {} slots, one of them killed in the middle of these; 4 % of the jobs fail at first: \
         `cargo xtask faktory` (debug build, SQLite).\n\n| client | version | jobs | seconds | run again | rescue, s |\n|---|---|---|---|---|---|\n",
        options.jobs,
        trial::SLOTS
    );
    let mut failures = Vec::new();
    for client in options.clients {
        step::announce(&format!("{} {}", client.name, client.version));
        let installed = client.install(root).map_err(|why| format!("cannot be installed: {why}"));
        match installed.and_then(|()| trial::run(root, client, options.jobs)) {
            Ok(shown) => text.push_str(&format!(
                "| {} | {} | {} | {:.0} | {} | {:.0} |\n",
                client.name, client.version, options.jobs, shown.seconds, shown.again, shown.rescue
            )),
            Err(why) => failures.push(format!("{} {}: {why}", client.name, client.version)),
        }
    }
    files::show(root, PAGE, "faktory", &text, options.write && failures.is_empty())?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("\n"))) }
}

fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut args = Args::new(args, USAGE);
    let jobs = args.value("--jobs", JOBS)?;
    let all: Vec<&'static Client> = CLIENTS.iter().collect();
    let clients = args.chosen("--only", &all, |client| client.slug)?;
    let write = args.has("--write");
    args.end(jobs >= 1_000)?;
    Ok(Options { jobs, clients, write })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn all_clients_are_tried_unless_some_are_named() {
        let clients = |args: &[&str]| parse(args).ok().map(|options| options.clients.len());
        assert_eq!(clients(&[]), Some(5));
        assert_eq!(clients(&["--only", "node", "--only", "rust", "--write"]), Some(2));
        for wrong in [&["--only", "go"][..], &["--jobs", "999"], &["--fast"]] {
            assert_eq!(clients(wrong), None, "{wrong:?}");
        }
    }
}
