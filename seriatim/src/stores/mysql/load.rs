//! Reading jobs and other data that an operation needs into the model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use mysql_async::Row;

use super::bodies::Bodies;
use super::error::Try;
use super::job_row::{DEAD, ENDED_COLUMNS, JOB_COLUMNS, JobRow, WAITING, later_order};
use super::lane_row::{LaneRow, st};
use super::pool::Session;
use super::sql::{Columns, LIST_MAX, bytes, given, list};
use super::work::Work;
use crate::contract::{Command, NodeInfo};
use crate::model::limits::{PAYLOAD_BYTES_MAX, PROMOTE_JOBS_MAX, TURN_JOBS_MAX};
use crate::model::{Digest, JobId, Mode, Payload, Timestamp, Turn};
use crate::stores::state::rank::{LAST, LAST_PLACE, score_rank};
use crate::stores::state::{Location, NodeRow};

/// Lanes with at most this number of open jobs are read completely; from others only the needed part.
const SMALL_LANE: i64 = 64;
/// The same if one or two jobs are needed.
const SMALL_LANE_OF_FEW: i64 = 8;
/// Up to this number of first jobs of each lane, a statement reads those at one place of all lanes.
const FIRSTS_MAX: usize = 4;
/// Most parts of lanes read by one statement.
const PARTS_MAX: usize = 200;

/// Which open jobs of a large lane an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// All of them.
    All,
    /// Those that determine the lane's position.
    Position,
    /// The same, for a lane to which jobs are only added.
    Arrival,
    /// Those that a turn may take.
    Turn,
    /// Those that the next turn may take, and those that determine the position if there is none.
    NextTurn,
    /// Those of [`Work::leaving`], and those that determine the position without them.
    Removal,
}

impl Work<'_> {
    /// Reads the open jobs of loaded lanes, and with `closed` the closed ones. `equal` has the digests of jobs that
    /// will be put into each lane.
    pub(super) async fn load_jobs(
        &mut self,
        lanes: &[u64],
        need: Need,
        closed: bool,
        bodies: Bodies,
        equal: &HashMap<u64, Vec<Digest>>,
    ) -> Try<()> {
        let (need, closed) = if self.whole { (Need::All, true) } else { (need, closed) };
        let has_more = |work: &Self, id: &u64| {
            let unread = work.state.lanes.get(id).map(|lane| &lane.unread);
            unread.is_some_and(|unread| unread.open > 0 || closed && unread.closed > 0)
        };
        // A push to a claimed lane only adds.
        let adds = |work: &Self, id: &u64| {
            let row = work.lanes.get(id).filter(|row| row.st == st::CLAIMED);
            need == Need::Arrival
                && !equal.contains_key(id)
                && row
                    .is_some_and(|row| work.mode(row.q).is_ok_and(|mode| mode != Mode::Accumulate))
        };
        let (small, large): (Vec<u64>, Vec<u64>) = lanes
            .iter()
            .filter(|id| has_more(self, id) && !adds(self, id))
            .partition(|id| self.is_small(**id, need));
        let all = if closed { "" } else { "WHERE j.gen = l.open" };
        for ids in small.chunks(LIST_MAX) {
            let from = format!(
                "FROM {} STRAIGHT_JOIN seriatim_lane l FORCE INDEX (PRIMARY) ON l.id = given.number \
                 STRAIGHT_JOIN seriatim_job j FORCE INDEX (job_lane) ON j.lane = l.id \
                 {all}",
                given(ids)
            );
            self.read_jobs(&from, bodies).await?;
        }
        self.load_large(&large, need, closed, bodies, equal).await?;
        if need == Need::Turn { Ok(()) } else { self.load_bytes(lanes).await }
    }

    /// Tells the model how many bytes wait, in lanes of queues whose windows are full by bytes: most jobs were read
    /// without their payloads.
    async fn load_bytes(&mut self, lanes: &[u64]) -> Try<()> {
        let counts = |id: &u64| {
            let queue = self.lanes.get(id).and_then(|row| self.state.queue_row(row.q));
            queue.and_then(|queue| queue.queue.window?.max_bytes).is_some()
        };
        let lanes: Vec<u64> = lanes.iter().copied().filter(counts).collect();
        for ids in lanes.chunks(LIST_MAX) {
            let sql = format!(
                "SELECT l.id, IF(l.j_gen >= l.open, LENGTH(l.payload), 0), SUM(LENGTH(j.payload)) \
                 FROM seriatim_lane l FORCE INDEX (PRIMARY) LEFT JOIN seriatim_job j FORCE INDEX (job_lane) \
                 ON j.lane = l.id AND j.gen = l.open AND j.seq <> l.taken WHERE l.id IN ({}) GROUP BY l.id{}",
                list(ids.iter().copied()),
                self.newest()
            );
            for row in self.rows(&sql).await? {
                let mut row = Columns::of(row);
                let id = row.int()? as u64;
                let all = row.maybe_int()?.unwrap_or(0) + row.maybe_int()?.unwrap_or(0);
                if let Some(lane) = self.state.lanes.get_mut(&id) {
                    let read = lane.loaded_jobs().map(|job| job.payload.as_bytes().len() as u64);
                    lane.unread.bytes = (all as u64).saturating_sub(read.sum());
                }
            }
        }
        Ok(())
    }

    /// Whether all open jobs of a lane are read.
    fn is_small(&self, id: u64, need: Need) -> bool {
        let Some(row) = self.lanes.get(&id) else { return true };
        let mode = self.state.queue_row(row.q).map(|queue| queue.queue.mode);
        match (need, mode) {
            (Need::All, _) => true,
            (_, Some(Mode::Fifo)) | (Need::Arrival, Some(Mode::Accumulate)) => {
                row.n <= SMALL_LANE_OF_FEW
            }
            _ => row.n <= SMALL_LANE,
        }
    }

    async fn load_large(
        &mut self,
        lanes: &[u64],
        need: Need,
        closed: bool,
        bodies: Bodies,
        equal: &HashMap<u64, Vec<Digest>>,
    ) -> Try<()> {
        if closed {
            self.load_closed_with(lanes, bodies).await?;
        }
        let mut parts = Vec::new();
        let mut firsts: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for id in lanes {
            let Some(row) = self.lanes.get(id) else { continue };
            let (mode, most) = (self.mode(row.q)?, self.most_of(row, need)?);
            let open = format!(
                "FROM seriatim_job j FORCE INDEX (job_lane) WHERE j.lane = {id} AND j.gen = {} AND j.seq <> {}",
                row.open, row.taken
            );
            // A user's transaction may see an older state in a subquery. Of `exclusive`, a range of the due ones is read, which
            // the server finds through the index only for constants.
            let is_ours = matches!(self.session, Session::Ours(_));
            match most <= FIRSTS_MAX && is_ours && mode != Mode::Exclusive {
                true => firsts.entry(most).or_default().push(*id),
                false => parts.extend(self.parts_of(&open, mode, most)),
            }
            for some in equal.get(id).map_or(&[][..], Vec::as_slice).chunks(LIST_MAX) {
                let some: Vec<String> = some.iter().map(|digest| bytes(digest)).collect();
                parts.push(format!("{open} AND j.ord IN ({})", some.join(",")));
            }
        }
        for (most, lanes) in firsts {
            self.load_firsts(&lanes, most, bodies).await?;
        }
        for parts in parts.chunks(PARTS_MAX) {
            let parts: Vec<String> =
                parts.iter().map(|from| format!("({})", self.jobs_from(from, bodies))).collect();
            self.read_jobs_by(&parts.join(" UNION ALL ")).await?;
        }
        for id in lanes {
            self.note_horizon(*id, need, equal.get(id).map_or(&[][..], Vec::as_slice))?;
        }
        match need {
            Need::Turn => return Ok(()),
            Need::Removal => self.load_leaving(lanes, bodies).await?,
            _ => {}
        }
        self.load_soonest(lanes, need).await
    }

    /// Reads the jobs that leave large lanes, which may be beyond the parts that were read.
    async fn load_leaving(&mut self, lanes: &[u64], bodies: Bodies) -> Try<()> {
        let leaving = lanes.iter().filter_map(|id| self.leaving.get(id)).flatten();
        let seqs: Vec<u64> = leaving.copied().filter(|seq| !self.jobs.contains_key(seq)).collect();
        for seqs in seqs.chunks(LIST_MAX) {
            let seqs = list(seqs.iter().copied());
            let from = format!("FROM seriatim_job j FORCE INDEX (PRIMARY) WHERE j.seq IN ({seqs})");
            self.read_jobs(&from, bodies).await?;
        }
        Ok(())
    }

    /// Notes how far the parts of a large lane reach. The job that opened it may be beyond.
    fn note_horizon(&mut self, id: u64, need: Need, equal: &[Digest]) -> Try<()> {
        let Some(row) = self.lanes.get(&id) else { return Ok(()) };
        let most = self.most_of(row, need)?;
        let Some(lane) = self.state.lanes.get_mut(&id) else { return Ok(()) };
        lane.unread.digests.extend(equal);
        let last = lane.open.keys().rev().find(|rank| rank.2 != id).copied();
        let of_turn = matches!(need, Need::Turn | Need::NextTurn);
        lane.unread.to = match lane.mode {
            // Otherwise some jobs of it were read, in no order.
            Mode::Accumulate => last.filter(|_| of_turn),
            Mode::Exclusive => Some(last.unwrap_or(LAST)),
            Mode::Fifo | Mode::Parallel => last,
        };
        let later = lane.later.keys().copied().filter(|place| place.1 != id);
        let (due, behind): (Vec<_>, Vec<_>) = later.partition(|(run_at, _)| *run_at <= self.now);
        let last = match due.len() > PROMOTE_JOBS_MAX {
            true => due.last(),
            false => behind.last().filter(|_| behind.len() >= most),
        };
        lane.unread.later_to = Some(last.copied().unwrap_or(LAST_PLACE));
        Ok(())
    }

    /// How many of the first open jobs of a lane are needed.
    fn most_of(&self, row: &LaneRow, need: Need) -> Try<usize> {
        Ok(match (need, self.mode(row.q)?) {
            (Need::Turn | Need::NextTurn, Mode::Accumulate) => TURN_JOBS_MAX + 1,
            (Need::Turn | Need::NextTurn, Mode::Fifo) => {
                self.state.queue_row(row.q).map_or(1, |queue| queue.queue.take as usize)
            }
            (Need::Removal, Mode::Fifo | Mode::Exclusive) => {
                self.leaving.get(&row.id).map_or(0, Vec::len) + 1
            }
            _ => 1,
        })
    }

    /// The parts to read of one large lane, each the end of a query.
    fn parts_of(&self, open: &str, mode: Mode, most: usize) -> Vec<String> {
        let order = if mode == Mode::Accumulate && most > 1 { "score" } else { "ord" };
        let mut parts = vec![format!("{open} ORDER BY j.{order}, j.seq LIMIT {most}")];
        if mode == Mode::Exclusive {
            let (from, to) = (bytes(&[1]), bytes(&later_order(self.now)));
            // One more than a call moves shows whether some are left.
            parts.push(format!(
                "{open} AND j.ord >= {from} AND j.ord <= {to} ORDER BY j.ord, j.seq LIMIT {}",
                PROMOTE_JOBS_MAX + 1
            ));
            parts.push(format!("{open} AND j.ord > {to} ORDER BY j.ord, j.seq LIMIT {most}"));
        }
        parts
    }

    /// Reads the first open jobs of many lanes, a statement for each place: the server plans it once.
    async fn load_firsts(&mut self, lanes: &[u64], most: usize, bodies: Bodies) -> Try<()> {
        for ids in lanes.chunks(LIST_MAX) {
            let given = given(ids);
            let at = |place: usize| {
                format!(
                    "FROM {given} STRAIGHT_JOIN seriatim_lane l FORCE INDEX (PRIMARY) ON l.id = given.number \
                     STRAIGHT_JOIN seriatim_job j FORCE INDEX (PRIMARY) ON j.seq = \
                     (SELECT f.seq FROM seriatim_job f FORCE INDEX (job_lane) WHERE f.lane = l.id AND f.gen = l.open \
                     AND f.seq <> l.taken ORDER BY f.ord, f.seq LIMIT 1 OFFSET {place})"
                )
            };
            let parts: Vec<String> =
                (0..most).map(|place| self.jobs_from(&at(place), bodies)).collect();
            self.read_jobs_by(&parts.join(" UNION ALL ")).await?;
        }
        Ok(())
    }

    /// In `accumulate`, tells the model the lowest priority number of the open jobs that were not read.
    async fn load_soonest(&mut self, lanes: &[u64], need: Need) -> Try<()> {
        let mut soonest: HashMap<u64, i64> = HashMap::new();
        let (mut likely, mut all) = (Vec::new(), Vec::new());
        for id in lanes {
            let Some(row) = self.lanes.get(id) else { continue };
            if self.mode(row.q)? != Mode::Accumulate {
                continue;
            }
            let rest = self.unread_of(row);
            all.push((*id, format!("(SELECT {id}, MIN(prio) {rest}{})", self.newest())));
            // The job that the lane's own figure is of may be taken, or leave. Often others have the same priority.
            match row.soonest {
                Some(least) if matches!(need, Need::NextTurn | Need::Removal) => {
                    let newest = self.newest();
                    let one =
                        format!("(SELECT {id}, prio {rest} AND prio = {least} LIMIT 1{newest})");
                    likely.push((*id, one));
                }
                Some(least) => drop(soonest.insert(*id, least)),
                None => {}
            }
        }
        for queries in [likely, all] {
            let unknown = queries.into_iter().filter(|(id, _)| !soonest.contains_key(id));
            let unknown: Vec<String> = unknown.map(|(_, query)| query).collect();
            for queries in unknown.chunks(PARTS_MAX) {
                for row in self.rows(&queries.join(" UNION ALL ")).await? {
                    let mut row = Columns::of(row);
                    let (id, least) = (row.int()? as u64, row.maybe_int()?);
                    soonest.extend(least.map(|least| (id, least)));
                }
            }
        }
        for (id, soonest) in soonest {
            if let Some(lane) = self.state.lanes.get_mut(&id) {
                lane.there_are_more(soonest as u16);
            }
        }
        Ok(())
    }

    /// The end of a query for a lane's open jobs that were not read.
    fn unread_of(&self, row: &LaneRow) -> String {
        let here = self.state.lanes.get(&row.id);
        let here = here.into_iter().flat_map(|lane| lane.loaded_jobs().map(|job| job.id.seq()));
        format!(
            "FROM seriatim_job FORCE INDEX (job_lane) WHERE lane = {} AND gen = {} AND seq NOT IN ({},{})",
            row.id,
            row.open,
            row.taken,
            list(here)
        )
    }

    /// A query for jobs, completed by `from`.
    fn jobs_from(&self, from: &str, bodies: Bodies) -> String {
        let (body, newest) = (bodies.of("j.payload"), self.newest());
        format!("SELECT {JOB_COLUMNS}, {body} {from}{newest}")
    }

    /// Reads jobs into loaded lanes.
    pub(super) async fn read_jobs(&mut self, from: &str, bodies: Bodies) -> Try<Vec<JobId>> {
        self.read_jobs_by(&self.jobs_from(from, bodies)).await
    }

    async fn read_jobs_by(&mut self, sql: &str) -> Try<Vec<JobId>> {
        let ids = self.read(sql).await?;
        for lane in self.state.lanes.values_mut() {
            if let Some(hold) = &mut lane.hold {
                hold.closed.sort_by_key(|job| (score_rank(job.score), job.id.seq()));
            }
        }
        Ok(ids)
    }

    /// Reads ended jobs.
    pub(super) async fn read_ended(&mut self, from: &str, bodies: Bodies) -> Try<Vec<JobId>> {
        let sql = format!("SELECT {ENDED_COLUMNS}, {} {from}", bodies.of("j.payload"));
        self.read(&sql).await
    }

    async fn read(&mut self, sql: &str) -> Try<Vec<JobId>> {
        let mut ids = Vec::new();
        for row in self.rows(sql).await? {
            let mut row = Columns::of(row);
            let mut job = JobRow::read(&mut row)?;
            self.read_body(&mut row, &mut job)?;
            ids.push(job.entry.id);
            if !self.jobs.contains_key(&job.entry.id.seq()) {
                self.add_job(job);
            }
        }
        Ok(ids)
    }

    /// Reads the columns of [`Bodies::of`].
    pub(super) fn read_body(&mut self, row: &mut Columns, job: &mut JobRow) -> Try<()> {
        let (body, length) = (row.bytes()?, row.int()? as usize);
        job.entry.payload = match body {
            Some(body) => Payload::from_bytes(body),
            None if length > 0 => {
                self.lengths_only.insert(job.entry.id.seq());
                stand_in(length)
            }
            None => Payload::from_bytes(Vec::new()),
        };
        Ok(())
    }

    pub(super) fn add_job(&mut self, job: JobRow) {
        let seq = job.entry.id.seq();
        let (id, entry) = (job.entry.id, job.entry.clone());
        match job.lane {
            Some(number) => {
                self.state.jobs.insert(id, Location::Lane(number));
                let Some(lane) = self.state.lanes.get_mut(&number) else { return };
                let row = self.lanes.get(&number);
                let is_closed = row.is_some_and(|row| row.has_closed(seq, job.gen_));
                let unread = &mut lane.unread;
                let count = if is_closed { &mut unread.closed } else { &mut unread.open };
                *count = count.saturating_sub(1);
                match &mut lane.hold {
                    Some(hold) if is_closed => hold.closed.push(entry),
                    _ if lane.mode == Mode::Exclusive && !job.later => lane.insert_due(entry),
                    _ => lane.insert(entry),
                }
            }
            None if job.state == DEAD => {
                self.state.jobs.insert(id, Location::Dead);
                self.state.dead.insert(id, job.clone().into_ended());
            }
            None if job.state != WAITING => {
                self.state.jobs.insert(id, Location::Done);
                self.state.done.insert(id, job.clone().into_ended());
            }
            None => {}
        }
        self.jobs.insert(seq, job);
    }

    /// Reads the large payloads of these jobs.
    async fn bodies_of(&mut self, jobs: &[JobId]) -> Try<HashMap<u64, Payload>> {
        let missing = jobs.iter().map(|id| id.seq()).filter(|seq| self.lengths_only.contains(seq));
        let missing: Vec<u64> = missing.collect();
        let mut bodies = HashMap::new();
        // In small chunks, because each payload may be large.
        for seqs in missing.chunks(100) {
            let seqs = list(seqs.iter().copied());
            let sql = format!(
                "SELECT seq, payload FROM seriatim_job FORCE INDEX (PRIMARY) WHERE seq IN ({seqs}) UNION ALL \
                 SELECT id, payload FROM seriatim_lane FORCE INDEX (PRIMARY) WHERE id IN ({seqs}) AND j_gen IS NOT NULL"
            );
            for row in self.rows(&sql).await? {
                let mut row = Columns::of(row);
                let seq = row.int()? as u64;
                bodies.insert(seq, Payload::from_bytes(row.bytes()?.unwrap_or_default()));
            }
        }
        Ok(bodies)
    }

    /// Adds the large payloads, which were not read before, to these turns.
    pub(super) async fn fill<'t>(&mut self, turns: impl Iterator<Item = &'t mut Turn>) -> Try<()> {
        let mut turns: Vec<&mut Turn> = turns.collect();
        let ids: Vec<JobId> =
            turns.iter().flat_map(|turn| turn.jobs.iter().map(|job| job.id)).collect();
        let mut bodies = self.bodies_of(&ids).await?;
        for job in turns.iter_mut().flat_map(|turn| &mut turn.jobs) {
            if let Some(body) = bodies.remove(&job.id.seq()) {
                job.payload = body;
            }
        }
        Ok(())
    }

    /// The lanes of these jobs, with their current ids; merged jobs are noted as aliases. Unknown ids are left out.
    /// Takes no locks, and does not see what a user's transaction has written itself.
    pub(super) async fn find(&mut self, ids: &[JobId]) -> Try<Vec<(JobId, Option<u64>)>> {
        let mut found = Vec::new();
        for ids in ids.chunks(LIST_MAX / 10) {
            let wanted: BTreeSet<JobId> = ids.iter().copied().collect();
            let mut here = self.find_jobs(&wanted).await?;
            let known: BTreeSet<JobId> = here.iter().map(|(id, _)| *id).collect();
            // Afterwards: what merges in between is an alias by then.
            let targets = self.find_targets(&(&wanted - &known)).await?;
            here.extend(self.find_jobs(&(&targets - &known)).await?);
            found.extend(here);
        }
        Ok(found)
    }

    /// The jobs that these were merged into.
    async fn find_targets(&mut self, ids: &BTreeSet<JobId>) -> Try<BTreeSet<JobId>> {
        let mut targets = BTreeSet::new();
        if ids.is_empty() {
            return Ok(targets);
        }
        let names: Vec<String> = ids.iter().map(|id| bytes(&id.to_bytes())).collect();
        let sql = format!(
            "SELECT id, target FROM seriatim_alias FORCE INDEX (PRIMARY) WHERE id IN ({})",
            names.join(",")
        );
        for row in self.committed(&sql).await? {
            let mut row = Columns::of(row);
            let (alias, target) = (job_id(&mut row)?, job_id(&mut row)?);
            targets.insert(target);
            self.state.jobs.insert(alias, Location::Alias(target));
        }
        Ok(targets)
    }

    async fn find_jobs(&mut self, ids: &BTreeSet<JobId>) -> Try<Vec<(JobId, Option<u64>)>> {
        let mut found = Vec::new();
        if ids.is_empty() {
            return Ok(found);
        }
        let seqs = list(ids.iter().map(|id| id.seq()));
        let sql = format!(
            "SELECT seq, q, created, lane FROM seriatim_job FORCE INDEX (PRIMARY) WHERE seq IN ({seqs}) UNION ALL \
             SELECT id, q, j_created, id FROM seriatim_lane FORCE INDEX (PRIMARY) WHERE id IN ({seqs}) AND j_gen IS NOT NULL UNION ALL \
             SELECT seq, q, created, NULL FROM seriatim_ended FORCE INDEX (PRIMARY) WHERE seq IN ({seqs})"
        );
        for row in self.committed(&sql).await? {
            let mut row = Columns::of(row);
            let (seq, q) = (row.int()? as u64, row.int()? as u32);
            let id = JobId::new(Timestamp::from_micros(row.int()?), q, 0, seq);
            let lane = row.maybe_int()?.map(|lane| lane as u64);
            if ids.contains(&id) {
                found.push((id, lane));
            }
        }
        Ok(found)
    }
}

pub(super) fn job_id(row: &mut Columns) -> Try<JobId> {
    let bytes = row.bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    bytes.map(JobId::from_bytes).ok_or_else(super::sql::corrupt)
}

/// A placeholder with the length of a payload, for byte limits. It shares static memory.
fn stand_in(length: usize) -> Payload {
    static ZEROS: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];
    Payload::from_bytes(Bytes::from_static(&ZEROS[..length.min(PAYLOAD_BYTES_MAX)]))
}

impl Work<'_> {
    /// The digests of the closed jobs of a lane that was read in part.
    pub(super) async fn closed_digests(&mut self, lane: u64) -> Try<Vec<Digest>> {
        if self.is_small(lane, Need::Position) {
            return Ok(Vec::new());
        }
        let Some(row) = self.lanes.get(&lane) else { return Ok(Vec::new()) };
        let newest = self.newest();
        let sql = format!(
            "(SELECT digest FROM seriatim_job WHERE lane = {lane} AND gen < {} AND digest IS NOT NULL{newest}) UNION ALL \
             (SELECT digest FROM seriatim_job WHERE seq = {} AND digest IS NOT NULL{newest})",
            row.open, row.taken
        );
        // The opening job's digest is in the lane's row.
        let opener = self.jobs.get(&lane).and_then(|job| job.entry.digest);
        let mut digests: Vec<Digest> = opener.into_iter().collect();
        for row in self.rows(&sql).await? {
            digests
                .extend(Columns::of(row).bytes()?.and_then(|bytes| Digest::try_from(bytes).ok()));
        }
        Ok(digests)
    }

    /// Reads one node, or all.
    pub(super) async fn load_nodes(&mut self, id: Option<&str>, lock: &str) -> Try<()> {
        let rows = self.rows(&nodes(id, lock)).await?;
        self.add_nodes(rows)
    }

    /// Adds the rows of [`nodes`].
    pub(super) fn add_nodes(&mut self, rows: Vec<Row>) -> Try<()> {
        for row in rows {
            let mut row = Columns::of(row);
            let info: NodeInfo = row.json()?.ok_or_else(super::sql::corrupt)?;
            let beat_at = Timestamp::from_micros(row.int()?);
            let dead_at = row.maybe_int()?.map(Timestamp::from_micros);
            let command = row.maybe_text()?.and_then(|name| Command::named(&name));
            let id = info.id.clone();
            self.state.nodes.insert(id, NodeRow { info, beat_at, dead_at, command, given_up: 0 });
        }
        Ok(())
    }
}

/// The query for one node, or all.
pub(super) fn nodes(id: Option<&str>, lock: &str) -> String {
    let filter = id.map_or_else(String::new, |id| format!("WHERE id = {}", super::sql::text(id)));
    nodes_from(&format!("{filter} ORDER BY id {lock}"))
}

/// The query for nodes, completed by `rest`.
pub(super) fn nodes_from(rest: &str) -> String {
    format!("SELECT info, beat_at, dead_at, command FROM seriatim_node {rest}")
}
