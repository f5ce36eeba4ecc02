//! Listening: connections, their limits, and the end of it.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit};
use seriatim::store::Wakeups;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::auth::Guard;
use super::caller::{Peer, site};
use super::limits::{
    ANSWER_STALL_MAX, CLOSE_MAX, CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_READ_MAX, HEADERS_MAX,
};
use super::line::{Asked, Line, Lines, Told, Watched};
use super::metrics::meter::Meter;
use super::operator;
use super::person::Proxy;
use super::router::{before_the_store, build};
use super::sampler;
use super::state::Shared;
use super::tokens::{TOKEN_VARIABLE, tokens};
use crate::base::setup_error::SetupError;
use crate::config::{HttpConfig, LISTEN_DEFAULT};

/// A pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is logged that connections cannot be accepted.
const REFUSED_TOLD_INTERVAL: Duration = Duration::from_secs(10);
/// File descriptors that a server needs besides those of its connections.
const OTHER_FILES: u64 = 512;

/// Where to listen, and who will be let in: all that flags and configuration say of it.
pub(crate) struct Entrance {
    /// As it is written.
    pub(crate) address: String,
    addresses: Vec<SocketAddr>,
    pub(crate) guard: Guard,
    base_path: String,
}

impl Entrance {
    /// Reads the configuration, or refuses it; listens nowhere yet.
    pub(crate) async fn read(
        config: &HttpConfig,
        asked: Option<&str>,
        insecure: bool,
    ) -> Result<Self, SetupError> {
        let (place, address) = match (asked, config.listen.as_deref()) {
            (Some(text), _) => ("--listen", text),
            (None, text) => ("http.listen", text.unwrap_or(LISTEN_DEFAULT)),
        };
        let addresses = resolve(place, address).await?;
        let tokens = tokens(config)?;
        let proxy = config.proxy.as_ref().map(Proxy::read).transpose()?;
        let beyond = addresses.iter().find(|address| !address.ip().is_loopback());
        let local = beyond.is_none();
        let is_open = tokens.is_empty() && proxy.is_none();
        if let (Some(address), true, false) = (beyond, is_open, insecure) {
            return Err(SetupError::invalid(format!(
                "{address} is reachable from other machines, and no token is configured: set {TOKEN_VARIABLE} or [http] tokens, listen on 127.0.0.1, or use --insecure"
            )));
        }
        let guard = Guard {
            local_only: local && is_open,
            refuses_sites: is_open,
            listens_as: name_of(address),
            tokens,
            proxy,
            ..Guard::default()
        };
        Ok(Self { address: address.to_owned(), addresses, guard, base_path: base_path(config)? })
    }
}

/// A socket that listens, and who will be let in.
pub(crate) struct Listening {
    listener: TcpListener,
    pub(crate) guard: Guard,
    pub(crate) base_path: String,
}

impl Listening {
    /// Listens as flags and configuration say.
    pub(crate) fn start(entrance: Entrance) -> Result<Self, SetupError> {
        let Entrance { address, addresses, guard, base_path } = entrance;
        allow_files();
        let listener = listen(&addresses).map_err(|error| {
            SetupError::failed(format!(
                "cannot listen on {address}: {error}; choose another address with --listen, or none with --no-http"
            ))
        })?;
        Ok(Self { listener, guard, base_path })
    }

    /// Answers while the store is still waited for: that the process lives, and that it is of no use yet.
    pub(crate) fn wait(&self) -> Result<Waiting, SetupError> {
        let listener = self.twin().map_err(SetupError::failed)?;
        let (close, closing) = watch::channel(false);
        let router = before_the_store(&self.base_path);
        Ok(Waiting {
            close,
            task: tokio::spawn(accept(listener, router, closing, CONNECTIONS_MAX)),
        })
    }

    /// The same socket once more: what connects while one of the two is closed is the other's.
    fn twin(&self) -> io::Result<TcpListener> {
        TcpListener::from_std(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// Answers from now on.
    pub(crate) fn serve(self, app: Shared) -> Server {
        if let Ok(address) = self.listener.local_addr() {
            let tokens: Vec<&str> = app.guard.tokens.iter().map(|token| &*token.name).collect();
            let base_path = &self.base_path;
            let whom = match (tokens.is_empty(), app.guard.local_only) {
                (false, _) => format!("for the tokens {}", tokens.join(", ")),
                _ if app.guard.proxy.is_some() => "for the people that the proxy names".to_owned(),
                (true, true) => "without tokens, for this machine only".to_owned(),
                (true, false) => "without tokens, for everyone who can connect".to_owned(),
            };
            tracing::info!("listening on http://{address}{base_path}/ {whom}");
        }
        let (close, closing) = watch::channel(false);
        let wakeups = tokio::spawn(count_wakeups(app.store.wakeups(), app.meter.clone()));
        tokio::spawn(sampler::run(app.clone()));
        tokio::spawn(operator::run(app.clone()));
        let task = tokio::spawn(accept(self.listener, build(&app), closing, CONNECTIONS_MAX));
        Server { app, close, task, wakeups }
    }
}

/// Listens on the first of these addresses that is free.
fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let on = |address: &SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // After a restart the port is free immediately, although connections of before still end.
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        // If more arrive together than the kernel queues for us, it drops them, and clients wait a second before they try
        // again.
        socket.listen(CONNECTIONS_MAX as u32)
    };
    let none = Err(io::ErrorKind::AddrNotAvailable.into());
    addresses.iter().fold(none, |found, address| found.or_else(|_| on(address)))
}

/// The addresses of `HOST:PORT`; of several the first that is free is listened on.
async fn resolve(place: &str, text: &str) -> Result<Vec<SocketAddr>, SetupError> {
    let wanted = format!("write HOST:PORT, as in {LISTEN_DEFAULT}, localhost:7117 or [::1]:7117");
    let wrong = |what: String| SetupError::invalid(format!("{place}: {text:?} {what}: {wanted}"));
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("names no port".to_owned()))?;
    if port.parse::<u16>().is_err() {
        return Err(wrong(format!("has {port:?} as port; ports are 0 to 65535")));
    }
    if host.is_empty() {
        return Err(wrong("names no host (0.0.0.0 means every address)".to_owned()));
    }
    let found = tokio::net::lookup_host(text).await;
    let found = found.map_err(|error| wrong(format!("cannot be resolved ({error})")))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    // What programs on this machine try first, where a name means both.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    Ok(addresses)
}

/// The name in `HOST:PORT`; none if it is an address, or always this machine's.
fn name_of(address: &str) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    (!is_address && host != "localhost").then(|| host.to_owned())
}

/// See [`Listening::wait`].
pub(crate) struct Waiting {
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Waiting {
    /// Leaves the socket to the API itself.
    pub(crate) async fn end(self) {
        self.close.send_replace(true);
        let _ = self.task.await;
    }
}

/// The prefix, without a slash at its end.
fn base_path(config: &HttpConfig) -> Result<String, SetupError> {
    let path = config.base_path.as_deref().unwrap_or_default().trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    if !path.is_empty() && (!path.starts_with('/') || !path.chars().all(plain)) {
        return Err(SetupError::invalid(format!(
            "http.base_path: {path:?} is not a path: write it as in /jobs"
        )));
    }
    Ok(path.to_owned())
}

/// A server that answers.
pub(crate) struct Server {
    app: Shared,
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
    wakeups: JoinHandle<()>,
}

impl Server {
    pub(crate) fn app(&self) -> Shared {
        self.app.clone()
    }

    /// Accepts no more, and waits a while for requests in progress.
    pub(crate) async fn stop(self) {
        self.app.drain();
        self.wakeups.abort();
        self.close.send_replace(true);
        let _ = self.task.await;
        let _ = timeout(CLOSE_MAX, self.app.finished()).await;
    }
}

/// How often there is no wake-up is of no interest.
const WAKEUP_WAIT: Duration = Duration::from_secs(3_600);

async fn count_wakeups(mut wakeups: Wakeups, meter: Arc<Meter>) {
    loop {
        if wakeups.wait(WAKEUP_WAIT).await.is_some() {
            meter.woken();
        }
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    mut closing: watch::Receiver<bool>,
    connections_max: usize,
) {
    let (places, lines) = (Arc::new(Semaphore::new(connections_max)), Arc::<Lines>::default());
    let mut connections = JoinSet::new();
    let mut refused = Refused::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                if places.available_permits() == 0 {
                    lines.close_one();
                }
                let place = tokio::select! {
                    place = places.clone().acquire_owned() => place,
                    _ = closing.wait_for(|closing| *closing) => break,
                };
                let Ok(place) = place else { break };
                let (router, closing) = (router.clone(), closing.clone());
                let line = Line::new(lines.clone(), site(peer.ip()));
                connections.spawn(async move {
                    hurry(&stream);
                    tokio::select! {
                        () = connection(stream, peer, router, closing, line.clone()) => {}
                        () = line.closed.notified() => {}
                    }
                    line.end();
                    drop(place);
                });
            }
            Err(error) => {
                refused.tell(&error);
                // Those that wait hold file descriptors, of which there may be no more.
                lines.close_one();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSE_MAX, all).await.is_err() {
        tracing::warn!("closed connections that did not end in time");
    }
}

/// Counts connections that could not be accepted, and logs the number now and then.
#[derive(Default)]
struct Refused {
    told: Option<Instant>,
    count: u64,
}

impl Refused {
    fn tell(&mut self, error: &io::Error) {
        self.count += 1;
        if self.told.is_none_or(|told| told.elapsed() >= REFUSED_TOLD_INTERVAL) {
            tracing::warn!(%error, times = self.count, "cannot accept connections");
            *self = Self { told: Some(Instant::now()), count: 0 };
        }
    }
}

/// Lets this process have as many files open as its connections may need, as far as it may.
fn allow_files() {
    let needed = CONNECTIONS_MAX as u64 + OTHER_FILES;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if now < needed {
        let allowed = Rlimit { current: Some(needed.min(most)), maximum: limit.maximum };
        let done = rustix::process::setrlimit(Resource::Nofile, allowed);
        if done.is_err() || most < needed {
            tracing::warn!(
                "the limit of {} open files is low: {CONNECTIONS_MAX} connections may need {needed}; raise it (ulimit -n, LimitNOFILE)",
                if done.is_ok() { most } else { now }
            );
        }
    }
}

/// Answers are sent immediately, and a client that does not read them is cut off: it would hold its answer
/// in memory for as long as it likes.
fn hurry(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let stall_ms = u32::try_from(ANSWER_STALL_MAX.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream.as_fd(), stall_ms);
}

/// Serves one connection until it ends, or until the server does.
pub(super) async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    mut closing: watch::Receiver<bool>,
    line: Arc<Line>,
) {
    let router = TowerToHyperService::new(router);
    let stream = Watched::new(stream, line.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let line = line.clone();
        let mut request = request.map(|body| Asked::new(body, line.clone()));
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(line.clone());
        let answer = router.call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Told::new(body, line))) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    serving.as_mut().graceful_shutdown();
    // How it ends is between the client and the network.
    let _ = serving.await;
}

#[cfg(test)]
mod tests {
    use seriatim::store::Memory;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::super::App;
    use super::super::limits::{BODY_READ_MAX, BODY_STALL_MAX};
    use super::*;

    const PUSH: &str = "POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n";

    /// A connection to a server of its own.
    fn connected() -> DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 16);
        let router = build(&App::open(Arc::new(Memory::new())));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        tokio::spawn(async move {
            let (_open, closing) = watch::channel(false);
            let line = Line::new(Arc::default(), peer.ip());
            connection(server, peer, router, closing, line).await;
        });
        client
    }

    /// What comes back, and after how long the connection ended.
    async fn ended(mut client: DuplexStream, started: Instant) -> (String, Duration) {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        (answer, started.elapsed())
    }

    #[tokio::test]
    async fn a_burst_of_connections_is_kept_until_it_is_accepted() {
        let kernel = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let kept = kernel.map_or(1, |most| most.trim().parse().unwrap()).min(CONNECTIONS_MAX);
        allow_files();
        let listener = listen(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = listener.local_addr().unwrap();
        // Nothing accepts them. One that is dropped is tried again after a second.
        let (mut burst, mut slowest) = (Vec::new(), Duration::ZERO);
        for _ in 0..kept / 2 {
            let began = std::time::Instant::now();
            burst.push(std::net::TcpStream::connect(address).unwrap());
            slowest = slowest.max(began.elapsed());
        }
        assert!(slowest < Duration::from_secs(1), "{slowest:?} of {} connections", burst.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_does_not_come_ends_the_connection() {
        for sent in ["", "GET /health HTTP/1.1\r\nHost: loc"] {
            let (mut client, started) = (connected(), Instant::now());
            client.write_all(sent.as_bytes()).await.unwrap();
            let (_, length) = ended(client, started).await;
            assert!((HEADER_READ_MAX..HEADER_READ_MAX * 2).contains(&length), "{length:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_drips_is_a_408() {
        let (mut client, started) = (connected(), Instant::now());
        client.write_all(PUSH.as_bytes()).await.unwrap();
        client.write_all(b"{").await.unwrap();
        let (answer, length) = ended(client, started).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("in time"), "{answer}");
        assert!((BODY_STALL_MAX..BODY_READ_MAX).contains(&length), "{length:?}");

        let (client, started) = (connected(), Instant::now());
        let (reader, mut writer) = tokio::io::split(client);
        writer.write_all(PUSH.as_bytes()).await.unwrap();
        let mut drops = tokio::time::interval(BODY_STALL_MAX / 2);
        let dripping = tokio::spawn(async move {
            loop {
                drops.tick().await;
                if writer.write_all(b" ").await.is_err() {
                    return;
                }
            }
        });
        let (mut reader, mut answer) = (reader, vec![0; 12]);
        reader.read_exact(&mut answer).await.unwrap();
        dripping.abort();
        assert_eq!(answer, b"HTTP/1.1 408");
        assert!((BODY_READ_MAX..BODY_READ_MAX * 2).contains(&started.elapsed()));
    }

    #[tokio::test]
    async fn a_full_server_makes_room_by_closing_the_connection_that_waits_longest() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = build(&App::open(Arc::new(Memory::new())));
        let (_open, closing) = watch::channel(false);
        let server = tokio::spawn(accept(listener, router, closing, 3));
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut start = [0; 12];
        // One that is at work, one that was answered, and one that never asks.
        let mut listening = TcpStream::connect(address).await.unwrap();
        listening.write_all(get("/api/v1/events").as_bytes()).await.unwrap();
        listening.read_exact(&mut start).await.unwrap();
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(get("/health").as_bytes()).await.unwrap();
        idle.read_exact(&mut start).await.unwrap();
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET /health HTTP/1.1\r\nHost: loc").await.unwrap();
        // They stay: one that has left would make room for the next.
        let mut all_fresh = Vec::new();
        for closed in [&mut idle, &mut silent] {
            let mut fresh = TcpStream::connect(address).await.unwrap();
            fresh.write_all(get("/health").as_bytes()).await.unwrap();
            fresh.read_exact(&mut start).await.unwrap();
            assert_eq!(&start, b"HTTP/1.1 200");
            all_fresh.push(fresh);
            // It ends, in order or not, and before its time would be up.
            let mut rest = Vec::new();
            let end = closed.read_to_end(&mut rest);
            let _ = timeout(HEADER_READ_MAX / 2, end).await.expect("it is closed");
        }
        let more = listening.read(&mut [0; 64]).await.unwrap();
        assert!(more > 0, "who is at work goes on");
        server.abort();
    }
}
