//! Rows of lanes, and conversion to and from the model's lanes.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::error::Try;
use super::job_row::{JobRow, read_body};
use super::sql::{Columns, maybe, maybe_text, text};
use crate::contract::Lease;
use crate::contract::release::NOBODY;
use crate::model::clock::micros;
use crate::model::{LaneId, Mode, NodeId, Timestamp, Token};
use crate::stores::route::{first_class, group_of_class};
use crate::stores::state::lane::{Hold, Lane, Position};

/// The state of a lane.
pub(super) mod st {
    pub(crate) const READY: i64 = 0;
    pub(crate) const SCHEDULED: i64 = 1;
    pub(crate) const CLAIMED: i64 = 2;
    pub(crate) const PARKED: i64 = 3;
    /// Reserved; visible only to the transaction that created it.
    pub(crate) const OPENING: i64 = 9;
}

/// The priority in the row of a claimed lane whose claim may end though its node lives. Others have 0.
pub(super) const WATCHED: i64 = 1;

const HELD: i64 = 1;
const PAUSED: i64 = 2;

/// The columns of `seriatim_lane` but for `payload`: a lane, and the job that opened it, if that is still there.
pub(super) const LANE_COLUMNS: &str = "id, q, k, st, class, prio, due, wake, tok, open, n, c, taken, flags, retry, crashes, error, next_due, \
    route, soonest, progress, node, own, ttl, until, claimed_at, beat_at, j_gen, j_created, j_score, j_prio, j_run_at, j_attempts, j_started, \
    j_retry, j_digest, j_rest";

/// The same as they are read: with the name of the node, which is null if the lane is not claimed.
pub(super) fn lane_columns() -> String {
    let name = format!(
        " IF(st = 2, IFNULL((SELECT n.id FROM seriatim_node n WHERE n.number = seriatim_lane.node), {}), NULL) AS node,",
        text(NOBODY)
    );
    LANE_COLUMNS.replacen(" node,", &name, 1)
}

/// The number of a node; 0 if it has none.
pub(super) fn node_number(name: &str) -> String {
    format!("IFNULL({}, 0)", holder_number(name))
}

/// The number of this node in lanes that it has claimed. NULL, so that none is found, if the node is unknown: 0 is nobody.
pub(super) fn holder_number(name: &str) -> String {
    match name {
        NOBODY => "0".to_owned(),
        _ => format!("(SELECT n.number FROM seriatim_node n WHERE n.id = {})", text(name)),
    }
}

/// A row of the lane table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaneRow {
    pub id: u64,
    pub q: u32,
    pub k: Option<Arc<str>>,
    pub st: i64,
    pub class: i64,
    pub prio: i64,
    pub due: i64,
    pub wake: Option<i64>,
    pub tok: i64,
    pub open: i64,
    pub n: i64,
    pub c: i64,
    pub taken: i64,
    pub flags: i64,
    pub retry: i64,
    pub crashes: i64,
    pub error: Option<Arc<str>>,
    pub next_due: Option<i64>,
    pub route: i64,
    pub soonest: Option<i64>,
    pub progress: Option<Arc<str>>,
    pub claim: Option<ClaimRow>,
}

/// The claim in a lane's row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimRow {
    pub node: Arc<str>,
    pub own: bool,
    pub ttl: i64,
    pub until: i64,
    pub claimed_at: i64,
    pub beat_at: i64,
}

impl LaneRow {
    /// Reads [`lane_columns`].
    pub(super) fn read(row: &mut Columns) -> Try<(Self, Option<JobRow>)> {
        let lane = Self {
            id: row.int()? as u64,
            q: row.int()? as u32,
            k: row.maybe_text()?,
            st: row.int()?,
            class: row.int()?,
            prio: row.int()?,
            due: row.int()?,
            wake: row.maybe_int()?,
            tok: row.int()?,
            open: row.int()?,
            n: row.int()?,
            c: row.int()?,
            taken: row.int()?,
            flags: row.int()?,
            retry: row.int()?,
            crashes: row.int()?,
            error: row.maybe_text()?,
            next_due: row.maybe_int()?,
            route: row.int()?,
            soonest: row.maybe_int()?,
            progress: row.maybe_text()?,
            claim: ClaimRow::read(row)?,
        };
        let Some(gen_) = row.maybe_int()? else {
            row.skip(9);
            return Ok((lane, None));
        };
        let (entry, later) = read_body(row, lane.id, lane.q)?;
        let job = JobRow::live(entry, lane.q, lane.id, gen_, later);
        Ok((lane, Some(job)))
    }

    /// Whether a job of generation `gen_` belongs to the claim.
    pub(super) fn has_closed(&self, seq: u64, gen_: i64) -> bool {
        self.st == st::CLAIMED && (gen_ < self.open || seq as i64 == self.taken)
    }

    /// The lane without its jobs.
    pub(super) fn lane(&self, mode: Mode) -> Lane {
        let time = Timestamp::from_micros;
        let id = LaneId { queue: self.q, shard: 0, number: self.id };
        let mut lane = Lane::new(id, mode, self.k.clone(), time(self.due), self.route as u64);
        lane.token = Token(self.tok);
        lane.progress.clone_from(&self.progress);
        lane.next_due = self.next_due.map(time);
        (lane.held, lane.paused) = (self.flags & HELD != 0, self.flags & PAUSED != 0);
        if mode == Mode::Accumulate {
            (lane.retry_count, lane.crashes) = (self.retry as i32, self.crashes as u32);
            lane.error.clone_from(&self.error);
        }
        let ready = (self.class as u64, self.prio as u16, time(self.due));
        lane.position = match self.st {
            st::READY => Position {
                ready: Some(ready),
                wake: self.wake.map(time),
                due: Some(time(self.due)),
            },
            st::SCHEDULED => {
                Position { ready: None, wake: self.wake.map(time), due: self.wake.map(time) }
            }
            _ => Position::default(),
        };
        lane.hold = self.claim.as_ref().map(|claim| claim.hold(group_of_class(self.class as u64)));
        lane
    }

    /// The row of the model's lane, with number `id`, except for `taken` and [`WATCHED`]. `before`: the row it was read
    /// from. `n`: the number of its open jobs.
    pub(super) fn of(lane: &Lane, id: u64, before: Option<&Self>, n: i64) -> Self {
        let hold = lane.hold.as_ref();
        let was_claimed = before.is_some_and(|before| before.st == st::CLAIMED);
        let position = lane.position;
        let state = match (hold, position.ready) {
            (Some(_), _) => st::CLAIMED,
            _ if lane.held || lane.paused => st::PARKED,
            (None, Some(_)) => st::READY,
            (None, None) => st::SCHEDULED,
        };
        let (class, prio, _) = match hold {
            // So claimed lanes can be counted by group.
            Some(hold) => (first_class(hold.group), 0, Timestamp::default()),
            None => position.ready.unwrap_or_default(),
        };
        // With no open jobs left, raising the generation closes all jobs without writing them.
        let is_new = !was_claimed || before.is_some_and(|before| before.tok != lane.token.0);
        let closes_all = hold.is_some() && is_new && n == 0;
        // If not enough of the lane was read, its row keeps the old values.
        let kept = before.filter(|_| match hold {
            Some(_) => lane.unread.closed > 0,
            None => !lane.unread.knows_head(),
        });
        let own = lane.mode == Mode::Accumulate;
        let shown = match kept.filter(|_| !own) {
            Some(row) => (row.retry, row.crashes, row.error.clone(), row.due),
            None => {
                let (retry, crashes, error) = lane.trouble();
                let due = shown_due(lane).as_micros();
                (i64::from(retry), i64::from(crashes), error.cloned(), due)
            }
        };
        let (retry, crashes, error, due) = shown;
        let soonest = match lane.unread.open == 0 || lane.unread.soonest {
            _ if !own => None,
            true => lane.soonest().map(i64::from),
            // A claim took some of the jobs.
            false if hold.is_some() && is_new => None,
            false => before.and_then(|row| row.soonest),
        };
        let closed = hold.map_or(0, |hold| hold.closed.len() as i64);
        Self {
            id,
            q: lane.id.queue,
            k: lane.key.clone(),
            st: state,
            class: class as i64,
            prio: i64::from(prio),
            due,
            wake: position.wake.map(Timestamp::as_micros),
            tok: lane.token.0,
            open: before.map_or(0, |before| before.open) + i64::from(closes_all),
            n,
            c: closed + lane.unread.closed as i64,
            taken: 0,
            flags: i64::from(lane.held) * HELD + i64::from(lane.paused) * PAUSED,
            retry,
            crashes,
            error,
            next_due: lane.next_due.filter(|_| own).map(Timestamp::as_micros),
            route: lane.route as i64,
            soonest,
            progress: lane.progress.clone(),
            claim: hold.map(ClaimRow::of),
        }
    }

    /// The changes of columns in which each lane usually gets another value.
    pub(super) fn own_changes(&self, old: &Self) -> Vec<(&'static str, i64)> {
        let columns = [("due", old.due, self.due), ("taken", old.taken, self.taken)];
        let changed = columns.into_iter().filter(|(_, old, new)| old != new);
        changed.map(|(name, _, new)| (name, new)).collect()
    }

    /// The assignments that change `old` into this row, but for [`Self::own_changes`].
    pub(super) fn changes(&self, old: &Self) -> String {
        let mut text = String::new();
        let numbers = [
            ("st", old.st, self.st),
            ("class", old.class, self.class),
            ("prio", old.prio, self.prio),
            ("tok", old.tok, self.tok),
            ("open", old.open, self.open),
            ("n", old.n, self.n),
            ("c", old.c, self.c),
            ("flags", old.flags, self.flags),
            ("retry", old.retry, self.retry),
            ("crashes", old.crashes, self.crashes),
            ("route", old.route, self.route),
        ];
        for (name, old, new) in numbers {
            if old != new {
                let _ = write!(text, "{name} = {new},");
            }
        }
        for (name, old, new) in [
            ("wake", old.wake, self.wake),
            ("next_due", old.next_due, self.next_due),
            ("soonest", old.soonest, self.soonest),
        ] {
            if old != new {
                let _ = write!(text, "{name} = {},", maybe(new));
            }
        }
        for (name, old, new) in
            [("error", &old.error, &self.error), ("progress", &old.progress, &self.progress)]
        {
            if old != new {
                let _ = write!(text, "{name} = {},", maybe_text(new.as_deref()));
            }
        }
        // Without a claim, what is written of an earlier one has no meaning.
        if let Some(claim) = self.claim.as_ref().filter(|claim| old.claim.as_ref() != Some(claim)) {
            let before = old.claim.as_ref().map(ClaimRow::values);
            for (i, (name, value)) in ClaimRow::COLUMNS.iter().zip(claim.values()).enumerate() {
                if before.as_ref().is_none_or(|before| before[i] != value) {
                    let _ = write!(text, "{name} = {value},");
                }
            }
        }
        text.pop();
        text
    }

    /// The whole row: the values of [`LANE_COLUMNS`] and of `payload`.
    pub(super) fn values(&self, job: Option<&JobRow>, payload: String) -> Try<String> {
        let job = match job {
            Some(job) => format!("{},{}", job.gen_, job.body()?.join(",")),
            None => ["NULL"; 10].join(","),
        };
        Ok(format!(
            "({},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{job},{payload})",
            self.id,
            self.q,
            maybe_text(self.k.as_deref()),
            self.st,
            self.class,
            self.prio,
            self.due,
            maybe(self.wake),
            self.tok,
            self.open,
            self.n,
            self.c,
            self.taken,
            self.flags,
            self.retry,
            self.crashes,
            maybe_text(self.error.as_deref()),
            maybe(self.next_due),
            self.route,
            maybe(self.soonest),
            maybe_text(self.progress.as_deref()),
            self.claim.as_ref().map_or(["0"; 6].map(str::to_owned), ClaimRow::values).join(","),
        ))
    }
}

/// When a lane is or was due; for a scheduled one, when its position must be computed again.
fn shown_due(lane: &Lane) -> Timestamp {
    if lane.mode == Mode::Accumulate {
        return lane.due;
    }
    let head = lane.closed().first().or_else(|| lane.head());
    lane.position.due.or(head.map(|head| head.run_at)).unwrap_or(lane.due)
}

impl ClaimRow {
    const COLUMNS: [&str; 6] = ["node", "own", "ttl", "until", "claimed_at", "beat_at"];

    fn read(row: &mut Columns) -> Try<Option<Self>> {
        let Some(node) = row.maybe_text()? else {
            row.skip(5);
            return Ok(None);
        };
        let own = row.int()? != 0;
        let (ttl, until) = (row.int()?, row.int()?);
        Ok(Some(Self { node, own, ttl, until, claimed_at: row.int()?, beat_at: row.int()? }))
    }

    fn of(hold: &Hold) -> Self {
        Self {
            node: hold.node.0.clone(),
            own: matches!(hold.lease, Lease::Own { .. }),
            ttl: micros(hold.lease.ttl()),
            until: hold.until.as_micros(),
            claimed_at: hold.claimed_at.as_micros(),
            beat_at: hold.beat_at.as_micros(),
        }
    }

    fn hold(&self, group: u64) -> Hold {
        let ttl = Duration::from_micros(self.ttl.max(0) as u64);
        Hold {
            group,
            node: NodeId(self.node.clone()),
            lease: if self.own { Lease::Own { ttl } } else { Lease::Node { ttl } },
            until: Timestamp::from_micros(self.until),
            claimed_at: Timestamp::from_micros(self.claimed_at),
            beat_at: Timestamp::from_micros(self.beat_at),
            closed: Vec::new(),
        }
    }

    fn values(&self) -> [String; 6] {
        [
            node_number(&self.node),
            i64::from(self.own).to_string(),
            self.ttl.to_string(),
            self.until.to_string(),
            self.claimed_at.to_string(),
            self.beat_at.to_string(),
        ]
    }
}
