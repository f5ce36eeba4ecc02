//! Nodes: heartbeats, commands, leadership.

use tokio_postgres::Row;

use super::Postgres;
use super::convert::{column, job_id, kept, lane_id, lane_number, micros, micros_of};
use crate::contract::{
    Beat, CancelNotice, Command, DeclareDead, GiveUp, Heartbeat, Lead, NodeInfo, NodeView, Pulse,
    Secret,
};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{NodeId, Token};
use crate::model::limits::PROGRESS_BYTES_MAX;
use crate::stores::gone;

const HEARTBEAT: &str = "SELECT * FROM seriatim.heartbeat($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const COMMAND: &str =
    "UPDATE seriatim.node SET command = $2 WHERE id = $1 AND dead_at IS NULL RETURNING id";
const GIVE_UP: &str = "SELECT seriatim.give_up($1, $2)";
const DECLARE_DEAD: &str = "UPDATE seriatim.node SET dead_at = coalesce($1, seriatim.clock()), beat_at = $2 \
     WHERE id = $3 AND dead_at IS NULL AND beat_at = $4 RETURNING id";
const LEAD: &str = "SELECT seriatim.lead($1, $2, $3, $4)";
const SECRET: &str = "SELECT bytes FROM seriatim.secret";
const KEEP_SECRET: &str = "INSERT INTO seriatim.secret (bytes) VALUES ($1) ON CONFLICT DO NOTHING";
const NODES: &str = "SELECT * FROM seriatim.node ORDER BY id";

impl Postgres {
    pub(super) async fn beat(&self, request: Heartbeat) -> Result<Pulse> {
        request.beats.iter().try_for_each(check_progress)?;
        let (now, node) = (request.now.map(micros), kept(&request.node.id.0));
        let wrong = |e| Error::new(ErrorKind::Internal, "a node cannot be written").because(e);
        let info = serde_json::to_string(&request.node).map_err(wrong)?;
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
        })
    }

    pub(super) async fn give_calls_up(&self, request: GiveUp) -> Result<()> {
        let (node, ticket) = (kept(&request.node.0), request.ticket as i64);
        self.pool.query(GIVE_UP, &[&node, &ticket]).await.map(drop)
    }

    pub(super) async fn tell_node(&self, node: &NodeId, command: Command) -> Result<()> {
        let number = command.kept().map(|c| i16::from(c == Command::Stop));
        match self.pool.query(COMMAND, &[&kept(&node.0), &number]).await?.is_empty() {
            false => Ok(()),
            true => {
                let message = format!("there is no living node {node}");
                Err(Error::new(ErrorKind::NotFound, message))
            }
        }
    }

    pub(super) async fn bury_node(&self, request: DeclareDead) -> Result<bool> {
        let (now, node) = (request.now.map(micros), kept(&request.node.0));
        let (back, seen) = (gone::set_back(request.heartbeat_at), request.heartbeat_at);
        let params: super::pool::Params<'_> = &[&now, &micros(back), &node, &micros(seen)];
        Ok(!self.pool.query(DECLARE_DEAD, params).await?.is_empty())
    }

    pub(super) async fn take_lead(&self, request: Lead) -> Result<bool> {
        let (role, node) = (kept(&request.role), kept(&request.node.0));
        let (now, ttl) = (request.now.map(micros), micros_of(request.ttl));
        let row = self.pool.query_one(LEAD, &[&now, &role, &node, &ttl]).await?;
        column(&row, "lead")
    }

    pub(super) async fn keep_secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        self.pool.query(KEEP_SECRET, &[&offered.0.to_vec()]).await?;
        // A statement of its own: it sees what another one kept meanwhile.
        self.kept_secret().await?.ok_or_else(|| no_secret("is gone"))
    }

    async fn kept_secret(&self) -> Result<Option<Secret>> {
        let rows = self.pool.query(SECRET, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let bytes: &[u8] = column(row, "bytes")?;
        bytes.try_into().map(|bytes| Some(Secret(bytes))).map_err(|_| no_secret("is none"))
    }

    pub(super) async fn node_views(&self) -> Result<Vec<NodeView>> {
        self.pool.query(NODES, &[]).await?.iter().map(node_view).collect()
    }
}

fn no_secret(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the secret of the store {why}"))
}

fn node_view(row: &Row) -> Result<NodeView> {
    let wrong = |e| Error::new(ErrorKind::Corrupt, "a node cannot be read").because(e);
    let info: NodeInfo = serde_json::from_str(column(row, "info")?).map_err(wrong)?;
    Ok(NodeView {
        info,
        heartbeat_at: gone::as_it_was(Timestamp::from_micros(column(row, "beat_at")?)),
        dead: column::<Option<i64>>(row, "dead_at")?.is_some(),
        command: command(column(row, "command")?),
    })
}

fn command(number: Option<i16>) -> Option<Command> {
    number.map(|number| if number == 0 { Command::Quiet } else { Command::Stop })
}

/// One notice for each lane; its jobs stand together.
fn notices(row: &Row) -> Result<Vec<CancelNotice>> {
    let list = |name| column::<Option<Vec<i64>>>(row, name).map(Option::unwrap_or_default);
    let (lanes, tokens, seqs) = (list("o_lane")?, list("o_token")?, list("o_seq")?);
    let created_at = list("o_created_at")?;
    let queues = column::<Option<Vec<i32>>>(row, "o_queue")?.unwrap_or_default();
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

fn check_progress(beat: &Beat) -> Result<()> {
    let bytes = beat.progress.as_ref().map_or(0, |progress| progress.len());
    if bytes <= PROGRESS_BYTES_MAX {
        return Ok(());
    }
    let message = format!("has {bytes} bytes; at most {PROGRESS_BYTES_MAX} are kept");
    Err(Error::invalid("progress", message))
}
