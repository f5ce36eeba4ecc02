//! The fleet role: heartbeats, rescue, release, commands, leadership, and the sweep; and the secret.

use async_trait::async_trait;
use rusqlite::params;

use super::Sqlite;
use super::row::{Job, flag};
use super::tx::Tx;
use crate::contract::errors::no_living_node;
use crate::contract::{
    Beat, CancelNotice, Command, DeclareDead, Fleet, GiveUp, Heartbeat, Lead, NodeView, Pulse,
    Release, Rescue, Secret, Sweep, Swept,
};
use crate::model::clock::micros;
use crate::model::{Error, ErrorKind, LaneId, NodeId, Result, Timestamp, Token, Turn};
use crate::stores::gone;
use crate::stores::json::json;

#[async_trait]
impl Fleet for Sqlite {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.change_first(move |tx| tx.at(request.now).heartbeat(&request)).await
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.change(move |tx| tx.at(request.now).rescue(&request)).await
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.change(move |tx| tx.at(request.now).release(&request)).await
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        self.change(move |tx| tx.at(request.now).declare_dead(&request)).await
    }

    async fn command_node(&self, node: NodeId, command: Command) -> Result<()> {
        self.change(move |tx| tx.at(None).command_node(&node, command)).await
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.change(move |tx| tx.at(request.now).lead(&request)).await
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.change(move |tx| tx.at(request.now).sweep(request.most())).await
    }
}

impl Tx<'_> {
    pub(super) fn heartbeat(&mut self, request: &Heartbeat) -> Result<Pulse> {
        request.validate()?;
        let node = &request.node;
        let sql = "INSERT INTO node (id, info, lease, beat_at, dead_at) VALUES (?1, ?2, ?3, ?4, iif(?3 = 0, ?4, NULL))
                   ON CONFLICT (id) DO UPDATE SET info = excluded.info, lease = excluded.lease,
                     beat_at = max(beat_at, excluded.beat_at), dead_at = excluded.dead_at
                   WHERE dead_at IS NULL";
        let row = params![&*node.id.0, json(node)?, micros(node.lease), self.now];
        let alive = self.execute(sql, row)? == 1 && !node.has_stopped();
        let sql = "SELECT command FROM node WHERE id = ?1";
        let command: Option<String> = self.first(sql, [&*node.id.0], |row| row.get(0))?.flatten();
        let mut lost = Vec::new();
        for beat in &request.beats {
            if !self.beat(beat)? {
                lost.push(beat.lane);
            }
        }
        let cancel = self.notices(&node.id, &request.beats)?;
        let command = command.and_then(|c| command_named(&c));
        Ok(Pulse { alive, cancel, lost, command, moved: false })
    }

    fn beat(&mut self, beat: &Beat) -> Result<bool> {
        let is_current = self.extend(beat)? || (self.unfold_lane(beat)? && self.extend(beat)?);
        if !is_current {
            return Ok(false);
        }
        let lane = beat.lane;
        if let Some(length) = beat.extend {
            let row = self.queue_number(lane.queue)?;
            let length = row.map_or(length, |row| length.min(row.queue.lease_max));
            let sql =
                "UPDATE claim SET until = max(until, ?2) WHERE tok = ?1 AND until IS NOT NULL";
            self.execute(sql, params![beat.token.0, self.now.saturating_add(micros(length))])?;
        }
        Ok(true)
    }

    /// Notes the beat in the lane's row, if the row shows the claim.
    fn extend(&self, beat: &Beat) -> Result<bool> {
        let sql = "UPDATE lane SET beat_at = ?4, progress = coalesce(?5, progress),
                     flags = iif(?5 IS NULL, flags, flags | 32)
                   WHERE id = ?1 AND tok = ?2 AND st = 2 AND q = ?3";
        let lane = beat.lane;
        let row = params![lane.number as i64, beat.token.0, lane.queue, self.now, beat.progress];
        Ok(self.execute(sql, row)? == 1)
    }

    /// Whether the lane of a beat is claimed. From now on its row shows it.
    fn unfold_lane(&mut self, beat: &Beat) -> Result<bool> {
        let work = self.lane(beat.lane.number as i64)?;
        Ok(work.is_some_and(|work| work.row.head.is_claimed()))
    }

    /// The flagged jobs in this node's claims and in the claims that its heartbeat names.
    fn notices(&mut self, node: &NodeId, beats: &[Beat]) -> Result<Vec<CancelNotice>> {
        let sql = "SELECT l.id, l.tok, c.node FROM lane l INDEXED BY lane_flagged LEFT JOIN claim c ON c.tok = l.tok
                   WHERE l.flags & 8 = 8 AND l.st = 2";
        let flagged: Vec<(i64, i64, Option<String>)> =
            self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut notices = Vec::new();
        for (id, token, holder) in flagged {
            let named =
                beats.iter().any(|beat| beat.lane.number as i64 == id && beat.token.0 == token);
            if !named && holder.as_deref() != Some(&*node.0) {
                continue;
            }
            let Some(work) = self.lane(id)? else { continue };
            let mut closed = self.closed_jobs(&work)?;
            closed.sort_by_key(Job::rank);
            let queue = work.queue.number;
            let flagged = closed.iter().filter(|job| job.flagged);
            let jobs = flagged.map(|job| job.id(queue)).collect();
            let lane = LaneId { queue, shard: 0, number: id as u64 };
            notices.push(CancelNotice { lane, token: Token(token), jobs });
        }
        Ok(notices)
    }

    pub(super) fn give_up(&mut self, request: &GiveUp) -> Result<()> {
        let sql = "UPDATE node SET given_up = max(given_up, ?2) WHERE id = ?1";
        self.execute(sql, params![&*request.node.0, request.ticket as i64]).map(drop)
    }

    pub(super) fn command_node(&mut self, node: &NodeId, command: Command) -> Result<()> {
        let sql = "UPDATE node SET command = ?2 WHERE id = ?1 AND dead_at IS NULL";
        let name = command.kept().map(|c| if c == Command::Quiet { "quiet" } else { "stop" });
        if self.execute(sql, params![&*node.0, name])? == 1 {
            return Ok(());
        }
        Err(no_living_node(node))
    }

    pub(super) fn declare_dead(&mut self, request: &DeclareDead) -> Result<bool> {
        let sql = "UPDATE node SET dead_at = ?1, beat_at = ?2
                   WHERE id = ?3 AND dead_at IS NULL AND beat_at = ?4";
        let kept = gone::set_back(request.heartbeat_at).as_micros();
        let row = params![self.now, kept, &*request.node.0, request.heartbeat_at.as_micros()];
        Ok(self.execute(sql, row)? == 1)
    }

    pub(super) fn lead(&mut self, request: &Lead) -> Result<bool> {
        let sql = "INSERT INTO leader VALUES (?1, ?2, ?3) ON CONFLICT (role) DO UPDATE
                   SET node = excluded.node, until = excluded.until WHERE node = excluded.node OR until <= ?4";
        let until = |length| self.now.saturating_add(micros(length));
        let row = params![request.role, &*request.node.0, until(request.ttl), self.now];
        let leads = self.execute(sql, row)? == 1;
        if !leads {
            let sql = "UPDATE leader SET until = ?2 WHERE role = ?1 AND until > ?2";
            self.execute(sql, params![request.role, until(request.longest())])?;
        }
        Ok(leads)
    }

    pub(super) fn secret(&mut self) -> Result<Option<Secret>> {
        let rows: Vec<[u8; 32]> = self.rows("SELECT bytes FROM secret", [], |row| row.get(0))?;
        Ok(rows.first().copied().map(Secret))
    }

    /// Stores the secret if there is none, and returns the stored one.
    pub(super) fn keep_secret(&mut self, offered: Secret) -> Result<Secret> {
        self.execute("INSERT OR IGNORE INTO secret VALUES (1, ?1)", params![offered.0])?;
        Ok(self.secret()?.unwrap_or(offered))
    }

    pub(super) fn node_views(&mut self) -> Result<Vec<NodeView>> {
        let sql = "SELECT info, beat_at, dead_at, command FROM node ORDER BY id";
        let rows: Vec<(String, i64, Option<i64>, Option<String>)> =
            self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let view =
            |(info, beat_at, dead_at, command): (String, i64, Option<i64>, Option<String>)| {
                let info = serde_json::from_str(&info).map_err(|e| {
                    Error::new(
                        ErrorKind::Corrupt,
                        "the stored description of a node cannot be read",
                    )
                    .because(e)
                })?;
                let heartbeat_at = gone::as_it_was(Timestamp::from_micros(beat_at));
                let command = command.and_then(|c| command_named(&c));
                Ok(NodeView { info, heartbeat_at, dead: dead_at.is_some(), command })
            };
        rows.into_iter().map(view).collect()
    }

    /// Flags a running job for cancellation.
    pub(super) fn flag(&mut self, lane: i64, seq: i64) -> Result<()> {
        let sql =
            "UPDATE lane SET flags = flags | ?2, flagged = flagged OR (seq IS ?3) WHERE id = ?1";
        self.execute(sql, params![lane, flag::FLAGGED, seq])?;
        self.execute("UPDATE item SET flagged = 1 WHERE seq = ?1", [seq]).map(drop)
    }
}

fn command_named(name: &str) -> Option<Command> {
    match name {
        "quiet" => Some(Command::Quiet),
        "stop" => Some(Command::Stop),
        _ => None,
    }
}
