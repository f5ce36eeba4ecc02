//! The options in a URL: the server, and how the store uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;

use super::servers::{self, Servers};
use super::tls::Tls;
use crate::model::{Error, Result};
use crate::stores::url;

/// URL parameters that the store reads.
const OURS: [&str; 6] =
    ["schema", "connections", "call_timeout", "sslmode", "sslrootcert", "listen"];
/// URL parameters that the driver reads.
const DRIVERS_OWN: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

const NO_URL: &str = "is not a URL of a PostgreSQL database: write it as \
                      postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE";

/// A parsed URL.
#[derive(Clone)]
pub(super) struct Options {
    pub servers: Arc<Servers>,
    pub schema: String,
    /// Besides the listening connection.
    pub connections: usize,
    pub call_timeout: Duration,
    /// The servers that send wake-ups. `None`: this store does not listen.
    pub listen: Option<Arc<Servers>>,
}

impl Options {
    /// Parses `postgres://user:password@host:port/database?name=value&…`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut ours = Ours::default();
        let theirs: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| ours.take(pair, query).map(|taken| (!taken).then_some(pair)))
            .filter_map(Result::transpose)
            .collect::<Result<_>>()?;
        let rest = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
        // The driver's error for a malformed URL may quote the password.
        let mut config: Config =
            format!("{base}{rest}").parse().map_err(|_| Error::invalid("store", NO_URL))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let message =
                "names no server: write it as postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            return Err(Error::invalid("store", message));
        }
        check_servers(&config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(url::CONNECT_TIMEOUT);
        }
        let schema = ours.schema.unwrap_or_else(|| "seriatim".to_owned());
        check_schema(&schema)?;
        config.application_name(format!("seriatim {schema}"));
        let tls = match (ours.verify, &ours.roots) {
            (true, roots) => Tls::verified(roots.as_deref())?,
            (false, None) => Tls::unverified()?,
            (false, Some(_)) => {
                let message = "is only used with sslmode=verify-full";
                return Err(Error::invalid("sslrootcert", message));
            }
        };
        config.ssl_mode(ours.ssl_mode);
        let servers = Arc::new(Servers::new(&config, tls.clone()));
        let listen = match ours.listen {
            Listen::Same => Some(servers.clone()),
            Listen::Off => None,
            // For example behind a pooler.
            Listen::At(host, port) => {
                Some(Arc::new(Servers::new(&servers::at(&config, &host, port), tls)))
            }
        };
        let (connections, call_timeout) = (ours.connections, ours.call_timeout);
        Ok(Self { servers, schema, connections, call_timeout, listen })
    }
}

/// Each server has a name, an address or both, and a port of its own or the one of all.
fn check_servers(config: &Config) -> Result<()> {
    let counts = [config.get_hosts().len(), config.get_hostaddrs().len()];
    let [servers, ports] = [counts.into_iter().max().unwrap_or_default(), config.get_ports().len()];
    if counts.iter().any(|count| ![0, servers].contains(count)) || ![0, 1, servers].contains(&ports)
    {
        let message = "names several servers, and not a host, hostaddr or port for each of them";
        return Err(Error::invalid("store", message));
    }
    Ok(())
}

enum Listen {
    Same,
    Off,
    At(String, u16),
}

/// The parameters that the store reads: the driver does not know them, or reads them differently.
struct Ours {
    schema: Option<String>,
    connections: usize,
    call_timeout: Duration,
    ssl_mode: tokio_postgres::config::SslMode,
    verify: bool,
    roots: Option<PathBuf>,
    listen: Listen,
}

impl Default for Ours {
    fn default() -> Self {
        Self {
            schema: None,
            connections: url::CONNECTIONS,
            call_timeout: url::CALL_TIMEOUT,
            ssl_mode: tokio_postgres::config::SslMode::Prefer,
            verify: false,
            roots: None,
            listen: Listen::Same,
        }
    }
}

impl Ours {
    /// Whether the parameter is the store's. An error if it is not the driver's either.
    fn take(&mut self, pair: &str, query: &str) -> Result<bool> {
        let (name, value) = url::name_and_value(pair)?;
        match name {
            "schema" => self.schema = Some(value),
            "connections" => self.connections = url::connections(&value)?,
            "call_timeout" => self.call_timeout = url::length("call_timeout", &value)?,
            "sslmode" => (self.ssl_mode, self.verify) = ssl_mode(&value)?,
            "sslrootcert" => self.roots = Some(value.into()),
            "listen" => self.listen = listen(&value)?,
            _ if DRIVERS_OWN.contains(&name) => return Ok(false),
            _ => {
                let known: Vec<&str> = OURS.into_iter().chain(DRIVERS_OWN).collect();
                return Err(url::unknown_option(query, name, &known));
            }
        }
        Ok(true)
    }
}

fn ssl_mode(value: &str) -> Result<(tokio_postgres::config::SslMode, bool)> {
    use tokio_postgres::config::SslMode;
    Ok(match value {
        "disable" => (SslMode::Disable, false),
        "prefer" => (SslMode::Prefer, false),
        "require" => (SslMode::Require, false),
        "verify-full" => (SslMode::Require, true),
        _ => {
            let message = "is one of disable, prefer, require, verify-full";
            return Err(Error::invalid("sslmode", message));
        }
    })
}

fn listen(value: &str) -> Result<Listen> {
    if value == "off" {
        return Ok(Listen::Off);
    }
    let parts = value.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => Ok(Listen::At(host.to_owned(), port)),
        _ => Err(Error::invalid("listen", "is off, or host:port of the server itself")),
    }
}

pub(super) fn check_schema(schema: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = schema.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if begins && schema.len() <= 40 && schema.bytes().all(plain) && !schema.starts_with("pg_") {
        return Ok(());
    }
    let message =
        "must be 1 to 40 of the characters a-z 0-9 _, begin with a letter and not with pg_";
    Err(Error::invalid("schema", message))
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn an_option_that_there_is_not_is_named_and_not_the_whole_url_blamed() {
        let error_of = |url| Options::parse(url).err().map(|error| error.to_string());
        let slip = error_of("postgres://me:secret@host/db?conections=3").unwrap();
        assert!(slip.starts_with("store: has no option \"conections\": did you mean connections?"));
        assert_eq!(error_of("postgres://host/db?connections=3&keepalives_idle=9"), None);
        let servers = error_of("postgres://one:1,two:2/db?port=3,4,5").unwrap();
        assert!(servers.starts_with("store: names several servers"), "{servers}");
        assert_eq!(error_of("postgres://one,two:7/db"), None);
        let broken = error_of("postgres://me:secret@host:port/db").unwrap();
        assert!(broken.contains("postgres://USER:") && !broken.contains("secret"), "{broken}");
    }
}
