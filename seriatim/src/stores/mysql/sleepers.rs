//! Processes that wait for work of a queue, as rows of `seriatim_sleeper`: a push wakes two of them. A row is a hint; it stays while
//! its process waits, and is not believed for long if the process is gone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::definitions::Known;
use super::pool::Pool;
use super::sql::{CLOCK, list};
use crate::contract::Bell;
use crate::lock::lock;
use crate::model::Result;
use crate::stores::asleep::{Asleep, News};

/// How long a row is believed.
pub(super) const BELIEVED: Duration = Duration::from_secs(90);
/// How often a process that waits says so again.
const AGAIN_EVERY: Duration = Duration::from_secs(30);
/// Most rows of processes that are gone which one call deletes.
const GONE_MAX: usize = 100;

/// What this process has to say of itself.
#[derive(Default)]
pub(super) struct Sleepers {
    asleep: Mutex<Asleep>,
    told: Mutex<Option<Instant>>,
}

impl Sleepers {
    /// What others know, or are to know, of this process.
    pub(super) fn asleep(&self) -> MutexGuard<'_, Asleep> {
        lock(&self.asleep)
    }

    /// Says what the others do not know yet of this process. What cannot be said is said later.
    pub(super) async fn tell(&self, pool: &Pool, bell: &Bell, known: &Known, now: Instant) {
        let news = {
            let (mut asleep, mut told) = (self.asleep(), lock(&self.told));
            if told.is_none_or(|told| now - told >= AGAIN_EVERY) {
                *told = Some(now);
                asleep.repeat();
            }
            asleep.news(|queue| bell.is_awaited(queue))
        };
        if let Err(error) = say(pool, known, &news).await {
            tracing::debug!(%error, "MySQL was not told where this process waits");
            self.asleep().put_back(news);
        }
    }

    /// Says that this process waits no more. If that fails, the others believe for a while that it does.
    pub(super) async fn end(&self, pool: &Pool, known: &Known) {
        let news = {
            let mut asleep = self.asleep();
            asleep.ends();
            asleep.news(|_| true)
        };
        let _ = say(pool, known, &news).await;
    }
}

async fn say(pool: &Pool, known: &Known, news: &News) -> Result<()> {
    let sql = statements(known, news, pool.process);
    if !sql.is_empty() {
        pool.ask(&sql.join(";")).await?;
    }
    Ok(())
}

/// What says this. Each statement is a transaction, so that they wait for nobody.
fn statements(known: &Known, news: &News, me: u64) -> Vec<String> {
    let numbers = |names: &BTreeSet<Arc<str>>| -> BTreeSet<u32> {
        names.iter().filter_map(|name| known.queues.number(name)).collect()
    };
    let [enters, leaves, next, passed_on] =
        [&news.enters, &news.leaves, &news.next, &news.passed_on].map(numbers);
    let mut sql = Vec::new();
    if !leaves.is_empty() {
        let queues = list(leaves.iter().copied());
        sql.push(format!("DELETE FROM seriatim_sleeper WHERE p = {me} AND q IN ({queues})"));
    }
    if !enters.is_empty() {
        let rows: Vec<String> =
            enters.iter().map(|queue| format!("({queue}, {me}, {CLOCK})")).collect();
        sql.push(format!(
            "INSERT INTO seriatim_sleeper (q, p, since) VALUES {} ON DUPLICATE KEY UPDATE since = VALUES(since)",
            rows.join(",")
        ));
    }
    sql.extend(passed_on.iter().map(|queue| ring_two(*queue, me)));
    sql.extend((&next - &passed_on).iter().map(|queue| ring_next(*queue, me)));
    sql
}

/// Deletes rows of processes that are gone: read first, so that no row of a living one is locked.
pub(super) async fn trim(pool: &Pool) -> Result<()> {
    let old = format!(
        "SELECT q, p FROM seriatim_sleeper WHERE since < {CLOCK} - {} LIMIT {GONE_MAX}",
        BELIEVED.as_micros()
    );
    let mut sql = Vec::new();
    for answer in pool.ask(&old).await? {
        for row in answer.rows {
            let (queue, process): (u32, i64) = mysql_async::from_row(row);
            sql.push(format!("DELETE FROM seriatim_sleeper WHERE q = {queue} AND p = {process}"));
        }
    }
    if !sql.is_empty() {
        pool.ask(&sql.join(";")).await?;
    }
    Ok(())
}

/// Two that wait in a queue, but this process, as a row of `a` and `b`. The first two from some place in their order on, which
/// differs each time, so that one that is gone does not cost every wake-up. In the store's own transactions a read of another
/// table takes no locks.
fn two_of(queue: u32, me: u64) -> String {
    let from = fastrand::u64(..1 << 62);
    let one = |place: &str, offset: u32| {
        format!(
            "(SELECT p FROM seriatim_sleeper FORCE INDEX (PRIMARY) WHERE q = {queue} AND p {place} {from} \
             AND p <> {me} AND since >= {CLOCK} - {} ORDER BY p LIMIT 1 OFFSET {offset})",
            BELIEVED.as_micros()
        )
    };
    let (behind, before) = (|offset| one(">=", offset), |offset| one("<", offset));
    format!(
        "SELECT COALESCE({}, {}) a, COALESCE({}, IF({} IS NULL, {}, {})) b",
        behind(0),
        before(0),
        behind(1),
        behind(0),
        before(1),
        before(0)
    )
}

/// Adds a row for two that wait, or for all if fewer do. One statement for each queue: for a statement with several rows that it
/// reads, the server reserves numbers that nobody uses, and the others would look for them.
pub(super) fn ring_two(queue: u32, me: u64) -> String {
    format!(
        "INSERT INTO seriatim_ring (q, p, a, b) SELECT {queue}, {me}, IF(b IS NULL, 0, a), COALESCE(b, 0) FROM ({}) t",
        two_of(queue, me)
    )
}

/// Adds a row for the next two that wait, or for one, or none.
fn ring_next(queue: u32, me: u64) -> String {
    format!(
        "INSERT INTO seriatim_ring (q, p, a, b) SELECT {queue}, {me}, a, COALESCE(b, a) FROM ({}) t WHERE a IS NOT NULL",
        two_of(queue, me)
    )
}
