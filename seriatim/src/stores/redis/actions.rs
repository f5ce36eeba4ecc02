//! Cancel, requeue, act on lanes, delete dead jobs, and amend.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::Redis;
use super::args::Args;
use super::dead::{STEP_JOBS, What};
use super::link::{ACT, AMEND, CANCEL};
use super::page::Rows;
use super::queues::ATTEMPTS;
use super::reply::{Shard, corrupt, lane_number, name_job, single};
use crate::contract::errors::no_waiting_job;
use crate::contract::{
    Act, Acted, Actions, Amend, Cancel, Cancelled, Change, LaneAction, LaneSelection, Selected,
    Wake,
};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{Error, ErrorKind, JobId, JobOptions, Result};
use crate::stores::json::json;

/// Most lanes changed per script: a running script blocks all others, and each takes up to 40 µs.
const STEP_LANES: usize = 100;

/// Where the lanes begin in the arguments of `act.lua`.
const ACT_LANES_FROM: usize = 3;

#[async_trait]
impl Actions for Redis {
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let mut answers = self.cancel_here(&request).await?;
        // If a job was requeued into another shard, cancel it there.
        for (place, answer) in answers.iter_mut().enumerate() {
            if *answer == Cancelled::Unknown
                && let Some(job) = self.moved_to(request.jobs[place]).await?
            {
                let there = Cancel { now: request.now, jobs: vec![job] };
                *answer = self.cancel_here(&there).await?.pop().unwrap_or(Cancelled::Unknown);
            }
        }
        Ok(answers)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let wake = Wake::of([&*request.queue]);
        let acted = self.on_dead(What::Requeue, request).await?;
        self.bell.ring(&wake);
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.on_dead(What::Delete, request).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let known = self.current(&request.queue).await?;
        let mut acted = Acted::default();
        let mut left = ACTION_ROWS_MAX;
        for shard in known.shards() {
            let (chosen, more) = self.chosen_lanes(shard, &request.lanes, left).await?;
            acted.more |= more;
            left -= chosen.len();
            for lanes in chosen.chunks(STEP_LANES) {
                let mut args = Args::at(request.now);
                args.text(action_text(request.action));
                args.flag(request.lanes == LaneSelection::Failed);
                args.0.extend(lanes.iter().cloned());
                acted.count += self.act_on(shard, args).await?;
            }
        }
        self.bell.ring(&Wake::of([&*request.queue]));
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        let mut request = request;
        for _ in 0..ATTEMPTS {
            let mut args = Args::at(request.now);
            name_job(&mut args, request.job);
            match &request.change {
                Change::RunAt(time) => args.text("at").time(*time),
                Change::Delete => args.text("delete"),
                Change::Node(node) => {
                    let (was, new) = self.options_with(request.job, node.clone()).await?;
                    args.text("node").name(node.as_deref()).text(&was).text(&new)
                }
            };
            let shard = Shard::of_job(request.job);
            let answer = self.link.run(&AMEND, &self.key(shard, ""), &args).await?;
            match single(answer)?.int()? {
                0 => match self.moved_to(request.job).await? {
                    Some(job) => request.job = job,
                    None => return Err(no_waiting_job()),
                },
                1 => {
                    self.bell.ring(&Wake::All);
                    return Ok(());
                }
                // Another client changed the options meanwhile.
                _ => {}
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "other clients are changing the job: try again"))
    }
}

impl Redis {
    /// Acts on some lanes of a shard; deletes the jobs of long lanes in several steps.
    async fn act_on(&self, shard: Shard, mut args: Args) -> Result<u64> {
        let key = self.key(shard, "");
        let mut answer = self.link.call(&ACT, &key, &args).await?;
        let (count, mut unfinished) = (answer.int()? as u64, answer.list()?);
        while !unfinished.is_empty() {
            // They may have no failed job any more, or may be claimed.
            args.0.truncate(ACT_LANES_FROM - 1);
            args.text("2");
            while !unfinished.is_empty() {
                args.text(&format!("n{}", unfinished.int()?));
            }
            let mut answer = self.link.call(&ACT, &key, &args).await?;
            answer.int()?;
            unfinished = answer.list()?;
        }
        Ok(count)
    }

    async fn cancel_here(&self, request: &Cancel) -> Result<Vec<Cancelled>> {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (place, job) in request.jobs.iter().enumerate() {
            shards.entry(Shard::of_job(*job)).or_default().push(place);
        }
        let mut answers = vec![Cancelled::Unknown; request.jobs.len()];
        let mut steps = Vec::new();
        for (shard, places) in &shards {
            steps.extend(places.chunks(STEP_JOBS).map(|places| (*shard, places)));
        }
        for (shard, places) in steps {
            let mut args = Args::at(request.now);
            for place in places {
                name_job(&mut args, request.jobs[*place]);
            }
            let mut answer = self.link.call(&CANCEL, &self.key(shard, ""), &args).await?;
            for place in places {
                answers[*place] = match answer.int()? {
                    1 => Cancelled::Ended,
                    2 => Cancelled::Flagged,
                    3 => Cancelled::Now,
                    _ => Cancelled::Unknown,
                };
            }
            // After the script: a heartbeat removes a note that it finds without a flag. If this fails, the caller
            // cancels again, which repeats it.
            if places.iter().any(|place| answers[*place] == Cancelled::Flagged) {
                self.note_flags(shard).await?;
            }
        }
        Ok(answers)
    }

    /// The oldest selected lanes as arguments of `act.lua`, and whether there are more.
    async fn chosen_lanes(
        &self,
        shard: Shard,
        lanes: &LaneSelection,
        most: usize,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let named = match lanes {
            // No lane has an empty key; lanes without a key cannot be selected by key.
            LaneSelection::Key(key) if key.is_empty() => Vec::new(),
            LaneSelection::Key(key) => vec![format!("k{key}").into_bytes()],
            LaneSelection::Lanes(lanes) => {
                let here = lanes.iter().filter(|lane| Shard::of_lane(**lane) == shard);
                let numbers: BTreeSet<u64> = here.map(|lane| lane.number).collect();
                numbers.into_iter().map(|number| format!("n{number}").into_bytes()).collect()
            }
            LaneSelection::All => {
                return self.first_lanes("names", shard, most).await;
            }
            LaneSelection::Failed => {
                return self.first_lanes("failing", shard, most).await;
            }
        };
        let more = named.len() > most;
        Ok((named.into_iter().take(most).collect(), more))
    }

    /// The oldest lanes that `index.lua` returns.
    async fn first_lanes(
        &self,
        what: &'static str,
        shard: Shard,
        most: usize,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let (mut first, mut more) = (BTreeSet::new(), false);
        let add = |id: redis::Value| {
            first.insert(lane_number(&single(id)?.bytes()?)?);
            if first.len() > most {
                first.pop_last();
                more = true;
            }
            Ok(())
        };
        self.each_row(shard, &Rows::all(what), add).await?;
        let name = |number| format!("n{number}").into_bytes();
        Ok((first.into_iter().map(name).collect(), more))
    }

    /// A job's options, unchanged and with another node.
    async fn options_with(&self, job: JobId, node: Option<String>) -> Result<(String, String)> {
        let was = self.options_text(job).await?.ok_or_else(no_waiting_job)?;
        let options: JobOptions = match was.is_empty() {
            true => JobOptions::default(),
            false => serde_json::from_str(&was).map_err(|e| corrupt().because(e))?,
        };
        let new = json(&JobOptions { node, ..options })?;
        Ok((was, new))
    }
}

fn action_text(action: LaneAction) -> &'static str {
    match action {
        LaneAction::Pause => "pause",
        LaneAction::Resume => "resume",
        LaneAction::RunNow => "run_now",
        LaneAction::Bury => "bury",
        LaneAction::DeleteFailed => "delete_failed",
        LaneAction::Delete => "delete",
    }
}
