//! `[[bridges]]`: queues of another system whose jobs move into this store.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim::Mode;
use seriatim::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, PRIORITY_MAX};
use seriatim::names::did_you_mean;
use seriatim::store::refuse_reserved_queue;

use super::environment::is_variable;
use super::lowkiq::{Lowkiq, PayloadForm, ShardsCount, Written};
use crate::base::glob::is_match;
use crate::base::pointer::Pointer;

/// Most bridges of a configuration, queues of a bridge, and routes of a bridge.
const BRIDGES_MAX: usize = 20;
const QUEUES_MAX: usize = 100;
const ROUTES_MAX: usize = 500;
/// Longest name of a bridge, in bytes.
const NAME_MAX: usize = 64;
/// The least `idempotency_ttl` of a queue that a bridge fills: a batch whose fate is unknown is pushed again within
/// that time, and must be recognised.
const REMEMBERED_MIN: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BridgeConfig {
    pub(crate) name: String,
    kind: BridgeKind,
    /// The variable with the URL of its Redis.
    pub(crate) url_env: String,
    /// The prefix of redis-namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) queues: Vec<String>,
    /// Of Sidekiq.
    sets: Option<Sets>,
    /// Whether dead jobs move too, into the morgue.
    #[serde(default)]
    pub(crate) dead: bool,
    /// Of Lowkiq, as the next two.
    shards_count: Option<ShardsCount>,
    payloads: Option<PayloadForm>,
    mac_key_env: Option<String>,
    #[serde(default)]
    pub(crate) routes: Vec<RouteConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BridgeKind {
    Sidekiq,
    Lowkiq,
}

/// What is taken from the sets of jobs that are not due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sets {
    /// What is due, once no process of the other system is left that would do it.
    #[default]
    Due,
    /// All, at once.
    All,
    Leave,
}

/// Which jobs become jobs of which queue, and how. The first that matches counts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// The class; `*` stands for any characters.
    #[serde(default = "any")]
    pub(crate) class: String,
    /// The queue they come from, likewise.
    #[serde(default = "any")]
    pub(crate) from: String,
    /// Default: the queue they come from.
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<Pointer>,
    #[serde(default)]
    pub(crate) missing_key: MissingKey,
    pub(crate) score: Option<Pointer>,
    /// Default: the whole job.
    pub(crate) payload: Option<Pointer>,
    pub(crate) priority: Option<u16>,
}

fn any() -> String {
    "*".to_owned()
}

/// What to do with a job that has no key: `refuse`, or use this key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum MissingKey {
    #[default]
    Refuse,
    Fixed(String),
}

impl<'de> Deserialize<'de> for MissingKey {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(from)? {
            word if word == "refuse" => Self::Refuse,
            key => Self::Fixed(key),
        })
    }
}

impl RouteConfig {
    /// Jobs that no other route matches.
    fn default_of(queue: &str) -> Self {
        Self {
            class: any(),
            from: queue.to_owned(),
            queue: None,
            key: None,
            missing_key: MissingKey::Refuse,
            score: None,
            payload: None,
            priority: None,
        }
    }

    pub(crate) fn is_from(&self, queue: &str) -> bool {
        is_match(&self.from, queue)
    }

    /// Refuses what has no meaning for Lowkiq, whose ids are keys and whose queues are modules.
    fn check_of_lowkiq(&self) -> Result<(), String> {
        let given = [
            ("class", self.class != any()),
            ("key", self.key.is_some()),
            ("score", self.score.is_some()),
            ("payload", self.payload.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(format!(
                "`{key}` is not for kind = \"lowkiq\": the key is the id, and payloads and scores stay; write `from`, `queue`, `priority`"
            )),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        if let MissingKey::Fixed(key) = &self.missing_key {
            if self.key.is_none() {
                return Err("`missing_key` needs `key`: the place of the key in the job".to_owned());
            }
            if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains('\0') {
                return Err(format!(
                    "`missing_key`: write \"refuse\", or a key of 1 to {KEY_BYTES_MAX} bytes"
                ));
            }
        }
        if self.priority.is_some_and(|priority| priority > PRIORITY_MAX) {
            return Err(format!("`priority` must be 0 to {PRIORITY_MAX}"));
        }
        for (name, pattern) in [("class", &self.class), ("from", &self.from)] {
            if pattern.is_empty() || pattern.len() > NAME_BYTES_MAX {
                return Err(format!("`{name}` must have 1 to {NAME_BYTES_MAX} bytes"));
            }
        }
        Ok(())
    }
}

impl BridgeConfig {
    /// What is taken from Sidekiq's sets.
    pub(crate) fn sets(&self) -> Sets {
        self.sets.unwrap_or_default()
    }

    /// Its settings, if it is one to Lowkiq.
    pub(crate) fn lowkiq(&self) -> Option<Lowkiq<'_>> {
        let shards = self.shards_count.as_ref().filter(|_| self.kind == BridgeKind::Lowkiq)?;
        Some(Lowkiq { shards, mac_key_env: self.mac_key_env.as_deref() })
    }

    fn check_kind(&self, secrets: &[&str]) -> Result<(), String> {
        let of_lowkiq = Written {
            shards_count: self.shards_count.as_ref(),
            payloads: self.payloads,
            mac_key_env: self.mac_key_env.as_deref(),
        };
        if self.kind == BridgeKind::Sidekiq {
            return of_lowkiq.refuse("sidekiq");
        }
        if self.sets.is_some() {
            return Err(
                "`sets` is for kind = \"sidekiq\": ids of Lowkiq keep their due times".to_owned()
            );
        }
        of_lowkiq.check(&self.queues, secrets)
    }

    /// The routes of a queue, the last of which matches every class.
    pub(crate) fn routes_of(&self, queue: &str) -> Vec<RouteConfig> {
        let mut routes: Vec<RouteConfig> =
            self.routes.iter().filter(|route| route.is_from(queue)).cloned().collect();
        if !routes.iter().any(|route| route.class == "*") {
            routes.push(RouteConfig::default_of(queue));
        }
        routes
    }

    /// The prefix of all keys.
    pub(crate) fn prefix(&self) -> String {
        self.namespace.as_ref().map(|name| format!("{name}:")).unwrap_or_default()
    }

    /// Refuses what cannot work, whatever the queues of the store are.
    fn check(&self, tokens: &[&str]) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        // As a part of a URL these vanish.
        let is_step = matches!(self.name.as_str(), "." | "..");
        let is_plain = !self.name.is_empty() && self.name.bytes().all(plain) && !is_step;
        if !is_plain || self.name.len() > NAME_MAX {
            return Err(format!(
                "`name` must be 1 to {NAME_MAX} of the characters A-Z a-z 0-9 _ - . and not . or .."
            ));
        }
        if !is_variable(&self.url_env) {
            return Err("`url_env` names the variable that has the URL of its Redis, as in url_env = \"SIDEKIQ_REDIS\"".to_owned());
        }
        if tokens.contains(&self.url_env.as_str()) {
            return Err(format!("`url_env`: {} has a secret of this server", self.url_env));
        }
        let odd = |name: &str| {
            name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control)
        };
        if self.namespace.as_deref().is_some_and(odd) {
            return Err(format!("`namespace` must have 1 to {NAME_BYTES_MAX} bytes"));
        }
        if !(1..=QUEUES_MAX).contains(&self.queues.len()) {
            return Err(format!("`queues` has {} names: 1 to {QUEUES_MAX}", self.queues.len()));
        }
        for (i, queue) in self.queues.iter().enumerate() {
            if odd(queue) {
                return Err(format!("`queues`: {queue:?} is not the name of a queue"));
            }
            if self.queues[..i].contains(queue) {
                return Err(format!("`queues`: {queue:?} is given twice"));
            }
        }
        self.check_kind(tokens)?;
        if self.routes.len() > ROUTES_MAX {
            return Err(format!("has {} routes: at most {ROUTES_MAX}", self.routes.len()));
        }
        for (i, route) in self.routes.iter().enumerate() {
            let is_of_lowkiq = self.kind == BridgeKind::Lowkiq;
            let own = || if is_of_lowkiq { route.check_of_lowkiq() } else { Ok(()) };
            route.check().and_then(|()| own()).map_err(|what| format!("routes[{i}]: {what}"))?;
            if !self.queues.iter().any(|queue| route.is_from(queue)) {
                let near = did_you_mean(&route.from, self.queues.iter().map(String::as_str));
                return Err(format!(
                    "routes[{i}]: `from`: no queue of this bridge is {:?}{near}",
                    route.from
                ));
            }
        }
        Ok(())
    }

    /// Refuses routes to queues that do not fit.
    fn check_targets(&self, queues: &BTreeMap<&str, Target>) -> Result<(), String> {
        for from in &self.queues {
            for route in self.routes_of(from) {
                let same = |one: &RouteConfig| one.class == route.class && one.from == route.from;
                let place = match self.routes.iter().position(same) {
                    Some(i) => format!("routes[{i}]"),
                    None => format!("queue {from:?}, which has no route for all classes"),
                };
                let name = route.queue.as_deref().unwrap_or(from);
                refuse_reserved_queue(name).map_err(|error| format!("{place}: {error}"))?;
                let target = queues.get(name).ok_or_else(|| {
                    let near = did_you_mean(name, queues.keys().copied());
                    format!("{place}: no [queues] entry is called {name:?}: add one with a mode, or name the queue with `queue`{near}")
                })?;
                let is_keyed = self.kind == BridgeKind::Lowkiq || route.key.is_some();
                target.check(&route, name, is_keyed).map_err(|what| format!("{place}: {what}"))?;
            }
        }
        Ok(())
    }
}

/// A queue here, as far as bridges care.
pub(super) struct Target {
    /// A queue without one is refused at its declaration, with its own message.
    pub(super) mode: Option<Mode>,
    pub(super) idempotency_ttl: Option<Duration>,
}

impl Target {
    fn check(&self, route: &RouteConfig, name: &str, is_keyed: bool) -> Result<(), String> {
        if self.idempotency_ttl.is_some_and(|length| length < REMEMBERED_MIN) {
            return Err(format!(
                "the idempotency_ttl of queue {name:?} must be at least 1h: what is pushed again after a crash is recognised by it"
            ));
        }
        let Some(mode) = self.mode else { return Ok(()) };
        match (mode.is_keyed(), is_keyed) {
            (true, false) => Err(format!(
                "`key` is missing: queue {name:?} is {mode}, so each job needs one, as in key = \"/args/0\""
            )),
            (false, true) if route.key.is_none() => Err(format!(
                "ids of Lowkiq are keys, and queue {name:?} is {mode}: write mode = \"accumulate\""
            )),
            (false, true) => Err(format!(
                "`key` contradicts queue {name:?}, which is {mode}: remove it, or change the queue's mode"
            )),
            (false, false) if route.score.is_some() => Err(format!(
                "`score` contradicts queue {name:?}, which is {mode}: scores order the jobs of a key"
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses bridges that cannot work, or that would take each other's jobs. `secrets`: variables that only this server may
/// see; `queues`: those of this configuration.
pub(super) fn check_all(
    bridges: &[BridgeConfig],
    secrets: &[&str],
    queues: &BTreeMap<&str, Target>,
) -> Result<(), String> {
    if bridges.len() > BRIDGES_MAX {
        return Err(format!("{} bridges: at most {BRIDGES_MAX}", bridges.len()));
    }
    for (i, bridge) in bridges.iter().enumerate() {
        let wrong = |what: String| format!("bridges[{i}] (name {:?}): {what}", bridge.name);
        bridge.check(secrets).map_err(wrong)?;
        bridge.check_targets(queues).map_err(wrong)?;
        for (j, other) in bridges[..i].iter().enumerate() {
            if other.name == bridge.name {
                return Err(wrong(format!("`name`: bridges[{j}] has it too")));
            }
            let is_same_place = (other.kind, &other.url_env, &other.namespace)
                == (bridge.kind, &bridge.url_env, &bridge.namespace);
            let both = bridge.queues.iter().find(|queue| other.queues.contains(queue));
            if let Some(queue) = both.filter(|_| is_same_place) {
                return Err(wrong(format!("`queues`: bridges[{j}] takes {queue:?} too")));
            }
        }
    }
    Ok(())
}
