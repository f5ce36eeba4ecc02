//! Cancel, requeue, act on lanes, delete dead jobs, and amend.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::Postgres;
use super::convert::{JobKeys, column, kept, lane_number, micros, sought};
use super::summons::Summons;
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Actions, Amend, Cancel, Cancelled, Change, LaneAction, LaneSelection, Selected,
    Selection, Views, Wake,
};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{JobId, JobOptions, Result};
use crate::stores::json::json;

const CANCEL: &str = "SELECT * FROM seriatim.cancel($1, $2, $3, $4)";
const REQUEUE: &str = "SELECT * FROM seriatim.requeue($1, $2, $3, $4, $5, $6, $7, $8)";
const DELETE_DEAD: &str = "SELECT * FROM seriatim.delete_dead($1, $2, $3, $4, $5, $6, $7)";
const ACT: &str = "SELECT * FROM seriatim.act($1, $2, $3, $4, $5, $6, $7)";
const NAMES: &str = "SELECT name FROM seriatim.queue WHERE number = ANY ($1)";
const AMEND: &str = "SELECT seriatim.amend($1, $2, $3, $4, $5, $6, $7, $8)";

/// The same limit as for a bulk action.
const ROWS_MAX: i32 = ACTION_ROWS_MAX as i32;

#[async_trait]
impl Actions for Postgres {
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let mut answers = vec![Cancelled::Unknown; request.jobs.len()];
        let now = request.now.map(micros);
        let keys: JobKeys = request.jobs.into_iter().collect();
        for row in self.pool.query(CANCEL, &[&now, &keys.seq, &keys.queue, &keys.millis]).await? {
            let place = column::<_, i64>(&row, "o_place")? as usize - 1;
            let answer = match column::<_, i16>(&row, "o_answer")? {
                0 => Cancelled::Now,
                1 => Cancelled::Flagged,
                2 => Cancelled::Ended,
                _ => Cancelled::Unknown,
            };
            answers[place] = answer;
        }
        let ended = answers.iter().zip(&keys.queue).filter(|(one, _)| **one == Cancelled::Now);
        self.ring_numbers(ended.map(|(_, queue)| *queue).collect()).await;
        Ok(answers)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let now = request.now.map(micros);
        let Which { number, jobs, keys } = Which::new(&request.which);
        let queue = kept(&request.queue);
        let params: super::pool::Params<'_> =
            &[&now, &queue, &number, &jobs.seq, &jobs.queue, &jobs.millis, &keys, &ROWS_MAX];
        let row = self.pool.query_one(REQUEUE, params).await?;
        self.ring(&Wake::of([&*request.queue]));
        acted(&row)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        let Which { number, jobs, keys } = Which::new(&request.which);
        let queue = kept(&request.queue);
        let params: super::pool::Params<'_> =
            &[&queue, &number, &jobs.seq, &jobs.queue, &jobs.millis, &keys, &ROWS_MAX];
        acted(&self.pool.query_one(DELETE_DEAD, params).await?)
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let (which, key, lanes): (_, _, Vec<i64>) = match &request.lanes {
            LaneSelection::All => (0, None, Vec::new()),
            LaneSelection::Key(key) => (1, Some(sought(key)), Vec::new()),
            LaneSelection::Lanes(lanes) => {
                (2, None, lanes.iter().copied().map(lane_number).collect())
            }
            LaneSelection::Failed => (3, None, Vec::new()),
        };
        let action = match request.action {
            LaneAction::Pause => 0,
            LaneAction::Resume => 1,
            LaneAction::RunNow => 2,
            LaneAction::Bury => 3,
            LaneAction::DeleteFailed => 5,
            LaneAction::Delete => 6,
        };
        let (now, queue) = (request.now.map(micros), kept(&request.queue));
        let params: super::pool::Params<'_> =
            &[&now, &queue, &which, &key, &lanes, &action, &ROWS_MAX];
        let row = self.pool.query_one(ACT, params).await?;
        self.ring(&Wake::of([&*request.queue]));
        acted(&row)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        let keys: JobKeys = std::iter::once(request.job).collect();
        let (change, at, node) = match &request.change {
            Change::RunAt(time) => (0, Some(micros(*time)), None),
            Change::Node(node) => (1, None, node.as_deref()),
            Change::Delete => (2, None, None),
        };
        let options = match &request.change {
            Change::Node(node) => Some(self.options_with(request.job, node.clone()).await?),
            _ => None,
        };
        let now = request.now.map(micros);
        let params: super::pool::Params<'_> =
            &[&now, &keys.seq[0], &keys.queue[0], &keys.millis[0], &change, &at, &node, &options];
        let row = self.pool.query_one(AMEND, params).await?;
        self.ring(&Wake::All);
        if column(&row, "amend")? { Ok(()) } else { Err(no_waiting_job()) }
    }
}

impl Postgres {
    /// Wakes nodes of queues in which waiting jobs have ended: others of their keys may be due. If the server does not
    /// answer, polling finds these.
    pub(super) async fn ring_numbers(&self, queues: Vec<i32>) {
        if queues.is_empty() {
            return;
        }
        let rows = self.pool.query(NAMES, &[&queues]).await.unwrap_or_default();
        let names: Vec<String> = rows.iter().filter_map(|row| column(row, "name").ok()).collect();
        self.summon(&Summons::two(&Wake::of(names.iter().map(String::as_str))));
    }

    /// A job's options with another node. Besides this, only a requeue changes options: it takes an ended batch out of them.
    async fn options_with(&self, job: JobId, node: Option<String>) -> Result<String> {
        let view = self.job(job).await?.ok_or_else(no_waiting_job)?;
        let options =
            JobOptions { node, ..view.options.map(Arc::unwrap_or_clone).unwrap_or_default() };
        json(&options)
    }
}

/// A selection of dead jobs as parameters of the functions.
struct Which<'a> {
    number: i32,
    jobs: JobKeys,
    keys: Vec<std::borrow::Cow<'a, str>>,
}

impl<'a> Which<'a> {
    fn new(which: &'a Selection) -> Self {
        let (number, jobs, keys) = match which {
            Selection::All => (0, JobKeys::default(), Vec::new()),
            Selection::Jobs(jobs) => (1, jobs.iter().copied().collect(), Vec::new()),
            Selection::Keys(keys) => {
                (2, JobKeys::default(), keys.iter().map(|k| sought(k)).collect())
            }
        };
        Self { number, jobs, keys }
    }
}

pub(super) fn acted(row: &Row) -> Result<Acted> {
    Ok(Acted { count: column::<_, i64>(row, "o_count")? as u64, more: column(row, "o_more")? })
}
