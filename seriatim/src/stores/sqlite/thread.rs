//! The threads that own the connections, one to write and one to read. The writer commits all waiting operations
//! together, so many small operations share one flush to disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::translate;
use super::file::FileCheck;
use super::flush::{Boot, Flush, Flushing};
use super::line::{Line, Next, Rank, Room};
use super::migrate::migrate;
use super::tx::{Definitions, Tx};
use super::watch::Watch;
use crate::contract::{Bell, Wake};
use crate::model::{Error, ErrorKind, Result};

/// Most operations in one commit.
const GROUP_MAX: usize = 256;
/// Most of them of the first rank, so that the others are not kept out.
const GROUP_FIRST_MAX: usize = 192;
/// Most bytes of payloads in one commit; one push may have more.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// An operation for a thread.
trait Task: Send {
    /// The bytes of payloads that it writes.
    fn bytes(&self) -> usize;

    /// Whether it waits for the disk.
    fn flush(&self) -> Flush;

    /// Runs the operation and stores the answer. False if it failed: its writes must be undone. It can run again if it
    /// was undone because another operation failed.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;

    /// Sends the answer, or `error` if the commit failed.
    fn answer(self: Box<Self>, error: Option<&Error>);
}

struct Call<T, F> {
    body: F,
    result: Option<Result<T>>,
    sender: oneshot::Sender<Result<T>>,
    bytes: usize,
    flush: Flush,
    _room: Room,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Result<T> + Send> Task for Call<T, F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn flush(&self) -> Flush {
        self.flush
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        // A panic fails this operation, not the thread that all others need.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let answer = (self.body)(tx)?;
            tx.end_batches().map(|()| answer)
        }));
        let result = result.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "the operation panicked; nothing was changed"))
        });
        let ok = result.is_ok();
        self.result = Some(result);
        ok
    }

    fn answer(self: Box<Self>, error: Option<&Error>) {
        let copy = |e: &Error| Err(Error::new(e.kind(), e.message().to_owned()));
        let result = match (self.result, error) {
            // The operation's own error says more than that of the whole group.
            (Some(Err(own)), _) => Err(own),
            (_, Some(error)) => copy(error),
            (Some(Ok(answer)), None) => Ok(answer),
            (None, None) => Err(closed()),
        };
        // Fails if the caller stopped waiting.
        let _ = self.sender.send(result);
    }
}

enum Message {
    Do(Box<dyn Task>),
    /// Create or upgrade the schema.
    Migrate(oneshot::Sender<Result<()>>),
    /// A listener for wake-ups exists now.
    Watch,
    Stop(oneshot::Sender<()>),
}

/// A thread with its own connection. It ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    line: Arc<Open>,
}

/// A line that is closed when nobody can add to it.
#[derive(Debug)]
struct Open(Arc<Line<Message>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A line whose thread serves it. When the thread ends, also by a panic, those that still wait are answered: the store
/// is closed.
struct Served(Arc<Line<Message>>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Worker {
    /// Starts the writing thread. It rings the bell when a lane may have become claimable.
    pub(super) fn writer(
        connection: Connection,
        file: FileCheck,
        bell: Bell,
        flushing: Flushing,
        boot: Boot,
    ) -> Result<Self> {
        let watch = Watch::new(&connection)?;
        let body = move |line: &Line<Message>| {
            let boot = Some(boot);
            Writer { connection, file, bell, flushing, boot, watch }.serve(line);
        };
        Self::start("seriatim-sqlite-write", body)
    }

    /// Starts the reading thread.
    pub(super) fn reader(connection: Connection, file: FileCheck) -> Result<Self> {
        Self::start("seriatim-sqlite-read", move |line| read_all(connection, &file, line))
    }

    fn start(name: &str, body: impl FnOnce(&Line<Message>) + Send + 'static) -> Result<Self> {
        let line = Arc::new(Line::new());
        let served = line.clone();
        let serve = move || {
            let served = Served(served);
            body(&served.0);
        };
        thread::Builder::new().name(name.to_owned()).spawn(serve).map_err(|e| {
            Error::new(ErrorKind::Internal, "cannot start a thread for SQLite").because(e)
        })?;
        Ok(Self { line: Arc::new(Open(line)) })
    }

    /// Runs `body` in a transaction. On the writer, operations share one: if `body` fails, its own changes are undone;
    /// when this returns, they are committed, and on disk if `flush` is [`Flush::Now`].
    pub(super) async fn call<T: Send + 'static>(
        &self,
        rank: Rank,
        bytes: usize,
        flush: Flush,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let line = &self.line.0;
        let room = line.room(rank, bytes).await.ok_or_else(closed)?;
        let (sender, receiver) = oneshot::channel();
        let task = Box::new(Call { body, result: None, sender, bytes, flush, _room: room });
        line.add(rank, Message::Do(task)).map_err(|_| closed())?;
        receiver.await.map_err(|_| closed())?
    }

    /// The bytes of payloads that wait.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.line.0.sum(|message| match message {
            Message::Do(task) => task.bytes(),
            _ => 0,
        })
    }

    /// Creates or upgrades the schema.
    pub(super) async fn migrate(&self) -> Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.line.0.add(Rank::Usual, Message::Migrate(sender)).map_err(|_| closed())?;
        receiver.await.map_err(|_| closed())?
    }

    /// Tells the writer to check for writes by other processes, because there is a listener.
    pub(super) fn watch(&self) {
        // A stopped writer has nothing to check.
        let _ = self.line.0.add(Rank::Usual, Message::Watch);
    }

    /// Stops the thread after the operations queued before.
    pub(super) async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.line.0.add(Rank::Usual, Message::Stop(sender)).is_ok() {
            let _ = receiver.await;
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has been closed")
}

struct Writer {
    connection: Connection,
    file: FileCheck,
    bell: Bell,
    flushing: Flushing,
    /// The machine's boot, until the file knows it.
    boot: Option<Boot>,
    watch: Option<Watch>,
}

impl Writer {
    fn serve(mut self, line: &Line<Message>) {
        let mut definitions = Definitions::default();
        while let Some(first) = self.next(line) {
            let (group, other) = group_of(first, line);
            if !group.is_empty() {
                self.commit_together(&mut definitions, group);
            }
            match other {
                Some(Message::Migrate(sender)) => {
                    definitions.forget();
                    let _ = sender.send(self.migrate());
                }
                Some(Message::Watch) => {
                    if let Some(watch) = &mut self.watch {
                        watch.begin(&self.connection);
                    }
                }
                Some(Message::Stop(done)) => {
                    drop((self.connection, self.watch));
                    let _ = done.send(());
                    return;
                }
                _ => {}
            }
        }
    }

    /// The next message. Between messages, checks for writes by other processes while there are listeners.
    fn next(&mut self, line: &Line<Message>) -> Option<Message> {
        loop {
            let next = match &mut self.watch {
                Some(watch) if self.bell.has_listeners() => match watch.is_overdue() {
                    true => Next::TimedOut,
                    false => watch.next(line),
                },
                _ => line.next(None),
            };
            match next {
                Next::Message(message) => return Some(message),
                Next::Closed => return None,
                Next::TimedOut => self.look(),
            }
        }
    }

    fn look(&mut self) {
        let news = self.watch.as_mut().is_some_and(|watch| watch.look(&self.connection));
        // If the file is gone, listeners learn it from their next call.
        if news || self.file.check().is_err() {
            self.bell.ring(&Wake::All);
        }
    }

    fn migrate(&self) -> Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(translate)?;
        let result = migrate(&self.connection)
            .and_then(|()| self.connection.execute_batch("COMMIT").map_err(translate));
        if result.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }

    fn commit_together(&mut self, definitions: &mut Definitions, mut group: Vec<Box<dyn Task>>) {
        let error = match self.attempt(definitions, &mut group) {
            Ok(wake) => {
                group.into_iter().for_each(|task| task.answer(None));
                self.bell.ring(&wake);
                return;
            }
            Err(error) => error,
        };
        // A disk without space for all of them may have space for most.
        if group.len() > 1 && error.kind() == ErrorKind::Full {
            for task in group {
                self.commit_together(definitions, vec![task]);
            }
            return;
        }
        group.into_iter().for_each(|task| task.answer(Some(&error)));
    }

    /// Runs all tasks in one transaction and undoes failed ones individually. Returns which queues may have
    /// claimable lanes now, or why nothing was committed.
    fn attempt(
        &mut self,
        definitions: &mut Definitions,
        group: &mut [Box<dyn Task>],
    ) -> Result<Wake> {
        self.file.check()?;
        let needed = group.iter().map(|task| task.flush()).max().unwrap_or(Flush::Later);
        let flush = if self.boot.is_some() { Flush::Now } else { self.flushing.of(needed) };
        if let Some(wake) = self.run(definitions, group, flush)? {
            return Ok(wake);
        }
        let wake = self.run(definitions, group, Flush::Now)?;
        wake.ok_or_else(|| Error::new(ErrorKind::Internal, "the tokens could not be reserved"))
    }

    /// `None`: nothing was committed, because it must be flushed.
    fn run(
        &mut self,
        definitions: &mut Definitions,
        group: &mut [Box<dyn Task>],
        flush: Flush,
    ) -> Result<Option<Wake>> {
        self.flushing.set(&self.connection, flush)?;
        let result = run_all(&self.connection, definitions, group, flush, self.boot.as_ref());
        if matches!(result, Ok(Some(_))) {
            self.boot = None;
            return result;
        }
        definitions.forget();
        if !self.connection.is_autocommit() {
            // If the rollback fails too, the file is rolled back when it is next opened.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }
}

/// The tasks of one commit, those of the first rank first; and a message that is handled after them.
fn group_of(first: Message, line: &Line<Message>) -> (Vec<Box<dyn Task>>, Option<Message>) {
    let (mut group, mut bytes) = (Vec::new(), 0);
    let mut next = Some(first);
    loop {
        match next {
            Some(Message::Do(task)) => {
                bytes += task.bytes();
                group.push(task);
            }
            other => return (group, other),
        }
        let urgent = if group.len() < GROUP_FIRST_MAX { line.try_next(Rank::First) } else { None };
        let has_room = group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX;
        next = match urgent {
            None if has_room => line.try_next(Rank::Usual),
            urgent => urgent,
        };
    }
}

fn run_all(
    connection: &Connection,
    definitions: &mut Definitions,
    group: &mut [Box<dyn Task>],
    flush: Flush,
    boot: Option<&Boot>,
) -> Result<Option<Wake>> {
    let say = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([]).map(drop));
    say("BEGIN IMMEDIATE").map_err(translate)?;
    let mut tx = Tx::begin(connection, definitions)?;
    if let Some(boot) = boot {
        tx.begin_boot(boot)?;
    }
    // A savepoint costs a copy of every page that the task changes, and there is nothing else to keep if it fails.
    let is_alone = group.len() == 1 && boot.is_none();
    for task in group {
        if !is_alone {
            say("SAVEPOINT task").map_err(translate)?;
        }
        let before = tx.mark();
        if !task.run(&mut tx) {
            if connection.is_autocommit() {
                // On a full disk or an I/O error SQLite aborts the whole transaction.
                let message = "SQLite aborted the transaction: is the disk full?";
                return Err(Error::new(ErrorKind::Full, message));
            }
            let undo = if is_alone { "ROLLBACK" } else { "ROLLBACK TO task" };
            say(undo).map_err(translate)?;
            tx.back_to(before);
            if is_alone {
                return Ok(Some(Wake::of([])));
            }
        }
        if !is_alone {
            say("RELEASE task").map_err(translate)?;
        }
    }
    if flush == Flush::Now {
        tx.reserve();
    }
    if !tx.has_reserved() {
        return Ok(None);
    }
    let wake = tx.finish()?;
    say("COMMIT").map_err(translate)?;
    Ok(Some(wake))
}

fn read_all(connection: Connection, file: &FileCheck, line: &Line<Message>) {
    let mut definitions = Definitions::default();
    while let Next::Message(message) = line.next(None) {
        match message {
            Message::Do(mut task) => {
                let looked = file.check();
                let looked = looked.and_then(|()| look(&connection, &mut definitions, &mut *task));
                let error = looked.err();
                task.answer(error.as_ref());
            }
            Message::Watch | Message::Migrate(_) => {}
            Message::Stop(done) => {
                // Close before the writer does: only the last connection moves the log into the file.
                drop(connection);
                let _ = done.send(());
                return;
            }
        }
    }
}

/// Runs a task in a read transaction, so that it sees one state: otherwise a job that moves meanwhile could be found
/// nowhere.
fn look(connection: &Connection, definitions: &mut Definitions, task: &mut dyn Task) -> Result<()> {
    let say = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([]).map(drop));
    say("BEGIN").map_err(translate)?;
    let result = Tx::begin(connection, definitions).map(|mut tx| {
        tx.is_reader = true;
        task.run(&mut tx)
    });
    // After an error SQLite may have ended the transaction itself; then the first error is the one to tell.
    let ended = say("ROLLBACK").map_err(translate);
    result.and(ended)
}
