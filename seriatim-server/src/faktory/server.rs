//! Listening for clients of Faktory, and the end of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::conversation::Conversation;
use super::front::Front;
use super::reply;
use crate::base::setup_error::SetupError;
use crate::config::{FaktoryConfig, HttpConfig};
use crate::http::{Inside, Shared, Visitor, secrets, site};

/// A pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long conversations may take to end.
const CLOSE_MAX: Duration = Duration::from_secs(5);
const WANTED: &str = "write HOST:PORT, as in 127.0.0.1:7419";

/// Where to listen, and the passwords.
pub(crate) struct Entrance {
    address: String,
    addresses: Vec<SocketAddr>,
    tokens: Vec<Arc<str>>,
}

/// A socket that listens, and the passwords.
pub(crate) struct Listening {
    listener: TcpListener,
    tokens: Vec<Arc<str>>,
}

pub(crate) struct Server {
    close: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Entrance {
    /// Reads the configuration, or refuses it; nothing without an address.
    pub(crate) async fn read(
        config: &FaktoryConfig,
        http: &HttpConfig,
        insecure: bool,
    ) -> Result<Option<Self>, SetupError> {
        let Some(address) = config.listen.clone() else { return Ok(None) };
        let wrong = |what: &str| SetupError::invalid(format!("faktory.listen: {address:?} {what}"));
        let found = tokio::net::lookup_host(&address).await;
        let found =
            found.map_err(|error| wrong(&format!("is not an address ({error}): {WANTED}")))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let tokens: Vec<Arc<str>> = secrets(http)?.into_iter().map(Into::into).collect();
        let is_beyond = addresses.iter().any(|address| !address.ip().is_loopback());
        if tokens.is_empty() && ((is_beyond && !insecure) || http.proxy.is_some()) {
            return Err(wrong(
                "needs a password, which is a token: set SERIATIM_TOKEN or [http] tokens",
            ));
        }
        Ok(Some(Self { address, addresses, tokens }))
    }
}

impl Listening {
    pub(crate) fn start(entrance: Entrance) -> Result<Self, SetupError> {
        let Entrance { address, addresses, tokens } = entrance;
        let listener = std::net::TcpListener::bind(&*addresses).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = listener.map_err(|error| {
            SetupError::failed(format!("faktory.listen: cannot listen on {address}: {error}"))
        })?;
        Ok(Self { listener, tokens })
    }

    /// Answers from now on.
    pub(crate) fn serve(self, app: Shared) -> Server {
        if let Ok(address) = self.listener.local_addr() {
            tracing::info!("clients of Faktory: listening on tcp://{address}");
        }
        let front = Arc::new(Front::new(Inside::new(app), self.tokens));
        let (close, closing) = watch::channel(false);
        Server { close, task: tokio::spawn(accept(self.listener, front, closing)) }
    }
}

impl Server {
    /// Accepts no more, and waits a while for commands in progress.
    pub(crate) async fn stop(self) {
        self.close.send_replace(true);
        let _ = self.task.await;
    }
}

async fn accept(listener: TcpListener, front: Arc<Front>, mut closing: watch::Receiver<bool>) {
    let mut conversations = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => break,
        };
        while conversations.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                let place = match front.places.connect(site(peer.ip())) {
                    Ok(place) => place,
                    Err(why) => {
                        refuse(&stream, &why);
                        continue;
                    }
                };
                let (front, closing) = (front.clone(), closing.clone());
                conversations.spawn(async move {
                    // Answers are small and wanted at once; where that cannot be set they come later.
                    let _ = stream.set_nodelay(true);
                    let visitor = Visitor { peer, token: None };
                    let (closed, ends) = (place.closed(), stream.into_split());
                    let conversation = Conversation::new(front, visitor, ends, closing, place);
                    tokio::select! {
                        () = conversation.run() => {}
                        () = closed.notified() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of Faktory");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while conversations.join_next().await.is_some() {} };
    if timeout(CLOSE_MAX, all).await.is_err() {
        tracing::warn!("closed connections of Faktory that did not end in time");
    }
}

fn refuse(stream: &TcpStream, why: &str) {
    // Without waiting: a client that cannot be told sees the end of the connection.
    let _: io::Result<usize> = stream.try_write(reply::error(why).as_bytes());
}
