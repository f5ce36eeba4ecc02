//! The environment of worker programs: only the listed variables of this process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Passed to every program, if set: enough to find programs, files and a language.
const DEFAULT: [&str; 7] = ["HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"];
/// The rest of the language: `LC_ALL`, `LC_TIME`, …
const DEFAULT_PREFIX: &str = "LC_";
/// Variables of Seriatim: they contain the store and tokens, or are reserved.
const OWN_PREFIX: &str = "SERIATIM_";
/// With it, Python does not buffer the output of a program.
const PYTHON: (&str, &str) = ("PYTHONUNBUFFERED", "1");

/// What the configuration adds to the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// Variables with their values.
    pub(crate) set: BTreeMap<String, String>,
    /// Passed on where this process has them.
    pub(crate) passed: Vec<String>,
}

impl Environment {
    /// All variables of a program.
    pub(crate) fn variables(&self) -> BTreeMap<OsString, OsString> {
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os()
            .filter(|(name, _)| {
                let is_passed = |name: &str| self.passed.iter().any(|passed| passed == name);
                name.to_str().is_some_and(|name| is_default(name) || is_passed(name))
            })
            .collect();
        variables.extend(self.set.iter().map(|(name, value)| (name.into(), value.into())));
        variables.entry(PYTHON.0.into()).or_insert_with(|| PYTHON.1.into());
        variables
    }

    /// Where its programs are looked for.
    pub(crate) fn path(&self) -> Option<OsString> {
        self.variables().remove(OsStr::new("PATH"))
    }

    /// Refuses variables that no program may get; `tokens` are those with a token.
    pub(crate) fn check(&self, tokens: &[&str]) -> Result<(), String> {
        const WANTED: &str = "write names of variables, as in";
        if !self.passed.iter().all(|name| is_variable(name)) {
            // It may be the value itself.
            return Err(format!(
                "`env_pass`: not the name of a variable; {WANTED} env_pass = [\"DATABASE_URL\"]"
            ));
        }
        if !self.set.keys().all(|name| is_variable(name)) {
            return Err(format!(
                "`env`: not the name of a variable; {WANTED} env = {{ MODE = \"fast\" }}"
            ));
        }
        self.named().try_for_each(|(key, name)| refuse_reserved(key, name))?;
        if let Some(name) = self.passed.iter().find(|name| tokens.contains(&name.as_str())) {
            return Err(format!(
                "`env_pass` names {name}, a token of http.tokens, a key of payloads.keys, one of a bucket or a header, which no program may get; give the program its own, in another variable"
            ));
        }
        if let Some(name) = self.passed.iter().find(|name| self.set.contains_key(*name)) {
            return Err(format!("{name} is in both `env` and `env_pass`: remove one"));
        }
        match self.set.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(format!("`env`: the value of {name} contains a zero byte")),
            None => Ok(()),
        }
    }

    /// What the configuration names, with the key that does.
    fn named(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let set = self.set.keys().map(|name| ("env", name));
        set.chain(self.passed.iter().map(|name| ("env_pass", name)))
    }
}

/// Whether a text can be the name of a variable; a value written by mistake usually cannot.
pub(crate) fn is_variable(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(is_plain)
}

/// Refuses a variable that no program may get. `key` names it.
pub(super) fn refuse_reserved(key: &str, name: &str) -> Result<(), String> {
    if name.starts_with(OWN_PREFIX) {
        return Err(format!(
            "`{key}` names {name}: variables that begin with {OWN_PREFIX} are reserved for Seriatim's store and tokens; use another name"
        ));
    }
    Ok(())
}

/// Whether every program gets this variable, unlisted.
pub(super) fn is_default(name: &str) -> bool {
    DEFAULT.contains(&name) || name.starts_with(DEFAULT_PREFIX)
}
