//! The tokens of a server, from configuration and environment.

use super::auth::KnownToken;
use super::person::NAMES_BEGIN;
use super::scope::Scope;
use crate::base::setup_error::SetupError;
use crate::config::{Config, HttpConfig, Role, TokenConfig, is_variable};

/// Holds a token with role admin, without any configuration.
pub(super) const TOKEN_VARIABLE: &str = "SERIATIM_TOKEN";
/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Shortest token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// The tokens of the configuration, and the one of the environment.
pub(super) fn tokens(config: &HttpConfig) -> Result<Vec<KnownToken>, SetupError> {
    let mut tokens: Vec<KnownToken> = Vec::new();
    for (i, token) in config.tokens.iter().enumerate() {
        let place = format!("http.tokens[{i}]");
        if !is_variable(&token.token_env) {
            // It may be the token itself.
            return Err(SetupError::invalid(format!(
                "{place}.token_env: not the name of an environment variable; put the token into a variable and write its name here, as in CI_TOKEN"
            )));
        }
        check_name(&place, &token.name)?;
        let scope = scope(&place, token)?;
        let secret = secret(&place, &token.token_env)?;
        tokens.push(KnownToken::new(token.name.clone(), &secret, token.role, scope));
    }
    if std::env::var_os(TOKEN_VARIABLE).is_some() {
        let secret = secret(TOKEN_VARIABLE, TOKEN_VARIABLE)?;
        tokens.push(KnownToken::new(
            "environment".to_owned(),
            &secret,
            Role::Admin,
            Scope::default(),
        ));
    }
    for (i, token) in tokens.iter().enumerate() {
        if let Some(other) = tokens[..i].iter().find(|other| other.is_same(token)) {
            return Err(SetupError::invalid(format!(
                "http.tokens: {:?} and {:?} are the same token: give each its own",
                other.name, token.name
            )));
        }
        if tokens[..i].iter().any(|other| other.name == token.name) {
            return Err(SetupError::invalid(format!(
                "http.tokens: {:?} names two tokens: the audit log needs different names",
                token.name
            )));
        }
    }
    Ok(tokens)
}

/// The tokens themselves, for front-ends whose clients send hashes of them. Only after [`tokens`] has found them right.
pub(crate) fn secrets(config: &HttpConfig) -> Result<Vec<String>, SetupError> {
    let named = config.tokens.iter().map(|token| &*token.token_env);
    let usual = std::env::var_os(TOKEN_VARIABLE).map(|_| TOKEN_VARIABLE);
    named.chain(usual).map(|variable| secret(variable, variable)).collect()
}

/// Queues that tokens are limited to and that the configuration does not have: a slip, or one that a push or
/// another server makes.
pub(crate) fn unknown_queues(config: &Config) -> Vec<String> {
    let mut told = Vec::new();
    for (i, token) in config.http.tokens.iter().enumerate() {
        let unknown = |queue: &&String| !config.queues.contains_key(*queue);
        for queue in token.queues.iter().flatten().filter(unknown) {
            let near = seriatim::names::did_you_mean(queue, config.queues.keys().map(|q| &**q));
            told.push(format!(
                "http.tokens[{i}] (name {:?}): queues: {queue:?} has no [queues] entry{near}: the token may use that queue once a push or another server makes it",
                token.name
            ));
        }
    }
    told
}

/// The names of a token's remote workers begin with its name and a slash.
fn check_name(place: &str, name: &str) -> Result<(), SetupError> {
    let is_odd = |c: char| c == '/' || c.is_control();
    if name.starts_with(NAMES_BEGIN) {
        return Err(SetupError::invalid(format!(
            "{place}.name: {NAMES_BEGIN:?} begins the names of people whom a proxy names: choose another"
        )));
    }
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(is_odd) {
        return Ok(());
    }
    Err(SetupError::invalid(format!(
        "{place}.name: write 1 to {NAME_BYTES_MAX} bytes without slashes and control characters"
    )))
}

/// What the token is limited to.
fn scope(place: &str, token: &TokenConfig) -> Result<Scope, SetupError> {
    let wrong =
        |what: String| SetupError::invalid(format!("{place} (name {:?}): {what}", token.name));
    for (key, names) in [("queues", &token.queues), ("groups", &token.groups)] {
        if names.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong(format!(
                "{key}: the list is empty: name some, or remove the key for all"
            )));
        }
    }
    for queue in token.queues.iter().flatten() {
        seriatim::store::validate_queue_name(queue)
            .map_err(|e| wrong(format!("queues: {queue:?}: {e}")))?;
    }
    if token.groups.iter().flatten().any(String::is_empty) {
        return Err(wrong(
            "groups: the name of a consumer group is empty: write a name, or remove it".to_owned(),
        ));
    }
    if token.groups.is_some() && token.role == Role::Reader {
        return Err(wrong("groups: a reader neither pushes nor claims: remove the key".to_owned()));
    }
    Ok(Scope::new(token.queues.clone(), token.groups.clone()))
}

/// The token in a variable, without the line end that a file or a here-document leaves behind it.
fn secret(place: &str, variable: &str) -> Result<String, SetupError> {
    let Some(value) = std::env::var_os(variable) else {
        return Err(SetupError::invalid(format!(
            "{place}: the variable {variable}, which must contain the token, is not set"
        )));
    };
    let value = value.into_string().map_err(|_| {
        SetupError::invalid(format!("variable {variable}: its value is not UTF-8 text"))
    })?;
    let secret = value.trim();
    // A header can carry nothing else.
    if secret.len() < TOKEN_BYTES_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SetupError::invalid(format!(
            "{place}: the variable {variable} must contain the token: at least {TOKEN_BYTES_MIN} ASCII characters without spaces"
        )));
    }
    Ok(secret.to_owned())
}
