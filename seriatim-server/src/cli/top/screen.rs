//! The terminal: set up, restored, and its keyboard.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use seriatim::SharedStore;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};

use std::sync::Arc;

use super::detail::Target;
use super::draw::draw;
use super::sample::Sample;
use super::state::{State, Step};
use crate::cli::deed::Book;
use crate::cli::output::{Failure, Result};

/// How often the store is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the reader of keys checks whether to stop.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Events waiting to be handled.
const EVENTS_MAX: usize = 64;

/// What causes a new frame.
enum Happened {
    Terminal(Event),
    Sampled(Result<Box<Seen>>),
    Acted(Result<String>),
    ToldToStop,
}

/// The store, and what is looked at in full.
struct Seen {
    sample: Sample,
    detail: Option<(Target, String)>,
}

/// Shows the store until the user quits. Restores the terminal, even after a panic.
pub(super) async fn run(store: SharedStore, mut state: State, book: Book) -> Result<()> {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let again = Arc::new(Notify::new());
    let (look, looked_at) = watch::channel(None);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(sample(store.clone(), sender.clone(), again.clone(), looked_at));
    tasks.spawn(hear_signals(sender.clone()));
    let mut terminal = ratatui::try_init()
        .map_err(|e| Failure::failed(format!("the terminal cannot be used: {e}")))?;
    let keys = sender.clone();
    std::thread::spawn(move || read_keys(&keys));
    let result = loop {
        if let Err(error) = terminal.draw(|frame| draw(frame, &mut state)) {
            break Err(Failure::failed(format!("the terminal cannot be written: {error}")));
        }
        match events.recv().await {
            None | Some(Happened::ToldToStop) => break Ok(()),
            Some(Happened::Terminal(Event::Key(key))) => match state.key(key) {
                Step::Quit => break Ok(()),
                Step::Nothing => {}
                Step::Look => {
                    look.send_replace(state.detail.as_ref().map(|detail| detail.target.clone()));
                    again.notify_one();
                }
                Step::Do(action) => {
                    let (store, sender, again) = (store.clone(), sender.clone(), again.clone());
                    let book = book.clone();
                    tasks.spawn(async move {
                        let done = action.carry_out(&store, &book).await;
                        let _ = sender.send(Happened::Acted(done)).await;
                        again.notify_one();
                    });
                }
            },
            Some(Happened::Terminal(_)) => {}
            Some(Happened::Sampled(Ok(seen))) => state.show(seen.sample, seen.detail),
            Some(Happened::Acted(Ok(said))) => state.said = Some(said),
            Some(Happened::Sampled(Err(failure)) | Happened::Acted(Err(failure))) => {
                state.said = Some(failure.to_string());
            }
        }
    };
    tasks.shutdown().await;
    let _ = ratatui::try_restore();
    result
}

async fn sample(
    store: SharedStore,
    events: mpsc::Sender<Happened>,
    again: Arc<Notify>,
    looked_at: watch::Receiver<Option<Target>>,
) {
    let see = async || {
        let target = looked_at.borrow().clone();
        let detail = match target {
            None => None,
            Some(target) => {
                let text = target.read(&*store).await?;
                Some((target, text))
            }
        };
        let sample = Sample::take(&*store).await?;
        Ok(Box::new(Seen { sample, detail }))
    };
    loop {
        let seen = see().await;
        if events.send(Happened::Sampled(seen)).await.is_err() {
            return;
        }
        let _ = tokio::time::timeout(INTERVAL, again.notified()).await;
    }
}

/// Without this, SIGTERM would not restore the terminal.
async fn hear_signals(events: mpsc::Sender<Happened>) {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut term), Ok(mut hangup)) = signals else { return };
    tokio::select! {
        _ = term.recv() => {}
        _ = hangup.recv() => {}
    }
    let _ = events.send(Happened::ToldToStop).await;
}

fn read_keys(events: &mpsc::Sender<Happened>) {
    while !events.is_closed() {
        let event = match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let happened = match event {
            Ok(event) => Happened::Terminal(event),
            // The terminal is gone.
            Err(_) => Happened::ToldToStop,
        };
        let ends = matches!(happened, Happened::ToldToStop);
        if events.blocking_send(happened).is_err() || ends {
            return;
        }
    }
}
