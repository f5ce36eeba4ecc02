//! What worker programs print that is meant for Seriatim: one strict reader for every kind of worker. What
//! looks like a message and cannot be used is a fault that names the field, its value and the valid words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{DeserializeOwned, Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use seriatim::limits::DELAY_MAX;
use seriatim::names::closest;
use seriatim::store::{LaneId, Verdict, check_result};
use seriatim::text::cut_middle;
use seriatim::{Batch, Outcome, Outcomes, Payload};

use super::lines::{LINE_BYTES_MAX, Line};
use super::steps::Step;
use crate::base::text::one_line;
use crate::protocol::outcome::{With, Word, miscounted};

/// A JSON object with one of these fields is a message.
const MARKS: [&str; 3] = ["type", "results", "batch"];
const TYPES: [&str; 5] = ["result", "done", "progress", "step", "step_done"];
const LANE_FIELDS: [&str; 6] = ["lane", "outcome", "error", "retry_in", "done", "result"];
/// An answer, as errors show it.
const ANSWER: &str = r#"{"type":"result","results":[{"lane":…,"outcome":…}]}"#;
const STEP: &str = "write the name of the step, as in \"extract\"";
/// How much of a wrong value an error shows, in bytes.
const SHOWN_BYTES_MAX: usize = 80;
/// Most bytes kept of the JSON reader's message.
const SHOWN_ERROR_BYTES_MAX: usize = 200;
/// A `type` that differs from a known one by at most this many letters is a misspelling of it.
const SLIP_MAX: usize = 2;
/// How many names of lanes an error shows.
const SHOWN_LANES_MAX: usize = 5;

/// What a line is.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Ordinary output, for the log.
    Output,
    Progress {
        batch: Option<String>,
        lane: LaneId,
        progress: Box<RawValue>,
    },
    /// A step begins or has ended.
    Step {
        batch: Option<String>,
        lane: LaneId,
        step: Step,
    },
    Answer {
        batch: Option<String>,
        said: Said,
    },
    /// Looks like a result, but is no message: lost unless an answer follows.
    Suspect(String),
    Fault(Fault),
}

/// How a call ended, by the word of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// All lanes are done, each with this result.
    Done(Option<Arc<str>>),
    Results(Vec<LaneResult>),
}

/// How one lane ended: its first `done` jobs are done, and the outcome is the next one's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaneResult {
    lane: LaneId,
    done: usize,
    outcome: Outcome,
    /// What those who wait for its jobs get, as JSON.
    result: Option<Arc<str>>,
}

/// A message that cannot be used.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The call that it names, as far as that can be read.
    pub(crate) batch: Option<String>,
    /// It is meant to end its call: the program works on it no longer.
    pub(crate) is_final: bool,
    pub(crate) why: String,
}

/// Reads a line.
pub(crate) fn read(line: &Line) -> Heard {
    let text = line.text.trim_start_matches('\u{feff}').trim();
    let mut fields = Vec::new();
    let parsed = if line.is_cut {
        Err(format!("is longer than {LINE_BYTES_MAX} bytes"))
    } else {
        fields_of(text, &mut fields).map_err(|error| {
            // It may quote all of the line.
            let error = one_line(&error.to_string());
            format!("is not a JSON object ({})", cut_middle(&error, SHOWN_ERROR_BYTES_MAX))
        })
    };
    let is_marked = fields.iter().any(|(name, _)| MARKS.contains(&name.as_str()));
    let about = Fault {
        batch: fields
            .iter()
            .find(|(name, _)| name == "batch")
            .and_then(|(_, raw)| value_of::<String>(raw)),
        is_final: is_final(&fields),
        why: String::new(),
    };
    let fault = |why: String| Heard::Fault(Fault { why, ..about });
    match parsed {
        Ok(()) if !is_marked && holds_a_result(text) => fault(no_answer(text)),
        Ok(()) if !is_marked => Heard::Output,
        Ok(()) => message(fields).unwrap_or_else(fault),
        Err(why) if is_marked || begins_like_a_message(text) => {
            let shown = shown(text);
            fault(format!(
                "a line that looks like the start of an answer {why}: {shown}; write the answer on one line"
            ))
        }
        Err(_) if !holds_a_result(text) => Heard::Output,
        Err(_) if text.starts_with(['{', '[', '"', '\'']) => fault(no_answer(text)),
        Err(_) => Heard::Suspect(no_answer(text)),
    }
}

fn no_answer(text: &str) -> String {
    let shown = shown(text);
    format!(
        "a line contains a `lane` and an `outcome` but is not an answer: {shown}; write {ANSWER}, alone on its line"
    )
}

/// Whether a text names a lane and its outcome, as a field of some notation.
fn holds_a_result(text: &str) -> bool {
    // As it reads in UTF-16.
    let text = text.replace('\0', "").to_ascii_lowercase();
    let has = |field: &str| {
        text.match_indices(field).any(|(at, _)| {
            let after = text[at + field.len()..].trim_start_matches(['"', '\'', '\\', ' ']);
            after.starts_with(':') || after.starts_with("=>")
        })
    };
    has("lane") && has("outcome")
}

/// Whether it was meant to end its call.
fn is_final(fields: &[(String, Box<RawValue>)]) -> bool {
    let find = |name: &str| fields.iter().find(|(field, _)| field == name);
    let word = find("type").and_then(|(_, raw)| value_of::<String>(raw)).unwrap_or_default();
    let word = word.to_lowercase();
    let is_meant = |end: &&str| strsim::damerau_levenshtein(&word, end) <= SLIP_MAX;
    ["result", "done"].iter().any(is_meant) || find("results").is_some()
}

/// Whether a text that is not JSON was meant to be a message: cut off, spread over several lines, or
/// printed as the language prints its own objects.
fn begins_like_a_message(text: &str) -> bool {
    let is_name = |text: &str, word: &str| {
        let rest = text.strip_prefix(['"', '\'']).unwrap_or(text).strip_prefix(word);
        let rest = rest.map(|rest| rest.strip_prefix(['"', '\'']).unwrap_or(rest).trim_start());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let Some(inside) = text.strip_prefix('{') else {
        return text.starts_with('"') && MARKS.iter().any(|word| is_name(text, word));
    };
    let inside = inside.trim_start();
    let bare = inside.strip_prefix(['"', '\'']);
    let is_cut = |word: &&str| match bare {
        Some(bare) => word.starts_with(bare),
        None => !inside.is_empty() && word.starts_with(inside),
    };
    let quoted =
        |word: &&str| text.contains(&format!("\"{word}\"")) || text.contains(&format!("'{word}'"));
    MARKS.iter().any(|word| is_cut(word) || is_name(inside, word) || quoted(word))
}

fn message(fields: Vec<(String, Box<RawValue>)>) -> Result<Heard, String> {
    let message = Object { path: "", fields };
    if message.find("type").is_none() {
        let unknown =
            message.knows(&["type", "batch", "results", "lane", "progress", "step"]).err();
        let unknown = unknown.map(|why| format!("; {why}")).unwrap_or_default();
        return Err(format!("`type` is missing: write {}{unknown}", words(&TYPES)));
    }
    match message.word("type", &TYPES)? {
        "done" => {
            message.knows(&["type", "batch", "result"])?;
            let said = Said::Done(message.find("result").map(|raw| raw.get().into()));
            Ok(Heard::Answer { batch: message.text("batch")?, said })
        }
        "progress" => {
            message.knows(&["type", "batch", "lane", "progress"])?;
            let lane = message.lane()?;
            let progress = message.needs("progress", "write an object, as in {\"percent\":40}")?;
            Ok(Heard::Progress {
                batch: message.text("batch")?,
                lane,
                progress: progress.to_owned(),
            })
        }
        word @ ("step" | "step_done") => {
            let ended = word == "step_done";
            let fields = &["type", "batch", "lane", "step", "result"][..if ended { 5 } else { 4 }];
            message.knows(fields)?;
            let lane = message.lane()?;
            message.needs("step", STEP)?;
            let name = message.text("step")?.unwrap_or_default();
            let result = || message.read("result", "write a JSON value", value_of);
            let ended = ended.then(result).transpose()?.map(Option::unwrap_or_default);
            let step = Step { name, ended };
            Ok(Heard::Step { batch: message.text("batch")?, lane, step })
        }
        _ => {
            message.knows(&["type", "batch", "results"])?;
            let said = Said::Results(results(&message)?);
            Ok(Heard::Answer { batch: message.text("batch")?, said })
        }
    }
}

fn results(message: &Object<'_>) -> Result<Vec<LaneResult>, String> {
    const WANTED: &str = "write a list with an object for each lane";
    let raw = message.needs("results", WANTED)?;
    let list: Vec<Box<RawValue>> = serde_json::from_str(raw.get())
        .map_err(|_| format!("`results` is {}: {WANTED}", shown(raw.get())))?;
    if list.is_empty() {
        return Err(format!("`results` is []: it does not name any lane; {WANTED}"));
    }
    let mut results: Vec<LaneResult> = Vec::with_capacity(list.len());
    let mut named = std::collections::HashSet::new();
    for (place, raw) in list.iter().enumerate() {
        let path = format!("results[{place}]");
        let result = lane_result(&path, raw)?;
        if !named.insert(result.lane) {
            let lane = result.lane;
            return Err(format!(
                "`{path}.lane` is \"{lane}\", which an earlier result already names"
            ));
        }
        results.push(result);
    }
    Ok(results)
}

fn lane_result(path: &str, raw: &RawValue) -> Result<LaneResult, String> {
    let mut fields = Vec::new();
    fields_of(raw.get(), &mut fields).map_err(|_| {
        let fields = words(&LANE_FIELDS);
        format!("`{path}` is {}: write an object with {fields}", shown(raw.get()))
    })?;
    let result = Object { path, fields };
    result.knows(&LANE_FIELDS)?;
    let lane = result.lane()?;
    let name = result.word("outcome", &Word::ALL.map(Word::name))?;
    let word = Word::named(name).ok_or_else(|| format!("`{path}.outcome` is \"{name}\""))?;
    let done = result.read("done", "write a number of jobs, as in 2", value_of)?.unwrap_or(0);
    let error = result.text("error")?;
    let left = result.find("result").map(|raw| raw.get().into());
    let with = With {
        error: error.as_deref(),
        retry_in: result.seconds("retry_in")?,
        has_result: left.is_some(),
    };
    if let Some((field, of)) = word.misplaced(&with) {
        return Err(result.misplaced(field, name, of));
    }
    let outcome = word.outcome(&with);
    Ok(LaneResult { lane, done, outcome, result: left })
}

/// An object of a message, its fields as they were written.
struct Object<'a> {
    /// Where it stands; nothing for the message itself.
    path: &'a str,
    fields: Vec<(String, Box<RawValue>)>,
}

impl Object<'_> {
    fn name(&self, field: &str) -> String {
        if self.path.is_empty() { format!("`{field}`") } else { format!("`{}.{field}`", self.path) }
    }

    /// Refuses fields that there are not, and those that are there twice.
    fn knows(&self, known: &[&str]) -> Result<(), String> {
        for (place, (field, _)) in self.fields.iter().enumerate() {
            let name = || self.name(&shown(field));
            if !known.contains(&field.as_str()) {
                let hint = closest(field, known.iter().copied())
                    .map(|near| format!("; did you mean `{near}`?"));
                let (hint, known) = (hint.unwrap_or_default(), words(known));
                return Err(format!("{} is not a field here: write {known}{hint}", name()));
            }
            if self.fields[..place].iter().any(|(before, _)| before == field) {
                return Err(format!("{} is given twice", name()));
            }
        }
        Ok(())
    }

    /// A field that is set. In one that may be left out, `null` says the same.
    fn find(&self, field: &str) -> Option<&RawValue> {
        let found = self.fields.iter().find(|(name, _)| name == field).map(|(_, raw)| &**raw);
        found.filter(|raw| raw.get() != "null")
    }

    fn needs(&self, field: &str, wanted: &str) -> Result<&RawValue, String> {
        self.find(field).ok_or_else(|| format!("{} is missing: {wanted}", self.name(field)))
    }

    fn wrong(&self, field: &str, raw: &RawValue, wanted: &str) -> String {
        format!("{} is {}: {wanted}", self.name(field), shown(raw.get()))
    }

    fn misplaced(&self, field: &str, outcome: &str, of: &str) -> String {
        let value = self.find(field).map(|raw| shown(raw.get())).unwrap_or_default();
        format!(
            "{} is {value}, but `outcome` is \"{outcome}\": it goes with {of}",
            self.name(field)
        )
    }

    /// What a field means; nothing if it is left out.
    fn read<T>(
        &self,
        field: &str,
        wanted: &str,
        meaning: impl FnOnce(&RawValue) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let read = |raw| meaning(raw).ok_or_else(|| self.wrong(field, raw, wanted));
        self.find(field).map(read).transpose()
    }

    fn text(&self, field: &str) -> Result<Option<String>, String> {
        self.read(field, "write a string", value_of)
    }

    /// One of a few words.
    fn word<'w>(&self, field: &str, known: &[&'w str]) -> Result<&'w str, String> {
        let wanted = format!("write {}", words(known));
        let raw = self.needs(field, &wanted)?;
        let text = value_of::<String>(raw).ok_or_else(|| self.wrong(field, raw, &wanted))?;
        known.iter().find(|word| **word == text).copied().ok_or_else(|| {
            let hint = closest(&text, known.iter().copied())
                .map(|near| format!("; did you mean \"{near}\"?"));
            self.wrong(field, raw, &wanted) + &hint.unwrap_or_default()
        })
    }

    fn lane(&self) -> Result<LaneId, String> {
        const WANTED: &str = "write the `lane` of the call, as in \"1-0-7\"";
        let raw = self.needs("lane", WANTED)?;
        let lane = value_of::<String>(raw).and_then(|text| text.parse().ok());
        lane.ok_or_else(|| self.wrong("lane", raw, WANTED))
    }

    fn seconds(&self, field: &str) -> Result<Option<Duration>, String> {
        let wanted =
            format!("write a number of seconds from 0 to {}, as in 10", DELAY_MAX.as_secs());
        self.read(field, &wanted, |raw| {
            let length = Duration::try_from_secs_f64(value_of(raw)?).ok();
            length.filter(|length| *length <= DELAY_MAX)
        })
    }
}

/// A call as its answer is held against it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) batch: String,
    /// Its lanes, and how many jobs of each.
    pub(crate) lanes: Vec<(LaneId, usize)>,
    /// A step was refused because the node stops: its lane may go back uncounted.
    pub(crate) may_release: bool,
}

impl Held {
    pub(crate) fn new(name: &str, batch: &Batch<Payload>) -> Self {
        let lanes = batch.lanes().iter().map(|lane| (lane.id(), lane.payloads().len()));
        Self { batch: name.to_owned(), lanes: lanes.collect(), may_release: false }
    }

    /// Refuses the name of another call.
    pub(crate) fn check_name(&self, batch: Option<&str>) -> Result<(), String> {
        match batch.filter(|batch| *batch != self.batch) {
            None => Ok(()),
            Some(other) => {
                let (other, own) = (shown(other), &self.batch);
                Err(format!("`batch` is \"{other}\": this call is \"{own}\""))
            }
        }
    }

    /// Refuses a lane that the call does not hold; answers how many jobs it has.
    pub(crate) fn check_lane(&self, field: &str, lane: LaneId) -> Result<usize, String> {
        let jobs = self.lanes.iter().find(|(held, _)| *held == lane).map(|(_, jobs)| *jobs);
        jobs.ok_or_else(|| {
            let names = self.lanes.iter().take(SHOWN_LANES_MAX);
            let names: Vec<String> = names.map(|(lane, _)| format!("\"{lane}\"")).collect();
            let more = self.lanes.len().saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("`{field}` is \"{lane}\": this call has {}{more}", names.join(", "))
        })
    }

    /// Refuses an answer that names a lane or job that was not handed over.
    pub(crate) fn check(&self, said: &Said) -> Result<(), String> {
        let Said::Results(results) = said else { return self.check_shared(said) };
        for (place, LaneResult { lane, done, outcome, result }) in results.iter().enumerate() {
            let jobs = self.check_lane(&format!("results[{place}].lane"), *lane)?;
            if let Some(result) = result {
                check_length(&format!("results[{place}].result"), result, jobs)?;
            }
            if *outcome == Outcome::Release && !self.may_release {
                return Err(format!(
                    "`results[{place}].outcome` is \"release\": only a process that was told \"stopping\" at a step may write it"
                ));
            }
            if let Some(why) = miscounted(*outcome == Outcome::Done, *done, jobs) {
                return Err(format!("`results[{place}].done` is {done}: {why}"));
            }
        }
        Ok(())
    }

    /// Refuses a result that is too long for a lane.
    fn check_shared(&self, said: &Said) -> Result<(), String> {
        let Said::Done(Some(result)) = said else { return Ok(()) };
        let jobs = self.lanes.iter().map(|(_, jobs)| *jobs).max();
        check_length("result", result, jobs.unwrap_or(1))
    }

    /// Whether both say the same of each lane.
    pub(crate) fn is_same(&self, one: &Said, other: &Said) -> bool {
        self.lanes.iter().all(|(lane, _)| one.of(*lane) == other.of(*lane))
    }
}

impl Said {
    /// What it says of a lane; `None` if it does not name the lane.
    fn of(&self, lane: LaneId) -> Option<(usize, &Outcome, Option<&Arc<str>>)> {
        match self {
            Self::Done(result) => Some((0, &Outcome::Done, result.as_ref())),
            Self::Results(results) => {
                let found = results.iter().find(|result| result.lane == lane)?;
                let done = if found.outcome == Outcome::Done { 0 } else { found.done };
                Some((done, &found.outcome, found.result.as_ref()))
            }
        }
    }

    /// The outcomes of the lanes that it names; none if it leaves a lane out.
    pub(crate) fn of_every_lane(&self, held: &Held) -> Option<Vec<&Outcome>> {
        held.lanes.iter().map(|(lane, _)| self.of(*lane).map(|(_, outcome, _)| outcome)).collect()
    }

    /// The same with another outcome for the lanes that it cancels.
    pub(crate) fn with_cancel_as(mut self, other: &Outcome) -> Self {
        if let Self::Results(results) = &mut self {
            let cancelled =
                |result: &&mut LaneResult| matches!(result.outcome, Outcome::Cancel { .. });
            results.iter_mut().filter(cancelled).for_each(|result| result.outcome = other.clone());
        }
        self
    }

    /// What it means for the call. A lane that it does not name ends as `unnamed`.
    pub(crate) fn outcomes(&self, held: &Held, unnamed: &Outcome) -> Outcomes {
        if *self == Self::Done(None) {
            return Outcomes::new();
        }
        let mut outcomes = Outcomes::all(unnamed.clone());
        for (lane, _) in &held.lanes {
            if let Some((done, outcome, result)) = self.of(*lane) {
                let result = result.cloned();
                outcomes.set(*lane, Verdict { done, result, ..outcome.clone().into() });
            }
        }
        outcomes
    }
}

fn check_length(field: &str, result: &str, jobs: usize) -> Result<(), String> {
    check_result(result, jobs).map_err(|error| format!("`{field}` {}", error.message()))
}

/// The fields of an object in the order in which they are written. Those before an error are kept.
fn fields_of(
    text: &str,
    fields: &mut Vec<(String, Box<RawValue>)>,
) -> Result<(), serde_json::Error> {
    struct Into<'a>(&'a mut Vec<(String, Box<RawValue>)>);
    impl<'de> Visitor<'de> for Into<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(field) = map.next_entry()? {
                self.0.push(field);
            }
            Ok(())
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Into(fields))?;
    json.end()
}

fn value_of<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// A value as it was written, on one line and not too long.
fn shown(value: &str) -> String {
    let cut = &value[..value.floor_char_boundary(SHOWN_BYTES_MAX)];
    let more = if cut.len() < value.len() { "…" } else { "" };
    one_line(cut) + more
}

fn words(known: &[&str]) -> String {
    match known {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

#[cfg(test)]
#[path = "answer_fuzz.rs"]
mod fuzz;
#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
