//! What visitors can do: one table with the role that each deed needs, its words, and its call of the store.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use seriatim::store::{
    Cancel, Cancelled, Change, Command, JobState, LaneAction, LaneState, Selected, Selection,
};
use seriatim::{ErrorKind, JobId, Payload, Queue, Rate, Timestamp};

use super::super::{Access, Problem, Result, Shared};
use super::ways::Ways;
use crate::app::bridges::Which;
use crate::app::deeds::Deed as Done;
use crate::app::error::Error;
use crate::app::lanes::OneLane;
use crate::app::limits::{Amended, Limits, Whose};
use crate::app::operations::{self, Action, List, Wish};
use crate::app::{batches, bridges, cron, find, jobs, lanes, limits, morgue, nodes, pauses, undo};
use crate::base::text::{count, one_line};
use crate::base::time;

/// A deed: what is done, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) kind: &'static Kind,
    pub(super) on: On,
    /// Why it is paused, for other people.
    reason: Option<String>,
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
    /// The limits and groups that a queue gets back, and those that it has if nobody changed them since.
    Limits {
        queue: String,
        limits: Limits,
        was: Limits,
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
    Cron(String),
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
    /// What was done: `resumed`.
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

    /// As the audit log names it.
    pub(super) fn action(&self) -> String {
        self.name.replace('.', " ")
    }
}

const CHANGED: &str = "nothing was done, as it was changed since: look at its state now";
const LOST: &str = "What is deleted cannot be brought back. The deletion begins after 10 s, and can be undone until then.";

static KINDS: &[Kind] = &[
    kind("queue.pause", "Pause", "paused; running turns finish").undone_by("queue.resume"),
    kind("queue.resume", "Resume", "resumed").undone_by("queue.pause"),
    kind("queue.limits", "Set the limit", "its limit is set").admin(),
    kind("queue.group", "Set for groups", "its groups are set").admin(),
    kind("queue.ungroup", "Remove", "removed")
        .asks("Removes the weight and the limits of this group. Without a name, removes those of all groups: the queue then has no groups and refuses jobs that name one.")
        .admin(),
    kind("queue.restore", "Restore", "its limits are as before").undone_by("queue.restore").admin(),
    kind("lane.pause", "Pause", "paused; a running turn finishes").undone_by("lane.resume"),
    kind("lane.resume", "Resume", "resumed").undone_by("lane.pause"),
    kind("lane.retry", "Run now", "set to run now"),
    kind("lane.bury", "Bury failed", "buried")
        .asks("Failed jobs go to the morgue; in accumulate queues, all waiting jobs of the key. Jobs behind them then run. You can requeue them from the morgue.")
        .admin(),
    kind("lane.delete", "Delete waiting", "waiting jobs deleted").asks(LOST).admin(),
    kind("lane.release", "Take from its holder", "taken from its holder")
        .asks("The holder can no longer settle. This counts as a crash. If its handler still runs, the next one starts while it does. There is no undo.")
        .admin(),
    kind("job.retry", "Run now", "set to run now"),
    kind("job.reschedule", "Reschedule", "due at another time").undone_by("job.reschedule"),
    kind("job.bind", "Bind", "bound to another node").undone_by("job.bind"),
    kind("job.cancel", "Cancel", "cancelled")
        .asks("A waiting job ends, and does not run again. A running handler gets the request with its node's next heartbeat. There is no undo."),
    kind("job.delete", "Delete", "deleted").asks(LOST).admin(),
    kind("dead.requeue", "Requeue", "requeued"),
    kind("dead.edit", "Requeue with this payload", "pushed again with another payload").admin(),
    kind("dead.delete", "Delete", "deleted").asks(LOST).admin(),
    kind("cron.run", "Run now", "pushed"),
    kind("cron.pause", "Pause", "paused: no node pushes its ticks").undone_by("cron.resume"),
    kind("cron.resume", "Resume", "resumed").undone_by("cron.pause"),
    kind("bridge.pause", "Pause", "paused: nothing more is taken").undone_by("bridge.resume"),
    kind("bridge.resume", "Resume", "resumed").undone_by("bridge.pause"),
    kind("node.quiet", "Quiet", "claims no more work").undone_by("node.resume"),
    kind("node.resume", "Resume", "claims work again").undone_by("node.quiet"),
    kind("node.stop", "Stop", "finishes its turns and exits")
        .asks("The process exits. It starts again only if something on its machine starts it.")
        .admin(),
    kind("node.release", "Take its claims", "its claims are taken")
        .asks("The node can no longer settle what it holds, and each lane counts a crash. If its handlers still run, the next ones start while they do. The node claims again, unless it is quiet. There is no undo.")
        .admin(),
    kind("operation.stop", "Stop", "stopped; what is done stays done"),
    kind("batch.seal", "Seal", "sealed: it ends when none of its jobs is left")
        .asks("Seal a batch when all its jobs are pushed. After its end it takes no more jobs, and its callback cannot be taken back."),
];

/// Fields of a form.
pub(super) type Fields = HashMap<String, String>;

impl Deed {
    pub(super) fn new(name: &str, on: On) -> Option<Self> {
        let kind = KINDS.iter().find(|kind| kind.name == name)?;
        Some(Self { kind, on, reason: None })
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
            "queue" => on_queue(&name, needed("queue")?, &text)?,
            "node" => On::Node(needed("node")?),
            "operation" => On::Operation(needed("operation")?),
            "batch" => On::Batch(needed("batch")?),
            "bridge" => On::Bridge { name: needed("bridge")?, source: text("source") },
            "cron" => On::Cron(needed("cron")?),
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
        let deed = Self::new(&name, on).ok_or_else(|| unknown(&name))?;
        Ok(Self { reason: text("reason"), ..deed })
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
            On::Limits { queue, limits, was } => {
                let [limits, was] = [limits, was].map(Limits::text);
                fields.extend([("queue", queue.clone()), ("limits", limits), ("was", was)]);
            }
            On::Node(node) => fields.push(("node", node.clone())),
            On::Cron(name) => fields.push(("cron", name.clone())),
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
        fields.extend(self.reason.clone().map(|reason| ("reason", reason)));
        fields
    }

    /// Whether people type into its form.
    pub(super) fn is_typed(&self) -> bool {
        match &self.on {
            On::Dead { payload, .. } => payload.is_some(),
            On::Groups { change, .. } => change.is_some(),
            On::Limit { .. } | On::Due { .. } | On::Bound { .. } => true,
            _ => false,
        }
    }

    /// What was typed into its form, in words.
    pub(super) fn typed(&self) -> String {
        let mut fields = self.fields();
        fields.retain(|(name, _)| !["deed", "queue", "job", "was"].contains(name));
        let words: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
        one_line(&format!("You typed: {words}."))
    }

    /// What it is done to, in words.
    pub(super) fn target(&self) -> String {
        let target = match &self.on {
            On::Groups { queue, whose: Whose::Group(name), .. } => {
                format!("group {name} of queue {queue}")
            }
            On::Groups { queue, change: None, .. } => format!("all groups of queue {queue}"),
            On::Queue(queue)
            | On::Limit { queue, .. }
            | On::Groups { queue, .. }
            | On::Limits { queue, .. } => format!("queue {queue}"),
            On::Node(node) => format!("node {node}"),
            On::Cron(name) => format!("cron entry {name}"),
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

    /// The present state, shown before it is done: of a batch that is sealed, how many jobs a lane may lose, and what else
    /// ends with a node. Empty for other deeds.
    pub(super) async fn now(&self, app: &Shared) -> Result<String> {
        let store = &*app.store;
        match &self.on {
            On::Batch(id) => {
                let batch = batches::one(store, id).await?;
                Ok(format!("Now it is {}, with {}.", batch.state(), batch.counts()))
            }
            On::Lane { queue, lane } if matches!(self.kind.name, "lane.bury" | "lane.delete") => {
                let lane = lanes::known(store, queue, lane).await?;
                let jobs = lane.map(|lane| format!("It has {} now.", count(lane.jobs, "job")));
                Ok(jobs.unwrap_or_default())
            }
            On::Node(id) if self.kind.name == "node.stop" => {
                let (node, now) = (nodes::find(store, id).await?, store.now().await?);
                let all = store.nodes().await?;
                let mut says = Vec::new();
                if nodes::is_last(&node, &all, now) {
                    says.push("No other node takes work: jobs wait until one starts.");
                }
                if nodes::is_this_process(&node) {
                    says.push("It serves this page, which ends with it.");
                }
                Ok(says.join(" "))
            }
            _ => Ok(String::new()),
        }
    }

    /// The queue that it concerns; `None` for a node, a batch, a bridge and a cron entry, and for a job or an operation, whose queue the
    /// store knows.
    pub(super) fn queue(&self) -> Option<&str> {
        match &self.on {
            On::Queue(queue)
            | On::Limit { queue, .. }
            | On::Groups { queue, .. }
            | On::Limits { queue, .. }
            | On::Lane { queue, .. }
            | On::Dead { queue, .. } => Some(queue),
            On::Job(_)
            | On::Due { .. }
            | On::Bound { .. }
            | On::Node(_)
            | On::Operation(_)
            | On::Batch(_)
            | On::Cron(_)
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
            On::Limits { queue, limits, was } => On::Limits { queue, limits: was, was: limits },
            on => on,
        };
        Self::new(self.kind.undo?, on)
    }

    /// The deed that takes it back, asked before it is done; none if nothing changes. A resume ends a hold too, and only the
    /// engine holds: what is done to a held lane is not taken back.
    pub(super) async fn undo_now(&self, app: &Shared) -> Option<Self> {
        if matches!(self.on, On::Limit { .. } | On::Groups { .. } | On::Limits { .. }) {
            return self.restores(app).await;
        }
        let (undo, store) = (self.undo()?, &*app.store);
        // What it replaces now: the page of the form may be older.
        match &self.on {
            On::Due { job, at, .. } => {
                let view = find::job(store, *job).await.ok()?;
                let mode = find::queue(store, &view.queue).await.ok()?.queue.mode;
                let now = jobs::due_of(store, &view, mode).await.ok()??;
                let (was, at) = (Some(at.clone()), time::absolute(now));
                return Self::new(self.kind.undo?, On::Due { job: *job, at, was });
            }
            On::Bound { job, node, .. } => {
                let options = find::job(store, *job).await.ok()?.options;
                let now = options.and_then(|options| options.node.clone());
                let was = node.clone();
                return Self::new(self.kind.undo?, On::Bound { job: *job, node: now, was });
            }
            _ => {}
        }
        let stops = matches!(self.kind.name.rsplit_once('.'), Some((_, "pause" | "quiet")));
        let changes = match &self.on {
            On::Queue(queue) => find::queue(store, queue).await.ok()?.paused != stops,
            On::Lane { queue, lane } => {
                match lanes::known(store, queue, lane).await.ok()?.map(|lane| lane.state) {
                    Some(LaneState::Held) => false,
                    Some(LaneState::Paused) => !stops,
                    Some(LaneState::Waiting) => stops,
                    // Its turn hides whether it is paused.
                    Some(LaneState::Claimed) => {
                        let last = self.last(app, &undo).await.ok()?;
                        last.is_none_or(|last| last.action != self.kind.action())
                    }
                    None => true,
                }
            }
            On::Cron(name) => cron::pause_of(store, name).await.ok()?.is_some() != stops,
            On::Bridge { name, source } => {
                let which = which(name, source.as_deref());
                bridges::pause_of(store, which).await.ok()?.is_some() != stops
            }
            On::Node(node) => match nodes::find(store, node).await.ok()?.command {
                Some(Command::Quiet) => !stops,
                // Quiet is no stop, and a stop asks first.
                Some(Command::Stop) => false,
                Some(Command::Resume) | None => stops,
            },
            _ => true,
        };
        if !changes {
            return None;
        }
        let reason = if stops { None } else { self.reason_now(app).await };
        Some(Self { reason, ..undo })
    }

    /// Why that is paused which it resumes, as far as it is known: a pause that takes it back has the same reason.
    async fn reason_now(&self, app: &Shared) -> Option<String> {
        let store = &*app.store;
        match &self.on {
            On::Queue(queue) => {
                let now = store.now().await.ok()?;
                pauses::of_queue(store, queue, now).await.ok()??.into_reason()
            }
            On::Lane { queue, lane: OneLane::Key(key) } => {
                let now = store.now().await.ok()?;
                pauses::of_key(store, queue, key, now).await.ok()??.into_reason()
            }
            On::Cron(name) => cron::pause_of(store, name).await.ok()??.reason,
            On::Bridge { name, source } => {
                let which = which(name, source.as_deref());
                bridges::pause_of(store, which).await.ok()??.reason
            }
            _ => None,
        }
    }

    /// The same by other ways, if it asks first.
    pub(super) async fn ways(&self, app: &Shared) -> Option<Ways> {
        let On::Groups { queue: name, whose, change: None } = &self.on else {
            return Ways::of(self);
        };
        let mut queue = find::queue(&*app.store, name).await.ok()?.queue;
        self.amend(&mut queue).ok()?;
        Ways::of_ungrouping(name, whose, &Limits::of(&queue))
    }

    /// The deed that gives a queue the limits back that it has now; none if this one leaves them as they are.
    async fn restores(&self, app: &Shared) -> Option<Self> {
        let mut queue = find::queue(&*app.store, self.queue()?).await.ok()?.queue;
        let limits = Limits::of(&queue);
        self.amend(&mut queue).ok()?;
        let was = Limits::of(&queue);
        let changes = limits != was;
        Self::new("queue.restore", On::Limits { queue: queue.name, limits, was })
            .filter(|_| changes)
    }

    /// Changes the limits of a queue.
    fn amend(&self, queue: &mut Queue) -> seriatim::Result<()> {
        match &self.on {
            On::Limit { running, rate, .. } => {
                if queue.limit.rate != *rate {
                    // It belongs to its rate.
                    queue.limit.burst = None;
                }
                (queue.limit.running, queue.limit.rate) = (*running, *rate);
            }
            On::Groups { whose, change: Some(change), .. } => change.apply(queue, whose),
            On::Groups { whose, change: None, .. } => limits::remove(queue, whose)?,
            On::Limits { limits, was, .. } => {
                if Limits::of(queue) != *was {
                    let message = format!("{}: {CHANGED}", self.target());
                    return Err(seriatim::Error::new(ErrorKind::Conflict, message));
                }
                limits.clone().give(queue);
            }
            _ => {}
        }
        Ok(())
    }

    async fn change_limits(&self, app: &Shared, queue: &str) -> Result<()> {
        let amend = |queue: &mut Queue| self.amend(queue);
        limits::change(&*app.store, queue, amend).await.map_err(naming)?;
        app.queues.seen.forget();
        Ok(())
    }

    /// The last time that this, or what it takes back, was done.
    async fn last(&self, app: &Shared, other: &Self) -> seriatim::Result<Option<Done>> {
        let (one, other) = (self.kind.action(), other.kind.action());
        let name = match &self.on {
            On::Lane { lane: OneLane::Key(key), .. } => Some(one_line(key)),
            On::Lane { lane: OneLane::Lane(lane), .. } => Some(lane.to_string()),
            On::Due { job, .. } | On::Bound { job, .. } => Some(job.to_string()),
            On::Cron(name) | On::Bridge { name, .. } => Some(one_line(name)),
            On::Node(node) => Some(one_line(node)),
            _ => None,
        };
        let source = match &self.on {
            On::Bridge { source, .. } => source.as_deref(),
            _ => None,
        };
        let object = undo::Object { name: name.as_deref(), queue: self.queue(), source };
        let also = match self.kind.name {
            "job.bind" => "job reassign",
            "job.reschedule" => "job retry",
            _ => &*one,
        };
        undo::last(&*app.store, &object, &[&one, &other, also]).await
    }

    /// Refuses to take back the deed of another request than this one, or more than that deed.
    pub(super) async fn check_undo(&self, app: &Shared, undoes: &str) -> Result<()> {
        if matches!(self.on, On::Limits { .. }) {
            // It looks itself at what it changes.
            return Ok(());
        }
        let changed = || Err(Problem::conflict(format!("{}: {CHANGED}", self.target())));
        let Some(other) = self.undo() else { return Ok(()) };
        let last = self.last(app, &other).await?;
        if last.as_ref().is_some_and(|last| last.request_id.as_deref() != Some(undoes)) {
            return changed();
        }
        let On::Lane { queue, lane } = &self.on else { return Ok(()) };
        let store = &*app.store;
        if let (Some(last), OneLane::Key(key)) = (last, lane)
            && undo::is_paused_since(store, queue, key, &last).await?
        {
            return changed();
        }
        if self.kind.name == "lane.resume" && undo::is_held(store, queue, lane).await? {
            let detail = "nothing was done: its retries have been used up since, so resuming it would end its hold too. Do that on its page";
            return Err(Problem::conflict(format!("{}: {detail}", self.target())));
        }
        Ok(())
    }

    /// What was done, in words.
    pub(super) async fn done(&self, app: &Shared, count: u64) -> String {
        let undone = match &self.on {
            On::Operation(id) if count > 0 => undone(app, id).await,
            _ => None,
        };
        let done = match (&self.on, count) {
            (On::Operation(_), 0) => "too late, it has ended",
            _ => undone.unwrap_or(self.kind.done),
        };
        format!("{}: {done}", self.target())
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
        let name = self.kind.name;
        let (store, verb) = (&*app.store, name.split_once('.').map_or("", |(_, verb)| verb));
        match (&self.on, verb) {
            (On::Queue(queue), "pause" | "resume") => {
                find::queue(store, queue).await?;
                store.pause_queue(queue.as_str().into(), verb == "pause").await?;
            }
            (On::Limit { queue, .. } | On::Groups { queue, .. } | On::Limits { queue, .. }, _) => {
                self.change_limits(app, queue).await?;
            }
            (On::Lane { queue, lane }, "release") => {
                return Ok(lanes::release(store, queue, lane.clone()).await?);
            }
            (On::Lane { queue, lane }, _) => {
                let action = lane_action(verb).ok_or_else(|| unknown(name))?;
                find::queue(store, queue).await?;
                return Ok(lanes::act(store, queue, lane.clone(), action).await?);
            }
            (On::Job(job), "retry") => drop(jobs::retried(store, *job).await?),
            (On::Job(job), "cancel") => cancel(app, *job).await?,
            (On::Due { job, at, .. }, _) => {
                let at = due(at, store.now().await?)?;
                jobs::amended(store, *job, Change::RunAt(at)).await?;
            }
            (On::Bound { job, node, .. }, _) => {
                jobs::amended(store, *job, Change::Node(node.clone())).await?;
            }
            (On::Dead { queue, job, payload }, "edit") => {
                let payload = Payload::from_json_text(payload.as_deref().unwrap_or_default())?;
                morgue::edit(store, queue, *job, payload).await?;
            }
            (On::Dead { queue, job, .. }, "requeue") => requeue(app, queue, *job).await?,
            (On::Operation(id), "stop") => {
                let stopped = operations::stop(store, id, who).await?.stopped_by;
                return Ok(u64::from(stopped.is_some()));
            }
            (On::Batch(id), "seal") => drop(app.client.seal_batch(id.as_str()).await?),
            (On::Node(node), "release") => return Ok(nodes::release(store, node).await?.1),
            (On::Node(node), _) => {
                let command = node_command(verb).ok_or_else(|| unknown(name))?;
                nodes::command(store, node, command).await?;
            }
            (On::Bridge { name, source }, "pause") => {
                let which = which(name, source.as_deref());
                drop(bridges::pause(store, which, who, self.reason.as_deref()).await?);
            }
            (On::Bridge { name, source }, "resume") => {
                drop(bridges::resume(store, which(name, source.as_deref())).await?);
            }
            (On::Cron(name), "run") => drop(cron::run(store, name, who).await?),
            (On::Cron(name), "pause") => {
                drop(cron::pause(store, name, who, self.reason.as_deref()).await?);
            }
            (On::Cron(name), "resume") => drop(cron::resume(store, name).await?),
            // Deletions wait; see [`Self::waits`].
            _ => return Err(unknown(name)),
        }
        Ok(1)
    }
}

/// What is said of a deletion that is stopped before it may begin; none of what has, or may have, begun.
async fn undone(app: &Shared, id: &str) -> Option<&'static str> {
    let operation = operations::show(&*app.store, id).await.ok()?;
    let starts = time::read(&operation.starts_at).ok()?;
    let is_early = operation.stopped_by.is_some() && app.store.now().await.ok()? < starts;
    Some(match operation.what.action {
        _ if !is_early => return None,
        Action::CancelJobs => "undone: nothing was cancelled",
        action if action.deletes() => "undone: nothing was deleted",
        _ => return None,
    })
}

fn which<'a>(bridge: &'a str, source: Option<&'a str>) -> Which<'a> {
    Which { bridge, source, configured: &[] }
}

fn lane_action(verb: &str) -> Option<LaneAction> {
    Some(match verb {
        "pause" => LaneAction::Pause,
        "resume" => LaneAction::Resume,
        "retry" => LaneAction::RunNow,
        "bury" => LaneAction::Bury,
        _ => return None,
    })
}

fn node_command(verb: &str) -> Option<Command> {
    Some(match verb {
        "quiet" => Command::Quiet,
        "resume" => Command::Resume,
        "stop" => Command::Stop,
        _ => return None,
    })
}

fn unknown(name: &str) -> Problem {
    Problem::invalid("deed", format!("there is no action {name:?}"))
}

/// What a form about a queue is about.
fn on_queue(name: &str, queue: String, text: &impl Fn(&str) -> Option<String>) -> Result<On> {
    let limits = |name: &str| {
        let text = text(name).unwrap_or_default();
        Limits::read(&text).map_err(|error| Problem::invalid(name, error.to_string()))
    };
    Ok(match name {
        "queue.limits" => {
            On::Limit { queue, running: number("running", text)?, rate: number("rate", text)? }
        }
        "queue.group" | "queue.ungroup" => On::Groups {
            queue,
            whose: text("group").map_or(Whose::EachGroup, Whose::Group),
            change: if name == "queue.group" { Some(amended(text)?) } else { None },
        },
        "queue.restore" => On::Limits { queue, limits: limits("limits")?, was: limits("was")? },
        _ => On::Queue(queue),
    })
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
    let missing = "fill in what to change: weight, turns at once, or starts";
    if change.is_none() { Err(Problem::invalid("weight", missing)) } else { Ok(change) }
}

/// A time, or a length from now.
fn due(text: &str, now: Timestamp) -> Result<Timestamp> {
    let text = text.trim();
    let length = || seriatim::duration::parse(text).ok().map(|length| now + length);
    // To one it is minutes, to another one Unix seconds.
    let is_number = text.parse::<f64>().is_ok();
    let at = time::read(text).ok().or_else(length).filter(|_| !is_number);
    let wrong = "write a time such as 2026-01-31T12:00:00Z, or how long from now, such as 10m";
    at.ok_or_else(|| Problem::invalid("at", wrong))
}

async fn cancel(app: &Shared, id: JobId) -> Result<()> {
    let cancelled = app.store.cancel(Cancel { now: None, jobs: vec![id] }).await?;
    match cancelled.first() {
        Some(Cancelled::Now | Cancelled::Flagged) => Ok(()),
        Some(Cancelled::Ended) => Err(Problem::conflict("this job has ended")),
        Some(Cancelled::Unknown) | None => {
            find::job(&*app.store, id).await.map(drop).map_err(Problem::from)
        }
    }
}

async fn requeue(app: &Shared, queue: &str, job: JobId) -> Result<()> {
    let which = Selection::Jobs(vec![job]);
    let selected = Selected { now: None, queue: queue.into(), which };
    match app.store.requeue(selected).await?.count {
        0 => Err(Problem::conflict("this job is not dead any more")),
        _ => Ok(()),
    }
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
                ("queue", "restore") => {
                    let running = Queue::fifo("orders").running(3);
                    let (limits, was) = (Limits::of(&running), Limits::default());
                    On::Limits { queue: queue(), limits, was }
                }
                ("queue", _) => On::Queue(queue()),
                ("node", _) => On::Node("a".to_owned()),
                ("cron", _) => On::Cron("n".to_owned()),
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
            let deed = Deed { reason: Some("r".to_owned()), ..Deed::new(kind.name, on).unwrap() };
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
