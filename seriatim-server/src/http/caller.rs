//! The caller of a request and its kind: which callers share a budget.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::HeaderName;
use axum::http::request::Parts;

use super::line::Line;
use super::who::ANYBODY;
use super::{Access, Scope, Who};

/// The header that names a request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Callers that share a budget: the bearers of a token, or an address without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Token(Arc<str>),
    Address(IpAddr),
    /// The API is mounted in another service, which does not identify callers.
    Unknown,
}

/// Kinds of requests with budgets of their own, so that no kind can take what another needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Producers,
    Workers,
    Readers,
    Admins,
}

/// Whose request it is.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) party: Party,
    pub(super) class: Class,
    pub(super) who: Who,
    /// What its token is limited to.
    pub(super) scope: Scope,
}

impl Caller {
    pub(super) fn new(who: &Who, class: Class, request: &Request) -> Self {
        let party = Party::of(who, request.extensions().get::<Peer>());
        Self { party, class, who: who.clone(), scope: who.scope() }
    }

    /// Nothing is known about the caller.
    pub(super) fn anybody() -> Self {
        let (party, class) = (Party::Unknown, Class::Readers);
        Self { party, class, who: Who::Anybody, scope: Scope::default() }
    }

    /// The caller, as deeds name them.
    pub(super) fn name(&self) -> String {
        self.bearer().map_or_else(|| ANYBODY.to_owned(), |name| name.to_string())
    }

    /// The name of the token; none if no token is needed.
    pub(super) fn bearer(&self) -> Option<Arc<str>> {
        match &self.party {
            Party::Token(name) => Some(name.clone()),
            Party::Address(_) | Party::Unknown => None,
        }
    }
}

impl Class {
    /// Depends on the request, not on the caller: an admin's push is a push. `None`: a probe.
    pub(super) fn of(access: Access) -> Option<Self> {
        match access {
            Access::Open => None,
            Access::Read | Access::Follow => Some(Self::Readers),
            Access::Produce | Access::Cancel => Some(Self::Producers),
            Access::Work => Some(Self::Workers),
            Access::Operate | Access::Admin => Some(Self::Admins),
        }
    }
}

impl Party {
    pub(super) fn of(who: &Who, peer: Option<&Peer>) -> Self {
        match (who, peer) {
            (Who::Token { name, .. }, _) => Self::Token(name.as_str().into()),
            (Who::Anybody, Some(Peer(address))) => Self::Address(site(address.ip())),
            (Who::Anybody, None) => Self::Unknown,
        }
    }
}

/// What one site can be expected to have of addresses: of IPv6 a network of 64 bits.
pub(crate) fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address => address,
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.unwrap_or_else(Self::anybody))
    }
}

/// The connection of a request, for answers that wait: its client may be gone.
#[derive(Clone, Default)]
pub(super) struct Connection(Option<Arc<Line>>);

impl Connection {
    /// Ready when the client is gone, or has at least closed its side.
    pub(super) async fn left(&self) {
        match &self.0 {
            Some(line) => line.left().await,
            None => std::future::pending().await,
        }
    }

    /// Whether it is gone, or has at least closed its side.
    pub(super) fn has_left(&self) -> bool {
        self.0.as_ref().is_some_and(|line| line.has_left())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Connection {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().cloned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_site() {
        let site = |text: &str| site(text.parse().unwrap()).to_string();
        assert_eq!(site("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(site("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(site("::1"), "::1");
    }
}
