//! The threads that own the connections. One writes: it drains what is waiting and commits it
//! together, so that many small batches share one flush to the disk. One reads.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::fault::translate;
use crate::error::{Error, ErrorKind, Result};
use crate::store::wake::Bell;

/// Most operations that share one commit.
const GROUP_MAX: usize = 256;
/// How often the reader looks whether another process has written.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Something to do on a connection, and whom to tell when its outcome is certain.
type Task = Box<dyn FnOnce(&Connection) -> Reply + Send>;
type Reply = Box<dyn FnOnce(Option<&Error>) + Send>;

/// A thread with a connection of its own.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    tasks: Sender<Message>,
}

enum Message {
    Do(Task),
    Stop(oneshot::Sender<()>),
}

impl Worker {
    /// Starts the thread that writes.
    pub(super) fn writer(connection: Connection, bell: Bell) -> Result<Self> {
        Self::start("seriatim-sqlite-write", move |tasks| write_all(connection, &tasks, &bell))
    }

    /// Starts the thread that reads, and rings when another process has written.
    pub(super) fn reader(connection: Connection, bell: Bell) -> Result<Self> {
        Self::start("seriatim-sqlite-read", move |tasks| read_all(&connection, &tasks, &bell))
    }

    fn start(name: &str, body: impl FnOnce(Receiver<Message>) + Send + 'static) -> Result<Self> {
        let (tasks, receiver) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || body(receiver)).map_err(
            |e| Error::new(ErrorKind::Internal, "cannot start a thread for SQLite").because(e),
        )?;
        Ok(Self { tasks })
    }

    /// Runs `body` on the thread. For the writer: inside a transaction that others share; when it
    /// fails, its own changes are undone, and when it answers, they are on the disk.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let task: Task = Box::new(move |connection| {
            let result = guarded(connection, body);
            Box::new(move |failed| {
                let result = match failed {
                    None => result,
                    Some(error) => Err(Error::new(error.kind(), error.message().to_owned())),
                };
                // Nobody waits any more: the caller gave up.
                let _ = sender.send(result);
            })
        });
        self.tasks.send(Message::Do(task)).map_err(|_| closed())?;
        receiver.await.map_err(|_| closed())?
    }

    /// Ends the thread after what it was given before.
    pub(super) async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.tasks.send(Message::Stop(sender)).is_ok() {
            let _ = receiver.await;
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has been closed")
}

/// Undoes what a failed task changed, without touching what others did before it.
fn guarded<T>(connection: &Connection, body: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    let run = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([]).map(drop));
    run("SAVEPOINT task").map_err(translate)?;
    let result = body(connection);
    if result.is_err() && !connection.is_autocommit() {
        run("ROLLBACK TO task").map_err(translate)?;
    }
    if !connection.is_autocommit() {
        run("RELEASE task").map_err(translate)?;
    }
    result
}

fn write_all(mut connection: Connection, tasks: &Receiver<Message>, bell: &Bell) {
    while let Ok(first) = tasks.recv() {
        let mut group = Vec::new();
        let mut stop = None;
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Do(task) => group.push(task),
                Message::Stop(done) => stop = Some(done),
            }
            if stop.is_none() && group.len() < GROUP_MAX {
                next = tasks.try_recv().ok();
            }
        }
        commit_together(&mut connection, group);
        bell.ring();
        if let Some(done) = stop {
            drop(connection);
            let _ = done.send(());
            return;
        }
    }
}

fn commit_together(connection: &mut Connection, group: Vec<Task>) {
    let transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(transaction) => transaction,
        Err(error) => {
            let error = translate(error);
            // Outside a transaction nothing may be done: each task is only told.
            return group.into_iter().for_each(|task| refuse(task, &error));
        }
    };
    let mut replies = Vec::with_capacity(group.len());
    let mut lost = None;
    for task in group {
        if transaction.is_autocommit() {
            // A full disk or an I/O error makes SQLite give up the whole transaction.
            lost = Some(Error::new(ErrorKind::Full, "SQLite gave the transaction up"));
            refuse(task, lost.as_ref().unwrap_or(&closed()));
            continue;
        }
        replies.push(task(&transaction));
    }
    let failed = if transaction.is_autocommit() {
        drop(transaction);
        lost.or_else(|| {
            Some(Error::new(ErrorKind::Full, "SQLite gave the transaction up: is the disk full?"))
        })
    } else {
        transaction.commit().err().map(translate)
    };
    for reply in replies {
        reply(failed.as_ref());
    }
}

/// Tells a task that it was not done. It is given an empty database, so that it can do no harm.
fn refuse(task: Task, error: &Error) {
    if let Ok(nowhere) = Connection::open_in_memory() {
        task(&nowhere)(Some(error));
    }
}

fn read_all(connection: &Connection, tasks: &Receiver<Message>, bell: &Bell) {
    let mut seen = 0;
    loop {
        match tasks.recv_timeout(WATCH_INTERVAL) {
            Ok(Message::Do(task)) => task(connection)(None),
            Ok(Message::Stop(done)) => {
                let _ = done.send(());
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if bell.has_listeners() => {
                let version = connection
                    .prepare_cached("PRAGMA data_version")
                    .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
                if version.is_ok_and(|version| std::mem::replace(&mut seen, version) != version) {
                    bell.ring();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
