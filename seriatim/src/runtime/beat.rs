//! Says that the node lives, once for all it holds, and acts on what comes back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fetch::jittered;
use super::shared::Shared;
use crate::error::Result;
use crate::store::{Beat, Heartbeat, NodeInfo, Pulse};

/// Progress is told at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Handlers are cancelled so long before their lease would run out, as a share of the lease.
const MARGIN: u32 = 5;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut last = Instant::now();
    let mut is_lost = false;
    loop {
        let pause = jittered(shared.settings.heartbeat);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.progressed.notified() => tokio::time::sleep(PROGRESS_INTERVAL.min(pause)).await,
        }
        match shared.beat_once().await {
            Ok(pulse) => {
                (last, is_lost) = (Instant::now(), false);
                act(&shared, &pulse).await;
            }
            Err(error) => {
                let lease = shared.settings.lease;
                if last.elapsed() > lease - lease / MARGIN && !is_lost {
                    is_lost = true;
                    tracing::error!(%error, "no heartbeat reached the store for almost a lease: handlers are cancelled");
                    shared.drop_buffered();
                    shared.cancel_all();
                }
            }
        }
    }
}

impl Shared {
    pub(super) async fn beat_once(&self) -> Result<Pulse> {
        let told = self.take_progress();
        let beats = told.into_iter().map(|(lane, (token, progress))| Beat {
            lane,
            token,
            progress: Some(progress),
            extend: None,
        });
        let request = Heartbeat { now: None, node: self.node_info(), beats: beats.collect() };
        let pulse = self.store.heartbeat(request).await?;
        self.set_clock(self.store.now().await?);
        Ok(pulse)
    }

    fn node_info(&self) -> NodeInfo {
        let settings = &self.settings;
        let mut queues: Vec<String> = self.queues.keys().cloned().collect();
        queues.sort_unstable();
        NodeInfo {
            name: settings.name.clone(),
            host: host(),
            queues,
            concurrency: u32::try_from(settings.concurrency).unwrap_or(u32::MAX),
            busy: u32::try_from(self.busy()).unwrap_or(u32::MAX),
            started_at: self.started_at,
            ..NodeInfo::new(self.node(), settings.lease)
        }
    }
}

async fn act(shared: &Shared, pulse: &Pulse) {
    for notice in &pulse.cancel {
        shared.flag(notice.lane, notice.token, &notice.jobs);
    }
    shared.lose(&pulse.lost);
    if pulse.alive {
        return;
    }
    tracing::warn!(node = %shared.node(), "this node was declared dead: it drops what it holds and takes a new id");
    if let Some(observer) = &shared.settings.observer {
        observer.lost(&shared.held_tokens());
    }
    shared.drop_buffered();
    shared.cancel_all();
    shared.renew_node();
    if let Err(error) = shared.beat_once().await {
        tracing::warn!(%error, "the new id could not be registered yet");
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}
