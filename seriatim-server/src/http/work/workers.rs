//! The remote workers that this process knows, each as a node of the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::{Beat, Command, Heartbeat, NodeInfo, Pulse, Store};
use seriatim::{
    SharedStore, Timestamp,
    store::{NodeId, REMOTE_NAME_START},
};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::super::limits::{
    LEASE_DEFAULT, LEASE_SECONDS, WORKER_SILENT_MAX, WORKERS_PER_TOKEN_MAX,
};
use super::super::{Caller, Problem, Result};
use super::secret::Secrets;

use crate::base::lock::lock;

/// How often per lease a worker's node sends a heartbeat to the store.
const BEATS_PER_LEASE: u32 = 3;
/// Longest name of a worker, in bytes.
const WORKER_BYTES_MAX: usize = 256;
/// The name of a worker in schemas: printable ASCII.
pub(super) const WORKER_PATTERN: &str = "^[ -~]{1,256}$";
/// When to try again with another name.
const FULL_RETRY: Duration = Duration::from_secs(60);

/// By the token that they come with, and by name.
type ByToken = HashMap<Option<Arc<str>>, HashMap<Arc<str>, Known>>;

/// What this process knows of them.
#[derive(Default)]
pub(crate) struct Workers {
    known: Mutex<ByToken>,
    pub(super) secrets: Secrets,
    /// See [`Workers::line`].
    line: OnceCell<SharedStore>,
}

/// A remote worker.
pub(super) struct Remote {
    bearer: Option<Arc<str>>,
    /// Its name as a node: `remote:TOKEN/WORKER`, or `remote:WORKER` where there are no tokens.
    pub(super) name: Arc<str>,
}

/// What is known of one.
#[derive(Clone)]
struct Known {
    info: NodeInfo,
    /// The lease that its last claim asked for, if that is known here.
    lease: Option<Duration>,
    heard_at: Instant,
    beat_at: Option<Instant>,
    /// What an operator asked of it, as of its last heartbeat.
    command: Option<Command>,
}

impl Remote {
    /// The worker that calls itself so. It can neither be an engine nor the worker of another token.
    pub(super) fn new(caller: &Caller, worker: &str) -> Result<Self> {
        check_name(worker)?;
        let bearer = caller.bearer();
        let name = match &bearer {
            Some(token) => format!("{REMOTE_NAME_START}{token}/{worker}").into(),
            None => format!("{REMOTE_NAME_START}{worker}").into(),
        };
        Ok(Self { bearer, name })
    }
}

/// Refuses a name that no node may have.
pub(super) fn check_name(worker: &str) -> Result<()> {
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX || worker.chars().any(char::is_control)
    {
        let detail = format!("must be 1 to {WORKER_BYTES_MAX} bytes without control characters");
        return Err(Problem::invalid("worker", detail));
    }
    Ok(())
}

/// The lease that was asked for.
pub(super) fn lease(seconds: Option<f64>) -> Result<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if LEASE_SECONDS.contains(&seconds) => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        Some(_) => {
            let (least, most) = LEASE_SECONDS.into_inner();
            let detail = format!("must be {least} to {most} seconds");
            Err(Problem::invalid("lease_ttl_sec", detail))
        }
    }
}

impl Workers {
    /// The store's connection for heartbeats. All others may be in use by calls that wait for a transaction of a user, and
    /// the claims of workers that live must not end meanwhile.
    pub(super) async fn line<'a>(&'a self, store: &SharedStore) -> Result<&'a SharedStore> {
        let open = async || match store.heartbeat_line() {
            Some(opening) => opening.await,
            None => Ok(store.clone()),
        };
        Ok(self.line.get_or_try_init(open).await?)
    }

    /// The lease that the worker's last claim asked for. Of one that claimed from another process, or from this one before
    /// it was started again, the store knows it: as that of a node of this name.
    pub(super) async fn lease_of(&self, store: &dyn Store, worker: &Remote) -> Result<Duration> {
        if let Some(lease) = self.change(worker, |_| {})?.lease {
            return Ok(lease);
        }
        let nodes = store.nodes().await?.into_iter();
        let its = nodes.filter(|node| !node.dead && node.info.name == worker.name);
        let Some(lease) = its.map(|node| node.info.lease).max() else { return Ok(LEASE_DEFAULT) };
        // Its node here tells the next process, when the other one is gone.
        self.change(worker, |known| (known.lease, known.info.lease) = (Some(lease), lease))?;
        Ok(lease)
    }

    /// What an operator asks of the worker, as of its last heartbeat. It gets no more work then.
    pub(super) fn command_of(&self, worker: &Remote) -> Option<Command> {
        let all = lock(&self.known);
        let known = all.get(&worker.bearer).and_then(|workers| workers.get(&worker.name));
        known.and_then(|known| known.command)
    }

    /// The node as which the worker claims; sends a heartbeat if that is due.
    pub(super) async fn claiming(
        &self,
        store: &SharedStore,
        worker: &Remote,
        (queues, groups): (&[String], &[Arc<str>]),
        lease: Duration,
    ) -> Result<NodeId> {
        let known = self.change(worker, |known| {
            known.lease = Some(lease);
            let of_node = lease.max(LEASE_DEFAULT);
            if of_node > known.info.lease {
                // Another process may have to know it before the next heartbeat.
                known.beat_at = None;
            }
            known.info.lease = of_node;
            known.info.queues = queues.to_vec();
            known.info.groups = groups.iter().map(ToString::to_string).collect();
        })?;
        let beats_every = known.info.lease / BEATS_PER_LEASE;
        if known.beat_at.is_none_or(|at| at.elapsed() >= beats_every) {
            return self.beat(store, worker, Vec::new()).await.map(|(node, _)| node);
        }
        Ok(known.info.id)
    }

    /// Sends the worker's heartbeat, under a new name if it was declared dead.
    pub(super) async fn beat(
        &self,
        store: &SharedStore,
        worker: &Remote,
        beats: Vec<Beat>,
    ) -> Result<(NodeId, Pulse)> {
        let store = &**self.line(store).await?;
        let mut node = self.change(worker, |_| {})?.info;
        let beat =
            |node: &NodeInfo| Heartbeat { now: None, node: node.clone(), beats: beats.clone() };
        let mut pulse = store.heartbeat(beat(&node)).await?;
        if !pulse.alive {
            node = self.rename(worker, &node.id)?;
            pulse = store.heartbeat(beat(&node)).await?;
        }
        // In an emptied store a node must send a heartbeat before it claims, so that no claim is made
        // there before its key is known.
        self.secrets.learn(store).await?;
        self.change(worker, |known| {
            known.beat_at = Some(Instant::now());
            known.command = pulse.command;
        })?;
        Ok((node.id, pulse))
    }

    /// Takes a new name for a worker that was declared dead under this one.
    pub(super) fn rename(&self, worker: &Remote, dead: &NodeId) -> Result<NodeInfo> {
        let known = self.change(worker, |known| {
            if known.info.id == *dead {
                known.info.id = NodeId::unique(&worker.name);
                known.info.started_at = Timestamp::of_this_machine();
                known.beat_at = None;
            }
        });
        known.map(|known| known.info)
    }

    fn change(&self, worker: &Remote, change: impl FnOnce(&mut Known)) -> Result<Known> {
        let mut all = lock(&self.known);
        let workers = all.entry(worker.bearer.clone()).or_default();
        if !workers.contains_key(&worker.name) && workers.len() >= WORKERS_PER_TOKEN_MAX {
            workers.retain(|_, known| known.heard_at.elapsed() < WORKER_SILENT_MAX);
            if workers.len() >= WORKERS_PER_TOKEN_MAX {
                let silent = seriatim::duration::format(WORKER_SILENT_MAX);
                let detail = format!(
                    "this token has {WORKERS_PER_TOKEN_MAX} workers: reuse their names; a worker silent for {silent} makes room"
                );
                return Err(Problem::too_many(detail).about("worker").after(FULL_RETRY));
            }
        }
        let known = workers.entry(worker.name.clone());
        let known = known.or_insert_with(|| Known::new(&worker.name));
        known.heard_at = Instant::now();
        change(known);
        Ok(known.clone())
    }
}

impl Known {
    fn new(name: &Arc<str>) -> Self {
        let mut info = NodeInfo::new(NodeId::unique(name), LEASE_DEFAULT);
        (info.name, info.host, info.pid) = (name.clone(), "remote".to_owned(), 0);
        // It says how many lanes it wants, and neither how many it can run nor how many it runs.
        info.concurrency = 0;
        let (heard_at, beat_at) = (Instant::now(), None);
        Self { info, lease: None, heard_at, beat_at, command: None }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::super::super::caller::{Class, Party};
    use super::super::super::scope::Scope;
    use super::*;
    use crate::http::who::Who;

    fn remote(token: Option<&str>, worker: &str) -> Remote {
        let party = token.map_or(Party::Unknown, |name| Party::Token(name.into()));
        let caller =
            Caller { party, class: Class::Workers, who: Who::Anybody, scope: Scope::default() };
        Remote::new(&caller, worker).unwrap()
    }

    #[test]
    fn no_two_tokens_have_a_worker_of_one_name() {
        assert_eq!(&*remote(None, "w").name, "remote:w");
        assert_eq!(&*remote(Some("robot"), "w").name, "remote:robot/w");
        assert_ne!(remote(Some("a"), "b/c").name, remote(Some("b"), "a/c").name);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_names_fill_the_share_of_their_token_alone() {
        let workers = Workers::default();
        let call = |token, name: &str| workers.change(&remote(Some(token), name), |_| {});
        for i in 0..WORKERS_PER_TOKEN_MAX {
            call("robot", &format!("w{i}")).unwrap();
        }
        let refused = call("robot", "one more").err().unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(call("robot", "w7").is_ok(), "one that is known works on");
        assert!(call("other", "w").is_ok());
        tokio::time::advance(WORKER_SILENT_MAX).await;
        assert!(call("robot", "one more").is_ok());
        assert_eq!(lock(&workers.known)[&Some("robot".into())].len(), 1);
    }
}
