//! Bridges, as the store knows them: what each moved, as the nodes noted it, and who paused which.
//!
//! `bridge/status/BRIDGE/…` is a note for each source, `bridge/pause/BRIDGE/…` one for each pause.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim::names::did_you_mean;
use seriatim::store::{Note, NoteQuery, Store, notes_of};
use seriatim::{ErrorKind, Timestamp};

use super::error::{Error, Result};
use super::pauses::check_reason;
use crate::protocol::document::{Bridge, BridgePause, BridgeSource, BridgeState, BridgeStatus};
use crate::protocol::value::Time;

const STATUS: &str = "bridge/status/";
const PAUSE: &str = "bridge/pause/";
/// The place of the pause of a whole bridge.
const WHOLE: &str = "all";
/// A source without a report for this long belongs to a removed configuration.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A source without a report for this long is moved by no node.
pub(crate) const UNATTENDED_AFTER: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Noted {
    bridge: String,
    #[serde(flatten)]
    status: BridgeStatus,
}

#[derive(Serialize, Deserialize)]
struct Paused {
    bridge: String,
    /// None: all of it.
    source: Option<String>,
    #[serde(flatten)]
    pause: BridgePause,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pauses {
    whole: Option<BridgePause>,
    sources: BTreeMap<String, BridgePause>,
}

impl Pauses {
    pub(crate) fn holds(&self, source: &str) -> bool {
        self.whole.is_some() || self.sources.contains_key(source)
    }

    /// That of the whole, or of one source by itself.
    fn of(mut self, source: Option<&str>) -> Option<BridgePause> {
        match source {
            None => self.whole,
            Some(source) => self.sources.remove(source),
        }
    }
}

fn place(source: Option<&str>) -> String {
    // Names of sources may have any characters, those of notes may not.
    source.map_or_else(
        || WHOLE.to_owned(),
        |source| blake3::hash(source.as_bytes()).to_hex()[..32].to_owned(),
    )
}

fn written(name: String, value: &impl Serialize) -> Note {
    // Texts and numbers only: writing them cannot fail.
    Note::new(name, serde_json::to_vec(value).unwrap_or_default())
}

fn readable<'a, T: Deserialize<'a>>(note: &'a Note) -> Option<T> {
    serde_json::from_slice(&note.value)
        .inspect_err(|error| {
            tracing::warn!(%error, note = note.name, "cannot read what another node wrote about a bridge");
        })
        .ok()
}

/// All bridges, by name.
pub(crate) async fn all(store: &dyn Store) -> seriatim::Result<Vec<Bridge>> {
    let now = store.now().await?;
    let mut all: BTreeMap<String, Bridge> = BTreeMap::new();
    for note in &notes_of(store, STATUS).await? {
        let Some(Noted { bridge, status }) = readable(note) else { continue };
        if now.since(status.at.0) < FORGOTTEN_AFTER {
            one(&mut all, &bridge).sources.push(BridgeSource { paused: None, status });
        }
    }
    for note in &notes_of(store, PAUSE).await? {
        let Some(Paused { bridge, source, pause }) = readable(note) else { continue };
        let bridge = one(&mut all, &bridge);
        match source {
            None => bridge.paused = Some(pause),
            Some(name) => {
                let source = bridge.sources.iter_mut().find(|source| source.status.source == name);
                source.into_iter().for_each(|source| source.paused = Some(pause.clone()));
            }
        }
    }
    for bridge in all.values_mut() {
        bridge.sources.sort_by(|a, b| a.status.source.cmp(&b.status.source));
    }
    Ok(all.into_values().collect())
}

fn one<'a>(all: &'a mut BTreeMap<String, Bridge>, name: &str) -> &'a mut Bridge {
    all.entry(name.to_owned()).or_insert_with(|| Bridge {
        name: name.to_owned(),
        paused: None,
        sources: Vec::new(),
    })
}

pub(crate) async fn pauses(store: &dyn Store, bridge: &str) -> seriatim::Result<Pauses> {
    let mut pauses = Pauses::default();
    for note in &notes_of(store, &format!("{PAUSE}{bridge}/")).await? {
        match readable(note) {
            Some(Paused { source: None, pause, .. }) => pauses.whole = Some(pause),
            Some(Paused { source: Some(source), pause, .. }) => {
                pauses.sources.insert(source, pause);
            }
            None => {}
        }
    }
    Ok(pauses)
}

/// Which bridge, and which of its sources: all if unset. `configured` are bridges that the store may not know yet.
#[derive(Clone, Copy)]
pub(crate) struct Which<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) source: Option<&'a str>,
    pub(crate) configured: &'a [(String, Vec<String>)],
}

/// The pause of a bridge, or of one source by itself.
pub(crate) async fn pause_of(store: &dyn Store, which: Which<'_>) -> Result<Option<BridgePause>> {
    let source = which.found(store).await?;
    Ok(pauses(store, which.bridge).await?.of(source.as_deref()))
}

/// Pauses a bridge or one of its sources: nothing more is taken from it. A repetition changes nothing.
pub(crate) async fn pause(
    store: &dyn Store,
    which: Which<'_>,
    by: &str,
    reason: Option<&str>,
) -> Result<Bridge> {
    check_reason(reason)?;
    let source = which.found(store).await?;
    if pauses(store, which.bridge).await?.of(source.as_deref()).is_none() {
        let since = Time(store.now().await?);
        let pause = BridgePause { since, by: by.to_owned(), reason: reason.map(str::to_owned) };
        let at = format!("{PAUSE}{}/{}", which.bridge, place(source.as_deref()));
        let paused = Paused { bridge: which.bridge.to_owned(), source, pause };
        store.write_notes(vec![written(at, &paused)]).await?;
    }
    which.shown(store).await
}

/// Ends the pause of a bridge, or of one source. Sources that were paused by themselves stay paused.
pub(crate) async fn resume(store: &dyn Store, which: Which<'_>) -> Result<Bridge> {
    let source = which.found(store).await?;
    if source.is_some() && pauses(store, which.bridge).await?.whole.is_some() {
        let message =
            format!("all of bridge {:?} is paused: resume it without a queue", which.bridge);
        return Err(seriatim::Error::new(ErrorKind::Conflict, message).into());
    }
    let pause = format!("{PAUSE}{}/{}", which.bridge, place(source.as_deref()));
    store.delete_notes(NoteQuery::only(&pause)).await?;
    which.shown(store).await
}

impl Which<'_> {
    /// The source by its full name, if one is asked for. `NotFound` with the closest name.
    async fn found(&self, store: &dyn Store) -> Result<Option<String>> {
        let known = all(store).await?;
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for bridge in &known {
            let sources = bridge.sources.iter().map(|source| source.status.source.clone());
            names.entry(&bridge.name).or_default().extend(sources);
        }
        for (bridge, sources) in self.configured {
            names.entry(bridge).or_default().extend(sources.iter().cloned());
        }
        let missing = |what: String| Error::from(seriatim::Error::new(ErrorKind::NotFound, what));
        let Some(sources) = names.get(self.bridge) else {
            let near = did_you_mean(self.bridge, names.keys().copied());
            return Err(missing(format!("no bridge {:?}{near}", self.bridge)));
        };
        let Some(asked) = self.source else { return Ok(None) };
        let queue = format!("queue:{asked}");
        let found = sources.iter().find(|name| **name == queue || *name == asked);
        found.cloned().map(Some).ok_or_else(|| {
            let plain = sources.iter().map(|name| name.strip_prefix("queue:").unwrap_or(name));
            missing(format!(
                "bridge {:?} has no queue {asked:?}{}",
                self.bridge,
                did_you_mean(asked, plain)
            ))
        })
    }

    async fn shown(&self, store: &dyn Store) -> Result<Bridge> {
        let known = all(store).await?.into_iter().find(|bridge| bridge.name == self.bridge);
        Ok(known.unwrap_or_else(|| Bridge {
            name: self.bridge.to_owned(),
            paused: None,
            sources: Vec::new(),
        }))
    }
}

/// What the store last heard of a source.
pub(crate) async fn status(
    store: &dyn Store,
    bridge: &str,
    source: &str,
) -> seriatim::Result<Option<BridgeStatus>> {
    let name = format!("{STATUS}{bridge}/{}", place(Some(source)));
    let notes = store.read_notes(NoteQuery { rows_max: 1, ..NoteQuery::of(&name) }).await?;
    Ok(notes.first().and_then(readable).map(|Noted { status, .. }| status))
}

/// Notes how a source is.
pub(crate) async fn note(
    store: &dyn Store,
    bridge: &str,
    status: &BridgeStatus,
) -> seriatim::Result<()> {
    let name = format!("{STATUS}{bridge}/{}", place(Some(&status.source)));
    let noted = Noted { bridge: bridge.to_owned(), status: status.clone() };
    store.write_notes(vec![written(name, &noted)]).await
}

/// The state of a source without reports.
pub(crate) const UNATTENDED: &str = "no node moves it";

/// Whether no node has said anything of a source for a while.
pub(crate) fn is_unattended(status: &BridgeStatus, now: Timestamp) -> bool {
    now.since(status.at.0) >= UNATTENDED_AFTER
}

/// How a source is whose pause its node has not noticed yet.
pub(crate) const PAUSING: &str = "pausing";

/// How a source is, in a word, and why.
pub(crate) fn state(
    bridge: &Bridge,
    source: &BridgeSource,
    now: Timestamp,
) -> (&'static str, Option<String>) {
    let status = &source.status;
    let pause = source.paused.as_ref().or(bridge.paused.as_ref());
    match (pause, status.state) {
        _ if is_unattended(status, now) => (UNATTENDED, None),
        (None, BridgeState::Paused) => ("paused", Some("in Sidekiq".to_owned())),
        (None, state) => (state.as_str(), status.why.clone()),
        (Some(pause), state) => {
            let reason = pause.reason.as_ref().map(|reason| format!(": {reason}"));
            // Until its node has noticed.
            let word = if state == BridgeState::Moving { PAUSING } else { "paused" };
            (word, Some(format!("by {}{}", pause.by, reason.unwrap_or_default())))
        }
    }
}
