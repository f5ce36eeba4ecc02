//! Nodes: heartbeats, commands, leadership.

use super::{NodeRow, State};
use crate::contract::errors::no_living_node;
use crate::contract::{Beat, CancelNotice, Command, DeclareDead, Heartbeat, Lead, NodeView, Pulse};
use crate::model::{NodeId, Result, Timestamp};
use crate::stores::gone;

impl State {
    pub(in crate::stores) fn heartbeat(
        &mut self,
        now: Timestamp,
        request: Heartbeat,
    ) -> Result<Pulse> {
        request.validate()?;
        let id = request.node.id.clone();
        let row = self.nodes.entry(id.clone()).or_insert_with(|| NodeRow {
            info: request.node.clone(),
            beat_at: now,
            dead_at: None,
            command: None,
            given_up: 0,
        });
        if row.dead_at.is_none() {
            row.info = request.node;
            row.beat_at = row.beat_at.max(now);
            row.dead_at = row.info.has_stopped().then_some(now);
        }
        let alive = row.dead_at.is_none();
        let command = row.command;
        let mut named = Vec::new();
        let mut lost = Vec::new();
        for beat in request.beats {
            match self.beat(now, &beat) {
                true => named.push(beat.lane.number),
                false => lost.push(beat.lane),
            }
        }
        Ok(Pulse { alive, cancel: self.notices(&id, &named), lost, command, moved: false })
    }

    fn beat(&mut self, now: Timestamp, beat: &Beat) -> bool {
        let Some(lane) = self.lanes.get_mut(&beat.lane.number) else {
            return false;
        };
        let Some(hold) = lane.hold.as_mut() else {
            return false;
        };
        if lane.id != beat.lane || lane.token != beat.token {
            return false;
        }
        hold.beat_at = now;
        if beat.progress.is_some() {
            lane.progress.clone_from(&beat.progress);
        }
        if let Some(length) = beat.extend {
            let most = self.queues.get(&lane.id.queue).map(|row| row.queue.lease_max);
            hold.until = hold.until.max(now + most.map_or(length, |most| length.min(most)));
        }
        true
    }

    fn notices(&self, node: &NodeId, named: &[u64]) -> Vec<CancelNotice> {
        let mine = self.claimed.iter().filter_map(|number| {
            let lane = self.lanes.get(number)?;
            let hold = lane.hold.as_ref()?;
            let jobs: Vec<_> =
                hold.closed.iter().filter(|job| job.flagged).map(|job| job.id).collect();
            let is_notified = hold.node == *node || named.contains(number);
            (is_notified && !jobs.is_empty()).then_some(CancelNotice {
                lane: lane.id,
                token: lane.token,
                jobs,
            })
        });
        mine.collect()
    }

    pub(in crate::stores) fn command_node(
        &mut self,
        node: &NodeId,
        command: Command,
    ) -> Result<()> {
        let row = self.nodes.get_mut(node).filter(|row| row.dead_at.is_none());
        let row = row.ok_or_else(|| no_living_node(node))?;
        row.command = command.kept();
        Ok(())
    }

    pub(in crate::stores) fn declare_dead(
        &mut self,
        now: Timestamp,
        request: &DeclareDead,
    ) -> bool {
        let Some(row) = self.nodes.get_mut(&request.node) else { return false };
        if row.dead_at.is_some() || row.beat_at != request.heartbeat_at {
            return false;
        }
        row.dead_at = Some(now);
        row.beat_at = gone::set_back(row.beat_at);
        true
    }

    pub(in crate::stores) fn lead(&mut self, now: Timestamp, request: Lead) -> bool {
        let longest = now + request.longest();
        if let Some((leader, until)) = self.leaders.get_mut(&request.role)
            && *leader != request.node
            && *until > now
        {
            *until = longest.min(*until);
            return false;
        }
        self.leaders.insert(request.role, (request.node, now + request.ttl));
        true
    }

    pub(in crate::stores) fn node_views(&self) -> Vec<NodeView> {
        let views = self.nodes.values().map(|row| NodeView {
            info: row.info.clone(),
            heartbeat_at: gone::as_it_was(row.beat_at),
            dead: row.dead_at.is_some(),
            command: row.command,
        });
        views.collect()
    }
}
