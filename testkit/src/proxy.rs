//! A proxy that breaks a connection on demand.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::port::free_port;

const CHUNK_BYTES: usize = 64 << 10;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees the request.
    BeforeRequest,
    /// The server executes the request, and its answer is lost.
    BeforeReply,
}

/// A proxy between clients and a server on 127.0.0.1 that cuts a connection at a chosen request.
///
/// A request is everything that a client sends without waiting for an answer.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: AtomicU16,
    plan: Mutex<Option<Plan>>,
    cuts: AtomicU64,
    request_bytes: AtomicU64,
    closed: AtomicBool,
    links: Mutex<Vec<Weak<Link>>>,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    requests_before: u32,
    cut: Cut,
}

/// The two sides of one connection.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Whether the server's answers are no longer passed on.
    is_deaf: AtomicBool,
    /// Whether nothing is passed on, and the connection stays open.
    is_mute: AtomicBool,
}

impl Link {
    fn end(&self) {
        // The other thread or the peer may have closed it already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// Listens on a port of its own for a server on `port`. It stays reserved while the proxy is unplugged.
    pub fn start(port: u16) -> Result<Self, String> {
        let failed = |e: io::Error| format!("cannot start a proxy: {e}");
        let own_port = free_port()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, own_port)).map_err(failed)?;
        let shared = Arc::new(Shared {
            server: AtomicU16::new(port),
            plan: Mutex::default(),
            cuts: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            links: Mutex::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { port: own_port, shared })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts one connection, at the request after the next `requests_before`.
    pub fn cut(&self, requests_before: u32, cut: Cut) {
        *self.shared.plan() = Some(Plan { requests_before, cut });
    }

    /// Cancels a cut that has not happened; returns whether there was one.
    pub fn spare(&self) -> bool {
        self.shared.plan().take().is_some()
    }

    /// The number of connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// How many bytes of requests were passed on.
    pub fn request_bytes(&self) -> u64 {
        self.shared.request_bytes.load(Ordering::Relaxed)
    }

    /// Passes later connections on to another server; those that are open stay where they are.
    pub fn lead_to(&self, port: u16) {
        self.shared.server.store(port, Ordering::SeqCst);
    }

    /// Passes nothing on over the connections that are open now, which do not end: as if the other host had died.
    pub fn mute(&self) {
        let links = self.shared.links();
        let open = links.iter().filter_map(Weak::upgrade);
        open.for_each(|link| link.is_mute.store(true, Ordering::SeqCst));
    }

    /// Ends all connections that are open.
    pub fn disconnect(&self) {
        self.shared.links().drain(..).filter_map(|link| link.upgrade()).for_each(|link| link.end());
    }

    /// Ends all connections and refuses others from now on: the server is out of reach.
    pub fn unplug(&self) {
        self.close();
        self.disconnect();
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections, which ends and no longer listens.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Option<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Weak<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cut for this request, if it is the chosen one.
    fn cut_here(&self) -> Option<Cut> {
        let mut plan = self.plan();
        match &mut *plan {
            None => None,
            Some(Plan { requests_before: 0, cut }) => {
                let cut = *cut;
                *plan = None;
                self.cuts.fetch_add(1, Ordering::Relaxed);
                Some(cut)
            }
            Some(Plan { requests_before, .. }) => {
                *requests_before -= 1;
                None
            }
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        // The client has already left, or the server is down: then the client sees its connection end.
        let Ok(client) = client else { continue };
        let Ok(server) =
            TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server.load(Ordering::SeqCst)))
        else {
            continue;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let link = Arc::new(Link {
            client,
            server,
            is_deaf: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
        });
        {
            let mut links = shared.links();
            links.retain(|link| link.strong_count() > 0);
            links.push(Arc::downgrade(&link));
        }
        if shared.closed.load(Ordering::SeqCst) {
            link.end();
            return;
        }
        let (requests, answers, shared) = (link.clone(), link, shared.clone());
        thread::spawn(move || {
            let _ = pass_requests(&requests, &shared);
            requests.end();
        });
        thread::spawn(move || {
            let _ = pass_answers(&answers);
            answers.end();
        });
    }
}

fn pass_requests(link: &Link, shared: &Shared) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = (&link.client).read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        if link.is_mute.load(Ordering::SeqCst) {
            continue;
        }
        shared.request_bytes.fetch_add(length as u64, Ordering::Relaxed);
        match shared.cut_here() {
            Some(Cut::BeforeRequest) => return Ok(()),
            Some(Cut::BeforeReply) => link.is_deaf.store(true, Ordering::SeqCst),
            None => {}
        }
        (&link.server).write_all(&chunk[..length])?;
    }
}

fn pass_answers(link: &Link) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = (&link.server).read(&mut chunk)?;
        if length == 0 || link.is_deaf.load(Ordering::SeqCst) {
            return Ok(());
        }
        if link.is_mute.load(Ordering::SeqCst) {
            continue;
        }
        (&link.client).write_all(&chunk[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;

    use super::*;

    /// A server that echoes each line, and reports the lines that it got.
    fn echo() -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (saw, seen) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, saw) = (stream.unwrap(), saw.clone());
                for line in BufReader::new(&stream).lines() {
                    let Ok(line) = line else { break };
                    saw.send(line.clone()).unwrap();
                    let _ = (&stream).write_all(format!("{line}\n").as_bytes());
                }
            }
        });
        (port, seen)
    }

    fn ask(stream: &TcpStream, line: &str) -> Option<String> {
        let mut sink = stream;
        sink.write_all(format!("{line}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).ok()?;
        (!answer.is_empty()).then(|| answer.trim().to_owned())
    }

    #[test]
    fn a_request_is_cut_before_or_after_the_server_saw_it() {
        for (cut, sees) in [(Cut::BeforeRequest, false), (Cut::BeforeReply, true)] {
            let (server, seen) = echo();
            let proxy = Proxy::start(server).unwrap();
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
            proxy.cut(1, cut);
            assert_eq!(ask(&stream, "one"), Some("one".into()));
            assert_eq!(ask(&stream, "two"), None, "{cut:?}");
            assert_eq!(seen.recv().unwrap(), "one");
            assert_eq!(seen.recv_timeout(std::time::Duration::from_millis(200)).is_ok(), sees);
            assert_eq!((proxy.cuts(), proxy.spare()), (1, false));
        }
    }

    #[test]
    fn an_unplugged_proxy_ends_its_connections_and_accepts_no_more() {
        let (server, _seen) = echo();
        let proxy = Proxy::start(server).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()));
        let stream = connect().unwrap();
        assert_eq!(ask(&stream, "one"), Some("one".into()));
        proxy.unplug();
        assert_eq!(ask(&stream, "two"), None);
        assert!(connect().ok().and_then(|stream| ask(&stream, "three")).is_none());
    }
}
