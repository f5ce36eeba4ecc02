//! The tokens of a server, as its configuration and its environment say.

use super::Role;
use super::auth::KnownToken;
use crate::config::HttpConfig;
use crate::output::Failure;
use crate::workers::environment::is_variable;

/// Holds a token with role admin, without any configuration.
pub(super) const TOKEN_VARIABLE: &str = "SERIATIM_TOKEN";
/// Shortest token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// The tokens of the configuration, and the one of the environment.
pub(super) fn tokens(config: &HttpConfig) -> Result<Vec<KnownToken>, Failure> {
    let mut tokens: Vec<KnownToken> = Vec::new();
    for (i, token) in config.tokens.iter().enumerate() {
        let place = format!("http.tokens[{i}]");
        if !is_variable(&token.token_env) {
            // It may be the token itself.
            return Err(Failure::usage(format!(
                "{place}.token_env: what stands there is not the name of an environment variable; put the token into a variable, and write its name here, as in CI_TOKEN"
            )));
        }
        let secret = secret(&place, &token.token_env)?;
        tokens.push(KnownToken::new(token.name.clone(), &secret, token.role));
    }
    if std::env::var_os(TOKEN_VARIABLE).is_some() {
        let secret = secret(TOKEN_VARIABLE, TOKEN_VARIABLE)?;
        tokens.push(KnownToken::new("environment".to_owned(), &secret, Role::Admin));
    }
    for (i, token) in tokens.iter().enumerate() {
        if let Some(other) = tokens[..i].iter().find(|other| other.is_same(token)) {
            return Err(Failure::usage(format!(
                "http.tokens: {:?} and {:?} are the same token: give each its own",
                other.name, token.name
            )));
        }
        if tokens[..i].iter().any(|other| other.name == token.name) {
            return Err(Failure::usage(format!(
                "http.tokens: {:?} names two tokens: the audit log must tell them apart",
                token.name
            )));
        }
    }
    Ok(tokens)
}

/// The token in a variable, without the line end that a file or a here-document leaves behind it.
fn secret(place: &str, variable: &str) -> Result<String, Failure> {
    let value = std::env::var_os(variable)
        .unwrap_or_default()
        .into_string()
        .map_err(|_| Failure::usage(format!("variable {variable}: its value is not UTF-8 text")))?;
    let secret = value.trim();
    // What else there is no header can carry.
    if secret.len() < TOKEN_BYTES_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!(
            "{place}: the variable {variable} must hold the token: at least {TOKEN_BYTES_MIN} characters of ASCII without spaces"
        )));
    }
    Ok(secret.to_owned())
}
