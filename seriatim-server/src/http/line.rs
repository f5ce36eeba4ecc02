//! The connections of a server: which of them keep it waiting, and which of their clients are gone.
//!
//! A server that is full makes room for a new connection by closing one whose client keeps it waiting:
//! for a header, a body, or that an answer is read. So slow clients cannot keep others out.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::base::lock::lock;

/// The connections that wait for their clients, oldest first, by where they come from.
#[derive(Default)]
pub(super) struct Lines(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    from: HashMap<IpAddr, BTreeMap<u64, Arc<Line>>>,
}

/// A connection.
pub(super) struct Line {
    all: Arc<Lines>,
    from: IpAddr,
    /// Its place among those that wait.
    place: Mutex<Option<u64>>,
    /// Signals the connection to close.
    pub(super) closed: Notify,
    /// How far the request is.
    stage: Mutex<Stage>,
    is_left: AtomicBool,
    left: Notify,
}

/// While a request is under way, the end of what the client sends is not the end of the connection: a
/// client that closes its side gets its answer. Unless the body has no end yet, which then is an error.
#[derive(Default)]
struct Stage {
    is_under_way: bool,
    /// The client has sent all that it will send. What the body still holds may not be read yet.
    is_all_sent: bool,
    /// All that was sent is read, and the body has no end.
    is_cut: bool,
    /// The reader of the body.
    body: Option<Waker>,
    /// The answer is made, but not all of it is written.
    is_ending: bool,
    reader: Option<Waker>,
}

impl Lines {
    /// Closes the connection that has waited longest, of the address that has most of them. Whether
    /// there was one.
    pub(super) fn close_one(&self) -> bool {
        let mut waiting = lock(&self.0);
        let Some(lines) = waiting.from.values_mut().max_by_key(|lines| lines.len()) else {
            return false;
        };
        let Some((_, line)) = lines.pop_first() else { return false };
        if lines.is_empty() {
            waiting.from.remove(&line.from);
        }
        *lock(&line.place) = None;
        line.closed.notify_one();
        true
    }
}

impl Line {
    pub(super) fn new(all: Arc<Lines>, from: IpAddr) -> Arc<Self> {
        let line = Arc::new(Self {
            all,
            from,
            place: Mutex::new(None),
            closed: Notify::new(),
            stage: Mutex::default(),
            is_left: AtomicBool::new(false),
            left: Notify::new(),
        });
        line.waits();
        line
    }

    /// From now on it waits for its client.
    fn waits(self: &Arc<Self>) {
        let mut waiting = lock(&self.all.0);
        let mut place = lock(&self.place);
        if place.is_none() {
            let next = waiting.next;
            waiting.next += 1;
            waiting.from.entry(self.from).or_default().insert(next, self.clone());
            *place = Some(next);
        }
    }

    /// It no longer waits for its client.
    fn works(&self) {
        let mut waiting = lock(&self.all.0);
        let Some(place) = lock(&self.place).take() else { return };
        if let Some(lines) = waiting.from.get_mut(&self.from) {
            lines.remove(&place);
            if lines.is_empty() {
                waiting.from.remove(&self.from);
            }
        }
    }

    fn stage(&self, change: impl FnOnce(&mut Stage)) {
        let reader = {
            let mut stage = lock(&self.stage);
            change(&mut stage);
            let may_end = !stage.is_under_way || stage.is_cut;
            if may_end { stage.reader.take() } else { None }
        };
        reader.into_iter().for_each(Waker::wake);
    }

    /// The client has closed its side. Whether the connection ends by that; otherwise who reads is woken
    /// when it does.
    fn ends(&self, context: &Context<'_>) -> bool {
        self.is_left.store(true, Ordering::Release);
        self.left.notify_waiters();
        let body = {
            let mut stage = lock(&self.stage);
            if !stage.is_under_way || stage.is_cut {
                return true;
            }
            stage.reader = Some(context.waker().clone());
            stage.is_all_sent = true;
            stage.body.take()
        };
        body.into_iter().for_each(Waker::wake);
        false
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        self.works();
        self.is_left.store(true, Ordering::Release);
        self.left.notify_waiters();
    }

    /// All of an answer is written.
    fn written(&self) {
        self.stage(|stage| {
            stage.is_under_way &= !stage.is_ending;
            stage.is_ending = false;
        });
    }

    /// Ready when the client has closed its side: it may be gone.
    pub(super) async fn left(&self) {
        let left = self.left.notified();
        if !self.has_left() {
            left.await;
        }
    }

    /// Whether the client has closed its side.
    pub(super) fn has_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }
}

/// The body of a request, which is waited for.
pub(super) struct Asked {
    body: Incoming,
    line: Arc<Line>,
}

impl Asked {
    pub(super) fn new(body: Incoming, line: Arc<Line>) -> Self {
        line.works();
        line.stage(|stage| {
            let reader = stage.reader.take();
            *stage = Stage { is_under_way: true, reader, ..Stage::default() };
        });
        Self { body, line }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.line.stage(|stage| stage.is_cut = false);
    }
}

impl Body for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut was_all_sent = false;
        self.line.stage(|stage| {
            was_all_sent = stage.is_all_sent;
            stage.body = Some(context.waker().clone());
        });
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.line.stage(|stage| stage.is_cut = was_all_sent && frame.is_pending());
        match frame.is_pending() {
            true => self.line.waits(),
            false => self.line.works(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer: what is made of it waits until the client has read it.
pub(super) struct Told {
    body: axum::body::Body,
    line: Arc<Line>,
}

impl Told {
    pub(super) fn new(body: axum::body::Body, line: Arc<Line>) -> Self {
        Self { body, line }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.line.stage(|stage| stage.is_ending = true);
        self.line.waits();
    }
}

impl Body for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.line.works();
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.line.waits();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of a connection.
pub(super) struct Watched<S> {
    stream: S,
    line: Arc<Line>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, line: Arc<Line>) -> Self {
        Self { stream, line }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.line.ends(context) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.line.written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
