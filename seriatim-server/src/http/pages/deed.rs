//! What visitors can do: one table with the role that each deed needs, its words, and its call of the store.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use seriatim::store::{
    Cancel, Cancelled, Change, Command, JobState, LaneAction, LaneState, Selected, Selection,
};
use seriatim::{JobId, Payload, Queue, Rate, Timestamp};

use super::super::{Access, Problem, Result, Shared};
use crate::app::bridges::Which;
use crate::app::error::Error;
use crate::app::lanes::OneLane;
use crate::app::limits::{Amended, Whose};
use crate::app::operations::{self, Action, List, Wish};
use crate::app::{batches, bridges, cron, find, jobs, lanes, limits, morgue, nodes, pauses};
use crate::base::text::one_line;
use crate::base::time;

/// A deed: what is done, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) kind: &'static Kind,
    pub(super) on: On,
}

/// To what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum On {
    Queue(String),
    /// The limit that a queue gets.
    Limit {
        queue: String,
        running: Option<u32>,
        rate: Option<Rate>,
    },
    /// What each group of a queue, or one of them, gets; `None` removes it.
    Groups {
        queue: String,
        whose: Whose,
        change: Option<Amended>,
    },
    Lane {
        queue: String,
        lane: OneLane,
    },
    Job(JobId),
    /// When a waiting job is due: a time, or a length from now.
    Due {
        job: JobId,
        at: String,
        was: Option<String>,
    },
    /// The node that a waiting job is bound to; any if unset.
    Bound {
        job: JobId,
        node: Option<String>,
        was: Option<String>,
    },
    Dead {
        queue: String,
        job: JobId,
        payload: Option<String>,
    },
    Cron {
        name: String,
        reason: Option<String>,
    },
    /// One source of it; all if unset.
    Bridge {
        name: String,
        source: Option<String>,
    },
    Node(String),
    Operation(String),
    Batch(String),
}

/// One kind of deed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// As forms name it.
    pub(super) name: &'static str,
    /// On its button.
    pub(super) button: &'static str,
    /// What was done, with `{}` for the number: `resumed`, `{} jobs requeued`.
    done: &'static str,
    pub(super) access: Access,
    /// What to think of before. Such a deed asks first.
    pub(super) warning: Option<&'static str>,
    /// The deed that takes it back.
    undo: Option<&'static str>,
}

const fn kind(name: &'static str, button: &'static str, done: &'static str) -> Kind {
    Kind { name, button, done, access: Access::Operate, warning: None, undo: None }
}

impl Kind {
    const fn undone_by(self, undo: &'static str) -> Self {
        Self { undo: Some(undo), ..self }
    }

    const fn asks(self, warning: &'static str) -> Self {
        Self { warning: Some(warning), ..self }
    }

    const fn admin(self) -> Self {
        Self { access: Access::Admin, ..self }
    }
}

const LOST: &str = "What is deleted cannot be brought back. The deletion begins after 10 s, and can be undone until then.";

static KINDS: &[Kind] = &[
    kind("queue.pause", "Pause", "paused; running turns finish").undone_by("queue.resume"),
    kind("queue.resume", "Resume", "resumed").undone_by("queue.pause"),
    kind("queue.limits", "Set the limit", "its limit is set").admin(),
    kind("queue.group", "Set for groups", "what groups get is set").admin(),
    kind("queue.ungroup", "Remove", "what groups got is removed")
        .asks("The weight and the limits of the group are removed. Without a name, those of all groups are, and the queue has no groups then: it refuses jobs that name one. There is no undo.")
        .admin(),
    kind("lane.pause", "Pause", "paused; a running turn finishes").undone_by("lane.resume"),
    kind("lane.resume", "Resume", "resumed").undone_by("lane.pause"),
    kind("lane.retry", "Retry now", "due now"),
    kind("lane.bury", "Bury failed", "buried")
        .asks("Failed jobs go to the morgue; in accumulate queues, all waiting jobs of the key. Jobs behind them then run. You can requeue them from the morgue.")
        .admin(),
    kind("lane.delete", "Delete waiting", "waiting jobs deleted").asks(LOST).admin(),
    kind("lane.release", "Take from its holder", "taken from its holder")
        .asks("The holder can no longer settle. This counts as a crash. If its handler still runs, the next one starts while it does. There is no undo.")
        .admin(),
    kind("job.retry", "Run now", "due now"),
    kind("job.reschedule", "Reschedule", "due at another time").undone_by("job.reschedule"),
    kind("job.bind", "Bind", "bound to another node").undone_by("job.bind"),
    kind("job.cancel", "Cancel", "cancelled")
        .asks("A waiting job ends, and does not run again. A running handler gets the request with its node's next heartbeat. There is no undo."),
    kind("job.delete", "Delete", "deleted").asks(LOST).admin(),
    kind("dead.requeue", "Requeue", "{} jobs requeued"),
    kind("dead.edit", "Requeue with this payload", "pushed again with another payload").admin(),
    kind("dead.delete", "Delete", "{} jobs deleted").asks(LOST).admin(),
    kind("cron.run", "Run now", "pushed"),
    kind("cron.pause", "Pause", "paused: no node pushes its ticks").undone_by("cron.resume"),
    kind("cron.resume", "Resume", "resumed").undone_by("cron.pause"),
    kind("bridge.pause", "Pause", "paused: nothing more is taken").undone_by("bridge.resume"),
    kind("bridge.resume", "Resume", "resumed").undone_by("bridge.pause"),
    kind("node.quiet", "Quiet", "claims no more work").undone_by("node.resume"),
    kind("node.resume", "Resume", "claims work again").undone_by("node.quiet"),
    kind("node.stop", "Stop", "finishes its turns and exits")
        .asks("The process ends. It does not start again by itself, unless something on its machine starts it.")
        .admin(),
    kind("operation.stop", "Stop", "stopped; what is done stays done"),
    kind("batch.seal", "Seal", "sealed: it ends when none of its jobs is left")
        .asks("Seal a batch when all its jobs are pushed. After its end it takes no more jobs, and its callback cannot be undone."),
];

/// Fields of a form.
pub(super) type Fields = HashMap<String, String>;

impl Deed {
    pub(super) fn new(name: &str, on: On) -> Option<Self> {
        KINDS.iter().find(|kind| kind.name == name).map(|kind| Self { kind, on })
    }

    /// Reads a form.
    pub(super) fn read(fields: &Fields) -> Result<Self> {
        let text = |name: &str| fields.get(name).filter(|text| !text.is_empty()).cloned();
        let needed = |name: &str| {
            text(name)
                .ok_or_else(|| Problem::invalid(name, format!("this form has no field {name}")))
        };
        let job = |text: String| {
            text.parse::<JobId>().map_err(|error| Problem::invalid("job", error.to_string()))
        };
        let name = needed("deed")?;
        pauses::check_reason(text("reason").as_deref())?;
        let about = name.split('.').next().unwrap_or_default();
        let on = match about {
            "queue" if name == "queue.limits" => On::Limit {
                queue: needed("queue")?,
                running: number("running", &text)?,
                rate: number("rate", &text)?,
            },
            "queue" if name.ends_with("group") => On::Groups {
                queue: needed("queue")?,
                whose: text("group").map_or(Whose::EachGroup, Whose::Group),
                change: match name.as_str() {
                    "queue.group" => Some(amended(&text)?),
                    _ => None,
                },
            },
            "queue" => On::Queue(needed("queue")?),
            "node" => On::Node(needed("node")?),
            "operation" => On::Operation(needed("operation")?),
            "batch" => On::Batch(needed("batch")?),
            "bridge" => On::Bridge { name: needed("bridge")?, source: text("source") },
            "cron" => On::Cron { name: needed("cron")?, reason: text("reason") },
            "job" => {
                let (job, was) = (job(needed("job")?)?, text("was"));
                match name.as_str() {
                    "job.reschedule" => On::Due { job, at: needed("at")?, was },
                    "job.bind" => On::Bound { job, node: text("node"), was },
                    _ => On::Job(job),
                }
            }
            "lane" => {
                let lane = match (fields.get("key"), text("lane")) {
                    (_, Some(lane)) => OneLane::Lane(
                        lane.parse()
                            .map_err(|_| Problem::invalid("lane", "is not the id of a lane"))?,
                    ),
                    (Some(key), None) => OneLane::Key(key.clone()),
                    (None, None) => return Err(Problem::invalid("key", "this form names no lane")),
                };
                On::Lane { queue: needed("queue")?, lane }
            }
            "dead" => {
                let payload = text("payload");
                On::Dead { queue: needed("queue")?, job: job(needed("job")?)?, payload }
            }
            _ => return Err(unknown(&name)),
        };
        Self::new(&name, on).ok_or_else(|| unknown(&name))
    }

    /// The fields of a form that does it.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("deed", self.kind.name.to_owned())];
        match &self.on {
            On::Queue(queue) => fields.push(("queue", queue.clone())),
            On::Limit { queue, running, rate } => {
                fields.push(("queue", queue.clone()));
                fields.extend(running.map(|running| ("running", running.to_string())));
                fields.extend(rate.map(|rate| ("rate", rate.to_string())));
            }
            On::Groups { queue, whose, change } => {
                fields.push(("queue", queue.clone()));
                if let Whose::Group(name) = whose {
                    fields.push(("group", name.clone()));
                }
                let Amended { running, rate, burst, weight } = change.unwrap_or_default();
                fields.extend(rate.map(|rate| ("rate", rate.to_string())));
                let numbers = [("running", running), ("burst", burst), ("weight", weight)];
                let set = |(name, number): (_, Option<u32>)| Some((name, number?.to_string()));
                fields.extend(numbers.into_iter().filter_map(set));
            }
            On::Node(node) => fields.push(("node", node.clone())),
            On::Cron { name, reason } => {
                fields.push(("cron", name.clone()));
                fields.extend(reason.clone().map(|reason| ("reason", reason)));
            }
            On::Bridge { name, source } => {
                fields.push(("bridge", name.clone()));
                fields.extend(source.clone().map(|source| ("source", source)));
            }
            On::Job(job) => fields.push(("job", job.to_string())),
            On::Due { job, at, was } => {
                fields.extend([("job", job.to_string()), ("at", at.clone())]);
                fields.extend(was.clone().map(|was| ("was", was)));
            }
            On::Bound { job, node, was } => {
                fields.push(("job", job.to_string()));
                fields.extend(node.clone().map(|node| ("node", node)));
                fields.extend(was.clone().map(|was| ("was", was)));
            }
            On::Operation(id) => fields.push(("operation", id.clone())),
            On::Batch(id) => fields.push(("batch", id.clone())),
            On::Lane { queue, lane } => {
                fields.push(("queue", queue.clone()));
                match lane {
                    OneLane::Key(key) => fields.push(("key", key.clone())),
                    OneLane::Lane(lane) => fields.push(("lane", lane.to_string())),
                }
            }
            On::Dead { queue, job, payload } => {
                fields.extend([("queue", queue.clone()), ("job", job.to_string())]);
                fields.extend(payload.clone().map(|payload| ("payload", payload)));
            }
        }
        fields
    }

    /// What it is done to, in words.
    pub(super) fn target(&self) -> String {
        let target = match &self.on {
            On::Groups { queue, whose: Whose::Group(name), .. } => {
                format!("group {name} of queue {queue}")
            }
            On::Groups { queue, change: None, .. } => format!("all groups of queue {queue}"),
            On::Queue(queue) | On::Limit { queue, .. } | On::Groups { queue, .. } => {
                format!("queue {queue}")
            }
            On::Node(node) => format!("node {node}"),
            On::Cron { name, .. } => format!("cron entry {name}"),
            On::Bridge { name, source: None } => format!("bridge {name}"),
            On::Bridge { name, source: Some(source) } => format!("bridge {name}, {source}"),
            On::Job(job) | On::Due { job, .. } | On::Bound { job, .. } | On::Dead { job, .. } => {
                format!("job {job}")
            }
            On::Operation(id) => format!("operation {id}"),
            On::Batch(id) => format!("batch {id}"),
            On::Lane { queue, lane: OneLane::Key(key) } => format!("key {key} of {queue}"),
            On::Lane { queue, lane: OneLane::Lane(lane) } => format!("lane {lane} of {queue}"),
        };
        // Names of producers may have line breaks and marks that turn the text around.
        one_line(&target)
    }

    /// The present state of a batch, shown before it is sealed. Empty for other deeds.
    pub(super) async fn now(&self, app: &Shared) -> Result<String> {
        let On::Batch(id) = &self.on else { return Ok(String::new()) };
        let batch = batches::one(&*app.store, id).await?;
        Ok(format!("Now it is {}, with {}.", batch.state(), batch.counts()))
    }

    /// The queue that it concerns; `None` for a node, a batch, a bridge and a cron entry, and for a job or an operation, whose queue the
    /// store knows.
    pub(super) fn queue(&self) -> Option<&str> {
        match &self.on {
            On::Queue(queue)
            | On::Limit { queue, .. }
            | On::Groups { queue, .. }
            | On::Lane { queue, .. }
            | On::Dead { queue, .. } => Some(queue),
            On::Job(_)
            | On::Due { .. }
            | On::Bound { .. }
            | On::Node(_)
            | On::Operation(_)
            | On::Batch(_)
            | On::Cron { .. }
            | On::Bridge { .. } => None,
        }
    }

    /// Whether a deed of this name takes another one back, or stops what another one began: a page may offer it anywhere.
    pub(super) fn takes_back(name: &str) -> bool {
        name == "operation.stop" || KINDS.iter().any(|kind| kind.undo == Some(name))
    }

    /// The deed that takes it back.
    pub(super) fn undo(&self) -> Option<Self> {
        let on = match self.on.clone() {
            On::Due { job, at, was } => On::Due { job, at: was?, was: Some(at) },
            On::Bound { job, node, was } => On::Bound { job, node: was, was: node },
            on => on,
        };
        Self::new(self.kind.undo?, on)
    }

    /// The deed that takes it back, asked before it is done. A resume ends a hold too, and only the engine holds: what is done
    /// to a held lane is not taken back.
    pub(super) async fn undo_now(&self, app: &Shared) -> Option<Self> {
        let undo = self.undo()?;
        let On::Lane { queue, lane } = &self.on else { return Some(undo) };
        let known = lanes::known(&*app.store, queue, lane).await.ok()?;
        known.is_none_or(|lane| lane.state != LaneState::Held).then_some(undo)
    }

    /// What was done, in words.
    pub(super) fn done(&self, count: u64) -> String {
        let done = match (&self.on, count) {
            (On::Operation(_), 0) => "too late, it has ended",
            _ => self.kind.done,
        };
        format!("{}: {}", self.target(), done.replace("{}", &count.to_string()))
    }

    /// Deletions wait a while as operations, so that they can be undone; others are done at once.
    pub(super) async fn waits(&self, app: &Shared) -> Result<Option<Wish>> {
        let store = &*app.store;
        let named = |action, queue: &str, job: JobId| {
            Some(Wish { jobs: Some(List(vec![job])), ..Wish::new(action, queue) })
        };
        Ok(match (&self.on, self.kind.name) {
            (On::Job(id), "job.delete") => {
                let job = find::job(store, *id).await?;
                if job.state != JobState::Dead {
                    jobs::waiting(&job)?;
                }
                named(Action::DeleteJobs, &job.queue, *id)
            }
            (On::Dead { queue, job, .. }, "dead.delete") => named(Action::DeleteDead, queue, *job),
            (On::Lane { queue, lane }, "lane.delete") => {
                let wish = Wish::new(Action::DeleteWaiting, queue.as_str());
                match lane {
                    OneLane::Key(key) => {
                        operations::refuse_running(store, queue, key).await?;
                        Some(Wish { key: Some(key.clone()), ..wish })
                    }
                    OneLane::Lane(lane) => Some(Wish { lanes: Some(List(vec![*lane])), ..wish }),
                }
            }
            _ => None,
        })
    }

    /// Does it. How many lanes or jobs it concerned.
    pub(super) async fn carry_out(&self, app: &Shared, who: &str) -> Result<u64> {
        let (store, verb) =
            (&*app.store, self.kind.name.split_once('.').map_or("", |(_, verb)| verb));
        match &self.on {
            On::Queue(queue) => {
                find::queue(store, queue).await?;
                store.pause_queue(queue.as_str().into(), verb == "pause").await?;
                Ok(1)
            }
            On::Limit { queue, running, rate } => set_limit(app, queue, *running, *rate).await,
            On::Groups { queue, whose, change } => {
                set_groups(app, queue, whose, change.as_ref()).await
            }
            On::Lane { queue, lane } => {
                let action = match verb {
                    "pause" => LaneAction::Pause,
                    "resume" => LaneAction::Resume,
                    "retry" => LaneAction::RunNow,
                    "bury" => LaneAction::Bury,
                    "release" => return Ok(lanes::release(store, queue, lane.clone()).await?),
                    _ => LaneAction::Delete,
                };
                find::queue(store, queue).await?;
                Ok(lanes::act(store, queue, lane.clone(), action).await?)
            }
            On::Job(job) => on_job(app, *job, verb).await,
            On::Due { job, at, .. } => {
                let at = due(at, store.now().await?)?;
                jobs::amended(store, *job, Change::RunAt(at)).await?;
                Ok(1)
            }
            On::Bound { job, node, .. } => {
                jobs::amended(store, *job, Change::Node(node.clone())).await?;
                Ok(1)
            }
            On::Dead { queue, job, payload } if verb == "edit" => {
                let payload = payload.as_deref().unwrap_or_default();
                let payload = Payload::from_json_text(payload)?;
                morgue::edit(store, queue, *job, payload).await?;
                Ok(1)
            }
            On::Dead { queue, job, .. } => {
                let which = Selection::Jobs(vec![*job]);
                let selected = Selected { now: None, queue: queue.as_str().into(), which };
                Ok(store.requeue(selected).await?.count)
            }
            On::Operation(id) => {
                Ok(u64::from(operations::stop(store, id, who).await?.stopped_by.is_some()))
            }
            On::Batch(id) => {
                app.client.seal_batch(id.as_str()).await?;
                Ok(1)
            }
            On::Node(node) => {
                let command = match verb {
                    "quiet" => Command::Quiet,
                    "resume" => Command::Resume,
                    _ => Command::Stop,
                };
                nodes::command(store, node, command).await?;
                Ok(1)
            }
            On::Bridge { name, source } => {
                let which = Which { bridge: name, source: source.as_deref(), configured: &[] };
                match verb {
                    "pause" => drop(bridges::pause(store, which, who, None).await?),
                    _ => drop(bridges::resume(store, which).await?),
                }
                Ok(1)
            }
            On::Cron { name, reason } => {
                match verb {
                    "run" => drop(cron::run(store, name, who).await?),
                    "pause" => drop(cron::pause(store, name, who, reason.as_deref()).await?),
                    _ => drop(cron::resume(store, name).await?),
                }
                Ok(1)
            }
        }
    }
}

fn unknown(name: &str) -> Problem {
    Problem::invalid("deed", format!("there is no action {name:?}"))
}

async fn set_limit(
    app: &Shared,
    queue: &str,
    running: Option<u32>,
    rate: Option<Rate>,
) -> Result<u64> {
    let set = |queue: &mut Queue| {
        if queue.limit.rate != rate {
            // It belongs to its rate.
            queue.limit.burst = None;
        }
        (queue.limit.running, queue.limit.rate) = (running, rate);
        Ok(())
    };
    change_limits(app, queue, set).await
}

async fn set_groups(
    app: &Shared,
    queue: &str,
    whose: &Whose,
    change: Option<&Amended>,
) -> Result<u64> {
    let set = |queue: &mut Queue| match change {
        Some(change) => {
            change.apply(queue, whose);
            Ok(())
        }
        None => limits::remove(queue, whose),
    };
    change_limits(app, queue, set).await
}

async fn change_limits(
    app: &Shared,
    queue: &str,
    set: impl Fn(&mut Queue) -> seriatim::Result<()>,
) -> Result<u64> {
    limits::change(&*app.store, queue, set).await.map_err(naming)?;
    app.queues.seen.forget();
    Ok(1)
}

/// A limit that is refused: which, for people who see no fields.
fn naming(error: Error) -> Problem {
    let problem = Problem::from(error);
    match problem.field().map(str::to_owned) {
        Some(field) => {
            let said = format!("{field}: {}", problem.into_detail());
            Problem::invalid(field, said)
        }
        None => problem,
    }
}

/// A field of a form; an empty one is none.
fn number<T: FromStr<Err: Display>>(
    name: &str,
    text: &impl Fn(&str) -> Option<String>,
) -> Result<Option<T>> {
    let wrong = |error: T::Err| Problem::invalid(name, format!("{name}: {error}"));
    text(name).map(|text| text.trim().parse().map_err(wrong)).transpose()
}

fn amended(text: &impl Fn(&str) -> Option<String>) -> Result<Amended> {
    let change = Amended {
        running: number("running", text)?,
        rate: number("rate", text)?,
        burst: number("burst", text)?,
        weight: number("weight", text)?,
    };
    let missing = "fill in what shall change: weight, turns at once, or starts";
    if change.is_none() { Err(Problem::invalid("weight", missing)) } else { Ok(change) }
}

/// A time, or a length from now.
fn due(text: &str, now: Timestamp) -> Result<Timestamp> {
    let text = text.trim();
    let length = || seriatim::duration::parse(text).ok().map(|length| now + length);
    // To one it is minutes, to another one Unix seconds.
    let is_number = text.parse::<f64>().is_ok();
    let at = time::read(text).ok().or_else(length).filter(|_| !is_number);
    let wrong = "write a time as 2026-01-31T12:00:00Z, or how long from now as 10m";
    at.ok_or_else(|| Problem::invalid("at", wrong))
}

async fn on_job(app: &Shared, id: JobId, verb: &str) -> Result<u64> {
    let store = &*app.store;
    match verb {
        "retry" => drop(jobs::retried(store, id).await?),
        "cancel" => {
            let cancelled = store.cancel(Cancel { now: None, jobs: vec![id] }).await?;
            match cancelled.first() {
                Some(Cancelled::Now | Cancelled::Flagged) => {}
                Some(Cancelled::Ended) => return Err(Problem::conflict("this job has ended")),
                Some(Cancelled::Unknown) | None => drop(find::job(store, id).await?),
            }
        }
        _ => jobs::deleted(store, &find::job(store, id).await?).await?,
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_all_that_its_deed_needs() {
        let queue = || "orders".to_owned();
        let job = JobId::new(seriatim::Timestamp::default(), 1, 0, 7);
        for kind in KINDS {
            let on = match kind.name.split_once('.').unwrap() {
                ("queue", "limits") => {
                    let rate = Some(Rate::per_second(5));
                    On::Limit { queue: queue(), running: Some(3), rate }
                }
                ("queue", "group") => {
                    let rate = Some(Rate::per_second(5));
                    let change = Amended { rate, weight: Some(3), ..Amended::default() };
                    let whose = Whose::Group("acme".to_owned());
                    On::Groups { queue: queue(), whose, change: Some(change) }
                }
                ("queue", "ungroup") => {
                    On::Groups { queue: queue(), whose: Whose::EachGroup, change: None }
                }
                ("queue", _) => On::Queue(queue()),
                ("node", _) => On::Node("a".to_owned()),
                ("cron", _) => On::Cron { name: "n".to_owned(), reason: Some("r".to_owned()) },
                ("bridge", _) => {
                    On::Bridge { name: "shop".to_owned(), source: Some("retry".to_owned()) }
                }
                ("job", "reschedule") => {
                    On::Due { job, at: "10m".to_owned(), was: Some("9".to_owned()) }
                }
                ("job", "bind") => On::Bound { job, node: Some("a".to_owned()), was: None },
                ("job", _) => On::Job(job),
                ("dead", _) => On::Dead { queue: queue(), job, payload: Some("{}".to_owned()) },
                ("operation", _) => On::Operation("0-1".to_owned()),
                ("batch", _) => On::Batch("import 7".to_owned()),
                (_, _) => On::Lane { queue: queue(), lane: OneLane::Key("a&b".to_owned()) },
            };
            let deed = Deed::new(kind.name, on).unwrap();
            let fields =
                deed.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(Deed::read(&fields).unwrap(), deed);
            assert!(kind.undo.is_none() || deed.undo().is_some(), "{}", kind.name);
            assert!(!Deed::takes_back(kind.name) || kind.warning.is_none(), "{}", kind.name);
            let loses = ["Delete", "Bury", "Remove"].iter().any(|word| kind.button.contains(word));
            assert!(
                !loses || (kind.warning.is_some() && kind.access == Access::Admin),
                "{}",
                kind.name
            );
        }
    }
}
