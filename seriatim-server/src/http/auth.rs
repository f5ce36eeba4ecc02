//! Access control: bearer tokens with roles.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};

use super::caller::{Peer, site};
use super::person::{Host, Proxy};
use super::{Access, Problem, Result, Scope, Who};
use crate::config::Role;

/// From here on a token cannot be guessed: `openssl rand -hex 16` makes so many characters.
const LONG_BYTES: usize = 32;

/// A token, known by its hash alone.
#[derive(Clone, Debug)]
pub(crate) struct KnownToken {
    pub(crate) name: String,
    hash: blake3::Hash,
    role: Role,
    scope: Scope,
    is_long: bool,
}

impl KnownToken {
    pub(crate) fn new(name: String, secret: &str, role: Role, scope: Scope) -> Self {
        let is_long = secret.len() >= LONG_BYTES;
        Self { name, hash: blake3::hash(secret.as_bytes()), role, scope, is_long }
    }

    /// Whether nobody can guess it, however often they try.
    pub(super) fn is_long(&self) -> bool {
        self.is_long
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Its bearer.
    pub(super) fn who(&self) -> Who {
        Who::Token { name: self.name.clone(), role: self.role, scope: self.scope.clone() }
    }

    /// A key for this purpose, the same on every node that knows the token, and gone with it.
    pub(super) fn key(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.hash.as_bytes())
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

/// Decides which callers are allowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    pub(crate) tokens: Vec<KnownToken>,
    /// No token is needed, since only this machine can connect.
    pub(crate) local_only: bool,
    /// No token is needed. A browser can be made to connect by any page that it shows, so requests of
    /// other sites are refused.
    pub(crate) refuses_sites: bool,
    /// The name by which it was told to listen, if that is no address.
    pub(crate) listens_as: Option<String>,
    /// A proxy that identifies the visitors of pages.
    pub(crate) proxy: Option<Proxy>,
    /// A service that says so.
    pub(super) host: Option<Host>,
}

impl Guard {
    /// Identifies the caller; refuses unknown ones.
    pub(super) fn know(&self, access: Access, method: &Method, headers: &HeaderMap) -> Result<Who> {
        if self.refuses_sites {
            self.refuse_other_sites(method, headers)?;
        }
        if access == Access::Open || self.is_open() {
            return Ok(Who::Anybody);
        }
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
        let said = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret = said
            .and_then(bearer)
            .ok_or_else(|| refused("send a valid token as Authorization: Bearer TOKEN"))?;
        let token = self.token(secret).ok_or_else(|| refused("this token is not known"))?;
        Ok(token.who())
    }

    /// Whether no login is needed.
    pub(super) fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.proxy.is_none() && self.host.is_none()
    }

    /// The visitor of a page, as identified by the service or the proxy.
    pub(super) fn person(&self, parts: &Parts) -> Result<Option<Who>> {
        if let Some(who) = self.host.as_ref().and_then(|host| host.knows(parts)) {
            return Ok(Some(who));
        }
        self.proxy.as_ref().map_or(Ok(None), |proxy| proxy.knows(parts))
    }

    /// The token of this name.
    pub(super) fn named(&self, name: &str) -> Option<&KnownToken> {
        self.tokens.iter().find(|token| token.name == name)
    }

    /// The site that a request comes from: behind the configured proxy the one that it names.
    pub(super) fn origin(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Option<IpAddr> {
        let Peer(peer) = peer?;
        let named = self.proxy.as_ref().and_then(|proxy| proxy.visitor(peer.ip(), headers));
        Some(site(named.unwrap_or(peer.ip())))
    }

    /// Compares with every token, in constant time: hashes are compared so by blake3.
    pub(super) fn token(&self, secret: &str) -> Option<&KnownToken> {
        let hash = blake3::hash(secret.as_bytes());
        self.tokens
            .iter()
            .fold(None, |found, token| if token.hash == hash { Some(token) } else { found })
    }
}

impl Guard {
    /// A name that resolves to this machine may be another site's; so may the page that sends this. A header
    /// that cannot be read is not one that is missing.
    fn refuse_other_sites(&self, method: &Method, headers: &HeaderMap) -> Result<()> {
        let forbidden = |detail: &str| Problem::new(StatusCode::FORBIDDEN, detail);
        let text = |name: HeaderName| match headers.get_all(&name).iter().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [value] => {
                value.to_str().map(Some).map_err(|_| forbidden(&format!("invalid header {name}")))
            }
            _ => Err(forbidden(&format!("duplicate header {name}"))),
        };
        let host = text(HOST)?.unwrap_or_default();
        if !host.is_empty() && !is_local_name(host) && !self.listens_as(host) {
            return Err(forbidden(&self.hosts()));
        }
        if method.is_safe() {
            return Ok(());
        }
        let origin =
            text(ORIGIN)?.map(|origin| origin.split_once("://").map_or("", |(_, rest)| rest));
        // Scripts and typed addresses send none; a browser sends it for pages of other sites.
        let site = text(HeaderName::from_static("sec-fetch-site"))?;
        let is_own = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        if !is_own || origin.is_some_and(|origin| origin != host) {
            let detail = "without tokens, this server refuses cross-site requests";
            return Err(forbidden(detail));
        }
        Ok(())
    }

    fn listens_as(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        self.listens_as.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    /// Which hosts it answers for.
    fn hosts(&self) -> String {
        let own = self.listens_as.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        let advice = match self.local_only {
            true => "",
            false => {
                ": the pages of any site could use another name; set a token, or listen by that name, as in --listen NAME:7117"
            }
        };
        format!(
            "without tokens, this server accepts only localhost{own} or an IP address as Host{advice}"
        )
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn is_local_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    if host.parse::<SocketAddr>().is_ok() || address.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_local_names_are_answered_without_tokens() {
        for local in
            ["localhost", "localhost:7117", "127.0.0.1:7117", "[::1]:80", "[::1]", "10.0.0.1"]
        {
            assert!(is_local_name(local), "{local}");
        }
        for other in ["evil.example", "evil.example:7117", "localhost.evil.example"] {
            assert!(!is_local_name(other), "{other}");
        }
    }

    #[test]
    fn a_server_without_tokens_answers_by_the_name_that_it_listens_as() {
        let guard = Guard {
            refuses_sites: true,
            listens_as: Some("jobs.lan".to_owned()),
            ..Guard::default()
        };
        let asks = |host: &'static str| {
            let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
            guard.know(Access::Read, &Method::GET, &headers)
        };
        for own in ["jobs.lan:7117", "JOBS.lan", "10.0.0.1:7117", "localhost"] {
            assert!(asks(own).is_ok(), "{own}");
        }
        for other in ["evil.example", "jobs.lan.evil.example:7117"] {
            let told = asks(other).unwrap_err().into_detail();
            assert!(told.contains("jobs.lan") && told.contains("set a token"), "{told}");
        }
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let tokens = vec![
            KnownToken::new("a".to_owned(), "one", Role::Reader, Scope::default()),
            KnownToken::new("b".to_owned(), "two", Role::Worker, Scope::default()),
        ];
        let guard = Guard { tokens, ..Guard::default() };
        let role = |secret| guard.token(secret).map(|token| token.role);
        assert_eq!((role("two"), role("three")), (Some(Role::Worker), None));
        assert_eq!((bearer("Bearer  x"), bearer("basic x"), bearer("x")), (Some("x"), None, None));
    }
}
