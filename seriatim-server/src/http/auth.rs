//! Who may do what: bearer tokens with roles.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::problem::Problem;

/// What a token lets its bearer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Sees everything, changes nothing.
    Reader,
    /// Pushes jobs, asks for their state and cancels them.
    Producer,
    /// Claims, beats and settles.
    Worker,
    /// Everything.
    Admin,
}

/// What an endpoint asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Anybody.
    Open,
    /// Readers.
    Read,
    /// Producers.
    Produce,
    /// Readers and producers: the state of a job whose id one knows.
    Follow,
    /// Workers.
    Work,
    /// Admins alone.
    Admin,
}

impl Access {
    /// Whether the role is enough.
    fn admits(self, role: Role) -> bool {
        match self {
            Self::Open => true,
            _ if role == Role::Admin => true,
            Self::Read => role == Role::Reader,
            Self::Produce => role == Role::Producer,
            Self::Follow => matches!(role, Role::Reader | Role::Producer),
            Self::Work => role == Role::Worker,
            Self::Admin => false,
        }
    }

    /// The roles that may, for the documentation.
    pub(super) fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Open => &[],
            Self::Read => &["reader", "admin"],
            Self::Produce => &["producer", "admin"],
            Self::Follow => &["reader", "producer", "admin"],
            Self::Work => &["worker", "admin"],
            Self::Admin => &["admin"],
        }
    }
}

/// A token, known by its hash alone.
#[derive(Clone, Debug)]
pub(crate) struct KnownToken {
    pub(crate) name: String,
    hash: blake3::Hash,
    role: Role,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Nobody needs a token here.
    Anybody,
    /// The bearer of a token.
    Token { name: String, role: Role },
}

impl KnownToken {
    pub(crate) fn new(name: String, secret: &str, role: Role) -> Self {
        Self { name, hash: blake3::hash(secret.as_bytes()), role }
    }
}

/// Who is let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    pub(crate) tokens: Vec<KnownToken>,
    /// Nobody needs a token because nobody but this machine can connect. A browser on it can be
    /// made to by any page that it shows, so requests of other sites are refused.
    pub(crate) local_only: bool,
}

impl Guard {
    /// Who asks; refuses whom nobody knows.
    pub(super) fn know(
        &self,
        access: Access,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Who, Problem> {
        if self.local_only {
            refuse_other_sites(method, headers)?;
        }
        if access == Access::Open || self.tokens.is_empty() {
            return Ok(Who::Anybody);
        }
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
        let said = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret = said.and_then(bearer).ok_or_else(|| {
            refused("send a token of this server with Authorization: Bearer TOKEN")
        })?;
        let token = self.token(secret).ok_or_else(|| refused("this token is not known"))?;
        Ok(Who::Token { name: token.name.clone(), role: token.role })
    }

    /// Compares with every token, in constant time: hashes are compared so by blake3.
    fn token(&self, secret: &str) -> Option<&KnownToken> {
        let hash = blake3::hash(secret.as_bytes());
        self.tokens
            .iter()
            .fold(None, |found, token| if token.hash == hash { Some(token) } else { found })
    }
}

impl Who {
    /// Refuses whoever may not.
    pub(super) fn admit(&self, access: Access) -> Result<(), Problem> {
        match self {
            Self::Token { role, .. } if !access.admits(*role) => {
                let roles = access.roles().join(" or ");
                let detail = format!("this takes a token with role {roles}");
                Err(Problem::new(StatusCode::FORBIDDEN, detail))
            }
            _ => Ok(()),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// A name that resolves to this machine may be another site's; so may the page that sends this.
fn refuse_other_sites(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let forbidden = |detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, detail));
    let host = text(HOST).unwrap_or_default();
    if !host.is_empty() && !is_local(host) {
        return forbidden("without tokens this server answers to localhost and to addresses only");
    }
    let origin = text(ORIGIN).map(|origin| origin.split_once("://").map_or("", |(_, rest)| rest));
    if !method.is_safe() && origin.is_some_and(|origin| origin != host) {
        return forbidden("without tokens this server takes no requests of other sites' pages");
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    if host.parse::<SocketAddr>().is_ok() || address.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_names_are_answered_without_tokens() {
        for local in
            ["localhost", "localhost:7117", "127.0.0.1:7117", "[::1]:80", "[::1]", "10.0.0.1"]
        {
            assert!(is_local(local), "{local}");
        }
        for other in ["evil.example", "evil.example:7117", "localhost.evil.example"] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let tokens = vec![
            KnownToken::new("a".to_owned(), "one", Role::Reader),
            KnownToken::new("b".to_owned(), "two", Role::Worker),
        ];
        let guard = Guard { tokens, local_only: false };
        let role = |secret| guard.token(secret).map(|token| token.role);
        assert_eq!((role("two"), role("three")), (Some(Role::Worker), None));
        assert_eq!((bearer("Bearer  x"), bearer("basic x"), bearer("x")), (Some("x"), None, None));
    }
}
