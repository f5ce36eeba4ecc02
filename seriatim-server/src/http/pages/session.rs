//! Who has logged in, and which forms are theirs. A cookie names a token and when it ends, under a keyed hash whose key comes
//! from the token: every node that knows the token accepts it, nothing is stored, and without the token it is worthless.

use std::time::Duration;

use axum::http::header::COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use seriatim::Timestamp;

use super::super::auth::{Guard, KnownToken};
use super::super::page_key::Key;
use super::super::{Access, Problem, Result, Who};

/// The cookie.
pub(super) const NAME: &str = "seriatim";
/// How long a login lasts.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3_600);
/// Keeps the keys apart from other uses of a token.
const LOGIN_KEY: &str = "seriatim 2026 dashboard login";
const FORM_KEY: &str = "seriatim 2026 dashboard form";
const SAID_KEY: &str = "seriatim 2026 dashboard message";

/// The value of the cookie for this token, for [`LASTS`] from now.
pub(super) fn cookie(token: &KnownToken, now: Timestamp) -> String {
    let until = (now + LASTS).as_micros() / 1_000_000;
    let name: String = form_urlencoded::byte_serialize(token.name.as_bytes()).collect();
    let said = format!("{until}~{name}");
    let mac = blake3::keyed_hash(&token.key(LOGIN_KEY), said.as_bytes()).to_hex();
    format!("{said}~{mac}")
}

/// The token of the cookie, if it is valid at this time.
fn read<'g>(guard: &'g Guard, value: &str, now: Timestamp) -> Option<&'g KnownToken> {
    let (said, mac) = value.rsplit_once('~')?;
    let (until, name) = said.split_once('~')?;
    let mac = blake3::Hash::from_hex(mac).ok()?;
    let until: i64 = until.parse().ok()?;
    let is_of = |token: &&KnownToken| {
        let encoded: String = form_urlencoded::byte_serialize(token.name.as_bytes()).collect();
        encoded == name
    };
    let token = guard.tokens.iter().find(is_of)?;
    // Compared in constant time.
    let is_ours = blake3::keyed_hash(&token.key(LOGIN_KEY), said.as_bytes()) == mac;
    (is_ours && now.as_micros() / 1_000_000 < until).then_some(token)
}

/// The value of a cookie.
pub(super) fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The token that the visitor has logged in with.
pub(super) fn token<'g>(guard: &'g Guard, headers: &HeaderMap) -> Option<&'g KnownToken> {
    read(guard, cookie_of(headers, NAME)?, Timestamp::of_this_machine())
}

/// Who has logged in here, or elsewhere; a login here takes precedence.
pub(super) fn visitor(guard: &Guard, parts: &Parts) -> Result<Option<Who>> {
    match token(guard, &parts.headers) {
        Some(token) => Ok(Some(token.who())),
        None => guard.person(parts),
    }
}

/// Admits a visitor; refuses unknown ones, and forms of other sites.
pub(in crate::http) fn know(
    guard: &Guard,
    access: Access,
    method: &Method,
    headers: &HeaderMap,
    visitor: &Result<Option<Who>, String>,
) -> Result<Who> {
    if !method.is_safe() {
        refuse_other_sites(headers)?;
    }
    if access == Access::Open || guard.is_open() {
        return guard.know(Access::Open, method, headers);
    }
    let refused = |status, detail: &str| Err(Problem::new(status, detail.to_owned()));
    match visitor {
        Ok(Some(who)) => Ok(who.clone()),
        Err(why) => refused(StatusCode::FORBIDDEN, why),
        // There is nothing to log in with.
        Ok(None) if guard.tokens.is_empty() => refused(
            StatusCode::FORBIDDEN,
            "your service did not say who you are: log in there first",
        ),
        Ok(None) => refused(StatusCode::UNAUTHORIZED, "log in first"),
    }
}

/// A form is sent by a page of this server: browsers say so in one of two headers.
fn refuse_other_sites(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_own = match (text("sec-fetch-site"), text("origin"), text("host")) {
        (Some(site), ..) => site == "same-origin",
        (None, Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, of)| of == host)
        }
        _ => false,
    };
    let detail = "this form was not sent by a page of this server";
    is_own.then_some(()).ok_or_else(|| Problem::new(StatusCode::FORBIDDEN, detail))
}

/// What only this visitor's pages know: of the key of all nodes, and of who it is by which login. People whom a proxy or a
/// service names, and those of a server without login, have no cookie.
fn own_key(root: &Key, purpose: &str, who: &Who, headers: &HeaderMap, has_login: bool) -> Key {
    let cookie = cookie_of(headers, NAME).filter(|_| has_login).unwrap_or_default();
    // No name has the end of a line.
    let visitor = format!("{}\n{cookie}", who.name());
    let key = blake3::derive_key(purpose, root);
    *blake3::keyed_hash(&key, visitor.as_bytes()).as_bytes()
}

/// The keys of a visitor.
#[derive(Clone)]
pub(super) struct Keys {
    /// What a form of this visitor's pages carries, so that no other page can make one.
    pub(super) mark: String,
    /// The key of what one page tells the next one.
    pub(super) said: Key,
}

impl Keys {
    pub(super) fn of(root: &Key, who: &Who, headers: &HeaderMap, has_login: bool) -> Self {
        let own = |purpose| own_key(root, purpose, who, headers, has_login);
        let mark = blake3::Hash::from(own(FORM_KEY)).to_hex()[..32].to_owned();
        Self { mark, said: own(SAID_KEY) }
    }

    /// Whether a form has the mark. Compared in constant time.
    pub(super) fn made(&self, mark: &str) -> bool {
        blake3::hash(mark.as_bytes()) == blake3::hash(self.mark.as_bytes())
    }
}

/// What a page tells, behind the proof that a page of this visitor told it.
pub(super) fn sealed(key: &Key, said: &str) -> String {
    format!("{}~{said}", blake3::keyed_hash(key, said.as_bytes()).to_hex())
}

/// What was told, if it was sealed with this key.
pub(super) fn unsealed<'s>(key: &Key, value: &'s str) -> Option<&'s str> {
    let (mac, said) = value.split_once('~')?;
    // Compared in constant time.
    (blake3::keyed_hash(key, said.as_bytes()) == blake3::Hash::from_hex(mac).ok()?).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::super::super::scope::Scope;
    use super::*;
    use crate::config::Role;

    #[test]
    fn a_mark_is_of_one_person_and_one_login_and_the_same_on_every_node_of_the_store() {
        let person = |name: &str| Who::Token {
            name: name.to_owned(),
            role: Role::Operator,
            scope: Scope::default(),
        };
        let cookie = |value: &str| {
            let value = format!("{NAME}={value}").parse().unwrap();
            HeaderMap::from_iter([(COOKIE, value)])
        };
        let mark = |root: u8, who: &Who, headers: &HeaderMap, has_login| {
            Keys::of(&[root; 32], who, headers, has_login).mark
        };
        let (ann, none) = (person("sso:ann"), HeaderMap::new());
        let own = mark(1, &ann, &none, false);
        assert_eq!(own, mark(1, &ann, &cookie("planted"), false), "no login of theirs");
        for other in [
            mark(2, &ann, &none, false),
            mark(1, &person("sso:bob"), &none, false),
            mark(1, &Who::Anybody, &none, false),
            mark(1, &ann, &cookie("a"), true),
            mark(1, &ann, &cookie("b"), true),
        ] {
            assert_ne!(own, other);
        }
        let keys = Keys::of(&[1; 32], &ann, &none, false);
        assert!(keys.made(&own) && !keys.made("") && !keys.made(&own[1..]));
    }

    fn guard(secret: &str) -> Guard {
        let token = KnownToken::new("on call~1".to_owned(), secret, Role::Reader, Scope::default());
        Guard { tokens: vec![token], ..Guard::default() }
    }

    #[test]
    fn a_login_is_known_to_every_node_with_the_token_until_it_ends() {
        let (ours, now) = (guard("one"), Timestamp::from_micros(1_700_000_000_000_000));
        let value = cookie(&ours.tokens[0], now);
        assert!(read(&guard("one"), &value, now).is_some());
        assert!(read(&guard("two"), &value, now).is_none(), "the token was replaced");
        assert!(read(&ours, &value, now + LASTS).is_none(), "it has ended");
        for at in 0..value.len() {
            let mut forged = value.clone().into_bytes();
            forged[at] ^= 1;
            let forged = String::from_utf8(forged).unwrap();
            assert!(read(&ours, &forged, now).is_none(), "{forged}");
        }
    }
}
