//! A store in `MySQL` or `MariaDB`, for several nodes at once.
//!
//! An operation is one transaction. It locks the lanes that it is about, reads what it must know of
//! them into the reference model (`work.rs`), lets the model carry it out, and writes what has become
//! different in a few statements for the whole batch (`save.rs`). So the rules are the model's, and
//! what stands here is which part of the store an operation needs.

mod bodies;
mod claim;
mod deletion;
mod error;
mod job_row;
mod lane_row;
mod load;
mod migrate;
mod nodes;
mod options;
mod people;
mod plain;
mod pool;
mod push;

mod save;
mod settle;
mod sight;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;
mod views;
mod wake;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use error::Fail;
use options::Options;
use plain::Plain;
use pool::Pool;
use work::{Definitions, Hold, Known, Work};

use crate::contract::request::*;
use crate::contract::view::*;
use crate::contract::wake::{Bell, Wakeups};
use crate::contract::{Opening, SharedStore, Store, validate_push};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::job::Job;
use crate::model::turn::Turn;

/// How often a call is repeated that the server undid because of others.
const TRIES_MAX: usize = 8;
/// See [`Capabilities::claim_split`]: two sessions at once keep two of the server's cores busy, and share
/// a flush of its log.
const CLAIM_SPLIT: usize = 500;

/// A store in a database of `MySQL` (8.0 or later) or `MariaDB` (10.6 or later).
///
/// Its tables begin with `seriatim_`. The server's clock decides.
pub struct Mysql {
    inner: Arc<Inner>,
    poll: wake::Poll,
}

struct Inner {
    pool: Pool,
    definitions: Definitions,
    plain: Plain,
    bell: Bell,
}

impl std::fmt::Debug for Mysql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mysql").finish_non_exhaustive()
    }
}

/// How often something has been tried, and how.
struct Attempt {
    hold: Hold,
    reserves: bool,
    /// Whether it begins with what is asked ahead.
    plain: bool,
    tries: usize,
}

impl Attempt {
    /// What to do after a failure: nothing (try again), or say so.
    fn after(&mut self, fail: Fail, pool: &Pool) -> Option<Error> {
        if matches!(fail, Fail::Alone) && self.hold != Hold::Alone {
            self.hold = Hold::Alone;
            return None;
        }
        if matches!(fail, Fail::NotPlain) && self.plain {
            self.plain = false;
            return None;
        }
        if fail.is_taken() && !self.reserves {
            self.reserves = true;
            return None;
        }
        self.tries += 1;
        if !fail.is_retriable() || self.tries >= TRIES_MAX {
            return Some(fail.into());
        }
        tracing::debug!("MySQL undid a call, which is made again");
        pool.repeated.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Does something in a transaction; again, when the server undid it because of others.
macro_rules! transact {
    ($store:expr, $hold:expr, $now:expr, $work:ident => $body:expr) => {
        transact!($store, $hold, $now, String::new(), $work => $body)
    };
    // With statements that are asked ahead.
    ($store:expr, $hold:expr, $now:expr, $ahead:expr, $work:ident => $body:expr) => {{
        let mut attempt = Attempt { hold: $hold, reserves: false, plain: true, tries: 0 };
        // A call that is given up takes its connection with it, and the server undoes it.
        let call = async {
            loop {
                let tried = async {
                    let ahead = if attempt.plain { $ahead } else { String::new() };
                    let (pool, definitions) = (&$store.pool, &$store.definitions);
                    let mut begun =
                        Work::begin(pool, definitions, attempt.hold, $now, &ahead).await?;
                    begun.reserves = attempt.reserves;
                    let $work = &mut begun;
                    let done = match $body.await {
                        Ok(answer) if $work.ended => Ok(answer),
                        Ok(answer) => $work.run("COMMIT").await.map(|_| answer),
                        Err(fail) => Err(fail),
                    };
                    match done {
                        Ok(answer) => {
                            begun.session.give_back();
                            Ok(answer)
                        }
                        Err(fail) => {
                            if fail.leaves_connection() {
                                begun.undo().await;
                            }
                            Err::<_, Fail>(fail)
                        }
                    }
                };
                match tried.await {
                    Ok(answer) => break Ok(answer),
                    Err(fail) => {
                        if let Some(error) = attempt.after(fail, &$store.pool) {
                            break Err(error);
                        }
                    }
                }
            }
        };
        let limit = $store.pool.options.call_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(timed_out(limit)))
    }};
}

fn timed_out(limit: Duration) -> Error {
    let message = format!("MySQL did not answer within {limit:?} (call_timeout)");
    Error::new(ErrorKind::Unavailable, message)
}

impl Mysql {
    /// Reads a URL and connects to nothing.
    #[cfg(test)]
    pub(crate) fn read_url(url: &str) -> Result<()> {
        Options::parse(url).map(drop)
    }

    /// Opens the store in the database that `url` names: `mysql://user:password@host:port/database`, or
    /// the same with `mariadb:`.
    ///
    /// Behind a `?` it may hold, joined by `&`:
    ///
    /// - `connections`: most at once, besides one for the heartbeats of each engine, 1 to 200; 8
    /// - `call_timeout`: how long a call may take, the wait for a connection included; `30s`
    /// - `connect_timeout`: how long a connection may take to come about; `10s`
    /// - `ssl-mode`: `disabled`, `preferred` (the default: encrypted if the server can), `required`
    ///   (encrypted, whoever answers), `verify_identity` (the server must prove its name)
    /// - `ssl-ca`: a file in PEM with the authorities to trust; without it those that Mozilla trusts
    ///
    /// Fails as `Unavailable` when the server cannot be reached, and as `Invalid` when the URL is
    /// wrong; no error shows a password. Does not set the store up: see [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        let inner = Inner {
            pool: Pool::new(Options::parse(url)?),
            definitions: Definitions::default(),
            plain: Plain::default(),
            bell: Bell::default(),
        };
        let loan = inner.pool.lend().await?;
        loan.give_back();
        Ok(Self { inner: Arc::new(inner), poll: wake::Poll::default() })
    }

    /// A connection as the store's own are, to measure what the server does without the store.
    #[doc(hidden)]
    pub async fn session(&self) -> Result<mysql_async::Conn> {
        Ok(self.inner.pool.connect().await?)
    }

    /// Calls that the server undid because of others, and that were made again.
    #[cfg(test)]
    fn repeated(&self) -> u64 {
        self.inner.pool.repeated.load(Ordering::Relaxed)
    }
}

impl Inner {
    async fn due_now(&self) -> Result<Vec<SourceDue>> {
        transact!(self, Hold::Look, None, work => sight::due(work, &[]))
    }

    /// Sees to it that the queues and routes of these jobs exist, and answers all definitions. A
    /// transaction of the user's could not create them: until its end nobody else could use the store.
    async fn define(&self, jobs: &[Job]) -> Result<Known> {
        transact!(self, Hold::Shared, None, work => push::define(work, jobs))
    }

    /// The number of the definitions, when nobody is changing them.
    async fn stamp(&self) -> Result<i64> {
        transact!(self, Hold::Shared, None, work => async { Ok(work.stamp) })
    }
}

impl Mysql {
    async fn kept_secret(&self) -> Result<Option<Secret>> {
        transact!(self.inner, Hold::Look, None, work => nodes::secret(work))
    }
}

#[async_trait]
impl Store for Mysql {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "mysql", shared: true, claim_split: Some(CLAIM_SPLIT) }
    }

    async fn now(&self) -> Result<Timestamp> {
        transact!(self.inner, Hold::Look, None, work => async { Ok(work.now) })
    }

    async fn migrate(&self) -> Result<()> {
        Ok(migrate::migrate(&self.inner.pool).await?)
    }

    async fn check(&self) -> Result<()> {
        Ok(migrate::check(&self.inner.pool).await?)
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        transact!(self.inner, Hold::Shared, None, work => nodes::keep_secret(work, offered))?;
        // A transaction of its own: it sees what another one kept meanwhile.
        let gone = || Error::new(ErrorKind::Corrupt, "the secret of the store is gone");
        self.kept_secret().await?.ok_or_else(gone)
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        transact!(self.inner, Hold::Alone, request.now, work => push::declare(work, &request.queues))
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        if request.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let pushed = transact!(self.inner, Hold::Shared, request.now, work => push::push(work, &request.jobs))?;
        self.inner.bell.ring();
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let asked = AtomicU32::new(0);
        let ahead = || claim::ahead(self.inner.definitions.known(), &request, &asked);
        let (claimed, plain) = transact!(
            self.inner, Hold::Shared, request.now, ahead(), work => claim::claim(
                work, &request, asked.load(Ordering::Relaxed)
            )
        )?;
        self.inner.plain.add(plain);
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let deletion = self.inner.plain.deletion(&request.turns, &self.inner.definitions.known());
        let ahead = || deletion.as_ref().map(|deletion| deletion.sql.clone()).unwrap_or_default();
        let settled = transact!(
            self.inner, Hold::Shared, request.now, ahead(), work => async {
                match deletion.as_ref().filter(|_| !work.ahead.is_empty()) {
                    Some(deletion) => deletion.settle(work, &request.turns).await,
                    None => settle::settle(work, &request.turns).await,
                }
            }
        )?;
        self.inner.bell.ring();
        Ok(settled)
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        transact!(self.inner, Hold::Shared, request.now, work => nodes::heartbeat(work, &request))
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        transact!(self.inner, Hold::Shared, request.now, work => claim::rescue(work, &request))?
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        transact!(self.inner, Hold::Shared, request.now, work => claim::release(work, &request))
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        transact!(self.inner, Hold::Shared, None, work => nodes::give_up(work, &request))
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        transact!(
            self.inner, Hold::Shared, request.now, work => people::sweep(work, request.rows_max)
        )
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        transact!(self.inner, Hold::Shared, request.now, work => people::cancel(work, &request.jobs))
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let acted = transact!(
            self.inner, Hold::Shared, request.now, work => people::requeue(work, &request)
        )?;
        self.inner.bell.ring();
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        transact!(
            self.inner, Hold::Shared, request.now, work => people::delete_dead(work, &request)
        )
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let acted =
            transact!(self.inner, Hold::Shared, request.now, work => people::act(work, &request))?;
        self.inner.bell.ring();
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        transact!(self.inner, Hold::Shared, request.now, work => people::amend(work, &request))?;
        self.inner.bell.ring();
        Ok(())
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        transact!(self.inner, Hold::Alone, None, work => people::pause(work, queue, paused))?;
        self.inner.bell.ring();
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        transact!(self.inner, Hold::Alone, None, work => deletion::delete_queue(work, &request))
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        transact!(self.inner, Hold::Shared, None, work => nodes::command(work, node, command))
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        transact!(
            self.inner, Hold::Shared, request.now, work => nodes::declare_dead(work, &request)
        )
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        transact!(self.inner, Hold::Shared, request.now, work => nodes::lead(work, &request))
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        transact!(self.inner, Hold::Look, request.now, work => sight::due(work, &request.queues))
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        transact!(self.inner, Hold::Look, None, work => async { Ok(work.state.queue_views()) })
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        transact!(self.inner, Hold::Look, now, work => views::stats(work))
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        transact!(self.inner, Hold::Look, None, work => views::lanes(work, &query))
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        transact!(self.inner, Hold::Look, None, work => views::jobs(work, &query))
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        transact!(self.inner, Hold::Look, None, work => views::job(work, id))
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        transact!(self.inner, Hold::Look, None, work => claim::turn(work, lane, token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        transact!(self.inner, Hold::Look, None, work => nodes::views(work))
    }

    fn wakeups(&self) -> Wakeups {
        let wakeups = self.inner.bell.listen();
        self.poll.start(&self.inner);
        wakeups
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let inner = Inner {
            pool: Pool::new(Options { connections: 1, ..self.inner.pool.options.clone() }),
            definitions: Definitions::default(),
            plain: Plain::default(),
            bell: Bell::default(),
        };
        let line = Arc::new(Self { inner: Arc::new(inner), poll: wake::Poll::default() });
        Some(Box::pin(async move { Ok(line as SharedStore) }))
    }

    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.poll.stop();
        self.inner.pool.close();
        Ok(())
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.poll.stop();
    }
}
