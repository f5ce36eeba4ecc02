//! The fleet role: heartbeats, rescue, release, commands, leadership, and the sweep.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;

use super::bodies::Bodies;
use super::error::Try;
use super::gates::Lock;
use super::lane_row::{LaneRow, node_number};
use super::server::Server;
use super::sql::{Columns, LIST_MAX, list, text};
use super::work::{Work, by_id};
use super::{Inner, Mysql, claim, rescue};
use crate::contract::{
    Command, DeclareDead, Fleet, Heartbeat, Lead, Pulse, Release, Rescue, Sweep, Swept, Wake,
};
use crate::model::{Error, ErrorKind, NodeId, Result, Timestamp, Turn};
use crate::stores::json::json;

#[async_trait]
impl Fleet for Mysql {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        if !self.inner.marks.knows(&request.node.id) {
            has_moved(&self.inner, &request.node.id).await?;
        }
        transact!(self.inner, Lock::FREE, request.now, work => heartbeat(work, &request))
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        if has_moved(&self.inner, &request.node).await? {
            // The engine looks for lanes that it does not hold, as after any call whose answer is not known.
            let message = "MySQL was restarted, or a replica took over, which may lack the last settles: the node compares \
                           its claims with the server's";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let last = self.inner.last_walk.get();
        let rescued = transact!(
            self.inner, Lock::FREE, request.now, work => rescue::rescue(work, &request, last)
        );
        let (turns, walk) = rescued??;
        self.inner.last_walk.set(walk);
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let lock = Lock::of_release(&request);
        transact!(self.inner, lock.clone(), request.now, work => claim::release(work, &request))
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        transact!(
            self.inner, Lock::FREE, request.now, work => declare_dead(work, &request)
        )
    }

    async fn command_node(&self, node: NodeId, command: Command) -> Result<()> {
        transact!(self.inner, Lock::FREE, None, work => command_node(work, &node, command))
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        transact!(self.inner, Lock::FREE, request.now, work => lead(work, &request))
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        let swept = transact!(
            self.inner, Lock::Sweep, request.now, work => super::sweep::sweep(
                work, request.most(), &self.inner.names_to
            )
        )?;
        if !swept.expired.is_empty() {
            self.inner.ring(&Wake::All);
        }
        Ok(swept)
    }
}

/// Remembers the server. Whether the node saw another one before, or a restart.
async fn has_moved(store: &Inner, node: &NodeId) -> Result<bool> {
    let server = Server::read(store.pool.ask(Server::MARK).await?)?;
    Ok(store.marks.changed(node, server))
}

async fn heartbeat(work: &mut Work<'_>, request: &Heartbeat) -> Try<Pulse> {
    let id = request.node.id.clone();
    let known = |work: &Work<'_>| work.state.nodes.get(&id).cloned();
    work.load_nodes(Some(&id.0), "FOR UPDATE").await?;
    let before = known(work);
    let named: BTreeSet<u64> = request.beats.iter().map(|beat| beat.lane.number).collect();
    let locked = read_named(work, &named).await?;
    flagged(work, &id, &named).await?;
    let now = work.now;
    let pulse = work.state.heartbeat(now, request.clone())?;
    if let Some(row) = known(work) {
        let stored = before.as_ref().map(|row| (&row.info, row.beat_at));
        if stored != Some((&row.info, row.beat_at)) {
            let (name, info) = (text(&id.0), text(&json(&row.info)?));
            let dead_at = row.dead_at.map_or("NULL".into(), |at| at.as_micros().to_string());
            let sql = format!(
                "INSERT INTO seriatim_node (id, info, beat_at, dead_at) VALUES ({name},{info},{},{dead_at}) \
                 ON DUPLICATE KEY UPDATE info = VALUES(info), beat_at = VALUES(beat_at), \
                 dead_at = VALUES(dead_at)",
                row.beat_at.as_micros()
            );
            work.run(&sql).await?;
        }
        if stored.is_none() {
            let node = text(&id.0);
            let sql =
                format!("INSERT IGNORE INTO seriatim_ticket (node, given_up) VALUES ({node}, 0)");
            work.run(&sql).await?;
        }
    }
    extend_beside(work, &locked).await?;
    // The others were only read.
    work.state.lanes.retain(|lane, _| locked.contains(lane));
    work.lanes.retain(|lane, _| locked.contains(lane));
    work.jobs.retain(|_, job| job.lane.is_some_and(|lane| locked.contains(&lane)));
    if !named.is_empty() {
        work.save().await?;
    }
    Ok(pulse)
}

/// Extends own leases of lanes that other transactions have locked, in rows beside them.
async fn extend_beside(work: &mut Work<'_>, locked: &BTreeSet<u64>) -> Try<()> {
    let extended = |(number, before): (&u64, &LaneRow)| {
        let hold = work.state.lanes.get(number)?.hold.as_ref()?;
        let until = hold.until.as_micros();
        let is_later = before.claim.as_ref().is_some_and(|claim| claim.until < until);
        (is_later && !locked.contains(number)).then(|| format!("({number},{},{until})", before.tok))
    };
    let mut rows: Vec<String> = work.lanes.iter().filter_map(extended).collect();
    rows.sort_unstable();
    if rows.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO seriatim_extension (lane, tok, until) VALUES {} ON DUPLICATE KEY UPDATE \
         until = IF(tok = VALUES(tok), GREATEST(until, VALUES(until)), VALUES(until)), tok = VALUES(tok)",
        rows.join(",")
    );
    work.run(&sql).await.map(drop)
}

/// Reads the lanes that a heartbeat names, and locks those that no other transaction has locked. Returns the latter: a
/// heartbeat waits for no lane, and the next one stores the progress of the others.
async fn read_named(work: &mut Work<'_>, named: &BTreeSet<u64>) -> Try<BTreeSet<u64>> {
    let mut locked = BTreeSet::new();
    let all: Vec<u64> = named.iter().copied().collect();
    for ids in all.chunks(LIST_MAX) {
        let these = format!("{} FOR UPDATE SKIP LOCKED", by_id(ids.iter().copied()));
        locked.extend(work.read_lanes(&these, Bodies::None).await?);
        let left: Vec<u64> =
            ids.iter().copied().filter(|id| !work.lanes.contains_key(id)).collect();
        if !left.is_empty() {
            work.read_lanes(&by_id(left), Bodies::None).await?;
        }
    }
    Ok(locked)
}

/// Reads the flagged jobs in this node's claims and in the claims that its heartbeat names. They are only read.
async fn flagged(work: &mut Work<'_>, node: &NodeId, named: &BTreeSet<u64>) -> Try<()> {
    let sql = format!(
        "SELECT DISTINCT l.id FROM seriatim_flag f JOIN seriatim_lane l ON l.id = f.lane \
         WHERE l.st = 2 AND (l.node = {} OR l.id IN ({}))",
        node_number(&node.0),
        list(named.iter().copied())
    );
    let mut lanes = HashSet::new();
    for row in work.rows(&sql).await? {
        lanes.insert(Columns::of(row).int()? as u64);
    }
    if lanes.is_empty() {
        return Ok(());
    }
    let ids = list(&lanes);
    work.read_lanes(&by_id(lanes), Bodies::None).await?;
    let from = format!(
        "FROM seriatim_flag f JOIN seriatim_job j ON j.seq = f.seq JOIN seriatim_lane l ON l.id = j.lane \
         WHERE f.lane IN ({ids}) AND (j.gen < l.open OR j.seq = l.taken)"
    );
    work.read_jobs(&from, Bodies::None).await?;
    Ok(())
}

async fn command_node(work: &mut Work<'_>, node: &NodeId, command: Command) -> Try<()> {
    work.load_nodes(Some(&node.0), "FOR UPDATE").await?;
    work.state.command_node(node, command)?;
    let name = command.kept().map_or("NULL".to_owned(), |command| text(command.as_str()));
    let sql = format!("UPDATE seriatim_node SET command = {name} WHERE id = {}", text(&node.0));
    work.run(&sql).await?;
    Ok(())
}

async fn declare_dead(work: &mut Work<'_>, request: &DeclareDead) -> Try<bool> {
    work.load_nodes(Some(&request.node.0), "FOR UPDATE").await?;
    let declared = work.state.declare_dead(work.now, request);
    if let Some(row) = work.state.nodes.get(&request.node).filter(|_| declared) {
        let sql = format!(
            "UPDATE seriatim_node SET dead_at = {}, beat_at = {} WHERE id = {}",
            work.now.as_micros(),
            row.beat_at.as_micros(),
            text(&request.node.0)
        );
        work.run(&sql).await?;
    }
    Ok(declared)
}

async fn lead(work: &mut Work<'_>, request: &Lead) -> Try<bool> {
    let role = text(&request.role);
    let sql = format!(
        "INSERT INTO seriatim_leader (role, node, until) VALUES ({role}, '', 0) ON DUPLICATE KEY UPDATE role = role; \
         SELECT node, until FROM seriatim_leader WHERE role = {role} AND node <> ''"
    );
    let answers = work.run(&sql).await?;
    for row in answers.into_iter().skip(1).flat_map(|answer| answer.rows) {
        let mut row = Columns::of(row);
        let leader = (NodeId(row.text()?), Timestamp::from_micros(row.int()?));
        work.state.leaders.insert(request.role.clone(), leader);
    }
    let before = work.state.leaders.get(&request.role).cloned();
    let now = work.now;
    let leads = work.state.lead(now, request.clone());
    let after = work.state.leaders.get(&request.role);
    if let Some((node, until)) = after.filter(|_| after != before.as_ref()) {
        let sql = format!(
            "UPDATE seriatim_leader SET node = {}, until = {} WHERE role = {role}",
            text(&node.0),
            until.as_micros()
        );
        work.run(&sql).await?;
    }
    Ok(leads)
}
