//! The fleet role: heartbeats, rescue, release, commands, leadership, and the sweep.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::{
    column, count, job_id, job_ids, kept, lane_id, lane_number, micros, micros_of, sought,
};
use super::turn::turns;
use crate::contract::errors::no_living_node;
use crate::contract::release::NOBODY;
use crate::contract::{
    CancelNotice, ClaimSelection, Command, DeclareDead, Fleet, Heartbeat, Lead, Pulse, Release,
    Rescue, Sweep, Swept,
};
use crate::model::limits::{BATCH_KEPT, CLAIM_LANES_MAX};
use crate::model::{Error, ErrorKind, NodeId, Result, Token, Turn};
use crate::stores::gone;
use crate::stores::gone::DEAD_NODE_SHOWN;
use crate::stores::json::json;

const HEARTBEAT: &str = "SELECT * FROM seriatim.heartbeat($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const COMMAND: &str =
    "UPDATE seriatim.node SET command = $2 WHERE id = $1 AND dead_at IS NULL RETURNING id";
const DECLARE_DEAD: &str = "UPDATE seriatim.node SET dead_at = coalesce($1, seriatim.clock()), beat_at = $2 \
     WHERE id = $3 AND dead_at IS NULL AND beat_at = $4 RETURNING id";
const LEAD: &str = "SELECT seriatim.lead($1, $2, $3, $4)";

const MARK: &str = "SELECT seriatim.server_mark() AS mark";
const RESCUE: &str = "SELECT * FROM seriatim.rescue($1, $2, $3, $4, $5)";
const RELEASE: &str = "SELECT * FROM seriatim.release($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const SWEEP: &str = "SELECT * FROM seriatim.sweep($1, $2, $3, $4)";

#[async_trait]
impl Fleet for Postgres {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        request.validate()?;
        if !self.marks.knows(&request.node.id) {
            self.has_moved(&request.node.id).await?;
        }
        let (now, node) = (request.now.map(micros), kept(&request.node.id.0));
        // The view of nodes reads it as jsonb, which has no NUL.
        let info = json(&request.node)?.replace("\\u0000", "\\ufffd");
        let lease = micros_of(request.node.lease);
        let beats = &request.beats;
        let lanes: Vec<i64> = beats.iter().map(|beat| lane_number(beat.lane)).collect();
        let queues: Vec<i32> = beats.iter().map(|beat| beat.lane.queue as i32).collect();
        let tokens: Vec<i64> = beats.iter().map(|beat| beat.token.0).collect();
        let progress: Vec<_> = beats.iter().map(|b| b.progress.as_deref().map(kept)).collect();
        let extend: Vec<_> = beats.iter().map(|beat| beat.extend.map(micros_of)).collect();
        let params: super::pool::Params<'_> =
            &[&now, &node, &info, &lease, &lanes, &queues, &tokens, &progress, &extend];
        let row = self.pool.query_one(HEARTBEAT, params).await?;
        let lost: Vec<i32> = column(&row, "o_lost")?;
        let lane_of = |place: i32| beats.get(place as usize - 1).map(|beat| beat.lane);
        Ok(Pulse {
            alive: column(&row, "o_alive")?,
            cancel: notices(&row)?,
            lost: lost.into_iter().filter_map(lane_of).collect(),
            command: command(column(&row, "o_command")?),
            // A rescue tells.
            moved: false,
        })
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let (now, node) = (request.now.map(micros), kept(&request.node.0));
        let ttl = micros_of(request.lease);
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let ticket = request.ticket as i64;
        if self.has_moved(&request.node).await? {
            // The engine looks for lanes that it does not hold, as after any call whose answer is not known.
            let message = "PostgreSQL was restarted, or a standby took over, which may lack the last settles: the node \
                           compares its claims with the server's";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let rows = self.pool.query(RESCUE, &[&now, &node, &ttl, &lanes_max, &ticket]).await?;
        let Some((first, jobs)) = rows.split_first() else {
            return Ok(Vec::new());
        };
        if column(first, "o_gone")? {
            let message = "the rescuing node was itself declared dead: take a new id";
            return Err(Error::new(ErrorKind::NodeGone, message));
        }
        turns(jobs, 2, false)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let now = request.now.map(micros);
        let (mut name, mut key, mut lane, mut node) = (None, None, None, None);
        match &request.claims {
            ClaimSelection::Key { queue, key: of } => (name, key) = (Some(queue), Some(sought(of))),
            ClaimSelection::Lane(of) => lane = Some(*of),
            ClaimSelection::Queue(queue) => name = Some(queue),
            ClaimSelection::Node(of) => node = Some(kept(&of.0)),
        }
        let name = name.map(|name| kept(name));
        let (queue, number) = (lane.map(|lane| i64::from(lane.queue)), lane.map(lane_number));
        let made_by = request.made_by.map_or(i64::MAX, micros);
        let lanes_max = count(request.lanes_max, CLAIM_LANES_MAX);
        let params: super::pool::Params<'_> =
            &[&now, &name, &key, &queue, &number, &node, &made_by, &NOBODY, &lanes_max];
        turns(&self.pool.query(RELEASE, params).await?, 0, false)
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        let (now, node) = (request.now.map(micros), kept(&request.node.0));
        let (back, seen) = (gone::set_back(request.heartbeat_at), request.heartbeat_at);
        let params: super::pool::Params<'_> = &[&now, &micros(back), &node, &micros(seen)];
        Ok(!self.pool.query(DECLARE_DEAD, params).await?.is_empty())
    }

    async fn command_node(&self, node: NodeId, command: Command) -> Result<()> {
        let number = command.kept().map(|c| i16::from(c == Command::Stop));
        match self.pool.query(COMMAND, &[&kept(&node.0), &number]).await?.is_empty() {
            false => Ok(()),
            true => Err(no_living_node(&node)),
        }
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        let (role, node) = (kept(&request.role), kept(&request.node.0));
        let (now, ttl) = (request.now.map(micros), micros_of(request.ttl));
        let row = self.pool.query_one(LEAD, &[&now, &role, &node, &ttl]).await?;
        column(&row, "lead")
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        let now = request.now.map(micros);
        let rows_max = request.most() as i32;
        let shown = micros_of(DEAD_NODE_SHOWN);
        let kept = micros_of(BATCH_KEPT);
        let row = self.pool.query_one(SWEEP, &[&now, &rows_max, &shown, &kept]).await?;
        let expired = job_ids(&row, "o_expired", "o_expired_queue", "o_expired_created_at")?;
        self.ring_numbers(expired.iter().map(|id| id.queue() as i32).collect()).await;
        Ok(Swept {
            expired,
            completed: column::<_, i64>(&row, "o_completed")? as u64,
            dead: job_ids(&row, "o_dead", "o_dead_queue", "o_dead_created_at")?,
            more: column(&row, "o_more")?,
        })
    }
}

impl Postgres {
    /// Whether this is another server than the one that the node saw last.
    async fn has_moved(&self, node: &NodeId) -> Result<bool> {
        let row = self.pool.query_one(MARK, &[]).await?;
        Ok(self.marks.changed(node, column(&row, "mark")?))
    }
}

pub(super) fn command(number: Option<i16>) -> Option<Command> {
    number.map(|number| if number == 0 { Command::Quiet } else { Command::Stop })
}

/// One notice per lane; the jobs of a lane are adjacent.
fn notices(row: &Row) -> Result<Vec<CancelNotice>> {
    let list = |name| column::<_, Option<Vec<i64>>>(row, name).map(Option::unwrap_or_default);
    let (lanes, tokens, seqs) = (list("o_lane")?, list("o_token")?, list("o_seq")?);
    let created_at = list("o_created_at")?;
    let queues = column::<_, Option<Vec<i32>>>(row, "o_queue")?.unwrap_or_default();
    let mut notices: Vec<CancelNotice> = Vec::new();
    let rows = lanes.iter().zip(&queues).zip(&tokens).zip(&seqs).zip(&created_at);
    for ((((lane, queue), token), seq), created_at) in rows {
        let (lane, job) = (lane_id(*queue, *lane), job_id(*created_at, *queue, *seq));
        match notices.last_mut().filter(|notice| notice.lane == lane) {
            Some(notice) => notice.jobs.push(job),
            None => notices.push(CancelNotice { lane, token: Token(*token), jobs: vec![job] }),
        }
    }
    Ok(notices)
}
