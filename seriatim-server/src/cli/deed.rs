//! Commands that change a store are audited like actions of the HTTP API: in the file before they run, in the store
//! with how they ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Mutex;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::Serialize;
use seriatim::store::{InboxAsk, InboxDeed, Store};
use seriatim::{SharedStore, Timestamp};

use crate::app::chain::Chain;
use crate::app::deeds;
use crate::app::error::status;
use crate::base::lock::lock;
use crate::base::text::{one_line, without_password};
use crate::base::time::absolute;
use crate::cli::output::{Failure, Result, hint};
use crate::config::{Audited, Config};

/// Commands whose verbs may change a store, and the words of their deeds: those of the HTTP API.
const NOUNS: [(&str, &str); 9] = [
    ("queues", "queue"),
    ("morgue", "morgue"),
    ("lanes", "lane"),
    ("jobs", "job"),
    ("nodes", "node"),
    ("cron", "cron"),
    ("bridge", "bridge"),
    ("batches", "batch"),
    ("operations", "operation"),
];
/// Verbs that only read. All others change something.
const READS: [&str; 7] = ["list", "show", "preview", "status", "check", "events", "causes"];
/// Arguments that name what a deed is done to, and how deeds call it.
const OBJECTS: [(&str, &str); 12] = [
    ("queue", "queue"),
    ("queues", "queue"),
    ("key", "key"),
    ("keys", "key"),
    ("lane", "lane"),
    ("id", "job_id"),
    ("ids", "job_id"),
    ("node", "node"),
    ("batch", "batch"),
    ("operation", "operation"),
    ("name", "name"),
    ("reason", "reason"),
];
/// The argument whose values are no matter of the log: they may be secret.
const PAYLOAD: &str = "payload";
/// Longest command line in the audit log, in bytes.
const ASKED_BYTES_MAX: usize = 1_000;
/// Objects of one command that have a deed each in the store. The file names the others too.
const DEEDS_MAX: usize = 100;
const ROLE: &str = "command line";
/// The status of what was done, as over HTTP.
const DONE: u16 = 200;
/// Who did it, and the role, if a row of the inbox asked for it.
const SQL: &str = "sql";

/// What this process was started to do.
static STARTED: Mutex<Started> =
    Mutex::new(Started { deeds: Vec::new(), found: None, done: BTreeSet::new() });

/// What a process was started to do, and what came of it.
#[derive(Clone)]
struct Started {
    /// One for each object that the command line names.
    deeds: Vec<Told>,
    /// What it is done to, where only the store tells: a name and a value.
    found: Option<(&'static str, String)>,
    /// The places of those that are done, also if the command fails at another one.
    done: BTreeSet<usize>,
}

/// A deed, as the audit log has it.
#[derive(Clone, Serialize)]
struct Told {
    /// When it began.
    at: String,
    who: String,
    role: &'static str,
    from: String,
    action: String,
    on: BTreeMap<String, String>,
    asked: String,
}

/// The action of a command, as `lane delete`; none if it only reads.
fn action(matches: &ArgMatches) -> Option<String> {
    let (noun, of) = matches.subcommand()?;
    match noun {
        "push" | "migrate" | "bench" => return Some(noun.to_owned()),
        // It takes all jobs of the queue.
        "export" => return Some("queue export".to_owned()),
        _ => {}
    }
    let verb = of.subcommand_name().filter(|verb| !READS.contains(verb))?;
    let (_, word) = NOUNS.iter().find(|(known, _)| *known == noun)?;
    Some(format!("{word} {verb}"))
}

/// The matches of a command and of all its verbs.
fn levels(matches: &ArgMatches) -> impl Iterator<Item = &ArgMatches> {
    std::iter::successors(Some(matches), |of| of.subcommand().map(|(_, of)| of))
}

/// What a command names, once for each of several keys or jobs.
fn objects(matches: &ArgMatches) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (id, name) in OBJECTS {
        let values: Vec<String> = levels(matches)
            .filter(|of| of.try_contains_id(id).is_ok_and(|is| is))
            .filter(|of| of.value_source(id) != Some(ValueSource::DefaultValue))
            .filter_map(|of| of.get_raw(id))
            .flatten()
            .map(|value| one_line(&value.to_string_lossy()))
            .collect();
        if values.is_empty() {
            continue;
        }
        let with = |on: &BTreeMap<String, String>, value: &String| {
            let mut on = on.clone();
            on.insert(name.to_owned(), value.clone());
            on
        };
        all = all.iter().flat_map(|on| values.iter().map(move |value| with(on, value))).collect();
    }
    all
}

/// Writes a line of the audit log for each object if the command changes something and the configuration has an audit
/// log. If that fails, the command does not run.
pub(crate) fn audit(matches: &ArgMatches, arguments: &[OsString]) -> Result<()> {
    let Some(action) = action(matches) else { return Ok(()) };
    let file = levels(matches).last().and_then(|of| of.get_one::<PathBuf>("config"));
    let config = Config::read(file.map(PathBuf::as_path))?;
    if action == "push" && config.http.audit != Audited::All {
        return Ok(());
    }
    let (who, asked) = (who(), asked(&action, matches, arguments));
    let one = |on| Told::new((who.clone(), ROLE), action.clone(), on, asked.clone());
    let mut deeds: Vec<Told> = objects(matches).into_iter().map(one).collect();
    Book::of(&config).write(&deeds)?;
    // As over HTTP, the store keeps what people change, not what is pushed.
    if action.contains(' ') {
        deeds.truncate(DEEDS_MAX);
        lock(&STARTED).deeds = deeds;
    }
    Ok(())
}

/// Adds what the store has told to the deed that it keeps.
pub(super) fn found(on: (&'static str, String)) {
    lock(&STARTED).found = Some(on);
}

/// Records that the command has done it to the key or job in this place of the command line, even if it fails at another.
pub(super) fn done(place: usize) {
    lock(&STARTED).done.insert(place);
}

/// Keeps in its store what this process was started to do, and how it ended.
pub(super) async fn keep<T>(store: &dyn Store, result: &Result<T>) {
    let Started { deeds, found, done } = lock(&STARTED).clone();
    let found = found.filter(|(_, value)| !value.is_empty());
    let failed = result.as_ref().err().map(|failure| status(failure.kind()));
    for (place, mut told) in deeds.into_iter().enumerate() {
        told.on.extend(found.iter().map(|(name, value)| ((*name).to_owned(), one_line(value))));
        told.keep(store, failed.filter(|_| !done.contains(&place)).unwrap_or(DONE)).await;
    }
}

impl Told {
    fn new(
        (who, role): (String, &'static str),
        action: String,
        on: BTreeMap<String, String>,
        asked: String,
    ) -> Self {
        let at = absolute(Timestamp::of_this_machine());
        let from = format!("process {}", std::process::id());
        Self { at, who, role, from, action, on, asked }
    }

    async fn keep(&self, store: &dyn Store, status: u16) {
        let deed = deeds::Deed {
            at: self.at.clone(),
            who: self.who.clone(),
            role: Some(self.role.to_owned()),
            from: Some(self.from.clone()),
            action: self.action.clone(),
            on: self.on.clone(),
            asked: Some(self.asked.clone()).filter(|asked| !asked.is_empty()),
            status,
            ..deeds::Deed::default()
        };
        if let Err(error) = deeds::keep(store, &deed).await {
            hint(format!("the store's audit log has no entry for this: {error}"));
        }
    }
}

/// The user of the command line, as deeds name them: `cli:USER@HOST`.
pub(crate) fn who() -> String {
    let id = rustix::process::getuid().as_raw();
    let user = user_name(id).unwrap_or_else(|| id.to_string());
    let host = rustix::system::uname();
    one_line(&format!("cli:{user}@{}", host.nodename().to_string_lossy()))
}

/// The name of a user in `/etc/passwd`. Others, of a directory, are known by their number.
fn user_name(id: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

/// The audit log of the command line.
#[derive(Clone, Default)]
pub(crate) struct Book(Option<PathBuf>);

impl Book {
    pub(crate) fn of(config: &Config) -> Self {
        Self(config.http.audit_file.clone())
    }

    /// Does something with a store, and audits it: nothing is done if the file cannot be written.
    pub(crate) async fn audited<T>(
        &self,
        store: &dyn Store,
        (action, on, asked): (&str, BTreeMap<String, String>, String),
        doing: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let told = Told::new((who(), ROLE), action.to_owned(), on, asked);
        self.write(std::slice::from_ref(&told))?;
        let result = doing.await;
        told.keep(store, result.as_ref().map_or_else(|failure| status(failure.kind()), |_| DONE))
            .await;
        result
    }

    /// Audits what an SQL session asked for and a node has carried out, or refused.
    pub(crate) async fn of_sql(self, store: SharedStore, deed: InboxDeed, is_refused: bool) {
        let mut on = BTreeMap::from([("job_id".to_owned(), deed.job.to_string())]);
        let verb = match deed.ask {
            InboxAsk::Cancel => "cancel",
            InboxAsk::Reassign(node) => {
                on.extend(node.map(|node| ("node".to_owned(), one_line(&node))));
                "reassign"
            }
        };
        let asked = format!("row {} of the inbox", deed.row);
        let told = Told::new((SQL.to_owned(), SQL), format!("job {verb}"), on, asked);
        let writes = [told.clone()];
        let written = tokio::task::spawn_blocking(move || self.write(&writes)).await;
        if let Ok(Err(failure)) = written {
            tracing::error!("an action of an SQL session is not in the audit log: {failure}");
        }
        told.keep(&*store, if is_refused { 409 } else { DONE }).await;
    }

    /// Writes a line for each if there is an audit log. If that fails, the action must not run.
    fn write(&self, told: &[Told]) -> Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let lines = told.iter().map(serde_json::to_string);
        let lines = lines.collect::<Result<Vec<String>, _>>().map_err(Failure::failed)?;
        let written = Chain::open(path).and_then(|mut chain| chain.append(&lines));
        written.map_err(|error| {
            Failure::failed(format!(
                "nothing was done: cannot write the audit log {}: {error}",
                path.display()
            ))
        })
    }
}

/// The command line, without passwords and payloads.
fn asked(action: &str, matches: &ArgMatches, arguments: &[OsString]) -> String {
    if action == "push" {
        return String::new();
    }
    let payloads: Vec<&OsStr> = levels(matches)
        .filter(|of| of.try_contains_id(PAYLOAD).is_ok_and(|is| is))
        .filter_map(|of| of.get_raw(PAYLOAD))
        .flatten()
        .collect();
    let shown = arguments.iter().skip(1).map(|one| {
        if payloads.contains(&one.as_os_str()) {
            return "…".to_owned();
        }
        let one = one.to_string_lossy();
        match one.split_once('=') {
            Some(("--store", url)) => format!("--store={}", without_password(url)),
            Some(("--payload", _)) => "--payload=…".to_owned(),
            _ => without_password(&one),
        }
    });
    let mut line = one_line(&shown.collect::<Vec<_>>().join(" "));
    line.truncate(line.floor_char_boundary(ASKED_BYTES_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_verbs_but_those_that_read_are_deeds() {
        let program = crate::cli::program();
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let words = super::super::grammar::normal(&program, words);
            action(&program.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{e}")))
        };
        assert_eq!(of("seriatim queues"), None);
        assert_eq!(of("seriatim lanes show orders k"), None);
        assert_eq!(of("seriatim doctor"), None);
        assert_eq!(of("seriatim queues pause orders").as_deref(), Some("queue pause"));
        assert_eq!(
            of("seriatim export orders --to sidekiq").as_deref(),
            Some("queue export"),
            "the store keeps it"
        );
        assert_eq!(of("seriatim nodes release a").as_deref(), Some("node release"));
        for noun in program.get_subcommands().filter(|noun| noun.has_subcommands()) {
            let name = noun.get_name();
            // They touch no store.
            let known = NOUNS.iter().any(|(noun, _)| *noun == name)
                || ["config", "import", "audit", "man"].contains(&name);
            assert!(known, "{name}: add it to NOUNS if its verbs change a store");
        }
    }

    #[test]
    fn a_deed_names_each_key_and_its_queue_as_requests_do() {
        let program = crate::cli::program();
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let words = super::super::grammar::normal(&program, words);
            objects(&program.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{e}")))
        };
        let on = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(
            of("seriatim lanes retry orders a b"),
            [on(&[("queue", "orders"), ("key", "a")]), on(&[("queue", "orders"), ("key", "b")])]
        );
        let id = "01a1fd59-5e2c-7000-8001-000000000001";
        assert_eq!(of(&format!("seriatim jobs cancel {id}")), [on(&[("job_id", id)])]);
        assert_eq!(of("seriatim cron pause nightly"), [on(&[("name", "nightly")])]);
        assert_eq!(of("seriatim operations stop 1795"), [on(&[("operation", "1795")])]);
        assert_eq!(of("seriatim morgue requeue orders --all"), [on(&[("queue", "orders")])]);
        assert_eq!(of("seriatim migrate"), [BTreeMap::new()]);
        assert!(who().starts_with("cli:") && who().contains('@'), "{}", who());
    }

    /// What the audit log has of a command line.
    fn shown(words: &[&str]) -> String {
        let program = crate::cli::program();
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let normal = super::super::grammar::normal(&program, words.clone());
        let matches = program.try_get_matches_from(normal).unwrap_or_else(|e| panic!("{e}"));
        asked(&action(&matches).unwrap(), &matches, &words)
    }

    #[test]
    fn passwords_are_not_audited() {
        for (store, told) in [
            (&["--store", "postgres://me:sesame@db/x"][..], "--store postgres://db/x"),
            (&["--store=redis://:sesame@h/"][..], "--store=redis://h/"),
        ] {
            let line = [&["seriatim", "lanes", "retry", "q", "k"][..], store].concat();
            assert_eq!(shown(&line), format!("lanes retry q k {told}"));
        }
    }

    #[test]
    fn payloads_are_not_audited() {
        let payload = r#"{"card":4242}"#;
        assert_eq!(
            shown(&["seriatim", "batches", "open", "b", "orders", payload, "--key", "k"]),
            "batches open b orders … --key k"
        );
        let (id, word) = ("01a1fd59-5e2c-7000-8001-000000000001", format!("--payload={payload}"));
        for (new, told) in
            [(&["--payload", payload][..], "--payload …"), (&[word.as_str()][..], "--payload=…")]
        {
            let line = [&["seriatim", "morgue", "edit", "orders", id][..], new].concat();
            assert_eq!(shown(&line), format!("morgue edit orders {id} {told}"));
        }
    }
}
