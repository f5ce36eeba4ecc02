//! People who logged in elsewhere: to the service around the pages, or to the proxy before them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};

use super::caller::Peer;
use super::{Problem, Result, Scope, Who};
use crate::base::setup_error::SetupError;
use crate::base::text::one_line;
use crate::config::{ProxyConfig, Role};

/// Longest name of a person, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Longest list of groups, in bytes.
const GROUPS_BYTES_MAX: usize = 8_192;
/// Among the groups with a role: everyone the proxy identifies.
const EVERYBODY: &str = "*";
/// Keeps names of people apart from names of tokens, in the audit log and in budgets.
pub(super) const NAMES_BEGIN: &str = "sso:";

/// A person who looks at the pages, as a service knows them.
#[derive(Clone, Debug)]
pub struct Person {
    name: String,
    role: Role,
}

impl Person {
    /// Sees everything, changes nothing.
    pub fn reader(name: impl Into<String>) -> Self {
        Self { name: name.into(), role: Role::Reader }
    }

    /// Also pauses, resumes, retries, requeues, cancels and runs cron entries.
    pub fn operator(name: impl Into<String>) -> Self {
        Self { name: name.into(), role: Role::Operator }
    }

    /// May do everything.
    pub fn admin(name: impl Into<String>) -> Self {
        Self { name: name.into(), role: Role::Admin }
    }

    fn who(self) -> Who {
        let mut name = one_line(&self.name);
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        Who::Token { name, role: self.role, scope: Scope::default() }
    }
}

/// The service that the pages are mounted in.
#[derive(Clone)]
pub(super) struct Host(Arc<Ask>);

type Ask = dyn Fn(&Parts) -> Option<Person> + Send + Sync;

impl Host {
    pub(super) fn new(ask: impl Fn(&Parts) -> Option<Person> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// The caller, if the service lets them in.
    pub(super) fn knows(&self, parts: &Parts) -> Option<Who> {
        (self.0)(parts).map(Person::who)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// A proxy whose headers are believed.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    from: Vec<Network>,
    user: HeaderName,
    groups: Option<HeaderName>,
    roles: Vec<(String, Role)>,
    prefix: Option<HeaderName>,
}

/// Addresses with these first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    fn has(self, address: IpAddr) -> bool {
        let differ = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differ >= u32::from(self.bits)
    }
}

impl Proxy {
    /// Reads the configuration, or refuses it.
    pub(super) fn read(config: &ProxyConfig) -> Result<Self, SetupError> {
        let wrong =
            |key: &str, what: String| Err(SetupError::invalid(format!("http.proxy.{key}: {what}")));
        if config.from.is_empty() {
            return wrong("from", "name the networks of the proxy, as in [\"10.0.0.0/8\"]".into());
        }
        let mut from = Vec::new();
        for text in &config.from {
            match Network::read(text) {
                Some(network) if network.bits > 0 => from.push(network),
                Some(_) => {
                    return wrong("from", format!("{text:?} is every address: name the proxy's"));
                }
                None => {
                    return wrong(
                        "from",
                        format!("{text:?} is not a network: write 10.0.0.0/8 or ::1"),
                    );
                }
            }
        }
        if config.roles.is_empty() {
            let what = "name at least one, as in { ops = \"operator\", \"*\" = \"reader\" }";
            return wrong("roles", what.into());
        }
        for (group, role) in &config.roles {
            if matches!(role, Role::Producer | Role::Worker) {
                let role = role.name();
                return wrong(
                    "roles",
                    format!("{group:?} has the role {role}; pages need reader, operator or admin"),
                );
            }
            if config.groups.is_none() && group != EVERYBODY {
                return wrong(
                    "groups",
                    format!("name the header with the groups, of which roles has {group:?}"),
                );
            }
        }
        Ok(Self {
            from,
            user: header("user", &config.user)?,
            groups: config.groups.as_deref().map(|name| header("groups", name)).transpose()?,
            roles: config.roles.iter().map(|(group, role)| (group.clone(), *role)).collect(),
            prefix: config.prefix.as_deref().map(|name| header("prefix", name)).transpose()?,
        })
    }

    /// The person that the proxy names, if the request comes from it.
    pub(super) fn knows(&self, parts: &Parts) -> Result<Option<Who>> {
        if !self.is_from(parts) {
            return Ok(None);
        }
        let Some(name) = single(&parts.headers, &self.user, NAME_BYTES_MAX)? else {
            return Ok(None);
        };
        let groups = match &self.groups {
            Some(header) => single(&parts.headers, header, GROUPS_BYTES_MAX)?,
            None => None,
        };
        let groups: Vec<&str> =
            groups.iter().flat_map(|groups| groups.split(',')).map(trimmed).collect();
        let has = |group: &str| group == EVERYBODY || groups.contains(&group);
        let rank = |role: &Role| match role {
            Role::Admin => 2,
            Role::Operator => 1,
            _ => 0,
        };
        let roles = self.roles.iter().filter(|(group, _)| has(group)).map(|(_, role)| *role);
        let Some(role) = roles.max_by_key(rank) else {
            let detail =
                format!("{} has no group with a role here: see http.proxy.roles", one_line(&name));
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        };
        let name = format!("{NAMES_BEGIN}{name}");
        Ok(Some(Person { name, role }.who()))
    }

    /// The path below which the proxy shows this server.
    pub(super) fn prefix(&self, parts: &Parts) -> Option<String> {
        let header = self.prefix.as_ref().filter(|_| self.is_from(parts))?;
        let prefix = single(&parts.headers, header, NAME_BYTES_MAX).ok()??;
        let prefix = prefix.trim_end_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
        let is_path =
            prefix.starts_with('/') && !prefix.contains("//") && prefix.chars().all(is_plain);
        is_path.then(|| prefix.to_owned())
    }

    /// The address for which the proxy asks: the last one in its header that is no proxy's. What stands before it is what
    /// the visitor said.
    pub(super) fn visitor(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        if !self.has(peer) {
            return None;
        }
        let values = headers.get_all("x-forwarded-for").iter().rev();
        let texts = values.map_while(|value| value.to_str().ok());
        let named = texts.flat_map(|text| text.rsplit(',')).map_while(address);
        named.into_iter().find(|address| !self.has(*address))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.from.iter().any(|network| network.has(address))
    }

    fn is_from(&self, parts: &Parts) -> bool {
        parts.extensions.get::<Peer>().is_some_and(|Peer(peer)| self.has(peer.ip()))
    }
}

/// An address as proxies write it: some add a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = trimmed(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.trim_matches(['[', ']']).parse().ok().or_else(with_port)
}

/// The header that a key of the configuration names.
fn header(key: &str, name: &str) -> Result<HeaderName, SetupError> {
    name.parse().map_err(|_| {
        SetupError::invalid(format!("http.proxy.{key}: {name:?} is not the name of a header"))
    })
}

/// The value of a header that is there once. A second one may be a visitor's, beside that of the proxy.
fn single(headers: &HeaderMap, name: &HeaderName, bytes_max: usize) -> Result<Option<String>> {
    let refused = |what: &str| {
        let detail = format!("header {name} {what}: it must come from the proxy alone");
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    };
    let mut values = headers.get_all(name).iter();
    let (value, another) = (values.next(), values.next());
    let Some(value) = value else { return Ok(None) };
    if another.is_some() {
        return refused("is given twice");
    }
    match std::str::from_utf8(value.as_bytes()).map(trimmed) {
        Ok("") => Ok(None),
        Ok(text) if text.len() <= bytes_max => Ok(Some(text.to_owned())),
        Ok(_) => refused("is too long"),
        Err(_) => refused("is not UTF-8"),
    }
}

/// Without the white space that HTTP allows around a value: others may be part of a name.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn config() -> ProxyConfig {
        let roles = [("ops", Role::Operator), ("root", Role::Admin), ("eyes", Role::Reader)];
        ProxyConfig {
            from: vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned(), "127.0.0.1".to_owned()],
            user: "X-User".to_owned(),
            groups: Some("X-Groups".to_owned()),
            roles: roles.map(|(group, role)| (group.to_owned(), role)).into(),
            prefix: Some("X-Prefix".to_owned()),
        }
    }

    fn parts(peer: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer((peer.parse::<IpAddr>().unwrap(), 1).into()));
        parts
    }

    fn known(peer: &str, headers: &[(&str, &str)]) -> Result<Option<(String, Role)>, u16> {
        let proxy = Proxy::read(&config()).unwrap();
        let who =
            proxy.knows(&parts(peer, headers)).map_err(|problem| problem.status().as_u16())?;
        Ok(who.map(|who| (who.name().to_owned(), who.role().unwrap())))
    }

    #[test]
    fn headers_are_believed_from_the_networks_of_the_proxy_alone() {
        let ann = [("x-user", "ann"), ("x-groups", "dev, ops,eyes")];
        let expected = Ok(Some(("sso:ann".to_owned(), Role::Operator)));
        for peer in ["10.1.255.1", "::ffff:10.1.0.9", "fd12::1", "127.0.0.1"] {
            assert_eq!(known(peer, &ann), expected, "{peer}");
        }
        for peer in ["10.2.0.1", "11.1.0.1", "fe80::1", "::1", "127.0.0.2", "::a01:1"] {
            assert_eq!(known(peer, &ann), Ok(None), "{peer}");
        }
        let (mut unknown, ()) =
            Request::builder().header("x-user", "ann").body(()).unwrap().into_parts();
        assert_eq!(Proxy::read(&config()).unwrap().knows(&unknown).unwrap(), None);
        unknown.headers.insert("x-forwarded-for", "10.1.0.1".parse().unwrap());
        assert_eq!(Proxy::read(&config()).unwrap().knows(&unknown).unwrap(), None);
    }

    #[test]
    fn what_a_visitor_adds_beside_the_proxy_is_refused() {
        let groups = ("x-groups", "eyes");
        assert_eq!(known("10.1.0.1", &[("x-user", "ann"), ("x-user", "root"), groups]), Err(403));
        assert_eq!(known("10.1.0.1", &[("x-user", "ann"), groups, ("x-groups", "root")]), Err(403));
        assert_eq!(known("10.1.0.1", &[("x-user", "ann"), ("x-groups", "OPS, ops2")]), Err(403));
        assert_eq!(known("10.1.0.1", &[("x-user", "ann")]), Err(403), "no group, no role");
        assert_eq!(known("10.1.0.1", &[("x-user", " "), groups]), Ok(None));
        assert_eq!(known("10.1.0.1", &[("x-user", &"a".repeat(200)), groups]), Err(403));
        let tricky = [("x-user", "a\tb"), ("x-groups", "root")];
        let shown = known("10.1.0.1", &tricky).unwrap().unwrap().0;
        assert!(!shown.contains('\t'), "{shown}");
    }

    #[test]
    fn the_address_of_a_visitor_is_the_last_that_is_no_proxys() {
        let proxy = Proxy::read(&config()).unwrap();
        let of = |peer: &str, said: &[&str]| {
            let said: Vec<(&str, &str)> =
                said.iter().map(|text| ("x-forwarded-for", *text)).collect();
            let headers = parts(peer, &said).headers;
            proxy.visitor(peer.parse().unwrap(), &headers).map(|address| address.to_string())
        };
        let named = |text: &str| Some(text.to_owned());
        assert_eq!(of("10.1.0.1", &["1.1.1.1, 203.0.113.9"]), named("203.0.113.9"));
        assert_eq!(of("10.1.0.1", &["1.1.1.1", "203.0.113.9:80, 10.1.0.2"]), named("203.0.113.9"));
        assert_eq!(of("10.1.0.1", &["[2001:db8::1]:443"]), named("2001:db8::1"));
        assert_eq!(of("10.1.0.1", &["203.0.113.9, unknown"]), None);
        assert_eq!(of("10.1.0.1", &[]), None);
        assert_eq!(of("10.2.0.1", &["203.0.113.9"]), None, "no proxy");
    }

    #[test]
    fn a_prefix_is_a_plain_path_or_none() {
        let proxy = Proxy::read(&config()).unwrap();
        let of = |peer: &str, prefix: &str| proxy.prefix(&parts(peer, &[("x-prefix", prefix)]));
        assert_eq!(of("10.1.0.1", "/jobs/").as_deref(), Some("/jobs"));
        assert_eq!(of("10.9.0.1", "/jobs"), None);
        for odd in
            ["jobs", "//evil.example", "/a//b", "/a\"b", "/;Path=/", "https://evil", "/a b", "/"]
        {
            assert_eq!(of("10.1.0.1", odd), None, "{odd}");
        }
    }

    #[test]
    fn a_configuration_that_would_believe_everybody_is_refused() {
        let refused = |change: fn(&mut ProxyConfig)| {
            let mut config = config();
            change(&mut config);
            Proxy::read(&config).unwrap_err().to_string()
        };
        for (told, change) in [
            (
                "every address",
                (|config: &mut ProxyConfig| config.from = vec!["0.0.0.0/0".to_owned()])
                    as fn(&mut ProxyConfig),
            ),
            ("name the networks", |config| config.from.clear()),
            ("is not a network", |config| config.from = vec!["10.0.0.0/33".to_owned()]),
            ("is not a network", |config| config.from = vec!["proxy.local".to_owned()]),
            ("role worker", |config| {
                assert!(config.roles.insert("w".to_owned(), Role::Worker).is_none());
            }),
            ("name at least one", |config| config.roles.clear()),
            ("name the header", |config| config.groups = None),
            ("is not the name", |config| config.user = "X User".to_owned()),
        ] {
            let said = refused(change);
            assert!(said.contains(told), "{told}: {said}");
        }
    }
}
