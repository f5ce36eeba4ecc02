//! Store URLs.
//!
//! `redis://` and `rediss://` name one server, `redis-cluster://` some nodes of a cluster, `redis-sentinel://` the
//! sentinels and then the name of a master. Options after the `?` that are not the driver's are the store's: see
//! [`Options`].

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::model::{Error, Result};
use crate::stores::url::{name_and_value, unknown_option, unreadable};

/// Most replicas that a batch can wait for.
const WAIT_REPLICAS_MAX: u32 = 100;

/// After this time without traffic the peer is probed, at this interval…
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(3);
/// …and after as many probes without an answer the connection ends: its host may have died without a word.
const PROBES: u32 = 3;
/// The same for data that the peer does not acknowledge.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// The options allowed in a URL; `protocol` is the driver's.
const NAMES: [&str; 5] = ["ca", "tls", "wait_replicas", "wait_fsync", "protocol"];

/// The target of a URL.
pub(super) enum Target {
    Server(Client),
    Cluster(Vec<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, node: ConnectionInfo },
}

/// The settings of all sockets.
pub(super) fn sockets() -> TcpSettings {
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
    let settings =
        TcpSettings::default().set_nodelay(true).set_keepalive(probes.with_retries(PROBES));
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

/// The store's options in a URL.
#[derive(Clone, Default)]
pub(super) struct Options {
    /// The authority's certificates for checking the server's, instead of the system's: `ca=PATH`.
    pub ca: Option<Vec<u8>>,
    /// TLS to the nodes of a cluster, and to the master named by the sentinels: `tls=true`.
    pub tls: bool,
    /// How many replicas must have a push, claim or settle before it is answered: `wait_replicas=N`.
    pub wait_replicas: u32,
    /// Whether it must also be on the server's disk: `wait_fsync=true`.
    pub wait_fsync: bool,
}

impl Options {
    pub(super) fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None, root_cert: self.ca.clone() }
    }

    pub(super) fn waits(&self) -> bool {
        self.wait_replicas > 0 || self.wait_fsync
    }

    /// A client for one server or node.
    pub(super) fn client(&self, node: ConnectionInfo) -> Result<Client> {
        let client = match node.addr() {
            redis::ConnectionAddr::TcpTls { .. } => {
                Client::build_with_tls(node, self.certificates())
            }
            _ => Client::open(node),
        };
        client.map_err(|_| not_a_url())
    }
}

/// Parses a store URL. Errors quote no part of it, because it may contain a password.
pub(super) fn read(url: &str) -> Result<(Target, Options)> {
    let (scheme, rest) = url.split_once("://").ok_or_else(not_a_url)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (options, drivers_own) = read_query(query)?;
    let end = if drivers_own.is_empty() { String::new() } else { format!("?{drivers_own}") };
    let place = match scheme {
        "redis" | "rediss" => {
            Target::Server(options.client(one(scheme, &format!("{rest}{end}"))?)?)
        }
        "redis-cluster" => {
            let scheme = if options.tls { "rediss" } else { "redis" };
            let (nodes, _) = rest.split_once('/').unwrap_or((rest, ""));
            Target::Cluster(several(scheme, nodes)?)
        }
        "redis-sentinel" => {
            let (nodes, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (master, db) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                let message = "redis-sentinel:// needs the name of the master behind the \
                               addresses, as in redis-sentinel://a:26379,b:26379/mymaster";
                return Err(Error::invalid("store", message));
            }
            let scheme = if options.tls { "rediss" } else { "redis" };
            let user = nodes.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
            let node = one(scheme, &format!("{user}master/{db}"))?;
            // The user and password are for the servers; sentinels usually have none.
            let nodes = nodes.rsplit_once('@').map_or(nodes, |(_, nodes)| nodes);
            let sentinels = several("redis", nodes)?;
            Target::Sentinel { sentinels, master: master.to_owned(), node }
        }
        _ => return Err(not_a_url()),
    };
    Ok((place, options))
}

fn one(scheme: &str, rest: &str) -> Result<ConnectionInfo> {
    // The driver's error for a malformed URL may quote the password.
    let info = format!("{scheme}://{rest}").into_connection_info().map_err(|_| not_a_url())?;
    Ok(info.set_tcp_settings(sockets()))
}

/// `[user:password@]host:port,host:port`
fn several(scheme: &str, nodes: &str) -> Result<Vec<ConnectionInfo>> {
    let (user, hosts) = nodes.rsplit_once('@').map_or(("", nodes), |(user, hosts)| (user, hosts));
    let at = if user.is_empty() { "" } else { "@" };
    hosts.split(',').map(|host| one(scheme, &format!("{user}{at}{host}"))).collect()
}

fn read_query(query: &str) -> Result<(Options, String)> {
    let (mut options, mut others) = (Options::default(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = name_and_value(pair)?;
        let value = if pair.contains('=') { value.as_str() } else { "true" };
        match name {
            "ca" => options.ca = Some(read_ca(value)?),
            "tls" => options.tls = flag("tls", value)?,
            "wait_fsync" => options.wait_fsync = flag("wait_fsync", value)?,
            "wait_replicas" => {
                options.wait_replicas =
                    value.parse().ok().filter(|n| *n <= WAIT_REPLICAS_MAX).ok_or_else(|| {
                        let message = format!("must be a number from 0 to {WAIT_REPLICAS_MAX}");
                        Error::invalid("wait_replicas", message)
                    })?;
            }
            "protocol" => others.push(pair),
            _ => return Err(unknown_option(query, name, &NAMES)),
        }
    }
    Ok((options, others.join("&")))
}

fn read_ca(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| unreadable("ca", path.as_ref(), &error))
}

fn flag(name: &'static str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| Error::invalid(name, "is true or false"))
}

fn not_a_url() -> Error {
    Error::invalid("store", "is not a URL of a Redis server")
}

#[cfg(test)]
mod tests {
    use super::{PROBE_AFTER, Target, UNACKNOWLEDGED_MAX, read};

    /// Else a connection to a host that died stays open for a quarter of an hour.
    #[test]
    fn every_socket_finds_out_that_its_peer_is_gone() {
        let settings = |url: &str| match read(url).unwrap().0 {
            Target::Server(client) => vec![client.get_connection_info().tcp_settings().clone()],
            Target::Cluster(nodes) => nodes.iter().map(|n| n.tcp_settings().clone()).collect(),
            Target::Sentinel { node, .. } => vec![node.tcp_settings().clone()],
        };
        for url in ["redis://a", "rediss://a", "redis-cluster://a:1,b:2", "redis-sentinel://a:1/m"]
        {
            for settings in settings(url) {
                assert!(settings.nodelay(), "{url}");
                assert_eq!(settings.user_timeout(), Some(UNACKNOWLEDGED_MAX), "{url}");
                let keepalive = format!("{:?}", settings.keepalive());
                assert!(keepalive.contains(&format!("{PROBE_AFTER:?}")), "{url}: {keepalive}");
            }
        }
    }

    #[test]
    fn a_path_in_a_url_may_hold_escapes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("our own.pem");
        std::fs::write(&file, "a certificate").unwrap();
        let path = file.to_str().unwrap().replace(' ', "%20");
        let (_, options) = read(&format!("redis-cluster://a:1,b:2?ca={path}&tls")).unwrap();
        assert_eq!(options.ca.as_deref(), Some(&b"a certificate"[..]));
        assert!(options.tls, "without a value it is meant");
        assert!(read("redis-cluster://a:1?ca=%2").is_err());
        let error = read("redis://a:1/0?wait_replica=1").err().unwrap();
        assert!(error.to_string().contains("did you mean wait_replicas?"), "{error}");
    }
}
