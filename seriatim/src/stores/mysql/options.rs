//! The options in a URL: the server, and how the store uses it.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use crate::model::{Error, Result};
use crate::stores::url;

/// The largest packet to send, in bytes; the server's limit may be lower.
const PACKET_BYTES_MAX: usize = 1 << 30;

const NAMES: [&str; 5] = ["connections", "call_timeout", "connect_timeout", "ssl-mode", "ssl-ca"];

/// A parsed URL.
#[derive(Clone)]
pub(super) struct Options {
    pub opts: Opts,
    /// The same without encryption, if the URL leaves the choice to the server.
    pub plain: Option<Opts>,
    pub connections: usize,
    pub connect_timeout: Duration,
    pub call_timeout: Duration,
}

impl Options {
    /// Parses `mysql://user:password@host:port/database?name=value&…`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let base = match base.strip_prefix("mariadb:") {
            Some(rest) => format!("mysql:{rest}"),
            None => base.to_owned(),
        };
        // The driver's error may repeat the URL, and so the password.
        let wrong = |_| {
            let message = "write it as mysql://USER:PASSWORD@HOST:PORT/DATABASE";
            Error::invalid("store", message)
        };
        let opts = Opts::from_url(&base).map_err(wrong)?;
        if opts.db_name().is_none_or(str::is_empty) {
            let message = "names no database: write it as mysql://USER:PASSWORD@HOST:PORT/DATABASE";
            return Err(Error::invalid("store", message));
        }
        let mut ours = Ours::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            ours.take(pair, query)?;
        }
        let opts = OptsBuilder::from_opts(opts)
            .max_allowed_packet(Some(PACKET_BYTES_MAX))
            .wait_timeout(Some(28_800))
            .prefer_socket(false)
            .stmt_cache_size(0);
        let plain: Opts = opts.clone().into();
        let tls = ours.tls()?;
        let encrypted = tls.clone().map(|tls| opts.ssl_opts(tls).into());
        Ok(Self {
            opts: encrypted.unwrap_or_else(|| plain.clone()),
            plain: (ours.mode == Mode::Preferred).then_some(plain),
            connections: ours.connections,
            connect_timeout: ours.connect_timeout,
            call_timeout: ours.call_timeout,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disabled,
    Preferred,
    Required,
    VerifyIdentity,
}

struct Ours {
    connections: usize,
    connect_timeout: Duration,
    call_timeout: Duration,
    mode: Mode,
    roots: Option<PathBuf>,
}

impl Default for Ours {
    fn default() -> Self {
        Self {
            connections: url::CONNECTIONS,
            connect_timeout: url::CONNECT_TIMEOUT,
            call_timeout: url::CALL_TIMEOUT,
            mode: Mode::Preferred,
            roots: None,
        }
    }
}

impl Ours {
    fn take(&mut self, pair: &str, query: &str) -> Result<()> {
        let (name, value) = url::name_and_value(pair)?;
        let known = NAMES.iter().find(|known| **known == name).copied();
        let known = known.ok_or_else(|| url::unknown_option(query, name, &NAMES))?;
        match known {
            "connections" => self.connections = url::connections(&value)?,
            "call_timeout" => self.call_timeout = url::length(known, &value)?,
            "connect_timeout" => self.connect_timeout = url::length(known, &value)?,
            "ssl-mode" => self.mode = mode(known, &value)?,
            _ => self.roots = Some(value.into()),
        }
        Ok(())
    }

    fn tls(&self) -> Result<Option<SslOpts>> {
        let verifies = self.mode == Mode::VerifyIdentity;
        let mut tls = SslOpts::default().with_danger_accept_invalid_certs(!verifies);
        match &self.roots {
            Some(_) if !verifies => {
                let message = "is only used with ssl-mode=verify_identity";
                return Err(Error::invalid("ssl-ca", message));
            }
            Some(path) => {
                let pem = std::fs::read(path).map_err(|e| url::unreadable("ssl-ca", path, &e))?;
                tls = tls.with_root_certs(vec![pem.into()]).with_disable_built_in_roots(true);
            }
            None => {}
        }
        if self.mode == Mode::Disabled {
            return Ok(None);
        }
        // The driver uses the process's default provider, and a program may have none or several.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails if another thread was faster, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(Some(tls))
    }
}

fn mode(name: &'static str, value: &str) -> Result<Mode> {
    Ok(match &*value.to_ascii_lowercase().replace('-', "_") {
        "disabled" => Mode::Disabled,
        "preferred" => Mode::Preferred,
        "required" => Mode::Required,
        "verify_identity" => Mode::VerifyIdentity,
        _ => {
            let message = "is one of disabled, preferred, required, verify_identity";
            return Err(Error::invalid(name, message));
        }
    })
}
