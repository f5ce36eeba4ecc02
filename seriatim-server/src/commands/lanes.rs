//! `seriatim lanes`: the lanes of a queue, one in full, and what is done to one.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{
    Act, JobOrder, JobQuery, JobState, JobView, LaneAction, LaneOrder, LaneQuery, LaneSelection,
    LaneState, LaneView, Page,
};
use seriatim::{LaneId, Mode, Store, Timestamp};

use super::args::{Common, PageArgs, Yes};
use super::find;
use super::range::{Bound, Range};
use crate::output::fields::Fields;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::text::{count, one_line};
use crate::output::time::{absolute, length, relative};
use crate::output::{Failure, Terminal, document, hint, say};

/// Jobs of a lane that are shown with it.
const JOBS_SHOWN: usize = 100;
/// Lanes that one listing looks at in search of a range.
const RANGE_LANES_MAX: usize = 100_000;

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(crate) struct Lanes {
    /// The queue
    queue: String,
    #[command(flatten)]
    common: Common,
    /// By what the lanes are listed; retries are those with a failure only, most first
    #[arg(long, value_enum, default_value_t = By::Age)]
    by: By,
    /// Only those that run
    #[arg(long)]
    running: bool,
    /// Only from here on: a key, a time or a retry count, as --by says
    #[arg(long)]
    from: Option<String>,
    /// Only up to here, this one included
    #[arg(long)]
    to: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    Age,
    Key,
    Due,
    Retries,
}

#[derive(Subcommand)]
enum Action {
    /// Shows the lane of a key: its holder, progress and error, and the jobs that run and wait
    Show {
        /// The key
        key: String,
    },
    /// Stops claims of lanes; a turn that runs goes on to its end
    Pause(Which),
    /// Lets paused and held lanes go on
    Resume(Which),
    /// Makes lanes due now; ends a hold
    Retry(Which),
    /// Deletes all that waits in lanes
    Delete {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        yes: Yes,
    },
}

/// Which lanes.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Those of these keys
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// The lane of this name, as the listing shows it: for jobs without a key
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneId>,
}

impl Lanes {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        self.common
            .store
            .using(async |store| {
                find::queue(&*store, &self.queue).await?;
                match &self.action {
                    None => self.list(&*store).await,
                    Some(Action::Show { key }) => self.show(&*store, key).await,
                    Some(Action::Pause(which)) => self.act(&*store, which, LaneAction::Pause).await,
                    Some(Action::Resume(which)) => {
                        self.act(&*store, which, LaneAction::Resume).await
                    }
                    Some(Action::Retry(which)) => {
                        self.act(&*store, which, LaneAction::RunNow).await
                    }
                    Some(Action::Delete { which, yes }) => {
                        yes.confirm(&format!(
                            "deletes all that waits in {} of {}",
                            count(which.keys.len().max(1) as u64, "lane"),
                            self.queue
                        ))?;
                        self.act(&*store, which, LaneAction::Delete).await
                    }
                }
            })
            .await
    }

    async fn list(&self, store: &dyn Store) -> Result<(), Failure> {
        let page = self.page(store).await?;
        if self.common.json {
            say(document::page("lanes", &page, document::lane));
            return Ok(());
        }
        if page.rows.is_empty() {
            say(format!("no lanes of {} here", self.queue));
        } else {
            say(table(&page.rows, store.now().await?).render(Terminal::of_stdout()));
        }
        if let Some(next) = page.next {
            hint(format!("more: --after {next}"));
        }
        Ok(())
    }

    /// A page of what lies in the range. The store lists in order but knows no ranges: what lies
    /// before is passed over, within [`RANGE_LANES_MAX`].
    async fn page(&self, store: &dyn Store) -> Result<Page<LaneView>, Failure> {
        let range = Range::read(self.by, self.from.as_deref(), self.to.as_deref())?;
        let rows_max = self.page.rows_max();
        let (mut rows, mut after) = (Vec::new(), self.page.after.clone());
        let (mut looked, mut skips) = (0, range.has_beginning());
        while rows.len() < rows_max && looked < RANGE_LANES_MAX {
            let most = if skips { PAGE_ROWS_MAX } else { rows_max - rows.len() };
            let page = store.lanes(self.query(after.clone(), most)).await?;
            let is_before = |lane: &LaneView| range.place(lane) == Bound::Before;
            if skips && !page.rows.iter().all(is_before) {
                // The range begins in here: once more, in steps that end where this page shall.
                skips = false;
                continue;
            }
            looked += page.rows.len();
            after = page.next;
            for lane in page.rows {
                match range.place(&lane) {
                    Bound::Before => {}
                    Bound::Within => rows.push(lane),
                    Bound::After => return Ok(Page { rows, next: None }),
                }
            }
            if after.is_none() {
                break;
            }
        }
        Ok(Page { rows, next: after })
    }

    fn query(&self, after: Option<String>, rows_max: usize) -> LaneQuery {
        LaneQuery {
            queue: self.queue.as_str().into(),
            key: None,
            running: self.running,
            order: match self.by {
                By::Age => LaneOrder::Age,
                By::Key => LaneOrder::Key,
                By::Due => LaneOrder::Due,
                By::Retries => LaneOrder::RetryCount,
            },
            after,
            rows_max,
        }
    }

    async fn show(&self, store: &dyn Store, key: &str) -> Result<(), Failure> {
        let lane = find::lane(store, &self.queue, key).await?;
        let query = JobQuery {
            queue: self.queue.as_str().into(),
            state: JobState::Queued,
            key: Some(key.to_owned()),
            order: JobOrder::Arrival,
            after: None,
            rows_max: JOBS_SHOWN,
        };
        let mut jobs = store.jobs(query).await?.rows;
        match find::queue(store, &self.queue).await?.queue.mode {
            Mode::Exclusive => jobs.sort_by_key(|job| (job.priority, job.run_at, job.id)),
            _ => jobs.sort_by(|a, b| a.score.total_cmp(&b.score)),
        }
        let (running, waiting): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| job.state == JobState::Running);
        if self.common.json {
            let mut shown = document::lane(&lane);
            shown["queue"] = self.queue.as_str().into();
            shown["running"] = running.iter().map(document::job).collect();
            shown["waiting"] = waiting.iter().map(document::job).collect();
            say(shown);
            return Ok(());
        }
        let now = store.now().await?;
        say(in_full(&self.queue, &lane, now).render());
        for (what, jobs) in [("running", &running), ("waiting", &waiting)] {
            if !jobs.is_empty() {
                say(format!("\n{what}:\n{}", jobs_table(jobs, now).render(Terminal::of_stdout())));
            }
        }
        let left = lane.jobs.saturating_sub((running.len() + waiting.len()) as u64);
        if left > 0 {
            hint(format!(
                "{} more: `seriatim jobs --queue {} --key {}`",
                left,
                self.queue,
                one_line(key)
            ));
        }
        Ok(())
    }

    async fn act(
        &self,
        store: &dyn Store,
        which: &Which,
        action: LaneAction,
    ) -> Result<(), Failure> {
        let keys = which.keys.iter().map(|key| LaneSelection::Key(key.clone()));
        let mut done = 0;
        for lanes in keys.chain(which.lane.map(LaneSelection::Lane)) {
            let act =
                Act { now: None, queue: self.queue.as_str().into(), lanes: lanes.clone(), action };
            if store.act(act).await?.count == 0 {
                return Err(self.why_not(store, &lanes, done).await);
            }
            done += 1;
        }
        if self.common.json {
            say(json!({ "count": done }));
            return Ok(());
        }
        let (one, several) = match action {
            LaneAction::Pause => ("is paused", "are paused"),
            LaneAction::Resume => ("goes on", "go on"),
            LaneAction::RunNow => ("is due now", "are due now"),
            LaneAction::Bury => ("is buried", "are buried"),
            LaneAction::Delete => ("is emptied", "are emptied"),
        };
        say(format!("{} {}", count(done, "lane"), if done == 1 { one } else { several }));
        Ok(())
    }

    /// Why nothing was done: there is no such lane, or it runs.
    async fn why_not(&self, store: &dyn Store, lanes: &LaneSelection, done: u64) -> Failure {
        let before = match done {
            0 => String::new(),
            done => format!(" ({} before it done)", count(done, "lane")),
        };
        let LaneSelection::Key(key) = lanes else {
            return Failure::failed(format!(
                "there is no such lane of {}, or it runs{before}",
                self.queue
            ));
        };
        match find::lane(store, &self.queue, key).await {
            Err(failure) => failure,
            Ok(_) => Failure::failed(format!(
                "the lane of {:?} runs{before}: cancel its jobs (`seriatim jobs cancel`), or repeat this when its turn has ended",
                one_line(key)
            )),
        }
    }
}

/// What a lane does, with the colour of it.
pub(super) fn state(lane: &LaneView, now: Timestamp) -> (String, Tone) {
    let due = || lane.due.map(|due| relative(now, due)).unwrap_or_default();
    match lane.state {
        LaneState::Claimed => {
            let since = lane.claimed_at.map(|at| length(now.since(at))).unwrap_or_default();
            (format!("running {since}"), Tone::Plain)
        }
        LaneState::Held => ("held".to_owned(), Tone::Bad),
        LaneState::Paused => ("paused".to_owned(), Tone::Warn),
        LaneState::Waiting => (format!("due {}", due()), Tone::Plain),
    }
}

fn table(lanes: &[LaneView], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        ("lane", Column::Name),
        ("key", Column::Text),
        ("state", Column::Name),
        ("jobs", Column::Number),
        ("retry", Column::Number),
        ("crashes", Column::Number),
        ("node", Column::Text),
        ("error", Column::Text),
    ]);
    for lane in lanes {
        let (state, tone) = state(lane, now);
        let retry = if lane.retry_count < 0 { Tone::Faint } else { Tone::Warn };
        table.row(vec![
            lane.lane.to_string().into(),
            lane.key.as_deref().unwrap_or("").into(),
            Cell::toned(state, tone),
            lane.jobs.to_string().into(),
            Cell::toned(lane.retry_count.to_string(), retry),
            Cell::trouble(u64::from(lane.crashes), Tone::Warn),
            lane.node.as_ref().map_or("", |node| &*node.0).into(),
            Cell::toned(lane.error.as_deref().unwrap_or(""), Tone::Bad),
        ]);
    }
    table
}

fn in_full(queue: &str, lane: &LaneView, now: Timestamp) -> Fields {
    let mut fields = Fields::default();
    let when = |time: Timestamp| format!("{} ({})", relative(now, time), absolute(time));
    fields
        .add("lane", format!("{} of {queue}", lane.lane))
        .maybe("key", lane.key.as_deref())
        .add("state", state(lane, now).0)
        .maybe("due", lane.due.map(when))
        .add("priority", lane.priority.to_string())
        .add("jobs", lane.jobs.to_string())
        .add("retry count", lane.retry_count.to_string())
        .add("crashes", lane.crashes.to_string())
        .maybe("held by", lane.node.as_ref().map(|node| &*node.0))
        .maybe("token", lane.token.map(|token| token.to_string()))
        .maybe("since", lane.claimed_at.map(when))
        .maybe("progress", lane.progress.as_deref())
        .maybe("error", lane.error.as_deref());
    fields
}

fn jobs_table(jobs: &[JobView], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        ("job", Column::Name),
        ("score", Column::Number),
        ("run at", Column::Name),
        ("attempt", Column::Number),
        ("task", Column::Text),
        ("payload", Column::Text),
    ]);
    for job in jobs {
        table.row(vec![
            job.id.to_string().into(),
            job.score.to_string().into(),
            relative(now, job.run_at).into(),
            job.attempt.to_string().into(),
            job.task.as_deref().unwrap_or("").into(),
            String::from_utf8_lossy(job.payload.as_bytes()).into(),
        ]);
    }
    table
}
