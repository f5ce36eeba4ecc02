//! The first lines: the server says which password it wants, the client who it is.

use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::base::random::random;
use crate::base::text::hex;

/// Random bytes that keep the hash of a password from being used again.
const SALT_BYTES: usize = 16;
/// The version of the protocol.
const VERSION: u32 = 2;
/// What clients look for when a password is wrong.
pub(super) const WRONG: &str = "Invalid password";

/// What the server says to a connection.
pub(super) struct Greeting {
    /// None if no password is needed.
    salt: Option<String>,
}

/// What the client says.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    /// Its name, if it is a worker.
    pub(super) wid: Option<String>,
    pwdhash: Option<String>,
    /// Some clients leave it out.
    v: Option<u32>,
}

impl Greeting {
    pub(super) fn new(is_open: bool) -> Result<Self, String> {
        if is_open {
            return Ok(Self { salt: None });
        }
        Ok(Self { salt: Some(hex(&random::<SALT_BYTES>()?)) })
    }

    /// One iteration of the hash: some clients know no more. Tokens are random already, unlike passwords of people.
    pub(super) fn line(&self) -> String {
        let salt = self.salt.as_ref().map(|salt| format!(",\"s\":\"{salt}\",\"i\":1"));
        format!("+HI {{\"v\":{VERSION}{}}}\r\n", salt.unwrap_or_default())
    }

    /// The token that is the client's password; none if it is none, or where nobody needs one. Compares with every token, in constant time:
    /// hashes are compared so by blake3.
    pub(super) fn check(
        &self,
        hello: &Hello,
        tokens: &[Arc<str>],
    ) -> Result<Option<Arc<str>>, String> {
        if let Some(version) = hello.v.filter(|version| *version != VERSION) {
            return Err(format!("version {version} of the protocol: this server has {VERSION}"));
        }
        let Some(salt) = &self.salt else { return Ok(None) };
        let said = blake3::hash(hello.pwdhash.as_deref().unwrap_or_default().as_bytes());
        let is_right = |token: &&Arc<str>| {
            let hash = Sha256::new().chain_update(token.as_bytes()).chain_update(salt);
            blake3::hash(hex(&hash.finalize()).as_bytes()) == said
        };
        let right = tokens
            .iter()
            .fold(None, |found, token| if is_right(&token) { Some(token) } else { found });
        Ok(right.cloned())
    }
}

impl Hello {
    /// Reads the line, without its end.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "a greeting must be UTF-8".to_owned())?;
        let text = text.trim().strip_prefix("HELLO ").ok_or("write HELLO first")?;
        serde_json::from_str(text).map_err(|error| format!("HELLO: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_a_token_hashed_with_the_salt() {
        let tokens: Vec<Arc<str>> = vec!["one".into(), "two".into()];
        let greeting = Greeting { salt: Some("55104dc76695721d".to_owned()) };
        assert_eq!(greeting.line(), "+HI {\"v\":2,\"s\":\"55104dc76695721d\",\"i\":1}\r\n");
        let hello =
            |hash: &str| Hello::read(format!("HELLO {{\"pwdhash\":\"{hash}\"}}").as_bytes());
        let right = hex(&Sha256::digest("two55104dc76695721d"));
        let known = greeting.check(&hello(&right).unwrap(), &tokens).unwrap();
        assert_eq!(known.as_deref(), Some("two"));
        assert_eq!(greeting.check(&hello("two").unwrap(), &tokens).unwrap(), None);
        assert_eq!(greeting.check(&hello("").unwrap(), &tokens).unwrap(), None);
        let newer = Hello::read(b"HELLO {\"v\":3}").unwrap();
        assert!(greeting.check(&newer, &tokens).unwrap_err().contains("version 3"));
        let open = Greeting { salt: None };
        assert_eq!(open.line(), "+HI {\"v\":2}\r\n");
        assert_eq!(open.check(&hello("").unwrap(), &tokens).unwrap(), None);
        assert!(Hello::read(b"PUSH {}").unwrap_err().contains("HELLO first"));
    }
}
