//! One running worker process: messages, answers, and its end.

use std::collections::HashMap;
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use seriatim::limits::BATCH_SIZE_MAX;
use seriatim::store::LaneId;
use seriatim::{Context, Steps};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::answer::{self, Fault, Heard, Held, Said};
use super::group::{DRAIN_MAX, Group};
use super::lines::{LINE_BYTES_MAX, LOG_LINE_BYTES_MAX, Line, Lines, Tail};
use super::messages::{self, Call};
use super::printed::Printed;
use super::steps::{self, Pipelines, Step};
use super::told::Silent;
use crate::base::lock::lock;
use crate::base::text::one_line;
use crate::config::Launch;

/// How long a process may take to end after `shutdown`, before SIGTERM.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How long after SIGTERM, before SIGKILL.
const TERM_GRACE: Duration = Duration::from_millis(1_500);
/// Messages that wait for the process to read them, beside the cancellations of all lanes of its calls. A `perform`
/// waits for a place; of a process that reads nothing for so long, cancellations are dropped (the timeout still holds).
const MESSAGES_WAITING_MAX: usize = 1_024;

/// How a process is to go on. A harder order replaces a milder one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    Work,
    /// It holds no calls: `shutdown`, and if that does not help, signals.
    Shutdown,
    /// It has closed a pipe and can hold no more calls. Unlike the others this is its own doing.
    Broken,
    /// It no longer answers: SIGTERM, then SIGKILL.
    Terminate,
    /// Immediately.
    Kill,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Its status and the end of its output.
    pub(crate) text: Arc<str>,
    /// We ended it: not the fault of its calls.
    pub(crate) is_ours: bool,
}

impl End {
    /// The text for the log.
    pub(crate) fn in_one_line(&self) -> String {
        one_line(&self.text)
    }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Answer {
    Said(Said),
    /// Its message is invalid.
    Unusable(Arc<str>),
    /// The process ended before it received the call.
    NeverSent,
    /// It ended when it had received only a part of the call, which it cannot have begun.
    Torn(End),
    /// The process ended while it held the call.
    Ended(End),
}

#[derive(Debug)]
enum Message {
    Perform(Call),
    Other(String),
}

/// How much of a call the process may have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    Part,
    All,
}

/// A call in the process.
struct Open {
    context: Context,
    held: Held,
    sent: Sent,
    steps: Pipelines,
    news: watch::Sender<News>,
    /// What it has answered. It is handed on when all that arrived with it has been read: two
    /// answers that contradict each other are none.
    said: Option<Result<Said, Arc<str>>>,
    answer: oneshot::Sender<Answer>,
}

/// What is heard of a call before its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// A message about it that cannot be used, although it need not be the last one: the call fails, but
    /// the process may be working on it still.
    pub(crate) fault: Option<Arc<str>>,
}

/// The two ends of a call that a process holds.
pub(crate) struct Handed {
    pub(crate) answer: oneshot::Receiver<Answer>,
    pub(crate) news: watch::Receiver<News>,
}

#[derive(Default)]
struct Calls {
    open: HashMap<String, Open>,
    has_ended: bool,
}

impl Calls {
    /// A call that the process may have heard of.
    fn known(&mut self, batch: &str) -> Option<&mut Open> {
        self.open.get_mut(batch).filter(|open| open.sent == Sent::All)
    }
}

/// A worker process.
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) queue: Arc<str>,
    messages: mpsc::Sender<Message>,
    calls: Mutex<Calls>,
    order: watch::Sender<Order>,
    end: watch::Sender<Option<End>>,
    has_answered: AtomicBool,
    pub(super) silent: Silent,
    printed: Printed,
}

impl Process {
    /// Starts a process for so many calls at once, and a task that goes with it to its end.
    pub(crate) async fn start(
        queue: &Arc<str>,
        launch: &Launch,
        calls: usize,
    ) -> std::io::Result<Arc<Self>> {
        let (group, child) = Group::spawn(launch.command()?, Stdio::piped()).await?;
        let lanes = calls.saturating_mul(BATCH_SIZE_MAX as usize);
        let room = lanes.saturating_add(MESSAGES_WAITING_MAX).min(Semaphore::MAX_PERMITS);
        let (messages, to_write) = mpsc::channel(room);
        let pid = child.id().unwrap_or_default();
        let process = Arc::new(Self {
            pid,
            queue: queue.clone(),
            printed: Printed::new(queue.clone(), Some(pid)),
            messages,
            calls: Mutex::default(),
            order: watch::Sender::new(Order::Work),
            end: watch::Sender::new(None),
            has_answered: AtomicBool::new(false),
            silent: Silent::default(),
        });
        tokio::spawn(process.clone().run(group, child, to_write));
        Ok(process)
    }

    /// Whether it may be given calls.
    pub(crate) fn is_open(&self) -> bool {
        *self.order.borrow() == Order::Work && !lock(&self.calls).has_ended
    }

    /// Whether it has ever answered a call: it is not broken as such.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Orders how it continues.
    pub(crate) fn order(&self, order: Order) {
        self.order.send_if_modified(|now| {
            let is_harder = order > *now;
            *now = order.max(*now);
            is_harder
        });
    }

    /// Waits for its end, at which all of its calls have been answered.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        // The sender lives as long as `self`, so the wait cannot fail.
        ended.ok().and_then(|end| end.clone()).unwrap_or(End { text: "".into(), is_ours: true })
    }

    /// Hands a call over. The answer always comes: at the latest when the process ends.
    pub(crate) async fn perform(&self, call: Call, context: Context, held: Held) -> Handed {
        let ((answer, answered), (news, heard)) =
            (oneshot::channel(), watch::channel(News::default()));
        let open = Open {
            context,
            held,
            sent: Sent::Nothing,
            steps: Pipelines::default(),
            news,
            said: None,
            answer,
        };
        if self.register(&call.batch, open) {
            // A message that cannot be sent is of a process that is about to end.
            let _ = self.messages.send(Message::Perform(call)).await;
        }
        Handed { answer: answered, news: heard }
    }

    /// False when the process has ended, and the call is answered so.
    fn register(&self, batch: &str, open: Open) -> bool {
        let mut calls = lock(&self.calls);
        if calls.has_ended {
            let _ = open.answer.send(Answer::NeverSent);
            return false;
        }
        calls.open.insert(batch.to_owned(), open);
        true
    }

    /// Sends a message about a call.
    pub(crate) fn say(&self, line: String) {
        if self.messages.try_send(Message::Other(line)).is_err() {
            self.warn("it does not read its input: dropped a message to it");
        }
    }

    async fn run(
        self: Arc<Self>,
        group: Group,
        mut child: Child,
        to_write: mpsc::Receiver<Message>,
    ) {
        let tail = Arc::new(Mutex::new(Tail::default()));
        let writing = tokio::spawn(self.clone().write(child.stdin.take(), to_write));
        let mut reading = tokio::spawn(self.clone().read(child.stdout.take()));
        let complaining = tokio::spawn(self.clone().complain(child.stderr.take(), tail.clone()));
        let counting = tokio::spawn(self.printed.clone().keep_count());
        let status = self.last(&group, &mut child, &mut reading).await;
        let is_ours = !matches!(*self.order.borrow(), Order::Work | Order::Broken);
        self.order(Order::Kill);
        // What it started holds its pipes, and must not outlive it.
        drop(group);
        let ends = [&writing, &reading, &complaining, &counting].map(JoinHandle::abort_handle);
        let output = async {
            // Until it is known how much of the last message arrived.
            let _ = writing.await;
            if !reading.is_finished() {
                let _ = reading.await;
            }
            let _ = complaining.await;
        };
        // What it answered before it died counts.
        let _ = timeout(DRAIN_MAX, output).await;
        // Something that left its group may hold the pipes open for ever.
        ends.iter().for_each(AbortHandle::abort);
        self.hand_on();
        self.printed.finish();
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        let words = lock(&tail).text();
        let words = words.map(|words| format!("; its last output:\n{words}")).unwrap_or_default();
        self.close(End { text: format!("{status}{words}").into(), is_ours });
    }

    /// Until it has ended, by itself or as ordered.
    async fn last(
        &self,
        group: &Group,
        child: &mut Child,
        reading: &mut JoinHandle<()>,
    ) -> std::io::Result<std::process::ExitStatus> {
        tokio::select! {
            status = child.wait() => return status,
            // Without its stdout it can no longer answer. Usually it is just ending.
            _ = reading => {
                self.order(Order::Broken);
                if let Ok(status) = timeout(TERM_GRACE, child.wait()).await {
                    return status;
                }
            }
            () = self.ordered(Order::Shutdown) => {}
        }
        if *self.order.borrow() == Order::Shutdown {
            let _ = self.messages.try_send(Message::Other(messages::SHUTDOWN.to_owned()));
            let wait = timeout(SHUTDOWN_GRACE, child.wait());
            tokio::select! {
                ended = wait => if let Ok(status) = ended {
                    return status;
                },
                () = self.ordered(Order::Broken) => {}
            }
        }
        if *self.order.borrow() < Order::Kill {
            group.signal(Signal::TERM);
            let wait = timeout(TERM_GRACE, child.wait());
            tokio::select! {
                ended = wait => if let Ok(status) = ended {
                    return status;
                },
                () = self.ordered(Order::Kill) => {}
            }
        }
        group.signal(Signal::KILL);
        child.wait().await
    }

    /// Waits for an order at least as hard as `least`.
    async fn ordered(&self, least: Order) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.order.subscribe().wait_for(|order| *order >= least).await;
    }

    fn close(&self, end: End) {
        let mut calls = lock(&self.calls);
        calls.has_ended = true;
        for (_, open) in calls.open.drain() {
            let answer = match open.sent {
                Sent::All => Answer::Ended(end.clone()),
                Sent::Part => Answer::Torn(end.clone()),
                Sent::Nothing => Answer::NeverSent,
            };
            let _ = open.answer.send(answer);
        }
        drop(calls);
        self.end.send_replace(Some(end));
    }

    async fn write(
        self: Arc<Self>,
        stdin: Option<ChildStdin>,
        mut messages: mpsc::Receiver<Message>,
    ) {
        let Some(mut stdin) = stdin else { return };
        let mut ended = pin!(self.ordered(Order::Kill));
        loop {
            let message = tokio::select! {
                biased;
                () = ended.as_mut() => return,
                message = messages.recv() => message,
            };
            let Some(message) = message else { return };
            let (batch, line) = match message {
                Message::Perform(call) => (Some(call.batch), call.line),
                Message::Other(line) => (None, line),
            };
            // Before the first byte goes: from then on it may know of the call.
            self.mark(batch.as_deref(), Sent::All);
            if let Err(sent) = write_line(&mut stdin, &line).await {
                self.mark(batch.as_deref(), sent);
                self.order(Order::Broken);
                return;
            }
            if line == messages::SHUTDOWN {
                // The end of its input says the same to a worker that knows no `shutdown`.
                return;
            }
        }
    }

    fn mark(&self, batch: Option<&str>, sent: Sent) {
        let mut calls = lock(&self.calls);
        if let Some(open) = batch.and_then(|batch| calls.open.get_mut(batch)) {
            open.sent = sent;
        }
    }

    async fn read(self: Arc<Self>, stdout: Option<impl AsyncRead + Unpin>) {
        let Some(stdout) = stdout else { return };
        let mut lines = Lines::new(stdout, LINE_BYTES_MAX);
        while let Some(line) = lines.next().await {
            self.hear(&line);
            if !lines.has_more() {
                self.hand_on();
            }
        }
    }

    async fn complain(
        self: Arc<Self>,
        stderr: Option<impl AsyncRead + Unpin>,
        tail: Arc<Mutex<Tail>>,
    ) {
        let Some(stderr) = stderr else { return };
        let mut lines = Lines::new(stderr, LOG_LINE_BYTES_MAX);
        while let Some(line) = lines.next().await {
            self.printed.line("stderr", &line.text);
            lock(&tail).add(&line.text);
        }
    }

    fn hear(self: &Arc<Self>, line: &Line) {
        let heard = match answer::read(line) {
            Heard::Output => return self.printed.line("stdout", &line.text),
            Heard::Suspect(why) => {
                self.printed.line("stdout", &line.text);
                return self.warn(&why);
            }
            Heard::Progress { batch: Some(batch), lane, progress } => {
                let checked = self.with_open(&batch, |open| {
                    open.held.check_lane("lane", lane)?;
                    open.news.send_modify(|_| {});
                    if let Err(error) = open.context.progress_of(lane, &progress) {
                        self.warn(&error.to_string());
                    }
                    Ok(())
                });
                checked.map_err(|why| Fault { batch: Some(batch), is_final: false, why })
            }
            Heard::Step { batch: Some(batch), lane, step } => {
                let checked = self.with_open(&batch, |open| {
                    open.held.check_lane("lane", lane)?;
                    open.news.send_modify(|_| {});
                    let steps = open.steps.take(lane)?;
                    let about = (batch.clone(), lane, step);
                    tokio::spawn(self.clone().answer_step(open.context.clone(), steps, about));
                    Ok(())
                });
                checked.map_err(|why| Fault { batch: Some(batch), is_final: false, why })
            }
            Heard::Answer { batch: Some(batch), said } => {
                let checked = self.with_open(&batch, |open| open.answered(said));
                checked.map_err(|why| Fault { batch: Some(batch), is_final: true, why })
            }
            Heard::Progress { batch: None, .. }
            | Heard::Step { batch: None, .. }
            | Heard::Answer { batch: None, .. } => {
                let why = "`batch` is missing: use that of the call".to_owned();
                Err(Fault { batch: None, is_final: false, why })
            }
            // It died, or closed its output, in the midst of a line: that ends its calls.
            Heard::Fault(fault) if !line.is_whole => return self.warn(&fault.why),
            Heard::Fault(fault) => Err(fault),
        };
        if let Err(fault) = heard {
            self.printed.line("stdout", &line.text);
            self.found(fault);
        }
    }

    /// Answers a message about a step, which may read and write the store.
    async fn answer_step(
        self: Arc<Self>,
        context: Context,
        mut steps: Option<Steps>,
        (batch, lane, step): (String, LaneId, Step),
    ) {
        let answer = steps::tell(&mut steps, &context, lane, &step).await;
        let mut calls = lock(&self.calls);
        let Some(open) = calls.open.get_mut(&batch) else { return };
        open.steps.put(lane, steps);
        match answer {
            Ok(answer) => {
                open.held.may_release |= answer.lets_go();
                self.say(answer.line(&batch, lane, &step.name));
            }
            Err(error) => open.found(error.to_string().into()),
        }
    }

    /// Does something with a call; ignores calls that the process has not got or no longer has.
    fn with_open(
        &self,
        batch: &str,
        tell: impl FnOnce(&mut Open) -> Result<(), String>,
    ) -> Result<(), String> {
        match lock(&self.calls).known(batch) {
            Some(open) => tell(open),
            None => {
                self.warn(&format!("a message about call {batch:?}, which it does not have: already answered, or a wrong name"));
                Ok(())
            }
        }
    }

    /// A message that cannot be used: its call fails, or all that it may have been about.
    fn found(&self, Fault { batch, is_final, why }: Fault) {
        self.warn(&format!("invalid answer: {why}"));
        let why: Arc<str> = why.into();
        let mut calls = lock(&self.calls);
        if let Some(batch) = batch {
            match calls.known(&batch) {
                None => self.warn(&format!("it names call {batch:?}, which it does not have")),
                Some(open) if is_final => open.said = Some(Err(why)),
                Some(open) => open.found(why),
            }
            return;
        }
        // An answered call is no longer in flight.
        let in_flight = |open: &&Open| open.sent == Sent::All && open.said.is_none();
        for open in calls.open.values().filter(in_flight) {
            open.found(why.clone());
        }
    }

    /// Hands the answers on that have arrived.
    fn hand_on(&self) {
        let mut calls = lock(&self.calls);
        let answered = calls.open.extract_if(|_, open| open.said.is_some());
        for (_, Open { said, news, answer, .. }) in answered {
            self.has_answered.store(true, Ordering::Relaxed);
            let said = match (news.borrow().fault.clone(), said) {
                (Some(why), _) | (None, Some(Err(why))) => Answer::Unusable(why),
                (None, Some(Ok(said))) => Answer::Said(said),
                (None, None) => continue,
            };
            // A call that was given up has no receiver.
            let _ = answer.send(said);
        }
    }

    pub(crate) fn warn(&self, what: &str) {
        self.printed.warn(what);
    }
}

/// Writes a line. The error says how much of it has gone; never its end, without which nothing is started.
async fn write_line(stdin: &mut ChildStdin, line: &str) -> Result<(), Sent> {
    let text = format!("{line}\n");
    let begun = stdin.write(text.as_bytes()).await.map_err(|_| Sent::Nothing)?;
    stdin.write_all(&text.as_bytes()[begun..]).await.map_err(|_| Sent::Part)
}

impl Open {
    fn answered(&mut self, said: Said) -> Result<(), String> {
        self.held.check(&said)?;
        match &self.said {
            None => self.said = Some(Ok(said)),
            Some(Ok(before)) if !self.held.is_same(before, &said) => {
                return Err("it wrote two different answers: write one".to_owned());
            }
            // The same again, or one more after what cannot be used.
            Some(_) => {}
        }
        Ok(())
    }

    fn found(&self, why: Arc<str>) {
        self.news.send_if_modified(|news| {
            let is_first = news.fault.is_none();
            news.fault.get_or_insert(why);
            is_first
        });
    }
}
